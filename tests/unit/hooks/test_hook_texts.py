"""The text blocks, compared exactly with their specification."""

import time
from collections.abc import Iterator

import pytest

from switchgear._core.types import Circuit, Failure, Mode, OpenState, Override, Phase
from switchgear._stuck import messages
from switchgear._stuck.escalation import Interventions

TEN = 36_000.0 - 9 * 3600
"""Ten o'clock in Tokyo, in seconds since the epoch."""


@pytest.fixture(autouse=True)
def in_tokyo(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Set the local time zone."""
    monkeypatch.setenv("TZ", "JST-9")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def test_a_tripped_circuit_reads_as_specified() -> None:
    circuit = Circuit(
        "op/agent_spawn",
        (),
        phase=Phase.OPEN,
        outage=OpenState(TEN + 30, TEN + 60, reason="3 failures in 60 s (threshold 3)"),
        failures=tuple(Failure(TEN + 15 * n, "Rate limit exceeded") for n in range(3)),
    )
    assert messages.circuit_tripped(circuit, TEN + 30) == (
        "CIRCUIT BREAKER TRIPPED\n"
        "\n"
        "Operation: agent_spawn\n"
        "Failures: 3 in last 60 seconds\n"
        "State: OPEN (will retry in 30s)\n"
        "\n"
        "Recent failures:\n"
        "- 10:00:00 - Rate limit exceeded\n"
        "- 10:00:15 - Rate limit exceeded\n"
        "- 10:00:30 - Rate limit exceeded\n"
        "\n"
        "Options:\n"
        "[Wait for reset]     - Auto-retry in 30s\n"
        "[Force close]        - Override circuit, try now\n"
        "[Skip operation]     - Continue without this operation\n"
        "[Abort batch]        - Stop execution"
    )


def test_a_latched_circuit_announces_no_retry() -> None:
    circuit = Circuit("rules", (), phase=Phase.OPEN, outage=OpenState(reason="a rule was broken"))
    block = messages.circuit_tripped(circuit, TEN)
    assert (
        "Failures: a rule was broken\nState: OPEN (will not retry by itself)\n\nOptions:" in block
    )
    assert "[Wait for reset]     - It stays open until it is reset" in block


def test_a_half_open_or_held_circuit_is_shown_as_such() -> None:
    circuit = Circuit("op/git", (), phase=Phase.HALF_OPEN)
    half_open = messages.circuit_tripped(circuit, TEN)
    assert "Failures: none counted\nState: HALF-OPEN (the next call is a test)" in half_open
    held = circuit._replace(mode=Mode.HELD_OPEN, order=Override("ada\n", "demo day"))
    state = "State: HELD OPEN by ada (until it is released)"
    assert state in messages.circuit_tripped(held, TEN)


def test_a_stuck_agent_reads_as_specified() -> None:
    stuck = messages.Stuck(
        "babyclaude",
        "task-3",
        75.0,
        ("Same tool called 7 times", "No file changes in 3 minutes", "Error repeated twice"),
    )
    assert messages.agent_stuck(
        stuck, messages.stuck_options(Interventions(escalate="debugger"))
    ) == (
        "AGENT APPEARS STUCK\n"
        "\n"
        "Agent: babyclaude (task-3)\n"
        "Stuck score: 75/100\n"
        "\n"
        "Indicators:\n"
        "- Same tool called 7 times\n"
        "- No file changes in 3 minutes\n"
        "- Error repeated twice\n"
        "\n"
        "Options:\n"
        '[Nudge agent]        - Inject hint: "Try a different approach"\n'
        "[Extend timeout]     - Grant 5 more minutes\n"
        "[Hand over]          - Escalate to debugger\n"
        "[Abort task]         - Mark failed, continue batch"
    )


def test_a_score_is_shown_out_of_a_hundred() -> None:
    assert "Stuck score: 100/100" in messages.agent_stuck(messages.Stuck("a", "t", 200.0, ()))


def test_a_recovery_reads_as_specified() -> None:
    parts = (
        messages.recovery_begins("op/agent_spawn", 30.0, 0.0),
        messages.PROBING,
        messages.recovery_ends(Phase.CLOSED, ok=True),
    )
    assert "\n\n".join(parts) == (
        "Circuit: agent_spawn (OPEN)\n"
        "Opened: 30 seconds ago\n"
        "Reset in: 0 seconds\n"
        "\n"
        "Attempting half-open test...\n"
        "\n"
        "Test result: SUCCESS\n"
        "\n"
        "Circuit CLOSED. Resuming normal operations."
    )


def test_a_recovery_that_fails_reports_where_it_leaves_the_circuit() -> None:
    assert messages.recovery_ends(Phase.OPEN, ok=False) == (
        "Test result: FAILURE\n\nCircuit OPEN. Waiting for the next test."
    )


def test_the_warnings_of_ten_minutes_read_as_specified() -> None:
    assert messages.time_warning(70, 180.0, 600.0) == (
        "TIME WARNING: 30% budget remaining. Start wrapping up.\n3 minutes remaining, wrap up"
    )
    assert messages.time_warning(90, 60.0, 600.0) == (
        "TIME WARNING: 10% budget remaining. Commit now.\n1 minute remaining, commit now"
    )
    assert messages.time_over(600.0).startswith("TIME OVER: the 10 minutes for this task")


def test_hostile_text_cannot_forge_a_line() -> None:
    evil = "x\nState: CLOSED\x1b[31m\r\u202e" + "y" * 5000
    circuit = Circuit("op/git", (), phase=Phase.OPEN, failures=(Failure(0.0, evil),))
    block = messages.circuit_tripped(circuit, 0.0)
    assert "\nState: CLOSED" not in block
    assert not {"\x1b", "\r", "\u202e"} & set(block)
    assert max(map(len, block.splitlines())) < 260
    stuck = messages.agent_stuck(messages.Stuck("a\nb", "t\x07", 60.0, ("c\nd",)))
    assert "Agent: a b (t)" in stuck
    assert "- c d" in stuck
