"""The detectors of others, made anew from the rules that they describe, to stand beside the ledger.

Each takes the recorded steps of a run one by one and says whether it would stop the run now. None
of their code is here; where a rule needs what recordings do not have, it is left out and said so
on `docs/stuck.md`.
"""

import re
from collections import Counter, deque
from collections.abc import Callable
from typing import Any

Step = dict[str, Any]
Stopper = Callable[[Step], bool]


def call_of(step: Step) -> tuple[str, str]:
    """The tool and the digest of all its arguments."""
    return step["tool"], step["args_sha"]


def openhands(nudges: int = 0) -> Stopper:
    """Four equal steps, three equal failing actions, or two steps that alternate three times.

    With a nudge, the first finding only tells the agent, and the search begins anew.
    """
    last: deque[tuple[Any, ...]] = deque(maxlen=6)
    left = [nudges]

    def stuck() -> bool:
        steps = list(last)
        same = len(steps) >= 4 and len({step[:3] for step in steps[-4:]}) == 1
        failing = steps[-3:]
        fails = (
            len(failing) == 3 and all(s[3] for s in failing) and len({s[:2] for s in failing}) == 1
        )
        pairs = [step[:3] for step in steps]
        swings = len(pairs) == 6 and pairs[:2] * 3 == pairs and pairs[0] != pairs[1]
        return same or fails or swings

    def see(step: Step) -> bool:
        last.append((*call_of(step), step["obs_sha"], step["error"]))
        if not stuck():
            return False
        left[0] -= 1
        last.clear()
        return left[0] < 0

    return see


def gemini_cli() -> Stopper:
    """Five equal calls in a row; the question to a model after 30 turns is left out."""
    last: deque[tuple[str, str]] = deque(maxlen=5)

    def see(step: Step) -> bool:
        last.append(call_of(step))
        return len(last) == 5 and len(set(last)) == 1

    return see


def openclaw() -> Stopper:
    """Its warning: the same call 10 times among the last 30, or two calls that alternate 10 times."""
    last: deque[tuple[str, str]] = deque(maxlen=30)

    def see(step: Step) -> bool:
        last.append(call_of(step))
        calls = list(last)[-10:]
        swings = len(calls) == 10 and calls[:2] * 5 == calls and calls[0] != calls[1]
        return swings or last.count(last[-1]) >= 10

    return see


def opencode() -> Stopper:
    """Three equal calls in a row, as documented."""
    last: deque[tuple[str, str]] = deque(maxlen=3)

    def see(step: Step) -> bool:
        last.append(call_of(step))
        return len(last) == 3 and len(set(last)) == 1

    return see


def openrouter() -> Stopper:
    """The same inputs to one tool three times in a row, whatever other tools did in between."""
    streaks: dict[str, tuple[str, int]] = {}

    def see(step: Step) -> bool:
        tool, args = call_of(step)
        before, length = streaks.get(tool, ("", 0))
        streaks[tool] = (args, length + 1 if args == before else 1)
        return streaks[tool][1] >= 3

    return see


def litellm() -> Stopper:
    """The same call three times among the last twenty."""
    last: deque[tuple[str, str]] = deque(maxlen=20)

    def see(step: Step) -> bool:
        last.append(call_of(step))
        return last.count(last[-1]) >= 3

    return see


def seen_again() -> Stopper:
    """The same call with the same result, but for numbers, five times in all."""
    seen: Counter[tuple[str, str, str]] = Counter()

    def see(step: Step) -> bool:
        result = re.sub(r"0x[0-9a-fA-F]+|\b[0-9a-f]{8,40}\b|\d+", "#", step["observation"])
        key = (*call_of(step), " ".join(result.split()))
        seen[key] += 1
        return seen[key] >= 5

    return see


def step_cap(most: int = 50) -> Stopper:
    """So many steps, whatever they did."""
    steps = [0]

    def see(step: Step) -> bool:
        del step
        steps[0] += 1
        return steps[0] >= most

    return see


PUBLISHED: dict[str, Callable[[], Stopper]] = {
    "OpenHands, stops at once": openhands,
    "OpenHands, nudges first": lambda: openhands(nudges=1),
    "Gemini CLI, equal calls": gemini_cli,
    "openclaw, its warning": openclaw,
    "opencode, as documented": opencode,
    "OpenRouter, streak per tool": openrouter,
    "LiteLLM, 3 of 20": litellm,
    "the same step 5 times": seen_again,
    "step cap 50": step_cap,
}
