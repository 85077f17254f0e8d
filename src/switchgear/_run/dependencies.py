"""What a run is given beside its options: who watches, who can be asked, where time comes from."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from switchgear._core.policy import Policy
from switchgear._run.interrupt import Interrupt
from switchgear._run.record import RunFolder
from switchgear._run.run_lock import RunLock
from switchgear._run.stuck_help import Choose
from switchgear._run.view import View
from switchgear._run.wait import Time
from switchgear._sinks.dispatch import Sink
from switchgear._stuck.escalation import Interventions


class Setting(NamedTuple):
    """What a run is given beside its options; each has a sensible default."""

    view: View = View()
    interrupt: Interrupt | None = None
    time: Time = Time()
    policy: Policy | None = None
    """Instead of the one that the options describe."""
    sinks: tuple[Sink, ...] = ()
    report: Callable[[RunFolder], Path] | None = None
    """Writes a report of the finished run, and says where."""
    circuit: str | None = None
    """The loop's circuit, for a run that continues; `None`: by folder, task, agent, validation."""
    answer: str | None = None
    """What the operator says to the agent's question, in the first prompt."""
    interventions: Interventions = Interventions()
    """What is done about a stuck agent, where the options watch for one."""
    stuck_policy: Policy | None = None
    """Instead of the preset `stuck`."""
    progress_policy: Policy | None = None
    """Instead of the preset `progress`."""
    held_micros: int | None = None
    """What is set aside for it in a tree of budgets: its budget while this process runs it."""
    choose: Choose | None = None
    """Asks a person what to do about a stuck agent; `None`: nobody is there."""
    locks: tuple[RunLock, ...] = ()
    """The locks of the task and of the run, if the caller took them; the run releases them at its end."""
    in_batch: bool = False
    """Whether the run is a task of a batch, which continues without it."""
