"""The command that measures the progress presets, on a corpus of four runs made up here."""

import gzip
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
RULES = """
SWE = ("edits",)
def changes(step): return step["tool"] == "edit"
def exhausted(run): return run["exit"] == "limit"
"""


def recorded(tool: str, args: str, observation: str, thought: str = "") -> dict[str, Any]:
    told = {"tool": tool, "args": args, "observation": observation, "thought": thought}
    return {**told, "error": False, "args_sha": args, "obs_sha": observation}


def run(source: str, steps: list[dict[str, Any]], *, solved: bool, end: str) -> str:
    return json.dumps(
        {"source": source, "model": "m", "task": "t", "solved": solved, "exit": end, "steps": steps}
    )


def measure(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "scripts/measure_ledger.py", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def test_the_presets_are_scored_beside_published_detectors(tmp_path: Path) -> None:
    (tmp_path / "score.py").write_text(RULES)
    good = [recorded("bash", f"read {name}", f"text {name}") for name in "abcdefgh"]
    loop = [recorded("bash", "ls", "nothing", "I look again at what is there")] * 40
    stuck_and_edits = [*loop, recorded("edit", "a.py", "saved"), recorded("submit", "", "")]
    lines = [
        run("edits", [*good, recorded("submit", "", "")], solved=True, end="done"),
        run("edits", stuck_and_edits, solved=True, end="done"),
        run("edits", loop, solved=False, end="limit"),
        run("edits", good, solved=False, end="limit"),
    ]
    with gzip.open(tmp_path / "made-up.jsonl.gz", "wt", encoding="utf-8") as file:
        file.write("\n".join(lines))
    done = measure(str(tmp_path), "--quick", "--out", str(tmp_path / "out" / "stuck.md"))
    assert done.returncode == 0, done.stderr
    # One of two solved runs is stopped and loses its edit; of the exhausted ones the loop is caught
    # after 6 of 40 steps, and there are 48 steps to save.
    net5 = 100 * (34 - 5 * 42) / (9 + 42 + 40 + 8)
    assert f"| **default** | 1/2 | 50.0 | 50.0 | {100 * 34 / 48:.1f} | {net5:.1f} |" in done.stdout
    assert "| opencode, as documented | 1/2 | 50.0 | 50.0 | 77.1 |" in done.stdout
    assert "| step cap 50 | 0/2 | 0.0 | 0.0 | 0.0 | 0.0 |" in done.stdout
    assert (tmp_path / "out" / "stuck.md").read_text(
        encoding="utf-8"
    ).strip() == done.stdout.strip()


def test_a_folder_without_a_corpus_is_reported_in_one_line(tmp_path: Path) -> None:
    done = measure(str(tmp_path))
    assert done.returncode == 1
    assert done.stderr == f"{tmp_path} has no score.py: is it the corpus?\n"
