"""The errors: one base class, fields as `args`, text in `__str__`, all of them picklable.

`Rejected` is raised on the hot path of an open circuit. It has no `__init__`: the fields are the
exception's `args`, which C code sets, and the text is built when it is read.
"""

import math
from typing import Any, ClassVar, NamedTuple, Self

from switchgear._core.types import Phase
from switchgear._text.formats import duration


def is_interrupt(error: BaseException) -> bool:
    """Whether this is a Ctrl-C that arrived in Switchgear code, and must be raised.

    A KeyboardInterrupt whose innermost frame belongs to another module was raised there.
    """
    if not issubclass(type(error), KeyboardInterrupt):
        return False
    frame = None
    entry = TRACEBACK(error)
    while entry is not None:
        frame, entry = entry.tb_frame, entry.tb_next
    home = "" if frame is None else frame.f_globals.get("__name__")
    return isinstance(home, str) and home.partition(".")[0] == __name__.partition(".")[0]


# The slots of `BaseException` itself: a class may hide them behind properties that raise.
TRACEBACK = BaseException.__dict__["__traceback__"].__get__
CAUSE = BaseException.__dict__["__cause__"].__get__
CONTEXT = BaseException.__dict__["__context__"].__get__
SUPPRESSES_CONTEXT = BaseException.__dict__["__suppress_context__"].__get__
MEMBERS = BaseExceptionGroup.__dict__["exceptions"].__get__
NAME = type.__dict__["__name__"].__get__
"""The name of a class, regardless of its metaclass."""


class SwitchgearError(Exception):
    """The root of Switchgear's errors."""


class Refusal(NamedTuple):
    """Why a circuit refuses, and until when on its breaker's clock (infinity: until an operator acts)."""

    phase: Phase
    reason: str
    until_s: float
    last_error: str | None
    held: bool = False
    """Whether it refuses because of an override, not because of the evidence."""


class Rejected(SwitchgearError):
    """A circuit did not admit the call; nothing was run.

    `circuit` is its name, `reason` the reason, `retry_after_s` the time until it may admit a call
    (seconds from the refusal; `None`: not before an operator acts), `last_error` the last recorded
    failure, `phase` its phase.

    >>> from switchgear import Phase
    >>> print(Rejected("api", Refusal(Phase.OPEN, "5 failures in a row (threshold 5)", 52.0, "529"), 10.0))
    circuit 'api' is open: 5 failures in a row (threshold 5), last "529"; retries in 42 s
    """

    args: tuple[str, Refusal, float]

    @property
    def circuit(self) -> str:
        """The circuit's name."""
        return self.args[0]

    @property
    def phase(self) -> Phase:
        """The circuit's phase at the refusal."""
        return self.args[1].phase

    @property
    def reason(self) -> str:
        """Why the circuit refuses, with the threshold."""
        return self.args[1].reason

    @property
    def retry_after_s(self) -> float | None:
        """Seconds until it may admit a call; `None`: not before an operator acts."""
        until_s = self.args[1].until_s
        return None if until_s == math.inf else max(0.0, until_s - self.args[2])

    @property
    def last_error(self) -> str | None:
        """The last recorded failure, redacted."""
        return self.args[1].last_error

    def __str__(self) -> str:
        args: tuple[Any, ...] = self.args  # other code may have created it
        if len(args) != 3 or not isinstance(args[1], Refusal):
            return super().__str__()
        if self.args[1].held:
            left_s = self.retry_after_s
            ends = "it stays open until it is released"
            if left_s is not None:
                ends = f"the hold ends in {duration(left_s)}"
            return f"circuit {self.circuit!r} is {self.reason}; {ends}"
        last = f', last "{self.last_error}"' if self.last_error else ""
        wait = self.retry_after_s
        then = "it stays open until it is reset" if wait is None else f"retries in {duration(wait)}"
        phase = self.phase.replace("_", "-")
        return f"circuit {self.circuit!r} is {phase}: {self.reason}{last}; {then}"


class WrongContext(SwitchgearError, RuntimeError):
    """A `with breaker:` block was left in another context (thread or task) than it was entered."""

    def __str__(self) -> str:
        name: Any = self.args[0] if self.args else "?"
        return (
            f"the block 'with' circuit {name!r} was left in another thread or task than the one "
            "that entered it; guard the call with breaker.call or @breaker instead"
        )


class OverrideRefused(SwitchgearError):
    """An operation needs the operator token, which was missing or wrong.

    `args` are the circuit and, for an operation other than an override, its description.
    """

    def __str__(self) -> str:
        name: Any = self.args[0] if self.args else "?"
        what: Any = self.args[1] if len(self.args) > 1 else ""
        way_out = "pass --token-file or set SWITCHGEAR_TOKEN"
        if what:
            return f"{what} needs the operator token; {way_out}"
        return f"circuit {name!r} accepts overrides only with the operator token; {way_out}"


class BudgetRefused(SwitchgearError):
    """A budget refused a request; nothing was reserved.

    `node` is the node that refused, `why` the reason, `free_micros` the amount that is still free, in
    millionths of a dollar (`None`: the amount is not the reason).
    """

    args: tuple[str, str, int | None]

    @property
    def node(self) -> str:
        """The node that refused."""
        return self.args[0]

    @property
    def why(self) -> str:
        """Why it refused."""
        return self.args[1]

    @property
    def free_micros(self) -> int | None:
        """The amount that is still free, in millionths of a dollar; `None`: the amount is not the reason."""
        return self.args[2]

    def __str__(self) -> str:
        return f"budget {self.node!r} refuses: {self.why}"


class NoRoute(SwitchgearError):
    """No agent of a fleet is available for the work now; nothing was run.

    `agent` is the requested agent, `decision` what to do with the work (`requeue`, `pause` or
    `halt`), `why` the reasons, `retry_after_s` the seconds until it may be tried again (`None`: not
    before an operator acts).
    """

    args: tuple[str, str, str, float | None]

    @property
    def agent(self) -> str:
        """The requested agent."""
        return self.args[0]

    @property
    def decision(self) -> str:
        """What to do with the work."""
        return self.args[1]

    @property
    def why(self) -> str:
        """The circuits that refused, and why."""
        return self.args[2]

    @property
    def retry_after_s(self) -> float | None:
        """Seconds until it may be tried again; `None`: not before an operator acts."""
        return self.args[3]

    def __str__(self) -> str:
        wait_s = self.retry_after_s
        then = "" if wait_s is None else f"; try again in {duration(wait_s)}"
        return f"no agent available for {self.agent!r} ({self.decision}): {self.why}{then}"


class LockTimeout(SwitchgearError):
    """A lock was not acquired within the given time.

    `args` are the resource, its holder, and the wait in seconds.
    """

    def __str__(self) -> str:
        resource, holder, waited_s = self.args
        held = f"{holder} holds it" if holder else "other waiters were first in the queue"
        return f"lock {resource!r} was not acquired within {duration(waited_s)}: {held}"


class LockLost(SwitchgearError):
    """The lease ended before the lock was released, and another holder may have had it since.

    `args` are the resource and the fencing token that is no longer valid.
    """

    def __str__(self) -> str:
        resource, token = self.args
        return (
            f"lock {resource!r} was lost: the lease of token {token} ran out; "
            "use a longer lease, or renew it"
        )


class StoreError(SwitchgearError):
    """An operation of a store failed. `store` is its URL, `why` the cause, `what_to_do` the remedy."""

    args: tuple[str, str, str]
    problem: ClassVar[str] = "failed"
    """The kind of problem, in a word or two."""
    in_doubt: str | None = None
    """The id of a message that may have been applied although its reply was lost."""
    before_in_doubt: str | None = None
    """The id of the message that was sent before, if it may have been applied; "": it was applied."""

    def __init__(self, store: str, why: str, what_to_do: str) -> None:
        super().__init__(store, why, what_to_do)

    @property
    def store(self) -> str:
        """The URL of the store, without a password."""
        return self.args[0]

    @property
    def why(self) -> str:
        """What went wrong."""
        return self.args[1]

    @property
    def what_to_do(self) -> str:
        """What to do about it."""
        return self.args[2]

    def again(self) -> Self:
        """A copy to raise: each exception object is raised only once."""
        return type(self)(*self.args)

    def __str__(self) -> str:
        return f"store {self.store} {self.problem}: {self.why}; {self.what_to_do}"


class StoreUnavailable(StoreError):
    """The store cannot be reached, or did not respond in time. Trying again may help."""

    problem = "cannot be reached"


class StoreFull(StoreError):
    """The store has no space left to write."""

    problem = "is full"


class StoreReadOnly(StoreError):
    """The store can be read but not written."""

    problem = "is read-only"


class StoreCorrupt(StoreError):
    """The data is not a Switchgear store, or is damaged."""

    problem = "is corrupt"


class StoreTooNew(StoreError):
    """The store was written by a newer version of Switchgear."""

    problem = "is too new"


for _error in [each for each in vars().values() if isinstance(each, type)]:
    if issubclass(_error, SwitchgearError):
        _error.__module__ = "switchgear.errors"  # tracebacks show the public module
