"""A real RabbitMQ on private loopback ports, in a separate folder, ended by its own process ids."""

import os
import shutil
import signal
import socket
import subprocess
import tempfile
from pathlib import Path

from servers.server import free_port
from timeouts import LIMIT_S, end, eventually

SERVER = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")
"""The program itself: the one on the PATH changes the user."""
ACKNOWLEDGE_S = 5
"""How long the broker waits for the acknowledgement of a message; usually half an hour."""


def is_installed() -> bool:
    return SERVER.exists() and shutil.which("epmd") is not None


class RabbitMQ:
    """One broker. Its queues outlast its process."""

    def __init__(self) -> None:
        self.port, self._names_port, self._peers_port = free_port(), free_port(), free_port()
        self.folder = Path(tempfile.mkdtemp(prefix="switchgear-rabbitmq-"))
        (self.folder / "plugins").write_text("[].\n")
        (self.folder / "rabbitmq.conf").write_text("loopback_users = none\n")
        self._processes: list[subprocess.Popen[bytes]] = []

    @property
    def url(self) -> str:
        return f"amqp://guest:guest@127.0.0.1:{self.port}//"

    def start(self) -> None:
        """Start the broker, and before it the name server that it would otherwise leave behind."""
        environment = self._environment()
        epmd = ["epmd", "-port", str(self._names_port), "-address", "127.0.0.1"]
        with (self.folder / "log").open("ab") as log:
            for command in (epmd, [str(SERVER)]):
                self._processes.append(
                    subprocess.Popen(
                        command, env=environment, stdout=log, stderr=log, start_new_session=True
                    )
                )
        eventually(self._is_up, f"the broker on port {self.port} is up")

    def kill(self) -> None:
        """End the process as a crash does."""
        for process in self._processes:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)  # a session that this object started
            end(process)
        self._processes = []

    def stop(self) -> None:
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _environment(self) -> dict[str, str]:
        words = "+S 1:1 +sbwt none -kernel inet_dist_use_interface {127,0,0,1}"
        patience = f"-rabbit consumer_timeout {ACKNOWLEDGE_S * 1000} channel_tick_interval 1000"
        return {
            "PATH": os.environ["PATH"],
            "HOME": str(self.folder),
            "ERL_EPMD_PORT": str(self._names_port),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODENAME": f"switchgear-{self.port}@localhost",
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODE_PORT": str(self.port),
            "RABBITMQ_DIST_PORT": str(self._peers_port),
            "RABBITMQ_CONFIG_FILE": str(self.folder / "rabbitmq.conf"),
            "RABBITMQ_CONF_ENV_FILE": str(self.folder / "none"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(self.folder / "plugins"),
            "RABBITMQ_MNESIA_BASE": str(self.folder / "data"),
            "RABBITMQ_PID_FILE": str(self.folder / "pid"),
            "RABBITMQ_LOGS": "-",
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": f"{words} {patience}",
        }

    def _is_up(self) -> bool:
        """Whether it answers as an AMQP broker: a wrong version is answered with the right one."""
        for process in self._processes:
            if process.poll() is not None:
                log = (self.folder / "log").read_text(errors="replace")
                raise AssertionError(f"{process.args!r} ended: {log[-2000:]}")
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=LIMIT_S) as link:
                link.sendall(b"AMQP\x00\x00\x00\x00")
                return link.recv(8).startswith(b"AMQP")
        except OSError:
            return False
