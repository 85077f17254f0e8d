"""The parts of a run: validation, observation, waits, plan, interrupt."""

import json
import signal
import sys
import time
from pathlib import Path

import pytest

from switchgear._agents.events import AgentError, ErrorKind, TextOutput, ToolStep, Usage
from switchgear._run.formats import local_time
from switchgear._run.interrupt import Interrupt, wait
from switchgear._run.judge import StreamObserver
from switchgear._run.prompt import read_plan
from switchgear._run.validation import detect, validate
from switchgear._run.view import LineView, RunView
from timeouts import LIMIT_S
from unit.runner_stage import Hands


def failing(error: str, tool: str = "bash") -> ToolStep:
    return ToolStep(tool, "make", False, error)


GOOD = ToolStep("edit", "a", True, None)


@pytest.mark.parametrize(
    ("files", "command"),
    [
        ({"pytest.ini": ""}, "python3 -m pytest -q"),
        ({"pyproject.toml": "[tool.pytest.ini_options]"}, "python3 -m pytest -q"),
        ({"tests/test_a.py": ""}, "python3 -m pytest -q"),
        ({"conftest.py": "", ".venv/bin/python": ""}, ".venv/bin/python -m pytest -q"),
        ({"package.json": json.dumps({"scripts": {"test": "vitest run"}})}, "npm test --silent"),
        ({"package.json": json.dumps({"scripts": {"test": 'echo "no test specified"'}})}, None),
        ({"package.json": "{"}, None),
        ({"package.json": "[1]"}, None),
        ({"go.mod": "module x"}, "go test ./..."),
        ({"Cargo.toml": ""}, "cargo test"),
        ({"pyproject.toml": "[project]"}, None),
        ({}, None),
    ],
)
def test_the_test_command_of_a_project_is_found(
    tmp_path: Path, files: dict[str, str], command: str | None
) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert detect(tmp_path) == command


def test_counts_of_tests_are_read_from_either_output(tmp_path: Path) -> None:
    done = validate(
        "echo 'Tests:       1 failed, 4 passed, 5 total' >&2; exit 1",
        tmp_path,
        deadline_s=None,
        interrupt=Interrupt(),
    )
    assert done.ok is False
    assert done.tests is not None
    assert (done.tests.passed, done.tests.failed) == (4, 1)


def test_counts_of_unittest_are_read_too(tmp_path: Path) -> None:
    (tmp_path / "test_x.py").write_text(
        "import unittest\n"
        "class X(unittest.TestCase):\n"
        "    def test_a(self): pass\n"
        "    def test_b(self): self.fail('no')\n"
        "    def test_c(self): self.skipTest('later')\n"
        "    def test_d(self): raise OSError\n"
    )
    command = f"{sys.executable} -B -m unittest -q"
    done = validate(command, tmp_path, deadline_s=None, interrupt=Interrupt())
    assert done.tests == (1, 2, ("test_x.X.test_b", "test_x.X.test_d"))
    assert done.error == "validation failed: failing tests: test_x.X.test_b, test_x.X.test_d"


def test_a_validation_that_hangs_is_ended_with_its_child_processes(tmp_path: Path) -> None:
    mark = f"sleep 661.{time.monotonic_ns()}"
    began_s = time.monotonic()
    done = validate(f"({mark} &) ; {mark}", tmp_path, deadline_s=0.5, interrupt=Interrupt())
    assert (done.ok, done.late) == (False, True)
    assert "did not end in time" in done.error
    assert time.monotonic() - began_s < LIMIT_S
    assert not any(
        mark in path.read_bytes().replace(b"\0", b" ").decode()
        for path in Path("/proc").glob("[0-9]*/cmdline")
        if path.exists()
    )


def test_an_interrupted_validation_is_not_evidence(tmp_path: Path) -> None:
    interrupt = Interrupt()
    interrupt.ask()
    done = validate("sleep 60", tmp_path, deadline_s=None, interrupt=interrupt)
    assert (done.ok, done.tests) == (None, None)


# Watching


def test_only_equal_failures_without_a_success_between_are_stuck() -> None:
    watch = StreamObserver(same_error=3)
    texts = ["no rule for 1", "no rule for 22"]
    assert [watch.see(failing(text)) for text in texts] == [None, None]
    assert watch.see(failing("no rule for 333")) == "stuck"
    other = StreamObserver(same_error=3)
    for event in (failing("a"), failing("a"), GOOD, failing("a"), failing("b"), failing("a")):
        assert other.see(event) is None


def silent(call: str) -> ToolStep:
    error = f"{call}: failed without an error message\nexit code 1"
    return ToolStep("bash", call, False, error, call_key=call, silent=True)


def test_failures_without_output_are_equal_only_for_the_same_call() -> None:
    watch = StreamObserver(same_error=3)
    for number in range(20):  # looking for something that is nowhere
        assert watch.see(silent(f"grep -q it {number}.py")) is None
    assert watch.see(silent("grep -q it 19.py")) is None
    assert watch.see(silent("grep -q it 19.py")) == "stuck"


def test_a_failed_call_without_output_equals_its_earlier_failure() -> None:
    said = failing("cat: a.toml: No such file or directory")._replace(call_key="cat a.toml")
    watch = StreamObserver(same_error=4)
    steps = (said, silent("cat a.toml"), silent("cat a.toml"), said)
    assert [watch.see(step) for step in steps] == [None, None, None, "stuck"]
    assert watch.ended_on == "cat: a.toml: No such file or directory"
    watch = StreamObserver(same_error=2)
    assert [watch.see(step) for step in (said, silent("cat b.toml"), said)] == [None] * 3


def complaining(kind: ErrorKind = "connection", *, final: bool = False) -> AgentError:
    return AgentError(kind, "connect ECONNREFUSED 127.0.0.1:1", final=final)


def test_an_agent_that_has_done_nothing_is_stopped_when_its_provider_stays_down() -> None:
    hands = Hands()
    watch = StreamObserver(clock=hands)
    assert [watch.see(complaining()) for _ in range(5)] == [None] * 5  # all at once: no outage yet
    hands.sleep(29.9)
    assert watch.see(complaining()) is None
    hands.sleep(0.1)
    assert watch.see(complaining()) == "provider"
    assert watch.down == complaining()


def test_two_provider_errors_do_not_mean_that_the_provider_is_down() -> None:
    hands = Hands()
    watch = StreamObserver(clock=hands)
    watch.see(complaining())
    hands.sleep(1000)
    assert watch.see(complaining()) is None
    assert watch.see(complaining()) == "provider"


@pytest.mark.parametrize("sign", [GOOD, failing("no rule"), TextOutput("I see.")])
def test_an_agent_that_has_worked_may_retry_longer_and_each_event_counts(
    sign: ToolStep | TextOutput,
) -> None:
    hands = Hands()
    watch = StreamObserver(clock=hands)
    for _ in range(4):
        watch.see(complaining())
    watch.see(sign)
    for pause_s in (100, 100, 99.9):
        assert watch.see(complaining()) is None
        hands.sleep(pause_s)
    assert watch.see(complaining()) is None
    hands.sleep(0.1)
    assert watch.see(complaining()) == "provider"


@pytest.mark.parametrize("kind", ["rate_limit", "quota", "auth", "loop", "other"])
def test_only_an_outage_ends_a_wait_without_a_result(kind: ErrorKind) -> None:
    hands = Hands()
    watch = StreamObserver(clock=hands)
    for _ in range(10):
        hands.sleep(100)
        assert watch.see(complaining(kind)) is None
    assert watch.see(complaining(final=True)) is None  # it gives up by itself


def test_waiting_for_the_provider_is_visible_at_any_time() -> None:
    hands = Hands()
    watch = StreamObserver(clock=hands)
    waits = [watch.waits_for_provider]
    for event, pause_s in (
        (complaining("rate_limit"), 0),  # it has done nothing but wait
        (GOOD, 0),
        (complaining(), 29.9),  # for a moment only
        (complaining(), 0.1),
        (complaining("other"), 100),
    ):
        watch.see(event)
        hands.sleep(pause_s)
        waits.append(watch.waits_for_provider)
    assert waits == [False, True, False, False, True, False]


def test_a_step_with_an_unknown_outcome_is_not_a_failure() -> None:
    watch = StreamObserver(same_error=1)
    assert watch.see(ToolStep("bash", "x", None, None)) is None


def test_spending_is_compared_with_the_remaining_budget() -> None:
    watch = StreamObserver(left_micros=100)
    assert watch.see(Usage("a", 1, 1, cost_micros=60)) is None
    assert watch.see(Usage("b", 1, 1, cost_micros=40)) is None
    assert watch.see(Usage("a", 1, 1, cost_micros=61)) == "budget"
    assert [usage.cost_micros for usage in watch.usages] == [61, 40]


def test_tokens_without_a_cost_are_priced_by_the_list() -> None:
    pytest.importorskip("genai_prices")
    watch = StreamObserver(left_micros=1_000_000)
    assert watch.see(Usage("gpt-5", 1_000, 1_000)) is None
    assert watch.see(Usage("gpt-5", 10_000_000, 1_000_000)) == "budget"
    assert watch.see(Usage("no-such-model", 10_000_000, 1_000_000)) == "budget"
    assert StreamObserver(left_micros=1).see(Usage("no-such-model", 10_000_000, 1)) is None


@pytest.mark.parametrize(("final", "stays"), [(False, False), (True, True)])
def test_an_error_that_the_agent_recovered_from_does_not_count(final: bool, stays: bool) -> None:
    watch = StreamObserver()
    watch.see(AgentError("overloaded", "529", final=final))
    watch.see(GOOD)
    assert (watch.complaint is not None) == stays


def test_errors_are_counted_and_bounded() -> None:
    watch = StreamObserver()
    for _ in range(3):
        watch.see(failing("no such table"))
    for number in range(100):
        watch.see(failing(f"error {'x' * number} in it"))
    assert len(watch.errors) == 20
    assert next(iter(watch.errors.values())).times == 3


def test_output_is_bounded_and_a_promise_is_found_across_pieces() -> None:
    watch = StreamObserver(promise="ALL\nDONE")
    promised = []
    for text in ("x" * 100_000 + "ALL", "DONE"):
        watch.see(TextOutput(text))
        promised.append(watch.promised)
    assert promised == [False, True]
    assert len(watch._text) <= 8_000


# Waiting


class Shown(RunView):
    def __init__(self) -> None:
        self.left: list[float] = []

    def waiting(self, why: str, left_s: float) -> None:
        self.left.append(left_s)


def test_a_wait_counts_down_by_the_second() -> None:
    hands, shown = Hands(0.0), Shown()
    assert wait("for it", 3.0, on=hands.time, view=shown, interrupt=Interrupt())
    assert shown.left == [3.0, 2.0, 1.0]
    assert hands.now_s == pytest.approx(3.0)


def test_a_wait_ends_when_it_is_interrupted() -> None:
    hands, shown, interrupt = Hands(0.0), Shown(), Interrupt()
    interrupt.ask()
    assert not wait("for it", 3.0, on=hands.time, view=shown, interrupt=interrupt)
    assert hands.now_s == 0.0


def test_plain_lines_report_a_long_wait_only_a_few_times(
    capsys: pytest.CaptureFixture[str],
) -> None:
    lines = LineView(wall=lambda: 1_800_000_000.0)
    for left in range(95, 0, -1):
        lines.waiting("for the pace", float(left))
    told = capsys.readouterr().out.splitlines()
    front = f"{local_time(1_800_000_000.0)}  "
    assert all(line.startswith(front) for line in told), "every line has its time"
    assert [line.removeprefix(front) for line in told] == [
        "waiting 95 s: for the pace",
        "waiting 65 s: for the pace",
        "waiting 35 s: for the pace",
        "waiting 5 s: for the pace",
    ]


# Interrupting


class Process:
    def __init__(self) -> None:
        self.orders: list[str] = []

    def stop(self) -> None:
        self.orders.append("stop")

    def kill(self) -> None:
        self.orders.append("kill")


def test_the_first_signal_stops_gracefully_and_the_second_at_once() -> None:
    process, interrupt = Process(), Interrupt()
    with interrupt.installed(), interrupt.watching(process):
        signal.raise_signal(signal.SIGINT)
        assert process.orders == ["stop"]
        signal.raise_signal(signal.SIGTERM)
    assert process.orders == ["stop", "kill"]
    assert (interrupt.asked, interrupt.by) == (2, "SIGINT")


def test_a_signal_from_before_the_start_ends_the_agent() -> None:
    process, interrupt = Process(), Interrupt()
    interrupt.ask()
    with interrupt.watching(process):
        pass
    assert process.orders == ["stop"]


def test_handlers_are_put_back_and_an_ignored_hang_up_stays_ignored() -> None:
    before = signal.getsignal(signal.SIGTERM)
    old = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with Interrupt().installed() as interrupt:
            signal.raise_signal(signal.SIGHUP)
            assert interrupt.asked == 0
        assert signal.getsignal(signal.SIGTERM) is before
    finally:
        signal.signal(signal.SIGHUP, old)


def test_a_plan_without_a_box_is_never_done(tmp_path: Path) -> None:
    plan = tmp_path / "PLAN.md"
    plan.write_text("nothing to tick")
    found = read_plan(plan.parent, plan.name)
    assert found is not None
    assert not found.is_done
    plan.write_text("1. [x] a\n  - [X] b\n")
    found = read_plan(plan.parent, plan.name)
    assert found is not None
    assert found == (2, ())
    assert read_plan(tmp_path, "none") is None
