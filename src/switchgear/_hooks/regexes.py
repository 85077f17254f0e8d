"""Patterns as `re` has compiled them, kept in a file: importing `re` takes longer than a hook may.

The engine that matches is built into Python; `re` only translates. So a hook process translates a
pattern once, and the next ones take what came out of it: the same code in the same engine finds the
same. The file is a cache as the bundle of modules is, beside it and worth as much. It is bound to
this very Python, and a pattern that is not in it is compiled as ever.
"""

import _sre  # type: ignore[import-not-found]
import marshal
import os
import sys
from typing import Any

from switchgear._hooks.lean import genuine

_FOLDER = os.path.dirname(os.path.abspath(__file__))
PLACE = os.path.join(_FOLDER, "__pycache__", f"regexes.{sys.implementation.cache_tag}.bin")
LARGEST_BYTES = 1_000_000
MOST = 200
"""Patterns that are kept: ours are some twenty, and a configuration may have a few."""
_MARK = (2, _sre.MAGIC, sys.version)

_kept: "dict[tuple[str, int], Any]" = {}
_made: "dict[tuple[str, int], Any]" = {}


def compile_(pattern: str, flags: int = 0) -> Any:
    """As `re.compile` of a text."""
    key = (pattern, int(flags))
    found = _made.get(key)
    if found is None:
        found = _made[key] = _from_kept(key) or _translated(key)
    return found


def _from_kept(key: tuple[str, int]) -> Any:
    if not _kept:
        _kept.update(_read())
    try:
        return _sre.compile(key[0], *_kept[key]) if key in _kept else None
    except (TypeError, ValueError, RuntimeError, OverflowError):
        return None  # not what this Python would have made


def _translated(key: tuple[str, int]) -> Any:
    """Compiled by the original, and kept for the next process."""
    re = genuine("re")
    try:
        code = _code_of(*key)
        found = _sre.compile(key[0], *code)
        if found == re.compile(*key):
            _kept[key] = code
            _write()
    except Exception:  # noqa: BLE001  the insides of `re` are nobody's promise
        return re.compile(*key)
    return found


def _code_of(pattern: str, flags: int) -> Any:
    """What `re` hands to the engine."""
    _compiler, _parser = genuine("re._compiler"), genuine("re._parser")
    parsed = _parser.parse(pattern, flags)
    code = _compiler._code(parsed, flags)  # noqa: SLF001  it has no other name
    names = parsed.state.groupdict
    groups: list[str | None] = [None] * parsed.state.groups
    for name, index in names.items():
        groups[index] = name
    numbers = [int(word) for word in code]
    return flags | parsed.state.flags, numbers, parsed.state.groups - 1, names, tuple(groups)


def _read() -> "dict[tuple[str, int], Any]":
    try:
        with open(PLACE, "rb") as file:
            mark, kept = marshal.loads(file.read(LARGEST_BYTES))  # noqa: S302  as trusted as a .pyc
        return dict(kept) if mark == _MARK else {}
    except (OSError, ValueError, EOFError, TypeError):
        return {}


def _write() -> None:
    """Add what was translated to what others have; whole or not at all. Never raises."""
    others = {key: code for key, code in _read().items() if key not in _kept}
    kept = dict([*others.items(), *_kept.items()][-MOST:])
    new = f"{PLACE}.{os.getpid()}"
    try:
        file = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        try:
            os.write(file, marshal.dumps((_MARK, kept)))
        finally:
            os.close(file)
        os.rename(new, PLACE)
    except (OSError, ValueError):
        return
