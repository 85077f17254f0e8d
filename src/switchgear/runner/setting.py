"""What a run is given beside its options: who watches, who can be asked, where time comes from."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from switchgear.core.policy import Policy
from switchgear.ladder import Interventions
from switchgear.listeners import Sink
from switchgear.runner.helping import Choose
from switchgear.runner.interrupt import Interrupt
from switchgear.runner.record import RunFolder
from switchgear.runner.run_lock import RunLock
from switchgear.runner.view import View
from switchgear.runner.waiting import Time


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
