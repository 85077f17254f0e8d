"""The result of a measure: rows of a table, limits to check, numbers to save."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bench.library import Role

# By name: the sign itself is easily taken for a letter.
TIMES = "\N{MULTIPLICATION SIGN}"


@dataclass(frozen=True, slots=True)
class Bar:
    """A promise with a number: `measured` must be at most `limit`, or at least, if so said.

    `promise` names what is counted and reads on from the number: "1.21 times the floor".
    """

    promise: str
    measured: float
    limit: float
    at_least: bool = False

    @property
    def passed(self) -> bool:
        if self.at_least:
            return self.measured >= self.limit
        return self.measured <= self.limit


@dataclass(frozen=True, slots=True)
class Row:
    """One line of a table; `gauge` is what its little bar shows, if it has one."""

    name: str
    role: Role
    cells: tuple[str, ...]
    gauge: float | None = None


@dataclass(frozen=True, slots=True)
class Section:
    """One measure: its table, how it was taken, its bars and its raw numbers."""

    key: str
    title: str
    method: str
    columns: tuple[str, ...]
    rows: list[Row]
    bars: list[Bar]
    numbers: dict[str, Any] = field(default_factory=dict)


def sorted_by_gauge(rows: list[Row]) -> list[Row]:
    """The rows, fastest first."""
    return sorted(rows, key=lambda row: row.gauge or 0.0)
