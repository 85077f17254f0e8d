"""Evidence of several processes: applied in the order in which it happened, evaluated when it is complete."""

import json
import random
from typing import Any

import pytest

from depth import scaled
from switchgear import _detectors
from switchgear._core import evidence
from switchgear._core.evidence import (
    CROWD,
    HOLD_S,
    KEEP_S,
    KEPT,
    LIVE_S,
    MOST,
    MOST_PROCESSES,
    TRIM,
    fold,
    fold_records,
    is_crowded,
    is_final,
    is_pending,
    is_summary,
    others,
    summary,
)
from switchgear._core.machine import count_only, step
from switchgear._core.policy import Cooldown, Policy, needs_successes
from switchgear._core.types import (
    Acquire,
    Circuit,
    DatedRecord,
    Event,
    EventKind,
    Mode,
    Override,
    Permit,
    Phase,
    Recent,
    Record,
    ReportSource,
    Signal,
)
from switchgear._core.wire import dump_circuit, load_circuit

FIVE = Policy([_detectors.ConsecutiveFailures(5)], Cooldown(1000.0))
OK, BAD = Signal(ok=True), Signal(ok=False, error="529")
T0 = 1000.0


class Site:
    """A circuit that several processes share, in memory."""

    def __init__(self, policy: Policy = FIVE) -> None:
        self.policy = policy
        self.circuit = policy.start("api", T0)
        self.events: list[Event] = []

    def report(self, who: str, now_s: float, signal: Signal, *at_s: float) -> Circuit:
        times = tuple((at, 1) for at in at_s) or ((now_s, signal.count),)
        told = Record(
            signal._replace(count=len(at_s) or signal.count), None, ReportSource(who, now_s, times)
        )
        return self.send(told, now_s)

    def send(self, message: Any, now_s: float) -> Circuit:
        done = fold(self.policy, self.circuit, message, now_s)
        data = json.loads(json.dumps(dump_circuit(self.policy, done.circuit)))
        again = dump_circuit(self.policy, load_circuit(self.policy, data))
        assert json.loads(json.dumps(again)) == data, "it is stored whole"
        assert done.circuit.version >= self.circuit.version
        self.circuit = done.circuit
        self.events += done.events
        return done.circuit


def test_a_process_that_is_alone_trips_at_once() -> None:
    site = Site()
    for number in range(5):
        site.report("a", T0 + number / 1000, BAD)
    assert site.circuit.phase is Phase.OPEN
    assert [event.seq for event in site.events] == [1]


def test_failures_wait_for_successes_that_other_processes_have_not_reported_yet() -> None:
    site = Site()
    site.report("b", T0, OK)
    for number in range(1, 6):
        site.report("a", T0 + number / 100, BAD)
    assert site.circuit.phase is Phase.CLOSED
    assert site.circuit.totals.failed == 5, "counted at once"
    assert is_pending(site.circuit)
    after = site.report("b", T0 + 0.06, OK, T0 + 0.025)
    assert after.phase is Phase.CLOSED, "it succeeded in between"
    assert site.policy.heat(after.memories, T0 + 0.06) == pytest.approx(0.6)


def test_failures_are_evaluated_as_soon_as_all_processes_have_reported() -> None:
    site = Site()
    site.report("b", T0, OK)
    for number in range(1, 6):
        site.report("a", T0 + number / 100, BAD)
    site.report("b", T0 + 0.06, OK, T0 + 0.005)
    assert site.circuit.phase is Phase.OPEN, "its success was before all of them"


def test_a_process_that_hangs_delays_a_trip_by_the_hold_and_no_more() -> None:
    site = Site()
    site.report("hung", T0, OK)
    for number in range(1, 6):
        site.report("a", T0 + number / 1000, BAD)
    waiting = site.send(Record(Signal(count=0)), T0 + 0.005 + HOLD_S - 0.001)
    assert waiting.phase is Phase.CLOSED
    judged = site.send(Record(Signal(count=0)), T0 + 0.005 + HOLD_S)
    assert judged.phase is Phase.OPEN


def test_failures_do_not_wait_for_a_process_that_has_ended() -> None:
    site = Site()
    site.report("gone", T0, OK)
    for number in range(5):
        site.report("a", T0 + LIVE_S + number / 1000, BAD)
    assert site.circuit.phase is Phase.OPEN


def test_a_request_after_the_hold_is_refused() -> None:
    site = Site()
    site.report("b", T0, OK)
    for number in range(1, 6):
        site.report("a", T0 + number / 1000, BAD)
    assert fold(FIVE, site.circuit, Acquire(), T0 + 0.05).verdict.admitted
    assert not fold(FIVE, site.circuit, Acquire(), T0 + 0.2).verdict.admitted


def test_an_override_evaluates_pending_evidence_and_a_reset_discards_it() -> None:
    site = Site()
    site.report("b", T0, OK)
    for number in range(1, 5):
        site.report("a", T0 + number / 1000, BAD)
    site.send(Override("ann", "why not", reset=True), T0 + 0.01)
    site.report("b", T0 + 0.02, OK)
    assert site.circuit.totals.failed == 0
    site.send(Override("ann", "hold", mode=Mode.HELD_OPEN), T0 + 0.03)
    assert site.circuit.mode is Mode.HELD_OPEN


REMARK = Override(
    "switchgear", "a is isolated", kind=EventKind.ISOLATED, until_s=T0 + 30.0, process="a"
)


def test_a_remark_that_a_process_is_isolated_evaluates_nothing_early() -> None:
    site = Site()
    site.report("b", T0, OK)
    for number in range(1, 6):
        site.report("a", T0 + number / 1000, BAD)
    after = site.send(REMARK, T0 + 0.01)
    assert after.phase is Phase.CLOSED
    assert [one.process for one in after.isolated] == ["a"]
    after = site.report("b", T0 + 0.06, OK, T0 + 0.0025)
    assert after.phase is Phase.CLOSED, "it succeeded in between"
    assert site.policy.heat(after.memories, T0 + 0.06) == pytest.approx(0.6)
    assert after.totals[:2] == (2, 5)


def test_lock_waits_in_a_row_wait_for_the_successes_between_them() -> None:
    site = Site(Policy([_detectors.RetryAfter(2)], Cooldown(10.0)))
    site.report("b", T0, OK)
    for at_s in (0.01, 0.03):
        site.report("a", T0 + at_s, BAD._replace(retry_after_s=30.0))
    assert site.report("b", T0 + 0.05, OK, T0 + 0.02).phase is Phase.CLOSED


def test_a_policy_needs_successes_if_one_detector_does() -> None:
    retry_after = _detectors.RetryAfter()
    assert needs_successes(Policy([retry_after, _detectors.ConsecutiveFailures(5)])) is True
    assert needs_successes(Policy([retry_after])) is False


def test_a_detector_that_needs_no_successes_trips_at_once() -> None:
    policy = Policy([_detectors.RetryAfter(), _detectors.ConsecutiveFailures(5)], Cooldown(10.0))
    site = Site(policy)
    site.report("b", T0, OK)
    site.report("a", T0 + 0.01, BAD._replace(retry_after_s=30.0))
    assert site.circuit.phase is Phase.OPEN


def test_a_process_that_joins_late_is_put_before_what_was_already_evaluated() -> None:
    site = Site()
    site.report("a", T0 + 0.1, BAD)
    site.report("a", T0 + 0.2, BAD)
    site.report("b", T0 + 0.21, OK, T0)
    for number in range(3):
        site.report("a", T0 + 0.3 + number / 100, BAD)
    site.report("b", T0 + 0.4, OK, T0 + 0.001)
    assert site.circuit.phase is Phase.OPEN, "five in a row: its successes came before"


def test_refusals_are_counted_once() -> None:
    site = Site()
    site.report("b", T0, OK)
    site.report("a", T0 + 0.01, BAD)
    told = Record(Signal(ok=True, count=2, refused=3), None, ReportSource("b", T0 + 0.02))
    site.send(told, T0 + 0.02)
    site.send(Record(Signal(count=0)), T0 + 1.0)
    assert site.circuit.totals[:5] == (3, 1, 0, 0, 3)


def test_a_calm_circuit_keeps_only_its_participants() -> None:
    site = Site()
    for number in range(50):
        site.report("a" if number % 2 else "b", T0 + number / 10, OK)
    recent = site.circuit.recent
    assert recent is not None
    assert (recent.base, recent.tells) == (None, ())
    assert len(recent.reports) == 2


def test_the_recent_evidence_is_bounded() -> None:
    site = Site(Policy([_detectors.ConsecutiveFailures(10**6)]))
    for number in range(500):
        site.report("a", T0 + number / 1000, BAD)
        site.report("b", T0 + number / 1000, OK)
    assert site.circuit.recent is not None
    assert len(site.circuit.recent.tells) <= 65
    assert site.circuit.totals[:2] == (500, 500)
    site.report("a", T0 + 10 * KEEP_S, OK)
    assert site.circuit.recent.tells == ()


POLICIES = (
    FIVE,
    Policy([_detectors.ConsecutiveFailures(3)], Cooldown(1000.0)),
    Policy([_detectors.FailureRate(20, 0.5, 5)], Cooldown(1000.0)),
    Policy([_detectors.FailureRate(100, 0.3, 20)], Cooldown(1000.0), tripping_at=0.8),
)


@pytest.mark.deep
@pytest.mark.parametrize("seed", range(scaled(120, 40)))
def test_four_processes_reach_the_same_result_as_one(seed: int) -> None:
    luck = random.Random(seed)
    policy = luck.choice(POLICIES)
    share, now_s, calls = luck.choice((0.1, 0.3, 0.5, 0.7)), T0, []
    for _ in range(luck.randrange(5, 100)):
        now_s += luck.choice((0.0005, 0.003, 0.02, 0.04))
        calls.append((now_s, luck.randrange(4), luck.random() > share))
    one = policy.start("api", T0)
    for at_s, _, ok in calls:
        one = step(policy, one, Record(OK if ok else BAD), at_s).circuit

    site = Site(policy)
    pending: dict[int, list[float]] = {who: [] for who in range(4)}
    sent = dict.fromkeys(range(4), T0)
    for who in range(4):
        site.report(str(who), T0, Signal(count=0))

    def submit(who: int, at_s: float) -> None:
        if pending[who]:
            site.report(str(who), at_s, OK, *pending[who])
        pending[who], sent[who] = [], at_s

    for at_s, who, ok in calls:
        for other in range(4):
            if pending[other] and at_s - sent[other] >= 0.05:
                submit(other, max(sent[other] + 0.05, pending[other][-1]))
        if ok:
            pending[who].append(at_s)
        else:
            submit(who, at_s)
            site.report(str(who), at_s, BAD)
            if luck.random() < 0.1:
                site.send(REMARK, at_s)
    for who in range(4):
        submit(who, now_s + 0.01)
    site.send(Record(Signal(count=0)), now_s + 1.0)
    assert (site.circuit.phase, site.circuit.totals) == (one.phase, one.totals)
    assert [event.seq for event in site.events] == list(range(1, len(site.events) + 1))


@pytest.mark.parametrize("seed", range(40))
def test_records_that_are_applied_together_reach_the_same_result_as_one_process(seed: int) -> None:
    luck = random.Random(seed)
    policy = luck.choice(POLICIES)
    share, now_s, calls = luck.choice((0.1, 0.3, 0.7, 1.0)), T0, []
    for _ in range(luck.randrange(5, 200)):
        now_s += luck.choice((0.0002, 0.001, 0.01))
        calls.append((now_s, luck.randrange(12), luck.random() > share))
    one = policy.start("api", T0)
    for at_s, _, ok in calls:
        one = step(policy, one, Record(OK if ok else BAD), at_s).circuit

    site = Site(policy)
    for who in range(12):
        site.report(str(who), T0, Signal(count=0))
    while calls:
        size = luck.randrange(1, 70)
        queue, calls = calls[:size], calls[size:]
        records = [
            DatedRecord(at_s, Record(OK if ok else BAD, None, ReportSource(str(who), at_s)))
            for at_s, who, ok in queue
        ]
        luck.shuffle(records)
        done = fold_records(policy, site.circuit, records)
        site.circuit, site.events = done.circuit, [*site.events, *done.events]
    site.send(Record(Signal(count=0)), now_s + 1.0)
    assert (site.circuit.phase, site.circuit.totals) == (one.phase, one.totals)
    assert [event.seq for event in site.events] == list(range(1, len(site.events) + 1))


def reported(who: str, now_s: float, signal: Signal, *at_s: float) -> DatedRecord:
    """A queued report of this number of equal signals."""
    times = tuple((at, 1) for at in at_s)
    signal = signal._replace(count=len(at_s))
    return DatedRecord(now_s, Record(signal, None, ReportSource(who, now_s, times)))


FAILURES_AROUND_A_SUCCESS = [
    *(reported("a", T0 + n / 100, BAD, T0 + n / 100) for n in range(1, 6)),
    reported("b", T0 + 0.06, OK, T0 + 0.025),
]


@pytest.mark.parametrize("extra", [[], [DatedRecord(T0 + 0.001, Record(OK))]])
def test_a_queue_is_evaluated_as_one_if_any_record_has_a_source(extra: list[DatedRecord]) -> None:
    done = fold_records(FIVE, FIVE.start("api", T0), [*FAILURES_AROUND_A_SUCCESS, *extra])
    assert done.circuit.phase is Phase.CLOSED
    assert done.circuit.heat == pytest.approx(0.6)


def test_a_queue_is_evaluated_at_the_time_of_its_last_record() -> None:
    site = Site()
    site.report("hung", T0, OK)
    site.report("a", T0 + 0.001, BAD)
    records = [reported("a", T0 + n * HOLD_S / 2, BAD, T0 + 0.002) for n in (1, 2, 3, 4)]
    done = fold_records(FIVE, site.circuit, records[::-1])
    assert done.circuit.phase is Phase.OPEN


def test_records_without_a_source_leave_nothing_recent() -> None:
    records = [DatedRecord(T0 + n, Record(BAD)) for n in range(3)]
    done, circuit = fold_records(FIVE, FIVE.start("api", T0), records), FIVE.start("api", T0)
    for now_s, record in records:
        circuit = step(FIVE, circuit, record, now_s).circuit
    assert done.circuit == circuit
    assert circuit.recent is None


EMPTY = Record(Signal(count=0))


def pending_site(policy: Policy = FIVE) -> Site:
    """Two final failures, and two that wait for another process."""
    site = Site(policy)
    site.report("a", T0, BAD, T0 - 0.002, T0 - 0.001)
    site.report("b", T0 + 0.001, OK)
    site.report("a", T0 + 0.003, BAD, T0 + 0.002, T0 + 0.003)
    recent = site.circuit.recent
    assert recent is not None
    assert len(recent.tells) > recent.final > 0
    return site


def test_a_message_that_changes_nothing_returns_the_same_circuit() -> None:
    calm = Site()
    calm.report("a", T0, OK)
    for circuit in (calm.circuit, pending_site().circuit):
        assert fold(FIVE, circuit, EMPTY, T0 + 0.004).circuit is circuit


def test_a_report_without_signals_is_one_version_and_lists_its_process() -> None:
    site = Site()
    site.report("a", T0, BAD)
    after = fold(FIVE, site.circuit, Record(Signal(count=0), None, ReportSource("b", T0)), T0)
    assert after.circuit.version == site.circuit.version + 1
    assert others(after.circuit, "a", T0) == 1


def test_the_verdict_is_that_of_the_time_of_the_message() -> None:
    site = Site()
    for number in range(5):
        site.report("a", T0 + number / 1000, BAD)
    seen_s, (opened,) = site.circuit.seen_s, site.events
    assert opened.retry_after_s == pytest.approx(1000.0)
    verdict = fold(FIVE, site.circuit, EMPTY, seen_s + 1.0).verdict
    assert verdict.retry_after_s == pytest.approx(999.0)


def test_the_verdict_with_pending_evidence_is_that_of_the_time_of_the_message() -> None:
    site = Site()
    hold = Override("ada", "deploy", mode=Mode.HELD_OPEN, until_s=T0 + 10.0)
    site.report("b", T0, OK)
    site.send(hold, T0 + 0.01)
    report = Record(BAD, None, ReportSource("a", T0 + 0.05, ((T0 + 0.02, 1),)))
    done = fold(FIVE, site.circuit, report, T0 + 0.05)
    assert is_pending(done.circuit)
    assert done.verdict.retry_after_s == pytest.approx(9.95)


def test_a_call_that_is_admitted_while_evidence_is_pending_has_a_permit() -> None:
    done = fold(FIVE, pending_site().circuit, Acquire(), T0 + 0.004)
    assert is_pending(done.circuit)
    assert done.verdict.permit == Permit(1)


def test_equal_signals_in_a_row_are_kept_as_one_object() -> None:
    site = Site()
    site.report("b", T0, OK)
    records = [BAD._replace(error="another"), BAD, BAD]
    queue = [reported("a", T0 + n / 1000, each, T0 + n / 1000) for n, each in enumerate(records, 1)]
    one_by_one = site.circuit
    for now_s, record in queue:
        one_by_one = fold(FIVE, one_by_one, record, now_s).circuit
    for circuit in (one_by_one, fold_records(FIVE, site.circuit, queue).circuit):
        assert circuit.recent is not None
        one, two = (dated.record for dated in circuit.recent.tells[-2:])
        assert one is two


def kept(circuit: Circuit) -> list[tuple[float, int]]:
    """The recent signals: seconds after the start, and count."""
    assert circuit.recent is not None
    return [(round(at_s - T0, 6), record.signal.count) for at_s, record in circuit.recent.tells]


@pytest.mark.parametrize(
    ("times", "dated"),
    [
        (((T0 + 0.01, 2), (T0 + 0.02, 0), (T0 + 0.03, -1), (T0 + 9.0, 5)), [(0.01, 2), (0.05, 1)]),
        (((T0 + 0.01, 1),), [(0.01, 1), (0.05, 2)]),
        ((), [(0.05, 3)]),
    ],
)
def test_the_times_of_a_report_cover_its_count_and_end_with_its_arrival(
    times: tuple[tuple[float, int], ...], dated: list[tuple[float, int]]
) -> None:
    site = Site()
    site.report("b", T0, Signal(count=0))
    report = Record(BAD._replace(count=3), None, ReportSource("a", T0 + 0.05, times))
    assert kept(fold(FIVE, site.circuit, report, T0 + 0.05).circuit) == dated


def test_equal_signals_with_different_permits_keep_their_permits() -> None:
    site = Site()
    site.report("b", T0, OK)
    for number in (1, 9):
        report = Record(BAD, Permit(number), ReportSource("a", T0 + 0.01))
        site.send(report, T0 + 0.01)
    assert (site.circuit.totals.failed, site.circuit.totals.late) == (1, 1)
    site.send(EMPTY, T0 + 1.0)
    assert (site.circuit.totals.failed, site.circuit.totals.late) == (1, 1)


NEVER = Policy([_detectors.ConsecutiveFailures(10**6)], Cooldown(1000.0))


def test_successes_in_a_row_share_an_entry_and_failures_do_not() -> None:
    site = Site(NEVER)
    other = OK._replace(seconds=9.0)
    for number, signal in enumerate((BAD, BAD, OK, OK, OK, other, BAD)):
        site.report("a", T0 + number / 10, signal)
    assert kept(site.circuit) == [(0.0, 1), (0.1, 1), (0.4, 3), (0.5, 1), (0.6, 1)]


def test_a_number_of_final_signals_is_kept_and_several_are_removed_at_a_time() -> None:
    site = Site(NEVER)
    numbers = [
        len(kept(site.report("a", T0 + number / 1000, BAD))) for number in range(KEPT + TRIM + 2)
    ]
    most = KEPT - TRIM
    assert numbers == [*range(1, KEPT + 1), *range(most, KEPT + 1), most]


def test_final_signals_are_removed_when_no_late_report_can_precede_them() -> None:
    site = Site(NEVER)
    for seconds in (0.0, 1.0, 1.5, 2 * KEEP_S):
        site.report("a", T0 + seconds, BAD)
    assert [at_s for at_s, _ in kept(site.circuit)] == [0.0, 1.0, 1.5, 3.0]
    site.report("a", T0 + 2 * KEEP_S + 0.25, BAD)
    assert [at_s for at_s, _ in kept(site.circuit)] == [3.0, 3.25]


def test_a_message_without_signals_removes_old_evidence() -> None:
    site = Site(NEVER)
    site.report("a", T0, BAD)
    site.report("b", T0 + 3 * KEEP_S, Signal(count=0))
    assert kept(site.circuit) == []


def test_the_final_state_is_stored_apart_only_while_other_evidence_is_pending() -> None:
    site = Site(NEVER)
    site.report("a", T0, BAD)
    recent = site.circuit.recent
    assert recent is not None
    assert recent.settled is None
    site.report("b", T0 + 0.2, Signal(count=0))
    recent = site.report("a", T0 + 0.25, BAD).recent
    assert recent is not None
    assert (len(recent.tells), recent.final) == (2, 1)
    assert recent.settled is not None
    assert recent.settled.totals.failed == 1


def test_a_message_without_signals_ends_a_cooldown() -> None:
    site = Site()
    for number in range(5):
        site.report("a", T0 + number / 1000, BAD)
    site.send(EMPTY, T0 + 1001.0)
    assert site.circuit.phase is Phase.HALF_OPEN
    assert [event.after for event in site.events] == [Phase.OPEN, Phase.HALF_OPEN]


def test_evidence_exactly_as_old_as_the_limit_is_kept() -> None:
    site = Site(NEVER)
    for seconds in (0.0, 1.75, 1.75 + KEEP_S):
        site.report("a", T0 + seconds, BAD)
    assert [at_s for at_s, _ in kept(site.circuit)] == [1.75, 3.25]


def test_the_oldest_of_too_many_pending_signals_become_final() -> None:
    site = Site(FIVE.replace(detectors=[_detectors.ConsecutiveFailures(MOST + 2)]))
    site.report("b", T0, Signal(count=0))
    for number in range(1, MOST + 1):
        site.report("a", T0 + number / 10000, BAD)
    recent = site.circuit.recent
    assert recent is not None
    assert (len(recent.tells), recent.final) == (MOST, 0)
    for number in (1, 2, 3):
        site.report("a", T0 + (MOST + number) / 10000, BAD)
        recent = site.circuit.recent
        assert recent is not None
        assert len(recent.tells) - recent.final == MOST
        assert recent.final <= 1
    assert site.circuit.phase is Phase.CLOSED
    assert site.circuit.totals.failed == MOST + 3


@pytest.mark.parametrize("number", [MOST_PROCESSES - 1, MOST_PROCESSES])
def test_of_too_many_processes_the_latest_reporters_participate(number: int) -> None:
    site = Site()
    reports = tuple((str(who), T0 - who / 1000) for who in range(number))
    recent = Recent(site.circuit.version, None, (), 0, reports)
    circuit = site.circuit._replace(recent=recent)
    after = fold(FIVE, circuit, Record(Signal(count=0), None, ReportSource("new", T0)), T0).circuit
    assert after.recent is not None
    if number < MOST_PROCESSES:
        assert after.recent.reports == (*reports, ("new", T0))
    else:
        assert {name for name, _ in after.recent.reports} == {
            "new",
            *(str(who) for who in range(number - 1)),
        }


def test_a_report_that_arrives_after_a_later_one_does_not_take_it_back() -> None:
    site = Site()
    empty = Signal(count=0)
    for upto_s in (T0 + 2.0, T0 + 1.0):
        site.send(Record(empty, None, ReportSource("a", upto_s)), T0 + 2.0)
    recent = site.circuit.recent
    assert recent is not None
    assert recent.reports == (("a", T0 + 2.0),)


def test_a_report_that_is_late_in_part_is_inserted_in_part() -> None:
    site = Site()
    for seconds, signal in ((0.02, BAD), (0.1, OK), (0.2, BAD)):
        site.report("a", T0 + seconds, signal)
    after = site.report("b", T0 + 0.3, BAD, T0 + 0.05, T0 + 0.3)
    assert after.heat == pytest.approx(0.4), "two in a row after the success"


def test_a_report_between_pending_signals_is_counted_in_order() -> None:
    site = Site()
    site.report("hung", T0, BAD)
    site.report("a", T0 + 0.01, BAD)
    site.report("a", T0 + 0.03, OK)
    times = ((T0 + 0.04, 1), (T0 + 0.02, 1))
    signal = BAD._replace(count=2, refused=3)
    after = site.send(Record(signal, None, ReportSource("c", T0 + 0.04, times)), T0 + 0.04)
    assert [at_s for at_s, _ in kept(after)] == [0.0, 0.01, 0.02, 0.03, 0.04]
    assert is_pending(after)
    assert after.heat == pytest.approx(0.2), "one since the success"
    assert after.totals.refused == 3


def test_times_of_a_report_that_run_backwards_are_sorted() -> None:
    site = Site()
    times = ((T0 - 0.02, 1), (T0 - 0.03, 1))
    site.send(Record(BAD._replace(count=2), None, ReportSource("a", T0, times)), T0)
    assert [at_s for at_s, _ in kept(site.circuit)] == [-0.03, -0.02]


def test_a_process_that_has_reported_nothing_for_a_while_is_no_longer_listed() -> None:
    site = Site()
    site.report("gone", T0, OK)
    recent = site.report("a", T0 + LIVE_S, OK).recent
    assert recent is not None
    assert [name for name, _ in recent.reports] == ["a"]


def test_a_report_does_not_wait_for_its_own_process() -> None:
    site = Site()
    times = tuple((T0 + number / 100, 1) for number in range(1, 6))
    report = Record(BAD._replace(count=5), None, ReportSource("a", T0, times))
    assert site.send(report, T0 + 0.06).phase is Phase.OPEN


def test_a_report_of_earlier_failures_has_the_verdict_of_its_arrival() -> None:
    times = tuple((T0 + number / 100, 1) for number in range(1, 6))
    report = Record(BAD._replace(count=5), None, ReportSource("a", T0 + 0.3, times))
    done = fold(FIVE, FIVE.start("api", T0), report, T0 + 0.3)
    assert done.circuit.phase is Phase.OPEN
    assert done.verdict.retry_after_s == pytest.approx(1000.0 - 0.25)


def test_a_hold_ends_when_the_evidence_up_to_its_end_is_final() -> None:
    site = Site()
    hold = Override("ada", "deploy", mode=Mode.HELD_CLOSED, until_s=T0 + 0.05)
    site.send(hold, T0)
    site.report("b", T0 + 0.01, BAD)
    after = site.report("a", T0 + 0.06, BAD)
    assert is_pending(after)
    assert after.mode is Mode.HELD_CLOSED
    after = site.report("b", T0 + 0.07, Signal(count=0))
    assert after.mode is Mode.AUTO
    assert [event.kind for event in site.events] == [EventKind.ORDERED, EventKind.HOLD_ENDED]


def test_a_hold_ends_with_a_message_without_signals() -> None:
    site = Site()
    site.report("a", T0, OK)
    site.send(Override("ada", "deploy", mode=Mode.HELD_CLOSED, until_s=T0 + 0.05), T0)
    assert site.send(EMPTY, T0 + 0.05).mode is Mode.AUTO
    assert site.events[-1].kind is EventKind.HOLD_ENDED


def test_while_evidence_is_pending_the_warning_follows_the_time() -> None:
    share = _detectors.FailureShare(window_s=0.3, threshold=0.5, min_calls=4)
    site = Site(Policy([share], Cooldown(1000.0), tripping_at=0.5))
    site.report("a", T0, OK._replace(count=4))
    site.report("a", T0 + 0.15, BAD._replace(count=2))
    assert site.circuit.outage.reason.startswith("2 of 6 calls")
    for who in "bc":
        site.report(who, T0 + 0.2, Signal(count=0))
    assert is_pending(site.report("a", T0 + 0.32, BAD))
    site.report("c", T0 + 0.315, Signal(count=0))
    after = site.report("b", T0 + 0.315, Signal(count=0))
    assert is_pending(after)
    assert after.phase is Phase.TRIPPING
    assert after.outage.reason.startswith("2 of 2 calls")


class FoldsAreCounted(Policy):
    """A policy that counts its folds: cost without a clock."""

    __slots__ = ()
    folds = 0

    def fold(self, *args: Any) -> tuple[Any, ...]:
        FoldsAreCounted.folds += 1
        return super().fold(*args)


@pytest.mark.parametrize("tick_s", [0.0, 0.0001])
def test_the_number_of_folds_of_a_failure_does_not_depend_on_pending_evidence(
    tick_s: float,
) -> None:
    policy = FoldsAreCounted(NEVER.detectors, NEVER.recovery)
    site, folds, now_s = Site(policy), list[int](), T0 + 0.001
    site.report("hung", T0, Signal(count=0))
    for _ in range(MOST // 2):
        now_s += tick_s
        report = reported("a", now_s, BAD, now_s).record._replace(permit=Permit(1))
        before = FoldsAreCounted.folds
        site.circuit = fold(policy, site.circuit, report, now_s).circuit
        folds.append(FoldsAreCounted.folds - before)
    assert is_pending(site.circuit)
    assert max(folds) <= 3, folds


def test_refusals_and_records_without_a_source_are_counted_in_a_queue() -> None:
    records = [DatedRecord(T0 + n / 1000, Record(Signal(count=0, refused=2))) for n in range(3)]
    done = fold_records(FIVE, FIVE.start("api", T0), [*records, DatedRecord(T0, Record(BAD))])
    assert (done.circuit.totals.refused, done.circuit.totals.failed) == (6, 1)
    failed = Record(BAD, None, ReportSource("a", T0))
    done = fold_records(FIVE, done.circuit, [*records, DatedRecord(T0, failed)])
    assert (done.circuit.totals.refused, done.circuit.totals.failed) == (12, 2)


def crowd(number: int) -> Site:
    site = Site()
    for who in range(number):
        site.report(str(who), T0, OK)
    return site


def test_a_summary_shows_what_a_reader_needs_and_is_never_continued() -> None:
    site = crowd(4 * CROWD)
    site.report("0", T0 + 0.01, BAD)
    whole, short = site.circuit, summary(site.circuit)
    assert is_summary(short)
    assert not is_summary(whole)
    assert len(json.dumps(dump_circuit(FIVE, short, short=True))) < 0.6 * len(
        json.dumps(dump_circuit(FIVE, whole, short=True))
    )
    data = json.loads(json.dumps(dump_circuit(FIVE, short, short=True)))
    for each in (short, load_circuit(FIVE, data)):
        assert each._replace(recent=None) == whole._replace(recent=None)
        assert is_pending(each)
        assert not is_final(each, T0 + 0.01)
        assert others(each, "0", T0 + 0.02)
        after = fold(FIVE, each, Record(Signal(count=0)), T0 + 1.0).circuit
        assert after.totals.failed == 1, "the pending failure is in the counts already"


def test_a_summary_holds_one_pending_signal_of_several() -> None:
    site = crowd(2 * CROWD)
    site.report("0", T0 + 0.01, BAD, T0 + 0.005, T0 + 0.01)
    short = summary(site.circuit).recent
    assert short is not None
    assert [dated.at_s for dated in short.tells] == [T0 + 0.005]


def test_a_circuit_is_crowded_from_a_number_of_processes_on() -> None:
    assert is_crowded(crowd(CROWD).circuit)
    assert not is_crowded(crowd(CROWD - 1).circuit)
    assert not is_crowded(FIVE.start("api", T0))


def test_evidence_is_final_up_to_the_first_pending_signal() -> None:
    site = Site()
    site.report("b", T0, OK)
    site.report("a", T0 + 0.5, BAD)
    assert is_final(site.circuit, T0 + 0.25)
    assert not is_final(site.circuit, T0 + 0.5)


def test_a_process_participates_for_a_while_after_its_last_report() -> None:
    site = Site()
    site.report("a", T0, OK)
    assert others(site.circuit, "b", T0 + LIVE_S - 0.25) == 1
    assert others(site.circuit, "b", T0 + LIVE_S) == 0
    assert others(site.circuit, "a", T0) == 0


def test_a_circuit_without_recent_evidence_has_none_pending() -> None:
    for circuit in (FIVE.start("api", T0), crowd(1).circuit):
        assert not is_pending(circuit)
        assert is_final(circuit, T0)
    assert others(FIVE.start("api", T0), "a", T0) == 0


def test_the_summary_of_an_open_circuit_has_no_reports() -> None:
    site = crowd(4 * CROWD)
    for who in range(5):
        site.report(str(who), T0 + 0.01, BAD)
    site.send(Record(Signal(count=0)), T0 + 1.0)
    assert site.circuit.phase is Phase.OPEN
    assert site.circuit.recent is not None
    assert summary(site.circuit) == site.circuit._replace(recent=None)


def test_the_summary_of_a_circuit_with_few_processes_is_the_circuit() -> None:
    site = crowd(CROWD)
    assert summary(site.circuit) is site.circuit
    assert summary(FIVE.start("api", T0)).recent is None


@pytest.mark.parametrize("seed", range(20))
def test_the_stored_state_is_what_folding_the_recent_signals_again_gives(seed: int) -> None:
    luck = random.Random(seed)
    policy = luck.choice(POLICIES)
    site, now_s = Site(policy), T0
    for _ in range(150):
        now_s += luck.choice((0.0005, 0.003, 0.02, 0.04, 0.3))
        late_s = now_s - luck.choice((0.0, 0.0, 0.0, 0.04, 0.2))
        signal = luck.choice((OK, BAD, BAD._replace(error="another")))
        circuit = site.report(luck.choice("abc"), now_s, signal, late_s)
        recent = circuit.recent
        if recent is None or recent.base is None:
            continue
        again = recent.base
        for at_s, each in recent.tells[: recent.final]:
            again = step(policy, again, each, at_s).circuit
        again = count_only(policy, again, recent.tells[recent.final :])
        assert (
            again.memories == circuit.memories
            or dump_circuit(policy, again)["memories"] == dump_circuit(policy, circuit)["memories"]
        )
        assert (again.phase, again.failures) == (circuit.phase, circuit.failures)
        assert again.totals == circuit.totals


@pytest.mark.parametrize("seed", range(20))
def test_counting_without_evaluation_counts_like_a_circuit_without_transitions(seed: int) -> None:
    luck = random.Random(seed)
    detectors = [
        _detectors.ConsecutiveFailures(10**6),
        _detectors.FailureRate(1000, 0.99, 1000),
        _detectors.SameError(1000),
    ]
    policy = Policy([luck.choice(detectors), luck.choice(detectors[:1])], Cooldown(1000.0))
    kinds = (
        OK,
        BAD,
        BAD._replace(error="another", count=7),
        Signal(ok=None),
        Signal(ok=True, cost_micros=5),
        Signal(ok=False, cost_micros=3, count=2),
    )
    tells = [
        DatedRecord(T0 + luck.random(), Record(luck.choice(kinds), luck.choice((None, Permit(1)))))
        for _ in range(60)
    ]
    tells.append(DatedRecord(T0 + 2.0, Record(BAD, Permit(9))))  # from another generation: late
    one = policy.start("api", T0)
    for at_s, record in tells:
        one = step(policy, one, record, at_s).circuit
    assert one.phase is Phase.CLOSED
    assert count_only(policy, policy.start("api", T0), tells) == one


@pytest.mark.parametrize("tick_s", [0.001, 0.0])
@pytest.mark.parametrize("others", [0, 1, 3])
def test_the_number_of_steps_of_a_failure_does_not_depend_on_the_history(
    others: int, tick_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = Policy([_detectors.ConsecutiveFailures(10**6)], Cooldown(1000.0))
    site, now_s = Site(policy), T0
    for other in range(others):
        site.report(f"other {other}", T0, BAD)
    steps = 0

    def counted(*arguments: Any, **more: Any) -> Any:
        nonlocal steps
        steps += 1
        return step(*arguments, **more)

    monkeypatch.setattr(evidence, "step", counted)
    for _ in range(500):
        now_s += tick_s
        site.report("a", now_s, BAD)
    assert steps <= 500 * 4
    stored = json.dumps(dump_circuit(policy, site.circuit, short=True), separators=(",", ":"))
    assert len(stored) < 4000, "it fits in one page of a SQLite file"
