"""Clients that are killed at any point: nothing confirmed is lost, no other client is blocked."""

import multiprocessing
import random
import time
from collections.abc import Iterator
from typing import Any

import pytest

from servers.server import Server, running
from stress.redis_crew import POLICY, SUCCEEDED, tell_until_killed
from switchgear._stores.redis import RedisStore
from timeouts import LIMIT_S

pytestmark = pytest.mark.stress

CREW, KILLS = 4, 20


@pytest.fixture
def server() -> Iterator[Server]:
    with running() as server:
        yield server


@pytest.mark.filterwarnings("ignore:This process.*fork:DeprecationWarning")
def test_clients_killed_in_the_queue_lose_nothing_and_block_no_others(server: Server) -> None:
    # Forked, so that a process costs milliseconds; each makes connections of its own.
    fork = multiprocessing.get_context("fork")
    luck = random.Random(7)

    def begun() -> tuple[Any, Any]:
        counts = fork.Array("q", [0, 0], lock=False)
        process = fork.Process(target=tell_until_killed, args=(server.url, counts), daemon=True)
        process.start()
        return process, counts

    crew = [begun() for _ in range(CREW)]
    everybody = list(crew)
    try:
        _wait_for_tells(crew)
        for _ in range(KILLS):
            time.sleep(luck.uniform(0.005, 0.03))  # chance is the point here, not time
            victim = luck.randrange(CREW)
            crew[victim][0].kill()
            crew[victim] = begun()
            everybody.append(crew[victim])
            _wait_for_tells([crew[victim]])
    finally:
        for process, _ in everybody:
            process.kill()
            process.join()
    sent = sum(counts[0] for _, counts in everybody)
    answered = sum(counts[1] for _, counts in everybody)
    store = RedisStore(server.url)
    started_s = time.monotonic()
    done = store.apply("hot", POLICY, SUCCEEDED, store.now_s())
    assert time.monotonic() - started_s < 30.0, "nobody is stuck"
    assert answered < done.circuit.totals.succeeded <= sent + 1
    assert done.circuit.version == done.circuit.totals.succeeded
    store.apply("hot", POLICY, SUCCEEDED, store.now_s())
    assert server.say("LLEN", "{switchgear}:inbox:hot").startswith(":0")
    assert answered > 100, "they did work"
    store.close()


def _wait_for_tells(crew: list[tuple[Any, Any]]) -> None:
    deadline_s = time.monotonic() + LIMIT_S
    while not all(counts[1] for _, counts in crew):
        assert time.monotonic() < deadline_s, "a client does not get through"
        time.sleep(0.002)
