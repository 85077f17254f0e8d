"""Real runs with signals at every moment, on a disk that is really full, and suspended in between."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.test_run_command import GOES_ON, Project, is_running, wait_for
from timeouts import LIMIT_S, end

DEADLINE_S = LIMIT_S
"""What the end may take after a signal, and what a busy machine adds."""
IGNORES = "for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP): signal.signal(number, signal.SIG_IGN)\n"


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    made = Project(tmp_path)
    for words in ("config user.name a", "config user.email a@example.invalid"):
        subprocess.run(["git", *words.split()], cwd=made.path, check=True)
    yield made
    for process in made.started:
        end(process)


def ended(project: Project, process: "subprocess.Popen[str]", *numbers: int) -> dict[str, object]:
    """Send the signals, check that the run ends in time, and return its output."""
    began_s = time.monotonic()
    for number in numbers:
        process.send_signal(number)
    out, err = process.communicate(timeout=DEADLINE_S)
    assert time.monotonic() - began_s < DEADLINE_S
    assert process.returncode == 130, err
    result: dict[str, object] = json.loads(out)
    assert result["exit_reason"] == "interrupted"
    runs = project.json("runs")["runs"]
    assert runs[-1]["status"] == "interrupted", runs
    return result


def kept(project: Project, result: dict[str, object], path: str) -> str:
    shown = ["git", "show", f"refs/switchgear/runs/{result['run']}:{path}"]
    return subprocess.run(
        shown, cwd=project.path, check=True, capture_output=True, text=True
    ).stdout


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_an_agent_that_ignores_it_and_its_work_is_saved(
    project: Project, number: int
) -> None:
    body = (
        IGNORES
        + "write('work', 'x'); write('started', str(os.getpid()))\nwhile True: time.sleep(1)"
    )
    process = project.start("run", "x", "--json", agent=body)
    wait_for(project.path / "started")
    result = ended(project, process, number)
    assert kept(project, result, "work") == "x"
    assert not is_running(int((project.path / "started").read_text()))


def test_a_signal_ends_a_validation_that_ignores_it(project: Project) -> None:
    stubborn = "trap '' TERM INT; test -e work || exit 0; touch started; while :; do sleep 1; done"
    flags = ("--validate", f"sh -c '{stubborn.replace(chr(39), chr(34))}'")
    process = project.start("run", "x", "--json", *flags, agent="write('work', 'x')")
    wait_for(project.path / "started")
    result = ended(project, process, signal.SIGTERM)
    assert kept(project, result, "work") == "x"


def test_a_signal_ends_a_wait(project: Project) -> None:
    process = project.start("run", "x", "--json", "--rate-limit", "1/h", agent=GOES_ON)
    wait_for(project.path / "n")
    result = ended(project, process, signal.SIGTERM)
    assert kept(project, result, "n") == "1"


def test_a_signal_ends_a_hook_of_a_commit(project: Project) -> None:
    hook = project.path / ".git" / "hooks" / "pre-commit"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text("#!/bin/sh\ntrap '' TERM INT\ntouch started\nwhile :; do sleep 1; done\n")
    hook.chmod(0o755)
    process = project.start("run", "x", "--json", "--commit", agent=GOES_ON)
    wait_for(project.path / "started")
    result = ended(project, process, signal.SIGTERM)
    assert kept(project, result, "n") == "1"
    status = ["git", "status", "--porcelain"]
    shown = subprocess.run(status, cwd=project.path, check=True, capture_output=True, text=True)
    assert sorted(shown.stdout.split()) == ["??", "??", "n", "started"], "the index was changed"


def test_a_signal_during_the_saving_still_saves(project: Project) -> None:
    slow = project.path.parent / "bin"
    slow.mkdir()
    real = subprocess.run(
        ["which", "git"], capture_output=True, text=True, check=True
    ).stdout.strip()
    wrapper = slow / "git"
    wrapper.write_text(
        f'#!/bin/sh\ncase "$*" in *update-ref*) touch "{slow}/saving"; sleep 2;; esac\nexec {real} "$@"\n'
    )
    wrapper.chmod(0o755)
    project.env["PATH"] = f"{slow}:{project.env['PATH']}"
    process = project.start("run", "x", "--json", agent="write('a', 'b')")
    wait_for(slow / "saving")
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=DEADLINE_S)
    result = json.loads(out)
    assert (process.returncode, result["exit_reason"]) == (0, "completed"), err
    assert kept(project, result, "a") == "b"


def test_two_signals_during_saving_end_it_with_a_message(project: Project) -> None:
    slow = project.path.parent / "bin"
    slow.mkdir()
    real = subprocess.run(
        ["which", "git"], capture_output=True, text=True, check=True
    ).stdout.strip()
    wrapper = slow / "git"
    wrapper.write_text(
        f'#!/bin/sh\ncase "$*" in *fast-import*) test -e done && touch "{slow}/saving" && sleep 600;; esac\n'
        f'exec {real} "$@"\n'
    )
    wrapper.chmod(0o755)
    project.env["PATH"] = f"{slow}:{project.env['PATH']}"
    process = project.start("run", "x", "--json", agent="write('done', 'b')")
    wait_for(slow / "saving")
    began_s = time.monotonic()
    for _ in "12":
        process.send_signal(signal.SIGTERM)
        time.sleep(0.1)
    out, _ = process.communicate(timeout=DEADLINE_S)
    assert time.monotonic() - began_s < LIMIT_S, "the second signal did not cut it short"
    notes = json.loads(out)["notes"]
    assert any("not saved" in note for note in notes), notes


def test_three_signals_at_once_leave_nothing_running(project: Project) -> None:
    body = IGNORES + "write('started', str(os.getpid()))\nwhile True: time.sleep(1)"
    process = project.start("run", "x", agent=body)
    wait_for(project.path / "started")
    process.send_signal(signal.SIGSTOP)  # so that nothing has ended before the third arrives
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        process.send_signal(number)
    process.send_signal(signal.SIGCONT)
    process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 130
    assert not is_running(int((project.path / "started").read_text()))


# A full disk


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 3 MB, if the machine permits creating one."""
    place = tmp_path / "small"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=3m", "switchgear-test", str(place)]
    try:
        subprocess.run(mount, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("no file system can be mounted here")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


FILLS = """
write('work', 'precious')
try:
    with open('junk', 'wb') as file:
        while True: file.write(os.urandom(65536)); file.flush()
except OSError: pass
for each in range(300): tell(type='text', text='x' * 1000)
tell(type='result', text='more', success=None)
"""


def test_a_disk_that_an_agent_fills_ends_the_run_with_its_own_reason(
    small_disk: Path, tmp_path: Path
) -> None:
    project = Project(small_disk)
    project.env["HOME"] = project.env["XDG_STATE_HOME"] = str(tmp_path)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    project.env["TMPDIR"] = str(elsewhere)
    project.agent = tmp_path / "agent.py"
    done = project("run", "x", "--json", agent=FILLS)
    assert done.returncode == 17, done.stdout + done.stderr
    result = json.loads(done.stdout)
    assert result["exit_reason"] == "disk_full"
    assert "free some space" in result["reason"]
    how = result["checkpoint"]["how"]
    if how.startswith("tar "):
        out = tmp_path / "out"
        out.mkdir()
        subprocess.run(how, shell=True, cwd=out, check=True)
        assert (out / "work").read_text() == "precious"
    else:
        assert kept(project, result, "work") == "precious"
    (project.path / "junk").unlink()
    again = project("resume", result["run"], "--json")
    assert again.returncode == 17, "it fills the disk again, so it got to work again"
    (project.path / "junk").unlink()
    project.agent.write_text("import sys; sys.stdin.read(); open('last', 'w').write('x')")
    last = project("resume", result["run"], "--json")
    assert (last.returncode, json.loads(last.stdout)["exit_reason"]) == (0, "completed"), (
        last.stderr
    )


def test_a_disk_that_is_full_from_the_start_costs_nothing(small_disk: Path, tmp_path: Path) -> None:
    project = Project(small_disk)
    project.env["HOME"] = project.env["XDG_STATE_HOME"] = str(tmp_path)
    project.agent = tmp_path / "agent.py"
    project.agent.write_text("import pathlib; pathlib.Path('ran').touch()")
    junk = project.path / "junk"
    with junk.open("wb") as file:
        file.write(
            b"x" * (os.statvfs(small_disk).f_bavail * os.statvfs(small_disk).f_frsize - 400_000)
        )
    done = project("run", "x", "--agent-cmd", f"{sys.executable} {project.agent}", "--json")
    assert done.returncode == 17, done.stdout + done.stderr
    assert not (project.path / "ran").exists()


# Suspended


def test_time_in_which_everything_was_suspended_is_not_silence(project: Project) -> None:
    body = (
        "write('started', str(os.getpid()))\n"
        "until = time.monotonic() + 60\n"
        "while not os.path.exists('go') and time.monotonic() < until: time.sleep(0.05)\n"
        "write('a', 'b')"
    )
    process = project.start("run", "x", "--json", "--idle-timeout", "8s", agent=body)
    wait_for(project.path / "started")
    process.send_signal(signal.SIGSTOP)
    time.sleep(10)  # the silence that must not count
    process.send_signal(signal.SIGCONT)
    (project.path / "go").touch()
    out, err = process.communicate(timeout=LIMIT_S)
    assert json.loads(out)["exit_reason"] == "completed", err
    facts = project.json("runs", "show", "last")["iterations"]
    assert [each["outcome"] for each in facts] == ["completed"]


# A folder that is gone


def test_an_agent_that_removes_the_project_does_not_take_the_result_along(project: Project) -> None:
    body = f"subprocess.run(['rm', '-rf', {str(project.path)!r}], check=True)"
    done = project("run", "x", "--json", "--max-iterations", "1", agent=body)
    assert json.loads(done.stdout)["exit_reason"] == "max_iterations", done.stderr


# A defect


def test_a_defect_after_an_agent_has_worked_is_not_a_usage_error(project: Project) -> None:
    broken = project.path.parent / "broken.py"
    broken.write_text(
        "import sys\n"
        "from switchgear._run import loop as runner\n"
        "def fails(*_, **__): raise RuntimeError('a defect')\n"
        "runner.with_next_prompt = fails\n"
        "from switchgear._cli import main\n"
        "sys.argv = ['switchgear', *sys.argv[1:]]\n"
        "main()\n"
    )
    project.agent.write_text("import sys; sys.stdin.read(); open('a', 'w').write('x')")
    command = [
        sys.executable,
        str(broken),
        "run",
        "x",
        "--agent-cmd",
        f"{sys.executable} {project.agent}",
    ]
    done = subprocess.run(
        command, cwd=project.path, env=project.env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1, done.stderr
    assert "this is a defect of Switchgear (RuntimeError: a defect)" in done.stderr
    assert "Continue: switchgear resume" in done.stderr
