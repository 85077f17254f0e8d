"""Check types and run the tests of the integrations whose packages this environment has.

    .venv-openai3/bin/python tests/integrations/check_set.py [pytest arguments]

A module is checked if all packages that it imports are installed.
"""

import ast
import importlib.util
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
CHECKED = (
    ("modules", "src/switchgear/integrations"),
    ("tests", "tests/integrations"),
    ("examples", "examples"),
)


def packages_of(path: Path) -> set[str]:
    """The packages that a module and the helpers of the tests that it uses import, wherever in them."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {name.name for name in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.add(node.module)
    for name in list(found):
        if (helper := ROOT / "tests" / f"{name}.py").is_file() and helper != path:
            found |= packages_of(helper)
    return {name for name in found if name.partition(".")[0] != "switchgear"}


def is_installed(name: str) -> bool:
    """Whether a package can be imported here, or is a helper of the tests."""
    top, _, _ = name.partition(".")
    try:
        # The packages of Google share one namespace; other names are not imported to look inside.
        return importlib.util.find_spec(name if top == "google" else top) is not None
    except (ImportError, ValueError):
        return False


def main() -> int:
    """Type check what can be, then run the tests."""
    sys.path[:0] = [str(ROOT / "tests")]
    names, counts = [], []
    for kind, folder in CHECKED:
        candidates = sorted((ROOT / folder).glob("*.py"))
        checked = [path for path in candidates if all(map(is_installed, packages_of(path)))]
        names += [str(path.relative_to(ROOT)) for path in checked]
        counts.append(f"{len(checked)} of {len(candidates)} {kind}")
    here = Path(sys.prefix).name
    sys.stdout.write(f"{here}: types of {', '.join(counts)}\n")
    sys.stdout.flush()
    cache = f".mypy_cache/{here}"
    types = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--cache-dir", cache, *names],
        cwd=ROOT,
        check=False,
    )
    if types.returncode:
        return types.returncode
    tests = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *sys.argv[1:], "tests/integrations"],
        cwd=ROOT,
        env={**os.environ, "LITELLM_LOCAL_MODEL_COST_MAP": "True"},  # no network
        check=False,
    )
    return tests.returncode


if __name__ == "__main__":
    sys.exit(main())
