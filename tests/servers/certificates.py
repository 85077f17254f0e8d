"""A throw-away authority and a certificate for the loopback, made by openssl."""

import shutil
import ssl
import subprocess
from pathlib import Path
from typing import NamedTuple

import pytest


class Certificate(NamedTuple):
    authority: Path
    certificate: Path
    key: Path

    def context(self) -> ssl.SSLContext:
        """For the side of the server."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.certificate, self.key)
        return context


def made_in(folder: Path) -> Certificate:
    """A certificate for localhost and 127.0.0.1 that its own authority vouches for."""
    if shutil.which("openssl") is None:
        pytest.skip("no openssl to make a certificate with")
    made = Certificate(folder / "server.pem", folder / "server.pem", folder / "server.key")
    command = (
        "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost "
        f"-addext subjectAltName=DNS:localhost,IP:127.0.0.1 -keyout {made.key} -out {made.certificate}"
    )
    subprocess.run(command.split(), check=True, capture_output=True)
    return made
