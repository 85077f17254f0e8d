"""What the progress presets detect as stuck, and what they must not stop.

Each is played on the preset `ledger`, by the real `step`.
"""

from collections.abc import Iterable
from typing import Any

import pytest

from switchgear._config import preset_policy
from switchgear._core.machine import step
from switchgear._core.policy import Policy
from switchgear._core.types import AgentStep, Circuit, Phase, Record, Signal
from switchgear._detectors.stagnation import ADVICE

LEDGER = preset_policy("ledger")


class Agent:
    """An agent whose steps are recorded in a separate circuit."""

    def __init__(self, policy: Policy = LEDGER, key: str = "agent/main") -> None:
        self.policy = policy
        self.circuit: Circuit = policy.start(key, 0.0)
        self.warned_at: int | None = None
        self.steps = 0

    def record(self, signal: Signal) -> Phase:
        self.steps += 1
        self.circuit = step(self.policy, self.circuit, Record(signal), float(self.steps)).circuit
        if self.circuit.phase is Phase.TRIPPING and self.warned_at is None:
            self.warned_at = self.steps
        return self.circuit.phase

    def does(
        self,
        args: str,
        result: str | None = "ok",
        thought: str | None = None,
        *,
        ok: bool = True,
        tool: str = "bash",
        **facts: Any,
    ) -> Phase:
        return self.record(
            Signal(ok=ok, step=AgentStep(tool, args, result, thought))._replace(**facts)
        )

    @property
    def why(self) -> str:
        return self.circuit.outage.reason


def stopped_at(agent: Agent, phases: Iterable[Phase]) -> int | None:
    """After how many steps it is stopped; `None`: never."""
    return next((agent.steps for phase in phases if phase is Phase.OPEN), None)


REWORDED = [
    "The test still fails, so I will look at the parser again to find the cause",
    "Since the test still fails, I look again at the parser to find its cause",
    "I will again look at the parser, the test still fails, to find the cause of it",
    "To find the cause, the parser must be looked at again: the test still fails",
    "Again the test fails still; I will look for the cause in the parser",
    "The cause must be in the parser: look at it again, the test still fails",
]

FILLERS = (
    *("now", "really", "perhaps", "indeed", "honestly", "maybe", "surely", "truly"),
    *("somehow", "clearly", "possibly", "simply", "finally", "frankly"),
)
"""So that no thought is ever told twice."""


def test_rewording_the_same_thought_does_not_hide_it() -> None:
    agent = Agent()
    phases = (
        agent.does(f"head -{n} parser.py", f"def parse_{n}():", f"{REWORDED[n % 6]} {word}")
        for n, word in enumerate((*FILLERS, *FILLERS))
    )
    stop = stopped_at(agent, phases)
    assert stop is not None
    assert "the same thought" in agent.why


def test_an_agent_that_thinks_something_new_each_time_continues() -> None:
    agent = Agent()
    thoughts = [
        "First I list what is in the repository",
        "The parser lives in its own package, open that",
        "Function tokenize drops quotes; is there a test for it?",
        "No coverage for quoting, so write one that fails",
        "It fails as expected: mend the state machine",
        "Green now, and the changelog deserves a line",
    ]
    for n, thought in enumerate(thoughts):
        assert agent.does(f"step {n}", f"result number {n} {thought[:9]}", thought) is Phase.CLOSED


def test_drifting_arguments_are_the_same_action() -> None:
    agent = Agent()
    phases = (agent.does(f"curl localhost:8080/health?try={n}", "bad gateway") for n in range(15))
    assert stopped_at(agent, phases) is not None
    assert "the same again" in agent.why


@pytest.mark.parametrize("period", [1, 2, 3, 5, 7])
def test_tools_that_take_turns_are_a_loop_of_any_length(period: int) -> None:
    agent = Agent()
    phases = (
        agent.does(f"look at part {'abcdefg'[n % period]}", f"part {'abcdefg'[n % period]}")
        for n in range(40)
    )
    assert stopped_at(agent, phases) is not None


def test_timestamps_in_the_output_are_not_new_information() -> None:
    agent = Agent()
    phases = (
        agent.does("make status", f"2026-11-15 12:{n:02}:07 waiting, {n}.25s gone, at 0x7f{n:02x}")
        for n in range(30)
    )
    assert stopped_at(agent, phases) is not None


def test_polling_with_changing_results_continues() -> None:
    agent = Agent()
    for n in range(60):
        assert agent.does("kubectl get job", f"12:00:{n:02} pods ready {n}/60") is Phase.CLOSED


def test_polling_without_changing_results_is_warned_and_stopped() -> None:
    agent = Agent()
    phases = (agent.does("kubectl get job", f"12:00:{n:02} pods ready 0/60") for n in range(30))
    stop = stopped_at(agent, phases)
    assert stop is not None
    assert agent.warned_at is not None
    assert agent.warned_at < stop


def test_batch_work_over_fifty_files_continues() -> None:
    agent = Agent()
    for n in range(50):
        assert agent.does(f"prettier --write src/part{n}.ts", "1 file formatted") is Phase.CLOSED


@pytest.mark.parametrize(
    "thought",
    [
        "Now let me update {}.py to use the new API.",
        "Next is src/{}.py, which still uses the old import of the API, so I replace it with the new one.",
    ],
)
def test_batch_work_continues_although_it_is_announced_in_the_same_words(thought: str) -> None:
    agent = Agent()
    for n in range(50):
        name = "".join(chr(97 + (n * 7 + part * 3) % 26) for part in range(5)) + "x" * (n // 26)
        edit = f"edit src/{name}.py from old import api; from new import api"
        done = agent.does(edit, f"src/{name}.py has been updated", thought=thought.format(name))
        assert done is Phase.CLOSED, f"after {n} files: {agent.why}"


def test_the_same_words_over_new_files_that_all_fail_are_stopped() -> None:
    agent = Agent()
    thought = "Now let me update this file to use the new API."
    phases = [
        agent.does(f"edit src/part{n}.py", "no such file", thought=thought, ok=False)
        for n in range(50)
    ]
    assert Phase.OPEN in phases


def test_reading_a_long_file_page_by_page_continues() -> None:
    agent = Agent()
    for n in range(50):
        page = "\n".join(f"    call({n * 20 + line})" for line in range(20))
        assert agent.does(f"sed -n {n * 20},{n * 20 + 19}p big.py", page) is Phase.CLOSED


def test_red_green_cycles_continue() -> None:
    agent = Agent()
    for n in range(20):
        name = "".join(chr(97 + (n * 7 + part) % 26) for part in range(5))
        failed = f"FAILED tests/test_{name}.py::test_{name}\nAssertionError: {name} is missing"
        assert agent.does(f"edit tests/test_{name}.py def test_{name}", "saved") is Phase.CLOSED
        assert agent.does("pytest", failed, ok=False, error=failed) is Phase.CLOSED
        assert agent.does(f"edit src/{name}.py def {name}", "saved") is Phase.CLOSED
        assert agent.does("pytest", f"{n + 1} passed in 0.{n}s") is Phase.CLOSED


def test_small_edits_that_keep_the_tests_green_continue() -> None:
    agent = Agent()
    for n in range(60):
        name = f"{chr(97 + n % 26)}{chr(97 + n // 26)}_value"
        edit = f'{{"file": "/src/parser.py", "old": "x = {name}", "new": "y = {name}"}}'
        assert agent.does(edit, "The file has been updated.", tool="Edit") is Phase.CLOSED
        assert agent.does("pytest -q", f"12 passed in 0.{n}s") is Phase.CLOSED


def test_the_same_command_failing_the_same_way_after_every_edit_is_stopped() -> None:
    agent = Agent()

    def phases() -> Iterable[Phase]:
        for n in range(12):
            name = "".join(chr(97 + (n * 5 + part) % 26) for part in range(4))
            yield agent.does(f"edit parser.py replace with {name}_{n} = {name}()", "saved")
            yield agent.does("pytest -q", "E assert 3 == 4\n1 failed", ok=False, error="1 failed")

    assert stopped_at(agent, phases()) is not None
    assert "failed in the same way" in agent.why


def test_the_same_tests_failing_after_every_change_of_the_files_cost_more() -> None:
    known, unknown = Agent(), Agent()
    for n in range(4):
        for agent in (known, unknown):
            facts: Any = {"state": f"tree {n}", "failing_tests": "test_a"}
            facts = facts if agent is known else {}
            agent.does(f"make check-{chr(97 + n)}", f"failure {n}", ok=False, error="boom", **facts)
    assert known.circuit.memories[0].points > unknown.circuit.memories[0].points


def test_a_changed_set_of_failing_tests_reduces_the_score() -> None:
    better, same = Agent(), Agent()
    for n in range(4):
        for agent in (better, same):
            tests = f"{4 - n} tests" if agent is better else "4 tests"
            agent.does("pytest", "failed", ok=False, error="failed", failing_tests=tests)
    assert better.circuit.memories[0].points < same.circuit.memories[0].points


def test_refactoring_while_all_tests_pass_costs_nothing() -> None:
    agent = Agent()
    for n in range(30):
        phase = agent.does("make test", "all passed", state=f"tree {n}", failing_tests="")
        assert phase is Phase.CLOSED


def test_one_deliberate_rollback_continues() -> None:
    agent = Agent()
    for state in ("clean", "first try", "clean", "second try", "done"):
        assert agent.does(f"git work towards {state}", f"now {state}", state=state) is Phase.CLOSED


def test_doing_and_undoing_the_same_edit_is_stopped() -> None:
    agent = Agent()
    phases = (
        agent.does(
            f"edit a.py {'add' if n % 2 else 'drop'} the cache, attempt {n}",
            f"saved attempt {n}",
            state="with" if n % 2 else "without",
        )
        for n in range(40)
    )
    assert stopped_at(agent, phases) is not None


def test_a_new_state_of_the_files_reduces_the_score_of_polling() -> None:
    agent = Agent()
    for _ in range(5):
        agent.does("git status", "clean", state="one")
    before = agent.circuit.memories[0].points
    agent.does("git status", "clean", state="two")
    assert agent.circuit.memories[0].points < before  # seen again, but the files are new


def test_a_long_silent_build_is_one_step_among_others() -> None:
    agent = Agent()
    for name in ("core", "stores", "guards", "console", "docs"):
        assert agent.does(f"make {name}", "", seconds=1800.0) is Phase.CLOSED


def test_sub_agents_have_their_own_progress_scores() -> None:
    agents = [Agent(key=f"agent/sub-{n}") for n in range(12)]
    for agent in agents:
        for command in ("git status", "ls", "cat README.md"):
            assert (
                agent.does(command, f"as always: {command}", "I look around first") is Phase.CLOSED
            )
    assert {agent.circuit.heat for agent in agents} == {agents[0].circuit.heat}


def test_after_a_compaction_reading_again_costs_nothing() -> None:
    agent, forgetful = Agent(), Agent()
    files = [f"cat {name}.py" for name in ("alpha", "beta", "gamma", "delta", "omega", "sigma")]
    for one in (agent, forgetful):
        for command in files:
            one.does(command, f"contents of {command}", context_used=0.9)
        for n, command in enumerate(files):
            used = 0.2 + n / 100 if one is forgetful else 0.9 + n / 100
            one.does(command, f"contents of {command}", context_used=used)
    assert agent.circuit.memories[0].points > 200
    assert forgetful.circuit.memories[0].points == 0


def test_a_compaction_does_not_free_an_agent_that_continues_looping() -> None:
    agent = Agent()
    phases = (
        agent.does("make", "no rule", ok=False, error="no rule", context_used=(n % 5) / 5)
        for n in range(30)
    )
    assert stopped_at(agent, phases) is not None


def test_the_same_reply_without_acting_is_stopped() -> None:
    agent = Agent()
    phases = (
        agent.record(
            Signal(step=AgentStep("", thought="I have finished the task, is there anything else?"))
        )
        for _ in range(9)
    )
    assert stopped_at(agent, phases) is not None
    assert "no tool call, the same reply" in agent.why


def test_a_tool_call_reduces_the_score_of_talking() -> None:
    agent = Agent()
    for n in range(20):
        agent.record(Signal(step=AgentStep("", thought="I have finished the task, anything else?")))
        phase = agent.does(f"look at {chr(97 + n)}.txt", f"text of {chr(97 + n)}")
        assert phase is not Phase.OPEN


def test_an_agent_without_thoughts_is_evaluated_by_its_actions() -> None:
    agent = Agent()
    phases = (
        agent.does('{"path": "a.py", "old": "x"}', "no match for x", tool="replace", ok=False)
        for _ in range(20)
    )
    stop = stopped_at(agent, phases)
    assert stop is not None
    assert stop <= 7


def test_a_warning_comes_before_the_stop_and_names_the_steps_and_what_to_do() -> None:
    agent = Agent()
    thought = "I list the files again to see what may have changed there"
    while agent.does("ls", "a.py", thought) is Phase.CLOSED:
        pass
    assert agent.circuit.phase is Phase.TRIPPING
    assert 'the same thought: "I list the files again to see what may have changed' in agent.why
    assert 'the same again: "bash ls"' in agent.why
    assert agent.why.rpartition("; ")[2] in ADVICE


def test_text_of_an_agent_cannot_control_a_terminal() -> None:
    agent = Agent()
    thought = "I do it \x1b[2J\u202eagain\nand again and again"
    while agent.does("ls", "a.py", thought) is not Phase.OPEN:
        pass
    assert "\x1b" not in agent.why
    assert "\u202e" not in agent.why
    assert "\n" not in agent.why


def test_a_stopped_agent_stays_stopped() -> None:
    agent = Agent()
    while agent.does("ls", "a.py") is not Phase.OPEN:
        pass
    assert agent.circuit.outage.retry_at_s is None
