"""Checks the code of the documentation as `make check` checks ours: types of examples, recipes.

What the examples print is checked by test_examples.py.
"""

import re
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from architecture.pages import PAGES, ROOT, examples

RECIPES = {
    "Add a detector": "src/switchgear/_detectors/total_failures.py",
    "Add an agent": "src/switchgear/_agents/scribe/agent.py",
}
"""The recipes of CONTRIBUTING.md, and the file that the code of each is for."""
SHOWN = ("union-attr", "attr-defined", "var-annotated")
"""Errors that an example may make: it assumes that a value was found, and its kind."""


def check_types(folder: Path) -> int:
    """Exit code of mypy for the examples of all pages, one module per page."""
    for page in PAGES:
        if page.name != "CONTRIBUTING.md":  # its code belongs into the package
            code = [example.block.text for example in examples(page.read_text(encoding="utf-8"))]
            (folder / f"page_{page.stem.replace('-', '_')}.py").write_text("\n".join(code))
    options = [word for code in SHOWN for word in ("--disable-error-code", code)]
    cache = str(ROOT / ".mypy_cache" / "examples")
    command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", cache, *options, "."]
    return subprocess.run(command, cwd=folder, check=False).returncode


def check_recipe(recipe: str, place: str) -> int:
    """Exit code of ruff for the code of a recipe."""
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").partition(f"## {recipe}\n")[2]
    block = re.search(r"^```python\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    if block is None:
        sys.exit(f"CONTRIBUTING.md has no Python code under {recipe!r}")
    return max(
        subprocess.run(
            [sys.executable, "-m", "ruff", *command, "--stdin-filename", place, "-"],
            input=block[1],
            stdout=subprocess.DEVNULL if command[0] == "format" else None,
            cwd=ROOT,
            text=True,
            check=False,
        ).returncode
        for command in (["format", "--check"], ["check", "--quiet", "--extend-ignore", "INP001"])
    )


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        codes = [check_types(Path(name)), *(check_recipe(*each) for each in RECIPES.items())]
    sys.exit(max(codes))
