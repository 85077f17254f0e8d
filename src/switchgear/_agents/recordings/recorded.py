"""Puts the steps of one run together: what was said, calls that wait for their results, usage.

Recordings tell these apart and in several orders; every reader says them here in the order in
which they stand.
"""

from collections import Counter
from typing import NamedTuple

from switchgear._agents.events import Usage
from switchgear._agents.recordings.texts import as_json, body, changed, error_line, name, succeeded
from switchgear._core.types import AgentStep, Signal

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
        act = AgentStep(self.tool, self.args, self.result, self.thought) if self.is_act else None
        costs = [usage.cost_micros for usage in self.usages]
        return Signal(
            ok=self.ok,
            seconds=self.seconds,
            error=self.error,
            cost_micros=sum(cost for cost in costs if cost is not None) if any(costs) else None,
            files_changed=self.files_changed,
            tests_passing=self.tests_passing,
            output_chars=self.output_chars,
            step=act,
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
        for kind, count in other.unknown.items():
            known = kind in self.unknown or len(self.unknown) < MOST_KINDS
            self.unknown[kind if known else "other kinds"] += count
        self.problem_count += other.problem_count
        self.problems = (self.problems + other.problems)[:MOST_KINDS]


def _name(kind: object) -> str:
    """A kind in a few plain characters: it comes out of the file."""
    said = kind if isinstance(kind, str) and kind else "a line without a kind"
    return "".join(sign if sign.isprintable() else "?" for sign in said[:60])


_MOST_WAITING = 256
_LONGEST_SAID = 8000


class _Call(NamedTuple):
    place: int
    arguments: object
    began_s: float | None


class Building:
    """One run while it is read. `run` holds what is known of it besides its steps."""

    def __init__(self, run: Recorded) -> None:
        self.run = run
        self._steps: list[RecordedStep] = []
        self._left_out = 0
        self._said: list[str] = []
        self._said_chars = 0
        self._usages: list[Usage] = []
        self._calls: dict[str, _Call] = {}
        self._last_s: float | None = None

    def know(self, **facts: object) -> None:
        """Facts about the run; what is known already, or told as nothing, stays."""
        new = {key: value for key, value in facts.items() if value and not getattr(self.run, key)}
        if new:
            self.run = self.run._replace(**new)  # type: ignore[arg-type]

    def say(self, text: object) -> None:
        """Something the agent said or thought; it belongs to its next call."""
        if isinstance(text, str) and text.strip() and self._said_chars < _LONGEST_SAID:
            self._said.append(text)
            self._said_chars += len(text)

    def use(self, usage: Usage) -> None:
        """What an answer of the model took; it belongs to the next step."""
        if usage.input_tokens or usage.output_tokens or usage.cost_micros:
            self._usages.append(usage)

    def used(self, usage: Usage) -> None:
        """What the answer before took, told behind it: it belongs to the last step."""
        if self._said or not self._steps:
            self.use(usage)
        elif usage.input_tokens or usage.output_tokens or usage.cost_micros:
            last = self._steps[-1]
            self._steps[-1] = last._replace(usages=(*last.usages, usage))

    def call(self, call_id: object, tool: object, arguments: object, at_s: float | None) -> None:
        """A tool is called."""
        if len(self._steps) >= MOST_STEPS:
            self._left_out += 1
            return
        if len(self._calls) >= _MOST_WAITING:
            del self._calls[next(iter(self._calls))]
        self._calls[str(call_id)] = _Call(len(self._steps), arguments, at_s)
        thought, usages = self._take()
        shown = name(tool) or "tool"
        self._steps.append(
            RecordedStep(
                shown, body(as_json(arguments)) or "", None, thought,
                at_s=self._time(at_s), usages=usages,
            )
        )  # fmt: skip

    def result(
        self,
        call_id: object,
        output: str,
        at_s: float | None,
        *,
        ok: bool | None = None,
        seconds: float | None = None,
    ) -> None:
        """What came back of a call. `ok=None`: the recording has no verdict, the output shows it."""
        call = self._calls.pop(str(call_id), None)
        if call is None:
            return
        step = self._steps[call.place]
        good = succeeded(step.tool, output) if ok is None else ok
        if seconds is None and at_s is not None and call.began_s is not None:
            seconds = max(at_s - call.began_s, 0.0)
        self._steps[call.place] = step._replace(
            result=body(output),
            ok=good,
            error=None if good else error_line(output),
            at_s=self._time(at_s) if at_s is not None else step.at_s,
            seconds=seconds,
            changed=changed(step.tool, call.arguments, ok=good),
        )

    def turn(self, at_s: float | None = None) -> None:
        """The answer is complete: what was said without a call is a step of its own."""
        if not self._said:
            return
        thought, usages = self._take()
        self.add(RecordedStep(thought=thought, ok=None, at_s=at_s, usages=usages, changed=False))

    def add(self, step: RecordedStep) -> None:
        """A step that is complete as it is."""
        if len(self._steps) >= MOST_STEPS:
            self._left_out += 1
            return
        if self._usages:
            step = step._replace(usages=(*step.usages, *self._usages))
            self._usages = []
        self._steps.append(step._replace(at_s=self._time(step.at_s)))

    def said(self) -> str | None:
        """What was said since the last step, taken."""
        thought = body("\n".join(self._said).strip()) if self._said else None
        self._said, self._said_chars = [], 0
        return thought

    def finish(self) -> Recorded:
        """The run. What was used after the last step is part of that one."""
        self.turn()
        if self._usages and self._steps:
            last = self._steps[-1]
            self._steps[-1] = last._replace(usages=(*last.usages, *self._usages))
        return self.run._replace(steps=tuple(self._steps), left_out=self._left_out)

    def _take(self) -> tuple[str | None, tuple[Usage, ...]]:
        usages = tuple(self._usages)
        self._usages = []
        return self.said(), usages

    def _time(self, at_s: float | None) -> float | None:
        """Time in a run never goes backwards, whatever the recording says."""
        if at_s is None:
            return self._last_s
        self._last_s = at_s if self._last_s is None else max(at_s, self._last_s)
        return self._last_s
