"""The six patterns of stuck runs, each together with similar work that continues."""

import pytest

from switchgear import AgentStep, Signal
from switchgear.config import preset_policy
from switchgear.detectors import Stagnation

WORDS = [f"{a}{b}{c}" for a in "bcdfg" for b in "aeiou" for c in "klmnp"]
RETHINKS = (
    "The parser still rejects the header, so the length field must be read in the wrong order here.",
    "Since the parser still rejects the header, the length field must be read in the wrong order.",
    "The length field must be read in the wrong order here, as the parser still rejects the header.",
)


def step(
    tool: str, args: str, result: str | None = None, thought: str = "", *, ok: bool = True
) -> Signal:
    return Signal(ok=ok, step=AgentStep(tool, args, result, thought or None))


def new_thought(n: int) -> str:
    """A thought of twelve words that no other one has."""
    return " ".join(f"{WORDS[n]}{word}" for word in WORDS[:12])


def heat(steps: list[Signal]) -> float:
    """The highest heat over these steps, with the limit of the preset `default`."""
    [detector] = preset_policy("default").detectors
    assert isinstance(detector, Stagnation)
    memory, hottest = detector.start(), 0.0
    for each in steps:
        memory = detector.fold(memory, each, 0.0)
        hottest = max(hottest, detector.heat(memory, 0.0))
    return hottest


# 1. Turns without a tool call.


@pytest.mark.parametrize("reply", ["Please go on.", "No tool call found.\nUse exactly one tool."])
def test_turns_without_a_tool_call_that_get_one_reply_are_stopped(reply: str) -> None:
    assert heat([step("", f"I plan {word}", reply) for word in WORDS[:8]]) >= 1


def test_turns_without_a_tool_call_whose_reply_only_counts_them_are_stopped() -> None:
    steps = [
        step("", f"I plan {word}", f"No tool was called: attempt {n} of 10.")
        for n, word in enumerate(WORDS[:8])
    ]
    assert heat(steps) >= 1


def test_turns_without_a_tool_call_that_get_new_replies_continue() -> None:
    assert heat([step("", f"I ask for {word}", f"It is {word}") for word in WORDS]) < 0.7


def test_a_reply_between_tool_calls_that_work_continues() -> None:
    steps = []
    for word in WORDS:
        steps.append(step("", f"Next is {word}", "Please go on."))
        steps += [step("read", f"src/{word}{n}.py", f"def {word}{n}") for n in "ab"]
    assert heat(steps) < 1


# 2. Edit, check, same outcome.


@pytest.mark.parametrize("outcome", ["E assert 3 == 4\n1 failed in 0.{n} s", "error: x.c:7: no y"])
def test_an_edit_and_the_same_failure_in_turn_are_stopped(outcome: str) -> None:
    steps = []
    for n, word in enumerate(WORDS[:15]):
        steps.append(step("edit", f"a.py return {word}", "saved"))
        steps.append(step("bash", "make check", outcome.replace("{n}", str(n)), ok=False))
    assert heat(steps) >= 1


def test_an_edit_and_another_failure_in_turn_continue() -> None:
    steps = []
    for word in WORDS:
        steps.append(step("edit", f"a.py return {word}", "saved"))
        steps.append(step("bash", "make check", f"E {word} is not defined", ok=False))
    assert heat(steps) < 0.7


def test_a_failure_count_that_falls_continues() -> None:
    steps = []
    for n, word in enumerate(WORDS[:30]):
        steps.append(step("edit", f"a.py return {word}", "saved"))
        steps.append(step("bash", "make check", f"{30 - n} failed, {n} passed", ok=n == 29))
    assert heat(steps) < 0.7


def test_red_and_green_in_turn_continue() -> None:
    steps = []
    for n, word in enumerate(WORDS[:30]):
        steps.append(step("edit", f"test_a.py assert {word}", "saved"))
        steps.append(step("bash", "pytest", f"E {word}\n1 failed", ok=False))
        steps.append(step("edit", f"a.py def {word}: return {WORDS[n + 40]}", "saved"))
        steps.append(step("bash", "pytest", "all passed"))
    assert heat(steps) < 0.7


def test_red_and_green_in_turn_continue_without_a_new_word_if_the_failing_tests_are_known() -> None:
    steps = []
    for word in WORDS[:30]:
        red = step("bash", "pytest", f"E {word}\n1 failed", ok=False)
        steps.append(step("edit", f"test_a.py assert {word}", "saved"))
        steps.append(red._replace(failing_tests=word))
        steps.append(step("edit", f"a.py def {word}", "saved"))
        steps.append(step("bash", "pytest", "all passed"))
    assert heat(steps) < 0.7


# 3. Files that the agent itself created.


def trained(metric: list[float]) -> list[Signal]:
    """One new script after another, and the metric of each."""
    steps = []
    for n, value in enumerate(metric):
        name = f"train_{WORDS[n]}.py"
        steps.append(step("create", f"{name} model = {WORDS[n]}", "saved", RETHINKS[0]))
        steps.append(step("bash", f"python {name}", f"accuracy {value:.2f}", RETHINKS[1]))
    return steps


def test_new_scripts_whose_metric_goes_up_and_down_are_stopped() -> None:
    assert heat(trained([0.39, 0.43, 0.42, 0.32, 0.37, 0.41, 0.36, 0.42, 0.40])) >= 1


def test_new_scripts_reduce_nothing_while_a_metric_goes_up_and_down() -> None:
    values = [0.39, 0.43, 0.42, 0.40, 0.41, 0.42]
    flat, grows = heat(trained(values)), heat(trained([0.3 + 0.05 * n for n in range(6)]))
    assert flat > grows + 0.3


def edited(values: list[float]) -> list[Signal]:
    """Edits of one script, each followed by its metric, without a thought."""
    steps = []
    for n, value in enumerate(values):
        steps.append(step("edit", f"train.py {WORDS[n]}", "saved"))
        steps.append(step("bash", "python train.py", f"accuracy {value:.2f}"))
    return steps


def test_edits_that_move_a_metric_up_and_down_are_stopped() -> None:
    assert heat(edited([0.39 + 0.01 * (n % 4) for n in range(30)])) >= 1


def test_edits_that_raise_a_metric_continue() -> None:
    assert heat(edited([0.30 + 0.02 * n for n in range(30)])) < 0.7


def test_new_scripts_whose_metric_grows_continue() -> None:
    steps = []
    for n, each in enumerate(trained([0.30 + 0.02 * n for n in range(30)])):
        assert each.step is not None
        steps.append(each._replace(step=each.step._replace(thought=new_thought(n))))
    assert heat(steps) < 0.7


def test_new_files_of_a_growing_project_continue() -> None:
    steps = []
    for n, word in enumerate(WORDS):
        steps.append(step("create", f"src/{word}.py def {word}", "saved", new_thought(n)))
        steps.append(step("bash", "pytest", f"{n + 1} passed", new_thought(n) + " check"))
    assert heat(steps) < 1


# 4. The same lines read again.


def test_line_ranges_that_are_read_again_are_stopped() -> None:
    ranges = [("1,40", "import a\nx = 1"), ("40,80", "def f():\n    y = 2"), ("80,99", "z = 3")]
    rounds = [step("bash", f"sed -n {r}p a.py", text) for r, text in ranges]
    assert heat(rounds * 6) >= 1


def test_line_ranges_read_again_with_the_same_thoughts_are_stopped_sooner() -> None:
    ranges = [("1,40", "import a\nx = 1"), ("40,80", "def f():\n    y = 2"), ("80,99", "z = 3")]
    rounds = [
        step("bash", f"sed -n {r}p a.py", text, RETHINKS[n]) for n, (r, text) in enumerate(ranges)
    ]
    assert heat(rounds * 3) >= 1


def test_a_new_search_between_the_same_reads_and_thoughts_pays_for_little() -> None:
    steps = []
    for n, word in enumerate(WORDS[:15]):
        steps.append(step("bash", "sed -n 1,40p a.py", "import a\nx = 1", RETHINKS[n % 3]))
        steps.append(step("bash", f"grep {word}", "", RETHINKS[(n + 1) % 3]))
    assert heat(steps) >= 1


def test_a_long_file_read_range_by_range_continues() -> None:
    steps = [
        step("bash", f"sed -n {40 * n},{40 * n + 39}p a.py", f"def {word}():\n    {word} = {n}")
        for n, word in enumerate(WORDS)
    ]
    assert heat(steps) < 0.7


def test_searches_with_new_finds_continue() -> None:
    steps = [step("grep", word, f"src/{word}.py:1: {word}") for word in WORDS]
    assert heat(steps) < 0.7


def test_a_cycle_of_reads_longer_than_the_last_steps_is_stopped() -> None:
    steps = [step("read", f"src/{word}.py", f"def {word}") for word in WORDS[:10]]
    assert heat(steps) == 0
    assert heat(steps * 5) >= 0.7  # warns
    assert heat(steps * 7) >= 1


def test_reading_many_files_once_more_after_each_has_changed_continues() -> None:
    steps = [
        step("read", f"src/{word}.py", f"def {word}: return {turn}")
        for turn in range(5)
        for word in WORDS[:10]
    ]
    assert heat(steps) < 0.7


# 5. Refusals, timeouts, numbers as texts, prose that hardly differs.


@pytest.mark.parametrize(
    "reply", ["already done", "The file already exists.", "Permission denied", "Invalid request: 1"]
)
def test_a_repeated_refusal_without_an_error_is_stopped(reply: str) -> None:
    pairs = ({"id": 22}, {"id": "22"})
    assert heat([step("book", str(pairs[n % 2]), reply) for n in range(9)]) >= 1


@pytest.mark.parametrize("duration", ["{} s", "{}m 0.0s", "{}m30s"])
def test_commands_that_all_time_out_are_stopped(duration: str) -> None:
    steps = [
        step("bash", f"./{word}", f"timed out after {duration.format(n)}", ok=False)
        for n, word in enumerate(WORDS[:20])
    ]
    assert heat(steps) >= 1


def test_arguments_in_nearly_the_same_prose_are_stopped() -> None:
    asked = "Ask the planner how the {} failing import of the settings can be repaired at last"
    steps = [
        step("ask", asked.format(("old", "same", "old")[n % 3]), "I do not know.")
        for n in range(24)
    ]
    assert heat(steps) >= 1


def test_success_after_twelve_refusals_that_each_led_to_another_try_continues() -> None:
    steps = [
        step("bash", f"{word} a.py", "Permission denied", new_thought(n), ok=False)
        for n, word in enumerate(WORDS[:12])
    ]
    assert heat([*steps, step("bash", "sudo make", "built", new_thought(20))]) < 1


@pytest.mark.parametrize(("thinks_anew", "is_stopped"), [(True, False), (False, True)])
def test_refusals_of_commands_in_other_orders_continue_while_the_reason_is_new(
    *, thinks_anew: bool, is_stopped: bool
) -> None:
    words = ["sed", "python", "echo", "insert", "write", "lines"]
    steps = [
        step(
            "bash",
            " ".join((*words[n % 6 :], *words[: n % 6], *words[: n // 6])),
            f"Send one action, found {2 + n % 3}.",
            new_thought(n if thinks_anew else n % 2),
            ok=False,
        )
        for n in range(14)
    ]
    assert (heat(steps) >= 1) is is_stopped


def test_twelve_refusals_with_the_same_thought_are_stopped() -> None:
    steps = [
        step("bash", f"{word} a.py", "Permission denied", RETHINKS[n % 3], ok=False)
        for n, word in enumerate(WORDS[:12])
    ]
    assert heat(steps) >= 1


def test_a_tool_that_refuses_to_overwrite_continues() -> None:
    steps = []
    for n, word in enumerate(WORDS[:20]):
        steps.append(step("create", f"a.py {word}", f"a.py exists: {word}", ok=False))
        steps.append(step("bash", f"rm a.py && echo {word}", word))
        steps.append(step("create", f"a.py {word} {WORDS[n + 30]}", f"created {word}"))
        steps.append(step("bash", "python a.py", f"{word} is the output"))
    assert heat(steps) < 0.7


def test_a_batch_with_uniform_rounds_continues() -> None:
    steps = []
    for word in WORDS:
        steps.append(step("read", f"src/{word}.py", f"def {word}"))
        steps.append(step("edit", f"src/{word}.py {word}_new", "saved"))
        steps.append(step("bash", f"pytest src/{word}.py", "1 passed"))
    assert heat(steps) < 0.7


# 6. No sign at all: work that a small limit ended.


def test_work_without_signs_of_stagnation_continues() -> None:
    steps = [
        step("bash", f"{word} --show src/{word}.c", f"{word}: line {n}", new_thought(n))
        for n, word in enumerate(WORDS)
    ]
    assert heat(steps) == 0


# 7. What a change of the arithmetic must keep.


@pytest.mark.parametrize("rounds_each", [2, 3])
def test_a_failure_count_that_falls_only_sometimes_continues(rounds_each: int) -> None:
    steps = []
    for n, word in enumerate(WORDS[:60]):
        left = 40 - n // rounds_each
        steps.append(step("edit", f"a.py return {word}", "saved"))
        steps.append(step("bash", "make check", f"{left} failed", ok=False))
    assert heat(steps) < 0.7


def test_a_failure_count_that_goes_up_and_down_is_stopped() -> None:
    steps = []
    for n, word in enumerate(WORDS[:30]):
        steps.append(step("edit", f"a.py return {word}", "saved"))
        steps.append(step("bash", "make check", f"{7 + n % 3} failed", ok=False))
    assert heat(steps) >= 1


def test_a_tool_that_refuses_to_overwrite_with_one_text_continues() -> None:
    steps = []
    for n, word in enumerate(WORDS[:20]):
        steps.append(step("create", f"a.py {word}", "the file exists", ok=False))
        steps.append(step("bash", f"rm a.py && echo {word}", word))
        steps.append(step("create", f"a.py {word} {WORDS[n + 30]}", "created"))
        steps.append(step("bash", "python a.py", f"{word} is the output"))
    assert heat(steps) < 0.7


def test_a_tool_that_refuses_the_same_call_with_one_text_is_stopped() -> None:
    steps = []
    for word in WORDS[:12]:
        steps.append(step("create", "a.py x = 1", "the file exists", ok=False))
        steps.append(step("bash", f"grep {word} b.py", word))
    assert heat(steps) >= 1


def test_twenty_five_searches_that_find_nothing_are_stopped() -> None:
    assert heat([step("grep", word, "") for word in WORDS[:25]]) >= 1


def test_twelve_searches_that_find_nothing_continue() -> None:
    assert heat([step("grep", word, "") for word in WORDS[:12]]) < 0.7


def test_searches_that_sometimes_find_nothing_continue() -> None:
    steps = [step("grep", word, f"{word}: 1" if n % 3 else "") for n, word in enumerate(WORDS)]
    assert heat(steps) < 0.7


def test_ten_refusals_of_different_commands_without_a_thought_continue() -> None:
    steps = [step("bash", f"{word} a.py", "Permission denied", ok=False) for word in WORDS[:10]]
    assert heat(steps) < 1


# 8. Calls of one turn have one thought.


@pytest.mark.parametrize("numbers", [False, True], ids=["patterns", "line ranges"])
def test_parallel_calls_of_one_turn_continue(numbers: bool) -> None:
    steps = []
    for turn in range(4):
        for n in range(12):
            word = WORDS[12 * turn + n]
            call = f"a.py {40 * (12 * turn + n)}" if numbers else word
            steps.append(step("look", call, f"{word} = {word}", new_thought(turn)))
    assert heat(steps) < 0.7


def test_the_same_thought_before_calls_that_fail_is_stopped() -> None:
    steps = [
        step("bash", f"run {word}", f"{word} is missing", RETHINKS[0], ok=False)
        for word in WORDS[:12]
    ]
    assert heat(steps) >= 1


def test_the_same_thought_before_the_same_call_is_stopped() -> None:
    steps = [step("bash", "date", f"it is {word}", RETHINKS[0]) for word in WORDS[:12]]
    assert heat(steps) >= 1


# 9. A line that every action returns says nothing about one of them.


def pieces(count: int, start: str, reply: str) -> list[Signal]:
    """Different actions of few words that all return one line."""
    steps = [step("act", " ".join(WORDS[:7]), "ready")]
    for n in range(count):
        chosen = [word for at, word in enumerate(WORDS[:7]) if (n * 37 + 11) % 127 >> at & 1]
        steps.append(step("act", f"{start} {' '.join(chosen)}", reply))
    return steps


@pytest.mark.parametrize("reply", ["[rc 0]", '{"ok": true}', "[screenshot]"])
def test_different_actions_that_return_one_line_continue(reply: str) -> None:
    assert heat(pieces(60, "echo to fix.py:", reply)) < 0.7


def test_different_actions_that_return_the_same_lines_are_stopped() -> None:
    assert heat(pieces(30, "click", "Cart\n2 items\nPay")) >= 1


def test_actions_that_differ_in_their_numbers_and_return_one_line_are_stopped() -> None:
    steps = [
        step("computer", f"action click {400 + 7 * n % 20} {300 + 3 * n % 20}", "[screenshot]")
        for n in range(30)
    ]
    assert heat(steps) >= 1


def test_different_actions_repeated_with_other_numbers_and_one_line_are_stopped() -> None:
    verbs = ("click", "scroll", "drag", "move")
    steps = [
        step("computer", f"please {verbs[n % 4]} the main window at {400 + 7 * n} now", "[image]")
        for n in range(40)
    ]
    assert heat(steps) >= 1


def test_the_same_actions_that_return_one_line_are_stopped() -> None:
    steps = [step("bash", f"touch {WORDS[n % 4]}", "[rc 0]") for n in range(30)]
    assert heat(steps) >= 1


# 10. The same check in other words.


def checks_after_edits(outcome: str, *, edits: bool = True) -> list[Signal]:
    """Edits with new thoughts, each followed by nearly the same failing command."""
    steps = []
    for n in range(30):
        command = f"cd /repo && python -m pytest tests/test_parser.py -x -q 2>&1 | tail -{10 + n}"
        if edits:
            steps.append(step("edit", f"a.py return {WORDS[n]}", "saved", new_thought(2 * n)))
        result = outcome.replace("WORD", WORDS[n + 40])
        steps.append(step("bash", command, result, new_thought(2 * n + 1), ok=False))
    return steps


def test_edits_and_the_same_failure_of_nearly_the_same_command_are_stopped() -> None:
    assert heat(checks_after_edits("E assert 3 == 4\n1 failed")) >= 1


def test_edits_and_another_failure_of_nearly_the_same_command_continue() -> None:
    assert heat(checks_after_edits("E WORD is not defined\n1 failed")) < 0.7


def test_nearly_the_same_refused_command_without_a_change_continues_while_the_reason_is_new() -> (
    None
):
    assert heat(checks_after_edits("Send one action.", edits=False)[:9]) < 0.7


def test_a_warning_comes_before_every_stop() -> None:
    [detector] = preset_policy("default").detectors
    for ok in (True, False):
        memory, before = detector.start(), 0.0
        for n in range(12):
            each = step("bash", "make", "E 1", RETHINKS[0], ok=ok)
            memory = detector.fold(memory, each, 0.0)
            heat_now = detector.heat(memory, 0.0)
            assert heat_now < 1 or before >= 0.7, n
            before = heat_now
        assert before >= 1
