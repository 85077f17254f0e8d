"""Hooks in the settings of an agent: installed, inspected and removed, atomically."""

import json
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from switchgear._agents.hook_protocol import PROJECT, USER
from switchgear._agents.registry import dialect_of
from switchgear._hooks.install import files
from switchgear._hooks.install.files import CannotChange
from switchgear._hooks.install.settings import HOOKED, HookFile, hook_file, is_ours
from timeouts import LIMIT_S

WITH_SETTINGS = [name for name, agent in HOOKED.items() if not agent.is_plugin]
BY_HAND = b"""{
    // what I like
    "ui": {"theme": "dark"},   /* and this */
    "hooks": {
        "Stop": [ { "hooks": [ {"type": "command", "command": "say done"} ] } ]
    }, "unknown": [1,2 , 3]
}"""


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "home"
    folder.mkdir()
    monkeypatch.setenv("HOME", str(folder))
    variables = {agent.home_variable for agent in HOOKED.values()}
    for variable in ("XDG_STATE_HOME", *variables):
        monkeypatch.delenv(variable, raising=False)
    return folder


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    return folder


def prepared(place_: HookFile, data: bytes) -> Path:
    path = Path(place_.path)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


@pytest.mark.parametrize(
    ("agent", "scope"), [(name, scope) for name in HOOKED for scope in HOOKED[name].scopes]
)
def test_install_and_uninstall_leave_nothing_behind(
    agent: str, scope: str, project: Path, home: Path
) -> None:
    there = hook_file(agent, scope, str(project))
    assert there.install().changed
    assert Path(there.path).is_file()
    assert there.uninstall().removed
    assert list(project.iterdir()) == []
    assert [found.name for found in home.iterdir()] == [".local"]


@pytest.mark.parametrize("agent", HOOKED)
def test_installing_twice_changes_nothing(agent: str, project: Path) -> None:
    there = hook_file(agent, PROJECT, str(project))
    there.install()
    once = Path(there.path).read_bytes()
    again = there.install()
    assert not again.changed
    assert again.backup is None
    assert Path(there.path).read_bytes() == once


@pytest.mark.parametrize(
    "data",
    [
        BY_HAND,
        BY_HAND.replace(b"\n", b"\r\n") + b"\r\n\r\n",
        b"{}",
        b"{ \n }\n",
        b"",
        b" \n",
        b'{"hooks": {}}',
        b'{"hooks":{"BeforeTool":[],"AfterTool":[ ]}}',
        '\ufeff{\n\t"größe": "ü"\n}'.encode(),
    ],
)
def test_uninstall_restores_the_original_bytes(data: bytes, project: Path) -> None:
    there = hook_file("qwen", PROJECT, str(project))
    path = prepared(there, data)
    there.install()
    assert path.read_bytes() != data
    assert there.state().events == HOOKED["qwen"].events or b"Stop" in data
    there.uninstall()
    assert path.read_bytes() == data


def test_changes_made_in_between_stay_and_only_the_hooks_are_removed(project: Path) -> None:
    there = hook_file("gemini", PROJECT, str(project))
    path = prepared(there, BY_HAND)
    there.install()
    path.write_bytes(path.read_bytes().replace(b'"dark"', b'"light" /* at last */'))
    there.uninstall()
    assert path.read_bytes() == BY_HAND.replace(b'"dark"', b'"light" /* at last */')


def test_settings_that_the_agent_rewrote_lose_only_the_hooks(project: Path) -> None:
    there = hook_file("claude-code", PROJECT, str(project))
    path = prepared(there, b'{"permissions": {"allow": ["Bash"]}}')
    there.install()
    told = json.loads(path.read_bytes())
    told["permissions"]["allow"].append("Read")
    path.write_text(json.dumps(told, indent=4))
    there.uninstall()
    assert json.loads(path.read_bytes()) == {"permissions": {"allow": ["Bash", "Read"]}}


def test_a_file_created_for_the_hooks_stays_if_another_program_uses_it(project: Path) -> None:
    there = hook_file("claude-code", PROJECT, str(project))
    there.install()
    path = Path(there.path)
    told = json.loads(path.read_bytes())
    path.write_text(json.dumps({**told, "model": "opus"}))
    assert not there.uninstall().removed
    assert json.loads(path.read_bytes()) == {"model": "opus"}


def test_an_older_command_is_replaced_and_the_original_bytes_are_kept(project: Path) -> None:
    there = hook_file("codex", PROJECT, str(project))
    path = prepared(there, b'{"description": "mine"}\n')
    there.install()
    older = path.read_bytes().replace(b"entry.py codex", b"entry.py codex --root /old", 1)
    path.write_bytes(older)
    assert there.state().outdated
    assert there.install().changed
    found = there.state()
    assert not found.outdated
    assert len(found.commands) == 1
    there.uninstall()
    assert path.read_bytes() == b'{"description": "mine"}\n'


def test_a_copy_of_the_file_is_kept_where_only_its_owner_can_read_it(project: Path) -> None:
    there = hook_file("gemini", PROJECT, str(project))
    prepared(there, BY_HAND)
    backup = there.install().backup
    assert backup is not None
    assert Path(backup).read_bytes() == BY_HAND
    assert stat.S_IMODE(Path(backup).stat().st_mode) == 0o600


def test_not_more_than_ten_copies_are_kept(project: Path) -> None:
    saved_state = files.SavedState(str(project / "settings.json"))
    with saved_state.locked():
        made = [saved_state.back_up(str(number).encode()) for number in range(13)]
    kept = [Path(path) for path in made if Path(path).exists()]
    assert len(kept) == 10


@pytest.mark.parametrize(
    "journal",
    [
        "{",
        "[]",
        "{}",
        '{"after": 1, "before": null, "containers": {}, "folders": []}',
        '{"after": "x", "before": null, "containers": {"hooks": 5}, "folders": []}',
        '{"after": "x", "before": "00", "containers": {}, "folders": []}',
    ],
)
def test_without_its_journal_only_the_hooks_are_removed(
    journal: str, project: Path, home: Path
) -> None:
    there = hook_file("gemini", PROJECT, str(project))
    path = prepared(there, BY_HAND)
    there.install()
    (kept,) = home.glob(".local/state/switchgear/hooks/*/journal.json")
    kept.write_text(journal)
    there.uninstall()
    assert path.read_bytes() == BY_HAND


def test_the_mode_stays_and_a_link_stays_a_link(project: Path, tmp_path: Path) -> None:
    there = hook_file("claude-code", PROJECT, str(project))
    real = tmp_path / "dotfiles" / "settings.json"
    real.parent.mkdir()
    real.write_bytes(b'{"model": "opus"}\n')
    real.chmod(0o640)
    path = Path(there.path)
    path.parent.mkdir()
    path.symlink_to(real)
    there.install()
    assert path.is_symlink()
    assert stat.S_IMODE(real.stat().st_mode) == 0o640
    assert "PreToolUse" in json.loads(real.read_bytes())["hooks"]
    there.uninstall()
    assert path.is_symlink()
    assert real.read_bytes() == b'{"model": "opus"}\n'
    assert [found.name for found in real.parent.iterdir()] == ["settings.json"]


@pytest.mark.parametrize(
    ("agent", "data", "why"),
    [
        ("claude-code", b'{"a": 1,}', "invalid JSON at line 1, column 9"),
        ("claude-code", b'{ // mine\n"a": 1}', "line 1, column 3: there is a comment"),
        ("codex", "\ufeff{}".encode(), "a byte order mark, and Codex cannot read that"),
        ("gemini", b'{"a": "\xff"}', "it is not UTF-8 text (byte 7)"),
        ("gemini", '{"a": 1}'.encode("utf-16"), "it is not UTF-8 text (byte 0)"),
        ("qwen", b"[]", "the settings must be an object"),
        ("qwen", b'{"hooks": {"Stop": "x"}}', '"hooks" has "Stop", and it must be an array'),
    ],
)
def test_settings_that_cannot_be_used_are_refused_and_left_untouched(
    agent: str, data: bytes, why: str, project: Path
) -> None:
    there = hook_file(agent, PROJECT, str(project))
    path = prepared(there, data)
    with pytest.raises(CannotChange) as raised:
        there.install()
    assert why in str(raised.value)
    assert "nothing was changed" in str(raised.value)
    assert path.read_bytes() == data
    assert [found.name for found in path.parent.iterdir()] == [path.name]
    if "array" not in why:
        assert why in there.state().trouble or why.partition(", line")[0] in there.state().trouble


def test_a_folder_in_the_place_of_the_file_is_an_error(project: Path) -> None:
    there = hook_file("codex", PROJECT, str(project))
    Path(there.path).mkdir(parents=True)
    with pytest.raises(CannotChange, match="Is a directory"):
        there.install()


def test_a_concurrent_change_of_the_file_is_not_overwritten(project: Path) -> None:
    path = project / "settings.json"
    path.write_bytes(b'{"new": 1}')
    with pytest.raises(CannotChange, match="another process changed it at the same time"):
        files.write(str(path), b"ours", b'{"old": 1}')
    assert path.read_bytes() == b'{"new": 1}'
    assert [found.name for found in project.iterdir()] == ["settings.json"]


def test_installations_at_the_same_time_make_one_installation(project: Path) -> None:
    there = hook_file("claude-code", PROJECT, str(project))
    path = prepared(there, BY_HAND.replace(b"// what I like", b"").replace(b"/* and this */", b""))
    before = path.read_bytes()
    script = (
        "import sys; from switchgear._hooks.install.settings import hook_file;"
        "hook_file('claude-code', 'project', sys.argv[1]).install()"
    )
    crowd = [
        subprocess.Popen([sys.executable, "-c", script, str(project)], stderr=subprocess.PIPE)
        for _ in range(8)
    ]
    for process in crowd:
        _, told = process.communicate(timeout=LIMIT_S)
        assert process.returncode == 0, told
    assert not there.install().changed
    assert len(there.state().commands) == 1
    there.uninstall()
    assert path.read_bytes() == before


def test_a_status_names_what_is_gone_missing_or_switched_off(project: Path) -> None:
    there = hook_file("claude-code", PROJECT, str(project))
    assert not there.state().installed
    assert not there.state().exists
    there.install()
    path = Path(there.path)
    told = json.loads(path.read_bytes())
    del told["hooks"]["Stop"]
    text = json.dumps({**told, "disableAllHooks": True})
    path.write_text(text.replace("entry.py claude-code", "entry.py claude-code --root /no/such"))
    found = there.state()
    assert found.missing == ("Stop",)
    assert found.outdated
    assert "/no/such" in found.missing_paths
    assert found.switched_off == f'"disableAllHooks" is true in {path}'


@pytest.mark.parametrize(
    ("config", "told"),
    [
        ({"enabled": False}, '"hooksConfig.enabled" is false'),
        ({"disabled": ["switchgear"]}, '"hooksConfig.disabled" has "switchgear"'),
        ({"enabled": True, "disabled": ["other"]}, ""),
    ],
)
def test_gemini_has_its_own_ways_to_switch_hooks_off(
    config: dict[str, object], told: str, project: Path
) -> None:
    there = hook_file("gemini", PROJECT, str(project))
    path = prepared(there, json.dumps({"hooksConfig": config}).encode())
    there.install()
    assert there.state().switched_off == (f"{told} in {path}" if told else "")


@pytest.mark.parametrize(
    ("agent", "file", "text", "told"),
    [
        ("claude-code", "home/.claude/settings.json", '{"disableAllHooks": true}', "disableAllH"),
        ("claude-code", "project/.claude/settings.local.json", '{"disableAllHooks": true}', "disa"),
        (
            "codex",
            "home/.codex/config.toml",
            "[features]\nhooks = false\n",
            "features.hooks is false",
        ),
        ("qwen", "home/.qwen/settings.json", '{"disableAllHooks": true}', "disableAllHooks"),
    ],
)
def test_switches_that_turn_hooks_off_are_found_in_every_settings_file(
    agent: str, file: str, text: str, told: str, project: Path
) -> None:
    there = hook_file(agent, PROJECT, str(project))
    there.install()
    assert there.state().switched_off == ""
    path = project.parent / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    found = there.state().switched_off
    assert told in found
    assert found.endswith(f" in {path}")
    path.write_text("{ broken = ")
    assert there.state().switched_off == ""


def test_agents_are_found_where_their_variables_point(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, agent in HOOKED.items():
        monkeypatch.setenv(agent.home_variable, str(tmp_path / name))
        assert hook_file(name, USER, ".").path.startswith(str(tmp_path / name))


@pytest.mark.parametrize(
    ("command", "ours"),
    [
        ("/usr/bin/python3 -I -S '/a b/switchgear/hooks/entry.py' gemini --root /x", True),
        ("switchgear-hook codex", True),
        ("/home/me/.local/bin/switchgear-hook pi", True),
        ("switchgear-hook", False),
        ("echo switchgear/hooks/entry.py", False),
        ("my-switchgear-hook codex", False),
        ("unbalanced 'quote", False),
        ("", False),
    ],
)
def test_our_command_is_recognised_wherever_it_is_installed(command: str, ours: bool) -> None:
    assert is_ours(command) is ours


@pytest.mark.parametrize("agent", WITH_SETTINGS)
def test_every_event_that_is_hooked_is_one_of_the_dialect(agent: str) -> None:
    assert set(HOOKED[agent].events) <= set(dialect_of(agent).moments)


def test_an_unknown_agent_is_refused_with_the_known_names() -> None:
    with pytest.raises(ValueError, match="must be one of claude-code, codex"):
        hook_file("emacs", PROJECT, ".")
