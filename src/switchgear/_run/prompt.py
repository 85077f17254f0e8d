"""The prompt of an iteration: the task, its checklist, the results so far, the evidence.

Each iteration is a fresh process without memory, so everything it must know is here. What an agent or
a command printed is quoted, indented, and marked as a quotation.
"""

import re
from pathlib import Path
from typing import NamedTuple

from switchgear._run.options import RunOptions
from switchgear._run.state import RunState
from switchgear._system.files import read_regular

_BOX = re.compile(r"^\s{0,12}(?:[-*+]|\d{1,4}[.)])\s{1,4}\[(?P<tick>[ xX])\]\s{0,4}(?P<item>.*)$")
MAX_PLAN_BYTES = 1_000_000


class Checklist(NamedTuple):
    done: int
    open: tuple[str, ...]

    @property
    def is_done(self) -> bool:
        """Whether every box is ticked; a plan without a box never is."""
        return bool(self.done) and not self.open


def check_plan(folder: Path, plan: str | None) -> None:
    """Raise ValueError if the path of the plan exists but is not a readable file.

    A missing file is fine: the agent may write it.
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


def read_plan(folder: Path, plan: str | None) -> Checklist | None:
    """The checklist of a run's plan; `None`: it has none, or it cannot be read."""
    if plan is None:
        return None
    try:
        text = read_regular(folder / plan, MAX_PLAN_BYTES).decode(errors="replace")
    except (OSError, ValueError):  # ValueError: no file can have this name
        return None
    boxes = [match for line in text.splitlines() if (match := _BOX.match(line))]
    left = tuple(match["item"].strip() for match in boxes if match["tick"] == " ")
    return Checklist(len(boxes) - len(left), left)


QUOTED_LINES = 60
MAX_NOTES = 8


def prompt_of(
    options: RunOptions,
    state: RunState,
    *,
    plan: Checklist | None = None,
    answer: str | None = None,
    time: str | None = None,
) -> str:
    """The prompt of the next iteration.

    `answer` answers the agent's question; `time` warns that little time is left.
    """
    parts = [
        options.prompt,
        f"Task:\n{options.task}",
        _plan(options, plan),
        _progress(state),
        _validation(options, state.failed_output),
        f"The answer to your question:\n{answer}" if answer is not None else None,
        _nudge(state.nudge),
        state.advice,
        time,
        _rules(options),
    ]
    return "\n\n".join(part.strip() for part in parts if part and part.strip()) + "\n"


def _plan(options: RunOptions, plan: Checklist | None) -> str:
    if options.plan is None:
        return ""
    instruction = "Take the first open box, do it, and tick it when it is really done."
    if plan is None:
        return f"The plan is {options.plan}, which cannot be read yet: write it as a checklist first, with a box `- [ ]` for each step."
    ticked = "1 box is ticked" if plan.done == 1 else f"{plan.done} boxes are ticked"
    left = f"{ticked}, {len(plan.open)} {'is' if len(plan.open) == 1 else 'are'} open."
    following = f" The next one: {plan.open[0]}" if plan.open else ""
    return f"The plan is the checklist in {options.plan}. {left}{following}\n{instruction}"


def _progress(state: RunState) -> str:
    if not state.iterations and not state.notes:
        return ""
    first = (
        f"This is iteration {state.iterations + 1} of a loop. Earlier iterations worked on the same "
        "task; look at the files to see what they left."
    )
    return "\n".join((first, *(f"- {note}" for note in state.notes[-MAX_NOTES:])))


def _validation(options: RunOptions, failed: str | None) -> str:
    if options.validate is None or failed is None:
        return ""
    lines = failed.strip().splitlines()[-QUOTED_LINES:]
    quoted = "\n".join(f"    {line}" for line in lines)
    return f"The validation `{options.validate}` failed. The end of its output, quoted:\n{quoted}"


def _nudge(nudge: str | None) -> str:
    if nudge is None:
        return ""
    return (
        f"Warning: this loop is about to be stopped.\n{nudge}\n"
        "Do not repeat what was tried. Find out first why it failed, try another way, and change "
        "something that can be measured: files, or more tests passing."
    )


def _rules(options: RunOptions) -> str:
    validation = f" It is checked by `{options.validate}`." if options.validate else ""
    alone = (
        "No one can answer questions while you work; where the task leaves you a choice, choose."
    )
    if options.completion_promise is None:
        return f"{alone}{validation}"
    return (
        f"{alone} When the whole task is done, and not before, print exactly this:\n"
        f"{options.completion_promise}\nThis is only a claim: your work is measured.{validation}"
    )
