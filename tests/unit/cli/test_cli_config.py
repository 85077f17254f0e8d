"""`config check|show|schema|token|seal`, `doctor` and their exit codes, in a separate project."""

import hashlib
import json
import re
import stat
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from switchgear._cli import main
from switchgear._stores.memory import MemoryStore

TOKEN = "swg_secret"
DIGEST = hashlib.sha256(TOKEN.encode()).hexdigest()


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / ".git").mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setenv("HOME", str(tmp_path))
    for variable in ("SWITCHGEAR_STORE", "SWITCHGEAR_CONFIG", "SWITCHGEAR_TOKEN", "XDG_STATE_HOME"):
        monkeypatch.delenv(variable, raising=False)
    return folder


def run(*args: str, **env: str) -> Result:
    return CliRunner().invoke(main, args, env=env)


def test_check_reports_every_problem_with_file_and_line(project: Path) -> None:
    (project / "switchgear.yaml").write_text("stor: x\nretention: {events: 0}\n")
    done = run("config", "check")
    assert done.exit_code == 2
    assert done.stderr.splitlines() == [
        "switchgear: switchgear.yaml:1: stor: unknown key; did you mean 'store'?",
        next(line for line in done.stderr.splitlines() if "switchgear.yaml:2: retention" in line),
    ]
    assert run("status").exit_code == 2


def test_check_of_a_valid_file_lists_its_content(project: Path) -> None:
    (project / "other.yaml").write_text("circuits: [{match: 'op/*', policy: operation}]\n")
    done = run("config", "check", "other.yaml")
    assert done.output.startswith("other.yaml is valid\n")
    assert re.search(r"^  circuits  1: ", done.output, re.MULTILINE)
    assert run("config", "check").exit_code == 2, "there is none to be found"


def test_show_masks_secrets_and_names_each_source(project: Path) -> None:
    file = project / "switchgear.yaml"
    file.write_text(f"store: redis://user:hunter2@db/0\noperator_token_sha256: '{DIGEST}'\n")
    for done in (run("config", "show"), run("config", "show", "--json")):
        assert done.exit_code == 0
        assert "hunter2" not in done.output
        assert DIGEST not in done.output
        assert str(file) in done.output
    shown = json.loads(run("config", "show", "--json", SWITCHGEAR_STORE="memory:").output)
    assert shown["store"] == {"value": "memory:", "from": "SWITCHGEAR_STORE"}
    assert shown["operator_token_sha256"]["from"] == str(file)
    assert shown["retention"]["from"] == "default"


def test_show_has_the_fleet_and_where_its_notifications_go(project: Path) -> None:
    (project / "switchgear.yaml").write_text(
        "agents: {coder: {owner: ana, provider: p, model: m, fallback_models: [q/n]}}\n"
        "stories: {S-1: {owner: ben, budget_dollars: 3}}\n"
        "rules: {own: [{name: no-curl, commands: [curl]}]}\n"
        "notifications: [webhook: {url: 'https://me:hunter2@ops.example/hook'}]\n"
    )
    text = run("config", "show", "--json").output
    shown = {key: entry["value"] for key, entry in json.loads(text).items()}
    assert shown["agents"]["coder"]["models"] == ["p/m", "q/n"]
    assert shown["stories"] == {"S-1": {"owner": "ben", "budget_micros": 3_000_000}}
    assert shown["rules"][-1] == "no-curl"
    assert "hunter2" not in text


def test_show_prints_targets_as_in_the_file(project: Path) -> None:
    (project / "switchgear.yaml").write_text(
        "notifications:\n"
        "  - webhook: {name: ops, url: 'https://ops.example/hook', secret_env: HOOK_KEY}\n"
        "  - command: {name: pager, run: 'page --now', match: 'agent/*', timeout_s: 5}\n"
    )
    shown = json.loads(run("config", "show", "--json").output)["notifications"]["value"]
    assert shown == [
        {
            "webhook": {
                "match": "*",
                "name": "ops",
                "secret_env": "HOOK_KEY",
                "timeout_s": 10.0,
                "url": "https://ops.example/...",
            }
        },
        {"command": {"match": "agent/*", "name": "pager", "run": "page --now", "timeout_s": 5.0}},
    ]
    assert '  2: {"command": {"match": "agent/*", "name": "pager"' in run("config", "show").output


def test_show_and_check_print_sinks_as_in_the_file(project: Path) -> None:
    (project / "switchgear.yaml").write_text(
        f"sinks: [{{jsonl: {{path: '{project}/events.jsonl'}}}}, {{log: {{level: warning}}}}]\n"
    )
    shown = json.loads(run("config", "show", "--json").output)["sinks"]["value"]
    assert shown == [{"jsonl": {"path": f"{project}/events.jsonl"}}, {"log": {"level": "warning"}}]
    checked = run("config", "check").output
    assert f"sinks  2: jsonl {project}/events.jsonl; log warning\n" in checked


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://hooks.slack.example/services/T0/B0/hunter2", "https://hooks.slack.example/..."),
        ("http://127.0.0.1:8080?key=hunter2", "http://127.0.0.1:8080/..."),
        ("https://me:x@ops.example#hunter2", "https://ops.example/..."),
        (r"https://ops.example\hunter2", "https://ops.example/..."),
        ("https://ops.example/it's-hunter2", "https://ops.example/..."),
    ],
)
def test_show_prints_only_the_host_of_a_webhook(project: Path, url: str, shown: str) -> None:
    (project / "switchgear.yaml").write_text(
        f"notifications: [webhook: {{url: {json.dumps(url)}}}]\n"
    )
    for flags in ([], ["--json"]):
        text = run("config", "show", *flags).output
        assert f'"url": "{shown}"' in text
        assert "hunter2" not in text


@pytest.mark.usefixtures("project")
def test_the_schema_is_a_json_schema() -> None:
    schema = json.loads(run("config", "schema").output)
    assert "$schema" in schema
    assert "store" in schema["properties"]


def test_a_new_token_matches_its_printed_digest_and_is_never_overwritten(project: Path) -> None:
    line = run("config", "token", "-o", "token").output.strip()
    token = (project / "token").read_text().strip()
    assert line == f'operator_token_sha256: "{hashlib.sha256(token.encode()).hexdigest()}"'
    assert stat.S_IMODE((project / "token").stat().st_mode) == 0o600
    again = run("config", "token", "-o", "token")
    assert again.exit_code == 2
    assert (project / "token").read_text().strip() == token
    assert run("config", "token").output != run("config", "token").output


def findings(done: Result) -> dict[str, list[str]]:
    levels: dict[str, list[str]] = {}
    for finding in json.loads(done.output)["findings"]:
        levels.setdefault(finding["level"], []).append(finding["what"])
    return levels


def test_the_doctor_finds_no_problems_in_a_new_project_and_creates_no_file(project: Path) -> None:
    done = run("doctor")
    assert done.exit_code == 0, done.output
    assert "no problems found" in done.output
    assert not (project / ".switchgear").exists()


def test_the_doctor_shows_the_facts_of_the_store(project: Path) -> None:
    run("record", "a", "success")
    done = run("doctor", "--json")
    assert done.exit_code == 0
    good = " ".join(findings(done)["good"])
    assert "integrity ok" in good
    assert "circuits 1" in good
    assert "has mode 0600" in good


def test_the_doctor_warns_of_a_file_that_others_can_read(project: Path) -> None:
    run("record", "a", "success")
    (project / ".switchgear" / "state.db").chmod(0o644)
    done = run("doctor", "--json")
    assert done.exit_code == 1
    assert "mode 0644" in findings(done)["warning"][0]


def test_the_doctor_reports_a_damaged_file_that_was_set_aside(project: Path) -> None:
    run("record", "a", "success")
    (project / ".switchgear" / "state.db").write_bytes(b"not a database" * 1000)
    for side in ("-wal", "-shm"):
        (project / ".switchgear" / f"state.db{side}").unlink(missing_ok=True)
    run("record", "a", "success")
    done = run("doctor", "--json")
    assert done.exit_code == 1, done.output
    assert any("set aside" in what for what in findings(done)["warning"])


def test_the_doctor_calls_a_bad_configuration_a_problem(project: Path) -> None:
    (project / "switchgear.yaml").write_text("stor: x\n")
    done = run("doctor")
    assert done.exit_code == 2
    assert "switchgear.yaml:1: stor: unknown key" in done.output
    assert "1 problem, 0 warnings" in done.output


@pytest.mark.parametrize("url", ["redis://127.0.0.1:1/0", "sqlite:///file/x.db", "ftp://x"])
def test_the_doctor_calls_a_store_that_cannot_be_used_a_problem(project: Path, url: str) -> None:
    (project / "file").touch()
    done = run("doctor", "--store", url)
    assert done.exit_code == 2
    assert "Traceback" not in done.output


def test_the_doctor_checks_the_token(project: Path) -> None:
    (project / "switchgear.yaml").write_text(f"operator_token_sha256: '{DIGEST}'\n")
    assert run("doctor").exit_code == 0
    exposed = findings(run("doctor", "--json", SWITCHGEAR_TOKEN=TOKEN))["warning"]
    assert len(exposed) == 1
    assert "agents included, can read it" in exposed[0]
    wrong = findings(run("doctor", "--json", SWITCHGEAR_TOKEN="x"))["warning"]
    assert any("does not match" in what for what in wrong)


def test_the_doctor_reports_a_token_that_others_can_read(project: Path) -> None:
    (project / "switchgear.yaml").write_text(f"operator_token_sha256: '{DIGEST}'\n")
    token = project / "token"
    token.write_text(TOKEN + "\n")
    token.chmod(0o644)
    warned = findings(run("doctor", "--json", "--token-file", "token"))["warning"]
    assert warned == ["others can read the token in token"]
    token.chmod(0o600)
    assert run("doctor", "--token-file", "token").exit_code == 0


def test_the_doctor_reports_a_configuration_that_is_writable_by_everyone(project: Path) -> None:
    file = project / "switchgear.yaml"
    file.write_text("{}\n")
    file.chmod(0o666)
    done = run("doctor")
    assert done.exit_code == 2
    assert "is writable by everyone" in done.output


def configure(project: Path, token: str | None) -> None:
    digest = "" if token is None else hashlib.sha256(token.encode()).hexdigest()
    (project / "switchgear.yaml").write_text(digest and f"operator_token_sha256: '{digest}'\n")


def hold(token: str) -> int:
    order = ("hold", "open", "a", "--why", "x", "--create")
    return run(*order, SWITCHGEAR_TOKEN=token).exit_code


def test_a_sealed_store_requires_its_token_whatever_the_configuration_has(project: Path) -> None:
    configure(project, TOKEN)
    assert run("config", "seal").exit_code == 2, "sealing is an order"
    done = run("config", "seal", SWITCHGEAR_TOKEN=TOKEN)
    assert "overrides need the configured operator token from now on" in done.output
    for other in (None, "another"):
        configure(project, other)
        assert [hold("another"), hold(TOKEN)] == [2, 0]


def test_a_new_token_is_sealed_with_the_old_one(project: Path) -> None:
    configure(project, TOKEN)
    run("config", "seal", SWITCHGEAR_TOKEN=TOKEN)
    configure(project, "new")
    assert run("config", "seal", SWITCHGEAR_TOKEN="new").exit_code == 2
    assert run("config", "seal", SWITCHGEAR_TOKEN=TOKEN).exit_code == 0
    assert [hold(TOKEN), hold("new")] == [2, 0]


def test_a_seal_is_removed_with_its_token_and_not_while_it_is_configured(project: Path) -> None:
    configure(project, TOKEN)
    run("config", "seal", SWITCHGEAR_TOKEN=TOKEN)
    still_configured = run("config", "seal", "--remove", SWITCHGEAR_TOKEN=TOKEN)
    assert still_configured.exit_code == 2
    assert "remove operator_token_sha256 from" in still_configured.stderr
    configure(project, None)
    assert run("config", "seal").exit_code == 2
    assert run("config", "seal", "--remove").exit_code == 2
    assert run("config", "seal", "--remove", SWITCHGEAR_TOKEN=TOKEN).exit_code == 0
    assert hold("") == 0


@pytest.mark.parametrize(("other", "said"), [(None, "does not have"), ("b", "another operator")])
def test_the_doctor_reports_a_store_that_needs_another_token_than_the_configured_one(
    project: Path, other: str | None, said: str
) -> None:
    configure(project, TOKEN)
    run("config", "seal", SWITCHGEAR_TOKEN=TOKEN)
    assert run("doctor").exit_code == 0
    configure(project, other)
    assert any(said in what for what in findings(run("doctor", "--json"))["warning"])


def test_the_doctor_warns_of_settings_of_a_server_that_endanger_circuits(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    facts = {
        "server": "redis 7.2",
        "eviction": "allkeys-lru: WARNING, a full server forgets circuits; use noeviction",
        "persistence": "WARNING, none: a restart loses every circuit",
    }
    monkeypatch.setattr(MemoryStore, "facts", lambda _: facts)
    done = run("doctor", "--store", "memory:", "--json")
    assert done.exit_code == 1
    found = [
        finding for finding in json.loads(done.stdout)["findings"] if "store: " in finding["what"]
    ]
    assert [(each["level"], each["what"], each["to_do"]) for each in found] == [
        (
            "warning",
            "store: eviction allkeys-lru: a full server forgets circuits",
            "use noeviction",
        ),
        ("warning", "store: persistence none: a restart loses every circuit", ""),
    ]
    good = [each for each in json.loads(done.stdout)["findings"] if each["level"] == "good"]
    assert not any("WARNING" in each["what"] for each in good)
    assert any("server redis 7.2" in each["what"] for each in good)
