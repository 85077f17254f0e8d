"""The examples run, need no key and no network, and stay short."""

import ast
import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

from timeouts import LIMIT_S

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.py"))


def missing_of(path: Path) -> list[str]:
    """The packages of an example that are not installed here."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {name.name for name in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module)
    return sorted(name for name in names if not _is_there(name))


def _is_there(module: str) -> bool:
    """Whether a module can be found; packages such as `google` belong to several distributions."""
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_runs(path: Path, tmp_path: Path) -> None:
    if missing := missing_of(path):
        pytest.skip(f"not installed: {', '.join(missing)}")
    if "credentials" in (ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""):
        pytest.skip("needs credentials of an account")
    done = subprocess.run(
        [sys.executable, str(path)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_has_at_most_30_lines(path: Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 30
