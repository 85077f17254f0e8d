"""The command line of SECURITY.md that puts an agent into bubblewrap, with a shell in the agent's place."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from switchgear._config.trust import trust_file
from switchgear._hooks.command import hook_command
from timeouts import LIMIT_S
from unit.hook_calls import after, before

DOCUMENT = Path(__file__).parents[2] / "SECURITY.md"


def usable() -> bool:
    if shutil.which("bwrap") is None or Path(__file__).is_relative_to("/tmp"):
        return False  # the sandbox mounts an empty folder over /tmp: no Python of a checkout there
    probe = ["bwrap", "--ro-bind", "/", "/", "--unshare-pid", "true"]
    return subprocess.run(probe, capture_output=True, check=False).returncode == 0


pytestmark = pytest.mark.skipif(
    not usable(), reason="bubblewrap cannot be used here, or the checkout is below /tmp"
)


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> Path:
    # Not below /tmp, over which the sandbox mounts an empty folder.
    folder = Path(__file__).parents[2] / "build" / f"sandbox-{tmp_path_factory.getbasetemp().name}"
    shutil.rmtree(folder, ignore_errors=True)
    for each in ("project/.claude", "project/.git", ".claude", ".local/state/switchgear/trust"):
        (folder / each).mkdir(parents=True)
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    monkeypatch.chdir(folder / "project")
    return folder


def in_sandbox(home: Path, script: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    """Run a shell script in the documented sandbox, where `claude` would run."""
    [block] = re.findall(
        r"```sh\n(STATE=.*?bwrap .*?)  claude\n```", DOCUMENT.read_text(), re.DOTALL
    )
    return subprocess.run(
        ["bash", "-c", f"{block}  bash -c {shlex.quote(script)}"],
        cwd=home / "project",
        env={"HOME": str(home), "PATH": os.environ["PATH"]},
        input=stdin,
        capture_output=True,
        text=True,
        check=False,
        timeout=LIMIT_S,
    )


def test_in_the_sandbox_the_guard_cannot_be_written_and_hooks_work(home: Path) -> None:
    project = home / "project"
    settings = project / ".claude" / "settings.json"
    settings.write_text('{"hooks": {}}')
    config = project / "switchgear.yaml"
    config.write_text("rules: {own: [{name: no-x, commands: ['make x']}]}\n")
    trust_file(str(config))
    for attack in (
        "echo > switchgear.yaml",
        "rm -f switchgear.yaml",
        "mv switchgear.yaml x",
        "rm -rf .claude",
        "echo > .claude/settings.json",
        "ln -sfn /nowhere .claude",
        "rm -rf ~/.local/state/switchgear/trust/*",
        "touch ~/evil",
    ):
        done = in_sandbox(home, attack)
        assert done.returncode != 0, attack
        assert settings.read_text() == '{"hooks": {}}'
        assert "no-x" in config.read_text()
    in_sandbox(
        home, "touch ~/evil"
    )  # in a checkout below /tmp it succeeds, in the empty folder there
    assert not (home / "evil").exists()
    assert in_sandbox(home, "echo work > file").returncode == 0
    assert (project / "file").read_text() == "work\n"
    command = shlex.join([sys.executable, *hook_command("claude-code", root=str(project))[1:]])
    call = before("Bash", {"command": "make x"})
    told = in_sandbox(home, command, json.dumps({**call, "cwd": str(project)}))
    assert json.loads(told.stdout)["hookSpecificOutput"]["permissionDecision"] == "deny", told
    told = in_sandbox(home, command, json.dumps({**after(), "cwd": str(project)}))
    assert told.stdout.strip() in {"", "{}"}
    shutil.rmtree(home)
