"""Sending an event through the very command that an agent's file holds, as the agent would.

The session that is named does not exist; where an agent has sub-agents, it is one of those who
acts, because refusing it interrupts nobody.
"""

import json
import os
import subprocess
from typing import Any, NamedTuple

BEFORE, AFTER = "before", "after"
_PROJECT_VARIABLES = {
    "claude-code": "CLAUDE_PROJECT_DIR",
    "gemini": "GEMINI_PROJECT_DIR",
    "qwen": "QWEN_PROJECT_DIR",
}
_HAVE_SUBAGENTS = ("claude-code", "codex", "qwen")
_SUBAGENT = "doctor"


class Answer(NamedTuple):
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
        lane = f"/agent/{_SUBAGENT}" if self.agent in _HAVE_SUBAGENTS else ""
        return f"session/{self.session}{lane}"

    def send(self, command: str, when: str) -> Answer:
        """Send one harmless event, before or after a tool, and read the answer as the agent would."""
        environment = dict(os.environ)
        if self.agent in _PROJECT_VARIABLES:
            environment[_PROJECT_VARIABLES[self.agent]] = self.folder
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
            return Answer(trouble=f"it did not answer within {self.wait_s:.0f} s")
        out, err = (part.decode(errors="replace") for part in (done.stdout, done.stderr))
        return read(self.agent, out, err, done.returncode)


def sample(agent: str, when: str, session: str, folder: str) -> dict[str, Any]:
    """An event as the agent sends it: somebody reads a file."""
    if agent == "opencode":
        call = {"tool": "read", "sessionID": session, "callID": "doctor"}
        made: dict[str, Any] = {"args": {"filePath": "README.md"}}
        if when == AFTER:
            made = {"output": "a line", "metadata": {}}
        return {"k": f"tool.execute.{when}", "input": call, "output": made, "cwd": folder}
    if agent == "pi":
        event: dict[str, Any] = {
            "toolName": "read",
            "toolCallId": "doctor",
            "input": {"path": "README.md"},
        }
        if when == AFTER:
            event |= {"content": [{"type": "text", "text": "a line"}], "isError": False}
        name = "tool_call" if when == BEFORE else "tool_result"
        return {"k": name, "event": event, "session": session, "cwd": folder}
    names = {
        "gemini": {BEFORE: "BeforeTool", AFTER: "AfterTool"},
    }.get(agent, {BEFORE: "PreToolUse", AFTER: "PostToolUse"})
    told: dict[str, Any] = {
        "session_id": session,
        "transcript_path": "",
        "cwd": folder,
        "hook_event_name": names[when],
        "tool_name": "read_file" if agent in {"gemini", "qwen"} else "Read",
        "tool_input": {"file_path": "README.md"},
    }
    if agent in _HAVE_SUBAGENTS:
        told |= {"tool_use_id": "doctor", "agent_id": _SUBAGENT, "agent_type": _SUBAGENT}
    if when == AFTER:
        told["tool_response"] = {"llmContent": "a line"} if agent == "gemini" else "a line"
    return told


def event_of(agent: str, when: str) -> str:
    """The agent's name for the event of a sample, as it stands in its file."""
    told = sample(agent, when, "", "")
    return str(told.get("k") or told["hook_event_name"])


def read(agent: str, stdout: str, stderr: str, code: int) -> Answer:
    """The answer as the agent takes it."""
    remark = " ".join(stderr.split())
    if code == 2 and agent not in {"opencode", "pi"}:
        return Answer("deny", stderr.strip(), remark=remark)
    if code != 0:
        return Answer(trouble=f"exit code {code}: {remark or 'no word about why'}")
    text = stdout.strip()
    try:
        said = json.loads(text) if text else {}
    except ValueError:
        said = None
    if not isinstance(said, dict):
        return Answer(trouble=f"its answer is no JSON object: {text[:200]!r}")
    if agent in {"opencode", "pi"}:
        action, words = str(said.get("action", "")), str(said.get("text", ""))
    else:
        action, words = _gemini(said) if agent == "gemini" else _claude(said)
    trouble = "" if action else f"its answer has no action: {text[:200]!r}"
    return Answer(action, words, trouble, remark)


def _claude(said: dict[str, Any]) -> tuple[str, str]:
    specific = said.get("hookSpecificOutput")
    specific = specific if isinstance(specific, dict) else {}
    if specific.get("permissionDecision") == "deny":
        action = "stop" if said.get("continue") is False else "deny"
        return action, str(specific.get("permissionDecisionReason", ""))
    context = specific.get("additionalContext")
    return ("warn", str(context)) if context else ("allow", "")


def _gemini(said: dict[str, Any]) -> tuple[str, str]:
    if said.get("continue") is False:
        return "stop", str(said.get("stopReason") or said.get("reason", ""))
    if said.get("decision") in {"deny", "block"}:
        return "deny", str(said.get("reason", ""))
    specific = said.get("hookSpecificOutput")
    context = specific.get("additionalContext") if isinstance(specific, dict) else None
    return ("warn", str(context)) if context else ("allow", "")
