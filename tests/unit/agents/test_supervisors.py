"""Supervisors that wait for their job: available at once, and never left running."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from switchgear._agents.command import CommandAgent
from switchgear._agents.process import AgentProcess, ProcessEnd, SupervisorPool, SupervisorProcess
from timeouts import LIMIT_S


def waiting(supervisors: SupervisorPool) -> SupervisorProcess:
    supervisors.prepare()
    ready = supervisors._next
    assert ready is not None
    return ready


def is_gone(pid: int) -> bool:
    """Whether a process has ended, at most ten seconds from now."""
    until_s = time.monotonic() + LIMIT_S
    while time.monotonic() < until_s:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            return True
        if state == "Z":
            return True
        os.sched_yield()
    return False


def run(
    command: str, folder: Path, supervisors: SupervisorPool, prompt: str = "hello"
) -> tuple[str, str]:
    done = AgentProcess(CommandAgent(command), prompt, folder, supervisors=supervisors).run()
    assert done.end is ProcessEnd.EXITED, done
    return str(done.exit_code), done.tail


def test_the_waiting_supervisor_takes_the_job_and_the_next_one_waits(tmp_path: Path) -> None:
    with SupervisorPool() as supervisors:
        first = waiting(supervisors)
        assert run("cat", tmp_path, supervisors) == ("0", "hello")
        assert first.process.returncode == 0
        second = waiting(supervisors)
        assert second is not first
        assert run("sh -c 'pwd; exit 3'", tmp_path, supervisors) == ("3", str(tmp_path))
        assert second.process.returncode == 0
    assert waiting(supervisors) is not second
    supervisors.close()


def test_a_job_larger_than_a_pipe_arrives_whole(tmp_path: Path) -> None:
    with SupervisorPool() as supervisors:
        waiting(supervisors)
        prompt = "x" * 100_000
        assert (
            run("sh -c 'printf %s {prompt} | wc -c'", tmp_path, supervisors, prompt)[1] == "100000"
        )
        assert run("wc -c", tmp_path, supervisors, "y" * 5_000_000)[1] == "5000000"


def test_the_job_has_its_own_environment_and_not_that_of_the_supervisor(tmp_path: Path) -> None:
    with SupervisorPool() as supervisors:
        waiting(supervisors)
        env = {"PATH": os.environ["PATH"], "ONLY": "this", "ODD": "\udcff"}
        agent = CommandAgent("sh -c env")
        done = AgentProcess(agent, "", tmp_path, env=env, supervisors=supervisors).run()
    names = {line.partition("=")[0] for line in done.tail.splitlines()}
    assert names - {"_", "SHLVL", "OLDPWD"} == {"PATH", "ONLY", "ODD", "PWD", "SWITCHGEAR_PROCESS"}


def test_a_waiting_supervisor_never_has_the_operators_token(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SWITCHGEAR_TOKEN", "swg_secret")
    with SupervisorPool() as supervisors:
        pid = waiting(supervisors).process.pid
        assert b"swg_secret" not in Path(f"/proc/{pid}/environ").read_bytes()


def test_a_supervisor_that_is_killed_while_it_waits_is_replaced(tmp_path: Path) -> None:
    with SupervisorPool() as supervisors:
        first = waiting(supervisors)
        first.process.kill()
        assert is_gone(first.process.pid)
        assert run("cat", tmp_path, supervisors) == ("0", "hello")


def test_a_supervisor_that_is_killed_with_its_job_is_a_lost_run_and_not_an_error(
    tmp_path: Path,
) -> None:
    supervisor = SupervisorProcess()
    supervisor.process.kill()
    assert is_gone(supervisor.process.pid)

    class TooLate(SupervisorPool):
        def acquire(self) -> SupervisorProcess:
            return supervisor

    supervisors = TooLate()
    done = AgentProcess(
        CommandAgent("cat"), "x" * 1_000_000, tmp_path, supervisors=supervisors
    ).run()
    supervisors.close()
    assert (done.end, done.exit_code) == (ProcessEnd.LOST, None)


def test_a_full_system_affects_only_the_run_that_needs_a_supervisor_now(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def full(*_: object, **__: object) -> None:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    opened = len(list(Path("/proc/self/fd").iterdir()))
    supervisors = SupervisorPool()
    monkeypatch.setattr(subprocess, "Popen", full)
    supervisors.prepare()
    with pytest.raises(BlockingIOError):
        supervisors.acquire()
    assert len(list(Path("/proc/self/fd").iterdir())) == opened


def test_closing_ends_all_supervisors_and_is_idempotent() -> None:
    supervisors = SupervisorPool()
    first = waiting(supervisors)
    supervisors.close()
    supervisors.close()
    assert first.process.returncode is not None


def test_a_supervisor_ends_when_its_parent_is_killed() -> None:
    script = """
import sys, time
from switchgear._agents.process import SupervisorPool
supervisors = SupervisorPool()
supervisors.prepare()
print(supervisors._next.process.pid, flush=True)
time.sleep(60)
"""
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as ours:
        assert ours.stdout is not None
        pid = int(ours.stdout.readline())
        assert Path(f"/proc/{pid}").exists()
        ours.send_signal(signal.SIGKILL)
    assert is_gone(pid)
