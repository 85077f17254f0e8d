"""The examples in docstrings produce the output that they show."""

import doctest
import importlib.util
import pkgutil
from pathlib import Path

import pytest

import switchgear


def source(name: str) -> str:
    found = importlib.util.find_spec(name)
    assert found is not None
    assert found.origin is not None
    return Path(found.origin).read_text(encoding="utf-8")


MODULES = sorted(
    name
    for _, name, _ in pkgutil.walk_packages(switchgear.__path__, "switchgear.")
    if not name.endswith("__main__")
)
WITH_EXAMPLES = [name for name in ["switchgear", *MODULES] if ">>>" in source(name)]


@pytest.mark.parametrize("name", WITH_EXAMPLES)
def test_the_examples_of_the_module_run(name: str) -> None:
    failed, _ = doctest.testmod(importlib.import_module(name))
    assert failed == 0


def test_there_are_examples_to_run() -> None:
    assert len(WITH_EXAMPLES) >= 10
