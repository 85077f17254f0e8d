"""Results of agents with parts that differ every time: process ids, durations, identifiers."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from switchgear._agents.hook_protocol import Ruling
from unit.hook_calls import Guarded, after, before, claude, failed

WORDS = [f"{a}{b}{c}" for a in "bcdfg" for b in "aeiou" for c in "klmnp"]
SHELL = {"command": "make status"}


def nudged_at(rulings: list[Ruling]) -> int | None:
    """The step at which the session's score is reached."""
    numbered = enumerate(rulings, 1)
    return next((n for n, each in numbered if "AGENT APPEARS STUCK" in each.text), None)


def calls(
    agent: Guarded, tool: str, steps: int, args: Callable[[int], Any], result: Callable[[int], Any]
) -> list[Ruling]:
    """Calls with their results, until the agent is nudged or refused."""
    rulings: list[Ruling] = []
    for n in range(steps):
        heard = agent.hear(before(tool, args(n), f"t{n}"))
        if heard.action not in {"deny", "stop"}:
            heard = agent.hear(after(tool, args(n), f"t{n}", result(n)))
        rulings.append(heard)
    return rulings


def gemini(n: int) -> dict[str, str]:
    output = f"<untrusted_context>\nOutput: main\nProcess Group PGID: {7107 + 3 * n}\n"
    return {"llmContent": f"{output}</untrusted_context>", "returnDisplay": "main"}


def qwen(n: int) -> dict[str, str]:
    head = "Command: make status\nDirectory: (root)\nOutput: main\nError: (none)\nExit Code: 0\n"
    process = f"Signal: (none)\nBackground PIDs: {n}\nProcess Group PGID: {7107 + 3 * n}"
    return {"llmContent": f"{head}{process}", "returnDisplay": "main"}


def gemini_calls(folder: Path, steps: int, result: Callable[[int], Any]) -> list[Ruling]:
    agent, rulings = Guarded(folder, agent="gemini"), list[Ruling]()
    for n in range(steps):
        call = {"session_id": "s1", "tool_name": "run_shell_command", "tool_input": SHELL}
        agent.hear({**call, "hook_event_name": "BeforeTool"})
        rulings.append(
            agent.hear({**call, "hook_event_name": "AfterTool", "tool_response": result(n)})
        )
    return rulings


def test_a_command_of_gemini_with_another_process_id_is_the_same_again(tmp_path: Path) -> None:
    assert nudged_at(gemini_calls(tmp_path, 7, gemini)) == 6


def test_the_output_of_gemini_still_counts(tmp_path: Path) -> None:
    """The frame that Gemini CLI writes around every output does not count as resemblance."""

    def result(n: int) -> dict[str, str]:
        return {"llmContent": gemini(n)["llmContent"].replace("main", WORDS[n])}

    assert nudged_at(gemini_calls(tmp_path, 40, result)) is None


def test_a_command_of_qwen_with_another_process_id_is_the_same_again(tmp_path: Path) -> None:
    agent = Guarded(tmp_path, agent="qwen")
    assert nudged_at(calls(agent, "run_shell_command", 7, lambda _: SHELL, qwen)) == 6


def test_the_output_of_qwen_still_counts(tmp_path: Path) -> None:
    agent = Guarded(tmp_path, agent="qwen")

    def result(n: int) -> dict[str, str]:
        return {"llmContent": qwen(n)["llmContent"].replace("main", WORDS[n])}

    assert nudged_at(calls(agent, "run_shell_command", 40, lambda _: SHELL, result)) is None


def test_a_search_of_claude_that_only_took_another_time_is_the_same_again(tmp_path: Path) -> None:
    def result(n: int) -> dict[str, Any]:
        return {"filenames": ["src/a.py"], "durationMs": 10 + 7 * n, "numFiles": 1}

    agent = Guarded(tmp_path)
    assert nudged_at(calls(agent, "Glob", 7, lambda _: {"pattern": "*.py"}, result)) == 6


def found(names: list[str]) -> dict[str, Any]:
    return {"mode": "files_with_matches", "filenames": names, "numFiles": len(names)}


@pytest.mark.parametrize(("steps", "is_nudged"), [(12, False), (30, True)])
def test_searches_of_claude_that_find_nothing_are_detected(
    tmp_path: Path, steps: int, is_nudged: bool
) -> None:
    rulings = calls(
        Guarded(tmp_path), "Grep", steps, lambda n: {"pattern": WORDS[n]}, lambda _: found([])
    )
    assert (nudged_at(rulings) is not None) is is_nudged


def test_searches_of_claude_that_find_something_continue(tmp_path: Path) -> None:
    rulings = calls(
        Guarded(tmp_path),
        "Grep",
        60,
        lambda n: {"pattern": WORDS[n]},
        lambda n: found([f"src/{WORDS[n]}.py"]),
    )
    assert nudged_at(rulings) is None


def test_commands_of_claude_that_have_nothing_to_print_continue(tmp_path: Path) -> None:
    silent = {"stdout": "", "stderr": "", "interrupted": False, "noOutputExpected": True}
    rulings = calls(
        Guarded(tmp_path), "Bash", 60, lambda n: {"command": f"touch {WORDS[n]}"}, lambda _: silent
    )
    assert nudged_at(rulings) is None


def test_a_failing_check_with_a_long_output_is_not_a_failure_of_the_shell(tmp_path: Path) -> None:
    agent = Guarded(tmp_path)
    for n, word in enumerate(WORDS[:6]):
        agent.hear(before("Bash", {"command": f"pytest {word}"}, f"t{n}"))
        output = "\n".join(f"{word} {other} failed" for other in WORDS * 4)
        agent.hear(failed("Bash", {"command": f"pytest {word}"}, f"t{n}", f"Exit code 1\n{output}"))
    assert agent.phase("op/shell") == "closed"


@pytest.mark.parametrize("is_same", [True, False])
def test_a_command_of_codex_that_fails_with_another_identifier_is_detected(
    tmp_path: Path, is_same: bool
) -> None:
    agent, rulings = Guarded(tmp_path, agent="codex"), list[Ruling]()
    path = tmp_path / "rollout.jsonl"
    for n in range(20):
        item = {"type": "CommandExecution", "id": f"t{n}", "exit_code": 1}
        with path.open("a") as file:
            file.write(json.dumps({"type": "event_msg", "payload": {"item": item}}) + "\n")
        call: dict[str, Any] = {"tool_name": "Bash", "tool_input": SHELL, "tool_use_id": f"t{n}"}
        call["transcript_path"] = str(path)
        heard = agent.hear(claude("PreToolUse", **call))
        rulings.append(heard)
        if heard.action in {"deny", "stop"}:
            break
        word = "parser" if is_same else WORDS[n]
        output = f"the {word} rejects request req_{n:02x}Ab{7 * n:03}Cd{n * n:04}"
        agent.hear(claude("PostToolUse", **call, tool_response=output))
    assert (rulings[-1].action == "stop") is is_same
