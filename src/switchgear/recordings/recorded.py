"""What a recorded session is, whatever wrote it: steps in order, and how it ended if that is known.

Texts come from agents and from what agents read. They are cut and without secrets here, and still
hostile: whoever shows them cleans them for the place where they are shown.
"""

from collections import Counter
from typing import NamedTuple

from switchgear.agents.events import Usage
from switchgear.core.types import Act, Signal

MOST_STEPS = 20_000
"""Steps kept of one run; a run that has more says so."""
MOST_KINDS = 50
"""Kinds of unknown lines that are named; more are counted together."""


class RecordedStep(NamedTuple):
    """One step of an agent, or one iteration of a loop."""

    tool: str = ""
    """The tool's own name; empty: it only talked."""
    args: str = ""
    result: str | None = None
    thought: str | None = None
    ok: bool | None = None
    """`None`: the recording does not say."""
    error: str | None = None
    at_s: float | None = None
    """When it ended: since the epoch, or since the start of the run."""
    seconds: float | None = None
    usages: tuple[Usage, ...] = ()
    """What the model took for it: of this step alone, not a running total."""
    changed: bool | None = None
    """Whether it changed the work; `None`: that cannot be told."""
    files_changed: int | None = None
    tests_passing: int | None = None
    output_chars: int | None = None
    is_act: bool = True
    """False: no step of an agent but facts about a whole iteration of a loop."""

    def signal(self) -> Signal:
        """The facts, as a circuit is told them."""
        act = Act(self.tool, self.args, self.result, self.thought) if self.is_act else None
        costs = [usage.cost_micros for usage in self.usages]
        return Signal(
            ok=self.ok,
            seconds=self.seconds,
            error=self.error,
            cost_micros=sum(cost for cost in costs if cost is not None) if any(costs) else None,
            files_changed=self.files_changed,
            tests_passing=self.tests_passing,
            output_chars=self.output_chars,
            act=act,
        )


class Recorded(NamedTuple):
    """One run of one agent; a sub-agent is a run of its own.

    >>> Recorded("r1", "runs.jsonl", "plain", steps=(RecordedStep("bash", "make"),)).task
    ''
    """

    id: str
    source: str
    """The file that it was read from."""
    format: str
    agent: str = ""
    model: str | None = None
    task: str = ""
    solved: bool | None = None
    """Whether the task was solved in the end; `None`: the recording does not say."""
    ended: str = ""
    """Why it ended, in the words of the recording."""
    steps: tuple[RecordedStep, ...] = ()
    cost_micros: int | None = None
    """What the whole run cost, where its steps do not say."""
    left_out: int = 0
    """Steps beyond `MOST_STEPS`."""

    @property
    def group(self) -> str:
        """What must not be torn apart when runs are divided: the task, else the run itself."""
        return self.task or self.id


class Tally:
    """What was read and what was not understood, by name. Added up over files; one thread."""

    def __init__(self) -> None:
        self.files = 0
        self.runs = 0
        self.empty = 0
        """Sessions in which the agent did nothing."""
        self.formats: Counter[str] = Counter()
        self.unknown: Counter[str] = Counter()
        """Lines that were not understood, by what they are."""
        self.problems: list[tuple[str, str]] = []
        """Files that could not be read, and why: the first of them."""
        self.problem_count = 0

    def unknown_line(self, format_name: str, kind: object) -> None:
        """Count a line that was not understood."""
        name = f"{format_name}: {_name(kind)}"
        if name not in self.unknown and len(self.unknown) >= MOST_KINDS:
            name = f"{format_name}: other kinds"
        self.unknown[name] += 1

    def problem(self, path: str, why: str) -> None:
        """Note a file that could not be read."""
        self.problem_count += 1
        if len(self.problems) < MOST_KINDS:
            self.problems.append((path, why))

    def add(self, other: "Tally") -> None:
        """Add what another one counted."""
        self.files += other.files
        self.runs += other.runs
        self.empty += other.empty
        self.formats.update(other.formats)
        for name, count in other.unknown.items():
            known = name in self.unknown or len(self.unknown) < MOST_KINDS
            self.unknown[name if known else "other kinds"] += count
        self.problem_count += other.problem_count
        self.problems = (self.problems + other.problems)[:MOST_KINDS]


def _name(kind: object) -> str:
    """A kind in a few plain characters: it comes out of the file."""
    said = kind if isinstance(kind, str) and kind else "a line without a kind"
    return "".join(sign if sign.isprintable() else "?" for sign in said[:60])
