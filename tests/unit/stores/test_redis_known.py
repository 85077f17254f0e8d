"""The local copies of circuits in the server, and the messages of other processes."""

import pytest

from switchgear._core.policy import Policy
from switchgear._core.types import Record, Signal
from switchgear._detectors import ConsecutiveFailures, FailureRate
from switchgear._stores.redis import RedisStore
from switchgear._stores.redis.cache import KnownCircuits
from switchgear._stores.redis.envelope import Mail, PolicyTexts, Sealed, seal, seal_mail
from switchgear._stores.redis.protocol import fold_queue

POLICY = Policy([ConsecutiveFailures(3)])
TWO = Policy([FailureRate(window=20), ConsecutiveFailures(3)])
FAILED = Record(Signal(ok=False, error="529"))


class Private(ConsecutiveFailures):
    """A detector whose class exists only in one process."""

    __slots__ = ()
    kind = "private_to_the_owner"


PRIVATE = Policy([Private(3)])


@pytest.fixture
def known() -> KnownCircuits:
    return KnownCircuits()


@pytest.fixture
def texts() -> PolicyTexts:
    return PolicyTexts()


def sealed(version: int, begins: bytes = b"x") -> Sealed:
    return Sealed(begins, POLICY.start("api", 1.0)._replace(version=version), POLICY)


def test_an_older_state_does_not_replace_a_newer_one(known: KnownCircuits) -> None:
    assert known.keep(sealed(5, b"five"))
    assert not known.keep(sealed(4, b"four"))
    assert known.keep(sealed(5, b"another five"))
    copy = known.get("api", POLICY)
    assert copy is not None
    assert copy.begins == b"another five"


def test_a_copy_fits_the_policy_that_requests_it(known: KnownCircuits) -> None:
    known.keep(sealed(5))
    copy = known.get("api", TWO)
    assert copy is not None
    assert len(copy.circuit.memories) == 2
    assert not copy.fits, "the stored policy is another"
    same = known.get("api", Policy([ConsecutiveFailures(3)]))
    assert same is not None
    assert same.fits


def test_a_forked_child_has_its_own_writer_name(known: KnownCircuits) -> None:
    parent = known.token().split("-")[0]
    known._pid = -1  # as if this process were a child
    assert known.token().split("-")[0] != parent
    assert known.token().split("-")[0] == known.token().split("-")[0]


def test_a_forked_child_creates_its_own_clients() -> None:
    store = RedisStore("redis://127.0.0.1:1")
    parents = store._clients.blocking()
    store._clients._pid = -1
    assert store._clients.blocking() is not parents
    assert store._clients.blocking() is store._clients.blocking()
    store.close()


def test_pushed_circuits_that_this_process_does_not_use_are_not_kept(
    known: KnownCircuits, texts: PolicyTexts
) -> None:
    _, raw = seal("3-someone-1", POLICY.start("theirs", 1.0), POLICY, texts)
    heard = known.read(raw)
    assert heard is not None
    assert heard.circuit.key == "theirs"
    assert known.keys() == []


def mail(texts: PolicyTexts, token: str, policy: Policy) -> bytes:
    return seal_mail(Mail(token, FAILED, 2.0, texts.text(policy)))


def test_each_message_is_evaluated_by_the_policy_it_came_with(texts: PolicyTexts) -> None:
    waiting = [mail(texts, "a", POLICY), mail(texts, "b", TWO), mail(texts, "c", POLICY)]
    folded = fold_queue(texts, POLICY, POLICY.start("api", 1.0), waiting, own=b"a", patient=True)
    assert list(folded.steps) == [b"a", b"b", b"c"]
    assert [len(step.circuit.memories) for step in folded.steps.values() if step] == [1, 2, 1]
    assert folded.circuit.memories == (3,)
    assert folded.circuit.totals.failed == 3


@pytest.mark.parametrize(("patient", "heard"), [(True, [b"a"]), (False, [b"a", b"b", b"c"])])
def test_a_message_for_a_private_detector_is_left_to_its_sender_while_it_may_be_alive(
    texts: PolicyTexts, patient: bool, heard: list[bytes]
) -> None:
    waiting = [mail(texts, "a", POLICY), mail(texts, "b", PRIVATE), mail(texts, "c", POLICY)]
    start = POLICY.start("api", 1.0)
    folded = fold_queue(texts, POLICY, start, waiting, own=b"a", patient=patient)
    assert list(folded.steps) == heard
    assert folded.circuit.totals.failed == len(heard)
