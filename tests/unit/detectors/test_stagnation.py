"""No progress, in both directions: loops that are stopped, and similar work that continues."""

import json

import pytest

from switchgear import AgentStep, CircuitBreaker, Policy, Signal
from switchgear._detectors import stagnation
from switchgear.detectors import SameTool, Stagnation

NAMES = [f"{a}{b}{c}" for a in "bcdfg" for b in "aeiou" for c in "klmnp"]


def heat(*steps: tuple[str, str, str | None, bool]) -> float:
    """The highest heat over these steps: tool, arguments, result, success."""
    detector, hottest = Stagnation(), 0.0
    memory = detector.start()
    for tool, args, result, ok in steps:
        memory = detector.fold(memory, Signal(ok=ok, step=AgentStep(tool, args, result)), 0.0)
        hottest = max(hottest, detector.heat(memory, 0.0))
    return hottest


def test_the_same_reply_without_a_tool_call_is_stopped_for_any_text() -> None:
    assert heat(*(("", f"I plan {name}", "Please go on.", True) for name in NAMES[:10])) >= 1


def test_a_conversation_with_different_replies_continues() -> None:
    assert heat(*(("", f"I ask {name}", f"The {name} is fine", True) for name in NAMES)) < 0.7


def test_a_check_that_fails_in_the_same_way_after_every_edit_is_stopped() -> None:
    rounds = [("edit", f"a.py {name}", "saved", True) for name in NAMES[:12]]
    check = ("bash", "pytest", "E assert 3 == 4\n1 failed", False)
    assert heat(*(step for edit in rounds for step in (edit, check))) >= 1


def test_a_check_with_fewer_failures_each_time_continues() -> None:
    steps = []
    for n, name in enumerate(NAMES[:20]):
        steps.append(("edit", f"a.py {name}", "saved", True))
        steps.append(("bash", "pytest", f"{20 - n} failed", False))
    assert heat(*steps) < 1


def test_a_number_that_only_counts_attempts_is_not_progress() -> None:
    """The same failing command with the same thought: only its process id grows."""
    thought = (
        "The server must be running before the tests, so I start it once more and look at the port"
    )
    detector = Stagnation()
    memory = detector.start()
    for number in range(10):
        result = f"port 80 is in use by pid {4100 + number}"
        act = AgentStep("Bash", "make serve", result, thought=thought)
        memory = detector.fold(memory, Signal(ok=False, step=act), 0.0)
    assert detector.heat(memory, 0.0) >= 1


def test_timeouts_of_different_commands_are_stopped() -> None:
    assert heat(*(("bash", name, "timed out after 30 s", False) for name in NAMES[:20])) >= 1


def test_many_different_errors_of_a_set_up_continue() -> None:
    assert heat(*(("bash", f"install {n}", f"{n} needs lib{n}", False) for n in NAMES[:40])) < 0.7


def test_numbers_and_texts_of_numbers_are_the_same_arguments() -> None:
    pairs = (('{"id": 22}', '{"id": "22"}')[n % 2] for n in range(20))
    assert heat(*(("get", args, "already done", True) for args in pairs)) >= 1


@pytest.mark.parametrize(("ok", "warned"), [(True, 5), (False, 4)])
def test_equal_calls_are_stopped_at_the_sixth_and_at_the_fifth_if_they_fail(
    ok: bool, warned: int
) -> None:
    again = ("fetch", "status", "ready", ok)
    assert heat(*[again] * (warned - 1)) < 0.7
    assert 0.7 <= heat(*[again] * warned) < 1
    assert heat(*[again] * (warned + 1)) >= 1


def test_equal_calls_that_change_the_files_continue() -> None:
    detector = Stagnation()
    memory = detector.start()
    for n in range(100):
        act = AgentStep("format", "a.py", "done")
        memory = detector.fold(memory, Signal(ok=True, step=act, state=f"state {n}"), 0.0)
        assert detector.heat(memory, 0.0) < 0.7


def test_equal_calls_but_for_their_numbers_cost_less() -> None:
    assert heat(*(("delete", f"record {n}", "done", True) for n in range(8))) < 0.7
    detector = Stagnation()
    memory = detector.start()
    for n in range(8):
        act = AgentStep("delete", "record", "done", call_key=f"the uncut arguments, {n}")
        memory = detector.fold(memory, Signal(ok=True, step=act), 0.0)
    assert detector.heat(memory, 0.0) < 0.7


def test_a_circuit_compares_the_digests_of_uncut_arguments() -> None:
    policy = Policy([SameTool(threshold=5)])
    other, same = (CircuitBreaker(name, policy=policy) for name in ("agent/other", "agent/same"))
    for n in range(6):
        act = AgentStep("read", "a.py", "x = 1", call_key=f"{n:016x}")
        other.record(Signal(ok=True, step=act))
        same.record(Signal(ok=True, step=act._replace(call_key="0" * 16)))
    assert (other.state, same.state) == ("closed", "open")


def test_equal_calls_cost_less_when_another_step_comes_between_them_or_the_result_changes() -> None:
    again = ("fetch", "status", "ready", True)
    assert heat(*[again, ("fetch", "queue", "empty", True)] * 3) < 0.7 <= heat(*[again] * 6)
    assert heat(*(("fetch", "status", f"line {name}", True) for name in NAMES)) < 0.7


def test_batch_work_over_new_files_continues() -> None:
    assert heat(*(("sed", f"-i s/a/b/ src/{n}.py", "", True) for n in NAMES)) < 0.7


def test_the_memory_is_flat_over_ten_thousand_steps_and_survives_the_store() -> None:
    detector, sizes = Stagnation(), list[int]()
    memory = detector.start()
    for n in range(10_000):
        act = AgentStep("bash", f"{NAMES[n % 125]} src/{n}.py", f"line {n}", f"I try {n}")
        memory = detector.fold(memory, Signal(ok=n % 3 > 0, step=act), 0.0)
        if n % 1000 == 999:
            stored = json.dumps(detector.dump(memory))
            assert detector.load(json.loads(stored)) == memory
            sizes.append(len(stored))
    assert max(sizes) < 20_000
    assert sizes[-1] <= 1.1 * sizes[0]


@pytest.mark.parametrize("result", ["", None])
def test_a_call_without_a_result_is_not_remembered_as_known(result: str | None) -> None:
    detector = Stagnation()
    act = AgentStep("bash", "make", result)
    memory = detector.fold(detector.start(), Signal(ok=True, step=act), 0.0)
    assert memory.calls == ()
    assert len(detector.fold(memory, Signal(step=act._replace(result="a")), 0.0).calls) == 1


def test_a_memory_that_an_older_version_saved_is_loaded() -> None:
    detector = Stagnation()
    memory = detector.start()
    for _ in range(3):
        act = AgentStep("fetch", "status", "ready")
        memory = detector.fold(memory, Signal(ok=True, step=act), 0.0)
    data = json.loads(json.dumps(detector.dump(memory)))
    assert memory.calls
    assert memory.wasted
    assert detector.load(data) == memory
    assert detector.load(data[:11]) == memory._replace(wasted=0)
    assert detector.load(data[:10]) == memory._replace(wasted=0, calls=())
    negative = [
        [*data[:at], value, *data[at + 1 :]] for at, value in ((0, -1), (8, -2), (9, -1), (11, -1))
    ]
    for damaged in (data[:9], [*data, 0], *negative):
        with pytest.raises(
            ValueError, match=r"must be a list of 12|must be a whole number of at l"
        ):
            detector.load(damaged)


def test_the_smallest_cost_counts_and_is_doubled_after_wasted_steps() -> None:
    first = stagnation._charge(stagnation.StepTrail(), {0: 1}, 0, ("ls", ""), 100)
    assert (first.points, first.wasted, len(first.evidence)) == (1, 1, 1)
    wasted = stagnation.StepTrail(points=5, wasted=stagnation.LONGEST)
    assert stagnation._charge(wasted, {0: 1}, 0, ("ls", ""), 100).points == 7


def test_tests_without_a_state_of_the_files_ran_in_an_unknown_state() -> None:
    detector = Stagnation()
    assert detector.fold(detector.start(), Signal(ok=False, failing_tests="a"), 0.0).tested == -1


@pytest.mark.parametrize("kind", [-1, len(stagnation.LABELS)])
def test_evidence_of_an_unknown_kind_is_refused(kind: int) -> None:
    assert stagnation._load_evidence([1, len(stagnation.LABELS) - 1, "ls"])
    with pytest.raises(ValueError, match=r"its kind is -1|must be the text of a step"):
        stagnation._load_evidence([1, kind, "ls"])


@pytest.mark.parametrize(("used", "percent"), [(-0.5, 0), (0.5, 50), (1.5, 100)])
def test_a_context_is_between_empty_and_full(used: float, percent: int) -> None:
    detector = Stagnation()
    signal = Signal(state="a", context_used=used)
    assert detector.fold(detector.start(), signal, 0.0).context == percent
