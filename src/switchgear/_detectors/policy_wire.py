"""Policies as JSON values: stored with the circuit, so that any process can evaluate it.

`switchgear status` shows the heat of circuits that other programs created.
"""

from typing import Any, TypeVar

from switchgear._core.detector import Detector
from switchgear._core.policy import (
    AnyDetector,
    Combine,
    Cooldown,
    Latched,
    Policy,
    Recovery,
    WeightedSum,
    WindowEnd,
)
from switchgear._core.types import Signal
from switchgear._core.values import Value
from switchgear._core.wire import WireError
from switchgear._detectors import ALL


class OpaqueDetector(Detector):
    """Keeps the fields and the memory of an unknown detector unchanged, so that nothing is lost.

    Its heat is always 0, and its reason explains this. Not in the registry, because a detector must
    be able to trip.
    """

    __slots__ = ("kind", "unknown_fields")
    kind: str  # type: ignore[misc]  # differs per instance, unlike in other detectors
    unknown_fields: tuple[tuple[str, Any], ...]

    def __init__(self, kind: str, unknown_fields: Any = ()) -> None:
        self._set(kind=kind, unknown_fields=tuple(dict(unknown_fields).items()))

    def __hash__(self) -> int:
        return hash(self.kind)  # the fields may hold lists

    def start(self) -> None:
        """No memory."""

    def fold(self, memory: Any, signal: Signal, now_s: float) -> Any:
        return memory

    def heat(self, memory: Any, now_s: float) -> float:
        return 0.0

    def reason(self, memory: Any, now_s: float) -> str:
        return f"the detector {self.kind!r} is not known here"

    def dump(self, memory: Any) -> Any:
        return memory

    def load(self, data: Any) -> Any:
        return data


R = TypeVar("R", bound=Value)

DETECTORS = {kind.kind: kind for kind in ALL}
RECOVERIES: dict[str, type[Recovery]] = {kind.kind: kind for kind in (Cooldown, Latched, WindowEnd)}
COMBINES: dict[str, type[Combine]] = {kind.kind: kind for kind in (AnyDetector, WeightedSum)}


def dump_policy(policy: Policy) -> dict[str, Any]:
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
