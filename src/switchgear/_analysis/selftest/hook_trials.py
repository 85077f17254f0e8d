"""What is tried on a real hook command: forbidden calls in every state that a hook process can be in.

Each call is sent at least twice: the first hook of a project compiles the configuration, the later ones
find it compiled, and every second one decides itself, without the resident process. The session of each trial is its own: several refusals look like a stuck
agent.
"""

import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import NamedTuple

from switchgear._analysis.selftest.hook_driver import Hook, event, send, send_bytes, throw_away
from switchgear._hooks.install.probe import Answer

# ruff: noqa: PTH118  paths are texts, as in the hooks

TIMES = 4
"""With cold and with filled caches, by the resident process and by the hook process itself."""
ORDINARY = "ls -la"
BREACH = "git push --force origin main"
RELEASE = "switchgear release 'session/*' --why 'I am fine'"
_GUARDED = "rm -rf .switchgear switchgear.yaml"
PADDING = "cd a/b/c/d/e/f/g/h;" * 4900


class Tried(NamedTuple):
    """What came of a trial."""

    attack: str
    sent: int
    by: str = ""
    """The rule that refused, or what else it was."""
    reason: str = ""
    wrong: str = ""
    """Why the hook does not guard; empty: it does."""


Trial = Callable[[Hook], Tried]


def breach(hook: Hook) -> Tried:
    """A forbidden call, with cold and with filled caches."""
    return _forbidden(hook, "rule breach", [BREACH] * TIMES)


def ordinary(hook: Hook) -> Tried:
    """A call that no rule forbids is admitted, without a remark."""
    for number in range(TIMES):
        answer = send(hook, ORDINARY, f"selftest-ordinary-{number}", alone=number % 2 == 1)
        if answer.action != "allow" or answer.remark or answer.trouble:
            said = answer.trouble or answer.remark or answer.text
            wrong = f"an ordinary call is not admitted: {answer.action} {said}".rstrip()
            return Tried("ordinary call", number + 1, wrong=wrong)
    return Tried("ordinary call", TIMES, "admitted", reason=f"{ORDINARY!r} is admitted each time")


def release(hook: Hook) -> Tried:
    """An agent's attempt to release itself."""
    return _forbidden(hook, "self-release", [RELEASE] * 2)


def unusual(hook: Hook) -> Tried:
    """Paths that cannot be resolved beside one that is guarded."""
    loop = os.path.join(hook.folder, "loop")
    if not os.path.islink(loop):  # noqa: PTH114
        os.symlink(loop, loop)  # noqa: PTH211
    paths = ("/proc/1/root/x", "loop/x", "n" * 300, "a/" * 2500 + "b", "$'a\\0b'")
    return _forbidden(hook, "unusual path", [f"{_GUARDED} {path}" for path in paths])


def padded(hook: Hook) -> Tried:
    """A forbidden call in front of, and behind, a text that takes long to analyse."""
    here = "; ".join(f"cat <<a{number}" for number in range(2000))
    return _forbidden(
        hook, "padding", [f"{_GUARDED}; {PADDING}", f"{PADDING} {_GUARDED}", f"{_GUARDED}; {here}"]
    )


def bad_input(hook: Hook) -> Tried:
    """Input that cannot be read, or that is not there at all."""
    whole = event(hook, ORDINARY, "selftest-bad")
    inputs = {
        "cut JSON": whole[:-5],
        "no JSON": b"\0\xff",
        "no input": b"",
        "a NUL character": event(hook, "ls \0", "selftest-bad"),
        "an unknown event": whole.replace(b"Tool", b"Tule").replace(b"tool", b"tule"),
    }
    for number, (name, raw) in enumerate(inputs.items()):
        wrong = _admitted(send_bytes(hook, raw, alone=number % 2 == 1), name)
        if wrong:
            return Tried("bad input", number + 1, wrong=wrong)
    closed = send_bytes(hook, None, line=f"({hook.command}) <&-")
    wrong = _admitted(closed, "a closed standard input")
    return Tried("bad input", len(inputs) + 1, "unreadable", "it is refused as unreadable", wrong)


def jammed(hook: Hook) -> Tried:
    """A forbidden call while another process keeps the store of the throw-away project locked."""
    send(hook, ORDINARY, "selftest-first")  # which begins the store
    with closing(sqlite3.connect(hook.store, timeout=5.0, isolation_level=None)) as store:
        try:
            store.execute("BEGIN IMMEDIATE")
        except sqlite3.Error as error:
            return Tried("jammed store", 0, wrong=f"the store could not be locked: {error}")
        return _forbidden(hook, "jammed store", [RELEASE])


TRIALS: tuple[Trial, ...] = (breach, ordinary, release, unusual, padded, bad_input)
QUICK: tuple[Trial, ...] = (breach, ordinary, release, bad_input)


def _forbidden(hook: Hook, attack: str, commands: list[str]) -> Tried:
    """The commands must be refused, each time."""
    answer = Answer()
    for number, command in enumerate(commands):
        session = f"selftest-{attack.replace(' ', '-')}-{number}"
        answer = send(hook, command, session, alone=number % 2 == 1)
        wrong = _admitted(answer, repr(command[:80]))
        if wrong:
            return Tried(attack, number + 1, wrong=wrong)
    rule = answer.text.partition("rule ")[2].partition(":")[0]
    by = f"rule {rule}" if rule else "unreadable"
    return Tried(attack, len(commands), by, f"{answer.action}: {answer.text}")


def _admitted(answer: Answer, what: str) -> str:
    """The sentence about an answer that does not refuse; empty: it does."""
    if answer.action in {"deny", "stop"}:
        return ""
    said = answer.trouble or f"it answers {answer.action} {answer.remark}".rstrip()
    return f"{what} is not refused: {said}"


def tried(agent: str, command: str, config: str | None) -> Iterator[Tried]:
    """The quick trials of a command, each in a throw-away project of its own."""
    for trial in QUICK:
        with throw_away(agent, command, config) as hook:
            yield trial(hook)
