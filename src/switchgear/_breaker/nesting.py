"""Guards inside guards: probes, exceptions that pass two guards, and `with breaker:` blocks.

A call inside a probe is part of the probe. If it were refused because a probe is running, the probe
could never succeed, and the circuit would stay open forever. It is therefore admitted, does not
count as another probe and decides nothing. This applies only while a circuit is half-open.
Successes count at each guard. An exception that passes both counts once: inside a probe the probe
records it, otherwise the inner guard.

A breaker is one object that many tasks enter at once, so the permits cannot be kept on it. A block
is identified by the frame that contains its `with`: generators may be left in any order, and in
another thread or task than they were entered. A block that is entered by hand or by an ExitStack
has no such frame, and is identified by its context (thread or task).
"""

from collections.abc import Callable, Iterator
from contextvars import ContextVar
from types import CodeType, FrameType, TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple

from switchgear._core.errors import TRACEBACK, WrongContext
from switchgear._core.types import Permit

if TYPE_CHECKING:
    from switchgear._breaker.circuit_breaker import CircuitBreaker
    from switchgear._breaker.handle import Breaker

# Probes


class _Probe(NamedTuple):
    """A probe that is running in this context, and the probe around it."""

    breaker: "Breaker"
    permit: Permit
    around: Any  # _Probe | None; a NamedTuple cannot refer to itself

    @property
    def is_under_way(self) -> bool:
        return self.permit in self.breaker._circuit.probing.permits  # noqa: SLF001


_innermost: ContextVar[_Probe | None] = ContextVar("switchgear_probe", default=None)


def enter_probe(breaker: "Breaker", permit: Permit) -> None:
    """Mark this context, and tasks that it starts, as inside the probe."""
    around = _innermost.get()
    while around is not None and not around.is_under_way:
        around = around.around  # that probe was left in another context
    _innermost.set(_Probe(breaker, permit, around))


def leave_probe(breaker: "Breaker", permit: Permit) -> None:
    """Undo `enter_probe`; does nothing in a context that is not inside a probe."""
    _innermost.set(_without(breaker, permit, _innermost.get()))


def probe_around(breaker: "Breaker") -> Permit | None:
    """The permit of the probe of this breaker that is running in this context; `None`: there is none."""
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
    """Call the function inside the probe, and await its result if it is awaitable."""
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


# Exceptions that pass two guards of one breaker count once

_GUARDS = frozenset(f"switchgear._breaker.{name}" for name in ("circuit_breaker", "shapes"))
_LAZY = (
    0x20 | 0x80 | 0x200
)  # generators, coroutines, async generators: their frames lose their caller
_MAX_FRAMES = 1000
"""Maximum number of frames to inspect: more than a recursion has."""
_MAX_BLOCKS = 256
"""Maximum number of blocks in `_exited_blocks`."""
_exited_blocks: dict[int, tuple[int, CodeType, int]] = {}
"""Blocks that exceptions left, by the id of the traceback entry: the breaker's id and the place in the code.

A block has no frame of its own that a traceback could contain. Only ids are kept, so that nothing is kept
alive; an id that is reused causes no mix-up, because the place in the code must be the same.
"""


def note_block(breaker: "Breaker", error: BaseException) -> None:
    """Remember that the exception left a block of this breaker, and was counted."""
    entry = TRACEBACK(error)
    if entry is None:
        return
    _exited_blocks[id(entry)] = (id(breaker), entry.tb_frame.f_code, entry.tb_lasti)
    while len(_exited_blocks) > _MAX_BLOCKS:
        try:
            _exited_blocks.pop(next(iter(_exited_blocks)), None)
        except (RuntimeError, StopIteration):  # another thread does the same
            return


def passed_before(breaker: "Breaker", error: BaseException) -> bool:
    """Whether the exception has passed another guard of this breaker inside the current call."""
    head: TracebackType | None = TRACEBACK(error)
    if head is None:
        return False
    inside: set[FrameType] = {head.tb_frame}
    before, before_is_inside = head, True
    entry = head.tb_next
    for _ in range(_MAX_FRAMES):
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
    return _exited_blocks.get(id(entry)) == place


def _is_guard(breaker: "Breaker", frame: FrameType) -> bool:
    if frame.f_globals.get("__name__") not in _GUARDS:
        return False
    names: Any = frame.f_locals
    return names.get("breaker") is breaker or names.get("self") is breaker


def _was_awaited(before: TracebackType, frame: FrameType) -> bool:
    """Whether the exception came from another thread, or from a frame that the frame before resumed.

    The callers of such frames are not in the traceback. An exception that the frame before raised
    itself did not come from this frame.
    """
    if frame.f_code.co_name == "run" and frame.f_globals.get("__name__") == _THREADS:
        return True
    return bool(frame.f_code.co_flags & _LAZY) and not _raises(before)


_THREADS = "concurrent.futures.thread"


def _raises(entry: TracebackType) -> bool:
    from opcode import opmap  # noqa: PLC0415  only for an exception that crossed a task

    code = entry.tb_frame.f_code.co_code
    return 0 <= entry.tb_lasti < len(code) and code[entry.tb_lasti] == opmap["RAISE_VARARGS"]


# Blocks


class Block:
    """An open `with` block."""

    __slots__ = ("breaker", "code", "frame_id", "left", "passed", "permit", "started_s")

    def __init__(
        self,
        breaker: "CircuitBreaker",
        permit: Permit,
        started_s: float,
        frame: FrameType | None,
    ) -> None:
        self.breaker = breaker
        self.permit = permit
        self.started_s = started_s
        # Not the frame itself, which would be kept alive. The id of a frame that has ended can be
        # reused; a mix-up would need the same code at the same place.
        self.frame_id = id(frame)
        self.code: CodeType | None = None if frame is None else frame.f_code
        self.left = False
        self.passed = (0, 0)
        """Where an exception left an inner block in the same frame: traceback and position."""

    def has_passed(self, error: BaseException) -> bool:
        """Whether this exception left a block of the same breaker inside this one, in its frame."""
        entry = TRACEBACK(error)
        return entry is not None and self.passed == (id(entry), entry.tb_lasti)

    @property
    def key(self) -> tuple[int, int]:
        return id(self.breaker), self.frame_id


class _Link(NamedTuple):
    """A block, and the blocks that were entered before it in this context."""

    block: Block
    before: Any  # _Link | None; a NamedTuple cannot refer to itself


_by_frame: dict[tuple[int, int], list[Block]] = {}
_open_blocks: ContextVar[_Link | None] = ContextVar("switchgear_blocks", default=None)


def enter_block(
    breaker: "CircuitBreaker", permit: Permit, started_s: float, frame: FrameType | None
) -> None:
    """Remember a block that begins in this frame."""
    block = Block(breaker, permit, started_s, frame)
    _by_frame.setdefault(block.key, []).append(block)
    _open_blocks.set(_Link(block, _drop_ended(_open_blocks.get())))
    if permit.probe:
        enter_probe(breaker, permit)


def leave_block(breaker: "CircuitBreaker", frame: FrameType | None) -> Block | None:
    """Remove and return the block of this breaker that ends in this frame; `None`: there is none."""
    same_frame = _by_frame.get((id(breaker), id(frame)))
    if same_frame and frame is not None and same_frame[-1].code is frame.f_code:
        block = same_frame[-1]
    else:
        blocks = list(_open_blocks_of(breaker))
        if not blocks:
            return None
        block = blocks[0]
        _disarm(blocks)
    _forget(block)
    return block


def note_counted(block: Block, error: BaseException) -> None:
    """Mark the exception that leaves this block as counted, so that outer guards do not count it again."""
    entry = TRACEBACK(error)
    if entry is None:
        return
    note_block(block.breaker, error)
    for around in _by_frame.get(block.key, ()):
        around.passed = (id(entry), entry.tb_lasti)


def report_missing_block(breaker: "CircuitBreaker", error: BaseException | None) -> None:
    """Raise `WrongContext` for a block that cannot be found, unless that would hide an exception."""
    if error is None:
        raise WrongContext(breaker.name)
    import logging  # noqa: PLC0415

    logging.getLogger("switchgear").error("%s", WrongContext(breaker.name))


def _open_blocks_of(breaker: "CircuitBreaker") -> Iterator[Block]:
    """The open blocks of a breaker in this context, the innermost first."""
    link = _open_blocks.get()
    while link is not None:
        if link.block.breaker is breaker and not link.block.left:
            yield link.block
        link = link.before


def _disarm(blocks: list[Block]) -> None:
    """Make the permits of all these blocks stale, because it is unknown which of them have ended."""
    if len({block.permit.generation for block in blocks}) > 1:
        for block in blocks:
            if block.permit.probe:
                block.breaker.give_back(block.permit)  # a later result with it is stale


def _forget(block: Block) -> None:
    block.left = True
    same_frame = _by_frame.get(block.key, [])
    if block in same_frame:
        same_frame.remove(block)
    if not same_frame:
        _by_frame.pop(block.key, None)
    _open_blocks.set(_drop_ended(_open_blocks.get()))
    if block.permit.probe:
        leave_probe(block.breaker, block.permit)


def _drop_ended(link: _Link | None) -> _Link | None:
    """The innermost block that has not ended, so that ended blocks are not kept forever."""
    while link is not None and link.block.left:
        link = link.before
    return link
