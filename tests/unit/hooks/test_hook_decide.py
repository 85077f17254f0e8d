"""Hook events become messages to circuits, and verdicts become rulings."""

from pathlib import Path
from typing import Any

import pytest

from switchgear._agents.hook_protocol import HookFacts, Moment
from switchgear._agents.registry import dialect_of
from switchgear._core.types import Mode, Override
from switchgear._hooks.decide import decide
from switchgear._hooks.open_calls import load
from switchgear._hooks.session import Notes
from unit.hook_calls import Guarded, after, batch, before, claude, failed

PUSH = {"command": "git push"}
CIRCUITS = "circuits:\n  - {match: 'session/*', policy: {detectors: [{consecutive_failures: {threshold: 3}}], recovery: latched, tripping_at: 0.6}}\n"


@pytest.fixture
def agent(tmp_path: Path) -> Guarded:
    return Guarded(tmp_path)


# Operations


def test_an_outcome_is_recorded_on_its_operation_and_its_session(agent: Guarded) -> None:
    assert agent.call("Bash", PUSH).action == "allow"
    assert agent.totals("op/git_operations").succeeded == 1
    assert agent.totals("session/s1").succeeded == 1


def test_three_failures_of_git_open_git_and_nothing_else(agent: Guarded) -> None:
    for number in range(3):
        agent.call("Bash", PUSH, f"t{number}", error=f"Exit code 1\nrejected {number}")
    refused = agent.hear(before("Bash", {"command": "cd x && git fetch"}, "t4"))
    assert refused.action == "deny"
    assert "circuit 'op/git_operations' is open: 3 failures in 60 s" in refused.text
    assert "retries in" in refused.text
    assert agent.call("Bash", {"command": "make"}, "t5").action == "allow"
    assert agent.call("Edit", {"file_path": "a.py"}, "t6").action == "allow"


def test_a_refused_call_is_not_open_and_counts_as_refused(agent: Guarded) -> None:
    for number in range(3):
        agent.call("Bash", PUSH, f"t{number}", error=f"Exit code 1\nrejected {number}")
    agent.hear(before("Bash", PUSH, "t4"))
    assert agent.totals("op/git_operations").refused == 1
    late = agent.hear(after("Bash", PUSH, "t4"))
    assert late.action == "allow"


def test_one_probe_decides_about_git_and_closes_it(agent: Guarded) -> None:
    for number in range(3):
        agent.call("Bash", PUSH, f"t{number}", error=f"Exit code 1\nrejected {number}")
    agent.clock.advance(31.0)
    assert agent.hear(before("Bash", PUSH, "p1")).action == "allow"
    assert agent.hear(before("Bash", PUSH, "p2")).action == "deny", "one probe at a time"
    agent.hear(after("Bash", PUSH, "p1"))
    assert agent.phase("op/git_operations") == "closed"


PROBING = (
    "hooks: {story: S-1}\n"
    "circuits:\n"
    "  - match: '[s]*'\n"
    "    policy: {detectors: [{consecutive_failures: {threshold: 1}}], recovery: {cooldown: {base_s: 9}}}\n"
)


def probes(agent: Guarded, key: str) -> int:
    found = agent.store.get(key)
    assert found is not None
    return len(found.circuit.probing.permits)


def hold(agent: Guarded, key: str, mode: Mode = Mode.HELD_OPEN) -> None:
    order = Override("ada", "wait", mode=mode)
    agent.store.apply(key, agent.known.policy_for(key), order, agent.clock())


def test_permits_are_returned_when_another_circuit_refuses(tmp_path: Path) -> None:
    agent = Guarded(tmp_path, PROBING)
    agent.call("Bash", PUSH, "t1", error="Exit code 1\nrejected")
    assert (agent.phase("story/S-1"), agent.phase("session/s1")) == ("open", "open")
    hold(agent, "op/git_operations")
    agent.clock.advance(10.0)
    assert agent.hear(before("Bash", PUSH, "t2")).action == "deny"
    assert (probes(agent, "story/S-1"), probes(agent, "session/s1")) == (0, 0)
    hold(agent, "op/git_operations", Mode.AUTO)
    assert agent.hear(before("Bash", PUSH, "t3")).action == "allow"
    assert (probes(agent, "story/S-1"), probes(agent, "session/s1")) == (1, 1)
    agent.hear(after("Bash", PUSH, "t3"))
    assert (agent.phase("story/S-1"), agent.phase("session/s1")) == ("closed", "closed")


def test_parallel_tools_are_one_probe_of_their_session(tmp_path: Path) -> None:
    agent = Guarded(tmp_path, PROBING.replace("story: S-1", "lease_s: 500"))
    agent.call("Bash", PUSH, "t1", error="Exit code 1\nrejected")
    agent.clock.advance(10.0)
    for number in range(3):
        assert (
            agent.hear(before("Read", {"file_path": f"{number}"}, f"r{number}")).action == "allow"
        )
    assert probes(agent, "session/s1") == 1
    assert agent.totals("session/s1").refused == 0
    for number in range(3):
        agent.hear(after("Read", {"file_path": f"{number}"}, f"r{number}"))
    assert agent.phase("session/s1") == "closed"


def test_the_end_of_a_turn_returns_probes(tmp_path: Path) -> None:
    agent = Guarded(tmp_path, PROBING)
    agent.call("Bash", PUSH, "t1", error="Exit code 1\nrejected")
    agent.clock.advance(10.0)
    agent.hear(before("Bash", PUSH, "lost"))
    assert probes(agent, "story/S-1") == 1
    agent.hear(claude("Stop"))
    assert (probes(agent, "story/S-1"), probes(agent, "session/s1")) == (0, 0)


def test_a_task_circuit_that_refuses_stops_the_agent(tmp_path: Path) -> None:
    agent = Guarded(tmp_path, PROBING)
    hold(agent, "story/S-1")
    refused = agent.hear(before("Bash", PUSH, "t9"))
    assert refused.action == "stop"
    assert (
        "circuit 'story/S-1' is held open by ada: wait; an operator has to release it"
        in refused.text
    )
    assert agent.store.get("op/git_operations") is None, "the story was asked first"


def test_a_non_zero_exit_is_not_a_failure_of_the_shell(agent: Guarded) -> None:
    for number in range(5):
        agent.call("Bash", {"command": "pytest"}, f"t{number}", error=f"Exit code 1\ntest_{number}")
    assert agent.phase("op/shell") == "closed"
    assert agent.totals("op/shell").failed == 0
    agent.call("Bash", {"command": "sleep 900"}, "t9", error="Command timed out after 600 s")
    assert agent.totals("op/shell").failed == 1


# Sessions


def test_a_session_that_stays_open_is_stopped_with_the_reason(tmp_path: Path) -> None:
    agent = Guarded(tmp_path, CIRCUITS)
    warned = [agent.call(call=f"t{n}", error=f"Exit code 1\nx{n}") for n in range(3)]
    assert [ruling.action for ruling in warned[:2]] == ["allow", "warn"]
    stopped = agent.hear(before(call="t9"))
    assert stopped.action == "stop"
    assert stopped.whole
    assert "circuit 'session/s1' is open: 3 failures in a row" in stopped.text
    assert "an operator has to release it" in stopped.text
    other = agent.hear({**before(call="t1"), "session_id": "s2"})
    assert other.action == "allow", "another session is another circuit"


def test_a_warning_is_given_once_per_rise(tmp_path: Path) -> None:
    many = CIRCUITS.replace("threshold: 3", "threshold: 5").replace("0.6", "0.3")
    agent = Guarded(tmp_path, many)
    said = [agent.call(call=f"t{n}", error=f"Exit code 1\nx{n}").action for n in range(3)]
    assert said == ["allow", "warn", "warn"]
    calm = agent.hear(before(call="t7"))
    assert calm.action == "allow", "nothing has risen since"


def test_a_warning_waits_for_an_event_that_carries_it(tmp_path: Path) -> None:
    agent = Guarded(tmp_path, CIRCUITS, agent="codex")
    for number in range(2):
        agent.hear(before(call=f"t{number}"))
        told = agent.hear(after(call=f"t{number}", result=f"Process exited with code 1\nx{number}"))
        assert told.action == "allow"
    warned = agent.hear(before(call="t9"))
    assert warned.action == "warn"
    assert "2 failures in a row" in warned.text


def test_a_loop_of_failing_calls_is_nudged_and_then_stopped(agent: Guarded) -> None:
    rulings = []
    for number in range(14):
        rulings.append(agent.call("Bash", {"command": "false"}, f"t{number}", error="Exit code 1"))
        if rulings[-1].action == "stop":
            break
        agent.clock.advance(2.0)
    actions = [ruling.action for ruling in rulings]
    assert actions[3] == "warn"
    assert "AGENT APPEARS STUCK" in rulings[3].text
    assert actions[-1] == "stop"
    assert "exit code 1 of false" in rulings[-1].text
    assert agent.phase("op/shell") == "closed"


def test_a_new_prompt_lets_a_stopped_session_continue(agent: Guarded) -> None:
    for number in range(14):
        agent.call("Bash", {"command": "false"}, f"t{number}", error="Exit code 1")
        agent.clock.advance(2.0)
    assert agent.hear(before(call="u1")).action == "stop"
    note = agent.store.transact("session/s1", lambda tx: tx.note)
    assert load(Notes.load(note).more).calls == (), "what was refused is not under way"
    agent.hear(claude("UserPromptSubmit", prompt="try the other way"))
    agent.clock.advance(2.0)
    assert agent.hear(before(call="u2")).action != "stop"


def test_a_hint_that_no_event_could_carry_comes_before_the_next_call(tmp_path: Path) -> None:
    agent = Guarded(tmp_path, agent="codex")
    for number in range(4):
        agent.clock.advance(5.0)
        agent.hear(before(call=f"t{number}"))
        told = agent.hear(after(call=f"t{number}", result="Process exited with code 1"))
        assert told.action == "allow"
    hinted = decide(
        agent.facts(before(call="t9")), agent.known, agent.store, dialect_of("codex").warns
    )
    assert hinted.action == "warn"
    assert "AGENT APPEARS STUCK" in hinted.text
    assert "Try a different approach." in hinted.text


# Sub-agents


def test_a_sub_agent_has_its_own_circuit(agent: Guarded) -> None:
    agent.hear(before("Task", {"prompt": "look"}, "p1"))
    agent.hear(before("Read", {"file_path": "a"}, "c1", agent_id="a1"))
    agent.hear(after("Read", {"file_path": "a"}, "c1", agent_id="a1"))
    assert agent.totals("session/s1/agent/a1").succeeded == 1
    assert agent.totals("session/s1").succeeded == 0, "its parent's step is still under way"
    agent.hear(claude("SubagentStop", agent_id="a1"))
    agent.hear(after("Task", {"prompt": "look"}, "p1"))
    assert agent.totals("session/s1").succeeded == 1
    assert agent.totals("op/agent_spawn").succeeded == 1


def test_an_open_parent_refuses_its_sub_agents(tmp_path: Path) -> None:
    agent = Guarded(tmp_path, CIRCUITS)
    for number in range(3):
        agent.call(call=f"t{number}", error=f"Exit code 1\nx{number}")
    refused = agent.hear(before(call="c1", agent_id="a1"))
    assert refused.action == "stop"
    assert "circuit 'session/s1' is open" in refused.text


def test_a_stuck_sub_agent_is_stopped_alone(tmp_path: Path) -> None:
    agent = Guarded(tmp_path, CIRCUITS)
    for number in range(3):
        agent.hear(before(call=f"c{number}", agent_id="a1"))
        agent.hear(failed(call=f"c{number}", error=f"Exit code 1\nx{number}", agent_id="a1"))
    refused = agent.hear(before(call="c9", agent_id="a1"))
    assert (refused.action, refused.whole) == ("stop", False)
    assert agent.call(call="t1").action == "allow", "its parent goes on"


def test_a_stuck_sub_agent_reads_the_evidence_and_whom_to_report_to(agent: Guarded) -> None:
    for number in range(6):
        agent.hear(before(call=f"c{number}", agent_id="a1"))
        agent.hear(failed(call=f"c{number}", error="Exit code 1\nno such file", agent_id="a1"))
    refused = agent.hear(before(call="c9", agent_id="a1"))
    assert (refused.action, refused.whole) == ("stop", False)
    assert "Agent: claude-code (sub-agent a1)\nStuck score: 60/100\n" in refused.text
    assert "the same error 4 times in a row" in refused.text
    assert "This sub-agent is stopped. Do not call any more tools: report" in refused.text


# Steps


def test_parallel_tools_are_one_step(agent: Guarded) -> None:
    for number in range(5):
        agent.hear(before("Read", {"file_path": f"{number}"}, f"r{number}"))
    for number in range(5):
        agent.hear(after("Read", {"file_path": f"{number}"}, f"r{number}"))
    assert agent.totals("session/s1").succeeded == 1
    assert agent.totals("op/file_read").succeeded == 5


def test_a_step_with_a_failure_has_failed_with_its_error(agent: Guarded) -> None:
    agent.hear(before(call="a"))
    agent.hear(before(call="b"))
    agent.hear(after(call="a"))
    agent.hear(failed(call="b", error="Exit code 1\nno such file"))
    found = agent.store.get("session/s1")
    assert found is not None
    assert found.circuit.totals.failed == 1
    assert found.circuit.failures[0].error == "exit code 1: no such file"


def test_where_an_agent_reports_batches_one_batch_is_one_step(agent: Guarded) -> None:
    agent.call("Read", {"file_path": "x"}, "x1")
    agent.hear(batch(("Read", {"file_path": "x"}, "x1")))
    told = agent.totals("session/s1").succeeded
    for number in range(3):  # one after the other, in one answer of the model
        agent.call("Edit", {"file_path": f"{number}"}, f"e{number}")
    assert agent.totals("session/s1").succeeded == told
    agent.hear(batch(*(("Edit", {"file_path": f"{n}"}, f"e{n}") for n in range(3))))
    assert agent.totals("session/s1").succeeded == told + 1


def test_a_call_whose_end_is_only_in_the_batch_event_is_recorded(agent: Guarded) -> None:
    agent.hear(before("Odd", {"x": 1}, "o1"))
    agent.hear(batch(("Odd", {"x": 1}, "o1"), response="Error: unknown tool"))
    assert agent.totals("op/other").failed == 1
    assert agent.totals("session/s1").failed == 1


def test_a_lost_end_of_a_call_does_not_delay_later_steps(agent: Guarded) -> None:
    agent.hear(before(call="lost"))
    for number in range(4):
        agent.call("Read", {"file_path": f"{number}"}, f"r{number}")
    agent.hear(before("Read", {"file_path": "z"}, "z"))
    assert agent.totals("session/s1").succeeded >= 4


def test_calls_without_names_are_matched_in_order(tmp_path: Path) -> None:
    agent = Guarded(tmp_path, agent="gemini")
    call: Any = {"tool_name": "run_shell_command", "tool_input": {"command": "git push"}}
    for _ in range(2):
        agent.hear(claude("BeforeTool", **call))
    for _ in range(2):
        agent.hear(claude("AfterTool", **call, tool_response={"llmContent": "ok"}))
    assert agent.totals("op/git_operations").succeeded == 2
    assert agent.totals("session/s1").succeeded == 1
    assert "open" in (agent.store.transact("session/s1", lambda tx: tx.note) or "")


# Leases


def test_a_call_without_a_reported_end_is_given_up_with_an_event(tmp_path: Path) -> None:
    agent = Guarded(tmp_path, "hooks: {lease_s: 60}\n")
    agent.hear(before("Bash", {"command": "make"}, "lost"))
    agent.clock.advance(61.0)
    agent.hear(before(call="t2"))
    assert agent.events("call_expired") == ["Bash: it began 62 s ago, and no result was reported"]
    assert agent.totals("session/s1").ignored == 2, (
        "the beginning of the session, and the lost call"
    )
    agent.hear(before(call="t3"))
    assert len(agent.events("call_expired")) == 1


def test_a_long_silent_build_is_not_given_up(agent: Guarded) -> None:
    agent.hear(before("Bash", {"command": "make"}, "t1"))
    agent.clock.advance(1500.0)
    assert agent.hear(after(call="t1")).action == "allow"
    assert agent.events("call_expired") == []
    assert agent.phase("session/s1") == "closed"


def test_open_calls_are_bounded(agent: Guarded) -> None:
    for number in range(70):
        agent.hear(before("Read", {"file_path": f"{number}"}, f"r{number}"))
    assert len(agent.events("call_expired")) == 70 - 64
    note = agent.store.transact("session/s1", lambda tx: tx.note)
    assert note is not None
    assert len(note) < 40_000


def test_the_end_of_a_turn_closes_all_open_calls(agent: Guarded) -> None:
    agent.hear(before(call="lost"))
    agent.hear(claude("Stop"))
    agent.clock.advance(1e5)
    agent.hear(before(call="t2"))
    assert agent.events("call_expired") == []


# Cost and context


def test_cost_and_context_are_recorded_where_an_event_contains_them(tmp_path: Path) -> None:
    story = "hooks: {story: S-1}\ncircuits:\n  - {match: 'story/*', policy: operation}\n"
    agent = Guarded(tmp_path, story)
    facts = HookFacts(
        *("claude-code", "x", Moment.AFTER_MODEL, "s1"), cost_micros=1500, tokens=100_000
    )
    decide(facts, agent.known, agent.store, dialect_of("claude-code").warns)
    assert agent.totals("session/s1").cost_micros == 1500
    assert agent.totals("story/S-1").cost_micros == 1500


# Honest work


def busy(agent: Guarded, number: int, tool: str, args: Any, result: str) -> str:
    return str(agent.call(tool, args, f"h{number}", result=result).action)


def test_polling_a_build_that_changes_does_not_trip(agent: Guarded) -> None:
    poll = {"command": "curl -s localhost/build"}
    said = [busy(agent, n, "Bash", poll, f"building {n}%") for n in range(40)]
    assert "stop" not in said
    assert agent.phase("session/s1") != "open"


def test_fifty_reads_of_different_files_do_not_trip(agent: Guarded) -> None:
    said = [busy(agent, n, "Read", {"file_path": f"{n}.py"}, f"text {n}") for n in range(50)]
    assert "stop" not in said
    assert agent.phase("session/s1") != "open"


def test_a_batch_of_edits_does_not_trip(agent: Guarded) -> None:
    said = [busy(agent, n, "Edit", {"file_path": f"{n}.py"}, "edited") for n in range(50)]
    assert set(said) == {"allow"}
    assert agent.phase("session/s1") == "closed"


def test_red_and_green_in_turn_do_not_trip(agent: Guarded) -> None:
    said = []
    for number in range(12):
        red = f"Exit code 1\nFAILED test_{number}.py::test_it - assert 1 == {number}"
        said += [
            agent.call("Bash", {"command": "pytest"}, f"r{number}", error=red).action,
            agent.call(
                "Edit",
                {"file_path": "code.py", "new_string": f"def {chr(97 + number) * 5}(): ..."},
                f"e{number}",
                result="edited",
            ).action,
            agent.call("Bash", {"command": "pytest"}, f"g{number}", result="1 passed").action,
        ]
    assert "deny" not in said
    assert "stop" not in said
    assert agent.phase("session/s1") == "closed"


SPAWN = "op/agent_spawn"


def spawned(agent: Guarded) -> tuple[int, int]:
    found = agent.store.get(SPAWN)
    return (
        (0, 0) if found is None else (found.circuit.totals.succeeded, found.circuit.totals.failed)
    )


@pytest.mark.parametrize(
    ("more", "counts"),
    [
        ({}, (1, 0)),
        ({"last_assistant_message": "done"}, (1, 0)),
        ({"status": "success"}, (1, 0)),
        ({"status": "error"}, (0, 1)),
        ({"error": "529 overloaded"}, (0, 1)),
        ({"background_tasks": [{"id": "a1", "status": "failed"}]}, (0, 1)),
        ({"background_tasks": [{"id": "other", "status": "failed"}]}, (1, 0)),
        ({"background_tasks": "hostile"}, (1, 0)),
        ({"background_tasks": [7, None, {"id": "a1", "status": ["x"]}]}, (1, 0)),
        ({"status": "cancelled"}, (0, 0)),
    ],
)
def test_the_end_of_a_sub_agent_is_recorded_for_agent_spawn(
    agent: Guarded, more: dict[str, Any], counts: tuple[int, int]
) -> None:
    agent.hear(claude("SubagentStop", agent_id="a1", **more))
    assert spawned(agent) == counts


def test_a_sub_agent_whose_call_is_open_is_recorded_once_by_its_result(agent: Guarded) -> None:
    agent.hear(before("Task", {"prompt": "do it"}, "t1"))
    agent.hear(claude("SubagentStop", agent_id="a1"))
    assert spawned(agent) == (0, 0)
    agent.hear(failed("Task", {"prompt": "do it"}, "t1", "no such agent"))
    assert spawned(agent) == (0, 1)


def test_three_sub_agents_that_fail_open_the_circuit_and_the_next_is_refused(
    agent: Guarded,
) -> None:
    for number in range(3):
        agent.hear(claude("SubagentStop", agent_id=f"a{number}", status="failed"))
    ruling = agent.hear(before("Task", {"prompt": "again"}, "t9"))
    assert "agent_spawn" in ruling.text


def test_a_command_that_fails_is_not_a_failure_of_the_rules(tmp_path: Path) -> None:
    agent = Guarded(tmp_path, "agents: {coder: {owner: ana, provider: p, model: m}}\n")
    assert agent.known.is_configured("rules"), "a fleet guards its rules"
    agent.call("Bash", {"command": "make test"}, "t1", error="Exit code 2")
    agent.call("Bash", {"command": "make test"}, "t2")
    totals = agent.totals("rules")
    assert (totals.succeeded, totals.failed) == (2, 0)
    assert agent.phase("rules") == "closed"
