"""Incidents: one folder per trip, written atomically and once, safe to read; and the review."""

import json
import os
import stat
from collections.abc import Iterator
from errno import ENOSPC
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from switchgear import Signal
from switchgear._cli import main
from switchgear._cli.incidents import _full_id
from switchgear._config import load_config
from switchgear._fleet.categories import default_breakers
from switchgear._fleet.fleet import Fleet
from switchgear._fleet.incidents import (
    Incidents,
    IncidentTrouble,
    as_configuration,
    incident_id,
    review,
)
from switchgear._fleet.manifest import agent, crew, story
from switchgear._fleet.watcher import Watcher
from switchgear._system.files import write_whole
from switchgear.errors import StoreError
from switchgear.testing import FakeClock


class Stage:
    def __init__(self, folder: Path) -> None:
        self.clock = FakeClock(1_700_000_000.0)
        people = crew(
            [
                agent(
                    name="coder",
                    owner="ana",
                    provider="anthropic",
                    model="opus",
                    fallback_chain=["junior"],
                    stories=["S-1"],
                ),
                agent(name="junior", owner="ben", provider="google", model="flash"),
            ],
            [story(name="S-1", owner="cy", budget_dollars=1)],
        )
        self.fleet = Fleet.open("memory:", people, clock=self.clock)
        self.watcher = Watcher(self.fleet, str(folder))
        self.incidents = self.watcher.incidents

    def record(self, circuit: str, **facts: Any) -> None:
        self.fleet.panel.breaker(circuit).record(Signal(**facts))


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    stage = Stage(tmp_path)
    yield stage
    stage.fleet.close()


def test_a_trip_is_one_incident_with_all_known_facts(stage: Stage, tmp_path: Path) -> None:
    stage.fleet.route("coder", story="S-1").record(ok=True)
    with stage.fleet.route("coder", story="S-1") as route:
        route.spent(300_000)
    stage.record("agent/coder/failure_rate", ok=False, count=20, error="exit code 1")
    stage.fleet.route("coder").give_back()
    [name] = stage.watcher.tick()
    found = stage.incidents.get(name)
    assert found["severity"] == "SEV2"
    assert found["circuit"] == "agent/coder/failure_rate"
    assert found["owners"] == ["ana", "cy"]
    assert found["spent_micros"] == 300_000
    assert found["rerouted"] == ["coder: junior on google/flash"]
    assert found["partial_state"] == ["task S-1 is active, $0.30 spent"]
    assert "exit code 1" in found["evidence"]
    text = (tmp_path / "incidents" / name / "report.md").read_text()
    for part in ("# SEV2", "## Evidence", "## Timeline", "## Rerouted", "## What to do"):
        assert part in text
    for file in (tmp_path / "incidents" / name).iterdir():
        assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_an_incident_whose_owners_cannot_be_read_is_written(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreadable(*_: object) -> list[str]:
        raise StoreError("memory:", "the note of the run is damaged", "reset it")

    monkeypatch.setattr("switchgear._fleet.incidents.owners", unreadable)
    stage.record("agent/coder/failure_rate", ok=False, count=20)
    [name] = stage.watcher.tick()
    found = stage.incidents.get(name)
    assert (found["agents"], found["owners"]) == (["coder"], [])
    assert "the note of the run is damaged" in found["unknown"]


def test_the_drafts_of_a_killed_watcher_are_removed_and_those_of_another_stay(
    stage: Stage, tmp_path: Path
) -> None:
    folder = tmp_path / "incidents"
    kept = [folder / ".new.0123abcd.part", folder / "notes.part", folder / ".old"]
    gone = [folder / ".old.0123abcd.part"]
    for each in (*kept, *gone):
        each.mkdir(parents=True)
        (each / "report.md").write_text("half of it")
    (link := folder / ".link.0123abcd.part").symlink_to(kept[1])
    for each in (*kept[1:], *gone, link):
        os.utime(each, (0.0, 0.0), follow_symlinks=False)
    stage.record("agent/coder/failure_rate", ok=False, count=20, error="exit code 1")
    [name] = stage.watcher.tick()
    assert {each.name for each in folder.iterdir()} == {*(each.name for each in kept), name}
    assert (kept[1] / "report.md").exists()


def test_the_drafts_within_an_incident_are_removed_when_it_is_written_again(
    stage: Stage, tmp_path: Path
) -> None:
    stage.record("agent/coder/failure_rate", ok=False, count=20, error="exit code 1")
    [name] = stage.watcher.tick()
    folder = tmp_path / "incidents" / name
    for draft, written_s in (("report.md.7-0123abcd.part", 0.0), ("a.7-0123abcd.part", 9e9)):
        (folder / draft).write_text("half of it")
        os.utime(folder / draft, (written_s, written_s))
    stage.incidents.close(name, by="ann", why="mended", mark=None, now_s=2e9)
    assert {each.name for each in folder.iterdir()} == {
        *("report.md", "incident.json", "a.7-0123abcd.part")
    }


def test_the_evidence_of_an_incident_is_from_the_time_of_the_trip(
    stage: Stage,
) -> None:
    stage.record("agent/coder/failure_rate", ok=False, count=20, error="exit code 1")
    held = stage.fleet.panel.breaker("agent/coder/failure_rate")
    held.hold_closed(by="ana", why="it must go on")
    stage.clock.advance(5.0)
    stage.record("agent/coder/failure_rate", ok=True, count=4)
    stage.record("agent/coder/failure_rate", ok=False, error="something else, later")
    [name] = stage.watcher.tick()
    evidence = stage.incidents.get(name)["evidence"]
    assert evidence[0] == "20 of the last 20 calls failed (100%, threshold 50%)"
    assert set(evidence[1:]) == {"exit code 1"}


def test_an_incident_names_the_commands_that_deal_with_it(stage: Stage) -> None:
    stage.record("rules/coder", violation="rule x")
    [name] = stage.watcher.tick()
    steps = " ".join(stage.incidents.get(name)["what_to_do"])
    assert "switchgear reset rules/coder --why" in steps
    assert f"switchgear incidents close {name} --why" in steps


def test_an_open_incident_shows_a_reroute_before_its_next_event(stage: Stage) -> None:
    stage.record("agent/coder/failure_rate", ok=False, count=20)
    [name] = stage.watcher.tick()
    read = Incidents(stage.incidents.folder, stage.fleet)
    assert "## Rerouted\n\n- none" in read.report_of(name)
    stage.clock.advance(10.0)
    stage.fleet.route("coder").give_back()
    assert read.get(name)["rerouted"] == ["coder: junior on google/flash"]
    assert "## Rerouted\n\n- `coder: junior on google/flash`" in read.report_of(name)
    [listed] = read.all()
    assert listed["rerouted"] == ["coder: junior on google/flash"]
    read.close(name, by="ana", why="fixed", mark=None, now_s=stage.clock())
    stage.fleet.panel.breaker("agent/junior/failure_rate").hold_open(by="ana", why="x")
    stage.fleet.route("coder").give_back()
    assert read.get(name)["rerouted"] == ["coder: junior on google/flash"], "it stays as it was"


def test_an_incident_lists_the_agents_that_were_rerouted_while_it_lasted(
    stage: Stage,
) -> None:
    stage.record("agent/coder/failure_rate", ok=False, count=20)
    [name] = stage.watcher.tick()
    assert stage.incidents.get(name)["rerouted"] == [], "nobody has asked yet"
    stage.clock.advance(10.0)
    stage.fleet.route("coder").give_back()
    stage.clock.advance(300.0)
    stage.fleet.route("coder").record(ok=True)
    stage.watcher.tick()
    found = stage.incidents.get(name)
    assert found["status"] == "recovered"
    assert found["rerouted"] == ["coder: junior on google/flash"]
    assert "junior on google/flash" in stage.incidents.report_of(name)
    assert not stage.fleet.standings()["coder"].why, "it is back"


@pytest.mark.parametrize(
    ("circuit", "facts", "severity"),
    [
        ("agent/coder/budget", {"cost_micros": 5_000_000}, "SEV2"),
        ("agent/coder/latency", {"ok": True, "seconds": 999.0, "count": 20}, "SEV3"),
        ("rules/coder", {"violation": "rule force-push"}, "SEV1"),
        ("provider/anthropic", {"ok": False, "retry_after_s": 5.0}, "SEV2"),
        ("lock/db", {"waited_s": 61.0}, "SEV3"),
        ("story/S-1", {"cost_micros": 1_600_000}, "SEV2"),
    ],
)
def test_every_category_has_its_severity(
    stage: Stage, circuit: str, facts: dict[str, Any], severity: str
) -> None:
    stage.record(circuit, **facts)
    [name] = stage.watcher.tick()
    assert stage.incidents.get(name)["severity"] == severity
    assert stage.watcher.tick() == []


def test_an_incident_of_a_circuit_in_shadow_mode_reports_that_nothing_was_done(
    stage: Stage,
) -> None:
    stage.fleet.panel.breaker("rules/coder").shadow(by="ana", why="trying it out")
    stage.record("rules/coder", violation="rule x")
    [name] = stage.watcher.tick()
    action = stage.incidents.get(name)["action"]
    assert action == "none: the circuit is in shadow mode and admits everything"


def test_a_folder_that_cannot_be_written_is_reported_once_in_a_sentence_and_so_is_its_return(
    stage: Stage, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    in_the_way = tmp_path / "incidents"
    in_the_way.write_text("no folder")
    stage.record("rules/coder", violation="rule x")
    watcher = Watcher(stage.fleet, str(tmp_path), every_s=0.0)
    rounds = iter(range(5))

    def goes_on() -> bool:
        number = next(rounds)
        if number == 3:
            in_the_way.unlink()
        return number < 4

    watcher._loop("incidents", watcher.note, goes_on)
    first, second = [text for text in caplog.messages if not text.startswith("circuit ")]
    assert first.startswith("incidents: [Errno")
    assert first.endswith("retrying")
    assert second == "incidents: works again"
    assert all(one.exc_info is None for one in caplog.records)
    assert len(list(stage.incidents.all())) == 1


def test_failed_probes_and_recovery_belong_to_the_same_incident(stage: Stage) -> None:
    stage.record("provider/anthropic", ok=False, retry_after_s=30.0)
    stage.clock.advance(30.0)
    dep = stage.fleet.panel.breaker("provider/anthropic")
    dep.record(Signal(ok=False), dep.enter())
    [name] = stage.watcher.tick()
    assert stage.incidents.get(name)["status"] == "open"
    stage.clock.advance(3600.0)
    dep.record(Signal(ok=True), dep.enter())
    assert stage.watcher.tick() == []
    found = stage.incidents.get(name)
    assert found["status"] == "recovered"
    assert found["lasted_s"] == pytest.approx(3630.0)
    assert [line["after"] for line in found["timeline"]][-2:] == ["half_open", "closed"]
    for entry in stage.fleet.panel.events():
        stage.incidents.process(entry.event, stage.fleet)
    assert stage.incidents.get(name) == found, "hearing it all again adds nothing"
    stage.record("provider/anthropic", ok=False, retry_after_s=30.0)
    assert len(stage.watcher.tick()) == 1, "the next trip is another incident"


def test_a_process_killed_before_its_position_moves_writes_nothing_twice(
    stage: Stage, tmp_path: Path
) -> None:
    stage.record("rules/coder", violation="rule secrets")
    [entry] = stage.fleet.panel.events()
    first = stage.incidents.process(entry.event, stage.fleet)
    assert first == incident_id(entry.event)
    stage.incidents.close(str(first), by="ana", why="seen", mark="confirmed", now_s=0.0)
    assert stage.watcher.tick() == [], "the same event is heard again"
    assert stage.incidents.get(str(first))["status"] == "closed"
    assert [path.name for path in (tmp_path / "incidents").iterdir()] == [first]


def test_a_disk_that_is_full_halfway_leaves_no_folder_and_the_incident_comes_later(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fills_up(path: str, text: str) -> None:
        if path.endswith("incident.json"):
            raise OSError(ENOSPC, "no space left", path)
        write_whole(path, text)

    stage.record("rules/coder", violation="rule x")
    with monkeypatch.context() as patched:
        patched.setattr("switchgear._fleet.incidents.write_whole", fills_up)
        with pytest.raises(OSError, match="no space left"):
            stage.watcher.tick()
    assert list((tmp_path / "incidents").iterdir()) == []
    [name] = stage.watcher.tick()
    assert stage.incidents.get(name)["reason"] == "rule x"


def test_two_watchers_take_turns_and_write_each_incident_once(stage: Stage, tmp_path: Path) -> None:
    other = Watcher(stage.fleet, str(tmp_path))
    for number in range(5):
        stage.record(f"rules/agent-{number}", violation="rule x")
    assert len(stage.watcher.tick()) + len(other.tick()) == 5
    assert len(list(stage.incidents.all())) == 5


def test_hostile_text_is_escaped_in_a_report(stage: Stage, tmp_path: Path) -> None:
    evil = "rule `x`\n# SEV9\x1b[31m <script> sk-abcdefghijklmnopqrstuvwx [a](javascript:b)"
    stage.record("rules/../../etc", violation=evil)
    [name] = stage.watcher.tick()
    text = (tmp_path / "incidents" / name / "report.md").read_text()
    assert "/" not in name
    assert "\x1b" not in text
    assert "sk-abc" not in text
    assert "\n# SEV9" not in text
    assert text.count("# SEV1") == 1
    shown = next(line for line in text.splitlines() if line.startswith("- What tripped"))
    assert shown.count("`") == 2


def test_a_damaged_incident_hides_no_other(stage: Stage, tmp_path: Path) -> None:
    stage.record("rules/coder", violation="rule x")
    [name] = stage.watcher.tick()
    for other, text in (("a-damaged", "{"), ("b-short", "{}"), ("c-deep", "[" * 100_000)):
        (tmp_path / "incidents" / other).mkdir()
        (tmp_path / "incidents" / other / "incident.json").write_text(text)
    found = list(stage.incidents.all())
    assert [one["id"] for one in found if "trouble" not in one] == [name]
    assert sum("cannot be read" in one.get("trouble", "") for one in found) == 3
    for bad in ("../x", "", "no-such"):
        with pytest.raises(IncidentTrouble):
            stage.incidents.get(bad)


@pytest.mark.parametrize(
    "edit",
    [
        {"timeline": [1]},
        {"timeline": None},
        {"timeline": [{"seq": 1}]},
        {"timeline": [{"seq": True}]},
        {"evidence": 5},
        {"owners": ["ana", 5]},
        {"lasted_s": "long"},
        {"spent_micros": [1]},
        {"mark": ["false_positive"]},
        {"category": {"x": 1}},
        {"seq": "1"},
        {"id": "../../elsewhere"},
        {"closed_by": 5},
        {"opened_at_s": 10**400},
        {"opened_at_s": float("nan")},
        {"opened_at_s": -1e15},
        {"lasted_s": float("inf")},
    ],
)
def test_an_edited_incident_hides_no_other_and_stops_no_watcher(
    stage: Stage, tmp_path: Path, edit: dict[str, Any]
) -> None:
    stage.record("rules/coder", violation="rule x")
    [name] = stage.watcher.tick()
    path = tmp_path / "incidents" / name / "incident.json"
    damaged = json.dumps({**json.loads(path.read_text()), **edit})
    path.write_text(damaged)
    with pytest.raises(IncidentTrouble, match="cannot be read"):
        stage.incidents.report_of(name)
    stage.fleet.panel.breaker("rules/coder").reset(by="ana", why="seen")
    stage.record("rules/junior", violation="rule y")
    assert len(stage.watcher.tick()) == 1
    assert path.read_text() == damaged
    assert sorted("trouble" in one for one in stage.incidents.all()) == [False, True]


def test_a_report_that_cannot_be_replaced_sets_its_incident_aside_and_loses_no_other(
    stage: Stage, tmp_path: Path
) -> None:
    stage.record("rules/coder", violation="rule x")
    [name] = stage.watcher.tick()
    place = tmp_path / "incidents" / name / "report.md"
    place.unlink()
    place.mkdir()
    stage.fleet.panel.breaker("rules/coder").reset(by="ana", why="seen")
    stage.record("rules/junior", violation="rule y")
    assert len(stage.watcher.tick()) == 1
    with pytest.raises(IncidentTrouble, match=r"its report\.md is a folder"):
        stage.incidents.get(name)


def test_a_missed_one_that_cannot_be_read_does_not_hide_the_open_incident(
    stage: Stage, tmp_path: Path
) -> None:
    stage.record("rules/coder", violation="rule x")
    [name] = stage.watcher.tick()
    stage.clock.advance(60.0)
    now_s = stage.clock()
    missed = stage.incidents.add_missed("rules/coder", by="ana", why="late", now_s=now_s)
    (tmp_path / "incidents" / missed / "incident.json").write_text("{")
    stage.fleet.panel.breaker("rules/coder").reset(by="ana", why="seen")
    stage.watcher.tick()
    assert stage.incidents.get(name)["status"] == "recovered"


def test_the_state_file_is_written_atomically_with_the_active_agents(
    stage: Stage, tmp_path: Path
) -> None:
    stage.record("provider/anthropic", ok=False, retry_after_s=30.0)
    stage.record("story/S-1", cost_micros=1_600_000)
    stage.watcher.tick()
    path = tmp_path / "world-state.json"
    found = json.loads(path.read_text())
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert not list(tmp_path.glob("*.part"))
    coder = found["agents"]["coder"]
    assert (coder["state"], coder["works"], coder["model"]) == (
        "rerouted",
        "junior",
        "google/flash",
    )
    assert coder["why"][0].startswith("coder on anthropic/opus: provider/anthropic: 1 ")
    assert found["stories"]["S-1"]["paused"] is True
    assert found["stories"]["S-1"]["owners"] == ["cy"]
    assert found["dependencies"]["anthropic"]["phase"] == "open"
    stage.record("rules", violation="rule x")
    stage.watcher.tick()
    everybody = json.loads(path.read_text())["agents"].values()
    assert {one["state"] for one in everybody} == {"halted"}


def test_an_unchanged_world_state_is_not_written_again(stage: Stage, tmp_path: Path) -> None:
    path = tmp_path / "world-state.json"
    stage.watcher.tick()
    first = path.read_text()
    stage.clock.advance(30.0)
    stage.watcher.tick()
    assert path.read_text() == first
    stage.clock.advance(31.0)
    stage.watcher.tick()
    assert path.read_text() != first, "once a minute, to show that somebody watches"


def test_reading_the_world_state_takes_no_probe(stage: Stage) -> None:
    stage.record("provider/anthropic", ok=False, retry_after_s=30.0)
    stage.clock.advance(31.0)
    for _ in range(3):
        stage.watcher.tick()
    assert stage.fleet.route("coder").worker == "coder"


# The review


def test_too_little_history_is_reported(stage: Stage) -> None:
    findings = review(default_breakers(), [], [])
    assert len(findings) == 7
    assert all("too few incidents" in one.why[0] for one in findings)
    assert as_configuration(findings) == ""


def marked(category: str, mark: str | None, count: int) -> list[dict[str, Any]]:
    return [{"category": category, "mark": mark}] * count


def trips(stage: Stage, count: int) -> list[Any]:
    for number in range(count):
        stage.record(f"agent/a{number}/failure_rate", ok=False, count=20)
    return [entry.event for entry in stage.fleet.panel.events()]


def test_false_positives_loosen_and_false_negatives_tighten(stage: Stage, tmp_path: Path) -> None:
    events = trips(stage, 6)
    [loose] = [
        one
        for one in review(default_breakers(), events, marked("failure_rate", "false_positive", 3))
        if one.category == "failure_rate"
    ]
    assert loose.proposals == {"threshold": 0.6}
    assert loose.why == ("3 of 6 trips were false: threshold 0.5 → 0.6",)
    tight = review(default_breakers(), events, marked("failure_rate", "false_negative", 3))
    assert as_configuration(tight) == "breakers:\n  failure_rate: {threshold: 0.4}\n"
    both = marked("failure_rate", "false_positive", 3) + marked("failure_rate", "false_negative", 3)
    assert as_configuration(review(default_breakers(), events, both)) == ""
    fine = review(default_breakers(), events, marked("failure_rate", "confirmed", 6))
    assert fine[1].why == ("no reason to change threshold 0.5",)


def test_probes_that_fail_repeatedly_suggest_a_longer_cooldown(stage: Stage) -> None:
    dep = stage.fleet.panel.breaker("provider/p")
    dep.record(Signal(ok=False, retry_after_s=1.0))
    for _ in range(6):
        stage.clock.advance(3600.0)
        dep.record(Signal(ok=False), dep.enter())
    events = [entry.event for entry in stage.fleet.panel.events()]
    found = review(default_breakers(), events, [])
    assert as_configuration(found) == "breakers:\n  provider: {cooldown_seconds: 120}\n"


# The command


def run(folder: Path, *args: str) -> tuple[int, str]:
    done = CliRunner().invoke(main, [*args, "--config", str(folder / "switchgear.yaml")])
    return done.exit_code, done.output


def test_the_command_goes_from_a_trip_to_a_review(tmp_path: Path) -> None:
    (tmp_path / "switchgear.yaml").write_text(
        f"store: sqlite:///{tmp_path}/state.db\n"
        "agents: {coder: {owner: ana, provider: p, model: m, stories: [S-1]}}\n"
    )
    circuit = "rules/coder"
    assert run(tmp_path, "fleet", "status")[0] == 0
    assert run(tmp_path, "incidents", "list") == (0, "No incidents.\n")
    with Fleet.from_config(load_config(tmp_path / "switchgear.yaml")) as fleet:
        fleet.panel.breaker(circuit).record(Signal(violation="rule x"))
        fleet.panel.breaker("story/S-1").record(Signal(cost_micros=16_000_000))
    code, text = run(tmp_path, "fleet", "status")
    assert (code, "agent coder (ana): halted" in text) == (1, True)
    # The program that tripped them has written them, at the latest when it closed its fleet.
    assert run(tmp_path, "fleet", "watch", "--once")[1].startswith("0 new incidents, 0 notif")
    listed = run(tmp_path, "incidents", "list")[1].splitlines()
    name = next(line for line in listed if circuit in line).split()[0]
    assert "# SEV1" in run(tmp_path, "incidents", "show", name)[1]
    assert json.loads(run(tmp_path, "incidents", "show", name, "--json")[1])["id"] == name
    assert json.loads(run(tmp_path, "incidents", "show", name[:-1], "--json")[1])["id"] == name
    newest = max(line.split()[0] for line in listed)
    assert json.loads(run(tmp_path, "incidents", "show", "last", "--json")[1])["id"] == newest
    assert "is ambiguous: 2 incidents begin with it" in run(tmp_path, "incidents", "show", "2")[1]
    closing = ("incidents", "close", name, "--why", "test", "--false-positive")
    assert run(tmp_path, *closing) == (0, f"{name}: closed as false positive\n")
    assert (
        run(tmp_path, "incidents", "add", "--false-negative", "provider/p", "--why", "down")[0] == 0
    )
    code, text = run(tmp_path, "review")
    assert "policy_violation: 1 trip, 1 false, 0 missed" in text
    assert "provider: 0 trips, 0 false, 1 missed" in text
    assert run(tmp_path, "hold", "open", "story/S-1", "--why", "wait")[0] == 0
    code, text = run(tmp_path, "fleet", "resume", "S-1", "--why", "worth it")
    assert (code, "but it stays held open by" in text) == (2, True)
    assert run(tmp_path, "release", "story/S-1", "--why", "on")[0] == 0
    assert run(tmp_path, "fleet", "resume", "S-1", "--why", "again")[0] == 2, "it goes on"
    assert run(tmp_path, "fleet", "route", "coder")[0] == 1


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["incidents", "show", "nothing"], "there is no incident 'nothing'"),
        (["incidents", "close", "../x", "--why", "y"], "is not an incident id"),
        (
            ["incidents", "add", "--false-negative", "x", "--why", "y"],
            "does not belong to the fleet",
        ),
        (["fleet", "route", "codr"], "there is no agent 'codr'; did you mean 'coder'?"),
        (["fleet", "resume", "S-9", "--why", "x"], "no costs are recorded for a task 'S-9'"),
        (["fleet", "deliver"], "names no targets"),
    ],
)
def test_an_impossible_request_is_one_sentence(
    tmp_path: Path, args: list[str], message: str
) -> None:
    (tmp_path / "switchgear.yaml").write_text(
        f"store: sqlite:///{tmp_path}/state.db\n"
        "agents: {coder: {owner: ana, provider: p, model: m}}\n"
    )
    done = CliRunner().invoke(main, [*args, "--config", str(tmp_path / "switchgear.yaml")])
    assert done.exit_code == 2
    assert message in done.output
    assert "Traceback" not in done.output


def test_incidents_need_no_fleet_in_the_configuration(tmp_path: Path) -> None:
    assert list(Incidents(str(tmp_path / "none")).all()) == []


def test_an_empty_id_is_not_the_start_of_the_only_incident() -> None:
    class One:
        def all(self) -> list[dict[str, str]]:
            return [{"id": "20261118-1"}]

    kept: Any = One()
    assert _full_id(kept, "") == ""
    assert _full_id(kept, "2026") == _full_id(kept, "last") == "20261118-1"
