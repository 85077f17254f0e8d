"""Panels by globs, with a timer, and without a breaker for every name that was ever used."""

import gc
import os
import sys
import threading
import time
import tracemalloc
import weakref
from pathlib import Path
from typing import Any

import pytest

from switchgear import CircuitBreaker, Cooldown, Event, Panel, Policy, Signal, detectors
from switchgear._stores.memory import MemoryStore
from switchgear._stores.url import default_file
from switchgear.testing import FakeClock
from timeouts import LIMIT_S

ONE = Policy([detectors.ConsecutiveFailures(1)])
TWO = Policy([detectors.ConsecutiveFailures(2)])
THREE = Policy([detectors.ConsecutiveFailures(3)])


# Policies by globs


def test_the_glob_star_matches_every_circuit() -> None:
    with Panel("memory:", policies={"*": ONE}) as panel:
        panel.breaker("provider/anthropic").record(Signal(ok=False))
        assert panel.breaker("provider/anthropic").state == "open"
        assert panel.loop("loop/1").policy is ONE


def test_an_exact_name_precedes_the_globs_which_apply_in_order() -> None:
    policies = {"provider/*": ONE, "*": TWO, "provider/openai": THREE, "?": ONE}
    with Panel("memory:", policies=policies) as panel:
        assert panel.breaker("provider/openai").policy is THREE
        assert panel.breaker("provider/anthropic").policy is ONE
        assert panel.breaker("x").policy is TWO


def test_a_name_without_a_match_has_the_default_policy() -> None:
    with Panel("memory:", policies={"provider/[ab]": ONE}) as panel:
        assert panel.breaker("provider/a").policy is ONE
        assert panel.breaker("provider/c").policy == CircuitBreaker("x").policy
        assert panel.reload({"provider/?": TWO}) == ["provider/a", "provider/c"]


@pytest.mark.parametrize("policies", [{"*": "one"}, {3: ONE}, [ONE], "policy"])
def test_a_value_that_is_not_a_policy_is_refused(policies: Any) -> None:
    with pytest.raises(ValueError, match=r"Panel\.policies"):
        Panel("memory:", policies=policies)


# The timer


def test_with_a_timer_the_end_of_a_wait_is_an_event_without_a_call() -> None:
    clock, seen = FakeClock(1000.0), list[Event]()
    store = MemoryStore(clock=clock)
    panel = Panel(store, policies={"*": ONE}, sinks=[seen.append], clock=clock, timer=True)
    breaker = panel.breaker("api")
    breaker.record(Signal(ok=False))
    clock.advance(59.9)
    panel._background.update_breakers()
    assert [event.after for event in seen] == ["open"]
    clock.advance(0.1)
    panel._background.update_breakers()
    assert [event.after for event in seen] == ["open", "half_open"]
    breaker.hold_open(by="ada", why="x", for_s=5.0)
    clock.advance(5.0)
    panel._background.update_breakers()
    assert [event.kind for event in seen[2:]] == ["ordered", "hold_ended"]
    panel.close()


def test_the_timer_is_a_thread_that_ends_with_the_panel() -> None:
    seen = list[Event]()
    policy = ONE.replace(recovery=Cooldown(0.01))
    panel = Panel("memory:", policies={"*": policy}, sinks=[seen.append], timer=True)
    panel.breaker("api").record(Signal(ok=False))
    until_s = time.monotonic() + LIMIT_S
    while len(seen) < 2 and time.monotonic() < until_s:
        time.sleep(0.05)
    assert [event.after for event in seen] == ["open", "half_open"]
    thread = panel._background._thread
    assert thread is not None
    panel.close()
    thread.join(LIMIT_S)
    assert not thread.is_alive()


def test_without_a_timer_there_is_no_thread() -> None:
    with Panel("memory:") as panel:
        panel.breaker("api").call(int)
        assert panel._background._thread is None


# Idle breakers


def test_many_names_keep_two_megabytes() -> None:
    with Panel("memory:") as panel:
        panel.breaker("warm").call(int)
        gc.collect()
        tracemalloc.start()
        before = tracemalloc.get_traced_memory()[0]
        for number in range(5_000):
            panel.breaker(f"tenant/{number}").call(int)
        gc.collect()
        grown = tracemalloc.get_traced_memory()[0] - before
        tracemalloc.stop()
        assert len(panel._breakers) <= 2_000
        assert grown < 4_000_000


def test_the_breakers_that_were_used_last_are_kept() -> None:
    with Panel("memory:", keep=2) as panel:
        first = weakref.ref(panel.breaker("a"))
        panel.breaker("b")
        panel.breaker("a")
        panel.breaker("c")
        assert first() is not None
        assert sorted(panel._breakers) == ["a", "c"]


def test_a_breaker_that_is_in_use_is_the_same_object_and_loses_nothing() -> None:
    with Panel("memory:", keep=1) as panel:
        mine = panel.breaker("mine")
        mine.call(int)
        for number in range(5):
            panel.breaker(f"other/{number}").call(int)
        mine.call(int)
        assert panel.breaker("mine") is mine
        assert mine.totals.succeeded == 2


@pytest.mark.parametrize("store", ["memory:", "sqlite"])
def test_a_released_breaker_with_failures_or_a_hold_is_restored(store: str, tmp_path: Path) -> None:
    url = store if store == "memory:" else f"sqlite:///{tmp_path}/state.db"
    with Panel(url, keep=1, policies={"*": TWO}) as panel:
        panel.breaker("once").record(Signal(ok=False))
        panel.breaker("open").record(Signal(ok=False, count=2))
        panel.breaker("held").hold_open(by="ada", why="x")
        panel.breaker("fine").call(int)
        panel.breaker("last").call(int)
        assert len(panel._breakers) == 1
        assert panel.breaker("open").state == "open"
        assert panel.breaker("held").mode == "held_open"
        panel.breaker("once").record(Signal(ok=False))
        assert panel.breaker("once").state == "open"
        panel.breaker("fine").record(Signal(ok=False, count=2))
        assert panel.breaker("fine").state == "open"


def test_a_breaker_with_its_own_options_is_kept() -> None:
    with Panel("memory:", keep=0) as panel:
        panel.breaker("a", fallback=lambda: "instead")
        panel.breaker("b", ONE)
        panel.breaker("c").call(int)
        gc.collect()
        assert sorted(panel._breakers) == ["a", "b"]
        panel.breaker("a").hold_open(by="ada", why="x")
        assert panel.breaker("a").call(lambda: "answer") == "instead"


def test_events_continue_without_gaps_after_a_release() -> None:
    with Panel("memory:", keep=1, policies={"*": ONE}) as panel:
        for _ in range(3):
            panel.breaker("a").record(Signal(ok=False))
            panel.breaker("a").reset(by="ada", why="x")
            panel.breaker("b").call(int)
        numbers = [entry.event.seq for entry in panel.events(glob="a")]
        assert numbers == list(range(1, len(numbers) + 1))


# The default place


@pytest.fixture
def outside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder outside any project, whatever lies above the temporary folders of this machine."""
    exists = os.path.exists

    def exists_below(path: str) -> bool:
        return Path(path).parent not in tmp_path.parents and exists(path)

    monkeypatch.setattr(os.path, "exists", exists_below)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path


def test_folders_outside_any_project_do_not_share_a_file(
    outside: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(outside / "home"))
    files = set()
    for name in ("one", "two", "deep/one", "home"):
        (outside / name).mkdir(parents=True, exist_ok=True)
        files.add(default_file(str(outside / name)))
    assert len(files) == 4
    assert all(file.startswith(f"{outside}/state/switchgear/") for file in files)
    assert default_file(str(outside / "home")) == f"{outside}/state/switchgear/state.db"
    assert default_file(str(outside / "one")) == default_file(str(outside / "two" / ".." / "one"))
    (outside / "one" / ".switchgear").mkdir()
    (outside / "one" / "sub").mkdir()
    assert default_file(str(outside / "one" / "sub")) == f"{outside}/one/.switchgear/state.db"


def test_a_relative_state_folder_is_ignored_as_the_standard_requires(
    outside: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(outside / "home"))
    monkeypatch.setenv("XDG_STATE_HOME", "state")
    assert default_file(str(outside)).startswith(f"{outside}/home/.local/state/switchgear/folders/")


def test_two_programs_in_two_folders_share_no_store(
    outside: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, expected in (("one", "closed"), ("two", "closed"), ("one", "open")):
        (outside / name).mkdir(exist_ok=True)
        monkeypatch.chdir(outside / name)
        with Panel() as panel:
            assert panel.breaker("api").state == expected
            if name == "one" and expected == "closed":
                panel.breaker("api").record(Signal(ok=False, count=5))
    assert not list((outside / "one").iterdir())


def test_a_panel_can_be_reloaded_while_other_threads_create_breakers() -> None:
    panel = Panel("memory:")
    stopped = threading.Event()

    def create(thread: int) -> None:
        for number in range(4000):
            if stopped.is_set():
                return
            panel.breaker(f"op/{thread}/{number}")

    threads = [threading.Thread(target=create, args=(thread,)) for thread in range(3)]
    interval_s = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for thread in threads:
            thread.start()
        for _ in range(100):
            panel.reload({})
            list(panel._breakers)
    finally:
        stopped.set()
        for thread in threads:
            thread.join(LIMIT_S)
        sys.setswitchinterval(interval_s)
        panel.close()
