"""The resident process: answers the hook events of this user, and watches the sessions of all projects.

It runs as `python -I -S …/resident.py FOLDER NAME`; the first hook that finds none starts it. It has loaded all
modules that a hook needs, and forks a process for an event. The forked process takes over the environment and
the working directory of the hook and runs the same code (`process.respond`), so that no project affects
another, whether by an exception, a hang or its configuration. The resident process itself reads no project
files. The forked process stays as a worker for further events of the same project and environment; hooks
connect to it directly.

- The socket is in a folder of mode 0700 that belongs to this user; both ends check each other's user id.
- Connections wait in a queue. When it is full, they are closed, and those hooks decide their events themselves.
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
    from switchgear._hooks.session_check import CheckResult, WatchedSession

IDLE_S = 900.0
"""Seconds without an event and without a session to watch after which the process ends."""
MAX_ACTIVE = 8
"""Maximum number of processes that decide events at the same time; more connections wait in the queue.
A process that takes longer than `SLOW_S` is waiting, and is not counted."""
SLOW_S = 0.3
MAX_PROCESSES = 128
"""Maximum number of processes; beyond it, hooks decide their events themselves."""
MAX_WORKERS = 8
"""Maximum number of processes that stay as workers."""
WORKER_IDLE_S = 30.0
"""Seconds without an event after which a worker ends."""
MAX_WORKER_EVENTS = 1000
"""Number of events after which a worker ends."""
MAX_QUEUED = 512
"""Maximum number of connections in the queue."""
MAX_CHECKS = 4
"""Maximum number of projects whose sessions are checked at the same time."""
MAX_SESSIONS = 1000
"""Maximum number of watched sessions; the oldest are dropped."""
REQUEST_TIMEOUT_S = 10.0
"""Seconds for a hook to send its event."""
PROCESS_LIMIT_S = 90
"""Seconds after which a process that answers an event or checks sessions is ended."""
SOCKET_CHECK_S = 10.0
"""Seconds between checks whether the socket file still exists."""
FILES_CHECK_S = 0.5
"""Seconds between checks whether files of Switchgear have changed."""
MAX_MESSAGE_BYTES = 200_000
INHERITED = (
    *("HOME", "PATH", "LANG", "LC_ALL", "LC_CTYPE", "TMPDIR", "TZ"),
    *("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "DYLD_FALLBACK_LIBRARY_PATH"),
)
"""The environment variables that the resident process inherits: those that Python needs, no secrets."""
STATUS = b"?status"
"""The header of a request for the status of the resident process."""

Key = tuple[str, str]
Response = tuple[int, bytes, bytes, bytes]
"""Exit code, standard output, standard error, and the refusal to write to standard error if standard output fails."""


# Starting and querying


def start(*, wait: bool = False) -> bool:
    """Start a resident process unless one runs. Returns False if there is no usable folder for its socket.

    It must outlive the agent and the run that start it: it does not inherit the environment variable that
    marks the processes of a run, and `_agents/supervisor.py` does not end it. With `wait`, return only when
    it has ended, so that a long-lived caller keeps no zombie.
    """
    for path in client.folders():
        try:
            make_private_folder(path)
            lock = _lock(path, client.socket_name())
        except OSError:
            continue
        if lock is not None:
            os.close(lock)  # the new process acquires it
            command = [sys.executable, "-I", "-S", _HERE, path, client.socket_name()]
            nothing = [
                (os.POSIX_SPAWN_OPEN, stream, os.devnull, os.O_RDWR, 0) for stream in (0, 1, 2)
            ]
            names = (*INHERITED, client.RESIDENT_VARIABLE)
            environ = {name: os.environ[name] for name in names if name in os.environ}
            pid = os.posix_spawn(sys.executable, command, environ, file_actions=nothing)
            if wait:
                os.waitpid(pid, 0)
        return True
    return False


def _lock(path: str, name: str) -> int | None:
    """Acquire the lock of the resident process; `None`: another process holds it. Raises OSError."""
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    file = os.open(os.path.join(path, f"{name}.lock"), flags, 0o600)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(file)
        return None
    return file


def ask(agent: str, root: str, raw: bytes, began_s: float) -> "Response | None":
    """Have the resident process decide an event that came over HTTP. Returns the response; `None`: not decided.

    `began_s`: when the event arrived, on the monotonic clock. Raises TimeoutError if the event was sent
    and there was no response in time.
    """
    words = [client.HTTP_PREFIX + agent, "--root", root]
    connection = client.open_connection(words)
    return None if connection is None else client.ask(connection, words, raw, began_s)


def status() -> "dict[str, Any] | None":
    """The status of the resident process; `None`: none runs, or it does not respond."""
    for path in client.folders():
        connection = client.connect(path)
        if connection is not None:
            with suppress(OSError, ValueError):
                reply = client.exchange(connection, STATUS, b"", 5.0)
                return None if reply is None else {**json.loads(reply[1]), "folder": path}
            return None
    return None


def unresponsive() -> int | None:
    """The process id of a resident process that runs but does not respond; `None`: there is none."""
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
    """End the resident process and wait for it. Returns False if none runs or it did not end.

    A process that does not react to SIGTERM, for example because it is suspended, is killed.
    """
    facts = status()
    pid = unresponsive() if facts is None else int(facts["pid"])
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
    """Why no resident process can run here; empty: one can."""
    if os.environ.get(client.RESIDENT_VARIABLE) == "off":
        return f"it is turned off by {client.RESIDENT_VARIABLE}"
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
    """The problem if the process at the socket in this folder belongs to another user; else empty."""
    folder = client.open_folder(path)
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(client.CONNECT_TIMEOUT_S)
            connection.connect(client.address(folder, path, client.socket_name()))
            user = client.peer_credentials(connection)[1]
    except OSError:
        return ""  # no process listens
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
        self._checking: dict[int, str] = {}
        self._sessions: dict[Key, WatchedSession] = {}
        self._inbox, self._outbox = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._outbox.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2 * MAX_MESSAGE_BYTES)
        self._wake_reader, self._wake_writer = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._stopping = False
        self._files = _loaded_files()
        self._checked_s = self._began_s
        for each in (listener, self._inbox, self._outbox):
            each.setblocking(False)
        self._poll = select.poll()
        for number in (listener.fileno(), self._inbox.fileno(), self._wake_reader):
            self._poll.register(number, select.POLLIN)

    def run(self) -> None:
        signal.set_wakeup_fd(self._wake_writer, warn_on_full_buffer=False)
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
        for connection, _ in self._queue:
            connection.close()  # these hooks decide their events themselves

    def _stop(self, *_: object) -> None:
        self._stopping = True

    def _wait_ms(self, now_s: float) -> int:
        due_s = now_s + SOCKET_CHECK_S
        if not self._answering:
            due_s = min(due_s, self._last_s + self._idle_s)
        for each in self._sessions.values():
            if each.needs_checks:
                due_s = min(due_s, each.due_s)
        if self._queue:
            due_s = min(due_s, now_s + SLOW_S / 4)
        if len(self._checking) >= MAX_CHECKS or due_s < now_s:
            due_s = max(due_s, now_s + 0.05)  # the end of a child interrupts the wait
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
            while os.read(self._wake_reader, 4096):
                pass

    def _reap(self) -> None:
        while self._answering or self._checking:
            try:
                pid, _ = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                self._answering.clear()
                self._checking.clear()
                return
            if not pid:
                return
            if self._answering.pop(pid, None) is not None:
                self._last_s = time.monotonic()
            self._checking.pop(pid, None)

    # Events

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            pid = 0 if self._must_end() else _served_peer(connection)
            with suppress(OSError):
                if pid and len(self._queue) < MAX_QUEUED:
                    self._last_s = time.monotonic()
                    connection.send(client.QUEUED, socket.MSG_DONTWAIT)
                    self._queue.append((connection, pid))
                    continue
            connection.close()

    def _must_end(self) -> bool:
        """Whether to end: a signal arrived, or files have changed, and the next hook starts the new version."""
        now_s = time.monotonic()
        if now_s >= self._checked_s + FILES_CHECK_S:
            self._checked_s = now_s
            self._stopping |= _have_changed(self._files)
        return self._stopping

    def _answer(self, now_s: float) -> None:
        """Fork a process for each waiting connection, up to the limit."""
        while self._queue and len(self._answering) < MAX_PROCESSES:
            active = sum(now_s - since_s < SLOW_S for since_s in self._answering.values())
            if active >= MAX_ACTIVE:
                return
            connection, pid = self._queue.pop(0)
            try:
                child = os.fork()
            except OSError:
                connection.close()
                continue
            if not child:
                self._in_child(lambda connection=connection, pid=pid: self._serve(connection, pid))  # type: ignore[misc]
            self._events += 1
            self._answering[child] = now_s
            connection.close()

    def _in_child(self, work: "Callable[[], object]") -> NoReturn:
        """Call `work` in a forked process, then end that process."""
        code = 1
        try:
            os.close(self._lock)  # otherwise the child would hold it, too
            signal.set_wakeup_fd(-1)
            for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
                signal.signal(number, signal.SIG_DFL)
            signal.alarm(PROCESS_LIMIT_S)
            gc.disable()
            self._listener.close()
            self._inbox.close()
            work()
            code = 0
        finally:
            os._exit(code)

    def _serve(self, connection: socket.socket, pid: int) -> None:
        """Answer one event; then serve further events of the same project and environment."""
        from switchgear._hooks.process import Stores  # noqa: PLC0415

        for each, _ in self._queue:
            each.close()
        stores = Stores()
        context = self._answer_event(connection, pid, stores, None)
        if context is None or len(self._answering) >= MAX_WORKERS:
            return
        gc.enable()
        suffix = client.worker_suffix(os.fsdecode(context[0]), context[1:])
        listener = _bind(self._file + suffix, 64)
        if listener is None:
            return
        inode = os.stat(self._file + suffix).st_ino
        try:
            self._work(listener, stores, context)
        finally:
            with suppress(OSError):
                if os.stat(self._file + suffix).st_ino == inode:
                    os.unlink(self._file + suffix)

    def _work(self, listener: socket.socket, stores: "Stores", context: list[bytes]) -> None:
        listener.settimeout(WORKER_IDLE_S)
        for _ in range(MAX_WORKER_EVENTS):
            signal.alarm(0)
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            signal.alarm(PROCESS_LIMIT_S)
            if self._must_end() or os.getppid() != self._pid:
                connection.close()
                return
            pid = _served_peer(connection)
            with connection, suppress(OSError, ValueError):
                if pid:
                    self._answer_event(connection, pid, stores, context)

    def _answer_event(
        self, connection: socket.socket, pid: int, stores: "Stores", context: list[bytes] | None
    ) -> list[bytes] | None:
        """Answer one event. Returns its context, the project and the environment; `None`: no event was answered.

        `context`: the only context that is served; `None`: any.
        """
        from switchgear._hooks.command import AGENTS  # noqa: PLC0415
        from switchgear._hooks.process import NO_CALLER, respond  # noqa: PLC0415

        connection.settimeout(REQUEST_TIMEOUT_S)
        connection.sendall(client.READY)
        sizes = client.read_exactly(connection, 16)
        head_size, raw_size = int(sizes[:8], 16), int(sizes[8:], 16)
        if head_size > client.MAX_HEADER_BYTES or raw_size > client.MAX_INPUT_BYTES + 1:
            return None
        head = client.read_exactly(connection, head_size)
        raw = client.read_exactly(connection, raw_size)

        def write(code: int, out: bytes, err: bytes, refusal: bytes) -> int:
            sizes = (code, len(out), len(err), len(refusal))
            try:
                connection.sendall(b"".join(b"%08x" % size for size in sizes) + out + err + refusal)
                connection.close()
            except OSError:
                return 1  # the hook process has ended; the tasks after the response are done anyway
            return 0

        if head == STATUS:
            write(0, self._status(), b"", b"")
            return None
        words = head.split(b"\0")
        agent, root, cwd = (os.fsdecode(word) for word in words[:3])
        event, new_context = words[3].decode(), [words[1], *words[4:]]
        began_s = float(event.partition(" ")[0])
        over_http = agent.startswith(client.HTTP_PREFIX)
        agent = agent.removeprefix(client.HTTP_PREFIX)
        if agent not in AGENTS or (context is not None and context != new_context):
            return None  # the hook decides the event itself
        os.chdir(cwd)
        if context is None:
            os.environ.clear()
            os.environb.update(each.partition(b"=")[::2] for each in words[4:])
        now_s = time.monotonic()
        began_s = began_s if 0 <= now_s - began_s <= client.ALARM_S else now_s
        caller = NO_CALLER if over_http else pid
        respond(
            *(agent, root or None, raw, began_s, write),
            caller=caller,
            event=event,
            resident=self,
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
        """Whether a session is not watched yet. Called in the processes that answer events."""
        watched = self._sessions.get((root, session))
        if watched is None or watched.is_idle:
            return True
        return watched.agent is not None and not watched.agent.is_running

    def add(self, root: str, session: str, pid: int | None, *, over_http: bool) -> None:
        """Have the resident process watch a session. Called in the processes that answer events."""
        from switchgear._hooks.session_check import WatchedProcess  # noqa: PLC0415

        agent = None if pid is None else WatchedProcess.of(pid)
        environ = dict(os.environ) if agent is not None or over_http else {}
        identity = {"root": root, "session": session, "agent": agent, "over_http": over_http}
        message = {**identity, "environ": environ}
        self._apply_message(message)
        self._send(message)

    def _send(self, message: "Mapping[str, Any]") -> None:
        data = json.dumps(message).encode()
        # If the resident process has ended or is busy, the next event of the session tries again.
        with suppress(OSError):
            if len(data) <= MAX_MESSAGE_BYTES:
                self._outbox.send(data)

    def _receive(self) -> None:
        with suppress(OSError):  # until no message is left
            while True:
                data = self._inbox.recv(MAX_MESSAGE_BYTES)
                with suppress(ValueError, TypeError, KeyError):
                    self._apply_message(json.loads(data))

    def _apply_message(self, facts: "dict[str, Any]") -> None:
        from switchgear._hooks.session_check import WatchedProcess, WatchedSession  # noqa: PLC0415

        now_s = time.monotonic()
        key = (facts["root"], facts["session"])
        if "environ" in facts:
            agent = None if facts["agent"] is None else WatchedProcess(*facts["agent"])
            before = self._sessions.pop(key, None)
            new = WatchedSession(
                agent, *key, facts["environ"], now_s, now_s, over_http=bool(facts["over_http"])
            )
            if before is not None and before[:3] == new[:3] and before.over_http == new.over_http:
                new = before._replace(environ=facts["environ"], due_s=now_s, is_idle=False)
            self._sessions[key] = new
            while len(self._sessions) > MAX_SESSIONS:
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
            if len(self._checking) >= MAX_CHECKS or project in self._checking.values():
                continue
            try:
                child = os.fork()
            except OSError:
                return
            if not child:
                self._in_child(lambda watched=watched: self._check_in_child(watched))  # type: ignore[misc]
            self._checking[child] = project
            due_s = now_s + PROCESS_LIMIT_S  # unless the process reports earlier
            for each in watched:
                self._sessions[each.root, each.session] = each._replace(due_s=due_s)

    def _check_in_child(self, due: "list[WatchedSession]") -> None:
        from switchgear._hooks import session_check  # noqa: PLC0415

        def check(session: "WatchedSession") -> "CheckResult":
            os.chdir(session.root)
            return session_check.check_session(session, self._pid)

        escalate = session_check.start_escalation_agent
        for each in due:
            os.environ.clear()
            os.environ.update(each.environ)
            done = session_check.check_and_act(each, time.monotonic(), check, escalate)
            if done.ends == session_check.AGENT_ENDED:
                session_check.mark_ended(each, self._pid)
            names = ("due_s", "failures", "interrupted_s", "heard_s", "is_noted", "is_idle")
            changes = {name: getattr(done.session, name) for name in names}
            self._send(
                {"root": each.root, "session": each.session}
                | {"ends": done.ends, "changes": changes}
            )


def _bind(file: str, queue: int) -> socket.socket | None:
    """A socket that listens at this path, for this user only; `None`: another process listens there."""
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
    """Whether no process listens at the socket file of this path."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.setblocking(False)
        with suppress(OSError):
            return connection.connect_ex(file) == errno.ECONNREFUSED
    return False


def _served_peer(connection: socket.socket) -> int:
    """The process id of a client; 0: it must not be served, see the module docstring."""
    pid, user = client.peer_credentials(connection)
    if pid < 0:
        return pid  # the system reports no credentials: access to the folder identifies the user
    if user != os.geteuid() or not pid:
        return 0
    try:
        same = os.path.samestat(os.stat(f"/proc/{pid}/root"), os.stat("/"))
    except OSError:
        return 0
    return pid if same else 0


def _loaded_files() -> "dict[str, tuple[int, int, int]]":
    """The loaded files of Switchgear, each with its modification time, size and inode."""
    paths = [
        getattr(module, "__file__", None)
        for name, module in list(sys.modules.items())
        if name.startswith("switchgear") or name == "__main__"
    ]
    return {path: _file_state(path) for path in paths if path}


def _have_changed(files: "Mapping[str, tuple[int, int, int]]") -> bool:
    """Whether any of these files has changed. Files that were loaded later do not count."""
    return any(_file_state(path) != mark for path, mark in files.items())


def _file_state(path: str) -> tuple[int, int, int]:
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


def _warm_up() -> None:
    """Import all modules that events need, and decide sample events in memory, so that no event waits for it."""
    from switchgear._agents.registry import dialect_of  # noqa: PLC0415
    from switchgear._config.sections import Config  # noqa: PLC0415
    from switchgear._hooks import handler, hook_config, interrupt  # noqa: F401, PLC0415
    from switchgear._hooks.command import AGENTS  # noqa: PLC0415
    from switchgear._hooks.compiler import compile_config  # noqa: PLC0415
    from switchgear._hooks.decide import decide  # noqa: PLC0415
    from switchgear._stores.memory import MemoryStore  # noqa: PLC0415
    from switchgear._stores.sqlite.store import SqliteStore  # noqa: F401, PLC0415

    config = hook_config.load(json.loads(json.dumps(compile_config(Config(), "/"))), "/")
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
        decide(facts, config, store, dialect.warns, [])


def main(path: str, name: str) -> None:
    """Serve on the socket with this name in this folder, unless another process does."""
    lock = _lock(path, name)
    if lock is None:
        return
    os.ftruncate(lock, 0)
    os.write(lock, f"{os.getpid()}\n".encode())
    folder = client.open_folder(path)
    _warm_up()
    file = client.address(folder, path, name)
    for entry in os.listdir(folder):
        if entry == name or entry.startswith(f"{name}-"):  # left by a killed process or its workers
            with suppress(OSError):
                os.unlink(entry, dir_fd=folder)
    listener = _bind(file, MAX_QUEUED)
    if listener is None:
        return
    gc.collect()
    gc.freeze()  # keeps the memory pages shared with forked processes
    value = os.environ.get(client.RESIDENT_VARIABLE, "")
    idle_s = float(value) if value.isdecimal() else IDLE_S
    Resident(listener, lock, file, idle_s).run()


if __name__ == "__main__":
    os.closerange(3, 65536)  # inherited from the agent, which may wait until they are closed
    with suppress(OSError):  # this process leads a session already
        os.setsid()
    os.chdir("/")
    main(sys.argv[1], sys.argv[2])
