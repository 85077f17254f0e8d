"""Circuits in shadow mode as rows of the same report: what they would have done, live.

A store keeps events and totals, not steps: what would have been refused is counted where somebody
asked; where a circuit is only told, as sessions are, what came after the trip is counted as far as it
is known. When and why it would have tripped is known, and the last failures are the evidence.
"""

from collections.abc import Iterable

from switchgear._analysis.backtest.rows import Judged, Row, RunFacts, Shown
from switchgear._breaker.views import View
from switchgear._core.types import Circuit, Event, Mode, Phase
from switchgear._text.agent_text import one_line

NAME = "live"


def shadow_row(view: View, events: Iterable[Event], store: str) -> Row | None:
    """What a shadowed circuit would have done; `None`: it is not, and was not, in shadow mode.

    `events` are those of this circuit, the oldest first.
    """
    shadowed = [event for event in events if event.mode is Mode.SHADOW]
    circuit = view.circuit
    if circuit.mode is not Mode.SHADOW and not shadowed:
        return None
    told = circuit.totals.succeeded + circuit.totals.failed + circuit.totals.ignored
    facts = RunFacts(
        id=circuit.key,
        source=store,
        format=NAME,
        agent="",
        model=None,
        task="",
        solved=None,
        ended="",
        steps=told,
        tokens=0,
        cost_micros=circuit.totals.cost_micros,
        cost_unknown="",
        timed=True,
    )
    return Row(facts, (_judged(circuit, shadowed, view, told),))


def _judged(circuit: Circuit, events: list[Event], view: View, told: int) -> Judged:
    opened = [event for event in events if event.after is Phase.OPEN and event.before != "open"]
    worried = [event for event in events if event.after is Phase.TRIPPING]
    saved = _went_on(circuit, opened[0].at_s) if opened else 0
    before = max(told - saved, 0)
    hottest = max((reading.heat for reading in view.readings), default=0.0)
    kinds = tuple(detector.kind for detector in view.policy.detectors)
    hot = [reading.heat for reading in view.readings]
    reasons = [event.reason for event in opened or worried]
    return Judged(
        policy="as configured",
        warned_at=before if worried else None,
        warnings=len(worried),
        tripped_at=before if opened else None,
        detector=kinds[hot.index(max(hot))] if opened and hot else "",
        reason=reasons[-1] if reasons else "",
        hottest=min(hottest, 9.99),
        saved_steps=saved,
        saved_micros=None if opened else 0,
        evidence=tuple(
            Shown(place, "", "", False, one_line(failure.error or "failed", 200), "")
            for place, failure in enumerate(circuit.failures, 1)
        ),
        kinds=kinds,
    )


def _went_on(circuit: Circuit, opened_at_s: float) -> int:
    """What came after the trip, at least: refusals that were overruled, failures, anything at all."""
    failed = sum(failure.at_s > opened_at_s for failure in circuit.failures)
    return max(circuit.totals.overruled, failed, int(circuit.seen_s > opened_at_s))
