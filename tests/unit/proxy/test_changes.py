"""What other processes do reaches the proxy without a request that reads the store."""

import math
from pathlib import Path

import pytest

from switchgear import Mode, Panel
from switchgear._core.errors import StoreUnavailable
from switchgear._proxy import changes, guard
from switchgear._proxy.changes import ChangeFeed
from timeouts import eventually
from unit.proxy_stage import FakeUpstream, answers, ask, message, proxying, reply

PATH = "/s/one/v1/messages"
CIRCUIT = "provider/anthropic/claude-sonnet-4-5"


@pytest.mark.parametrize(("circuit", "cause"), [("session/one", "session"), (CIRCUIT, "circuit")])
def test_a_hold_by_another_process_takes_effect_and_ends(
    circuit: str, cause: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guard, "CHECK_S", math.inf)  # only the feed tells
    url = f"sqlite:///{tmp_path}/state.db"
    up = FakeUpstream(answers(reply(message())))
    with proxying(up, store=url) as stage, Panel(url) as other:
        assert stage.post(ask(), PATH).status == 200

        def refused() -> str | None:
            return stage.post(ask(), PATH).headers.get("x-switchgear-refused")

        other.order(circuit, by="ada", why="too dear", mode=Mode.HELD_OPEN)
        eventually(lambda: refused() == cause, "the hold takes effect")
        other.order(circuit, by="ada", why="enough", mode=Mode.AUTO)
        eventually(lambda: refused() is None, "the hold has ended")


def test_names_are_reported_once_and_everything_at_first_and_now_and_then(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[set[str] | None] = []
    with Panel("memory:") as panel:
        feed = ChangeFeed(panel.store, seen.append)
        was_current = feed.is_current
        feed.read_changes()
        assert (was_current, feed.is_current) == (False, True)
        feed.read_changes()
        panel.order("session/a", by="ada", why="x", mode=Mode.HELD_OPEN)
        panel.order("provider/b", by="ada", why="x", mode=Mode.HELD_OPEN)
        feed.read_changes()
        feed.read_changes()
        assert seen == [None, {"session/a", "provider/b"}]
        monkeypatch.setattr(changes, "ALL_S", -1.0)
        feed.read_changes()
        assert seen[2:] == [None]


def test_a_store_that_cannot_be_read_is_noticed_and_read_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    up = FakeUpstream(answers(reply(message())))
    with proxying(up) as stage:
        eventually(lambda: "store" not in stage.request("GET", "/healthz").json(), "it is read")
        store = stage.panel.store.inner

        def away(**_: object) -> None:
            raise StoreUnavailable("here", "it is gone", "wait")

        with monkeypatch.context() as gone:
            gone.setattr(store, "events", away)
            eventually(
                lambda: stage.request("GET", "/healthz").json().get("store") == "unavailable",
                "the proxy knows that it cannot read",
            )
            got = stage.post(ask(), PATH)
            assert (got.status, got.headers["x-switchgear-store"]) == (200, "unavailable")
        eventually(lambda: "store" not in stage.request("GET", "/healthz").json(), "it is back")
        assert "x-switchgear-store" not in stage.post(ask(), PATH).headers
