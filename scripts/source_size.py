"""Print the size and the shape of `src`: files, lines, single-importer modules, top-level modules.

    python scripts/source_size.py          the table
    python scripts/source_size.py --list   also each module that exactly one other module imports
    python scripts/source_size.py --before-later-features   without `LATER`

The before/after table of `docs/adr/0054-restructure.md` has these numbers.
"""

import argparse
import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from statistics import median

SRC = Path(__file__).resolve().parents[1] / "src"
LATER = (
    "_console/",
    "_proxy/",
    "_opinion/",
    "_mcp/",
    "_remote/",
    "integrations/",
    "_analysis/backtest/labels.py",
    "_analysis/backtest/opinions.py",
    "_analysis/backtest/outcomes.py",
    "_cli/label.py",
    "_cli/mcp.py",
    "_cli/metrics.py",
    "_cli/proxy.py",
    "_cli/worker.py",
    "_cli/wrap.py",
    "_config/proxy.py",
    "_hooks/opinions.py",
    "_measure/worktrees.py",
    "_providers/prices.py",
    "_providers/traffic.py",
    "_providers/upstreams.py",
    "_providers/usage.py",
    "_providers/verdicts.py",
    "_providers/waits.py",
    "_run/inbox.py",
    "_run/second_opinion.py",
    "_run/wrap.py",
    "_run/wrap_site/sitecustomize.py",
    "_sinks/metrics.py",
    "_sinks/opentelemetry.py",
    "src/switchgear_pytest.py",
)
"""Packages and files of features that came after the restructure."""


def module_name(file: Path) -> str:
    """As it is imported: `switchgear._core.machine`."""
    parts = file.relative_to(SRC).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported_names(tree: ast.AST) -> Iterator[str]:
    """Every module that the tree may import; `from a import b` gives `a.b` and `a`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                yield f"{node.module}.{alias.name}"
            yield node.module


def importers(files: dict[str, Path]) -> dict[str, set[str]]:
    """By module: the modules that import it."""
    found: dict[str, set[str]] = defaultdict(set)
    for name, file in files.items():
        for target in imported_names(ast.parse(file.read_text(encoding="utf-8"))):
            if target in files and target != name:
                found[target].add(name)
    return found


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--list", action="store_true", help="list the single-importer modules")
    parser.add_argument(
        "--before-later-features", action="store_true", help="leave out the files of `LATER`"
    )
    options = parser.parse_args()
    files = {module_name(file): file for file in sorted(SRC.rglob("*.py"))}
    if options.before_later_features:
        later = tuple(f"{SRC}/switchgear/{name}" for name in LATER)
        files = {name: file for name, file in files.items() if not str(file).startswith(later)}
    lines = {
        name: len(file.read_text(encoding="utf-8").splitlines()) for name, file in files.items()
    }
    by_module = importers(files)
    single = [
        name
        for name, file in files.items()
        if file.name != "__init__.py" and len(by_module.get(name, ())) == 1
    ]
    top = [name for name, file in files.items() if file.parent == SRC / "switchgear"]
    share = sum(lines[name] for name in single) / sum(lines.values())
    print(f"Python files             {len(files)}")
    print(f"median lines per file    {median(lines.values()):.0f}")
    print(f"lines                    {sum(lines.values())}")
    print(f"files over 700 lines     {sum(count > 700 for count in lines.values())}")
    print(f"single-importer modules  {len(single)} ({share:.0%} of all lines)")
    print(f"modules at the top level {len(top)}")
    if options.list:
        for name in single:
            print(f"  {name} ({lines[name]} lines) ← {min(by_module[name])}")


if __name__ == "__main__":
    main()
