"""Circuits in a Redis or Valkey server, shared by processes on many machines."""

import os
import sys
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from time import monotonic, sleep
from typing import Any, TypeVar, cast

from switchgear._core import values
from switchgear._core.errors import StoreError, StoreTooNew, StoreUnavailable
from switchgear._core.policy import Policy
from switchgear._core.types import Circuit, DatedRecord, Event, Message, Record, Step
from switchgear._stores.base import (
    IDLE_S,
    KEEP_EVENTS,
    NOTE_S,
    Entry,
    StoredCircuit,
    Transaction,
    Vacuumed,
    is_abandoned,
    last_commit,
)
from switchgear._stores.redis import clients, reader, script
from switchgear._stores.redis.cache import Push
from switchgear._stores.redis.clients import Clients, ServerClock, facts, is_known, store_error
from switchgear._stores.redis.ledger import RedisLedger
from switchgear._stores.redis.protocol import Cut, Protocol, repeatable
from switchgear._stores.redis.reader import VerifiedReader
from switchgear._stores.redis.script import Call, Names, Script, Wait
from switchgear._system.clock import Clock
from switchgear._system.threads import run_in_thread
from switchgear._text.glob import literal

TURN_MS = 5000
"""Maximum time in milliseconds that the lock of a note is held."""
POLL_LOCK_S = 0.002
"""Seconds between two attempts to acquire the lock."""
EVENTS_PER_CALL = 1000
"""Number of events that one call removes: a script may pass on at most about 8,000 arguments."""

Ask = Callable[..., Any]
"""Sends a script with its keys and arguments, until its own reply arrives."""
Apply = Callable[[str, Policy, Message, float], Step]


class RedisTransaction:
    """A transaction while the lock of its note is held. Used by one thread."""

    __slots__ = ("_apply", "keep_s", "note", "now_s")

    def __init__(self, apply: Apply, now_s: float, note: str | None) -> None:
        self._apply = apply
        self.now_s = now_s
        self.note = note
        self.keep_s = NOTE_S

    def apply(self, key: str, policy: Policy, message: Message) -> Step:
        return self._apply(key, policy, message, self.now_s)


@contextmanager
def locked_note(
    ask: Ask, names: Names, name: str, apply: Apply, *, now_s: Callable[[], float], label: str
) -> Iterator[RedisTransaction]:
    """Hold the lock of a note. Raises `StoreUnavailable` if it is not acquired in time."""
    lock, note, token = names.turn(name), names.note(name), os.urandom(8).hex()
    until_s = monotonic() + 2 * TURN_MS / 1000
    while True:
        is_acquired, stored, _ = ask(script.TAKE, (lock, note), token, TURN_MS)
        if is_acquired:
            break
        if monotonic() >= until_s:
            why = f"lock on note {name!r} not acquired within {2 * TURN_MS / 1000:g} s"
            raise StoreUnavailable(label, why, "try again, or look for a stopped process")
        sleep(POLL_LOCK_S)
    done = False
    try:
        before = None if stored is None else bytes(stored).decode(errors="replace")
        transaction = RedisTransaction(apply, now_s(), before)
        yield transaction
        if transaction.note == before:
            return
        text = transaction.note or ""
        ttl_ms = "" if transaction.note is None else max(1, int(transaction.keep_s * 1000))
        keys = (lock, note, names.receipts + token)
        done = bool(ask(script.NOTE, keys, token, text, ttl_ms)[0])
        if not done:
            why = f"the update of note {name!r} took longer than {TURN_MS / 1000:g} s"
            raise StoreUnavailable(label, why, "try again")
    finally:
        if not done:
            ask(script.FORGET, (lock,), token)


T = TypeVar("T")

_WRONG_REPLY = "the reply to another call arrived; the connection was closed"
POLL_S = 0.1
"""Maximum age of a snapshot in seconds if this process does not listen to pushes."""
POLL_WITHOUT_PUSHES_S = 1.0
"""Maximum age of a snapshot in seconds while the connection for pushes is down."""


class RedisStore:
    """Keeps circuits in a Redis or Valkey server (6.0 or later), a single server or a Cluster.

    - `url`: `redis://`, `rediss://` (TLS), `unix://`, `valkey://`, `valkeys://`, or
      `redis+cluster://` and `rediss+cluster://`, with user, password and the options of the redis
      package: `rediss://:secret@host:6380/0?ssl_ca_certs=ca.pem`. The password is never shown.
    - `namespace`: the prefix of all keys; installations with different namespaces are separate.
      Default: `?namespace=NAME` of the URL, else `switchgear`.
    - `clock`: returns seconds since the epoch, for tests; default: the server's clock.
    - `timeout_s` (1.0): maximum seconds for one reply of the server.
    - `keep_events` (10,000): approximate number of events that are kept.
    - `idle_s` (30 days): seconds without a change after which a closed circuit expires.

    Connects on first use. Thread-safe, task-safe and fork-safe. Raises ValueError for arguments out of
    range, and `StoreUnavailable` if the redis package is not installed.
    """

    pushes = True

    def __init__(
        self,
        url: str,
        *,
        namespace: str | None = None,
        clock: Clock | None = None,
        timeout_s: float = 1.0,
        keep_events: int = KEEP_EVENTS,
        idle_s: float = IDLE_S,
    ) -> None:
        self._address = clients.parsed(url)
        self.label: str = self._address.label
        self._timeout_s = values.check_seconds("RedisStore.timeout_s", timeout_s)
        self._server_clock = ServerClock()
        self._protocol = Protocol(
            self.label,
            reader.checked_namespace(self._address.namespace if namespace is None else namespace),
            self._server_clock,
            keep=values.check_int("RedisStore.keep_events", keep_events),
            idle_s=values.check_seconds("RedisStore.idle_s", idle_s),
            timeout_s=self._timeout_s,
        )
        self._names = self._protocol.names
        self._clients = Clients(self._address, self._timeout_s, self._names.root)
        self._clock = clock
        self._read = VerifiedReader(self._run, self._protocol)
        self._loaded: set[str] = set()
        """The scripts that the server knows, so that only their hash is sent."""
        self._push = Push(
            self._clients.create_client, self._names, self._protocol.known, self._timeout_s
        )

    # Messages

    def apply(
        self,
        key: str,
        policy: Policy,
        message: Message,
        now_s: float,
        *,
        identity: str | None = None,
        before: DatedRecord | None = None,
    ) -> Step:
        """Apply a message by compare-and-set, or through the queue of competing writers.

        `before`: a report of this process to apply first, in the same round trip if they queue.

        After a `StoreError` with `in_doubt`, it is unknown whether the message was applied. Sent again
        with that text as `identity`, it is applied at most once. If the thread is interrupted here, the
        message is sent again in the same way before the interrupt continues, so the caller must not
        repeat it.
        """
        again, name = identity is not None, identity or self._protocol.known.identity(message)
        first = None if before is None else self._protocol.mail_of_report(before, policy)
        send = partial(self._protocol.apply, key, policy, message, now_s, name, first=first)
        try:
            return self._run(send(again=again))
        except Exception:
            raise
        except BaseException:
            if last_commit.message is not message:
                last_commit.message = message
                with suppress(StoreError):
                    self._run(send(again=True))
            raise

    async def aapply(
        self,
        key: str,
        policy: Policy,
        message: Message,
        now_s: float,
        *,
        identity: str | None = None,
    ) -> Step:
        """`apply` with the asyncio client. The result is also reported if the task is cancelled.

        If that fails, the error is the cause of the `CancelledError`.
        """
        again, name = identity is not None, identity or self._protocol.known.identity(message)
        try:
            return await self._arun(
                self._protocol.apply(key, policy, message, now_s, name, again=again)
            )
        except (Exception, GeneratorExit):  # a coroutine that is being closed cannot await
            raise
        except BaseException as cancelled:  # repeated in a thread, because the loop may be ending
            if isinstance(message, Record):
                send = partial(self.apply, key, policy, message, now_s, identity=name)
                try:
                    await run_in_thread(send)
                except Exception as error:
                    if isinstance(error, StoreError):
                        error.in_doubt = name  # even if it could not be sent a second time
                    raise cancelled from error
            raise

    def put(self, found: StoredCircuit, events: Sequence[Event] = ()) -> bool:
        """Save a circuit of another store; false: this store has the same or a newer version."""
        return self._run(self._protocol.put(found, events))

    def transact(self, name: str, work: Callable[[Transaction], T]) -> T:
        """As in `Store.transact`: one caller at a time, each message saved by itself."""
        transaction_context = locked_note(
            self._run_repeatable, self._names, name, self.apply, now_s=self.now_s, label=self.label
        )
        with transaction_context as transaction:
            return work(transaction)

    # Time and pushes

    def now_s(self) -> float:
        """The server's time, or this machine's until the server has answered once. No I/O."""
        return self._server_clock() if self._clock is None else self._clock()

    @property
    def refresh_s(self) -> float | None:
        """`None` while pushes arrive; else the polling interval in seconds."""
        if self._push.is_healthy:
            return None
        return POLL_WITHOUT_PUSHES_S if self._push.has_listeners else POLL_S

    def on_change(self, listener: Callable[[Circuit], object]) -> None:
        """Call the listener, in a background thread, with circuits that other processes changed."""
        self._push.add(listener)

    def on_warm(self, listener: Callable[[str], object]) -> None:
        """Call the listener, in a background thread, with names of circuits that fail in other processes."""
        self._push.add_warm(listener)

    def process(self) -> str:
        """The name under which this process reports to shared circuits."""
        return self._protocol.known.process()

    # Reading

    def get(self, key: str) -> StoredCircuit | None:
        """One circuit as stored. Raises `StoreCorrupt` if it cannot be read."""
        with self._translate_errors():
            raw = self._reader().get(self._names.circuit(key))
        if raw is None:
            return None
        try:
            sealed = reader.circuit(self.label, key, raw)
        except reader.UnreadableState as error:
            raise reader.corrupt(self.label, f"circuit {key!r}: {error}") from error
        return StoredCircuit(sealed.circuit, sealed.policy)

    def find(self, glob: str = "*") -> Iterator[StoredCircuit]:
        """The circuits whose names match a glob, sorted by name.

        If some circuits cannot be read, the others are returned first, and then `StoreCorrupt` is raised.
        """
        unreadable: list[str] = []
        for key, raw in self._values(glob):
            try:
                sealed = reader.circuit(self.label, key, raw)
            except reader.UnreadableState as error:
                unreadable.append(f"{key!r}: {error}")
            else:
                yield StoredCircuit(sealed.circuit, sealed.policy)
        if unreadable:
            number = "1 circuit" if len(unreadable) == 1 else f"{len(unreadable)} circuits"
            why = f"{number} cannot be read; the first is {unreadable[0]}"
            raise reader.corrupt(self.label, why)

    def events(
        self, *, after: str | None = None, glob: str = "*", limit: int = 1000
    ) -> list[Entry]:
        """The events after a cursor, or the newest events; oldest first."""
        with self._translate_errors():
            client = self._reader()
            if after is None:
                return reader.newest_events(client, self._names.log, glob, limit)
            return reader.events_after(client, self._names.log, after, glob, limit)

    def retain(self, *, keep_events: int, idle_s: float) -> None:
        """Keep about `keep_events` events, and idle circuits for `idle_s` seconds, from now on."""
        self._protocol.retain(keep_events, idle_s)

    def vacuum(self, *, keep_events: int, idle_s: float, now_s: float) -> Vacuumed:
        """Remove the oldest events and abandoned circuits."""
        gone, guess = 0, self._server_clock.is_guess(now_s)
        for key, raw in self._values("*"):
            if guess:
                now_s, guess = self._server_clock.corrected(now_s), False
            try:
                sealed = reader.circuit(self.label, key, raw)
            except (reader.UnreadableState, StoreTooNew):
                continue  # never removes what it cannot read
            if is_abandoned(sealed.circuit, idle_s, now_s):
                gone += self._run(self._protocol.forget(sealed.begins, key))
        trim = self._protocol.on_key("XTRIM", self._names.log, "MAXLEN", keep_events)
        trimmed = self._run(trim)
        return Vacuumed(gone, int(trimmed))

    def forget(self, key: str) -> bool:
        """Remove one circuit and its events, whatever its state; false: it did not exist."""
        with self._translate_errors():
            raw = self._reader().get(self._names.circuit(key))
        cursors = [found.cursor for found in self.events(glob=literal(key), limit=sys.maxsize)]
        for first in range(0, len(cursors), EVENTS_PER_CALL):
            page = cursors[first : first + EVENTS_PER_CALL]
            self._run(self._protocol.on_key("XDEL", self._names.log, *page))
        return raw is not None and self._run(self._protocol.forget(raw, key))

    def operator_digest(self) -> str | None:
        """The SHA-256 of the token that overrides need; `None`: they need none."""
        with self._translate_errors():
            kept = self._reader().get(self._names.operator)
        return None if kept is None else bytes(kept).decode(errors="replace")

    def set_operator_digest(self, digest: str | None, *, instead_of: str | None) -> bool:
        """Replace the digest `instead_of`, or remove it; false: the stored digest is another one."""
        reply = self._run_repeatable(
            script.REPLACE, (self._names.operator,), instead_of or "", digest or ""
        )
        return bool(reply[0])

    def ledger(self) -> RedisLedger:
        """The ledger for budgets and locks."""
        return RedisLedger(
            self.label,
            self._names,
            self.now_s,
            reader=self._reader,
            client=self._clients.blocking,
            translated=self._translate_errors,
            clients=self._clients,
            until_s=self._until_s,
        )

    def _until_s(self) -> float | None:
        return self._server_clock() + self._timeout_s if self._server_clock.is_set else None

    def facts(self) -> dict[str, str]:
        """Versions, sizes and settings, with a warning where a setting endangers circuits."""
        with self._translate_errors():
            self._reader()
            shown = facts(self._clients.blocking(), self._names, cluster=self._address.cluster)
        shown["pushes"] = "arrive" if self._push.is_healthy else "no listener in this process"
        if self._push.has_listeners and not self._push.is_healthy:
            shown["pushes"] = f"do not arrive; polling every {POLL_WITHOUT_PUSHES_S:g} s"
        return shown

    # Lifecycle

    def close(self) -> None:
        """Close the connections. Idempotent; the next use opens new ones."""
        self._push.stop()
        self._remove_receipts()
        self._clients.close()

    async def aclose(self) -> None:
        """`close`, and wait until the connections of the running event loop are closed."""
        await self._clients.aclose()
        self.close()

    def _remove_receipts(self) -> None:
        """Remove the receipts of the last messages, which no later call removes. If that fails, they expire."""
        confirmed = self._protocol.known.confirmed(1024)
        if confirmed and self._clients.is_connected:
            names = [self._names.receipts + identity for identity in confirmed]
            with suppress(*self._clients.errors):
                self._clients.blocking().delete(*names)

    def __repr__(self) -> str:
        return f"<RedisStore {self.label}>"

    # Communication with the server

    def _run(self, work: Generator[Call, Any, T]) -> T:
        """Run a generator of requests to its end with the client for threads; return its result."""
        with self._translate_errors():
            client = self._clients.blocking()
            reply: Any = None
            cut: Cut | None = None
            while True:
                try:
                    call = work.send(reply) if cut is None else work.throw(cut)
                except StopIteration as done:
                    return cast("T", done.value)
                cut, asked_s = None, monotonic()
                try:
                    if isinstance(call, Wait):
                        reply = self._clients.ask("BLPOP", *call.answers, call.wait_s)
                    elif call.text in self._loaded:
                        name = script.SHAS[call.text]
                        reply = self._clients.ask("EVALSHA", name, *call.arguments())
                    else:
                        reply = self._clients.ask("EVAL", call.text, *call.arguments())
                except self._clients.errors as error:
                    cut = self._cut_from_error(error)
                except BaseException:
                    self._clients.disconnect_idle(client)  # the reply may still arrive
                    raise
                else:
                    if not call.is_answered_by(reply):
                        cut = Cut(_WRONG_REPLY)
                if cut is None:
                    self._learn(call, reply, asked_s)
                else:
                    self._clients.disconnect_idle(client)

    async def _arun(self, work: Generator[Call, Any, T]) -> T:
        with self._translate_errors():
            client = await self._clients.for_running_loop()
            reply: Any = None
            cut: Cut | None = None
            while True:
                try:
                    call = work.send(reply) if cut is None else work.throw(cut)
                except StopIteration as done:
                    return cast("T", done.value)
                cut, asked_s = None, monotonic()
                try:
                    if isinstance(call, Wait):
                        reply = await client.blpop(list(call.answers), call.wait_s)
                    elif call.text in self._loaded:
                        reply = await client.evalsha(script.SHAS[call.text], *call.arguments())
                    else:
                        reply = await client.eval(call.text, *call.arguments())
                except self._clients.errors as error:
                    cut = self._cut_from_error(error)
                else:
                    if not call.is_answered_by(reply):
                        cut = Cut(_WRONG_REPLY)
                if cut is None:
                    self._learn(call, reply, asked_s)
                else:
                    await self._clients.adisconnect_idle(client)

    def _cut_from_error(self, error: BaseException) -> Cut:
        """The `Cut` for an error: it is unknown what the server has done. Permanent errors are not retried."""
        known = isinstance(error, self._clients.refusals) and is_known(error)
        known = known and not isinstance(error, self._clients.moves)
        cut = Cut(error, final=known or isinstance(error, self._clients.timeouts))
        cut.__cause__ = error
        if isinstance(error, self._clients.no_script):
            self._loaded.clear()  # the server has restarted and knows no scripts
        return cut

    def _learn(self, call: Call, reply: Any, asked_s: float) -> None:
        """Note the server's time, and that it knows the script."""
        if not isinstance(call, Script):
            return
        self._loaded.add(call.text)
        if call.text is script.EXCHANGE:
            server_s = int(reply[1]) + int(reply[2]) / 1e6
            self._server_clock.learn(server_s, asked_s, monotonic())

    def _reader(self) -> VerifiedReader:
        """The reader, after the server's time is known."""
        if not self._server_clock.is_set:
            self._run(self._protocol.request_time())
        return self._read

    def _run_repeatable(self, text: str, keys: tuple[str, ...], *args: Any) -> Any:
        """The reply to a script that has the same effect if it is sent twice."""
        self._reader()  # ensures that the server's time is known
        return self._run(repeatable(self._protocol.script(text, keys, *args)))

    def _values(self, glob: str) -> Iterator[tuple[str, bytes]]:
        with self._translate_errors():
            client = self._reader()
            yield from reader.values(client, self._names, glob)

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        """Convert errors of the client and the server to `StoreError`."""
        secret = self._address.secret
        try:
            yield
        except Cut as cut:
            cause = cut.__cause__ or ConnectionError(str(cut))
            trouble = store_error(self.label, cause, self._timeout_s, secret)
            trouble.in_doubt, trouble.before_in_doubt = cut.identity, cut.before
            raise trouble from cause
        except self._clients.errors as error:
            raise store_error(self.label, error, self._timeout_s, secret) from error
