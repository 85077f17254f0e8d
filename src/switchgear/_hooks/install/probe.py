"""Sending an event through the very command that an agent's file holds, as the agent would.

The session that is named does not exist; where an agent has sub-agents, it is one of those who
acts, because refusing it interrupts no agent.
"""

import json
import os
import subprocess
from typing import Any, NamedTuple

from switchgear._agents.hook_events import SUBAGENT
from switchgear._agents.registry import hook_settings, hooks_of

BEFORE, AFTER = "before", "after"


class ProbeAnswer(NamedTuple):
    """What came back from a hook."""

    action: str = ""
    """`allow`, `warn`, `deny` or `stop`, as the agent would take it; empty: nothing it could use."""
    text: str = ""
    """What the agent would read."""
    trouble: str = ""
    """Why there is no answer that could be used."""
    remark: str = ""
    """What the hook said on standard error."""


class Probe(NamedTuple):
    """What is sent, and where. Immutable."""

    agent: str
    """One of `command.AGENTS`."""
    session: str
    folder: str
    """The project."""
    wait_s: float

    @property
    def circuit(self) -> str:
        """The circuit that is asked and told."""
        lane = f"/agent/{SUBAGENT}" if hook_settings(self.agent).has_subagents else ""
        return f"session/{self.session}{lane}"

    def send(self, command: str, when: str) -> ProbeAnswer:
        """Send one harmless event, before or after a tool, and read the answer as the agent would."""
        environment = dict(os.environ)
        if variable := hook_settings(self.agent).project_variable:
            environment[variable] = self.folder
        event = json.dumps(sample(self.agent, when, self.session, self.folder))
        try:
            done = subprocess.run(  # noqa: S603  the agent runs it as well
                ["/bin/sh", "-c", command],
                input=event.encode(),
                cwd=self.folder,
                env=environment,
                capture_output=True,
                timeout=self.wait_s,
                start_new_session=True,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return ProbeAnswer(trouble=f"it did not answer within {self.wait_s:.0f} s")
        out, err = (part.decode(errors="replace") for part in (done.stdout, done.stderr))
        return read(self.agent, out, err, done.returncode)


def sample(agent: str, when: str, session: str, folder: str) -> dict[str, Any]:
    """An event as the agent sends it: a file is read."""
    event: dict[str, Any] = hooks_of(agent).sample(when == BEFORE, session, folder)
    return event


def event_of(agent: str, when: str) -> str:
    """The agent's name for the event of a sample, as it stands in its file."""
    return str(sample(agent, when, "", "")[hooks_of(agent).EVENT])


def read(agent: str, stdout: str, stderr: str, code: int) -> ProbeAnswer:
    """The answer as the agent takes it."""
    remark = " ".join(stderr.split())
    if code == 2 and not hook_settings(agent).is_plugin:
        return ProbeAnswer("deny", stderr.strip(), remark=remark)
    if code != 0:
        return ProbeAnswer(trouble=f"exit code {code}: {remark or 'no word about why'}")
    text = stdout.strip()
    try:
        said = json.loads(text) if text else {}
    except ValueError:
        said = None
    if not isinstance(said, dict):
        return ProbeAnswer(trouble=f"its answer is no JSON object: {text[:200]!r}")
    action, words = hooks_of(agent).action_of(said)
    trouble = "" if action else f"its answer has no action: {text[:200]!r}"
    return ProbeAnswer(action, words, trouble, remark)
