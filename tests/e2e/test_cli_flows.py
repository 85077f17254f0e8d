"""The real command in processes of its own, over a SQLite file, for a user with an empty home."""

import json
import os
import signal
import sqlite3
import stat
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

import quick_command
from timeouts import LIMIT_S

Done = subprocess.CompletedProcess[str]
Run = Callable[..., Done]


def environment(home: Path, **more: str) -> dict[str, str]:
    kept = {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "LANG": "C.UTF-8",
        "SWITCHGEAR_TRUST": "1",
    }
    return {**kept, "PYTHONUTF8": "1", **more}


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Runs `switchgear` with these arguments in an empty project."""
    home, project = tmp_path / "home", tmp_path / "project"
    home.mkdir()
    project.mkdir()
    (project / ".git").mkdir()

    def call(*args: str, given: str | None = None, **more: str) -> Done:
        return quick_command.run(*args, cwd=project, env=environment(home, **more), given=given)

    return call


def trip(run: Run, name: str = "provider/anthropic") -> Done:
    return run("record", name, "failure", "--count", "5", "--error", "529 overloaded")


def test_reading_an_empty_project_reports_it_and_creates_no_file(run: Run, tmp_path: Path) -> None:
    done = run("status")
    assert done.returncode == 0
    assert "No circuits yet" in done.stdout
    assert "switchgear record" in done.stdout
    assert not (tmp_path / "project" / ".switchgear").exists()


def test_processes_share_a_circuit_from_the_first_failure_to_the_trip(
    run: Run, tmp_path: Path
) -> None:
    for _ in range(4):
        assert run("record", "provider/anthropic", "failure", "--error", "529").returncode == 0
    assert run("check", "provider/anthropic").returncode == 0
    fifth = run("record", "provider/anthropic", "failure", "--error", "529 overloaded")
    assert fifth.returncode == 0
    assert "closed → open: 5 failures in a row (threshold 5); next try in 60 s" in fifth.stdout
    refused = run("check", "provider/anthropic")
    assert refused.returncode == 1
    assert 'last "529 overloaded"; retries in' in refused.stdout
    for option in ("wait", "force", "skip", "abort"):
        assert f"\n  {option}" in refused.stdout
    assert "switchgear hold closed provider/anthropic --why WHY" in refused.stdout
    file = tmp_path / "project" / ".switchgear" / "state.db"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_status_shows_problems_first_in_a_table_and_as_json(run: Run) -> None:
    run("record", "a/calm", "success", "--count", "20")
    trip(run)
    lines = run("status").stdout.splitlines()
    assert lines[1].startswith("○ open       provider/anthropic")
    assert "████████ 100%" in lines[1]
    assert 'last "529 overloaded"; next try in' in lines[1]
    assert lines[2].startswith("● closed     a/calm")
    assert lines[-1].startswith("2 circuits: 1 open, 1 closed")
    first, second = json.loads(run("status", "--json").stdout)
    assert (first["name"], first["phase"], first["admits"]) == ("a/calm", "closed", True)
    assert (second["heat"], second["last_error"]) == (1.0, "529 overloaded")
    assert second["totals"]["failed"] == 5
    assert 0 < second["retry_after_s"] <= 60
    assert [each["name"] for each in json.loads(run("status", "a/*", "--json").stdout)] == [
        "a/calm"
    ]


def test_show_has_state_heat_evidence_policy_and_history(run: Run) -> None:
    trip(run)
    page = run("show", "provider/anthropic").stdout
    for part in (
        "○ open  provider/anthropic",
        "next probe in ",
        "consecutive_failures  ██████████ 100%  5 failures in a row (threshold 5)",
        "529 overloaded",
        "cooldown: base_s 60, max_s 300",
        "closed → open",
        "held       no",
    ):
        assert part in page, part
    data = json.loads(run("show", "provider/anthropic", "--json").stdout)
    assert data["detectors"][0]["heat"] == 1.0
    assert data["policy"]["recovery"]["base_s"] == 60.0
    assert [event["kind"] for event in data["events"]] == ["moved"]
    missing = run("show", "provider/antropic")
    assert missing.returncode == 2
    assert "did you mean 'provider/anthropic'?" in missing.stderr


def test_an_operator_holds_releases_and_resets_with_name_and_reason(run: Run) -> None:
    trip(run)
    name = "provider/anthropic"
    nobody_said_why = run("hold", "closed", name)
    assert nobody_said_why.returncode == 2
    assert "--why" in nobody_said_why.stderr
    held = run("hold", "closed", name, "--why", "demo day", "--by", "ada")
    assert held.stdout == f"{name}: held closed by ada: demo day; phase open\n"
    assert run("check", name).returncode == 0
    assert run("release", name, "--why", "over", "--by", "ada").returncode == 0
    assert run("check", name).returncode == 1
    assert "nothing to do" in run("release", name, "--why", "twice").stdout
    assert run("reset", name, "--why", "provider says it is back", "--by", "ada").returncode == 0
    assert run("check", name).returncode == 0
    told = [json.loads(line) for line in run("events", "--json").stdout.splitlines()]
    assert [(event["by"], event["why"]) for event in told if event["kind"] == "ordered"] == [
        ("ada", "demo day"),
        ("ada", "over"),
        ("ada", "provider says it is back"),
    ]


def test_overrides_require_the_operator_token_if_one_is_configured(
    run: Run, tmp_path: Path
) -> None:
    project = tmp_path / "project"
    line = run("config", "token", "-o", "../token").stdout
    (project / "switchgear.yaml").write_text(line)
    token = tmp_path / "token"
    assert stat.S_IMODE(token.stat().st_mode) == 0o600
    trip(run)
    exported = run("export").stdout
    for order in (
        ("hold", "closed", "provider/anthropic", "--why", "let me"),
        ("release", "provider/anthropic", "--why", "let me"),
        ("reset", "provider/anthropic", "--why", "let me"),
        ("import", "-"),
        ("vacuum", "--keep-events", "1"),
    ):
        refused = run(*order, given=exported)
        assert refused.returncode == 2, order
        assert "operator token" in refused.stderr
    assert run("reset", "*", "--why", "x", SWITCHGEAR_TOKEN="wrong").returncode == 2
    assert run("check", "provider/anthropic").returncode == 1
    allowed = run("reset", "provider/anthropic", "--why", "mine", "--token-file", str(token))
    assert allowed.returncode == 0
    told = run(
        "hold",
        "open",
        "provider/anthropic",
        "--why",
        "x",
        SWITCHGEAR_TOKEN=token.read_text().strip(),
    )
    assert told.returncode == 0
    assert "--token " not in run("hold", "--help").stdout


QUICK = """circuits:
  - match: provider/*
    policy:
      detectors: [{consecutive_failures: {threshold: 5}}]
      recovery: {cooldown: {base_s: 0.01, max_s: 0.01, lease_s: 600}}
"""


def test_a_probe_taken_by_one_process_is_reported_by_another(run: Run, tmp_path: Path) -> None:
    (tmp_path / "project" / "switchgear.yaml").write_text(QUICK)
    run("record", "provider/x", "failure", "--count", "5")
    taken = run("check", "provider/x", "--take")
    assert taken.returncode == 0
    token = taken.stdout.strip()
    assert run("check", "provider/x", "--take").returncode == 1, "there is one probe"
    other = run("record", "provider/y", "success", "--permit", token)
    assert other.returncode == 2
    assert "another circuit" in other.stderr
    closed = run("record", "provider/x", "success", "--permit", token)
    assert "half-open → closed: probe succeeded" in closed.stdout
    late = run("record", "provider/x", "failure", "--permit", token)
    assert "not used as evidence" in late.stdout


def test_reading_does_not_take_the_probe(run: Run) -> None:
    run("record", "provider/x", "failure", "--count", "5", "--retry-after", "0.01")
    assert run("check", "provider/x").returncode == 0
    assert run("check", "provider/x").returncode == 0
    assert run("check", "provider/x", "--take").returncode == 0


def test_an_export_is_imported_exactly(run: Run, tmp_path: Path) -> None:
    trip(run)
    run("record", "op/日本", "success", "--cost", "0.0125", "--seconds", "1.5")
    run("hold", "shadow", "op/日本", "--why", "trying")
    assert run("export", "-o", "../out.jsonl").returncode == 0
    out = tmp_path / "out.jsonl"
    assert stat.S_IMODE(out.stat().st_mode) == 0o600
    store = f"sqlite:///{tmp_path}/other.db"
    taken = run("import", "../out.jsonl", "--store", store)
    assert taken.stdout == "2 circuits imported, 0 kept unchanged (as new or newer)\n"
    assert run("export", "--store", store).stdout == out.read_text()
    again = run("import", "-", "--store", store, given=out.read_text())
    assert again.stdout == "0 circuits imported, 2 kept unchanged (as new or newer)\n"


@pytest.mark.parametrize(
    "mending",
    [("record", "a", "success"), ("reset", "a", "--why", "damaged"), ("check", "a", "--take")],
    ids=lambda verb: verb[0],
)
def test_a_damaged_circuit_hides_no_other_and_can_be_repaired(
    run: Run, tmp_path: Path, mending: tuple[str, ...]
) -> None:
    run("record", "a", "success")
    run("record", "b", "success")
    with closing(sqlite3.connect(tmp_path / "project" / ".switchgear" / "state.db")) as db, db:
        db.execute("UPDATE circuits SET state = '{}' WHERE key = 'a'")
    seen = run("status")
    assert seen.returncode == 2
    assert "● closed     b" in seen.stdout
    assert "'a': its stored state cannot be read" in seen.stderr
    assert run("show", "a").returncode == 2
    assert run(*mending).returncode == 0
    assert run("status").returncode == 0
    told = json.loads(run("events", "a", "--json").stdout.splitlines()[0])
    assert told["kind"] == "state_unreadable"


def test_vacuum_removes_old_events(run: Run) -> None:
    trip(run)
    for why in ("a", "b", "c"):
        run("hold", "shadow", "provider/anthropic", "--why", why)
    assert run("vacuum", "--keep-events", "1").stdout == "removed 0 circuits and 3 events\n"
    assert len(run("events", "--json").stdout.splitlines()) == 1


def test_the_option_precedes_the_environment_and_the_environment_the_configuration(
    run: Run, tmp_path: Path
) -> None:
    config = tmp_path / "project" / "switchgear.yaml"
    config.write_text(f"store: sqlite:///{tmp_path}/config.db\n")
    variable, flag = f"sqlite:///{tmp_path}/env.db", f"sqlite:///{tmp_path}/flag.db"
    run("record", "in/config", "success")
    run("record", "in/env", "success", SWITCHGEAR_STORE=variable)
    run("record", "in/flag", "success", "--store", flag, SWITCHGEAR_STORE=variable)
    run("--store", flag, "record", "in/flag2", "success")

    def names(*options: str, **more: str) -> list[str]:
        shown = json.loads(run("status", "--json", *options, **more).stdout)
        return [each["name"] for each in shown]

    assert names() == ["in/config"]
    assert names(SWITCHGEAR_STORE=variable) == ["in/env"]
    assert names("--store", flag, SWITCHGEAR_STORE=variable) == ["in/flag", "in/flag2"]
    shown = json.loads(run("config", "show", "--json", SWITCHGEAR_STORE=variable).stdout)
    assert shown["store"] == {"value": variable, "from": "SWITCHGEAR_STORE"}


def test_the_configured_policy_evaluates_what_is_recorded(run: Run, tmp_path: Path) -> None:
    (tmp_path / "project" / "switchgear.yaml").write_text(
        "circuits: [{match: op/*, policy: operation}]\n"
    )
    checked = run("config", "check")
    assert checked.returncode == 0, checked.stderr
    assert (
        "closed → open: 3 failures in" in run("record", "op/git", "failure", "--count", "3").stdout
    )


def test_a_closed_pipe_prints_no_error(run: Run, tmp_path: Path) -> None:
    trip(run)
    command = f"{sys.executable} -m switchgear export | head -c 1"
    done = subprocess.run(
        ["bash", "-c", command + '; echo ":${PIPESTATUS[0]}"'],
        cwd=tmp_path / "project",
        env=environment(tmp_path / "home"),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr == ""
    assert done.stdout in {"{:0\n", "{:141\n"}


def test_following_shows_what_happens_until_ctrl_c(run: Run, tmp_path: Path) -> None:
    trip(run)
    process = subprocess.Popen(
        [sys.executable, "-m", "switchgear", "events", "--follow", "--json"],
        cwd=tmp_path / "project",
        env=environment(tmp_path / "home", PYTHONUNBUFFERED="1"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    watchdog = threading.Timer(LIMIT_S, process.kill)
    watchdog.start()
    try:
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["kind"] == "moved"
        run("hold", "open", "provider/anthropic", "--why", "now")
        assert json.loads(process.stdout.readline())["why"] == "now"
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate()
    finally:
        watchdog.cancel()
        process.kill()
    assert process.returncode == 130
    assert "Traceback" not in errors


def test_an_ascii_terminal_gets_ascii(run: Run) -> None:
    run("record", "op/日本", "failure", "--error", "zu groß")
    for verb in (("status",), ("show", "op/日本"), ("events",), ("doctor",), ("check", "op/日本")):
        done = run(*verb, PYTHONIOENCODING="ascii", PYTHONUTF8="0", LC_ALL="C")
        assert done.returncode == 0, done.stderr
        assert done.stdout.isascii()
        assert "Traceback" not in done.stderr


def test_the_help_of_the_command_loads_nothing_heavy(run: Run, tmp_path: Path) -> None:
    script = (
        "import sys\nfrom switchgear._cli import main\n"
        "try: main(['--help'], prog_name='switchgear')\nexcept SystemExit: pass\n"
        "print(*sys.modules, file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    loaded = set(done.stderr.split())
    assert "Usage: switchgear" in done.stdout
    assert not loaded & {"rich", "yaml", "sqlite3", "redis", "asyncio", "switchgear.config"}


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_prints_a_script(run: Run, shell: str) -> None:
    done = run("completion", shell)
    assert done.returncode == 0
    assert "_SWITCHGEAR_COMPLETE" in done.stdout


def test_names_of_circuits_complete_from_the_store(run: Run) -> None:
    run("record", "provider/anthropic", "success")
    run("record", "op/git", "success")
    asked = {"_SWITCHGEAR_COMPLETE": "bash_complete", "COMP_CWORD": "2"}
    done = run(COMP_WORDS="switchgear show pro", **asked)
    assert done.stdout.split() == ["plain,provider/anthropic"]
