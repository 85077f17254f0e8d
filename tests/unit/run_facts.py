"""Records of runs for tests of the live view and of the report: plausible, and easily changed."""

from typing import Any

KINDS = ("consecutive_failures", "same_error", "no_progress", "output_decline")


def readings(heat: float = 0.0, reason: str = "as calm as it can be") -> list[dict[str, Any]]:
    return [{"kind": kind, "heat": heat, "reason": f"{kind}: {reason}"} for kind in KINDS]


def facts(number: int = 1, **changed: Any) -> dict[str, Any]:
    """A line of iterations.jsonl."""
    return {
        "number": number,
        "started_at": f"2027-01-15T08:{number // 60 % 60:02}:{number % 60:02}.000+00:00",
        "ended_at": None,
        "seconds": 0.9,
        "outcome": "worked",
        "ok": True,
        "error": None,
        "claims_done": False,
        "remark": None,
        "stopped": None,
        "repeated": None,
        "agent": {"exit_code": 0, "result": "said at the end", "problem": "", "question": None},
        "steps": 2,
        "tools": {"bash": 2},
        "errors": [],
        "files_changed": 1,
        "files": ["a.py"],
        "validation": None,
        "tests_before": 0,
        "tests_passing": 3,
        "output_chars": 120,
        "cost_micros": 10_000,
        "tokens": {"input": 100, "output": 10},
        "prompt": f"prompts/{number:04}.txt",
        "log": f"logs/{number:04}.log",
        "phase": "closed",
        "heat": 0.0,
        "readings": readings(),
        "nudge": None,
        "would_stop": False,
        "notes": [],
        **changed,
    }


def run(**changed: Any) -> dict[str, Any]:
    """A run.json of a run that continues."""
    return {
        "schema": 1,
        "id": "20270115-080000-abcdef",
        "task": "make the tests pass",
        "agent": "demo",
        "folder": "/somewhere/work",
        "circuit": "loop/1234abcd",
        "started_at": "2027-01-15T08:00:00.000+00:00",
        "ended_at": None,
        "pid": 1,
        "resumed": False,
        "options": {"task": "t", "max_iterations": 30, "budget_micros": None, "shadow": False},
        "state": {
            "iterations": 1,
            "lost": 0,
            "seconds": 0.0,
            "spent_micros": 10_000,
            "unknown_prices": 0,
            "tokens": 110,
            "tests_passing": 3,
            "changed": ["a.py"],
            "nudge": None,
        },
        "phase": "closed",
        "heat": 0.0,
        "readings": readings(),
        "time_left_s": None,
        "notes": [],
        "end": None,
        **changed,
    }


def end(**changed: Any) -> dict[str, Any]:
    """The end of a run that the breaker stopped."""
    return {
        "success": False,
        "exit_reason": "circuit_breaker",
        "exit_code": 10,
        "reason": "Circuit breaker tripped: 3 consecutive failures (threshold: 3)",
        "evidence": ["a proof that no detector holds"],
        "resume": "switchgear resume 20270115-080000-abcdef --force-close",
        "report": None,
        "checkpoint": {
            "how": "git diff HEAD refs/switchgear/runs/20270115-080000-abcdef",
            "files": ["a.py"],
            "changed": 1,
            "added_lines": 2,
            "removed_lines": 1,
        },
        "notes": ["something to know"],
        **changed,
    }
