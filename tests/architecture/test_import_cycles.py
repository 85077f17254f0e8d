"""No module needs, while it is imported, one that needs it: every module can be the first."""

import ast
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src"


def modules() -> dict[str, Path]:
    """Every module by its name."""
    found: dict[str, Path] = {}
    for path in SOURCE.rglob("*.py"):
        parts = path.relative_to(SOURCE).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def run_at_import(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements that run while a module is imported."""
    for statement in body:
        if isinstance(statement, ast.If) and "TYPE_CHECKING" in ast.unparse(statement.test):
            yield from run_at_import(statement.orelse)
            continue
        yield statement
        for inner in ("body", "orelse", "finalbody"):
            if not isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
                yield from run_at_import(getattr(statement, inner, []))


def needs(path: Path, known: dict[str, Path]) -> set[str]:
    """The modules of ours that a module imports while it is imported itself."""
    found: set[str] = set()
    for statement in run_at_import(ast.parse(path.read_text(encoding="utf-8")).body):
        if isinstance(statement, ast.Import):
            found.update(alias.name for alias in statement.names)
        elif isinstance(statement, ast.ImportFrom) and statement.module is not None:
            for alias in statement.names:
                inside = f"{statement.module}.{alias.name}"
                found.add(inside if inside in known else statement.module)
    return found & set(known)


def test_no_import_cycles() -> None:
    known = modules()
    graph = {name: needs(path, known) - {name} for name, path in known.items()}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as cycle:
        raise AssertionError(f"modules import each other: {' → '.join(cycle.args[1])}") from None
