"""How much a test tries: a little in `make test`, everything in `make stress`."""

import functools
import inspect
import os
from collections.abc import Callable, Collection, Iterable
from typing import Any

import pytest

DEEP = bool(os.environ.get("SWITCHGEAR_DEEP"))


def scaled(everything: int, few: int) -> int:
    """The number of tries; mark the test with `deep`, so that `make stress` runs it too."""
    return everything if DEEP else few


def some_of(cases: Iterable[str], kept: Collection[str]) -> list[Any]:
    """All cases as parameters of a test; `make test` runs only those that are kept."""
    every = list(cases)
    assert {*kept} <= {*every}, f"no such cases: {sorted({*kept} - {*every})}"
    return [
        case if case in kept else pytest.param(case, id=case, marks=pytest.mark.stress)
        for case in every
    ]


def for_each(name: str, values: Iterable[Any]) -> Callable[[Callable[..., None]], Any]:
    """Call the test with each value of a parameter. As `parametrize`, but all of them in one test.

    For tables of hundreds of values, where a test for each costs more than what it checks.
    """

    def decorate(test: Callable[..., None]) -> Any:
        @functools.wraps(test)
        def for_all(**others: Any) -> None:
            for value in values:
                try:
                    test(**others, **{name: value})
                except BaseException as error:
                    error.add_note(f"with {name} = {value!r}")
                    raise

        whole = inspect.signature(test)
        rest = [each for each in whole.parameters.values() if each.name != name]
        vars(for_all)["__signature__"] = whole.replace(parameters=rest)
        return for_all

    return decorate
