"""The documentation is correct: links work, pages and tables match the code."""

import ast
import importlib
import inspect
import re
import runpy
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeGuard

import pytest

import switchgear
from switchgear import detectors
from switchgear._agents.registry import AGENTS
from switchgear._stores.redis.clients import ERRORS_BY_WORD

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
TOP = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")]
PAGES = [*sorted(DOCS.rglob("*.md")), *TOP]


def page_name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def test_the_picture_of_the_states_shows_the_table_of_moves() -> None:
    script = ROOT / "scripts" / "draw_states.py"
    done = subprocess.run(
        [sys.executable, script, "--check"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
SNIPPET = re.compile(r'^--8<-- "(.+)"$', re.MULTILINE)
CODE = re.compile(r"```.*?```|`[^`\n]*`", re.DOTALL)


def with_snippets(page: Path) -> str:
    text = page.read_text(encoding="utf-8")
    return SNIPPET.sub(lambda found: (ROOT / found[1]).read_text(encoding="utf-8"), text)


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, made as Python-Markdown makes them."""
    headings = re.findall(
        r"^#+ +(.+)$", re.sub(r"```.*?```", "", with_snippets(page), flags=re.DOTALL), re.MULTILINE
    )
    slugs = (re.sub(r"[^\w\s-]", "", heading).strip().lower() for heading in headings)
    return {re.sub(r"[-\s]+", "-", slug) for slug in slugs}


@pytest.mark.parametrize("page", PAGES, ids=page_name)
def test_every_link_inside_the_repository_leads_somewhere(page: Path) -> None:
    for target in LINK.findall(CODE.sub("", with_snippets(page))):
        if target.startswith(("http://", "https://", "mailto:")):
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        assert file.exists(), f"{page_name(page)} links to {target}, and there is no such file"
        if anchor and file.suffix == ".md":
            assert anchor in anchors(file), f"{page_name(page)} links to {target}: no such heading"


def test_every_test_that_the_page_on_correctness_names_exists() -> None:
    page = (DOCS / "correctness.md").read_text(encoding="utf-8")
    named = re.findall(r"\| `(tests/[\w/]+\.py)` `(\w+)` \|$", page, re.MULTILINE)
    assert named
    for path, test in named:
        text = (ROOT / path).read_text(encoding="utf-8") if (ROOT / path).exists() else ""
        assert f"def {test}(" in text, f"docs/correctness.md names {path} {test}: there is none"


MEASURED = (
    ("docs/benchmarks.md", "bench"),
    ("docs/correctness.md", "mutants"),
)


@pytest.mark.parametrize(("name", "what"), MEASURED)
def test_measured_results_are_on_their_page(name: str, what: str) -> None:
    page = (ROOT / name).read_text(encoding="utf-8")
    block = re.search(rf"<!-- {what}:begin -->(.*?)<!-- {what}:end -->", page, re.DOTALL)
    assert block, f"{name} has lost its block {what}:begin"
    assert re.search(r"^\|.*\d.*\|$", block[1], re.MULTILINE), (
        f"{name} shows no results: run `make {what}`; scripts/paste_results.py pastes the benchmark"
    )


def test_every_measure_of_the_benchmark_is_described() -> None:
    main = (ROOT / "bench" / "__main__.py").read_text(encoding="utf-8")
    measures = re.findall(r'^    "([\w-]+)": \w+\.\w+,$', main, re.MULTILINE)
    assert len(measures) >= 15
    page = (DOCS / "benchmarks.md").read_text(encoding="utf-8")
    missing = [measure for measure in measures if f"`{measure}`" not in page]
    assert not missing, f"docs/benchmarks.md does not name the measures {missing}"


def test_the_results_of_a_benchmark_are_pasted_completely() -> None:
    script = runpy.run_path(str(ROOT / "scripts" / "paste_results.py"))
    results = (
        "CPython 3 on a machine. switchgear 0.1.0.\n\nHow to read it.\n\n"
        "| measure | unit | measured | limit | |\n|---|---|---:|---:|---|\n"
        "| Closed | times the floor | 1.50 | ≤ 1.6 | passed |\n"
        "| Closed | times as fast | 3.00 | ≥ 4 | **missed** |\n\n### Closed\n"
    )
    page = "before\n<!-- bench:begin -->\nold\n<!-- bench:end -->\nafter\n"
    once = script["pasted"](page, "bench", results)
    assert "old" not in once
    assert once.startswith("before\n<!-- bench:begin -->\n\nCPython 3")
    assert once.endswith("### Closed\n\n<!-- bench:end -->\nafter\n")
    assert script["pasted"](once, "bench", results) == once
    with pytest.raises(ValueError, match="there must be one block"):
        script["pasted"]("no block", "bench", results)


def test_the_scores_of_several_runs_of_mutants_are_one_table() -> None:
    script = runpy.run_path(str(ROOT / "scripts" / "paste_results.py"))
    head = "noise\n\n| file | mutants | killed | explained | left |\n|---|---:|---:|---:|---:|\n"
    first = f"{head}| core/a.py | 9 | 7 | 1 | 1 |\n| runs.py | 2 | 2 | 0 | 0 |\n| all | 11 | 9 | 1 | 1 |\n"
    again = f"{head}| core/a.py | 9 | 8 | 1 | 0 |\n| all | 9 | 8 | 1 | 0 |\n"
    told = script["scores"]([first, again], "on a day at 1a2b3c4")
    assert told.startswith("Measured on a day at 1a2b3c4 by `make mutants`: of 11 mutants, 10 were")
    assert told.splitlines()[-3:] == [
        "| `core/a.py` | 9 | 8 | 1 | 0 |",
        "| `runs.py` | 2 | 2 | 0 | 0 |",
        "| **all** | **11** | **10** | **1** | **0** |",
    ]


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 150


def test_every_page_is_in_the_navigation() -> None:
    navigation = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:\n")[2]
    for page in sorted(DOCS.glob("*.md")):
        assert re.search(rf"[ :]{re.escape(page.name)}$", navigation, re.MULTILINE), (
            f"mkdocs.yml does not list {page.name}"
        )


GROUPS = {
    "Guard calls": "tutorial-calls.md",
    "Run agents": "tutorial-run.md",
    "Guard a coding agent": "tutorial-hooks.md",
    "Run a fleet": "tutorial-fleet.md",
    "Operate and look up": "tutorial-operate.md",
}


@pytest.mark.parametrize(("group", "tutorial"), GROUPS.items())
def test_every_group_of_the_navigation_begins_with_a_tutorial(group: str, tutorial: str) -> None:
    navigation = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    first = navigation.partition(f"\n  - {group}:\n")[2].partition("\n")[0]
    assert first.endswith(f": {tutorial}")


def test_the_documentation_imports_no_private_module() -> None:
    for page in [*sorted(DOCS.glob("*.md")), ROOT / "README.md"]:
        found = re.findall(
            r"^\s*(?:from|import) (switchgear\._\S*)",
            page.read_text(encoding="utf-8"),
            re.MULTILINE,
        )
        assert not found, f"{page_name(page)} imports {found}"


def test_the_readme_and_the_makefile_agree_on_how_long_the_demo_takes() -> None:
    told = [
        re.findall(r"demo.*about (\d+) seconds", (ROOT / name).read_text(encoding="utf-8"))
        for name in ("README.md", "Makefile")
    ]
    assert told[0] == told[1]
    assert len(told[0]) == 1


def test_the_map_shows_every_package() -> None:
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    shown = page.partition("## Map of the packages")[2].partition("## Rules that tests check")[0]
    for package in sorted((ROOT / "src" / "switchgear").glob("*/__init__.py")):
        assert f"\n  {package.parent.name}/ " in shown, (
            f"the map does not show {package.parent.name}/"
        )
    for module in sorted((ROOT / "src" / "switchgear").glob("[a-z]*.py")):
        assert module.name in shown, f"the map does not show {module.name}"


def test_the_map_has_the_order_of_imports_and_names_files_that_exist() -> None:
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    shown = page.partition("## Map of the packages")[2].partition("## Rules that tests check")[0]
    order = shown.partition("Imports point one way: ")[2].partition(". `make check`")[0]
    told = [sorted(re.findall(r"`(\w+)`", layer)) for layer in order.split("←")]
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    layers = settings["tool"]["importlinter"]["contracts"][0]["layers"]
    assert told == [sorted(layer.split(" | ")) for layer in reversed(layers)]
    for package, lines in re.findall(r"^  (\w+)/ (.*(?:\n {10}.*)*)", shown, re.MULTILINE):
        for file in re.findall(r"\b\w+\.py\b", lines):
            assert any((ROOT / "src" / "switchgear" / package).rglob(file)), f"{package}/{file}"


@pytest.mark.parametrize("agent", AGENTS)
def test_every_agent_is_described(agent: str) -> None:
    agents = (DOCS / "agents.md").read_text(encoding="utf-8")
    assert f"\n| `{agent}` | " in agents, f"docs/agents.md has no row for {agent}"
    options = (DOCS / "run.md").read_text(encoding="utf-8").partition("| `--agent NAME`")[2]
    assert f"`{agent}`" in options.partition("\n")[0], f"docs/run.md does not name {agent}"


def test_every_decision_is_in_the_index_and_in_the_navigation() -> None:
    index = (DOCS / "adr" / "index.md").read_text(encoding="utf-8")
    navigation = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    for record in sorted((DOCS / "adr").glob("0*.md")):
        assert f"({record.name})" in index, f"docs/adr/index.md does not list {record.name}"
        assert f"adr/{record.name}" in navigation, f"mkdocs.yml does not list {record.name}"


PUBLIC = (
    *("switchgear", "budgets", "config", "detectors", "errors"),
    *("fleet", "presets", "sinks", "stores", "testing"),
)


@pytest.mark.parametrize("name", PUBLIC)
def test_the_reference_page_of_a_module_lists_all_its_public_names(name: str) -> None:
    module = "switchgear" if name == "switchgear" else f"switchgear.{name}"
    page = DOCS / "reference" / ("index.md" if name == "switchgear" else f"{name}.md")
    listed = re.findall(r"^::: ([\w.]+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    public = set(importlib.import_module(module).__all__) - set(PUBLIC)
    assert set(listed) == {f"{module}.{each}" for each in public}
    assert len(listed) == len(set(listed))
    assert f"reference/{page.name}" in (ROOT / "mkdocs.yml").read_text(encoding="utf-8")


def test_only_the_documented_modules_are_public() -> None:
    package = Path(switchgear.__file__).parent
    found = {path.stem for path in package.iterdir() if not path.name.startswith(("_", "."))}
    # `hooks` holds only entry.py, whose path is in the settings of installed agents.
    # `integrations` has a page for each of its modules, which are imported only by their users.
    assert found - {"py", "hooks", "integrations"} == set(PUBLIC) - {"switchgear"}


PRIVATE = re.compile(r"\bswitchgear(?:\.\w+)*\._(?!_)\w+")
USER_PAGES = [
    page
    for page in PAGES
    if "adr" not in page.parts and page.name not in {"CONTRIBUTING.md", "contributing.md"}
]


@pytest.mark.parametrize("page", USER_PAGES, ids=page_name)
def test_no_page_for_users_names_a_private_package(page: Path) -> None:
    found = PRIVATE.findall(page.read_text(encoding="utf-8"))
    assert not found, f"{page_name(page)} names {found[0]}"


RULES = (switchgear.Cooldown, switchgear.WindowEnd, switchgear.Latched)


@pytest.mark.parametrize("kind", [*detectors.ALL, *RULES], ids=lambda kind: kind.__name__)
def test_every_detector_and_recovery_rule_is_described_with_its_fields_and_defaults(
    kind: Callable[..., Any],
) -> None:
    name = "docs/recovery.md" if kind in RULES else "docs/detectors.md"
    page = (ROOT / name).read_text(encoding="utf-8")
    _, heading, section = page.partition(f"\n## {kind.__name__}\n")
    assert heading, f"{name} has no section {kind.__name__}"
    section = section.partition("\n## ")[0]
    for field in fields_of(kind):
        default = "required" if field.default is field.empty else f"`{field.default}`"
        assert re.search(
            rf"^\| `{field.name}` \| {re.escape(default)} \|", section, re.MULTILINE
        ), f"{name} must say: {kind.__name__} has a field {field.name}, {default}"


def fields_of(kind: Callable[..., Any]) -> list[inspect.Parameter]:
    """The arguments of its own constructor, if it has one."""
    if "__init__" not in vars(kind):
        return []
    return list(inspect.signature(kind).parameters.values())


def test_the_site_loads_nothing_from_the_network() -> None:
    settings = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    assert "\n  font: false\n" in settings, "mkdocs.yml must keep `font: false`: no web fonts"
    assert "\n    - js/iframe-worker.js\n" in settings, (
        "without extra.polyfills in mkdocs.yml the offline plugin loads a script from elsewhere"
    )
    assert "://" not in settings, "mkdocs.yml must name no address"


def is_about_stored_data(file: Path, node: ast.AST) -> bool:
    """Whether it is a function whose errors reach the reader as "not the state of a circuit: …"."""
    if not isinstance(node, ast.FunctionDef):
        return False
    if file.name == "wire.py":
        return node.name.startswith("_") and node.name != "_upgrade"
    return node.name == "load" or file.name == "window.py"


def raised_texts() -> Iterator[tuple[str, str]]:
    """Where the source raises something with a text, and the longest fixed piece of that text."""
    for file in sorted((ROOT / "src").rglob("*.py")):
        tree = ast.parse(file.read_text(encoding="utf-8"))
        inner = {
            node
            for function in ast.walk(tree)
            if is_about_stored_data(file, function)
            for node in ast.walk(function)
        }
        for node in ast.walk(tree):
            if node in inner:
                continue
            longest = ""
            if isinstance(node, ast.Raise):
                longest = longest_piece(node.exc, 0)
            elif is_store_error(node):
                longest = longest_piece(node, 1)
            if longest:
                line = getattr(node, "lineno", "?")
                yield f"{file.relative_to(ROOT).as_posix()}:{line}", longest


def is_store_error(node: ast.AST) -> TypeGuard[ast.Call]:
    """Whether a `StoreError` is created here, perhaps to be raised elsewhere: its second argument is the reason."""
    return (
        isinstance(node, ast.Call)
        and re.fullmatch(r"Store[A-Z]\w+", getattr(node.func, "id", "")) is not None
        and len(node.args) == 3
    )


def longest_piece(raised: ast.expr | None, argument: int) -> str:
    """The longest fixed piece of the text in an argument; empty if it is too short to identify the error."""
    if not isinstance(raised, ast.Call) or len(raised.args) <= argument:
        return ""
    if getattr(raised.func, "id", "") == "AssertionError":
        return ""
    pieces = [
        piece.value
        for piece in ast.walk(raised.args[argument])
        if isinstance(piece, ast.Constant) and isinstance(piece.value, str)
    ]
    longest = max(pieces, key=len, default="").strip(" :;,'(")
    return longest if len(longest) > 12 else ""


def test_every_error_message_is_explained_in_troubleshooting() -> None:
    page = " ".join((DOCS / "troubleshooting.md").read_text(encoding="utf-8").split())
    missing = [f'{where} raises "…{text}…"' for where, text in raised_texts() if text not in page]
    assert not missing, "docs/troubleshooting.md does not explain:\n" + "\n".join(missing)


def test_every_error_of_a_redis_server_is_explained_in_troubleshooting() -> None:
    page = " ".join((DOCS / "troubleshooting.md").read_text(encoding="utf-8").split())
    missing = [why for _, _, why, _ in ERRORS_BY_WORD if why not in page]
    assert not missing, f"docs/troubleshooting.md does not explain {missing}"


def test_every_kind_of_event_is_in_the_table_of_concepts() -> None:
    page = (DOCS / "concepts.md").read_text(encoding="utf-8")
    for kind in switchgear.EventKind:
        assert f"| `{kind}` |" in page, f"docs/concepts.md does not list the event {kind}"
