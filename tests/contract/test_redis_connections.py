"""Scripts, logins, sockets, event loops and forks, with a real Redis server."""

import asyncio
import gc
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier, Thread

import pytest

import servers.certificates
from contract.redis_words import POLICY, SUCCEEDED, tell, trip
from servers.proxy import Proxy
from servers.server import Server, eventually, running
from switchgear._core.errors import StoreUnavailable
from switchgear._core.types import Circuit
from switchgear._stores.redis import RedisStore, clients
from switchgear._stores.redis.clients import Links
from timeouts import LIMIT_S


def test_a_server_that_forgot_the_scripts_gets_them_again(
    server: Server, store: RedisStore
) -> None:
    tell(store)
    server.say("SCRIPT", "FLUSH")
    assert tell(store).totals.failed == 2


def test_a_url_may_set_tls_and_a_password(tmp_path: Path) -> None:
    made = servers.certificates.made_in(tmp_path)
    with (
        running("--requirepass", "s3cr3t/@:") as server,
        Proxy(server.port, tls=made.context()) as tls,
    ):
        end = f"localhost:{tls.port}/0?ssl_ca_certs={made.authority}"
        store = RedisStore(f"rediss://:s3cr3t%2F%40%3A@{end}")
        assert tell(store).totals.failed == 1
        store.close()
        doubtful = RedisStore(f"rediss://:s3cr3t%2F%40%3A@localhost:{tls.port}/0")
        with pytest.raises(StoreUnavailable, match="certificate"):
            tell(doubtful)
        doubtful.close()


@pytest.mark.parametrize("login", [":wr0ng-secret@", ""])
def test_a_wrong_or_missing_password_is_reported_and_never_shown(login: str) -> None:
    with running("--requirepass", "right") as server:
        store = RedisStore(f"valkey://{login}127.0.0.1:{server.port}/0")
        with pytest.raises(StoreUnavailable, match="refused the user or the password") as caught:
            tell(store)
        store.close()
    for text in (str(caught.value), repr(caught.value), repr(store), store.label):
        assert "wr0ng" not in text


def test_a_socket_file_works_too(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with running("--unixsocket", str(path)):
        store = RedisStore(f"unix://{path}")
        assert tell(store).totals.failed == 1
        assert store.label == f"unix://{path}"
        store.close()


def test_tasks_of_several_event_loops_share_circuits_and_leave_no_connection_open(
    store: RedisStore,
) -> None:
    async def main() -> int:
        done = await asyncio.gather(
            *(store.aapply("api", POLICY, SUCCEEDED, store.now_s()) for _ in range(20))
        )
        return max(step.circuit.totals.succeeded for step in done)

    assert asyncio.run(main()) == 20
    assert asyncio.run(main()) == 40
    gc.collect()  # a connection left open would warn here, and warnings are errors


def test_close_closes_the_connections_of_a_running_loop(server: Server, store: RedisStore) -> None:
    def connections() -> int:
        return server.say("CLIENT", "LIST").count("addr=") // 2 or server.say(
            "CLIENT", "LIST"
        ).count(" name=")

    async def main() -> None:
        await store.aapply("api", POLICY, SUCCEEDED, store.now_s())
        await store.aclose()

    asyncio.run(main())
    gc.collect()
    eventually(lambda: connections() <= 1, "only the one who asks is connected")


@pytest.mark.filterwarnings("ignore:This process.*fork:DeprecationWarning")
def test_a_forked_child_uses_its_own_connections(store: RedisStore) -> None:
    tell(store, SUCCEEDED)
    store.on_change(lambda _: None)
    eventually(lambda: store.refresh_s is None, "pushes arrive")
    child = os.fork()
    if not child:
        for _ in range(50):
            tell(store, SUCCEEDED)
        os._exit(0 if store.refresh_s is not None else 1)
    for _ in range(50):
        tell(store, SUCCEEDED)
    assert os.waitpid(child, 0)[1] == 0
    assert tell(store, SUCCEEDED).totals.succeeded == 102


@pytest.mark.filterwarnings("ignore:This process.*fork:DeprecationWarning")
def test_a_forked_child_that_listens_does_not_listen_for_its_parent(
    store: RedisStore, server: Server
) -> None:
    tell(store, SUCCEEDED)
    of_parent: list[Circuit] = []
    store.on_change(of_parent.append)
    eventually(lambda: store.refresh_s is None, "pushes arrive")
    child = os.fork()
    if not child:
        heard: list[Circuit] = []
        store.on_change(heard.append)
        eventually(lambda: store.refresh_s is None, "pushes arrive in the child")
        other = RedisStore(server.url)
        trip(other)
        eventually(lambda: heard, "the child hears")
        os._exit(1 if of_parent else 0)
    assert os.waitpid(child, 0)[1] == 0


def test_a_connection_that_the_server_has_closed_is_replaced_before_it_is_used(
    server: Server, store: RedisStore
) -> None:
    for _ in range(3):
        tell(store, SUCCEEDED)
    server.say("CLIENT", "KILL", "TYPE", "normal")
    for _ in range(3):
        tell(store, SUCCEEDED)
    assert tell(store, SUCCEEDED).totals.succeeded == 7
    receipts = server.say("KEYS", "*receipt*").count("receipt")
    assert receipts == 1, "of the last message: none was in doubt"


def test_threads_that_start_at_the_same_time_share_one_client(
    store: RedisStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The redis package closes the connections of a client that nothing refers to."""
    usual, both = store._clients.create_client, Barrier(2)

    def another() -> object:
        made = usual()
        both.wait(LIMIT_S)
        return made

    monkeypatch.setattr(store._clients, "create_client", another)
    with ThreadPoolExecutor(2) as pool:
        one, two = pool.map(lambda _: store._clients.blocking(), range(2))
    assert one is two


def test_a_finalizer_may_use_the_store_while_its_thread_takes_a_connection(
    store: RedisStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The garbage collector may run one at any allocation."""
    interrupts = iter(range(1))

    class Interrupted(Links):
        def __init__(self, node: object) -> None:
            super().__init__(node)
            for _ in interrupts:
                tell(store, SUCCEEDED)

    monkeypatch.setattr(clients, "Links", Interrupted)
    thread = Thread(target=tell, args=(store, SUCCEEDED), daemon=True)
    thread.start()
    thread.join(LIMIT_S)
    assert not thread.is_alive()
    assert tell(store, SUCCEEDED).totals.succeeded == 3


def test_closing_wakes_the_thread_that_listens(
    store: RedisStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("switchgear._stores.redis.cache.LISTEN_S", 3600.0)
    monkeypatch.setattr(store._push, "_timeout_s", 3600.0)
    store.on_change(lambda _: None)
    eventually(lambda: store.refresh_s is None, "pushes arrive")
    thread = store._push._thread
    assert thread is not None
    store.close()
    eventually(lambda: not thread.is_alive(), "it ends without a message")
