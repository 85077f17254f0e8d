"""What `make e2e` installs, with stand-ins for npm, node and apt-get."""

import os
import sys
from pathlib import Path

import pytest

from e2e.agents import installation
from e2e.agents.installation import NotInstalled, install, main, program, why_missing

NPM = """#!/bin/sh
for word in "$@"; do last=$word; done
while [ "$1" != --prefix ]; do shift; done
echo "$last" >> "$NPM_LOG"
mkdir -p "$2/node_modules/.bin" "$2/node_modules/node/bin"
case "$last" in *claude*) code=1;; *pi-coding*) echo "no such package" >&2; exit 7;; *) code=0;; esac
for name in node codex gemini opencode claude qwen pi; do
    printf '#!/bin/sh\\necho v22.1.0\\nexit %s\\n' $code > "$2/node_modules/.bin/$name"
    chmod +x "$2/node_modules/.bin/$name"
done
cp "$2/node_modules/.bin/node" "$2/node_modules/node/bin/node"
"""
APT = """#!/bin/sh
echo "apt-get $*" >> "$NPM_LOG"
case "$1" in install) mv "$BIN/npm-of-apt" "$BIN/npm";; esac
"""
OLD_NODE = "#!/bin/sh\necho v20.1.0\n"


class Machine:
    """A machine with these programs and nothing else."""

    def __init__(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._bin = path / "bin"
        self._bin.mkdir()
        self._log = path / "log"
        self._log.touch()
        for name in ("sh", "mkdir", "chmod", "cp", "mv"):
            (self._bin / name).symlink_to(f"/bin/{name}")
        monkeypatch.setenv("PATH", str(self._bin))
        monkeypatch.setenv("BIN", str(self._bin))
        monkeypatch.setenv("NPM_LOG", str(self._log))
        monkeypatch.setenv("XDG_CACHE_HOME", str(path / "cache"))
        monkeypatch.setattr(sys, "argv", ["installation.py"])
        self.be_user(monkeypatch, 1000)

    @staticmethod
    def be_user(monkeypatch: pytest.MonkeyPatch, uid: int) -> None:
        monkeypatch.setattr(os, "geteuid", lambda: uid)

    def has(self, name: str, script: str) -> None:
        (self._bin / name).write_text(script)
        (self._bin / name).chmod(0o755)

    @property
    def done(self) -> list[str]:
        return self._log.read_text().splitlines()


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(tmp_path, monkeypatch)


def test_without_npm_it_reports_what_to_do(
    machine: Machine, capsys: pytest.CaptureFixture[str]
) -> None:
    machine.has("apt-get", APT)  # which is not ours to use
    assert main() == 1
    told = capsys.readouterr()
    assert "codex cannot be installed here: the end-to-end tests need node and npm" in told.out
    assert "apt-get install nodejs npm" in told.out
    assert told.err == "the end-to-end tests require codex\n"
    assert machine.done == []


def test_root_gets_npm_by_apt_get(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    machine.be_user(monkeypatch, 0)
    machine.has("apt-get", APT)
    machine.has("npm-of-apt", NPM)
    install("codex")
    assert machine.done == [
        "apt-get update -qq",
        "apt-get install -y -qq nodejs npm",
        installation.NODE,
        installation.PACKAGES["codex"],
    ]
    assert program("codex").exists()


@pytest.mark.parametrize(
    ("node", "brought"), [(OLD_NODE, True), ("#!/bin/sh\necho v24.0.0", False)]
)
def test_a_node_that_is_too_old_stays_and_another_is_installed(
    machine: Machine, node: str, brought: bool
) -> None:
    machine.has("npm", NPM)
    machine.has("node", node)
    install("gemini")
    assert (installation.NODE in machine.done) == brought


def test_a_second_run_does_not_prompt(machine: Machine) -> None:
    machine.has("npm", NPM)
    for _ in range(2):
        install("codex")
        install("gemini")
    assert len(machine.done) == 3  # node and both


def test_an_agent_that_cannot_be_installed_or_started_is_skipped_with_its_reason(
    machine: Machine, capsys: pytest.CaptureFixture[str]
) -> None:
    machine.has("npm", NPM)
    assert main() == 0
    assert why_missing("codex") is None
    assert "`claude --version` ended with exit code 1" in str(why_missing("claude"))
    assert "exit code 7: no such package" in str(why_missing("pi"))
    assert "pi cannot be installed here" in capsys.readouterr().out
    assert "large" in str(why_missing("goose"))
    assert not program("claude").exists()
    assert not list(installation.cache().glob(".new-*"))


def test_a_required_agent_that_cannot_be_installed_fails(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.has("npm", NPM)
    monkeypatch.setattr(installation, "REQUIRED", ("pi",))
    assert main() == 1


def test_hooks_that_were_never_installed_are_reported(machine: Machine) -> None:
    assert why_missing("qwen") == "qwen is not installed; `make e2e` installs it"


def test_a_program_that_hangs_is_given_up(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.has("npm", "#!/bin/sh\nexec /bin/sleep 60\n")
    monkeypatch.setattr(installation, "LONGEST_S", 0.2)
    with pytest.raises(NotInstalled, match=r"npm install .* did not work: .*timed out"):
        install("codex")
