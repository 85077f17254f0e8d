"""A plan: a file with a checklist. Boxes that are not ticked are work that is not done."""

import re
from pathlib import Path
from typing import NamedTuple

from switchgear._system.files import read_regular

_BOX = re.compile(r"^\s{0,12}(?:[-*+]|\d{1,4}[.)])\s{1,4}\[(?P<tick>[ xX])\]\s{0,4}(?P<item>.*)$")
LONGEST = 1_000_000


class Plan(NamedTuple):
    """What is ticked and what is open."""

    done: int
    open: tuple[str, ...]

    @property
    def is_done(self) -> bool:
        """Whether every box is ticked; a plan without a box never is."""
        return bool(self.done) and not self.open


def check_plan(folder: Path, plan: str | None) -> None:
    """Raises ValueError if there is something in the plan's place that can never be one.

    No file at all is fine: the agent may write it.
    """
    if plan is None:
        return
    try:
        read_regular(folder / plan, 0)
    except FileNotFoundError:
        return
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise ValueError(
            f"--plan {plan!r}: {why}; it must be a text file with a checklist"
        ) from None


def read_plan(path: Path) -> Plan | None:
    """The checklist of a file; `None`: it cannot be read."""
    try:
        text = read_regular(path, LONGEST).decode(errors="replace")
    except (OSError, ValueError):  # a name that no file can have, too
        return None
    boxes = [match for line in text.splitlines() if (match := _BOX.match(line))]
    left = tuple(match["item"].strip() for match in boxes if match["tick"] == " ")
    return Plan(len(boxes) - len(left), left)
