"""The note of a session: silence, warnings and hints that come once, and escalation steps."""

from typing import Any, cast

import pytest

from switchgear._agents.hook_protocol import Moment
from switchgear._config import preset_policy
from switchgear._core.policy import Policy
from switchgear._core.types import AgentStep, Message, Override, Record, Signal, Step
from switchgear._hooks import open_calls, session, session_check
from switchgear._hooks.open_calls import CallsState, OpenCall
from switchgear._hooks.session import Notes, after_event, silence_s, take_messages, with_more_time
from switchgear._stores.base import Store, Transaction
from switchgear._stores.memory import MemoryStore
from switchgear._stuck import messages
from switchgear._stuck.escalation import STEP_NAMES, Apply, Interventions
from switchgear._stuck.score import Score, Share, session_policy
from switchgear.testing import FakeClock

POLICY = session_policy(preset_policy("stuck"), preset_policy("progress"))
PLAN = Interventions(escalate="codex")
SUBJECT = "session/s1"
SCORE = Score(90.0, 60.0, (Share("same_tool", 40.0, True, "Read called 6 times in a row"),))


def at_work(now_s: float = 0.0, limit_s: float | None = None) -> Notes:
    notes = after_event(Notes(), Moment.SESSION_START, now_s, agent="codex", limit_s=limit_s)
    return after_event(notes, Moment.PROMPT, now_s)


def apply(store: Store) -> Apply:
    def applied(key: str, policy: Policy, message: Message) -> Step:
        return store.apply(key, policy, message, store.now_s())

    return applied


def test_notes_are_read_as_they_were_written() -> None:
    notes = at_work(limit_s=60.0)
    notes = session.with_message(after_event(notes, Moment.BEFORE_TOOL, 3.0), "a hint")
    assert Notes.load(notes.dump()) == notes


@pytest.mark.parametrize("text", [None, "", "{", "[]", "5", '{"pending": 7}', '{"warned": 1}'])
def test_an_unreadable_note_is_an_unknown_session(text: str | None) -> None:
    assert Notes.load(text) == Notes()


# Silence


def test_an_agent_in_its_turn_is_silent_since_its_last_event() -> None:
    assert silence_s(at_work(100.0), 250.0) == 150.0


def test_an_agent_that_waits_for_input_is_not_silent() -> None:
    rests = after_event(at_work(), Moment.STOP, 5.0)
    assert silence_s(rests, 5000.0) == 0.0
    assert silence_s(after_event(Notes(), Moment.SESSION_START, 0.0), 5000.0) == 0.0
    assert silence_s(after_event(rests, Moment.OTHER, 6.0), 5000.0) == 0.0


def running(notes: Notes, *until_s: float) -> Notes:
    """Notes with open calls whose leases end at these times."""
    calls = [OpenCall(str(end_s), "", "Bash", "shell", 0, 10.0, end_s, {}) for end_s in until_s]
    return notes._replace(more=open_calls.dump(CallsState(tuple(calls))))


def test_a_running_tool_is_not_silence_until_its_lease_ends() -> None:
    building = running(at_work(10.0), 1810.0)
    assert silence_s(building, 1809.0) == 0.0
    assert silence_s(building, 1810.0) == 1800.0


def test_the_end_of_one_of_two_tools_leaves_the_other_running() -> None:
    assert silence_s(running(at_work(10.0), 100.0, 1810.0), 500.0) == 0.0


# What the agent is told


def test_a_hint_is_delivered_once() -> None:
    notes = session.with_message(at_work(), "a hint")
    notes, words = take_messages(notes, 1.0)
    assert words.texts == ("a hint",)
    assert take_messages(notes, 2.0)[1] == session.AgentMessages()


def test_warnings_come_at_70_and_90_percent_once_and_the_end_at_100() -> None:
    notes, said = at_work(limit_s=600.0), list[tuple[int, str]]()
    for now_s in range(0, 700, 10):
        notes, words = take_messages(Notes.load(notes.dump()), float(now_s))
        said += [(now_s, text.splitlines()[-1]) for text in words.texts]
        if words.stop:
            said.append((now_s, words.stop[:9]))
            break
    assert said == [
        (420, "3 minutes remaining, wrap up"),
        (540, "1 minute remaining, commit now"),
        (600, "TIME OVER"),
    ]


def test_a_session_without_a_limit_is_never_warned() -> None:
    assert take_messages(at_work(), 1e9)[1] == session.AgentMessages()


def test_more_time_lets_a_stopped_session_continue_and_warns_again_before_its_end() -> None:
    notes, _ = take_messages(at_work(limit_s=600.0), 650.0)
    more = with_more_time(notes, 600.0, 650.0)
    assert (more.limit_s, more.warned, more.stop) == (1200.0, (), None)
    assert take_messages(more, 840.0)[1].texts[0].startswith("TIME WARNING: 30%")


def test_more_time_that_is_not_enough_repeats_no_warning() -> None:
    notes, _ = take_messages(at_work(limit_s=600.0), 560.0)
    assert with_more_time(notes, 10.0, 560.0).warned == (70, 90)


def circuit(store: MemoryStore) -> session.SessionCircuit:
    return session.SessionCircuit(apply(store), SUBJECT, POLICY)


def tripped(store: MemoryStore) -> None:
    """The session's circuit opens, as it does before an escalation step is taken."""
    call = Signal(ok=False, error="no rule", step=AgentStep("Bash", "make"), count=6)
    store.apply(SUBJECT, POLICY, Record(call), store.now_s())


def test_a_user_message_starts_a_stopped_session_over_and_nothing_else_does() -> None:
    store = MemoryStore()
    tripped(store)
    stopped = at_work()._replace(stop="stuck", untended=True)
    for moment in (Moment.SESSION_START, Moment.BEFORE_TOOL, Moment.STOP):  # agents compact, too
        assert after_event(stopped, moment, 5.0).stop == "stuck"
        assert session.after_release(circuit(store), stopped).stop == "stuck"
    afresh = session.after_user_message(circuit(store), stopped)
    assert (afresh.stop, afresh.untended) == (None, False)
    assert not circuit(store).is_open()
    assert store.events()[-2].event.reason == "the user wrote a message"


def test_a_user_message_does_not_lift_the_end_of_the_time() -> None:
    store = MemoryStore()
    late, _ = take_messages(at_work(limit_s=10.0), 20.0)
    session.open_if_stopped(circuit(store), late)
    assert circuit(store).is_open()
    assert session.after_user_message(circuit(store), late).stop is not None
    assert circuit(store).is_open()


def test_a_reset_of_the_circuit_lifts_the_stop() -> None:
    store = MemoryStore()
    tripped(store)
    stopped = at_work()._replace(stop="stuck", untended=True)
    store.apply(SUBJECT, POLICY, Override("ada", "looked at it", reset=True), store.now_s())
    assert session.after_release(circuit(store), stopped).stop is None


# Escalation


def escalated(times: int) -> tuple[Notes, list[str], MemoryStore]:
    store, notes, step_names = MemoryStore(), at_work(), list[str]()
    for _ in range(times):
        tripped(store)
        notes, taken = session.take_escalation_step(
            circuit(store), session.after_trip(notes, SCORE), PLAN
        )
        step_names.append(taken.step_name)
    return notes, step_names, store


def test_the_first_step_is_a_hint_with_the_evidence_and_the_agent_continues() -> None:
    notes, step_names, store = escalated(1)
    assert step_names == ["nudge"]
    assert notes.stop is None
    assert not circuit(store).is_open()
    [hint] = take_messages(notes, 1.0)[1].texts
    assert "AGENT APPEARS STUCK" in hint
    assert "- Read called 6 times in a row (+40)" in hint
    assert "Try a different approach." in hint


def test_the_second_stops_the_session_and_the_next_turn_begins_with_a_summary() -> None:
    notes, _, store = escalated(2)
    notes, words = take_messages(notes, 1.0)
    assert words.texts == ()
    assert words.stop is not None
    assert "The agent is stopped. It must start over." in words.stop
    assert circuit(store).is_open(), "status and show tell the same"
    afresh = session.after_user_message(circuit(store), after_event(notes, Moment.PROMPT, 2.0))
    said = "\n".join(take_messages(afresh, 3.0)[1].texts)
    assert "An agent before you was stopped, because it was stuck." in said
    assert "Tried so far: nudge, reset." in said


def test_the_third_step_hands_over_and_the_last_one_gives_up() -> None:
    handed, step_names, _ = escalated(3)
    assert handed.stop is not None
    assert "takes over." in handed.stop
    given_up, _, store = escalated(4)
    assert given_up.stop is not None
    assert "The task is given up as blocked." in given_up.stop
    assert circuit(store).is_open()
    assert step_names == ["nudge", "reset", "escalate"]


def test_every_step_is_an_event_with_its_evidence() -> None:
    _, _, store = escalated(4)
    kinds = [each.event for each in store.events() if each.event.kind == "intervened"]
    assert [event.reason.partition(":")[0] for event in kinds] == list(STEP_NAMES)
    assert "Read called 6 times" in kinds[0].reason


def test_measured_progress_restarts_the_escalation_at_the_first_step() -> None:
    store = MemoryStore()
    tripped(store)
    notes = session.after_trip(at_work(), SCORE)
    notes, _ = session.take_escalation_step(circuit(store), notes, PLAN)
    notes = session.after_progress(notes)
    assert notes.tried == ()
    assert session.take_escalation_step(circuit(store), notes, PLAN)[1].step_name == "nudge"


@pytest.mark.parametrize(
    ("notes", "opened", "state"),
    [
        (Notes(works=True), False, "working"),
        (Notes(works=True, tried=("nudge",)), False, "trying again"),
        (Notes(works=True, tried=("nudge",)), True, "stopped"),
        (Notes(works=False), True, "stopped"),
        (Notes(works=False), False, "idle"),
        (Notes(works=True, paused=True), False, "paused"),
        (Notes(ended=True), True, "ended"),
    ],
)
def test_a_session_has_one_named_state(notes: Notes, *, opened: bool, state: str) -> None:
    store = MemoryStore()
    if opened:
        tripped(store)
    now = store.apply(SUBJECT, POLICY, Record(Signal(count=0)), store.now_s()).circuit
    assert session.state_of(notes, now) == state


# The watcher's look


def with_note(store: MemoryStore, notes: Notes) -> None:
    def work(tx: Transaction) -> None:
        tx.note = notes.dump()

    store.transact(SUBJECT, work)


def noted(store: MemoryStore) -> Notes:
    return store.transact(SUBJECT, lambda tx: Notes.load(tx.note))


def clocked() -> tuple[FakeClock, MemoryStore]:
    clock = FakeClock(1000.0)
    return clock, MemoryStore(clock=clock)


def test_a_check_records_silence_and_silence_alone_opens_nothing() -> None:
    clock, store = clocked()
    with_note(store, at_work(1000.0))
    clock.advance(3000.0)
    looked = session_check.check_watched_session(store, "s1", POLICY, PLAN)
    found = store.get(SUBJECT)
    assert found is not None
    assert found.circuit.phase == "tripping"
    assert found.circuit.outage.reason.startswith("score 30 (trips at 60): no tool call for 50 min")
    assert looked.taken is None
    assert not looked.ends


def test_silence_on_top_of_a_loop_takes_a_step() -> None:
    clock, store = clocked()
    with_note(store, at_work(1000.0))
    store.apply(
        SUBJECT, POLICY, Record(Signal(ok=True, step=AgentStep("Read", "a"), count=6)), 1000.0
    )
    clock.advance(125.0)
    looked = session_check.check_watched_session(store, "s1", POLICY, PLAN)
    assert looked.taken is not None
    assert looked.taken.step_name == "nudge"
    assert not looked.interrupts
    assert "AGENT APPEARS STUCK" in noted(store).pending[0]
    assert session_check.check_watched_session(store, "s1", POLICY, PLAN).taken is None


def test_a_short_silence_is_not_recorded() -> None:
    clock, store = clocked()
    with_note(store, at_work(1000.0))
    clock.advance(session_check.MIN_SILENCE_S - 1)
    session_check.check_watched_session(store, "s1", POLICY, PLAN)
    assert store.get(SUBJECT) is None


def test_the_time_of_a_silent_agent_ends_too_and_it_is_interrupted_once() -> None:
    clock, store = clocked()
    with_note(store, at_work(1000.0, limit_s=60.0))
    clock.advance(50.0)
    assert not session_check.check_watched_session(store, "s1", POLICY, PLAN).interrupts
    assert noted(store).warned == ()  # a warning is for the agent's next hook, not for the watcher
    clock.advance(10.0)
    assert session_check.check_watched_session(store, "s1", POLICY, PLAN).interrupts
    assert not session_check.check_watched_session(store, "s1", POLICY, PLAN).interrupts


def test_a_session_that_is_over_or_unknown_needs_no_watcher() -> None:
    _, store = clocked()
    assert session_check.check_watched_session(store, "s1", POLICY, PLAN).ends
    with_note(store, after_event(at_work(1000.0), Moment.SESSION_END, 1000.0))
    assert session_check.check_watched_session(store, "s1", POLICY, PLAN).ends


def test_the_reason_of_a_stop_is_complete_and_without_instructions_for_the_agent() -> None:
    changes = (f"/home/ada/{'x' * 150} was changed during a tool call, and the text is in /aside",)
    sent: list[str] = []

    class Circuit:
        def is_open(self) -> bool:
            return False

        def send(self, message: Any) -> None:
            sent.append(message.signal.violation)

    notes = Notes(stop=messages.tampering_text(changes))
    session.open_if_stopped(cast("session.SessionCircuit", Circuit()), notes)
    (why,) = sent
    assert why.startswith("the files that guard this project were changed")
    assert why.endswith("and the text is in /aside")
