"""Tries the same situations on Switchgear and on the libraries of `make bench`; prints a table.

    .venv-bench/bin/python scripts/compare_behaviour.py > build/behaviour.md

`make bench` creates that environment with pinned versions. Each situation is played with real
threads, tasks and seconds, three times; answers that differ are shown as "varies". It takes about
three minutes. The table stands in docs/correctness.md.
"""

import asyncio
import pickle
import platform
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from typing import NamedTuple

from behaviour_peers import (
    COOLDOWN_S,
    PEERS,
    THRESHOLD,
    CannotHappenError,
    Face,
    Peer,
    UpstreamError,
    begun,
    gates,
)

CALLERS = 16
ROUNDS = 3
YES, NO, CANNOT, VARIES = "✓", "✗", "-", "varies"


# The situations: true if the behaviour holds


async def side_by_side(face: Face) -> bool:
    """Calls that wait, made at the same time, run at the same time."""
    with gates() as gate:
        tasks = [asyncio.create_task(face.call(gate=gate)) for _ in range(CALLERS)]
        await asyncio.sleep(0.2)
        inside = face.entered
    await asyncio.gather(*tasks)
    return inside == CALLERS


async def one_probe(face: Face) -> bool:
    """After the wait, one of 16 callers gets in at a time."""
    await face.trip_and_wait()
    before = face.entered
    with gates() as gate:
        tasks = [asyncio.create_task(face.call(gate=gate)) for _ in range(CALLERS)]
        await asyncio.sleep(0.1)
        inside = face.entered - before
    await asyncio.gather(*tasks)
    return inside == 1


async def late_success(face: Face) -> bool:
    """A call admitted before the trip succeeds after it: the circuit stays open."""
    with gates() as gate:
        late = await begun(face, None, gate)
        await face.trip()
        if late.done():
            raise CannotHappenError
        gate.open()
        await late
        return await face.call() == "refused"


async def late_failure(face: Face) -> bool:
    """A call admitted before the trip fails when the wait is over: the probe is still let in."""
    with gates() as gate:
        late = await begun(face, UpstreamError(), gate)
        await face.trip_and_wait()
        if late.done():
            raise CannotHappenError
        gate.open()
        await late
        return await face.call() == "ok"


async def hung_probe(face: Face) -> bool:
    """A probe never reports: after three waits more, somebody else may try."""
    await face.trip_and_wait()
    with gates() as gate:
        hung = await begun(face, None, gate)
        await asyncio.sleep(3 * COOLDOWN_S)
        answer = await asyncio.wait_for(face.call(), timeout=2)
        gate.open()
        await hung
        return answer == "ok"


async def failed_probe(face: Face) -> bool:
    """The probe fails: the next caller is refused."""
    await face.trip_and_wait()
    await face.call(UpstreamError())
    return await face.call() == "refused"


async def own_error(face: Face) -> bool:
    """Every failure, also the one that trips, reaches the caller as it was raised."""
    answers = [await face.call(UpstreamError()) for _ in range(THRESHOLD)]
    return answers == ["failed"] * THRESHOLD


async def interrupts(face: Face) -> bool:
    """KeyboardInterrupt says nothing about the thing that was called."""
    for _ in range(THRESHOLD):
        await face.call(KeyboardInterrupt())
    return await face.call() == "ok"


async def cancelled_calls(face: Face) -> bool:
    """Nor does cancelling."""
    with gates() as gate:
        for _ in range(THRESHOLD):
            task = await begun(face, None, gate)
            task.cancel()
            await asyncio.wait([task])
    return await face.call() == "ok"


async def cancelled_probe(face: Face) -> bool:
    """A cancelled probe gives its place back at once."""
    await face.trip_and_wait()
    with gates() as gate:
        probe = await begun(face, None, gate)
        probe.cancel()
        await asyncio.wait([probe])
        return await face.call() == "ok"


async def coroutine_function(face: Face) -> bool:
    """A coroutine function under the synchronous decorator is guarded, or refused."""

    async def fail() -> None:
        raise UpstreamError

    try:
        guarded = face.peer.guard(fail)  # type: ignore[misc]
    except TypeError:
        return True
    for _ in range(THRESHOLD + 1):
        try:
            await guarded()
        except face.peer.refusal:
            return True
        except UpstreamError:
            pass
    return False


async def pickles(face: Face) -> bool:
    """The refusal survives a process pool."""
    await face.trip()
    try:
        copied = pickle.loads(pickle.dumps(face.last))
    except Exception:  # noqa: BLE001  any failure means no
        return False
    return str(copied) == str(face.last)


class Situation(NamedTuple):
    """One row of the table."""

    sentence: str
    holds: Callable[[Face], Awaitable[bool]]
    faces: tuple[bool, ...] = (False, True)
    """Threads, tasks, or both."""


SITUATIONS = (
    Situation("16 calls that wait run side by side", side_by_side),
    Situation("one probe at a time, with 16 callers", one_probe),
    Situation("a success from before the trip does not close the circuit", late_success),
    Situation("a failure from before the trip does not keep it open longer", late_failure),
    Situation("a probe that hangs does not shut everybody out", hung_probe),
    Situation("a failed probe re-opens at once", failed_probe),
    Situation("the failure that trips reaches its caller unchanged", own_error),
    Situation("KeyboardInterrupt is not a failure", interrupts, (False,)),
    Situation("cancelling a call is not a failure", cancelled_calls, (True,)),
    Situation("a cancelled probe gives its place back", cancelled_probe, (True,)),
    Situation(
        "a coroutine function under the sync decorator is guarded or refused",
        coroutine_function,
        (False,),
    ),
    Situation("the refusal can be pickled", pickles),
)


async def answer(peer: Peer, situation: Situation, *, tasks: bool) -> str:
    """Yes, no, a dash where it cannot happen, or that it varies."""
    answers = set()
    for _ in range(ROUNDS):
        try:
            holds = await situation.holds(Face(peer, tasks=tasks))
            answers.add(YES if holds else NO)
        except CannotHappenError:
            answers.add(CANNOT)
        except TimeoutError:
            answers.add(NO)
    return answers.pop() if len(answers) == 1 else VARIES


async def cell(peer: Peer, situation: Situation) -> str:
    """The answer of the library's faces; where they differ, that for threads before that for tasks."""
    answers = [
        await answer(peer, situation, tasks=tasks)
        for tasks in situation.faces
        if (peer.guard_async if tasks else peer.guard) is not None
    ]
    return " / ".join(answers if len(set(answers)) > 1 else answers[:1]) or CANNOT


async def main() -> None:
    """Play everything and print the table, and the versions it is true of."""
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(3 * CALLERS))
    print("| |", " | ".join(peer.name for peer in PEERS), "|")
    print("|---|" + ":-:|" * len(PEERS))
    for situation in SITUATIONS:
        cells = [await cell(peer, situation) for peer in PEERS]
        print(f"| {situation.sentence} |", " | ".join(cells), "|", flush=True)
    versions = ", ".join(f"{peer.name} {version(peer.name)}" for peer in PEERS)
    print(f"\n{versions}; Python {platform.python_version()}.")


if __name__ == "__main__":
    asyncio.run(main())
