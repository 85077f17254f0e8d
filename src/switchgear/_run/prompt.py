"""The prompt of an iteration: the task, its checklist, the results so far, the evidence.

Each iteration is a fresh process without memory, so everything it must know is here. What an agent or
a command printed is quoted, indented, and marked as a quotation.
"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from switchgear._run.options import RunOptions
from switchgear._system.files import read_regular

_BOX = re.compile(r"^\s{0,12}(?:[-*+]|\d{1,4}[.)])\s{1,4}\[(?P<tick>[ xX])\]\s{0,4}(?P<item>.*)$")
LONGEST = 1_000_000


class Checklist(NamedTuple):
    """What is ticked and what is open."""

    done: int
    open: tuple[str, ...]

    @property
    def is_done(self) -> bool:
        """Whether every box is ticked; a plan without a box never is."""
        return bool(self.done) and not self.open


def check_plan(folder: Path, plan: str | None) -> None:
    """Raises ValueError if there is something in the plan's place that can never be one.

    No file at all is fine: the agent may write it.
    """
    if plan is None:
        return
    try:
        read_regular(folder / plan, 0)
    except FileNotFoundError:
        return
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise ValueError(
            f"--plan {plan!r}: {why}; it must be a text file with a checklist"
        ) from None


def read_checklist(path: Path) -> Checklist | None:
    """The checklist of a file; `None`: it cannot be read."""
    try:
        text = read_regular(path, LONGEST).decode(errors="replace")
    except (OSError, ValueError):  # a name that no file can have, too
        return None
    boxes = [match for line in text.splitlines() if (match := _BOX.match(line))]
    left = tuple(match["item"].strip() for match in boxes if match["tick"] == " ")
    return Checklist(len(boxes) - len(left), left)


QUOTED_LINES = 60
NOTES = 8


class PromptFacts(NamedTuple):
    """The facts about a run before an iteration."""

    number: int
    """Of the iteration, from 1."""
    notes: Sequence[str] = ()
    """Sentences about the last iteration."""
    nudge: str | None = None
    """The evidence, when one more such iteration may stop the loop."""
    failed: str | None = None
    """The end of what the validation printed, when it failed."""
    answer: str | None = None
    """The operator's answer to the agent's question."""
    plan: Checklist | None = None
    advice: str | None = None
    """What the last agent was stopped for, and what to do instead."""
    time: str | None = None
    """That little time is left."""


def prompt_of(options: RunOptions, standing: PromptFacts) -> str:
    """The prompt of one iteration."""
    parts = [
        options.prompt,
        f"Task:\n{options.task}",
        _plan(options, standing.plan),
        _progress(standing),
        _validation(options, standing.failed),
        _answer(standing.answer),
        _nudge(standing.nudge),
        standing.advice,
        standing.time,
        _ending(options),
    ]
    return "\n\n".join(part.strip() for part in parts if part and part.strip()) + "\n"


def _plan(options: RunOptions, plan: Checklist | None) -> str:
    if options.plan is None:
        return ""
    then = "Take the first box that is open, do it, and tick it when it is really done."
    if plan is None:
        return f"The plan is {options.plan}, which cannot be read yet: write it as a checklist first, with a box `- [ ]` for each step."
    ticked = "1 box is ticked" if plan.done == 1 else f"{plan.done} boxes are ticked"
    left = f"{ticked}, {len(plan.open)} {'is' if len(plan.open) == 1 else 'are'} open."
    following = f" The next one: {plan.open[0]}" if plan.open else ""
    return f"The plan is the checklist in {options.plan}. {left}{following}\n{then}"


def _progress(standing: PromptFacts) -> str:
    if standing.number == 1 and not standing.notes:
        return ""
    first = (
        f"This is iteration {standing.number} of a loop. Earlier iterations worked on the same "
        "task; look at the files to see what they left."
    )
    notes = "\n".join(f"- {note}" for note in list(standing.notes)[-NOTES:])
    return f"{first}\n{notes}" if notes else first


def _validation(options: RunOptions, failed: str | None) -> str:
    if options.validate is None or failed is None:
        return ""
    lines = failed.strip().splitlines()[-QUOTED_LINES:]
    quoted = "\n".join(f"    {line}" for line in lines)
    return f"The validation `{options.validate}` failed. The end of its output, quoted:\n{quoted}"


def _answer(answer: str | None) -> str:
    return "" if answer is None else f"The answer to your question:\n{answer}"


def _nudge(nudge: str | None) -> str:
    if nudge is None:
        return ""
    return (
        f"Warning: this loop is about to be stopped.\n{nudge}\n"
        "Do not repeat what was tried. Find out first why it failed, try another way, and change "
        "something that can be measured: files, or more tests passing."
    )


def _ending(options: RunOptions) -> str:
    validation = f" It is checked by `{options.validate}`." if options.validate else ""
    alone = (
        "No one can answer questions while you work; where the task leaves you a choice, choose."
    )
    if options.completion_promise is None:
        return f"{alone}{validation}"
    return (
        f"{alone} When the whole task is done, and not before, say exactly this:\n"
        f"{options.completion_promise}\nIt is a claim, and what you did is measured.{validation}"
    )
