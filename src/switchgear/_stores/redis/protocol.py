"""How a message is applied to a circuit that other processes change, too. No I/O: generators of calls.

A generator yields requests to the server and receives the replies, so that the same code serves the
blocking and the asyncio client. It tries twice by compare-and-set; then the message queues in the
inbox, where the first process in the queue applies all messages in one commit and answers them.
"""

import re
from collections.abc import Container, Generator, Sequence
from itertools import groupby
from time import monotonic
from typing import Any, NamedTuple

from switchgear._core.errors import StoreError, StoreTooNew, StoreUnavailable
from switchgear._core.evidence import FLOWING, fold, fold_records, is_crowded, summary
from switchgear._core.machine import standing, step
from switchgear._core.policy import Policy
from switchgear._core.types import (
    Acquire,
    Circuit,
    DatedRecord,
    Event,
    EventKind,
    Message,
    Override,
    Record,
    ReportSource,
    Signal,
    Step,
)
from switchgear._core.wire import WireError
from switchgear._detectors.policy_wire import OpaqueDetector
from switchgear._stores.base import (
    StoredCircuit,
    is_abandoned,
    is_only_time,
    last_commit,
    start_from_scratch,
)
from switchgear._stores.redis import envelope, script
from switchgear._stores.redis.cache import REPORT, KnownCircuits
from switchgear._stores.redis.clients import ServerClock
from switchgear._stores.redis.envelope import Mail, PolicyTexts, Sealed
from switchgear._stores.redis.script import (
    IDENTITY_MARK,
    NO_ANSWER_MARK,
    AlreadyApplied,
    Call,
    Exchange,
    Names,
    NotCommitted,
    Script,
    Wait,
)


class FoldBase(NamedTuple):
    """The state to which the next message is applied."""

    expected: bytes
    """The value that the server must have for the commit to succeed, in the form of `script.Exchange`."""
    circuit: Circuit | None = None
    broken: str = ""
    """Why the stored state could not be read."""
    version: int = 0
    """The last known version of a state that cannot be read."""
    event_seq: int = 0
    fits: bool = True
    """Whether the stored policy is the current one."""
    restored: str = ""
    """Why the local copy is used instead of the server's state; empty: it is not."""


class FoldStart(NamedTuple):
    """The circuit before the message, and the events of its repair."""

    circuit: Circuit
    events: tuple[Event, ...]


def base_of(sealed: Sealed) -> FoldBase:
    """The base for a stored circuit."""
    return FoldBase(b"=" + sealed.begins, sealed.circuit, fits=sealed.fits)


def replacement_of(policy: Policy, old: Circuit, new: Circuit | None, now_s: float) -> Circuit:
    """The circuit that replaces an abandoned one: its numbers continue, so that it is newer."""
    circuit = policy.start(old.key, now_s) if new is None else new
    return circuit._replace(
        version=old.version,
        event_seq=max(circuit.event_seq, old.event_seq),
        generation=max(circuit.generation, old.generation + 1),
    )


def queue_position(waiting: list[bytes], tokens: Container[bytes]) -> int | None:
    """The position in the queue of the first of these messages, from 0; `None`: none was read."""
    for place, raw in enumerate(waiting):
        if envelope.token_of(raw) in tokens:
            return place
    return None


def last_seq(key: str, entries: Any) -> int:
    """The number of the newest event of a circuit among these entries of the stream."""
    for _, fields in entries:
        try:
            event = envelope.unseal_event(fields[1])
        except WireError:
            continue
        if event.circuit == key:
            return event.seq
    return 0


def salvaged_version(raw: bytes) -> int:
    """The version in the stamp of an unreadable value; 0: unknown."""
    found = re.match(rb'\{"stamp":"(\d{1,15})-', raw)
    return int(found[1]) if found else 0


class Folded:
    """The result of a queue: the circuit, the events, and the result of each message."""

    def __init__(self, circuit: Circuit, policy: Policy) -> None:
        self.circuit = circuit
        self.policy = policy
        self.events: list[Event] = []
        self.steps: dict[bytes, Step | None] = {}
        """The result of each message by token, in order; for an unreadable one, `None` by its whole text."""
        self.raised: Exception | None = None
        """What a detector raised for the message of this process."""
        self.warm = b""
        """The failure to publish, if one of the messages reports a failure."""
        self._undelivered: tuple[Event, ...] = ()
        """Events of a message whose answer is not read; they are delivered with the next message."""

    def fold(self, mail: envelope.Mail, policy: Policy) -> None:
        before = envelope.refitted(self.circuit, self.policy, policy)
        message = _with_source(mail)
        done = fold(policy, before, message, mail.now_s)
        self.warm = self.warm or _warm(self.circuit.key, message)
        self.circuit, self.policy = done.circuit, policy
        self.events += done.events
        self._answer(mail.token.encode(), done)

    def fold_records(self, mails: Sequence[envelope.Mail], policy: Policy, own: bytes) -> None:
        """Fold several records together; the message `own` gets the events, or else the last answered one."""
        before = envelope.refitted(self.circuit, self.policy, policy)
        records = [DatedRecord(mail.now_s, _with_source(mail)) for mail in mails]  # type: ignore[arg-type]
        done = fold_records(policy, before, records)
        for _, record in records:
            self.warm = self.warm or _warm(self.circuit.key, record)
        self.circuit, self.policy = done.circuit, policy
        self.events += done.events
        tokens = [mail.token.encode() for mail in mails]
        self.steps.update(dict.fromkeys(tokens, done._replace(events=())))
        answered = [token for token in tokens if not token.endswith(NO_ANSWER_MARK.encode())]
        self._answer(own if own in tokens else (answered or tokens)[-1], done)

    def _answer(self, token: bytes, done: Step) -> None:
        """Note the result of a message; if its answer is not read, the next message gets its events."""
        events, self._undelivered = self._undelivered + done.events, ()
        if token.endswith(NO_ANSWER_MARK.encode()):
            self._undelivered, events = events, ()
        self.steps[token] = done if events == done.events else done._replace(events=events)

    def answers(self, own: bytes) -> tuple[tuple[bytes, bytes], ...]:
        """The answers to the messages; empty for the message `own` and for unreadable messages."""
        replies: list[tuple[bytes, bytes]] = []
        last, text = None, b""
        for token, done in self.steps.items():
            if done is None or token == own:
                replies.append((token, b""))
                continue
            if done is not last:  # records that were folded together have the same answer
                last, text = done, envelope.seal_answer(*done[1:])
            replies.append((token, text))
        return tuple(replies)


def fold_queue(
    texts: PolicyTexts,
    policy: Policy,
    circuit: Circuit,
    waiting: list[bytes],
    *,
    own: bytes,
    before: bytes = b"",
    patient: bool,
) -> Folded:
    """Fold the messages in order; `own` is the token of this process's message, `before` of the one before it.

    A message that this process cannot fold, because its policy has detectors that are unknown here or
    that raise, is left to its sender, which leads the queue next. If the sender has gone (`patient` is
    false), the message is folded with the policy of this process, or dropped, so that it does not block
    the queue.
    """
    try:
        return _fold_together(texts, policy, circuit, waiting, own)
    except Exception:  # noqa: BLE001  one by one, to find the message that cannot be folded
        ours = tuple(filter(None, (own, before)))
        return _fold_each(texts, policy, circuit, waiting, ours=ours, patient=patient)


def _fold_together(
    texts: PolicyTexts, policy: Policy, circuit: Circuit, waiting: list[bytes], own: bytes
) -> Folded:
    """Fold successive records together, which is much faster than one by one."""
    folded = Folded(circuit, policy)
    own_text = texts.text(policy)
    mails = map(envelope.unseal_mail, waiting)
    for (text, is_record), group in groupby(mails, key=_kind_of_mail):
        judge = policy if text == own_text else _judge(texts, text)
        if judge is None:
            raise LookupError(text)
        if is_record:
            folded.fold_records([*group], judge, own)
        else:
            for mail in group:
                folded.fold(mail, judge)
    return folded


def _kind_of_mail(mail: envelope.Mail) -> tuple[str, bool]:
    return mail.policy_text, isinstance(mail.message, Record)


def _fold_each(
    texts: PolicyTexts,
    policy: Policy,
    circuit: Circuit,
    waiting: list[bytes],
    *,
    ours: tuple[bytes, ...],
    patient: bool,
) -> Folded:
    folded = Folded(circuit, policy)
    own_text = texts.text(policy)
    for raw in waiting:
        try:
            mail = envelope.unseal_mail(raw)
            judge = policy if mail.policy_text == own_text else _judge(texts, mail.policy_text)
            if judge is None and patient:
                break
            folded.fold(mail, policy if judge is None else judge)
        except Exception as error:  # noqa: BLE001  a custom detector may raise anything
            if envelope.token_of(raw) in ours:
                folded.raised = error
                break
            if patient:
                break
            folded.steps[raw] = None
    return folded


def _judge(texts: PolicyTexts, text: str) -> Policy | None:
    """The policy of this JSON; `None`: this process does not know all of its detectors."""
    try:
        policy = texts.policy(text)
    except (WireError, ValueError):
        return None
    opaque = any(isinstance(detector, OpaqueDetector) for detector in policy.detectors)
    return None if opaque else policy


def _with_source(mail: envelope.Mail) -> Message:
    """The message with its source, which its identity contains if it is a report."""
    process, _, number = mail.token.partition(IDENTITY_MARK)
    _, is_report, dates = number.partition(REPORT)
    if not is_report or not isinstance(mail.message, Record):
        return mail.message
    pairs = [date.partition("*") for date in dates.split("|") if date]
    times = tuple((float(at_s), int(count)) for at_s, _, count in pairs)
    return mail.message._replace(source=ReportSource(process, mail.now_s, times))


ROUNDS = 2
"""Number of commits of the first process in the queue before the next process takes over."""
TRIES = 2
"""Number of failed compare-and-set attempts before a message queues."""
TRIES_IN_TIME = 3
"""Maximum number of attempts for an exchange that the server receives too late because its clock was set."""
TRIES_AFTER_CUT = 3
"""Maximum number of attempts for a message whose connection breaks; after a timeout, there is only one."""
PATIENCE_S = 0.1
"""Seconds that a process in the queue waits for the first process before it takes over."""
STAGGER_S = 0.005
"""Additional seconds for each message before its own, so that not all processes take over at once."""
GRACE_S = 1.0
"""Seconds beyond the idle time that the server keeps a circuit, so that a missing circuit was idle."""
TAIL = 1000
"""Number of events searched for the last number of a circuit whose state is lost."""


class Cut(Exception):
    """It is unknown whether the server executed a call; the argument explains why.

    The connection broke before the reply, or the reply belongs to another call, or it is an error, which
    does not contain the nonce of its call.
    """

    identity: str | None = None
    """The message whose outcome is unknown."""
    before: str | None = None
    """The message that was sent before, if its outcome is unknown; "": it was applied."""

    def __init__(self, why: object, *, final: bool = False) -> None:
        super().__init__(why)
        self.final = final
        """Whether an immediate retry is useless."""


class Protocol:
    """The exchanges of one store, as generators of calls. Any thread may run any of them."""

    def __init__(
        self,
        label: str,
        namespace: str,
        clock: ServerClock,
        *,
        keep: int,
        idle_s: float,
        timeout_s: float,
    ) -> None:
        self.label = label
        self.names = Names(namespace)
        self.known = KnownCircuits()
        self.texts = envelope.PolicyTexts()
        self._clock = clock
        self._keep = keep
        self._idle_s = idle_s
        self._timeout_s = timeout_s

    def retain(self, keep: int, idle_s: float) -> None:
        """Set the retention from the next exchange on."""
        self._keep, self._idle_s = keep, idle_s

    # The operations that change what is stored

    def apply(
        self,
        key: str,
        policy: Policy,
        message: Message,
        now_s: float,
        identity: str,
        *,
        again: bool,
        first: Mail | None = None,
    ) -> Generator[Call, Any, Step]:
        """Apply a message once, by compare-and-set or through the queue, after the message `first`.

        `again`: the outcome of an earlier attempt is unknown, because its reply was lost or the thread
        was interrupted. Raises `Cut` with the identity if the outcome is unknown again.
        """
        if self._clock.is_guess(now_s):
            yield from self.request_time()
            now_s = self._clock.corrected(now_s)
            first = first and first._replace(now_s=self._clock.corrected(first.now_s))
        missing = first
        events: tuple[Event, ...] = ()
        mail = Mail(identity, message, now_s, self.texts.text(policy))
        tries = TRIES_AFTER_CUT
        while True:
            try:
                if again and missing is not None:
                    found = yield from self._recall(key, policy, missing)
                    if found is not None:
                        events, last_commit.message, missing = found.events, missing.message, None
                done = (yield from self._recall(key, policy, mail)) if again else None
                if done is None:
                    done = yield from self._apply(key, policy, mail, missing)
            except Cut as cut:
                again, tries = True, tries - 1
                if cut.final or not tries:
                    cut.identity, cut.before = identity, missing.token if missing else ""
                    raise
                continue
            except StoreError as error:
                # The messages may wait in the queue, and another process may apply them.
                error.in_doubt, error.before_in_doubt = identity, missing.token if missing else ""
                raise
            last_commit.message = message  # before its receipt can be removed
            if not again:
                # A message that was sent twice keeps its receipt: the first may still arrive.
                self.known.confirm(identity)
                if first is not None:
                    self.known.confirm(first.token)
            return _with_events(events, done)

    def _recall(self, key: str, policy: Policy, mail: Mail) -> Generator[Call, Any, Step | None]:
        """The result of a message whose reply was lost; `None`: it was not applied, and no longer queues."""
        names, token = self.names, mail.token
        keys = (
            names.inbox(key),
            names.receipts + token,
            names.circuit(key),
            names.answers + token,
        )
        nonce = self.known.token()
        call = Script(script.RECALL, keys, (token, nonce, names.answers), nonce)
        receipt, have, answers, _ = yield call
        if receipt is None:
            # A process of an older version that leads the queue leaves an answer and no receipt.
            found = [answer for answer in answers if answer != script.LEAD]
            return self._step_from_answer(key, policy, found[0]) if found else None
        return self._step_from_receipt(key, policy, mail, AlreadyApplied(have, receipt))

    def _step_from_receipt(
        self, key: str, policy: Policy, mail: Mail, received: AlreadyApplied
    ) -> Step:
        """The step of a message that was applied before."""
        sealed = None if received.have is None else self._read(key, policy, received.have)
        if isinstance(sealed, Sealed):
            self.known.keep(sealed)
            circuit = sealed.circuit
        else:
            copy = self.known.get(key, policy)
            circuit = policy.start(key, mail.now_s) if copy is None else copy.circuit
        if received.receipt == script.APPLIED:
            now_s = max(mail.now_s, circuit.seen_s)
            return Step(circuit, standing(policy, circuit, now_s), ())
        verdict, events, _ = envelope.unseal_answer(received.receipt)
        return Step(circuit, verdict, events)

    def mail_of_report(self, report: DatedRecord, policy: Policy) -> Mail:
        """A report that is sent together with the message after it."""
        identity = self.known.identity(report.record) + script.NO_ANSWER_MARK
        return Mail(identity, report.record, report.at_s, self.texts.text(policy))

    def _apply(
        self, key: str, policy: Policy, mail: Mail, first: Mail | None = None
    ) -> Generator[Call, Any, Step]:
        message, now_s = mail.message, mail.now_s
        copy = self.known.get(key, policy)
        is_hot = self.known.is_hot(key) or (copy is not None and is_crowded(copy.circuit))
        if is_hot and not is_only_time(message):
            current = yield from self._exchange(key, self._join(mail, Exchange(b"?"), first))
            if first is not None:
                last_commit.message = first.message  # it is in the queue, before `message`
            if isinstance(current, AlreadyApplied):
                return self._step_from_receipt(key, policy, mail, current)
            if current is None:
                raise StoreUnavailable(
                    self.label,
                    "the replies of the server do not match the requests",
                    "check the proxy",
                )
            return (yield from self._queue(key, policy, mail, current, first))
        events: tuple[Event, ...] = ()
        if first is not None:
            events = (yield from self._apply(key, policy, first)).events
            last_commit.message = first.message
            copy = self.known.get(key, policy)
        base = FoldBase(b"-") if copy is None else base_of(copy)
        tries = TRIES + (copy is None)
        while True:
            tries -= 1
            done = yield from self._fold(key, policy, base, message, now_s)
            exchange = self._commit(policy, base, done.circuit, done.events)
            exchange = exchange._replace(
                identity=mail.token,
                outcome=_outcome(message, done),
                warm=_only_if_flowing(_warm(key, message), done.circuit),
            )
            current = yield from self._exchange(
                key, exchange if tries else self._join(mail, exchange)
            )
            if current is None:
                if exchange.new:
                    self.known.keep(Sealed(exchange.mine, done.circuit, policy))
                return _with_events(events, done)
            if isinstance(current, AlreadyApplied):
                return _with_events(events, self._step_from_receipt(key, policy, mail, current))
            if not tries:
                return _with_events(events, (yield from self._queue(key, policy, mail, current)))
            base = self._base(key, policy, current.have, now_s)

    def put(self, found: StoredCircuit, events: Sequence[Event]) -> Generator[Call, Any, bool]:
        """Save a circuit of another store; false: this store has the same or a newer version."""
        key, version = found.circuit.key, found.circuit.version
        current = yield from self._exchange(key, Exchange(b"?"))
        while isinstance(current, NotCommitted):
            base = self._base(key, found.policy, current.have, found.circuit.seen_s, use_copy=False)
            if base.circuit is not None and base.circuit.version >= version:
                return False
            here = 0 if base.circuit is None else base.circuit.event_seq
            new = tuple(event for event in events if event.seq > here)
            exchange = self._commit(found.policy, base, found.circuit, new)
            exchange = exchange._replace(alone=False, publish=True)
            current = yield from self._exchange(key, exchange)
        self.known.keep(Sealed(exchange.mine, found.circuit, found.policy))
        return True

    def forget(self, begins: bytes, key: str) -> Generator[Call, Any, bool]:
        """Remove a circuit if its value still begins like this; false: it does not."""
        removed, _ = yield self.script(script.FORGET, (self.names.circuit(key),), begins)
        if removed:
            self.known.forget(key)
        return bool(removed)

    def request_time(self) -> Generator[Call, Any, None]:
        """Request the server's time, from the node with the keys of Switchgear."""
        nonce = self.known.token()
        yield from repeatable(Exchange(b"?").call(self.names, "", keep=1, idle_ms=1, nonce=nonce))

    def script(self, text: str, keys: tuple[str, ...], *args: Any) -> Script:
        """A call of a script whose last argument is the nonce."""
        nonce = self.known.token()
        return Script(text, keys, (*args, nonce), nonce)

    def on_keys(self, command: str, *keys: str) -> Generator[Call, Any, Any]:
        """The reply to a command whose arguments are keys."""
        nonce = self.known.token()
        reply = yield from repeatable(Script(script.ON_KEYS, keys, (nonce, command), nonce))
        return reply[0]

    def on_key(self, command: str, key: str, *args: Any) -> Generator[Call, Any, Any]:
        """The reply to a command on one key that has the same effect if it is sent twice."""
        nonce = self.known.token()
        call = Script(script.ON_KEY, (key,), (nonce, command, *args), nonce)
        reply = yield from repeatable(call)
        return reply[0]

    def scan(self, cursor: bytes, pattern: str, count: int) -> Generator[Call, Any, Any]:
        """The next cursor, and the names after this cursor that match."""
        nonce = self.known.token()
        # The key only selects the node of a Cluster: all keys are on one.
        call = Script(script.SCAN, (self.names.root,), (nonce, cursor, pattern, count), nonce)
        reply = yield from repeatable(call)
        return reply[0]

    # The queue

    def _queue(
        self, key: str, policy: Policy, mail: Mail, current: NotCommitted, first: Mail | None = None
    ) -> Generator[Call, Any, Step]:
        """Wait in the inbox for an answer.

        Leads the queue if this message or `first` is the first in it, or if no other process does.
        """
        tokens = [mail.token] if first is None else [mail.token, first.token]
        self.known.set_hot(key, hot=current.place > 0 or len(current.waiting) > len(tokens))
        deadline_s = monotonic() + self._timeout_s
        patient = True
        while True:
            if current.mail not in (None, script.LEAD):
                return self._step_from_answer(key, policy, current.mail or b"")
            left_s = deadline_s - monotonic()
            if left_s <= 0:
                return (yield from self._withdraw(key, policy, mail))
            place = current.place or queue_position(
                current.waiting, [each.encode() for each in tokens]
            )
            # A message that is not in the list was answered, or is beyond the first `BATCH` messages.
            waits = place is not None or len(current.waiting) >= script.BATCH
            if place == 0 or (waits and not patient):
                done, current = yield from self._lead(
                    key, policy, mail, current, first, patient=patient
                )
                if done is not None:
                    return done
                continue
            answers = tuple(self.names.answers + each for each in tokens)
            wait_s = PATIENCE_S + STAGGER_S * (place or 0)
            wait_s = min(wait_s, self._timeout_s / 2)  # below the timeout of the socket
            popped = yield Wait(answers, min(wait_s, max(left_s, 0.01)))
            if popped and popped[1] != script.LEAD and popped[0] == answers[0].encode():
                return self._step_from_answer(key, policy, popped[1])
            patient = popped is not None
            look = Exchange(b"?", token=mail.token, identity=mail.token)
            seen = yield from self._exchange(key, look)
            if isinstance(seen, AlreadyApplied):
                return self._step_from_receipt(key, policy, mail, seen)
            current = seen or current

    def _lead(
        self,
        key: str,
        policy: Policy,
        mail: Mail,
        current: NotCommitted,
        first: Mail | None = None,
        *,
        patient: bool,
    ) -> Generator[Call, Any, tuple[Step | None, NotCommitted]]:
        """Apply the waiting messages in one commit.

        Returns the step of this process's message if it was applied, otherwise `None`, and what to
        continue waiting with.
        """
        base = self._base(key, policy, current.have, mail.now_s)
        start = yield from self._start(key, policy, base, mail.now_s)
        folded = fold_queue(
            self.texts,
            policy,
            start.circuit,
            current.waiting,
            own=mail.token.encode(),
            before=b"" if first is None else first.token.encode(),
            patient=patient,
        )
        if folded.raised is not None:
            yield self._withdrawal(key, mail)
            if first is not None and (yield self._withdrawal(key, first))[0]:
                last_commit.message = None  # so that the caller reports it again
            raise folded.raised
        folded.events[:0] = start.events
        exchange = self._commit(
            folded.policy, base, folded.circuit, tuple(folded.events), always=True
        )
        own = folded.steps.get(mail.token.encode())
        exchange = exchange._replace(
            answers=folded.answers(mail.token.encode()),
            warm=_only_if_flowing(folded.warm, folded.circuit),
            token=mail.token,
            identity=mail.token,
            outcome=script.APPLIED if own is None else _outcome(mail.message, own),
        )
        reply = yield from self._reply(key, exchange._replace(stays=own is not None))
        outcome = script.outcome(reply)
        if isinstance(outcome, AlreadyApplied):
            return self._step_from_receipt(key, policy, mail, outcome), current
        if outcome is not None:
            return None, outcome
        sealed = _sealed(exchange, folded)
        self.known.keep(sealed)
        if own is not None:
            sealed = yield from self._drain(key, policy, sealed, script.queued(reply), folded.warm)
            circuit = envelope.refitted(sealed.circuit, sealed.policy, policy)
            return own._replace(circuit=circuit), current
        look = Exchange(b"?", token=mail.token, identity=mail.token)
        after = yield from self._exchange(key, look)
        if isinstance(after, AlreadyApplied):
            return self._step_from_receipt(key, policy, mail, after), current
        return None, after or current

    def _drain(
        self, key: str, policy: Policy, sealed: Sealed, waiting: list[bytes], warm: bytes
    ) -> Generator[Call, Any, Sealed]:
        """Also apply what queued during the commit, because waking another process would take longer.

        The message of this process is already applied. If this fails, other processes take over after
        `PATIENCE_S`. `warm`: a failure that was not published yet.
        """
        for left in reversed(range(ROUNDS - 1)):
            if not waiting:
                break
            circuit = envelope.refitted(sealed.circuit, sealed.policy, policy)
            folded = fold_queue(self.texts, policy, circuit, waiting, own=b"", patient=True)
            try:
                if not folded.steps:
                    names = self.names
                    yield self.script(script.WAKE, (names.inbox(key),), names.answers)
                    return sealed
                base = base_of(sealed)
                events = tuple(folded.events)
                exchange = self._commit(folded.policy, base, folded.circuit, events, always=True)
                warm = _only_if_flowing(folded.warm or warm, folded.circuit)
                exchange = exchange._replace(answers=folded.answers(b""), warm=warm)
                reply = yield from self._reply(key, exchange._replace(stays=left > 0))
            except (Cut, StoreError):
                return sealed
            if script.outcome(reply) is not None:
                return sealed
            sealed, waiting = _sealed(exchange, folded), script.queued(reply)
            self.known.keep(sealed)
        return sealed

    def _step_from_answer(self, key: str, policy: Policy, raw: bytes) -> Step:
        verdict, events, value = envelope.unseal_answer(raw)
        copy = self.known.get(key, policy)
        if copy is not None and value.startswith(copy.begins):  # it was pushed already
            return Step(copy.circuit, verdict, events)
        sealed = envelope.unseal_for(value, policy, self.texts)
        self.known.keep(sealed)
        return Step(sealed.circuit, verdict, events)

    def _withdraw(self, key: str, policy: Policy, mail: Mail) -> Generator[Call, Any, Step]:
        """Leave the queue and raise `StoreUnavailable`, unless the message was applied in the meantime."""
        removed, answer, receipt, have, _ = yield self._withdrawal(key, mail)
        if not removed and receipt is not None:
            return self._step_from_receipt(key, policy, mail, AlreadyApplied(have, receipt))
        if not removed and answer not in (None, script.LEAD):
            return self._step_from_answer(key, policy, answer)
        raise StoreUnavailable(
            self.label,
            f"circuit {key!r} has too many concurrent writers: no commit within {self._timeout_s:g} s",
            "try again, or raise the timeout",
        )

    def _withdrawal(self, key: str, mail: Mail) -> Script:
        names = self.names
        keys = (names.inbox(key), names.answers + mail.token, names.circuit(key))
        receipt = names.receipts + mail.token
        return self.script(script.WITHDRAW, keys, envelope.seal_mail(mail), names.answers, receipt)

    # One exchange

    def _exchange(
        self, key: str, exchange: Exchange
    ) -> Generator[Call, Any, NotCommitted | AlreadyApplied | None]:
        return script.outcome((yield from self._reply(key, exchange)))

    def _reply(self, key: str, exchange: Exchange) -> Generator[Call, Any, Any]:
        idle_ms = max(1, int(self._idle_s * 1000))
        for _ in range(TRIES_IN_TIME):
            # A server that was frozen must not apply a request that its client has given up and repeats.
            until_s = self._clock() + self._timeout_s if self._clock.is_set else None
            confirmed = self.known.confirmed()
            call = exchange.call(
                self.names,
                key,
                keep=self._keep,
                idle_ms=idle_ms,
                until_s=until_s,
                nonce=self.known.token(),
                confirmed=confirmed,
            )
            try:
                reply = yield call
            except Cut:
                self.known.confirm(*confirmed)  # again: removing a receipt twice does no harm
                raise
            if not script.removes_receipts(reply):
                self.known.confirm(*confirmed)
            if not script.is_late(reply):
                return reply
        why = "its clock jumps, or its answers take longer than the timeout"
        raise StoreUnavailable(self.label, why, "check the server's clock and load")

    def _join(self, mail: Mail, exchange: Exchange, first: Mail | None = None) -> Exchange:
        entry, before = (
            envelope.seal_mail(mail),
            b"" if first is None else envelope.seal_mail(first),
        )
        return exchange._replace(entry=entry, before=before, token=mail.token, identity=mail.token)

    def _commit(
        self,
        policy: Policy,
        base: FoldBase,
        circuit: Circuit,
        events: tuple[Event, ...],
        *,
        always: bool = False,
    ) -> Exchange:
        """The exchange that stores this circuit, or that only reads if nothing has changed."""
        unchanged = circuit is base.circuit or (base.circuit is None and not circuit.version)
        if unchanged and base.fits and not always:
            return Exchange(base.expected)
        stamp = self.known.stamp(circuit.version)
        begins, value = envelope.seal(stamp, circuit, policy, self.texts)
        short, brief = summary(circuit), b""
        if short is not circuit and (events or always):
            # No stored value has this stamp, so no commit can be based on the summary.
            _, brief = envelope.seal(stamp + script.SUMMARY, short, policy, self.texts)
        # Held and open circuits are kept: they do not expire.
        expires = is_abandoned(circuit, 0.0, circuit.seen_s)
        return Exchange(
            base.expected,
            value,
            begins,
            ttl_ms=int((self._idle_s + GRACE_S) * 1000) if expires else None,
            aside=self.names.unreadable(circuit.key, circuit.seen_s) if base.broken else "",
            publish=bool(events),
            summary=brief,
            events=tuple(map(envelope.seal_event, events)),
        )

    def _fold(
        self, key: str, policy: Policy, base: FoldBase, message: Message, now_s: float
    ) -> Generator[Call, Any, Step]:
        start = yield from self._start(key, policy, base, now_s)
        done = fold(policy, start.circuit, message, now_s)
        return done._replace(events=start.events + done.events) if start.events else done

    def _start(
        self, key: str, policy: Policy, base: FoldBase, now_s: float
    ) -> Generator[Call, Any, FoldStart]:
        """The circuit to which the message is applied, with the events of its repair, if any."""
        if base.broken:
            log = self.names.log
            newest = yield from self.on_key("XREVRANGE", log, "+", "-", "COUNT", TAIL)
            seq = max(last_seq(key, newest), base.event_seq)
            only_time = Record(Signal(count=0))
            done = start_from_scratch(policy, key, only_time, now_s, why=base.broken, event_seq=seq)
            version = max(base.version + 1, done.circuit.version)
            return FoldStart(done.circuit._replace(version=version), done.events)
        if base.circuit is None:
            return FoldStart(policy.start(key, now_s), ())
        if base.restored:
            remark = Override("switchgear", base.restored, kind=EventKind.STORE_BACK)
            done = step(policy, base.circuit, remark, now_s)
            return FoldStart(done.circuit, done.events)
        return FoldStart(base.circuit, ())

    def _base(
        self, key: str, policy: Policy, raw: bytes | None, now_s: float, *, use_copy: bool = True
    ) -> FoldBase:
        """The base for the value on the server, or the local copy if the server has lost a newer state."""
        copy = self.known.get(key, policy) if use_copy else None
        stored = None if raw is None else self._read(key, policy, raw)
        if isinstance(stored, str):
            last = Circuit(key, ()) if copy is None else copy.circuit
            version = max(salvaged_version(raw or b""), last.version)
            return FoldBase(b"#" + (raw or b""), None, stored, version, last.event_seq)
        if stored is not None:
            self.known.keep(stored)
        base = FoldBase(b"-") if stored is None else base_of(stored)
        version = -1 if base.circuit is None else base.circuit.version
        if copy is None or copy.circuit.version <= version:
            return base
        if is_abandoned(copy.circuit, self._idle_s, now_s):
            return base._replace(circuit=replacement_of(policy, copy.circuit, base.circuit, now_s))
        there = "nothing" if stored is None else f"version {version}"
        why = f"the store had lost its state ({there} there, version {copy.circuit.version} here)"
        return base._replace(circuit=copy.circuit, restored=f"{why}; restored")

    def _read(self, key: str, policy: Policy, raw: bytes) -> Sealed | str:
        """The stored circuit, or why it cannot be read."""
        try:
            return envelope.unseal_for(raw, policy, self.texts)
        except envelope.TooNewError as error:
            what_to_do = "upgrade switchgear here"
            raise StoreTooNew(self.label, f"circuit {key!r}: {error}", what_to_do) from error
        except WireError as error:
            return str(error)


def repeatable(call: Script) -> Generator[Call, Any, Any]:
    """The reply to a call that has the same effect if it is sent twice: it is repeated after a lost reply."""
    left = TRIES_AFTER_CUT
    while True:
        left -= 1
        try:
            return (yield call)
        except Cut as cut:
            if cut.final or left <= 0:
                raise


def _sealed(exchange: Exchange, folded: Folded) -> Sealed:
    """The circuit that an exchange has stored."""
    return Sealed(exchange.mine, folded.circuit, folded.policy)


def _with_events(events: tuple[Event, ...], done: Step) -> Step:
    """The step of a message, with the events of the message before it."""
    return done._replace(events=events + done.events) if events else done


def _outcome(message: Message, done: Step) -> bytes:
    """The content of a message's receipt: only what is not in the circuit itself."""
    if done.events or isinstance(message, Acquire):
        return envelope.seal_answer(done.verdict, done.events)
    return script.APPLIED


def _warm(key: str, message: Message) -> bytes:
    """The failure to publish for this message: the process and the circuit; empty: it reports none."""
    if isinstance(message, Record) and message.signal.ok is False and message.signal.count:
        process = "" if message.source is None else message.source.process
        return f"{process}\n{key}".encode()
    return b""


def _only_if_flowing(warm: bytes, circuit: Circuit) -> bytes:
    """The failure to publish, if reports of other processes can still matter: publishing wakes all of them."""
    return warm if circuit.phase in FLOWING else b""
