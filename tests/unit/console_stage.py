"""A console over a store in a temporary file, for tests: the application itself, or a real server."""

import asyncio
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from starlette.testclient import TestClient

from switchgear._config import Config
from switchgear._console.access import Places, Tokens, digest
from switchgear._console.app import make_app
from switchgear._console.process import serve
from switchgear._console.sources import Sources
from switchgear._panel.panel import Panel
from timeouts import LIMIT_S

READ, CLIENT, OPERATOR = "read-0123456789abcdef", "client-0123456789abcdef", "operator-0123456789"
TOKENS = Tokens(digest(READ), digest(CLIENT), digest(OPERATOR))
HOME = "http://127.0.0.1:4737"


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


class Stage(NamedTuple):
    panel: Panel
    sources: Sources
    client: TestClient

    def get(self, path: str, token: str = READ, **headers: str) -> Any:
        return self.client.get(path, headers=bearer(token) | headers)

    def post(self, path: str, body: Any = None, token: str = OPERATOR, **headers: str) -> Any:
        return self.client.post(path, json=body, headers=bearer(token) | headers)


@contextmanager
def stage(
    folder: Path, config: Config | None = None, places: Places | None = None
) -> Iterator[Stage]:
    """A console over `folder`/state.db."""
    config = config or Config()
    (folder / ".git").mkdir(exist_ok=True)  # a separate project, whatever is above it
    panel = Panel(
        f"sqlite:///{folder}/state.db",
        policies=config.policy_for,
        operator_token_sha256=config.operator_token_sha256,
    )
    with panel:
        sources = Sources(panel, config, folder)
        app = make_app(sources, TOKENS, places or Places())
        with TestClient(app, base_url=HOME, raise_server_exceptions=True) as client:
            yield Stage(panel, sources, client)


@contextmanager
def real_server(folder: Path) -> Iterator[tuple[str, int]]:
    """The console as its process runs it, on a separate port: connections come over a line."""
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    ours, theirs = socket.socketpair()
    panel = Panel(f"sqlite:///{folder}/state.db")
    app = make_app(Sources(panel, Config(), folder), TOKENS, Places())

    def accept() -> None:
        while True:
            try:
                connection, _ = listener.accept()
                with connection:
                    socket.send_fds(ours, [b"c"], [connection.fileno()])
            except OSError:
                return

    threads = [
        threading.Thread(target=accept, daemon=True),
        threading.Thread(target=lambda: asyncio.run(serve(app, theirs)), daemon=True),
    ]
    for thread in threads:
        thread.start()
    try:
        yield "127.0.0.1", port
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        ours.close()
        threads[1].join(LIMIT_S)
        theirs.close()
        panel.close()
