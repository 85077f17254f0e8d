"""Every blocking method has an async variant with the prefix `a` that does not block the event loop."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from switchgear import CircuitBreaker, IterationMetrics, LoopBreaker, Mode, Panel, Phase, Signal

WITHOUT_I_O = {
    *(
        "add_on_call",
        "add_sink",
        "adopt",
        "flush",
        "kept",
        "known_permit",
        "readings",
        "seconds_since",
    ),
    *("set_policy", "settle", "stopwatch", "stream", "takes_time", "warm"),
    *("advance", "fall_back", "log_trouble"),
    *("breaker", "from_config", "lock", "locks", "loop", "lost", "policy_of", "reload"),
    *("for_failures", "for_stagnation"),
}
"""Make objects, read what is known, or are for the background of a panel."""


@pytest.mark.parametrize("kind", [CircuitBreaker, LoopBreaker, Panel])
def test_every_blocking_method_has_an_async_variant_with_the_same_arguments(kind: type) -> None:
    methods = {
        name: value
        for name, value in inspect.getmembers(kind, inspect.isfunction)
        if not name.startswith("_")
    }
    blocking = {
        name
        for name, value in methods.items()
        if not inspect.iscoroutinefunction(value) and name not in WITHOUT_I_O
    }
    for name in sorted(blocking):
        twin = methods.get(f"a{name}")
        assert twin is not None, f"{kind.__name__}.{name} has no a{name}"
        assert inspect.iscoroutinefunction(twin)
        here, there = inspect.signature(methods[name]), inspect.signature(twin)
        assert here.parameters.keys() == there.parameters.keys(), name


Override = Callable[[Any], Awaitable[None]]
OVERRIDES: list[tuple[Override, Mode]] = [
    (lambda breaker: breaker.ahold_open(by="ada", why="drill"), Mode.HELD_OPEN),
    (lambda breaker: breaker.ahold_closed(by="ada", why="drill"), Mode.HELD_CLOSED),
    (lambda breaker: breaker.ashadow(by="ada", why="drill", for_s=60.0), Mode.SHADOW),
    (lambda breaker: breaker.arelease(by="ada", why="drill"), Mode.AUTO),
]


@pytest.mark.parametrize(("override", "mode"), OVERRIDES)
def test_overrides_can_be_awaited(tmp_path: Path, override: Override, mode: Mode) -> None:
    async def main() -> None:
        async with Panel(f"sqlite:///{tmp_path / 'state.db'}") as panel:
            breaker = panel.breaker("api")
            await override(breaker)
            assert breaker.mode is mode

    asyncio.run(main())


def test_a_loop_breaker_can_be_awaited() -> None:
    async def main() -> None:
        async with Panel("memory:") as panel:
            loop = panel.loop("loop/1", consecutive_failures=2)
            await loop.arecord_progress(IterationMetrics(files_changed=1))
            await loop.arecord_success()
            await loop.arecord_error("no such table: users at 0x7f")
            assert await loop.arecord_failure("no such table: users at 0x80")
            assert await loop.ais_tripped()
            assert not (await loop.acheck()).allow_continue
            reason = await loop.atrip_reason()
            assert reason is not None
            assert "2 consecutive failures" in reason
            assert (await loop.astats()).unique_errors == 1, (
                "errors are kept as record() keeps them"
            )
            assert (await loop.astatus()).state is Phase.OPEN
            await loop.areset()
            assert loop.state is Phase.CLOSED

    asyncio.run(main())


def test_a_panel_can_be_awaited() -> None:
    async def main() -> None:
        async with Panel("memory:") as panel:
            permits = await panel.aask_all(["a", "b"])
            permits.record(Signal(ok=True))
            await panel.aorder("a", by="ada", why="drill", mode=Mode.HELD_OPEN)
            view = await panel.aview("a")
            assert view is not None
            assert view.circuit.mode is Mode.HELD_OPEN
            await panel.aflush()
            assert [view.name for view in await panel.acircuits()] == ["a", "b"]
            assert len(await panel.aevents(glob="a")) == 1
            await panel.avacuum()

    asyncio.run(main())
