"""Processes at one resource: never two at once, tokens that only grow, a killed holder is replaced."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from servers.server import running
from stress.lock_crew import noted, take_turns
from stress.redis_crew import in_processes
from switchgear import Panel
from timeouts import LIMIT_S

pytestmark = pytest.mark.stress

PROCESSES, TIMES = 8, 10
SCRIPT = Path(__file__).with_name("lock_crew.py")


@pytest.fixture(params=["sqlite", "redis"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'state.db'}"
        return
    with running() as server:
        yield server.url


def test_processes_exclude_each_other_and_tokens_only_grow(url: str, tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    in_processes(take_turns, PROCESSES, url, str(journal), TIMES)
    expected = [
        (what, token) for token in range(1, PROCESSES * TIMES + 1) for what in ("came", "went")
    ]
    assert noted(journal) == expected


def test_the_lock_of_a_killed_holder_is_taken_over_with_a_higher_token(
    url: str, tmp_path: Path
) -> None:
    journal = tmp_path / "journal"
    done = subprocess.run(
        [sys.executable, str(SCRIPT), url, str(journal)], check=False, timeout=LIMIT_S
    )
    assert done.returncode == -signal.SIGKILL
    with Panel(url) as panel, panel.lock("press", timeout_s=LIMIT_S) as lock:
        assert noted(journal) == [("came", 1)]
        assert lock.token == 2
