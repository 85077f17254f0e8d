"""Installs what the tests of the page need, once: Chromium, Playwright, axe-core, Schemathesis.

If something cannot be installed, the reason is printed, and the tests that need it are skipped.
"""

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


def schemathesis() -> Path:
    """The path of Schemathesis, in its own environment; it exists once it is installed."""
    return CACHE / "schemathesis" / "bin" / "schemathesis"


def _tried(what: str, *command: str, cwd: Path | None = None) -> None:
    try:
        subprocess.run(command, check=True, cwd=cwd, capture_output=True, text=True, timeout=900)
    except (OSError, subprocess.SubprocessError) as error:
        why = (getattr(error, "stderr", "") or str(error)).strip()
        sys.stdout.write(f"{what} could not be installed: {why[-500:]}\n")


def main() -> None:
    CACHE.mkdir(parents=True, exist_ok=True)
    if chromium() is None and os.getuid() == 0 and shutil.which("apt-get"):
        _tried("Chromium", "apt-get", "install", "-y", "-q", "chromium")
    if shutil.which("promtool") is None and os.getuid() == 0 and shutil.which("apt-get"):
        _tried("promtool", "apt-get", "install", "-y", "-q", "prometheus")
    _tried("Playwright", sys.executable, "-m", "pip", "install", "-q", "playwright")
    if not axe().exists() and shutil.which("npm"):
        _tried("axe-core", "npm", "pack", "--silent", f"axe-core@{AXE_VERSION}", cwd=CACHE)
        for packed in CACHE.glob("axe-core-*.tgz"):
            with tarfile.open(packed) as archive:
                found = archive.extractfile("package/axe.min.js")
                if found is not None:
                    axe().write_bytes(found.read())
    if not schemathesis().exists():
        home = schemathesis().parents[1]
        _tried("Schemathesis", sys.executable, "-m", "venv", str(home))
        _tried("Schemathesis", str(home / "bin" / "pip"), "install", "-q", "schemathesis")


if __name__ == "__main__":
    main()
