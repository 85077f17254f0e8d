"""The hook process: standard input to standard output, one transaction, and gone."""

import os
from collections.abc import Callable
from typing import NoReturn

from switchgear.core.types import Event
from switchgear.errors import StoreUnavailable
from switchgear.hooks import deadline
from switchgear.hooks.answering import LARGEST_BYTES, answer, overdue
from switchgear.hooks.command import AGENTS
from switchgear.hooks.compiled import Compiled, use_all_modules
from switchgear.hooks.ruling import Reply
from switchgear.stores.base import Store
from switchgear.stores.places import keep_out_of_git

_SQLITE = "sqlite:///"


def main(argv: list[str], afterwards: Callable[[], object]) -> NoReturn:
    """Answer one hook call: `entry.py AGENT [--root FOLDER]`. `afterwards` is done at the end."""
    agent, root = _arguments(argv[1:])
    # Left open: closing the last connection to a file would copy its log into it and wait for the
    # disk, at each hook. SQLite does so by itself when the log has grown.
    opened: list[Store] = []
    committed: list[Event] = []
    places: list[str] = []

    def opening(known: Compiled) -> Store:
        store = open_store(known)
        if known.listens:
            from switchgear.hooks.committed import Recorder  # noqa: PLC0415  seldom configured

            store = Recorder(store, committed)
            places.append(known.root)
        opened.append(store)
        return store

    raw = _input()

    def late() -> NoReturn:
        _say(reply := overdue(agent, raw, root, deadline.DEADLINE_S))
        os._exit(reply.code)

    may_answer = deadline.watch(late)
    reply = answer(agent, raw, root, opening)
    may_answer()
    _say(reply)
    if reply.interrupt:
        from switchgear.hooks.interrupt import interrupt  # noqa: PLC0415  seldom

        interrupt(agent)
    if reply.errand is not None:
        from switchgear.hooks.errands import run  # noqa: PLC0415  once in a session

        run(reply.errand)
    if committed:
        from switchgear.hooks.committed import hand_over  # noqa: PLC0415  only after an event

        hand_over(places[-1], committed)
    afterwards()
    # Nothing is left to tidy up that the end of the process does not.
    os._exit(reply.code)


def open_store(known: Compiled) -> Store:
    """The store that hooks share. Raises `StoreError`."""
    url = known.store
    if url.startswith(_SQLITE):
        from switchgear.stores.sqlite.store import SqliteStore  # noqa: PLC0415  the usual one

        path = os.path.abspath(os.path.expanduser(url.removeprefix(_SQLITE)))
        keep_out_of_git(os.path.dirname(path))
        return SqliteStore(path)
    if url.startswith("memory:"):
        why = "each hook is a process of its own, and they would not meet"
        raise StoreUnavailable(url, why, "use sqlite:///path or redis://host")
    use_all_modules()
    from switchgear.stores.open import open_store as open_any  # noqa: PLC0415  seldom

    return open_any(url)


def _arguments(words: list[str]) -> tuple[str, str | None]:
    agent = words[0] if words else ""
    if agent not in AGENTS or len(words) not in {1, 3} or words[1:2] not in ([], ["--root"]):
        _write(
            2, f"usage: entry.py {'|'.join(AGENTS)} [--root FOLDER], and a hook's JSON on stdin\n"
        )
        os._exit(64)
    return agent, words[2] if len(words) == 3 else None


def _input() -> bytes:
    """Standard input, up to one byte more than is read."""
    parts: list[bytes] = []
    left = LARGEST_BYTES + 1
    while left > 0:
        part = os.read(0, min(left, 1 << 20))
        if not part:
            break
        parts.append(part)
        left -= len(part)
    return b"".join(parts)


def _say(reply: Reply) -> None:
    for stream, text in ((2, reply.stderr), (1, reply.stdout)):
        _write(stream, text)


def _write(stream: int, text: str) -> None:
    data = text.encode(errors="replace")
    if data and not data.endswith(b"\n"):
        data += b"\n"
    try:
        while data:
            data = data[os.write(stream, data) :]
    except OSError:
        return  # nobody listens any more
