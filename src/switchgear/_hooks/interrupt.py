"""Which process the agent is, and how its turn is ended where no hook output can end it.

The agent is an ancestor of the hook: the nearest one of the same user whose command line is that
of the agent. Never a shell, never a child of this process, never the first process: a process that
cannot be identified for sure is not signalled.
"""

import os
import signal
import time
from collections.abc import Sequence
from stat import S_ISREG

from switchgear._agents.registry import hook_row
from switchgear._rules.patterns import text_contains

MAX_ANCESTORS = 12
"""Number of ancestors to check."""
_SYS_PIDFD_GETFD = 438
"""The number of this system call on Linux."""
GRACE_S = 0.3
"""How long the agent has to react to the refusal before it is interrupted."""
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

    `start` is where to begin looking upwards; default: the parent of this process.
    """
    pid = os.getppid() if start is None else start
    for _ in range(MAX_ANCESTORS):
        if pid <= 1:
            return None
        found = _process_info(pid)
        if found is None:
            return None
        parent, user, words = found
        if user != os.getuid():
            return None
        if is_agent(agent, words):
            return pid
        pid = parent
    return None


def is_agent(agent: str, words: list[str]) -> bool:
    """Whether a command line is that of the agent: its program, or a script that is run for it.

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


def is_switchgear(pid: int) -> bool:
    """Whether a process is one of Switchgear's: a watcher, a server, a hook."""
    found = _process_info(pid)
    if found is None:
        return False
    words = [os.path.basename(word) for word in found[2][:2]]
    return "switchgear" in words or any(
        "/switchgear/hooks/" in word or "/switchgear/_hooks/" in word for word in found[2]
    )


_SEARCH_PROGRAMS = frozenset(
    ("pgrep", "pidof", "grep", "egrep", "fgrep", "rg", "awk", "lsof", "fuser")
)
"""Programs that search for process ids."""


def searches_for_switchgear(words: Sequence[str]) -> bool:
    """Whether a command searches for processes of Switchgear by a part of their command line."""
    if not words or words[0] not in _SEARCH_PROGRAMS:
        return False
    texts = [text for word in words[1:] for text in (word, *word.split("/")[1:2])]  # awk '/x/ …'
    parts = [text.replace("[", "").replace("]", "").strip("/{}^$*. ") for text in texts]
    return any(len(part) > 3 and part in line for part in parts for line in _COMMAND_LINES)


def would_kill_switchgear(words: Sequence[str]) -> bool:
    """Whether `kill`, `pkill` or `killall` with these words would end a process of Switchgear's.

    By its number, as one of all (`kill -9 -1`), or by a part of its command line.
    """
    program, *rest = words
    if program != "kill":
        return any(_matches_literally(word, line) for word in rest for line in _COMMAND_LINES)
    all_processes = len(rest) > 1 and rest[-1] == "-1"
    numbers = [word.lstrip("-") for word in rest]
    return all_processes or any(
        each.isdecimal() and is_switchgear(int(each[:10])) for each in numbers
    )


def _matches_literally(pattern: str, line: str) -> bool:
    """Whether a pattern of `pkill` matches a command line, by its literal parts: `switch.*`."""
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
    """Write a text for people to the error output of a headless agent. False: that is not possible.

    Such an agent ends without showing why it was stopped. One with a full-screen interface shows it
    itself, and a line of Switchgear would only spoil the screen.
    """
    found = None if pid is None else _process_info(pid)
    if pid is None or found is None:
        return False
    if not is_headless(agent, found[2]) and _has_terminal(pid):
        return False
    try:
        with open(_error_output(pid), "wb", buffering=0) as file:
            os.write(file.fileno(), f"{text}\n".encode(errors="replace"))
    except OSError:
        return False
    return True


def _error_output(pid: int) -> int:
    """The error output of another process, opened for writing. Raises OSError.

    A file is shared with that process where the system allows it: what the process writes next
    would otherwise replace our text, because each opening of a file has its own position.
    A terminal or a pipe is reopened, so that a full one cannot block.
    """
    path = f"/proc/{pid}/fd/2"
    if hasattr(os, "pidfd_open") and S_ISREG(os.stat(path).st_mode):
        try:
            return _duplicate_descriptor(pid, 2)
        except OSError:
            pass  # the text may be overwritten; better than none
    return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)


def _duplicate_descriptor(pid: int, number: int) -> int:
    """The open file of another process under `number`, with the same position. Raises OSError."""
    import ctypes  # noqa: PLC0415  only when an agent is stopped

    there = os.pidfd_open(pid)
    try:
        file = int(ctypes.CDLL(None, use_errno=True).syscall(_SYS_PIDFD_GETFD, there, number, 0))
        if file < 0:
            raise OSError(ctypes.get_errno(), "pidfd_getfd")
        return file
    finally:
        os.close(there)


def pause(pid: int, began: str) -> int:
    """Suspend a process and everything it started; how many processes that were. 0: it is gone.

    `began` is when it began (`began_at`): another process may have its number by now.
    """
    return _signal_tree(pid, began, signal.SIGSTOP)


def resume(pid: int, began: str) -> int:
    """Continue what `pause` suspended. Returns the number of processes; 0: the process is gone."""
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
    """Send a signal to processes, parents first: a stopped parent starts nothing new."""
    sent = 0
    for each in pids:
        try:
            os.kill(each, number)
            sent += 1
        except OSError:
            continue
    return sent


def _descendants(pid: int) -> list[int]:
    """All descendants of a process, without those of Switchgear."""
    children: dict[int, list[int]] = {}
    for entry in os.listdir("/proc") if os.path.isdir("/proc/self") else ():
        found = _process_info(int(entry)) if entry.isdecimal() else None
        if found is not None and found[1] == os.getuid():
            children.setdefault(found[0], []).append(int(entry))
    found_so_far: list[int] = []
    waiting = list(children.get(pid, ()))
    while waiting:
        each = waiting.pop(0)
        if each == os.getpid() or is_switchgear(each):
            continue
        found_so_far.append(each)
        waiting += children.get(each, ())
    return found_so_far


def parent_of(pid: int) -> int:
    """The parent of a process; 0 if it is gone."""
    found = _process_info(pid)
    return 0 if found is None else found[0]


def interrupt(agent: str, pid: int) -> None:
    """Send the agent SIGINT, as a person at its terminal would.

    A child does it a moment later, when the hook has ended: so the agent has read the refusal
    that was written before, and keeps the reason with the call.
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
        os.dup2(nothing, stream)  # nothing waits for the end of the output
    time.sleep(GRACE_S)
    found = _process_info(pid)
    if found is not None and found[1] == os.getuid() and is_agent(agent, found[2]):
        os.kill(pid, signal.SIGINT)


def _process_info(pid: int) -> tuple[int, int, list[str]] | None:
    try:
        with open(f"/proc/{pid}/status", encoding="utf-8", errors="replace") as file:
            fields = dict(line.partition(":")[::2] for line in file)
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            words = file.read(65_536).decode(errors="replace").split("\0")
        return int(fields["PPid"]), int(fields["Uid"].split()[0]), words[:-1]
    except (OSError, KeyError, ValueError, IndexError):
        return _read_ps(pid)


def _read_ps(pid: int) -> tuple[int, int, list[str]] | None:
    """The same where there is no /proc."""
    if os.path.isdir("/proc/self"):
        return None
    import subprocess  # noqa: PLC0415  only on systems without /proc

    command = ["/bin/ps", "-o", "ppid=,uid=,command=", "-p", str(pid)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=2, check=True)  # noqa: S603
        parent, user, *words = done.stdout.split()
        return int(parent), int(user), words
    except (OSError, ValueError, subprocess.SubprocessError):
        return None
