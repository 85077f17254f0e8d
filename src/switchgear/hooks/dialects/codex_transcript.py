"""How a command of Codex ended: its hooks do not say, but its transcript does.

When a hook is called after a tool, the end of that very command is already in the file that the
hook is told of, one JSON object a line. Whatever else is found there means: not known.
"""

import json
from typing import Any

from switchgear.hooks.dialects.transcript import end_of

_KIND = b'"CommandExecution"'


def exit_code_of(transcript: str, call_id: str) -> int | None:
    """The exit code of a call; `None`: the transcript does not say. Never raises."""
    if not transcript or not call_id:
        return None
    name = json.dumps(call_id).encode()
    for line in reversed(end_of(transcript).splitlines()):
        if name not in line or _KIND not in line:
            continue
        item = _item(line)
        if item.get("id") == call_id:
            code = item.get("exit_code")
            return code if isinstance(code, int) and not isinstance(code, bool) else None
    return None


def _item(line: bytes) -> dict[str, Any]:
    try:
        told: Any = json.loads(line.decode(errors="replace"))
        item = told["payload"]["item"]
    except (ValueError, TypeError, KeyError, RecursionError):
        return {}
    return item if isinstance(item, dict) else {}
