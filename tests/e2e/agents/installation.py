"""Installs the agent CLIs of the end-to-end tests, once, into the user's cache folder.

    python tests/e2e/agents/installation.py [NAME…]

Versions are pinned, so a second run installs nothing and needs no network. The agents need Node 22
or newer; if the machine's Node is older, npm installs a newer one in the cache folder. If npm is
missing and this runs as root on Debian, apt-get installs it. If an agent cannot be installed, the
reason is printed and its tests are skipped; if a required agent cannot be installed, this fails.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
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
"""Half a gigabyte: installed and tested only if it is named on the command line."""
REQUIRED = ("codex", "gemini", "opencode")
"""Without these the end-to-end tests fail; the others are tested where they install."""
NODE = "node@22"
NODE_MAJOR = 22
LONGEST_S = 300.0
"""For one package; the largest has 60 MB."""
NO_NPM = (
    "the end-to-end tests need node and npm: install Node 22 or newer (on Debian, as root:"
    " apt-get install nodejs npm), then `make e2e`"
)


class NotInstalled(Exception):
    """Something could not be installed; the message contains the reason."""


def cache() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base, "switchgear", "e2e")


def node_folder() -> Path | None:
    """The folder of a Node that is new enough."""
    brought = cache() / NODE / "node_modules" / "node" / "bin"
    if (brought / "node").exists():
        return brought
    node = shutil.which("node")
    return Path(node).parent if node and _major(node) >= NODE_MAJOR else None


def program(name: str) -> Path:
    return cache() / PACKAGES[name].replace("/", "-") / "node_modules" / ".bin" / name


def why_missing(name: str) -> str | None:
    """Why an agent cannot be tested here; `None`: it can."""
    if program(name).exists():
        return None
    if name in BY_NAME_ONLY:
        return f"{name} is large and only tested where `installation.py {name}` was run"
    try:
        reasons: dict[str, str] = json.loads(_reasons().read_text())
    except (OSError, ValueError):
        reasons = {}
    return reasons.get(name, f"{name} is not installed; `make e2e` installs it")


def install(name: str) -> None:
    """Raises NotInstalled where that is not possible."""
    if program(name).exists() and node_folder() is not None:
        return
    npm = shutil.which("npm") or _npm_from_apt()
    if node_folder() is None:
        _install(npm, NODE, cache() / NODE, "node")
    if not program(name).exists():
        _install(npm, PACKAGES[name], program(name).parents[2], name)


def _npm_from_apt() -> str:
    apt = shutil.which("apt-get")
    if apt is None or os.geteuid() != 0:
        raise NotInstalled(NO_NPM)
    _say("installing nodejs and npm with apt-get")
    for words in (["update", "-qq"], ["install", "-y", "-qq", "nodejs", "npm"]):
        _run([apt, *words], {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}, 2 * LONGEST_S)
    npm = shutil.which("npm")
    if npm is None:
        raise NotInstalled(NO_NPM)
    return npm


def _install(npm: str, package: str, folder: Path, name: str) -> None:
    """Install into a temporary folder, run it once, then move it into place atomically."""
    _say(f"installing {package} into {folder}")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".new-", dir=folder.parent) as beside:
        flags = ["--no-audit", "--no-fund", "--loglevel=error", "--fetch-timeout=60000"]
        env = {**os.environ, "PATH": path_of(node_folder())}
        _run([npm, "install", *flags, "--prefix", beside, package], env, LONGEST_S)
        made = Path(beside, "node_modules", ".bin")
        env["PATH"] = os.pathsep.join((str(made), env["PATH"]))
        with tempfile.TemporaryDirectory() as home:
            _run([str(made / name), "--version"], {**env, "HOME": home}, LONGEST_S)
        Path(beside).rename(folder)
        Path(beside).mkdir()  # for the context to remove


def path_of(*first: Path | None) -> str:
    """A PATH that begins with these folders."""
    ours = os.environ.get("PATH", os.defpath)
    return os.pathsep.join((*(str(folder) for folder in first if folder), ours))


def _run(command: list[str], env: dict[str, str], longest_s: float) -> None:
    words = " ".join(Path(command[0]).name if at == 0 else word for at, word in enumerate(command))
    try:
        done = subprocess.run(
            command,
            env=env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=longest_s,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as problem:
        raise NotInstalled(f"`{words}` did not work: {problem}") from problem
    if done.returncode != 0:
        said = (done.stderr or done.stdout).strip()[-2000:]
        raise NotInstalled(f"`{words}` ended with exit code {done.returncode}: {said}")


def _major(node: str) -> int:
    done = subprocess.run([node, "--version"], capture_output=True, text=True, check=False)
    match = re.match(r"v(\d+)", done.stdout)
    return int(match[1]) if match else 0


def _reasons() -> Path:
    return cache() / "reasons.json"


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def main() -> int:
    reasons: dict[str, str] = {}
    for name in sys.argv[1:] or [name for name in PACKAGES if name not in BY_NAME_ONLY]:
        try:
            install(name)
        except NotInstalled as problem:
            reasons[name] = f"{name} cannot be installed here: {problem}"
            _say(reasons[name])
            if name in REQUIRED:
                sys.stderr.write(f"the end-to-end tests require {name}\n")
                return 1
    cache().mkdir(parents=True, exist_ok=True)
    _reasons().write_text(json.dumps(reasons, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
