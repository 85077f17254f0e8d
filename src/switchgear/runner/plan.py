"""A plan: a file with a checklist. Boxes that are not ticked are work that is not done."""

import re
from pathlib import Path
from typing import NamedTuple

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


def read_plan(path: Path) -> Plan | None:
    """The checklist of a file; `None`: it cannot be read."""
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            text = file.read(LONGEST)
    except OSError:
        return None
    boxes = [match for line in text.splitlines() if (match := _BOX.match(line))]
    left = tuple(match["item"].strip() for match in boxes if match["tick"] == " ")
    return Plan(len(boxes) - len(left), left)
