"""The hook process: sends the event to the resident process, and writes the response.

On this path it imports no other module of Switchgear, and `_socket` and `_signal` in the place of `socket` and
`signal`, which only wrap them: their imports would take longer than everything else. Without a resident process (`resident.py`) it decides
the event itself, with the same code (`process.py`), and starts one for the next event.

An event is decided exactly once: the client sends it only after a process of the resident is ready to
read it, and decides itself only if it has not sent the event, or if that process ended without a
response.

Agents treat a hook that fails, or writes nothing, as one that approves. So every way out of this
process is a response: without any other, the call is refused with exit code 2.
"""

import os
import sys
import time

TYPE_CHECKING = False  # importing `typing` takes longer than everything else
if TYPE_CHECKING:
    from typing import Any

AFTER = (
    *("SessionStart", "UserPromptSubmit", "PostToolUse", "PostToolUseFailure", "PostToolBatch"),
    *("SubagentStart", "SubagentStop", "Stop", "SessionEnd", "Notification", "PreCompact"),
    *("AfterTool", "AfterModel", "AfterAgent", "BeforeAgent", "BeforeModel"),
)
"""Events that are not before a tool: there is nothing to refuse."""
LAST_S = 13
"""The process refuses after this many seconds, whatever it waits for. The deadline in `pending` is
shorter, but it begins with the import of the modules, and a file can be slow to read."""
CONNECT_S = 0.2
"""Time for the resident process to accept the connection."""
WORKER_S = 0.05
"""Time for the process that answered the last event of this project to be ready again."""
QUEUE_S = 2.0
"""Time from then until a process of it is ready to read the event."""
INPUT_S = 8.0
"""Time to read standard input."""
QUIET_S = 0.05
"""The input is complete after a whole JSON value and this long without more: some agents leave the
stream open."""
LARGEST_BYTES = 4 * 1024 * 1024
"""Bytes of input that are read; the same number as in `_hooks/handler.py`."""
LARGEST_CONTEXT = 1 << 20
"""Bytes of the environment that are sent; with a larger one, the event is decided here."""
QUEUED, READY = b"q", b"r"
"""What the resident process sends before it reads: the connection is accepted; a process is ready."""
POSTED = "http/"
"""Prefix of the agent's name: the event came over HTTP, so the agent is not an ancestor of the client."""
SWITCH = "SWITCHGEAR_RESIDENT"
"""The environment variable about the resident process: `off` for none, or a number of seconds without an
event after which it ends."""
_SIGNALS = ("HUP", "INT", "QUIT", "TERM", "USR1", "USR2", "ALRM", "VTALRM", "PROF", "XCPU")


def run() -> None:
    """Respond to one hook event; does not return."""
    received: list[bytes] = []
    try:
        began_s = time.monotonic()
        _open_closed_streams()
        _handle_signals(received)
        words = sys.argv[1:]
        resident = find(words) if len(words) in {1, 3} else None
        if len(words) in {1, 3}:
            received.append(_read_input(began_s + INPUT_S))
        if resident is not None:
            reply = ask(resident, words, received[0], began_s)
            if reply is not None:
                os._exit(write(*reply))
        import gc  # noqa: PLC0415

        gc.disable()  # the process ends before there is garbage worth collecting
        from switchgear._hooks.process import main  # noqa: PLC0415

        event = event_id(began_s)
        main(words, b"".join(received), began_s, _write_last, _start_resident, event=event)
    except BaseException as error:  # noqa: BLE001  see above
        refuse(f"{type(error).__name__}: {error}", received)
    refuse("it ended without a response", received)


def _start_resident() -> None:
    if os.environ.get(SWITCH) != "off":
        from switchgear._hooks.resident import start  # noqa: PLC0415

        start()


# The resident process


def folders() -> "list[str]":
    """Where the socket of the resident process can be, in order of preference.

    The state folder of the user; where it cannot be written, the runtime folder of the login.
    """
    state = os.environ.get("XDG_STATE_HOME", "")
    if not state.startswith("/"):
        state = os.path.expanduser("~/.local/state")
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    found = [f"{state}/switchgear/run"]
    return [*found, f"{runtime}/switchgear"] if runtime.startswith("/") else found


def socket_name() -> str:
    """The name of the socket: one per installation, interpreter, encoding of paths and mount namespace.

    A process in a container sees other files under the same paths, so it has its own.
    """
    try:
        space = os.readlink("/proc/self/ns/mnt")
    except OSError:
        space = ""
    about = f"{os.path.abspath(__file__)}\0{sys.executable}\0{sys.hexversion}"
    number = 0xCBF29CE484222325  # FNV-1a: importing `hashlib` would take longer than all the rest
    for byte in f"{about}\0{sys.getfilesystemencoding()}\0{space}".encode(errors="replace"):
        number = (number ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return f"{number:016x}"


def open_folder(path: str) -> int:
    """A descriptor of the folder. Raises OSError unless it belongs to this user alone."""
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    found = os.fstat(folder)
    if found.st_uid == os.geteuid() and not found.st_mode & 0o077:
        return folder
    os.close(folder)
    raise PermissionError(1, "is not a private folder of this user", path)


def address(folder: int, path: str, name: str) -> str:
    """The address of a socket in an open folder; by its descriptor, paths of any length fit."""
    by_descriptor = f"/proc/self/fd/{folder}"
    return f"{by_descriptor if os.path.isdir(by_descriptor) else path}/{name}"


def connect(path: str, suffix: str = "") -> "Any":
    """A connection to the resident process, or to one of its workers; `None`: none can be trusted."""
    import _socket  # noqa: PLC0415

    try:
        folder = open_folder(path)
    except OSError:
        return None
    line = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    try:
        line.settimeout(WORKER_S if suffix else CONNECT_S)
        line.connect(address(folder, path, socket_name() + suffix))
        if peer(line)[1] == os.geteuid():
            return line
    except OSError:
        pass
    finally:
        os.close(folder)
    line.close()
    return None


def peer(line: "Any") -> "tuple[int, int]":
    """The process and the user at the other end of a connection.

    -1 and the current user where only the folder identifies them.
    """
    import _socket  # noqa: PLC0415

    if not hasattr(_socket, "SO_PEERCRED"):
        return -1, os.geteuid()
    found = line.getsockopt(_socket.SOL_SOCKET, _socket.SO_PEERCRED, 12)
    return int.from_bytes(found[:4], sys.byteorder), int.from_bytes(found[4:8], sys.byteorder)


def worker_suffix(root: str, environ: "list[bytes]") -> str:
    """Identifies the socket of the worker for a project and an environment."""
    number = int.from_bytes(b"\0".join([os.fsencode(root), *environ]), "big")
    return f"-{number % ((1 << 127) - 1):x}"


def find(words: "list[str]") -> "Any":
    """A connection to a worker for this project, else to the resident process, or `None`."""
    if os.environ.get(SWITCH) == "off":
        return None
    suffix = worker_suffix("".join(words[2:]), _environment())
    for path in folders():
        line = connect(path, suffix) or connect(path)
        if line is not None:
            return line
    return None


def _environment() -> "list[bytes]":
    return [b"%b=%b" % pair for pair in os.environb.items()]


def event_id(began_s: float) -> str:
    """Identifies an event that this process has received: it counts once, whichever process decides."""
    return f"{began_s!r} {os.getpid()}"


def ask(
    line: "Any", words: "list[str]", raw: bytes, began_s: float
) -> "tuple[int, bytes, bytes, bytes] | None":
    """The response of the resident process; `None`: it did not decide the event.

    Raises TimeoutError if it has the event and does not respond in time.
    """
    head = _head(words, began_s)
    if head is None:
        line.close()
        return None
    reply = exchange(line, head, raw, LAST_S + 1.0)
    is_busy_worker = line.gettimeout() == WORKER_S
    for path in folders() if reply is None and is_busy_worker else ():
        line = connect(path)
        if line is not None:
            return exchange(line, head, raw, LAST_S + 1.0)
    return reply


def _head(words: "list[str]", began_s: float) -> "bytes | None":
    """The header of a request: everything about an event but its input; `None`: it cannot be sent."""
    try:
        context = [os.fsencode(word) for word in (words[0], *(words[2:] or ("",)), os.getcwd())]
    except OSError:
        return None  # the working directory was removed
    head = b"\0".join([*context, event_id(began_s).encode(), *_environment()])
    is_good = len(head) <= LARGEST_CONTEXT and words[1:2] in ([], ["--root"])
    return head if is_good else None


def exchange(
    line: "Any", head: bytes, raw: bytes, wait_s: float
) -> "tuple[int, bytes, bytes, bytes] | None":
    """Send a request once a process is ready for it, read the response, and close the connection.

    `None`: the other end did not decide it. Raises TimeoutError if the request was sent, and may
    be decided yet.
    """
    sent = False
    try:
        state = line.recv(1)
        if state == QUEUED:
            line.settimeout(QUEUE_S)
            state = line.recv(1)
        if state != READY:
            return None
        line.settimeout(wait_s)
        sent = True
        line.sendall(b"%08x%08x" % (len(head), len(raw)) + head + raw)
        sizes = received(line, 32)
        code, out, err, refusal = (int(sizes[at : at + 8], 16) for at in (0, 8, 16, 24))
        body = received(line, out + err + refusal)
    except OSError as error:
        if sent and isinstance(error, TimeoutError):
            raise
        return None
    finally:
        line.close()
    return code, body[:out], body[out : out + err], body[out + err :]


def received(line: "Any", size: int) -> bytes:
    """Read exactly this many bytes. Raises ConnectionError if the other end closes before."""
    parts: list[bytes] = []
    while size:
        part = line.recv(min(size, 1 << 16))
        if not part:
            raise ConnectionError("closed")
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


# Standard streams and signals


def write(code: int, out: bytes, err: bytes, refusal: bytes) -> int:
    """Write a response. Returns the exit code: a refusal that cannot be written is exit code 2."""
    _write(2, err)
    if _write(1, out) or not refusal:
        return code
    _write(2, refusal)
    return 2


def _write_last(code: int, out: bytes, err: bytes, refusal: bytes) -> int:
    """The same, and cancel the alarm: tasks after the response may take long."""
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
    """Standard input, up to one byte more than is accepted; what there is when the time is up."""
    parts: list[bytes] = []
    left, blocks = LARGEST_BYTES + 1, True
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
    """Whether there is input, or its end, within the time."""
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
    """Refuse a call that has no other response; does not return."""
    text = f"Switchgear could not check this call, and refused it: {why[:500]}"
    code = 0 if _is_over(received) else 2
    try:
        os.write(2, f"{text}\n".encode(errors="replace"))
        if sys.argv[1:2] in (["opencode"], ["pi"]) and code:
            import json  # noqa: PLC0415  only here

            os.write(1, json.dumps({"action": "deny", "text": text, "remark": text}).encode())
    finally:
        os._exit(code)


def _is_over(received: "list[bytes]") -> bool:
    """Whether the input is certainly an event that no tool call follows."""
    try:
        import json  # noqa: PLC0415  only here

        data = json.loads(received[0])
        return data.get("hook_event_name") in AFTER
    except BaseException:  # noqa: BLE001  not certain
        return False


def _open_closed_streams() -> None:
    """Open closed standard streams so that no other file takes their place; writing to one fails."""
    for stream in (0, 1, 2):
        try:
            os.fstat(stream)
        except OSError:
            os.open(os.devnull, os.O_RDONLY)  # takes the lowest free number


def _handle_signals(received: "list[bytes]") -> None:
    """Refuse when a signal ends the process: its end alone would approve the call."""
    import _signal  # noqa: PLC0415

    def end(number: int, _: object) -> None:
        late = number == _signal.SIGALRM
        refuse(
            f"no answer after {LAST_S} s" if late else f"it was ended by signal {number}",
            received if late else [],
        )

    for name in _SIGNALS:
        number = getattr(_signal, f"SIG{name}", None)
        if number is not None:
            _signal.signal(number, end)
    _signal.alarm(LAST_S)
