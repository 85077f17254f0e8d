"""`switchgear fleet watch` as a process: it writes, it reads its configuration again, it ends."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

from switchgear import Signal
from switchgear._config import load_config
from switchgear.fleet import Fleet
from timeouts import LIMIT_S


def test_a_watcher_reloads_a_valid_configuration_ignores_an_invalid_one_and_ends(
    tmp_path: Path,
) -> None:
    path = tmp_path / "switchgear.yaml"
    base = (
        f"store: sqlite:///{tmp_path}/state.db\n"
        "agents: {coder: {owner: ana, provider: p, model: m}}\n"
    )
    path.write_text(base)
    command = [sys.executable, "-m", "switchgear", "fleet", "watch", "--every", "0.05"]
    watch = subprocess.Popen(
        [*command, "--config", str(path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    assert watch.stdout is not None
    assert watch.stderr is not None
    try:
        assert watch.stdout.readline().startswith("watching 1 agent; files in ")
        with Fleet.from_config(load_config(path)) as fleet:
            fleet.panel.breaker("rules/coder").record(Signal(violation="rule x"))
        path.write_text(base + "breakers: {budgt: {}}\n")
        assert "breakers.budgt: unknown key" in watch.stderr.readline()
        assert "previous configuration stays in effect" in watch.stderr.readline()
        taken = tmp_path / "taken.jsonl"
        run = f"notifications: [{{command: {{run: 'tee -a {taken}', timeout_s: 30}}}}]\n"
        path.write_text(base.replace("coder", "second") + run)
        assert watch.stdout.readline() == "configuration read again: 1 agent, 1 target\n"
        while not (taken.exists() and taken.read_text().endswith("\n")):
            assert watch.poll() is None
    finally:
        watch.send_signal(signal.SIGINT)
        out, err = watch.communicate(timeout=LIMIT_S)
    assert watch.returncode == 130
    assert (out, err.strip()) == ("", "")
    [incident] = (tmp_path / "incidents").iterdir()
    assert json.loads((incident / "incident.json").read_text())["severity"] == "SEV1"
    assert json.loads((tmp_path / "world-state.json").read_text())["agents"]
    assert json.loads(taken.read_text())["id"] == "rules/coder#1"
