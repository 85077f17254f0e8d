"""What runs inside a probe: guarded code that calls code guarded by the same breaker.

The inner call is part of the probe. Were it refused because a probe is under way, the probe could
never succeed, and the circuit would stay open for ever. So it passes, takes no place and decides
nothing; the probe around it does. Nothing of this happens while a circuit is closed.

Successes count at each guard. An exception that passes both counts once: inside a probe the probe
reports it, elsewhere the inner guard does (`same_exception.py`).
"""

from collections.abc import Callable
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, NamedTuple

from switchgear._core.types import Permit

if TYPE_CHECKING:
    from switchgear._breaker.breaker import Breaker


class _Probe(NamedTuple):
    """A probe that this context is inside of, and the one around it."""

    breaker: "Breaker"
    permit: Permit
    around: Any  # _Probe | None; a NamedTuple cannot speak of itself

    @property
    def is_under_way(self) -> bool:
        return self.permit in self.breaker._circuit.probing.permits  # noqa: SLF001


_innermost: ContextVar[_Probe | None] = ContextVar("switchgear_probe", default=None)


def enter_probe(breaker: "Breaker", permit: Permit) -> None:
    """From here on this context, and what it starts, is inside the probe."""
    around = _innermost.get()
    while around is not None and not around.is_under_way:
        around = around.around  # it was left in another context
    _innermost.set(_Probe(breaker, permit, around))


def leave_probe(breaker: "Breaker", permit: Permit) -> None:
    """No longer; does nothing in a context that is not inside."""
    _innermost.set(_without(breaker, permit, _innermost.get()))


def probe_around(breaker: "Breaker") -> Permit | None:
    """The permit of the probe of this breaker that this context is inside of, if it is."""
    probe = _innermost.get()
    while probe is not None:
        if probe.breaker is breaker and probe.is_under_way:
            return probe.permit
        probe = probe.around
    return None


def call_in_probe(
    breaker: "Breaker",
    permit: Permit,
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Any:
    """Call the function inside the probe."""
    enter_probe(breaker, permit)
    try:
        return function(*args, **kwargs)
    finally:
        leave_probe(breaker, permit)


async def await_in_probe(
    breaker: "Breaker",
    permit: Permit,
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Any:
    """Call the function inside the probe, and await what it gives if that can be awaited."""
    enter_probe(breaker, permit)
    try:
        result = function(*args, **kwargs)
        return await result if hasattr(result, "__await__") else result
    finally:
        leave_probe(breaker, permit)


def _without(breaker: "Breaker", permit: Permit, probe: _Probe | None) -> _Probe | None:
    if probe is None:
        return None
    if probe.breaker is breaker and probe.permit == permit:
        return probe.around  # type: ignore[no-any-return]
    return probe._replace(around=_without(breaker, permit, probe.around))
