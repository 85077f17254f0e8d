"""The agent is found among the ancestors of a hook, and only its process is interrupted."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from switchgear._hooks import interrupt
from switchgear._hooks.interrupt import agent_process, is_agent
from timeouts import LIMIT_S
from trusted_config import write_config

HOLDS = """
import json, subprocess, sys, time
project, *hook = sys.argv[1:]
try:
    for number in range(8):
        names = {"session_id": "s1", "cwd": project, "tool_name": "Bash", "tool_use_id": f"t{number}"}
        names["tool_input"] = {"command": "make"}
        for event, more in (
            ("PreToolUse", {}),
            ("PostToolUse", {"tool_response": f"Process exited with code 1: {number}"}),
        ):
            raw = json.dumps({**names, "hook_event_name": event, **more}).encode()
            done = subprocess.run(hook, input=raw, capture_output=True)
            sys.stdout.write(done.stdout.decode())
            sys.stdout.flush()
    time.sleep(60)  # the interrupt comes a moment after the refusal, and hooks are fast
    print("went on")
except KeyboardInterrupt:
    print("interrupted")
"""


@pytest.mark.parametrize(
    ("agent", "words"),
    [
        ("codex", ["/usr/bin/codex", "exec"]),
        ("codex", ["/opt/codex-x86_64-unknown-linux-musl", "exec"]),
        ("codex", ["node", "/opt/lib/node_modules/@openai/codex/bin/codex.js"]),
        ("qwen", ["node", "--no-warnings", "/opt/bin/qwen"]),
        # The process that works; its launcher would leave it alone, and running.
        ("qwen", ["node", "--expose-gc", "/opt/@qwen-code/qwen-code/cli.js"]),
        ("gemini", ["node", "/opt/@google/gemini-cli/dist/index.js"]),
        ("claude-code", ["claude"]),
        ("opencode", ["/opt/opencode-linux-x64/bin/opencode"]),
        ("pi", ["node", "/opt/bin/pi"]),
    ],
)
def test_agents_are_identified_by_their_command_line(agent: str, words: list[str]) -> None:
    assert is_agent(agent, words)


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["bash"],
        ["-zsh"],
        ["sh", "-c", "python entry.py codex --root codex"],
        ["python3", "-I", "-S", "/opt/switchgear/hooks/entry.py", "codex"],
        ["node", "/opt/other/cli.js", "codex"],
        ["vim", "codex"],
        ["/sbin/init"],
    ],
)
def test_no_other_process_is_identified_as_the_agent(words: list[str]) -> None:
    assert not is_agent("codex", words)


def test_without_an_agent_among_the_ancestors_none_is_found() -> None:
    assert agent_process("qwen", os.getpid()) is None
    assert agent_process("codex", 1) is None


def test_an_agent_that_no_output_stops_is_interrupted(tmp_path: Path) -> None:
    from e2e.hook_process import command  # noqa: PLC0415  what only this test needs

    project = tmp_path / "project"
    (project / ".git").mkdir(parents=True)
    latched = "{detectors: [{consecutive_failures: {threshold: 2}}], recovery: latched}"
    write_config(
        project / "switchgear.yaml", f"circuits:\n  - {{match: 'session/*', policy: {latched}}}\n"
    )
    agent = tmp_path / "codex"
    agent.write_text(HOLDS)
    line = [sys.executable, str(agent), str(project), *command(project, "codex")]
    done = subprocess.run(line, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert "interrupted" in done.stdout, done
    assert "went on" not in done.stdout
    assert '"permissionDecision": "deny"' in done.stdout, "the deny was written before"


def test_the_output_of_a_headless_agent_does_not_overwrite_the_text_of_the_hook(
    tmp_path: Path,
) -> None:
    log = tmp_path / "log"
    code = "import os; os.write(2, b'one\\n'); input(); os.write(2, b'two\\n')"
    with (
        log.open("wb") as file,
        subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stderr=file) as agent,
    ):
        while not log.read_bytes():
            time.sleep(0.01)
        ours = interrupt._error_output(agent.pid)
        os.write(ours, b"ours\n")
        os.close(ours)
        agent.communicate(b"\n", 60)
    if not _can_share():
        pytest.skip("this system does not let a process share another one's files")
    assert log.read_text() == "one\nours\ntwo\n"


def _can_share() -> bool:
    try:
        os.close(interrupt._duplicate_descriptor(os.getpid(), 1))
    except OSError:
        return False
    return True
