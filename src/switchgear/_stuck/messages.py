"""The messages that people and agents read: a trip, a stuck agent, a recovery, little time.

Pure functions. Text of an agent is cleaned before it becomes part of a message, so that none of its
lines can look like a line of Switchgear.
"""

from collections.abc import Sequence
from time import localtime, strftime
from typing import NamedTuple

from switchgear._core.types import Circuit, Mode, Phase
from switchgear._stuck.escalation import HELPER, HINT, Interventions
from switchgear._text.formats import plural
from switchgear._text.redact import redact, shortened

SAID = "Switchgear: "
"""The prefix of texts for an agent."""
UNTIL = ". The session is stopped until the user looks at it."
"""The end of the text about changed files, for the agent."""
LONGEST_TAMPERING = 1000

HELD = "held open"
"""The beginning of the reason if an operator holds the session."""
OVER = "TIME OVER"
"""The beginning of the reason if the time of the session is over."""
GIVEN_UP = "given up"
"""The beginning of the reason if a person gave up the task, and the agent was not stuck."""

_LABEL = 20
_LONGEST = 200
_LONGEST_INDICATOR = 500
"""The reasons of progress detectors name the steps, and then what to do differently."""


class Option(NamedTuple):
    """A possible action: its key, its label and its effect."""

    key: str
    label: str
    does: str


def one_line(text: str, longest: int = _LONGEST) -> str:
    r"""Untrusted text as a part of one line: no control characters, cut between words.

    >>> one_line("a\nb\x1b[2J"), one_line("the quick brown fox", 14)
    ('a b [2J', 'the quick…')
    """
    plain = "".join(sign if sign.isprintable() else " " for sign in text[: 4 * longest])
    return shortened(" ".join(plain.split()), longest, "…")


def span(seconds: float) -> str:
    """A time for people: `45 seconds`, `1 minute`, `3 minutes`.

    >>> span(44.6), span(60), span(179.8)
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
    """CIRCUIT BREAKER TRIPPED, with the recent failures and the options. `now_s`: since the epoch."""
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
            f"Failures: {_failures(circuit.outage.reason)}",
            f"State: {_state(circuit, wait_s)}",
            *failures,
            "",
            *_options(trip_options(wait_s)),
        )
    )


def operation(name: str) -> str:
    return one_line(name.removeprefix("op/"))


def _failures(reason: str) -> str:
    """`3 failures in 60 s (threshold 3)` as the block has it: `3 in last 60 seconds`."""
    words = reason.split()
    if words[1:3] in (["failures", "in"], ["failure", "in"]) and words[4:5] == ["s"]:
        return f"{words[0]} in last {words[3]} seconds"
    return one_line(reason) or "none counted"


def _state(circuit: Circuit, wait_s: float | None) -> str:
    if circuit.mode is Mode.HELD_OPEN:
        by = "" if circuit.order is None else f" by {one_line(circuit.order.by, 40)}"
        return f"HELD OPEN{by} (until it is released)"
    if circuit.phase is Phase.HALF_OPEN:
        return "HALF-OPEN (the next call is a test)"
    back = "will not retry by itself" if wait_s is None else f"will retry in {wait_s:.0f}s"
    return f"{circuit.phase.value.upper()} ({back})"


def _options(options: Sequence[Option]) -> list[str]:
    lines = [f"{f'[{each.label}]':{_LABEL}} - {each.does}" for each in options]
    return ["Options:", *lines]


# A stuck agent


class Stuck(NamedTuple):
    """The evidence against a stuck agent."""

    agent: str
    task: str
    points: float
    """The stuck score; the block shows at most 100."""
    indicators: tuple[str, ...]
    """The parts of the score, one line each."""


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

    `limited`: it has a time limit; `stopped`: its circuit is open; `pausable`: its process is known,
    on this machine; `paused`: that process was paused; `in_batch`: other tasks continue after an abort.
    """
    helper = one_line(plan.helper if plan.helper != HELPER else plan.escalate or HELPER, 60)
    more = span(plan.extend_s).replace(" ", " more ")
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


def agent_calm(stuck: Stuck, state: str, options: Sequence[Option]) -> str:
    """A session that is not stuck, for people: its state, and the options."""
    who = f"Session {one_line(stuck.task, 80)} ({one_line(stuck.agent, 80)}) is {state}."
    return "\n".join([who, "", *_options(options)])


def agent_stuck(stuck: Stuck, options: Sequence[Option] = ()) -> str:
    """AGENT APPEARS STUCK, with the score, its parts, and the options if there are any."""
    lines = [
        "AGENT APPEARS STUCK",
        "",
        f"Agent: {one_line(stuck.agent, 80)} ({one_line(stuck.task, 80)})",
        f"Stuck score: {min(stuck.points, 100.0):.0f}/100",
        "",
        "Indicators:",
        *(f"- {one_line(each, _LONGEST_INDICATOR)}" for each in stuck.indicators),
    ]
    return "\n".join([*lines, "", *_options(options)] if options else lines)


def stopped(stuck: Stuck, what: str) -> str:
    """The text for a stopped agent; the text for people is `stopped_for_people`."""
    return (
        f"{agent_stuck(stuck)}\n\nThe agent is stopped. {what} Do not call any more tools: "
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


_RESUME = {"claude-code": "claude --resume"}
"""The command with which an agent resumes a session, if known."""


def resume_command(agent: str, session: str) -> str:
    """The command that resumes a session of an agent; empty: unknown.

    >>> resume_command("claude-code", "7f3a")
    'claude --resume 7f3a'
    """
    return f"{_RESUME[agent]} {one_line(session, 80)}" if agent in _RESUME else ""


def what_next(
    session: str, *, escalate: bool, again: str = "", reason: str = ""
) -> tuple[str, ...]:
    """The useful actions for a stopped session, one line each.

    `again` is the command that resumes it after its agent has ended; `reason` is why it is stopped:
    an operator's hold ends by a release, and a session whose time is over needs more time.
    """
    name = one_line(session, 80)
    give_up = f"give up: switchgear intervene {name} --do abort"
    if reason.startswith(HELD):
        return f"release: switchgear release {name} --why TEXT", give_up
    hand_over = (f"hand over: switchgear intervene {name} --do escalate",) if escalate else ()
    if reason.startswith(OVER):
        more = f"give it more time: switchgear intervene {name} --do extend --for 30m"
        return more, *hand_over, give_up
    return (
        "type a message to the agent: it starts over",
        *((f"if the agent has ended: {again}",) if again else ()),
        f"reset: switchgear reset {name} --why TEXT",
        *hand_over,
        *(() if reason.startswith(GIVEN_UP) else (give_up,)),
    )


def progress_warning(reason: str) -> str:
    seen = one_line(reason, _LONGEST_INDICATOR)
    return (
        f"Switchgear warns: {seen}. Try a different approach; if this goes on, you will be stopped."
    )


def nudge(stuck: Stuck, hint: str = HINT) -> str:
    """The nudge for an agent: the evidence, if any, and the hint."""
    if not stuck.indicators:
        return f"{SAID}a hint from your operator: {one_line(hint, 1000)}"
    return (
        f"{agent_stuck(stuck)}\n\n{one_line(hint, 1000)}. Do not repeat what was tried: find out "
        "first why it did not work, then change something that can be measured."
    )


def fresh_start(stuck: Stuck, before: Sequence[str]) -> str:
    """The text for an agent that takes over from a stopped one: the steps tried, in short."""
    done = ", ".join(before) or "nothing"
    return (
        f"An agent before you was stopped, because it was stuck. Start over.\n\n"
        f"{agent_stuck(stuck)}\n\nTried so far: {done}. Look at the files to see what is left of "
        "its work; do not go on where it stopped."
    )


# Recovery


def recovery_begins(name: str, opened_s: float, reset_s: float) -> str:
    """The header of a recovery: how long the circuit has been open, and when it is probed."""
    opened, reset = f"{opened_s:.0f} seconds", f"{max(0.0, reset_s):.0f} seconds"
    return f"Circuit: {operation(name)} (OPEN)\nOpened: {opened} ago\nReset in: {reset}"


PROBING = "Attempting half-open test..."


def recovery_ends(phase: Phase, *, ok: bool) -> str:
    """The result of the probe, and the state of the circuit."""
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
        return f"{left} Start wrapping up.\n{span(left_s)} remaining, wrap up"
    return f"{left} Commit now.\n{span(left_s)} remaining, commit now"


def time_over(limit_s: float) -> str:
    return f"{OVER}: the {span(limit_s)} for this task are used up. Stop now; what is done is kept."


def tampering_text(changes: Sequence[str]) -> str:
    """The text for an agent when the files that guard it were changed without an operator."""
    return redact(
        f"{SAID}the files that guard this project were changed without an operator: "
        f"{'; '.join(changes)}{UNTIL}",
        LONGEST_TAMPERING,
    )
