"""With any number of concurrent hooks, a session's hint, warning and escalation step come once."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from switchgear._agents.hook_protocol import Moment
from switchgear._config import preset_policy
from switchgear._core.types import AgentStep, Record, Signal
from switchgear._hooks import session
from switchgear._hooks.session import AgentMessages, Notes
from switchgear._stores.base import Transaction
from switchgear._stores.sqlite import SqliteStore
from switchgear._stuck.escalation import Interventions
from switchgear._stuck.score import score_of

POLICY, SUBJECT = preset_policy("stuck"), "session/s1"
CALL = Record(Signal(ok=True, step=AgentStep("Read", "a")))
HOOKS = 8


def hook(path: str, calls: int) -> tuple[list[str], list[str]]:
    """The texts of one hook after another, and the steps that it takes; each has its own store."""
    said, step_names = list[str](), list[str]()

    def work(tx: Transaction) -> AgentMessages:
        notes = session.after_event(Notes.load(tx.note), Moment.AFTER_TOOL, tx.now_s)
        step = tx.apply(SUBJECT, POLICY, CALL)
        if session.has_opened(step):
            score = score_of(POLICY, POLICY.readings(step.circuit.memories, tx.now_s))
            assert score is not None
            circuit = session.SessionCircuit(tx.apply, SUBJECT, POLICY)
            notes = session.after_trip(notes, score)
            notes, taken = session.take_escalation_step(circuit, notes, Interventions())
            step_names.append(taken.step_name)
        notes, words = session.take_messages(notes, tx.now_s)
        tx.note = notes.dump()
        return words

    for _ in range(calls):
        store = SqliteStore(path)
        said += store.transact(SUBJECT, work).texts
        store.close()
    return said, step_names


def test_one_of_parallel_hooks_takes_the_step_and_one_delivers_the_hint(tmp_path: Path) -> None:
    path = str(tmp_path / "state.db")
    with ThreadPoolExecutor(HOOKS) as pool:
        done = list(pool.map(lambda _: hook(path, 4), range(HOOKS)))
    said = [text for texts, _ in done for text in texts]
    step_names = [step_name for _, taken in done for step_name in taken]
    assert step_names == ["nudge"]  # 32 calls: one trip at the 21st, and eleven towards the next
    assert len(said) == 1
    assert "Stuck score: 90/100" in said[0]


def test_a_warning_is_given_to_one_of_parallel_hooks(tmp_path: Path) -> None:
    path = str(tmp_path / "state.db")

    def begin(tx: Transaction) -> None:
        tx.note = Notes(began_s=tx.now_s - 75.0, limit_s=100.0).dump()

    def deliver(tx: Transaction) -> AgentMessages:
        notes, words = session.take_messages(Notes.load(tx.note), tx.now_s)
        tx.note = notes.dump()
        return words

    store = SqliteStore(path)
    store.transact(SUBJECT, begin)
    with ThreadPoolExecutor(HOOKS) as pool:
        said = list(pool.map(lambda _: store.transact(SUBJECT, deliver).texts, range(4 * HOOKS)))
    store.close()
    assert len([text for texts in said for text in texts]) == 1
