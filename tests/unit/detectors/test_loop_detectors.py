"""The detectors of loops by hand: defaults, limits, what they keep, what they refuse to load."""

import json
import pickle
from typing import Any

import pytest

from switchgear._core.detector import Detector
from switchgear._core.policy import Policy
from switchgear._core.types import Signal
from switchgear._detectors import ConsecutiveFailures, NoProgress, OutputDecline, SameError
from switchgear._detectors.loop_output import Outputs, Standstill, median
from switchgear._detectors.policy_wire import OpaqueDetector, dump_policy, load_policy
from switchgear._detectors.same_error import MOST, CountedError, Errors

STOOD = Signal(ok=True, files_changed=0)


def after(detector: Detector, *signals: Signal) -> Any:
    memory = detector.start()
    for signal in signals:
        memory = detector.fold(memory, signal, 0.0)
    return memory


def chars(*lengths: int) -> list[Signal]:
    return [Signal(output_chars=length) for length in lengths]


def error(text: str, count: int = 1) -> Signal:
    return Signal(ok=False, error=text, count=count)


@pytest.mark.parametrize(
    ("detector", "fields"),
    [
        (NoProgress(), {"threshold": 3, "recovers_at": 0.7}),
        (OutputDecline(), {"threshold": 0.7, "min_iterations": 3}),
        (
            SameError(),
            {"threshold": 5, "scope": "total", "fingerprint": "default", "remember": 32},
        ),
    ],
    ids=lambda value: getattr(value, "kind", ""),
)
def test_the_defaults_are_those_of_the_documentation(detector: Detector, fields: Any) -> None:
    assert detector.fields() == fields
    assert pickle.loads(pickle.dumps(detector)) == detector
    assert hash(detector.replace()) == hash(detector)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: NoProgress(0), "NoProgress.threshold is 0: it must be a whole number of at least"),
        (lambda: NoProgress(3, 0.0), "NoProgress.recovers_at is 0.0: it must be"),
        (lambda: NoProgress(3, 1.1), "NoProgress.recovers_at is 1.1: it must be"),
        (lambda: OutputDecline(0.0), "OutputDecline.threshold is 0.0: it must be"),
        (lambda: OutputDecline(1.1), "OutputDecline.threshold is 1.1: it must be"),
        (lambda: OutputDecline(0.7, 0), "OutputDecline.min_iterations is 0: it must be"),
        (
            lambda: OutputDecline(0.7, 21),
            "OutputDecline.min_iterations is 21: it must not be above 20, the most that the base",
        ),
        (lambda: SameError(0), "SameError.threshold is 0: it must be"),
        (lambda: SameError(5, "twice"), "SameError.scope is 'twice': it must be"),
        (lambda: SameError(5, "total", "md5"), "SameError.fingerprint is 'md5': it must be"),
        (lambda: SameError(remember=0), "SameError.remember is 0: it must be"),
    ],
)
def test_a_bad_field_is_refused_by_name_and_value(make: Any, message: str) -> None:
    with pytest.raises(ValueError) as refused:
        make()
    assert str(refused.value).startswith(message)


def test_the_limits_themselves_are_allowed() -> None:
    assert NoProgress(1, 1.0).recovers_at == 1.0
    assert OutputDecline(1.0, 20).min_iterations == 20
    assert OutputDecline(1.0, 1).min_iterations == 1
    assert SameError(1, remember=1).remember == 1


# No progress


def test_an_output_is_remembered_once() -> None:
    once = STOOD._replace(output_chars=7)
    assert after(NoProgress(), once).outputs.latest == (7,)
    assert after(NoProgress(), once._replace(count=2)).outputs.baseline == (7, 7)


def test_no_progress_warns_at_its_threshold_and_trips_one_iteration_later() -> None:
    detector = NoProgress(2)
    heats = [detector.heat(after(detector, *[STOOD] * n), 0.0) for n in range(5)]
    assert heats == [0.0, 0.4995, 0.999, 1.0, 4 / 3]


def test_progress_is_dated_if_its_time_was_given_and_keeps_the_older_date_otherwise() -> None:
    dated, undated = Signal(files_changed=1, at_s=7.0), Signal(files_changed=1)
    assert after(NoProgress(), dated).progress_at_s == 7.0
    assert after(NoProgress(), dated, undated).progress_at_s == 7.0
    assert after(NoProgress(), dated, STOOD._replace(at_s=9.0)).progress_at_s == 7.0
    assert after(NoProgress(), undated).progress_at_s is None


def test_a_probe_that_changed_no_file_counts_as_failed() -> None:
    assert NoProgress().objection(STOOD) == "made no progress"
    assert NoProgress().objection(STOOD._replace(files_changed=1)) is None
    assert NoProgress().objection(Signal(ok=True)) is None


def test_a_million_equal_iterations_count_a_million_without_progress() -> None:
    stood = after(NoProgress(), Signal(files_changed=0, output_chars=5, count=10**6))
    assert (stood.iterations, stood.outputs) == (10**6, Outputs((5,) * 20, (5,) * 20, 0))


def test_a_million_outputs_alone_are_low_but_not_without_progress() -> None:
    before = [*chars(900, 900, 900), STOOD]
    stood = after(NoProgress(), *before, Signal(output_chars=1, count=10**6))
    assert (stood.iterations, stood.outputs.low) == (1, 10**6)


def test_a_million_iterations_without_an_output_add_no_low_one() -> None:
    before = chars(900, 900, 900, 1)
    stood = after(NoProgress(), *before, Signal(files_changed=0, count=10**6))
    assert (stood.iterations, stood.outputs.low) == (10**6, 1)


def test_a_million_iterations_that_change_files_all_make_progress() -> None:
    assert after(NoProgress(), STOOD, Signal(files_changed=2, count=10**6)).iterations == 0


# Outputs


def test_the_median_is_the_middle_one_or_the_mean_of_the_two_in_the_middle() -> None:
    assert median((9, 1, 5)) == 5
    assert median((9, 1, 5, 6)) == 5.5
    assert median((4,)) == 4


def test_an_output_of_exactly_the_share_has_not_declined_despite_float_rounding() -> None:
    assert 0.07 * 100 > 7
    assert after(OutputDecline(0.07, 1), *chars(100, 7)).low == 0
    assert after(OutputDecline(0.07, 1), *chars(100, 6)).low == 1


@pytest.mark.parametrize(
    ("threshold", "low"), [(0.500000002, 1), (0.5000000002, 0)], ids=["nine", "ten"]
)
def test_an_output_is_compared_to_nine_digits_of_the_share(threshold: float, low: int) -> None:
    assert after(OutputDecline(threshold, 1), *chars(2, 1)).low == low


def test_the_latest_twenty_outputs_are_kept_and_twenty_that_were_not_low() -> None:
    kept = after(OutputDecline(), *chars(*range(100, 130), 1))
    assert kept == Outputs((*range(111, 130), 1), (*range(110, 130),), 1)


def test_the_heat_of_low_outputs_warns_once_and_then_trips() -> None:
    detector, usual = OutputDecline(), chars(100, 100, 100)
    heats = [detector.heat(after(detector, *usual, *chars(*[1] * n)), 0.0) for n in range(4)]
    assert heats == [0.0, 0.999, 1.0, 1.5]


def test_the_reason_of_low_outputs() -> None:
    detector = OutputDecline()
    assert detector.reason(Outputs(), 0.0) == "0 of the 3 outputs needed to judge"
    said = detector.reason(after(detector, *chars(10, 10, 10, 1)), 0.0)
    assert said == "output of 1 character, 10% of the usual 10 (threshold 70%)"
    said = detector.reason(after(detector, *chars(0, 0, 0, 0)), 0.0)
    assert said == "output of 0 characters, all of the usual 0 (threshold 70%)"


def test_a_million_low_outputs_count_as_a_million_in_a_row() -> None:
    low = after(OutputDecline(), *chars(9, 9, 9), Signal(output_chars=1, count=10**6))
    assert (low.low, low.latest, low.baseline) == (10**6, (1,) * 20, (9, 9, 9))


# The same error


def test_the_first_200_characters_of_each_error_are_kept() -> None:
    detector = SameError()
    kept = after(detector, error("no file /a " + "x" * 300), error("no file /b " + "x" * 300))
    assert [(seen.times, seen.text) for seen in kept.seen] == [(2, "no file /a " + "x" * 189)]


def test_the_most_frequent_errors_have_a_text_and_the_others_are_counted() -> None:
    told = [error("a", 2), error("b"), error("c"), error("d")]
    kept = after(SameError(remember=3), *told)
    assert [(seen.text, seen.times) for seen in kept.seen] == [("a", 2), ("b", 1), ("c", 1)]
    assert (kept.different, kept.forgotten) == (4, 0)
    again = after(SameError(remember=3), *told, error("d"))
    assert [(seen.text, seen.times) for seen in again.seen] == [("a", 2), ("c", 1), ("d", 2)]


def test_an_error_among_thousands_is_found() -> None:
    detector = SameError(threshold=5)
    for different in (33, 100, 1999):
        letters = [chr(0x4E00 + number) for number in range(different)]
        memory = detector.start()
        for _ in range(4):
            for letter in letters:
                memory = detector.fold(memory, error(letter), 0.0)
        assert memory.different == different
        assert detector.heat(memory, 0.0) == 4 / 5
        memory = detector.fold(memory, error(letters[-1]), 0.0)
        assert detector.heat(memory, 0.0) == 1.0
        assert detector.reason(memory, 0.0).endswith(f'"{letters[-1]}"')


def test_beyond_the_counted_errors_the_number_is_a_lower_bound() -> None:
    detector = SameError()
    memory = detector.start()
    for number in range(3000):
        memory = detector.fold(memory, error(chr(0x4E00 + number)), 0.0)
    assert (memory.different, memory.forgotten) == (2032, 968)


def test_data_from_before_other_errors_were_counted_loads() -> None:
    old = [[["k1", 3, "one"], ["k2", 1, "two"]], 7, "k2", 1]
    memory = SameError(5).load(old)
    assert SameError(5).dump(memory) == old
    assert (memory.different, memory.forgotten) == (2, 7)


def test_failures_without_a_text_and_missing_results_count_nothing() -> None:
    told = [error("a"), Signal(ok=False), Signal(ok=True, error="a", count=0), error("a", 0)]
    assert after(SameError(), *told) == after(SameError(), error("a"))


def test_a_row_of_errors_that_are_too_rare_has_the_text_of_its_first() -> None:
    errors = Errors().plus("a", "A", 3, room=1)
    for key, text, row in (
        ("b", "B one", CountedError("b", 1, "B one")),
        ("b", "B two", CountedError("b", 2, "B one")),
        ("c", "C", CountedError("c", 1, "C")),
        ("a", "A two", CountedError("a", 1, "A")),
    ):
        errors = errors.plus(key, text, 1, room=1)
        assert errors.last() == row


def test_of_two_errors_that_are_as_frequent_the_one_with_a_text_is_shown() -> None:
    errors = Errors().plus("a", "A", 1, room=1).plus("b", "B", 1, room=1)
    assert errors.others
    assert errors.worst() == CountedError("a", 1, "A")


def test_a_recovery_resets_rare_errors_that_reached_the_threshold() -> None:
    errors = Errors().plus("a", "A", 3, room=1).plus("b", "B", 2, room=1)
    assert [times for _, times in errors.others] == [2]
    assert [times for _, times in errors.forgiven(2).others] == [0]
    assert [times for _, times in errors.forgiven(3).others] == [2]


@pytest.mark.parametrize(
    ("others", "message"),
    [
        ([[7, 1]], "7 must be the key of one error"),
        ([["k" * 41, 1]], "must be the key of one error"),
        ([["k", 1], ["k", 2]], "'k' must be the key of one error"),
        ([["k", -1]], "its count is -1: it must be a whole number of at least 0"),
    ],
)
def test_damaged_counts_of_rare_errors_are_refused(others: list[Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Errors.load([[["a", 3, "A"]], 0, "", 0, "", others], room=1)


def test_as_many_rare_errors_are_loaded_as_are_remembered() -> None:
    counts = [["k" * 40, 0], *([str(number), 1] for number in range(MOST - 1))]
    errors = Errors.load([[["a", 3, "A"]], 0, "", 0, "", counts], room=1)
    assert [list(other) for other in errors.others] == counts
    assert errors.forgotten == 0
    more = Errors.load([[["a", 3, "A"]], 0, "", 0, "", [*counts, ["new", 1]]], room=1)
    assert [list(other) for other in more.others] == [*counts[1:], ["new", 1]]
    assert more.forgotten == 1


def test_a_recovery_resets_the_error_that_tripped_and_the_consecutive_count() -> None:
    detector = SameError(3)
    kept = detector.recovered(after(detector, error("a", 2), error("b", 3), error("c", 4)))
    assert [seen.times for seen in kept.seen] == [2, 0, 0]
    assert (kept.row_key, kept.row) == ("", 0)
    assert detector.reason(kept, 0.0) == 'the same error 2 times (threshold 3): "a"'


def test_a_recovery_resets_errors_without_a_text_too() -> None:
    detector = SameError(2, remember=1)
    kept = detector.recovered(after(detector, error("a", 3), error("b", 3), error("c")))
    assert [seen.times for seen in kept.seen] == [0]
    assert sorted(times for _, times in kept.others) == [0, 1]
    assert detector.reason(kept, 0.0) == "the same error 1 time (threshold 2)"


def test_the_error_of_a_failed_probe_counts_like_any_other() -> None:
    detector = SameError(3)
    kept = detector.probed(after(detector, error("a")), error("a"), 0.0)
    assert detector.heat(kept, 0.0) == 2 / 3


def test_the_reasons_of_repeated_errors() -> None:
    assert SameError().reason(Errors(), 0.0) == "no error is counted (threshold 5)"
    forgiven = Errors((CountedError("k", 0, "a"),))
    assert SameError().reason(forgiven, 0.0) == "no error is counted (threshold 5)"
    row = SameError(5, "consecutive")
    said = row.reason(after(row, error("a", 4), error("b"), error("a")), 0.0)
    assert said == 'the same error 1 time in a row (threshold 5): "a"'
    assert row.heat(after(row, error("a", 4), Signal(ok=True)), 0.0) == 0.0


# What is loaded


@pytest.mark.parametrize(
    ("detector", "data"),
    [
        (NoProgress(), [1, 2, 3.0]),
        (NoProgress(), [-1, None, None, [[], [], 0]]),
        (NoProgress(), [0, -1, None, [[], [], 0]]),
        (NoProgress(), [0, None, "now", [[], [], 0]]),
        (OutputDecline(), [[1], [1]]),
        (OutputDecline(), [[-1], [1], 0]),
        (OutputDecline(), [[1], [-1], 0]),
        (OutputDecline(), [[1], [1], -1]),
        (OutputDecline(), [[1] * 21, [1], 0]),
        (OutputDecline(), [[1], [1] * 21, 0]),
        (OutputDecline(), [[1], [], 0]),
        (OutputDecline(), [[], [1], 0]),
        (OutputDecline(), [[], [], 1]),
        (SameError(), [[], 0, ""]),
        (SameError(), [[["k", 1]], 0, "", 0]),
        (SameError(), [[["", 1, "a"]], 0, "", 0]),
        (SameError(), [[["k", -1, "a"]], 0, "", 0]),
        (SameError(), [[["k", 1, 5]], 0, "", 0]),
        (SameError(), [[["k", 1, "a" * 201]], 0, "", 0]),
        (SameError(), [[["k", 1, "a"], ["k", 1, "a"]], 0, "", 0]),
        (SameError(), [[], -1, "", 0]),
        (SameError(), [[], 0, "", -1]),
        (SameError(), [[], 0, "k", -1]),
        (SameError(), [[], 0, "k", 0]),
        (SameError(), [[], 0, "", 2]),
        (SameError(), [[], 0, 7, 2]),
    ],
)
def test_load_refuses_what_dump_never_returned(detector: Detector, data: Any) -> None:
    with pytest.raises(ValueError):
        detector.load(data)


@pytest.mark.parametrize(
    ("detector", "memory"),
    [
        (NoProgress(), Standstill()),
        (NoProgress(), Standstill(0, 0, -5.0, Outputs((0,), (0,), 0))),
        (OutputDecline(), Outputs((1,) * 20, (7,) * 20, 2)),
        (
            SameError(),
            Errors((CountedError("k", 0, "a" * 200), CountedError("j", 3, "")), 0, "k", 1),
        ),
    ],
)
def test_load_restores_what_dump_returned(detector: Detector, memory: Any) -> None:
    assert detector.load(detector.dump(memory)) == memory


def test_errors_beyond_a_smaller_memory_lose_their_text_but_not_their_count() -> None:
    dumped = SameError().dump(after(SameError(), error("a"), error("b", 2), error("c")))
    kept = SameError(remember=1).load(dumped)
    assert ([seen.text for seen in kept.seen], kept.different) == (["b"], 3)


# Somebody else's


def test_an_unknown_detector_keeps_its_memory_and_evaluates_nothing() -> None:
    detector = OpaqueDetector("vibes", {"threshold": 3, "moods": ["good"]})
    assert (detector.kind, detector.unknown_fields) == (
        "vibes",
        (("threshold", 3), ("moods", ["good"])),
    )
    start: Any = detector.start
    assert start() is None
    memory = detector.load({"anything": [1]})
    assert detector.fold(memory, error("a"), 0.0) is memory
    assert detector.dump(memory) == {"anything": [1]}
    assert detector.heat(memory, 0.0) == 0.0
    assert detector.reason(memory, 0.0) == "the detector 'vibes' is not known here"
    assert OpaqueDetector("vibes").unknown_fields == ()


def test_unknown_detectors_can_be_distinguished() -> None:
    one, other = OpaqueDetector("vibes", {"a": [1]}), OpaqueDetector("vibes", {"a": [2]})
    assert one != other
    assert {one: 1}[OpaqueDetector("vibes", {"a": [1]})] == 1
    assert hash(one) != hash(OpaqueDetector("moods"))
    assert pickle.loads(pickle.dumps(one)) == one


def test_a_policy_with_an_unknown_detector_loads_and_is_dumped_unchanged() -> None:
    data = dump_policy(Policy([ConsecutiveFailures(3)]))
    data["detectors"].append({"kind": "vibes", "threshold": 3, "moods": ["good"]})
    stored = json.dumps(data)
    policy = load_policy(json.loads(stored))
    assert [*policy.detectors] == [
        ConsecutiveFailures(3),
        OpaqueDetector("vibes", {"threshold": 3, "moods": ["good"]}),
    ]
    assert json.dumps(dump_policy(policy)) == stored


def test_each_of_the_three_measures_counts_alone() -> None:
    assert after(NoProgress(), Signal(ok=True)) == Standstill()
    assert after(NoProgress(), Signal(files_changed=0)).iterations == 1
    assert after(NoProgress(), Signal(tests_passing=3)).best_tests == 3
    assert after(NoProgress(), Signal(output_chars=3)).outputs != Outputs()
