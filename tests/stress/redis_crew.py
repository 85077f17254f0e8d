"""Processes that share circuits in Redis: started together, ended after a limit, read one by one."""

import multiprocessing
import threading
import time
from collections.abc import Callable
from typing import Any

from switchgear._core.policy import Cooldown, Policy
from switchgear._core.types import Acquire, Circuit, Phase, Record, Signal
from switchgear._detectors import ConsecutiveFailures
from switchgear._stores.redis import RedisStore

PATIENCE_S = 300.0
POLICY = Policy([ConsecutiveFailures(5)], Cooldown(30.0))
FAILED = Record(Signal(ok=False, error="529"))
SUCCEEDED = Record(Signal(ok=True, cost_micros=3))


def in_processes(job: Callable[..., Any], number: int, *args: Any) -> list[Any]:
    """The answers of a number of processes; each runs `job(gate, index, *args)`."""
    spawn = multiprocessing.get_context("spawn")
    gate, answers = spawn.Barrier(number), spawn.Queue()
    crew = [
        spawn.Process(target=_run, args=(answers, job, gate, index, *args), daemon=True)
        for index in range(number)
    ]
    for process in crew:
        process.start()
    try:
        heard = [answers.get(timeout=PATIENCE_S) for _ in crew]
    finally:
        for process in crew:
            process.join(PATIENCE_S)
            if process.is_alive():
                process.kill()
    for answer in heard:
        if isinstance(answer, BaseException):
            raise answer
    return heard


def _run(answers: Any, job: Callable[..., Any], *args: Any) -> None:
    try:
        answers.put(job(*args))
    except BaseException as error:
        answers.put(error)


# What the processes do


def tell_often(gate: Any, index: int, url: str, times: int) -> list[int]:
    """Record failures and successes in turn, with some requests; the events of this process."""
    store = RedisStore(url, timeout_s=60.0)
    store.now_s()
    gate.wait(PATIENCE_S)
    seqs: list[int] = []
    for number in range(times):
        message = FAILED if (number + index) % 7 == 0 else SUCCEEDED
        done = store.apply("hot", POLICY, message, store.now_s())
        seqs += [event.seq for event in done.events]
    store.close()
    return seqs


def ask_once(gate: Any, index: int, url: str, threads: int, now_s: float) -> int:
    """Acquire with all threads at once; the number admitted."""
    store = RedisStore(url, timeout_s=60.0)
    store.now_s()
    start = threading.Barrier(threads)
    admitted: list[bool] = []

    def ask() -> None:
        start.wait(PATIENCE_S)
        admitted.append(store.apply("half", POLICY, Acquire(), now_s).verdict.admitted)

    crew = [threading.Thread(target=ask) for _ in range(threads)]
    gate.wait(PATIENCE_S)
    for thread in crew:
        thread.start()
    for thread in crew:
        thread.join(PATIENCE_S)
    store.close()
    assert len(admitted) == threads
    return sum(admitted)


def fail_once(gate: Any, index: int, url: str) -> int:
    """Record one failure; the number of events."""
    store = RedisStore(url, timeout_s=60.0)
    gate.wait(PATIENCE_S)
    done = store.apply("sum", POLICY, FAILED, store.now_s())
    store.close()
    return len(done.events)


def hear_a_trip(gate: Any, index: int, url: str) -> float:
    """The first process trips a circuit, the others wait for the push; when, on the wall clock."""
    store = RedisStore(url, timeout_s=60.0)
    came = threading.Event()
    heard: list[Circuit] = []

    def hear(circuit: Circuit) -> None:
        heard.append(circuit)
        came.set()

    store.on_change(hear)
    deadline_s = time.monotonic() + PATIENCE_S
    while store.refresh_s is not None:
        assert time.monotonic() < deadline_s
        time.sleep(0.005)
    gate.wait(PATIENCE_S)
    if index == 0:
        for _ in range(5):
            tripped = store.apply("pushed", POLICY, FAILED, store.now_s()).circuit
        at_s = time.time()
        assert tripped.phase is Phase.OPEN
    else:
        assert came.wait(PATIENCE_S)
        at_s = time.time()
        assert heard[0].phase is Phase.OPEN
    store.close()
    return at_s


def tell_until_killed(url: str, counts: Any) -> None:
    """Record without end; `counts` are the numbers of messages sent and answered."""
    store = RedisStore(url, timeout_s=60.0)
    while True:
        counts[0] += 1
        store.apply("hot", POLICY, SUCCEEDED, store.now_s())
        counts[1] += 1
