"""Claude Agent SDK: `query(prompt=…, options=…)` with circuits, progress and budget.

`guard(options)` adds hooks to the options: a circuit per tool, and the progress of the session and of each
of its sub-agents. `query` also guards the whole query by the circuit of the provider and by the budget,
because Claude Code calls its model in a separate process.
"""

from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator
from dataclasses import replace
from typing import Any, Unpack

import claude_agent_sdk as sdk
from claude_agent_sdk import ClaudeAgentOptions, HookMatcher, Message, ResultMessage

from switchgear._core.errors import Rejected
from switchgear._providers.errors import classify_response
from switchgear.integrations._agent_run import (
    AgentGuard,
    GuardedRun,
    GuardOptions,
    ModelName,
    ToolCall,
    tool_error,
)

__all__ = ["guard", "query"]


def guard(
    options: ClaudeAgentOptions | None = None, **guards: Unpack[GuardOptions]
) -> ClaudeAgentOptions:
    """The options, with hooks that guard the tool calls and the progress of the session.

    For `ClaudeSDKClient(guard(options, panel=panel))`. The other arguments are those of every agent
    framework: `panel`, `tool_key` and `progress`; `query` takes `key`, `budget` and `reserve_micros` too.
    """
    return _hooked(options or ClaudeAgentOptions(), _SessionHooks(_guard(**guards)))


async def query(
    *,
    prompt: str | AsyncIterable[dict[str, Any]],
    options: ClaudeAgentOptions | None = None,
    transport: sdk.Transport | None = None,
    **guards: Unpack[GuardOptions],
) -> AsyncIterator[Message]:
    """`claude_agent_sdk.query`, guarded; raises `Rejected` or `BudgetRefused` before Claude starts.

    One query is one call of the circuit `provider/anthropic` (see `key`): it fails if it ends with an error of
    the API. Its whole cost is settled with the budget; before it, `reserve_micros` is reserved, or the cost of
    the most expensive query so far. The other arguments are those of `guard`.
    """
    guarded = _guard(**guards)
    options = options or ClaudeAgentOptions()
    hooks = _SessionHooks(guarded)
    async with hooks.root.model(ModelName("anthropic", options.model or "")) as call:
        messages = sdk.query(prompt=prompt, options=_hooked(options, hooks), transport=transport)
        try:
            async for message in messages:
                if isinstance(message, ResultMessage):
                    cost = message.total_cost_usd
                    call.used(0, 0, cost_micros=None if cost is None else round(cost * 1e6))
                    call.failed(_failure(message))
                yield message
        finally:
            hooks.give_back()
            if isinstance(messages, AsyncGenerator):
                await messages.aclose()


def _guard(**options: Unpack[GuardOptions]) -> AgentGuard:
    return AgentGuard("claude-agent-sdk", **options)


def _hooked(options: ClaudeAgentOptions, hooks: "_SessionHooks") -> ClaudeAgentOptions:
    added: dict[Any, list[HookMatcher]] = {
        "PreToolUse": [HookMatcher(hooks=[hooks.before], on_failure="block")],
        "PostToolUse": [HookMatcher(hooks=[hooks.after])],
        "PostToolUseFailure": [HookMatcher(hooks=[hooks.after])],
    }
    known: dict[Any, list[HookMatcher]] = dict(options.hooks or {})
    merged = {event: [*known.get(event, ()), *added.get(event, ())] for event in {**known, **added}}
    return replace(options, hooks=merged)


class _SessionHooks:
    """The hooks of one session: a run for the agent, and one for each of its sub-agents."""

    def __init__(self, guard: AgentGuard) -> None:
        self._guard = guard
        self.root = guard.run()
        self._calls: dict[str, ToolCall] = {}

    def _run(self, event: Any) -> GuardedRun:
        agent = event.get("agent_id")
        if not agent:
            return self.root
        with self.root.inside():
            return self._guard.run(str(agent))

    async def before(self, event: Any, tool_use_id: str | None, context: Any) -> Any:
        """Acquire the permit of a tool; deny the call without one."""
        call = self._run(event).tool(event["tool_name"], event["tool_input"])
        try:
            await call.__aenter__()
        except Rejected as error:
            reply: dict[str, Any] = {
                "hookSpecificOutput": {
                    "hookEventName": "PreToolUse",
                    "permissionDecision": "deny",
                    "permissionDecisionReason": tool_error(event["tool_name"], error),
                }
            }
            if error.circuit == f"session/{self.root.id}":  # the whole run is stopped
                reply |= {"continue_": False, "stopReason": str(error)}
            return reply
        self._calls[event["tool_use_id"]] = call
        return {}

    async def after(self, event: Any, tool_use_id: str | None, context: Any) -> Any:
        """Record the result of a tool; warn an agent that makes no progress."""
        call = self._calls.pop(event["tool_use_id"], None)
        if call is None:
            return {}
        name = event["hook_event_name"]
        failed = name == "PostToolUseFailure"
        warning = await call.afinished(
            event["error"] if failed else event["tool_response"], failed=failed
        )
        # A failed command is a failed step, but no failure of the tool.
        await call.__aexit__(None, None, None)
        if warning is None:
            return {}
        return {"hookSpecificOutput": {"hookEventName": name, "additionalContext": warning}}

    def give_back(self) -> None:
        """Return the permits of unfinished tool calls, which are no evidence, at the end of the session."""
        while self._calls:
            _, call = self._calls.popitem()
            call.__exit__(GeneratorExit, GeneratorExit(), None)


def _failure(result: ResultMessage) -> str:
    """The failure of the provider that ended a query; empty if there was none."""
    status = result.api_error_status
    found = None if status is None else classify_response(status)
    if not result.is_error or found is None or not found.is_provider_failure:
        return ""
    return f"HTTP {status}: {(result.result or '')[:200]}"
