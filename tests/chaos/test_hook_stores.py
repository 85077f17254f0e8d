"""Stores that are blocked, full, stopped or gone, under the real hook command.

A rule's verdict does not need the store: a forbidden call is refused whatever the store does, and the
circuits alone are left to `hooks.on_trouble`. An agent waits 15 s for a hook, so each answer comes
well before that.
"""

import fcntl
import json
import os
import resource
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from e2e.hook_process import command
from timeouts import LIMIT_S
from trusted_config import write_config
from unit.hook_calls import after, before

pytestmark = pytest.mark.stress

IN_TIME_S = 60.0
"""Much longer than a hook takes on a busy machine, but it does end."""
FORBIDDEN = {"command": "rm -rf /etc"}
HARMLESS = {"command": "git status"}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    project = tmp_path / "project"
    (project / ".git").mkdir(parents=True)
    return project


def ask(
    project: Path, data: dict[str, Any], limit: Callable[[], None] | None = None, **env: str
) -> tuple[dict[str, Any], float]:
    """The answer of the hook, and the seconds that it took."""
    began_s = time.monotonic()
    done = subprocess.run(
        command(project),
        input=json.dumps(data).encode(),
        capture_output=True,
        check=False,
        timeout=LIMIT_S,
        preexec_fn=limit,
        env={
            "HOME": str(project.parent),
            "PATH": os.defpath,
            "XDG_STATE_HOME": os.environ["XDG_STATE_HOME"],
            **env,
        },
    )
    assert done.returncode == 0, done.stderr
    assert b"Traceback" not in done.stderr
    return json.loads(done.stdout or b"{}"), time.monotonic() - began_s


def decision(told: dict[str, Any]) -> str:
    specific = told.get("hookSpecificOutput", {})
    return str(specific.get("permissionDecision", "allow"))


def holds(project: Path, limit: Callable[[], None] | None = None, **env: str) -> None:
    """Check that the rules apply and `on_trouble` decides about circuits, each in time."""
    told, seconds = ask(project, before("Bash", FORBIDDEN), limit, **env)
    assert decision(told) == "deny"
    assert "rule deletes/outside: /etc" in told["hookSpecificOutput"]["permissionDecisionReason"]
    assert seconds < IN_TIME_S
    told, seconds = ask(project, before("Bash", HARMLESS, "t2"), limit, **env)
    assert decision(told) == "allow"
    assert "could not decide, and admitted" in told["systemMessage"]
    assert seconds < IN_TIME_S


def ready(project: Path, on_trouble: str = "admit") -> Path:
    """A project with a compiled configuration and an existing store."""
    write_config(project / "switchgear.yaml", f"hooks: {{on_trouble: {on_trouble}}}\n")
    for number in range(2):
        assert ask(project, before("Bash", HARMLESS, f"r{number}"))[0] == {}
    return project / ".switchgear" / "state.db"


@contextmanager
def locked(path: Path) -> Iterator[None]:
    with path.open("ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@contextmanager
def in_transaction(file: Path, kind: str) -> Iterator[None]:
    with closing(sqlite3.connect(file)) as db:
        db.isolation_level = None
        db.execute(f"BEGIN {kind}")
        yield


@pytest.mark.stress
def test_a_lock_on_the_stores_lock_file_admits_nothing_that_a_rule_forbids(project: Path) -> None:
    file = ready(project)
    with locked(Path(f"{file}.lock")):
        holds(project)


@pytest.mark.stress
@pytest.mark.parametrize("kind", ["IMMEDIATE", "EXCLUSIVE"])
def test_a_foreign_transaction_admits_nothing_that_a_rule_forbids(project: Path, kind: str) -> None:
    with in_transaction(ready(project), kind):
        holds(project)


@pytest.mark.stress
def test_a_blocked_store_refuses_where_that_is_configured(project: Path) -> None:
    with in_transaction(ready(project, "refuse"), "IMMEDIATE"):
        told, seconds = ask(project, before("Bash", HARMLESS))
        assert decision(told) == "deny"
        assert (
            "hooks.on_trouble is 'refuse'" in told["hookSpecificOutput"]["permissionDecisionReason"]
        )
        assert seconds < IN_TIME_S
        told, _ = ask(project, after("Bash", HARMLESS))
        assert "hookSpecificOutput" not in told, "what has been done is not refused"


@pytest.mark.stress
def test_a_writer_that_was_stopped_in_the_middle_admits_nothing_that_a_rule_forbids(
    project: Path,
) -> None:
    file = ready(project)
    program = (
        "import sqlite3, sys\n"
        "db = sqlite3.connect(sys.argv[1], isolation_level=None)\n"
        "db.execute('BEGIN IMMEDIATE')\n"
        "print('ready', flush=True)\n"
        "sys.stdin.read()\n"
    )
    writer = subprocess.Popen(
        [sys.executable, "-c", program, str(file)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        assert writer.stdout is not None
        assert writer.stdout.readline() == b"ready\n"
        writer.send_signal(signal.SIGSTOP)
        holds(project)
    finally:
        writer.send_signal(signal.SIGCONT)
        writer.kill()
        writer.communicate()


@pytest.mark.parametrize("kilobytes", [0, 8])
def test_a_disk_without_space_admits_nothing_that_a_rule_forbids(
    project: Path, kilobytes: int
) -> None:
    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (kilobytes << 10, kilobytes << 10))

    ready(project)
    told, seconds = ask(project, before("Bash", FORBIDDEN), limited)
    assert decision(told) == "deny"
    assert seconds < IN_TIME_S
    empty = project.parent / "new"
    (empty / ".git").mkdir(parents=True)
    told, _ = ask(empty, before("Bash", FORBIDDEN), limited)
    assert decision(told) == "deny"


def test_a_real_disk_without_space_admits_nothing_that_a_rule_forbids(project: Path) -> None:
    ready(project)
    small = project / "small"
    small.mkdir()
    line = ["mount", "-t", "tmpfs", "-o", "size=64k", "none", str(small)]
    if subprocess.run(line, capture_output=True, check=False).returncode:
        pytest.skip("nothing can be mounted here")
    try:
        _fill(small / "filler")
        told, _ = ask(
            project, before("Bash", FORBIDDEN), SWITCHGEAR_STORE=f"sqlite:///{small}/state.db"
        )
        assert decision(told) == "deny"
    finally:
        subprocess.run(["umount", str(small)], check=True)


def _fill(path: Path) -> None:
    with path.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(b"x" * 4096)
        except OSError:
            return


def _fifo(path: Path) -> None:
    os.mkfifo(path)


def _loop(path: Path) -> None:
    path.symlink_to(path)


def _folder(path: Path) -> None:
    path.mkdir()


@pytest.mark.parametrize("make", [_fifo, _loop, _folder], ids=["fifo", "loop of links", "folder"])
def test_a_store_path_that_is_not_a_database_admits_nothing_that_a_rule_forbids(
    project: Path, make: Callable[[Path], None]
) -> None:
    file = ready(project)
    for side in ("", "-wal", "-shm"):
        Path(f"{file}{side}").unlink(missing_ok=True)
    make(file)
    holds(project)


@contextmanager
def listening(answer: bytes | None) -> Iterator[int]:
    """A server that accepts; it answers with those bytes, or never."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        taken: list[socket.socket] = []

        def serve() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                taken.append(connection)
                if answer is not None:
                    connection.sendall(answer)
                    connection.close()

        threading.Thread(target=serve, daemon=True).start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR) if sys.platform == "linux" else None
        for connection in taken:
            connection.close()


@pytest.mark.parametrize(
    "answer", [None, b"", b"-ERR no\r\n", b"HTTP/1.1 200 OK\r\n\r\n", b"$5\r\nab"], ids=repr
)
def test_a_redis_server_that_does_not_answer_admits_nothing_that_a_rule_forbids(
    project: Path, answer: bytes | None
) -> None:
    ready(project)
    with listening(answer) as port:
        holds(project, SWITCHGEAR_STORE=f"redis://127.0.0.1:{port}/0")


def test_a_redis_server_that_is_not_there_admits_nothing_that_a_rule_forbids(project: Path) -> None:
    ready(project)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    holds(project, SWITCHGEAR_STORE=f"redis://127.0.0.1:{port}/0")


# The other files that a hook waits for


@pytest.mark.stress
def test_a_lock_on_the_compiled_configuration_admits_nothing_that_a_rule_forbids(
    project: Path,
) -> None:
    ready(project)
    write_config(project / "switchgear.yaml", "hooks: {lease_s: 60}\n")
    with locked(project / ".switchgear" / "hooks.json.lock"):
        told, seconds = ask(project, before("Bash", FORBIDDEN))
    assert decision(told) == "deny"
    assert seconds < IN_TIME_S


@pytest.mark.stress
def test_a_configuration_that_never_ends_admits_nothing(project: Path) -> None:
    ready(project)
    (project / "switchgear.yaml").unlink()
    os.mkfifo(project / "switchgear.yaml")
    began_s = time.monotonic()
    done = subprocess.run(
        command(project),
        input=json.dumps(before("Bash", FORBIDDEN)).encode(),
        capture_output=True,
        check=False,
        timeout=LIMIT_S,
    )
    assert done.returncode == 2 or decision(json.loads(done.stdout)) == "deny"
    assert time.monotonic() - began_s < IN_TIME_S


def test_a_locked_log_of_undecided_calls_delays_nothing(project: Path) -> None:
    ready(project)
    news = project / ".switchgear" / "hooks-undecided.log"
    news.write_text("1 claude-code something\n")
    with locked(news):
        assert ask(project, before("Bash", HARMLESS, "t9"))[0] == {}


@pytest.mark.parametrize(
    "damage", ["", "{", "[]", "null", '{"format": 3}', "\0" * 100, "x" * 2_000_000]
)
def test_a_damaged_compiled_configuration_is_rebuilt(project: Path, damage: str) -> None:
    ready(project)
    compiled = project / ".switchgear" / "hooks.json"
    compiled.write_text(damage)
    assert decision(ask(project, before("Bash", FORBIDDEN))[0]) == "deny"
    assert ask(project, before("Bash", HARMLESS, "t9"))[0] == {}


@pytest.mark.stress
def test_a_compiled_configuration_that_lacks_parts_is_rebuilt(project: Path) -> None:
    ready(project)
    compiled = project / ".switchgear" / "hooks.json"
    whole = json.loads(compiled.read_text())
    for name in sorted(whole.keys() - {"format", "mark", "changed"}):
        for part in ({}, {name: 7}, {name: None}, {name: "x"}):
            compiled.write_text(
                json.dumps({key: value for key, value in whole.items() if key != name} | part)
            )
            session = {"session_id": f"s-{name}-{part}"}
            told, _ = ask(project, {**before("Bash", FORBIDDEN), **session})
            assert decision(told) == "deny", (name, part, told)
            # The session that saw the change may be stopped for it; another one continues.
            other = {"session_id": f"o-{name}-{part}"}
            told, _ = ask(project, {**before("Bash", HARMLESS, "t2"), **other})
            assert decision(told) == "allow", (name, part, told)


@pytest.mark.parametrize(
    "text", ["rules: {own: [}", "nonsense: 1\n", "\0", "circuits: 7\n", "a: &a [*a]\n"]
)
def test_the_built_in_rules_apply_if_no_configuration_was_ever_readable(
    project: Path, text: str
) -> None:
    own = project.parent / ".config" / "switchgear" / "switchgear.yaml"
    own.parent.mkdir(parents=True)
    own.write_text(text)
    for _ in range(2):
        told, _ = ask(project, before("Bash", FORBIDDEN))
        assert decision(told) == "deny"
        assert "rule deletes/outside" in told["hookSpecificOutput"]["permissionDecisionReason"]
        told, _ = ask(project, before("Bash", {"command": "switchgear reset x"}, "t3"))
        assert decision(told) == "deny"
        told, _ = ask(project, before("Bash", HARMLESS, "t2"))
        assert "the built-in rules apply" in told["systemMessage"]


def test_the_last_readable_configuration_applies_until_the_next_readable_one(
    project: Path,
) -> None:
    config = project.parent / ".config" / "switchgear" / "switchgear.yaml"
    config.parent.mkdir(parents=True)
    config.write_text("rules: {own: [{name: no-make, commands: [make]}]}\n")
    assert decision(ask(project, before("Bash", {"command": "make all"}))[0]) == "deny"
    config.write_text("rules: {own: [{name: no-make, commands: [make]}]\n")
    for _ in range(2):
        told, _ = ask(project, before("Bash", {"command": "make all"}))
        assert decision(told) == "deny"
        assert "rule no-make" in told["hookSpecificOutput"]["permissionDecisionReason"]
