"""Policies as JSON values: kept beside the circuit they judge, so that any process can judge it.

`switchgear status` knows nothing of the program that made a circuit, and yet shows its heat.
"""

from typing import Any, TypeVar

from switchgear.core.detectors import ALL, Detector
from switchgear.core.detectors.opaque import OpaqueDetector
from switchgear.core.policy import AnyDetector, Combine, Policy, WeightedSum
from switchgear.core.record import Record
from switchgear.core.recovery import Cooldown, Latched, Recovery, WindowEnd
from switchgear.core.wire import WireError

R = TypeVar("R", bound=Record)

DETECTORS = {kind.kind: kind for kind in ALL}
RECOVERIES: dict[str, type[Recovery]] = {kind.kind: kind for kind in (Cooldown, Latched, WindowEnd)}
COMBINES: dict[str, type[Combine]] = {kind.kind: kind for kind in (AnyDetector, WeightedSum)}


def dump_policy(policy: Policy) -> dict[str, Any]:
    """A policy as JSON values: each part by its kind and fields."""
    return {
        "detectors": [_dump(detector) for detector in policy.detectors],
        "recovery": _dump(policy.recovery),
        "combine": _dump(policy.combine),
        "tripping_at": policy.tripping_at,
        "strict": policy.strict,
    }


def load_policy(data: Any) -> Policy:
    """The inverse of `dump_policy`; unknown detectors become opaque ones. Raises `WireError`."""
    try:
        return Policy(
            detectors=[_detector(dict(part)) for part in data["detectors"]],
            recovery=_part(RECOVERIES, dict(data["recovery"])),
            combine=_part(COMBINES, dict(data["combine"])),
            tripping_at=data["tripping_at"],
            strict=data["strict"],
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise WireError(f"not a policy: {error!r}") from error


def _dump(part: Detector | Recovery | Combine) -> dict[str, Any]:
    if isinstance(part, OpaqueDetector):
        return {"kind": part.kind, **dict(part.unknown_fields)}
    return {"kind": part.kind, **part.fields()}


def _detector(fields: dict[str, Any]) -> Detector:
    kind = fields.pop("kind")
    if kind not in DETECTORS:
        return OpaqueDetector(kind, fields)
    return DETECTORS[kind](**fields)


def _part(kinds: dict[str, type[R]], fields: dict[str, Any]) -> R:
    return kinds[fields.pop("kind")](**fields)
