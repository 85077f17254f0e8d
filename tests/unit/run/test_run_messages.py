"""The number of messages that a run sends to its store: known state is not read again."""

from pathlib import Path
from typing import Any

import pytest

from switchgear._core.types import Message, Mode, Record
from unit.runner_stage import Stage

GOES_ON = "write('n', str(n)); tell(type='result', text='more', success=None)"
FAILS = "fail(f'Error: {n} of many')"


class CountingStore:
    """Counts the messages to the store of a stage, by iteration and circuit."""

    def __init__(self, stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
        self.sent: list[list[tuple[str, Message]]] = [[]]
        store, apply, transact = (
            stage.panel.store,
            stage.panel.store.apply,
            stage.panel.store.transact,
        )

        def counted(key: str, policy: Any, message: Message, now_s: float) -> Any:
            self.sent[-1].append((key.partition("/")[0], message))
            return apply(key, policy, message, now_s)

        def transaction(name: str, work: Any) -> Any:
            self.sent[-1].append((name.partition("/")[0], Record))  # type: ignore[arg-type]
            return transact(name, work)

        monkeypatch.setattr(store, "apply", counted)
        monkeypatch.setattr(store, "transact", transaction)
        shown = stage.view.iteration_ended

        def ended(facts: dict[str, Any], run: dict[str, Any]) -> None:
            shown(facts, run)
            self.sent.append([])

        monkeypatch.setattr(stage.view, "iteration_ended", ended)

    def per_iteration(self) -> list[list[str]]:
        """The circuits that each iteration but the first sent messages to."""
        return [[name for name, _ in messages] for messages in self.sent[1:-1]]


@pytest.mark.parametrize("body", [GOES_ON, FAILS])
def test_an_iteration_sends_at_most_three_messages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str
) -> None:
    stage = Stage(tmp_path)
    counting = CountingStore(stage, monkeypatch)
    limits = {"consecutive_failures": None, "same_error": None, "no_progress": None}
    stage.run(body, agent="claude", agent_cmd=None, max_iterations=5, **limits)
    # One reads the loop's circuit, one records the iteration, one records the provider's part.
    assert counting.per_iteration() == [["loop", "provider", "loop"]] * 4


def test_the_provider_is_read_again_after_a_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = Stage(tmp_path)
    counting = CountingStore(stage, monkeypatch)
    limited = (
        "tell(type='error', message='429', status=429, retry_after_s=90, final=True); sys.exit(1)"
    )
    body = f"if n == 1: {limited}\n{GOES_ON}"
    stage.run(body, agent="claude", agent_cmd=None, max_iterations=3)
    after_wait, next_one, last = counting.per_iteration()
    assert after_wait.count("provider") > next_one.count("provider") == last.count("provider") == 1


def test_a_hold_between_two_iterations_stops_the_second(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = Stage(tmp_path)
    shown = stage.view.iteration_ended

    def ended(facts: dict[str, Any], run: dict[str, Any]) -> None:
        shown(facts, run)
        stage.panel.order(run["circuit"], by="ops", why="not now", mode=Mode.HELD_OPEN)

    monkeypatch.setattr(stage.view, "iteration_ended", ended)
    result = stage.run(GOES_ON, max_iterations=5)
    assert (result.exit_reason, result.state.iterations) == ("circuit_breaker", 1)
    assert "held open by ops: not now" in result.reason
