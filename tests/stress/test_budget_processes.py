"""Sixteen processes on one tree: no parent is overspent, every charge is in the account."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from servers.server import eventually, running
from stress.budget_crew import budgets_at, spend
from stress.redis_crew import in_processes
from switchgear._budgets.budgets import Budgets
from switchgear._budgets.tree import Line
from timeouts import LIMIT_S

pytestmark = pytest.mark.stress

PROCESSES, TIMES = 16, 40
TEAM, WAVE, STORY = 4_000, 2_400, 500
SCRIPT = Path(__file__).with_name("budget_crew.py")


@pytest.fixture(params=["sqlite", "redis"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'state.db'}"
        return
    with running() as server:
        yield server.url


@pytest.fixture
def budgets(url: str) -> Budgets:
    budgets = budgets_at(url)
    budgets.open("team", TEAM)
    budgets.open("team/wave", WAVE)
    for number in range(4):
        budgets.open(f"team/wave/S-{number}", STORY)
    return budgets


def test_sixteen_processes_never_overspend_a_parent(url: str, budgets: Budgets) -> None:
    answers = in_processes(spend, PROCESSES, url, TIMES)
    charged = sum(answer[0] for answer in answers)
    refused = sum(answer[2] for answer in answers)
    book = budgets.book("team")
    assert refused, "there was enough for all: the test has shown nothing"
    assert book.charged_micros == charged == book.nodes["team"].spent_micros
    lines = list(budgets.lines("team"))
    assert sum(line.amount_micros or 0 for line in lines if line.kind == "charged") == charged
    assert budgets.audit("team").problems == ()
    for path, limit in (("team", TEAM), ("team/wave", WAVE), ("team/wave/S-0", STORY)):
        node = book.nodes[path]
        assert node.spent_micros + node.held_micros <= limit, path
    highest(lines)


def highest(lines: list[Line]) -> None:
    """Check that no line of the account has more spent and reserved than the limit of the team."""
    used: dict[str, int] = {}
    spent = 0
    for line in lines:
        number, _, kind, node, amount, _ = line
        if kind == "reserved":
            used[node] = amount or 0
        elif kind == "charged":
            spent += amount or 0
            used[node] = max(0, used.get(node, 0) - (amount or 0))
        elif kind == "closed":
            used.pop(node, None)
        assert spent + sum(used.values()) <= TEAM, f"at line {number}"


def started(what: str, url: str) -> "subprocess.Popen[bytes]":
    return subprocess.Popen([sys.executable, str(SCRIPT), what, url], stdout=subprocess.PIPE)


def ended(victim: "subprocess.Popen[bytes]") -> bytes:
    """The unread output of a process that was killed."""
    assert victim.stdout is not None
    with victim.stdout as said:
        victim.kill()
        rest = said.read()
    victim.wait(LIMIT_S)
    return rest


def test_killed_agents_lose_no_charge_and_their_reservations_expire(
    url: str, budgets: Budgets
) -> None:
    budgets.open("purse", 1_000_000_000)
    victims = [started("spend", url) for _ in range(4)]
    said = b""
    try:
        for victim in victims:
            assert victim.stdout is not None
            said += victim.stdout.read(3)
    finally:
        said += b"".join(ended(victim) for victim in victims)
    answered, late = said.count(b"."), said.count(b"~")
    eventually(lambda: not budgets.book("purse").nodes["purse"].held_micros, "all leases ran out")
    budgets.sweep("purse")
    book = budgets.book("purse")
    ends = [line for line in budgets.lines("purse") if line.kind == "expired"]
    settled = (book.charged_micros - 10 * len(ends)) / 7
    assert answered <= settled <= answered + len(victims)
    assert late <= len(ends) <= late + len(victims)
    assert book.nodes["purse"].held_micros == 0
    assert budgets.audit("purse").problems == ()


def test_the_reservation_of_a_killed_agent_counts_as_spent(url: str, budgets: Budgets) -> None:
    victim = started("die", url)
    assert victim.wait(LIMIT_S) == -signal.SIGKILL
    assert ended(victim) == b"!"
    eventually(lambda: budgets.book("team").charged_micros == 40, "its lease has run out")
    again = budgets_at(url)
    again.sweep("team")
    assert [line.who for line in again.lines("team") if line.kind == "expired"] == ["victim"]
    assert again.audit("team").problems == ()
