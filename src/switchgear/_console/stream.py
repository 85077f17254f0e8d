"""The event stream: every event of the store once, in order, to every client; resumable by cursor.

One task follows the store and encodes each event once. A client first gets the events that it has
missed from the store, then the events in its queue. A client that is so slow that its queue is full is
dropped; it can resume after the last event that it received.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import suppress
from typing import Any, NamedTuple

from switchgear._console.sources import Sources
from switchgear._console.values import finite, of_entry
from switchgear._core.errors import StoreError
from switchgear._stores.base import Entry
from switchgear._text.glob import matcher

POLL_S = 0.05
"""Seconds between two reads of the event stream."""
SCAN_S = 2.0
"""Minimum seconds between two reads of all circuits while clients are connected."""
SCAN_SHARE = 8.0
"""Minimum pause after a read of all circuits, as a multiple of its duration."""
IDLE_S = 10.0
"""Seconds without a client after which circuits are no longer read."""
HEARTBEAT_S = 15.0
PAGE = 500
"""Maximum number of events per read."""
MOST_QUEUED = 4_000
"""Maximum number of queued messages per client; a client with more is dropped."""
MOST_CLIENTS = 1_000


class Message(NamedTuple):
    cursor: str | None
    """The cursor of the event; `None`: the message is no event."""
    circuit: str
    data: bytes


def encoded(kind: str, value: Any, cursor: str | None = None) -> bytes:
    """A message in the format of the stream; JSON in ASCII has no line breaks."""
    identity = "" if cursor is None else f"id: {cursor}\n"
    text = json.dumps(finite(value), separators=(",", ":"), allow_nan=False)
    return f"{identity}event: {kind}\ndata: {text}\n\n".encode("ascii", "replace")


def cursor_key(cursor: str) -> tuple[int, ...]:
    """The sort key of a cursor. Raises ValueError for an invalid cursor."""
    parts = cursor.split("-")
    if len(parts) > 2 or not all(part.isascii() and part.isdigit() for part in parts):
        raise ValueError(f"{cursor!r} is not a cursor of this stream")
    if any(len(part) > 19 for part in parts):
        raise ValueError(f"{cursor[:40]!r} is not a cursor of this stream")
    return tuple(map(int, parts))


class Client:
    """One connection to the stream. Used by the event loop's thread."""

    def __init__(self, glob: str, *, views: bool, drop: Callable[[], object]) -> None:
        self._matches = matcher(glob)
        self._queue: asyncio.Queue[Message | None] = asyncio.Queue(MOST_QUEUED)
        self._drop = drop
        self.views = views
        """Whether the client also receives the state of circuits."""
        self.is_dropped = False

    def wants(self, circuit: str) -> bool:
        return not circuit or self._matches(circuit)

    def put(self, message: Message) -> bool:
        """Add a message; False if the client was dropped because it is too slow."""
        try:
            self._queue.put_nowait(message)
        except asyncio.QueueFull:
            self.close()
            return False
        return True

    def close(self) -> None:
        """End the connection."""
        if not self.is_dropped:
            self.is_dropped = True
            self._drop()

    async def get(self) -> Message | None:
        """The next message; `None` if there was none for `HEARTBEAT_S` seconds."""
        with suppress(TimeoutError):
            return await asyncio.wait_for(self._queue.get(), HEARTBEAT_S)
        return None


class EventHub:
    """Follows the store, remembers the state of all circuits, serves the clients of the stream."""

    def __init__(self, sources: Sources) -> None:
        self._sources = sources
        self._clients: set[Client] = set()
        self._cursor: str | None = None
        self._task: asyncio.Task[None] | None = None
        self._requested_s = float("-inf")
        self._scanned_s = float("-inf")
        self._scan_took_s = 0.0
        self._scan_lock = asyncio.Lock()
        self._scanning: asyncio.Task[None] | None = None
        self.circuits: dict[str, dict[str, Any]] = {}
        """The rows of all circuits by name, as last read."""
        self.dropped = 0
        self.problem = ""
        """Why the store cannot be read now; empty if it can."""
        self.listeners: list[Callable[[Entry], object]] = []

    @property
    def clients(self) -> int:
        return len(self._clients)

    async def start(self) -> None:
        """Follow the store from its newest event on, until `stop`. Idempotent."""
        if self._task is None:
            self._cursor = await asyncio.to_thread(self._newest)
            self._task = asyncio.create_task(self._follow())

    async def stop(self) -> None:
        tasks, self._task, self._scanning = (self._task, self._scanning), None, None
        for task in filter(None, tasks):
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
        self.end_clients()

    def end_clients(self) -> None:
        for client in tuple(self._clients):
            client.close()

    def _newest(self) -> str | None:
        try:
            newest = self._sources.panel.events(limit=1)
        except StoreError:
            return None
        return newest[-1].cursor if newest else "0"

    # Following the store

    async def _follow(self) -> None:
        while True:
            try:
                await self._poll()
                self.problem = ""
            except StoreError as error:
                self.problem = str(error)
            except Exception as error:  # noqa: BLE001  one failed read must not end the stream
                self.problem = f"{type(error).__name__}: {error}"
            await asyncio.sleep(POLL_S)

    async def _poll(self) -> None:
        if self._cursor is None:
            self._cursor = await asyncio.to_thread(self._newest)
            if self._cursor is None:
                return
        entries = await asyncio.to_thread(self._events_after, self._cursor)
        if entries:
            names = {entry.event.circuit for entry in entries}
            rows = await asyncio.to_thread(self._rows, names) if self._needs_circuits() else {}
            self._cursor = entries[-1].cursor
            for entry in entries:
                for listener in self.listeners:
                    listener(entry)
            self._send([_message(entry) for entry in entries])
            self._update(rows)
        now_s = asyncio.get_running_loop().time()
        pause_s = max(SCAN_S, SCAN_SHARE * self._scan_took_s)
        is_due = self._needs_circuits() and now_s - self._scanned_s >= pause_s
        if is_due and (self._scanning is None or self._scanning.done()):
            # In a task, because events must not wait for thousands of circuits.
            self._scanning = asyncio.create_task(self._scan_quietly())

    async def _scan_quietly(self) -> None:
        try:
            await self.scan()
        except StoreError as error:
            self.problem = str(error)

    def _needs_circuits(self) -> bool:
        now_s = asyncio.get_running_loop().time()
        return bool(self._clients) or now_s - self._requested_s < IDLE_S

    def _events_after(self, cursor: str) -> list[Entry]:
        return self._sources.panel.events(after=cursor, limit=PAGE)

    def _rows(self, names: Iterable[str]) -> dict[str, dict[str, Any] | None]:
        views = {name: self._sources.panel.view(name) for name in names}
        return {name: view and self._sources.circuit_row(view) for name, view in views.items()}

    async def known(self) -> dict[str, dict[str, Any]]:
        """The rows of all circuits; read again unless the last read was recent for its duration."""
        now_s = self._requested_s = asyncio.get_running_loop().time()
        if now_s - self._scanned_s > SCAN_SHARE * self._scan_took_s:
            await self.scan()
        return self.circuits

    async def refresh(self, name: str) -> None:
        self._update(await asyncio.to_thread(self._rows, [name]))

    async def scan(self) -> None:
        """Read all circuits, and send those that have changed to the clients."""
        loop = asyncio.get_running_loop()
        requested_s = loop.time()
        async with self._scan_lock:
            if self._scanned_s >= requested_s:
                return  # another request has just read them
            began_s, is_first = loop.time(), not self.circuits
            before = dict(self.circuits)
            rows = {row["name"]: row for row in await asyncio.to_thread(self._sources.circuits)}
            self._scanned_s = loop.time()
            self._scan_took_s = self._scanned_s - began_s
            changed: dict[str, dict[str, Any] | None] = {
                name: row for name, row in rows.items() if _differs(self.circuits.get(name), row)
            }
            # Rows that an event has updated in the meantime are newer than those just read.
            not_updated = [name for name, row in before.items() if self.circuits.get(name) is row]
            changed |= {name: None for name in not_updated if name not in rows}
            if is_first:
                self.circuits = rows | self.circuits  # clients have just requested all rows
            else:
                self._update(changed)

    def _update(self, rows: dict[str, dict[str, Any] | None]) -> None:
        messages = []
        for name, row in rows.items():
            known = self.circuits.get(name)
            if row is None:
                self.circuits.pop(name, None)
                messages.append(Message(None, name, encoded("removed", {"name": name})))
            elif known is None or known["version"] <= row["version"]:
                self.circuits[name] = row
                messages.append(Message(None, name, encoded("circuit", row)))
        self._send(messages)

    def _send(self, messages: list[Message]) -> None:
        for client in tuple(self._clients):
            for message in messages:
                if message.cursor is None and not client.views:
                    continue
                if client.wants(message.circuit) and not client.put(message):
                    self.dropped += 1
                    self._clients.discard(client)
                    break

    # Serving clients

    async def serve(self, client: Client, after: str | None) -> AsyncIterator[bytes]:
        """The messages for a client, after the cursor `after`, or from now on without a cursor."""
        if len(self._clients) >= MOST_CLIENTS:
            yield encoded("refused", {"error": f"{MOST_CLIENTS} clients are connected"})
            return
        self._clients.add(client)
        try:
            live_from = self._cursor or "0"
            if after is not None and cursor_key(after) > cursor_key(live_from):
                newest = await asyncio.to_thread(self._newest) or "0"
                if cursor_key(after) > cursor_key(newest):
                    yield encoded("reset", {"error": f"{after} is newer than the store"})
                    after = None
            if after is None:
                after = live_from
            yield b"retry: 1000\n" + encoded("hello", {"cursor": after}, after)
            last = cursor_key(after)
            async for entry in self._missed_events(after, live_from):
                number = cursor_key(entry.cursor)
                if len(number) == 1 and number[0] > last[0] + 1:
                    lost = {"after": last[0], "next": number[0]}
                    yield encoded(
                        "gap", {**lost, "error": "the events in between are no longer kept"}
                    )
                last = number
                if client.wants(entry.event.circuit):
                    yield _message(entry).data
            while not client.is_dropped:
                message = await client.get()
                if message is None:
                    yield b": heartbeat\n\n"
                elif message.cursor is None or cursor_key(message.cursor) > last:
                    yield message.data
        finally:
            self._clients.discard(client)

    async def _missed_events(self, after: str, until: str) -> AsyncIterator[Entry]:
        """The stored events after a cursor, up to the cursor from which the queue has them."""
        while cursor_key(after) < cursor_key(until):
            page = await asyncio.to_thread(self._events_after, after)
            for entry in page:
                if cursor_key(entry.cursor) > cursor_key(until):
                    return
                yield entry
            if not page:
                return
            after = page[-1].cursor


def _message(entry: Entry) -> Message:
    value = of_entry(entry)
    return Message(entry.cursor, entry.event.circuit, encoded("event", value, entry.cursor))


_CLOCKS = frozenset({"attention", "hold_left_s", "retry_after_s"})
"""Fields that change with time alone; clients count them down themselves."""


def _differs(known: dict[str, Any] | None, row: dict[str, Any]) -> bool:
    if known is None:
        return True
    if known["version"] != row["version"] or known["phase"] != row["phase"]:
        return True
    return any(known[key] != value for key, value in row.items() if key not in _CLOCKS)
