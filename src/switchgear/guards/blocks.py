"""`with breaker:` blocks: which permit a block holds is remembered per thread and task.

A breaker is one object that many tasks enter at once, so the permits cannot be kept on it.
"""

from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, NamedTuple

from switchgear.core.types import Permit
from switchgear.errors import WrongContext

if TYPE_CHECKING:
    from switchgear.breaker import Breaker


class Block(NamedTuple):
    """A block under way, and the one around it."""

    breaker: "Breaker"
    permit: Permit
    started_s: float
    outer: Any  # Block | None; a NamedTuple cannot speak of itself


_innermost: ContextVar[Block | None] = ContextVar("switchgear_block", default=None)


def enter_block(breaker: "Breaker", permit: Permit, started_s: float) -> None:
    """Remember a block that begins."""
    _innermost.set(Block(breaker, permit, started_s, _innermost.get()))


def leave_block(breaker: "Breaker") -> Block:
    """Forget the innermost block of this breaker. Raises `WrongContext` if there is none here."""
    block, rest = _without(breaker, _innermost.get())
    _innermost.set(rest)
    return block


def _without(breaker: "Breaker", block: Block | None) -> tuple[Block, Block | None]:
    if block is None:
        raise WrongContext(breaker.name)
    if block.breaker is breaker:
        return block, block.outer
    found, rest = _without(breaker, block.outer)
    return found, block._replace(outer=rest)
