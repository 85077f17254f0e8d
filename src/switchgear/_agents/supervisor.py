"""The process between Switchgear and an agent: it ends every process that the agent starts.

An agent's commands fork, detach, change their group and ignore signals. So the agent is a child of
this program, which is the reaper of all its descendants (Linux: a child subreaper): a process that
loses its parent becomes a child of the supervisor, in whatever session it is. The supervisor ends
all of them before it exits, also when Switchgear is killed: its control pipe is then closed.
The one exception is the resident process of the hooks (`_hooks/resident.py`), which the first hook of a
run may have started: it serves all agents of the user, so it continues, and no run waits for it.

It is started as a plain script, without site and without our package, to be there quickly, and
often before there is anything to do (see process.py):

    python -I -S supervisor.py JOB_FD CONTROL_FD STATUS_FD

Job: the command, the environment, the directory and the grace period in seconds, as `marshal`
writes them, up to the end of file; without them there is nothing to do.
Control: `T` ends gently (SIGTERM, after the grace period SIGKILL), `K` or the end of file at once.
Status: one line, `exit N` (negative: by that signal) or `error ERRNO`, then the end of file.
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
"""Grace period for processes that are left when the agent itself has ended."""
_RESIDENT = os.path.join(
    os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "_hooks", "resident.py"
)
_IGNORED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
_GIVE_UP_S = 5.0
"""A process that survives SIGKILL for this long is held by the kernel: waiting does not help."""


class Supervisor:
    """One agent, its descendants and the two pipes to the process that started it."""

    def __init__(self, control: int, status: int) -> None:
        self.control = control
        self.status = status
        self.grace_s = 0.0
        self.leader = 0
        self.ended = False
        self.deadline_s: float | None = None
        """When SIGKILL follows."""
        self.childless = False
        """Whether no child is left. Orphans become children, so then no descendant is left either."""
        for descriptor in (control, status):
            os.set_inheritable(descriptor, False)  # ours, not the agent's
        self.woken, waker = os.pipe()
        for descriptor in (self.woken, waker):
            os.set_blocking(descriptor, False)
        signal.set_wakeup_fd(waker, warn_on_full_buffer=False)

    def run(self, job: int) -> None:
        """Takes the job, starts its program and stays until nothing of it is left."""
        become_reaper()
        for number in _IGNORED:
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
        for descriptor in (0, 1, 2):  # theirs alone, so that the end of output is the end
            os.close(descriptor)
        while self.supervise_once():
            self.wait()

    def start(self, argv: list[str], env: dict[str, str], cwd: str) -> bool:
        """Forks and executes; writes to the status pipe if that fails."""
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
        """Reaps, and ends what has to end; False when there is nothing left to do."""
        self.reap()
        if self.childless or (self.ended and is_alone()):
            return False
        if self.ended and self.deadline_s is None:
            self.end(min(self.grace_s, _LINGERING_S))
        if self.deadline_s is not None and time.monotonic() >= self.deadline_s:
            send(descendants(), signal.SIGKILL)
            self.kill_group(signal.SIGKILL)
            return time.monotonic() < self.deadline_s + _GIVE_UP_S
        return True

    def wait(self) -> None:
        """Until a child ends, an order comes or the time is up."""
        left_s = None
        if self.deadline_s is not None:  # killing is repeated, for they may be forking
            left_s = max(0.005, self.deadline_s - time.monotonic())
        controls = [] if self.control < 0 else [self.control]
        ready, _, _ = select.select([self.woken, *controls], [], [], left_s)
        if self.woken in ready:
            os.read(self.woken, 4096)
        if self.control in ready:
            order = os.read(self.control, 1)
            self.end(self.grace_s if order == b"T" else 0.0)
            if not order:
                os.close(self.control)
                self.control = -1

    def end(self, grace_s: float) -> None:
        """Sends SIGTERM to all and sets the time of SIGKILL."""
        first = self.deadline_s is None
        until_s = time.monotonic() + grace_s
        self.deadline_s = until_s if self.deadline_s is None else min(self.deadline_s, until_s)
        if first and grace_s > 0:  # a second SIGTERM would interrupt their tidying up
            send(descendants(), signal.SIGTERM)
            self.kill_group(signal.SIGTERM)

    def reap(self) -> None:
        """Reaps ended children; reports the leader's end once."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                self.childless = True
                return
            if pid == 0:
                return
            if pid == self.leader:
                self.ended = True
                self.send_line(f"exit {os.waitstatus_to_exitcode(status)}\n")

    def kill_group(self, number: int) -> None:
        """Where there is no /proc to walk, the group is what can be reached."""
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
        for number in (*_IGNORED, signal.SIGCHLD, signal.SIGPIPE):
            signal.signal(number, signal.SIG_DFL)
        os.chdir(cwd)
        os.execvpe(argv[0], argv, env)  # noqa: S606 - starting it is the point
    except OSError as problem:
        os.write(failure_fd, str(problem.errno or 1).encode())
    finally:
        os._exit(127)


def become_reaper() -> None:
    """Where the system can: orphans among the descendants become children of this process."""
    try:
        ctypes.CDLL(None, use_errno=True).prctl(_SUBREAPER, 1, 0, 0, 0)
    except (OSError, AttributeError):
        return


def is_alone() -> bool:
    """Whether resident processes are all that is left, as far as /proc can be read."""
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
    """All living descendants of this process but resident processes, as /proc has them now."""
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


def send(pids: list[int], number: int) -> None:
    """Sends a signal to each; a stopped one is continued, so that it receives it."""
    for pid in pids:
        for signal_number in (number, signal.SIGCONT):
            try:
                os.kill(pid, signal_number)
            except (ProcessLookupError, PermissionError):
                break


if __name__ == "__main__":
    job_fd, control_fd, status_fd = map(int, sys.argv[1:4])
    Supervisor(control_fd, status_fd).run(job_fd)
    os._exit(0)  # nothing is left that would need tidying up
