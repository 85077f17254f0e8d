"""The view of a batch: plain lines with task names, a table that fits the terminal, a summary."""

import io
import json

import click
import pytest

from switchgear._cli.views.batch import BatchTable, as_values, summary_lines, table
from switchgear._cli.views.terminal import Screen
from switchgear._console.values import printed
from switchgear._run.batch.model import BATCH_ENDS, Progress, Status
from switchgear._run.batch.view import BatchLineView
from switchgear._run.formats import local_time

DONE = Progress(Status.DONE, attempts=1, iterations=4, seconds=62.0, spent_micros=120_000)
RAN = {"options": {"max_iterations": 9}, "readings": [], "time_left_s": 250.0}


@pytest.fixture
def board(monkeypatch: pytest.MonkeyPatch) -> BatchTable:
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setenv("LINES", "12")
    with click.Context(click.Command("batch")):
        return BatchTable(Screen(), lambda: 0, clock=lambda: 100.0)


NIGHT_S = 1_800_000_000.0
NIGHT = local_time(NIGHT_S)


def begun(board: BatchTable, **tasks: Progress) -> BatchTable:
    for name, progress in tasks.items():
        board.changed(name, progress)
    return board


def test_a_line_of_a_task_has_its_name_in_front() -> None:
    stream = io.StringIO()
    lines = BatchLineView(stream, wall=lambda: NIGHT_S)
    lines.run_view("parser").noted("all is well")
    lines.changed("parser", Progress(Status.FAILED, "no \x1b[2J progress"))
    assert stream.getvalue() == (
        f"{NIGHT}  [parser]   note: all is well\n{NIGHT}  [parser] failed: no [2J progress\n"
    )


def test_a_block_keeps_its_columns_and_contains_no_control_sequences() -> None:
    stream = io.StringIO()
    BatchLineView(stream, wall=lambda: NIGHT_S).message(
        "TASK TIMED OUT\n\n[Resume]             - more \x1b[2J time"
    )
    shown = "TASK TIMED OUT\n\n[Resume]             - more  [2J time\n"
    assert stream.getvalue() == f"{NIGHT}  {shown}", "a block has one time, in front of it"


def test_a_countdown_is_reported_at_its_start_and_every_half_minute() -> None:
    stream = io.StringIO()
    lines = BatchLineView(stream, wall=lambda: NIGHT_S)
    for left_s in (60.0, 59.0, 45.0, 30.0, 29.0):
        lines.waiting("for it", left_s)
    assert stream.getvalue() == f"{NIGHT}  waiting 60 s for it\n{NIGHT}  waiting 30 s for it\n"


def test_the_table_has_a_line_for_each_task_and_what_it_does(board: BatchTable) -> None:
    running = Progress(Status.RUNNING, run="r", attempts=1, timeout_s=285.0)
    begun(board, parser=DONE, lexer=running, docs=Progress())
    view = board.run_view("lexer")
    view.started({**RAN, "state": {"seconds": 3.0, "spent_micros": 10_000}})
    view.validating("make test")
    first, second, third = board.frame().plain.splitlines()[2:5]
    assert first.split() == ["parser", "done", "62", "s,", "$0.12"]
    assert second.startswith("lexer   running      #0  3 s (5 min left)  $0.01  val")
    assert third.split() == ["docs", "waiting"]


def test_the_head_has_the_cost_of_running_tasks_with_their_earlier_runs(board: BatchTable) -> None:
    again = Progress(
        Status.RUNNING, run="r", attempts=2, earlier_micros=50_000, spent_micros=50_000
    )
    begun(board, parser=DONE, lexer=again, docs=Progress(Status.RUNNING, run="s"))
    assert board.frame().plain.splitlines()[0].endswith("; $0.17")
    view = board.run_view("lexer")
    view.started({**RAN, "state": {"seconds": 3.0, "spent_micros": 10_000}})
    assert board.frame().plain.splitlines()[0].endswith("; $0.18")
    board.run_view("docs").started({**RAN, "state": {"seconds": 1.0, "unknown_prices": 2}})
    head = board.frame().plain.splitlines()[0]
    assert head.endswith("; over $0.18"), "what is not known is not left out"


def test_the_table_fits_whatever_it_shows(board: BatchTable) -> None:
    begun(board, **{f"task-{n}": DONE for n in range(40)})
    begun(board, **{"task-30": Progress(Status.FAILED, "because " * 50)})
    board.message("a note\n" * 30 + "hostile \x1b[2J text")
    board.waiting("for op/agent_spawn " * 9, 12.0)
    frame = board.frame().plain
    assert len(frame.splitlines()) <= 12
    assert max(map(len, frame.splitlines())) <= 60
    assert "task-30" in frame
    assert "more" in frame
    assert "\x1b" not in frame


def test_the_summary_has_every_task_and_why_it_is_not_done() -> None:
    lines = table(
        {
            "parser": DONE._replace(checkpoint="git diff x"),
            "lexer": Progress(Status.FAILED, "3 failures", attempts=2, exit_reason="timeout"),
            "docs": Progress(Status.BLOCKED, "lexer failed", blocked_by="lexer"),
            "tree": DONE._replace(branch="switchgear/b/tree"),
        }
    )
    assert lines == [
        "TASK    END               ITERATIONS  TIME  SPEND  CHECKPOINT",
        "parser  done                       4  62 s  $0.12  git diff x",
        "lexer   failed (timeout)           0   0 s  $0.00  -",
        "  3 failures",
        "docs    blocked by lexer           -     -      -  -",
        "  lexer failed",
        "tree    done                       4  62 s  $0.12  -",
        "  git merge switchgear/b/tree",
    ]


@pytest.mark.parametrize("width", [40, 60, 80, 100])
def test_the_summary_fits_a_narrow_terminal(width: int) -> None:
    checkpoint = "git -C /a/long/path diff HEAD refs/switchgear/runs/20261118-023054-011a594"
    name = "documentation-of-the-whole-parser-and-its-comments"
    lines = table({name: DONE._replace(checkpoint=checkpoint), "b": DONE}, width)
    assert [line for line in lines if len(line) > width] in ([], [f"  {checkpoint}"])
    assert f"  {checkpoint}" in lines  # whole, to be copied
    assert lines[1].startswith("doc")
    assert lines[1].endswith("$0.12")


def test_the_end_shows_how_to_continue() -> None:
    failed = {"a": DONE, "b": Progress(Status.FAILED)}
    assert summary_lines("id", BATCH_ENDS["incomplete"], failed, "resume it") == [
        "batch id: incomplete: 1 of 2 tasks done, $0.12",
        "  continue: resume it --retry-failed",
    ]
    assert len(summary_lines("id", BATCH_ENDS["done"], {"a": DONE}, "resume it")) == 1


def test_the_result_is_json_with_the_documented_fields() -> None:
    value = json.loads(
        printed(as_values("id", BATCH_ENDS["partial"], {"a": DONE}, ["n"], "resume it"))
    )
    task = value.pop("tasks")[0]
    assert value == {
        "batch": "id",
        "success": False,
        "end": "partial",
        "exit_code": 20,
        "reason": "every task is done or accepted as it was at its time limit",
        "cost_micros": 120_000,
        "unknown_prices": 0,
        "resume": "resume it",
        "notes": ["n"],
    }
    assert {"name", "status", "run", "attempts", "checkpoint", "spent_micros"} <= task.keys()


def test_an_unknown_cost_is_never_shown_as_zero() -> None:
    done = Progress(Status.DONE, attempts=1, iterations=2, unknown_prices=2)
    lines = "\n".join(table({"parser": done}))
    assert "unknown" in lines
    assert "$0.00" not in lines
    assert "unknown cost" in summary_lines("b", BATCH_ENDS["done"], {"parser": done}, "resume")[0]
    assert Progress.load(done.dump()) == done
    old = {key: value for key, value in done.dump().items() if key != "unknown_prices"}
    assert Progress.load(old).unknown_prices == 0
