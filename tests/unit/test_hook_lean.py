"""The stand-ins for slow modules: what our modules ask of them is there, and the rest is fetched."""

import subprocess
import sys
from pathlib import Path

import pytest

from switchgear.hooks import lean

PROGRAM = """
import sys
package = type(sys)("switchgear")
package.__path__ = [sys.argv[1]]
sys.modules["switchgear"] = package
from switchgear.hooks import lean
lean.install()
"""
FOLDER = Path(lean.__file__).parents[1]


def ran(lines: str) -> str:
    """What a process with the stand-ins prints."""
    line = [sys.executable, "-I", "-S", "-c", PROGRAM + lines, str(FOLDER)]
    done = subprocess.run(line, capture_output=True, check=False, text=True)
    return done.stdout + done.stderr


@pytest.mark.parametrize(
    "name", ["typing.Literal", "typing.get_args", "functools.wraps", "enum.IntFlag", "json.load"]
)
def test_a_name_that_a_stand_in_lacks_is_fetched_from_the_original(name: str) -> None:
    module, _, attribute = name.partition(".")
    told = ran(f"from {module} import {attribute}\nprint({attribute}.__module__)")
    assert told.strip() in {module, "typing"}


def test_asking_whether_types_are_checked_needs_no_original() -> None:
    lines = "from typing import TYPE_CHECKING\nimport sys\n"
    told = ran(f"{lines}print(TYPE_CHECKING, 'Literal' in vars(sys.modules['typing']))")
    assert told == "False False\n"
