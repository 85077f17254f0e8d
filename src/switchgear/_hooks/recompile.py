"""Recompiles the configuration, by one process for all, and reports what has changed.

When a configuration is changed, every hook that runs notices at the same moment. One of them reads
the YAML, the others wait for what it writes; a configuration that cannot be read is not read again
by each of them. A change is kept in the file until a hook has recorded it as an event: a process that gets past
the rules and edits what guards it is at least seen.
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
"""How long a hook waits for another that compiles, before it does so itself."""
MAX_REPORTED = 20
"""Changes that are kept until they are recorded."""
BROKEN_RETRY_S = 2.0
"""Seconds until a configuration that cannot be read is tried again."""
_METADATA = frozenset(
    {"mark", "wired", "changed", "broken", "format", "own", "source"}
    | {"watched", "tampered", "unrepaired", "unsettled", "seen", "copied", "trusted"}
)
"""Keys of the file that are not part of the configuration itself."""
_NOTICES = "untrusted"
"""The key of the sentences about files that wait for trust."""


def recompiled(root: str, place: str, *, during_call: bool | None = None) -> hook_config.HookConfig:
    """What holds now for the project at `root`; see `hook_config.config_of`. Raises `Unconfigured`."""
    with _lock_file(place) as lock:
        made = _compiled_by_another_process(lock, root, place, during_call=during_call)
        return made or _compile(root, place, during_call=during_call)


def _compiled_by_another_process(
    lock: int | None, root: str, place: str, *, during_call: bool | None
) -> hook_config.HookConfig | None:
    """What another process compiles in the meantime; `None`: it is our turn, or there is no result.

    Waiting only checks for a new file: a hundred processes that read it repeatedly, or that
    queue for the lock to read it, would keep the one from its work.
    """
    seen, give_up_s = _modified_ns(place), time.monotonic() + WAIT_S
    while not _acquired(lock) and time.monotonic() < give_up_s:
        time.sleep(0.02)
        before, seen = seen, _modified_ns(place)
        data = None if seen == before else hook_config.read(place)
        if data is not None and hook_config.is_current(root, place, data, during_call=during_call):
            return hook_config.load(data, root)
    return None


def _compile(root: str, place: str, *, during_call: bool | None) -> hook_config.HookConfig:
    data = hook_config.read(place)
    mark = hook_config.signature(root, data)
    last = None
    if data is not None and hook_config.is_valid(place, data):
        last = hook_config.load(data, root)
        if hook_config.is_current(root, place, data, during_call=during_call):
            return last
    why = _recent_error(data, mark)
    if why:
        raise hook_config.Unconfigured(why, last)
    found = _revert_changes(root, data, during_call=during_call)
    from switchgear._hooks.install.settings import files_with_hooks  # noqa: PLC0415  only after a change

    # Writing seals the file: what another program wrote must not get into it.
    kept = {"format": hook_config.FORMAT} | (data if data and last is not None else {}) | found
    made = {"wired": files_with_hooks(root)} | found
    # Before the files are read: one that changes in the meantime has another mark at the next event.
    kept_mark, made["mark"] = hook_config.signature(root, kept), hook_config.signature(root, made)
    try:
        made |= _compile_config(root)
    except SwitchgearError as error:
        hook_config.write(place, kept | {"broken": [kept_mark, str(error), time.time()]})
        raise hook_config.Unconfigured(str(error), last) from error
    made["changed"] = _changes(data, made)
    same = data is None or all(data.get(name) == made[name] for name in made.keys() - _METADATA)
    if data is not None and data.get("mark") == mark and not same:  # from the same sources
        made["tampered"].append(f"{place} was changed by another program: it was recompiled")
    hook_config.write(place, made)
    return hook_config.load(made, root)


def _revert_changes(
    root: str, data: dict[str, Any] | None, *, during_call: bool | None
) -> dict[str, Any]:
    """Revert changes that no operator made to the files of the guard. Returns the result as JSON values."""
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
    """Mark these changes as recorded: they are not reported again."""
    with _lock_compiled(root) as (place, data):
        if data is not None and data.get("tampered"):
            left = [each for each in data["tampered"] if each not in reported]
            hook_config.write(place, {**data, "tampered": left})


def claim_change(root: str) -> str:
    """The change that was not reported yet; the caller must report it."""
    with _lock_compiled(root) as (place, data):
        if data is None or not data.get("changed"):
            return ""
        hook_config.write(place, {**data, "changed": ""})
        return str(data["changed"])


@contextmanager
def _lock_compiled(root: str) -> Iterator[tuple[str, dict[str, Any] | None]]:
    """The compiled file of a project and its content, which no other process changes in the meantime."""
    place, give_up_s = hook_config.compiled_path(root), time.monotonic() + WAIT_S
    with _lock_file(place) as lock:
        while not _acquired(lock) and time.monotonic() < give_up_s:
            time.sleep(0.02)
        yield place, hook_config.read(place)


def _recent_error(data: dict[str, Any] | None, mark: list[list[Any]]) -> str:
    """Why the configuration could not be read a moment ago; empty: it could."""
    found: Any = None if data is None else data.get("broken")
    if found is None or found[0] != mark or not 0 <= time.time() - found[2] < BROKEN_RETRY_S:
        return ""
    return str(found[1])


def _compile_config(root: str) -> dict[str, Any]:
    hook_config.enable_site_packages()  # the YAML parser is in site-packages
    from switchgear._hooks.compiler import compile_for  # noqa: PLC0415  reads YAML

    made: dict[str, Any] = json.loads(json.dumps(compile_for(root)))  # as it is read again
    return made


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
    """Whether the lock was acquired; true where locks are impossible."""
    if lock is None:
        return True
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _modified_ns(place: str) -> int:
    try:
        return os.stat(place).st_mtime_ns
    except OSError:
        return 0


@contextmanager
def _lock_file(place: str) -> Iterator[int | None]:
    """The open file of the lock; `None`: there can be none."""
    lock = None
    with suppress(OSError):
        hook_config.make_folder(place)
        flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        lock = os.open(f"{place}.lock", flags, 0o600)
    try:
        yield lock
    finally:
        if lock is not None:
            os.close(lock)
