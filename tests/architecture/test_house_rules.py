"""The rules of the codebase; a broken one is reported in a sentence."""

import ast
import importlib
import inspect
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import switchgear
from depth import KEPT, for_each

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "switchgear"
PURE = (
    *("_core", "_detectors", "_rules", "_text"),
    *("_budgets/tree.py", "_budgets/fold.py", "_locks/state.py"),
)
PURE_MAY_IMPORT = {"collections.abc", "enum", "itertools", "math", "typing"}
TEXT_MAY_IMPORT = {"fnmatch", "hashlib", "json", "re"}
PURE_MAY_IMPORT_LATE = {
    "errors.py": {"os"},
    "step_facts.py": {"re", "zlib"},
    "fingerprint.py": {"hashlib", "re"},
}
"""Inside functions, where a first error or step is looked at (ADR 0012): importing is not free."""
MODULES = sorted(SOURCE.rglob("*.py"))


def imported_modules(path: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            names.add(node.module or "")
    return names


def pure_modules() -> list[Path]:
    places = [SOURCE / name for name in PURE]
    return sorted(
        p for place in places for p in (place.rglob("*.py") if place.is_dir() else [place])
    )


def run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("path", pure_modules(), ids=lambda path: str(path.relative_to(SOURCE)))
def test_pure_packages_import_only_each_other_and_a_few_pure_modules(path: Path) -> None:
    ours = tuple(f"switchgear.{name.removesuffix('.py').replace('/', '.')}" for name in PURE)
    others = {name for name in imported_modules(path) if not name.startswith(ours)}
    late = PURE_MAY_IMPORT_LATE.get(path.name, set())
    allowed = PURE_MAY_IMPORT | late | (TEXT_MAY_IMPORT if path.parent.name == "_text" else set())
    assert others <= allowed, f"{path.name} imports {sorted(others - allowed)}"
    top = {
        name.name
        for node in ast.parse(path.read_text()).body
        for name in getattr(node, "names", [])
    }
    assert not top & late, f"{path.name} imports {sorted(top & late)} where it costs every hook"


@for_each("path", MODULES)
def test_every_file_has_a_docstring(path: Path) -> None:
    text = path.read_text()
    assert ast.get_docstring(ast.parse(text)), f"{path.name} has no module docstring"


NO_PERSONS = re.compile(
    r"\b(whoever|somebody|anybody|everybody|nobody|anew|afresh|of ours|of yours|in vain|in earnest"
    r"|mended|dearest|hears|heard|says? so|(?:is|are|was|were|be|been) (?:told|said)|seed 0\d\d)\b",
    re.IGNORECASE,
)
"""Programs are not persons, and the field has words for the rest: record, acquire, notify, holder, waiter."""
NO_PERSONS_BUT = {("override.py", "somebody")}
"""Stored data."""


def test_texts_do_not_personify_programs() -> None:
    top = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md", "Makefile")]
    found = [
        f"{path.relative_to(ROOT)}:{number}: {match[0]}"
        for path in (*MODULES, *top, *sorted((ROOT / "docs").rglob("*.md")))
        for number, line in enumerate(path.read_text().splitlines(), 1)
        for match in NO_PERSONS.finditer(line)
        if (path.name, match[0]) not in NO_PERSONS_BUT
    ]
    assert not found, "write what the program does:\n" + "\n".join(found)


def test_no_module_is_called_utils() -> None:
    assert not [path for path in MODULES if path.stem in {"utils", "util", "helpers", "common"}]


def test_the_public_surface_is_small_sorted_and_documented() -> None:
    names = switchgear.__all__
    # Breakers, panel, policies, and the values that their methods take and return.
    assert len(names) <= 40
    assert names == sorted(names)
    assert all(getattr(switchgear, name).__doc__ for name in names)


PUBLIC_MODULES = sorted(path.stem for path in SOURCE.glob("[a-z]*.py"))


@pytest.mark.parametrize("module", PUBLIC_MODULES)
def test_public_classes_functions_and_methods_are_documented(module: str) -> None:
    """Private packages need none: ruff exempts them from its D1 rules."""
    public = importlib.import_module(f"switchgear.{module}")
    exported = {name: getattr(public, name) for name in public.__all__}
    documented: dict[str, object] = {
        name: it for name, it in exported.items() if inspect.isroutine(it)
    }
    for name, cls in exported.items():
        if inspect.isclass(cls) and cls.__module__.startswith("switchgear"):
            documented[name] = cls
            documented |= {
                f"{name}.{attribute}": getattr(cls, attribute)
                for attribute, value in vars(cls).items()
                if attribute[0] != "_" and (inspect.isroutine(value) or isinstance(value, property))
            }
    missing = [name for name, it in documented.items() if not inspect.getdoc(it)]
    assert not missing, f"switchgear.{module} exports names without a docstring: {missing}"


def test_importing_the_library_loads_neither_the_command_nor_heavy_modules() -> None:
    heavy = {"asyncio", "click", "dataclasses", "inspect", "logging", "rich", "sqlite3", "http"}
    script = "import sys, switchgear; print(*sys.modules)"
    loaded = set(
        run(
            sys.executable, "-S", "-c", f"import sys; sys.path.insert(0, 'src'); {script}"
        ).stdout.split()
    )
    assert "switchgear._breaker.circuit_breaker" in loaded
    assert not heavy & loaded


def test_reading_the_configuration_loads_no_http_client() -> None:
    """It lists notification targets; the client that sends to them takes as long as all the rest."""
    script = "import sys; sys.path.insert(0, 'src'); import switchgear._config; print(*sys.modules)"
    loaded = run(sys.executable, "-S", "-c", script).stdout.split()
    assert "switchgear._fleet.targets" in loaded
    assert not {"http.client", "urllib.request", "ssl", "email", "yaml"} & {*loaded}


def test_ci_runs_the_verbs_of_the_makefile_and_the_readme_names_the_test_command() -> None:
    commands = [
        line
        for line in (ROOT / ".ci" / "run").read_text().splitlines()
        if line and not line.startswith(("#", "set ", "cd "))
    ]
    verbs = ["check", "test", "integrations", "console", "e2e", "stress"]
    assert commands == [f"make {verb}" for verb in verbs]
    assert "make test" in (ROOT / "README.md").read_text()


def test_the_version_is_the_same_everywhere() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["version"] == switchgear.__version__
    assert f"## [{switchgear.__version__}]" in (ROOT / "CHANGELOG.md").read_text()


HOOK_MODULES = sorted((*(SOURCE / "hooks").rglob("*.py"), *(SOURCE / "_hooks").rglob("*.py")))
PRIVATE_MODULES = {"client.py": {"_socket", "_signal"}}
"""Private modules of Python that a file may import: what `socket` and `signal` wrap and re-export."""
DOCUMENTED = {"__future__", "_thread"}
INTERNALS = frozenset(
    (
        *("pythonapi", "_getframe", "_current_frames", "_clear_type_cache", "f_back", "f_locals"),
        *("gi_frame", "cr_frame", "tb_frame", "get_referrers", "co_code", "ob_refcnt"),
    )
)
"""Attributes that only CPython has, or that reach into its frames and objects."""


@pytest.mark.parametrize("path", HOOK_MODULES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_hooks_use_no_internals_of_cpython(path: Path) -> None:
    private = {name for name in imported_modules(path) if name.startswith("_")} - DOCUMENTED
    assert private <= PRIVATE_MODULES.get(path.name, set()), f"{path.name} imports {private}"
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            assert node.attr not in INTERNALS, f"{path.name}:{node.lineno} uses {node.attr}"
            is_sys = isinstance(node.value, ast.Name) and node.value.id == "sys"
            is_private = is_sys and node.attr[0] == "_" and not node.attr.startswith("__")
            assert not is_private, f"{path.name}:{node.lineno} uses sys.{node.attr}"
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            assert "_Py" not in node.value, f"{path.name}:{node.lineno} names {node.value!r}"


@pytest.mark.parametrize("switch", ["off", "30"])
def test_hooks_replace_no_module_of_python(switch: str, tmp_path: Path) -> None:
    """Every module that a hook has loaded when it responds is the one that Python would import."""
    program = """if True:
        import os, sys
        from importlib.machinery import BuiltinImporter, FrozenImporter, PathFinder

        def end(code):
            for name, module in sorted(sys.modules.items()):
                if "." in name or name in {"switchgear", "__main__"}:
                    continue
                finders = (BuiltinImporter, FrozenImporter, PathFinder)
                found = next(spec for each in finders if (spec := each.find_spec(name)))
                loader = getattr(module.__spec__, "loader", None)
                if found.loader is not loader and getattr(module, "__file__", "") != found.origin:
                    print(name, module)
            sys.stdout.flush()
            leave(code)

        leave, os._exit = os._exit, end
        script = sys.argv.pop(1)
        names = {"__name__": "__main__", "__file__": script}
        exec(compile(open(script).read(), script, "exec"), names)
    """
    script = str(SOURCE / "hooks" / "entry.py")
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", program, script, "claude-code", "--root", str(tmp_path)],
        input=b'{"hook_event_name": "Stop", "session_id": "s", "cwd": "/"}',
        capture_output=True,
        check=False,
        env={**os.environ, "SWITCHGEAR_RESIDENT": switch},
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_the_tests_that_run_only_under_stress_exist() -> None:
    texts = [path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py")]
    missing = [name for name in KEPT if not any(f"def {name}(" in text for text in texts)]
    assert not missing, f"tests/depth.py names tests that are gone: {missing}"
