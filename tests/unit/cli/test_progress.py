"""Long commands show their progress, but only at a terminal; texts are cut between words."""

import io
import json
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from switchgear._agents.recordings.recording import RecordingTally
from switchgear._analysis.backtest.engine import Judging, Recordings, each_run
from switchgear._analysis.backtest.replay import Named
from switchgear._cli import main
from switchgear._cli.views.terminal import _ProgressBar, progress
from switchgear._cli.views.text import clean
from switchgear._config import preset_policy
from switchgear._text.redact import redact, shortened


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def recordings(folder: Path, files: int = 3) -> Path:
    for number in range(files):
        lines = [
            {
                "id": f"r{number}-{line}",
                "steps": [{"tool": "Bash", "args": "make", "error": "no"}] * 5,
            }
            for line in range(40)
        ]
        text = "".join(json.dumps(line) + "\n" for line in lines)
        (folder / f"runs-{number}.jsonl").write_text(text)
    return folder


@pytest.mark.parametrize("jobs", [None, 2])
def test_progress_grows_up_to_the_total(tmp_path: Path, jobs: int | None) -> None:
    reported: list[tuple[int, int]] = []
    read = Recordings(
        (str(recordings(tmp_path)),), jobs=jobs, progress=lambda *pair: reported.append(pair)
    )
    task = Judging((Named("ledger", preset_policy("ledger")),)).row
    rows = list(each_run(read, task, RecordingTally()))
    total = sum(path.stat().st_size for path in tmp_path.iterdir())
    assert rows
    assert reported[0] == (0, total)
    assert reported[-1] == (total, total)
    assert reported == sorted(reported)
    assert len(reported) > 4


def test_a_terminal_gets_a_bar_with_an_estimate(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Terminal()
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setenv("TERM", "xterm")
    with progress("replaying recordings", hidden=False) as tell:
        assert tell is not None
        for done in (0, 50, 100, 0, 100):
            tell(done, 100)
    assert "replaying recordings" in stream.getvalue()
    assert "elapsed" in stream.getvalue()
    assert "left" in stream.getvalue()


def test_the_bar_covers_all_passes() -> None:
    shown: list[float] = []

    class Bar:
        def add_task(self, what: str, total: int) -> int:
            assert (what, total) == ("replaying", 200)
            return 7

        def update(self, task: int, completed: int) -> None:
            assert task == 7
            shown.append(completed)

    tell = _ProgressBar(Bar(), "replaying", 2)
    for done in (0, 60, 100, 0, 60, 100):
        tell(done, 100)
    assert shown == [0, 60, 100, 100, 160, 200]
    tell(0, 100)
    assert shown[-1] == 100, "a pass that was not announced begins the last again"


@pytest.mark.parametrize("hidden", [True, False])
def test_a_file_a_pipe_and_json_get_no_bar(monkeypatch: pytest.MonkeyPatch, hidden: bool) -> None:
    stream = Terminal() if hidden else io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    with progress("replaying recordings", hidden=hidden) as tell:
        assert tell is None
    assert stream.getvalue() == ""


@pytest.mark.parametrize("command", [("backtest",), ("tune", "--false-stops", "5%")])
def test_without_a_terminal_the_commands_print_no_progress(
    tmp_path: Path, command: tuple[str, ...]
) -> None:
    done = CliRunner().invoke(main, [*command, str(recordings(tmp_path)), "--json"])
    assert done.exit_code in {0, 3}
    json.loads(done.stdout)
    assert "elapsed" not in done.output


def test_texts_are_cut_between_words_and_long_words_anywhere() -> None:
    assert shortened("one two three", 9, "…") == "one two…"
    assert shortened("one two", 7, "…") == "one two"
    assert shortened("one two three", 8, "…") == "one two…"
    assert shortened("x" * 50, 10, "…") == "x" * 9 + "…"
    text = "a provider answered with an error that is longer than the line " * 20
    for cut in (redact(text), clean(text, 100)):
        assert cut.rstrip("….").split()[-1] in text.split()
    assert len(redact(text)) <= 200
