"""The hook process: sends the event to the resident process and writes the response.

On this path it imports no other module of Switchgear, and `_socket` and `_signal` instead of their wrappers
`socket` and `signal`, whose imports would take longer than everything else. Without a resident process
(`resident.py`), it decides the event itself with the same code (`process.py`), and starts a resident process
for the next event.

An event is decided exactly once: the client sends it only after a server process is ready to read it, and
decides the event itself only if it did not send it, or if that process ended without a response.

Agents treat a hook that fails or writes nothing as an approval. So this process always responds: if all else
fails, it refuses the call with exit code 2.
"""

import os
import sys
import time

TYPE_CHECKING = False  # importing `typing` takes longer than everything else
if TYPE_CHECKING:
    from typing import Any

EVENTS_WITHOUT_CALL = (
    *("SessionStart", "UserPromptSubmit", "PostToolUse", "PostToolUseFailure", "PostToolBatch"),
    *("SubagentStart", "SubagentStop", "Stop", "SessionEnd", "Notification", "PreCompact"),
    *("AfterTool", "AfterModel", "AfterAgent", "BeforeAgent", "BeforeModel"),
)
"""Events that are not before a tool call: there is nothing to refuse."""
ALARM_S = 13
"""Seconds after which the process refuses, whatever it waits for. The deadline in `undecided.py` is earlier,
but it applies only once the modules are imported, and reading their files can be slow."""
CONNECT_TIMEOUT_S = 0.2
"""Seconds for the resident process to accept the connection."""
WORKER_TIMEOUT_S = 0.05
"""Seconds for the worker that answered the last event of this project to become ready again."""
QUEUE_TIMEOUT_S = 2.0
"""Seconds from the accepted connection until a process is ready to read the event."""
INPUT_TIMEOUT_S = 8.0
"""Seconds to read standard input."""
QUIET_S = 0.05
"""Seconds without further input after which a complete JSON value is the whole input: some agents leave the
stream open."""
MAX_INPUT_BYTES = 4 * 1024 * 1024
"""Maximum size of the input; the same as in `handler.py`."""
MAX_HEADER_BYTES = 1 << 20
"""Maximum size of the request header, which contains the environment; a larger one is not sent."""
QUEUED, READY = b"q", b"r"
"""What the server sends before it reads: the connection is accepted; a process is ready to read."""
HTTP_PREFIX = "http/"
"""Prefix of the agent's name for events over HTTP, where the agent is not an ancestor of the client."""
RESIDENT_VARIABLE = "SWITCHGEAR_RESIDENT"
"""The environment variable that configures the resident process: `off` for none, or the number of seconds
without an event after which it ends."""
_SIGNALS = ("HUP", "INT", "QUIT", "TERM", "USR1", "USR2", "ALRM", "VTALRM", "PROF", "XCPU")


def run() -> None:
    """Respond to one hook event; does not return."""
    received: list[bytes] = []
    try:
        began_s = time.monotonic()
        _open_closed_streams()
        _handle_signals(received)
        words = sys.argv[1:]
        resident = open_connection(words) if len(words) in {1, 3} else None
        if len(words) in {1, 3}:
            received.append(_read_input(began_s + INPUT_TIMEOUT_S))
        if resident is not None:
            reply = ask(resident, words, received[0], began_s)
            if reply is not None:
                os._exit(write(*reply))
        import gc  # noqa: PLC0415

        gc.disable()  # the process ends before there is garbage worth collecting
        from switchgear._hooks.process import main  # noqa: PLC0415

        raw, event = b"".join(received), event_id(began_s)
        main(words, raw, began_s, _write_and_cancel_alarm, _start_resident, event=event)
    except BaseException as error:  # noqa: BLE001  every exit must be a response
        refuse(f"{type(error).__name__}: {error}", received)
    refuse("it ended without a response", received)


def _start_resident() -> None:
    if os.environ.get(RESIDENT_VARIABLE) != "off":
        from switchgear._hooks.resident import start  # noqa: PLC0415

        start()


# The resident process


def folders() -> "list[str]":
    """The folders for the socket of the resident process, in order of preference.

    They are the user's state folder, and the runtime folder of the login in case the first is not writable.
    """
    state = os.environ.get("XDG_STATE_HOME", "")
    if not state.startswith("/"):
        state = os.path.expanduser("~/.local/state")
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    found = [f"{state}/switchgear/run"]
    return [*found, f"{runtime}/switchgear"] if runtime.startswith("/") else found


def socket_name() -> str:
    """The name of the socket: a hash of the installation, interpreter, path encoding and mount namespace.

    Processes in a container see other files under the same paths, so they have their own socket.
    """
    try:
        namespace = os.readlink("/proc/self/ns/mnt")
    except OSError:
        namespace = ""
    python = f"{os.path.abspath(__file__)}\0{sys.executable}\0{sys.hexversion}"
    number = 0xCBF29CE484222325  # FNV-1a: importing `hashlib` would take longer than all the rest
    for byte in f"{python}\0{sys.getfilesystemencoding()}\0{namespace}".encode(errors="replace"):
        number = (number ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return f"{number:016x}"


def open_folder(path: str) -> int:
    """Open the folder and return its descriptor. Raises OSError unless only this user can access it."""
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    found = os.fstat(folder)
    if found.st_uid == os.geteuid() and not found.st_mode & 0o077:
        return folder
    os.close(folder)
    raise PermissionError(1, "is not a private folder of this user", path)


def address(folder: int, path: str, name: str) -> str:
    """The address of a socket in an open folder. It uses the descriptor, because socket paths must be short."""
    by_descriptor = f"/proc/self/fd/{folder}"
    return f"{by_descriptor if os.path.isdir(by_descriptor) else path}/{name}"


def connect(path: str, suffix: str = "") -> "Any":
    """A connection to the resident process or a worker; `None`: none runs that this user can trust."""
    import _socket  # noqa: PLC0415

    try:
        folder = open_folder(path)
    except OSError:
        return None
    connection = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    try:
        connection.settimeout(WORKER_TIMEOUT_S if suffix else CONNECT_TIMEOUT_S)
        connection.connect(address(folder, path, socket_name() + suffix))
        if peer_credentials(connection)[1] == os.geteuid():
            return connection
    except OSError:
        pass
    finally:
        os.close(folder)
    connection.close()
    return None


def peer_credentials(connection: "Any") -> "tuple[int, int]":
    """The process id and the user id at the other end of a connection.

    On systems that do not report them: -1 and the current user, who alone can access the folder.
    """
    import _socket  # noqa: PLC0415

    if not hasattr(_socket, "SO_PEERCRED"):
        return -1, os.geteuid()
    found = connection.getsockopt(_socket.SOL_SOCKET, _socket.SO_PEERCRED, 12)
    return int.from_bytes(found[:4], sys.byteorder), int.from_bytes(found[4:8], sys.byteorder)


def worker_suffix(root: str, environ: "list[bytes]") -> str:
    """The suffix of a worker's socket name: a hash of the project and the environment that it serves."""
    number = int.from_bytes(b"\0".join([os.fsencode(root), *environ]), "big")
    return f"-{number % ((1 << 127) - 1):x}"


def open_connection(words: "list[str]") -> "Any":
    """A connection to a worker for this project, else to the resident process; `None`: none runs."""
    if os.environ.get(RESIDENT_VARIABLE) == "off":
        return None
    suffix = worker_suffix("".join(words[2:]), _environment())
    for path in folders():
        connection = connect(path, suffix) or connect(path)
        if connection is not None:
            return connection
    return None


def _environment() -> "list[bytes]":
    return [b"%b=%b" % pair for pair in os.environb.items()]


def event_id(began_s: float) -> str:
    """The identifier of an event that this process received: the event counts once, whichever process decides it."""
    return f"{began_s!r} {os.getpid()}"


def ask(
    connection: "Any", words: "list[str]", raw: bytes, began_s: float
) -> "tuple[int, bytes, bytes, bytes] | None":
    """Have the resident process decide an event. Returns its response; `None`: it did not decide the event.

    Raises TimeoutError if it received the event and did not respond in time.
    """
    header = _request_header(words, began_s)
    if header is None:
        connection.close()
        return None
    response = exchange(connection, header, raw, ALARM_S + 1.0)
    is_busy_worker = connection.gettimeout() == WORKER_TIMEOUT_S
    for path in folders() if response is None and is_busy_worker else ():
        connection = connect(path)
        if connection is not None:
            return exchange(connection, header, raw, ALARM_S + 1.0)
    return response


def _request_header(words: "list[str]", began_s: float) -> "bytes | None":
    """The header of a request: agent, project, folder, event and environment; `None`: it cannot be sent."""
    try:
        context = [os.fsencode(word) for word in (words[0], *(words[2:] or ("",)), os.getcwd())]
    except OSError:
        return None  # the working directory was removed
    header = b"\0".join([*context, event_id(began_s).encode(), *_environment()])
    is_valid = len(header) <= MAX_HEADER_BYTES and words[1:2] in ([], ["--root"])
    return header if is_valid else None


def exchange(
    connection: "Any", header: bytes, raw: bytes, wait_s: float
) -> "tuple[int, bytes, bytes, bytes] | None":
    """Send a request once a process is ready for it, read the response, and close the connection.

    Returns `None` if the request was not decided. Raises TimeoutError if it was sent and may still be decided.
    """
    sent = False
    try:
        state = connection.recv(1)
        if state == QUEUED:
            connection.settimeout(QUEUE_TIMEOUT_S)
            state = connection.recv(1)
        if state != READY:
            return None
        connection.settimeout(wait_s)
        sent = True
        connection.sendall(b"%08x%08x" % (len(header), len(raw)) + header + raw)
        sizes = read_exactly(connection, 32)
        code, out, err, refusal = (int(sizes[at : at + 8], 16) for at in (0, 8, 16, 24))
        body = read_exactly(connection, out + err + refusal)
    except OSError as error:
        if sent and isinstance(error, TimeoutError):
            raise
        return None
    finally:
        connection.close()
    return code, body[:out], body[out : out + err], body[out + err :]


def read_exactly(connection: "Any", size: int) -> bytes:
    """Read `size` bytes. Raises ConnectionError if the connection is closed before."""
    parts: list[bytes] = []
    while size:
        part = connection.recv(min(size, 1 << 16))
        if not part:
            raise ConnectionError("closed")
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


# Standard streams and signals


def write(code: int, out: bytes, err: bytes, refusal: bytes) -> int:
    """Write a response. Returns the exit code: 2 if a refusal could not be written to standard output."""
    _write(2, err)
    if _write(1, out) or not refusal:
        return code
    _write(2, refusal)
    return 2


def _write_and_cancel_alarm(code: int, out: bytes, err: bytes, refusal: bytes) -> int:
    """Like `write`, and cancels the alarm: the tasks after the response may take long."""
    import _signal  # type: ignore[import-not-found]  # noqa: PLC0415

    _signal.alarm(0)
    return write(code, out, err, refusal)


def _write(stream: int, data: bytes) -> bool:
    if data and not data.endswith(b"\n"):
        data += b"\n"
    try:
        while data:
            data = data[os.write(stream, data) :]
    except OSError:
        return False  # the other end is closed
    return True


def _read_input(until_s: float) -> bytes:
    """Read standard input until its end, the deadline, or one byte more than is accepted."""
    parts: list[bytes] = []
    left, blocks = MAX_INPUT_BYTES + 1, True
    while left > 0:
        try:
            part = os.read(0, min(left, 1 << 20))
        except BlockingIOError:
            ended = parts[-1].rstrip()[-1:] == b"}" if parts else False
            if ended and not _readable(QUIET_S) and _is_json(b"".join(parts)):
                break
            if not _readable(until_s - time.monotonic()):
                break
            continue
        except OSError:
            break  # refused as empty
        if not part:
            break
        parts.append(part)
        left -= len(part)
        if blocks:
            blocks = False
            os.set_blocking(0, False)
    if not blocks:
        os.set_blocking(0, True)
    return b"".join(parts)


def _readable(wait_s: float) -> bool:
    """Wait for input or its end. Returns whether either arrived in time."""
    import select  # noqa: PLC0415  most agents have closed the stream by now

    return wait_s > 0 and bool(select.select([0], [], [], wait_s)[0])


def _is_json(data: bytes) -> bool:
    import json  # noqa: PLC0415

    try:
        json.loads(data.decode(errors="replace"))
    except (ValueError, RecursionError):
        return False
    return True


def refuse(why: str, received: "list[bytes]") -> None:
    """Refuse the call, which has no other response; does not return. `received`: the input, if it was read."""
    text = f"Switchgear could not check this call, and refused it: {why[:500]}"
    code = 0 if _has_no_call(received) else 2
    try:
        os.write(2, f"{text}\n".encode(errors="replace"))
        if sys.argv[1:2] in (["opencode"], ["pi"]) and code:
            import json  # noqa: PLC0415  rarely needed

            os.write(1, json.dumps({"action": "deny", "text": text, "remark": text}).encode())
    finally:
        os._exit(code)


def _has_no_call(received: "list[bytes]") -> bool:
    """Whether the input is certainly an event that no tool call follows."""
    try:
        import json  # noqa: PLC0415  rarely needed

        data = json.loads(received[0])
        return data.get("hook_event_name") in EVENTS_WITHOUT_CALL
    except BaseException:  # noqa: BLE001  not certain
        return False


def _open_closed_streams() -> None:
    """Open closed standard streams for reading, so that no other file gets their numbers; writes to them fail."""
    for stream in (0, 1, 2):
        try:
            os.fstat(stream)
        except OSError:
            os.open(os.devnull, os.O_RDONLY)  # gets the lowest free number


def _handle_signals(received: "list[bytes]") -> None:
    """Refuse the call when a signal ends the process: agents would take a killed hook for an approval."""
    import _signal  # noqa: PLC0415

    def end(number: int, _: object) -> None:
        late = number == _signal.SIGALRM
        refuse(
            f"no answer after {ALARM_S} s" if late else f"it was ended by signal {number}",
            received if late else [],
        )

    for name in _SIGNALS:
        number = getattr(_signal, f"SIG{name}", None)
        if number is not None:
            _signal.signal(number, end)
    _signal.alarm(ALARM_S)
