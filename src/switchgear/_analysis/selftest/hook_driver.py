"""The real hook command, turned to a throw-away project: what selftest and doctor send events through.

The command is the one that the agent's file holds; where none is installed, the one that would be. Its
store is a file of our own, and goes with the project.
"""

import os
import shlex
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from switchgear._hooks.client import SWITCH
from switchgear._hooks.command import AGENTS, OR_REFUSE, hook_command
from switchgear._hooks.install.agents import TIMEOUT_S
from switchgear._hooks.install.files import CannotChange
from switchgear._hooks.install.place import place, scopes_of
from switchgear._hooks.install.probe import BEFORE, Answer, event_of, read, sample

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


def send(hook: Hook, command: str, session: str = SESSION, *, alone: bool = False) -> Answer:
    """One event before a shell command, through the process; see `send_bytes`."""
    return send_bytes(hook, event(hook, command, session), alone=alone)


def send_bytes(
    hook: Hook, raw: bytes | None, line: str | None = None, *, alone: bool = False
) -> Answer:
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
        return Answer(trouble=f"it did not answer within {TIMEOUT_S * 2} s")
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
