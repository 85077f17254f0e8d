"""`with breaker:` blocks: which permit a block holds is remembered apart from the breaker.

A breaker is one object that many tasks enter at once, so the permits cannot be kept on it. A block
is known by the frame that holds its `with`: generators may be left in any order, and by another
thread or task than entered them. What enters by hand or by an ExitStack has no such frame, and
is known by its context (thread or task) only.
"""

from collections.abc import Iterator
from contextvars import ContextVar
from types import CodeType, FrameType
from typing import TYPE_CHECKING, Any, NamedTuple

from switchgear._breaker.nesting import enter_probe, leave_probe
from switchgear._breaker.outcome import note_block
from switchgear._core.errors import WrongContext
from switchgear._core.interrupts import TRACEBACK
from switchgear._core.types import Permit

if TYPE_CHECKING:
    from switchgear._breaker.circuit_breaker import CircuitBreaker


class Block:
    """A block under way."""

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
        # Not the frame itself, which would be kept alive. A frame that has ended gives its number
        # to another; to be taken for it, that one would have to run the same code.
        self.frame_id = id(frame)
        self.code: CodeType | None = None if frame is None else frame.f_code
        self.left = False
        self.passed = (0, 0)
        """Where an exception left a block inside this one, in the same frame: traceback and place."""

    def has_passed(self, error: BaseException) -> bool:
        """Whether this exception left a block of the same breaker inside this one, in its frame."""
        entry = TRACEBACK(error)
        return entry is not None and self.passed == (id(entry), entry.tb_lasti)

    @property
    def key(self) -> tuple[int, int]:
        """Where it is found again."""
        return id(self.breaker), self.frame_id


class _Link(NamedTuple):
    """A block and those that were entered before it in this context."""

    block: Block
    before: Any  # _Link | None; a NamedTuple cannot speak of itself


_by_frame: dict[tuple[int, int], list[Block]] = {}
_here: ContextVar[_Link | None] = ContextVar("switchgear_blocks", default=None)


def enter_block(
    breaker: "CircuitBreaker", permit: Permit, started_s: float, frame: FrameType | None
) -> None:
    """Remember a block that begins in this frame."""
    block = Block(breaker, permit, started_s, frame)
    _by_frame.setdefault(block.key, []).append(block)
    _here.set(_Link(block, _unleft(_here.get())))
    if permit.probe:
        enter_probe(breaker, permit)


def leave_block(breaker: "CircuitBreaker", frame: FrameType | None) -> Block | None:
    """Forget the block of this breaker that ends in this frame; `None`: there is none."""
    same_frame = _by_frame.get((id(breaker), id(frame)))
    if same_frame and frame is not None and same_frame[-1].code is frame.f_code:
        block = same_frame[-1]
    else:
        here = list(_open_here(breaker))
        if not here:
            return None
        block = here[0]
        _disarm(here)
    _forget(block)
    return block


def note_counted(block: Block, error: BaseException) -> None:
    """The exception that leaves this block was counted: the guards around it are not to do it again."""
    entry = TRACEBACK(error)
    if entry is None:
        return
    note_block(block.breaker, error)
    for around in _by_frame.get(block.key, ()):
        around.passed = (id(entry), entry.tb_lasti)


def left_elsewhere(breaker: "CircuitBreaker", error: BaseException | None) -> None:
    """Say that a block cannot be found: raises `WrongContext`, unless that hid an exception."""
    if error is None:
        raise WrongContext(breaker.name)
    import logging  # noqa: PLC0415

    logging.getLogger("switchgear").error("%s", WrongContext(breaker.name))


def _open_here(breaker: "CircuitBreaker") -> Iterator[Block]:
    """The open blocks of a breaker in this context, the innermost first."""
    link = _here.get()
    while link is not None:
        if link.block.breaker is breaker and not link.block.left:
            yield link.block
        link = link.before


def _disarm(blocks: list[Block]) -> None:
    """Let none of these blocks decide, if it cannot be told which of them are out of date."""
    if len({block.permit.generation for block in blocks}) > 1:
        for block in blocks:
            if block.permit.probe:
                block.breaker.give_back(block.permit)  # what it is told under it now is late


def _forget(block: Block) -> None:
    block.left = True
    same_frame = _by_frame.get(block.key, [])
    if block in same_frame:
        same_frame.remove(block)
    if not same_frame:
        _by_frame.pop(block.key, None)
    _here.set(_unleft(_here.get()))
    if block.permit.probe:
        leave_probe(block.breaker, block.permit)


def _unleft(link: _Link | None) -> _Link | None:
    """Without those at its end that were left, here or elsewhere: they are not kept for ever."""
    while link is not None and link.block.left:
        link = link.before
    return link
