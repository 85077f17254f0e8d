"""List the class names that are defined more than once in `src`.

A class name must have one meaning, so that it makes sense on its own in a traceback. `ALLOWED` has
the exceptions, each with its reason. Exits with 1 if there is another one;
`tests/architecture/test_class_names.py` fails then, too.
"""

import ast
import sys
from collections import defaultdict
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src" / "switchgear"

ALLOWED: dict[str, str] = {}
"""Names that may be defined more than once, and why."""


def definitions(source: Path = SOURCE) -> dict[str, list[str]]:
    """Where each class name is defined, as `path:line`; nested classes included."""
    found: dict[str, list[str]] = defaultdict(list)
    for path in sorted(source.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                found[node.name].append(f"{path.relative_to(source)}:{node.lineno}")
    return found


def ambiguous(source: Path = SOURCE) -> dict[str, list[str]]:
    """The names that are defined more than once, without the allowed ones."""
    return {
        name: places
        for name, places in sorted(definitions(source).items())
        if len(places) > 1 and name not in ALLOWED
    }


def main() -> int:
    """Print them; 1 if there are any."""
    names = ambiguous()
    for name, places in names.items():
        print(f"{name:<16} {', '.join(places)}")
    print(f"{len(names)} ambiguous class names")
    return 1 if names else 0


if __name__ == "__main__":
    sys.exit(main())
