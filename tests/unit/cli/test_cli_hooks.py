"""`switchgear hooks install|status|uninstall|doctor`: their output and effect, in a project."""

import hashlib
import json
import stat
import tempfile
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from depth import some_of
from switchgear._agents.codex.agent import Trust, ask_codex
from switchgear._analysis.selftest.hook_trials import AFTER, BEFORE, read, sample
from switchgear._cli import main
from switchgear._hooks.command import AGENTS
from switchgear._hooks.install import saved_copies
from switchgear._hooks.install.settings import HOOKED

TOKEN = "swg_secret"
SEALED = f"operator_token_sha256: '{hashlib.sha256(TOKEN.encode()).hexdigest()}'\n"
CODEX = """#!/bin/sh
cat > /dev/null &
ls "$CODEX_HOME" | head -n 1 | tr -d '\\n' > "$0.saw"
touch "$CODEX_HOME/state"
printf '%s\\n' '{"id": 1, "result": {}}' '{"method": "notice"}'
printf '{"id": 2, "result": {"data": [{"hooks": [%s]}]}}\\n' "$(cat "$0.hooks")"
exec sleep 60
"""


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / ".git").mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:/usr/bin:/bin")
    ours = ("SWITCHGEAR_STORE", "SWITCHGEAR_CONFIG", "SWITCHGEAR_TOKEN", "XDG_STATE_HOME")
    theirs = [agent.home_variable for agent in HOOKED.values()]
    for variable in (*ours, *theirs, "CLAUDE_PROJECT_DIR"):
        monkeypatch.delenv(variable, raising=False)
    return folder


def run(*words: str) -> Result:
    return CliRunner().invoke(main, ["hooks", *words])


def settings(project: Path, text: str) -> Path:
    path = project / ".claude" / "settings.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    return path


def test_install_prints_its_changes_and_the_remaining_steps(project: Path) -> None:
    settings(project, '{"model": "opus"}')
    lines = run("install", "claude-code").output.splitlines()
    assert lines[0] == "Claude Code: the hooks are installed in ./.claude/settings.json"
    assert lines[1].startswith("  events   PreToolUse, PostToolUse, ")
    assert lines[2].endswith(f"entry.py claude-code --root {project}")
    assert lines[3].startswith("  backup   ~/.local/state/switchgear/hooks/settings.json-")
    assert lines[-1] == "  'switchgear hooks doctor claude-code' tests them."
    again = run("install", "claude-code").output.splitlines()
    assert again[0] == "Claude Code: the hooks are installed already in ./.claude/settings.json"
    assert not any("backup" in line for line in again)


def test_broken_settings_are_an_error_and_stay_unchanged(project: Path) -> None:
    path = settings(project, '{"model": "opus",}')
    done = run("install", "claude-code")
    assert done.exit_code != 0
    assert path.read_text() == '{"model": "opus",}'
    whole = CliRunner().invoke(main, ["hooks", "install", "claude-code"], standalone_mode=True)
    assert whole.exit_code == 2
    assert whole.stderr.startswith(f"switchgear: {path}: invalid JSON at ")
    assert "line 1, column 18" in whole.stderr


def test_both_scopes_at_once_are_refused() -> None:
    assert run("install", "codex", "--scope", "user").exit_code == 0
    done = run("install", "codex")
    assert done.exit_code == 2
    assert (
        "already installed in scope user, in ~/.codex/hooks.json; both would count" in done.stderr
    )
    assert "'switchgear hooks uninstall codex --scope user' removes those" in done.stderr


@pytest.mark.parametrize("name", ["claude", "Claude", "Claude Code", "claude_code", "cc"])
def test_other_names_of_an_agent_are_accepted(project: Path, name: str) -> None:
    assert run("install", name).output.startswith("Claude Code: the hooks are installed")


def test_a_misspelt_agent_is_recognised() -> None:
    done = run("install", "gemnii")
    assert done.exit_code == 2
    assert "did you mean 'gemini'?" in done.stderr
    other = run("install", "aider")
    assert (other.exit_code, "did you mean" in other.stderr) == (2, False)


def test_local_settings_are_this_checkout_s_alone(project: Path) -> None:
    assert run("install", "claude", "--scope", "local").exit_code == 0
    assert "PreToolUse" in (project / ".claude" / "settings.local.json").read_text()
    assert not (project / ".claude" / "settings.json").exists()
    refused = run("install", "claude")
    assert refused.exit_code == 2
    assert "already installed in scope local" in refused.stderr
    other = run("uninstall", "claude").output
    assert "'switchgear hooks uninstall claude-code --scope local' removes them" in other
    examined = " ".join(run("doctor", "claude", "--scope", "local").output.split())
    assert "10 of 10 events, for the project, on this machine only" in examined
    assert run("uninstall", "claude", "--scope", "local").exit_code == 0
    assert not (project / ".claude" / "settings.local.json").exists()


def test_an_agent_without_local_settings_is_an_error() -> None:
    done = run("install", "codex", "--scope", "local")
    assert done.exit_code == 2
    assert "Codex has no local settings; use --scope project or --scope user" in done.stderr


def test_uninstall_restores_the_previous_settings(project: Path) -> None:
    path = settings(project, '{"model": "opus"}')
    run("install", "claude-code")
    done = run("uninstall", "claude-code")
    assert done.exit_code == 0
    first = done.output.splitlines()[0]
    assert first == (
        "Claude Code: the hooks were removed from ./.claude/settings.json; "
        "everything else in it is unchanged"
    )
    assert path.read_text() == '{"model": "opus"}'
    done = run("uninstall", "claude-code")
    assert done.exit_code == 0
    assert (
        done.output == "Claude Code: there are no hooks of Switchgear in ./.claude/settings.json\n"
    )


def test_removing_hooks_needs_the_operator_token_where_one_is_configured(
    project: Path, tmp_path: Path
) -> None:
    (project / "switchgear.yaml").write_text(SEALED)
    run("install", "gemini")
    done = run("uninstall", "gemini")
    assert done.exit_code == 2
    assert "removing the hooks of Gemini CLI needs the operator token" in done.stderr
    assert (project / ".gemini" / "settings.json").exists()
    token = tmp_path / "token"
    token.write_text(TOKEN)
    assert run("uninstall", "gemini", "--token-file", str(token)).exit_code == 0
    assert not (project / ".gemini").exists()


def test_status_lists_every_agent_and_scope(project: Path) -> None:
    run("install", "codex")
    lines = run("status").output.splitlines()
    assert len(lines) == 2 * len(AGENTS) + 1, "Claude Code has local settings, too"
    assert lines[3].split() == [
        "codex",
        "project",
        "./.codex/hooks.json",
        "8",
        "events,",
        "current",
    ]
    assert lines[4].split()[-2:] == ["not", "installed"]
    assert run("status").exit_code == 0
    assert run("status", "codex").exit_code == 0
    assert run("status", "pi").exit_code == 1, "it is not installed"


def test_status_can_be_limited_to_one_scope() -> None:
    run("install", "codex")
    assert run("status", "codex", "--scope", "project").output.count("\n") == 1
    assert run("status", "codex", "--scope", "user").exit_code == 1
    assert run("doctor", "codex", "--scope", "project").exit_code == 0
    done = run("doctor", "codex", "--scope", "user")
    assert done.exit_code == 2
    assert "no hooks of Codex are installed, for the user" in done.output


def test_status_names_what_needs_attention(project: Path) -> None:
    run("install", "codex")
    path = project / ".codex" / "hooks.json"
    path.write_text(
        path.read_text().replace('"Stop"', '"Interrupt"').replace("-I -S /", "-I -S /no/")
    )
    done = run("status", "codex")
    assert done.exit_code == 1
    assert "gone: /no/" in done.output
    assert "missing: Stop, outdated: install again" in done.output
    data = json.loads(run("status", "codex", "--json").output)
    assert data[0]["installed"]
    assert not data[0]["current"]
    assert data[0]["worries"][-1] == "outdated: install again"
    path.write_text("{")
    assert "cannot be read: invalid JSON at line 1" in run("status", "codex").output


@pytest.mark.parametrize("agent", some_of(AGENTS, ["claude-code", "codex"]))
def test_the_doctor_sends_an_event_and_finds_it(agent: str) -> None:
    run("install", agent)
    done = run("doctor", agent, "--json")
    data = json.loads(done.output)
    assert done.exit_code == 0, data
    good = [finding["what"] for finding in data["findings"] if finding["level"] == "good"]
    assert any("was sent through the command and answered: allow" in what for what in good)
    assert any("it arrived in sqlite:///" in what for what in good)
    assert any("refusals have the form" in what for what in good)
    notes = [finding["what"] for finding in data["findings"] if finding["level"] == "note"]
    assert f"{HOOKED[agent].program} is not on the PATH here" in notes


# With a sub-agent, and without.
@pytest.mark.parametrize("agent", some_of(["claude-code", "gemini"], ["claude-code"]))
def test_the_doctor_removes_its_circuit_and_can_be_repeated(
    agent: str,
) -> None:
    run("install", agent)
    codes = [run("doctor", agent).exit_code for _ in range(3)]
    assert codes == [0, 0, 0]
    shown = json.loads(CliRunner().invoke(main, ["status", "--json"]).output)
    assert [circuit["name"] for circuit in shown] == ["op/file_read"]  # shared by all agents


def test_the_doctor_reports_a_harmless_call_that_is_refused() -> None:
    run("install", "claude-code")
    order = ["hold", "open", "op/file_read", "--create", "--why", "the disk is being replaced"]
    assert CliRunner().invoke(main, order).exit_code == 0
    done = run("doctor", "claude-code", "--json")
    assert done.exit_code == 1
    data = [one for one in json.loads(done.output)["findings"] if one["level"] == "warning"]
    assert any("answered: deny: " in one["what"] for one in data), data
    assert any("the disk is being replaced" in one["what"] for one in data)


def test_the_doctor_runs_exactly_the_command_in_the_file(project: Path) -> None:
    run("install", "codex")
    path = project / ".codex" / "hooks.json"
    saved_copies.forget("codex", "project", str(project))  # else a hook would repair it
    text = path.read_text()
    path.write_text(text.replace("entry.py codex --root", "entry.py codex --rooot"))
    done = run("doctor", "codex")
    assert done.exit_code == 2
    assert "PreToolUse: usage: entry.py" in done.output


def test_the_doctor_detects_an_event_that_goes_elsewhere(project: Path, tmp_path: Path) -> None:
    run("install", "codex")
    other = tmp_path / "other"
    (other / ".git").mkdir(parents=True)
    path = project / ".codex" / "hooks.json"
    saved_copies.forget("codex", "project", str(project))  # else a hook would repair it
    path.write_text(path.read_text().replace(f"--root {project}", f"--root {other}"))
    done = run("doctor", "codex")
    assert done.exit_code == 2
    assert "the event did not arrive in the store" in " ".join(done.output.split())
    assert f"sqlite:///{project}" in done.output.replace("\n  ", "")  # a long path is wrapped
    assert "hooks.json was written by another installation or version" in done.output


def test_the_doctor_of_all_agents_reports_that_nothing_is_installed() -> None:
    done = run("doctor")
    assert done.exit_code == 0
    assert "no hooks are installed here" in done.output


def test_the_doctor_reports_that_nothing_is_installed() -> None:
    done = run("doctor", "qwen")
    assert done.exit_code == 2
    assert "no hooks of Qwen Code are installed, neither for this project nor for the user" in (
        done.output
    )
    assert run("doctor").exit_code == 0, "nothing is installed, and nothing was asked for"


def test_the_doctor_reports_hooks_that_are_switched_off(project: Path) -> None:
    settings(project, '{"disableAllHooks": true}')
    run("install", "claude-code")
    done = run("doctor", "claude-code")
    assert done.exit_code == 2
    assert 'Claude Code runs no hooks: "disableAllHooks" is true' in done.output


def test_the_doctor_reports_an_unreadable_configuration(project: Path) -> None:
    run("install", "pi")
    (project / "switchgear.yaml").write_text("circuits: 5\n")
    done = run("doctor", "pi")
    assert done.exit_code == 2
    assert "switchgear.yaml" in done.output


def test_in_the_home_folder_the_project_scope_would_apply_to_all_projects(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = run("install", "claude-code")
    assert done.exit_code == 2
    assert "in this folder ./.claude/settings.json applies to all your projects" in done.stderr
    assert run("install", "claude-code", "--scope", "user").exit_code == 0
    assert run("status", "claude-code").output.count("\n") == 1
    assert run("doctor", "claude-code").exit_code == 0


def test_without_the_token_the_doctor_reports_that_it_did_not_test_refusals(
    project: Path, tmp_path: Path
) -> None:
    (project / "switchgear.yaml").write_text(SEALED)
    run("install", "pi")
    done = run("doctor", "pi")
    assert done.exit_code == 0
    assert "refusals were not tested: this needs the operator token" in done.output
    token = tmp_path / "token"
    token.write_text(TOKEN)
    assert "refusals have the form that pi obeys: stop" in (
        run("doctor", "pi", "--token-file", str(token)).output
    )


def codex(tmp_path: Path, hooks: list[dict[str, object]]) -> str:
    """A fake Codex app server that reports these hooks."""
    program = tmp_path / "bin" / "codex"
    program.parent.mkdir(exist_ok=True)
    program.write_text(CODEX)
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    Path(f"{program}.hooks").write_text(",".join(map(json.dumps, hooks)))
    return str(program)


def hook(command: str, trust: str) -> dict[str, object]:
    return {"command": command, "trustStatus": trust, "enabled": True, "isManaged": False}


def test_codex_is_queried_for_the_hooks_that_it_trusts(tmp_path: Path) -> None:
    program = codex(tmp_path, [hook("a", "trusted"), hook("a", "untrusted"), hook("b", "trusted")])
    here = str(tmp_path)
    assert ask_codex(program, here, ["a"], here) == Trust(asked=True, seen=2, trusted=1)
    assert ask_codex(str(tmp_path / "none"), here, ["a"], here) == Trust(asked=False)


def test_querying_a_codex_that_was_never_started_creates_no_files(tmp_path: Path) -> None:
    program, home = codex(tmp_path, [hook("a", "untrusted")]), tmp_path / ".codex"
    home.mkdir()
    (home / "hooks.json").write_text("{}")
    trust = ask_codex(program, str(tmp_path), ["a"], str(home))
    assert trust == Trust(asked=True, seen=1, trusted=0)
    assert [each.name for each in home.iterdir()] == ["hooks.json"]
    assert Path(f"{program}.saw").read_text() == "hooks.json"
    (home / "config.toml").write_text("")
    ask_codex(program, str(tmp_path), ["a"], str(home))
    assert (home / "state").exists()


def test_codex_is_not_queried_without_a_temporary_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = codex(tmp_path, [hook("a", "trusted")])
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "none"))
    assert ask_codex(program, str(tmp_path), ["a"], str(tmp_path)) == Trust(asked=False)


@pytest.mark.parametrize(
    ("trust", "code", "told"),
    [
        ("trusted", 0, "Codex trusts all 1 hooks"),
        ("modified", 2, "Codex trusts 0 of 1 hooks, and skips the others silently"),
        (None, 2, "Codex ignores this project's hooks, because the project is not trusted"),
    ],
)
def test_the_doctor_reports_whether_codex_will_run_the_hooks(
    trust: str | None, code: int, told: str, project: Path, tmp_path: Path
) -> None:
    run("install", "codex")
    command = f"{' '.join(json.loads(run('status', 'codex', '--json').output)[0]['commands'])}"
    codex(tmp_path, [] if trust is None else [hook(command, trust)])
    done = run("doctor", "codex")
    assert told in done.output
    assert done.exit_code == code


@pytest.mark.parametrize(
    ("agent", "text", "action"),
    [
        ("claude-code", "", "allow"),
        ("codex", '{"hookSpecificOutput": {"permissionDecision": "deny"}}', "deny"),
        ("qwen", '{"hookSpecificOutput": {"additionalContext": "slower"}}', "warn"),
        (
            "claude-code",
            '{"continue": false, "hookSpecificOutput": {"permissionDecision": "deny"}}',
            "stop",
        ),
        ("claude-code", '{"continue": false}', "allow"),
        ("gemini", '{"hookSpecificOutput": {"permissionDecision": "deny"}}', "allow"),
        ("gemini", '{"decision": "deny", "reason": "no"}', "deny"),
        ("gemini", '{"continue": false}', "stop"),
        ("gemini", '{"hookSpecificOutput": {"additionalContext": "slower"}}', "warn"),
        ("opencode", '{"action": "stop"}', "stop"),
        ("pi", "{}", ""),
        ("pi", "[]", ""),
        ("codex", "go on", ""),
    ],
)
def test_an_answer_is_interpreted_as_the_agent_does(agent: str, text: str, action: str) -> None:
    answer = read(agent, text, "", 0)
    assert answer.action == action
    assert bool(answer.trouble) is (not action)


def test_a_failed_hook_is_reported() -> None:
    assert read("codex", "", "no such\nfile", 127).trouble == "exit code 127: no such file"


@pytest.mark.parametrize("agent", AGENTS)
def test_the_samples_are_valid_events_of_each_agent(agent: str) -> None:
    from switchgear._agents.registry import dialect_of  # noqa: PLC0415

    for when, moment in ((BEFORE, "before_tool"), (AFTER, "after_tool")):
        facts = dialect_of(agent).read(sample(agent, when, "s1", "/w"))
        assert (facts.moment, facts.session, facts.cwd) == (moment, "s1", "/w")
        assert facts.ok is not False
