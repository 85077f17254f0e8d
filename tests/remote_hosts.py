"""Several hosts on one machine: workers with separate folders and HOMEs, one Redis, one batch.

The agent of the tasks appends a line to a file of its task and reports one cent, so that what took effect
and what was spent can be counted.
"""

import json
import os
import random
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from servers.server import Server
from timeouts import LIMIT_S, end

AGENT = """\
name=$(printf '%s' "$1" | sed -n 's/.*write \\([a-z0-9-]*\\)\\..*/\\1/p' | head -n 1)
echo "$name" >> "$name.txt"
sleep "$2"
printf '{"type": "usage", "model": "m", "input_tokens": 1, "output_tokens": 1, "cost_usd": 0.01}\\n'
printf '{"type": "result", "text": "wrote %s", "success": true}\\n' "$name"
"""


class Hosts:
    """One project, its Redis and its workers. Everything is ended by its process id."""

    def __init__(self, folder: Path, *, lease_s: float = 2.0, work_s: float = 0.0) -> None:
        self.folder, self.lease_s = folder, lease_s
        self.project = folder / "project"
        self.project.mkdir(parents=True)
        (folder / "agent.sh").write_text(AGENT)
        self.agent = f"sh {folder / 'agent.sh'} {{prompt}} {work_s}"
        self.server = Server("--appendonly", "yes", "--appendfsync", "always")
        self.server.start()
        self.workers: dict[str, subprocess.Popen[bytes]] = {}
        self.started = 0
        for words in (
            ("init", "-q"),
            (
                "-c",
                "user.name=t",
                "-c",
                "user.email=t@localhost",
                "commit",
                "-q",
                "--allow-empty",
                "-m",
                "start",
            ),
        ):
            subprocess.run(["git", *words], cwd=self.project, check=True)

    def environment(self, name: str) -> dict[str, str]:
        home = self.folder / "homes" / name
        home.mkdir(parents=True, exist_ok=True)
        kept = {key: os.environ[key] for key in ("PATH", "LANG", "TMPDIR") if key in os.environ}
        return {**kept, "HOME": str(home), "SWITCHGEAR_STORE": self.server.url + "/0"}

    def command(self, *words: str) -> list[str]:
        return [sys.executable, "-m", "switchgear", *words]

    def start_worker(self, name: str, *words: str) -> subprocess.Popen[bytes]:
        """Start a worker in a folder and a HOME of its own; its output goes to a file."""
        self.started += 1
        where = self.folder / "workers" / name
        where.mkdir(parents=True, exist_ok=True)
        unique = f"{name}-{self.started}"
        with (where / "log").open("ab") as log:
            self.workers[name] = subprocess.Popen(
                self.command(
                    *("worker", "--name", unique, "--dir", str(where / "work")),
                    *("--lease", str(self.lease_s), *words),
                ),
                cwd=where,
                env=self.environment(name),
                stdout=log,
                stderr=log,
            )
        return self.workers[name]

    def log(self, name: str) -> str:
        return (self.folder / "workers" / name / "log").read_text(errors="replace")

    def write_tasks(self, tasks: list[dict[str, Any]], **top: Any) -> Path:
        file = self.project / "tasks.yaml"
        defaults = {
            "agent_cmd": self.agent,
            "worktree": True,
            "stuck": False,
            "timeout": "10m",
            "allow_unknown_price": True,
            **top.pop("defaults", {}),
        }
        file.write_text(json.dumps({"tasks": tasks, "defaults": defaults, **top}))
        return file

    def start_batch(self, *words: str) -> subprocess.Popen[bytes]:
        """Start the batch; its standard output is a pipe with one JSON object."""
        with (self.folder / "batch.log").open("ab") as log:
            return subprocess.Popen(
                self.command("batch", "tasks.yaml", "--on", "celery", "--json", *words),
                cwd=self.project,
                env=self.environment("submit"),
                stdout=subprocess.PIPE,
                stderr=log,
            )

    def result(self, batch: subprocess.Popen[bytes]) -> dict[str, Any]:
        out, _ = batch.communicate(timeout=2 * LIMIT_S)
        assert out, (self.folder / "batch.log").read_text()[-3000:]
        values: dict[str, Any] = json.loads(out)
        return values

    def branch_file(self, batch: str, task: str, file: str) -> str:
        shown = f"switchgear/{batch}/{task}:{file}"
        command = ["git", "show", shown]
        return subprocess.run(
            command, cwd=self.project, check=True, capture_output=True, text=True
        ).stdout

    def kill_one(self, chance: random.Random) -> str:
        """Kill a random worker and start another one in its place."""
        name = chance.choice(sorted(self.workers))
        self.workers[name].send_signal(signal.SIGKILL)
        end(self.workers[name])
        self.start_worker(name, "-c", "2")
        return name

    def close(self) -> None:
        for worker in self.workers.values():
            end(worker)
        self.server.stop()
