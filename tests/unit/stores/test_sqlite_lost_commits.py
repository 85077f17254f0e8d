"""A database that lacks confirmed commits is reported as damaged."""

import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from switchgear._cli import main
from switchgear._core.errors import StoreCorrupt, StoreError
from switchgear._core.policy import Cooldown, Policy
from switchgear._core.types import EventKind, Mode, Phase, Record, Signal
from switchgear._detectors import ConsecutiveFailures
from switchgear._stores.base import Amended
from switchgear._stores.sqlite import SqliteStore
from timeouts import LIMIT_S

POLICY = Policy([ConsecutiveFailures(threshold=2)], Cooldown(base_s=60.0))
STRICT = Policy([ConsecutiveFailures(threshold=2)], Cooldown(base_s=60.0), strict=True)
FAILED, FINE = Record(Signal(ok=False)), Record(Signal(ok=True))
MISSING = "saved state is missing"

KILLED = """
import os, signal, sys
from switchgear._detectors import ConsecutiveFailures
from switchgear._core.policy import Policy
from switchgear._core.policy import Cooldown
from switchgear._core.types import Signal, Record
from switchgear._stores.base import Amended
from switchgear._stores.sqlite import SqliteStore

store = SqliteStore(sys.argv[1])
policy = Policy([ConsecutiveFailures(threshold=2)], Cooldown(base_s=60.0))
def fail():
    for _ in range(2):
        store.apply("api", policy, Record(Signal(ok=False)), store.now_s())
def note():
    def work(inside):
        inside.note = "stopped"
    store.transact("session", work)
def together():
    def work(inside):
        inside.note = "stopped"
        for _ in range(2):
            inside.apply("api", policy, Record(Signal(ok=False)))
    store.transact("session", work)
def amend():
    store.ledger().amend("budgets", "team", lambda value, now_s: Amended(None, {"spent": 5}, ()))
def token():
    store.set_operator_digest("a" * 64, instead_of=None)
for word in sys.argv[2:]:
    locals()[word]()
os.kill(os.getpid(), signal.SIGKILL)
"""


def killed(path: Path, *work: str) -> None:
    """A process that commits and is killed with the commits in its log."""
    done = subprocess.run(
        [sys.executable, "-c", KILLED, str(path), *work], check=False, timeout=LIMIT_S
    )
    assert done.returncode == -9
    assert side(path, "-wal").stat().st_size > 0


def side(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)


def remove(path: Path, *suffixes: str) -> None:
    for suffix in suffixes:
        side(path, suffix).unlink(missing_ok=True)


def cut(path: Path, share: float) -> None:
    log = side(path, "-wal")
    os.truncate(log, int(log.stat().st_size * share))


def asides(path: Path) -> list[str]:
    return sorted(file.name for file in path.parent.glob("*.corrupt-*"))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file with a closed circuit that is checkpointed, and a copy of it and of its log."""
    path = tmp_path / "state.db"
    with closing(SqliteStore(path)) as store:
        store.apply("api", POLICY, FINE, store.now_s())
        store.apply("other", POLICY, FINE, store.now_s())
    for suffix in ("", "-wal"):
        if side(path, suffix).exists():
            shutil.copy(side(path, suffix), tmp_path / f"older{suffix}")
    return path


def replace_by_older(path: Path) -> None:
    remove(path, "-wal", "-shm", "")
    shutil.copy(path.with_name("older"), path)


def overwrite_by_older(path: Path) -> None:
    remove(path, "-wal", "-shm")
    shutil.copy(path.with_name("older"), path)


def replace_by_another(path: Path) -> None:
    remove(path, "-wal", "-shm", "")
    with closing(SqliteStore(path.with_name("another.db"))) as store:
        for _ in range(50):
            store.apply("another", POLICY, FAILED, store.now_s())
    shutil.copy(path.with_name("another.db"), path)


LOSSES: dict[str, Callable[[Path], object]] = {
    "log removed": lambda path: remove(path, "-wal"),
    "log and index removed": lambda path: remove(path, "-wal", "-shm"),
    "log emptied": lambda path: cut(path, 0.0),
    "log cut in half": lambda path: cut(path, 0.5),
    "log cut at the end": lambda path: cut(path, 0.99),
    "log overwritten": lambda path: side(path, "-wal").write_bytes(b"\0" * 9000),
    "database replaced by an older copy": replace_by_older,
    "database overwritten by an older copy": overwrite_by_older,
    "database replaced by another store": replace_by_another,
    "database removed": lambda path: remove(path, ""),
    "database and log removed": lambda path: remove(path, "-wal", "-shm", ""),
    "database emptied": lambda path: os.truncate(path, 0),
}


@pytest.mark.parametrize("loss", LOSSES)
def test_lost_commits_are_reported_and_circuits_start_from_scratch(path: Path, loss: str) -> None:
    killed(path, "fail")
    LOSSES[loss](path)
    with closing(SqliteStore(path)) as store:
        lost = store.lost()
        assert isinstance(lost, StoreCorrupt)
        assert "set aside as" in lost.why
        for key in ("api", "other", "new"):
            done = store.apply(key, POLICY, FINE, store.now_s())
            assert done.events[0].kind is EventKind.STATE_UNREADABLE
        strict = store.apply("strict", STRICT, FINE, store.now_s())
        assert strict.circuit.mode is Mode.HELD_OPEN
        if loss != "database emptied":
            assert MISSING in lost.why
            assert MISSING in done.events[0].reason
            assert MISSING in store.facts()["set aside"]
    assert len([name for name in asides(path) if not name.endswith(("-wal", "-shm"))]) == 1
    with closing(SqliteStore(path)) as store:
        assert store.lost() is not None, "until somebody has looked after it"
        found = store.get("strict")
        assert found is not None
        assert found.circuit.mode is Mode.HELD_OPEN
        for name in asides(path):
            (path.parent / name).unlink()
        assert store.lost() is None


@pytest.mark.parametrize("work", ["fail", "note", "together", "amend", "token"])
def test_any_kind_of_missing_commit_is_detected(path: Path, work: str) -> None:
    killed(path, work)
    remove(path, "-wal", "-shm")
    with closing(SqliteStore(path)) as store:
        assert store.lost() is not None
        with pytest.raises(StoreCorrupt, match=MISSING):
            store.ledger().value("budgets", "team")


def test_a_log_of_an_earlier_moment_is_not_enough(path: Path) -> None:
    killed(path, "fail")
    log = side(path, "-wal").read_bytes()
    killed(path, "fail")
    assert side(path, "-wal").stat().st_size > len(log)
    side(path, "-wal").write_bytes(log)
    with closing(SqliteStore(path)) as store:
        assert store.lost() is not None


HARMLESS: dict[str, Callable[[Path], object]] = {
    "nothing": lambda _: None,
    "index removed": lambda path: remove(path, "-shm"),
    "head removed": lambda path: remove(path, ".head"),
    "lock and marks removed": lambda path: remove(path, ".lock", ".warm"),
    "all moved together": lambda path: shutil.move(path.parent, f"{path.parent}-there"),
}


@pytest.mark.parametrize("change", HARMLESS)
def test_a_kill_alone_loses_nothing(path: Path, change: str) -> None:
    killed(path, "fail", "amend", "note")
    HARMLESS[change](path)
    if change == "all moved together":
        path = Path(f"{path.parent}-there") / path.name
    with closing(SqliteStore(path)) as store:
        assert store.lost() is None
        found = store.get("api")
        assert found is not None
        assert found.circuit.phase is Phase.OPEN
        store.apply("api", POLICY, FINE, store.now_s())
    assert asides(path) == []
    assert side(path, ".head").stat().st_mode & 0o777 == 0o600
    remove(path, "-wal", "-shm")  # a clean end has written everything into the database
    with closing(SqliteStore(path)) as store:
        assert store.lost() is None


def test_an_older_copy_can_be_restored_on_purpose(path: Path) -> None:
    killed(path, "fail")
    replace_by_older(path)
    remove(path, ".head")
    with closing(SqliteStore(path)) as store:
        assert store.lost() is None
        found = store.get("api")
        assert found is not None
        assert found.circuit.phase is Phase.CLOSED


def test_a_file_that_was_set_aside_can_be_put_back(path: Path) -> None:
    killed(path, "fail")
    remove(path, "-wal", "-shm")
    with closing(SqliteStore(path)) as store:
        assert store.lost() is not None
    (aside,) = asides(path)
    remove(path, "-wal", "-shm", ".head", "")
    (path.parent / aside).rename(path)
    with closing(SqliteStore(path)) as store:
        assert store.lost() is None
        assert store.get("other") is not None


def test_deleted_circuits_are_not_lost(path: Path) -> None:
    with closing(SqliteStore(path)) as store:
        store.apply("api", POLICY, FINE, store.now_s())
        before = side(path, ".head").read_bytes()
        assert b"api" in before
        store.vacuum(keep_events=0, idle_s=0.0, now_s=store.now_s() + 1.0)
        store.apply("gone", POLICY, FINE, store.now_s())
        late = side(path, ".head").read_bytes()
        assert store.forget("gone")
        assert description(path)[2] == b""
    for earlier in (before, late):  # of a process that writes it after the deletion
        side(path, ".head").write_bytes(earlier)
        with closing(SqliteStore(path)) as store:
            assert store.lost() is None
            assert store.get("api") is None


def description(path: Path) -> tuple[bytes, bytes, bytes]:
    """Start of the machine, time and key of the last commit."""
    _, line, _ = side(path, ".head").read_bytes().split(b"\n", 2)
    boot, at_ns, _, key = line.split(b" ", 3)
    return boot, at_ns, key


def described(boot: bytes, at_ns: bytes, number: bytes, key: bytes) -> bytes:
    line = b" ".join((boot, at_ns, number, key))
    return b"switchgear 1 %d\n%s\n%s\n" % (len(line), line, line)


def hostile(path: Path) -> list[bytes]:
    boot, at_ns, key = description(path)
    good = described(boot, at_ns, b"999999", key)
    return [
        b"",
        b"\0" * 5_000_000,
        b"\xff" * 100,
        b"switchgear 1 99999999999999999999999999\n",
        b"switchgear 1 -5\nx\nx\n",
        b"switchgear 1 \xb2\nxx\nxx\n",
        b"switchgear 2 " + good[13:],
        good[:-8],
        good[: len(good) // 2] + b"#" + good[len(good) // 2 + 1 :],
        described(boot, at_ns, b"9" * 19, key),
        described(boot, at_ns, b"9" * 5000, key),
        described(boot, at_ns, b"-1", key),
        described(boot, at_ns, b"0", key),
        described(boot, b"9" * 19, b"999999", key),
        described(b"another-start", at_ns, b"999999", key),
        described(boot, at_ns, b"one", key),
        described(boot, at_ns, b"1", b"k" * 9000),
    ]


@pytest.mark.parametrize("number", range(17))
def test_an_invalid_head_file_is_ignored_and_replaced(path: Path, number: int) -> None:
    killed(path, "fail")
    side(path, ".head").write_bytes(hostile(path)[number])
    with closing(SqliteStore(path)) as store:
        assert store.lost() is None
        store.apply("api", POLICY, FINE, store.now_s())
    assert description(path)[2] == b"api"
    assert asides(path) == []


def test_a_forged_description_is_a_loss_that_is_reported_once(path: Path) -> None:
    boot, at_ns, key = description(path)
    side(path, ".head").write_bytes(described(boot, at_ns, b"999999", key))
    for _ in range(3):
        with closing(SqliteStore(path)) as store:
            assert store.lost() is not None
    assert len(asides(path)) == 1


@pytest.mark.parametrize("kind", ["link", "dangling link", "folder", "pipe"])
def test_a_head_that_is_not_a_regular_file_is_refused(path: Path, kind: str) -> None:
    head, victim = side(path, ".head"), path.with_name("victim")
    head.unlink()
    if kind == "link":
        victim.write_text("precious")
    if kind.endswith("link"):
        head.symlink_to(victim)
    elif kind == "folder":
        head.mkdir()
    else:
        os.mkfifo(head)
    with closing(SqliteStore(path)) as store, pytest.raises(StoreError, match="its head file"):
        store.apply("api", POLICY, FINE, 1.0)
    assert victim.exists() == (kind == "link")
    if kind == "link":
        assert victim.read_text() == "precious"


def test_a_name_too_long_for_a_head_file_is_accepted(path: Path) -> None:
    with closing(SqliteStore(path)) as store:
        store.apply("k" * 5000, POLICY, FINE, store.now_s())
        store.apply("über \n 2", POLICY, FINE, store.now_s())
    with closing(SqliteStore(path)) as store:
        assert store.lost() is None
    assert "über \n 2".encode() in side(path, ".head").read_bytes()


def test_only_read_access_reports_the_loss_too(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    killed(path, "fail")
    remove(path, "-wal", "-shm")
    monkeypatch.setattr(os, "access", lambda *_: False)
    with closing(SqliteStore(path)) as store, pytest.raises(StoreCorrupt, match=MISSING):
        store.get("api")
    assert asides(path) == []


def test_a_head_file_that_cannot_be_written_is_harmless(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "pwrite", full)
    with closing(SqliteStore(path)) as store:
        store.apply("api", POLICY, FAILED, store.now_s())
    with closing(SqliteStore(path)) as store:
        assert store.lost() is None


def test_a_file_of_an_older_switchgear_gets_a_head(path: Path) -> None:
    remove(path, ".head")
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("DELETE FROM meta WHERE name IN ('commits', 'deleted')")
    with closing(SqliteStore(path)) as store:
        assert store.lost() is None
        amended = store.ledger().amend("s", "k", lambda *_: Amended("done", {"a": 1}, ()))
        assert amended == "done"
    assert description(path)[2] == b""


def run(*args: str) -> Result:
    return CliRunner().invoke(main, args, env={"COLUMNS": ""})


@pytest.mark.parametrize("loss", ["log and index removed", "database and log removed"])
def test_the_command_reports_that_state_is_lost_and_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, loss: str
) -> None:
    monkeypatch.chdir(tmp_path)
    for variable in ("SWITCHGEAR_STORE", "SWITCHGEAR_CONFIG", "SWITCHGEAR_TOKEN"):
        monkeypatch.delenv(variable, raising=False)
    (tmp_path / "switchgear.yaml").write_text("{}\n")
    run("record", "api", "success")
    path = tmp_path / ".switchgear" / "state.db"
    killed(path, "fail")
    LOSSES[loss](path)
    for verb in (["status"], ["show", "api"], ["events"]):
        shown = run(*verb)
        assert shown.exit_code == 2, shown.output
        assert MISSING in shown.stderr
        assert "No circuits yet" not in shown.stdout
    assert MISSING in run("check", "api").stderr
    checked = run("doctor")
    assert MISSING in " ".join(checked.output.split())
    assert "move it away" in " ".join(checked.output.split())
