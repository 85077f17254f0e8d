"""The manifests in deploy/ are well formed, and use verbs and options that exist."""

import configparser
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import click
import yaml

from switchgear._cli import main

DEPLOY = Path(__file__).parents[2] / "deploy"


def check_worker(words: list[str]) -> None:
    """The command line of a worker is one that the command accepts."""
    at = next(n for n, word in enumerate(words) if Path(word).name == "switchgear")
    verb = main.commands[words[at + 1]]
    verb.make_context("worker", list(words[at + 2 :]), parent=click.Context(main))


def test_the_systemd_unit_starts_a_worker_and_lets_it_finish() -> None:
    unit = configparser.RawConfigParser(strict=True)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read(DEPLOY / "switchgear-worker.service")
    service = unit["Service"]
    check_worker(shlex.split(service["ExecStart"]))
    assert service["KillMode"] == "mixed"  # agents are ended by the worker, not by systemd
    assert service["Restart"] == "on-failure"  # a drained worker stays down
    if shutil.which("systemd-analyze"):
        command = [
            "systemd-analyze",
            "verify",
            "--man=no",
            str(DEPLOY / "switchgear-worker.service"),
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert "Unknown" not in done.stderr
        assert "Failed to parse" not in done.stderr


def test_the_compose_file_connects_workers_to_a_redis_that_keeps_its_data() -> None:
    compose: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    services = compose["services"]
    assert set(services) == {"redis", "worker"}
    assert {"--appendonly", "yes"} <= set(services["redis"]["command"])
    check_worker(services["worker"]["command"])
    assert services["worker"]["restart"] == "on-failure"  # a drained worker stays down
    assert services["worker"]["environment"]["SWITCHGEAR_STORE"].startswith("redis://redis:")
    assert set(services["worker"]["depends_on"]) <= set(services)
    for volume in services["redis"]["volumes"]:
        assert volume.partition(":")[0] in compose["volumes"]


def test_the_deployment_selects_its_pods_and_mounts_what_it_names() -> None:
    [manifest] = list(yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text()))
    assert (manifest["apiVersion"], manifest["kind"]) == ("apps/v1", "Deployment")
    spec = manifest["spec"]
    labels = spec["template"]["metadata"]["labels"]
    assert spec["selector"]["matchLabels"].items() <= labels.items()
    pod = spec["template"]["spec"]
    [container] = pod["containers"]
    check_worker(container["args"])
    volumes = {volume["name"] for volume in pod["volumes"]}
    assert {mount["name"] for mount in container["volumeMounts"]} <= volumes
    assert pod["terminationGracePeriodSeconds"] >= 600
