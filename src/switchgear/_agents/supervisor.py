"""The process between Switchgear and an agent: it ends every process that the agent started.

An agent's commands fork, detach, change their process group and ignore signals. So the agent is a child of this
program, which is the subreaper of its descendants on Linux: a process that loses its parent becomes a child of the
supervisor, whatever its session is. The supervisor ends all descendants before it exits, also if Switchgear is
killed, because its control pipe is closed then. The only exception is the resident process of the hooks
(`_hooks/resident.py`), which a hook in the run may have started: it serves all agents of the user, so it continues
to run, and no run waits for it.

To start quickly, it is a plain script that imports neither `site` nor Switchgear, and it is often started before
its job is known (see process.py):

    python -I -S supervisor.py JOB_FD CONTROL_FD STATUS_FD

Job: the command, the environment, the directory and the grace period in seconds, as `marshal` data up to the end
of file; if the pipe is closed without a job, the supervisor exits.
Control: `T` sends SIGTERM, and SIGKILL after the grace period; `K` or the end of file sends SIGKILL at once.
Status: one line, `exit N` (negative: ended by that signal) or `error ERRNO`, then the end of file.
"""

import ctypes
import marshal
import os
import select
import signal
import sys
import time

_SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER
_LINGERING_S = 0.5
"""Grace period in seconds for the processes that remain when the agent itself has ended."""
_RESIDENT = os.path.join(
    os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "_hooks", "resident.py"
)
_IGNORED_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
_MAX_KILL_S = 5.0
"""Seconds to wait after SIGKILL; a process that still exists then is blocked in the kernel."""


class Supervisor:
    """Runs one agent, and ends its descendants. Used by one thread."""

    def __init__(self, control: int, status: int) -> None:
        self.control = control
        self.status = status
        self.grace_s = 0.0
        self.leader = 0
        self.leader_ended = False
        self.deadline_s: float | None = None
        """When SIGKILL is sent; `None`: the run is not being ended."""
        self.childless = False
        """Whether no child is left, and therefore no descendant, because orphans become children."""
        for descriptor in (control, status):
            os.set_inheritable(descriptor, False)  # the agent must not inherit them
        self.wake_reader, wake_writer = os.pipe()
        for descriptor in (self.wake_reader, wake_writer):
            os.set_blocking(descriptor, False)
        signal.set_wakeup_fd(wake_writer, warn_on_full_buffer=False)

    def run(self, job: int) -> None:
        """Read the job, start its program, and stay until no process of it is left."""
        become_reaper()
        for number in _IGNORED_SIGNALS:
            signal.signal(number, signal.SIG_IGN)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        with open(job, "rb") as pipe:
            request = pipe.read()
        try:
            argv, env, cwd, self.grace_s = marshal.loads(request)  # noqa: S302 - our own parent's
        except (EOFError, ValueError, TypeError):  # the caller no longer exists
            return
        if not self.start(argv, env, cwd):
            return
        for descriptor in (0, 1, 2):  # the output must end when the agent's processes have ended
            os.close(descriptor)
        while self.supervise_once():
            self.wait()

    def start(self, argv: list[str], env: dict[str, str], cwd: str) -> bool:
        """Start the program. Returns whether it started; a failure is written to the status pipe."""
        reading, writing = os.pipe()
        self.leader = os.fork()
        if self.leader == 0:
            execute(argv, env, cwd, writing)
        os.close(writing)
        failure = os.read(reading, 16)
        os.close(reading)
        if failure:
            os.waitpid(self.leader, 0)
            self.send_line(f"error {failure.decode()}\n")
        return not failure

    def supervise_once(self) -> bool:
        """Reap ended children, and end the others if it is time. Returns False if nothing is left to do."""
        self.reap()
        if self.childless or (self.leader_ended and only_residents_left()):
            return False
        if self.leader_ended and self.deadline_s is None:
            self.end(min(self.grace_s, _LINGERING_S))
        if self.deadline_s is not None and time.monotonic() >= self.deadline_s:
            send_signal(descendants(), signal.SIGKILL)
            self.kill_group(signal.SIGKILL)
            return time.monotonic() < self.deadline_s + _MAX_KILL_S
        return True

    def wait(self) -> None:
        """Wait until a child ends, an order arrives or the time is up."""
        left_s = None
        if self.deadline_s is not None:  # SIGKILL is repeated, because the processes may fork
            left_s = max(0.005, self.deadline_s - time.monotonic())
        controls = [] if self.control < 0 else [self.control]
        ready, _, _ = select.select([self.wake_reader, *controls], [], [], left_s)
        if self.wake_reader in ready:
            os.read(self.wake_reader, 4096)
        if self.control in ready:
            order = os.read(self.control, 1)
            self.end(self.grace_s if order == b"T" else 0.0)
            if not order:
                os.close(self.control)
                self.control = -1

    def end(self, grace_s: float) -> None:
        """Send SIGTERM to all processes, and set the time of SIGKILL."""
        first = self.deadline_s is None
        until_s = time.monotonic() + grace_s
        self.deadline_s = until_s if self.deadline_s is None else min(self.deadline_s, until_s)
        if first and grace_s > 0:  # a second SIGTERM would interrupt their cleanup
            send_signal(descendants(), signal.SIGTERM)
            self.kill_group(signal.SIGTERM)

    def reap(self) -> None:
        """Reap ended children, and report the end of the agent."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                self.childless = True
                return
            if pid == 0:
                return
            if pid == self.leader:
                self.leader_ended = True
                self.send_line(f"exit {os.waitstatus_to_exitcode(status)}\n")

    def kill_group(self, number: int) -> None:
        """Send a signal to the process group, on systems without /proc."""
        if not os.path.isdir("/proc/self/task"):
            try:
                os.killpg(self.leader, number)
            except (ProcessLookupError, PermissionError):
                return

    def send_line(self, line: str) -> None:
        """Write to the process that started it, if that still runs."""
        try:
            os.write(self.status, line.encode())
        except OSError:
            self.end(0.0)


def execute(argv: list[str], env: dict[str, str], cwd: str, failure_fd: int) -> None:
    """In the child: start a new session, restore default signals, change the directory, run the program."""
    try:
        os.setsid()
        signal.set_wakeup_fd(-1)
        for number in (*_IGNORED_SIGNALS, signal.SIGCHLD, signal.SIGPIPE):
            signal.signal(number, signal.SIG_DFL)
        os.chdir(cwd)
        os.execvpe(argv[0], argv, env)  # noqa: S606 - the agent's command
    except OSError as problem:
        os.write(failure_fd, str(problem.errno or 1).encode())
    finally:
        os._exit(127)


def become_reaper() -> None:
    """Make orphaned descendants children of this process, if the system supports it."""
    try:
        ctypes.CDLL(None, use_errno=True).prctl(_SUBREAPER, 1, 0, 0, 0)
    except (OSError, AttributeError):
        return


def only_residents_left() -> bool:
    """Whether only resident processes are left, as far as /proc shows."""
    found = children(os.getpid())
    return bool(found) and all(is_resident(child) for child in found)


def is_resident(pid: int) -> bool:
    """Whether a process is the resident process of the hooks, by its program and its script."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            words = file.read(8192).split(b"\0")
        same = os.path.samestat(os.stat(f"/proc/{pid}/exe"), os.stat("/proc/self/exe"))
    except OSError:
        return False
    return same and words[1:4] == [b"-I", b"-S", os.fsencode(_RESIDENT)]


def descendants() -> list[int]:
    """All current descendants of this process, except resident processes."""
    found: list[int] = []
    known = {os.getpid()}
    parents = [os.getpid()]
    while parents:
        for child in children(parents.pop()):
            if child not in known and not is_resident(child):
                known.add(child)
                found.append(child)
                parents.append(child)
    return found


def children(pid: int) -> list[int]:
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return []
    found: list[int] = []
    for thread in threads:
        try:
            with open(f"/proc/{pid}/task/{thread}/children", "rb") as listing:
                found += [int(child) for child in listing.read().split()]
        except OSError:
            continue
    return found


def send_signal(pids: list[int], number: int) -> None:
    """Send a signal to each process, and continue suspended ones, so that they receive it."""
    for pid in pids:
        for signal_number in (number, signal.SIGCONT):
            try:
                os.kill(pid, signal_number)
            except (ProcessLookupError, PermissionError):
                break


if __name__ == "__main__":
    job_fd, control_fd, status_fd = map(int, sys.argv[1:4])
    Supervisor(control_fd, status_fd).run(job_fd)
    os._exit(0)  # no cleanup is needed
