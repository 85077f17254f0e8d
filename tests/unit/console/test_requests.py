"""Requests of agents: bounded, redacted, answered by a person, delivered to the agent."""

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from switchgear import Mode, Panel
from switchgear._agents.hook_protocol import Moment
from switchgear._cli import main
from switchgear._cli import trust as trust_verb
from switchgear._console.requests import (
    MOST_KEPT,
    NOTE,
    RequestRefused,
    add_request,
    all_requests,
    answer_request,
    load,
)
from switchgear._core.errors import SwitchgearError
from switchgear._hooks.session import Notes, after_event, note_name
from switchgear._mcp import answers
from switchgear._mcp.answers import GuardAnswers
from switchgear._stores.base import Transaction
from switchgear._stores.memory import MemoryStore
from switchgear.testing import FakeClock
from unit.hook_calls import Guarded, before, failed

START_S = 1_800_000_000.0


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore(clock=FakeClock(START_S))


def note(store: MemoryStore, session: str, **more: Any) -> None:
    def work(tx: Transaction) -> None:
        notes = after_event(Notes(), Moment.PROMPT, tx.now_s, agent="claude-code", limit_s=600.0)
        tx.note = notes._replace(**more).dump()

    store.transact(note_name(session), work)


def notes_of(store: MemoryStore, session: str) -> Notes:
    return store.transact(note_name(session), lambda tx: Notes.load(tx.note))


def test_a_request_waits_and_its_answer_reaches_the_agent(store: MemoryStore) -> None:
    note(store, "s1")
    made = add_request(
        store.transact, "s1", "time", 600, "the build takes\nlong sk-proj-abcdefghijkl"
    )
    assert (made.state, made.reason) == ("open", "the build takes long [redacted]")
    done = answer_request(store.transact, made.id, grant=False, by="ann", why="use the cache")
    assert (done.state, done.answer, done.by) == ("denied", "use the cache", "ann")
    [told] = notes_of(store, "s1").pending
    assert told == "Switchgear: your request for 10 minutes was denied: use the cache"
    with pytest.raises(RequestRefused, match="was denied already"):
        answer_request(store.transact, made.id, grant=True, by="ann", why="")
    with pytest.raises(RequestRefused, match="there is no request"):
        answer_request(store.transact, "x", grant=True, by="ann", why="")


@pytest.mark.parametrize(
    ("kind", "amount", "reason"),
    [
        ("power", 1, "because"),
        ("time", 0, "because"),
        ("time", -5, "because"),
        ("time", 1e9, "because"),
        ("money", float("nan"), "because"),
        ("money", 1001, "because"),
        ("time", 60, " \n "),
    ],
)
def test_an_invalid_request_is_not_saved(
    store: MemoryStore, kind: str, amount: float, reason: str
) -> None:
    with pytest.raises(RequestRefused):
        add_request(store.transact, "s1", kind, amount, reason)
    assert all_requests(store.transact) == []


def test_an_agent_cannot_flood_the_list(store: MemoryStore) -> None:
    for _ in range(3):
        add_request(store.transact, "s1", "time", 60, "more")
    with pytest.raises(RequestRefused, match="3 requests of this session wait"):
        add_request(store.transact, "s1", "time", 60, "more")
    for number in range(17):
        add_request(store.transact, f"t{number}", "time", 60, "more")
    with pytest.raises(RequestRefused, match="20 requests wait"):
        add_request(store.transact, "other", "time", 60, "more")


def test_the_list_of_requests_is_bounded_and_drops_no_pending_one(store: MemoryStore) -> None:
    first = add_request(store.transact, "first", "time", 60, "more")
    for number in range(2 * MOST_KEPT):
        made = add_request(store.transact, f"s{number}", "time", 60, "more")
        answer_request(store.transact, made.id, grant=False, by="ann", why="")
    kept = all_requests(store.transact)
    assert len(kept) <= MOST_KEPT
    assert first.id in {row.id for row in kept}


@pytest.mark.parametrize("text", [None, "", "{", "7", '[1, {"id": 2}, {"a": 1}]', "[" * 10_000])
def test_a_damaged_note_counts_as_no_requests(text: str | None) -> None:
    assert load(text) == []


# What the server answers


def test_an_agent_can_query_why_it_was_refused_and_what_was_tried(tmp_path: Path) -> None:
    agent = Guarded(tmp_path)
    agent.hear(before("Bash", {"command": "rm -rf /"}, "t0"))
    for number in range(60):
        if agent.hear(before("Bash", {"command": "make"}, f"t{number + 1}")).action == "stop":
            break
        agent.hear(failed("Bash", {"command": "make"}, f"t{number + 1}", "Exit code 2"))
    with Panel(agent.store) as panel:
        answers = GuardAnswers(panel, str(tmp_path))
        why, tried = answers.why_refused(), answers.what_was_tried()
        assert "session s1 is stopped" in why
        assert "deletes/outside" in why
        assert "Only a person can change this" in why
        assert "escalation steps so far: nudge" in tried
        before_it = agent.store.get("session/s1")
        answers.request_more("time", 600, "the tests are slow")
        assert agent.store.get("session/s1") == before_it, "nothing of the circuit has changed"
        assert "waits for an answer" in answers.request_status()
        assert answers.why_refused("other") == "No session 'other' is known."


def test_sessions_of_other_projects_are_not_shown(tmp_path: Path) -> None:
    agent = Guarded(tmp_path)
    agent.hear(before("Bash", {"command": "ls"}, "t1"))
    with Panel(agent.store) as panel:
        assert GuardAnswers(panel, "/elsewhere").what_was_tried() == (
            "No session of this project is known."
        )


def test_a_session_with_the_same_name_prefix_is_a_different_one(tmp_path: Path) -> None:
    agent = Guarded(tmp_path)
    agent.hear(before("Bash", {"command": "make"}, "t1"))
    agent.hear(failed("Bash", {"command": "make"}, "t1", "Exit code 2"))
    with Panel(agent.store) as panel:
        for name in ("session/s1/agent/a", "session/s10"):
            panel.order(name, by="ops", why="stop", mode=Mode.HELD_OPEN)
        why = GuardAnswers(panel, str(tmp_path)).why_refused()
    assert "session/s1/agent/a" in why
    assert "s10" not in why


# The command


def command(panel: Panel, *words: str) -> Any:
    return CliRunner().invoke(main, words, obj=panel)


def test_a_person_answers_in_the_terminal_and_granted_time_extends_the_session(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trust_verb, "refuse_inside_an_agent", lambda _: None)
    note(store, "s1")
    made = add_request(store.transact, "s1", "time", 600, "the build is slow")
    with Panel(store) as panel:
        listed = command(panel, "requests", "list")
        assert f"{made.id}  10 minutes  session s1  waits for an answer" in listed.output
        assert command(panel, "requests", "answer", made.id).exit_code == 2
        done = command(panel, "requests", "answer", made.id, "--grant", "--why", "fine")
        assert done.exit_code == 0, done.output
        assert "the session may take 600 s longer" in done.output
        assert command(panel, "requests", "answer", made.id, "--grant").exit_code == 2
        assert "No requests are waiting." in command(panel, "requests", "list").output
    assert notes_of(store, "s1").limit_s == 1200.0


def test_an_agent_must_not_answer_its_own_request(tmp_path: Path) -> None:
    agent = Guarded(tmp_path)
    for words in ("requests answer 1a2b --grant", "label x --run y --outcome solved"):
        ruling = agent.hear(before("Bash", {"command": f"switchgear {words}"}, words[:8]))
        assert ruling.action in {"deny", "stop"}, words
    for words in ("requests list", "mcp"):
        assert (
            agent.hear(before("Bash", {"command": f"switchgear {words}"}, words)).action == "allow"
        )


def test_the_note_of_requests_outlasts_a_week_at_most(store: MemoryStore) -> None:
    add_request(store.transact, "s1", "time", 60, "more")
    clock = store._clock
    assert isinstance(clock, FakeClock)
    clock.advance(8 * 86_400)
    assert store.transact(NOTE, lambda tx: tx.note) is None


def test_a_tool_answers_with_a_sentence_when_the_store_cannot_be_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def unreadable(*_: object, **__: object) -> list[Any]:
        raise SwitchgearError("the store is gone")

    monkeypatch.setattr(answers, "session_rows", unreadable)
    with Panel("memory:") as panel:
        tools = GuardAnswers(panel, "/project")
        for tool in (tools.why_refused, tools.what_was_tried):
            assert tool() == "cannot be read now: the store is gone"
        assert tools.request_more("time", 5, "slow").startswith("cannot be read now")
