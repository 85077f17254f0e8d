"""Properties of a breaker return the last known value and never touch the store."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from switchgear import Panel, Phase, Policy, Signal, detectors
from switchgear.errors import StoreUnavailable
from switchgear.stores import MemoryStore

TWO = Policy([detectors.ConsecutiveFailures(2)])
READS: list[Callable[[Any], object]] = [
    lambda breaker: breaker.state,
    lambda breaker: breaker.mode,
    lambda breaker: breaker.heat,
    lambda breaker: breaker.totals,
    lambda breaker: breaker.readings(),
    lambda breaker: breaker.last_known,
    lambda breaker: breaker.isolation,
]


class Counting(MemoryStore):
    """A shared store that counts its messages, and can refuse everything."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0
        self.is_down = False

    def apply(self, *args: Any) -> Any:
        self.calls += 1
        if self.is_down:
            raise StoreUnavailable(self.label, "it is down", "wait")
        return super().apply(*args)

    def get(self, key: str) -> Any:
        self.calls += 1
        return super().get(key)


@pytest.mark.parametrize("kind", ["breaker", "loop"])
def test_reading_a_property_sends_nothing_to_the_store(kind: str) -> None:
    store = Counting()
    with Panel(store) as panel:
        breaker: Any = getattr(panel, kind)("api", TWO)
        breaker.record(Signal(ok=False, error="no"))
        before = store.calls
        for read in READS:
            read(breaker)
        assert store.calls == before


def test_properties_still_answer_while_the_store_is_down() -> None:
    store = Counting()
    with Panel(store) as panel:
        breaker = panel.breaker("api", TWO)
        breaker.record(Signal(ok=False, error="no"))
        store.is_down = True
        assert breaker.state is Phase.CLOSED
        assert breaker.heat == 0.5
        store.is_down = False


def test_totals_include_calls_that_are_not_reported_yet(tmp_path: Path) -> None:
    with Panel(f"sqlite:///{tmp_path / 'state.db'}") as panel:
        breaker = panel.breaker("api", TWO)
        for _ in range(3):
            breaker.call(int)
        assert breaker.totals.succeeded == 3
        breaker.refresh()
        assert breaker.totals.succeeded == 3


def test_refresh_reads_what_another_process_did(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'state.db'}"
    with Panel(url) as one, Panel(url) as two:
        mine, theirs = one.breaker("api", TWO), two.breaker("api", TWO)
        theirs.record(Signal(ok=False, error="a"))
        theirs.record(Signal(ok=False, error="b"))
        mine.refresh()
        assert mine.state == "open"
        theirs.reset(by="ada", why="drill")
        asyncio.run(mine.arefresh())
        assert mine.state == "closed"
