"""The queue of concurrent writers of one circuit: every message is applied, and only once."""

import pytest

from contract.words import Broken
from servers.faulty_proxy import FaultyProxy
from servers.server import Server
from stress.crew import together
from switchgear._core.evidence import CROWD, fold
from switchgear._core.policy import Policy
from switchgear._core.types import (
    Acquire,
    Circuit,
    DatedRecord,
    Mode,
    Override,
    Phase,
    Record,
    ReportSource,
    Signal,
)
from switchgear._detectors import ConsecutiveFailures
from switchgear._stores.base import StoredCircuit, was_committed
from switchgear._stores.redis import RedisStore
from switchgear._stores.redis.envelope import Mail, seal_mail
from switchgear._stores.redis.script import BATCH, Script
from timeouts import LIMIT_S

POLICY = Policy([ConsecutiveFailures(3)])
FAILED = Record(Signal(ok=False, error="529"))
SUCCEEDED = Record(Signal(ok=True))
INBOX = "{switchgear}:inbox:api"


class Private(ConsecutiveFailures):
    """A detector whose class exists only in one process."""

    __slots__ = ()
    kind = "private_to_the_owner"


TOUCHY = Policy([Broken(3)])


def tell(store: RedisStore, message: Record | Acquire | Override = SUCCEEDED) -> Circuit:
    return store.apply("api", POLICY, message, store.now_s()).circuit


def left_behind(server: Server, *messages: Record, policy: Policy = POLICY) -> None:
    """Messages of a process that was killed while it waited in the queue."""
    text = RedisStore(server.url)._protocol.texts.text(policy)
    for number, message in enumerate(messages):
        entry = seal_mail(Mail(f"dead-{number}", message, 1.0, text))
        server.say("RPUSH", INBOX, entry.decode())


def test_messages_of_a_process_that_died_in_the_queue_are_applied_before_the_next(
    server: Server, store: RedisStore
) -> None:
    tell(store)
    left_behind(server, FAILED, FAILED, FAILED)
    done = store.apply("api", POLICY, Acquire(), store.now_s())
    # An ask that changes nothing reads what is committed: the dead one's word is not, yet.
    assert done.verdict.admitted
    told = tell(store)
    assert told.totals == told.totals._replace(succeeded=2, failed=3)
    assert told.phase is Phase.OPEN
    assert server.say("LLEN", INBOX).startswith(":0")
    assert not store.apply("api", POLICY, Acquire(), store.now_s()).verdict.admitted


def test_a_process_that_waits_receives_a_summary_of_what_many_have_reported(
    server: Server, store: RedisStore
) -> None:
    tell(store)
    now_s = store.now_s()
    circuit = POLICY.start("api", now_s)
    for number in range(4 * CROWD):
        record = Record(Signal(ok=True), None, ReportSource(f"process{number}", now_s))
        circuit = fold(POLICY, circuit, record, now_s).circuit
    store.put(StoredCircuit(circuit, POLICY))
    left_behind(server, FAILED, FAILED)
    told = tell(store)
    assert told.totals.failed == 2
    assert server.say("GET", "{switchgear}:c:api").count("process") == 4 * CROWD
    assert server.say("LINDEX", "{switchgear}:answer:dead-0", "0").count("process") == CROWD
    other = RedisStore(server.url)
    shown = other.apply("api", POLICY, SUCCEEDED, other.now_s()).circuit
    assert shown.totals.succeeded == told.totals.succeeded + 1
    other.close()


def test_an_unreadable_message_does_not_block_the_queue(server: Server, store: RedisStore) -> None:
    tell(store)
    server.say("RPUSH", INBOX, "dead-1\nrubbish", "dead-2\n[[],1,{}]", "no newline at all")
    left_behind(server, FAILED)
    assert tell(store).totals.failed == 1
    assert server.say("LLEN", INBOX).startswith(":0")


def test_a_message_for_an_unknown_detector_is_applied_by_the_known_ones(
    server: Server, store: RedisStore
) -> None:
    tell(store)
    left_behind(server, FAILED, policy=Policy([Private(3)]))
    assert tell(store).totals.failed == 1


def test_a_detector_that_raises_on_the_message_of_a_dead_process_does_not_block_the_queue(
    server: Server, store: RedisStore
) -> None:
    store.apply("api", TOUCHY, SUCCEEDED, store.now_s())
    left_behind(server, Record(Signal(ok=False, error="boom")), FAILED, policy=TOUCHY)
    done = store.apply("api", TOUCHY, SUCCEEDED, store.now_s())
    assert done.circuit.totals.failed == 1, "only the message that can be folded"
    assert done.circuit.totals.succeeded == 2


def test_a_detector_that_raises_in_the_queue_raises_for_its_owner_only(server: Server) -> None:
    raised = []

    def touch(store: RedisStore) -> None:
        for number in range(40):
            error = "boom" if number % 4 == 0 else "529"
            try:
                store.apply("api", TOUCHY, Record(Signal(ok=False, error=error)), store.now_s())
            except ZeroDivisionError:
                raised.append(error)

    stores = [RedisStore(server.url, timeout_s=LIMIT_S) for _ in range(6)]
    together(*(lambda store=store: touch(store) for store in stores))
    assert raised == ["boom"] * 60
    found = stores[0].get("api")
    assert found is not None
    assert found.circuit.totals.failed == 180
    assert server.say("LLEN", INBOX).startswith(":0")
    for store in stores:
        store.close()


def test_processes_with_different_policies_share_a_queue(server: Server) -> None:
    policies = [Policy([ConsecutiveFailures(limit)]) for limit in (50, 60, 70)]
    stores = [RedisStore(server.url, timeout_s=LIMIT_S) for _ in range(6)]

    def work(index: int) -> None:
        store, policy = stores[index], policies[index % 3]
        for _ in range(50):
            done = store.apply("api", policy, SUCCEEDED, store.now_s())
            assert len(done.circuit.memories) == 1

    together(*(lambda index=index: work(index) for index in range(6)))
    found = stores[0].get("api")
    assert found is not None
    assert found.circuit.totals.succeeded == 300
    assert found.policy in policies
    for store in stores:
        store.close()


def test_a_long_queue_is_applied_in_bounded_parts_and_the_next_process_is_woken(
    server: Server, store: RedisStore
) -> None:
    tell(store)
    left_behind(server, *[FAILED] * (BATCH + 10))
    assert tell(store).totals.failed == BATCH + 10
    woken = server.say("LRANGE", f"{{switchgear}}:answer:dead-{BATCH}", "0", "0")
    assert woken.endswith("lead\r\n")
    assert server.say("PTTL", f"{{switchgear}}:answer:dead-{BATCH}") > ":0", "and it fades"


def test_a_commit_that_is_sent_twice_is_applied_once(server: Server, store: RedisStore) -> None:
    tell(store)
    work = store._protocol.apply("api", POLICY, FAILED, store.now_s(), "one", again=False)
    call = work.send(None)
    assert isinstance(call, Script)
    client = store._clients.blocking()
    replies = [client.eval(call.text, *call.arguments()) for _ in range(2)]
    assert [reply[0] for reply in replies] == [1, 3], "the second finds the receipt of the first"
    found = store.get("api")
    assert found is not None
    assert found.circuit.totals.failed == 1


def test_a_message_that_is_queued_twice_waits_once(server: Server, store: RedisStore) -> None:
    tell(store)
    store._protocol.known.set_hot("api", hot=True)
    call = store._protocol.apply("api", POLICY, FAILED, store.now_s(), "one", again=False).send(
        None
    )
    assert isinstance(call, Script)
    client = store._clients.blocking()
    for _ in range(2):
        client.eval(call.text, *call.arguments())
    assert server.say("LLEN", INBOX).startswith(":1")


def test_a_process_that_joins_the_queue_does_not_read_earlier_messages(
    server: Server, store: RedisStore
) -> None:
    """Otherwise 200 processes that fail at once read the queue 200 times."""
    tell(store)
    left_behind(server, FAILED, FAILED)
    store._protocol.known.set_hot("api", hot=True)
    work = store._protocol.apply("api", POLICY, FAILED, store.now_s(), "one+1", again=False)
    call = work.send(None)
    assert isinstance(call, Script)
    server.say("CONFIG", "RESETSTAT")
    reply = store._clients.blocking().eval(call.text, *call.arguments())
    assert reply[3] == 2, "two wait before it"
    assert "cmdstat_lrange" not in server.say("INFO", "commandstats")


def test_a_report_and_a_failure_take_one_round_trip_on_a_crowded_circuit(
    server: Server, store: RedisStore
) -> None:
    tell(store)
    left_behind(server, FAILED)
    store._protocol.known.set_hot("api", hot=True)
    now_s = store.now_s()
    before = DatedRecord(now_s, Record(Signal(ok=True, count=3), None, ReportSource("a", now_s)))
    done = store.apply("api", POLICY, FAILED, now_s, before=before)
    assert (done.circuit.totals.succeeded, done.circuit.totals.failed) == (1 + 3, 2)
    assert server.say("LLEN", INBOX).startswith(":0")
    tell(store)  # which confirms both
    assert server.say("KEYS", "*receipt*").count("receipt") == 1
    assert "answer" not in server.say("KEYS", "*answer*").replace("answer:dead-0", "")


def test_a_report_and_a_failure_take_one_round_trip_without_competition(
    server: Server, store: RedisStore
) -> None:
    now_s = store.now_s()
    before = DatedRecord(now_s, Record(Signal(ok=True, count=3), None, ReportSource("a", now_s)))
    done = store.apply("api", POLICY, FAILED, now_s, before=before)
    assert (done.circuit.totals.succeeded, done.circuit.totals.failed) == (3, 1)
    tell(store)
    assert server.say("KEYS", "*receipt*").count("receipt") == 1


def test_a_report_and_a_failure_queue_again_after_a_lost_reply(server: Server) -> None:
    """Withdrawing the report makes the failure the first in the queue, so it is withdrawn, too."""
    with FaultyProxy(server.port) as proxy:
        store = RedisStore(f"redis://127.0.0.1:{proxy.port}")
        tell(store)
        store._protocol.known.set_hot("api", hot=True)
        now_s = store.now_s()
        report = Record(Signal(ok=True, count=3), None, ReportSource("a", now_s))
        proxy.next_fault = ["cut"]
        done = store.apply("api", POLICY, FAILED, now_s, before=DatedRecord(now_s, report))
        assert (done.circuit.totals.succeeded, done.circuit.totals.failed) == (1 + 3, 1)
        store.close()


def test_a_detector_that_raises_on_the_report_raises_at_once(
    server: Server, store: RedisStore
) -> None:
    store.apply("api", TOUCHY, SUCCEEDED, store.now_s())
    store._protocol.known.set_hot("api", hot=True)
    now_s = store.now_s()
    report = Record(Signal(ok=False, error="boom"), None, ReportSource("a", now_s))
    with pytest.raises(ZeroDivisionError):
        store.apply("api", TOUCHY, FAILED, now_s, before=DatedRecord(now_s, report))
    assert server.say("LLEN", INBOX).startswith(":0")
    assert not was_committed(report), "the caller still has it"


def test_a_detector_that_raises_on_the_failure_leaves_the_report_to_the_caller(
    server: Server, store: RedisStore
) -> None:
    store.apply("api", TOUCHY, SUCCEEDED, store.now_s())
    store._protocol.known.set_hot("api", hot=True)
    now_s = store.now_s()
    report = Record(Signal(ok=True, count=3), None, ReportSource("a", now_s))
    failed = Record(Signal(ok=False, error="boom"))
    with pytest.raises(ZeroDivisionError):
        store.apply("api", TOUCHY, failed, now_s, before=DatedRecord(now_s, report))
    assert not was_committed(report)
    done = store.apply("api", TOUCHY, FAILED, now_s, before=DatedRecord(now_s, report))
    assert (done.circuit.totals.succeeded, done.circuit.totals.failed) == (1 + 3, 1)


@pytest.mark.parametrize("hot", [False, True])
@pytest.mark.parametrize("message", [SUCCEEDED, Override("ops", "test", Mode.HELD_CLOSED)])
def test_the_caller_receives_the_trip_that_a_report_sent_along_causes(
    server: Server, store: RedisStore, message: Record | Override, hot: bool
) -> None:
    """The failures of another process wait for the report of this one."""
    other, name = RedisStore(server.url), store.process()
    tell(store)
    now_s = store.now_s()
    report = Record(SUCCEEDED.signal, None, ReportSource(name, now_s))
    store.apply("api", POLICY, report, now_s)
    source = ReportSource("other", now_s + 0.01)
    failures = Record(FAILED.signal._replace(count=3), None, source)
    other.apply("api", POLICY, failures, now_s + 0.01)
    store.apply("api", POLICY, Record(Signal(count=0)), now_s + 0.01)
    store._protocol.known.set_hot("api", hot=hot)
    report = report._replace(source=ReportSource(name, now_s + 0.02, ((now_s, 1),)))
    before = DatedRecord(now_s + 0.02, report)
    done = store.apply("api", POLICY, message, now_s + 0.03, before=before)
    assert done.events[0].after is Phase.OPEN
    assert done.events == tuple(entry.event for entry in store.events())
    other.close()
