"""What is tried on a real hook command: forbidden calls in every state that a hook process can be in.

Each call is sent at least twice: the first hook of a project compiles the configuration, the later ones
find it compiled, and every second one decides itself, without the resident process. The session of each trial is its own: several refusals look like a stuck
agent.
"""

import os
import shlex
import sqlite3
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any, NamedTuple

from switchgear._agents.hook_protocol import TIMEOUT_S
from switchgear._hooks.client import SWITCH
from switchgear._hooks.command import AGENTS, OR_REFUSE, hook_command
from switchgear._hooks.install.files import CannotChange
from switchgear._hooks.install.probe import BEFORE, ProbeAnswer, event_of, read, sample
from switchgear._hooks.install.settings import place, scopes_of

# ruff: noqa: PTH118, PTH103  paths are texts, as in the hooks

SESSION = "selftest"
_DROPPED = (SWITCH, "SWITCHGEAR_WATCHED", "SWITCHGEAR_TIME", "SWITCHGEAR_STORY")
_PROJECTS = ("CLAUDE_PROJECT_DIR", "GEMINI_PROJECT_DIR", "QWEN_PROJECT_DIR")


class Hook(NamedTuple):
    """A hook command of an agent, and where it works."""

    agent: str
    command: str
    folder: str
    """The throw-away project."""
    store: str
    """Its file."""
    config: str | None


@contextmanager
def throw_away(agent: str, command: str | None, config: str | None) -> Iterator[Hook]:
    """The hook of an agent in a project that is gone afterwards, under a configuration file."""
    with tempfile.TemporaryDirectory(prefix="switchgear-selftest-") as folder:
        os.makedirs(os.path.join(folder, ".git"))
        line = command or shlex.join(hook_command(agent)) + OR_REFUSE
        yield Hook(agent, turned(line, folder), folder, os.path.join(folder, "state.db"), config)


def installed_commands(root: str) -> dict[str, str]:
    """The command that each agent's file holds for what comes before a tool."""
    found: dict[str, str] = {}
    for agent in AGENTS:
        for scope in scopes_of(agent, root):
            there = place(agent, scope, root)
            try:
                command = (
                    there.commands().get(event_of(agent, BEFORE))
                    if there.look().installed
                    else None
                )
            except CannotChange:
                command = None  # `standing` tells why
            if command is not None:
                found.setdefault(agent, command)
    return found


def turned(command: str, folder: str) -> str:
    """The same command for another project.

    >>> turned("python entry.py codex --root /home/me/shop", "/tmp/x")
    'python entry.py codex --root /tmp/x'
    """
    words = shlex.split(command.removesuffix(OR_REFUSE))
    if "--root" in words:
        words = words[: words.index("--root")]
    end = OR_REFUSE if command.endswith(OR_REFUSE) else ""
    return shlex.join([*words, "--root", folder]) + end


def send(hook: Hook, command: str, session: str = SESSION, *, alone: bool = False) -> ProbeAnswer:
    """One event before a shell command, through the process; see `send_bytes`."""
    return send_bytes(hook, event(hook, command, session), alone=alone)


def send_bytes(
    hook: Hook, raw: bytes | None, line: str | None = None, *, alone: bool = False
) -> ProbeAnswer:
    """Some input through the process, by another command `line` if one is given; `None`: none at all.

    `alone`: the hook process decides itself, without the resident process.
    """
    known = {name: value for name, value in os.environ.items() if name not in _DROPPED}
    if alone:
        known[SWITCH] = "off"
    known |= dict.fromkeys(_PROJECTS, hook.folder)
    known["SWITCHGEAR_STORE"] = f"sqlite:///{hook.store}"
    if hook.config is not None:
        known["SWITCHGEAR_CONFIG"] = hook.config
    try:
        done = subprocess.run(  # noqa: S603  the agent runs it as well
            ["/bin/sh", "-c", hook.command if line is None else line],
            input=b"" if raw is None else raw,
            cwd=hook.folder,
            env=known,
            capture_output=True,
            timeout=float(TIMEOUT_S) * 2,
            start_new_session=True,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return ProbeAnswer(trouble=f"it did not answer within {TIMEOUT_S * 2} s")
    out, err = (part.decode(errors="replace") for part in (done.stdout, done.stderr))
    return read(hook.agent, out, err, done.returncode)


def event(hook: Hook, command: str, session: str = SESSION) -> bytes:
    """A shell command about to run, as the agent tells it."""
    import json  # noqa: PLC0415  only a live test writes events

    told: dict[str, Any] = sample(hook.agent, BEFORE, session, hook.folder)
    if hook.agent == "opencode":
        told["input"]["tool"], told["output"] = "bash", {"args": {"command": command}}
    elif hook.agent == "pi":
        told["event"] |= {"toolName": "bash", "input": {"command": command}}
    else:
        shell = "run_shell_command" if hook.agent in {"gemini", "qwen"} else "Bash"
        told |= {"tool_name": shell, "tool_input": {"command": command}}
        for name in ("agent_id", "agent_type"):
            told.pop(name, None)
    return json.dumps(told).encode()


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
    answer = ProbeAnswer()
    for number, command in enumerate(commands):
        session = f"selftest-{attack.replace(' ', '-')}-{number}"
        answer = send(hook, command, session, alone=number % 2 == 1)
        wrong = _admitted(answer, repr(command[:80]))
        if wrong:
            return Tried(attack, number + 1, wrong=wrong)
    rule = answer.text.partition("rule ")[2].partition(":")[0]
    by = f"rule {rule}" if rule else "unreadable"
    return Tried(attack, len(commands), by, f"{answer.action}: {answer.text}")


def _admitted(answer: ProbeAnswer, what: str) -> str:
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
