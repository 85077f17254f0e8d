"""The compiled configuration made anew, by one process for all, and what has changed since the last.

When a configuration is changed, every hook that runs notices at the same moment. One of them reads
the YAML, the others wait for what it writes; a configuration that cannot be read is not read again
by each of them. A change is kept in the file until a hook has told it as an event: who gets past
the rules and edits what guards it is at least seen.
"""

import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from switchgear.errors import SwitchgearError
from switchgear.hooks import compiled

WAIT_S = 10.0
"""How long a hook waits for another that compiles, before it does so itself."""
BROKEN_S = 2.0
"""For how long it is believed that a configuration cannot be read, without reading it."""
_APART = frozenset({"mark", "wired", "changed", "broken", "format", "own"})
"""What of the file is not the configuration itself, or goes with other parts of it."""


def recompiled(root: str, place: str) -> compiled.Compiled:
    """What holds now for the project at `root`. Raises `Unconfigured`."""
    with _alone(place):
        data = compiled.read(place)
        mark = compiled.signature(root, data)
        if data is not None and data.get("mark") == mark:
            return compiled.loaded(data, root)
        last = None if data is None or "store" not in data else compiled.loaded(data, root)
        why = _known_to_be_broken(data, mark)
        if why:
            raise compiled.Unconfigured(why, last)
        try:
            made = _made(root)
        except SwitchgearError as error:
            known = {"format": compiled.FORMAT} if data is None else data
            compiled.write(place, {**known, "broken": [mark, str(error), time.time()]})
            raise compiled.Unconfigured(str(error), last) from error
        made["mark"] = compiled.signature(root, made)
        made["changed"] = _changes(data, made)
        compiled.write(place, made)
        return compiled.loaded(made, root)


def take_change(root: str) -> str:
    """What has changed and was not told yet; who asks must tell it, nobody else will."""
    place = compiled.place_of(root)
    with _alone(place):
        data = compiled.read(place)
        if data is None or not data.get("changed"):
            return ""
        compiled.write(place, {**data, "changed": ""})
        return str(data["changed"])


def _known_to_be_broken(data: dict[str, Any] | None, mark: list[list[Any]]) -> str:
    """Why the configuration could not be read a moment ago, if it could not."""
    found: Any = None if data is None else data.get("broken")
    if found is None or found[0] != mark or not 0 <= time.time() - found[2] < BROKEN_S:
        return ""
    return str(found[1])


def _made(root: str) -> dict[str, Any]:
    compiled.use_all_modules()  # the parser of YAML lies in site-packages
    from switchgear.hooks.compiling import compile_for  # noqa: PLC0415  reads YAML
    from switchgear.hooks.install.agents import wired  # noqa: PLC0415

    made: dict[str, Any] = json.loads(json.dumps(compile_for(root)))  # as it is read again
    return {**made, "wired": wired(root)}


def _changes(before: dict[str, Any] | None, now: dict[str, Any]) -> str:
    """What is another than before, in words; what was not told yet comes first."""
    if before is None or "store" not in before:
        return ""
    names = sorted(name for name in now.keys() - _APART if before.get(name) != now[name])
    gone = [path for path in before.get("wired", ()) if path not in now["wired"]]
    told = [before.get("changed", "")]
    told += [f"the configuration has other values of {', '.join(names)}"] if names else []
    told += [f"{path} has no hook of Switchgear any more" for path in gone]
    return "; ".join(text for text in told if text)


@contextmanager
def _alone(place: str) -> Iterator[None]:
    """One process at a time, as far as that can be; its end frees the others."""
    file = _lock_file(place)
    if file is None:
        yield
        return
    from fcntl import LOCK_EX, LOCK_NB, flock  # noqa: PLC0415  only after a change

    give_up_s = time.monotonic() + WAIT_S
    try:
        while time.monotonic() < give_up_s:
            try:
                flock(file, LOCK_EX | LOCK_NB)
                break
            except OSError:
                time.sleep(0.02)
        yield
    finally:
        os.close(file)


def _lock_file(place: str) -> int | None:
    try:
        compiled.make_folder(place)
        flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        return os.open(f"{place}.lock", flags, 0o600)
    except OSError:
        return None
