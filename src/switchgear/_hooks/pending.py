"""What is known so far of a hook call that is being answered, and the answer that follows from it.

A call is judged in two stages. The rules come first: their verdict depends on the call, the
configuration and the file system alone, and it is final. The circuits come second, and they need the
store. So whatever fails, and whenever the time is up, the answer follows from the stage reached:

- a rule is broken, or the call cannot be read: refused;
- before a tool, and the rules have not been judged: refused;
- before a tool, and no rule is broken: `hooks.on_trouble` decides about the circuits;
- any other event: admitted, because there is nothing left to refuse.
"""

import time

from switchgear._agents.hook_protocol import REFUSING, Dialect, HookFacts, Moment, Reply, Ruling
from switchgear._hooks import undecided

DEADLINE_S = 12.0
"""From the start to the answer. Agents wait 15 s for a hook, and starting Python takes its part."""
CIRCUITS_S = 5.0
"""How long the circuits may take once the rules are judged. A store that is jammed costs this much."""


class Pending:
    """One hook call under way. Written by the thread that answers, read by the deadline's thread."""

    def __init__(self, began_s: float | None = None) -> None:
        self.began_s = time.monotonic() if began_s is None else began_s
        self.dialect: Dialect | None = None
        self.facts: HookFacts | None = None
        self.root: str | None = None
        """The project, once it is known."""
        self.on_trouble = undecided.ADMIT
        self.refusal: Ruling | None = None
        """The refusal that stands whatever comes after it."""
        self.judged_s: float | None = None
        """When the rules were judged, or the call was found unreadable."""

    def due_s(self) -> float:
        """When the call must be answered, on the monotonic clock."""
        last_s = self.began_s + DEADLINE_S
        return last_s if self.judged_s is None else min(last_s, self.judged_s + CIRCUITS_S)

    def judged(self, refusal: Ruling | None) -> None:
        """The rules are judged: `refusal` is final, `None` leaves it to the circuits."""
        self.refusal = refusal
        self.judged_s = time.monotonic()

    def session_to_watch(self) -> tuple[str, str] | None:
        """The project and the session of the event, unless the session ends with it."""
        facts = self.facts
        if facts is None or self.root is None or facts.moment is Moment.SESSION_END:
            return None
        return self.root, facts.session

    def begins_work(self) -> bool:
        """Whether the agent begins to work with this event: it may have waited for its user."""
        starts = (Moment.SESSION_START, Moment.PROMPT)
        return self.facts is not None and self.facts.moment in starts

    def ruling(self, why: str) -> Ruling:
        """The ruling that follows from the stage reached, if nothing more can be found out."""
        facts = self.facts
        if self.refusal is not None:
            return self.refusal._replace(remark=self.refusal.remark or undecided.said(why, REFUSED))
        if facts is not None and facts.moment is not Moment.BEFORE_TOOL:
            return undecided.ruling_on(why, undecided.ADMIT, facts)
        if self.judged_s is None:
            return undecided.unreadable(why)
        return undecided.ruling_on(why, self.on_trouble, facts)

    def reply(self, agent: str, ruling: Ruling) -> Reply:
        """The ruling in the agent's own words; without the event, by exit code or plugin."""
        if self.dialect is None or self.facts is None:
            return undecided.blind_reply(agent, ruling)
        return in_dialect(self.dialect, self.facts, ruling)


REFUSED = "refused"


def in_dialect(dialect: Dialect, facts: HookFacts, ruling: Ruling) -> Reply:
    """The ruling as the agent obeys it, with what to do if it cannot be written."""
    reply = dialect.write(ruling, facts)
    refuses = ruling.action in REFUSING and facts.moment is Moment.BEFORE_TOOL
    return reply._replace(refusal=ruling.text) if refuses else reply
