"""Which commands a user of the server must be allowed: exactly those that the documentation lists."""

import asyncio
import re
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from servers.cluster import running_cluster
from servers.server import Server, eventually, running
from stress.crew import together
from switchgear._core.errors import StoreUnavailable
from switchgear._core.policy import Policy
from switchgear._core.types import Mode, Override, Record, Signal
from switchgear._detectors import ConsecutiveFailures
from switchgear._panel.panel import Panel
from switchgear._stores.redis import RedisStore
from switchgear._stores.redis.clients import CLUSTER_COMMANDS, COMMANDS
from switchgear._stores.redis.envelope import Mail
from switchgear._stores.redis.script import Call

POLICY = Policy([ConsecutiveFailures(3)])
FAILED = Record(Signal(ok=False, error="529 overloaded"))
SUCCEEDED = Record(Signal(ok=True))
DOCS = Path(__file__).parents[2] / "docs" / "stores.md"
NOT_NEEDED = {"client", "config"}
"""What is asked for and done without: the client's name, and whether the server saves."""


def make_user(nodes: Iterable[Server], commands: Iterable[str]) -> None:
    allowed = [f"+{command.lower()}" for command in commands]
    rules = ["reset", "on", ">pw", "~{switchgear}*", "resetchannels", "&{switchgear}*", *allowed]
    for node in nodes:
        assert node.say("ACL", "SETUSER", "gear", *rules) == "+OK\r\n"
        node.say("ACL", "LOG", "RESET")
        node.say("CONFIG", "RESETSTAT")


def denied(nodes: Iterable[Server]) -> set[str]:
    """The commands that the access rules have refused."""
    logs = "".join(node.say("ACL", "LOG") for node in nodes)
    found = re.findall(r"\$6\r\nobject\r\n\$\d+\r\n(\S+)\r\n", logs)
    return {name.split("|")[0] for name in found}


def used(nodes: Iterable[Server]) -> set[str]:
    stats = "".join(node.say("INFO", "commandstats") for node in nodes)
    return {name.split("|")[0].upper() for name in re.findall(r"cmdstat_([^:]+):", stats)}


def as_user(url: str) -> str:
    return url.replace("://", "://gear:pw@")


def do_everything(url: str) -> None:
    """Every operation of a store, on a server that is otherwise empty."""
    store = RedisStore(url)
    with Panel(store, operator_token_sha256="0" * 64) as panel:
        breaker = panel.breaker("api", POLICY)
        eventually(lambda: panel.store.refresh_s is None, "pushes arrive")
        for _ in range(3):
            breaker.record(FAILED.signal)
        assert [view.name for view in panel.circuits("a*")] == ["api"]
        newest = panel.events()
        assert panel.events(after=newest[-1].cursor) == []
        assert store.facts()["events"] == "1"
        compete(url)
        store._clients.blocking().set("{switchgear}:c:bad", "rubbish")
        assert store.apply("bad", POLICY, FAILED, store.now_s()).events
        store._run(gives_up(store))
        assert store.transact("a", lambda inside: inside.note) is None
        asyncio.run(store.aapply("api", POLICY, FAILED, store.now_s()))
        assert store.vacuum(keep_events=1, idle_s=0.001, now_s=store.now_s() + 60.0).circuits
        assert store.set_operator_digest(None, instead_of="0" * 64)
        assert store.apply("gone", POLICY, FAILED, store.now_s()).circuit
        store.apply("gone", POLICY, Override("ada", "a drill", Mode.HELD_OPEN), store.now_s())
        assert store.forget("gone"), "with its event"
        time.sleep(1.5)  # the listener asks whether the silent server is alive


def gives_up(store: RedisStore) -> Generator[Call, Any, None]:
    """What a client does when its message times out."""
    mail = Mail(store._protocol.known.token(), FAILED, 0.0, "")
    yield store._protocol._withdrawal("api", mail)


def compete(url: str) -> None:
    stores = [RedisStore(url) for _ in range(8)]

    def talk(store: RedisStore) -> Callable[[], None]:
        def run() -> None:
            for _ in range(50):
                store.apply("hot", POLICY, SUCCEEDED, store.now_s())

        return run

    together(*map(talk, stores))
    for store in stores:
        store.close()


@contextmanager
def site(kind: str) -> Iterator[tuple[str, list[Server], tuple[str, ...]]]:
    if kind == "server":
        with running() as server:
            yield server.url, [server], COMMANDS
    else:
        with running_cluster() as cluster:
            yield cluster.url, list(cluster.nodes), COMMANDS + CLUSTER_COMMANDS


@pytest.mark.parametrize("kind", ["server", "cluster"])
def test_the_documented_permissions_are_sufficient_and_necessary(kind: str) -> None:
    with site(kind) as (url, nodes, commands):
        make_user(nodes, commands)
        do_everything(as_user(url))
        assert denied(nodes) - NOT_NEEDED == set()
        assert {command.split("|")[0] for command in commands} - used(nodes) == set()


def test_a_missing_permission_is_reported_with_all_required_ones() -> None:
    with running() as server:
        make_user([server], [command for command in COMMANDS if command != "XADD"])
        store = RedisStore(as_user(server.url))
        with pytest.raises(StoreUnavailable, match="forbid a command or a key; allow EVAL") as told:
            for _ in range(3):
                store.apply("api", POLICY, FAILED, store.now_s())
        assert all(command in str(told.value) for command in COMMANDS)
        store.close()


def test_the_documentation_lists_the_same_permissions() -> None:
    rules = DOCS.read_text()
    needed = " ".join(f"+{command.lower()}" for command in COMMANDS)
    more = " ".join(f"+{command.lower()}" for command in CLUSTER_COMMANDS)
    assert needed in " ".join(rules.split())
    assert more in " ".join(rules.split())
