"""Installs the agent CLIs of the end-to-end tests, once, into the user's cache folder.

    python tests/e2e/agents/installing.py [NAME…]

Versions are pinned, so a second run finds everything in place. Their Node must be 22 or newer:
where the machine's is older, npm brings one.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

PACKAGES = {
    "codex": "@openai/codex@0.166.0",
    "gemini": "@google/gemini-cli@0.61.0",
    "opencode": "opencode-ai@1.18.33",
    "claude": "@anthropic-ai/claude-code@2.1.325",
    "qwen": "@qwen-code/qwen-code@0.24.4",
    "pi": "@mariozechner/pi-coding-agent@0.73.1",
    "goose": "@aaif/goose@0.20.1",
}
BY_NAME_ONLY = ("goose",)
"""Half a gigabyte: installed, and then tested, only when it is asked for."""
REQUIRED = ("codex", "gemini", "opencode")
"""Without these the end-to-end tests fail; the others are tested where they install."""
NODE = "node@22"


def cache() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base, "switchgear", "e2e")


def node_folder() -> Path | None:
    """The folder of a Node that is new enough."""
    brought = cache() / NODE / "node_modules" / "node" / "bin"
    if (brought / "node").exists():
        return brought
    node = shutil.which("node")
    return Path(node).parent if node and _major(node) >= 22 else None


def program(name: str) -> Path:
    return cache() / PACKAGES[name].replace("/", "-") / "node_modules" / ".bin" / name


def install(name: str) -> None:
    """Raises RuntimeError with a sentence where that is not possible."""
    npm = shutil.which("npm")
    if npm is None:
        raise RuntimeError(
            "the end-to-end tests need node and npm: install Node 22 or newer, then `make e2e`"
        )
    if node_folder() is None:
        _npm(npm, NODE, cache() / NODE)
    if not program(name).exists():
        _npm(npm, PACKAGES[name], program(name).parents[2])


def _npm(npm: str, package: str, folder: Path) -> None:
    sys.stdout.write(f"installing {package} into {folder}\n")
    sys.stdout.flush()
    folder.mkdir(parents=True, exist_ok=True)
    node = node_folder()
    ours = os.environ.get("PATH", os.defpath)
    path = f"{node}{os.pathsep}{ours}" if node else ours
    flags = ["--no-audit", "--no-fund", "--loglevel=error", "--prefix", str(folder)]
    done = subprocess.run(
        [npm, "install", *flags, package],
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    if done.returncode != 0:
        shutil.rmtree(folder, ignore_errors=True)
        raise RuntimeError(f"npm could not install {package}:\n{done.stderr[-2000:]}")


def _major(node: str) -> int:
    done = subprocess.run([node, "--version"], capture_output=True, text=True, check=False)
    match = re.match(r"v(\d+)", done.stdout)
    return int(match[1]) if match else 0


def main() -> int:
    for name in sys.argv[1:] or [name for name in PACKAGES if name not in BY_NAME_ONLY]:
        try:
            install(name)
        except (RuntimeError, subprocess.TimeoutExpired) as problem:
            sys.stderr.write(f"{problem}\n")
            if name in REQUIRED:
                return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
