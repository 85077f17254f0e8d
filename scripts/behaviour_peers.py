"""The libraries that `compare_behaviour.py` tries, behind one face.

Each one guards a function with three failures in a row, or its nearest rule, and a short wait;
calls are told apart by what the caller saw, never by a library's insides.
"""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, NamedTuple

import aiobreaker
import circuitbreaker
import failsafe
import fluxgate
import fluxgate.permits
import fluxgate.retries
import fluxgate.trippers
import fluxgate.windows
import hyx.circuitbreaker
import hyx.circuitbreaker.exceptions
import interlock
import purgatory
import purgatory.domain.model
import pybreaker

from switchgear import CircuitBreaker, Rejected

THRESHOLD = 3
COOLDOWN_S = 0.3

Action = Callable[[], Any]


class CannotHappenError(Exception):
    """The situation cannot be brought about with this library."""


class UpstreamError(Exception):
    """What the guarded function raises."""


def run(action: Action) -> Any:
    """The one guarded function: it does what it is told."""
    return action()


async def run_async(action: Callable[[], Awaitable[Any]]) -> Any:
    """The same, awaited."""
    return await action()


class Peer(NamedTuple):
    """A library under trial; `None` where it has no such face."""

    name: str
    refusal: type[BaseException]
    guard: Callable[[Any], Any] | None
    guard_async: Callable[[Any], Any] | None


def _switchgear(function: Any) -> Any:
    return CircuitBreaker("trial", THRESHOLD, COOLDOWN_S, COOLDOWN_S)(function)


def _aiobreaker(function: Any) -> Any:
    wait = timedelta(seconds=COOLDOWN_S)
    return aiobreaker.CircuitBreaker(fail_max=THRESHOLD, timeout_duration=wait)(function)


def _circuitbreaker(function: Any) -> Any:
    made = circuitbreaker.CircuitBreaker(failure_threshold=THRESHOLD, recovery_timeout=COOLDOWN_S)
    return made(function)


def _fluxgate_parts() -> dict[str, Any]:
    # By default it lets a random tenth of the callers probe, rising to all within a minute.
    return {
        "permit": fluxgate.permits.All(),
        "window": fluxgate.windows.CountWindow(THRESHOLD),
        "tripper": fluxgate.trippers.FailureStreak(THRESHOLD),
        "retry": fluxgate.retries.Cooldown(COOLDOWN_S),
    }


def _fluxgate(function: Any) -> Any:
    return fluxgate.CircuitBreaker(**_fluxgate_parts())(function)


def _fluxgate_async(function: Any) -> Any:
    return fluxgate.AsyncCircuitBreaker(**_fluxgate_parts(), max_half_open_calls=1)(function)


def _hyx(function: Any) -> Any:
    make = hyx.circuitbreaker.consecutive_breaker
    return make(failure_threshold=THRESHOLD, recovery_time_secs=COOLDOWN_S, recovery_threshold=1)(
        function
    )


def _interlock(function: Any) -> Any:
    config = interlock.Config(
        window_size=THRESHOLD,
        minimum_number_of_calls=THRESHOLD,
        failure_rate_threshold=0.9,
        wait_duration_in_open=COOLDOWN_S,
        permitted_calls_in_half_open=1,
    )
    return interlock.CircuitBreaker(name="trial", config=config)(function)


def _purgatory(function: Any) -> Any:
    factory = purgatory.SyncCircuitBreakerFactory()
    return factory("trial", threshold=THRESHOLD, ttl=COOLDOWN_S)(function)


def _purgatory_async(function: Any) -> Any:
    factory = purgatory.AsyncCircuitBreakerFactory()
    return factory("trial", threshold=THRESHOLD, ttl=COOLDOWN_S)(function)


def _pybreaker(function: Any) -> Any:
    return pybreaker.CircuitBreaker(fail_max=THRESHOLD, reset_timeout=COOLDOWN_S)(function)


def _pyfailsafe(function: Any) -> Any:
    breaker = failsafe.CircuitBreaker(maximum_failures=THRESHOLD, reset_timeout_seconds=COOLDOWN_S)
    guarded = failsafe.Failsafe(circuit_breaker=breaker)

    async def call(action: Any) -> Any:
        return await guarded.run(lambda: function(action))

    return call


PEERS = (
    Peer("switchgear", Rejected, _switchgear, _switchgear),
    Peer("aiobreaker", aiobreaker.CircuitBreakerError, _aiobreaker, _aiobreaker),
    Peer("circuitbreaker", circuitbreaker.CircuitBreakerError, _circuitbreaker, _circuitbreaker),
    Peer("fluxgate", fluxgate.CallNotPermittedError, _fluxgate, _fluxgate_async),
    Peer("hyx", hyx.circuitbreaker.exceptions.BreakerFailing, None, _hyx),
    Peer("interlock-cb", interlock.CircuitOpenError, _interlock, _interlock),
    Peer("purgatory", purgatory.domain.model.OpenedState, _purgatory, _purgatory_async),
    Peer("pybreaker", pybreaker.CircuitBreakerError, _pybreaker, None),
    Peer("pyfailsafe", failsafe.CircuitOpen, None, _pyfailsafe),
)


# One face for all of them: calls are told apart by what the caller saw


class Gate:
    """Holds calls inside the guarded function until it is opened, from threads and tasks alike."""

    def __init__(self) -> None:
        self._for_threads = threading.Event()
        self._for_tasks = asyncio.Event()

    def open(self) -> None:
        """Let everybody go on."""
        self._for_threads.set()
        self._for_tasks.set()

    def wait(self) -> None:
        """Stay until it is open, in a thread."""
        self._for_threads.wait(timeout=3)

    async def wait_async(self) -> None:
        """Stay until it is open, in a task."""
        await self._for_tasks.wait()


class Face:
    """A fresh circuit of one library, called from threads or from tasks."""

    def __init__(self, peer: Peer, *, tasks: bool) -> None:
        guard = peer.guard_async if tasks else peer.guard
        self.peer, self.tasks, self.entered = peer, tasks, 0
        self.last: BaseException | None = None
        self._guarded = guard(run_async if tasks else run)  # type: ignore[misc]

    async def call(self, error: BaseException | None = None, gate: Gate | None = None) -> str:
        """`ok`, `failed` with the caller's own error, or `refused`; counts who got in."""
        if self.tasks:
            return await self._in_task(error, gate)
        return await asyncio.get_running_loop().run_in_executor(None, self._in_thread, error, gate)

    def _in_thread(self, error: BaseException | None, gate: Gate | None) -> str:
        def action() -> None:
            self.entered += 1
            if gate:
                gate.wait()
            if error:
                raise error

        try:
            self._guarded(action)
        except BaseException as raised:  # noqa: BLE001  all of them are told apart
            return self._told(raised)
        return "ok"

    async def _in_task(self, error: BaseException | None, gate: Gate | None) -> str:
        async def action() -> None:
            self.entered += 1
            if gate:
                await gate.wait_async()
            if error:
                raise error

        try:
            await self._guarded(action)
        except asyncio.CancelledError:
            raise
        except BaseException as raised:  # noqa: BLE001  all of them are told apart
            return self._told(raised)
        return "ok"

    def _told(self, raised: BaseException) -> str:
        self.last = raised
        if isinstance(raised, self.peer.refusal):
            return "refused"
        own = isinstance(raised, UpstreamError | KeyboardInterrupt)
        return "failed" if own else f"failed with {type(raised).__name__}"

    async def trip(self) -> None:
        """Fail until it refuses."""
        for _ in range(THRESHOLD):
            await self.call(UpstreamError())
        if await self.call() != "refused":
            raise CannotHappenError

    async def trip_and_wait(self) -> None:
        """Fail until it refuses, then until the wait is over."""
        await self.trip()
        await asyncio.sleep(COOLDOWN_S + 0.1)


async def begun(face: Face, error: BaseException | None, gate: Gate) -> "asyncio.Task[str]":
    """A call that is inside the guarded function, or was refused."""
    before = face.entered
    task = asyncio.create_task(face.call(error, gate))
    for _ in range(200):
        if face.entered > before or task.done():
            break
        await asyncio.sleep(0.005)
    return task


@contextmanager
def gates() -> Iterator[Gate]:
    """A gate that is open at the end, whatever happened, so that no thread stays behind."""
    gate = Gate()
    try:
        yield gate
    finally:
        gate.open()
