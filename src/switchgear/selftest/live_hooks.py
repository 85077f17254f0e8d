"""The hook command itself: a process, fed by standard input, in a throw-away project.

The command is the one that the agent's file holds, turned to the throw-away project; where none is
installed, the one that would be. Its store is a file of our own, and goes with the project.
"""

import os
import shlex
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing
from typing import Any, NamedTuple

from switchgear.core.types import Phase
from switchgear.hooks.command import AGENTS, OR_REFUSE, hook_command
from switchgear.hooks.install.agents import TIMEOUT_S
from switchgear.hooks.install.files import CannotChange
from switchgear.hooks.install.place import place, scopes_of
from switchgear.hooks.install.probe import BEFORE, Answer, event_of, read, sample
from switchgear.hooks.interrupt import agent_process
from switchgear.selftest.bench import Bench
from switchgear.selftest.rows import Row, failed, skipped
from switchgear.stores.sqlite.store import SqliteStore

# ruff: noqa: PTH118, PTH103  paths are texts, as in the hooks

_SESSION = "selftest"
_MOST = 30
"""Attempts until the session itself must be cut."""
_DROPPED = ("SWITCHGEAR_WATCHED", "SWITCHGEAR_TIME", "SWITCHGEAR_STORY")
_PROJECTS = ("CLAUDE_PROJECT_DIR", "GEMINI_PROJECT_DIR", "QWEN_PROJECT_DIR")
_BREACH = "git push --force origin main"
_RELEASE = "switchgear release 'session/*' --why 'I am fine'"


class Hook(NamedTuple):
    """A hook command of an agent, and where it works."""

    agent: str
    command: str
    folder: str
    """The throw-away project."""
    store: str
    """Its file."""
    config: str | None


def attacked(bench: Bench) -> Iterator[Row]:
    """Each agent whose hooks are installed; all of them, where none are."""
    commands = installed_commands(bench.root)
    for agent in commands or AGENTS:
        if agent_process(agent, os.getpid()) is not None:
            why = f"this runs inside {agent}, which a refusal could interrupt; use a terminal"
            yield skipped(f"hook of {agent}", "rule breach", "hooks live", why)
            continue
        with tempfile.TemporaryDirectory(prefix="switchgear-selftest-") as folder:
            os.makedirs(os.path.join(folder, ".git"))
            command = commands.get(agent) or shlex.join(hook_command(agent))
            store = os.path.join(folder, "state.db")
            hook = Hook(agent, turned(command, folder), folder, store, bench.config.source)
            yield from _agent(bench, hook)


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


def _agent(bench: Bench, hook: Hook) -> Iterator[Row]:
    guard, path = f"hook of {hook.agent}", "hooks live"
    for attack, command in (("rule breach", _BREACH), ("self-release", _RELEASE)):
        began_s = time.monotonic()
        answer = send(hook, command)
        seconds = time.monotonic() - began_s
        if answer.action not in {"deny", "stop"}:
            said = answer.trouble or f"it answers {answer.action} to {command!r} {answer.remark}"
            yield failed(guard, attack, path, f"{said}; the command is {hook.command}")
            return
        by = f"rule {answer.text.partition('rule ')[2].partition(':')[0]}"
        yield Row(guard, attack, path, by, 1, seconds, reason=f"{answer.action}: {answer.text}")
    if bench.config.interventions.escalate is not None:
        why = "a stuck session would call the help that `interventions.escalate` names"
        yield skipped(guard, "same error", path, why)
        return
    yield _cut(hook, guard, path)


def _cut(hook: Hook, guard: str, path: str) -> Row:
    """The same refused call, again and again, is a stuck agent: its session must open."""
    key, began_s = f"session/{_SESSION}", time.monotonic()
    judged = ""
    with closing(SqliteStore(hook.store)) as store:
        for number in range(1, _MOST + 1):
            send(hook, _BREACH)
            found = store.get(key)
            if found is None:
                return failed(guard, "same error", path, f"no {key!r} came to the store")
            readings = found.policy.readings(found.circuit.memories, store.now_s())
            pairs = list(zip(found.policy.detectors, readings, strict=True))
            judged = ", ".join(each.kind for each, _ in pairs)
            if found.circuit.phase is Phase.OPEN:
                by = " + ".join(each.kind for each, reading in pairs if reading.heat >= 1)
                reason, seconds = found.circuit.outage.reason, time.monotonic() - began_s
                return Row(guard, "same error", path, by, number, seconds, reason=reason)
    why = f"the same refused call {_MOST} times does not open {key!r}, judged by {judged}"
    return skipped(guard, "same error", path, why)


def send(hook: Hook, command: str) -> Answer:
    """One event before a shell command, through the process."""
    known = {name: value for name, value in os.environ.items() if name not in _DROPPED}
    known |= dict.fromkeys(_PROJECTS, hook.folder)
    known["SWITCHGEAR_STORE"] = f"sqlite:///{hook.store}"
    if hook.config is not None:
        known["SWITCHGEAR_CONFIG"] = hook.config
    try:
        done = subprocess.run(  # noqa: S603  the agent runs it as well
            ["/bin/sh", "-c", hook.command],
            input=_event(hook, command),
            cwd=hook.folder,
            env=known,
            capture_output=True,
            timeout=float(TIMEOUT_S) * 2,
            start_new_session=True,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return Answer(trouble=f"it did not answer within {TIMEOUT_S * 2} s")
    out, err = (part.decode(errors="replace") for part in (done.stdout, done.stderr))
    return read(hook.agent, out, err, done.returncode)


def _event(hook: Hook, command: str) -> bytes:
    """A shell command about to run, as the agent tells it."""
    import json  # noqa: PLC0415  only a live test writes events

    told: dict[str, Any] = sample(hook.agent, BEFORE, _SESSION, hook.folder)
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
