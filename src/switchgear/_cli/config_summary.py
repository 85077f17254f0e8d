"""What a configuration holds, for `switchgear config check` and `config init`: one row a section."""

import os
from typing import TYPE_CHECKING, Any, NamedTuple

from switchgear._cli.views.text import clean, plural, say
from switchgear._text.money import dollars

if TYPE_CHECKING:
    from switchgear._config import Config

MOST_NAMED = 20
"""Names shown of a section; the others are counted."""


class Row(NamedTuple):
    """One section: what it is called, how many entries it has, and which."""

    title: str
    entries: int
    items: list[str]


def summary(config: "Config", *, store: str) -> list[Row]:
    """What was found, section by section; those without an entry are left out but for the store."""
    from switchgear._rules.builtin import builtin_rules  # noqa: PLC0415
    from switchgear._text.redact import redact  # noqa: PLC0415

    crew = config.crew
    providers = sorted({model.provider for one in crew.agents.values() for model in one.models})
    builtin = {rule.name for rule in builtin_rules()}
    own = [rule.name for rule in config.rules.rules if rule.name not in builtin]
    held = len(config.rules.rules)
    rows = [
        Row("store", 1, [store]),
        _row("agents", [_agent(one) for one in crew.agents.values()]),
        _row("providers", providers),
        _row("stories", [_story(one) for one in crew.stories.values()]),
        _row("breakers", _breakers(config)),
        _row("policies", list(config.policies)),
        _row("circuits", [rule.match for rule in config.circuits]),
        _row("loops", list(config.loop_presets)),
        Row("rules", held, [f"{held - len(own)} built-in", *own]),
        _row("sinks", [redact(repr(sink)) for sink in config.sinks]),
        _row("targets", [_target(one) for one in config.notifications]),
        _row("budgets", [_budget(node) for node in config.budgets]),
    ]
    return [row for row in rows if row.entries]


def unset_variables(config: "Config") -> list[str]:
    """Environment variables that targets need and that are not set here, each with what needs it."""
    found = []
    for target in config.notifications:
        for key in ("secret_env", "url_env"):
            name = target.fields().get(key)
            if name and not os.environ.get(name):
                found.append(f"{name}, which target {target.name!r} needs")
    return found


def say_summary(rows: list[Row]) -> None:
    """Print the rows."""
    width = max(len(row.title) for row in rows)
    for row in rows:
        more = len(row.items) - MOST_NAMED
        named = row.items[:MOST_NAMED] + ([f"and {more} more"] if more > 0 else [])
        count = "" if row.title == "store" else f"{row.entries}: "
        say(clean(f"  {row.title.ljust(width)}  {count}{'; '.join(named)}", 4000))


def as_values(rows: list[Row]) -> dict[str, Any]:
    """The rows as JSON values."""
    return {row.title: {"count": row.entries, "items": row.items} for row in rows}


def _row(title: str, items: list[str]) -> Row:
    return Row(title, len(items), items)


def _agent(one: Any) -> str:
    models = ", then ".join(map(str, one.models))
    chain = f", then agent {', '.join(one.fallback_chain)}" if one.fallback_chain else ""
    return f"{one.name} ({one.owner}) on {models}{chain}"


def _story(one: Any) -> str:
    budget = "" if one.budget_micros is None else f" {dollars(one.budget_micros)}"
    return f"{one.name} ({one.owner}){budget}"


def _breakers(config: "Config") -> list[str]:
    if config.breakers is None:
        return []
    from switchgear._fleet.categories import shown_name  # noqa: PLC0415

    found = config.breakers._asdict().items()
    return [shown_name(name) + ("" if one.enabled else " (off)") for name, one in found]


def _target(one: Any) -> str:
    """A target in words, without what may be secret."""
    from switchgear._cli.config import place_of_url  # noqa: PLC0415  it imports this

    fields = one.fields()
    where = fields.get("url_env") or fields.get("run") or ""
    if "url" in fields:
        where = place_of_url(fields["url"])
    signed = f", signed with {fields['secret_env']}" if fields.get("secret_env") else ""
    about = "" if one.match == "*" else f", for {one.match}"
    from switchgear._text.redact import redact  # noqa: PLC0415

    return redact(f"{one.name}: {one.kind} {where}".rstrip() + signed + about)


def _budget(node: Any) -> str:
    limit = "no limit" if node.limit_micros is None else dollars(node.limit_micros)
    return f"{node.node} {limit}"


def say_notes(notes: Any, unset: list[str]) -> None:
    """Print what deserves a look though the file is valid."""
    for one in unset:
        say(clean(f"  not set: {one}", 1000))
    for note in notes:
        say(clean(f"  note: {note}", 1000))
    if notes:
        say(f"  {plural(len(notes), 'key')} of earlier versions: accepted, nothing has to be done")
