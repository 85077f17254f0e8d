"""Ready-made loops, as data: how long they may run, what trips them, how the agent is addressed.

The names and limits are those of ralph-starter, whose users know them; the prompts are our own.
A flag of the command beats what a preset says. No class with behaviour, no branch, no loop.

Those that only read ask for their findings in a file: what is written down can be measured, and an
iteration that writes nothing is one that stands still.
"""

from typing import NamedTuple


class LoopPreset(NamedTuple):
    """What `switchgear run --preset NAME` starts from."""

    name: str
    max_iterations: int
    description: str
    prompt: str
    """Put before the task."""
    consecutive_failures: int = 3
    same_error: int = 5
    validate: bool = True
    """Run the validation after each iteration."""
    commit: bool = False
    """Commit after each iteration that passes the validation."""


_ALL = (
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
        "Find the cause of a defect and mend it.",
        "Reproduce the defect first, with a test if you can. Find its cause before you change "
        "anything, then mend the cause and not the symptom.",
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
        "finding into REVIEW.md, with input that triggers it. Mend nothing.",
        validate=False,
    ),
    LoopPreset(
        "docs",
        20,
        "Write or mend documentation.",
        "Write documentation for those who use this. Check each statement against the code and run "
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

LOOP_PRESETS: dict[str, LoopPreset] = {preset.name: preset for preset in _ALL}
"""The presets by name."""
