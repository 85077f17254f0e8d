"""What the agent is told at the start of an iteration: the task, where things stand, the evidence.

Each iteration is a fresh process that remembers nothing, so everything it must know is here. What
an agent or a command printed is quoted, indented, and said to be a quotation.
"""

from collections.abc import Sequence
from typing import NamedTuple

from switchgear._run.options import RunOptions
from switchgear._run.plan import Plan

QUOTED_LINES = 60
NOTES = 8


class Standing(NamedTuple):
    """Where a run stands before an iteration."""

    number: int
    """Of the iteration, from 1."""
    notes: Sequence[str] = ()
    """What the last iteration was found to have done, as sentences."""
    nudge: str | None = None
    """The evidence, when one more such iteration may stop the loop."""
    failed: str | None = None
    """The end of what the validation printed, when it failed."""
    answer: str | None = None
    """What the operator says to the agent's question."""
    plan: Plan | None = None
    advice: str | None = None
    """What the last agent was stopped for, and what to do instead."""
    time: str | None = None
    """That little time is left."""


def prompt_of(options: RunOptions, standing: Standing) -> str:
    """The prompt of one iteration."""
    parts = [
        options.prompt,
        f"Task:\n{options.task}",
        _plan(options, standing.plan),
        _standing(options, standing),
        _validation(options, standing.failed),
        _answer(standing.answer),
        _nudge(standing.nudge),
        standing.advice,
        standing.time,
        _ending(options),
    ]
    return "\n\n".join(part.strip() for part in parts if part and part.strip()) + "\n"


def _plan(options: RunOptions, plan: Plan | None) -> str:
    if options.plan is None:
        return ""
    then = "Take the first box that is open, do it, and tick it when it is really done."
    if plan is None:
        return f"The plan is {options.plan}, which cannot be read yet: write it as a checklist first, with a box `- [ ]` for each step."
    ticked = "1 box is ticked" if plan.done == 1 else f"{plan.done} boxes are ticked"
    left = f"{ticked}, {len(plan.open)} {'is' if len(plan.open) == 1 else 'are'} open."
    following = f" The next one: {plan.open[0]}" if plan.open else ""
    return f"The plan is the checklist in {options.plan}. {left}{following}\n{then}"


def _standing(options: RunOptions, standing: Standing) -> str:
    if standing.number == 1 and not standing.notes:
        return ""
    first = (
        f"This is iteration {standing.number} of a loop. Earlier iterations worked on the same "
        "task; look at the files to see what they left."
    )
    notes = "\n".join(f"- {note}" for note in list(standing.notes)[-NOTES:])
    del options
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
        "Nobody can answer questions while you work; where the task leaves you a choice, choose."
    )
    if options.completion_promise is None:
        return f"{alone}{validation}"
    return (
        f"{alone} When the whole task is done, and not before, say exactly this:\n"
        f"{options.completion_promise}\nIt is a claim, and what you did is measured.{validation}"
    )
