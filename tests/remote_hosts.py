"""Several hosts on one machine: workers with separate folders and HOMEs, one Redis, one batch.

The agent of the tasks appends a line to a file of its task and reports one cent, so that what took effect
and what was spent can be counted.
"""

import json
import os
import random
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from servers.rabbitmq import RabbitMQ
from servers.server import Server
from timeouts import LIMIT_S, end, eventually

AGENT = """\
name=$(printf '%s' "$1" | sed -n 's/.*write \\([a-z0-9-]*\\)\\..*/\\1/p' | head -n 1)
echo "$name" >> "$name.txt"
sleep "$2"
printf '{"type": "usage", "model": "m", "input_tokens": 1, "output_tokens": 1, "cost_usd": 0.01}\\n'
printf '{"type": "result", "text": "wrote %s", "success": true}\\n' "$name"
"""
CENT = 10_000
"""What the agent reports, in millionths of a dollar."""


def is_running(command: str) -> bool:
    """Whether a process with exactly this command line is running."""
    found = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True)
    return any(line.strip() == command for line in found.stdout.splitlines())


class Hosts:
    """One project, its Redis and its workers. Everything is ended by its process id."""

    def __init__(
        self,
        folder: Path,
        *,
        lease_s: float = 2.0,
        work_s: float = 0.0,
        broker: RabbitMQ | None = None,
    ) -> None:
        self.folder, self.lease_s, self.broker = folder, lease_s, broker
        self.project = folder / "project"
        self.project.mkdir(parents=True)
        (folder / "agent.sh").write_text(AGENT)
        self.agent = f"sh {folder / 'agent.sh'} {{prompt}} {work_s}"
        self.server = Server("--appendonly", "yes", "--appendfsync", "always")
        self.server.start()
        self.workers: dict[str, subprocess.Popen[bytes]] = {}
        self._words: dict[str, tuple[str, ...]] = {}
        """The options that each worker was started with."""
        self._started_as: dict[str, int] = {}
        """The number of its newest process."""
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
        if self.broker is not None:
            kept["SWITCHGEAR_BROKER"] = self.broker.url
        return {**kept, "HOME": str(home), "SWITCHGEAR_STORE": self.server.url + "/0"}

    def command(self, *words: str) -> list[str]:
        return [sys.executable, "-m", "switchgear", *words]

    def start_worker(self, name: str, *words: str) -> subprocess.Popen[bytes]:
        """Start a worker in a folder and a separate HOME; its output goes to a file."""
        self.started += 1
        self._words[name], self._started_as[name] = words, self.started
        where = self.folder / "workers" / name
        where.mkdir(parents=True, exist_ok=True)
        unique = f"{name}-{self.started}"
        with (where / "log").open("ab") as log:
            self.workers[name] = subprocess.Popen(
                self.command(
                    *("worker", "--name", unique, "--dir", "work"),  # relative to its folder
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

    def ended_tasks(self) -> int:
        """How many tasks the batch has reported as done; no worker may have ended by itself."""
        for name, worker in self.workers.items():
            assert worker.poll() is None, f"worker {name} has ended: {self.log(name)[-2000:]}"
        return (self.folder / "batch.log").read_text().count("] done: ")

    def branch_file(self, batch: str, task: str, file: str) -> str:
        shown = f"switchgear/{batch}/{task}:{file}"
        command = ["git", "show", shown]
        return subprocess.run(
            command, cwd=self.project, check=True, capture_output=True, text=True
        ).stdout

    def kill_one(self, chance: random.Random) -> str:
        """Kill a random worker that takes tasks, and start another one in its place."""
        eventually(self._ready, "a worker is ready")
        name = chance.choice(self._ready())
        self.workers[name].send_signal(signal.SIGKILL)
        end(self.workers[name])
        self.start_worker(name, *self._words[name])
        return name

    def _ready(self) -> list[str]:
        """The workers that take tasks: Celery logs it at the level INFO."""
        lines = {name: f"{name}-{self._started_as[name]}@" for name in sorted(self.workers)}
        return [
            name
            for name, begins in lines.items()
            if re.search(f"{re.escape(begins)}\\S+ ready", self.log(name))
        ]

    def close(self) -> None:
        for worker in self.workers.values():
            end(worker)
        self.server.stop()
