# mypy: disable-error-code="untyped-decorator"
"""Celery, with the real package: a worker in this process, and its broker in memory."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("celery")

from celery import Celery
from celery.contrib.testing.worker import start_worker

from switchgear import Cooldown, Panel, Policy, Rejected
from switchgear.detectors import ConsecutiveFailures
from switchgear.errors import BudgetRefused
from switchgear.integrations.celery import guard
from switchgear.testing import force_state
from timeouts import LIMIT_S

pytestmark = pytest.mark.filterwarnings("default")
FAST = Policy([ConsecutiveFailures(5)], Cooldown(1.0, 1.0))


@pytest.fixture
def app() -> Iterator[Any]:
    made = Celery("test", broker="memory://", backend="cache+memory://")
    made.conf.update(worker_hijack_root_logger=False, broker_connection_retry_on_startup=True)
    yield made
    made.close()


def working(app: Any) -> Any:
    return start_worker(app, perform_ping_check=False, pool="solo", shutdown_timeout=60)


def test_a_refused_task_is_retried_until_the_circuit_admits_it(app: Any) -> None:
    panel = Panel("memory:")
    breaker = panel.breaker("task/fetch")
    calls = []

    @app.task(base=guard(panel=panel, hold_s=0.2, spread_s=0.1), name="fetch")
    def fetch(number: int) -> str:
        calls.append(number)
        if number < 5:
            raise ConnectionError("no route")
        return "fetched"

    with working(app):
        for number in range(5):
            with pytest.raises(ConnectionError):
                fetch.delay(number).get(timeout=60)
        assert breaker.state == "open"
        breaker.reset(by="test", why="mended")
        breaker.hold_open(by="test", why="maintenance")
        delayed = fetch.delay(5)
        for _ in range(600):
            if breaker.snapshot().totals.refused:
                break
            time.sleep(0.1)
        assert calls == [0, 1, 2, 3, 4]  # the refusal made no call
        breaker.release(by="test", why="done")
        assert delayed.get(timeout=60) == "fetched"
    assert calls == [0, 1, 2, 3, 4, 5]


def test_the_refusal_of_an_inner_guard_delays_the_task_and_is_not_evidence_against_it(
    app: Any,
) -> None:
    panel = Panel("memory:", policies={"provider/*": FAST})
    inner = panel.breaker("provider/openai")

    def down() -> None:
        raise ConnectionError("down")

    for _ in range(5):
        with pytest.raises(ConnectionError):
            inner.call(down)

    @app.task(base=guard(panel=panel, spread_s=0.1), name="ask")
    def ask() -> str:
        return inner.call(str, "answered")

    with working(app):
        assert ask.delay().get(timeout=60) == "answered"
    assert panel.breaker("task/ask").totals.failed == 0


def test_a_task_that_is_refused_too_often_fails_with_the_refusal(app: Any) -> None:
    panel = Panel("memory:")
    panel.breaker("task/held").hold_open(by="test", why="maintenance")
    base = guard(panel=panel, max_refusals=2, hold_s=0.1, spread_s=0.0)

    @app.task(base=base, name="held")
    def held() -> str:
        raise AssertionError

    with working(app), pytest.raises(Rejected, match="maintenance"):
        held.delay().get(timeout=60)
    with pytest.raises(Rejected):
        held()  # called directly, there is nothing to retry


def test_a_task_without_budget_is_retried_when_the_budget_is_raised(app: Any) -> None:
    panel = Panel("memory:")
    panel.budgets.open("team", 100)
    tries = []

    @app.task(base=guard(panel=panel, hold_s=0.1, spread_s=0.0), name="pay")
    def pay() -> str:
        tries.append(1)
        if len(tries) == 2:
            panel.budgets.limit("team", 1_000)
        with panel.budgets.reserve("team", 500) as reservation:
            reservation.settle(500)
        return "paid"

    with working(app):
        assert pay.delay().get(timeout=60) == "paid"
    assert len(tries) == 2
    assert panel.breaker("task/pay").totals.failed == 0
    panel.budgets.close("team")
    with pytest.raises(BudgetRefused):
        pay()  # called directly, there is nothing to retry


@pytest.mark.parametrize("ended_by", [KeyboardInterrupt, SystemExit])
def test_an_interrupted_probe_is_not_evidence_and_the_next_task_probes(
    app: Any, ended_by: type[BaseException]
) -> None:
    panel = Panel("memory:")
    breaker = panel.breaker("task/fetch")
    force_state(breaker, "half_open")
    ends: list[type[BaseException]] = [ended_by]

    @app.task(base=guard(panel=panel), name="fetch")
    def fetch() -> str:
        if ends:
            raise ends.pop()
        return "fetched"

    with pytest.raises(ended_by):
        fetch()
    assert breaker.state == "half_open"
    assert fetch() == "fetched"
    assert breaker.state == "closed"


WORKER = """
import os, time
from pathlib import Path
from celery import Celery
from switchgear import Cooldown, Panel, Policy
from switchgear.detectors import ConsecutiveFailures
from switchgear.integrations.celery import guard

here = Path(os.environ["HERE"])
app = Celery("worker", broker="filesystem://", backend=f"file://{here / 'results'}")
app.conf.broker_transport_options = {
    "data_folder_in": str(here / "queue"), "data_folder_out": str(here / "queue"),
    "control_folder": str(here / "control"),
}
app.conf.broker_connection_retry_on_startup = True
policy = Policy([ConsecutiveFailures(1)], Cooldown(0.1, 0.1, lease_s=0.2))
panel = Panel(f"sqlite:///{here / 'circuits.db'}", policies={"task/*": policy})

@app.task(base=guard(panel=panel, spread_s=0.1), name="work")
def work(how):
    with (here / "calls").open("a") as calls:
        calls.write(f"{how} {os.getpid()}\\n")
    if how == "fails":
        raise ConnectionError("no route")
    if how == "hangs":
        time.sleep(600)
    return how
"""


def eventually(found: Callable[[], Any]) -> Any:
    ends_s = time.monotonic() + LIMIT_S
    while time.monotonic() < ends_s:
        if (value := found()) is not None:
            return value
        time.sleep(0.05)
    raise AssertionError("it did not happen in time")


def test_a_task_that_is_revoked_while_it_probes_does_not_block_the_circuit(tmp_path: Path) -> None:
    """In a worker with processes of its own, as in production: revoking ends the process of the task."""
    for name in ("queue", "results", "control"):
        (tmp_path / name).mkdir()
    (tmp_path / "worker.py").write_text(WORKER, encoding="utf-8")
    environ = {**os.environ, "HERE": str(tmp_path), "PYTHONPATH": str(tmp_path)}
    command = [sys.executable, "-m", "celery", "-A", "worker", "worker", "-c", "1", "-l", "ERROR"]
    command += ["--pool", "prefork", "--without-gossip", "--without-mingle", "--without-heartbeat"]
    sender = Celery("sender", broker="filesystem://", backend=f"file://{tmp_path / 'results'}")
    queue = str(tmp_path / "queue")
    sender.conf.broker_transport_options = {
        "data_folder_in": queue,
        "data_folder_out": queue,
        "control_folder": str(tmp_path / "control"),
    }

    def hanging() -> int | None:
        calls = tmp_path / "calls"
        lines = calls.read_text().splitlines() if calls.exists() else []
        return next((int(line.split()[1]) for line in lines if line.startswith("hangs")), None)

    with subprocess.Popen(command, cwd=tmp_path, env=environ) as worker:
        try:
            with pytest.raises(ConnectionError):
                sender.send_task("work", ["fails"]).get(timeout=LIMIT_S)
            sender.send_task("work", ["hangs"])  # refused, and admitted later as the probe
            os.kill(eventually(hanging), signal.SIGTERM)
            assert sender.send_task("work", ["works"]).get(timeout=LIMIT_S) == "works"
        finally:
            worker.terminate()
    sender.close()
    with Panel(f"sqlite:///{tmp_path / 'circuits.db'}") as panel:
        breaker = panel.breaker("task/work")
        assert (breaker.state, breaker.totals.failed) == ("closed", 1)
