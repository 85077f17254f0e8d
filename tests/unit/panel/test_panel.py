"""Many circuits over one store, in one process."""

import asyncio
import hashlib
import pickle
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from switchgear import (
    CircuitBreaker,
    Cooldown,
    LoopBreaker,
    Mode,
    Phase,
    Policy,
    Rejected,
    Signal,
    detectors,
)
from switchgear._core.errors import OverrideRefused
from switchgear._core.types import Acquire, Event, EventKind, Override
from switchgear._panel.panel import Panel
from switchgear.testing import FakeClock, FlakyStore

BAD = Signal(ok=False, error="529 overloaded")
QUICK = Policy([detectors.ConsecutiveFailures(2)], Cooldown(10.0))


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(1000.0)


@pytest.fixture
def panel(clock: FakeClock) -> Iterator[Panel]:
    with Panel("memory:", clock=clock, policies={"quick": QUICK}) as panel:
        yield panel


def test_the_breaker_of_a_name_is_one_object(panel: Panel) -> None:
    assert panel.breaker("api") is panel.breaker("api")
    assert isinstance(panel.breaker("api"), CircuitBreaker)


def test_a_second_policy_for_the_same_name_is_refused_and_the_first_stays(panel: Panel) -> None:
    first = panel.breaker("api", QUICK)
    with pytest.raises(ValueError, match="'api' already has a breaker"):
        panel.breaker("api", QUICK.replace(tripping_at=0.5))
    with pytest.raises(ValueError, match="'api' already has a breaker"):
        panel.breaker("api", fallback=len)
    assert panel.breaker("api", QUICK) is first


def test_the_policy_is_the_configured_one_else_the_stored_one_else_the_default(
    clock: FakeClock,
) -> None:
    panel = Panel("memory:", clock=clock, policies={"quick": QUICK})
    assert panel.policy_of("quick") == QUICK
    assert panel.policy_of("api") == CircuitBreaker("api").policy
    other = QUICK.replace(tripping_at=0.5)
    panel.breaker("api", other).record(BAD)
    again = Panel(panel.store.inner, clock=clock)
    assert again.breaker("api").policy == other


def test_the_loop_of_a_name_is_one_object_and_its_limits_are_given_once(panel: Panel) -> None:
    loop = panel.loop("loop/1", no_progress=7)
    assert loop.policy == LoopBreaker("loop/1", no_progress=7).policy
    assert panel.loop("loop/1") is panel.loop("loop/1", no_progress=7) is loop
    with pytest.raises(ValueError, match="'loop/1' already has a breaker"):
        panel.loop("loop/1", no_progress=8)
    with pytest.raises(ValueError, match="'loop/1' already has a breaker"):
        panel.loop("loop/1", QUICK)
    with pytest.raises(ValueError, match="'loop/1' already has a breaker"):
        panel.loop("loop/1", sinks=[print])
    with pytest.raises(ValueError, match="together with limits of its own"):
        panel.loop("loop/2", QUICK, no_progress=8)


def test_the_policy_of_a_loop_is_the_panels_else_the_stored_one_else_the_default(
    clock: FakeClock,
) -> None:
    panel = Panel("memory:", clock=clock, policies={"loop/quick": QUICK})
    assert panel.loop("loop/quick").policy == QUICK
    assert panel.loop("loop/1").policy == LoopBreaker("loop/1").policy
    panel.loop("loop/2", no_progress=7).record_failure("a")
    again = Panel(panel.store.inner, clock=clock)
    assert again.loop("loop/2").policy == panel.loop("loop/2").policy


def test_a_loop_is_a_circuit_of_the_panel(clock: FakeClock) -> None:
    events: list[Event] = []
    own: list[Event] = []
    with Panel("memory:", clock=clock, sinks=[events.append]) as panel:
        loop = panel.loop("loop/1", sinks=[own.append])
        panel.order("loop/1", mode=Mode.SHADOW, by="ann", why="a look")
        assert loop.mode is Mode.SHADOW
        assert panel.reload({"loop/1": QUICK}) == ["loop/1"]
        assert not loop.record_failure("a")
        loop.record_failure("b")
        view = panel.view("loop/1")
        assert view is not None
        assert (view.circuit.phase, view.policy) == (Phase.OPEN, QUICK)
    assert EventKind.MOVED in [event.kind for event in events]
    assert own == events


def test_a_breaker_and_a_loop_of_one_name_are_one_circuit(panel: Panel) -> None:
    breaker, loop = panel.breaker("loop/1", QUICK), panel.loop("loop/1", QUICK)
    breaker.record(BAD)
    loop.record(BAD)
    breaker.refresh()
    assert breaker.state is loop.state is Phase.OPEN
    assert repr(panel).endswith("circuits=1>")


def test_breakers_of_two_panels_over_one_store_are_one_circuit(clock: FakeClock) -> None:
    one = Panel("memory:", clock=clock)
    two = Panel(one.store.inner, clock=clock)
    one.breaker("api", QUICK).record(BAD)
    two.breaker("api", QUICK).record(BAD)
    assert one.breaker("api").state == "closed", "the last known state, without I/O"
    one.breaker("api").refresh()
    assert one.breaker("api").state == "open"
    with pytest.raises(Rejected, match="2 failures in a row"):
        one.breaker("api").call(len, "abc")


def test_circuits_are_found_by_glob_and_shown_in_their_present_state(
    panel: Panel, clock: FakeClock
) -> None:
    panel.breaker("provider/b", QUICK).call(len, "abc")
    for _ in range(2):
        panel.breaker("provider/a", QUICK).record(BAD)
    panel.breaker("op/git", QUICK).call(len, "abc")
    assert [view.name for view in panel] == ["op/git", "provider/a", "provider/b"]
    assert [view.name for view in panel.circuits("provider/*")] == ["provider/a", "provider/b"]
    (view,) = panel.circuits("provider/a")
    assert view.circuit.phase is Phase.OPEN
    assert view.verdict.retry_after_s == 10.0
    assert view.readings[0].reason == "2 failures in a row (threshold 2)"
    clock.advance(10.0)
    shown = panel.view("provider/a")
    assert shown is not None
    assert shown.circuit.phase is Phase.HALF_OPEN


def test_reading_changes_nothing(panel: Panel, clock: FakeClock) -> None:
    for _ in range(2):
        panel.breaker("api", QUICK).record(BAD)
    stored = panel.store.inner.get("api")
    clock.advance(10.0)
    other = Panel(panel.store.inner, clock=clock)
    assert [view.circuit.phase for view in other] == [Phase.HALF_OPEN]
    assert panel.store.inner.get("api") == stored


def test_a_circuit_without_events_does_not_exist(panel: Panel) -> None:
    assert panel.view("api") is None
    assert list(panel) == []
    assert panel.breaker("api").state == "closed"
    assert panel.view("api") is None


def test_one_event_stream_continues_after_a_cursor(panel: Panel) -> None:
    for name in ("a", "b"):
        for _ in range(2):
            panel.breaker(name, QUICK).record(BAD)
    entries = panel.events()
    assert [entry.event.circuit for entry in entries] == ["a", "b"]
    assert panel.events(after=entries[-1].cursor) == []
    panel.order("a", by="ada", why="fixed", reset=True)
    behind = panel.events(after=entries[-1].cursor)
    assert [entry.event.kind for entry in behind] == [EventKind.ORDERED, EventKind.MOVED]
    assert panel.events(glob="b") == entries[1:]
    assert panel.events(limit=1) == behind[-1:]


def test_sinks_of_the_panel_receive_every_circuit_and_cannot_break_it(clock: FakeClock) -> None:
    heard: list[Event] = []

    def fails(_: object) -> None:
        raise RuntimeError("sink")

    panel = Panel("memory:", clock=clock, sinks=[fails, heard.append])
    panel.order("a", by="ada", why="drill", mode=Mode.HELD_OPEN)
    panel.breaker("b", QUICK, sinks=[heard.append]).record(BAD._replace(count=2))
    assert [event.circuit for event in heard] == ["a", "b", "b"]


# Leave of several circuits


def test_permits_of_several_circuits_record_on_each(panel: Panel) -> None:
    with panel.ask_all(["team", "quick", "team"]) as leave:
        assert leave.circuits == ["team", "quick"]
    with pytest.raises(KeyError), panel.ask_all(["team", "quick"]):
        raise KeyError("x")
    for name in ("team", "quick"):
        totals = panel.breaker(name).totals
        assert (totals.succeeded, totals.failed) == (1, 1)


def test_when_one_circuit_refuses_the_permits_of_the_others_are_returned(
    panel: Panel, clock: FakeClock
) -> None:
    for _ in range(2):
        panel.breaker("quick").record(BAD)
    panel.order("held", by="ada", why="drill", mode=Mode.HELD_OPEN)
    clock.advance(10.0)
    with pytest.raises(Rejected, match="held open by ada"):
        panel.ask_all(["quick", "held"])
    assert panel.breaker("quick").snapshot().probing.permits == ()
    panel.order("held", by="ada", why="over", mode=Mode.AUTO)
    with panel.ask_all(["quick", "held"]):
        assert len(panel.breaker("quick").snapshot().probing.permits) == 1
    assert panel.breaker("quick").state == "closed"


def test_returned_permits_are_not_evidence(panel: Panel) -> None:
    panel.ask_all(["a", "b"]).give_back()
    assert panel.breaker("a").totals.ignored == panel.breaker("b").totals.ignored == 1


def test_permits_of_no_circuit_are_an_error(panel: Panel) -> None:
    with pytest.raises(ValueError, match="names is empty"):
        panel.ask_all([])


# Orders and the operator token


def test_overrides_need_the_token_where_one_is_configured(clock: FakeClock) -> None:
    digest = hashlib.sha256(b"open sesame").hexdigest()
    owner = Panel("memory:", clock=clock, operator_token_sha256=digest, token="open sesame")
    owner.order("api", by="ada", why="drill", mode=Mode.HELD_OPEN)
    for token in (None, "open", digest):
        guarded = Panel(owner.store.inner, clock=clock, operator_token_sha256=digest, token=token)
        with pytest.raises(
            OverrideRefused, match="'api' accepts overrides only with the operator token"
        ):
            guarded.order("api", by="agent", why="let me", mode=Mode.AUTO)
        with pytest.raises(OverrideRefused):
            guarded.breaker("api").release(by="agent", why="let me")
        with pytest.raises(OverrideRefused):
            guarded.send("api", Override("agent", "let me", Mode.AUTO))
        assert guarded.breaker("api").mode is Mode.HELD_OPEN
    assert [entry.event.by for entry in owner.events()] == ["ada"]


def test_without_the_token_everything_else_works(clock: FakeClock) -> None:
    digest = hashlib.sha256(b"secret").hexdigest()
    panel = Panel("memory:", clock=clock, operator_token_sha256=digest)
    assert panel.breaker("api").call(len, "abc") == 3
    assert panel.send("api", Acquire()).admitted


def test_a_vacuum_that_keeps_less_than_the_defaults_needs_the_token(clock: FakeClock) -> None:
    digest = hashlib.sha256(b"secret").hexdigest()
    store = Panel("memory:", clock=clock).store.inner
    store.set_operator_digest(digest, instead_of=None)
    with pytest.raises(OverrideRefused, match="a vacuum that keeps less than"):
        Panel(store, clock=clock, keep_events=9_999).vacuum()
    with pytest.raises(OverrideRefused):
        Panel(store, clock=clock, idle_s=60.0).vacuum()
    Panel(store, clock=clock).vacuum()
    Panel(store, clock=clock, keep_events=1, token="secret").vacuum()


# Retention, pickling, closing


def test_vacuum_removes_abandoned_circuits_and_old_events_but_no_decision(
    clock: FakeClock,
) -> None:
    panel = Panel("memory:", clock=clock, keep_events=2, idle_s=100.0)
    panel.breaker("done", QUICK).call(len, "abc")
    panel.breaker("open", QUICK).record(BAD._replace(count=2))
    panel.order("held", by="ada", why="drill", mode=Mode.HELD_CLOSED)
    panel.order("held", by="ada", why="still", mode=Mode.HELD_CLOSED)
    panel.flush()
    clock.advance(100.0)
    assert Panel(panel.store.inner, clock=clock, idle_s=100.0, keep_events=2).vacuum() == (1, 0)
    assert [found.circuit.key for found in panel.store.find()] == ["held", "open"]
    assert len(panel.events()) == 2


def test_pickling_a_breaker_of_a_memory_panel_raises_with_the_reason(panel: Panel) -> None:
    with pytest.raises(TypeError, match="lives in this process and does not pickle"):
        pickle.dumps(panel.breaker("api"))


def test_closing_saves_what_was_counted(clock: FakeClock) -> None:
    panel = Panel("memory:", clock=clock)
    for _ in range(3):
        panel.breaker("api").call(len, "abc")
    store = panel.store.inner
    assert store.get("api") is None
    panel.close()
    found = store.get("api")
    assert found is not None
    assert found.circuit.totals.succeeded == 3
    panel.close()


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("postgres://x", "must begin with one of memory:"),
        ("state.db", "must be a URL such as memory:, sqlite:///state.db or redis://host"),
        ("sqlite://state.db", "sqlite:///relative/path or sqlite:////absolute/path"),
        ("sqlite:///", "sqlite:///relative/path or sqlite:////absolute/path"),
    ],
)
def test_a_url_of_no_known_kind_is_refused_with_what_is_allowed(url: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Panel(url)


@pytest.mark.parametrize("url", ["memory:", "memory://"])
def test_a_store_in_memory_has_two_spellings(url: str) -> None:
    with Panel(url) as panel:
        assert type(panel.store.inner).__name__ == "MemoryStore"


@pytest.mark.parametrize("field", ["keep_events", "idle_s"])
def test_retention_must_be_positive(field: str) -> None:
    wrong: dict[str, Any] = {field: -1}
    with pytest.raises(ValueError, match=rf"Panel\.{field} is -1"):
        Panel("memory:", **wrong)


# What others do to the store


def test_a_circuit_that_was_removed_under_a_live_breaker_trips_again(
    panel: Panel, clock: FakeClock
) -> None:
    breaker = panel.breaker("api", QUICK)
    for _ in range(50):
        breaker.record(Signal(ok=True))
    clock.advance(100.0)
    panel.store.vacuum(keep_events=10, idle_s=1.0, now_s=clock())
    assert panel.store.get("api") is None
    for _ in range(2):
        clock.advance(1.0)
        breaker.record(BAD)
    with pytest.raises(Rejected):
        breaker.call(len, "abc")


def test_a_circuit_that_was_removed_and_put_back_is_accepted(
    panel: Panel, clock: FakeClock
) -> None:
    breaker = panel.breaker("api", QUICK)
    breaker.record(BAD._replace(count=2))
    opened = panel.store.inner.get("api")
    assert opened is not None
    breaker.reset(by="ada", why="drill")
    panel.store.vacuum(keep_events=10, idle_s=0.0, now_s=clock())
    assert panel.store.get("api") is None
    assert panel.store.put(opened)
    breaker.refresh()
    assert breaker.state is Phase.OPEN


def test_the_digest_of_the_token_is_saved_in_the_store(clock: FakeClock) -> None:
    digest = hashlib.sha256(b"open sesame").hexdigest()
    configured = Panel("memory:", clock=clock, operator_token_sha256=digest)
    configured.breaker("api").call(len, "abc")
    bare = Panel(configured.store.inner, clock=clock)
    with pytest.raises(OverrideRefused):
        bare.order("api", by="agent", why="no configuration, no lock?", mode=Mode.AUTO)
    other = hashlib.sha256(b"mine").hexdigest()
    forged = Panel(bare.store.inner, clock=clock, operator_token_sha256=other, token="mine")
    with pytest.raises(OverrideRefused):
        forged.order("api", by="agent", why="my own token", mode=Mode.AUTO)
    owner = Panel(bare.store.inner, clock=clock, token="open sesame")
    owner.order("api", by="ada", why="drill", mode=Mode.HELD_OPEN)


def test_the_token_is_changed_only_with_the_present_one(clock: FakeClock) -> None:
    old, new = (hashlib.sha256(word).hexdigest() for word in (b"old", b"new"))
    panel = Panel("memory:", clock=clock, operator_token_sha256=old, token="old")
    panel.order("api", by="ada", why="drill", mode=Mode.HELD_OPEN)
    store = panel.store.inner
    with pytest.raises(OverrideRefused):
        Panel(store, clock=clock, token="new").store.operator.change(store, new)
    panel.store.operator.change(store, new)
    with pytest.raises(OverrideRefused):
        panel.order("api", by="ada", why="drill", mode=Mode.AUTO)
    Panel(store, clock=clock, token="new").order("api", by="ada", why="over", mode=Mode.AUTO)


def test_a_manual_record_is_redacted_too(panel: Panel) -> None:
    panel.breaker("api").record(
        Signal(ok=False, error="bad key sk-ant-abcdefghijklmnopqrstuvwxyz0123")
    )
    stored = panel.store.get("api")
    assert stored is not None
    assert "abcdefghijkl" not in str(stored.circuit.failures)


def test_a_store_that_comes_back_empty_gets_the_digest_back(clock: FakeClock) -> None:
    digest = hashlib.sha256(b"open sesame").hexdigest()
    store = FlakyStore(clock=clock)
    panel = Panel(store, clock=clock, operator_token_sha256=digest)
    breaker = panel.breaker("api")
    breaker.record(BAD)
    store.cut()
    breaker.record(BAD)
    store.mend(empty=True)
    clock.advance(1.0)
    breaker.record(BAD)
    with pytest.raises(OverrideRefused):
        Panel(store, clock=clock).order("api", by="agent", why="it forgot", mode=Mode.HELD_CLOSED)


def test_successes_in_memory_count_at_their_own_time(panel: Panel, clock: FakeClock) -> None:
    """Otherwise, deferred successes would all get the time of the first one."""
    policy = Policy([detectors.LatencyP95(1.0, 3.0, window_s=300.0)])
    breaker = panel.breaker("agent/coder/latency", policy)
    for _ in range(300):
        clock.advance(1.0)
        breaker.succeeded(breaker.enter(), 0.5)
    breaker.record(Signal(ok=True, seconds=4.0))
    [reading] = breaker.readings().values()
    assert reading.reason == "1 of 292 calls in 300 s took longer than 3 s (3 x baseline), 14 may"


def test_a_panel_is_closed_by_async_with_beside_the_event_loop(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/state.db"
    closed_by: list[int] = []

    async def work() -> int:
        async with Panel(url) as panel:
            breaker = panel.breaker("api")

            @breaker
            async def call() -> None:
                raise TimeoutError("slow")

            for _ in range(5):
                with pytest.raises(TimeoutError):
                    await call()
            inner = panel.store.close

            def close() -> None:
                closed_by.append(threading.get_ident())
                inner()

            panel.store.close = close  # type: ignore[method-assign]
        return threading.get_ident()

    loop_thread = asyncio.run(work())
    assert closed_by
    assert loop_thread not in closed_by
    with Panel(url) as again:
        assert again.breaker("api").state == "open"


def test_a_view_costs_the_same_however_many_breakers_the_panel_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Panel(f"sqlite:///{tmp_path / 'state.db'}") as panel:
        for number in range(50):
            panel.breaker(f"api-{number}").record(Signal(ok=False, error="503"))
        applied: list[str] = []
        apply = panel.store.inner.apply

        def counted(key: str, *rest: Any) -> Any:
            applied.append(key)
            return apply(key, *rest)

        monkeypatch.setattr(panel.store.inner, "apply", counted)
        for _ in range(20):
            assert panel.view("api-7") is not None
        assert len(applied) < 20, "nothing is pending: at most what settles in the background"


def test_a_limit_instead_of_a_policy_is_refused_with_what_to_write() -> None:
    options: dict[str, Any] = {"threshold": 3}
    with Panel("memory:") as panel, pytest.raises(TypeError, match=r"no 'threshold'.* Policy\("):
        panel.breaker("api", **options)
