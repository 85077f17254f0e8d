"""The formats of Redis values: a circuit with its policy, events, messages and answers, as JSON.

A circuit is stored as `{"stamp":"17-3f9a-5","format":1,"circuit":{…},"policy":{…}}`. The stamp comes
first, so that the server can compare it without parsing: version, writer, number of the write. No two
writes share a stamp, even if a server loses its data and versions restart.
"""

import json
from typing import Any, NamedTuple

from switchgear._core.policy import Policy
from switchgear._core.types import Circuit, Event, Message, Permit, Phase, Verdict
from switchgear._core.wire import (
    SCHEMA,
    WireError,
    dump_circuit,
    dump_event,
    dump_message,
    load_circuit,
    load_event,
    load_message,
)
from switchgear._detectors.policy_wire import dump_policy, load_policy

FORMAT = 1
BEGIN = b'{"stamp":"'
POLICIES_KEPT = 256


class TooNewError(WireError):
    """The value was written by a newer Switchgear, so it must not be changed."""


class Sealed(NamedTuple):
    """A stored circuit with the beginning of its value."""

    begins: bytes
    """The beginning of the value, up to and including the stamp."""
    circuit: Circuit
    policy: Policy
    fits: bool = True
    """Whether the policy is the stored one; if not, it must be written."""


class Mail(NamedTuple):
    """A message in the inbox."""

    token: str
    message: Message
    now_s: float
    policy_text: str


def compact(data: Any) -> str:
    return json.dumps(data, separators=(",", ":"))


class PolicyTexts:
    """A cache of the JSON of policies: a few policies are written with every circuit."""

    def __init__(self) -> None:
        self._texts: dict[Policy, str] = {}
        self._policies: dict[str, Policy] = {}
        self._last: tuple[Policy | None, str] = (None, "")

    def text(self, policy: Policy) -> str:
        last, text = self._last
        return text if last is policy else self._looked_up(policy)

    def _looked_up(self, policy: Policy) -> str:
        """Look up by value, which is slower because a policy has many fields to hash."""
        text = self._texts.get(policy)
        if text is None:
            if len(self._texts) >= POLICIES_KEPT:
                self._texts.clear()
            text = self._texts[policy] = compact(dump_policy(policy))
        self._last = policy, text
        return text

    def policy(self, text: str) -> Policy:
        """The policy of this JSON. Raises `WireError`."""
        policy = self._policies.get(text)
        if policy is None:
            if len(self._policies) >= POLICIES_KEPT:
                self._policies.clear()
            policy = self._policies[text] = load_policy(json.loads(text))
        return policy


def seal(stamp: str, circuit: Circuit, policy: Policy, texts: PolicyTexts) -> tuple[bytes, bytes]:
    """The beginning of the value with the stamp, and the whole value."""
    begins = BEGIN + stamp.encode() + b'",'
    body = f'"format":{FORMAT},"circuit":{compact(dump_circuit(policy, circuit, short=True))}'
    return begins, begins + body.encode() + _tail(policy, texts)


def _tail(policy: Policy, texts: PolicyTexts) -> bytes:
    return b',"policy":' + texts.text(policy).encode() + b"}"


def unseal(raw: bytes) -> Sealed:
    """Read a value with its own policy. Raises `WireError`."""
    return load_sealed(*parse_value(raw))


def unseal_for(raw: bytes, policy: Policy, texts: PolicyTexts) -> Sealed:
    """Read a value for this policy. Raises `WireError`."""
    fits = raw.endswith(_tail(policy, texts))
    return load_sealed(*parse_value(raw), policy)._replace(fits=fits)


def load_sealed(begins: bytes, data: dict[str, Any], policy: Policy | None = None) -> Sealed:
    """The circuit in the JSON of a value. Raises `WireError`."""
    stored = load_policy(data.get("policy")) if policy is None else policy
    return Sealed(begins, load_circuit(stored, data.get("circuit")), stored)


def parse_value(raw: bytes) -> tuple[bytes, dict[str, Any]]:
    """The beginning of a value with its stamp, and its JSON. Raises `WireError`, or `TooNewError`."""
    begins = stamp_of(raw)
    try:
        data = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise WireError(f"not JSON: {error}") from error
    if begins is None or not isinstance(data, dict):
        raise WireError("it does not begin with a stamp")
    circuit = data.get("circuit")
    if not isinstance(circuit, dict):
        raise WireError("there is no circuit in it")
    schema = circuit.get("schema")
    for what, number, known in (
        ("format", data.get("format"), FORMAT),
        ("schema", schema, SCHEMA),
    ):
        if isinstance(number, int) and number > known:
            raise TooNewError(f"its {what} is {number}, and this one reads up to {known}")
    if data.get("format") != FORMAT:
        raise WireError(f"its format is {data.get('format')!r}, not {FORMAT}")
    return begins, data


def stamp_of(raw: bytes) -> bytes | None:
    """The beginning of a value, up to and including its stamp; `None`: it has no stamp."""
    end = raw.find(b'",', len(BEGIN))
    return raw[: end + 2] if raw.startswith(BEGIN) and end > 0 else None


def refitted(circuit: Circuit, policy: Policy, to: Policy) -> Circuit:
    """A circuit of one policy, converted to another."""
    if policy is to or policy == to:
        return circuit
    return load_circuit(to, dump_circuit(policy, circuit))


def seal_event(event: Event) -> bytes:
    return compact(dump_event(event)).encode()


def unseal_event(raw: bytes) -> Event:
    """The inverse of `seal_event`. Raises `WireError`."""
    try:
        return load_event(json.loads(raw))
    except (ValueError, RecursionError) as error:
        raise WireError(f"not an event: {error}") from error


def seal_mail(mail: Mail) -> bytes:
    """A message for the inbox: its token in the first line, the rest in the second."""
    body = compact([dump_message(mail.message), mail.now_s, mail.policy_text])
    return f"{mail.token}\n{body}".encode()


def unseal_mail(raw: bytes) -> Mail:
    """The inverse of `seal_mail`. Raises `WireError`."""
    token, _, body = raw.partition(b"\n")
    try:
        message, now_s, policy_text = json.loads(body)
        return Mail(token.decode(), load_message(message), float(now_s), str(policy_text))
    except (ValueError, TypeError, RecursionError) as error:
        raise WireError(f"not a message: {error!r}") from error


def token_of(raw: bytes) -> bytes:
    return raw.partition(b"\n")[0]


def seal_answer(verdict: Verdict, events: tuple[Event, ...]) -> bytes:
    """The result of another process's message; the server adds the circuit in a second line."""
    return compact([list(verdict), [dump_event(event) for event in events]]).encode()


def unseal_answer(raw: bytes) -> tuple[Verdict, tuple[Event, ...], bytes]:
    """The verdict, the events and the value of the circuit. Raises `WireError`."""
    first, _, value = raw.partition(b"\n")
    try:
        (admitted, phase, reason, retry_after_s, heat, permit, overruled), events = json.loads(
            first
        )
        granted = None if permit is None else Permit(*permit)
        verdict = Verdict(admitted, Phase(phase), reason, retry_after_s, heat, granted, overruled)
        return verdict, tuple(map(load_event, events)), value
    except (ValueError, TypeError) as error:
        raise WireError(f"not an answer: {error!r}") from error
