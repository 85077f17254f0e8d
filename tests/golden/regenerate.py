"""Golden files: what users, agents and stored data depend on. `python tests/golden/regenerate.py`

| file | what it holds | when it differs |
|---|---|---|
| `hooks-AGENT.json` | the reply of the hooks to each event of an agent | regenerate, and review the diff |
| `json_shapes.json` | keys and types of every `--json` output | regenerate, and review the diff |
| `public_api.txt` | public names with signatures | regenerate, and review the diff |
| `store-*` | what was stored in SQLite and Redis | a defect: written once, never again |

Exit codes are a table in `commands.py`, kept by hand. `circuit-*` and `event-*` are written by
`write.py`, once as well. Pass names to regenerate only those:
`python tests/golden/regenerate.py public_api.txt`.
"""

import json
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

from golden import commands, hook_replies, public_api, stores  # noqa: E402  found by the line above


def as_text(data: Any) -> str:
    return json.dumps(data, indent=1, ensure_ascii=False) + "\n"


def _hooks(agent: str) -> Callable[[], str]:
    return lambda: as_text(hook_replies.replies(agent))


FILES: dict[str, Callable[[], str]] = {
    **{f"hooks-{agent}.json": _hooks(agent) for agent in hook_replies.EVENTS},
    "json_shapes.json": lambda: as_text(commands.shapes()),
    "public_api.txt": public_api.text,
}
"""The golden files that follow the code, and what they hold now."""


def write_stores() -> None:
    """Write what is stored, unless it was written before."""
    from servers.server import running  # noqa: PLC0415  only once in the life of a format

    if not (HERE / f"{stores.SQLITE}.sql").exists():
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "state.db"
            with stores.sqlite_panel(path) as panel:
                stores.fill(panel)
                _write(f"{stores.SQLITE}.facts.json", as_text(stores.facts(panel)))
            _write(f"{stores.SQLITE}.sql", stores.dump_sqlite(path))
    if not (HERE / f"{stores.REDIS}.json").exists():
        with running() as server:
            with stores.redis_panel(server.url) as panel:
                stores.fill(panel)
                _write(f"{stores.REDIS}.facts.json", as_text(stores.facts(panel)))
            _write(f"{stores.REDIS}.json", stores.dump_redis(server.url))


def _write(name: str, text: str) -> None:
    path = HERE / name
    if not path.exists() or path.read_text() != text:
        path.write_text(text)
        sys.stdout.write(f"wrote {name}\n")


if __name__ == "__main__":
    os.environ["SWITCHGEAR_TRUST"] = "1"
    chosen = sys.argv[1:] or list(FILES)
    for name in chosen:
        _write(name, FILES[name]())
    if not sys.argv[1:]:
        write_stores()
