"""Measure 15: the cost of a hook; an agent waits for two of them at every tool call.

A hook is a process that sends its event to the resident process, or decides it itself: all circuits in
one transaction. It is compared with starting Python to do nothing, and with the same check written in
bash and jq: read the event, look the circuit up in a file, count the call, write the file. The server
answers the same events over HTTP, with a new connection each time.
"""

from __future__ import annotations

import http.client
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from bench.library import Role
from bench.result import TIMES, Bar, Row, Section, sorted_by_gauge
from switchgear._hooks import resident
from switchgear._hooks.client import RESIDENT_VARIABLE
from switchgear._hooks.command import hook_command
from switchgear._hooks.process import open_store
from switchgear._hooks.server import HookServer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from bench.measure import Effort
    from switchgear._hooks.hook_config import HookConfig
    from switchgear._stores.base import Store

AT_MOST_TIMES = 1.2
AT_MOST_TIMES_P99 = 2.0
AT_MOST_TIMES_ALONE = 5.0
AT_MOST_TIMES_HTTP = 1.2
AT_MOST_MB = 40.0
AT_MOST_RESIDENT_MB = 60.0
AT_ONCE, AT_MOST_S = 100, 2.0
CALLS_FOR_P99 = 500
FLOOR, BASH = "python3 -c pass", "bash + jq"
BEFORE, AFTER, POSTED = "hook, before a tool", "hook, after a tool", "over HTTP, before a tool"
ALONE = "hook without resident process"
CALLS_OF_A_SESSION = 10
TOKEN = "a-token-for-the-benchmark"
SCRIPT = """\
set -eu
event=$(cat)
tool=$(jq -r .tool_name <<<"$event")
session=$(jq -r .session_id <<<"$event")
state=$(jq -r --arg tool "$tool" '.circuits[$tool].state // "CLOSED"' "$1")
if [ "$state" = OPEN ]; then echo "circuit $tool is open" >&2; exit 2; fi
jq --arg tool "$tool" --arg session "$session" \\
  '.circuits[$tool].calls += 1 | .sessions[$session].calls += 1' "$1" > "$1.new"
mv "$1.new" "$1"
"""


def section(effort: Effort) -> Section:
    rounds = max(9, effort.rounds // 3)
    with tempfile.TemporaryDirectory(prefix="switchgear-bench-") as name:
        folder = Path(name)
        (folder / ".git").mkdir()
        with _resident(folder), _server(folder) as server:
            contenders = _contenders(folder, server)
            _interleaved(folder, contenders, 3)  # the first run fills the caches
            times_s = _interleaved(folder, contenders, rounds)
            few = {key: contenders[key] for key in (FLOOR, BEFORE)}
            many_s = _interleaved(folder, few, CALLS_FOR_P99 if rounds > 9 else rounds)
            at_once_s = min(_at_once_s(folder, number) for number in range(3))
            resident_mb = _resident_mb()
            largest_mb = _largest_mb(folder)
    ratios = {
        key: statistics.median(
            [own / floor for own, floor in zip(taken, times_s[FLOOR], strict=True)]
        )
        for key, taken in times_s.items()
    }
    floor_s = statistics.median(many_s[FLOOR])
    p99 = sorted(many_s[BEFORE])[int(len(many_s[BEFORE]) * 0.99)] / floor_s
    return Section(
        key="hooks",
        title="One hook call",
        method=(
            f"ms from start to end, {rounds} rounds in random order. A hook acquires its permits in "
            "one transaction of a SQLite file; the median of the ratios within the rounds counts."
        ),
        columns=("median", f"{TIMES} {FLOOR}"),
        rows=sorted_by_gauge([_row(key, times_s[key], ratios[key]) for key in contenders]),
        bars=[
            *_bars(ratios, p99, largest_mb),
            Bar(f"seconds for {AT_ONCE} hooks of as many sessions at once", at_once_s, AT_MOST_S),
            Bar(
                f"megabytes of the resident process, {AT_ONCE} sessions",
                resident_mb,
                AT_MOST_RESIDENT_MB,
            ),
        ],
        numbers={key: {"times": ratios[key], "seconds": times_s[key]} for key in contenders}
        | {"largest_mb": largest_mb, "resident_mb": resident_mb, "at_once_s": at_once_s},
    )


def _bars(ratios: dict[str, float], p99: float, largest_mb: float) -> list[Bar]:
    bars = [Bar(f"times {FLOOR}, {key}", ratios[key], AT_MOST_TIMES) for key in (BEFORE, AFTER)]
    bars.append(Bar(f"times {FLOOR}, {ALONE}", ratios[ALONE], AT_MOST_TIMES_ALONE))
    bars.append(Bar(f"times {FLOOR} at p99, {BEFORE}", p99, AT_MOST_TIMES_P99))
    bars.append(Bar(f"times {FLOOR}, {POSTED}", ratios[POSTED], AT_MOST_TIMES_HTTP))
    if BASH in ratios:
        bars.append(Bar(f"times {BASH}, {BEFORE}", ratios[BEFORE] / ratios[BASH], 1.0))
    return [*bars, Bar("megabytes at most in a hook", largest_mb, AT_MOST_MB)]


def _row(key: str, times_s: list[float], ratio: float) -> Row:
    role = {FLOOR: Role.FLOOR, BASH: Role.PEER}.get(key, Role.OURS)
    return Row(key, role, (f"{statistics.median(times_s) * 1e3:,.1f}", f"{ratio:.2f}"), ratio)


def _interleaved(
    folder: Path, contenders: dict[str, Callable[[], None]], rounds: int
) -> dict[str, list[float]]:
    times_s: dict[str, list[float]] = {key: [] for key in contenders}
    order = list(contenders)
    for number in range(rounds):
        _write_events(folder, number)
        random.shuffle(order)
        for key in order:
            began_s = time.perf_counter()
            contenders[key]()
            times_s[key].append(time.perf_counter() - began_s)
    return times_s


def _write_events(folder: Path, number: int) -> None:
    """The events of a round: new commands, in sessions short enough that no guard has cause."""
    names = {
        "session_id": f"bench-{os.getpid()}-{number // CALLS_OF_A_SESSION}",
        "cwd": str(folder),
    }
    call = {
        "tool_name": "Bash",
        "tool_input": {"command": f"make part-{number}"},
        "tool_use_id": f"t{number}",
    }
    before = {"hook_event_name": "PreToolUse"}
    after = {"hook_event_name": "PostToolUse", "tool_response": {"stdout": f"made {number}"}}
    for file, more in (("before.json", before), ("after.json", after)):
        (folder / file).write_text(json.dumps(names | call | more))


def _contenders(folder: Path, server: HookServer) -> dict[str, Callable[[], None]]:
    before, after = folder / "before.json", folder / "after.json"
    hook = [sys.executable, *hook_command("claude-code", root=str(folder))[1:]]
    found: dict[str, Callable[[], None]] = {
        FLOOR: _spawning([sys.executable, "-c", "pass"], before),
        BEFORE: _spawning(hook, before),
        AFTER: _spawning(hook, after),
        ALONE: _spawning(hook, before, {**os.environ, RESIDENT_VARIABLE: "off"}),
        POSTED: lambda: _post(server, before.read_bytes()),
    }
    bash, jq = shutil.which("bash"), shutil.which("jq")
    if bash and jq:
        script, state = folder / "check.sh", folder / "circuits.json"
        script.write_text(SCRIPT)
        state.write_text('{"circuits": {}, "sessions": {}}')
        found[BASH] = _spawning([bash, str(script), str(state)], before)
    return found


def _spawning(
    command: list[str], given: Path, environ: dict[str, str] | None = None
) -> Callable[[], None]:
    def run() -> None:
        assert _spawn(command, given, dict(os.environ) if environ is None else environ) == 0

    return run


def _spawn(command: list[str], given: Path, environ: dict[str, str]) -> int:
    """The exit code of a command with this input."""
    return os.waitstatus_to_exitcode(os.waitpid(_started(command, given, environ), 0)[1])


def _started(command: list[str], given: Path, environ: dict[str, str]) -> int:
    """The process of a command with this input."""
    actions = [
        (os.POSIX_SPAWN_OPEN, 0, str(given), os.O_RDONLY, 0),
        (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
    ]
    return os.posix_spawn(command[0], command, environ, file_actions=actions)


def _at_once_s(folder: Path, number: int) -> float:
    """Seconds until hooks of many sessions that start at the same time are all answered."""
    files = []
    for session in range(AT_ONCE):
        file = folder / f"at-once-{session}.json"
        call = {"tool_name": "Bash", "tool_input": {"command": f"make {session}"}}
        names = {"session_id": f"once-{number}-{session}", "tool_use_id": f"o{number}"}
        event = {"hook_event_name": "PreToolUse", "cwd": str(folder)}
        file.write_text(json.dumps(event | call | names))
        files.append(file)
    hook = [sys.executable, *hook_command("claude-code", root=str(folder))[1:]]
    began_s = time.perf_counter()
    pids = [_started(hook, file, dict(os.environ)) for file in files]
    codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]
    taken_s = time.perf_counter() - began_s
    assert codes == [0] * AT_ONCE
    return taken_s


def _resident_mb() -> float:
    """The memory of the resident process and its workers; pages that they share count once."""
    pid = (resident.status() or {})["pid"]
    children = Path(f"/proc/{pid}/task/{pid}/children")
    if not children.exists():
        return 0.0  # available on Linux only
    found = 0
    for each in (pid, *children.read_text().split()):
        with suppress(OSError):  # one that has just ended
            text = Path(f"/proc/{each}/smaps_rollup").read_text()
            found += int(text.partition("\nPss:")[2].split()[0])
    return found / 1024


def _largest_mb(folder: Path) -> float:
    """Seen by a small process: what a child inherits of its parent's size counts as its own."""
    hook = hook_command("claude-code", root=str(folder))[1:]
    program = (
        "import os, sys; pid = os.posix_spawn(sys.argv[1], sys.argv[1:], os.environ); "
        "print(os.wait4(pid, 0)[2].ru_maxrss)"
    )
    small = [sys.executable, "-I", "-S", "-c", program, sys.executable, *hook]
    unit = 1024 * 1024 if sys.platform == "darwin" else 1024
    found: list[float] = []
    for name in ("before.json", "after.json"):
        with (folder / name).open("rb") as given:
            done = subprocess.run(small, stdin=given, capture_output=True, check=True)
        found.append(int(done.stdout) / unit)
    return max(found)


def _post(server: HookServer, body: bytes) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
    connection.request("POST", "/hooks/claude-code", body, {"Authorization": f"Bearer {TOKEN}"})
    response = connection.getresponse()
    assert (response.status, response.read()) == (200, b"{}")
    connection.close()


@contextmanager
def _resident(folder: Path) -> Iterator[None]:
    """A resident process of its own, which ends with the measure."""
    before = os.environ.get("XDG_STATE_HOME")
    os.environ["XDG_STATE_HOME"] = str(folder / "state")
    os.environ.pop(RESIDENT_VARIABLE, None)
    resident.start()
    until_s = time.monotonic() + 30.0
    while resident.status() is None and time.monotonic() < until_s:
        time.sleep(0.05)
    try:
        yield
    finally:
        resident.stop()
        if before is None:
            del os.environ["XDG_STATE_HOME"]
        else:
            os.environ["XDG_STATE_HOME"] = before


@contextmanager
def _server(folder: Path) -> Iterator[HookServer]:
    stores: dict[str, Store] = {}

    def opened(known: HookConfig) -> Store:
        if known.store not in stores:
            stores[known.store] = open_store(known)
        return stores[known.store]

    server = HookServer(str(folder), TOKEN, opened, ask=resident.ask)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
