"""Qwen Code: its prompt events are often not prompts, and only an interrupt ends its turn."""

import json
from typing import Any

import pytest

from switchgear._agents.hook_protocol import Moment, deny, stop, warn
from switchgear._agents.qwen.hooks import read, write


def event(name: str, **more: Any) -> dict[str, Any]:
    return {"session_id": "s1", "cwd": "/w", "hook_event_name": name, **more}


def test_the_results_of_tools_are_not_a_prompt() -> None:
    asked = event("UserPromptSubmit", prompt="Check", submitted_prompt="Check")
    assert read(asked).moment is Moment.PROMPT
    assert read(event("UserPromptSubmit", prompt="Check")).moment is Moment.PROMPT
    assert read(event("UserPromptSubmit", prompt="")).moment is Moment.BEFORE_MODEL


@pytest.mark.parametrize("name", ["PostToolUse", "PostToolUseFailure", "PostToolBatch"])
def test_a_stop_after_a_tool_is_an_interrupt(name: str) -> None:
    facts = read(event(name, tool_name="x", tool_response="y", tool_calls=[]))
    reply = write(stop("enough"), facts)
    assert reply.interrupt
    assert json.loads(reply.stdout)["hookSpecificOutput"]["additionalContext"] == "enough"
    assert not write(stop("enough", whole=False), facts).interrupt
    assert not write(warn("slower"), facts).interrupt
    assert not write(deny("no"), facts).interrupt
