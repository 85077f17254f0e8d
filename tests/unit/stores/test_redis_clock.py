"""The server's clock as a client computes it."""

import time

import pytest

from switchgear._stores.redis import RedisStore
from switchgear._stores.redis.clients import ServerClock
from switchgear.testing import FakeClock


@pytest.fixture
def own() -> FakeClock:
    return FakeClock(100.0)


@pytest.fixture
def clock(own: FakeClock) -> ServerClock:
    return ServerClock(own, lambda: 777.0)


def test_until_the_server_has_answered_the_clock_is_the_wall_clock(clock: ServerClock) -> None:
    assert not clock.is_set
    assert clock() == 777.0


def test_the_clock_continues_the_server_time_by_the_monotonic_clock(
    own: FakeClock, clock: ServerClock
) -> None:
    clock.learn(5000.0, 99.0, 101.0)
    assert clock() == 5000.0
    own.advance(7.5)
    assert clock() == 5007.5


def test_a_faster_reply_improves_the_clock_and_a_slower_one_changes_nothing(
    own: FakeClock, clock: ServerClock
) -> None:
    clock.learn(5000.0, 99.0, 101.0)
    clock.learn(5000.5, 99.9, 100.1)
    assert clock() == pytest.approx(5000.5)
    clock.learn(5001.0, 99.0, 101.0)
    assert clock() == pytest.approx(5000.5)
    own.advance(1000.0)
    clock.learn(6003.0, 1099.0, 1101.0)
    assert clock() == pytest.approx(6003.0), "an old measurement gives way: clocks drift"


def test_the_clock_never_runs_backwards_even_if_the_server_clock_is_set_back(
    own: FakeClock, clock: ServerClock
) -> None:
    clock.learn(5000.0, 99.9, 100.1)
    assert clock() == 5000.0
    clock.learn(4000.0, 99.9, 100.1)
    assert clock() == 5000.0
    own.advance(2000.0)
    assert clock() == 6000.0


def test_a_server_that_is_set_forward_is_followed(own: FakeClock, clock: ServerClock) -> None:
    clock.learn(5000.0, 99.99, 100.01)
    clock.learn(9000.0, 99.0, 101.0)
    assert clock() == 9000.0


def test_a_time_from_before_the_first_reply_is_corrected_by_the_server(
    clock: ServerClock,
) -> None:
    assert not clock.is_guess(0.0), "nobody was told a time yet"
    guess_s = clock()
    assert clock.is_guess(guess_s)
    assert clock.is_guess(guess_s - 5.0), "of something that happened a little before"
    assert not clock.is_guess(-1e6), "somebody's own time is left alone"
    assert not clock.is_guess(guess_s + 1.0)
    clock.learn(5000.0, 100.0, 100.0)
    assert clock.corrected(guess_s - 5.0) == 4995.0
    assert not clock.is_guess(guess_s)


def test_reading_the_clock_of_a_store_sends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    store = RedisStore("redis://127.0.0.1:1")

    def asked() -> None:
        pytest.fail("the server was asked")

    monkeypatch.setattr(store._clients, "blocking", asked)
    assert abs(store.now_s() - time.time()) < 60.0
