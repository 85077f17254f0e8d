"""The live view of a run: its content at each screen size."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from switchgear._agents.events import AgentError, TextOutput, ToolStarted, ToolStep, Usage
from switchgear._cli.views.run import RunTracker, Size, final_lines, live_lines, trend
from switchgear._cli.views.text import ASCII, UNICODE
from switchgear.testing import FakeClock
from unit.run_facts import facts, readings, run


class Stand:
    """A tracker on a fake clock, and its drawing."""

    def __init__(self, **changed: Any) -> None:
        self.clock = FakeClock()
        self.asked = 0
        self.tracker = RunTracker(self.clock, lambda: self.asked)
        self.tracker.started(run(**changed))

    def lines(self, width: int = 80, height: int = 24, signs: Any = UNICODE) -> list[str]:
        drawn = live_lines(self.tracker.snapshot(), Size(width, height, signs))
        return [line.plain for line in drawn]

    def text(self, width: int = 120, height: int = 40) -> str:
        return "\n".join(self.lines(width, height))

    def last(self) -> str:
        drawn = final_lines(self.tracker.snapshot(), Size(100, 24, UNICODE))
        return "\n".join(line.plain for line in drawn)


def hot(heat: float, reason: str = "it is hot") -> dict[str, Any]:
    return run(phase="closed", heat=heat, readings=readings(heat, reason))


@pytest.fixture
def stand() -> Stand:
    made = Stand()
    made.tracker.iteration_started(1, run())
    return made


# What it shows


def test_at_the_end_a_note_is_printed_in_full_and_once(stand: Stand) -> None:
    long = "there is no price list: " + "python3 -m pip install it " * 5
    for number, notes in (
        (1, ["not proven"]),
        (2, ["not proven"]),
        (3, [long]),
        (4, ["not proven"]),
    ):
        stand.tracker.iteration_ended(facts(number, notes=notes), run())
    told = " ".join(stand.last().split())
    assert f"note: iteration 1 to 2: not proven note: iteration 3: {long}note: iteration 4" in told
    assert told.count("not proven") == 2


def test_the_view_shows_state_iteration_heat_and_every_detector(stand: Stand) -> None:
    stand.tracker.iteration_ended(facts(), hot(0.66, "two of three"))
    stand.tracker.iteration_started(2, hot(0.66, "two of three"))
    first, *_ = stand.lines()
    assert first.startswith("● closed  iteration 2 of 30  heat 66%")
    assert first.endswith("demo on loop/1234abcd")
    text = stand.text()
    for name in ("failures in a row", "same error", "no progress", "output decline"):
        line = next(line for line in text.splitlines() if line.startswith(name))
        assert "████████░░░░  66%" in line
        assert "two of three" in line


@pytest.mark.parametrize(
    ("phase", "lamp"),
    [("open", "○ open"), ("tripping", "● tripping"), ("half_open", "◐ half-open")],
)
def test_each_phase_has_its_symbol(phase: str, lamp: str) -> None:
    assert Stand(phase=phase).lines()[0].startswith(lamp)


def test_shadow_is_shown_next_to_the_symbol() -> None:
    assert Stand(options={"shadow": True}).lines()[0].startswith("● closed [shadow]")


def test_iterations_lost_to_the_provider_do_not_count_against_the_maximum() -> None:
    lost = run()["state"] | {"lost": 2}
    stand = Stand(state=lost)
    stand.tracker.iteration_started(3, run(state=lost))
    assert "iteration 3 of 32" in stand.lines()[0]


def test_the_cost_of_the_current_iteration_is_added() -> None:
    told = run(may_spend_micros=1_000_000, options={"max_iterations": 3})
    stand = Stand()
    stand.tracker.iteration_started(2, told)
    assert "$0.01 of $1.00" in stand.text()
    stand.tracker.event(Usage("m", 1, 1, cost_micros=200_000))
    stand.tracker.event(Usage("m", 1, 1, cost_micros=240_000))
    stand.tracker.event(Usage("other", 1, 1, cost_micros=None))
    assert "$0.25 of $1.00" in stand.text(), "the latest of each model"
    after = told | {"state": told["state"] | {"spent_micros": 250_000}}
    stand.tracker.iteration_ended(facts(2), after)
    assert "$0.25 of $1.00" in stand.text(), "and not twice"


def test_a_missing_budget_or_price_is_reported() -> None:
    stand = Stand(state=run()["state"] | {"unknown_prices": 2})
    assert "(cost of 2 iterations unknown), no budget" in stand.text()


def test_time_continues_while_the_agent_is_silent() -> None:
    stand = Stand(time_left_s=600.0, state=run()["state"] | {"seconds": 60.0})
    stand.tracker.event(ToolStarted("bash", "make test", "k"))
    assert "1:00, 10:00 left" in stand.text()
    assert "0:00 bash make test" in stand.text()
    stand.clock.advance(125.0)
    assert "3:05, 7:55 left" in stand.text()
    assert "2:05 bash make test" in stand.text()
    stand.clock.advance(4000.0)
    assert "1:09:45, 0:00 left" in stand.text(), "and never less than nothing"


def test_waiting_counts_down_by_itself_and_ends_with_the_next_thing(stand: Stand) -> None:
    stand.tracker.waiting("for --rate-limit 4/h", 90.0)
    assert "1:30 waiting for --rate-limit 4/h" in stand.text()
    stand.clock.advance(31.0)
    assert "0:59 waiting for --rate-limit 4/h" in stand.text()
    stand.tracker.iteration_started(2, run())
    assert "waiting" not in stand.text()


def test_steps_texts_errors_and_notes_scroll(stand: Stand) -> None:
    stand.tracker.event(ToolStep("bash", "make", ok=False, error="Error: no rule to make target"))
    stand.tracker.event(TextOutput("thinking\nabout it"))
    stand.tracker.noted("no test command was found")
    text = stand.text()
    assert "bash make: failed" in text
    assert "last error         Error: no rule to make target" in text
    assert "thinking about it" in text
    assert "note: no test command was found" in text
    stand.tracker.event(AgentError("overloaded", "529 overloaded"))
    assert "last error         529 overloaded" in stand.text()


def test_outcomes_and_trends_are_drawn_as_they_come(stand: Stand) -> None:
    for number, (outcome, tests) in enumerate(
        [("worked", 2), ("worked", 4), ("failed", None), ("no change", 4)], 1
    ):
        stand.tracker.iteration_ended(facts(number, outcome=outcome, tests_passing=tests), run())
    stand.tracker.iteration_started(5, run())
    text = stand.text()
    assert "iterations         ✓✓✗·▸" in text
    assert "tests              ▅█ █ 4 tests pass" in text


def test_the_nudge_is_shown_before_and_while_the_agent_receives_it(stand: Stand) -> None:
    nudged = hot(0.66)
    nudged["state"] = nudged["state"] | {"nudge": "- 2 failures in a row\n- no progress"}
    stand.tracker.iteration_ended(facts(), nudged)
    assert "next prompt        2 failures in a row; no progress" in stand.text()
    stand.tracker.iteration_started(2, nudged)
    assert "sent to agent      2 failures in a row; no progress" in stand.text()
    stand.tracker.iteration_ended(facts(2, nudge="told"), nudged | {"phase": "open"})
    assert "3 tests pass, $0.01, nudged" in stand.last()
    assert "next prompt" not in stand.text(), "there is none after the breaker has opened"


def test_only_the_names_of_the_lines_are_dim(stand: Stand) -> None:
    stand.tracker.event(ToolStep("bash", "make", ok=False, error="Error: no rule"))
    drawn = live_lines(stand.tracker.snapshot(), Size(80, 24, UNICODE))
    error = next(line for line in drawn if line.plain.startswith("last error"))
    assert error.style == ""
    assert [(span.style, span.end - span.start) for span in error.spans] == [
        ("dim", 19),
        ("red", 14),
    ]


def test_a_request_to_stop_is_seen_at_once(stand: Stand) -> None:
    stand.asked = 1
    assert "stopping: waiting for the agent to end" in stand.text()
    stand.asked = 2
    assert "stopping at once" in stand.text()


def test_the_last_frame_has_a_line_for_each_iteration_and_each_detector(
    stand: Stand,
) -> None:
    for number in range(1, 16):
        stand.tracker.iteration_ended(facts(number), hot(1.0))
    last = stand.last()
    assert "15 iterations" in last
    assert "… 3 earlier" in last
    assert "✓  15  worked in 0.9 s, 1 file changed, 3 tests pass, $0.01" in last
    assert "no progress        ████████████ 100%" in last


def test_a_call_that_never_reached_its_provider_has_no_unknown_price(stand: Stand) -> None:
    none = {"input": 0, "output": 0}
    stand.tracker.iteration_ended(facts(outcome="provider", cost_micros=None, tokens=none), run())
    stand.tracker.iteration_ended(facts(2, outcome="provider", cost_micros=None), run())
    assert "1  provider failed in 0.9 s, 1 file changed, 3 tests pass\n" in stand.last()
    assert (
        "2  provider failed in 0.9 s, 1 file changed, 3 tests pass, unknown cost\n" in stand.last()
    )


def test_ascii_terminals_get_ascii_signs(stand: Stand) -> None:
    stand.tracker.iteration_ended(facts(outcome="failed"), hot(0.5))
    stand.tracker.iteration_started(2, hot(0.5))
    assert "\n".join(stand.lines(40, 24, ASCII)).isascii()


# In how much room


def test_a_narrow_terminal_keeps_the_numbers_and_the_hottest_reason(stand: Stand) -> None:
    warm = [*readings(0.2, "calm"), {"kind": "budget", "heat": 0.9, "reason": "nearly spent"}]
    stand.tracker.iteration_ended(facts(), run(readings=warm))
    lines = stand.lines(40, 20)
    assert "failures    ██░░░░░░  20%" in lines
    assert "  nearly spent" in lines
    assert "calm" not in "".join(lines)


def test_a_low_terminal_keeps_what_matters_most(stand: Stand) -> None:
    stand.tracker.iteration_ended(facts(error="Error: broken"), hot(0.9, "nearly"))
    stand.tracker.iteration_started(2, hot(0.9, "nearly"))
    three = stand.lines(80, 3)
    assert three[0].startswith("● closed  iteration 2")
    assert "nearly" in three[1]
    assert three[2].startswith("now")
    assert len(stand.lines(80, 1)) == 1


def test_a_trend_shows_the_newest_values_that_fit() -> None:
    size = Size(60, 24, UNICODE)
    assert trend([None, 0, 50, 100], size) == " ▁▅█"
    assert len(trend(list(range(500)), size)) == 60 - 12 - 24
    assert trend([0, 0], size) == "▁▁"


HOSTILE = st.one_of(
    st.text(st.characters(codec=None), max_size=200),
    st.sampled_from(
        ("\x1b[2J\x1b]0;owned\x07", "[red]markup[/red]", "漢字" * 60, "\u202e\u0301" * 30, "\ud800")
    ),
)


@given(HOSTILE, st.integers(20, 140), st.integers(1, 50), st.sampled_from((ASCII, UNICODE)))
def test_any_text_of_an_agent_fits_and_is_harmless(
    text: str, width: int, height: int, signs: Any
) -> None:
    stand = Stand(task=text, agent=text, circuit=text)
    tracker = stand.tracker
    tracker.iteration_started(1, run(task=text, agent=text))
    for event in (
        ToolStarted(text, text, text),
        ToolStep(text, text, ok=False, error=text),
        TextOutput(text),
        AgentError("other", text),
    ):
        tracker.event(event)
    tracker.noted(text)
    tracker.validating(text)
    held = run(task=text, agent=text, readings=readings(0.7, text))
    held["state"] = held["state"] | {"nudge": text}
    tracker.iteration_ended(facts(error=text, outcome=text, notes=[text]), held)
    snapshot, size = tracker.snapshot(), Size(width, height, signs)
    live = live_lines(snapshot, size)
    assert len(live) <= height
    for line in (*live, *final_lines(snapshot, size)):
        assert line.plain.isprintable()
        assert cell_len(line.plain) <= width
