"""`import` accepts only what `export` wrote: an invalid line is reported and nothing is written."""

import json
import os
import stat
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st

from switchgear._cli import main
from switchgear._cli.export import BadLines, export_lines, read_lines
from switchgear._core.types import Signal
from switchgear._panel.panel import Panel
from switchgear._stores.base import Amended, ledger_of
from switchgear.testing import FakeClock
from timeouts import LIMIT_S


def filled_panel() -> Panel:
    clock = FakeClock()
    clock.advance(1_000_000)
    panel = Panel("memory:", clock=clock)
    panel.breaker("a").record(Signal(ok=False, count=5, error="529", cost_micros=7))
    panel.breaker("b/日本").record(Signal(ok=True, seconds=0.1))
    panel.breaker("b/日本").hold_open(by="ada", why="x")
    panel.breaker("c").record(Signal(ok=False))
    panel.budgets.open("atlas", 1000, circuit="a")
    panel.budgets.reserve("atlas", 100, owner="coder")
    panel.budgets.charge("atlas", 30)
    panel.lock("press", owner="coder").acquire()
    note_route(panel)
    return panel


def note_route(panel: Panel) -> None:
    value = {"agent": "junior", "model": "p/m", "since_s": 5.0, "why": "x"}
    line = {"at_s": 5.0, "from": None, "agent": "junior", "model": "p/m", "why": "x"}
    ledger = ledger_of(panel.store.inner)
    ledger.amend("fleet", "agent/coder", lambda _, __: Amended(None, value, (line,)))


FILLED = filled_panel()
LINES = [line.encode() for line in export_lines(FILLED, "*")]
NOW_S = 1_000_000.0


def run(panel: Panel, *args: str, given: bytes | None = None) -> Result:
    return CliRunner().invoke(main, args, obj=panel, input=given)


def names(panel: Panel) -> list[str]:
    return [view.name for view in panel]


def test_an_exported_circuit_is_imported_with_its_events() -> None:
    empty = Panel("memory:", clock=FakeClock(NOW_S))
    done = run(empty, "import", "-", given=b"\n".join(LINES) + b"\n")
    assert done.output == (
        "4 circuits imported, 0 kept unchanged (as new or newer)\n"
        "3 accounts imported, 0 kept unchanged (those in the store are as new or newer, or are others)\n"
    )
    assert [line.encode() for line in export_lines(empty, "*")] == LINES


def test_an_export_by_glob_contains_only_the_matches() -> None:
    kinds = [json.loads(line).get("type") for line in export_lines(filled_panel(), "b/*")]
    assert kinds == [None, "circuit", "event"]


def test_a_circuit_that_changed_in_the_meantime_is_kept() -> None:
    panel = filled_panel()
    panel.breaker("c").record(Signal(ok=False))
    done = run(panel, "import", "-", given=b"\n".join(LINES))
    assert done.output == (
        "0 circuits imported, 4 kept unchanged (as new or newer)\n"
        "0 accounts imported, 3 kept unchanged (those in the store are as new or newer, or are others)\n"
    )
    assert panel.breaker("c").totals.failed == 2


def edited(number: int, change: Callable[[Any], object]) -> list[bytes]:
    """The lines with one of them changed in place."""
    data = json.loads(LINES[number - 1])
    change(data)
    return [*LINES[: number - 1], json.dumps(data).encode(), *LINES[number:]]


def put(data: Any, *path: Any) -> None:
    *way, last, value = path
    for step in way:
        data = data[step]
    data[last] = value


BAD: dict[str, tuple[list[bytes], str]] = {
    "nothing": ([], "it is empty"),
    "another file": ([b"{}", *LINES[1:]], "line 1: not an export of Switchgear"),
    "a newer format": (edited(1, lambda d: put(d, "version", 2)), "line 1: its version is 2"),
    "no JSON": ([*LINES[:2], b"{", *LINES[2:]], "line 3: not JSON"),
    "no object": ([*LINES, b"[]"], f"line {len(LINES) + 1}: not a JSON object"),
    "an empty line": ([*LINES[:2], b"", *LINES[2:]], "line 3: it is empty"),
    "no UTF-8": ([*LINES, b'"\xff"'], "not UTF-8 text: byte 2"),
    "no type": (edited(2, lambda d: put(d, "type", "x")), "line 2: its type is 'x'"),
    "a bad phase": (
        edited(2, lambda d: put(d, "circuit", "phase", "ajar")),
        "line 2: not the state",
    ),
    "no policy": (edited(2, lambda d: put(d, "policy", None)), "line 2: not a policy"),
    "no name": (edited(2, lambda d: put(d, "circuit", "key", " ")), "line 2: key is ' '"),
    "a name twice": ([*LINES, LINES[1]], "the circuit 'a' occurs twice"),
    "a stray event": (
        [LINES[0], LINES[2]],
        "line 2: an event of 'a', which comes before its circuit",
    ),
    "an event twice": ([*LINES[:3], LINES[2], *LINES[3:]], "line 4: event number 1 of 'a'"),
    "an event too many": (edited(3, lambda d: put(d, "event", "seq", 9)), "line 3: event number 9"),
    "the future": (
        edited(2, lambda d: put(d, "circuit", "seen_s", 9e9)),
        "has a time in the future",
    ),
    "not a number": (edited(2, lambda d: put(d, "circuit", "heat", float("nan"))), "line 2: NaN"),
    "a huge number": (edited(2, lambda d: put(d, "circuit", "version", 10**25)), "too large"),
    "a deep line": ([*LINES, b"[" * 100_000], "nested too deeply"),
}


@pytest.mark.parametrize("what", BAD)
def test_a_bad_line_is_reported_with_its_number_and_nothing_is_written(what: str) -> None:
    lines, message = BAD[what]
    panel = Panel("memory:", clock=FakeClock(NOW_S))
    done = run(panel, "import", "-", given=b"\n".join(lines))
    assert done.exit_code == 2
    assert "nothing was imported from -" in done.stderr
    assert message in done.stderr
    assert names(panel) == []


def test_every_bad_line_is_reported_up_to_a_limit() -> None:
    lines = [LINES[0], *[b"x"] * 30]
    with pytest.raises(BadLines) as caught:
        read_lines(lines, NOW_S)
    told = str(caught.value).splitlines()
    assert told[0].startswith("line 2: ")
    assert told[-1] == "and 10 more bad lines"


def test_a_file_that_is_not_there_is_reported(tmp_path: Path) -> None:
    done = run(filled_panel(), "import", str(tmp_path / "none.jsonl"))
    assert done.exit_code == 2
    assert "No such file" in done.stderr


def test_an_export_replaces_a_file_atomically(tmp_path: Path) -> None:
    file = tmp_path / "out.jsonl"
    file.write_text("old")
    assert run(FILLED, "export", "-o", str(file)).exit_code == 0
    assert file.read_bytes() == b"\n".join(LINES) + b"\n"
    assert list(tmp_path.iterdir()) == [file]


@given(st.lists(st.binary(max_size=80), max_size=4))
def test_random_bytes_are_refused_in_a_sentence(lines: list[bytes]) -> None:
    with pytest.raises(BadLines, match=r"^(line \d+: |it is empty)"):
        read_lines(lines, NOW_S)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=6,
)


def places(data: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    found = [path] if path else []
    items = (
        data.items()
        if isinstance(data, dict)
        else enumerate(data)
        if isinstance(data, list)
        else []
    )
    for key, value in items:
        found += places(value, (*path, key))
    return found


@given(st.data())
def test_any_value_anywhere_is_imported_or_refused_without_a_traceback(data: Any) -> None:
    number = data.draw(st.integers(1, len(LINES)))
    line = json.loads(LINES[number - 1])
    place = data.draw(st.sampled_from(places(line)))
    put(line, *place, data.draw(JSON))
    lines = [*LINES[: number - 1], json.dumps(line).encode(), *LINES[number:]]
    panel = Panel("memory:", clock=FakeClock(NOW_S))
    done = run(panel, "import", "-", given=b"\n".join(lines))
    assert done.exit_code in {0, 2}
    assert "defect" not in done.stderr
    if done.exit_code:
        assert "nothing was imported" in done.stderr
        assert names(panel) == []
    else:
        for verb in (["status"], ["export"], ["budgets", "show", "atlas"], ["locks", "--all"]):
            assert run(panel, *verb).exit_code == 0, verb
        panel.budgets.charge("atlas", 1)
        assert panel.budgets.audit("atlas").problems == ()


@given(st.integers(0, len(b"\n".join(LINES)) - 1), st.integers(0, 255))
def test_a_flipped_byte_is_imported_or_refused_without_a_traceback(at: int, byte: int) -> None:
    whole = bytearray(b"\n".join(LINES))
    whole[at] = byte
    with suppress(BadLines):
        read_lines(bytes(whole).split(b"\n"), NOW_S)


def test_an_export_goes_into_a_pipe_and_does_not_replace_it(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    heard: list[bytes] = []
    reader = threading.Thread(target=lambda: heard.append(pipe.read_bytes()), daemon=True)
    reader.start()
    assert run(FILLED, "export", "-o", str(pipe)).exit_code == 0
    reader.join(LIMIT_S)
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    assert heard == [b"\n".join(LINES) + b"\n"]


def test_an_export_through_a_link_leaves_the_link(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    link, target = tmp_path / "link", tmp_path / "elsewhere" / "out"
    link.symlink_to(target)
    for _ in range(2):  # the target is made, then replaced
        assert run(FILLED, "export", "-o", str(link)).exit_code == 0
        assert link.is_symlink()
        assert target.read_bytes().splitlines() == LINES
    assert stat.S_IMODE(target.stat().st_mode) == 0o600


def test_budgets_of_the_configuration_do_not_keep_exported_accounts_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "switchgear.yaml").write_text("budgets:\n  atlas: {limit_dollars: 5}\n")
    monkeypatch.setenv("SWITCHGEAR_CONFIG", str(tmp_path / "switchgear.yaml"))
    with Panel("sqlite:///old.db") as old:
        old.budgets.open("atlas", 5_000_000)
        old.budgets.charge("atlas", 1_200_000)
    command = CliRunner()
    moved = command.invoke(main, ["--store", "sqlite:///old.db", "export", "-o", "all.jsonl"])
    assert moved.exit_code == 0, moved.output
    moved = command.invoke(main, ["--store", "sqlite:///new.db", "import", "all.jsonl"])
    assert "1 account imported" in moved.output
    shown = command.invoke(main, ["--store", "sqlite:///new.db", "budgets", "list"]).output
    assert "$1.20" in shown
