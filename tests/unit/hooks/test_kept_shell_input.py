"""The file of what the running shells of a session have received, and of what started them."""

import fcntl
import json
import os
import stat
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from switchgear._agents.hook_protocol import HookFacts, Moment
from switchgear._hooks import shell_input
from switchgear._hooks.shell_input import (
    LOCKED_S,
    LONGEST_START,
    MOST_SHELLS,
    OLD_S,
    UNKEPT,
    Piece,
    _remove_old,
    keep_piece,
    keep_start,
    piece,
)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A project, which has its own folder."""
    (tmp_path / ".git").mkdir()
    return tmp_path


def start(args: Any) -> HookFacts:
    return HookFacts("codex", "PreToolUse", Moment.BEFORE_TOOL, "s", tool="exec_command", args=args)


def write(chars: str, shell: Any = 1) -> HookFacts:
    args = {"session_id": shell, "chars": chars}
    return HookFacts("codex", "PreToolUse", Moment.BEFORE_TOOL, "s", tool="write_stdin", args=args)


def file_of(root: Path) -> Path:
    return root / ".switchgear" / "shell-input-codex-s.json"


def saved(root: Path) -> Any:
    path = file_of(root)
    text = path.read_text() if path.exists() else ""
    return json.loads(text) if text else {"shells": {}, "starts": []}


def save(root: Path, data: Any) -> None:
    file_of(root).parent.mkdir(exist_ok=True)
    file_of(root).write_text(json.dumps(data))


@pytest.mark.parametrize(
    ("args", "command"),
    [
        ({"cmd": "bash"}, "bash"),
        ({"command": "cd x; /bin/zsh -i"}, "cd x; /bin/zsh -i"),
        ({"cmd": ["ssh", "host"]}, "ssh host"),
        ({"cmd": "make", "tty": True}, "make"),
        ({"cmd": "make"}, None),
        ({"cmd": "make", "tty": False}, None),
        ({"cmd": "make", "tty": "yes"}, None),
        ({"cmd": "cat bash/x"}, None),
        ({"cmd": "", "tty": True}, None),
        ({"tty": True}, None),
        ("bash", None),
    ],
)
def test_a_command_that_starts_a_shell_or_a_terminal_is_kept(
    root: Path, args: Any, command: str | None
) -> None:
    keep_start(start(args), str(root))
    assert saved(root)["starts"] == ([] if command is None else [{"command": command}])


def test_a_start_is_kept_with_its_folder_and_cut_off(root: Path) -> None:
    args = {"cmd": "bash " + "x" * LONGEST_START, "workdir": "src", "cwd": 3, "env": "x"}
    keep_start(start(args), str(root))
    (kept,) = saved(root)["starts"]
    assert kept == {"command": ("bash " + "x" * LONGEST_START)[:LONGEST_START], "workdir": "src"}


def test_the_latest_starts_are_kept_once_each(root: Path) -> None:
    for number in range(MOST_SHELLS + 2):
        keep_start(start({"cmd": f"bash {number}"}), str(root))
    keep_start(start({"cmd": "bash 5"}), str(root))
    commands = [each["command"] for each in saved(root)["starts"]]
    assert commands == [f"bash {n}" for n in (2, 3, 4, *range(6, MOST_SHELLS + 2), 5)]


def test_a_piece_is_judged_for_each_shell_that_may_receive_it(root: Path) -> None:
    keep_start(start({"cmd": "bash", "workdir": "src"}), str(root))
    keep_piece(write("cd x\nr"), str(root))
    found = piece(write("m y\n"), str(root))
    typed = "cd x\nrm y\n"
    calls = ({"chars": typed}, {"command": f"bash\n{typed}", "workdir": "src"})
    assert found == Piece(calls, "")
    assert saved(root)["shells"] == {"1": "cd x\nr"}, "it is not admitted yet"


def test_a_call_that_writes_to_no_shell_is_not_shell_input(root: Path) -> None:
    assert piece(start({"cmd": "bash"}), str(root)) is None


def test_the_input_of_the_latest_shells_is_kept(root: Path) -> None:
    for number in range(MOST_SHELLS + 2):
        keep_piece(write(f"ls {number}\n", number), str(root))
    keep_piece(write("x", 5), str(root))
    keep_piece(write("x", 99), str(root))
    shells = saved(root)["shells"]
    assert list(shells) == [str(n) for n in (3, 4, *range(6, MOST_SHELLS + 2), 5, 99)]
    assert (shells["5"], shells["99"]) == ("ls 5\nx", "x")


def test_the_name_of_a_shell_is_cut_off(root: Path) -> None:
    keep_piece(write("x", "n" * 121), str(root))
    assert list(saved(root)["shells"]) == ["n" * 120]


def test_input_without_the_name_of_a_shell_is_that_of_one_shell(root: Path) -> None:
    facts = write("x")
    keep_piece(facts._replace(args={"chars": "x"}), str(root))
    assert saved(root)["shells"] == {"": "x"}


def test_a_shorter_state_replaces_a_longer_one(root: Path) -> None:
    keep_piece(write("a long line that is not ended"), str(root))
    keep_piece(write("\x03"), str(root))
    assert saved(root)["shells"] == {"1": ""}


def test_file_and_folder_belong_to_the_user_alone(root: Path) -> None:
    keep_piece(write("x"), str(root))
    for path, mode in ((file_of(root), 0o600), (file_of(root).parent, 0o700)):
        assert stat.S_IMODE(path.stat().st_mode) == mode


@pytest.mark.parametrize(
    "data",
    [
        [],
        {"shells": [], "starts": []},
        {"shells": {}, "starts": {}},
        {"shells": {"1": 3}, "starts": []},
        {"shells": {"0": "", "1": 3}, "starts": []},
        {"shells": {}, "starts": ["bash"]},
        {"shells": {}, "starts": [{"command": "bash"}, {"command": 3}]},
    ],
)
def test_invalid_saved_input_is_not_read(root: Path, data: Any) -> None:
    save(root, data)
    assert piece(write("ls"), str(root)) == Piece((), UNKEPT)
    assert piece(write("ls\n"), str(root)) == Piece(({"command": "ls\n"},), "")
    assert piece(write(" "), str(root)) == Piece(({"command": " "},), "")
    keep_piece(write("x"), str(root))
    assert saved(root) == data


def test_valid_saved_input_is_read(root: Path) -> None:
    save(root, {"shells": {"0": "", "1": "l"}, "starts": [{"command": "bash"}]})
    found = piece(write("s\n"), str(root))
    assert found == Piece(({"chars": "ls\n"}, {"command": "bash\nls\n"}), "")


def test_input_with_moving_keys_is_unread_without_the_file_too(root: Path) -> None:
    save(root, [])
    found = piece(write("a\x1b[Db\n"), str(root))
    assert found is not None
    assert found.unread.startswith("a line with cursor keys")


def test_the_files_of_abandoned_sessions_are_removed_by_the_next_session(root: Path) -> None:
    folder, now_s = root / ".switchgear", time.time()
    folder.mkdir()
    ages_s = {"shell-input-old": OLD_S + 3600.0, "shell-input-new": OLD_S - 3600.0}
    for name, age_s in {**ages_s, "state.db": 2 * OLD_S}.items():
        (folder / name).write_text("{}")
        os.utime(folder / name, (now_s - age_s, now_s - age_s))
    keep_piece(write("x"), str(root))
    left = {path.name for path in folder.iterdir()}
    assert left == {"shell-input-new", "state.db", "shell-input-codex-s.json"}


def test_the_age_of_a_file_is_its_own_and_not_that_of_what_it_links_to(tmp_path: Path) -> None:
    folder, now_s = tmp_path / "folder", 2_000_000_000.0
    folder.mkdir()
    target = tmp_path / "target"
    target.write_text("")
    os.utime(target, (0.0, 0.0))
    ages_s = {"shell-input-old": OLD_S + 1.0, "shell-input-new": OLD_S}
    for name, age_s in ages_s.items():
        (folder / name).symlink_to(target)
        times = (now_s - age_s, now_s - age_s)
        os.utime(folder / name, times, follow_symlinks=False)
    _remove_old(str(folder), now_s)
    assert [path.name for path in folder.iterdir()] == ["shell-input-new"]
    assert target.exists()


class Clock:
    """Time passes only while the code sleeps; what it waits for happens after so many sleeps."""

    def __init__(self, happens: Any = None, after: int = 0) -> None:
        self.now_s = 100.0
        self.sleeps: list[float] = []
        self._happens, self._after = happens, after

    def sleep(self, seconds: float) -> None:
        self.sleeps.append(seconds)
        self.now_s += 0.25  # on a busy machine
        if len(self.sleeps) == self._after:
            self._happens()


@pytest.mark.parametrize("released_after", [3, 0])
def test_a_lock_of_another_hook_is_waited_for_up_to_a_second(
    root: Path, monkeypatch: pytest.MonkeyPatch, released_after: int
) -> None:
    keep_piece(write("l"), str(root))
    holder = os.open(file_of(root), os.O_RDWR)
    fcntl.flock(holder, fcntl.LOCK_EX)
    clock = Clock(lambda: fcntl.flock(holder, fcntl.LOCK_UN), released_after)
    stand_in = SimpleNamespace(monotonic=lambda: clock.now_s, sleep=clock.sleep, time=time.time)
    monkeypatch.setattr(shell_input, "time", stand_in)
    try:
        found = piece(write("s\n"), str(root))
    finally:
        os.close(holder)
    assert set(clock.sleeps) == {0.01}
    if released_after:
        assert found == Piece(({"chars": "ls\n"},), "")
        assert len(clock.sleeps) == released_after
    else:
        assert found == Piece(({"command": "s\n"},), "")
        assert len(clock.sleeps) == LOCKED_S / 0.25
