"""Adds a warning to the last message of a request, as a hint for the model. Pure.

Only with the option `--hint`, because it changes the bytes of the request.
"""

import copy
import json
from collections.abc import Mapping
from typing import Any

from switchgear._providers.traffic import ModelProtocol

_HINT = (
    "[switchgear] You may be going in circles: {why}. Change your approach, or say what blocks you."
)


def with_hint(protocol: ModelProtocol, payload: Mapping[str, Any], why: str) -> bytes | None:
    """The request with the hint at the end of its last message; `None` if it cannot be added."""
    made: dict[str, Any] = copy.deepcopy(dict(payload))
    text = _HINT.format(why=why)
    if protocol.family == "google":
        turns, part = made.get("contents"), {"text": text}
        last = _last(turns)
        if last is None or not isinstance(last.get("parts"), list):
            return None
        last["parts"].append(part)
    elif protocol is ModelProtocol.OPENAI_RESPONSES:
        turns = made.get("input")
        if not isinstance(turns, list):
            return None
        content = [{"type": "input_text", "text": text}]
        turns.append({"type": "message", "role": "user", "content": content})
    else:
        last = _last(made.get("messages"))
        if last is None or not _append(last, text):
            return None
    return json.dumps(made, separators=(",", ":")).encode()


def _last(turns: Any) -> dict[str, Any] | None:
    last = turns[-1] if isinstance(turns, list) and turns else None
    return last if isinstance(last, dict) else None


def _append(message: dict[str, Any], text: str) -> bool:
    content = message.get("content")
    if isinstance(content, str):
        message["content"] = f"{content}\n\n{text}"
    elif isinstance(content, list):
        content.append({"type": "text", "text": text})
    else:
        return False
    return True
