"""How a page names and writes what was measured: outcomes, phases, detectors, money and time."""

from switchgear._core.detector import plural
from switchgear._core.errors import elapsed
from switchgear._run.formats import price

TONES = {
    "worked": "good",
    "completed": "best",
    "failed": "bad",
    "unproven": "warn",
    "no change": "idle",
    "provider": "away",
    "stuck": "warn",
    "blocked": "asks",
    "stopped": "cut",
}
"""The outcomes of an iteration and their colours, as classes of the style sheet."""
PHASES = {"closed": "good", "tripping": "warn", "half_open": "warn", "open": "bad"}
ENDS = {
    "completed": "best",
    "circuit_breaker": "bad",
    "agent_error": "bad",
    "blocked": "asks",
    "interrupted": "cut",
}
UNKNOWN = "-"
KINDS = {
    "consecutive_failures": "failures in a row",
    "same_error": "same error",
    "no_progress": "no progress",
    "output_decline": "output decline",
}


def tone(outcome: str) -> str:
    """The colour of an outcome."""
    return TONES.get(outcome, "idle")


def kind_name(kind: str) -> str:
    """A detector as a person calls it."""
    return KINDS.get(kind, kind.replace("_", " "))


def phase_name(phase: str) -> str:
    """`half_open` as a person writes it."""
    return phase.replace("_", "-") or "not known"


def money(micros: int | None) -> str:
    """What it cost, as far as that is known."""
    return price(micros)


def about(micros: int) -> str:
    """What it cost, in few digits, for the edge of a drawing.

    >>> about(3_865_331), about(63_000), about(420)
    ('$3.87', '$0.063', '$0.00042')
    """
    dollars_ = micros / 1_000_000
    return (
        f"${dollars_:,.2f}"
        if micros >= 1_000_000
        else f"${dollars_:.2g}"
        if micros >= 100
        else money(micros)
    )


def count(number: int | None, noun: str) -> str:
    """`2 files`; a dash where it was not measured."""
    return UNKNOWN if number is None else plural(number, noun)


def span(seconds: float | None) -> str:
    """A time; a dash where it was not measured."""
    return UNKNOWN if seconds is None else elapsed(max(seconds, 0.0))


def percent(heat: float) -> str:
    """A heat of at most 100; what is just below the trip does not read as 100."""
    return f"{int(min(max(heat, 0.0), 1.0) * 100 + 1e-9)} %"
