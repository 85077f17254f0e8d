"""The hook process: standard input to standard output, one transaction, and gone."""

import os
import time
from collections.abc import Callable
from typing import NoReturn

from switchgear._agents.hook_protocol import Reply
from switchgear._core.errors import StoreUnavailable
from switchgear._core.types import Event
from switchgear._hooks import deadline
from switchgear._hooks.command import AGENTS
from switchgear._hooks.compiled import Compiled, use_all_modules
from switchgear._hooks.handler import LARGEST_BYTES, answer, overdue
from switchgear._hooks.pending import CIRCUITS_S, Pending
from switchgear._stores.base import Store
from switchgear._stores.url import keep_out_of_git

_SQLITE = "sqlite:///"
STORE_S = CIRCUITS_S - 1.0
"""How long a hook waits for other processes that use the store."""
INPUT_S = 8.0
"""How long a hook waits for its input."""
QUIET_S = 0.05
"""An agent that has sent a whole JSON value and nothing for so long may leave the stream open."""

StartOver = Callable[[bytes | None, float | None], None]


def main(
    argv: list[str],
    afterwards: Callable[[], object],
    heard: list[bytes] | None = None,
    start_over: StartOver | None = None,
    since_s: float | None = None,
) -> NoReturn:
    """Answer one hook call: `entry.py AGENT [--root FOLDER]`. `afterwards` is done at the end.

    - `heard`: gets the input, for whoever answers if this raises.
    - `start_over`: becomes another process; called for an exception that nothing provides for.
    - `since_s`: when the hook began, on the monotonic clock; default: now.
    """
    agent, root = _arguments(argv[1:])
    heard = [] if heard is None else heard
    # Left open: closing the last connection to a file would copy its log into it and wait for the
    # disk, at each hook. SQLite does so by itself when the log has grown.
    opened: list[Store] = []
    committed: list[Event] = []
    places: list[str] = []

    def opening(known: Compiled) -> Store:
        store = open_store(known)
        if known.listens:
            from switchgear._hooks.committed import Recorder  # noqa: PLC0415  seldom configured

            store = Recorder(store, committed)
            places.append(known.root)
        opened.append(store)
        return store

    def unexpected(_: Exception) -> None:
        if start_over is not None and heard:
            may_answer()
            start_over(heard[0], so_far.began_s)

    so_far = Pending(unexpected, since_s)

    def late() -> NoReturn:
        os._exit(_say(overdue(agent, so_far)))

    may_answer = deadline.watch(late, so_far.due_s)
    heard.append(_input(so_far.began_s + INPUT_S))
    reply = answer(agent, heard[0], root, opening, so_far)
    may_answer()
    _end_alarm()
    code = _say(reply)
    try:
        if reply.interrupt:
            from switchgear._hooks.interrupt import interrupt  # noqa: PLC0415  seldom

            interrupt(agent)
        if reply.errand is not None:
            from switchgear._hooks.after_reply import run  # noqa: PLC0415  once in a session

            run(reply.errand)
        if committed:
            from switchgear._hooks.committed import hand_over  # noqa: PLC0415  only after an event

            hand_over(places[-1], committed)
        afterwards()
    except Exception:  # noqa: BLE001, S110  it is answered: what comes after changes nothing
        pass
    # Nothing is left to tidy up that the end of the process does not.
    os._exit(code)


def open_store(known: Compiled) -> Store:
    """The store that hooks share. Raises `StoreError`."""
    url = known.store
    if url.startswith(_SQLITE):
        from switchgear._stores.sqlite.store import SqliteStore  # noqa: PLC0415  the usual one

        path = os.path.abspath(os.path.expanduser(url.removeprefix(_SQLITE)))
        keep_out_of_git(os.path.dirname(path))
        return SqliteStore(path, busy_timeout_s=STORE_S)
    if url.startswith("memory:"):
        why = "each hook is a process of its own, and they would not meet"
        raise StoreUnavailable(url, why, "use sqlite:///path or redis://host")
    use_all_modules()
    from switchgear._stores.url import open_store as open_any  # noqa: PLC0415  seldom

    return open_any(url)


def _end_alarm() -> None:
    """Stop the clock of `entry`: the call is answered, and what comes after must not refuse it."""
    import _signal  # type: ignore[import-not-found]  # noqa: PLC0415  `signal` is slow to import

    _signal.alarm(0)


def _arguments(words: list[str]) -> tuple[str, str | None]:
    agent = words[0] if words else ""
    if agent not in AGENTS or len(words) not in {1, 3} or words[1:2] not in ([], ["--root"]):
        _write(
            2, f"usage: entry.py {'|'.join(AGENTS)} [--root FOLDER], and a hook's JSON on stdin\n"
        )
        os._exit(2)  # an agent that runs this must not take it for an approval
    return agent, words[2] if len(words) == 3 else None


def _input(until_s: float) -> bytes:
    """Standard input, up to one byte more than is read; what is there when the time is up."""
    parts: list[bytes] = []
    left, waits = LARGEST_BYTES + 1, True
    while left > 0:
        try:
            part = os.read(0, min(left, 1 << 20))
        except BlockingIOError:
            ended = parts[-1].rstrip()[-1:] == b"}" if parts else False
            if ended and not _readable(QUIET_S) and _is_json(b"".join(parts)):
                break
            if not _readable(until_s - time.monotonic()):
                break
            continue
        except OSError:
            break  # no input at all is refused as such
        if not part:
            break
        parts.append(part)
        left -= len(part)
        if waits:
            waits = False
            os.set_blocking(0, False)
    if not waits:
        os.set_blocking(0, True)
    return b"".join(parts)


def _readable(wait_s: float) -> bool:
    """Whether there is input, or its end, within the time."""
    import select  # noqa: PLC0415  most agents have closed the stream by now

    return wait_s > 0 and bool(select.select([0], [], [], wait_s)[0])


def _is_json(data: bytes) -> bool:
    import json  # noqa: PLC0415

    try:
        json.loads(data.decode(errors="replace"))
    except (ValueError, RecursionError):
        return False
    return True


def _say(reply: Reply) -> int:
    """Write the reply. Returns the exit code: a refusal that cannot be written is exit code 2."""
    _write(2, reply.stderr)
    if _write(1, reply.stdout) or not reply.refusal:
        return reply.code
    _write(2, reply.refusal)
    return 2


def _write(stream: int, text: str) -> bool:
    data = text.encode(errors="replace")
    if data and not data.endswith(b"\n"):
        data += b"\n"
    try:
        while data:
            data = data[os.write(stream, data) :]
    except OSError:
        return False  # nobody listens any more
    return True
