"""What became of a call: the breaker that can tell a failure from the rest of what happens.

Below it, `Breaker` knows only signals; above it, the shapes in which a call comes (function,
coroutine, stream, block) all report here.
"""

import math
from collections.abc import Callable, Sequence
from types import CodeType, FrameType, TracebackType
from typing import TYPE_CHECKING, Any

from switchgear._breaker.breaker import Breaker
from switchgear._breaker.evidence import ExceptionTest, check_test, failure, outcome_of
from switchgear._breaker.nesting import probe_around
from switchgear._breaker.tickets import Run
from switchgear._core.errors import Refusal, Rejected
from switchgear._core.interrupts import TRACEBACK, is_interrupt
from switchgear._core.policy import Policy
from switchgear._core.types import Mode, Permit, Phase, Record, Signal
from switchgear._sinks.dispatch import (
    Call,
    CallHook,
    Outcome,
    Sink,
    checked_hooks,
    log_exception,
    report,
)
from switchgear._stores.base import Remembers
from switchgear._system.clock import Clock

if TYPE_CHECKING:
    from switchgear._breaker.breaker import Breaker

_GUARDS = frozenset(
    f"switchgear._breaker.{name}" for name in ("circuit_breaker", "streams", "wrappers")
)
_LAZY = (
    0x20 | 0x80 | 0x200
)  # generators, coroutines, async generators: their frames lose their caller
_LONGEST = 1000
"""Frames looked at: more than a recursion leaves behind."""
_BLOCKS = 256
_left: dict[int, tuple[int, CodeType, int]] = {}
"""Blocks that exceptions left: the traceback's number there, the breaker's, and the place in the code.

A block has no frame of its own to be found in a traceback. Numbers only, so that nothing is kept alive;
a number that is used again is not mistaken, because the place in the code must be the same.
"""


def note_block(breaker: "Breaker", error: BaseException) -> None:
    """Remember that the exception left a block of this breaker, and was counted."""
    entry = TRACEBACK(error)
    if entry is None:
        return
    _left[id(entry)] = (id(breaker), entry.tb_frame.f_code, entry.tb_lasti)
    while len(_left) > _BLOCKS:
        try:
            _left.pop(next(iter(_left)), None)
        except (RuntimeError, StopIteration):  # another thread does the same
            return


def passed_before(breaker: "Breaker", error: BaseException) -> bool:
    """Whether the exception has passed another guard of this breaker inside the present call."""
    head: TracebackType | None = TRACEBACK(error)
    if head is None:
        return False
    inside: set[FrameType] = {head.tb_frame}
    before, before_is_inside = head, True
    entry = head.tb_next
    for _ in range(_LONGEST):
        if entry is None:
            return False
        frame = entry.tb_frame
        is_inside = (
            frame in inside
            or frame.f_back in inside
            or (before_is_inside and _was_awaited(before, frame))
        )
        if is_inside:
            inside.add(frame)
            if frame is not head.tb_frame and (
                _is_guard(breaker, frame) or _is_left_block(breaker, entry)
            ):
                return True
        before, before_is_inside, entry = entry, is_inside, entry.tb_next
    return False


def _is_left_block(breaker: "Breaker", entry: TracebackType) -> bool:
    place = (id(breaker), entry.tb_frame.f_code, entry.tb_lasti)
    return _left.get(id(entry)) == place


def _is_guard(breaker: "Breaker", frame: FrameType) -> bool:
    if frame.f_globals.get("__name__") not in _GUARDS:
        return False
    names: Any = frame.f_locals
    return names.get("breaker") is breaker or names.get("self") is breaker


def _was_awaited(before: TracebackType, frame: FrameType) -> bool:
    """Whether the exception came out of another thread or out of a frame that was resumed there.

    Those have other callers. What was raised anew in the frame before came from nowhere.
    """
    if frame.f_code.co_name == "run" and frame.f_globals.get("__name__") == _THREADS:
        return True
    return bool(frame.f_code.co_flags & _LAZY) and not _raises(before)


_THREADS = "concurrent.futures.thread"


def _raises(entry: TracebackType) -> bool:
    from opcode import opmap  # noqa: PLC0415  only for an exception that crossed a task

    code = entry.tb_frame.f_code.co_code
    return 0 <= entry.tb_lasti < len(code) and code[entry.tb_lasti] == opmap["RAISE_VARARGS"]


BAD_RESULT = "the result is a failure"


class OutcomeBreaker(Breaker):
    """A breaker that judges exceptions and results. `CircuitBreaker` documents the arguments."""

    __slots__ = ("_failure_if", "_failure_if_result", "_fallback", "_ignore", "_success_if")

    def __init__(
        self,
        name: str,
        policy: Policy,
        *,
        fallback: Callable[..., Any] | None,
        failure_if: ExceptionTest,
        failure_if_result: Callable[[Any], bool] | None,
        ignore: ExceptionTest,
        success_if: ExceptionTest,
        on_call: CallHook | Sequence[CallHook],
        clock: Clock,
        sinks: tuple[Sink, ...] | list[Sink],
        store: Remembers | None,
        wall: Clock | None,
    ) -> None:
        owner = type(self).__name__
        hooks = checked_hooks(f"{owner}.on_call", on_call)
        for field, hook in (("fallback", fallback), ("failure_if_result", failure_if_result)):
            if hook is not None and not callable(hook):
                raise ValueError(f"{owner}.{field} is {hook!r}: it must be callable")
        check_test(f"{owner}.failure_if", failure_if)
        check_test(f"{owner}.ignore", ignore)
        check_test(f"{owner}.success_if", success_if)
        self._fallback = fallback
        self._failure_if = failure_if
        self._failure_if_result = failure_if_result
        self._ignore = ignore
        self._success_if = success_if
        super().__init__(name, policy, clock=clock, sinks=sinks, store=store, wall=wall)
        if hooks:
            self._set_hooks(hooks)

    def add_on_call(self, hook: CallHook) -> None:
        """Let one more hook see every call and refusal from now on."""
        self._set_hooks((*self._on_call, *checked_hooks("hook", hook)))

    def _set_hooks(self, hooks: tuple[CallHook, ...]) -> None:
        self._on_call = hooks
        self._set_run(self._run)  # with hooks no call takes the fast path

    @property
    def takes_time(self) -> bool:
        """Whether any detector or hook wants to know how long calls take."""
        return self._slow_from_s is not None or bool(self._on_call)

    def stopwatch(self) -> float:
        """Seconds for measuring durations; not read when nobody wants them. Never raises."""
        if self._slow_from_s is None and not self._on_call:
            return 0.0
        try:
            return self._clock()
        except Exception:  # noqa: BLE001  leave was granted, and what is guarded can still run
            self.log_trouble()
            return math.nan

    def _nested_permit(self) -> Permit | None:
        circuit = self._circuit
        if circuit.phase is not Phase.HALF_OPEN or circuit.mode is not Mode.AUTO:
            return None
        probe = probe_around(self)
        if probe is None or (probe.lease_until_s or 0.0) <= self._now_s():
            return None
        return Permit(circuit.generation)

    def enter_or_fall_back(self) -> Permit | None:
        """A permit; or `None` when refused and there is a fallback; or raises `Rejected`."""
        if self._fallback is None:
            return self.enter()
        try:
            return self.enter()
        except Rejected:
            return None

    async def aenter_or_fall_back(self) -> Permit | None:
        """The same without blocking the event loop."""
        if self._fallback is None:
            return await self.aenter()
        try:
            return await self.aenter()
        except Rejected:
            return None

    def fall_back(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """What the fallback gives instead of the refused call."""
        if self._fallback is None:  # pragma: no cover  callers were told that there is one
            raise AssertionError("no fallback")
        return self._fallback(*args, **kwargs)

    # What is told after the fact must not replace what the call gave or raised: when a clock, a
    # detector of somebody else's or a store fails here, that is logged. Each of these sends what is
    # redacted already; its twin with an `a` does not block the event loop.

    def succeeded(self, permit: Permit, seconds: float | None) -> None:
        """Tell a success: by a ticket of the run, if it is as unremarkable as that."""
        try:
            run = self._run_of(permit, seconds)
            if run is None:
                self.send(Record(Signal(ok=True, seconds=seconds), permit))
            elif not self._takes_ticket(run):
                self._fold_run(run, more=1)
        except Exception:  # noqa: BLE001
            self.log_trouble()
        if self._on_call:
            report(Call(self.name, Outcome.SUCCESS, seconds), self._on_call)

    async def asucceeded(self, permit: Permit, seconds: float | None) -> None:
        """Tell a success."""
        try:
            run = self._run_of(permit, seconds)
            if run is None:
                await self.asend(Record(Signal(ok=True, seconds=seconds), permit))
            elif not self._takes_ticket(run):
                await self._afold_run(run, more=1)
        except Exception:  # noqa: BLE001
            self.log_trouble()
        if self._on_call:
            report(Call(self.name, Outcome.SUCCESS, seconds), self._on_call)

    def failed(self, permit: Permit, error: BaseException, seconds: float | None) -> None:
        """Tell what an exception means; gives the permit back where it means nothing."""
        signal = self._meaning(error, seconds, permit)
        self._told(signal, permit)
        if self._on_call:
            self._report(signal, seconds, error)

    async def afailed(self, permit: Permit, error: BaseException, seconds: float | None) -> None:
        """Tell what an exception means."""
        signal = self._meaning(error, seconds, permit)
        await self._atold(signal, permit)
        if self._on_call:
            self._report(signal, seconds, error)

    def returned(self, permit: Permit, result: Any, seconds: float | None) -> None:
        """Tell what a result means."""
        if self._is_bad(result):
            bad = Signal(ok=False, seconds=seconds, error=BAD_RESULT)
            self._told(bad, permit)
            self._report(bad, seconds, None)
        else:
            self.succeeded(permit, seconds)

    async def areturned(self, permit: Permit, result: Any, seconds: float | None) -> None:
        """Tell what a result means."""
        if self._is_bad(result):
            bad = Signal(ok=False, seconds=seconds, error=BAD_RESULT)
            await self._atold(bad, permit)
            self._report(bad, seconds, None)
        else:
            await self.asucceeded(permit, seconds)

    def give_back(self, permit: Permit) -> None:
        """Tell that nothing came of it that says anything."""
        self._told(Signal(), permit)
        self._report(Signal(), None, None)

    async def agive_back(self, permit: Permit) -> None:
        """Tell that nothing came of it."""
        await self._atold(Signal(), permit)
        self._report(Signal(), None, None)

    def seconds_since(self, started_s: float) -> float | None:
        """How long it took since the stopwatch showed `started_s`; `None`: nobody asks or knows."""
        if self._slow_from_s is None and not self._on_call:
            return None
        seconds = self.stopwatch() - started_s
        return None if math.isnan(seconds) else seconds

    def log_trouble(self) -> None:
        """Log what went wrong with the bookkeeping of a call; it is being handled."""
        log_exception("circuit %r could not take note of a call", self.name)

    def _report(self, signal: Signal, seconds: float | None, error: BaseException | None) -> None:
        """Let the hooks see a call that ended in what the signal says."""
        if self._on_call:
            outcome = Outcome.SUCCESS if signal.ok else Outcome.FAILURE
            outcome = Outcome.IGNORED if signal.ok is None else outcome
            report(Call(self.name, outcome, seconds, error), self._on_call)

    def _report_refusal(self, refused: tuple[str, Refusal, float]) -> None:
        rejected = Rejected(*refused)
        report(Call(self.name, Outcome.REJECTED, None, rejected), self._on_call)

    def _told(self, signal: Signal, permit: Permit) -> None:
        try:
            self.send(Record(signal, permit))
        except Exception:  # noqa: BLE001
            self.log_trouble()

    async def _atold(self, signal: Signal, permit: Permit) -> None:
        try:
            await self.asend(Record(signal, permit))
        except Exception:  # noqa: BLE001
            self.log_trouble()

    def _fold_run(self, run: Run, *, more: int) -> None:
        try:
            super()._fold_run(run, more=more)
        except Exception:  # noqa: BLE001
            self.log_trouble()

    async def _afold_run(self, run: Run, *, more: int) -> None:
        try:
            await super()._afold_run(run, more=more)
        except Exception:  # noqa: BLE001
            self.log_trouble()

    def _run_of(self, permit: Permit, seconds: float | None) -> Run | None:
        """The run that counts such a success; `None` where it must be told by itself."""
        run = self._run
        return None if run is None or run.permit is not permit or self._is_slow(seconds) else run

    def _takes_ticket(self, run: Run) -> bool:
        if self._clock() < run.due_s:
            for _ in run.tickets:
                return True
        return False

    def _meaning(self, error: BaseException, seconds: float | None, permit: Permit) -> Signal:
        """What an exception says; nothing, where an inner guard of this breaker has said it."""
        try:
            ok = self._outcome(error)
            if ok is None or self._is_part_of_a_probe(permit):
                return Signal()
            if not permit.probe and passed_before(self, error):
                return Signal()
            return Signal(ok=True, seconds=seconds) if ok else failure(error, seconds)
        except BaseException as trouble:
            if is_interrupt(trouble):
                raise
            self.log_trouble()
            return Signal(ok=False, seconds=seconds)

    def _is_part_of_a_probe(self, permit: Permit) -> bool:
        """Whether this call ran inside a probe of its own circuit, which reports for both."""
        probing = self._circuit.phase is Phase.HALF_OPEN and not permit.probe
        return probing and probe_around(self) is not None

    def _is_slow(self, seconds: float | None) -> bool:
        limit_s = self._slow_from_s
        return seconds is not None and limit_s is not None and seconds > limit_s

    def _outcome(self, error: BaseException) -> bool | None:
        try:
            return outcome_of(error, self._failure_if, self._ignore, self._success_if)
        except BaseException as trouble:  # the caller's exception is never replaced
            if is_interrupt(trouble):
                raise
            log_exception("failure_if, success_if or ignore of circuit %r failed", self.name)
            return False

    def _is_bad(self, result: Any) -> bool:
        if self._failure_if_result is None:
            return False
        try:
            return bool(self._failure_if_result(result))
        except Exception:  # noqa: BLE001  the caller gets the result that was made
            log_exception("failure_if_result of circuit %r failed", self.name)
            return False

    def _config(self) -> dict[str, Any]:
        return {
            **super()._config(),
            "fallback": self._fallback,
            "failure_if": self._failure_if,
            "failure_if_result": self._failure_if_result,
            "ignore": self._ignore,
            "success_if": self._success_if,
            "on_call": self._on_call,
        }
