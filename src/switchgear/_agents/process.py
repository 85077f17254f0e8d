"""Runs an agent as a process: starts it, reads its output, and ends it with everything that it started.

The agent runs under a supervisor (`supervisor.py`), which ends all processes that the agent started. The output
is read as it arrives, with a deadline for the whole run and a limit for silence, and memory use is bounded.

Starting Python takes as long as `git status` in a large repository, so a run starts the next supervisor while an
agent works. The supervisor waits for its job, and does not delay the next iteration. If this process ends, the
supervisor reads the end of its pipes and ends, too.
"""

import enum
import errno
import marshal
import os
import selectors
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import uuid
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, NamedTuple, Self, cast

from switchgear._agents.base import Agent, Invocation, StreamReader
from switchgear._agents.events import AgentResult, StreamEvent, Usage
from switchgear._system.clock import AWAKE
from switchgear._text.agent_text import clean

WITHHELD = ("SWITCHGEAR_TOKEN",)
"""Environment variables that agents do not inherit, because with them an agent could switch off its guards."""
_SUPERVISOR = str(Path(__file__).resolve().with_name("supervisor.py"))


class SupervisorProcess:
    """A supervisor process that waits for one job. Used by one thread.

    `control` and `status` are this process's ends of its pipes; the caller of `begin` closes them.
    """

    def __init__(self) -> None:
        job, self._job = os.pipe()
        control, self.control = os.pipe()
        self.status, status = os.pipe()
        self._stdin = tempfile.TemporaryFile()  # noqa: SIM115 - open until its job begins
        child_ends = (job, control, status)
        try:
            self.process = subprocess.Popen(  # noqa: S603 - our own program
                [sys.executable, "-I", "-S", _SUPERVISOR, *map(str, child_ends)],
                stdin=self._stdin,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                cwd="/",
                env={name: value for name, value in os.environ.items() if name not in WITHHELD},
                pass_fds=child_ends,
                start_new_session=True,
            )
        except BaseException:
            for ours in (self._job, self.control, self.status):
                os.close(ours)
            self._stdin.close()
            raise
        finally:
            for descriptor in child_ends:
                os.close(descriptor)

    @property
    def is_running(self) -> bool:
        return self.process.poll() is None

    def begin(
        self, argv: Sequence[str], stdin: str, *, env: Mapping[str, str], cwd: Path, grace_s: float
    ) -> None:
        """Send the job. The status pipe shows whether the agent started."""
        # Unbuffered, because closing a buffered pipe after an error would write again. If the job is incomplete
        # when the pipe is closed, the supervisor ends.
        with (
            suppress(BrokenPipeError),
            os.fdopen(self._job, "wb", buffering=0) as pipe,
            self._stdin as file,
        ):
            file.write(stdin.encode("utf-8", "replace"))
            file.seek(0)  # the supervisor shares this file and its position
            job = marshal.dumps((list(argv), dict(env), str(cwd), float(grace_s)))
            while job:
                job = job[pipe.write(job) :]

    def dismiss(self) -> None:
        self._stdin.close()
        for ours in (self._job, self.control, self.status):
            os.close(ours)
        with self.process:  # closes its outputs and waits
            pass


class SupervisorPool:
    """Keeps at most one idle supervisor. Used by one thread; `close` it, or use it with `with`."""

    def __init__(self) -> None:
        self._next: SupervisorProcess | None = None

    def acquire(self) -> SupervisorProcess:
        ready, self._next = self._next, None
        if ready is not None and ready.is_running:
            return ready
        if ready is not None:
            ready.dismiss()
        return SupervisorProcess()

    def prepare(self) -> None:
        """Start an idle supervisor. If this fails, the next `acquire` tries again and raises the error."""
        if self._next is None:
            with suppress(OSError):
                self._next = SupervisorProcess()

    def close(self) -> None:
        ready, self._next = self._next, None
        if ready is not None:
            ready.dismiss()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


MAX_LINE_BYTES = 4 * 1024 * 1024


class LineBuffer:
    """Splits chunks into lines. Bytes of a line beyond `longest` are dropped."""

    def __init__(self, longest: int = MAX_LINE_BYTES) -> None:
        self.longest = longest
        self._parts: list[bytes] = []
        self._size = 0

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        r"""The lines that this chunk completes, without their ends.

        >>> list(LineBuffer().feed(b"one\ntwo\nthr"))
        [b'one', b'two']
        """
        *complete, rest = chunk.split(b"\n")
        for part in complete:
            self._add_part(part)
            yield self._end_line()
        self._add_part(rest)

    def close(self) -> Iterator[bytes]:
        if self._size:
            yield self._end_line()

    def _add_part(self, part: bytes) -> None:
        room = self.longest - self._size
        if part and room > 0:
            self._parts.append(part[:room])
            self._size += min(len(part), room)

    def _end_line(self) -> bytes:
        line = b"".join(self._parts)
        self._parts.clear()
        self._size = 0
        return line


def kill_marked(mark: str) -> None:
    """Kill every process with this `NAME=value` in its environment, including those started meanwhile."""
    killed: set[int] = set()
    while found := _find_marked(mark.encode()) - killed:  # a killed process may remain as a zombie
        for pid in found:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        killed |= found


def _find_marked(needle: bytes) -> set[int]:
    found = set()
    for entry in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):
            if needle in entry.read_bytes().split(b"\0"):
                found.add(int(entry.parent.name))
    return found


MARK = "SWITCHGEAR_PROCESS"
"""The environment variable that marks all processes of one run."""
_CHUNK_BYTES = 65_536
_TICK_S = 1.0
"""Maximum seconds between two readings of the clock; a longer interval was a suspension."""
_MAX_TAIL_LINES = 200
_MAX_EVENTS = 5_000


class ProcessEnd(enum.Enum):
    EXITED = "exited"
    DEADLINE = "deadline"
    IDLE = "idle"
    STOPPED = "stopped"
    KILLED = "killed"
    NOT_FOUND = "not_found"
    LOST = "lost"
    """The supervisor was killed; the agent's exit code is unknown."""


class AgentRun(NamedTuple):
    """The result of one run of an agent. Immutable."""

    end: ProcessEnd
    exit_code: int | None
    """`None`: unknown. Negative: ended by that signal."""
    duration_s: float
    events: tuple[StreamEvent, ...]
    """The last 5,000; `on_event` receives all."""
    output_chars: int
    """The length of the agent's text, without the syntax of its format."""
    output_bytes: int
    """The size of its whole output, to stdout and stderr."""
    tail: str
    """The last lines of its output, redacted."""
    lines: int
    unknown_lines: int
    usage: tuple[Usage, ...]
    """The last usage of each model: see `switchgear._agents.prices.cost_of`."""
    result: AgentResult | None
    """The agent's own report of its result; `None`: there is none."""
    problem: str = ""
    """Why the agent could not be started, or what happened to its supervisor; empty: no problem."""


class AgentProcess:
    """One run of an agent.

    `run` blocks in one thread; `stop` and `kill` may be called at any time, from any thread, from `on_event`
    and from a signal handler.

    - `deadline_s`: time limit of the whole run; `idle_s`: time limit without any output; `None`: no limit. Time
      while this process is suspended or `is_paused` is set does not count.
    - `grace_s`: seconds between SIGTERM and SIGKILL when the run is ended.
    - `on_silence`: called every `silence_s` seconds without output, with the duration of the silence.
    - `on_tick`: called at least once a second.
    - `env`: the whole environment; default: that of this process. Variables of `WITHHELD` are always removed.
    - `supervisors`: provides the supervisor, and prepares the next one while the agent works.
    """

    def __init__(
        self,
        agent: Agent,
        prompt: str,
        cwd: Path | str,
        *,
        model: str | None = None,
        extra: tuple[str, ...] = (),
        env: Mapping[str, str] | None = None,
        deadline_s: float | None = None,
        idle_s: float | None = None,
        grace_s: float = 5.0,
        silence_s: float = 15.0,
        on_event: Callable[[StreamEvent], None] | None = None,
        supervisors: SupervisorPool | None = None,
    ) -> None:
        self.agent = agent
        self.cwd = Path(cwd).absolute()
        self.invocation: Invocation = agent.invocation(prompt, model=model, extra=extra)
        self.reader: StreamReader = agent.reader(model=model)
        self.deadline_s = deadline_s
        self.idle_s = idle_s
        self.grace_s = grace_s
        self.silence_s = silence_s
        self.on_event = on_event
        self.on_silence: Callable[[float], object] | None = None
        self.on_tick: Callable[[], object] | None = None
        self.is_paused = False
        self.supervisor: int | None = None
        """The process id of the supervisor; `None`: it is not started yet."""
        self._silence_reported_s = 0.0
        """When `on_silence` was last called, on the clock `AWAKE`."""
        self.env = _environment(env, self.invocation, self.cwd)
        self._supervisors = supervisors
        self._control_write = -1
        self._early_orders = b""
        """Orders from before the start."""
        self._is_closed = False
        # Reentrant, because a signal handler may run while an order is written.
        self._control = threading.RLock()
        self._orders: list[ProcessEnd] = []
        self._events: deque[StreamEvent] = deque(maxlen=_MAX_EVENTS)
        self._tail: deque[bytes] = deque(maxlen=_MAX_TAIL_LINES)
        self._usage: dict[str | None, Usage] = {}
        self._result: AgentResult | None = None
        self._bytes = 0
        self._status = b""

    def stop(self) -> None:
        """Send SIGTERM to all processes of the run, and SIGKILL after the grace period."""
        self._order(ProcessEnd.STOPPED, b"T")

    def kill(self) -> None:
        """Send SIGKILL to all processes of the run."""
        self._order(ProcessEnd.KILLED, b"K")

    def run(self) -> AgentRun:
        """Run the agent to its end. To be called once."""
        began_s = AWAKE()
        if not self.cwd.is_dir():
            raise ValueError(f"cwd is {str(self.cwd)!r}: it must be a directory")
        program, path = self.invocation.argv[0], self.env.get("PATH", os.defpath)
        if problem := _not_found(self.agent, program, self.cwd, path):
            self._close_control()
            return self._outcome(ProcessEnd.NOT_FOUND, None, began_s, problem)
        supervisors = self._supervisors
        supervisor = SupervisorProcess() if supervisors is None else supervisors.acquire()
        try:
            with supervisor.process as process:
                self.supervisor = process.pid
                try:
                    self._begin(supervisor)
                    self._watch(process, supervisor.status, began_s)
                except BaseException:
                    self.kill()
                    raise
                finally:
                    os.close(supervisor.status)
        finally:
            self._close_control()
            if not self._status:  # the supervisor was killed
                kill_marked(f"{MARK}={self.env[MARK]}")
        return self._conclude(began_s)

    def _begin(self, supervisor: SupervisorProcess) -> None:
        with self._control:
            self._control_write = supervisor.control
            os.write(self._control_write, self._early_orders)
        argv, stdin, _ = self.invocation
        supervisor.begin(argv, stdin or "", env=self.env, cwd=self.cwd, grace_s=self.grace_s)
        if self._supervisors is not None:
            self._supervisors.prepare()

    def _watch(self, process: subprocess.Popen[bytes], status: int, began_s: float) -> None:
        """Read all output until the supervisor and every other holder of the pipes have ended."""
        outputs = {cast("IO[bytes]", process.stdout).fileno(): (LineBuffer(), False)}
        outputs[cast("IO[bytes]", process.stderr).fileno()] = (LineBuffer(), True)
        last_output_s = polled_s = began_s
        with selectors.DefaultSelector() as ready:
            for descriptor in (*outputs, status):
                os.set_blocking(descriptor, False)
                ready.register(descriptor, selectors.EVENT_READ)
            while status in ready.get_map():
                wait_s = min(_TICK_S, self._wait_s(began_s, last_output_s))
                found = ready.select(wait_s)
                before_s, polled_s = polled_s, AWAKE.read_after(polled_s, wait_s)
                if self.is_paused:
                    began_s += polled_s - before_s
                    last_output_s += polled_s - before_s
                for key, _ in found:
                    chunk = os.read(key.fd, _CHUNK_BYTES)
                    if not chunk:
                        ready.unregister(key.fd)
                    elif key.fd == status:
                        self._status += chunk
                    else:
                        last_output_s = AWAKE()
                        self._read(chunk, *outputs[key.fd])
                self._check_time(began_s, last_output_s)
                if self.on_tick is not None:
                    self.on_tick()
            for descriptor, sink in outputs.items():  # the output just before the end
                if descriptor in ready.get_map():
                    self._drain(descriptor, *sink)
        for lines, is_error in outputs.values():
            for line in lines.close():
                self._read_line(line, is_error=is_error)

    def _wait_s(self, began_s: float, last_output_s: float) -> float:
        if self._orders or self._status:
            return _TICK_S
        ends = [began_s + self.deadline_s] if self.deadline_s is not None else []
        ends += [last_output_s + self.idle_s] if self.idle_s is not None else []
        if self.on_silence is not None:
            ends.append(max(last_output_s, self._silence_reported_s) + self.silence_s)
        return max(0.0, min(ends) - AWAKE()) if ends else _TICK_S

    def _check_time(self, began_s: float, last_output_s: float) -> None:
        now_s = AWAKE()
        if self._orders or self._status:
            return
        silent_since_s = max(last_output_s, self._silence_reported_s)
        if self.deadline_s is not None and now_s >= began_s + self.deadline_s:
            self._order(ProcessEnd.DEADLINE, b"T")
        elif self.idle_s is not None and now_s >= last_output_s + self.idle_s:
            self._order(ProcessEnd.IDLE, b"T")
        elif self.on_silence is not None and now_s >= silent_since_s + self.silence_s:
            self._silence_reported_s = now_s
            self.on_silence(now_s - last_output_s)

    def _drain(self, descriptor: int, lines: LineBuffer, is_error: bool) -> None:  # noqa: FBT001
        with suppress(BlockingIOError):
            while chunk := os.read(descriptor, _CHUNK_BYTES):
                self._read(chunk, lines, is_error)

    def _read(self, chunk: bytes, lines: LineBuffer, is_error: bool) -> None:  # noqa: FBT001
        self._bytes += len(chunk)
        for line in lines.feed(chunk):
            self._read_line(line, is_error=is_error)

    def _read_line(self, line: bytes, *, is_error: bool) -> None:
        self._tail.append(line[:2_000])
        for event in self.reader.feed(line, stderr=is_error):
            self._handle_event(event)

    def _handle_event(self, event: StreamEvent) -> None:
        self._events.append(event)
        if isinstance(event, Usage):
            self._usage[event.model] = event
        elif isinstance(event, AgentResult):
            self._result = event
        if self.on_event is not None:
            self.on_event(event)

    def _order(self, end: ProcessEnd, order: bytes) -> None:
        with self._control:
            if self._is_closed:
                return
            if not self._status:  # otherwise the agent has ended by itself
                self._orders.append(end)
            if self._control_write < 0:
                self._early_orders += order
                return
            with suppress(BrokenPipeError):
                os.write(self._control_write, order)

    def _close_control(self) -> None:
        with self._control:
            self._is_closed = True
            if self._control_write >= 0:
                os.close(self._control_write)
            self._control_write = -1

    def _conclude(self, began_s: float) -> AgentRun:
        outcome, _, number = self._status.decode("ascii", "replace").strip().partition(" ")
        if outcome == "error":
            reason = os.strerror(int(number))
            program = self.invocation.argv[0]
            if int(number) in {errno.ENOENT, errno.ENOEXEC}:  # the program itself was found
                reason += "; does its first line name an interpreter that is installed?"
            problem = f"the agent's program {program!r} cannot be started: {reason}"
            return self._outcome(ProcessEnd.NOT_FOUND, None, began_s, problem)
        code = int(number) if outcome == "exit" else None
        for event in self.reader.close(code if not self._orders else None):
            self._handle_event(event)
        if self._orders:
            return self._outcome(self._orders[-1], code, began_s)
        if code is not None:
            return self._outcome(ProcessEnd.EXITED, code, began_s)
        return self._outcome(ProcessEnd.LOST, None, began_s, "the agent's supervisor was killed")

    def _outcome(
        self, end: ProcessEnd, code: int | None, began_s: float, problem: str = ""
    ) -> AgentRun:
        tail = b"\n".join(self._tail).decode("utf-8", "replace")
        return AgentRun(
            end=end,
            exit_code=code,
            duration_s=AWAKE() - began_s,
            events=tuple(self._events),
            output_chars=self.reader.output_chars,
            output_bytes=self._bytes,
            tail=clean(tail, 8_000),
            lines=self.reader.lines,
            unknown_lines=self.reader.unknown_lines,
            usage=tuple(self._usage.values()),
            result=self._result,
            problem=problem,
        )


def missing_program(agent: Agent, cwd: Path) -> str:
    """Why the agent's program cannot be started in `cwd`, as a sentence; empty: it can."""
    program = agent.invocation("").argv[0]
    return _not_found(agent, program, cwd, os.environ.get("PATH", os.defpath))


def _not_found(agent: Agent, program: str, cwd: Path, path: str) -> str:
    where = str(cwd / program) if os.sep in program else program
    if shutil.which(where, path=path):
        return ""
    if os.sep in program and Path(where).is_file():
        return f"{program!r} is not executable; make it so with: chmod +x {shlex.quote(program)}"
    if os.sep in program:
        return f"there is no program {where!r}; correct the command"
    missing = f"there is no program {program!r} on the PATH"
    if not agent.install:
        return f"{missing}; install it, or name another command"
    return f"the agent {agent.name!r} is not installed: {missing}; install it with: {agent.install}"


def _environment(
    env: Mapping[str, str] | None, invocation: Invocation, cwd: Path
) -> dict[str, str]:
    whole = dict(os.environ if env is None else env)
    for name in WITHHELD:
        whole.pop(name, None)
    return {**whole, **invocation.env, "PWD": str(cwd), MARK: uuid.uuid4().hex}
