"""Several processes on one circuit: judged as one process would judge the same calls.

On SQLite, on Redis and on a Redis Cluster.
"""

import random
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from servers.cluster import running_cluster
from servers.server import running
from stress.evidence_crew import (
    POLICIES,
    begin,
    end,
    fails,
    faulty,
    healthy,
    outage,
    player,
    succeeds,
)
from switchgear import CircuitBreaker, Rejected
from timeouts import LIMIT_S

pytestmark = pytest.mark.stress

SETTLED_S = 0.4
"""How long the last evidence may take until all have heard of it."""


@pytest.fixture(params=["sqlite", "redis", "cluster"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    with ExitStack() as stack:
        if request.param == "sqlite":
            yield f"sqlite:///{tmp_path}/state.db"
        elif request.param == "redis":
            yield stack.enter_context(running()).url
        else:
            yield stack.enter_context(running_cluster()).url


def ready(crew: list[tuple[Any, Any]]) -> None:
    for _, link in crew:
        assert link.poll(60.0), "a process does not start"
        link.recv()


@pytest.mark.parametrize("policy", ["default", "rate"])
def test_one_faulty_process_is_isolated_and_the_others_continue(url: str, policy: str) -> None:
    crew = [begin(healthy, url, policy, 200.0) for _ in range(3)]
    crew.append(begin(faulty, url, policy, 0.05, 0.18))
    try:
        ready(crew)
        for _, link in crew[:3]:
            link.send("go")
        time.sleep(1.5)  # the fleet has been at work for a while
        crew[3][1].send("go")
        assert crew[3][1].poll(LIMIT_S), "the faulty process is never refused"
        assert crew[3][1].recv() == "refused"
        time.sleep(1.0)  # it goes on beside the others
        for _, link in crew:
            link.send("stop")
        *others, (failed, refused, state, reason) = [link.recv() for _, link in crew]
        for calls, refused_too, state_too, _ in others:
            assert (refused_too, state_too) == (0, "closed")
            assert calls > failed
        assert state == "closed", "the shared circuit"
        assert failed >= 5
        assert refused > 0, "the faulty process stays away by itself"
        assert reason.startswith("this process: ")
        assert reason.endswith("the shared circuit is closed: other processes succeed")
    finally:
        end(crew)


def test_an_outage_everywhere_opens_everywhere_soon(url: str) -> None:
    crew = [begin(outage, url, "default", 100.0) for _ in range(4)]
    try:
        ready(crew)
        for _, link in crew:
            link.send("go")
        time.sleep(1.5)
        begun_s = time.time()
        for _, link in crew:
            link.send(begun_s)
        seen = [link.recv() for _, link in crew]
        for _, link in crew:
            link.send("end")
        assert max(after_s for after_s, _ in seen) < 1.0, seen
        assert min(after_s for after_s, _ in seen) < 0.5, seen
        assert all(reason.startswith("5 failures in a row") for _, reason in seen), seen
    finally:
        end(crew)


def in_one_process(policy: str, calls: list[tuple[int, bool]]) -> str:
    breaker = CircuitBreaker("api", policy=POLICIES[policy])
    for _, ok in calls:
        try:
            breaker.call(succeeds if ok else fails)
        except (ConnectionError, Rejected):
            continue
    return str(breaker.state)


def orders(policy: str) -> Iterator[list[tuple[int, bool]]]:
    """Difficult orders and random ones: which process calls, and whether it succeeds."""
    ok, bad = True, False
    yield [(0, ok), (1, ok), *[(2, bad)] * 5]
    yield [(0, ok), *[(2, bad)] * 4, (1, ok), (2, bad)]
    yield [(0, ok), *[(2, bad)] * 4, (1, ok), *[(2, bad)] * 4, (0, ok), (2, bad)]
    yield [(0, bad), (1, bad), (2, bad), (3, bad), (0, bad)]
    yield [(0, bad), (1, bad), (2, ok), (3, bad), (0, bad), (1, bad), (2, bad), (3, bad)]
    luck = random.Random(policy)
    for _ in range(3):
        share = luck.choice((0.5, 0.7, 0.85))
        yield [(luck.randrange(4), luck.random() > share) for _ in range(30)]


@pytest.mark.parametrize("policy", ["five", "three", "small-rate"])
def test_four_processes_and_one_reach_the_same_verdict(url: str, policy: str) -> None:
    crew = [begin(player, url, policy) for _ in range(4)]
    links = [link for _, link in crew]
    try:
        ready(crew)
        for number, calls in enumerate(orders(policy)):
            name = f"api-{number}"
            played = []
            for who, ok in calls:
                links[who].send((name, ok))
                said = links[who].recv()
                time.sleep(0.004)
                if said.startswith("this process"):
                    continue  # its own circuit refused: the call was not made
                if said not in {"ok", "failed"}:
                    break  # open
                played.append((who, ok))
            time.sleep(SETTLED_S)
            states = []
            for link in links:
                link.send((name, "state"))
                states.append(link.recv())
            assert states == [in_one_process(policy, played)] * 4, (number, played)
        for link in links:
            link.send(("", None))
    finally:
        end(crew)
