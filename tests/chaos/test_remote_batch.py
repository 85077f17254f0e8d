"""A batch on several hosts: every task takes effect once, whatever is killed, restarted or suspended."""

import os
import random
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from depth import scaled
from remote_hosts import CENT, Hosts, is_running
from timeouts import end, eventually

pytestmark = pytest.mark.stress

VISIBILITY_S = 3
"""After how long Celery delivers a message again that no worker has acknowledged."""
TWO_TASKS = (
    *("-c", "2", "--", "--loglevel", "INFO"),
    f'broker.transport_options=(dict){{"visibility_timeout": {VISIBILITY_S}}}',
)
RECEIVED = re.compile(r"Task switchgear\.execute\[([0-9a-f-]+)\] received")
ENDED = re.compile(r"Task switchgear\.execute\[([0-9a-f-]+)\] succeeded")


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[Hosts]:
    made = Hosts(tmp_path, work_s=0.3)
    try:
        yield made
    finally:
        made.close()


def chain(count: int) -> list[dict[str, object]]:
    """Tasks in chains of four: each needs the one before it."""
    return [
        {"name": f"t-{n}", "task": f"write t-{n}.", "needs": [f"t-{n - 1}"] if n % 4 else []}
        for n in range(count)
    ]


def suspend_until_delivered_again(hosts: Hosts, name: str, batch: subprocess.Popen[bytes]) -> None:
    """Suspend a worker that has a message, until the broker has delivered the message to another worker."""
    worker = hosts.workers[name]
    while True:
        worker.send_signal(signal.SIGSTOP)
        log = hosts.log(name)
        held = {*RECEIVED.findall(log)} - {*ENDED.findall(log)}
        if held:
            break
        worker.send_signal(signal.SIGCONT)
        assert batch.poll() is None, f"the batch ended before {name} received a task"
        time.sleep(0.01)
    others = [other for other in hosts.workers if other != name]
    eventually(
        lambda: held & {each for other in others for each in RECEIVED.findall(hosts.log(other))},
        "the broker has delivered a message of the suspended worker again",
    )
    worker.send_signal(signal.SIGCONT)


@pytest.mark.deep
def test_every_task_takes_effect_once_while_workers_are_killed(hosts: Hosts) -> None:
    count, kills = scaled(200, 8), scaled(50, 3)
    hosts.write_tasks(chain(count), parallel=8, budget=10)
    for name in ("one", "two", "three", "four"):
        hosts.start_worker(name, *TWO_TASKS)
    batch = hosts.start_batch()
    chance = random.Random(7)
    try:
        for number in range(kills):
            before = hosts.ended_tasks()
            eventually(
                lambda before=before: hosts.ended_tasks() > before or batch.poll() is not None,  # type: ignore[misc]
                "another task has ended",
            )
            assert batch.poll() is None, f"the batch ended after {number} kills"
            hosts.kill_one(chance)
            if number in {kills // 3, 2 * kills // 3}:
                hosts.server.kill()
                hosts.server.start()
            if number == kills // 2:
                suspend_until_delivered_again(hosts, "one", batch)
        result = hosts.result(batch)
    finally:
        end(batch)
    assert result["end"] == "done", [task for task in result["tasks"] if task["status"] != "done"]
    for task in result["tasks"]:
        written = hosts.branch_file(result["batch"], task["name"], f"{task['name']}.txt")
        assert written == f"{task['name']}\n", (
            f"{task['name']} took effect {written.count(chr(10))} times"
        )
        assert task["spent_micros"] == CENT * task["iterations"]
    assert result["cost_micros"] == sum(task["spent_micros"] for task in result["tasks"])
    with redis.Redis(port=hosts.server.port) as client:
        left = [key for pattern in ("*job:*", "*parcel:*") for key in client.scan_iter(pattern)]
    assert left == [], "the batch has removed everything that travelled"
    for task in result["tasks"]:  # the order was respected: a task starts from the work it needs
        number = int(task["name"].partition("-")[2])
        for earlier in range(number - number % 4, number):
            hosts.branch_file(result["batch"], task["name"], f"t-{earlier}.txt")


def test_a_killed_batch_adopts_what_workers_did_in_the_meantime(hosts: Hosts) -> None:
    hosts.write_tasks(chain(2), parallel=2)
    batch = hosts.start_batch()
    try:
        eventually(lambda: _queued(hosts), "the id of the first task is in the queue")
    finally:
        end(batch)  # SIGKILL
    hosts.start_worker("one")
    eventually(lambda: b'"state":"done"' in _jobs(hosts), "a worker has finished the job")
    again = hosts.start_batch("--resume")
    try:
        result = hosts.result(again)
    finally:
        end(again)
    assert result["end"] == "done"
    assert [task["iterations"] for task in result["tasks"]] == [1, 1]
    assert hosts.branch_file(result["batch"], "t-1", "t-0.txt") == "t-0\n"


def _queued(hosts: Hosts) -> bool:
    return hosts.server.say("LLEN", "switchgear") == ":1\r\n"


def _jobs(hosts: Hosts) -> bytes:
    with redis.Redis(port=hosts.server.port) as client:
        keys = list(client.scan_iter(match="*job:*"))
        values = [client.get(key) for key in keys if client.type(key) == b"string"]
    return b"".join(value for value in values if isinstance(value, bytes))


def test_a_stopped_batch_stops_its_workers_and_resumes(hosts: Hosts) -> None:
    agent = f"sleep {10_000_000 + os.getpid()}"  # no other test's
    hosts.write_tasks([{"name": "t-0", "task": "write t-0.", "agent_cmd": agent}])
    worker = hosts.start_worker("one")
    batch = hosts.start_batch()
    try:
        eventually(lambda: "[t-0] run " in (hosts.folder / "batch.log").read_text(), "it runs")
        batch.send_signal(signal.SIGINT)
        result = hosts.result(batch)
    finally:
        end(batch)
    assert result["end"] == "interrupted"
    assert worker.poll() is None
    eventually(lambda: not is_running(agent), "the agent of the worker has ended")
