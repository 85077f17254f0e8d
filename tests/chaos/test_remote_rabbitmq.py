"""A batch over RabbitMQ, with its state in Redis: workers are killed and the broker restarts."""

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from remote_hosts import CENT, Hosts
from servers.rabbitmq import ACKNOWLEDGE_S, RabbitMQ, is_installed
from timeouts import end, eventually

pytestmark = pytest.mark.skipif(not is_installed(), reason="RabbitMQ is not installed")


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[Hosts]:
    broker = RabbitMQ()
    made = None
    try:
        broker.start()
        made = Hosts(tmp_path, work_s=0.3, broker=broker)
        yield made
    finally:
        if made is not None:
            made.close()
        broker.stop()


@pytest.mark.stress
def test_a_task_that_outlasts_the_timeout_of_the_broker_takes_effect_once(hosts: Hosts) -> None:
    agent = hosts.agent.rpartition(" ")[0] + f" {3 * ACKNOWLEDGE_S}"
    hosts.write_tasks([{"name": "t-0", "task": "write t-0.", "agent_cmd": agent}], budget=10)
    hosts.start_worker("one", "--", "--loglevel", "INFO")
    batch = hosts.start_batch()
    try:
        eventually(
            lambda: "delivery acknowledgement on channel" in hosts.log("one"),
            "the broker has closed the channel",
        )
        result = hosts.result(batch)
    finally:
        end(batch)
    assert result["end"] == "done"
    assert hosts.branch_file(result["batch"], "t-0", "t-0.txt") == "t-0\n"
    assert result["cost_micros"] == CENT
    eventually(lambda: "'nothing to do'" in hosts.log("one"), "its message was delivered again")


@pytest.mark.stress
def test_every_task_takes_effect_once_over_rabbitmq(hosts: Hosts) -> None:
    count, kills = 40, 8
    tasks = [{"name": f"t-{n}", "task": f"write t-{n}."} for n in range(count)]
    hosts.write_tasks(tasks, parallel=4, budget=10)
    for name in ("one", "two"):
        hosts.start_worker(name, "-c", "2", "--", "--loglevel", "INFO")
    batch = hosts.start_batch()
    chance = random.Random(7)
    try:
        for number in range(kills):
            before = hosts.ended_tasks()
            eventually(
                lambda before=before: hosts.ended_tasks() > before,  # type: ignore[misc]
                "another task has ended",
            )
            hosts.kill_one(chance)
            if number == kills // 2:
                assert hosts.broker is not None
                hosts.broker.kill()
                hosts.broker.start()
        result = hosts.result(batch)
    finally:
        end(batch)
    assert result["end"] == "done", [task for task in result["tasks"] if task["status"] != "done"]
    for task in result["tasks"]:
        written = hosts.branch_file(result["batch"], task["name"], f"{task['name']}.txt")
        assert written == f"{task['name']}\n"
        assert task["spent_micros"] == CENT
    assert result["cost_micros"] == count * CENT
    keys = hosts.server.say("KEYS", "_kombu*")
    assert keys == "*0\r\n", "Redis is no broker here"
