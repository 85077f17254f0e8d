"""Events as lines a person reads."""

from rich.text import Text

from switchgear._cli.views.status_table import STYLES
from switchgear._cli.views.text import Signs, clean, clock_time, words
from switchgear._core.errors import duration
from switchgear._core.types import Event, EventKind, Phase


def event_line(event: Event, now_s: float, signs: Signs, *, name: bool = True) -> Text:
    """When, which circuit, what."""
    sign = {Phase.OPEN: signs.open, Phase.HALF_OPEN: signs.half_open}.get(event.after, signs.closed)
    line = Text.assemble(
        (clock_time(event.at_s, now_s), "dim"), "  ", (sign, STYLES[event.after]), " "
    )
    if name:
        line.append(clean(event.circuit), "bold").append("  ")
    return line.append(what_happened(event, signs))


def what_happened(event: Event, signs: Signs) -> str:
    """An event in words."""
    reason = clean(event.reason)
    by = f" by {clean(event.by, 60)}" if event.by else ""
    if event.kind is EventKind.ORDERED:
        ordered = "mode auto (released)" if reason == "mode auto" else words(reason)
        return f"ordered {ordered}{by}: {clean(event.why)}"
    if event.kind is EventKind.HOLD_ENDED:
        return f"{words(reason)}, held{by}: {clean(event.why)}"
    if event.kind is not EventKind.MOVED:
        return f"{words(event.kind)}: {reason}"
    wait = event.retry_after_s
    then = (
        "" if wait is None or event.after is not Phase.OPEN else f"; next try in {duration(wait)}"
    )
    return f"{words(event.before)} {signs.arrow} {words(event.after)}: {reason}{then}"
