"""Processes that share one circuit: healthy ones, faulty ones, and ones that play a given order."""

import multiprocessing
import random
import time
from typing import Any

from switchgear import Cooldown, Panel, Policy, Rejected, detectors

PATIENCE_S = 300.0
POLICIES = {
    "default": None,
    "rate": Policy([detectors.FailureRate(100, 0.3, 20)], Cooldown(30.0)),
    "five": Policy([detectors.ConsecutiveFailures(5)], Cooldown(30.0)),
    "three": Policy([detectors.ConsecutiveFailures(3)], Cooldown(30.0)),
    "small-rate": Policy([detectors.FailureRate(10, 0.5, 4)], Cooldown(30.0)),
}


def succeeds() -> int:
    return 1


def fails() -> None:
    raise ConnectionError("connection refused")


def begin(job: Any, *args: Any) -> tuple[Any, Any]:
    """A process that runs `job(link, *args)`, and our end of its link."""
    spawn = multiprocessing.get_context("spawn")
    ours, theirs = spawn.Pipe()
    process = spawn.Process(target=job, args=(theirs, *args), daemon=True)
    process.start()
    return process, ours


def end(crew: list[tuple[Any, Any]]) -> None:
    for process, link in crew:
        link.close()  # a process that waits for a message ends
        process.join(PATIENCE_S)
        if process.is_alive():
            process.kill()
            process.join()


def healthy(link: Any, url: str, policy: str, rate: float) -> None:
    """Succeed at a fixed rate until stopped; then report what was observed."""
    panel = Panel(url)
    breaker = panel.breaker("api", POLICIES[policy])
    breaker.call(succeeds)
    link.send("ready")
    link.recv()
    refused = calls = 0
    opened_s = None
    next_s = time.monotonic()
    while not link.poll():
        try:
            breaker.call(succeeds)
            calls += 1
        except Rejected:
            refused += 1
            opened_s = opened_s or time.monotonic()
        next_s += 1.0 / rate
        time.sleep(max(0.0, next_s - time.monotonic()))
    link.send((calls, refused, str(breaker.state), None))
    link.recv()
    panel.close()


def faulty(link: Any, url: str, policy: str, least_s: float, most_s: float) -> None:
    """Fail at intervals until stopped; report the first refusal at once."""
    panel = Panel(url)
    breaker = panel.breaker("api", POLICIES[policy])
    luck = random.Random(5)
    link.send("ready")
    link.recv()
    failed = refused = 0
    reason = None
    while not link.poll():
        try:
            breaker.call(fails)
        except ConnectionError:
            failed += 1
        except Rejected as error:
            refused += 1
            if reason is None:
                reason = error.reason
                link.send("refused")
        time.sleep(luck.uniform(least_s, most_s))
    link.send((failed, refused, str(breaker.state), reason))
    link.recv()
    panel.close()


def outage(link: Any, url: str, policy: str, rate: float) -> None:
    """Succeed until signalled, then fail; report when the circuit first refused."""
    panel = Panel(url)
    breaker = panel.breaker("api", POLICIES[policy])
    breaker.call(succeeds)
    link.send("ready")
    link.recv()
    next_s = time.monotonic()
    begun_s: float | None = None
    deadline_s = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline_s:
        if begun_s is None and link.poll():
            begun_s = link.recv()
        try:
            breaker.call(succeeds if begun_s is None else fails)
        except ConnectionError:
            pass
        except Rejected as error:
            link.send((time.time() - (begun_s or 0.0), error.reason))
            break
        next_s += 1.0 / rate
        time.sleep(max(0.0, next_s - time.monotonic()))
    link.recv()
    panel.close()


def player(link: Any, url: str, policy: str) -> None:
    """Make one call at a time on the named circuit, as instructed, until no name arrives."""
    panel = Panel(url)
    link.send("ready")
    while True:
        name, what = link.recv()
        if not name:
            break
        breaker = panel.breaker(name, POLICIES[policy])
        if what == "state":
            breaker.refresh()  # `state` alone reads nothing
            link.send(str(breaker.state))
            continue
        try:
            breaker.call(succeeds if what else fails)
            link.send("ok")
        except ConnectionError:
            link.send("failed")
        except Rejected as error:
            link.send(error.reason)
    panel.close()
