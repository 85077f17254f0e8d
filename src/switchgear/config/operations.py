"""The section `circuit_breaker`: operations under hooks, by the keys of the operations specification."""

from switchgear.config.model import Rule
from switchgear.config.parts import construct, fields_of
from switchgear.config.problems import Node, Report
from switchgear.core import record
from switchgear.core.detectors import FailuresInWindow
from switchgear.core.policy import Policy
from switchgear.core.recovery import Cooldown

MATCH = "op/*"


def operations(
    *,
    failure_threshold: int = 3,
    failure_window_s: float = 60.0,
    open_duration_s: float = 30.0,
    half_open_max_calls: int = 1,
) -> Policy:
    """How every operation (`op/*`) is judged: so many failures in the window open it for so long."""
    name = "circuit_breaker"
    failures = record.whole(f"{name}.failure_threshold", failure_threshold)
    window_s = record.window(f"{name}.failure_window_s", failure_window_s)
    open_s = record.seconds(f"{name}.open_duration_s", open_duration_s)
    probes = record.whole(f"{name}.half_open_max_calls", half_open_max_calls)
    cooldown = Cooldown(open_s, open_s, probes=probes)
    return Policy([FailuresInWindow(failures, window_s)], cooldown)


def build_operations(node: Node, report: Report) -> tuple[Rule, ...]:
    """The rule for `op/*`, if the section is there; it comes after those of `circuits`."""
    nodes = report.mapping(node, fields_of(operations))
    if not isinstance(node.value, dict):
        return ()
    given = {name: child.plain() for name, child in nodes.items()}
    policy = construct(operations, given, nodes, node, report)
    return () if policy is None else (Rule(MATCH, policy),)
