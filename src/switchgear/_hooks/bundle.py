"""All modules of a hook in one file, because finding and opening sixty takes as long as running them.

The file is a cache like those that Python keeps of single modules: it lies in the same
`__pycache__`, so it is worth as much as they are, it is made by whoever runs first and may write
there, and it is let go as soon as a source has another time or size. Nothing breaks without it;
hooks are only slower. The modules that it runs use the stand-ins of `_hooks/lean.py`.
"""

import marshal
import os
import sys

from switchgear._hooks import lean

TYPE_CHECKING = False  # `typing` is one of the modules that a hook does without
if TYPE_CHECKING:
    from typing import Any

FORMAT = 5
_FOLDER = os.path.dirname(os.path.abspath(__file__))
PLACE = os.path.join(_FOLDER, "__pycache__", f"bundle.{sys.implementation.cache_tag}.bin")
LARGEST_BYTES = 16_000_000
_SOMETIMES = (
    *("switchgear._agents.claude_code", "switchgear._agents.codex", "switchgear._agents.gemini"),
    *("switchgear._agents.opencode", "switchgear._agents.pi", "switchgear._agents.qwen"),
    *("switchgear._breaker", "switchgear._rules.rules"),
    *("switchgear._rules.effects", "switchgear._rules.programs", "switchgear._rules.shell.parser"),
    *(
        "switchgear._rules.program_effects",
        "switchgear._text.secrets",
        "switchgear._rules.patterns",
    ),
    *("switchgear._rules.readers", "switchgear._rules.interpreter_code", "switchgear._rules.hosts"),
    "switchgear._hooks.git_state",
    *("switchgear._hooks.after_reply", "switchgear._hooks.interrupt", "switchgear._hooks.regexes"),
    *("switchgear._hooks.usage", "switchgear._hooks.prices"),
)
"""Modules that not every hook call needs: they are run when they are imported."""
_SLOW = (
    *("switchgear._hooks.compiler", "switchgear._stores.redis", "switchgear._stores.url"),
    *("switchgear._agents.base", "switchgear._hooks.recompile"),
)
"""Who has loaded one of these has done what hooks seldom do, and is no example for the others."""
Entry = tuple[str, int, int, bool, object]
"""The source, its time in nanoseconds and its size, whether it is a package, and its code.

The code of modules that every hook runs is loaded with the file; that of the others is bytes.
"""


class Bundle:
    """The file's modules, by name in the order in which they can be run. One per process."""

    def __init__(self, entries: dict[str, Entry]) -> None:
        self.entries = entries
        self._builtins = lean.builtins_of() if lean.usable() else None

    def run(self) -> None:
        """Run the modules that every hook needs, so that importing them only looks them up."""
        wanted = [name for name in self.entries if not name.startswith(_SOMETIMES)]
        made = {name: type(sys)(name) for name in wanted if name not in sys.modules}
        sys.modules.update(made)  # packages are found before they are run
        for name, module in made.items():
            self.exec_module(module)
            parent, _, last = name.rpartition(".")
            setattr(sys.modules[parent], last, module)

    def find_spec(self, name: str, path: "Any" = None, target: "Any" = None) -> "Any":
        """Of `sys.meta_path`: the other modules of the file, as they are imported."""
        del path, target
        if name not in self.entries:
            return None
        from _frozen_importlib import ModuleSpec  # noqa: PLC0415  always there, seldom needed

        loader: Any = self
        return ModuleSpec(name, loader, origin=self.entries[name][0])

    @staticmethod
    def create_module(spec: "Any") -> None:
        """An ordinary one."""
        del spec

    def exec_module(self, module: "Any") -> None:
        """Run its code."""
        entry = self.entries[module.__name__]
        source, is_package = entry[0], entry[3]
        module.__file__ = source
        module.__package__ = module.__name__ if is_package else module.__name__.rpartition(".")[0]
        if is_package:
            module.__path__ = [os.path.dirname(source)]
        if self._builtins is not None:
            module.__builtins__ = self._builtins
        exec(_code(entry), module.__dict__)  # noqa: S102  as trusted as a .pyc


def use() -> Bundle:
    """Take modules from the file from now on, as far as it goes."""
    bundle = Bundle(_read())
    sys.meta_path.insert(0, bundle)
    try:
        bundle.run()
    except Exception:  # noqa: BLE001  a cache that is no good must not cost more than time
        for name in bundle.entries:
            if name != __name__:
                sys.modules.pop(name, None)
        bundle.entries = {}
    return bundle


def _read() -> dict[str, Entry]:
    """What the file holds; nothing, if any source is another than it was made of."""
    try:
        with open(PLACE, "rb") as file:
            version, entries = marshal.loads(file.read(LARGEST_BYTES))  # noqa: S302
        for source, mtime_ns, size, _, _ in entries.values():
            found = os.stat(source)
            if found.st_mtime_ns != mtime_ns or found.st_size != size:
                return {}
    except (OSError, ValueError, EOFError, TypeError, AttributeError):
        return {}
    return entries if version == FORMAT else {}


def keep(bundle: Bundle) -> None:
    """Write the file anew, if this process has needed a module that it lacks. Never raises."""
    loaded = [name for name in sys.modules if name.startswith("switchgear.")]
    if not set(loaded) - set(bundle.entries) or any(name in sys.modules for name in _SLOW):
        return
    try:
        entries = dict(bundle.entries)
        for name in loaded:
            if name not in entries:
                entries[name] = _entry(sys.modules[name])
        _write(marshal.dumps((FORMAT, _in_order(entries))))
    except (OSError, ValueError, AttributeError, TypeError):
        return


def _entry(module: "Any") -> Entry:
    """A module as it is kept."""
    source: str = module.__file__
    found = os.stat(source)
    with open(source, "rb") as file:
        # Without docstrings and line numbers: half the size, and nobody reads them here.
        code = compile(file.read(), source, "exec", dont_inherit=True, optimize=2)
    is_package = hasattr(module, "__path__")
    kept = _bare(code)
    if module.__name__.startswith(_SOMETIMES):
        kept = marshal.dumps(kept)
    return source, found.st_mtime_ns, found.st_size, is_package, kept


def _code(entry: Entry) -> "Any":
    code = entry[4]
    return marshal.loads(code) if isinstance(code, bytes) else code  # noqa: S302  our own file


def _bare(code: "Any") -> "Any":
    inner = tuple(_bare(each) if hasattr(each, "co_code") else each for each in code.co_consts)
    return code.replace(co_consts=inner, co_linetable=b"")


def _in_order(entries: dict[str, Entry]) -> dict[str, Entry]:
    """Each module behind those that it imports at its top, and behind its package."""
    ordered: dict[str, Entry] = {}

    def add(name: str) -> None:
        if name in ordered or name not in entries or name in under_way:
            return
        under_way.add(name)
        add(name.rpartition(".")[0])
        for needed in _imports(_code(entries[name])):
            add(needed)
        ordered[name] = entries[name]

    under_way: set[str] = set()
    for name in sorted(entries):
        add(name)
    return ordered


def _imports(code: "Any") -> list[str]:
    """The modules that the top of a module names, and their parts that may be modules."""
    import dis  # noqa: PLC0415  only who writes the file reads code

    found: list[str] = []
    last = ""
    for step in dis.get_instructions(code):
        if step.opname == "IMPORT_NAME":
            last = str(step.argval)
            found.append(last)
        elif step.opname == "IMPORT_FROM":
            found.append(f"{last}.{step.argval}")
    return found


def _write(data: bytes) -> None:
    new = f"{PLACE}.{os.getpid()}"
    file = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
    try:
        os.write(file, data)
    finally:
        os.close(file)
    os.rename(new, PLACE)
