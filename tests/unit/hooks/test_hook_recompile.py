"""One process recompiles the configuration for all, and a change under the hooks is reported."""

import fcntl
import json
import os
import threading
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from switchgear._cli import main
from switchgear._config import trust
from switchgear._core.errors import SwitchgearError
from switchgear._hooks import compiler, hook_config, recompile
from switchgear._hooks.handler import answer
from switchgear._hooks.hook_config import Unconfigured
from switchgear._hooks.install.settings import HOOKED, command_line, groups
from switchgear._hooks.process import open_store
from switchgear._stores.sqlite import SqliteStore
from timeouts import LIMIT_S
from trusted_config import write_config
from unit.hook_calls import after, before


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / ".git").mkdir()
    write_config(tmp_path / "switchgear.yaml", "hooks: {lease_s: 60}\n")
    return tmp_path


def hear(project: Path, data: dict[str, Any]) -> Any:
    raw = json.dumps({**data, "cwd": str(project)}).encode()
    return answer("claude-code", raw, str(project), open_store)


def changes(project: Path) -> list[str]:
    events = SqliteStore(project / ".switchgear" / "state.db").events()
    return [entry.event.reason for entry in events if entry.event.kind == "guard_changed"]


def test_a_hook_waits_for_the_result_of_a_running_compilation(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = hook_config.compiled_path(str(project))
    made = {**compiler.compile_for(str(project)), "wired": [], "changed": ""}
    made["mark"] = hook_config.signature(str(project), made)
    monkeypatch.setattr(recompile, "_compile_config", lambda _: pytest.fail("it compiled as well"))
    hook_config.make_folder(place)
    lock = os.open(f"{place}.lock", os.O_WRONLY | os.O_CREAT, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)
    found: list[hook_config.HookConfig] = []
    waiting = threading.Thread(target=lambda: found.append(hook_config.config_of(str(project))))
    waiting.start()
    hook_config.write(place, made)
    os.close(lock)
    waiting.join(LIMIT_S)
    assert [known.lease_s for known in found] == [60]


def test_an_unreadable_configuration_is_not_read_by_every_hook(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (project / "switchgear.yaml").unlink()
    trust.revoke(str(project / "switchgear.yaml"))
    own = project / "own" / "switchgear"
    own.mkdir(parents=True)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(own.parent))
    (own / "switchgear.yaml").write_text("hooks: {lease_s: 60}\n")
    hook_config.config_of(str(project))
    (own / "switchgear.yaml").write_text("hooks: {lease_s: many}\n")
    with pytest.raises(Unconfigured, match="lease_s"):
        hook_config.config_of(str(project))
    monkeypatch.setattr(recompile, "_compile_config", lambda _: pytest.fail("it was read again"))
    with pytest.raises(Unconfigured, match="lease_s") as caught:
        hook_config.config_of(str(project))
    assert caught.value.last is not None
    assert caught.value.last.lease_s == 60


def test_a_configuration_that_could_not_be_read_is_read_again_later(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SWITCHGEAR_TEST_URL", "memory:")
    write_config(project / "switchgear.yaml", "store: '${SWITCHGEAR_TEST_URL}'\n")
    monkeypatch.delenv("SWITCHGEAR_TEST_URL")
    with pytest.raises(Unconfigured):
        hook_config.config_of(str(project))
    monkeypatch.setenv("SWITCHGEAR_TEST_URL", "memory:")
    with pytest.raises(Unconfigured):
        hook_config.config_of(str(project))
    monkeypatch.setattr(recompile, "BROKEN_RETRY_S", 0.0)
    assert hook_config.config_of(str(project)).store == "memory:"


def test_a_configuration_that_changes_under_the_hooks_is_reported_once(project: Path) -> None:
    hear(project, before())
    assert changes(project) == []
    write_config(project / "switchgear.yaml", "hooks: {lease_s: 61}\nrules: {builtin: []}\n")
    hear(project, after())
    hear(project, before(call="t2"))
    (told,) = changes(project)
    assert told.startswith("the configuration has other values of lease_s, rules")
    assert told.endswith("seen by session/s1 at PostToolUse")


def test_a_change_that_only_a_watcher_saw_is_reported_by_the_next_hook(project: Path) -> None:
    hear(project, before())
    write_config(project / "switchgear.yaml", "hooks: {lease_s: 61}\n")
    hook_config.config_of(str(project))
    write_config(project / "switchgear.yaml", "hooks: {lease_s: 62, on_trouble: refuse}\n")
    hook_config.config_of(str(project))
    hear(project, after())
    (told,) = changes(project)
    assert (
        "other values of lease_s; the configuration has other values of lease_s, on_trouble" in told
    )


@pytest.mark.parametrize("variable", ["HOME", "XDG_STATE_HOME", "XDG_CONFIG_HOME"])
def test_a_different_home_folder_of_the_same_project_is_not_tampering(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    """A container that mounts the project, or `sudo`."""
    project = tmp_path / "project"
    (project / ".git").mkdir(parents=True)
    if variable == "HOME":
        monkeypatch.delenv("XDG_STATE_HOME")
    for number, name in enumerate(("one", "two", "one")):
        monkeypatch.setenv(variable, str(tmp_path / name))
        assert hear(project, before(call=f"t{number}")).stdout == ""
        assert hook_config.config_of(str(project)).tampered == []


@pytest.mark.parametrize("fails", [False, True])
def test_a_configuration_that_changes_while_it_is_read_takes_effect_at_the_next_event(
    project: Path, monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    reading = compiler.compile_for

    def read_then_changed(root: str) -> dict[str, Any]:
        made = reading(root)
        write_config(project / "switchgear.yaml", "hooks: {lease_s: 80}\n")
        if fails:
            raise SwitchgearError("it cannot be read")
        return made

    monkeypatch.setattr(compiler, "compile_for", read_then_changed)
    hear(project, before())
    monkeypatch.setattr(compiler, "compile_for", reading)
    assert hook_config.config_of(str(project)).lease_s == 80


def test_a_file_that_is_only_touched_is_unchanged(project: Path) -> None:
    hear(project, before())
    os.utime(project / "switchgear.yaml", (1, 1))
    hear(project, after())
    assert changes(project) == []


def test_removed_hooks_are_reported(project: Path) -> None:
    settings = project / ".claude" / "settings.json"
    settings.parent.mkdir()
    agent = HOOKED["claude-code"]
    wired = {"hooks": groups(agent, command_line(agent, "project", str(project)))}
    settings.write_text(json.dumps(wired))
    hear(project, before())
    settings.write_text(json.dumps({**wired, "model": "opus"}))
    hear(project, after())
    assert changes(project) == []
    settings.write_text('{"hooks": {}}')
    hear(project, before(call="t2"))
    (told,) = changes(project)
    assert told.startswith(f"{settings} no longer has a hook of Switchgear")


def test_hooks_that_an_operator_removes_are_not_tampering(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(project)
    for words in (["install", "claude"], ["install", "codex"]):
        assert CliRunner().invoke(main, ["hooks", *words]).exit_code == 0
    hear(project, before())
    assert CliRunner().invoke(main, ["hooks", "uninstall", "claude"]).exit_code == 0
    hear(project, after())
    assert changes(project) == []


def test_an_edit_that_waits_for_trust_is_reported_as_such(project: Path) -> None:
    hear(project, before())
    (project / "switchgear.yaml").write_text("hooks: {lease_s: 61}\n")
    hear(project, before(call="t2"))
    (told,) = changes(project)
    assert f"{project / 'switchgear.yaml'} has changed" in told
    assert "other values" not in told
