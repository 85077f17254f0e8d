"""Writes golden files, on purpose: `python tests/golden/write.py` adds those that are missing.

A file that exists is never written again: what was stored once must load forever. A new schema
number gives new files beside the old ones.
"""

import json
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

from golden.scenarios import SCENARIOS, lived  # noqa: E402  found by the line above
from switchgear._core.policy import Policy  # noqa: E402
from switchgear._core.types import Circuit  # noqa: E402
from switchgear._core.wire import SCHEMA, dump_circuit, dump_event  # noqa: E402


def as_text(data: Any) -> str:
    return json.dumps(data, indent=1, allow_nan=False) + "\n"


def value(policy: Policy, circuit: Circuit) -> str:
    """All of a circuit in words; of the memories, what the detectors make of them."""
    readings = policy.readings(circuit.memories, circuit.seen_s)
    fields = circuit._replace(memories=())
    # Golden files are older than `recent` and `isolated`: a circuit without them is what it was.
    added = (circuit.recent is None) + (not circuit.isolated)
    known = fields[: len(fields) - added] if not circuit.isolated else fields
    parts = (*known, *(reading[:2] for reading in readings))
    return "\n".join(map(shown, (*parts,))) + "\n"


ADDED = {"Probing": ("failures",), "Override": ("until_s", "probe", "process")}
"""Fields that came later: left out where they have their default, so that old texts stay as they are."""


def shown(part: Any) -> str:
    """A part of a circuit in words."""
    if type(part) is tuple and len(part) == 2 and isinstance(part[0], float):
        return f"Reading(heat={part[0]!r}, reason={part[1]!r})"
    text, kind = repr(part), type(part)
    for name in ADDED.get(kind.__name__, ()):
        if getattr(part, name) == kind._field_defaults[name]:
            text = text.replace(f", {name}={getattr(part, name)!r}", "")
    return text


def files() -> dict[str, str]:
    """The name and the text of every golden file of this schema."""
    texts: dict[str, str] = {}
    for name in SCENARIOS:
        policy, circuit, events = lived(name)
        texts[f"circuit-v{SCHEMA}-{name}.json"] = as_text(dump_circuit(policy, circuit))
        texts[f"circuit-v{SCHEMA}-{name}.txt"] = value(policy, circuit)
        if events:
            texts[f"event-v{SCHEMA}-{name}.json"] = as_text([*map(dump_event, events)])
            texts[f"event-v{SCHEMA}-{name}.txt"] = "".join(f"{event!r}\n" for event in events)
    return texts


if __name__ == "__main__":
    for name, text in files().items():
        if not (HERE / name).exists():
            (HERE / name).write_text(text)
            sys.stdout.write(f"wrote {name}\n")
