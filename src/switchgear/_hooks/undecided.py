"""Hook calls that could not be decided: the ruling, and the event that reports them.

An unreadable call is refused. A call that breaks no rule, but whose circuits cannot be consulted, is admitted
or refused as configured.

Undecided calls are recorded on the circuit `hooks/<agent>`: its events have the reasons, and its number of
ignored signals is their number. While the store is unavailable, they are written to a small file beside it;
the next hook that reaches the store moves them there.
"""

import os
import time
from collections.abc import Callable

from switchgear._agents.hook_protocol import (
    REFUSING,
    Action,
    Dialect,
    HookFacts,
    Moment,
    Reply,
    Ruling,
    plugin_reply,
)
from switchgear._core.policy import Policy
from switchgear._core.types import EventKind, Override, Record, Signal
from switchgear._hooks.command import AGENTS
from switchgear._stores.base import Store, Transaction
from switchgear._text.redact import redact

SPILL = "hooks-undecided.log"
MAX_SPILL_BYTES = 65_536
"""Maximum size of the file in bytes; further calls are reported, but not recorded."""
ADMIT, REFUSE = "admit", "refuse"


def hooks_circuit(agent: str) -> str:
    return f"hooks/{agent}"


def undecided_ruling(why: str, on_trouble: str, facts: HookFacts | None) -> Ruling:
    """The ruling on a call that breaks no rule, and whose circuits could not be consulted."""
    refuses = on_trouble == REFUSE and (facts is None or facts.moment is Moment.BEFORE_TOOL)
    remark = undecided_remark(why, "refused" if refuses else "admitted")
    if not refuses:
        return Ruling(Action.ALLOW, remark=remark)
    text = f"Switchgear could not decide, and hooks.on_trouble is {REFUSE!r}: {why}"
    return Ruling(Action.DENY, text, remark)


def unreadable_ruling(why: str) -> Ruling:
    """The ruling on a call that cannot be read, resolved or analysed: refused, whatever is configured."""
    why = redact(why)
    text = (
        f"Switchgear refused this call because it cannot be checked: {why}. "
        "Repeat it in a form that can be checked: plain text, shorter, one step at a time."
    )
    return Ruling(Action.DENY, text, f"switchgear refused a call that it cannot check: {why}")


def undecided_remark(why: str, outcome: str) -> str:
    return f"switchgear could not decide, and {outcome}: {redact(why)}"


def reply_without_event(agent: str, ruling: Ruling) -> Reply:
    """The reply to an event that could not be read.

    Every agent with hooks of its own takes exit code 2 as a refusal; our plugins read the ruling.
    """
    if agent in {"opencode", "pi"}:
        return plugin_reply(ruling)
    refused = ruling.action in REFUSING
    text = ruling.text if refused else ruling.remark
    return Reply("", text, 2 if refused else 0, refusal=text if refused else "")


def record_undecided(store: Store, policy: Policy, agent: str, why: str, times: int = 1) -> None:
    """Record an undecided call with its reason. Raises `StoreError`."""
    key = hooks_circuit(agent)

    def work(inside: Transaction) -> None:
        inside.apply(key, policy, Record(Signal(count=times)))
        inside.apply(key, policy, Override("switchgear", redact(why), kind=EventKind.UNDECIDED))

    store.transact(key, work)


def record_event(store: Store, policy: Policy, key: str, kind: EventKind, text: str) -> None:
    """Record an event on a circuit, without any other change. Raises `StoreError`."""
    event = Override("switchgear", text, kind=kind)
    store.transact(key, lambda inside: inside.apply(key, policy, event))


def spill(folder: str, agent: str, why: str) -> None:
    """Save an undecided call to the file until the store is available again. Never raises.

    If another process uses the file, the call is not saved: no hook waits for that.
    """
    line = f"{time.time():.0f} {agent} {redact(why)}\n".encode()
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
        file = os.open(os.path.join(folder, SPILL), flags, 0o600)
        try:
            _lock(file)
            if os.fstat(file).st_size < MAX_SPILL_BYTES:
                os.write(file, line)
        finally:
            os.close(file)
    except OSError:
        return


def save_spilled(folder: str, store: Store, policy_for: Callable[[str], Policy]) -> None:
    """Move the calls in the file to the store. Raises `StoreError`."""
    path = os.path.join(folder, SPILL)
    try:
        file = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return  # the usual case: there is no file
    try:
        if not os.fstat(file).st_size:
            return
        _lock(file)
        lines = os.read(file, MAX_SPILL_BYTES + 4096).decode(errors="replace").splitlines()
        by_agent: dict[str, list[str]] = {}
        for line in lines:
            _, _, rest = line.partition(" ")
            agent, _, why = rest.partition(" ")
            if agent in AGENTS:
                by_agent.setdefault(agent, []).append(why)
        for agent, whys in by_agent.items():
            often = f" ({len(whys)} times)" if len(whys) > 1 else ""
            summary = f"while the store was unavailable{often}: {whys[-1]}"
            record_undecided(store, policy_for(hooks_circuit(agent)), agent, summary, len(whys))
        # Truncated, not removed: another process may have it open already.
        os.ftruncate(file, 0)
    except BlockingIOError:
        return
    finally:
        os.close(file)


def _lock(file: int) -> None:
    """Lock the file. Raises BlockingIOError if another process holds the lock."""
    import fcntl  # noqa: PLC0415  rarely needed

    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


DEADLINE_S = 12.0
"""Seconds from the start of a hook to its response. Agents wait 15 s, and starting Python takes some of that."""
CIRCUITS_S = 5.0
"""Seconds to consult the circuits after the rules were evaluated; a store can block."""


class Pending:
    """A hook call in progress. The thread that answers it writes these fields; the thread of the deadline reads them."""

    def __init__(self, began_s: float | None = None, event: str = "") -> None:
        self.began_s = time.monotonic() if began_s is None else began_s
        self.event = event
        """Identifies the event, see `client.event_id`."""
        self.dialect: Dialect | None = None
        self.facts: HookFacts | None = None
        self.root: str | None = None
        self.on_trouble = ADMIT
        self.refusal: Ruling | None = None
        """The final refusal, if the rules refuse the call."""
        self.rules_done_s: float | None = None
        """When the rules were evaluated, or the call was found unreadable."""

    def due_s(self) -> float:
        """When the call must be answered, on the monotonic clock."""
        deadline_s = self.began_s + DEADLINE_S
        return (
            deadline_s
            if self.rules_done_s is None
            else min(deadline_s, self.rules_done_s + CIRCUITS_S)
        )

    def set_rules_result(self, refusal: Ruling | None) -> None:
        """Set the result of the rules: a final refusal, or `None` to leave the decision to the circuits."""
        self.refusal = refusal
        self.rules_done_s = time.monotonic()

    def session_to_watch(self) -> tuple[str, str] | None:
        """The project and the session of the event; `None`: the event ends the session, or is unreadable."""
        facts = self.facts
        if facts is None or self.root is None or facts.moment is Moment.SESSION_END:
            return None
        return self.root, facts.session

    def begins_work(self) -> bool:
        starts = (Moment.SESSION_START, Moment.PROMPT)
        return self.facts is not None and self.facts.moment in starts

    def ruling(self, why: str) -> Ruling:
        """The ruling if nothing more can be decided, according to the stage reached so far."""
        facts = self.facts
        if self.refusal is not None:
            remark = self.refusal.remark or undecided_remark(why, "refused")
            return self.refusal._replace(remark=remark)
        if facts is not None and facts.moment is not Moment.BEFORE_TOOL:
            return undecided_ruling(why, ADMIT, facts)
        if self.rules_done_s is None:
            return unreadable_ruling(why)
        return undecided_ruling(why, self.on_trouble, facts)

    def reasons(self, why: str) -> str:
        """Why the call could not be decided, after the text of the final refusal if there is one."""
        return why if self.refusal is None else f"{self.refusal.text} {why}"

    def reply(self, agent: str, ruling: Ruling) -> Reply:
        """The ruling in the agent's format; if the event is unreadable, as an exit code or plugin reply."""
        if self.dialect is None or self.facts is None:
            return reply_without_event(agent, ruling)
        return reply_in_dialect(self.dialect, self.facts, ruling)


def reply_in_dialect(dialect: Dialect, facts: HookFacts, ruling: Ruling) -> Reply:
    reply = dialect.write(ruling, facts)
    refuses = ruling.action in REFUSING and facts.moment is Moment.BEFORE_TOOL
    return reply._replace(refusal=ruling.text) if refuses else reply
