"""Installs what the tests of the page need, once: Chromium, Playwright, axe-core, promtool, Schemathesis.

What cannot be installed is printed with the reason; the tests that need it are skipped.
"""

# ruff: noqa: T201  a command that prints
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "switchgear" / "console"
CHROMIUM_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
AXE_VERSION = "4.14.0"


def chromium() -> str | None:
    """The browser; `None`: there is none."""
    return next(filter(None, map(shutil.which, CHROMIUM_NAMES)), None)


def axe() -> Path:
    """The path of axe-core; it exists once it is installed."""
    return CACHE / f"axe-{AXE_VERSION}.js"


def promtool() -> str | None:
    """The checker of Prometheus; `None`: there is none."""
    unpacked = CACHE / "prometheus" / "usr" / "bin"
    return shutil.which("promtool") or shutil.which("promtool", path=str(unpacked))


def schemathesis() -> Path:
    """The path of Schemathesis, in its own environment; it exists once it is installed."""
    return CACHE / "schemathesis" / "bin" / "schemathesis"


def _tried(what: str, *command: str, cwd: Path | None = None) -> bool:
    """Run a command; if it fails, print what is missing and why."""
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    try:
        subprocess.run(
            command,
            check=True,
            cwd=cwd,
            env=environment,
            capture_output=True,
            text=True,
            timeout=900,
        )
    except (OSError, subprocess.SubprocessError) as error:
        lines = str(getattr(error, "stderr", None) or error).strip().splitlines()
        print(f"{what} could not be installed: {lines[-1] if lines else error}", flush=True)
        return False
    return True


def _has_apt(what: str) -> bool:
    if shutil.which("apt-get") is None:
        print(f"{what} is not installed, and there is no apt-get to install it", flush=True)
        return False
    return True


def _from_apt(what: str, *command: str, cwd: Path | None = None) -> bool:
    """Run apt-get; if it fails, update the package lists and run it once more."""
    print(f"installing {what} with apt-get", flush=True)
    if _tried(what, "apt-get", *command, cwd=cwd):
        return True
    print("updating the package lists, then trying once more", flush=True)
    return _tried("package lists", "apt-get", "update", "-q") and _tried(
        what, "apt-get", *command, cwd=cwd
    )


def _install_chromium() -> None:
    packages = ("chromium", "fonts-dejavu-core")
    if not _has_apt("Chromium"):
        return
    if os.getuid() != 0:
        command = f"apt-get install {' '.join(packages)}"
        print(f"Chromium is not installed; as root: {command}", flush=True)
        return
    _from_apt("Chromium", "install", "-y", "-q", "--no-install-recommends", *packages)


def _unpack_promtool() -> None:
    """Unpack the Debian package into the cache: installing it would start a server."""
    if _has_apt("promtool") and _from_apt("promtool", "download", "-q", "prometheus", cwd=CACHE):
        for package in CACHE.glob("prometheus_*.deb"):
            _tried("promtool", "dpkg-deb", "-x", str(package), str(CACHE / "prometheus"))
            package.unlink()


def main() -> None:
    CACHE.mkdir(parents=True, exist_ok=True)
    if chromium() is None:
        _install_chromium()
    if promtool() is None:
        _unpack_promtool()
    _tried("Playwright", sys.executable, "-m", "pip", "install", "-q", "playwright")
    if not axe().exists() and shutil.which("npm") is None:
        print("axe-core is not installed, and there is no npm to install it", flush=True)
    elif not axe().exists():
        _tried("axe-core", "npm", "pack", "--silent", f"axe-core@{AXE_VERSION}", cwd=CACHE)
        for packed in CACHE.glob("axe-core-*.tgz"):
            with tarfile.open(packed) as archive:
                found = archive.extractfile("package/axe.min.js")
                if found is not None:
                    axe().write_bytes(found.read())
    if not schemathesis().exists():
        home = schemathesis().parents[1]
        if _tried("Schemathesis", sys.executable, "-m", "venv", str(home)):
            _tried("Schemathesis", str(home / "bin" / "pip"), "install", "-q", "schemathesis")


if __name__ == "__main__":
    main()
