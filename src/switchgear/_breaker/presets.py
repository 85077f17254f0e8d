"""Policies that are ready to use, as data: no class, branch or loop.

Each policy has the form of the configuration file, so that it can be read, copied and changed there. Its
numbers come from the documents on which Switchgear is based. Every key has an effect: a test changes
each key and checks that the circuit behaves differently.
"""

from typing import Any, NamedTuple

_NO_PROGRESS: list[dict[str, Any]] = [{"stagnation": {"limit": 9.0}}]
"""The default detector of an agent's progress."""

PRESETS: dict[str, dict[str, Any]] = {
    "provider": {
        "detectors": [{"consecutive_failures": {"threshold": 5}}],
        "recovery": {"cooldown": {"base_s": 60.0, "max_s": 300.0, "factor": 2.0, "probes": 1}},
    },
    "operation": {
        "detectors": [{"failures_in_window": {"threshold": 3, "window_s": 60.0}}],
        "recovery": {"cooldown": {"base_s": 30.0, "max_s": 30.0, "probes": 1}},
    },
    "service": {
        "detectors": [
            {"failure_share": {"window_s": 60.0, "threshold": 0.5, "min_calls": 10}},
            {
                "slow_call_share": {
                    "slow_s": 10.0,
                    "window_s": 60.0,
                    "threshold": 0.8,
                    "min_calls": 10,
                }
            },
        ],
        "recovery": {
            "cooldown": {
                "base_s": 15.0,
                "max_s": 300.0,
                "factor": 2.0,
                "probes": 3,
                "successes": 5,
                "of": 8,
            }
        },
    },
    "failure_rate": {
        "detectors": [{"failure_rate": {"window": 20, "threshold": 0.5}}],
        "recovery": {"cooldown": {"base_s": 300.0, "max_s": 3600.0, "factor": 2.0, "probes": 1}},
    },
    "latency": {
        "detectors": [
            {
                "latency_p95": {
                    "baseline_s": 90.0,
                    "multiplier": 3.0,
                    "window_s": 300.0,
                    "admit": 0.5,
                }
            }
        ],
        "recovery": {"cooldown": {"base_s": 180.0, "max_s": 3600.0, "factor": 2.0, "probes": 1}},
    },
    "budget": {
        "detectors": [
            {"spend": {"hard_cap_micros": 5_000_000, "threshold": 1.0, "window_s": 60.0}}
        ],
        "recovery": {"cooldown": {"base_s": 600.0, "max_s": 3600.0, "factor": 2.0, "probes": 1}},
    },
    "story_cost": {
        "detectors": [{"total_cost": {"budget_micros": 10_000_000, "threshold": 1.5}}],
        "recovery": "latched",
    },
    "resource_lock": {
        "detectors": [{"lock_wait": {"limit_s": 60.0}}],
        "recovery": {"cooldown": {"base_s": 60.0, "max_s": 3600.0, "factor": 2.0, "probes": 1}},
    },
    "external_dep": {
        "detectors": [
            {"retry_after": {"threshold": 1}},
            {"failures_in_window": {"threshold": 3, "window_s": 60.0, "apart_s": 10.0}},
            {"failure_rate": {"window": 20, "threshold": 0.5, "min_calls": 3}},
        ],
        "combine": {
            "weighted_sum": {
                "weights": {"retry_after": 2.0, "failures_in_window": 1.0, "failure_rate": 1.0},
                "threshold": 2.0,
            }
        },
        "recovery": {"cooldown": {"base_s": 60.0, "max_s": 120.0, "factor": 2.0, "probes": 1}},
    },
    "constitutional": {"detectors": ["violation"], "recovery": "latched"},
    "careful": {
        "detectors": [{"stagnation": {"limit": 16.0}}],
        "recovery": "latched",
        "tripping_at": 0.7,
    },
    "default": {
        "detectors": _NO_PROGRESS,
        "recovery": "latched",
        "tripping_at": 0.7,
    },
    "eager": {
        "detectors": [{"stagnation": {"limit": 7.5}}],
        "recovery": "latched",
        "tripping_at": 0.7,
    },
    "ledger": {
        "detectors": _NO_PROGRESS,
        "recovery": "latched",
        "tripping_at": 0.7,
    },
    "progress": {
        "detectors": _NO_PROGRESS,
        "recovery": {"window_end": {"window_s": 0.001}},
        "tripping_at": 0.7,
    },
    "stuck": {
        "detectors": [
            {"silence": {"limit_s": 120.0}},
            {"same_tool": {"threshold": 5}},
            {"tool_flood": {"threshold": 20}},
            {"same_error": {"threshold": 4, "scope": "consecutive"}},
            {"context_burn": {"per_minute": 0.05, "window_s": 60.0}},
        ],
        "combine": {
            "weighted_sum": {
                "weights": {
                    "silence": 30.0,
                    "same_tool": 40.0,
                    "tool_flood": 50.0,
                    "same_error": 60.0,
                    "context_burn": 20.0,
                },
                "threshold": 60.0,
            }
        },
        "recovery": "latched",
        "tripping_at": 0.3,
    },
}
"""The presets by name."""

MEASURED: dict[str, str] = {
    "careful": "0.1 % harmful stops, 40 % of exhausted runs caught, 19 % of their steps saved",
    "default": "0.5 % harmful stops, 52 % of exhausted runs caught, 28 % of their steps saved",
    "eager": "0.6 % harmful stops, 52 % of exhausted runs caught, 29 % of their steps saved",
}
"""Results of the progress presets on recorded runs; docs/stuck.md has the tables."""

DESCRIPTIONS: dict[str, str] = {
    "provider": "A model provider: opens for 60 s, doubling up to 300 s, after 5 failures in a row.",
    "operation": "An operation such as spawning an agent: opens for 30 s after 3 failures in 60 s.",
    "service": "A busy service: opens for 15 s, doubling up to 300 s, if half of the calls in 60 s failed or 80 % took over 10 s; 5 of 8 probes close it.",
    "failure_rate": "An agent: opens for 300 s, doubling up to 1 h, if more than half of 20 calls failed.",
    "budget": "An agent: opens for 600 s, doubling up to 1 h, if $5 are spent in 60 s; set your own cap.",
    "story_cost": "A task: opens until a manual reset if more than 1.5 times its budget is spent.",
    "resource_lock": "A lock: opens for 60 s, doubling up to 1 h, after a wait of 60 s.",
    "external_dep": "A provider: opens for 60 s, then 120 s, after a Retry-After, or after 3 failures in 60 s (10 s apart) if most of 20 calls failed.",
    "constitutional": "Absolute rules: opens at the first broken rule, until a manual reset.",
    "latency": "A service: halves the load for 180 s, doubling up to 1 h, if the p95 of 300 s is over 3 times 90 s.",
    "careful": f"An agent without progress: stops after 16 wasted steps, warns at 70 %; {MEASURED['careful']}.",
    "default": f"An agent without progress: stops after 9 wasted steps, warns at 70 %; {MEASURED['default']}.",
    "eager": f"An agent without progress: stops after 7.5 wasted steps, warns at 70 %; {MEASURED['eager']}.",
    "ledger": "The former name of the preset default.",
    "progress": "The preset default for a guarded session: at the limit, the next escalation step is taken and the count restarts.",
    "stuck": "An agent's session: a stuck score of 60, from five signals, starts an intervention.",
}
"""One line about each preset."""


class LoopPreset(NamedTuple):
    """The settings of `switchgear run --preset NAME`."""

    name: str
    max_iterations: int
    description: str
    prompt: str
    """Text before the task."""
    consecutive_failures: int = 3
    same_error: int = 5
    validate: bool = True
    """Run the validation after each iteration."""
    commit: bool = False
    """Commit after each iteration that passes the validation."""


_LOOP_PRESETS = (
    LoopPreset(
        "feature",
        30,
        "Build a feature, step by step, with tests.",
        "Build the feature in small steps. Add or extend tests with each step, and leave the "
        "project working after each of them.",
        commit=True,
    ),
    LoopPreset(
        "feature-minimal",
        20,
        "Build a feature with the smallest change that works.",
        "Make the smallest change that fulfils the task. Touch nothing that it does not need.",
    ),
    LoopPreset(
        "tdd-red-green",
        50,
        "Test first: a failing test, the code that passes it, then tidy up.",
        "Work test first. Write one failing test, write just enough code to pass it, tidy up, and "
        "begin again. Never weaken a test to make it pass.",
        consecutive_failures=5,
        same_error=3,
        commit=True,
    ),
    LoopPreset(
        "spec-driven",
        40,
        "Follow a written specification, point by point.",
        "Read the specification first. Work through it point by point, and say for each point "
        "where the code fulfils it.",
        commit=True,
    ),
    LoopPreset(
        "refactor",
        40,
        "Change the structure, not the behaviour.",
        "Improve the structure without changing what the program does. Keep every test passing "
        "after each step; if one breaks, undo that step.",
        consecutive_failures=2,
        same_error=3,
        commit=True,
    ),
    LoopPreset(
        "debug",
        20,
        "Find the cause of a defect and fix it.",
        "Reproduce the defect first, with a test if you can. Find its cause before you change "
        "anything, then fix the cause and not the symptom.",
    ),
    LoopPreset(
        "incident-response",
        15,
        "Restore service quickly and safely.",
        "Something is broken in production. Make the smallest safe change that restores service, "
        "write down what you saw, and stop when you are not sure.",
        consecutive_failures=2,
        same_error=2,
        commit=True,
    ),
    LoopPreset(
        "code-archaeology",
        30,
        "Understand old code and write down what it does.",
        "Find out what this code does and why it came to be so. Read before you conclude, quote "
        "the places you rely on, and write it down in ARCHAEOLOGY.md. Change no behaviour.",
        validate=False,
    ),
    LoopPreset(
        "review",
        10,
        "Review the code and report what is wrong with it.",
        "Review the code. Write the defects into REVIEW.md, each with file, line and a way to see "
        "it; separate what is wrong from what is a matter of taste. Change nothing else.",
        validate=False,
    ),
    LoopPreset(
        "pr-review",
        10,
        "Review the changes of one branch.",
        "Review only what this branch changes. Write into REVIEW.md what each change may break, "
        "what is not tested, and what you would merge as it is. Change nothing else.",
        validate=False,
    ),
    LoopPreset(
        "adversarial-review",
        15,
        "Try to break the code.",
        "Try to break this code: hostile input, races, failures half-way, misuse. Write each "
        "finding into REVIEW.md, with input that triggers it. Fix nothing.",
        validate=False,
    ),
    LoopPreset(
        "docs",
        20,
        "Write or fix documentation.",
        "Write documentation for its users. Check each statement against the code and run "
        "each example.",
        validate=False,
        commit=True,
    ),
    LoopPreset(
        "documentation-first",
        30,
        "Document first, then build what the documentation says.",
        "Write the documentation of the result first, as if it existed. Then build exactly that, "
        "and correct the documentation where building taught you better.",
        commit=True,
    ),
    LoopPreset(
        "api-design",
        35,
        "Design an interface, then build it.",
        "Design the interface from the side of its callers: names, errors, examples. Settle it in "
        "writing before you build it.",
        commit=True,
    ),
    LoopPreset(
        "migration-safety",
        25,
        "Change a schema or its data without loss.",
        "Data must not be lost. Every step can be undone, is tried on a copy first, and works "
        "with the old and the new code. Stop at the first failure.",
        consecutive_failures=1,
        same_error=2,
        commit=True,
    ),
    LoopPreset(
        "performance-optimization",
        30,
        "Make it faster, by measurement.",
        "Measure first. Change one thing at a time, measure again, and keep it only if the numbers "
        "are better and the tests pass.",
        commit=True,
    ),
    LoopPreset(
        "scientific-method",
        40,
        "Hypothesis, experiment, conclusion.",
        "Write down a hypothesis, an experiment that could refute it, and the result. Keep what "
        "failed in your notes, so that you do not try it again.",
    ),
    LoopPreset(
        "research",
        25,
        "Find out and report, without changing the code.",
        "Find out what the task asks and write it into RESEARCH.md with your sources. Change no "
        "code.",
        validate=False,
    ),
    LoopPreset(
        "gap-analysis",
        20,
        "Compare what is there with what should be.",
        "Compare what is there with what is asked for. List in GAPS.md what is missing, what is "
        "different and what is superfluous, each with its place. Change nothing else.",
        validate=False,
    ),
)

LOOP_PRESETS: dict[str, LoopPreset] = {preset.name: preset for preset in _LOOP_PRESETS}
"""The presets of `switchgear run`, by name."""
