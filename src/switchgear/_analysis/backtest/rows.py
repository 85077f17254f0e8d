"""What a backtest finds out about one run: facts about it, and what each policy would have done."""

from typing import NamedTuple


class RunFacts(NamedTuple):
    """One recorded run, without its texts."""

    id: str
    source: str
    format: str
    agent: str
    model: str | None
    task: str
    solved: bool | None
    ended: str
    steps: int
    tokens: int
    """0: the recording has none."""
    cost_micros: int | None
    cost_unknown: str
    """Why there is no cost; empty where there is one."""
    timed: bool
    """Whether the recording says when its steps were."""


class Shown(NamedTuple):
    """One step as evidence: bounded, one safe line each."""

    number: int
    tool: str
    args: str
    ok: bool | None
    told: str
    """The error, else the beginning of the result."""
    thought: str


class Judged(NamedTuple):
    """What one policy would have done with one run. Steps count from 1."""

    policy: str
    warned_at: int | None = None
    """The first step after which it was worried."""
    warnings: int = 0
    tripped_at: int | None = None
    """The step after which it would have stopped the run."""
    detector: str = ""
    """The kind of the detector that tripped, or was the hottest."""
    reason: str = ""
    hottest: float = 0.0
    saved_steps: int = 0
    saved_tokens: int = 0
    saved_micros: int | None = 0
    """`None`: steps were saved, and their price is not known."""
    harmful: bool | None = None
    """Of a run that was solved: whether the work was still changed after the stop."""
    evidence: tuple[Shown, ...] = ()
    kinds: tuple[str, ...] = ()
    heats: tuple[tuple[int, tuple[float, ...]], ...] = ()
    """For the picture: some steps, and how hot each detector was after them."""

    @property
    def stopped(self) -> bool:
        """Whether it would have stopped anything: after the last step nothing is left to stop."""
        return self.tripped_at is not None and self.saved_steps > 0


class Row(NamedTuple):
    """One run with the judgement of each policy."""

    run: RunFacts
    judged: tuple[Judged, ...]
