"""The attempts that are under way, and how all of them are asked to end at once."""

from typing import NamedTuple

from switchgear.core.types import Permit
from switchgear.runner.interrupt import Interrupt
from switchgear.runner.set_aside import SetAside


class Crew:
    """The attempts that run, as one thing that a signal can end. Used in a signal handler, too."""

    def __init__(self, interrupt: Interrupt) -> None:
        self._interrupt = interrupt
        self._members: dict[str, Interrupt] = {}

    def take(self, name: str) -> Interrupt:
        """One more; what was asked of all is asked of it."""
        member = self._members[name] = Interrupt()
        if self._interrupt.asked and not member.asked:  # else the signal came just now
            member.ask(self._interrupt.by)
        return member

    def leave(self, name: str) -> None:
        """It has ended."""
        del self._members[name]

    def stop(self) -> None:
        """Ask each of them to end: gently the first time, at once the second."""
        for member in list(self._members.values()):
            member.ask(self._interrupt.by)

    kill = stop

    def stop_once(self) -> None:
        """Ask those to end gently that nobody has asked yet."""
        for member in list(self._members.values()):
            if not member.asked:
                member.ask("the batch")


class Running(NamedTuple):
    """An attempt that is under way."""

    permit: Permit
    reserved_micros: int
    """Of the batch's budget."""
    aside: SetAside | None = None
    """What is held for it in a tree of budgets."""
