"""A TCP relay in front of a server: it can drop everything, as a broken network does, or add TLS."""

import contextlib
import select
import socket
import ssl
import threading
from types import TracebackType
from typing import Self

from timeouts import LIMIT_S


class Proxy:
    """Relays connections to a port on the loopback. `cut` keeps them open and drops what is sent."""

    def __init__(self, port: int, *, tls: ssl.SSLContext | None = None) -> None:
        self._target = port
        self._tls = tls
        self._era = 0
        self._flows = threading.Event()
        self._flows.set()
        self._stop = threading.Event()
        self._door = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._door.getsockname()[1]
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def cut(self) -> None:
        """Drop everything from now on, in both directions."""
        self._flows.clear()

    def mend(self) -> None:
        """Relay new connections again; earlier ones are closed."""
        self._flows.set()

    def switch(self, port: int) -> None:
        """Relay new connections to another server; those of before are closed."""
        self._target = port
        self._era += 1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(LIMIT_S)
        self._door.close()

    def _accept(self) -> None:
        while not self._stop.is_set():
            ready, _, _ = select.select([self._door], [], [], 0.05)
            if ready:
                link, _ = self._door.accept()
                thread = threading.Thread(target=self._serve, args=(link,), daemon=True)
                self._threads.append(thread)
                thread.start()

    def _serve(self, link: socket.socket) -> None:
        with contextlib.suppress(OSError), contextlib.ExitStack() as ends:
            if self._tls is not None:
                link.settimeout(5.0)
                link = self._tls.wrap_socket(link, server_side=True)
            ends.enter_context(link)
            other = ends.enter_context(socket.create_connection(("127.0.0.1", self._target)))
            self._relay(link, other)

    def _relay(self, link: socket.socket, other: socket.socket) -> None:
        was_cut = False
        while not self._stop.is_set():
            pending = isinstance(link, ssl.SSLSocket) and link.pending()
            ready = [link] if pending else select.select([link, other], [], [], 0.05)[0]
            was_cut = was_cut or not self._flows.is_set()
            if was_cut and self._flows.is_set():
                return
            for end in ready:
                data = end.recv(1 << 16)
                if not data:
                    return
                if self._flows.is_set():
                    (other if end is link else link).sendall(data)
