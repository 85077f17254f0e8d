"""A detector that this process does not know: somebody else's, found in a shared store."""

from typing import Any

from switchgear.core.detectors.base import Detector
from switchgear.core.types import Signal


class OpaqueDetector(Detector):
    """Keeps an unknown detector's fields and memory as they are, so that nothing of them is lost.

    It cannot judge: its heat is 0 here, and its reason says so. Not in the registry, because the
    laws of detectors are not for what cannot fire.
    """

    __slots__ = ("kind", "unknown_fields")
    kind: str  # type: ignore[misc]  # a fact about each of them, not about the class
    unknown_fields: tuple[tuple[str, Any], ...]

    def __init__(self, kind: str, unknown_fields: Any = ()) -> None:
        self._set(kind=kind, unknown_fields=tuple(dict(unknown_fields).items()))

    def __hash__(self) -> int:
        return hash(self.kind)  # the fields may hold lists

    def start(self) -> None:
        """Nothing is known."""

    def fold(self, memory: Any, signal: Signal, now_s: float) -> Any:
        """The memory as it was."""
        del signal, now_s
        return memory

    def heat(self, memory: Any, now_s: float) -> float:
        """Calm, as far as can be told here."""
        del memory, now_s
        return 0.0

    def reason(self, memory: Any, now_s: float) -> str:
        """That it is not known here."""
        del memory, now_s
        return f"the detector {self.kind!r} is not known here"

    def dump(self, memory: Any) -> Any:
        """The memory as it was stored."""
        return memory

    def load(self, data: Any) -> Any:
        """The memory as it was stored."""
        return data
