"""`switchgear show`: everything that is known of one circuit, on one page."""

from typing import Any

from rich.text import Text

from switchgear._breaker.views import View
from switchgear._cli.json_values import heat_of
from switchgear._cli.views.event_lines import event_line
from switchgear._cli.views.screen import Screen
from switchgear._cli.views.status_table import detail_of, isolation, lamp, tag_of
from switchgear._cli.views.text import bar, clean, clock_time, percent, plural, words
from switchgear._core.errors import duration
from switchgear._core.types import Mode, Phase
from switchgear._core.wire import detector_names
from switchgear._detectors.policy_wire import dump_policy
from switchgear._stores.base import Entry
from switchgear._stuck.score import score_of
from switchgear._text.money import dollars

_BAR = 10


class Page:
    """Prints a circuit, section by section. Used by one thread."""

    def __init__(self, screen: Screen, view: View, entries: list[Entry], now_s: float) -> None:
        self._screen = screen
        self._view = view
        self._entries = entries
        self._now_s = now_s

    def draw(self) -> None:
        """The whole page."""
        view, signs = self._view, self._screen.signs
        head = Text.assemble(lamp(view, signs), "  ", (clean(view.name, 1000), "bold"))
        if tag := tag_of(view):
            head.append(f" {tag}", "magenta")
        self._screen.line(head, 2)
        if detail := detail_of(view):
            self._screen.line(f"  {signs.corner} {detail}", 4)
        self._standing()
        self._heat()
        self._failures()
        self._policy()
        self._history()

    def _section(self, title: str) -> None:
        self._screen.line()
        self._screen.line(Text(title, "bold"))

    def _field(self, label: str, value: str) -> None:
        self._screen.line(Text.assemble((f"  {label:11}", "dim"), value), 13)

    def _standing(self) -> None:
        circuit, verdict = self._view.circuit, self._view.verdict
        self._section("State")
        admits = "yes" if verdict.admitted else "no"
        if verdict.overruled:
            admits = "yes, against the evidence"
        elif circuit.outage.admit:
            admits = f"{circuit.outage.admit:.0%} of the calls"
        self._field("admits", admits)
        self._field("evidence", words(circuit.phase))
        if circuit.phase is Phase.OPEN:
            self._field("open since", clock_time(circuit.outage.opened_at_s, self._now_s))
        self._field("next probe", self._next_probe())
        order = circuit.order
        if circuit.mode is Mode.AUTO or order is None:
            self._field("held", "no, the evidence decides")
        else:
            held = f"{words(circuit.mode)} by {clean(order.by)}: {clean(order.why)}"
            left_s = self._view.hold_left_s
            ends = "" if left_s is None else f"; ends in {duration(left_s)}"
            self._field("held", held + ends)
        for one in self._view.isolated:
            since = clock_time(one.since_s, self._now_s)
            self._field("isolated", f"{isolation(one)}; isolated since {since}")
        totals = circuit.totals
        counts = {name: count for name, count in totals._asdict().items() if name != "cost_micros"}
        told = ", ".join(f"{count:,} {name}" for name, count in counts.items() if count)
        self._field("totals", told or "nothing yet")
        if totals.cost_micros:
            since = " since the last reset" if self._was_reset() else ""
            self._field("cost", f"{dollars(totals.cost_micros)}{since}")
        self._field("last seen", clock_time(circuit.seen_s, self._now_s))

    def _was_reset(self) -> bool:
        """Whether the events here tell of a reset: totals begin anew with it."""
        return any(entry.event.reason.startswith("reset") for entry in self._entries)

    def _next_probe(self) -> str:
        circuit, wait = self._view.circuit, self._view.verdict.retry_after_s
        if circuit.phase in {Phase.CLOSED, Phase.TRIPPING}:
            return "none needed"
        if circuit.mode is Mode.HELD_OPEN:
            return "not while it is held open"
        if circuit.phase is Phase.HALF_OPEN:
            under_way = len(circuit.probing.permits)
            if under_way:
                return (
                    f"{plural(under_way, 'probe')} under way, until {duration(wait or 0)} from now"
                )
            return "now: the next call is one"
        if wait is None:
            return "not by itself; switchgear reset closes it"
        at = clock_time(self._now_s + wait, self._now_s)
        return f"in {duration(wait)}, at {at} (after {duration(circuit.outage.cooldown_s)})"

    def _heat(self) -> None:
        view, signs = self._view, self._screen.signs
        score = score_of(view.policy, view.readings)
        whole = "" if score is None else f", score {score.points:g} of {score.threshold:g}"
        self._section(f"Heat {percent(heat_of(view))}{whole}")
        names = detector_names(view.policy)
        width = max(map(len, names))
        for index, (name, reading) in enumerate(zip(names, view.readings, strict=True)):
            style = "red" if reading.heat >= 1 else "yellow" if reading.heat >= 0.5 else "green"
            line = Text.assemble(f"  {clean(name):{width}}  ")
            line.append(bar(reading.heat, _BAR, signs), style)
            line.append(f"{percent(reading.heat):>5}  {clean(reading.reason)}")
            if score is not None and score.shares[index].trips:
                line.append(f" (+{score.shares[index].points:g})", "bold")
            self._screen.line(line, 4)

    def _failures(self) -> None:
        failures = self._view.circuit.failures
        self._section("Evidence")
        if not failures:
            self._screen.line("  no failure is remembered")
        for failure in reversed(failures):
            at = clock_time(failure.at_s, self._now_s)
            what = clean(failure.error) if failure.error else "failed, without a word"
            self._screen.line(Text.assemble("  ", (at, "dim"), f"  {what}"), 12)

    def _policy(self) -> None:
        self._section("Policy")
        policy: dict[str, Any] = dump_policy(self._view.policy)
        for detector in policy["detectors"]:
            self._field("detector", _part(detector))
        self._field("recovery", _part(policy["recovery"]))
        if policy["combine"]["kind"] != "any":
            self._field("combine", _part(policy["combine"]))
        if policy["tripping_at"] is not None:
            self._field("tripping", f"from {percent(policy['tripping_at'])}")
        if policy["strict"]:
            self._field("strict", "refuses while its state is unknown")

    def _history(self) -> None:
        self._section("History")
        if not self._entries:
            self._screen.line("  nothing happened yet")
        for entry in reversed(self._entries):
            line = event_line(entry.event, self._now_s, self._screen.signs, name=False)
            self._screen.line(Text.assemble("  ", line), 14)


def _part(fields: dict[str, Any]) -> str:
    """`cooldown: base_s 60, max_s 300`."""
    settings = ", ".join(
        f"{clean(str(key))} {_value(value)}"
        for key, value in fields.items()
        if key != "kind" and value is not None
    )
    kind = clean(str(fields["kind"]))
    return f"{kind}: {settings}" if settings else kind


def _value(value: Any) -> str:
    """A setting as a person writes it: `0.7`, `a 30; b 10`, `yes`.

    >>> _value([["same_error", 30.0], ["silence", 10]]), _value({"a": 1}), _value((1, 2)), _value(True)
    ('same_error 30; silence 10', 'a 1', '1; 2', 'yes')
    """
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, dict):
        return "; ".join(f"{clean(str(key))} {_value(each)}" for key, each in value.items())
    if isinstance(value, list | tuple):
        return "; ".join(
            f"{_value(each[0])} {_value(each[1])}" if _is_pair(each) else _value(each)
            for each in value
        )
    return clean(str(value))


def _is_pair(value: Any) -> bool:
    """Whether it is a name with its value, as weights are written."""
    return isinstance(value, list | tuple) and len(value) == 2 and isinstance(value[0], str)
