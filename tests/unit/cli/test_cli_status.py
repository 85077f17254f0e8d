"""`status`, `show`, `events`, `watch` over a panel in memory, with hostile names and any width."""

import json
from typing import Any

import pytest
from click.testing import CliRunner, Result
from rich.cells import cell_len

from switchgear._cli import main
from switchgear._core.policy import Cooldown, Policy, WeightedSum
from switchgear._core.types import Signal
from switchgear._detectors import ConsecutiveFailures, SameError
from switchgear._panel.panel import Panel
from switchgear.testing import FakeClock

HOSTILE = "x[red]/\x1b[2J\nevil\u202e"


class Shell:
    def __init__(self) -> None:
        self.clock = FakeClock()
        self.clock.advance(1_790_000_000)
        self.panel = Panel("memory:", clock=self.clock)

    def record(
        self, name: str, *, ok: bool = False, count: int = 1, error: str | None = None
    ) -> None:
        self.panel.breaker(name).record(Signal(ok=ok, count=count, error=error))

    def run(self, *args: str, **env: str) -> Result:
        # Workers of a parallel test run have COLUMNS set.
        return CliRunner().invoke(main, args, obj=self.panel, env={"COLUMNS": "", **env})


@pytest.fixture
def shell() -> Shell:
    return Shell()


def test_the_order_is_held_open_then_open_then_probing_then_by_heat(shell: Shell) -> None:
    shell.record("e/calm", ok=True)
    shell.record("d/warm", count=2)
    shell.record("c/probing", count=5)
    shell.clock.advance(60)
    shell.record("b/open", count=5)
    shell.record("a/calm", ok=True)
    shell.run("hold", "open", "f/held", "--create", "--why", "x")
    names = [line.split()[2] for line in shell.run("status").output.splitlines()[1:7]]
    assert names == ["open", "b/open", "c/probing", "d/warm", "a/calm", "e/calm"]


@pytest.mark.parametrize("columns", [20, 40, 64, 80, 120, 200])
def test_no_line_is_wider_than_the_terminal(shell: Shell, columns: int) -> None:
    shell.record("provider/" + "very-" * 40 + "long", count=5, error="word " * 80)
    shell.record("provider/日本語のモデル提供者/" + "長" * 50, count=5, error="長" * 90)
    shell.record(HOSTILE, count=1, error="x" * 300)
    shell.run("hold", "shadow", "*", "--why", "y" * 150, "--yes")
    for verb in (("status",), ("show", HOSTILE), ("events",)):
        output = shell.run(*verb, COLUMNS=str(columns)).output
        assert output
        for line in output.splitlines():
            assert cell_len(line) <= columns, line


def test_in_a_pipe_a_circuit_is_a_line_and_nothing_is_cut(shell: Shell) -> None:
    name = "provider/" + "very-" * 40 + "long"
    shell.record(name, count=5, error="529 overloaded")
    shell.record("a", ok=True)
    lines = shell.run("status").output.splitlines()
    assert name in lines[1]
    assert 'last "529 overloaded"; next try in 60 s' in lines[1]
    assert len(lines) == 5


def test_show_keeps_labels_and_values_apart(shell: Shell) -> None:
    careful = Policy([ConsecutiveFailures()], tripping_at=0.5)
    shell.panel.breaker("op/git", policy=careful).record(Signal(ok=False))
    assert "  tripping   from 50%" in shell.run("show", "op/git").output


@pytest.mark.parametrize("verb", ["status", "show", "events", "watch", "check"])
def test_hostile_names_and_errors_do_not_control_the_terminal(shell: Shell, verb: str) -> None:
    shell.record(HOSTILE, count=5, error="\x1b]0;owned\x07\r[bold]boo")
    arguments = {"show": [HOSTILE], "check": [HOSTILE], "watch": ["--times", "1"]}
    output = shell.run(verb, *arguments.get(verb, []), FORCE_COLOR="").output
    assert "x[red]/\\x1b[2J\\nevil\\u202e" in output
    for line in output.splitlines():
        assert line.isprintable()


def test_weights_of_other_circuits_than_sessions_are_shown_as_heat_with_a_score(
    shell: Shell,
) -> None:
    weights = WeightedSum({"consecutive_failures": 1, "same_error": 1}, threshold=2)
    detectors = [ConsecutiveFailures(2), SameError(9)]
    breaker = shell.panel.breaker("provider/p", Policy(detectors, Cooldown(60.0), weights))
    breaker.record(Signal(ok=False, count=2))
    assert "\nHeat 50%, score 1/2\n" in shell.run("show", "provider/p").output
    assert "50%" in shell.run("status").output.splitlines()[1]


def test_the_last_incident_of_none_is_reported(shell: Shell) -> None:
    done = shell.run("incidents", "show", "last")
    assert (done.exit_code, done.stderr) == (2, "switchgear: there are no incidents\n")


def test_heat_is_at_most_1_in_json(shell: Shell) -> None:
    shell.record("api", ok=True)
    shell.run("hold", "closed", "api", "--why", "it must go on")
    shell.record("api", count=9)  # the threshold is 5
    for command in ("status api", "show api", "check api", "record api failure"):
        found = json.loads(shell.run(*command.split(), "--json").output)
        row = found[0] if isinstance(found, list) else found
        assert row["heat"] == 1.0, command
        assert all(each["heat"] == 1.0 for each in row.get("detectors", ()))
    assert "100%" in shell.run("status").output


def test_json_is_ascii_and_has_the_exact_name(shell: Shell) -> None:
    shell.record(HOSTILE, count=5, error="zu groß")
    for verb in (["status", "--json"], ["show", HOSTILE, "--json"], ["check", HOSTILE, "--json"]):
        output = shell.run(*verb).output
        assert output.isascii()
        data: Any = json.loads(output)
        assert (data[0] if isinstance(data, list) else data)["name"] == HOSTILE


def test_many_circuits_without_problems_are_shown_only_with_all(shell: Shell) -> None:
    for number in range(60):
        shell.record(f"calm/{number:03}", ok=True)
    shell.record("open/1", count=5)
    short = shell.run("status").output
    assert "open/1" in short
    assert "11 more without problems (--all shows them)" in short
    assert "calm/059" in shell.run("status", "--all").output
    assert len(json.loads(shell.run("status", "--json").output)) == 61


def test_a_glob_without_a_match_is_distinguished_from_an_empty_store(shell: Shell) -> None:
    assert "No circuits yet" in shell.run("status").output
    shell.record("a/b", ok=True)
    assert "No circuit matches 'x*'" in shell.run("status", "x*").output
    assert json.loads(shell.run("status", "x*", "--json").output) == []


def test_events_are_listed_since_a_span_a_time_or_a_cursor(shell: Shell) -> None:
    shell.record("old", count=5)
    shell.clock.advance(7200)
    shell.record("new", count=5)

    def circuits(*options: str) -> list[str]:
        lines = shell.run("events", "--json", *options).output.splitlines()
        return [json.loads(line)["circuit"] for line in lines]

    assert circuits() == ["old", "new"]
    assert circuits("--since", "1h") == ["new"]
    assert circuits("--since", "3h") == ["old", "new"]
    assert circuits("--since", "3h", "--limit", "1") == ["new"]
    assert circuits("--since", "2026-01-01") == ["old", "new"]
    assert circuits("--since", "2099-01-01T10:00") == []
    first = json.loads(shell.run("events", "--json").output.splitlines()[0])
    assert circuits("--since", first["cursor"]) == ["new"]
    assert circuits("--limit", "1") == ["new"]
    assert circuits("--limit", "0") == []
    assert circuits("o*") == ["old"]


@pytest.mark.parametrize("since", ["", "soon", "1y", "-1h", "2026-13-01", "2026-11-15T99", "²h"])
def test_an_invalid_since_is_refused_in_a_sentence(shell: Shell, since: str) -> None:
    done = shell.run("events", "--since", since)
    assert done.exit_code == 2
    assert done.stderr.startswith("switchgear: --since is")


def test_the_history_of_a_circuit_is_its_own_even_with_stars_in_its_name(shell: Shell) -> None:
    shell.record("a*", count=5)
    shell.record("ab", count=5)
    data = json.loads(shell.run("show", "a*", "--json").output)
    assert [event["circuit"] for event in data["events"]] == ["a*"]


def test_watching_in_a_pipe_prints_a_line_for_each_circuit_that_changed(shell: Shell) -> None:
    shell.record("a", count=5)
    shell.record("b", ok=True)
    lines = shell.run("watch", "--times", "3", "--interval", "0.001").output.splitlines()
    assert len(lines) == 2
    assert "open  a" in lines[0]


@pytest.mark.parametrize("interval", ["0", "-1", "nan", "x"])
def test_an_interval_must_be_above_0(shell: Shell, interval: str) -> None:
    assert shell.run("watch", "--times", "1", "--interval", interval).exit_code == 2


def test_show_of_a_half_open_circuit_includes_the_probe_in_progress(shell: Shell) -> None:
    shell.record("a", count=5)
    shell.clock.advance(60)
    assert "now: the next call is the probe" in shell.run("show", "a").output
    shell.run("check", "a", "--take")
    assert "1 probe in progress, for at most 60 s more" in shell.run("show", "a").output


def test_overrides_are_shown_as_what_they_do(shell: Shell) -> None:
    shell.run("record", "api", "success")
    for order in (("hold", "closed"), ("hold", "shadow"), ("release",), ("reset",)):
        assert shell.run(*order, "api", "--why", "a test", "--by", "ada").exit_code == 0
    shown = shell.run("events", "api").output
    for words in ("held closed", "put in shadow", "released", "reset"):
        assert f"{words} by ada: a test" in shown
    assert "ordered" not in shown
