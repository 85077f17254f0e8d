"""A policy in the form of the configuration file, so that it can be kept and read again."""

from typing import Any

from switchgear._core.policy import AnyDetector, Policy
from switchgear._core.values import Value


def as_config(policy: Policy) -> dict[str, Any]:
    """What stands under the name of a policy; what is as it would be anyway is left out.

    >>> from switchgear._detectors import SameError
    >>> from switchgear._core.recovery import Latched
    >>> as_config(Policy([SameError(3)], Latched()))["recovery"]
    'latched'
    """
    found: dict[str, Any] = {
        "detectors": [_part(detector) for detector in policy.detectors],
        "recovery": _part(policy.recovery),
    }
    if not isinstance(policy.combine, AnyDetector):
        found["combine"] = _part(policy.combine)
    if policy.tripping_at is not None:
        found["tripping_at"] = policy.tripping_at
    if policy.strict:
        found["strict"] = True
    return found


def _part(part: Any) -> Any:
    """A part by its kind: the bare name, or with its fields."""
    fields = {name: _value(value) for name, value in _fields(part).items() if value is not None}
    return {part.kind: fields} if fields else part.kind


def _fields(part: Value) -> dict[str, Any]:
    return part.fields()


def _value(value: Any) -> Any:
    """Pairs are a mapping in the file."""
    return dict(value) if isinstance(value, tuple) else value
