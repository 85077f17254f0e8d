"""What can be told of a call before it is made: its operation, its files, the rule it would break."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from switchgear.core.digest import digest
from switchgear.hooks import kinds, signals
from switchgear.hooks.compiled import Compiled
from switchgear.hooks.facts import HookFacts
from switchgear.redact import redact


class Looked(NamedTuple):
    """What can be told of a call before it is made."""

    kind: str
    changes: int = 0
    broken: str | None = None
    """The rule that it would break."""


def look_at(facts: HookFacts, known: Compiled) -> Looked:
    """What a call would do, and the rule that it would break, if any."""
    from switchgear.core.deeds import deed_of  # noqa: PLC0415  only before a tool
    from switchgear.core.rules import judge_deed  # noqa: PLC0415
    from switchgear.guards.rules import place_at  # noqa: PLC0415

    place = place_at(known.root, cwd=facts.cwd, protected=known.protected)
    deed = deed_of(facts.tool, facts.args, place)
    broken: object = judge_deed(known.loaded_rules(), deed, place) or _killed(deed.commands)
    touched = {path for path in (*deed.writes, *deed.deletes) if not path.startswith("/dev/")}
    kind = kinds.kind_of(facts.tool, deed.commands)
    return Looked(kind, len(touched), None if broken is None else redact(str(broken)))


def _killed(commands: Iterable[Sequence[str]]) -> str | None:
    """The rule that killing a process of ours by its number breaks; only here it is known whose."""
    kills = [words for words in commands if words and words[0] == "kill"]
    if not kills:
        return None
    from switchgear.hooks.interrupt import is_ours  # noqa: PLC0415  seldom

    for words in kills:
        numbers = [word.lstrip("-") for word in words[1:]]
        if any(word.isdecimal() and is_ours(int(word[:10])) for word in numbers):
            return f"rule guard/killed: {' '.join(words)} (it is the guard)"
    return None


def call_id(facts: HookFacts) -> str:
    """The agent's name for the call; without one, equal calls are told apart by their order."""
    if facts.call_id:
        return redact(facts.call_id, 120)
    return "#" + digest(f"{facts.tool}\0{signals.args_text(facts.args)}")
