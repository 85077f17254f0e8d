"""What a hook says of a tool call, as signals: one for its operation, one for the agent's session."""

from typing import Any

from switchgear._agents import fields
from switchgear._agents.hook_protocol import HookFacts
from switchgear._core.types import AgentStep, Signal
from switchgear._hooks import kinds
from switchgear._text.redact import LONGEST, redact, redact_lines

_NOISE = (
    "Command:",
    "Directory:",
    "Signal:",
    "Process Group",
    "Background PIDs",
    "<",
    "Exit Code:",
)
"""How lines begin that agents put around the output of a command."""
_NOTHING = ("", "(empty)", "(none)", "(no output)")


def call_signal(facts: HookFacts, *, seconds: float | None, changed: int | None) -> Signal:
    """The call as its session hears of it: the act, and how it went."""
    return Signal(
        ok=facts.ok,
        seconds=seconds,
        error=error_line(facts) if facts.ok is False else None,
        files_changed=changed,
        context_used=facts.context_used,
        cost_micros=facts.cost_micros,
        step=AgentStep(
            redact(facts.tool, 100),
            redact_lines(args_text(facts.args)),
            None if facts.result is None else redact_lines(facts.result),
            None if facts.thought is None else redact_lines(facts.thought),
        ),
    )


def operation_signal(signal: Signal, kind: str, facts: HookFacts) -> Signal:
    """The call as its operation hears of it.

    A command that ran and said no (tests that fail, a search without a find) is the shell at
    work; of git, the network and agents it is a failure.
    """
    ok = signal.ok
    if ok is False and kind == kinds.SHELL and fields.exit_code(facts.error or "") is not None:
        ok = True
    return Signal(ok=ok, seconds=signal.seconds, error=signal.error if ok is False else None)


def args_text(args: Any) -> str:
    """What a tool was called with, as one text."""
    return fields.whole_text(args) or ""


_TELLING = ("command", "cmd", "file_path", "path", "url", "pattern", "query", "description")


def last_step(facts: HookFacts) -> str:
    """A call in one short line, for people: the tool, and the argument that tells most.

    >>> from switchgear._agents.hook_protocol import HookFacts, Moment
    >>> last_step(HookFacts("codex", "x", Moment.BEFORE_TOOL, "s", tool="Bash", args={"command": "make"}))
    'Bash make'
    """
    args: Any = facts.args
    if isinstance(args, dict):
        args = next((args[key] for key in _TELLING if isinstance(args.get(key), str)), args)
    return redact(" ".join(f"{facts.tool} {args_text(args)}".split()), 120)


def error_line(facts: HookFacts) -> str:
    r"""One line about a failure that tells it from others: what it said last, how it ended.

    >>> from switchgear._agents.hook_protocol import HookFacts, Moment
    >>> facts = HookFacts("codex", "x", Moment.AFTER_TOOL, "s", tool="Bash", args={"command": "make"})
    >>> error_line(facts._replace(error="Exit code 2\ngcc: no such file"))
    'exit code 2: gcc: no such file'
    >>> error_line(facts._replace(error="Exit code 1"))
    'exit code 1 of make'
    """
    told = facts.error or ""
    code = fields.exit_code(told)
    if code is None:
        return redact(told or "failed")
    lines = [
        line.strip().removeprefix("Output:").removeprefix("Error:").strip()
        for line in told.splitlines()
    ]
    said = [
        line
        for line in lines
        if line not in _NOTHING and not line.startswith(_NOISE) and fields.exit_code(line) is None
    ]
    if not said:
        command = facts.args.get("command", "") if isinstance(facts.args, dict) else ""
        of = f" of {command}" if isinstance(command, str) and command else ""
        return redact(f"exit code {code}{of}")
    # The end says what went wrong; how it begins is often the same for every failure.
    tail = " ".join(said)[-(LONGEST - 20) :]
    return redact(f"exit code {code}: {tail}")
