"""Measure 13: a step of an agent with the progress detectors, also late in a long session.

A hook records a step and saves the detectors' state with each of an agent's calls, so both must
stay small: the step in microseconds, the state in kilobytes, at the ten-thousandth step as at the
hundredth. Steps are generated: texts of the usual lengths, a third of them repeated, one in eight
failing.
"""

from __future__ import annotations

import json
import random
import statistics
import time
from typing import TYPE_CHECKING, NamedTuple

from bench.library import Role
from bench.result import Bar, Row, Section
from switchgear._config import preset_policy
from switchgear._core.types import AgentStep, Signal

if TYPE_CHECKING:
    from bench.measure import Effort

AT_MOST_MICROSECONDS = 250.0
AT_MOST_BYTES = 20_000.0
AT_MOST_TIMES = 1.5
PART = 1_000
WORDS = [
    *("parser", "token", "state", "cache", "index", "value", "error", "stack", "frame", "scope"),
    *("import", "return", "module", "string", "number", "reader", "writer", "buffer", "offset"),
]


class Part(NamedTuple):
    """A thousand steps: the median of one in microseconds, and the size of the state after them."""

    step_us: float
    stored_bytes: int


def section(effort: Effort) -> Section:
    parts = _parts(max(2 * PART, effort.breakers))
    steps_us = [part.step_us for part in parts]
    stored = [part.stored_bytes for part in parts]
    return Section(
        key="ledger",
        title="A step of an agent with the progress detectors",
        method=(
            f"The detector of the preset over {len(parts) * PART:,} generated steps of one agent; "
            "the median of a step in each thousand, and the stored state as JSON after it."
        ),
        columns=("step", "stored state"),
        rows=[
            Row(
                f"steps {n * PART + 1:,} to {(n + 1) * PART:,}",
                Role.OURS,
                (f"{part.step_us:,.0f} us", f"{part.stored_bytes:,} bytes"),
                part.step_us,
            )
            for n, part in enumerate(parts)
        ],
        bars=[
            Bar("microseconds per step", statistics.median(steps_us), AT_MOST_MICROSECONDS),
            Bar("bytes of stored state", float(max(stored)), AT_MOST_BYTES),
            Bar(
                "times the second thousand steps, for the last",
                steps_us[-1] / steps_us[1],
                AT_MOST_TIMES,
            ),
        ],
        numbers={"step_us": steps_us, "stored_bytes": stored},
    )


def _parts(steps: int) -> list[Part]:
    chance = random.Random(7)  # the same steps in every run
    policy = preset_policy("default")
    memories, parts, taken_s = policy.fresh_memories(), list[Part](), list[float]()
    earlier: list[Signal] = []
    for number in range(1, steps + 1):
        signal = chance.choice(earlier) if earlier and chance.random() < 1 / 3 else _made(chance)
        earlier = [*earlier[-20:], signal]
        begun_s = time.perf_counter()
        memories = policy.fold(memories, signal, 0.0)
        taken_s.append(time.perf_counter() - begun_s)
        if number % PART == 0:
            pairs = zip(policy.detectors, memories, strict=True)
            stored = len(json.dumps([detector.dump(memory) for detector, memory in pairs]))
            parts.append(Part(statistics.median(taken_s) * 1e6, stored))
            taken_s = []
    return parts


def _made(chance: random.Random) -> Signal:
    def text(words: int) -> str:
        return " ".join(
            f"{chance.choice(WORDS)}_{chance.randrange(400)}" if chance.random() < 0.3 else word
            for word in chance.choices(WORDS, k=words)
        )

    result = "\n".join(text(6) for _ in range(chance.choice((1, 2, 5, 10, 40))))
    path = f"src/{chance.choice(WORDS)}{chance.randrange(99)}.py"
    ok = chance.random() > 1 / 8
    error = None if ok else f"{chance.choice(WORDS)} failed: exit code {chance.randrange(4)}"
    act = AgentStep("bash", f"{text(chance.choice((2, 8, 60)))} {path}", result, text(40))
    return Signal(ok=ok, error=error, step=act)
