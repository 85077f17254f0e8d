"""The progress detectors in hooks: warned, nudged, stopped; with all available facts."""

import json
from pathlib import Path
from typing import Any

import pytest

from switchgear._agents.hook_protocol import Ruling
from switchgear._core.types import Mode, Override
from switchgear._hooks.open_calls import load
from switchgear._hooks.session import Notes
from unit.hook_calls import Guarded, after, before

THOUGHTS = (
    "The parser still rejects the header, so I look at how the header is parsed once more.",
    "Looking again at how the parser parses the header, as it still rejects it once more.",
    "I look once more at the header and how the parser parses it, since it is still rejected.",
)


def said(folder: Path, call: str, thought: str) -> str:
    """A transcript of Claude Code that ends with a thought and the call that follows from it."""
    path = folder / "transcript.jsonl"
    lines: list[dict[str, Any]] = [
        {"type": "user", "message": {"role": "user", "content": "fix the parser"}},
        {
            "type": "assistant",
            "message": {"role": "assistant", "content": [{"type": "text", "text": thought}]},
        },
        {
            "type": "assistant",
            "message": {"role": "assistant", "content": [{"type": "tool_use", "id": call}]},
        },
    ]
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return str(path)


def stand_still(agent: Guarded, steps: range, **more: Any) -> list[Ruling]:
    """Steps with one thought in new words: other pages of the same file, without new information."""
    heard: list[Ruling] = []
    for n in steps:
        call, thought = f"t{n}", THOUGHTS[n % len(THOUGHTS)]
        args = {"command": f"sed -n {n}p parser.py"}
        path = said(agent.folder, call, thought)
        asked = agent.hear(before("Bash", args, call, **more))
        if asked.action in {"deny", "stop"}:
            return [*heard, asked]
        heard.append(agent.hear(after("Bash", args, call, "x = 1", transcript_path=path, **more)))
    return heard


@pytest.fixture
def agent(tmp_path: Path) -> Guarded:
    return Guarded(tmp_path)


def test_an_agent_without_progress_is_warned_with_the_score_and_advice(
    agent: Guarded,
) -> None:
    heard = stand_still(agent, range(12))
    first = next(ruling for ruling in heard if ruling.text)
    assert first.action == "warn"
    assert "no progress for" in first.text
    assert "take a route not yet tried" in first.text


def test_an_agent_that_continues_is_nudged_and_then_stopped_by_the_same_escalation(
    agent: Guarded,
) -> None:
    heard = stand_still(agent, range(40))
    nudged = next(n for n, each in enumerate(heard) if "AGENT APPEARS STUCK" in each.text)
    assert heard[nudged].action == "warn"
    assert "no progress for" in heard[nudged].text
    assert "Try a different approach" in heard[nudged].text
    assert heard[-1].action == "stop"
    assert "The agent is stopped. It must start over." in heard[-1].text
    assert len(heard) - nudged > 4, "after a nudge it has a chance"
    assert agent.phase("session/s1") == "open", "one circuit: it stays open until it is resolved"
    assert agent.names() == {"op/shell", "session/s1"}


def test_one_incident_takes_one_step_although_score_and_progress_see_it(agent: Guarded) -> None:
    steps = []
    for n in range(8):
        agent.call("Bash", {"command": "make"}, f"t{n}", error="Exit code 2\nno rule")
        note = agent.store.transact("session/s1", lambda tx: tx.note)
        steps.append(len(Notes.load(note).tried))
    assert steps[3:6] == [1, 1, 1], f"{steps}: nudged, and then left alone for a while"


def test_new_files_reduce_the_score_and_undoing_them_does_not(agent: Guarded) -> None:
    file = agent.folder / "a.py"

    def edit(n: int, text: str) -> str | None:
        file.write_text(text)
        args = {"file_path": str(file), "new_string": text}
        agent.hear(before("Edit", args, f"t{n}"))
        agent.hear(before("Edit", args, f"u{n}"))  # overlaps: what is done waits in the lane
        agent.hear(after("Edit", args, f"t{n}"))
        note = agent.store.transact("session/s1", lambda tx: tx.note)
        part = load(Notes.load(note).more).lanes[""].parts[-1]
        agent.hear(after("Edit", args, f"u{n}"))
        return part.state

    one, two, again = edit(1, "one"), edit(2, "two"), edit(3, "one")
    assert one is not None
    assert one != two
    assert again == one


def test_a_sub_agent_has_its_own_progress_score(agent: Guarded) -> None:
    stand_still(agent, range(60), agent_id="sub")
    assert agent.phase("session/s1/agent/sub") == "open"
    assert agent.phase("session/s1") == "closed"
    assert stand_still(agent, range(2))[-1].action == "allow"
    assert stand_still(agent, range(50, 52), agent_id="sub")[-1].action == "stop"


def test_the_progress_detectors_can_be_switched_off(tmp_path: Path) -> None:
    agent = Guarded(tmp_path, "interventions: {progress: false}\n")
    assert {ruling.action for ruling in stand_still(agent, range(15))} == {"allow"}
    kinds = {detector.kind for detector in agent.known.policy_for("session/s1").detectors}
    assert "stagnation" not in kinds


def test_a_configured_policy_applies_to_it(tmp_path: Path) -> None:
    config = "circuits:\n  - {match: 'progress/*', policy: {extends: ledger, tripping_at: 0.1}}\n"
    agent = Guarded(tmp_path, config)
    warned = stand_still(agent, range(6))
    assert any("no progress for" in ruling.text for ruling in warned)
    assert stand_still(agent, range(10, 50))[-1].action == "stop"
    assert agent.phase("session/s1") == "open"


@pytest.mark.parametrize("mode", [Mode.SHADOW, Mode.HELD_CLOSED])
def test_no_step_is_taken_if_an_operator_lets_the_session_continue(
    agent: Guarded, mode: Mode
) -> None:
    order = Override("ada", "look first", mode=mode)
    key = "session/s1"
    agent.store.apply(key, agent.known.policy_for(key), order, agent.clock())
    heard = stand_still(agent, range(15))
    heard += [agent.call("Bash", error="Exit code 2\nno rule") for _ in range(8)]
    opened = {entry.event.circuit for entry in agent.store.events() if entry.event.after == "open"}
    assert opened == {"session/s1"}, "it would have stopped the agent"
    assert not any("STUCK" in ruling.text for ruling in heard)


def test_parallel_calls_of_one_turn_are_not_warned(agent: Guarded) -> None:
    words = ("alpha", "bravo", "charlie", "delta", "echo", "foxtrot", "golf", "hotel")
    path = Path(said(agent.folder, "t0", THOUGHTS[0]))
    with path.open("a") as transcript:
        for n in range(1, len(words)):
            message = {"role": "assistant", "content": [{"type": "tool_use", "id": f"t{n}"}]}
            transcript.write(f"{json.dumps({'type': 'assistant', 'message': message})}\n")
    for n, word in enumerate(words):
        args = {"pattern": word}
        found = after("Grep", args, f"t{n}", f"a.py: {word}", transcript_path=str(path))
        assert agent.facts(found).thought == THOUGHTS[0]
        assert not agent.hear(before("Grep", args, f"t{n}")).text
        assert not agent.hear(found).text
    assert agent.phase("session/s1") == "closed"


def test_facts_missing_from_the_transcript_are_unknown(agent: Guarded, tmp_path: Path) -> None:
    path = said(tmp_path, "t1", "I look at the parser")
    assert agent.facts(after(call="t1", transcript_path=path)).thought == "I look at the parser"
    assert agent.facts(after(call="t2", transcript_path=path)).thought is None
    assert agent.facts(after(call="t1", transcript_path=str(tmp_path))).thought is None
    (tmp_path / "broken").write_bytes(b'{"message": 1, "id": "t1"}\n["t1"]\n"t1" {')
    assert agent.facts(after(call="t1", transcript_path=f"{tmp_path}/broken")).thought is None


def pytest_says(*failing: str) -> str:
    lines = [
        *(f"FAILED {name} - assert 1 == 2" for name in failing),
        f"{len(failing)} failed in 0.12s",
    ]
    return "\n".join(lines)


def book(agent: Guarded, kind: str) -> Any:
    """The memory of a progress detector."""
    found = agent.store.get("session/s1")
    assert found is not None
    policy = agent.known.policy_for("session/s1")
    kinds = [detector.kind for detector in policy.detectors]
    return found.circuit.memories[kinds.index(kind)]


@pytest.mark.parametrize("wrapped", [False, True])
def test_another_set_of_failing_tests_lowers_the_score(tmp_path: Path, *, wrapped: bool) -> None:
    """Two agents run the same failing tests; of one of them, others fail in the end."""
    debts = []
    for name, last in (("same", ("t.py::a", "t.py::b")), ("other", ("t.py::b",))):
        (tmp_path / name).mkdir()
        agent = Guarded(tmp_path / name)
        for n in range(3):
            said = pytest_says(*(("t.py::a", "t.py::b") if n < 2 else last))
            args = {"command": "pytest -q"}
            agent.hear(before("Bash", args, f"t{n}"))
            result = (
                {"stdout": said, "stderr": "", "is_error": True} if wrapped else f"Error\n{said}"
            )
            agent.hear(after("Bash", args, f"t{n}", result))
        debts.append(book(agent, "stagnation").points)
    assert debts[0] >= debts[1] + 125, "a new set pays back"


def test_the_tests_of_a_step_wait_with_it_in_the_lane(agent: Guarded) -> None:
    args = {"command": "pytest -q"}
    agent.hear(before("Bash", args, "t1"))
    agent.hear(before("Read", {"file_path": "x"}, "t2"))
    agent.hear(after("Bash", args, "t1", pytest_says("t.py::a")))
    note = agent.store.transact("session/s1", lambda tx: tx.note)
    [part] = load(Notes.load(note).more).lanes[""].parts
    assert part.failing_tests is not None
    agent.hear(after("Read", {"file_path": "x"}, "t2", "text"))
    assert len(book(agent, "stagnation").tests) == 1
