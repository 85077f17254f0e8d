"""What the suite needs to know about a circuit-breaker library, ours or another's.

One small description per library keeps the measures free of special cases: a measure uses the same
attribute of each library, and a library that does not have it is left out of that table.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from importlib.metadata import version
from typing import Any

Function = Callable[..., Any]
# Puts a NEW breaker around a function, so that no two rounds share one breaker's luck or leftovers.
Guard = Callable[[Function], Function]


class Role(StrEnum):
    """Which side of the comparison a row is on."""

    FLOOR = "floor"
    OURS = "ours"
    PEER = "peer"


@dataclass(frozen=True, kw_only=True, slots=True)
class Library:
    """How to use one library as its own documentation shows.

    `in_a_row` trips on failures in a row, or on the nearest thing the library has;
    `by_rate` has a failure-rate window of 20 calls and times calls against a slow limit;
    `by_rate_of(n)` has a failure-rate window of n calls that no outcome can trip;
    `create` and `use` make one default breaker and send one call through it.
    """

    distribution: str
    refusal: type[BaseException]
    create: Callable[[str], Any]
    use: Callable[[Any, Function], Any]
    in_a_row: Guard | None = None
    in_a_row_async: Guard | None = None
    by_rate: Guard | None = None
    by_rate_of: Callable[[int], Guard] | None = None
    uses_coroutines: bool = False
    role: Role = Role.PEER

    @property
    def version(self) -> str:
        """The installed version."""
        return version(self.distribution)
