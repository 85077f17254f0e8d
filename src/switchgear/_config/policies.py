"""Named policies, presets and inline policies to `Policy` values, with what they extend."""

from typing import Any

from switchgear._breaker.presets import PRESETS
from switchgear._config.parts import build_part, construct
from switchgear._config.problems import Node, Report, join, shown, suggestion
from switchgear._core.detector import Detector
from switchgear._core.policy import Policy
from switchgear._detectors import ConsecutiveFailures
from switchgear._detectors.policy_wire import COMBINES, DETECTORS, RECOVERIES

LONGEST_CHAIN = 16
"""Policies that extend one another, one after the other."""
MOST_DETECTORS = 32
POLICY_KEYS = ("extends", "detectors", "recovery", "combine", "tripping_at", "strict")


def preset_policy(name: str) -> Policy:
    """The policy of a preset. Raises KeyError for a name that is none."""
    report = Report("presets")
    policy = _build(_nodes(PRESETS[name], name).value, Node(None, None, name), report)
    report.raise_if_any()
    assert policy is not None
    return policy


class Policies:
    """Resolves the policies of one file. Used by one thread."""

    def __init__(self, named: dict[str, Node], report: Report) -> None:
        self._named = named
        self._report = report

    def all_named(self) -> dict[str, Policy]:
        """The policies of the `policies` section that are sound; the others are reported."""
        found = {name: self._policy(node, (name,)) for name, node in self._named.items()}
        return {name: policy for name, policy in found.items() if policy is not None}

    def of(self, node: Node) -> Policy | None:
        """The policy that a circuit asks for: a name, a preset or one written in place."""
        if isinstance(node.value, str):
            keys = self._keys_by_name(node, ())
            return None if keys is None else _build(keys, node, self._report)
        return self._policy(node, ())

    def _policy(self, node: Node, trail: tuple[str, ...]) -> Policy | None:
        keys = self._keys(node, trail)
        return None if keys is None else _build(keys, node, self._report)

    def _keys(self, node: Node, trail: tuple[str, ...]) -> dict[str, Node] | None:
        """The keys of a policy over those of what it extends: a key that is given replaces."""
        if not isinstance(node.value, dict):
            rule = "it must be a mapping with detectors, or with extends"
            self._report.add(node, f"is {shown(node.value)}: {rule}")
            return None
        own = dict(self._report.mapping(node, POLICY_KEYS))
        base = own.pop("extends", None)
        if base is None or base.value is None:
            return own
        inherited = None
        if isinstance(base.value, str):
            inherited = self._keys_by_name(base, trail)
        else:
            self._report.add(base, f"is {shown(base.value)}: it must be the name of a policy")
        if inherited is None:
            # What stands here is looked at all the same; where detectors would come from is known.
            _build({"detectors": _nodes([ConsecutiveFailures.kind], ""), **own}, node, self._report)
            return None
        return {**inherited, **own}

    def _keys_by_name(self, node: Node, trail: tuple[str, ...]) -> dict[str, Node] | None:
        name = node.value
        # A policy may have the name of a preset and extend it: in there the name is the preset's.
        if name in self._named and not (trail[-1:] == (name,) and name in PRESETS):
            if name in trail:
                circle = " → ".join((*trail[trail.index(name) :], name))
                self._report.add(node, f"is {shown(name)}: policies extend in a circle: {circle}")
                return None
            if len(trail) >= LONGEST_CHAIN:
                self._report.add(node, f"extends more than {LONGEST_CHAIN} policies in a chain")
                return None
            return self._keys(self._named[name], (*trail, name))
        if name in PRESETS:
            keys: dict[str, Node] = _nodes(PRESETS[name], f"preset {name}").value
            return keys
        near = suggestion(name, [*self._named, *PRESETS])
        self._report.add(node, f"is {shown(name)}: there is no such policy or preset; {near}")
        return None


def _build(keys: dict[str, Node], place: Node, report: Report) -> Policy | None:
    before = report.added
    given: dict[str, Any] = {}
    for name in ("tripping_at", "strict"):
        if name in keys and isinstance(keys[name].value, list | dict):
            report.add(keys[name], f"is {shown(keys[name].value)}: it must be a single value")
        elif name in keys:
            given[name] = keys[name].value
    if "recovery" in keys:
        given["recovery"] = build_part(keys["recovery"], RECOVERIES, report)
    if "combine" in keys:
        given["combine"] = build_part(keys["combine"], COMBINES, report)
    detectors = _detectors(keys, place, report)
    if detectors is None:
        # The rest is looked at all the same, against a detector that suits everything but weights.
        detectors = [ConsecutiveFailures()]
        given.pop("combine", None)
    given["detectors"] = detectors
    policy = construct(Policy, given, keys | _nodes_of_combine(keys), place, report)
    return policy if report.added == before else None


def _nodes_of_combine(keys: dict[str, Node]) -> dict[str, Node]:
    """A combine rule objects to detectors under its own name: where its fields stand."""
    if "combine" not in keys:
        return {}
    whole = keys["combine"]
    nodes = {"weights": whole, "threshold": whole}
    if isinstance(whole.value, dict):
        for inner in whole.value.values():
            nodes |= inner.value if isinstance(inner.value, dict) else {}
    return nodes


def _detectors(keys: dict[str, Node], place: Node, report: Report) -> list[Detector] | None:
    before = report.added
    if "detectors" not in keys:
        report.add(place, "needs the key 'detectors', or 'extends' to take them from a policy")
        return None
    node = keys["detectors"]
    items = report.items(node)
    if not items and report.added == before:
        report.add(node, f"is empty: it must have at least one of {', '.join(sorted(DETECTORS))}")
    if len(items) > MOST_DETECTORS:
        report.add(node, f"has {len(items)} detectors: at most {MOST_DETECTORS} are allowed")
        return None
    detectors = [build_part(item, DETECTORS, report) for item in items]
    sound = [detector for detector in detectors if detector is not None]
    return sound if report.added == before else None


def _nodes(value: Any, key: str) -> Node:
    """Plain data, such as a preset, as nodes."""
    if isinstance(value, dict):
        value = {name: _nodes(child, join(key, name)) for name, child in value.items()}
    elif isinstance(value, list | tuple):
        value = [_nodes(child, join(key, index)) for index, child in enumerate(value)]
    return Node(value, None, key)
