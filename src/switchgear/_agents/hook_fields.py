"""What the dialects share: fields of hostile JSON as plain values, exit codes out of texts."""

import json
import math
from collections.abc import Mapping
from typing import Any

from switchgear._agents.hook_call import BadInput, HookFacts, Moment, safe_id

LONGEST_RESULT = 20_000
"""Characters of a tool's output that are looked at."""
LONGEST_THOUGHT = 2_000
LONGEST_TOOL = 200
_EXIT = r"(?im)^\W{0,40}(?:process |command )?exit(?:ed with)?(?: code)?:? +(-?\d{1,9})\b"


def event_name(data: Mapping[str, Any]) -> str:
    """The agent's name for the event. Raises `BadInput`."""
    name = data.get("hook_event_name")
    if not isinstance(name, str) or not name or len(name) > 100:
        raise BadInput("the field 'hook_event_name' is missing, or no short text")
    return name


def base(agent: str, data: Mapping[str, Any], moments: Mapping[str, Moment]) -> HookFacts:
    """The fields that every event of the Claude family has. Raises `BadInput`."""
    event = event_name(data)
    if event not in moments:
        raise BadInput(f"the event {event[:60]!r} is not known")
    session = data.get("session_id")
    if not isinstance(session, str) or not session:
        raise BadInput("the field 'session_id' is missing, or no text")
    ok, error = sub_agent_end(data) if moments[event] is Moment.AGENT_STOP else (None, None)
    return HookFacts(
        agent=agent,
        event=event,
        moment=moments[event],
        ok=ok,
        error=error,
        session=safe_id(session),
        subagent=safe_id(data["agent_id"]) if data.get("agent_id") else "",
        cwd=text(data.get("cwd")),
        prompt=text(data.get("prompt")),
        transcript=text(data.get("agent_transcript_path") or data.get("transcript_path")),
        model=text(data.get("model"))[:200],
    )


_FAILED = frozenset({"failed", "failure", "error", "errored", "crashed", "timeout", "timed_out"})
_CUT_OFF = frozenset({"cancelled", "canceled", "interrupted", "killed", "aborted", "stopped"})


def sub_agent_end(data: Mapping[str, Any]) -> tuple[bool | None, str | None]:
    """How a sub-agent ended, as far as the event says, and the error; one that was cut off: `None`.

    Without a word of failure it has succeeded: agents send the event when its work is done.
    """
    error = whole_text(data.get("error") or None)
    status = text(data.get("status")).lower()
    tasks = data.get("background_tasks")
    for task in tasks if isinstance(tasks, list) else ():
        if isinstance(task, dict) and task.get("id") == data.get("agent_id") and not status:
            status = text(task.get("status")).lower()
            error = error or whole_text(task.get("error") or None)
    if error is not None or status in _FAILED:
        return False, error or f"the sub-agent ended: {status}"
    return (None if status in _CUT_OFF else True), None


def tool_name(data: Mapping[str, Any]) -> str:
    """The tool. Raises `BadInput`."""
    tool = data.get("tool_name")
    if not isinstance(tool, str) or not tool:
        raise BadInput("the field 'tool_name' is missing, or no text")
    return short_name(tool)


def short_name(tool: str) -> str:
    """The name of a tool. Raises `BadInput`: a name that is cut could be another tool's."""
    if len(tool) > LONGEST_TOOL:
        raise BadInput(f"the name of the tool has more than {LONGEST_TOOL} characters")
    return tool


def text(value: Any) -> str:
    """A text; anything else is none."""
    return value if isinstance(value, str) else ""


def whole_text(value: Any) -> str | None:
    """Whatever a tool gave back as one text, cut; `None`: nothing came."""
    if value is None:
        return None
    if isinstance(value, str):
        return value[:LONGEST_RESULT]
    try:
        return json.dumps(value, ensure_ascii=False)[:LONGEST_RESULT]
    except (TypeError, ValueError, RecursionError):
        return str(type(value))


def number(value: Any) -> float | None:
    """A finite number of at least 0; anything else was not measured."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        found = float(value)
    except OverflowError:
        return None
    return found if math.isfinite(found) and found >= 0 else None


def milliseconds(value: Any) -> float | None:
    """A duration in milliseconds, as seconds."""
    found = number(value)
    return None if found is None else found / 1000


def share(value: Any) -> float | None:
    """A share from 0 to 1; what is beyond is 1."""
    found = number(value)
    return None if found is None else min(found, 1.0)


def window_share(usage: Any) -> float | None:
    """The share of the window in use, of `{"tokens", "contextWindow"}`."""
    if not isinstance(usage, dict):
        return None
    tokens, window = number(usage.get("tokens")), number(usage.get("contextWindow"))
    return min(tokens / window, 1.0) if tokens is not None and window else None


def thought(value: Any) -> str | None:
    """What was said before a call; nothing is not known."""
    return value[:LONGEST_THOUGHT] if isinstance(value, str) and value.strip() else None


def dollars(value: Any) -> int | None:
    """A price in dollars, as millionths."""
    found = number(value)
    return None if found is None or found > 1e9 else round(found * 1e6)


def exit_code(output: str | None) -> int | None:
    r"""The exit code that a text reports on a line of its own; the last one counts.

    >>> exit_code("Output: (empty)\nExit Code: 1\n"), exit_code("all is well")
    (1, None)
    """
    if not output or "exit" not in (tail := output[-4000:]).lower():
        return None
    import re  # noqa: PLC0415  most outputs speak of no exit

    found = re.findall(_EXIT, tail)
    return int(found[-1]) if found else None
