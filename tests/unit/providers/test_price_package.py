"""The price list of the package genai-prices, which is imported when the first call is priced."""

import sys
from collections.abc import Iterator
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest

from switchgear._providers import prices
from timeouts import LIMIT_S


@pytest.fixture
def not_imported(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.delitem(sys.modules, "genai_prices", raising=False)
    prices._find_package.cache_clear()
    yield
    prices._find_package.cache_clear()


@pytest.mark.usefixtures("not_imported")
def test_threads_that_price_their_first_call_wait_for_the_whole_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_imported_halfway, may_end = Event(), Event()
    monkeypatch.setattr(sys, "halfway", (is_imported_halfway, may_end), raising=False)
    lines = ("import sys", "sys.halfway[0].set()", f"sys.halfway[1].wait({LIMIT_S})", "Usage = 1")
    (tmp_path / "genai_prices.py").write_text("\n".join(lines))
    monkeypatch.syspath_prepend(tmp_path)
    found: list[Any] = []
    second_asks = Event()

    def first() -> None:
        found.append(prices._package())

    def second() -> None:
        second_asks.set()
        package = prices._package()
        found.append(package if hasattr(package, "Usage") else "half a package")

    threads = [Thread(target=first), Thread(target=second)]
    threads[0].start()
    assert is_imported_halfway.wait(LIMIT_S)
    threads[1].start()
    assert second_asks.wait(LIMIT_S)
    threads[1].join(0.05)  # as long as it needs to get half of it
    may_end.set()
    for thread in threads:
        thread.join(LIMIT_S)
    assert [package.Usage for package in found] == [1, 1]
