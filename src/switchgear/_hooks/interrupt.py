"""Finds the process of the agent, and interrupts it where no hook output can end its turn.

The agent is the nearest ancestor of the hook that belongs to the same user and has the agent's command line.
Signals are never sent to a shell, to a child of this process, to the first process, or to any process that is
not identified with certainty.
"""

import os
import signal
import time
from collections.abc import Sequence
from stat import S_ISREG
from typing import NamedTuple

from switchgear._agents.registry import hook_row
from switchgear._rules.patterns import text_contains

MAX_ANCESTORS = 12
"""Maximum number of ancestors to check."""
_SYS_PIDFD_GETFD = 438
"""The number of this system call on Linux."""
GRACE_S = 0.3
"""Seconds that the agent has to read the refusal before it is interrupted."""
_COMMAND_LINES = (
    "switchgear serve",
    "switchgear/_hooks/resident.py",
    "switchgear/_hooks/escalation_agent.py",
    "switchgear/_hooks/detached.py",
)
"""Parts of the command lines of Switchgear's own processes."""
_INTERPRETERS = ("node", "bun", "deno", "python", "ruby")


def agent_process(agent: str, start: int | None = None) -> int | None:
    """The process id of the agent that called this hook; `None`: unknown.

    The search goes up from the process `start`; default: the parent of this process.
    """
    pid = os.getppid() if start is None else start
    for _ in range(MAX_ANCESTORS):
        if pid <= 1:
            return None
        info = _process_info(pid)
        if info is None:
            return None
        if info.user != os.getuid():
            return None
        if is_agent(agent, info.words):
            return pid
        pid = info.parent
    return None


def is_agent(agent: str, words: list[str]) -> bool:
    """Whether a command line runs the agent, directly or as the script of an interpreter.

    >>> is_agent("codex", ["/opt/node/bin/node", "/opt/lib/@openai/codex/bin/codex.js", "exec"])
    True
    >>> is_agent("codex", ["sh", "-c", "python entry.py codex"])
    False
    """
    if not words:
        return False
    program = os.path.basename(words[0]).lower()
    if program.startswith(_INTERPRETERS):
        scripts = [word for word in words[1:] if not word.startswith("-")]
        program = scripts[0].lower() if scripts else ""
    names = hook_row(agent).programs
    base = os.path.basename(program).rsplit(".", 1)[0]
    if base in names or any(base.startswith(f"{name}-") for name in names):
        return True
    return any(name in program.split("/")[:-1] for name in (*names, f"{names[0]}-cli"))


class ProcessInfo(NamedTuple):
    parent: int
    user: int
    words: list[str]
    """The command line."""


def is_switchgear(pid: int) -> bool:
    """Whether a process is one of Switchgear's, such as a watcher, a server or a hook."""
    info = _process_info(pid)
    if info is None:
        return False
    names = [os.path.basename(word) for word in info.words[:2]]
    return "switchgear" in names or any(
        "/switchgear/hooks/" in word or "/switchgear/_hooks/" in word for word in info.words
    )


_SEARCH_PROGRAMS = frozenset(
    ("pgrep", "pidof", "grep", "egrep", "fgrep", "rg", "awk", "lsof", "fuser")
)
"""Programs that search for process ids."""


def searches_for_switchgear(words: Sequence[str]) -> bool:
    """Whether a command searches for process ids of Switchgear, by a part of their command lines."""
    if not words or words[0] not in _SEARCH_PROGRAMS:
        return False
    texts = [text for word in words[1:] for text in (word, *word.split("/")[1:2])]  # awk '/x/ …'
    terms = [text.replace("[", "").replace("]", "").strip("/{}^$*. ") for text in texts]
    return any(len(term) > 3 and term in line for term in terms for line in _COMMAND_LINES)


def would_kill_switchgear(words: Sequence[str]) -> bool:
    """Whether a `kill`, `pkill` or `killall` command would end a process of Switchgear.

    It may name the process id, all processes (`kill -9 -1`), or a part of the command line.
    """
    program, *rest = words
    if program != "kill":
        return any(_matches_literally(word, line) for word in rest for line in _COMMAND_LINES)
    all_processes = len(rest) > 1 and rest[-1] == "-1"
    numbers = [word.lstrip("-") for word in rest]
    pids = [int(each[:10]) for each in numbers if each.isdecimal()]
    return all_processes or any(map(is_switchgear, pids))


def _matches_literally(pattern: str, line: str) -> bool:
    """Whether the literal parts of a `pkill` pattern such as `switch.*` are in a command line."""
    for choice in pattern.replace("(", "|").replace(")", "|").split("|"):
        pieces = "".join(" * " if sign in ".*?+^$[]{}\\" else sign for sign in choice).split(" * ")
        plain = "*".join(piece for piece in pieces if piece)
        if len(plain.replace("*", "")) > 3 and text_contains(plain, line):
            return True
    return False


def is_headless(agent: str, words: Sequence[str]) -> bool:
    """Whether a command line runs the agent without its full-screen interface.

    >>> is_headless("codex", ["codex", "exec", "fix it"]), is_headless("codex", ["codex"])
    (True, False)
    """
    return any(word in hook_row(agent).headless for word in words[1:])


def _has_terminal(pid: int) -> bool:
    try:
        return os.readlink(f"/proc/{pid}/fd/1").startswith(("/dev/pts/", "/dev/tty"))
    except OSError:
        return True


def show_headless(agent: str, text: str, pid: int | None) -> bool:
    """Write a text for people to the standard error of a headless agent. Returns False if that is impossible.

    A headless agent ends without showing why it was stopped. An agent with a full-screen interface shows the
    reason itself, and another line would corrupt its screen.
    """
    info = None if pid is None else _process_info(pid)
    if pid is None or info is None:
        return False
    if not is_headless(agent, info.words) and _has_terminal(pid):
        return False
    try:
        with open(_error_output(pid), "wb", buffering=0) as file:
            os.write(file.fileno(), f"{text}\n".encode(errors="replace"))
    except OSError:
        return False
    return True


def _error_output(pid: int) -> int:
    """The standard error of another process, opened for writing. Raises OSError.

    If it is a file, the open file of that process is used where the system allows it: a separate descriptor
    would have its own position, so that the next output of the process would overwrite the text. A terminal
    or a pipe is opened again without blocking, because it may be full.
    """
    path = f"/proc/{pid}/fd/2"
    if hasattr(os, "pidfd_open") and S_ISREG(os.stat(path).st_mode):
        try:
            return _duplicate_descriptor(pid, 2)
        except OSError:
            pass  # the text may be overwritten
    return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)


def _duplicate_descriptor(pid: int, number: int) -> int:
    """A duplicate of the descriptor `number` of another process, with the same position. Raises OSError."""
    import ctypes  # noqa: PLC0415  only when an agent is stopped

    descriptor = os.pidfd_open(pid)
    try:
        libc = ctypes.CDLL(None, use_errno=True)
        file = int(libc.syscall(_SYS_PIDFD_GETFD, descriptor, number, 0))
        if file < 0:
            raise OSError(ctypes.get_errno(), "pidfd_getfd")
        return file
    finally:
        os.close(descriptor)


def pause(pid: int, began: str) -> int:
    """Suspend a process and its descendants. Returns the number of processes; 0: the process has ended.

    `began` is its start time (`began_at`): another process may have the same id by now.
    """
    return _signal_tree(pid, began, signal.SIGSTOP)


def resume(pid: int, began: str) -> int:
    """Continue the processes that `pause` suspended. Returns their number; 0: the process has ended."""
    return _signal_tree(pid, began, signal.SIGCONT)


def signal_children(pid: int, *, suspend: bool) -> int:
    """Suspend or continue all descendants of a process. Returns their number."""
    return _send_signal(_descendants(pid), signal.SIGSTOP if suspend else signal.SIGCONT)


def began_at(pid: int) -> str:
    """The start time of a process in system ticks; empty: it has ended, or the time is unknown."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            return file.read().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return ""


def _signal_tree(pid: int, began: str, number: int) -> int:
    if not began or began_at(pid) != began:
        return 0
    return _send_signal([pid, *_descendants(pid)], number)


def _send_signal(pids: Sequence[int], number: int) -> int:
    """Send a signal to processes, parents first: a suspended parent starts no new processes."""
    sent = 0
    for each in pids:
        try:
            os.kill(each, number)
            sent += 1
        except OSError:
            continue
    return sent


def _descendants(pid: int) -> list[int]:
    """All descendants of a process, except those of Switchgear."""
    children: dict[int, list[int]] = {}
    for entry in os.listdir("/proc") if os.path.isdir("/proc/self") else ():
        info = _process_info(int(entry)) if entry.isdecimal() else None
        if info is not None and info.user == os.getuid():
            children.setdefault(info.parent, []).append(int(entry))
    found: list[int] = []
    waiting = list(children.get(pid, ()))
    while waiting:
        each = waiting.pop(0)
        if each == os.getpid() or is_switchgear(each):
            continue
        found.append(each)
        waiting += children.get(each, ())
    return found


def parent_of(pid: int) -> int:
    """The id of a process's parent; 0: the process has ended."""
    info = _process_info(pid)
    return 0 if info is None else info.parent


def interrupt(agent: str, pid: int) -> None:
    """Send SIGINT to the agent, like Ctrl-C at its terminal.

    A child process sends it a moment later, when the hook has ended and the agent has read the refusal, so that
    the reason is kept with the call.
    """
    if not os.fork():
        try:
            _interrupt_later(agent, pid)
        finally:
            os._exit(0)


def _interrupt_later(agent: str, pid: int) -> None:
    os.setsid()
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nothing, stream)  # the agent waits until the hook's output streams are closed
    time.sleep(GRACE_S)
    info = _process_info(pid)
    if info is not None and info.user == os.getuid() and is_agent(agent, info.words):
        os.kill(pid, signal.SIGINT)


def _process_info(pid: int) -> ProcessInfo | None:
    """The parent, user and command line of a process; `None`: it has ended, or they are unknown."""
    try:
        with open(f"/proc/{pid}/status", encoding="utf-8", errors="replace") as file:
            fields = dict(line.partition(":")[::2] for line in file)
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            words = file.read(65_536).decode(errors="replace").split("\0")
        return ProcessInfo(int(fields["PPid"]), int(fields["Uid"].split()[0]), words[:-1])
    except (OSError, KeyError, ValueError, IndexError):
        return _read_ps(pid)


def _read_ps(pid: int) -> ProcessInfo | None:
    """Like `_process_info`, on systems without /proc."""
    if os.path.isdir("/proc/self"):
        return None
    import subprocess  # noqa: PLC0415  only on systems without /proc

    command = ["/bin/ps", "-o", "ppid=,uid=,command=", "-p", str(pid)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=2, check=True)  # noqa: S603
        parent, user, *words = done.stdout.split()
        return ProcessInfo(int(parent), int(user), words)
    except (OSError, ValueError, subprocess.SubprocessError):
        return None
