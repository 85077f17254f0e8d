"""Compiles a changed configuration, in one process for all, and reports what has changed.

All running hooks notice a change at the same moment. One of them parses the YAML, and the others wait for the
compiled file; an unreadable configuration is not parsed again by each of them. A change stays in the file until
a hook has recorded it as an event, so that an agent that gets around the rules and edits its own guard is noticed.
"""

import fcntl
import json
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from switchgear._core.errors import SwitchgearError
from switchgear._hooks import hook_config

WAIT_S = 3.0
"""Seconds to wait for another process that compiles, before compiling in this process."""
MAX_REPORTED = 20
"""Maximum number of changes kept until they are recorded."""
BROKEN_RETRY_S = 2.0
"""Seconds until a configuration that cannot be read is tried again."""
_METADATA = frozenset(
    {"mark", "wired", "changed", "broken", "format", "own", "source"}
    | {"watched", "tampered", "unrepaired", "unsettled", "seen", "copied", "trusted"}
)
"""The keys of the file that are not part of the configuration itself."""
_NOTICES = "untrusted"
"""The key of the sentences about untrusted files."""


def recompiled(root: str, path: str, *, during_call: bool | None = None) -> hook_config.HookConfig:
    """The current configuration of the project at `root`; see `hook_config.config_of`. Raises `Unconfigured`."""
    with _lock_file(path) as lock:
        compiled = _compiled_by_another_process(lock, root, path, during_call=during_call)
        return compiled or _compile(root, path, during_call=during_call)


def _compiled_by_another_process(
    lock: int | None, root: str, path: str, *, during_call: bool | None
) -> hook_config.HookConfig | None:
    """Wait for another process to compile the configuration; `None`: this process must compile it.

    While waiting, only the file's modification time is checked: a hundred processes that read the file
    repeatedly, or queue for the lock, would slow down the one that compiles.
    """
    seen, give_up_s = _modified_ns(path), time.monotonic() + WAIT_S
    while not _acquired(lock) and time.monotonic() < give_up_s:
        time.sleep(0.02)
        before, seen = seen, _modified_ns(path)
        data = None if seen == before else hook_config.read(path)
        if data is not None and hook_config.is_current(root, path, data, during_call=during_call):
            return hook_config.load(data, root)
    return None


def _compile(root: str, path: str, *, during_call: bool | None) -> hook_config.HookConfig:
    data = hook_config.read(path)
    mark = hook_config.signature(root, data)
    last = None
    if data is not None and hook_config.is_valid(path, data):
        last = hook_config.load(data, root)
        if hook_config.is_current(root, path, data, during_call=during_call):
            return last
    why = _recent_error(data, mark)
    if why:
        raise hook_config.Unconfigured(why, last)
    found = _revert_changes(root, data, during_call=during_call)
    from switchgear._hooks.install.settings import files_with_hooks  # noqa: PLC0415  only after a change

    # Writing seals the file, so nothing that another program wrote may be kept.
    kept = {"format": hook_config.FORMAT} | (data if data and last is not None else {}) | found
    compiled = {"wired": files_with_hooks(root)} | found
    # Before the files are read: if one changes in the meantime, the next event sees a different signature.
    kept_mark = hook_config.signature(root, kept)
    compiled["mark"] = hook_config.signature(root, compiled)
    try:
        compiled |= _compile_config(root)
    except SwitchgearError as error:
        hook_config.write(path, kept | {"broken": [kept_mark, str(error), time.time()]})
        raise hook_config.Unconfigured(str(error), last) from error
    compiled["changed"] = _changes(data, compiled)
    names = compiled.keys() - _METADATA
    is_same = data is None or all(data.get(name) == compiled[name] for name in names)
    if data is not None and data.get("mark") == mark and not is_same:  # from the same sources
        compiled["tampered"].append(f"{path} was changed by another program: it was recompiled")
    hook_config.write(path, compiled)
    return hook_config.load(compiled, root)


def _revert_changes(
    root: str, data: dict[str, Any] | None, *, during_call: bool | None
) -> dict[str, Any]:
    """Revert changes to the guard's files that no operator made. Returns the result as JSON values."""
    hook_config.enable_site_packages()
    from switchgear._hooks.tampering import revert_tampering  # noqa: PLC0415  only after a change

    before = {} if data is None else data
    found = revert_tampering(
        root,
        seen=str(before.get("seen", "")),
        during_call=during_call,
        copied=before.get("copied", ()),
        trusted=before.get("trusted"),
    )
    tampered = [*before.get("tampered", ()), *found.reverted, *found.failed]
    return {
        "tampered": list(dict.fromkeys(tampered))[-MAX_REPORTED:],
        "unrepaired": bool(found.failed),
        "unsettled": found.unsettled,
        "seen": found.seen,
        "watched": found.watched,
        "copied": found.copied,
    }


def clear_recorded_tampering(root: str, reported: Sequence[str]) -> None:
    """Remove reported changes from the file, so that they are not reported again."""
    with _lock_compiled(root) as (path, data):
        if data is not None and data.get("tampered"):
            left = [each for each in data["tampered"] if each not in reported]
            hook_config.write(path, {**data, "tampered": left})


def claim_change(root: str) -> str:
    """Remove the unreported change from the file and return it; the caller must report it. Empty: none."""
    with _lock_compiled(root) as (path, data):
        if data is None or not data.get("changed"):
            return ""
        hook_config.write(path, {**data, "changed": ""})
        return str(data["changed"])


@contextmanager
def _lock_compiled(root: str) -> Iterator[tuple[str, dict[str, Any] | None]]:
    """The path and the content of a project's compiled file, locked against other processes."""
    path, give_up_s = hook_config.compiled_path(root), time.monotonic() + WAIT_S
    with _lock_file(path) as lock:
        while not _acquired(lock) and time.monotonic() < give_up_s:
            time.sleep(0.02)
        yield path, hook_config.read(path)


def _recent_error(data: dict[str, Any] | None, mark: list[list[Any]]) -> str:
    """Why the same configuration could not be read less than `BROKEN_RETRY_S` ago; empty: it was not tried."""
    found: Any = None if data is None else data.get("broken")
    if found is None or found[0] != mark or not 0 <= time.time() - found[2] < BROKEN_RETRY_S:
        return ""
    return str(found[1])


def _compile_config(root: str) -> dict[str, Any]:
    hook_config.enable_site_packages()  # the YAML parser is in site-packages
    from switchgear._hooks.compiler import compile_for  # noqa: PLC0415  reads YAML

    compiled: dict[str, Any] = json.loads(json.dumps(compile_for(root)))  # tuples become lists
    return compiled


def _changes(before: dict[str, Any] | None, now: dict[str, Any]) -> str:
    if before is None or "store" not in before:
        return ""
    names = sorted(name for name in now.keys() - _METADATA if before.get(name) != now[name])
    notices = [str(each) for each in now[_NOTICES]] if _NOTICES in names else []
    names = [name for name in names if name != _NOTICES]
    gone = [path for path in before.get("wired", ()) if path not in now["wired"]]
    if gone:
        from switchgear._hooks.install.saved_copies import is_forgotten  # noqa: PLC0415  only after a change

        gone = [path for path in gone if not is_forgotten(path)]
    changes = [before.get("changed", "")]
    changes += [f"the configuration has other values of {', '.join(names)}"] if names else []
    changes += notices
    changes += [f"{path} no longer has a hook of Switchgear" for path in gone]
    return "; ".join(text for text in changes if text)


def _acquired(lock: int | None) -> bool:
    """Try to acquire the lock. Returns True also if the lock file cannot be opened."""
    if lock is None:
        return True
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _modified_ns(path: str) -> int:
    try:
        return os.stat(path).st_mtime_ns
    except OSError:
        return 0


@contextmanager
def _lock_file(path: str) -> Iterator[int | None]:
    """The descriptor of the lock file; `None`: it cannot be opened."""
    lock = None
    with suppress(OSError):
        hook_config.make_folder(path)
        flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        lock = os.open(f"{path}.lock", flags, 0o600)
    try:
        yield lock
    finally:
        if lock is not None:
            os.close(lock)
