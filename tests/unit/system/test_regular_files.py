"""Reading regular files, without waiting for those that have nothing to read."""

import os
from pathlib import Path

import pytest

from switchgear._run.prompt import read_plan
from switchgear._system import files


def test_a_file_that_waits_for_more_raises_an_os_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as /proc/kmsg, which is a regular file by its mode; here, a pipe."""
    written: list[int] = []

    def empty_pipe(path: Path) -> int:
        del path
        reading, writing = os.pipe2(os.O_NONBLOCK)
        written.append(writing)
        return reading

    monkeypatch.setattr(files, "open_regular", empty_pipe)
    try:
        with pytest.raises(BlockingIOError, match="has nothing to read now"):
            files.read_regular(tmp_path / "plan", 10)
        assert read_plan(tmp_path, "plan") is None
    finally:
        for descriptor in written:
            os.close(descriptor)
