"""Workers by labels, draining, and a repository that every host can fetch, with real Redis and Celery."""

import os
import pickle
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from remote_hosts import CENT, Hosts, is_running
from switchgear._remote.app import TASK, application, broker_of_store
from timeouts import LIMIT_S, end, eventually


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[Hosts]:
    made = Hosts(tmp_path)
    try:
        yield made
    finally:
        made.close()


def run_batch(hosts: Hosts, *words: str) -> dict[str, Any]:
    batch = hosts.start_batch(*words)
    try:
        return hosts.result(batch)
    finally:
        end(batch)


def work_done(hosts: Hosts, name: str) -> int:
    return hosts.log(name).count(": 'completed'")


def test_a_task_goes_to_a_host_that_has_its_label(hosts: Hosts) -> None:
    tasks: list[dict[str, Any]] = [
        {"name": "t-0", "task": "write t-0.", "needs": "gpu"},
        {"name": "t-1", "task": "write t-1.", "needs": ["t-0", "gpu"]},
    ]
    hosts.write_tasks(tasks, labels=["gpu"])
    hosts.start_worker("plain", "--", "--loglevel", "INFO")
    eventually(lambda: "queues switchgear" in hosts.log("plain"), "the plain worker is up")
    hosts.start_worker("strong", "--labels", "gpu", "--", "--loglevel", "INFO")
    result = run_batch(hosts)
    assert result["end"] == "done"
    assert (work_done(hosts, "strong"), work_done(hosts, "plain")) == (2, 0)


def test_a_drained_worker_finishes_its_task_and_exits(hosts: Hosts) -> None:
    agent = hosts.agent.rpartition(" ")[0] + " 3"
    hosts.write_tasks([{"name": "t-0", "task": "write t-0.", "agent_cmd": agent}])
    worker = hosts.start_worker("one")
    batch = hosts.start_batch()
    try:
        eventually(lambda: "[t-0] run " in (hosts.folder / "batch.log").read_text(), "it runs")
        done = subprocess.run(
            hosts.command("worker", "--drain", "--name", f"one-{hosts.started}"),
            cwd=hosts.folder,
            env=hosts.environment("operator"),
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert "finishes its tasks, takes no new ones, and exits" in done.stdout
        result = hosts.result(batch)
    finally:
        end(batch)
    assert result["end"] == "done"
    assert worker.wait(LIMIT_S) == 0


def test_a_second_sigterm_ends_a_worker_and_its_agent_at_once(hosts: Hosts) -> None:
    agent = f"sleep {20_000_000 + os.getpid()}"  # no other test's
    hosts.write_tasks([{"name": "t-0", "task": "write t-0.", "agent_cmd": agent}])
    worker = hosts.start_worker("one")
    batch = hosts.start_batch()
    try:
        eventually(lambda: is_running(agent), "the agent runs")
        worker.send_signal(signal.SIGTERM)
        eventually(lambda: "Warm shutdown" in hosts.log("one"), "it has received the first one")
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(LIMIT_S) == 130
        eventually(lambda: not is_running(agent), "the agent has ended")
    finally:
        end(batch)


def test_a_worker_that_ends_because_of_a_message_has_failed(hosts: Hosts) -> None:
    worker = hosts.start_worker("one", "--", "--loglevel", "INFO")
    eventually(lambda: "ready" in hosts.log("one"), "the worker is ready")
    hosts.server.say("LPUSH", "switchgear", "no message")
    assert worker.wait(LIMIT_S) == 1


def test_messages_of_the_queue_can_only_start_jobs(hosts: Hosts) -> None:
    worker = hosts.start_worker("one", "--", "--loglevel", "INFO")
    eventually(lambda: "ready" in hosts.log("one"), "the worker is ready")
    forged = application(broker_of_store(hosts.server.url + "/0"))
    for arguments in (
        ("no-such-run",),
        ("../../x",),
        (1,),
        (None,),
        ({"run": "x"},),
        (),
        ("a", "b"),
    ):
        forged.send_task(TASK, arguments, queue="switchgear")
    forged.send_task("os.system", (f"touch {hosts.folder / 'forged'}",), queue="switchgear")
    with forged.connection_for_write() as link:
        link.Producer().publish(
            pickle.dumps(("forged", os.system)),
            content_type="application/x-python-serialize",
            content_encoding="binary",
            headers={"task": TASK, "id": "1"},
            routing_key="switchgear",
            exchange="switchgear",
        )
    hosts.write_tasks([{"name": "t-0", "task": "write t-0."}])
    assert run_batch(hosts)["end"] == "done"
    assert worker.poll() is None
    assert "Received unregistered task of type 'os.system'" in hosts.log("one")
    assert "Refusing to deserialize" in hosts.log("one")
    assert not (hosts.folder / "forged").exists()


def test_a_host_that_cannot_read_the_repository_leaves_the_tasks_to_others(hosts: Hosts) -> None:
    shared = hosts.folder / "shared.git"
    subprocess.run(["git", "clone", "-q", "--bare", hosts.project, shared], check=True)
    hosts.write_tasks([{"name": f"t-{n}", "task": f"write t-{n}."} for n in range(4)], parallel=2)
    home = Path(hosts.environment("ill")["HOME"])
    (home / ".gitconfig").write_text(f'[url "/nowhere/"]\n\tinsteadOf = {hosts.folder}/\n')
    hosts.start_worker("ill", "--", "--loglevel", "INFO")
    eventually(lambda: "ready" in hosts.log("ill"), "the ill worker is ready")
    batch = hosts.start_batch("--repository", str(shared))
    try:
        noted = hosts.folder / "batch.log"
        eventually(lambda: "cannot execute it: " in noted.read_text(), "it gave a task back")
        hosts.start_worker("well")
        result = hosts.result(batch)
    finally:
        end(batch)
    assert result["end"] == "done"
    assert result["cost_micros"] == 4 * CENT
    assert "could not be fetched: fatal: '/nowhere/shared.git'" in noted.read_text()


def test_draining_an_unknown_worker_is_reported(hosts: Hosts) -> None:
    done = subprocess.run(
        hosts.command("worker", "--drain", "--name", "nobody"),
        cwd=hosts.folder,
        env=hosts.environment("operator"),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert "answered within 5 s; nothing was changed" in done.stderr


def test_a_worker_whose_folder_cannot_be_written_does_not_start(hosts: Hosts) -> None:
    (hosts.folder / "file").write_text("")
    done = subprocess.run(
        hosts.command("worker", "--dir", str(hosts.folder / "file" / "inside")),
        cwd=hosts.folder,
        env=hosts.environment("one"),
        capture_output=True,
        text=True,
        check=False,
        timeout=LIMIT_S,
    )
    assert done.returncode == 2
    assert "cannot be written: Not a directory; use --dir" in done.stderr


def test_work_is_pushed_to_the_repository_of_the_hosts(hosts: Hosts) -> None:
    shared = hosts.folder / "shared.git"
    subprocess.run(["git", "clone", "-q", "--bare", hosts.project, shared], check=True)
    hosts.write_tasks([{"name": "t-0", "task": "write t-0."}])
    hosts.start_worker("one")
    result = run_batch(hosts, "--repository", str(shared))
    assert result["end"] == "done"
    [task] = result["tasks"]
    reference = f"refs/switchgear/runs/{task['run']}:t-0.txt"
    shown = subprocess.run(
        ["git", "show", reference], cwd=shared, capture_output=True, text=True, check=True
    )
    assert shown.stdout == "t-0\n"


def test_the_record_of_a_run_is_saved_on_the_host_of_the_batch(hosts: Hosts) -> None:
    hosts.write_tasks([{"name": "t-0", "task": "write t-0."}], budget=1)
    hosts.start_worker("one")
    result = run_batch(hosts)
    [task] = result["tasks"]
    done = subprocess.run(
        hosts.command("runs", "show", task["run"], "--receipt"),
        cwd=hosts.project,
        env=hosts.environment("submit"),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "completed (exit code 0)" in done.stdout
    assert "$0.01" in done.stdout
    shown = subprocess.run(
        hosts.command("runs", "show", task["run"]),
        cwd=hosts.project,
        env=hosts.environment("submit"),
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert str(hosts.folder / "workers") not in done.stdout + shown, "paths of the worker"
    assert "\nhost: " in shown
    folder = hosts.project / ".switchgear" / "runs" / task["run"]
    assert f"receipt: {folder / 'receipt.txt'}" in shown
    assert f"report: {folder / 'report.html'}" in shown
    assert str(hosts.folder / "workers") not in (folder / "report.html").read_text()
    (how,) = [line for line in shown.splitlines() if line.startswith("kept: ")]
    command = how.partition("; ")[2].split()
    diff = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert "+t-0" in diff
    assert (folder / "logs" / "0001.log").exists()
    assert (folder / "prompts" / "0001.txt").exists()


def test_a_task_that_a_worker_executes_is_not_continued_locally(hosts: Hosts) -> None:
    hosts.write_tasks([{"name": "t-0", "task": "write t-0."}])

    def said(*words: str) -> tuple[int, str]:
        done = subprocess.run(
            hosts.command(*words),
            cwd=hosts.project,
            env=hosts.environment("submit"),
            capture_output=True,
            text=True,
            check=False,
        )
        return done.returncode, done.stdout + done.stderr

    batch = hosts.start_batch()
    try:
        eventually(lambda: "waiting" in said("runs")[1], "the run is shown as waiting")
        assert "host: none yet; it waits for a worker" in said("runs", "show", "last")[1]
        assert "\nwaiting: " in said("status")[1]
    finally:
        end(batch)  # SIGKILL
    for words in (("resume", "last"), ("batch", "tasks.yaml", "--resume")):
        code, text = said(*words)
        assert code == 2
        assert "was given to other hosts, and it waits for a worker: to continue, use" in text
    hosts.start_worker("one")
    result = run_batch(hosts, "--resume")
    assert [task["iterations"] for task in result["tasks"]] == [1]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--broker", "nonsense"), "the broker 'nonsense' is not a URL: use one such as redis://"),
        (
            ("--repository", "https://me:pass@git.example/x.git"),
            "https://[redacted]@git.example/x.git contains a password or a token",
        ),
        (("--repository", "--upload-pack=x"), "is neither a URL nor the path of a repository"),
    ],
)
def test_an_invalid_option_is_reported_before_the_start(
    hosts: Hosts, words: tuple[str, ...], message: str
) -> None:
    hosts.write_tasks([{"name": "t-0", "task": "write t-0."}])
    done = subprocess.run(
        hosts.command("batch", "tasks.yaml", "--on", "celery", *words),
        cwd=hosts.project,
        env=hosts.environment("submit"),
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr
    assert not (hosts.project / ".switchgear" / "runs").exists()


def test_draining_without_a_broker_reports_it(hosts: Hosts) -> None:
    done = subprocess.run(
        hosts.command("worker", "--drain", "--name", "x", "--broker", "redis://:pass@127.0.0.1:1"),
        cwd=hosts.folder,
        env=hosts.environment("operator"),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert "the broker redis://[redacted]@127.0.0.1:1 cannot be reached" in done.stderr
