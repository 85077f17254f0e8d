"""A damaged store file and the verbs that only read: a circuit whose state is lost is never shown as closed."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from switchgear._cli import main
from switchgear._core.errors import StoreCorrupt
from switchgear._panel.panel import Panel

STRICT = """
policies: {careful: {extends: provider, strict: true}}
circuits: [{match: "strict/*", policy: careful}]
"""


def run(*args: str) -> Result:
    # Workers of a parallel test run have COLUMNS set.
    return CliRunner().invoke(main, args, env={"COLUMNS": ""})


@pytest.fixture
def damaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The path of a store that was damaged while a circuit was open."""
    (tmp_path / "switchgear.yaml").write_text(STRICT)
    monkeypatch.chdir(tmp_path)
    for variable in ("SWITCHGEAR_STORE", "SWITCHGEAR_CONFIG", "SWITCHGEAR_TOKEN"):
        monkeypatch.delenv(variable, raising=False)
    for name in ("api", "strict/api"):
        run("record", name, "failure", "--count", "50")
    assert run("check", "api").exit_code == 1
    file = tmp_path / ".switchgear" / "state.db"
    file.write_bytes(b"\x9d" * 12_288)
    for side in ("-wal", "-shm"):
        file.with_name(file.name + side).unlink(missing_ok=True)
    return file


def test_check_of_a_strict_circuit_whose_state_is_lost_refuses(damaged: Path) -> None:
    refused = run("check", "strict/api")
    assert refused.exit_code == 1, refused.output
    assert "held open by switchgear: a damaged file was set aside as" in refused.stdout
    assert run("check", "strict/other").exit_code == 1, "also of one that nobody remembers"


def test_check_of_another_circuit_admits_and_reports_that_its_state_is_lost(damaged: Path) -> None:
    for _ in range(2):  # the second check has nothing left to set aside
        admitted = run("check", "api")
        assert admitted.exit_code == 0
        assert "the state of 'api' is lost: store sqlite:///" in admitted.stderr
        assert "set aside as" in admitted.stderr
        assert "no results are recorded yet" not in admitted.stdout


@pytest.mark.parametrize("verb", [["status"], ["show", "api"], ["events"], ["export"]])
def test_verbs_that_read_report_that_state_was_lost(damaged: Path, verb: list[str]) -> None:
    for _ in range(2):
        done = run(*verb)
        assert done.exit_code == 2, done.output
        assert "a damaged file was set aside as" in done.stderr
        assert "No circuits yet" not in done.stdout


def test_readable_circuits_are_still_shown(damaged: Path) -> None:
    run("record", "new", "success")
    done = run("status", "--json")
    assert [circuit["name"] for circuit in json.loads(done.stdout)] == ["new"]
    assert done.exit_code == 2
    assert '"new"' in run("export").stdout
    assert "new" in run("watch", "--times", "1").stdout
    for known in (["status", "new"], ["show", "new"], ["check", "new"]):
        assert run(*known).exit_code == 0, "nothing of this one is missing"


def test_without_the_file_that_was_set_aside_there_is_no_warning(damaged: Path) -> None:
    run("status")
    for aside in damaged.parent.glob("*.corrupt-*"):
        aside.unlink()
    for verb in (["status"], ["events"], ["export"], ["check", "strict/api"]):
        assert run(*verb).exit_code == 0


def test_a_kill_after_the_file_was_set_aside_does_not_look_like_a_new_project(
    damaged: Path,
) -> None:
    damaged.rename(damaged.with_name("state.db.corrupt-20260101T000000.000000Z"))
    assert run("check", "strict/api").exit_code == 1
    assert run("status").exit_code == 2


def test_a_panel_reports_what_was_lost(damaged: Path) -> None:
    with Panel(f"sqlite:///{damaged}") as panel:
        assert isinstance(panel.lost(), StoreCorrupt)
        with pytest.raises(StoreCorrupt, match="set aside"):
            panel.view("api")
        with pytest.raises(StoreCorrupt, match="set aside"):
            list(panel)
    with Panel("memory:") as panel:
        assert panel.lost() is None
