"""An agent that only waits for its provider: whose failure that is, and how long it may take."""

from pathlib import Path

import pytest

from switchgear._agents.events import AgentError, ErrorKind, StreamEvent, TextOutput, ToolStep
from switchgear._agents.process import AgentRun, ProcessEnd
from switchgear._run.exit_reasons import ExitReason
from switchgear._run.judge import Measurements, StreamObserver, judge
from switchgear._run.view import LineView, RunView
from unit.runner_stage import Hands, Stage, Watching

REFUSED = "connect ECONNREFUSED 127.0.0.1:1"
TRIES_FOR_EVER = """
for _ in range(200):
    tell(type='error', message='connect ECONNREFUSED 127.0.0.1:1')
    time.sleep(0.3)
"""


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


def run_that_was(end: ProcessEnd, exit_code: int | None = None) -> AgentRun:
    return AgentRun(end, exit_code, 60.0, (), 0, 0, "", 0, 0, (), None)


def watched(*events: StreamEvent) -> StreamObserver:
    watch = StreamObserver(clock=Hands())
    for event in events:
        watch.see(event)
    return watch


@pytest.mark.parametrize(
    ("kind", "end"),
    [
        ("connection", ExitReason.AGENT_ERROR),
        ("overloaded", ExitReason.AGENT_ERROR),
        ("server", ExitReason.AGENT_ERROR),
        ("rate_limit", ExitReason.RATE_LIMIT),
        ("quota", ExitReason.RATE_LIMIT),
    ],
)
def test_a_time_limit_reached_while_waiting_for_the_provider_is_a_provider_failure(
    kind: ErrorKind, end: ExitReason
) -> None:
    trouble = AgentError(kind, REFUSED)
    judged = judge(Measurements(run_that_was(ProcessEnd.DEADLINE), watched(trouble)))
    assert (judged.outcome, judged.ok, judged.end) == ("provider", None, end)
    assert judged.provider == trouble
    assert judged.reason.endswith(f"while the agent waited for its provider: {REFUSED}")


@pytest.mark.parametrize(
    "events",
    [
        (),
        (AgentError("other", "what?"),),
        (AgentError("connection", REFUSED), ToolStep("bash", "make", True, None)),
        (TextOutput("Hello."), AgentError("connection", REFUSED)),
    ],
)
def test_a_time_limit_reached_while_working_is_a_timeout(events: tuple[StreamEvent, ...]) -> None:
    judged = judge(Measurements(run_that_was(ProcessEnd.DEADLINE), watched(*events)))
    assert (judged.outcome, judged.end) == ("stopped", ExitReason.TIMEOUT)
    assert judged.provider is None


def test_an_interrupt_is_an_interrupt_whatever_the_provider_does() -> None:
    watch = watched(AgentError("connection", REFUSED))
    watch.down = watch.complaint
    judged = judge(Measurements(run_that_was(ProcessEnd.STOPPED, 0), watch, stopped="interrupt"))
    assert (judged.end, judged.provider) == (ExitReason.INTERRUPTED, None)


class Hurrying(Watching):
    """Twenty seconds pass with each complaint."""

    def __init__(self, hands: Hands) -> None:
        super().__init__()
        self._hands = hands

    def event(self, event: object) -> None:
        super().event(event)
        if isinstance(event, AgentError):
            self._hands.sleep(20.0)


def hurrying(stage: Stage) -> RunView:
    stage.view = Hurrying(stage.hands)
    stage.dependencies = stage.dependencies._replace(view=stage.view)
    return stage.view


def test_an_agent_that_retries_a_dead_provider_forever_is_stopped_and_restarted_later(
    stage: Stage,
) -> None:
    hurrying(stage)
    result = stage.run(TRIES_FOR_EVER, budget_micros=1_000_000, validate="false")
    assert (result.exit_reason, result.exit_code) == ("agent_error", 16)
    assert "the agent's provider" in result.reason
    assert REFUSED in result.reason
    assert result.stats.total_failures == 0  # no evidence against the loop
    assert {each["stopped"] for each in stage.iterations()} == {"provider"}
    assert all(each["validation"] is None for each in stage.iterations())
    assert (result.state.unknown_prices, result.state.spent_micros) == (0, 0)
    assert stage.view.waits  # with pauses of ours between


def test_the_price_of_a_call_that_never_reached_its_provider_is_not_reported(
    stage: Stage, capsys: pytest.CaptureFixture[str]
) -> None:
    stage.dependencies = stage.dependencies._replace(view=LineView())
    dead = "tell(type='error', message='fetch failed', final=True); sys.exit(1)"
    stage.run(f"if n == 1: {dead}\nwrite('a', 'b')")
    first, second = [line for line in capsys.readouterr().out.splitlines() if "heat" in line]
    assert "provider failed in" in first
    assert "price" not in first
    assert "$" not in first
    assert "unknown cost" in second  # it worked, and told no usage
    lost, worked = stage.iterations()
    assert (lost["cost_micros"], lost["cost_unknown"]) == (0, "")
    assert (worked["cost_micros"], worked["cost_unknown"]) == (
        None,
        "the agent reported no token usage",
    )


def test_usage_without_tokens_is_not_an_unknown_price(stage: Stage) -> None:
    hurrying(stage)
    body = "tell(type='usage', model='m', input_tokens=0, output_tokens=0)" + TRIES_FOR_EVER
    result = stage.run(body, budget_micros=1_000_000)
    assert result.exit_reason == "agent_error"
    assert result.state.unknown_prices == 0
