"""The store of a hook process."""

import json
import subprocess
from pathlib import Path

from switchgear._hooks.command import hook_command


def test_a_hook_process_does_not_write_the_log_of_its_database_back(tmp_path: Path) -> None:
    """Closing the last connection would, and the agent would wait for the disk after every hook."""
    (tmp_path / ".git").mkdir()
    event = {"session_id": "s1", "cwd": str(tmp_path), "hook_event_name": "UserPromptSubmit"}
    for prompt in ("go", "go on"):  # the first event creates the file
        done = subprocess.run(
            [*hook_command("claude-code"), "--root", str(tmp_path)],
            input=json.dumps({**event, "prompt": prompt}).encode(),
            env={"HOME": str(tmp_path / "home"), "SWITCHGEAR_RESIDENT": "off"},
            cwd=tmp_path,
            capture_output=True,
            check=True,
        )
        assert (done.stdout, done.stderr) == (b"", b"")
    assert (tmp_path / ".switchgear" / "state.db-wal").stat().st_size > 0
