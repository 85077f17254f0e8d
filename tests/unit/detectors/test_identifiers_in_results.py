"""Results with an identifier that differs every time: loops that are stopped, and work that continues."""

import random
import string
from collections.abc import Callable

import pytest

from switchgear import AgentStep, Signal
from switchgear._detectors import step_facts
from switchgear._detectors.step_facts import facts_of
from switchgear.config import preset_policy

Result = Callable[[int], str]


def drawn(length: int, characters: str = string.ascii_letters + string.digits) -> str:
    """A random identifier; the same ones in every run."""
    return "".join(CHANCE.choice(characters) for _ in range(length))


CHANCE = random.Random(17)
HEX, LOWER = "0123456789abcdef", string.ascii_lowercase + string.digits


def uuid() -> str:
    return "-".join([f"a{drawn(7, HEX)}", *(drawn(4, HEX) for _ in range(3)), drawn(12, HEX)])


FAILURES: dict[str, Result] = {
    "chunk": lambda n: f"Chunk ID: {drawn(6, HEX)}",
    "request": lambda n: f"invalid model, request_id=req_{drawn(24)}",
    "json": lambda n: f'{{"error": {{"type": "invalid"}}, "request_id": "req_{drawn(24)}"}}',
    "uuid": lambda n: f"correlation {uuid()}: rejected",
    "digest": lambda n: f"manifest sha256:c{drawn(63, HEX)} is unknown",
    "ulid": lambda n: f"job 01{drawn(24, '0123456789ABCDEFGHJKMNPQRSTVWXYZ')} rejected",
    "container": lambda n: f"container {drawn(12, HEX)} exited with code 1",
    "session": lambda n: f"session_{drawn(16)} has expired",
    "folder": lambda n: f"/tmp/tmp{drawn(8, LOWER)}/a.c:3: error: expected ';'",
    "mktemp": lambda n: f"cannot open /tmp/tmp.{drawn(10)}/out",
    "Windows": lambda n: rf"C:\Temp\tmp{drawn(8, LOWER)}\x.c(3): error C2143",
    "process": lambda n: f"the port is in use by pid {4711 + 7 * n}",
    "attempt": lambda n: f"attempt {n} was refused",
    "attempts": lambda n: f"Attempt {n} of 50 was refused",
    "retries": lambda n: f"refused (retry {n}/50)",
    "port": lambda n: f"connect ECONNREFUSED 127.0.0.1:{CHANCE.randrange(30_000, 60_000)}",
    "address": lambda n: f"<Parser object at 0x7f{drawn(10, HEX)}> is not iterable",
    "date": lambda n: f"2026-11-18T08:{n:02}:11.{n:03}Z connection refused",
    "epoch": lambda n: f"[{1_794_725_684_205 + 1311 * n}] failed to bind",
    "several lines": lambda n: (
        f"Traceback\n  File '/tmp/tmp{drawn(8, LOWER)}/a.py'\nid {drawn(20)}"
    ),
}
REGULAR = ("uuid", "request", "json", "digest", "ulid", "container")
"""Those that nearly always have digits in two places."""

LATER = ("mktemp", "several lines")
"""Those that often have fewer than three numbers, or none: stopped one or two steps later."""


def stopped_at(steps: list[Signal]) -> int | None:
    """The step that reaches the limit of the preset `default`."""
    [detector] = preset_policy("default").detectors
    memory = detector.start()
    for number, each in enumerate(steps, 1):
        memory = detector.load(detector.dump(detector.fold(memory, each, 0.0)))
        if detector.heat(memory, 0.0) >= 1:
            return number
    return None


def step(args: str, result: str, *, ok: bool = True, tool: str = "bash") -> Signal:
    return Signal(ok=ok, step=AgentStep(tool, args, result))


def usual_stop(make: Callable[[], list[Signal]]) -> int:
    """The step at which half of the random histories are stopped; 99: later than their end."""
    found = []
    for seed in range(9):
        CHANCE.seed(seed)
        found.append(stopped_at(make()) or 99)
    return sorted(found)[4]


@pytest.mark.parametrize("kind", FAILURES)
def test_a_call_that_fails_again_with_another_identifier_is_stopped(kind: str) -> None:
    result = FAILURES[kind]
    latest = 11 if kind in LATER else 9
    assert usual_stop(lambda: [step("make", result(n), ok=False) for n in range(20)]) <= latest


@pytest.mark.parametrize("kind", [*REGULAR, "address", "date", "epoch"])
def test_a_call_that_succeeds_again_with_another_identifier_is_stopped(kind: str) -> None:
    result = FAILURES[kind]
    assert usual_stop(lambda: [step("status", result(n)) for n in range(20)]) <= 9


@pytest.mark.parametrize("kind", REGULAR)
def test_an_edit_and_a_failure_with_another_identifier_in_turn_are_stopped(kind: str) -> None:
    def steps() -> list[Signal]:
        found = []
        for n, letter in enumerate(string.ascii_lowercase):
            found.append(step(f"a.py return {letter * 3}", "saved", tool="edit"))
            found.append(step("make", FAILURES[kind](n), ok=False))
        return found

    assert usual_stop(steps) <= 52


@pytest.mark.parametrize(
    "result",
    [
        lambda n: f"{3 * n} % done",
        lambda n: f"running step{n}",
        lambda n: f"running step{n} of 50",
        lambda n: f"test {string.ascii_lowercase[n % 26] * 4}_{n} passed",
        lambda n: f"downloaded {100 + 12 * n}MB of 5000MB",
        lambda n: f"TestV{n}Parser passed, TestV{n + 1}Parser is running",
        lambda n: f"transcoding S01E{n + 1:02}",
        lambda n: f"fetched page{n + 1}of50",
        lambda n: f"checking v1beta{n + 1}",
        lambda n: f"read {10 + n}k500 rows",
        lambda n: f"loss 1.{2_345_678 + 191_911 * n}E7",
        lambda n: f'{{"status": "running", "done": {n}, "request_id": "req_{drawn(24)}"}}',
    ],
)
def test_a_poll_whose_number_grows_continues(result: Result) -> None:
    assert stopped_at([step("status", result(n)) for n in range(40)]) is None


@pytest.mark.parametrize(
    "result",
    [
        lambda n: f"{n + 1} of 40 updated replicas are available",
        lambda n: f"{n + 1} out of 40 new replicas have been updated",
        lambda n: f"timeout: {n + 1}/40 nodes ready",
        lambda n: f"timeout at {2 * n} %",
        lambda n: f"timeout at {2.5 * n:.1f}% of the image",
        lambda n: f"interrupted after {100 + 12 * n} MB of 5000 MB",
    ],
)
def test_a_poll_that_fails_while_a_count_with_a_total_grows_continues(result: Result) -> None:
    args = "kubectl rollout status --timeout=30s"
    assert stopped_at([step(args, result(n), ok=False) for n in range(40)]) is None


def test_a_poll_that_fails_while_a_count_goes_up_and_down_is_stopped() -> None:
    counts = [f"{12 + n % 3} of 25 replicas are available" for n in range(20)]
    assert (stopped_at([step("status", each, ok=False) for each in counts]) or 99) <= 12


def test_names_before_an_identifier_count() -> None:
    names = [f"{a}{b}" for a in ("payments", "orders", "users", "carts") for b in ("", "s", "-eu")]
    imports = [f"{name}-import-1a2b-dead{n:02} finished" for n, name in enumerate(names)]
    assert stopped_at([step("next", each) for each in imports]) is None
    uuids = [f"{name}-import-{uuid()} finished" for name in names]
    assert stopped_at([step("next", each) for each in uuids]) is None


def test_results_that_differ_in_a_word_before_an_identifier_differ() -> None:
    ends = ("failed", "passed")
    for rest in ("1a2b-dead01", uuid()):
        one, other = [facts_of(AgentStep("t", "", f"all-tests-{end}-{rest}")).lines for end in ends]
        assert one != other


def test_a_list_of_jobs_with_new_identifiers_and_new_content_continues() -> None:
    names = [f"{a}{b}" for a in ("build", "test", "deploy", "lint") for b in ("api", "web", "cli")]
    steps = [
        step("jobs", "\n".join(f"{drawn(8, HEX)} {name} is running" for name in names[n : n + 3]))
        for n in range(10)
    ]
    assert stopped_at(steps) is None


def test_the_log_after_each_commit_continues() -> None:
    steps, log = [], list[str]()
    for word in [f"{a}{b}{c}" for a in "bcd" for b in "aeiou" for c in "kl"]:
        log = [f"{drawn(7, HEX)} Add the {word} parser", *log][:5]
        steps.append(step(f"src/{word}.py def {word}", "saved", tool="edit"))
        steps.append(step(f"git commit -am 'Add the {word} parser'", f"[main {drawn(7, HEX)}]"))
        steps.append(step("git log --oneline -5", "\n".join(log)))
    assert stopped_at(steps) is None


def test_the_newest_commit_after_each_commit_continues() -> None:
    steps = []
    for word in [f"{a}{b}{c}" for a in "bcd" for b in "aeiou" for c in "kl"]:
        steps.append(step(f"src/{word}.py def {word}", "saved", tool="edit"))
        steps.append(step(f"git commit -am 'Add the {word} parser'", f"[main {drawn(7, HEX)}]"))
        steps.append(step("git rev-parse HEAD", drawn(40, HEX)))
    assert stopped_at(steps) is None


def test_another_failure_each_time_continues() -> None:
    words = [f"{a}{b}{c}" for a in "bcd" for b in "aeiou" for c in "kl"]
    steps = [
        step("make check", f"{word} is missing, id {drawn(8, HEX)}", ok=False) for word in words
    ]
    assert stopped_at(steps) is None


def test_other_numbered_cases_that_fail_after_edits_continue() -> None:
    steps = []
    for n, word in enumerate([f"{a}{b}{c}" for a in "bcd" for b in "aeiou" for c in "kl"]):
        steps.append(step(f"a.py return {word}", "saved", tool="edit"))
        steps.append(step("make check", f"FAIL TestV{n + 1}Parser", ok=False))
    assert stopped_at(steps) is None


def test_a_state_stored_before_failures_had_a_shape_still_counts() -> None:
    [detector] = preset_policy("default").detectors
    memory = detector.start()
    for _ in range(3):
        memory = detector.fold(memory, step("make", "no rule", ok=False), 0.0)
    stored = detector.dump(memory)
    for row in stored[2]:
        row[0] = row[0][:18]  # the tool, the shape of the result and the call
    for number in range(3):
        stored = detector.dump(
            detector.fold(detector.load(stored), step("make", "no rule", ok=False), 0.0)
        )
        assert (detector.heat(detector.load(stored), 0.0) >= 1) is (number >= 1)


def test_a_state_stored_before_actions_without_numbers_were_kept_still_counts() -> None:
    [detector] = preset_policy("default").detectors
    memory = detector.start()
    for _ in range(3):
        memory = detector.fold(memory, step("status", "ready"), 0.0)
    stored = detector.dump(memory)
    for row in stored[2]:
        row[0] = row[0][:18]  # the tool, the shape of the result and the call
    memory = detector.load(stored)
    for _ in range(3):
        memory = detector.fold(memory, step("status", "ready"), 0.0)
    assert detector.heat(memory, 0.0) >= 1


def test_a_word_with_a_digit_is_masked_at_the_beginning_of_a_text_too() -> None:
    assert step_facts._mask_words("digit word", "7abc is lost") == "# is lost"


def test_the_shape_of_a_long_result_is_that_of_its_first_and_last_lines() -> None:
    half = ("the same",) * (step_facts.MOST // 2)
    one, other = ((*half, middle, *half) for middle in ("in between", "something else"))
    assert step_facts._shape_and_numbers(one) == step_facts._shape_and_numbers(other)
    assert step_facts._shape_and_numbers(one) == step_facts._shape_and_numbers(half + half)
    different = ("something else", *half[1:])
    assert step_facts._shape_and_numbers(different + half) != step_facts._shape_and_numbers(one)
    assert step_facts._shape_and_numbers(half + different) != step_facts._shape_and_numbers(one)
