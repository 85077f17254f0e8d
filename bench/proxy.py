"""What a guarded model call costs in `switchgear proxy`, beside a bare pass-through and LiteLLM's proxy.

All of them forward the same 4 KB to the same API on loopback. Ours has a SQLite store, a budget for all
calls and one for each session. CPU is that of the process that forwards; latency is measured by one client
that sends one request after another. LiteLLM is measured where `.venv-litellm` has it.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from bench.library import Role
from bench.result import TIMES, Bar, Row, Section

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.measure import Effort

OURS, BARE, LITELLM, DIRECT = "switchgear proxy", "bare pass-through", "LiteLLM proxy", "no proxy"
AT_MOST_CPU_MS, AT_MOST_ADDED_MS, AT_MOST_FIRST_MS = 0.6, 1.0, 1.0
AT_LEAST_TIMES_LITELLM, AT_MOST_MB, AT_MOST_GROWTH, AT_MOST_SLOWER = 20.0, 150.0, 1.1, 1.25
STREAMS = 500
_BODY = {
    "model": "claude-sonnet-4-5",
    "max_tokens": 1000,
    "system": "s" * 1000,
    "messages": [{"role": "user", "content": "x" * 2900}],
}
_TICK_S = 1 / os.sysconf("SC_CLK_TCK")


class Contender(NamedTuple):
    port: int
    pid: int | None


def request(*, stream: bool = False, **more: str) -> bytes:
    body = json.dumps({**_BODY, **more, **({"stream": True} if stream else {})}).encode()
    head = (
        "POST /v1/messages HTTP/1.1\r\nHost: 127.0.0.1\r\nx-api-key: sk-bench-0123456789\r\n"
        "Authorization: Bearer sk-bench-0123456789\r\nanthropic-version: 2023-06-01\r\n"
        f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


def section(effort: Effort) -> Section:
    rounds, calls = (3, 200) if effort.rounds < 20 else (9, 1000)
    many = 5_000 if effort.rounds < 20 else 100_000
    with (
        tempfile.TemporaryDirectory(prefix="switchgear-bench-") as name,
        _stage(Path(name)) as found,
    ):
        contenders, slow = found
        measured = asyncio.run(_measure(contenders, rounds, calls))
        first = asyncio.run(_first_bytes(contenders, rounds * 20))
        growth, start_mb, end_mb = asyncio.run(_long(contenders[OURS], many))
        peak_mb = asyncio.run(_crowd(slow))
    cpu_ms = {
        key: statistics.median(each.cpu_ms for each in taken) for key, taken in measured.items()
    }
    p50_ms = {
        key: statistics.median(each.p50_ms for each in taken) for key, taken in measured.items()
    }
    bars = [
        Bar("ms of CPU per guarded request", cpu_ms[OURS], AT_MOST_CPU_MS),
        Bar("ms added to the median latency", p50_ms[OURS] - p50_ms[DIRECT], AT_MOST_ADDED_MS),
        Bar("ms added until the first byte", first[OURS] - first[DIRECT], AT_MOST_FIRST_MS),
        Bar(f"MB with {STREAMS} concurrent streams", peak_mb, AT_MOST_MB),
        Bar(f"times the memory after {many:,} requests", end_mb / start_mb, AT_MOST_GROWTH),
        Bar(
            f"times the CPU of the first for the last of {many:,} requests", growth, AT_MOST_SLOWER
        ),
    ]
    if LITELLM in cpu_ms:
        ratio = cpu_ms[LITELLM] / cpu_ms[OURS]
        bars.append(
            Bar("times less CPU than LiteLLM", ratio, AT_LEAST_TIMES_LITELLM, at_least=True)
        )
    rows = [
        Row(
            key,
            Role.OURS if key == OURS else Role.FLOOR if key in {DIRECT, BARE} else Role.PEER,
            (
                f"{cpu_ms[key]:.3f}" if key != DIRECT else "-",
                f"{p50_ms[key]:.2f}",
                f"{first[key]:.2f}",
            ),
            cpu_ms[key],
        )
        for key in sorted(cpu_ms, key=lambda key: cpu_ms[key])
    ]
    return Section(
        key="proxy",
        title="A model call through a proxy",
        method=(
            f"{rounds} rounds of {calls} requests of 4 KB in random order, one after another; then "
            f"{many:,} to ours alone, and {STREAMS} streams at once. Ours guards and accounts, in a SQLite file."
        ),
        columns=("CPU, ms per request", "median, ms", "first byte, ms"),
        rows=rows,
        bars=bars,
        numbers={
            "cpu_ms": cpu_ms,
            "p50_ms": p50_ms,
            "first_ms": first,
            "peak_mb": peak_mb,
            TIMES: growth,
        },
    )


class Round(NamedTuple):
    cpu_ms: float
    p50_ms: float


async def _measure(
    contenders: dict[str, Contender], rounds: int, calls: int
) -> dict[str, list[Round]]:
    found: dict[str, list[Round]] = {key: [] for key in contenders}
    for key, contender in contenders.items():
        await _round(contender, 30 if key == LITELLM else 300)  # what is cached is cached
    for _ in range(rounds):
        for key in random.sample(list(contenders), len(contenders)):
            found[key].append(await _round(contenders[key], 20 if key == LITELLM else calls))
    return found


async def _round(contender: Contender, calls: int) -> Round:
    raw = request()
    reader, writer = await asyncio.open_connection("127.0.0.1", contender.port)
    before_s = _cpu_s(contender.pid)
    taken = []
    for _ in range(calls):
        begun_s = time.perf_counter()
        writer.write(raw)
        await _response(reader)
        taken.append(time.perf_counter() - begun_s)
    cpu_s = _cpu_s(contender.pid) - before_s
    writer.close()
    return Round(cpu_s / calls * 1e3, statistics.median(taken) * 1e3)


async def _response(reader: asyncio.StreamReader) -> None:
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    if not head.startswith(b"http/1.1 200"):
        raise RuntimeError(head + await reader.read(2000))
    if b"content-length:" in head:
        await reader.readexactly(int(head.partition(b"content-length:")[2].split(b"\r\n")[0]))
        return
    await _chunks(reader, b"")


async def _chunks(reader: asyncio.StreamReader, first: bytes) -> None:
    while size := int(first + await reader.readuntil(b"\r\n"), 16):
        first = b""
        await reader.readexactly(size + 2)
    await reader.readexactly(2)


async def _first_bytes(contenders: dict[str, Contender], calls: int) -> dict[str, float]:
    """Milliseconds until the first byte of the body of a stream, the median."""
    raw = request(stream=True)
    taken: dict[str, list[float]] = {key: [] for key in contenders}
    opened = {
        key: await asyncio.open_connection("127.0.0.1", each.port)
        for key, each in contenders.items()
    }
    quick = [key for key in contenders if key != LITELLM]
    turns = [key for _ in range(calls) for key in random.sample(quick, len(quick))]
    for key in [*turns, *([LITELLM] * 20 if LITELLM in contenders else [])]:
        reader, writer = opened[key]
        begun_s = time.perf_counter()
        writer.write(raw)
        await reader.readuntil(b"\r\n\r\n")
        first = await reader.readexactly(1)
        taken[key].append(time.perf_counter() - begun_s)
        await _chunks(reader, first)
    for _, writer in opened.values():
        writer.close()
    return {key: statistics.median(each) * 1e3 for key, each in taken.items()}


async def _long(ours: Contender, calls: int) -> tuple[float, float, float]:
    """CPU of the last three tenths against the first, and the memory before and after, in MB."""
    part = max(100, calls // 10)
    await _round(ours, part)
    start_mb = _memory_mb(ours.pid, "VmRSS")
    taken = [(await _round(ours, part)).cpu_ms for _ in range(9)]
    growth = statistics.median(taken[-3:]) / statistics.median(taken[:3])
    return growth, start_mb, _memory_mb(ours.pid, "VmRSS")


async def _crowd(ours: Contender) -> float:
    """The most memory with many streams at once, in MB."""

    async def one(number: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", ours.port)
        writer.write(request(stream=True, system=f"session {number}"))
        await _response(reader)
        writer.close()

    await asyncio.gather(*(one(number) for number in range(STREAMS)))
    return _memory_mb(ours.pid, "VmHWM")


def _cpu_s(pid: int | None) -> float:
    if pid is None:
        return 0.0
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) * _TICK_S


def _memory_mb(pid: int | None, field: str) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(field)) / 1024


@contextlib.contextmanager
def _stage(folder: Path) -> Iterator[tuple[dict[str, Contender], Contender]]:
    with contextlib.ExitStack() as stack:
        api = _free_port()
        stack.enter_context(
            _running(sys.executable, "-m", "bench.proxy_upstream", "api", str(api), "0.02")
        )
        slow = _free_port()
        stack.enter_context(
            _running(sys.executable, "-m", "bench.proxy_upstream", "api", str(slow), "10")
        )
        bare = _free_port()
        url = f"http://127.0.0.1:{api}"
        running = stack.enter_context(
            _running(sys.executable, "-m", "bench.proxy_upstream", "bare", str(bare), url)
        )
        found = {DIRECT: Contender(api, None), BARE: Contender(bare, running.pid)}
        for port in (api, slow, bare):
            _await_port(port)
        found[OURS] = stack.enter_context(_ours(folder / "quick.db", url))
        litellm = Path(".venv-litellm/bin/litellm")
        if litellm.exists():
            found[LITELLM] = stack.enter_context(_litellm(litellm, folder, url))
        crowd = stack.enter_context(_ours(folder / "slow.db", f"http://127.0.0.1:{slow}"))
        yield found, crowd


@contextlib.contextmanager
def _ours(store: Path, url: str) -> Iterator[Contender]:
    port = _free_port()
    command = [sys.executable, "-m", "switchgear", "proxy", "--port", str(port)]
    command += ["--store", f"sqlite:///{store}", "--upstream", f"anthropic={url}"]
    command += ["--budget", "100000", "--session-budget", "10000"]
    with _running(*command) as running:
        _await_port(port)
        children = Path(f"/proc/{running.pid}/task/{running.pid}/children")
        while not children.read_text().split():
            time.sleep(0.05)
        yield Contender(port, int(children.read_text().split()[0]))


@contextlib.contextmanager
def _litellm(program: Path, folder: Path, url: str) -> Iterator[Contender]:
    port = _free_port()
    model = {"model": "anthropic/claude-sonnet-4-5", "api_base": url, "api_key": "sk-bench"}
    config = {"model_list": [{"model_name": "claude-sonnet-4-5", "litellm_params": model}]}
    place = folder / "litellm.yaml"
    place.write_text(json.dumps(config))
    options = ["--config", str(place), "--host", "127.0.0.1", "--port", str(port)]
    offline = {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "LITELLM_TELEMETRY": "False"}
    offline["LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY"] = "true"
    with _running(str(program), *options, env={**os.environ, **offline}) as running:
        _await_port(port, 180.0)
        yield Contender(port, running.pid)


@contextlib.contextmanager
def _running(*command: str, env: dict[str, str] | None = None) -> Iterator[subprocess.Popen[bytes]]:
    running = subprocess.Popen(
        command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        yield running
    finally:
        running.terminate()
        try:
            running.wait(15)
        except subprocess.TimeoutExpired:
            running.kill()
            running.wait()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _await_port(port: int, most_s: float = 60.0) -> None:
    ends_s = time.monotonic() + most_s
    while time.monotonic() < ends_s:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1.0):
            return
        time.sleep(0.1)
    raise RuntimeError(f"nothing listens on port {port} after {most_s:g} s")
