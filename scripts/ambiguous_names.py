"""List the class names that are defined more than once in `src`.

A class name must have one meaning, so that it makes sense on its own in a traceback. `ALLOWED` has
the exceptions, each with its reason. `BASELINE` has the names that still wait for a better one: it
may only shrink: `tests/architecture/test_class_names.py` fails on a new one. Exits with 1 if there is
a name that is in neither.
"""

import ast
import sys
from collections import defaultdict
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src" / "switchgear"

ALLOWED: dict[str, str] = {}
"""Names that may be defined more than once, and why."""

BASELINE = frozenset(
    [
        "Agent",
        "AgentProcess",
        "Answer",
        "Block",
        "Call",
        "Change",
        "Chosen",
        "Command",
        "Entry",
        "Found",
        "Gate",
        "Lane",
        "Outcome",
        "Pending",
        "Place",
        "ProviderDown",
        "Row",
        "Saved",
        "Scenario",
        "Settings",
        "Standing",
        "State",
        "Status",
        "Tally",
        "View",
        "_Reader",
    ]
)
"""Names with several meanings that are not renamed yet."""


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
    """Print them, and say which are new; 1 if there are new ones."""
    names = ambiguous()
    for name, places in names.items():
        mark = " " if name in BASELINE else "!"
        print(f"{mark} {name:<16} {', '.join(places)}")
    new = sorted(set(names) - BASELINE)
    print(f"{len(names)} ambiguous class names, {len(new)} of them new (!)")
    for name in sorted(BASELINE - set(names)):
        print(f"remove {name} from BASELINE: it has one meaning now")
    return 1 if new else 0


if __name__ == "__main__":
    sys.exit(main())
