"""Records the session files that `switchgear backtest` reads: each agent plays "gives-up" once.

    PYTHONPATH=tests python -m e2e.agents.recording FOLDER [NAME…]

What an agent leaves in its home is shortened, and everything of this machine taken out. The files of
tests/unit/sessions were made like this; make them anew when an agent changes its format.
"""

import json
import platform
import re
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from e2e.agents.fake_llm import ScriptedApi
from e2e.agents.installation import why_missing
from e2e.agents.worlds import world_of

SESSIONS = {
    "claude": ".claude/projects/*/*.jsonl",
    "codex": ".codex/sessions/**/*.jsonl",
    "gemini": ".gemini/tmp/*/chats/*.json*",
    "opencode": ".local/share/opencode/opencode.db",
    "pi": ".pi/agent/sessions/*/*.jsonl",
    "qwen": ".qwen/projects/*/chats/*.jsonl",
}
"""Where each agent keeps its sessions, in its home."""
TABLES = ("session", "message", "part")
"""Of OpenCode's database, what is read of it."""
LONGEST = 200
"""Characters of a text: a longer one is the vendor's prompt, and nothing of the session."""
_LEFT_OUT = "(left out)"
_DROPPED = frozenset({"rendered", "shape", "attachment", "snapshot"})
"""Fields that hold prompts in many small parts; their type is kept."""


def recorded(name: str) -> str:
    """The session file of one agent after one run, shortened; of a database, its rows."""
    with ScriptedApi() as api, tempfile.TemporaryDirectory() as place:
        home, project = Path(place, "home"), Path(place, "project")
        project.mkdir()
        git = ["git", "-c", "user.name=test", "-c", "user.email=test@localhost"]
        for verb in (["init", "-q"], ["commit", "-q", "--allow-empty", "-m", "Start"]):
            subprocess.run([*git, *verb], cwd=project, check=True)
        world = world_of(name, api.url, home)
        api.play("gives-up")
        flags = ["--agent", name, "--model", world.model, "--max-iterations", "1", "--shadow"]
        command = [sys.executable, "-m", "switchgear", "run", "Check it.", *flags, "--json"]
        done = subprocess.run(
            command, cwd=project, env=world.env, stdin=subprocess.DEVNULL, capture_output=True,
            text=True, timeout=200, check=False,
        )  # fmt: skip
        files = list(home.glob(SESSIONS[name]))
        if len(files) != 1:
            raise SystemExit(f"{name} left {len(files)} sessions: {done.stderr}")
        file = files[0]
        lines: Iterable[str] = (
            _rows(file) if file.suffix == ".db" else file.read_text().splitlines()
        )
        words: dict[str, str] = {str(project): "/home/user/project", str(home): "/home/user"}
        words |= {place: "/home/user", api.url: "http://localhost", platform.release(): "6.0"}
        return "".join(f"{_clean(line, words)}\n" for line in lines)


def _rows(file: Path) -> Iterator[str]:
    link = sqlite3.connect(file)
    for table in TABLES:
        [sql] = link.execute("select sql from sqlite_master where name = ?", (table,)).fetchone()
        yield " ".join(sql.split()) + ";"
        for row in link.execute(f"select * from {table} order by id"):
            yield json.dumps([table, *row])
    link.close()


def _clean(line: str, words: dict[str, str]) -> str:
    for found, instead in words.items():
        line = line.replace(found, instead)
    if not line.startswith(("{", "[")):
        return line
    return json.dumps(_short(json.loads(line)), ensure_ascii=False)


def _short(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            key: {"type": one.get("type")}
            if key in _DROPPED and isinstance(one, dict)
            else _LEFT_OUT
            if key in _DROPPED
            else _short(one)
            for key, one in value.items()
        }
    if isinstance(value, list):
        return [_short(one) for one in value[:40]]
    if isinstance(value, str) and len(value) > LONGEST:
        return _short_text(value)
    return value


def _short_text(text: str) -> str:
    """JSON in a text stays JSON; what a command printed stays whole."""
    if text.startswith("{"):
        try:
            return json.dumps(_short(json.loads(text)))
        except ValueError:
            pass
    return text if re.search(r"settings-that-do-not-exist|Check it\.", text) else _LEFT_OUT


def main() -> None:
    folder, *names = sys.argv[1:]
    for name in names or SESSIONS:
        missing = why_missing(name)
        if missing is None:
            suffix = "dump" if name == "opencode" else "jsonl"
            Path(folder, f"{name}.{suffix}").write_text(recorded(name))
        sys.stdout.write(f"{name}: {missing or 'recorded'}\n")


if __name__ == "__main__":
    main()
