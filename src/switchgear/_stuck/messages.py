"""Messages for people and agents about trips, stuck agents, recoveries and time limits.

Pure functions. Text from an agent is reduced to one line before it becomes part of a message, so that it
cannot imitate a line of Switchgear.
"""

from collections.abc import Sequence
from time import localtime, strftime
from typing import NamedTuple

from switchgear._core.types import Circuit, Mode, Phase
from switchgear._stuck.escalation import HELPER, HINT, Interventions
from switchgear._text.formats import plural
from switchgear._text.redact import redact, shortened

TEXT_PREFIX = "Switchgear: "
"""The prefix of texts for an agent."""
TAMPERING_END = ". The session is stopped until the user looks at it."
"""The end of the text about changed files, for the agent."""
MAX_TAMPERING_CHARS = 1000

HELD_PREFIX = "held open"
"""How the reason begins if an operator holds the session open."""
OVER_PREFIX = "TIME OVER"
"""How the reason begins if the session has exceeded its time limit."""
GIVEN_UP_PREFIX = "given up"
"""How the reason begins if a person gave up the task although the agent was not stuck."""

_LABEL_WIDTH = 20
_MAX_CHARS = 200
_MAX_INDICATOR_CHARS = 500
"""Longer than `_MAX_CHARS`: reasons of progress detectors name the steps, then what to do differently."""


class Option(NamedTuple):
    """A possible action: its key, its label and its effect."""

    key: str
    label: str
    does: str


def one_line(text: str, longest: int = _MAX_CHARS) -> str:
    r"""Untrusted text as a part of one line: no control characters, cut between words.

    >>> one_line("a\nb\x1b[2J"), one_line("the quick brown fox", 14)
    ('a b [2J', 'the quick…')
    """
    plain = "".join(sign if sign.isprintable() else " " for sign in text[: 4 * longest])
    return shortened(" ".join(plain.split()), longest, "…")


def approximate_duration(seconds: float) -> str:
    """A duration for display: `45 seconds`, `1 minute`, `3 minutes`.

    >>> approximate_duration(44.6), approximate_duration(60), approximate_duration(179.8)
    ('45 seconds', '1 minute', '3 minutes')
    """
    if seconds < 59.5:
        return plural(round(seconds), "second")
    return plural(round(seconds / 60), "minute")


# A tripped circuit


def trip_options(wait_s: float | None) -> tuple[Option, ...]:
    again = "It stays open until it is reset" if wait_s is None else f"Auto-retry in {wait_s:.0f}s"
    return (
        Option("wait", "Wait for reset", again),
        Option("force", "Force close", "Override circuit, try now"),
        Option("skip", "Skip operation", "Continue without this operation"),
        Option("abort", "Abort batch", "Stop execution"),
    )


def circuit_tripped(circuit: Circuit, now_s: float) -> str:
    """The block CIRCUIT BREAKER TRIPPED: recent failures and options. `now_s`: seconds since the epoch."""
    retry_at_s = circuit.outage.retry_at_s
    wait_s = None if retry_at_s is None else max(0.0, retry_at_s - now_s)
    recent = [
        f"- {strftime('%H:%M:%S', localtime(failure.at_s))} - {one_line(failure.error or 'no reason given')}"
        for failure in circuit.failures
    ]
    failures = ["", "Recent failures:", *recent] if recent else []
    return "\n".join(
        (
            "CIRCUIT BREAKER TRIPPED",
            "",
            f"Operation: {operation(circuit.key)}",
            f"Failures: {_failures_line(circuit.outage.reason)}",
            f"State: {_state_line(circuit, wait_s)}",
            *failures,
            "",
            *_options_block(trip_options(wait_s)),
        )
    )


def operation(name: str) -> str:
    return one_line(name.removeprefix("op/"))


def _failures_line(reason: str) -> str:
    """The reason of a trip, rephrased: `3 failures in 60 s (threshold 3)` → `3 in last 60 seconds`."""
    words = reason.split()
    if words[1:3] in (["failures", "in"], ["failure", "in"]) and words[4:5] == ["s"]:
        return f"{words[0]} in last {words[3]} seconds"
    return one_line(reason) or "none counted"


def _state_line(circuit: Circuit, wait_s: float | None) -> str:
    if circuit.mode is Mode.HELD_OPEN:
        by = "" if circuit.order is None else f" by {one_line(circuit.order.by, 40)}"
        return f"HELD OPEN{by} (until it is released)"
    if circuit.phase is Phase.HALF_OPEN:
        return "HALF-OPEN (the next call is a test)"
    back = "will not retry by itself" if wait_s is None else f"will retry in {wait_s:.0f}s"
    return f"{circuit.phase.value.upper()} ({back})"


def _options_block(options: Sequence[Option]) -> list[str]:
    lines = [f"{f'[{each.label}]':{_LABEL_WIDTH}} - {each.does}" for each in options]
    return ["Options:", *lines]


# A stuck agent


class Stuck(NamedTuple):
    """The evidence against a stuck agent."""

    agent: str
    task: str
    points: float
    """The stuck score; at most 100 is displayed."""
    indicators: tuple[str, ...]
    """The reasons for the score, one line each."""


def stuck_options(
    plan: Interventions,
    *,
    limited: bool = True,
    stopped: bool = False,
    pausable: bool = False,
    paused: bool = False,
    in_batch: bool = True,
) -> tuple[Option, ...]:
    """The possible actions for a stuck agent.

    - `limited`: it has a time limit; `stopped`: its circuit is open.
    - `pausable`: its process runs on this machine and is known; `paused`: that process was suspended.
    - `in_batch`: other tasks continue after an abort.
    """
    helper = one_line(plan.helper if plan.helper != HELPER else plan.escalate or HELPER, 60)
    more = approximate_duration(plan.extend_s).replace(" ", " more ")
    after = "continue batch" if in_batch else "stop agent"
    options = (
        (stopped, "resume", "Resume agent", "Reset the circuit; the agent may go on"),
        (True, "nudge", "Nudge agent", f'Inject hint: "{one_line(plan.hint)}"'),
        (limited, "extend", "Extend timeout", f"Grant {more}"),
        (plan.escalate is not None, "escalate", "Hand over", f"Escalate to {helper}"),
        (pausable and not paused, "pause", "Pause agent", "Suspend its process (SIGSTOP)"),
        (pausable and paused, "continue", "Continue agent", "Continue its process (SIGCONT)"),
        (True, "abort", "Abort task", f"Mark failed, {after}"),
    )
    return tuple(Option(*texts) for is_possible, *texts in options if is_possible)


def session_state(stuck: Stuck, state: str, options: Sequence[Option]) -> str:
    """The state of a session that is not stuck, and the options."""
    heading = f"Session {one_line(stuck.task, 80)} ({one_line(stuck.agent, 80)}) is {state}."
    return "\n".join([heading, "", *_options_block(options)])


def agent_stuck(stuck: Stuck, options: Sequence[Option] = ()) -> str:
    """The block AGENT APPEARS STUCK: the score, the reasons for it, and the options if there are any."""
    lines = [
        "AGENT APPEARS STUCK",
        "",
        f"Agent: {one_line(stuck.agent, 80)} ({one_line(stuck.task, 80)})",
        f"Stuck score: {min(stuck.points, 100.0):.0f}/100",
        "",
        "Indicators:",
        *(f"- {one_line(each, _MAX_INDICATOR_CHARS)}" for each in stuck.indicators),
    ]
    return "\n".join([*lines, "", *_options_block(options)] if options else lines)


def stopped(stuck: Stuck, consequence: str) -> str:
    """The text for a stopped agent; the text for people is `stopped_for_people`."""
    return (
        f"{agent_stuck(stuck)}\n\nThe agent is stopped. {consequence} Do not call any more tools: "
        "tell the user what you tried, what is left, and that a new message lets you go on."
    )


def sub_agent_stopped(stuck: Stuck) -> str:
    """The text for a stopped sub-agent, which reports to the agent that started it."""
    return (
        f"{agent_stuck(stuck)}\n\nThis sub-agent is stopped. Do not call any more tools: report "
        "what you tried, why it did not work, and what is left."
    )


def stopped_for_people(session: str, reason: str, *, escalate: bool, agent: str = "") -> str:
    """The text for people about a stopped session: why, and what to do next.

    >>> print(stopped_for_people("7f3a", "score 90 (trips at 60)", escalate=False).splitlines()[0])
    Switchgear stopped session 7f3a: score 90 (trips at 60)
    """
    lines = [f"Switchgear stopped session {one_line(session, 80)}: {one_line(reason, 500)}"]
    again = resume_command(agent, session)
    next_steps = what_next(session, escalate=escalate, again=again, reason=reason)
    return "\n".join([*lines, *(f"- {line}" for line in next_steps)])


_RESUME_COMMANDS = {"claude-code": "claude --resume"}
"""Agents whose command for resuming a session is known."""


def resume_command(agent: str, session: str) -> str:
    """The command that resumes a session of an agent; empty: unknown.

    >>> resume_command("claude-code", "7f3a")
    'claude --resume 7f3a'
    """
    return f"{_RESUME_COMMANDS[agent]} {one_line(session, 80)}" if agent in _RESUME_COMMANDS else ""


def what_next(
    session: str, *, escalate: bool, again: str = "", reason: str = ""
) -> tuple[str, ...]:
    """The possible actions for a stopped session, one line each.

    `again` is the command that resumes the session after its agent has ended. `reason` is why it is stopped:
    a held session can be released, and one that exceeded its time limit can get more time.
    """
    name = one_line(session, 80)
    give_up = f"give up: switchgear intervene {name} --do abort"
    if reason.startswith(HELD_PREFIX):
        return f"release: switchgear release {name} --why TEXT", give_up
    hand_over = (f"hand over: switchgear intervene {name} --do escalate",) if escalate else ()
    if reason.startswith(OVER_PREFIX):
        more = f"give it more time: switchgear intervene {name} --do extend --for 30m"
        return more, *hand_over, give_up
    return (
        "type a message to the agent: it starts over",
        *((f"if the agent has ended: {again}",) if again else ()),
        f"reset: switchgear reset {name} --why TEXT",
        *hand_over,
        *(() if reason.startswith(GIVEN_UP_PREFIX) else (give_up,)),
    )


def progress_warning(reason: str) -> str:
    seen = one_line(reason, _MAX_INDICATOR_CHARS)
    return (
        f"Switchgear warns: {seen}. Try a different approach; if this goes on, you will be stopped."
    )


def nudge(stuck: Stuck, hint: str = HINT) -> str:
    """The nudge for an agent: the evidence, if any, and the hint."""
    if not stuck.indicators:
        return f"{TEXT_PREFIX}a hint from your operator: {one_line(hint, 1000)}"
    return (
        f"{agent_stuck(stuck)}\n\n{one_line(hint, 1000)}. Do not repeat what was tried: find out "
        "first why it did not work, then change something that can be measured."
    )


def fresh_start(stuck: Stuck, before: Sequence[str]) -> str:
    """The text for an agent that takes over from a stopped one: the evidence and the steps tried."""
    steps = ", ".join(before) or "nothing"
    return (
        f"An agent before you was stopped, because it was stuck. Start over.\n\n"
        f"{agent_stuck(stuck)}\n\nTried so far: {steps}. Look at the files to see what is left of "
        "its work; do not go on where it stopped."
    )


# Recovery


def recovery_begins(name: str, opened_s: float, reset_s: float) -> str:
    """The header of a recovery: how long the circuit has been open, and when it is tested."""
    opened, reset = f"{opened_s:.0f} seconds", f"{max(0.0, reset_s):.0f} seconds"
    return f"Circuit: {operation(name)} (OPEN)\nOpened: {opened} ago\nReset in: {reset}"


PROBING = "Attempting half-open test..."


def recovery_ends(phase: Phase, *, ok: bool) -> str:
    """The result of the test call, and the state of the circuit."""
    result = f"Test result: {'SUCCESS' if ok else 'FAILURE'}"
    if phase is Phase.CLOSED:
        return f"{result}\n\nCircuit CLOSED. Resuming normal operations."
    return (
        f"{result}\n\nCircuit {phase.value.replace('_', '-').upper()}. Waiting for the next test."
    )


# Time


def time_warning(percent: int, left_s: float, limit_s: float) -> str:
    """The time warning for an agent at 70 and 90 percent of its time.

    >>> print(time_warning(70, 180.0, 600.0))
    TIME WARNING: 30% budget remaining. Start wrapping up.
    3 minutes remaining, wrap up
    """
    left = f"TIME WARNING: {left_s / limit_s:.0%} budget remaining."
    if percent < 90:
        return f"{left} Start wrapping up.\n{approximate_duration(left_s)} remaining, wrap up"
    return f"{left} Commit now.\n{approximate_duration(left_s)} remaining, commit now"


def time_over(limit_s: float) -> str:
    return f"{OVER_PREFIX}: the {approximate_duration(limit_s)} for this task are used up. Stop now; what is done is kept."


def tampering_text(changes: Sequence[str]) -> str:
    """The text for an agent when the files that guard it were changed without an operator."""
    return redact(
        f"{TEXT_PREFIX}the files that guard this project were changed without an operator: "
        f"{'; '.join(changes)}{TAMPERING_END}",
        MAX_TAMPERING_CHARS,
    )
