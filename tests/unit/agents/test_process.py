"""Running one agent: how it ends, what is recorded, and that no process is left.

The agents here are small Python programs. Where a test waits, it waits for something that
happens (a line, a file, an exit), within a bound that only a defect reaches.
"""

import os
import signal
import sys
import threading
import time
from pathlib import Path

import pytest

from switchgear._agents.base import Invocation
from switchgear._agents.command import CommandAgent
from switchgear._agents.events import AgentResult, StreamEvent, TextOutput
from switchgear._agents.process import MARK, AgentProcess, AgentRun, ProcessEnd

LONG_S = 600.0
"""A bound that is never reached where the code is right."""


class Script(CommandAgent):
    """A Python program as an agent; its prompt is on stdin."""

    def __init__(self, code: str) -> None:
        super().__init__("python")
        self.code = code

    def command(self, prompt: str, options: tuple[str, ...]) -> Invocation:
        return Invocation((sys.executable, "-u", "-c", self.code, *options), prompt)


def run(code: str, cwd: Path, prompt: str = "", *, deadline_s: float = LONG_S) -> AgentRun:
    return AgentProcess(Script(code), prompt, cwd, deadline_s=deadline_s).run()


def alive(pid: int) -> bool:
    """Whether a process exists and is not a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_an_exit_reports_code_output_and_duration(tmp_path: Path) -> None:
    done = run("import sys; print('hello'); print('oops', file=sys.stderr); sys.exit(3)", tmp_path)
    assert (done.end, done.exit_code) == (ProcessEnd.EXITED, 3)
    assert TextOutput("hello") in done.events
    assert done.result == AgentResult("hello", claimed_success=False, reason="exit code 3")
    assert set(done.tail.splitlines()) == {"hello", "oops"}
    assert done.output_bytes == len(b"hello\noops\n")
    assert done.output_chars == len("hello")
    assert 0 < done.duration_s < LONG_S


def test_an_agent_that_dies_of_a_signal_has_a_negative_code(tmp_path: Path) -> None:
    done = run("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", tmp_path)
    assert (done.end, done.exit_code) == (ProcessEnd.EXITED, -signal.SIGSEGV)


def test_the_prompt_is_read_from_stdin_however_long_it_is(tmp_path: Path) -> None:
    prompt = "x" * 1_000_000 + "é"
    done = run("import sys; print(len(sys.stdin.buffer.read()))", tmp_path, prompt)
    assert done.events[0] == TextOutput(str(1_000_002))


def test_an_agent_may_leave_its_prompt_unread(tmp_path: Path) -> None:
    assert run("pass", tmp_path, "y" * 1_000_000).exit_code == 0


def test_an_agent_works_in_its_directory(tmp_path: Path) -> None:
    done = run("import os; print(os.getcwd(), os.environ['PWD'])", tmp_path)
    assert done.events[0] == TextOutput(f"{tmp_path.resolve()} {tmp_path}")


def test_the_environment_passes_through_without_the_token(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SWITCHGEAR_TOKEN", "not for agents")
    monkeypatch.setenv("SOME_KEY", "passed")
    code = "import os; print(os.environ.get('SOME_KEY'), os.environ.get('SWITCHGEAR_TOKEN'))"
    assert run(code, tmp_path).events[0] == TextOutput("passed None")
    given = {"SWITCHGEAR_TOKEN": "given", "SOME_KEY": "given too"}
    done = AgentProcess(Script(code), "", tmp_path, env=given).run()
    assert done.events[0] == TextOutput("given too None")


def test_no_descriptor_of_switchgear_reaches_the_agent(tmp_path: Path) -> None:
    code = "import os; print(sorted(int(name) for name in os.listdir('/proc/self/fd')))"
    [event, *_] = run(code, tmp_path).events
    assert isinstance(event, TextOutput)
    assert event.text in {"[0, 1, 2]", "[0, 1, 2, 3]"}  # the listing itself is open, too


def test_a_missing_program_is_named_with_its_install_command(tmp_path: Path) -> None:
    from switchgear._agents.registry import agent_named  # noqa: PLC0415

    done = AgentProcess(agent_named("codex"), "x", tmp_path, env={"PATH": str(tmp_path)}).run()
    assert (done.end, done.exit_code) == (ProcessEnd.NOT_FOUND, None)
    assert "no program 'codex' on the PATH" in done.problem
    assert "npm install -g @openai/codex" in done.problem


def test_a_program_that_cannot_be_executed_is_reported(tmp_path: Path) -> None:
    program = tmp_path / "agent"
    program.write_bytes(b"\x7fELF but not really")
    program.chmod(0o755)
    done = AgentProcess(CommandAgent(str(program)), "x", tmp_path).run()
    assert done.end is ProcessEnd.NOT_FOUND
    assert "cannot be started" in done.problem


def test_a_program_given_by_a_relative_path_is_looked_for_where_it_runs(tmp_path: Path) -> None:
    program = tmp_path / "agent"
    program.write_text("#!/bin/sh\necho here\n")
    program.chmod(0o755)
    assert AgentProcess(CommandAgent("./agent"), "", tmp_path).run().exit_code == 0


def test_a_path_that_is_not_a_directory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="it must be a directory"):
        run("pass", tmp_path / "missing")


def test_the_deadline_ends_an_agent_that_keeps_printing(tmp_path: Path) -> None:
    code = "import time\nwhile True: print('still here'); time.sleep(0.01)"
    done = run(code, tmp_path, deadline_s=0.5)
    assert (done.end, done.exit_code) == (ProcessEnd.DEADLINE, -signal.SIGTERM)
    assert 0.5 <= done.duration_s < LONG_S
    assert done.result is None


def test_silence_ends_an_agent_and_output_does_not(tmp_path: Path) -> None:
    code = "import time\nfor _ in range(8): print('word'); time.sleep(0.1)\ntime.sleep(60)"
    done = AgentProcess(Script(code), "", tmp_path, idle_s=2.0, deadline_s=LONG_S).run()
    assert done.end is ProcessEnd.IDLE
    assert done.output_bytes == 8 * len("word\n")


def test_an_event_may_stop_the_agent_that_caused_it(tmp_path: Path) -> None:
    def stop_at_three(event: StreamEvent) -> None:
        if event == TextOutput("3"):
            process.stop()

    code = "import itertools, time\nfor n in itertools.count(): print(n); time.sleep(0.01)"
    process = AgentProcess(Script(code), "", tmp_path, on_event=stop_at_three, deadline_s=LONG_S)
    done = process.run()
    assert (done.end, done.exit_code) == (ProcessEnd.STOPPED, -signal.SIGTERM)


def test_an_agent_may_clean_up_when_it_is_stopped(tmp_path: Path) -> None:
    code = (
        "import signal, sys, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: (print('tidied'), sys.exit(7)))\n"
        "print('ready')\ntime.sleep(60)"
    )
    process = AgentProcess(Script(code), "", tmp_path, on_event=lambda _: process.stop())
    done = process.run()
    assert (done.end, done.exit_code) == (ProcessEnd.STOPPED, 7)
    assert "tidied" in done.tail


def test_kill_does_not_wait_for_the_grace_period(tmp_path: Path) -> None:
    code = (
        "import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "print('ready')\ntime.sleep(60)"
    )

    def twice(event: StreamEvent) -> None:
        if isinstance(event, TextOutput):
            process.stop()
            process.kill()

    process = AgentProcess(Script(code), "", tmp_path, grace_s=LONG_S, on_event=twice)
    done = process.run()
    assert (done.end, done.exit_code) == (ProcessEnd.KILLED, -signal.SIGKILL)
    assert done.duration_s < LONG_S / 2


def test_stopping_before_the_start_and_after_the_end_is_allowed(tmp_path: Path) -> None:
    process = AgentProcess(Script("import time; time.sleep(60)"), "", tmp_path)
    process.stop()
    assert process.run().end is ProcessEnd.STOPPED
    process.stop()
    process.kill()


def test_an_agent_may_be_stopped_from_another_thread(tmp_path: Path) -> None:
    talking = threading.Event()
    code = "import time; print('ready'); time.sleep(60)"
    process = AgentProcess(Script(code), "", tmp_path, on_event=lambda _: talking.set())

    def stop_when_it_talks() -> None:
        talking.wait(LONG_S)
        process.stop()

    stopper = threading.Thread(target=stop_when_it_talks)
    stopper.start()
    assert process.run().end is ProcessEnd.STOPPED
    stopper.join()


def test_an_observer_that_raises_ends_the_agent_and_its_error_is_raised(tmp_path: Path) -> None:
    def broken(event: StreamEvent) -> None:
        raise LookupError(event)

    code = "import os, time; print(os.getpid()); time.sleep(60)"
    with pytest.raises(LookupError) as caught:
        AgentProcess(Script(code), "", tmp_path, on_event=broken).run()
    said = caught.value.args[0]
    assert not alive(int(said.text))


# A tree that does not want to end: it ignores SIGTERM, one branch forks twice into a session of
# its own, one clears its environment, one stops itself.
TREE = r"""
import os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
signal.signal(signal.SIGHUP, signal.SIG_IGN)

def note(name):
    with open(name + ".tmp", "w") as file:
        file.write(str(os.getpid()))
    os.rename(name + ".tmp", name + ".pid")

def branch(name, *, detach=False, bare=False, stopped=False):
    if os.fork():
        return
    if detach:
        os.setsid()
        if os.fork():
            os._exit(0)
        os.setpgid(0, 0) if os.getpid() != os.getsid(0) else None
    note(name)
    if bare:
        os.execve("/bin/sh", ["sh", "-c", "trap '' TERM; while :; do sleep 1; done"], {})
    if stopped:
        os.kill(os.getpid(), signal.SIGSTOP)
    while True:
        time.sleep(60)

branch("child")
branch("daemon", detach=True)
branch("bare", detach=True, bare=True)
branch("stopped", detach=True, stopped=True)
note("leader")
names = ["child", "daemon", "bare", "stopped", "leader"]
while not all(os.path.exists(name + ".pid") for name in names):
    time.sleep(0.01)
print("ready")
"""


def pids(folder: Path) -> dict[str, int]:
    return {file.stem: int(file.read_text()) for file in folder.glob("*.pid")}


def test_a_process_tree_that_ignores_sigterm_and_detaches_is_ended_completely(
    tmp_path: Path,
) -> None:
    code = TREE + "time.sleep(60)"
    process = AgentProcess(
        Script(code), "", tmp_path, grace_s=0.3, on_event=lambda _: process.stop()
    )
    done = process.run()
    assert (done.end, done.exit_code) == (ProcessEnd.STOPPED, -signal.SIGKILL)
    tree = pids(tmp_path)
    assert set(tree) == {"child", "daemon", "bare", "stopped", "leader"}
    assert {name for name, pid in tree.items() if alive(pid)} == set()


def test_processes_that_an_agent_leaves_running_are_ended(tmp_path: Path) -> None:
    done = AgentProcess(Script(TREE + "sys.exit(0)"), "", tmp_path, deadline_s=LONG_S).run()
    assert (done.end, done.exit_code) == (ProcessEnd.EXITED, 0)
    assert {name for name, pid in pids(tmp_path).items() if alive(pid)} == set()


def test_no_child_process_is_left_a_zombie(tmp_path: Path) -> None:
    run("pass", tmp_path)
    tasks = Path(f"/proc/{os.getpid()}/task")
    children = [pid for task in tasks.iterdir() for pid in (task / "children").read_text().split()]
    ours = [pid for pid in children if b"supervisor" in Path(f"/proc/{pid}/cmdline").read_bytes()]
    assert ours == []


def test_the_process_tree_ends_when_its_parent_is_killed(tmp_path: Path) -> None:
    starter = (
        "import sys; sys.path[:0] = sys.argv[2:]\n"
        "from unit.agents.test_process import *\n"
        "process = AgentProcess(Script(TREE + 'time.sleep(60)'), '', sys.argv[1],\n"
        "    on_event=lambda _: os.kill(os.getpid(), signal.SIGKILL))\n"
        "process.run()\n"
    )
    folder = str(Path(__file__).parents[2])
    child = os.spawnv(
        os.P_WAIT, sys.executable, [sys.executable, "-c", starter, str(tmp_path), folder]
    )
    assert child == -signal.SIGKILL
    tree = pids(tmp_path)
    assert len(tree) == 5
    until_s = time.monotonic() + LONG_S
    while any(alive(pid) for pid in tree.values()):
        assert time.monotonic() < until_s, "the supervisor did not end the tree"
        threading.Event().wait(0.01)


def test_an_agent_that_kills_its_supervisor_is_ended_by_its_mark(tmp_path: Path) -> None:
    code = (
        "import os, signal, time\n"
        "open('leader.pid', 'w').write(str(os.getpid()))\n"
        "os.kill(os.getppid(), signal.SIGKILL)\ntime.sleep(60)"
    )
    done = AgentProcess(Script(code), "", tmp_path, deadline_s=LONG_S).run()
    assert (done.end, done.exit_code) == (ProcessEnd.LOST, None)
    assert done.problem
    until_s = time.monotonic() + LONG_S
    while alive(pids(tmp_path)["leader"]):
        assert time.monotonic() < until_s
        threading.Event().wait(0.01)


def test_every_run_has_its_own_mark(tmp_path: Path) -> None:
    code = f"import os; print(os.environ['{MARK}'])"
    assert run(code, tmp_path).events[0] != run(code, tmp_path).events[0]


def test_memory_is_bounded_whatever_is_printed(tmp_path: Path) -> None:
    code = (
        "import sys\nsys.stdout.write('a' * 10_000_000 + '\\n')\n"
        "for n in range(20_000): sys.stdout.write(f'line {n}\\n')\n"
    )
    done = run(code, tmp_path)
    assert done.output_bytes > 10_000_000
    assert len(done.events) == 5_000
    assert len(done.tail) <= 8_000
    assert done.tail.endswith("line 19999")


def test_binary_output_and_escape_sequences_are_harmless(tmp_path: Path) -> None:
    code = r"import sys; sys.stdout.buffer.write(b'\x1b[2J\xff\x00\x07boo\n\x80')"
    done = run(code, tmp_path)
    assert done.exit_code == 0
    shown = done.tail + "".join(str(event) for event in done.events)
    assert "boo" in shown
    assert not any(ord(character) < 32 and character != "\n" for character in done.tail)


def test_secrets_are_redacted_in_events_and_tail(tmp_path: Path) -> None:
    done = run("print('key sk-proj-abcdefghijklmnop')", tmp_path)
    assert "abcdefghijklmnop" not in str(done)


def test_file_descriptors_are_closed(tmp_path: Path) -> None:
    run("pass", tmp_path)
    descriptors = Path("/proc/self/fd")
    before = len(list(descriptors.iterdir()))
    for _ in range(3):
        run("print(1)", tmp_path)
    assert len(list(descriptors.iterdir())) <= before
