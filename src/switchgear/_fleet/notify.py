"""One notice to several targets, at once and within a deadline: for a run that ended, for one.

Events of circuits need none of this: the store is their outbox, and `delivery.py` sends them.
"""

import os
import threading
from collections.abc import Iterable, Sequence
from time import monotonic, time
from typing import Any, NamedTuple

from switchgear._core import values
from switchgear._fleet.incidents import iso
from switchgear._fleet.targets import Command, Desktop, Message, NotSent, Slack, Target, Webhook
from switchgear._text.redact import redact

SEVERITIES = ("SEV1", "SEV2", "SEV3", "INFO")


class Outcome(NamedTuple):
    """What became of a notice at one target."""

    target: str
    """The target's name."""
    sent: bool
    why: str = ""
    """Why it did not arrive; empty if it did."""


def notice(
    text: str,
    *,
    severity: str = "INFO",
    kind: str = "notice",
    circuit: str = "",
    reason: str = "",
    owners: Iterable[str] = (),
    at_s: float | None = None,
    **facts: Any,
) -> Message:
    """A message with the keys that events have; `facts` are added as they are (JSON values).

    `severity` is one of SEV1, SEV2, SEV3, INFO. Raises ValueError for another.

    >>> notice("run r1 ended", severity="SEV2", owners=["ana"], run="r1")["text"]
    '[SEV2] run r1 ended'
    """
    values.one_of("severity", severity, SEVERITIES)
    now_s = time() if at_s is None else at_s
    return {
        "id": f"{redact(circuit or kind)}#{now_s:.3f}-{os.urandom(4).hex()}",
        "text": redact(f"[{severity}] {text}", 800),
        "severity": severity,
        "category": None,
        "circuit": redact(circuit, 500),
        "kind": kind,
        "at": iso(now_s),
        "at_s": now_s,
        "reason": redact(reason, 400),
        "owners": [redact(owner) for owner in owners],
        **facts,
    }


def deliver(targets: Sequence[Target], message: Message, timeout_s: float = 10.0) -> list[Outcome]:
    """Send a message to all targets that match its circuit, side by side. Never raises.

    Returns after `timeout_s` seconds at most, with an outcome for each of them.
    """
    circuit = str(message.get("circuit") or "")
    wanted = [one for one in targets if not circuit or one.wants(circuit)]
    outcomes: dict[int, Outcome] = {}

    def send(number: int, target: Target) -> None:
        outcomes[number] = _sent(target, message, timeout_s)

    threads = [
        threading.Thread(target=send, args=pair, name="switchgear-notify", daemon=True)
        for pair in enumerate(wanted)
    ]
    deadline_s = monotonic() + timeout_s
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.0, deadline_s - monotonic()))
    late = f"no answer within {timeout_s:g} s"
    return [
        outcomes.get(number, Outcome(target.name, False, late))
        for number, target in enumerate(wanted)
    ]


def target_from_text(text: str) -> Target:
    """The target that an option such as `--notify` names. Raises ValueError.

    `desktop`; an http or https URL; `slack:VARIABLE`; `command:PROGRAM ARGUMENTS`.

    >>> target_from_text("desktop").name
    'desktop'
    """
    kind, _, rest = text.partition(":")
    if text == "desktop":
        return Desktop()
    if kind in {"http", "https"}:
        return Webhook(text)
    if kind == "slack":
        return Slack(rest)
    if kind == "command":
        return Command(rest)
    rule = "it must be desktop, a URL, slack:VARIABLE or command:PROGRAM"
    raise ValueError(f"target is {redact(text)!r}: {rule}")


def _sent(target: Target, message: Message, timeout_s: float) -> Outcome:
    try:
        target.replace(timeout_s=min(target.timeout_s, timeout_s)).send(message, time())
    except NotSent as error:
        return Outcome(target.name, False, str(error))
    except Exception as error:  # noqa: BLE001  a notice must not hurt what it is about
        return Outcome(target.name, False, redact(f"{type(error).__name__}: {error}"))
    return Outcome(target.name, True)
