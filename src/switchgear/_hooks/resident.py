"""The resident process: answers the hook events of this user, and watches the sessions of all projects.

Run as `python -I -S …/resident.py FOLDER NAME`, started by the first hook that finds none. It has all
modules of a hook loaded, and forks a process for an event. That process takes over the environment and
the working directory of the hook and runs the same code as the hook would (`process.respond`), so a
project cannot affect another one: not by an exception, not by a hang, not by what it configures. The
resident itself reads nothing of any project. The forked process stays as a worker for further events of
the same project and environment; hooks connect to it directly.

- The socket is in a folder of mode 0700 that belongs to this user; both ends check the user of the other.
- Connections wait in a queue; beyond its length they are closed, and those hooks decide themselves.
- A hook in another mount or process namespace, or with another root folder, is not served.
- It ends after `IDLE_S` without an event and without a session to watch, and as soon as a file of
  Switchgear has changed. If it is killed, events in progress are not affected, and the next hook starts
  another one.
"""

import errno
import fcntl
import gc
import json
import os
import select
import signal
import socket
import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NoReturn

_HERE = os.path.abspath(__file__)
_PACKAGE = _HERE.rpartition("/_hooks/")[0]
if __name__ == "__main__":  # without `switchgear/__init__.py`, which imports the whole library
    package: Any = type(sys)("switchgear")
    package.__path__ = [_PACKAGE]
    sys.modules["switchgear"] = package

from switchgear._hooks import client  # noqa: E402  found only now
from switchgear._system.files import make_private_folder  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from switchgear._hooks.process import Stores
    from switchgear._hooks.session_check import Look, WatchedSession

IDLE_S = 900.0
"""Seconds without an event and without a session to watch after which the process ends."""
MOST_ACTIVE = 8
"""Processes that decide at the same time; others wait in the queue. One that takes longer than `SLOW_S`
waits for something, and is not counted."""
SLOW_S = 0.3
MOST_PROCESSES = 128
"""Processes that exist at the same time; beyond that, hooks decide themselves."""
MOST_WORKERS = 8
"""Processes that stay for further events of the same project and environment."""
WORKER_S = 30.0
"""Seconds without an event after which such a process ends."""
MOST_EVENTS = 1000
"""Events that it answers."""
MOST_QUEUED = 512
"""Connections that wait."""
MOST_LOOKS = 4
"""Number of projects whose sessions are checked at the same time."""
MOST_SESSIONS = 1000
"""Sessions that are watched; of more the oldest are dropped."""
REQUEST_S = 10.0
"""Seconds for a hook to send its event."""
LONGEST_S = 90
"""Seconds after which a process that answers or looks is ended."""
PRESENCE_S = 10.0
"""Seconds between looks whether the file of the socket is still there."""
CHECK_S = 0.5
"""Seconds between looks whether files of Switchgear have changed."""
LARGEST_MESSAGE = 200_000
INHERITED = (
    *("HOME", "PATH", "LANG", "LC_ALL", "LC_CTYPE", "TMPDIR", "TZ"),
    *("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "DYLD_FALLBACK_LIBRARY_PATH"),
)
"""Environment variables that it inherits: what Python needs, no secrets."""
STATUS = b"?status"
"""Instead of an agent: a request for the status of the resident process."""

Key = tuple[str, str]
Response = tuple[int, bytes, bytes, bytes]
"""Exit code, standard output, standard error, and what is written there if the output cannot be."""


# Starting and querying


def start(*, wait: bool = False) -> bool:
    """Start a resident process unless there is one. False: there is no folder for its socket.

    It belongs to no agent and no run: it gets none of the environment, by which a run finds the
    processes that it ends, and `_agents/supervisor.py` spares it. `wait`: until it has ended, for a
    process that stays and would keep a zombie.
    """
    for path in client.folders():
        try:
            make_private_folder(path)
            lock = _lock(path, client.socket_name())
        except OSError:
            continue
        if lock is not None:
            os.close(lock)  # the new process takes it
            line = [sys.executable, "-I", "-S", _HERE, path, client.socket_name()]
            nothing = [
                (os.POSIX_SPAWN_OPEN, stream, os.devnull, os.O_RDWR, 0) for stream in (0, 1, 2)
            ]
            names = (*INHERITED, client.SWITCH)
            environ = {name: os.environ[name] for name in names if name in os.environ}
            pid = os.posix_spawn(sys.executable, line, environ, file_actions=nothing)
            if wait:
                os.waitpid(pid, 0)
        return True
    return False


def _lock(path: str, name: str) -> int | None:
    """The lock of the resident process; `None`: another process has it. Raises OSError."""
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    file = os.open(os.path.join(path, f"{name}.lock"), flags, 0o600)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(file)
        return None
    return file


def ask(agent: str, root: str, raw: bytes, began_s: float) -> "Response | None":
    """The response to an event that came over HTTP; `None`: no resident process decided it.

    `began_s`: when the event arrived, on the monotonic clock. Raises TimeoutError if the event was sent
    and no response came in time.
    """
    words = [client.POSTED + agent, "--root", root]
    line = client.find(words)
    return None if line is None else client.ask(line, words, raw, began_s)


def status() -> "dict[str, Any] | None":
    """The facts about the running resident process; `None`: there is none that answers."""
    for path in client.folders():
        line = client.connect(path)
        if line is not None:
            with suppress(OSError, ValueError):
                reply = client.exchange(line, STATUS, b"", 5.0)
                return None if reply is None else {**json.loads(reply[1]), "folder": path}
            return None
    return None


def unresponsive() -> int | None:
    """The number of a resident process that runs and has not answered `status`; `None`: there is none."""
    name = client.socket_name()
    for path in client.folders():
        try:
            os.close(client.open_folder(path))
            lock = _lock(path, name)
            if lock is not None:
                os.close(lock)
                continue
            with open(os.path.join(path, f"{name}.lock"), encoding="ascii") as file:
                return int(file.read(20))
        except (OSError, ValueError):
            continue
    return None


def stop(wait_s: float = 5.0) -> bool:
    """End the running resident process, and wait for its end. False: none runs, or it did not end.

    One that does not end by itself, because it is suspended for example, is killed.
    """
    found = status()
    pid = unresponsive() if found is None else int(found["pid"])
    if pid is None:
        return False
    try:
        for number in (signal.SIGTERM, signal.SIGKILL):
            os.kill(pid, number)
            until_s = time.monotonic() + wait_s
            while time.monotonic() < until_s:
                os.kill(pid, 0)
                time.sleep(0.02)
                with suppress(ChildProcessError):
                    os.waitpid(pid, os.WNOHANG)  # if this process started it
    except ProcessLookupError:
        return True
    except OSError:
        return False
    return False


def obstacle() -> str:
    """Why there can be no resident process here; empty: nothing is in the way."""
    if os.environ.get(client.SWITCH) == "off":
        return f"it is turned off by {client.SWITCH}"
    why = ""
    for path in client.folders():
        try:
            make_private_folder(path)
            os.close(client.open_folder(path))
        except OSError as error:
            why = why or f"{path}: {error.strerror}"
        else:
            if not os.path.isdir("/proc/self/fd") and len(os.fsencode(path)) > 80:
                return f"{path} is too long for the address of a socket"
            return _foreign_socket(path)
    return why


def _foreign_socket(path: str) -> str:
    """The problem if another user runs the process at the socket in this folder; empty: there is none."""
    folder = client.open_folder(path)
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as line:
            line.settimeout(client.CONNECT_S)
            line.connect(client.address(folder, path, client.socket_name()))
            user = client.peer(line)[1]
    except OSError:
        return ""  # none runs
    finally:
        os.close(folder)
    if user == os.geteuid():
        return ""
    return f"the process at the socket in {path} belongs to another user ({user}), and is not used"


# The process itself


class Resident:
    """The loop of the resident process. One thread; does not return."""

    def __init__(self, listener: socket.socket, lock: int, file: str, idle_s: float) -> None:
        self._listener = listener
        self._lock = lock
        self._file = file
        self._inode = os.stat(file).st_ino
        self._idle_s = idle_s
        self._pid = os.getpid()
        self._began_s = time.monotonic()
        self._events = 0
        self._last_s = self._began_s
        self._queue: list[tuple[socket.socket, int]] = []
        self._answering: dict[int, float] = {}
        self._looking: dict[int, str] = {}
        self._sessions: dict[Key, WatchedSession] = {}
        self._inbox, self._outbox = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._outbox.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2 * LARGEST_MESSAGE)
        self._wake, self._woken = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._stopping = False
        self._files = _files()
        self._checked_s = self._began_s
        for each in (listener, self._inbox, self._outbox):
            each.setblocking(False)
        self._poll = select.poll()
        for number in (listener.fileno(), self._inbox.fileno(), self._wake):
            self._poll.register(number, select.POLLIN)

    def run(self) -> None:
        signal.set_wakeup_fd(self._woken, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, self._stop)
        while True:
            self._poll.poll(self._wait_ms(time.monotonic()))
            self._empty_pipe()
            self._reap()
            self._receive()
            self._accept()
            now_s = time.monotonic()
            if self._stopping or self._is_idle(now_s):
                break
            self._answer(now_s)
            self._check_sessions(now_s)
        if self._is_present():
            os.unlink(self._file)
        for line, _ in self._queue:
            line.close()  # these hooks decide themselves

    def _stop(self, *_: object) -> None:
        self._stopping = True

    def _wait_ms(self, now_s: float) -> int:
        due_s = now_s + PRESENCE_S
        if not self._answering:
            due_s = min(due_s, self._last_s + self._idle_s)
        for each in self._sessions.values():
            if each.needs_checks:
                due_s = min(due_s, each.due_s)
        if self._queue:
            due_s = min(due_s, now_s + SLOW_S / 4)
        if len(self._looking) >= MOST_LOOKS or due_s < now_s:
            due_s = max(due_s, now_s + 0.05)  # a process that ends wakes it as well
        return max(0, round((due_s - now_s) * 1000) + 1)

    def _is_idle(self, now_s: float) -> bool:
        if not self._is_present():
            return True  # no hook can reach it
        if any(each.agent is not None for each in self._sessions.values()):
            return False
        return not self._queue and not self._answering and now_s >= self._last_s + self._idle_s

    def _is_present(self) -> bool:
        try:
            return os.stat(self._file).st_ino == self._inode
        except OSError:
            return False

    def _empty_pipe(self) -> None:
        with suppress(BlockingIOError):
            while os.read(self._wake, 4096):
                pass

    def _reap(self) -> None:
        while self._answering or self._looking:
            try:
                pid, _ = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                self._answering.clear()
                self._looking.clear()
                return
            if not pid:
                return
            if self._answering.pop(pid, None) is not None:
                self._last_s = time.monotonic()
            self._looking.pop(pid, None)

    # Events

    def _accept(self) -> None:
        while True:
            try:
                line, _ = self._listener.accept()
            except OSError:
                return
            pid = 0 if self._must_end() else _peer(line)
            with suppress(OSError):
                if pid and len(self._queue) < MOST_QUEUED:
                    self._last_s = time.monotonic()
                    line.send(client.QUEUED, socket.MSG_DONTWAIT)
                    self._queue.append((line, pid))
                    continue
            line.close()

    def _must_end(self) -> bool:
        """Whether it was ended, or another version is installed, which the next hook starts."""
        now_s = time.monotonic()
        if now_s >= self._checked_s + CHECK_S:
            self._checked_s = now_s
            self._stopping |= _are_other(self._files)
        return self._stopping

    def _answer(self, now_s: float) -> None:
        """Fork a process for each waiting connection, up to the limit."""
        while self._queue and len(self._answering) < MOST_PROCESSES:
            active = sum(now_s - since_s < SLOW_S for since_s in self._answering.values())
            if active >= MOST_ACTIVE:
                return
            line, pid = self._queue.pop(0)
            try:
                child = os.fork()
            except OSError:
                line.close()
                continue
            if not child:
                self._in_child(lambda line=line, pid=pid: self._serve(line, pid))  # type: ignore[misc]
            self._events += 1
            self._answering[child] = now_s
            line.close()

    def _in_child(self, work: "Callable[[], object]") -> NoReturn:
        """Call `work` in a forked process, then end that process."""
        code = 1
        try:
            os.close(self._lock)  # else it would be held for as long as this process runs
            signal.set_wakeup_fd(-1)
            for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
                signal.signal(number, signal.SIG_DFL)
            signal.alarm(LONGEST_S)
            gc.disable()
            self._listener.close()
            self._inbox.close()
            work()
            code = 0
        finally:
            os._exit(code)

    def _serve(self, line: socket.socket, pid: int) -> None:
        """Answer one event; then stay for others of the same project and environment."""
        from switchgear._hooks.process import Stores  # noqa: PLC0415

        for each, _ in self._queue:
            each.close()
        stores = Stores()
        context = self._event(line, pid, stores, None)
        if context is None or len(self._answering) >= MOST_WORKERS:
            return
        gc.enable()
        suffix = client.worker_suffix(os.fsdecode(context[0]), context[1:])
        listener = _bind(self._file + suffix, 64)
        if listener is None:
            return
        inode = os.stat(self._file + suffix).st_ino
        try:
            self._stay(listener, stores, context)
        finally:
            with suppress(OSError):
                if os.stat(self._file + suffix).st_ino == inode:
                    os.unlink(self._file + suffix)

    def _stay(self, listener: socket.socket, stores: "Stores", context: list[bytes]) -> None:
        listener.settimeout(WORKER_S)
        for _ in range(MOST_EVENTS):
            signal.alarm(0)
            try:
                line, _ = listener.accept()
            except OSError:
                return
            signal.alarm(LONGEST_S)
            if self._must_end() or os.getppid() != self._pid:
                line.close()
                return
            pid = _peer(line)
            with line, suppress(OSError, ValueError):
                if pid:
                    self._event(line, pid, stores, context)

    def _event(
        self, line: socket.socket, pid: int, stores: "Stores", context: list[bytes] | None
    ) -> list[bytes] | None:
        """Answer one event. Returns its project and environment; `None`: there was no event.

        `context`: the only project and environment that are served.
        """
        from switchgear._hooks.command import AGENTS  # noqa: PLC0415
        from switchgear._hooks.process import NO_CALLER, respond  # noqa: PLC0415

        line.settimeout(REQUEST_S)
        line.sendall(client.READY)
        sizes = client.received(line, 16)
        head_size, raw_size = int(sizes[:8], 16), int(sizes[8:], 16)
        if head_size > client.LARGEST_CONTEXT or raw_size > client.LARGEST_BYTES + 1:
            return None
        head, raw = client.received(line, head_size), client.received(line, raw_size)

        def write(code: int, out: bytes, err: bytes, refusal: bytes) -> int:
            sizes = (code, len(out), len(err), len(refusal))
            try:
                line.sendall(b"".join(b"%08x" % size for size in sizes) + out + err + refusal)
                line.close()
            except OSError:
                return 1  # the hook has ended; the remaining work is done anyway
            return 0

        if head == STATUS:
            write(0, self._status(), b"", b"")
            return None
        words = head.split(b"\0")
        agent, root, cwd = (os.fsdecode(word) for word in words[:3])
        event, new_context = words[3].decode(), [words[1], *words[4:]]
        began_s = float(event.partition(" ")[0])
        posted, agent = agent.startswith(client.POSTED), agent.removeprefix(client.POSTED)
        if agent not in AGENTS or (context is not None and context != new_context):
            return None  # the hook decides itself
        os.chdir(cwd)
        if context is None:
            os.environ.clear()
            os.environb.update(each.partition(b"=")[::2] for each in words[4:])
        now_s = time.monotonic()
        began_s = began_s if 0 <= now_s - began_s <= client.LAST_S else now_s
        caller = NO_CALLER if posted else pid
        respond(
            *(agent, root or None, raw, began_s, write),
            caller=caller,
            event=event,
            watches=self,
            stores=stores,
        )
        return new_context

    def _status(self) -> bytes:
        watched = [
            {"session": each.session, "root": each.root}
            | {"pid": None if each.agent is None else each.agent.pid}
            for each in self._sessions.values()
            if each.needs_checks
        ]
        facts = {
            "pid": self._pid,
            "version": _version(),
            "age_s": round(time.monotonic() - self._began_s, 1),
            "events": self._events,
            "sessions": watched,
        }
        return json.dumps(facts).encode()

    # Sessions

    def needs(self, root: str, session: str) -> bool:
        """Whether a session is not watched; used by the processes that answer events."""
        found = self._sessions.get((root, session))
        if found is None or found.rests:
            return True
        return found.agent is not None and not found.agent.lives

    def add(self, root: str, session: str, pid: int | None, *, posted: bool) -> None:
        """Have the resident process watch a session; used by the processes that answer events."""
        from switchgear._hooks.session_check import WatchedProcess  # noqa: PLC0415

        found = None if pid is None else WatchedProcess.of(pid)
        environ = dict(os.environ) if found is not None or posted else {}
        about = {"root": root, "session": session, "agent": found, "posted": posted}
        self._note({**about, "environ": environ})
        self._send({**about, "environ": environ})

    def _send(self, message: "Mapping[str, Any]") -> None:
        data = json.dumps(message).encode()
        # If the resident is gone or busy, the next event of the session tries again.
        with suppress(OSError):
            if len(data) <= LARGEST_MESSAGE:
                self._outbox.send(data)

    def _receive(self) -> None:
        with suppress(OSError):  # until there is none left
            while True:
                data = self._inbox.recv(LARGEST_MESSAGE)
                with suppress(ValueError, TypeError, KeyError):
                    self._note(json.loads(data))

    def _note(self, facts: "dict[str, Any]") -> None:
        from switchgear._hooks.session_check import WatchedProcess, WatchedSession  # noqa: PLC0415

        now_s = time.monotonic()
        key = (facts["root"], facts["session"])
        if "environ" in facts:
            agent = None if facts["agent"] is None else WatchedProcess(*facts["agent"])
            before = self._sessions.pop(key, None)
            new = WatchedSession(
                agent, *key, facts["environ"], now_s, now_s, posted=bool(facts["posted"])
            )
            if before is not None and before[:3] == new[:3] and before.posted == new.posted:
                new = before._replace(environ=facts["environ"], due_s=now_s, rests=False)
            self._sessions[key] = new
            while len(self._sessions) > MOST_SESSIONS:
                del self._sessions[next(iter(self._sessions))]
        elif facts["ends"]:
            self._sessions.pop(key, None)
        elif key in self._sessions:
            self._sessions[key] = self._sessions[key]._replace(**facts["changes"])

    def _check_sessions(self, now_s: float) -> None:
        """Fork a process for each project that has a session to check."""
        due: dict[str, list[WatchedSession]] = {}
        for each in self._sessions.values():
            if each.needs_checks and each.due_s <= now_s:
                due.setdefault(each.root, []).append(each)
        for project, watched in due.items():
            if len(self._looking) >= MOST_LOOKS or project in self._looking.values():
                continue
            try:
                child = os.fork()
            except OSError:
                return
            if not child:
                self._in_child(lambda watched=watched: self._visit(watched))  # type: ignore[misc]
            self._looking[child] = project
            for each in watched:  # again after this, if the process reports nothing
                self._sessions[each.root, each.session] = each._replace(due_s=now_s + LONGEST_S)

    def _visit(self, due: "list[WatchedSession]") -> None:
        from switchgear._hooks import session_check as watched  # noqa: PLC0415

        def look(session: "WatchedSession") -> "Look":
            os.chdir(session.root)
            return watched.look_at(session, self._pid)

        for each in due:
            os.environ.clear()
            os.environ.update(each.environ)
            done = watched.visit(each, time.monotonic(), look, watched.start_help)
            if done.ends == watched.AGENT_GONE:
                watched.mark_ended(each, self._pid)
            names = ("due_s", "failures", "interrupted_s", "heard_s", "is_noted", "rests")
            changes = {name: getattr(done.session, name) for name in names}
            self._send(
                {"root": each.root, "session": each.session}
                | {"ends": done.ends, "changes": changes}
            )


def _bind(file: str, queue: int) -> socket.socket | None:
    """A socket that listens at this path, for this user alone; `None`: another process does."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(0o177)
    try:
        if _is_abandoned(file):
            os.unlink(file)
        listener.bind(file)
        listener.listen(queue)
    except OSError:
        listener.close()
        return None
    finally:
        os.umask(before)
    return listener


def _is_abandoned(file: str) -> bool:
    """Whether there is a socket at this path at which no process listens."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as line:
        line.setblocking(False)
        with suppress(OSError):
            return line.connect_ex(file) == errno.ECONNREFUSED
    return False


def _peer(line: socket.socket) -> int:
    """The id of the process at the other end; 0: it is not served, see the module docstring."""
    pid, user = client.peer(line)
    if pid < 0:
        return pid  # only the folder identifies its owner; its process is unknown
    if user != os.geteuid() or not pid:
        return 0
    try:
        same = os.path.samestat(os.stat(f"/proc/{pid}/root"), os.stat("/"))
    except OSError:
        return 0
    return pid if same else 0


def _files() -> "dict[str, tuple[int, int, int]]":
    """The files of Switchgear that are loaded, each with its time of change, size and inode."""
    paths = [
        getattr(module, "__file__", None)
        for name, module in list(sys.modules.items())
        if name.startswith("switchgear") or name == "__main__"
    ]
    return {path: _mark(path) for path in paths if path}


def _are_other(files: "Mapping[str, tuple[int, int, int]]") -> bool:
    """Whether any of these files has changed. Files that were loaded later do not count."""
    return any(_mark(path) != mark for path, mark in files.items())


def _mark(path: str) -> tuple[int, int, int]:
    try:
        found = os.stat(path)
    except OSError:
        return (0, 0, 0)
    return found.st_mtime_ns, found.st_size, found.st_ino


def _version() -> str:
    try:
        with open(os.path.join(_PACKAGE, "__init__.py"), encoding="utf-8") as file:
            return file.read().partition('__version__ = "')[2].partition('"')[0]
    except OSError:
        return ""


def _load() -> None:
    """Import what events need, and decide one in memory, so that no event waits for it."""
    from switchgear._agents.registry import dialect_of  # noqa: PLC0415
    from switchgear._config.sections import Config  # noqa: PLC0415
    from switchgear._hooks import handler, hook_config, interrupt  # noqa: F401, PLC0415
    from switchgear._hooks.command import AGENTS  # noqa: PLC0415
    from switchgear._hooks.compiler import compile_config  # noqa: PLC0415
    from switchgear._hooks.decide import decide  # noqa: PLC0415
    from switchgear._stores.memory import MemoryStore  # noqa: PLC0415
    from switchgear._stores.sqlite.store import SqliteStore  # noqa: F401, PLC0415

    known = hook_config.loaded(json.loads(json.dumps(compile_config(Config(), "/"))), "/")
    store = MemoryStore()
    call = {"session_id": "s", "cwd": "/", "tool_name": "Bash", "tool_use_id": "t"} | {
        "tool_input": {"command": "cd x && git status | grep -c y > z"},
        "tool_response": {"stdout": "1"},
    }
    for agent in AGENTS:
        dialect_of(agent)
    dialect = dialect_of("claude-code")
    for event in ("PreToolUse", "PostToolUse"):
        facts = dialect.read({**call, "hook_event_name": event})
        decide(facts, known, store, dialect.warns, [])


def main(path: str, name: str) -> None:
    """Serve on a socket of this name in this folder, unless another process does."""
    lock = _lock(path, name)
    if lock is None:
        return
    os.ftruncate(lock, 0)
    os.write(lock, f"{os.getpid()}\n".encode())
    folder = client.open_folder(path)
    _load()
    file = client.address(folder, path, name)
    for left in os.listdir(folder):  # by one that was killed, and by its workers
        if left == name or left.startswith(f"{name}-"):
            with suppress(OSError):
                os.unlink(left, dir_fd=folder)
    listener = _bind(file, MOST_QUEUED)
    if listener is None:
        return
    gc.collect()
    gc.freeze()  # what forked processes share is not written to
    value = os.environ.get(client.SWITCH, "")
    idle_s = float(value) if value.isdecimal() else IDLE_S
    Resident(listener, lock, file, idle_s).run()


if __name__ == "__main__":
    os.closerange(3, 65536)  # of the agent: it may wait until they are closed
    with suppress(OSError):  # it leads a session already
        os.setsid()
    os.chdir("/")
    main(sys.argv[1], sys.argv[2])
