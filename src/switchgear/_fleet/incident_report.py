"""The report of an incident in Markdown. Whatever agents wrote is shown, and does nothing."""

from datetime import UTC, datetime
from typing import Any

from switchgear._core.errors import elapsed
from switchgear._fleet.categories import shown_name
from switchgear._text.money import dollars
from switchgear._text.redact import redact


def report(incident: dict[str, Any]) -> str:
    """The report, for people."""
    status = str(incident["status"])
    head = [
        f"# {incident['severity']}: {code(incident['circuit'])}",
        "",
        f"- Incident: {code(incident['id'])}, {status}",
        f"- Category: {shown_name(incident['category'])}; {incident['action']}",
        f"- What tripped: {code(incident['reason'])}",
        f"- When: {incident.get('opened_at')}{_until(incident)}",
        f"- Agents: {_list(incident.get('agents'))}; owners: {_list(incident.get('owners'))}",
        f"- Spent so far: {_money(incident.get('spent_micros'))}",
    ]
    if incident.get("mark"):
        head.append(f"- Judged: {str(incident['mark']).replace('_', ' ')}")
    if incident.get("closed_by"):
        who, why = code(incident["closed_by"]), code(incident.get("closed_why") or "")
        head.append(f"- Closed by {who} at {incident.get('closed_at')}: {why}")
    if incident.get("unknown"):
        head.append(f"- Not known: {code(incident['unknown'])}")
    parts = [
        *head,
        *_section("Evidence", map(code, incident.get("evidence", []))),
        *_section("Timeline", map(_line, incident["timeline"])),
        *_section("Rerouted", map(code, incident.get("rerouted", []))),
        *_section("Partial state", map(code, incident.get("partial_state", []))),
        *_section("What to do", map(code, incident.get("what_to_do", []))),
    ]
    return "\n".join(parts) + "\n"


def code(text: Any) -> str:
    """A text that Markdown and terminals only show: one line, no secrets, as code."""
    plain = redact(str(text), 400).replace("`", "'")
    return f"`{plain}`" if plain else "(nothing)"


def iso(at_s: float) -> str | None:
    """UTC; `None`: a time beyond the calendar."""
    try:
        return datetime.fromtimestamp(at_s, UTC).isoformat(timespec="seconds")
    except (OverflowError, OSError, ValueError):
        return None


def _line(line: dict[str, Any]) -> str:
    moved = line["kind"] == "moved"
    what = f"{line['before']} → {line['after']}" if moved else f"{line['kind']}"
    by = f" by {code(line['by'])}: {code(line['why'])}" if line["by"] else ""
    return f"{line['at']} {what}{': ' + code(line['reason']) if line['reason'] else ''}{by}"


def _section(title: str, lines: Any) -> list[str]:
    found = [f"- {line}" for line in lines]
    return ["", f"## {title}", "", *(found or ["- none"])]


def _list(names: Any) -> str:
    return ", ".join(map(code, names)) if names else "none"


def _money(micros: Any) -> str:
    return dollars(micros) if isinstance(micros, int) else "not known"


def _until(incident: dict[str, Any]) -> str:
    if not incident.get("recovered_at"):
        return ""
    return (
        f", recovered {incident['recovered_at']} after {elapsed(incident.get('lasted_s') or 0.0)}"
    )
