"""The exchanges with a server, played by hand: no server, no client, no waiting."""

from collections.abc import Generator
from contextlib import suppress
from typing import Any

import pytest

from switchgear._core.errors import StoreUnavailable
from switchgear._core.evidence import CROWD, fold
from switchgear._core.policy import Policy
from switchgear._core.types import (
    Acquire,
    Circuit,
    DatedRecord,
    Permit,
    Phase,
    Record,
    ReportSource,
    Signal,
    Verdict,
)
from switchgear._detectors import ConsecutiveFailures
from switchgear._stores.base import last_commit, was_committed
from switchgear._stores.redis import envelope, script
from switchgear._stores.redis.clients import ServerClock
from switchgear._stores.redis.protocol import ROUNDS, Cut, Protocol
from switchgear._stores.redis.script import LEAD, NO_ANSWER_MARK, Script, Wait
from switchgear.testing import FakeClock

POLICY = Policy([ConsecutiveFailures(3)])
SUCCEEDED = Record(Signal(ok=True))
DONE = [1, b"100", b"0"]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> FakeClock:
    clock = FakeClock()
    monkeypatch.setattr("switchgear._stores.redis.protocol.monotonic", clock)
    return clock


@pytest.fixture
def rules(clock: FakeClock) -> Protocol:
    return Protocol("redis://h", "ns", ServerClock(clock), keep=100, idle_s=60.0, timeout_s=1.0)


def lost(have: bytes | None, *waiting: bytes, mail: bytes | None = None) -> list[Any]:
    return [0, b"100", b"0", have, list(waiting), mail, 0]


def value(rules: Protocol, stamp: str, succeeded: int) -> bytes:
    circuit = POLICY.start("api", 1.0)
    circuit = circuit._replace(
        version=succeeded, totals=circuit.totals._replace(succeeded=succeeded)
    )
    return envelope.seal(stamp, circuit, POLICY, rules.texts)[1]


def begun(rules: Protocol, message: Record | Acquire = SUCCEEDED) -> Generator[Any, Any, Any]:
    return rules.apply("api", POLICY, message, 2.0, rules.known.identity(message), again=False)


def entry_of(call: Any) -> bytes:
    assert isinstance(call, Script)
    entry = call.args[7]
    assert isinstance(entry, bytes)
    return entry


def queued(rules: Protocol) -> tuple[Generator[Any, Any, Any], bytes]:
    """An exchange that lost its races and has just queued its message."""
    work = begun(rules)
    work.send(None)
    work.send(lost(value(rules, "4-x-1", 4)))
    call = work.send(lost(value(rules, "5-x-2", 5)))
    return work, entry_of(call)


def test_without_a_copy_the_first_attempt_expects_no_value(rules: Protocol) -> None:
    work = begun(rules)
    call = work.send(None)
    assert call.keys == ("{ns}:c:api", "{ns}:events", "{ns}:inbox:api", "{ns}:failing:api")
    assert call.args[0] == b"-"
    with pytest.raises(StopIteration) as done:
        work.send(DONE)
    assert done.value.value.circuit.totals.succeeded == 1


def test_a_lost_race_continues_from_the_state_and_stamp_of_the_winner(rules: Protocol) -> None:
    work = begun(rules)
    work.send(None)
    call = work.send(lost(value(rules, "7-x-1", 7)))
    assert call.args[0] == b'={"stamp":"7-x-1",'
    assert entry_of(call) == b"", "not yet in the queue"
    with pytest.raises(StopIteration) as done:
        work.send(DONE)
    assert done.value.value.circuit.totals.succeeded == 8
    again = begun(rules).send(None)
    assert again.args[0].startswith(b'={"stamp":"8-'), "what we wrote needs no reading"


def test_after_two_lost_races_the_message_queues_in_the_same_call(rules: Protocol) -> None:
    _, entry = queued(rules)
    mail = envelope.unseal_mail(entry)
    assert mail.message == SUCCEEDED
    assert mail.now_s == 2.0


def test_the_first_in_the_queue_applies_all_messages_and_answers_the_others(
    rules: Protocol,
) -> None:
    work, entry = queued(rules)
    text = rules.texts.text(POLICY)
    other = envelope.seal_mail(envelope.Mail("b-1", Acquire(), 3.0, text))
    call = work.send(lost(value(rules, "6-x-3", 6), entry, other))
    tokens = call.args[-4::2]
    assert tokens == (envelope.token_of(entry), b"b-1")
    assert call.args[-3] == b"", "we know our own answer"
    verdict, events, _ = envelope.unseal_answer(call.args[-1] + b"\n" + call.args[2])
    assert verdict.permit == Permit(1)
    assert events == ()
    with pytest.raises(StopIteration) as done:
        work.send(DONE)
    assert done.value.value.circuit.totals.succeeded == 7


def test_a_waiter_that_is_not_first_is_answered(rules: Protocol) -> None:
    work, entry = queued(rules)
    call = work.send(lost(value(rules, "6-x-3", 6), b"a-1\n...", entry))
    assert isinstance(call, Wait)
    verdict = Verdict(True, Phase.CLOSED, permit=Permit(1))
    answer = envelope.seal_answer(verdict, ()) + b"\n" + value(rules, "9-x-4", 9)
    with pytest.raises(StopIteration) as done:
        work.send((call.answers[0].encode(), answer))
    assert done.value.value.verdict == verdict
    assert done.value.value.circuit.totals.succeeded == 9


def test_a_waiter_that_must_lead_leads(rules: Protocol) -> None:
    work, entry = queued(rules)
    call = work.send(lost(value(rules, "6-x-3", 6), b"a-1\n...", entry))
    look = work.send((call.answers[0].encode(), LEAD))
    assert look.args[0] == b"?"
    call = work.send(lost(value(rules, "8-x-4", 8), entry))
    assert call.args[0] == b'={"stamp":"8-x-4",'
    with pytest.raises(StopIteration) as done:
        work.send(DONE)
    assert done.value.value.circuit.totals.succeeded == 9


def test_a_waiter_without_a_reply_leads_and_skips_dead_processes(
    rules: Protocol,
) -> None:
    work, entry = queued(rules)
    work.send(lost(value(rules, "6-x-3", 6), b"a-1\nrubbish", entry))
    work.send(None)
    call = work.send(lost(value(rules, "6-x-3", 6), b"a-1\nrubbish", entry))
    assert call.args[-4::2] == (b"a-1\nrubbish", envelope.token_of(entry))
    with pytest.raises(StopIteration):
        work.send(DONE)


@pytest.mark.parametrize("removed", [1, 0])
def test_a_waiter_that_times_out_withdraws_its_message_or_finds_the_reply(
    rules: Protocol, clock: FakeClock, removed: int
) -> None:
    work, entry = queued(rules)
    work.send(lost(value(rules, "6-x-3", 6), b"a-1\n...", entry))
    clock.advance(1.0)
    work.send(None)
    call = work.send(lost(value(rules, "6-x-3", 6), b"a-1\n...", entry))
    assert call.text is script.WITHDRAW
    assert call.args[0] == entry
    if removed:
        with pytest.raises(StoreUnavailable, match="too many concurrent writers"):
            work.send([1, None, None, None, b""])
        return
    answer = envelope.seal_answer(Verdict(True, Phase.CLOSED), ())
    with pytest.raises(StopIteration) as done:
        work.send([0, answer + b"\n" + value(rules, "9-x-4", 9), None, None, b""])
    assert done.value.value.circuit.totals.succeeded == 9


def test_under_contention_the_next_message_queues_at_once(rules: Protocol) -> None:
    work, entry = queued(rules)
    work.send(lost(value(rules, "6-x-3", 6), entry, b"b-1\n..."))
    call = begun(rules).send(None)
    assert call.args[0] == b"?"
    assert entry_of(call)


def test_time_that_passes_never_queues_at_once(rules: Protocol) -> None:
    test_under_contention_the_next_message_queues_at_once(rules)
    call = begun(rules, Record(Signal(count=0))).send(None)
    assert call.args[0].startswith(b"=")
    assert entry_of(call) == b"", "one that competes has moved the circuit, too"


@pytest.mark.parametrize(("place", "wait_s"), [(1, 0.105), (40, 0.3), (100, 0.5)])
def test_later_waiters_wait_longer_before_they_lead(
    rules: Protocol, place: int, wait_s: float
) -> None:
    work, entry = queued(rules)
    reply = lost(value(rules, "6-x-3", 6), b"a-1\n...", entry)
    reply[6] = place
    assert work.send(reply).wait_s == pytest.approx(wait_s)


def test_a_failure_in_the_queue_is_published_by_the_process_that_folds_it(rules: Protocol) -> None:
    work, entry = queued(rules)
    text = rules.texts.text(POLICY)
    failed = envelope.Mail("b+1r2.5*1", Record(Signal(ok=False)), 3.0, text)
    call = work.send(lost(value(rules, "6-x-3", 6), entry, envelope.seal_mail(failed)))
    assert call.args[19] == b"b\napi"


def test_messages_no_longer_queue_at_once_without_contention(rules: Protocol) -> None:
    test_under_contention_the_next_message_queues_at_once(rules)
    work = begun(rules)
    entry = entry_of(work.send(None))
    work.send(lost(value(rules, "6-x-3", 6), entry))
    with pytest.raises(StopIteration):
        work.send(DONE)
    assert begun(rules).send(None).args[0].startswith(b"=")


def test_the_server_receives_the_deadline_of_the_client(rules: Protocol, clock: FakeClock) -> None:
    assert begun(rules).send(None).args[13] == b"", "its clock is not known yet"
    rules._clock.learn(5000.0, 0.0, 0.0)
    work = begun(rules)
    assert work.send(None).args[13] == 5_001_000_000
    late = [2, b"9000", b"0"]
    rules._clock.learn(9000.0, 0.0, 0.0)
    assert work.send(late).args[13] == 9_001_000_000, "its clock was set: once more"
    work.send(late)
    with pytest.raises(StoreUnavailable, match="clock"):
        work.send(late)


def mail_of(rules: Protocol, token: str, message: Record | Acquire = SUCCEEDED) -> bytes:
    return envelope.seal_mail(envelope.Mail(token, message, 3.0, rules.texts.text(POLICY)))


def leading(rules: Protocol) -> Generator[Any, Any, Any]:
    """An exchange that commits the queue, of which its own message is the only one."""
    work, entry = queued(rules)
    call = work.send(lost(value(rules, "6-x-3", 6), entry))
    assert call.args[22] == b"1", "it stays the first"
    return work


def test_the_first_in_the_queue_also_commits_what_queued_in_the_meantime(rules: Protocol) -> None:
    work = leading(rules)
    call = work.send([*DONE, [mail_of(rules, "b+1"), mail_of(rules, "c+1")], b""])
    assert call.args[0].startswith(b'={"stamp":"7-'), "from its own commit, which needs no reading"
    assert call.args[-4::2] == (b"b+1", b"c+1")
    assert b'"admitted"' not in call.args[-1]
    with pytest.raises(StopIteration) as done:
        work.send([*DONE, [], b""])
    assert done.value.value.circuit.totals.succeeded == 9


def test_the_first_in_the_queue_hands_over_after_some_rounds(rules: Protocol) -> None:
    work, stays = leading(rules), []
    for number in range(1, ROUNDS):
        call = work.send([*DONE, [mail_of(rules, f"b+{number}")], b""])
        stays.append(call.args[22])
    assert stays == [b"1"] * (ROUNDS - 2) + [b""], "the last commit wakes the next in the queue"
    with pytest.raises(StopIteration) as done:
        work.send([*DONE, b""])
    assert done.value.value.circuit.totals.succeeded == 6 + ROUNDS


def test_a_queue_that_the_first_process_cannot_apply_is_handed_over(rules: Protocol) -> None:
    call = leading(rules).send([*DONE, [b"b+1\nrubbish"], b""])
    assert call.text is script.WAKE
    assert call.keys == ("{ns}:inbox:api",)


@pytest.mark.parametrize("reply", [Cut("gone"), lost(None)])
def test_the_message_of_the_first_is_applied_even_if_others_fail(
    rules: Protocol, reply: Any
) -> None:
    work = leading(rules)
    work.send([*DONE, [mail_of(rules, "b+1")], b""])
    with pytest.raises(StopIteration) as done:
        work.throw(reply) if isinstance(reply, Cut) else work.send(reply)
    assert done.value.value.circuit.totals.succeeded == 7


def crowded(rules: Protocol, stamp: str) -> tuple[Circuit, bytes]:
    """A circuit to which many processes report, and its value."""
    circuit = POLICY.start("api", 1.0)
    for number in range(4 * CROWD):
        source = ReportSource(f"{number:08x}", 1.0)
        circuit = fold(POLICY, circuit, Record(Signal(ok=True), None, source), 1.0).circuit
    return circuit, envelope.seal(stamp, circuit, POLICY, rules.texts)[1]


def test_where_many_processes_report_messages_queue_at_once(rules: Protocol) -> None:
    circuit, _ = crowded(rules, "32-x-1")
    rules.known.keep(envelope.Sealed(b'{"stamp":"32-x-1",', circuit, POLICY))
    call = begun(rules).send(None)
    assert call.args[0] == b"?"
    assert entry_of(call)
    call = begun(rules, Record(Signal(count=0))).send(None)
    assert entry_of(call) == b"", "time that passes does not"


def test_waiters_receive_a_summary_that_nothing_is_committed_over(rules: Protocol) -> None:
    work, entry = queued(rules)
    _, whole = crowded(rules, "32-x-1")
    call = work.send(lost(whole, entry, mail_of(rules, "b+1")))
    new, short = call.args[2], call.args[21]
    sizes = [len(envelope.unseal(raw).circuit.recent.reports) for raw in (new, short)]  # type: ignore[union-attr]
    assert sizes == [4 * CROWD, CROWD]
    stamp = envelope.stamp_of(new)
    assert stamp is not None
    assert envelope.stamp_of(short) == stamp.replace(b'",', b's",'), "no stored value begins so"
    with pytest.raises(StopIteration):
        work.send(DONE)
    copy = rules.known.get("api", POLICY)
    assert copy is not None
    assert copy.begins == stamp
    assert not rules.known.keep(envelope.unseal(short)), "the whole of it is known"
    assert rules.known.read(short) is None


def test_a_process_that_joins_the_queue_waits_without_reading_it(rules: Protocol) -> None:
    rules.known.set_hot("api", hot=True)
    work = begun(rules)
    work.send(None)
    call = work.send([4, b"100", b"0", 40])
    assert isinstance(call, Wait)
    assert call.wait_s == pytest.approx(0.3)
    assert rules.known.is_hot("api")


def test_an_answer_with_the_state_that_was_pushed_is_not_read_again(rules: Protocol) -> None:
    work, entry = queued(rules)
    call = work.send(lost(value(rules, "6-x-3", 6), b"a-1\n...", entry))
    pushed = rules.known.read(value(rules, "9-x-4", 9))
    assert pushed is not None
    answer = envelope.seal_answer(Verdict(True, Phase.CLOSED), ())
    with pytest.raises(StopIteration) as done:
        work.send((call.answers[0].encode(), answer + b"\n" + value(rules, "9-x-4", 9)))
    assert done.value.value.circuit is pushed.circuit


def warm_of(call: Any) -> bytes:
    warm = call.args[19]
    assert isinstance(warm, bytes)
    return warm


FAILED = Record(Signal(ok=False))


def test_a_failure_is_published_unless_the_circuit_opens(rules: Protocol) -> None:
    work = begun(rules, FAILED)
    for _ in range(2):
        assert warm_of(work.send(None)) == b"\napi"
        with pytest.raises(StopIteration):
            work.send(DONE)
        work = begun(rules, FAILED)
    assert warm_of(work.send(None)) == b"", "they are told that it is open"


def test_the_next_commit_publishes_a_failure_that_the_first_did_not(rules: Protocol) -> None:
    rules.known.set_hot("api", hot=True)
    work = begun(rules, FAILED)
    entry = entry_of(work.send(None))
    call = work.send(lost(value(rules, "4-x-1", 4), entry))
    assert warm_of(call) == b"\napi"
    other = envelope.seal_mail(envelope.Mail("b-1", SUCCEEDED, 3.0, rules.texts.text(POLICY)))
    call = work.send([1, b"100", b"0", [other], b""])
    assert warm_of(call) == b"\napi", "the server has not published it: more was waiting"


# A report that is sent together with a message

REPORT = Record(Signal(ok=True, count=3), None, ReportSource("a", 1.5, ((1.0, 3),)))


def both(rules: Protocol) -> tuple[Generator[Any, Any, Any], bytes, bytes]:
    """Successes and a failure that have just joined the queue of a crowd."""
    rules.known.set_hot("api", hot=True)
    first = rules.mail_of_report(DatedRecord(1.5, REPORT), POLICY)
    work = rules.apply("api", POLICY, FAILED, 2.0, "a+2", again=False, first=first)
    call = work.send(None)
    assert isinstance(call, Script)
    assert envelope.unseal_mail(call.args[23]).message == REPORT
    return work, call.args[23], entry_of(call)


def test_a_report_and_a_failure_are_applied_when_the_report_is_first(rules: Protocol) -> None:
    work, first, entry = both(rules)
    call = work.send([4, b"100", b"0", 5])
    assert isinstance(call, Wait)
    tokens = [envelope.token_of(each).decode() for each in (entry, first)]
    assert call.answers == tuple("{ns}:answer:" + token for token in tokens)
    assert tokens[1].endswith(NO_ANSWER_MARK)
    work.send((call.answers[1].encode(), LEAD))
    call = work.send(lost(value(rules, "4-x-1", 4), first, entry))
    assert call.args[-4::2] == (envelope.token_of(first), envelope.token_of(entry))
    with pytest.raises(StopIteration) as done:
        work.send(DONE)
    totals = done.value.value.circuit.totals
    assert (totals.succeeded, totals.failed) == (4 + 3, 1)
    assert rules.known.confirmed() == [tokens[0], tokens[1]]


def test_an_answer_to_the_report_is_not_the_answer_to_the_failure(rules: Protocol) -> None:
    """An older version answers it, too."""
    work, _, entry = both(rules)
    call = work.send([4, b"100", b"0", 5])
    answer = envelope.seal_answer(Verdict(True, Phase.CLOSED), ())
    look = work.send((call.answers[1].encode(), answer + b"\n" + value(rules, "9-x-4", 9)))
    assert look.args[8] == envelope.token_of(entry).decode()


@pytest.mark.parametrize("was_applied", [False, True])
def test_after_a_lost_reply_only_unapplied_messages_are_sent_again(
    rules: Protocol, was_applied: bool
) -> None:
    last_commit.message = None
    work, first, entry = both(rules)
    call = work.throw(Cut("reset"))
    for message in (first, entry):
        assert call.text is script.RECALL
        assert call.args[0].encode() == envelope.token_of(message)
        receipt = b"1" if was_applied and message is first else None
        call = work.send([receipt, value(rules, "4-x-1", 4), [], b""])
    assert entry_of(call) == entry
    assert call.args[23] == (b"" if was_applied else first)
    assert was_committed(REPORT) == was_applied, "the caller does not report it again"


def test_a_report_and_a_failure_are_in_doubt_when_the_server_is_lost(rules: Protocol) -> None:
    work, first, _ = both(rules)
    with pytest.raises(Cut) as cut:
        work.throw(Cut("reset", final=True))
    assert (cut.value.identity, cut.value.before) == ("a+2", envelope.token_of(first).decode())


def test_a_message_with_its_own_report_is_not_contention(rules: Protocol) -> None:
    work, first, entry = both(rules)
    work.send(lost(value(rules, "4-x-1", 4), first, entry))
    assert not rules.known.is_hot("api"), "the next message needs one round trip only"


@pytest.mark.parametrize(
    "reply", [Cut("reset", final=True), [2, b"100", b"0"], [3, b"100", b"0", None, b"1"]]
)
def test_a_call_that_removes_no_receipts_leaves_them_to_the_next(
    rules: Protocol, reply: Cut | list[Any]
) -> None:
    """Otherwise they stay on the server for a day."""
    rules.known.confirm("a+1")
    work = begun(rules)
    work.send(None)
    assert rules.known.confirmed() == []
    call = None
    with suppress(StopIteration, Cut):
        call = work.throw(reply) if isinstance(reply, Cut) else work.send(reply)
    again = [] if call is None else call.args
    assert "a+1" in [*rules.known.confirmed(), *again]
