"""What a run and its iterations need beside the options: views, clocks, locks, policies."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from switchgear._agents.base import Agent
from switchgear._agents.process import SupervisorPool
from switchgear._core.policy import Policy
from switchgear._measure.tree import Tree
from switchgear._opinion.opinion import SecondOpinion
from switchgear._run.interrupt import Interrupt, Time
from switchgear._run.options import RunOptions
from switchgear._run.record import RunFolder
from switchgear._run.run_lock import RunLock
from switchgear._run.view import RunView
from switchgear._sinks.dispatch import Sink
from switchgear._stuck.escalation import Interventions
from switchgear._stuck.messages import Option

Choose = Callable[[str, tuple[Option, ...]], str | None]
"""Shows a text and asks which option; `None`: no answer."""


class RunDependencies(NamedTuple):
    """What a run is given beside its options; each has a sensible default."""

    view: RunView = RunView()
    interrupt: Interrupt | None = None
    time: Time = Time()
    policy: Policy | None = None
    """Instead of the one that the options describe."""
    sinks: tuple[Sink, ...] = ()
    report: Callable[[RunFolder], Path] | None = None
    """Writes a report of the finished run and returns its path."""
    circuit: str | None = None
    """The loop's circuit, for a run that continues; `None`: by folder, task, agent, validation."""
    answer: str | None = None
    """The operator's answer to the agent's question, for the first prompt."""
    interventions: Interventions = Interventions()
    """What is done about a stuck agent, where the options watch for one."""
    second_opinion: SecondOpinion | None = None
    """Who is asked before a stuck agent is stopped; `None`: nothing is."""
    stuck_policy: Policy | None = None
    """Instead of the preset `stuck`."""
    progress_policy: Policy | None = None
    """Instead of the preset `progress`."""
    held_micros: int | None = None
    """The reservation in a budget tree: the run's budget while this process runs it."""
    choose: Choose | None = None
    """Asks the user what to do about a stuck agent; `None`: no terminal."""
    locks: tuple[RunLock, ...] = ()
    """The locks of the task and of the run, if the caller took them; the run releases them at its end."""
    in_batch: bool = False
    """Whether the run is a task of a batch, which continues without it."""


class IterationContext(NamedTuple):
    """What every iteration of a run works with."""

    options: RunOptions
    agent: Agent
    folder: Path
    record: RunFolder
    tree: Tree
    view: RunView
    interrupt: Interrupt
    time: Time
    supervisors: SupervisorPool
    evidence: Path | None = None
    """The file with the evidence against a stuck agent."""
    helps: bool = False
    """Whether the escalation agent has taken over."""
