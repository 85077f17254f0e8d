"""The examples in the documentation of the code do what they say."""

import doctest
import importlib
import pkgutil

import pytest

import switchgear

MODULES = sorted(
    name
    for _, name, _ in pkgutil.walk_packages(switchgear.__path__, "switchgear.")
    if not name.endswith("__main__")
)


@pytest.mark.parametrize("name", ["switchgear", *MODULES])
def test_the_examples_of_the_module_run(name: str) -> None:
    failed, _ = doctest.testmod(importlib.import_module(name))
    assert failed == 0


def test_there_are_examples_to_run() -> None:
    modules = [importlib.import_module(name) for name in MODULES]
    finder = doctest.DocTestFinder(exclude_empty=True)
    examples = [
        example for module in modules for example in finder.find(module) if example.examples
    ]
    assert len(examples) >= 10
