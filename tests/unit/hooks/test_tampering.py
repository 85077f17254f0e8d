"""The files of the guard are compared after each call; changes that no operator made are reverted."""

import json
import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from repositories import make_repository
from switchgear._cli import main
from switchgear._config.trust import record_of, trust_file
from switchgear._hooks import handler
from switchgear._hooks.command import hook_command
from switchgear._hooks.hook_config import config_of
from switchgear._hooks.install import saved_copies
from switchgear._hooks.install.settings import HOOKED
from switchgear._hooks.process import open_store
from switchgear._measure import saved_refs
from switchgear._stores.sqlite import SqliteStore
from timeouts import LIMIT_S
from unit.hook_calls import after, before, claude

SCOPES = [(name, scope) for name, agent in HOOKED.items() for scope in agent.scopes]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    make_repository(folder)
    (tmp_path / "home").mkdir()
    dropped = ("SWITCHGEAR_", "XDG_", "CLAUDE", "GEMINI", "CODEX", "QWEN", "OPENCODE", "PI_")
    for name in [name for name in os.environ if name.startswith(dropped)]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(folder)
    return folder


def run(*args: str, **env: str) -> Result:
    return CliRunner().invoke(main, args, env={"COLUMNS": "", **env})


def install(agent: str, scope: str, folder: Path) -> Path:
    done = run("hooks", "install", agent, "--scope", scope)
    assert done.exit_code == 0, done.output
    return Path(HOOKED[agent].file(scope, str(folder)))


def hook(folder: Path, data: dict[str, Any]) -> dict[str, Any]:
    """The installed hook command, as Claude Code runs it."""
    done = subprocess.run(
        [sys.executable, *hook_command("claude-code", root=str(folder))[1:]],
        input=json.dumps({**data, "cwd": str(folder)}).encode(),
        capture_output=True,
        timeout=LIMIT_S,
        check=False,
        cwd="/",
        env=dict(os.environ),
    )
    assert done.returncode == 0, done.stderr
    assert b"Traceback" not in done.stderr, done.stderr
    told: dict[str, Any] = json.loads(done.stdout or b"{}")
    return told


def events(folder: Path) -> list[str]:
    store = SqliteStore(str(folder / ".switchgear" / "state.db"))
    try:
        kinds = [entry.event for entry in store.events()]
        return [event.reason for event in kinds if event.kind == "guard_changed"]
    finally:
        store.close()


def is_stopped(folder: Path) -> bool:
    store = SqliteStore(str(folder / ".switchgear" / "state.db"))
    try:
        found = store.get("session/s1")
        return found is not None and found.circuit.phase == "open"
    finally:
        store.close()


def ours(path: Path) -> list[str]:
    return [part for part in path.read_text().split('"') if "entry.py" in part]


def by_python(path: Path) -> None:
    if path.suffix == ".js":
        path.write_text("export default () => {}\n")
        return
    settings = json.loads(path.read_text())
    settings["hooks"] = {}
    path.write_text(json.dumps(settings))


def one_event(path: Path) -> None:
    if path.suffix == ".js":
        path.write_text(path.read_text().replace("timeout_s", "timeout_x"))
        return
    settings = json.loads(path.read_text())
    del settings["hooks"][next(iter(settings["hooks"]))]
    path.write_text(json.dumps(settings))


def another_command(path: Path) -> None:
    path.write_text(path.read_text().replace("entry.py", "other.py"))


def link(path: Path) -> None:
    fake = path.parent.parent / "fake.json"
    fake.write_text("{}")
    path.unlink()
    path.symlink_to(fake)


def parent_link(path: Path) -> None:
    fake = path.parent.parent / "fake"
    fake.mkdir()
    shutil.move(path.parent, path.parent.parent / "moved")
    path.parent.symlink_to(fake)


def parent_moved(path: Path) -> None:
    shutil.move(path.parent, path.parent.parent / "moved")


def folder_there(path: Path) -> None:
    path.unlink()
    path.mkdir()


def huge(path: Path) -> None:
    path.write_bytes(b" " * 6_000_000)


CHANGES: list[Callable[[Path], object]] = [
    *(by_python, one_event, another_command, link, parent_link, parent_moved, folder_there, huge),
    Path.unlink,
    lambda path: path.write_text(""),
    lambda path: path.write_text('{"hooks": '),
    lambda path: path.write_bytes(b"\xff\xfe\x00"),
    lambda path: path.write_text('{"hooks": []}'),
    lambda path: path.chmod(0),
    lambda path: shutil.rmtree(path.parent),
]


@pytest.mark.parametrize(("agent", "scope"), SCOPES)
def test_hooks_that_settings_have_lost_are_restored(project: Path, agent: str, scope: str) -> None:
    path = install(agent, scope, project)
    good = path.read_bytes()
    assert saved_copies.repair(str(project)) == saved_copies.Repaired()
    for change in CHANGES:
        change(path)
        found = saved_copies.repair(str(project))
        assert found.failed == ()
        assert len(found.done) == 1, change
        assert path.is_file()
        assert not path.is_symlink()
        assert not path.parent.is_symlink()
        assert path.stat().st_mode & stat.S_IRUSR
        assert path.read_bytes() == good or sorted(ours(path)) == sorted(
            part for part in good.decode().split('"') if "entry.py" in part
        )
        assert saved_copies.repair(str(project)) == saved_copies.Repaired(), "it is well again"
        for left in ("fake", "fake.json", "moved"):
            shutil.rmtree(path.parent.parent / left, ignore_errors=True)
            (path.parent.parent / left).unlink(missing_ok=True)
        path.write_bytes(good)
        saved_copies.save(agent, scope, str(project))


def test_a_change_during_a_call_is_reverted_recorded_and_stops_the_session(project: Path) -> None:
    path = install("claude-code", "project", project)
    good = path.read_bytes()
    assert hook(project, claude("SessionStart", source="startup")) == {}
    assert hook(project, before()) == {}
    path.unlink()
    told = hook(project, after())
    assert told.get("continue") is False or "changed without an operator" in json.dumps(told)
    assert path.read_bytes() == good
    [event] = events(project)
    assert "settings.json was removed: restored from the saved copy" in event
    assert "session/s1" in event
    assert is_stopped(project)
    told = hook(project, before(call="t2"))
    assert "changed without an operator" in json.dumps(told)
    hook(project, claude("UserPromptSubmit", prompt="go on"))
    assert hook(project, before(call="t3")) == {}, "the user's message starts it afresh"


def test_a_change_between_calls_is_reverted_before_the_next_one(project: Path) -> None:
    path = install("claude-code", "project", project)
    hook(project, before())
    hook(project, after())
    path.write_text("{}")
    told = hook(project, before(call="t2"))
    assert told["hookSpecificOutput"]["permissionDecision"] == "deny"
    assert ours(path)


@pytest.mark.parametrize(
    ("agent", "scope", "name", "text"),
    [
        ("claude-code", "project", ".claude/settings.local.json", '{"disableAllHooks": true}'),
        ("claude-code", "user", ".claude/settings.json", '{"disableAllHooks": true, "a": 1}'),
        ("qwen", "project", ".qwen/settings.json", None),
        ("gemini", "project", ".gemini/settings.json", None),
        ("codex", "project", ".codex/config.toml", "[features]\nhooks = false\n"),
    ],
)
def test_a_switch_that_turns_hooks_off_is_turned_back(
    project: Path, agent: str, scope: str, name: str, text: str | None
) -> None:
    path = install(agent, scope, project)
    switch = project / name
    switch.parent.mkdir(exist_ok=True)
    if text is None:
        settings = json.loads(path.read_text())
        off = {"enabled": False, "disabled": ["x", "switchgear"]}
        extra = {"hooksConfig": off} if agent == "gemini" else {"disableAllHooks": True}
        text = json.dumps({**settings, **extra})
    switch.write_text(text)
    found = saved_copies.repair(str(project))
    assert found.failed == ()
    assert len(found.done) >= 1
    assert not HOOKED[agent].is_plugin
    assert saved_copies.repair(str(project)) == saved_copies.Repaired()
    assert '"a": 1' not in text or '"a": 1' in switch.read_text()


def test_settings_that_an_agent_writes_for_itself_stay(project: Path) -> None:
    path = install("claude-code", "project", project)
    hook(project, before())
    settings = json.loads(path.read_text())
    settings["permissions"] = {"allow": ["Bash(make:*)"]}
    path.write_text(json.dumps(settings))
    (path.parent / "settings.local.json").write_text('{"permissions": {"allow": ["Bash(ls:*)"]}}')
    assert hook(project, after()) == {}
    assert json.loads(path.read_text()) == settings
    assert events(project) == []
    assert not is_stopped(project)
    path.unlink()
    hook(project, before(call="t2"))
    assert json.loads(path.read_text()) == settings, "the copy is of the last good state"


def test_other_settings_stay_when_our_hooks_are_put_back(project: Path) -> None:
    path = install("gemini", "project", project)
    path.write_text('{\n  "model": "pro", // mine\n  "hooks": {}\n}\n')
    saved_copies.repair(str(project))
    assert '"model": "pro", // mine' in path.read_text()
    assert ours(path)


def test_an_entry_that_was_changed_into_another_command_is_removed(project: Path) -> None:
    path = install("claude-code", "project", project)
    good = json.loads(path.read_text())
    hook(project, before())
    changed = path.read_text().replace("entry.py", "entry.pyx")
    mine = {"hooks": [{"type": "command", "command": "echo mine"}]}
    told = json.loads(changed)
    told["hooks"]["PreToolUse"].append(mine)
    path.write_text(json.dumps(told))
    hook(project, after())
    good["hooks"]["PreToolUse"] = [mine, *good["hooks"]["PreToolUse"]]
    assert json.loads(path.read_text()) == good


def test_settings_that_the_agent_would_ignore_as_a_whole_are_restored(project: Path) -> None:
    path = install("claude-code", "project", project)
    good = path.read_text()
    path.write_text("// Claude Code takes no comments, and runs no hook then\n" + good)
    [told] = saved_copies.repair(str(project)).done
    assert "cannot be parsed" in told
    assert path.read_text() == good


@pytest.mark.parametrize("name", ["settings.json", "settings.local.json"])
def test_a_pipe_in_the_place_of_settings_keeps_no_hook_waiting(project: Path, name: str) -> None:
    path = install("claude-code", "project", project)
    hook(project, before())
    place = path.parent / name
    place.unlink(missing_ok=True)
    os.mkfifo(place)
    hook(project, after())
    assert path.is_file()
    assert ours(path)


def test_concurrent_hooks_repair_once_and_all_answer(project: Path) -> None:
    path = install("claude-code", "project", project)
    good = path.read_bytes()
    hook(project, before())
    shutil.rmtree(path.parent)
    command = [sys.executable, *hook_command("claude-code", root=str(project))[1:]]
    started = [
        subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        for _ in range(6)
    ]
    for number, process in enumerate(started):
        call = {**before(call=f"p{number}", session=f"s{number}"), "cwd": str(project)}
        assert process.stdin is not None
        process.stdin.write(json.dumps(call).encode())
        process.stdin.close()
        process.stdin = None
    for process in started:
        _, errors = process.communicate(timeout=LIMIT_S)
        assert process.returncode in {0, 2}, errors
        assert b"Traceback" not in errors
    assert path.read_bytes() == good
    assert saved_copies.repair(str(project)) == saved_copies.Repaired()
    assert events(project)


def test_a_watcher_that_sees_a_changed_configuration_leaves_it_to_the_end_of_the_call(
    project: Path,
) -> None:
    config = project / "switchgear.yaml"
    config.write_text("hooks: {lease_s: 60}\n")
    trust_file(str(config))
    hook(project, before())
    config.write_text("hooks: {lease_s: 61}\n")
    assert config_of(str(project)).lease_s == 60, "as the watcher looks"
    assert config.read_text() == "hooks: {lease_s: 61}\n"
    hook(project, after())
    assert config.read_text() == "hooks: {lease_s: 60}\n"
    assert is_stopped(project)


def test_an_uninstall_by_an_operator_is_not_tampering(project: Path) -> None:
    path = install("claude-code", "project", project)
    hook(project, before())
    assert run("hooks", "uninstall", "claude-code").exit_code == 0
    assert hook(project, after()) == {}
    assert not path.exists()
    assert not is_stopped(project)


def test_an_installation_of_an_earlier_version_is_saved_by_the_first_hook(project: Path) -> None:
    path = install("claude-code", "project", project)
    [copy] = (Path(os.environ["HOME"]) / ".local/state/switchgear/guard").glob("*.json")
    copy.unlink()
    hook(project, before())
    path.unlink()
    hook(project, after())
    assert ours(path)


@pytest.mark.parametrize("change", ["changed", "removed", "folder", "old version"])
def test_a_configuration_that_changes_during_a_call_is_reverted(project: Path, change: str) -> None:
    config = project / "switchgear.yaml"
    good = "rules: {own: [{name: no-x, commands: ['make x']}]}\n"
    config.write_text("rules: {own: []}\n")
    trust_file(str(config))
    config.write_text(good)
    trust_file(str(config))
    hook(project, before())
    if change == "removed":
        config.unlink()
    elif change == "folder":
        config.unlink()
        config.mkdir()
    else:
        config.write_text("rules: {own: []}\n" if change == "old version" else "rules: {}\n")
    told = hook(project, after())
    assert "changed without an operator" in json.dumps(told)
    assert config.read_text() == good
    [event] = events(project)
    assert "during a tool call: the trusted content was restored" in event
    assert is_stopped(project)
    aside = list((Path(os.environ["HOME"]) / ".local/state/switchgear/guard/aside").glob("*"))
    assert bool(aside) == (change in {"changed", "old version"})


def test_a_configuration_edited_between_calls_is_kept_without_effect(
    project: Path,
) -> None:
    config = project / "switchgear.yaml"
    config.write_text("hooks: {lease_s: 60}\n")
    trust_file(str(config))
    hook(project, before())
    hook(project, after())
    config.write_text("hooks: {lease_s: 61}\n")
    assert hook(project, before(call="t2")) == {}
    assert hook(project, after(call="t2")) == {}
    assert config.read_text() == "hooks: {lease_s: 61}\n"
    assert not is_stopped(project)
    assert json.loads((project / ".switchgear/hooks.json").read_text())["lease_s"] == 60
    assert run("trust", "--yes").exit_code == 0
    hook(project, before(call="t3"))
    assert json.loads((project / ".switchgear/hooks.json").read_text())["lease_s"] == 61


def test_trusting_during_a_call_is_an_operators_change(project: Path) -> None:
    config = project / "switchgear.yaml"
    config.write_text("hooks: {lease_s: 60}\n")
    trust_file(str(config))
    hook(project, before())
    config.write_text("hooks: {lease_s: 61}\n")
    trust_file(str(config))
    assert hook(project, after()) == {}
    assert config.read_text() == "hooks: {lease_s: 61}\n"


def test_of_pyproject_only_our_table_is_reverted(project: Path) -> None:
    file = project / "pyproject.toml"
    file.write_text("[project]\nname = 'x'\n\n[tool.switchgear.hooks]\nlease_s = 60\n")
    trust_file(str(file))
    hook(project, before())
    file.write_text(
        "[project]\nname = 'x'\ndependencies = ['rich']\n\n"
        "[tool.switchgear.hooks]\nlease_s = 1\n\n[tool.ruff]\nline-length = 100\n"
    )
    hook(project, after())
    text = file.read_text()
    assert "dependencies = ['rich']" in text
    assert "[tool.ruff]" in text
    assert "lease_s = 60" in text
    assert "lease_s = 1\n" not in text
    assert is_stopped(project)
    hook(project, claude("UserPromptSubmit", prompt="go on"))
    hook(project, before(call="t2"))
    file.write_text(text.replace("rich", "attrs"))
    assert hook(project, after(call="t2")) == {}
    assert "attrs" in file.read_text(), "a dependency is no part of the guard"


def test_a_forged_compiled_configuration_is_ignored(project: Path) -> None:
    force = before("Bash", {"command": "git push --force origin main"}, call="t9")
    hook(project, before())
    place = project / ".switchgear" / "hooks.json"
    found = place.stat()
    forged = json.loads(place.read_text())
    forged["rules"] = forged["rules"][:1]
    place.write_text(json.dumps(forged))
    os.utime(place, ns=(found.st_atime_ns, found.st_mtime_ns))
    told = hook(project, force)
    assert told["hookSpecificOutput"]["permissionDecision"] == "deny"
    assert any("hooks.json was changed by another program" in each for each in events(project))


def test_saved_work_that_is_deleted_or_moved_is_restored(project: Path) -> None:
    def git(*words: str) -> str:
        told = ["git", "-c", "user.name=a", "-c", "user.email=a@example.invalid", *words]
        return subprocess.run(
            told, cwd=project, check=True, capture_output=True, text=True
        ).stdout.strip()

    (project / "a").write_text("1")
    git("add", ".")
    git("commit", "-qm", "one")
    commit, name = git("rev-parse", "HEAD"), "refs/switchgear/runs/r1"
    git("update-ref", name, commit)
    saved_refs.remember_ref(str(project), name, commit)
    hook(project, before())
    git("update-ref", "-d", name)
    assert "changed without an operator" in json.dumps(hook(project, after()))
    assert git("rev-parse", name) == commit
    assert f"saved work {name} was deleted: restored" in events(project)[0]
    assert is_stopped(project)
    hook(project, claude("UserPromptSubmit", prompt="go on"))
    (project / "a").write_text("2")
    git("commit", "-qam", "two")
    hook(project, before(call="t2"))
    two, branch = git("rev-parse", "HEAD"), git("symbolic-ref", "HEAD")
    git("symbolic-ref", name, branch)
    hook(project, after(call="t2"))
    assert git("rev-parse", name) == commit
    assert git("rev-parse", branch) == two, "a branch is not moved by the repair"
    hook(project, claude("UserPromptSubmit", prompt="go on"))
    git("pack-refs", "--all")
    assert hook(project, before(call="t3")) == {}, "packing changes no reference"
    shutil.rmtree(project / ".git" / "refs" / "switchgear", ignore_errors=True)
    hook(project, after(call="t3"))
    assert git("rev-parse", name) == commit


def test_a_repair_that_fails_is_reported_and_nothing_continues(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def answer(data: dict[str, Any]) -> str:
        raw = json.dumps({**data, "cwd": str(project)}).encode()
        return handler.answer("claude-code", raw, str(project), open_store).stdout

    path = install("claude-code", "project", project)
    answer(before())
    path.unlink()
    monkeypatch.setattr(
        saved_copies, "_restore", lambda *_: (_ for _ in ()).throw(OSError(30, "read-only"))
    )
    assert "could not be restored" in answer(after())
    for call in ("t2", "t3"):
        answer(claude("UserPromptSubmit", prompt="go on"))
        assert "could not be restored" in answer(before(call=call)), "as long as it is so"
    monkeypatch.undo()
    monkeypatch.chdir(project)


def test_saved_copies_are_private_and_links_in_their_place_are_not_followed(
    project: Path, tmp_path: Path
) -> None:
    path = install("claude-code", "project", project)
    guard = tmp_path / "home/.local/state/switchgear/guard"
    [copy] = guard.glob("*.json")
    assert stat.S_IMODE(copy.stat().st_mode) == 0o600
    assert stat.S_IMODE(guard.stat().st_mode) == 0o700
    other = tmp_path / "other.json"
    shutil.move(copy, other)
    copy.symlink_to(other)
    assert saved_copies.saved_in(str(project)) == []
    path.write_text("{}")
    assert saved_copies.repair(str(project)) == saved_copies.Repaired(), (
        "there is no copy that can be believed"
    )


def test_a_link_of_the_user_is_kept(project: Path, tmp_path: Path) -> None:
    real = tmp_path / "dotfiles" / "settings.json"
    real.parent.mkdir()
    real.write_text("{}\n")
    (project / ".claude").mkdir()
    (project / ".claude/settings.json").symlink_to(real)
    path = install("claude-code", "project", project)
    assert saved_copies.repair(str(project)) == saved_copies.Repaired()
    real.write_text("{}\n")
    assert len(saved_copies.repair(str(project)).done) == 1
    assert path.is_symlink()
    assert ours(real)


@pytest.mark.parametrize("what", ["guard", "trust", "all"])
def test_removing_the_saved_copies_or_the_trust_stops_the_session(
    project: Path, tmp_path: Path, what: str
) -> None:
    config = project / "switchgear.yaml"
    config.write_text("hooks: {lease_s: 60}\n")
    path = install("claude-code", "project", project)
    assert hook(project, before()) == {}
    state = tmp_path / "home/.local/state/switchgear"
    shutil.rmtree(state if what == "all" else state / what)
    path.write_text(path.read_text() + "\n")
    told = json.dumps(hook(project, after()))
    assert "was removed" in told
    assert is_stopped(project)


def test_a_change_with_the_same_size_and_time_is_found(project: Path) -> None:
    path = install("claude-code", "project", project)
    hook(project, before())
    found = path.stat()
    with path.open("r+") as file:
        file.write(path.read_text().replace('"PreToolUse"', '"PreToolUsX"'))
    os.utime(path, ns=(found.st_atime_ns, found.st_mtime_ns))
    assert path.stat().st_size == found.st_size
    hook(project, after())
    assert "PreToolUsX" not in path.read_text() or '"PreToolUse"' in path.read_text()
    assert is_stopped(project)


def test_a_home_that_cannot_be_written_stops_no_hook(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    assert hook(project, before()) == {}
    assert hook(project, after()) == {}
    assert record_of(str(project / "switchgear.yaml")) is None
