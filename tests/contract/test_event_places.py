"""Positions in the event stream: the same in every store; no event is read twice or skipped."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from contract.backends import BACKENDS, Backend
from switchgear import Panel
from switchgear._config import Config
from switchgear._console.sources import Sources
from switchgear._console.stream import Client, EventHub
from switchgear._fleet.delivery import OutboxPlace


@pytest.fixture(params=sorted(BACKENDS))
def backend(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Backend]:
    with BACKENDS[request.param](tmp_path) as backend:
        yield backend


def events(panel: Panel, first: int, last: int) -> None:
    for number in range(first, last + 1):
        panel.breaker("provider/p").hold_open(by="ana", why=f"number {number}")
        panel.breaker("provider/p").release(by="ana", why=f"back {number}")


def test_a_reader_begins_with_the_oldest_and_continues_where_it_was(backend: Backend) -> None:
    heard: list[int] = []
    with Panel(backend.open()) as panel:
        events(panel, 1, 3)
        place = OutboxPlace(panel, "reader", "me")
        assert place.for_each(lambda entry: heard.append(entry.event.seq)) == 6
        assert place.for_each(lambda entry: heard.append(entry.event.seq)) == 0
    with Panel(backend.open()) as panel:
        events(panel, 4, 4)
        assert (
            OutboxPlace(panel, "reader", "you").for_each(lambda e: heard.append(e.event.seq)) == 2
        )
        assert OutboxPlace(panel, "another", "you").for_each(lambda _: None) == 8
        panel.breaker("provider/p")
    assert heard == [1, 2, 3, 4, 5, 6, 7, 8]


def test_a_failed_event_is_retried_before_the_ones_after_it(backend: Backend) -> None:
    heard: list[int] = []

    with Panel(backend.open()) as panel:
        events(panel, 1, 2)

        def act(number: int) -> None:
            if number == 3 and 3 not in tried:
                tried.append(number)
                raise OSError("full")
            heard.append(number)

        tried: list[int] = []
        place = OutboxPlace(panel, "reader", "me")
        with pytest.raises(OSError, match="full"):
            place.for_each(lambda entry: act(entry.event.seq))
        assert place.for_each(lambda entry: act(entry.event.seq)) == 2
    assert heard == [1, 2, 3, 4]


def test_while_one_process_has_the_lease_the_others_wait(backend: Backend) -> None:
    with Panel(backend.open()) as panel:
        events(panel, 1, 1)
        mine, other = OutboxPlace(panel, "reader", "me"), OutboxPlace(panel, "reader", "you")
        assert mine.acquire() is not None
        assert other.acquire() is None
        assert other.for_each(lambda _: None) == 0
        assert not other.move("1")
        mine.leave()
        assert other.for_each(lambda _: None) == 2


def test_the_event_stream_of_the_console_begins_before_the_first_event(
    backend: Backend, tmp_path: Path
) -> None:
    async def followed(panel: Panel) -> list[bytes]:
        hub = EventHub(Sources(panel, Config(), tmp_path))
        await hub.start()
        stream = hub.serve(Client("*", views=False, drop=lambda: None), "0")
        hello = await anext(stream)
        assert b"event: hello" in hello
        await asyncio.to_thread(events, panel, 1, 2)
        found = [await anext(stream) for _ in range(4)]
        await hub.stop()
        assert not hub.problem
        return found

    with Panel(backend.open()) as panel:
        found = asyncio.run(followed(panel))
    assert [json.loads(each.split(b"data: ")[1])["seq"] for each in found] == [1, 2, 3, 4]
