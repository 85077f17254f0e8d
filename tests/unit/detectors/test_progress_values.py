"""The parts of the progress detectors: how a step becomes numbers, the stored state, invalid input."""

import json
from typing import Any

import pytest

from switchgear._core.types import AgentStep, Signal
from switchgear._detectors import IdleTalk, RepeatedActions, RepeatedErrors, RepeatedThoughts
from switchgear._detectors.progress import (
    RING,
    ROOM,
    Debt,
    ProgressMemory,
    add_known,
    compare_state,
    count_new,
)
from switchgear._detectors.step_facts import (
    EXCERPT_CHARS,
    MOST,
    RESULT_CHARS,
    excerpt,
    facts_of,
    failure_of,
    resemblance,
    words_of,
)

DEBTS = [RepeatedActions(), RepeatedErrors(), IdleTalk(), RepeatedThoughts()]


def facts(args: str = "", result: str | None = None, thought: str | None = None) -> Any:
    return facts_of(AgentStep("bash", args, result, thought))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("sed -n 1,20p a.py", "sed -n 21,40p a.py"),
        ("git show 1a2b3c4d5e", "git show 0f9e8d7c6b"),
        ("peek 0xDEADBEEF", "peek 0xCAFE"),
        ("ls   -la", "ls -la"),
    ],
)
def test_an_action_is_the_same_whatever_its_numbers(one: str, other: str) -> None:
    assert facts(one).key == facts(other).key


def test_another_command_is_another_action_and_so_is_another_tool() -> None:
    assert facts("ls -la").key != facts("ls -lb").key
    assert facts("ls").key != facts_of(AgentStep("shell", "ls")).key


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("done at 12:04:05", "done at 23:59:59.123"),
        ("2026-11-15 up", "2026-11-16 up"),
        ("took 1.25s", "took 830 ms"),
        ("object at 0x7f3a", "object at 0x55aa01"),
        ("commit 1a2b3c4d", "commit 9f8e7d6c"),
        ("  ready", "ready  "),
    ],
)
def test_a_line_is_the_same_whatever_the_clock_says(one: str, other: str) -> None:
    assert facts(result=one).lines == facts(result=other).lines


@pytest.mark.parametrize(
    ("one", "other"),
    [("30 % done", "40 % done"), ("3/50", "4/50"), ("12 files", "13 files"), ("defaced", "deed")],
)
def test_a_line_with_another_number_is_another_line(one: str, other: str) -> None:
    assert facts(result=one).lines != facts(result=other).lines


def test_files_and_addresses_are_recognised_by_their_shape() -> None:
    assert len(facts("cat a.py src/b and https://x.test/y?z=1 but not this").paths) == 3


def test_blank_lines_are_ignored_and_a_blank_result_is_empty() -> None:
    assert facts(result="a\n\n  \nb").lines == facts(result="a\nb").lines
    assert facts(result=" \n").is_silent
    assert facts(result=None).is_silent
    assert not facts(result="a").is_silent


def test_of_a_long_result_the_beginning_and_the_end_count() -> None:
    def output(first: str, middle: str, last: str) -> str:
        return "\n".join([first, *["x" * 99] * 40, middle, *["x" * 99] * 40, last])

    usual = facts(result=output("a", "b", "c")).lines
    assert facts(result=output("a", "other", "c")).lines == usual
    assert facts(result=output("other", "b", "c")).lines != usual
    assert facts(result=output("a", "b", "other")).lines != usual


def test_of_many_lines_the_first_and_the_last_count() -> None:
    lines = [f"{number:x}g" for number in range(400)]
    found = facts(result="\n".join(lines)).lines
    assert len(found) == MOST
    assert found[0] == facts(result=lines[0]).lines[0]
    assert found[-1] == facts(result=lines[-1]).lines[0]


def test_only_the_beginning_of_a_thought_counts() -> None:
    assert words_of("one two three " + "x " * 200 + "four") == words_of("one two three")
    assert words_of("Of to 12 a_b Größe") == words_of("größe")


def test_the_same_step_is_analysed_once() -> None:
    act = AgentStep("bash", "ls", "a", "b")
    assert facts_of(act) is facts_of(act)
    assert facts_of(AgentStep("bash", "ls", "a", "c")) is not facts_of(act)


def test_the_text_of_a_failure_is_its_error_or_its_result() -> None:
    act = AgentStep("bash", "make", "line 3: boom")
    told = failure_of(Signal(ok=False, error="boom", step=act))
    assert told == failure_of(Signal(ok=False, error="boom"))
    assert failure_of(Signal(ok=False, step=act)) == failure_of(
        Signal(ok=False, step=AgentStep("bash", "cc", "line 7: boom"))
    )
    assert failure_of(Signal(ok=False, step=act)) != told


def test_resemblance_is_the_shared_part_of_all_words() -> None:
    assert resemblance(frozenset(), frozenset()) == 0
    assert resemblance(frozenset({1}), frozenset({2})) == 0
    assert resemblance(frozenset({1, 2}), frozenset({1, 2})) == 100
    assert resemblance(frozenset({1, 2}), frozenset({1, 3})) == 33


def test_an_excerpt_is_made_of_the_first_four_times_its_length() -> None:
    blank = " " * (4 * EXCERPT_CHARS - 2)
    assert excerpt(f"a{blank}b") == "a b"
    assert excerpt(f"a{blank} b") == "a"


def test_a_failure_is_a_number_of_24_bits() -> None:
    assert failure_of(Signal(ok=False, error="connection refused")) == 0x781A45


def test_a_file_is_known_by_an_ending_of_up_to_five_letters() -> None:
    assert len(facts("page.xhtml").paths) == 1
    assert not facts("page.xhtmls").paths


def test_a_result_is_read_whole_up_to_its_bound() -> None:
    half = RESULT_CHARS // 2
    assert len(facts("", "a" * half + "b" * half).lines) == 1
    assert len(facts("", "a" * half + "-" + "b" * half).lines) == 2


def test_an_excerpt_is_one_short_printable_line() -> None:
    assert excerpt("a \x1b[1mb\n\u202e c") == "a [1mb c"
    assert excerpt(excerpt("a \x1b b")) == excerpt("a \x1b b")
    assert excerpt("x" * 60) == "x" * 60
    assert excerpt("x" * 61) == "x" * 59 + "…"


def test_the_newest_entries_are_dropped_last() -> None:
    assert add_known((1, 2, 3), (2,)) == (1, 3, 2)
    assert add_known((1, 2, 3), (4, 5), room=3) == (3, 4, 5)
    before = (1, 2, 3)
    assert add_known(before, (2, 3)) is before
    assert add_known(before, ()) is before
    assert add_known((1,), ()) == (1,)
    assert len(add_known(tuple(range(ROOM)), (ROOM,))) == ROOM


def test_only_unknown_entries_are_new() -> None:
    assert count_new((1, 2, 3), (2,)) == 2
    assert count_new((), (2,)) == 0


def test_a_state_is_new_or_repeated_or_unchanged() -> None:
    book = ProgressMemory()
    seen = []
    for state in ("a", "a", "b", "a", "a", None, "c"):
        seen.append(compare_state(book.states, state))
        book = book.with_state(Signal(state=state))
    new, back, neither = (True, False), (False, True), (False, False)
    assert seen == [neither, neither, new, back, neither, neither, new]


def test_the_stored_state_is_always_small() -> None:
    for debt in DEBTS:
        book = debt.start()
        for number in range(300):
            words = " ".join(f"w{number * 90 + n}" for n in range(90))
            act = AgentStep("bash", f"{words} /a/{number}", words.replace(" ", "\n"), words[:400])
            failed = Signal(
                ok=False,
                error=f"boom {words[:9]}",
                step=act,
                state=f"{number}",
                failing_tests=words,
            )
            book = debt.fold(book, failed, 0.0)
        assert len(book.words) <= ROOM
        assert len(book.lines) <= ROOM
        assert len(book.paths) <= ROOM
        assert len(book.failures) <= RING
        assert len(book.states) <= RING
        assert len(json.dumps(debt.dump(book))) < 10_000


@pytest.mark.parametrize("debt", DEBTS, ids=lambda debt: debt.kind)
@pytest.mark.parametrize(
    ("at", "value"),
    [
        (0, -1),
        (0, 0.5),
        (1, [[1]]),
        (1, [[1, 2]]),
        (1, [[0, "x"]]),
        (2, ["zz"]),
        (2, "000000"),
        (3, 7),
        (3, "0000"),
        (3, "00 0000 "),
        (4, "gggggg"),
        (10, -2),
        (11, "1"),
        (12, -1),
    ],
)
def test_data_that_no_detector_dumped_is_refused(debt: Debt, at: int, value: Any) -> None:
    data = debt.dump(debt.start())
    data[at] = value
    with pytest.raises(ValueError, match=r".+"):
        debt.load(data)


def test_the_stored_state_is_loaded_as_it_was_dumped() -> None:
    debt, book = RepeatedThoughts(), ProgressMemory()
    for number in range(9):
        act = AgentStep(
            "bash", f"look /etc/{number}", f"a\n{number}", "I look at the same thing again"
        )
        signal = Signal(ok=False, step=act, state="a", failing_tests="b", context_used=0.5)
        book = debt.fold(book, signal, 0.0)
    assert debt.load(json.loads(json.dumps(debt.dump(book)))) == book


@pytest.mark.parametrize("used", [-1.0, 0.0, 1.0, 7.0, 1e300])
def test_an_impossible_share_of_the_context_is_clamped(
    used: float,
) -> None:
    debt = IdleTalk()
    book = RepeatedThoughts().fold(
        ProgressMemory(), Signal(context_used=used, step=AgentStep("bash")), 0.0
    )
    assert book.context in (0, 100)
    assert debt.load(json.loads(json.dumps(debt.dump(book)))) == book


def test_a_score_is_loaded_under_a_lower_limit_as_far_as_it_goes() -> None:
    high, low = IdleTalk(limit=9.0), IdleTalk(limit=1.0)
    book = high.fold(high.start(), Signal(step=AgentStep("", "it is all done now"), count=20), 0.0)
    assert low.heat(low.load(high.dump(book)), 0.0) == 2.0


def test_a_score_never_grows_beyond_twice_its_limit() -> None:
    for debt in DEBTS:
        tool = "" if isinstance(debt, IdleTalk) else "bash"
        act = AgentStep(tool, "it is all done now", "no", "the very same thing again")
        book = debt.fold(debt.start(), Signal(ok=False, step=act, count=10**9), 0.0)
        assert debt.heat(book, 0.0) == 2.0


def test_a_command_that_failed_and_now_does_not_pays_back_more_than_another() -> None:
    debt = RepeatedErrors()
    failed = Signal(ok=False, error="no", step=AgentStep("bash", "make"))
    book = debt.fold(debt.start(), failed._replace(count=3), 0.0)
    again = debt.fold(book, Signal(ok=True, step=AgentStep("bash", "make")), 0.0)
    other = debt.fold(book, Signal(ok=True, step=AgentStep("bash", "bash make")), 0.0)
    assert (book.points - again.points, book.points - other.points) == (100, 20)


def test_a_score_that_returns_to_zero_drops_its_steps() -> None:
    debt = IdleTalk()
    book = debt.fold(debt.start(), Signal(step=AgentStep("", "it is all done now"), count=2), 0.0)
    assert book.evidence
    book = debt.fold(book, Signal(step=AgentStep("bash", "ls")), 0.0)
    assert book.points == 0
    assert debt.reason(book, 0.0) == ("the same reply without acting: 0.00 steps (threshold 2)")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: RepeatedThoughts(0.0), "RepeatedThoughts.limit is 0.0"),
        (
            lambda: RepeatedThoughts(usual=1.0),
            "RepeatedThoughts.usual is 1.0: it must be at least 0 and below 1",
        ),
        (lambda: RepeatedThoughts(credit=1.1), "RepeatedThoughts.credit is 1.1"),
        (lambda: RepeatedThoughts(remember=0), "RepeatedThoughts.remember is 0"),
        (lambda: RepeatedActions(-1.0), "RepeatedActions.limit is -1.0"),
        (lambda: RepeatedActions(credit=-0.1), "RepeatedActions.credit is -0.1"),
        (lambda: RepeatedErrors(0.0), "RepeatedErrors.limit is 0.0"),
        (lambda: RepeatedErrors(credit=2.0), "RepeatedErrors.credit is 2.0"),
        (lambda: IdleTalk(0.0), "IdleTalk.limit is 0.0"),
        (lambda: IdleTalk(usual=-0.1), "IdleTalk.usual is -0.1"),
        (lambda: IdleTalk(remember=0), "IdleTalk.remember is 0"),
    ],
)
def test_a_bad_field_is_refused_by_name_and_value(make: Any, message: str) -> None:
    with pytest.raises(ValueError) as refused:
        make()
    assert str(refused.value).startswith(message)


def test_the_defaults_are_those_of_the_documentation() -> None:
    assert RepeatedThoughts().fields() == {
        "limit": 3.0,
        "usual": 0.25,
        "credit": 0.05,
        "remember": 8,
    }
    assert RepeatedActions().fields() == {"limit": 7.0, "credit": 0.1}
    assert RepeatedErrors().fields() == {"limit": 6.0, "credit": 0.1}
    assert IdleTalk().fields() == {"limit": 2.0, "usual": 0.3, "remember": 8}


def test_every_score_suggests_what_to_do_differently() -> None:
    assert len({debt.advice for debt in DEBTS}) == len(DEBTS)
    assert all(debt.name and debt.advice for debt in DEBTS)


def test_an_agent_whose_context_was_compacted_may_read_again() -> None:
    book = ProgressMemory(words=(1, 2)).with_state(Signal(context_used=0.5))
    assert book.with_state(Signal(context_used=0.26)).words == (1, 2)
    assert book.with_state(Signal(context_used=0.25)).words == ()


def test_tests_that_ran_in_an_unknown_state_count_against_no_edit() -> None:
    debt = RepeatedErrors()
    memory = debt.fold(debt.start(), Signal(ok=False, failing_tests="a"), 0.0)
    memory = debt.fold(memory, Signal(ok=False, state="1", failing_tests="a"), 0.0)
    assert memory.points == 0
    memory = debt.fold(memory, Signal(ok=False, state="2", failing_tests="a"), 0.0)
    assert memory.points == 100


def test_an_invalid_stored_last_failure_is_refused() -> None:
    dumped = ProgressMemory().dump()
    assert dumped[-2] == -1
    with pytest.raises(ValueError, match="the last failure is -2"):
        ProgressMemory.load([*dumped[:-2], -2, dumped[-1]], most=9, remember=1)


def test_a_success_ends_the_row_of_failures() -> None:
    debt, act = RepeatedErrors(), AgentStep("bash", "make", "no rule")
    failed = Signal(ok=False, error="exit code 2", step=act)
    memory = debt.fold(debt.start(), failed, 0.0)
    assert memory.last == failure_of(failed)
    assert memory.failures == (facts_of(act).key ^ failure_of(failed),)
    assert debt.fold(memory, Signal(ok=True, step=act), 0.0).last == -1


def test_the_first_reply_changes_no_score() -> None:
    assert (
        IdleTalk().one(ProgressMemory(points=70), Signal(step=AgentStep("", "Done."))).points == 70
    )
