"""Folding a queue of other people's messages, each by the policy it came with."""

from switchgear.core.detectors.opaque import OpaqueDetector
from switchgear.core.evidence import fold
from switchgear.core.policy import Policy
from switchgear.core.types import Circuit, Event, Message, Source, Step, Tell
from switchgear.core.wire import WireError
from switchgear.stores.redis import envelope
from switchgear.stores.redis.envelope import PolicyTexts
from switchgear.stores.redis.known import REPORT
from switchgear.stores.redis.script import PLUS


class Folded:
    """What became of a queue: the circuit, what happened, and what each message came to."""

    def __init__(self, circuit: Circuit, policy: Policy) -> None:
        self.circuit = circuit
        self.policy = policy
        self.events: list[Event] = []
        self.steps: dict[bytes, Step | None] = {}
        """By token, in order; `None`, by the whole of it: a message that cannot be folded."""
        self.raised: Exception | None = None
        """What a detector raised on our own message."""

    def fold(self, mail: envelope.Mail, policy: Policy) -> None:
        """Fold one more message."""
        before = envelope.refitted(self.circuit, self.policy, policy)
        done = fold(policy, before, _with_source(mail), mail.now_s)
        self.circuit, self.policy = done.circuit, policy
        self.events += done.events
        self.steps[mail.token.encode()] = done

    def answers(self, own: bytes) -> tuple[tuple[bytes, bytes], ...]:
        """What to answer whom. We know our own, and who cannot be understood waits in vain."""
        return tuple(
            (
                token,
                b"" if done is None or token == own else envelope.seal_answer(*done[1:]),
            )
            for token, done in self.steps.items()
        )


def fold_queue(
    texts: PolicyTexts,
    policy: Policy,
    circuit: Circuit,
    waiting: list[bytes],
    *,
    own: bytes,
    patient: bool,
) -> Folded:
    """Fold the messages in their order.

    One that cannot be folded here (its policy has detectors unknown here, or one that raises) is
    left to its owner, who comes next and knows it. If the owner is gone (we are not patient), it
    is folded as well as we can, or not at all: it must not block the queue.
    """
    folded = Folded(circuit, policy)
    own_text = texts.text(policy)
    for raw in waiting:
        try:
            mail = envelope.unseal_mail(raw)
            judge = policy if mail.policy_text == own_text else _judge(texts, mail.policy_text)
            if judge is None and patient:
                break
            folded.fold(mail, policy if judge is None else judge)
        except Exception as error:  # noqa: BLE001  a detector of somebody's raises what it likes
            if envelope.token_of(raw) == own:
                folded.raised = error
                break
            if patient:
                break
            folded.steps[raw] = None
    return folded


def _judge(texts: PolicyTexts, text: str) -> Policy | None:
    """The policy of that JSON, if it is known here whole."""
    try:
        policy = texts.policy(text)
    except (WireError, ValueError):
        return None
    opaque = any(isinstance(detector, OpaqueDetector) for detector in policy.detectors)
    return None if opaque else policy


def _with_source(mail: envelope.Mail) -> Message:
    """The message with what its identity says: which process reports all that it has counted."""
    process, _, number = mail.token.partition(PLUS)
    _, is_report, dates = number.partition(REPORT)
    if not is_report or not isinstance(mail.message, Tell):
        return mail.message
    pairs = [date.partition("*") for date in dates.split("|") if date]
    times = tuple((float(at_s), int(count)) for at_s, _, count in pairs)
    return mail.message._replace(source=Source(process, mail.now_s, times))
