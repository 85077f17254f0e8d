"""How much a test tries: a little in `make test`, everything in `make stress`."""

import os
from collections.abc import Collection, Iterable
from typing import Any

import pytest

DEEP = bool(os.environ.get("SWITCHGEAR_DEEP"))


def scaled(everything: int, few: int) -> int:
    """The number of tries; mark the test with `deep`, so that `make stress` runs it too."""
    return everything if DEEP else few


def sample(cases: Iterable[str], kept: Collection[str]) -> list[Any]:
    """All cases as parameters of a test; `make test` runs only those that are kept."""
    every = list(cases)
    assert {*kept} <= {*every}, f"no such cases: {sorted({*kept} - {*every})}"
    return [
        case if case in kept else pytest.param(case, id=case, marks=pytest.mark.stress)
        for case in every
    ]
