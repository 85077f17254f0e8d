"""What every ledger promises, in every store."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest

from contract.backends import BACKENDS, Backend
from stress.crew import together
from switchgear._budgets.budgets import Budgets
from switchgear._core.errors import BudgetRefused
from switchgear._stores.base import Amended, Ledger, ledger_of


def add(amount: int) -> Any:
    def work(value: Any, now_s: float) -> Amended:
        total = (value or 0) + amount
        return Amended(total, total, ([total, amount],))

    return work


class LedgerContract:
    """Subclassed once for each kind of store."""

    place: ClassVar[str]

    @pytest.fixture
    def backend(self, tmp_path: Path) -> Iterator[Backend]:
        with BACKENDS[self.place](tmp_path) as backend:
            yield backend

    @pytest.fixture
    def ledger(self, backend: Backend) -> Ledger:
        return ledger_of(backend.open())

    def test_a_value_is_amended_with_its_lines(self, ledger: Ledger) -> None:
        assert ledger.value("shelf", "key") is None
        assert ledger.amend("shelf", "key", add(3)) == 3
        assert ledger.amend("shelf", "key", add(4)) == 7
        assert ledger.value("shelf", "key") == 7
        assert list(ledger.lines("shelf", "key")) == [[3, 3], [7, 4]]

    def test_shelves_and_keys_do_not_affect_each_other(self, ledger: Ledger) -> None:
        for key in ("b", "a", "ü*?[x] 🙂", "a:b", 'with "quotes"'):
            ledger.amend("one", key, add(1))
        ledger.amend("other", "a", add(5))
        assert ledger.keys("one") == sorted(["b", "a", "ü*?[x] 🙂", "a:b", 'with "quotes"'])
        assert ledger.keys("none") == []
        assert ledger.value("one", "a") == 1
        assert list(ledger.lines("one", "a")) == [[1, 1]]

    def test_an_empty_transaction_changes_nothing(self, ledger: Ledger) -> None:
        ledger.amend("shelf", "key", add(3))
        answer = ledger.amend("shelf", "key", lambda value, _: Amended(value, None, (["no"],)))
        assert answer == 3
        assert list(ledger.lines("shelf", "key")) == [[3, 3]]
        ledger.amend("shelf", "new", lambda _, __: Amended("none"))
        assert ledger.keys("shelf") == ["key"]

    def test_a_transaction_that_raises_changes_nothing(self, ledger: Ledger) -> None:
        ledger.amend("shelf", "key", add(3))

        def fail(_: Any, __: float) -> Amended:
            raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            ledger.amend("shelf", "key", fail)
        assert ledger.amend("shelf", "key", add(1)) == 4

    def test_an_amendment_uses_the_time_of_the_store(self, backend: Backend) -> None:
        ledger = ledger_of(backend.open(clock=lambda: 1234.5))
        told = ledger.amend("shelf", "key", lambda _, now_s: Amended(now_s))
        assert told == ledger.now_s() == 1234.5

    def test_lines_beyond_a_page_are_read(self, ledger: Ledger) -> None:
        lines = tuple(range(2500))
        ledger.amend("shelf", "key", lambda _, __: Amended(None, 1, lines))
        assert tuple(ledger.lines("shelf", "key")) == lines

    def test_no_other_writer_interrupts_an_amendment(self, backend: Backend) -> None:
        ledgers = [ledger_of(backend.open()) for _ in range(4)]

        def often(ledger: Ledger) -> None:
            for _ in range(25):
                ledger.amend("shelf", "key", add(1))

        together(*[lambda ledger=ledger: often(ledger) for ledger in ledgers])
        assert ledgers[0].value("shelf", "key") == 100
        assert [line[0] for line in ledgers[0].lines("shelf", "key")] == list(range(1, 101))

    def test_another_handle_sees_the_same(self, backend: Backend) -> None:
        ledger_of(backend.open()).amend("shelf", "key", add(3))
        assert ledger_of(backend.open()).value("shelf", "key") == 3

    def test_the_ledger_stores_budgets(self, backend: Backend) -> None:
        one, other = (Budgets(ledger_of(backend.open())) for _ in range(2))
        one.open("team", 100)
        reservation = one.reserve("team", 60)
        with pytest.raises(BudgetRefused, match="free"):
            other.reserve("team", 50)
        reservation.settle(30)
        other.reserve("team", 70).settle(70)
        assert one.free_micros("team") == 0
        found = one.audit("team")
        assert (found.charged_micros, found.problems) == (100, ())


class TestMemory(LedgerContract):
    place = "memory"


class TestSqlite(LedgerContract):
    place = "sqlite"


class TestRedis(LedgerContract):
    place = "redis"


class TestRedisCluster(LedgerContract):
    place = "redis_cluster"
