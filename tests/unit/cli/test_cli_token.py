"""The operator token and the command: what a guarded agent cannot do with a separate configuration."""

import hashlib
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from switchgear._cli import main
from switchgear._stores.sqlite import fold

TOKEN = "swg_secret"
DIGEST = hashlib.sha256(TOKEN.encode()).hexdigest()


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project whose configuration requires a token, and an empty configuration beside it."""
    folder = tmp_path / "project"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setenv("HOME", str(tmp_path))
    for variable in ("SWITCHGEAR_STORE", "SWITCHGEAR_CONFIG", "SWITCHGEAR_TOKEN", "XDG_STATE_HOME"):
        monkeypatch.delenv(variable, raising=False)
    (folder / "switchgear.yaml").write_text(f"operator_token_sha256: '{DIGEST}'\n")
    (folder / "empty.yaml").write_text("{}\n")
    return folder


def run(*args: str, **env: str) -> Result:
    # Workers of a parallel test run have COLUMNS set.
    return CliRunner().invoke(main, args, env={"COLUMNS": "", **env})


ORDER = ("reset", "x", "--why", "y", "--create")


@pytest.mark.parametrize("first", [("record", "x", "failure"), ("check", "x", "--take"), ORDER])
def test_the_first_message_saves_the_digest_in_the_store(
    project: Path, first: tuple[str, ...]
) -> None:
    run(*first)
    refused = run("--config", "empty.yaml", *ORDER)
    assert refused.exit_code == 2, refused.output
    assert "only with the operator token" in refused.stderr
    assert run("--config", "empty.yaml", *ORDER, SWITCHGEAR_TOKEN=TOKEN).exit_code == 0


def test_a_refusal_names_the_operation(project: Path) -> None:
    run("record", "x", "failure")
    (project / "lines").write_text("")
    output = run("import", "lines").stderr
    assert output.startswith("switchgear: an import needs the operator token; pass --token-file")
    output = run("vacuum", "--keep-events", "1").stderr
    assert output.startswith("switchgear: a vacuum ")
    output = run("--config", "empty.yaml", "config", "seal", "--remove").stderr
    assert output.startswith(
        "switchgear: a change of the operator token needs the operator token; "
    )
    output = run(*ORDER).stderr
    assert output.startswith(
        "switchgear: circuit 'x' accepts overrides only with the operator token; "
    )


def event_count() -> int:
    return len(run("events", "--json", "-n", "100000").stdout.splitlines())


def test_another_configuration_does_not_let_a_vacuum_remove_events(
    project: Path,
) -> None:
    run("record", "x", "failure", "--count", "5")
    run("record", "y", "failure", "--count", "5")
    (project / "evil.yaml").write_text("retention: {events: 1, idle_days: 0.000001}\n")
    count = event_count()
    for arguments in (("--config", "evil.yaml", "vacuum"), ("vacuum", "--keep-events", "1")):
        refused = run(*arguments)
        assert refused.exit_code == 2
        assert "keeps less than 10,000 events or 30 days" in refused.stderr
    assert event_count() == count > 1
    assert run("vacuum").exit_code == 0, "the defaults are everybody's"
    assert run("vacuum", "--keep-events", "20000").exit_code == 0
    assert run("vacuum", "--keep-events", "1", SWITCHGEAR_TOKEN=TOKEN).exit_code == 0
    assert event_count() == 1


def test_another_configuration_does_not_let_a_record_remove_events(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fold, "TRIM_EVERY", 1)
    run("record", "x", "failure", "--count", "5")
    (project / "evil.yaml").write_text("retention: {events: 1}\n")
    run("--config", "evil.yaml", "record", "y", "failure", "--count", "5")
    assert event_count() == 2
    run("--config", "evil.yaml", "record", "z", "failure", "--count", "5", SWITCHGEAR_TOKEN=TOKEN)
    assert event_count() == 1


EVIL = """
policies:
  blind: {detectors: [consecutive_failures: {threshold: 1000}]}
circuits: [{match: "*", policy: blind}]
"""


def test_another_configuration_does_not_change_the_policy_of_a_circuit(project: Path) -> None:
    run("record", "x", "failure", "--count", "4")
    (project / "evil.yaml").write_text(EVIL)
    done = run("--config", "evil.yaml", "record", "x", "ignored")
    assert done.exit_code == 0
    assert "circuit 'x' uses its stored policy" in done.stderr
    run("--config", "evil.yaml", "record", "x", "failure")
    assert run("check", "x").exit_code == 1, "the fifth failure in a row opens it"
    assert run("--config", "evil.yaml", "check", "x", "--take").exit_code == 1


def test_a_run_that_may_not_use_shadow_mode_leaves_nothing_behind(project: Path) -> None:
    words = ("run", "do it", "--agent-cmd", "true", "--shadow")
    refused = run(*words)
    assert refused.exit_code != 0
    assert "accepts overrides only with the operator token" in refused.stderr
    assert not list(project.glob(".switchgear/runs/*"))
    run(*words, SWITCHGEAR_TOKEN=TOKEN)
    assert len(list(project.glob(".switchgear/runs/*"))) == 1


def test_with_the_token_the_configured_policy_replaces_the_stored_one(
    project: Path,
) -> None:
    run("record", "x", "failure")
    (project / "changed.yaml").write_text(EVIL)
    done = run("--config", "changed.yaml", "record", "x", "ignored", SWITCHGEAR_TOKEN=TOKEN)
    assert done.stderr == ""
    assert '"threshold": 1000' in run("show", "x", "--json").stdout


def test_where_no_token_is_required_the_configured_policy_applies(project: Path) -> None:
    (project / "switchgear.yaml").write_text("{}\n")
    run("record", "x", "failure")
    (project / "changed.yaml").write_text(EVIL)
    assert run("--config", "changed.yaml", "record", "x", "ignored").stderr == ""
    assert '"threshold": 1000' in run("show", "x", "--json").stdout


def test_the_doctor_names_circuits_with_another_policy(project: Path) -> None:
    run("record", "x", "failure")
    assert run("doctor").exit_code == 0
    (project / "changed.yaml").write_text(EVIL)
    done = run("--config", "changed.yaml", "doctor")
    assert done.exit_code == 1
    assert "1 circuit with another policy than the configured one, such as 'x'" in done.stdout


def test_a_refusal_marks_the_options_that_need_the_token(project: Path) -> None:
    run("record", "x", "failure", "--count", "5")
    output = run("check", "x").stdout
    assert "this needs the operator token" in output
    assert "switchgear hold closed x --why WHY --token-file FILE" in output
    output = run("check", "x", SWITCHGEAR_TOKEN=TOKEN).stdout
    assert "admit every call until you release it\n" in output
    assert "--token-file" not in output
