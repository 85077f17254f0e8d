"""One exception that passes two guards of the same breaker is one failure.

Whether an exception has passed a guard is read from its traceback, so that nothing is kept and the
exception is not changed. A frame of the traceback belongs to the present call if the frame that called
it does. That separates an exception that is on its way out from one object that is raised anew at every
call (a mock's `side_effect`): its old frames are still in the traceback, and belong to earlier calls.
"""

from types import CodeType, FrameType, TracebackType
from typing import TYPE_CHECKING, Any

from switchgear.core.interrupts import TRACEBACK

if TYPE_CHECKING:
    from switchgear.breaker import Breaker

_GUARDS = frozenset(f"switchgear.guards.{name}" for name in ("call", "streams", "wrappers"))
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
