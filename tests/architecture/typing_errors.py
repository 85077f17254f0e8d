"""Misspelled arguments, each an error to a type checker: `check_types.py` counts them. Never imported."""

from switchgear import CircuitBreaker, LoopBreaker, Panel, Signal
from switchgear.detectors import Violation
from switchgear.fleet import Fleet


def misspelled(panel: Panel, fleet: Fleet) -> None:
    panel.breaker("x", fallbak=1)  # ERROR
    panel.breaker("x", fallback=1)  # ERROR
    panel.loop("x", no_progres=3)  # ERROR
    panel.lock("x", lease=60)  # ERROR
    CircuitBreaker("x", treshold=3)  # ERROR
    LoopBreaker.for_failures("x", clok=None)  # ERROR
    LoopBreaker.for_stagnation("x", clok=None)  # ERROR
    fleet.call("coder", str, stroy="x")  # ERROR
    Signal(ko=True)  # ERROR
    Violation(limit=3)  # ERROR


def well_spelled(panel: Panel, fleet: Fleet) -> None:
    panel.breaker("x", fallback=str, failure_if=ValueError, sinks=[print], on_call=print)
    panel.loop("x", no_progress=3, sinks=[print])
    panel.lock("x", lease_s=60.0)
    CircuitBreaker("x", threshold=3)
    LoopBreaker.for_failures("x", sinks=[print])
    fleet.call("coder", str, story="x")
    Signal(ok=True)
    Violation()
