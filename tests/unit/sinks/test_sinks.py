"""Sinks write every event on one line, and cannot affect the breaker."""

import json
import logging
import os
import pickle
import threading
from pathlib import Path

import pytest

from switchgear import CircuitBreaker, Event, EventKind, Mode, Phase
from switchgear._core.wire import load_event
from switchgear._sinks import SINKS, Jsonl, Log
from switchgear.testing import FakeClock

MOVED = Event(
    *("provider/a", 3, 12.5, EventKind.MOVED, Phase.CLOSED, Phase.OPEN, Mode.AUTO, 2),
    reason="5 failures in a row (threshold 5)",
    retry_after_s=60.0,
)
HOSTILE = MOVED._replace(
    circuit="a\r\nWARNING fake line",
    reason="\x1b[2J\u202e\x00 \x85\u2028 {} %s",
    by="eve\n",
    why="\ud800 ü",
)


def trip(breaker: CircuitBreaker) -> None:
    for _ in range(5):
        with pytest.raises(ZeroDivisionError):
            breaker.call(lambda: 1 / 0)


# log


def test_log_writes_one_line_for_each_event(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "switchgear.events"):
        Log()(MOVED)
    [line] = caplog.records
    assert (line.name, line.levelname) == ("switchgear.events", "INFO")
    assert line.getMessage() == (
        "provider/a #3 closed → open: 5 failures in a row (threshold 5); next try in 60 s"
    )


def test_log_contains_operator_override_and_reason(caplog: pytest.LogCaptureFixture) -> None:
    order = MOVED._replace(
        kind=EventKind.ORDERED, reason="mode held_open", by="ada", why="repairs", retry_after_s=None
    )
    with caplog.at_level(logging.INFO):
        Log()(order)
    assert caplog.messages == ["provider/a #3 held open, by ada: repairs"]


@pytest.mark.parametrize("level", ["debug", "info", "warning", "error", "critical"])
def test_log_uses_the_level_it_is_given(caplog: pytest.LogCaptureFixture, level: str) -> None:
    with caplog.at_level(logging.DEBUG):
        Log(level)(MOVED)
    assert caplog.records[0].levelname == level.upper()


def test_log_escapes_control_sequences(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        Log()(HOSTILE)
    [message] = caplog.messages
    assert message.isprintable()
    assert message == (
        r"a\r\nWARNING fake line #3 closed → open: \x1b[2J\u202e\x00 \x85\u2028 {} %s"
        r", by eve\n: \ud800 ü; next try in 60 s"
    )


def test_log_refuses_an_unknown_level() -> None:
    with pytest.raises(ValueError, match=r"^Log\.level is 'loud': it must be one of debug, info"):
        Log("loud")


# jsonl


def test_jsonl_appends_a_line_that_can_be_read_back(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    sink = Jsonl(str(path))
    sink(MOVED)
    sink(HOSTILE)
    lines = path.read_bytes().splitlines(keepends=True)
    assert [line[-1:] for line in lines] == [b"\n"] * 2
    assert [load_event(json.loads(line)) for line in lines] == [MOVED, HOSTILE]
    assert path.read_bytes().isascii()


def test_jsonl_makes_the_file_and_its_folder_for_the_owner_alone(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        Jsonl(str(tmp_path / "new" / "events.jsonl"))(MOVED)
    finally:
        os.umask(before)
    assert (tmp_path / "new" / "events.jsonl").stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "new").stat().st_mode & 0o777 == 0o700


def test_creating_a_jsonl_sink_creates_no_file(tmp_path: Path) -> None:
    Jsonl(str(tmp_path / "new" / "events.jsonl"))
    assert list(tmp_path.iterdir()) == []


def test_jsonl_continues_in_a_new_file_after_rotation(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    sink = Jsonl(str(path))
    sink(MOVED)
    path.rename(tmp_path / "events.1")
    sink(MOVED._replace(seq=4))
    assert json.loads((tmp_path / "events.1").read_text())["seq"] == 3
    assert json.loads(path.read_text())["seq"] == 4


def test_jsonl_writes_valid_json_for_an_infinite_wait(tmp_path: Path) -> None:
    Jsonl(str(tmp_path / "e"))(MOVED._replace(retry_after_s=float("inf")))
    assert json.loads((tmp_path / "e").read_text())["retry_after_s"] is None


def test_jsonl_lines_of_many_threads_stay_whole(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    sink = Jsonl(str(path))
    together = threading.Barrier(8)

    def write(writer: int) -> None:
        together.wait()
        for seq in range(50):
            sink(MOVED._replace(circuit=f"c{writer}", seq=seq, reason="x" * 300))

    threads = [threading.Thread(target=write, args=(writer,)) for writer in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    events = [load_event(json.loads(line)) for line in path.read_text().splitlines()]
    assert sorted((event.circuit, event.seq) for event in events) == sorted(
        (f"c{writer}", seq) for writer in range(8) for seq in range(50)
    )


def test_a_failed_write_is_logged_and_never_raised(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "file").touch()
    for path, why in (
        (tmp_path, "Is a directory"),
        (tmp_path / "pipe", "No such device or address"),  # nobody reads it; it is not waited for
        (Path("/dev/null"), "it is not a regular file"),
        (tmp_path / "file" / "below", "Not a directory"),
        (tmp_path / ("x" * 300), "File name too long"),
    ):
        caplog.clear()
        Jsonl(str(path))(MOVED)
        [message] = caplog.messages
        assert message == f"event 3 of circuit 'provider/a' was not written to {str(path)!r}: {why}"


def test_a_full_disk_is_logged_and_the_next_line_is_complete(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = os.write
    sink = Jsonl(str(tmp_path / "e"))
    monkeypatch.setattr(os, "write", lambda file, data: write(file, data[:7]))
    sink(MOVED)
    assert "only 7 of" in caplog.messages[0]
    monkeypatch.setattr(os, "write", lambda file, data: write(file, b""))
    sink(MOVED)
    monkeypatch.undo()
    sink(MOVED)
    sink(MOVED)
    torn, *whole = (tmp_path / "e").read_text().splitlines()
    assert torn == '{"schem'
    assert [load_event(json.loads(line)) for line in whole] == [MOVED, MOVED]


def test_a_failed_line_leaves_no_partial_content(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = Jsonl(str(tmp_path / "e"))
    monkeypatch.setattr(os, "write", lambda file, data: 0)
    sink(MOVED)
    monkeypatch.undo()
    sink(MOVED)
    assert (tmp_path / "e").read_text().startswith("{")


def test_jsonl_leaves_no_file_open(tmp_path: Path) -> None:
    before = list(Path("/proc/self/fd").iterdir())
    for path in (tmp_path / "e", tmp_path):
        Jsonl(str(path))(MOVED)
    assert len(list(Path("/proc/self/fd").iterdir())) == len(before)


@pytest.mark.parametrize("path", ["", " ", "a\0b", 5, None])
def test_jsonl_refuses_an_invalid_path(path: str) -> None:
    with pytest.raises(ValueError, match=r"^Jsonl\.path is "):
        Jsonl(path)


# both


def test_a_breaker_passes_its_events_to_its_sinks(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "events.jsonl"
    breaker = CircuitBreaker("api", clock=FakeClock(), sinks=[Log("error"), Jsonl(str(path))])
    trip(breaker)
    assert caplog.messages == [
        "api #1 closed → open: " + breaker.snapshot().outage.reason + ("; next try in 60 s")
    ]
    assert json.loads(path.read_text())["after"] == "open"


def test_a_breaker_with_sinks_that_fail_continues_to_work(tmp_path: Path) -> None:
    breaker = CircuitBreaker("api", clock=FakeClock(), sinks=[Jsonl(str(tmp_path))])
    trip(breaker)
    assert breaker.state == "open"


def test_sinks_are_values_that_pickle() -> None:
    for sink in (Log("error"), Jsonl("x")):
        assert pickle.loads(pickle.dumps(sink)) == sink
    assert dict(SINKS) == {"jsonl": Jsonl, "log": Log}
