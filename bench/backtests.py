"""Measure 16: a backtest of many sessions, in time and memory.

Sessions are generated in the format of Claude Code's transcripts: texts of the usual lengths, one
step in eight failing, and always new words, so that hardly any session is stopped and nearly all
steps are evaluated. The command itself runs, with two processes and the preset `default` (by its
former name). Memory is the largest of any of its processes, for a quarter of the sessions and for
all of them: of each session only a summary is kept, not its texts.

    python -m bench.backtests [SESSIONS]    this measure alone, without the other libraries
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from bench.library import Role
from bench.result import TIMES, Bar, Row, Section

if TYPE_CHECKING:
    from bench.measure import Effort

STEPS = 200
PROCESSES = 2
AT_MOST_SECONDS = 120.0
"""For 1,000 sessions of 200 steps."""
AT_MOST_TIMES = 1.25
SYLLABLES = (
    "par",
    "ser",
    "to",
    "ken",
    "sta",
    "te",
    "ca",
    "che",
    "in",
    "dex",
    "va",
    "lue",
    "er",
    "ror",
)
AT_MOST_STOPPED = 0.1
"""Of the sessions: whoever is stopped early would flatter us."""


class Taken(NamedTuple):
    """What one backtest took."""

    sessions: int
    seconds: float
    core_seconds: float
    """What all its processes took of the cores: on a machine that is busy, less than `seconds`."""
    memory_bytes: int


def section(effort: Effort) -> Section:
    return _section(effort.circuits // 100)


def _section(sessions: int) -> Section:
    with tempfile.TemporaryDirectory(prefix="switchgear-bench-") as folder:
        few, many = (_taken(Path(folder), count) for count in (sessions // 4, sessions))
    per_thousand_s = many.seconds / many.sessions * 1000
    growth = many.memory_bytes / few.memory_bytes
    return Section(
        key="backtest",
        title=f"A backtest of sessions of {STEPS} steps",
        method=f"`switchgear backtest --jobs {PROCESSES}` over generated transcripts, preset default.",
        columns=("seconds", "core seconds", "sessions a second", "memory"),
        rows=[
            Row(
                f"{taken.sessions:,} sessions",
                Role.OURS,
                (
                    f"{taken.seconds:.1f}",
                    f"{taken.core_seconds:.1f}",
                    f"{taken.sessions / taken.seconds:.0f}",
                    f"{taken.memory_bytes / 1e6:.0f} MB",
                ),
                taken.seconds,
            )
            for taken in (few, many)
        ],
        bars=[
            Bar("seconds for 1,000 sessions", per_thousand_s, AT_MOST_SECONDS),
            Bar(f"{TIMES} the memory of a quarter of them", growth, AT_MOST_TIMES),
        ],
        numbers={"few": few._asdict(), "many": many._asdict()},
    )


def _taken(folder: Path, sessions: int) -> Taken:
    here = folder / str(sessions)
    here.mkdir()
    for number in range(sessions):
        (here / f"{number}.jsonl").write_text(_session(number), encoding="utf-8")
    command = [sys.executable, "-m", "switchgear", "backtest", str(here), "--json"]
    begun_s = time.perf_counter()
    with (folder / "found.json").open("w") as found:
        process = subprocess.Popen(
            [*command, "--policy", "ledger", "--jobs", str(PROCESSES)], stdout=found
        )
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    seconds = time.perf_counter() - begun_s
    if process.returncode != 0:
        raise RuntimeError(f"the backtest ended with exit code {process.returncode}")
    [counts] = json.loads((folder / "found.json").read_text())["policies"]
    if counts["runs"] != sessions or counts["stopped"] > AT_MOST_STOPPED * sessions:
        raise RuntimeError(f"the sessions were not evaluated completely: {counts}")
    core_seconds = used.ru_utime + used.ru_stime
    return Taken(sessions, seconds, core_seconds, used.ru_maxrss * 1024)


def _words(chance: random.Random, count: int) -> str:
    return " ".join("".join(chance.choices(SYLLABLES, k=3)) for _ in range(count))


def _session(number: int) -> str:
    chance = random.Random(number)  # made up, and the same each time
    head = {"sessionId": f"bench-{number}", "isSidechain": False}
    lines = [{**head, "type": "user", "message": {"content": f"task {number}"}}]
    for step in range(STEPS):
        at = f"2026-11-15T{step // 60 % 24:02}:{step % 60:02}:00.000Z"
        words = _words(chance, 40)
        use = {
            "type": "tool_use",
            "id": f"t{step}",
            "name": "Bash",
            "input": {"command": f"make {words}"},
        }
        message = {
            "id": f"m{step}",
            "model": "claude-sonnet-4-5",
            "usage": {"input_tokens": 1000, "output_tokens": 100},
            "content": [{"type": "text", "text": f"Now I look at {words}."}, use],
        }
        output = "\n".join(_words(chance, 6) for _ in range(40))
        result = {"type": "tool_result", "tool_use_id": f"t{step}", "content": output}
        failed = chance.random() < 0.125
        lines += [
            {**head, "type": "assistant", "timestamp": at, "message": message},
            {**head, "type": "user", "timestamp": at,
             "message": {"content": [{**result, "is_error": failed}]}},
        ]  # fmt: skip
    return "".join(json.dumps(line) + "\n" for line in lines)


if __name__ == "__main__":
    done = _section(int(sys.argv[1]) if len(sys.argv) > 1 else 1000)
    for row in done.rows:
        print(row.name, *row.cells, sep="   ")
    for bar in done.bars:
        print(
            "ok  " if bar.passed else "MISS",
            f"{bar.measured:.2f} {bar.promise}, at most {bar.limit:g}",
        )
    sys.exit(0 if all(bar.passed for bar in done.bars) else 1)
