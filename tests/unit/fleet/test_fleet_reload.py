"""Another configuration while a fleet works: sinks, retention and notification targets."""

import json
import sys
import threading
from pathlib import Path

import pytest

from switchgear import Event, Panel, Signal
from switchgear._config import Config, ConfigError, load_config
from switchgear._config.sections import Retention
from switchgear._fleet.fleet import Fleet
from switchgear._fleet.manifest import Crew, agent, crew
from switchgear._fleet.targets import Command, Target
from switchgear._fleet.watcher import Watcher
from switchgear._sinks import Jsonl
from switchgear.testing import FakeClock
from timeouts import LIMIT_S


def people() -> Crew:
    return crew([agent(name="coder", owner="ana", provider="p", model="m")])


def written(path: Path) -> list[str]:
    if not path.exists():
        return []
    return [json.loads(line)["circuit"] for line in path.read_text().splitlines()]


def trip(fleet: Fleet, circuit: str) -> None:
    fleet.panel.breaker(circuit).hold_open(by="ana", why="a test")


def test_events_go_to_the_new_sinks_also_of_circuits_that_were_there_before(
    tmp_path: Path,
) -> None:
    old, new = tmp_path / "old.jsonl", tmp_path / "new.jsonl"
    config = Config(store="memory:", sinks=(Jsonl(str(old)),))
    own: list[Event] = []
    with Fleet.from_config(config) as fleet:
        fleet.panel.breaker("provider/own", sinks=[own.append])
        trip(fleet, "provider/before")
        trip(fleet, "provider/own")
        fleet.reload(config._replace(sinks=(Jsonl(str(new)),)))
        for circuit in ("provider/before", "provider/own", "provider/after"):
            fleet.panel.breaker(circuit).release(by="ana", why="back")
        fleet.reload(config._replace(sinks=()))
        trip(fleet, "provider/own")
    assert written(old) == ["provider/before", "provider/own"]
    assert written(new) == ["provider/before", "provider/own", "provider/after"]
    assert [event.circuit for event in own] == ["provider/own"] * 3, "its own sink stays"


def test_a_sink_that_cannot_be_called_is_an_error_and_the_old_ones_stay() -> None:
    heard: list[Event] = []
    with Panel("memory:", sinks=[heard.append]) as panel:
        with pytest.raises(ValueError, match=r"Panel\.sinks holds 7: a sink must be callable"):
            panel.reload({}, sinks=[7])  # type: ignore[list-item]
        panel.breaker("api").hold_open(by="ana", why="a test")
    assert len(heard) == 1


def test_a_changed_retention_takes_effect_at_once_for_the_store_and_for_a_vacuum() -> None:
    clock = FakeClock(1000.0)
    with Fleet.from_config(Config(store="memory:"), clock=clock) as fleet:
        fleet.panel.breaker("provider/idle").record(Signal(ok=True))
        fleet.reload(Config(store="memory:", retention=Retention(3, 100.0)))
        for _ in range(5):
            trip(fleet, "provider/p")
        assert len(fleet.panel.events()) == 3
        clock.advance(101.0)
        assert fleet.panel.vacuum().circuits == 1


def arrived(path: Path) -> list[str]:
    if not path.exists():
        return []
    return [json.loads(line)["id"] for line in path.read_text().splitlines()]


def target(path: Path, name: str) -> Target:
    script = "import sys; open(sys.argv[1], 'a').write(sys.stdin.read())"
    return Command(f'{sys.executable} -c "{script}" {path}', timeout_s=30.0, name=name)


def test_messages_go_to_the_new_targets_and_those_that_stay_get_nothing_twice(
    tmp_path: Path,
) -> None:
    one, two, three = (tmp_path / name for name in ("one", "two", "three"))
    fleet = Fleet.open("memory:", people(), clock=FakeClock(1_700_000_000.0))
    watcher = Watcher(fleet, str(tmp_path), [target(one, "a"), target(two, "b")])
    trip(fleet, "provider/p")
    watcher.tick()
    watcher.retarget([target(two, "b"), target(three, "a")])
    trip(fleet, "provider/q")
    watcher.tick()
    assert arrived(one) == ["provider/p#1"]
    assert arrived(two) == ["provider/p#1", "provider/q#1"]
    assert arrived(three) == ["provider/q#1"], "the same name at another address goes on there"
    watcher.retarget([])
    trip(fleet, "provider/r")
    watcher.tick()
    assert arrived(two) == ["provider/p#1", "provider/q#1"]


class Heard(Target):
    """A target that signals each message, and hangs until it is released."""

    __slots__ = ("arrived", "may_end", "name")
    kind = "heard"
    match = "*"
    arrived: threading.Event
    may_end: threading.Event

    def __init__(self, name: str) -> None:
        self._set(name=name, arrived=threading.Event(), may_end=threading.Event())

    def send(self, message: dict[str, object], now_s: float) -> None:
        self.arrived.set()
        self.may_end.wait(LIMIT_S)


def test_a_watcher_at_work_takes_new_targets_while_an_old_one_hangs(tmp_path: Path) -> None:
    fleet = Fleet.open("memory:", people())
    old, new = Heard("old"), Heard("new")
    with Watcher(fleet, str(tmp_path), [old], every_s=0.01) as watcher:
        trip(fleet, "provider/p")
        assert old.arrived.wait(LIMIT_S)
        watcher.retarget([new])
        assert new.arrived.wait(LIMIT_S)
        old.may_end.set()
        new.may_end.set()
    fleet.close()


def test_an_invalid_file_changes_neither_sinks_nor_agents(tmp_path: Path) -> None:
    path = tmp_path / "switchgear.yaml"
    path.write_text("store: 'memory:'\nagents: {a: {owner: x, provider: p, model: m}}\n")
    with Fleet.from_config(load_config(path)) as fleet:
        path.write_text("agents: {b: {owner: x, provider: p}}\nsinks: [{log: {level: loud}}]\n")
        with pytest.raises(ConfigError):
            fleet.reload(load_config(path))
        assert list(fleet.crew.agents) == ["a"]
