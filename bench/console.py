"""The console under load: `python -m bench.console load|page`.

- `load`: 200 clients of the event stream and 500 acquire/record calls per second for a minute,
  half of them of circuits that trip; the server is killed once in the middle. Prints what was lost
  (nothing must be), the latency of calls, the delay of events, and how a client that does not read
  is dropped.
- `page`: 2,000 circuits and 100,000 events in a real Chromium: the time to the first view, and of
  an update from the commit in another process to the screen.
"""

import argparse
import asyncio
import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from switchgear._breaker.circuit_breaker import classic
from switchgear._core.types import Mode, Override, Record, Signal
from switchgear._panel.panel import Panel


class Server:
    """`switchgear serve` in a folder of its own."""

    def __init__(self, root: Path) -> None:
        self.root = root
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self.start()

    def start(self) -> None:
        command = [sys.executable, "-m", "switchgear", "serve", "--port", str(self.port)]
        environment = {**os.environ, "PYTHONUNBUFFERED": "1", "SWITCHGEAR_RESIDENT": "off"}
        self.process = subprocess.Popen(
            command, cwd=self.root, env=environment, stdout=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None
        while "console: " not in (line := self.process.stdout.readline()):
            assert line, "the server did not start"

    def token(self, role: str) -> str:
        return (self.root / ".switchgear" / f"{role}.token").read_text().strip()

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait()


async def request(reader: Any, writer: Any, head: str, body: bytes = b"") -> dict[str, Any]:
    """One request on a connection that stays open."""
    writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
    await writer.drain()
    found = await reader.readuntil(b"\r\n\r\n")
    length = int(found.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
    data = await reader.readexactly(length)
    assert b" 200 " in found[:20], (found[:40], data[:200])
    answer: dict[str, Any] = json.loads(data)
    return answer


class Follower:
    """A client of the stream that notes every event and resumes after a lost connection."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self.cursor, self.seen, self.resumed = "0", list[int](), 0
        self.delays: list[float] = []

    async def run(self) -> None:
        while True:
            try:
                await self._follow()
            except (OSError, asyncio.IncompleteReadError):
                self.resumed += 1
                await asyncio.sleep(0.3)

    async def _follow(self) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._server.port)
        token = self._server.token("read")
        writer.write(
            f"GET /v1/events HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: text/event-stream\r\nLast-Event-ID: {self.cursor}\r\n"
            f"Authorization: Bearer {token}\r\n\r\n".encode()
        )
        kind = ""
        try:
            while line := await reader.readline():
                if line.startswith(b"event: "):
                    kind = line[7:-1].decode()
                elif line.startswith(b"id: "):
                    identity = line[4:-1].decode()
                elif line.startswith(b"data: ") and kind == "event":
                    self.cursor = identity
                    self.seen.append(int(identity))
                    if len(self.seen) % 20 == 0:
                        self.delays.append(time.time() - json.loads(line[6:])["at_s"])
            raise OSError("the stream ended")
        finally:
            writer.close()


async def caller(  # noqa: PLR0917  facts of one load
    server: Server, number: int, per_s: float, until_s: float, times: list[float], failed: list[str]
) -> int:
    """Acquire and record, alternately, at a steady rate; returns how many calls were answered."""
    token, done = server.token("serve"), 0
    name = f"load%2F{number}"
    common = f"HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {token}\r\nContent-Type: application/json\r\n"
    reader = writer = None
    next_s = time.monotonic()
    while time.monotonic() < until_s:
        next_s += 1 / per_s
        await asyncio.sleep(max(0.0, next_s - time.monotonic()))
        began = time.perf_counter()
        try:
            if writer is None:
                reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            if done % 2:
                outcome = "failure" if done // 2 % 12 < 6 and number % 2 else "success"
                body = json.dumps({"outcome": outcome}).encode()
                await request(reader, writer, f"POST /v1/circuits/{name}/record {common}", body)
            else:
                await request(reader, writer, f"POST /v1/circuits/{name}/acquire {common}")
        except (OSError, asyncio.IncompleteReadError, IndexError):
            failed.append(name)
            if writer is not None:
                writer.close()
            reader = writer = None
            await asyncio.sleep(0.2)
            continue
        times.append(time.perf_counter() - began)
        done += 1
    if writer is not None:
        writer.close()
    return done


async def operator(server: Server, until_s: float) -> None:
    """Twenty overrides per second: each one is an event."""
    common = f"HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {server.token('operator')}\r\n"
    common += "Content-Type: application/json\r\n"
    writer, number = None, 0
    while time.monotonic() < until_s:
        number += 1
        action = "shadow" if number % 2 else "release"
        body = json.dumps({"action": action, "by": "bench", "why": "load", "create": True})
        try:
            if writer is None:
                reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            head = f"POST /v1/circuits/load%2Foverridden/override {common}"
            await request(reader, writer, head, body.encode())
        except (OSError, asyncio.IncompleteReadError, IndexError):
            writer = None
        await asyncio.sleep(0.05)
    if writer is not None:
        writer.close()


async def load(seconds: float, clients: int, rate: float) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        (root / ".git").mkdir()
        with Panel(f"sqlite:///{root}/.switchgear/state.db", keep_events=200_000) as panel:
            store = panel.store.inner
            store.apply("load/0", classic(), Record(Signal(ok=True)), store.now_s())
        server = Server(root)
        followers = [Follower(server) for _ in range(clients)]
        tasks = [asyncio.create_task(each.run()) for each in followers]
        await asyncio.sleep(2)
        times: list[float] = []
        failed: list[str] = []
        until_s = time.monotonic() + seconds
        callers = [
            asyncio.create_task(caller(server, each, rate / 20, until_s, times, failed))
            for each in range(20)
        ]
        orders = asyncio.create_task(operator(server, until_s))
        await asyncio.sleep(seconds / 2)
        server.kill()
        await asyncio.to_thread(server.start)
        answered = sum(await asyncio.gather(*callers))
        await orders
        with Panel(f"sqlite:///{root}/.switchgear/state.db") as panel:
            stored = [int(entry.cursor) for entry in panel.events(limit=10_000_000)]
        until_s = time.monotonic() + 60
        while any(each.seen[-1:] != stored[-1:] for each in followers):
            await asyncio.sleep(0.1)
            if time.monotonic() > until_s:
                break
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        lost = sum(len(set(stored) - set(each.seen)) for each in followers)
        again = sum(len(each.seen) - len(set(each.seen)) for each in followers)
        unordered = sum(each.seen != sorted(each.seen) for each in followers)
        delays = sorted(delay for each in followers for delay in each.delays) or [0.0]
        times.sort()
        print(
            f"{answered:,} calls answered in {seconds:g} s ({answered / seconds:.0f}/s), {len(failed)} cut off by the kill"
        )
        print(
            f"latency of a call: p50 {times[len(times) // 2] * 1e3:.1f} ms, p99 {times[int(len(times) * 0.99)] * 1e3:.1f} ms"
        )
        print(
            f"{len(stored):,} events to {clients} clients: {lost} lost, {again} repeated, {unordered} out of order, {sum(each.resumed for each in followers)} resumed"
        )
        print(
            f"delay of an event: p50 {delays[len(delays) // 2] * 1e3:.0f} ms, p99 {delays[int(len(delays) * 0.99)] * 1e3:.0f} ms"
        )
        print(await asyncio.to_thread(slow_client, server))
        server.stop()


def slow_client(server: Server) -> str:
    """Connect a client that does not read, and write events until it is dropped."""
    common = f"Host: 127.0.0.1\r\nAuthorization: Bearer {server.token('read')}\r\n"
    slow = socket.create_connection(("127.0.0.1", server.port))
    slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    slow.sendall(f"GET /v1/events HTTP/1.1\r\nAccept: text/event-stream\r\n{common}\r\n".encode())

    def dropped() -> bool:
        with socket.create_connection(("127.0.0.1", server.port)) as asking:
            asking.sendall(f"GET /metrics HTTP/1.1\r\nConnection: close\r\n{common}\r\n".encode())
            answer = b"".join(iter(lambda: asking.recv(1 << 16), b""))
        return b"\nswitchgear_event_stream_dropped_total 0\n" not in answer

    def many(tx: Any) -> None:
        for number in range(1000):
            mode = Mode.SHADOW if number % 2 else Mode.AUTO
            tx.apply("load/slow", classic(), Override("bench", "x", mode))

    with Panel(f"sqlite:///{server.root}/.switchgear/state.db", keep_events=200_000) as panel:
        for thousands in range(1, 61):
            panel.store.inner.transact("bench", many)
            time.sleep(0.5)
            if dropped():
                slow.close()
                return f"a client that does not read: dropped after {thousands},000 events"
    raise AssertionError("60,000 events wait for a client that does not read")


def page(circuits: int, events: int) -> None:
    from playwright.sync_api import sync_playwright  # noqa: PLC0415

    sys.path[:0] = [str(Path(__file__).parents[1] / "tests")]
    from e2e.console.installation import chromium  # noqa: PLC0415

    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        (root / ".git").mkdir()
        url = f"sqlite:///{root}/.switchgear/state.db"
        with Panel(url, keep_events=events + 1000) as panel:
            store, policy = panel.store.inner, classic()
            for number in range(circuits):
                ok = number % 7 != 0
                store.apply(
                    f"provider/p{number}",
                    policy,
                    Record(Signal(ok=ok, error=None if ok else "boom", count=3)),
                    store.now_s(),
                )

            def many(tx: Any) -> None:
                for number in range(1000):
                    mode = Mode.SHADOW if number % 2 else Mode.AUTO
                    tx.apply(f"provider/p{number % circuits}", policy, Override("bench", "x", mode))

            for _ in range(events // 1000):
                store.transact("bench", many)
            server = Server(root)
            with sync_playwright() as made:
                browser = made.chromium.launch(executable_path=chromium(), args=["--no-sandbox"])
                firsts, updates = [], []
                for view, ready in (("/", "#attention"), ("/circuits", "tbody tr")):
                    for _ in range(3):
                        tab = browser.new_page()
                        began = time.perf_counter()
                        tab.goto(
                            f"http://127.0.0.1:{server.port}{view}#token={server.token('operator')}"
                        )
                        tab.wait_for_selector(ready, timeout=60_000)
                        firsts.append(time.perf_counter() - began)
                        tab.close()
                tab = browser.new_page()
                tab.goto(f"http://127.0.0.1:{server.port}/#token={server.token('operator')}")
                tab.wait_for_selector(".lamp.on", state="attached", timeout=60_000)
                time.sleep(2)
                for number in range(30):
                    name = f"tool/update-{number}"
                    failure = Record(Signal(ok=False, error="boom", count=5))
                    began = time.perf_counter()
                    store.apply(name, policy, failure, store.now_s())
                    tab.wait_for_selector(f"li.item a:text-is('{name}')", timeout=60_000)
                    updates.append(time.perf_counter() - began)
                    time.sleep(0.2)
                browser.close()
            server.stop()
        updates.sort()
        print(
            f"{circuits:,} circuits, {events:,} events: first view {max(firsts):.2f} s at most, {statistics.median(firsts):.2f} s median"
        )
        print(
            f"update: p50 {updates[len(updates) // 2] * 1e3:.0f} ms, p95 {updates[int(len(updates) * 0.95)] * 1e3:.0f} ms"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["load", "page"])
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--clients", type=int, default=200)
    parser.add_argument("--rate", type=float, default=500.0)
    given = parser.parse_args()
    if given.what == "load":
        asyncio.run(load(given.seconds, given.clients, given.rate))
    else:
        page(2_000, 100_000)


if __name__ == "__main__":
    main()
