"""The second opinion in a run: requested when the agent is about to be stopped, before the escalation."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from switchgear._breaker.handle import Breaker
from switchgear._core.types import EventKind, Override, Signal
from switchgear._opinion import opinion
from switchgear._opinion.consult import FOLDER, consult_in_thread
from switchgear._opinion.opinion import HINT, SecondOpinion, StuckEvidence
from switchgear._run.state import IterationContext, short_task
from switchgear._stores.url import default_file, keep_out_of_git
from switchgear._stuck.score import Score

_DEFINITE = ("violation",)
"""Detectors whose trips need no opinion."""


class Reviewer:
    """Requests the second opinion of one run. Used by one thread."""

    def __init__(self, settings: SecondOpinion, context: IterationContext) -> None:
        self._settings = settings
        self._context = context
        self._steps: tuple[str, ...] = ()
        self._delays = 0
        self._delay_left = 0
        self._delayed: Score | None = None
        self._hint = ""
        self.waiting: Callable[[], AbstractContextManager[Callable[[], bool]]]
        """Entered while an opinion is awaited; yields a function that returns whether the run must end."""
        self.waiting = lambda: nullcontext(lambda: False)

    def see(self, signal: Signal) -> None:
        """Keep a step for the evidence; measured progress ends a delay."""
        self._steps = opinion.with_step(self._steps, signal)
        if signal.files_changed:
            self._delayed = None

    def grants_delay(self, circuit: Breaker, score: Score) -> bool:
        """Request an opinion about a circuit that has opened. Returns whether the agent may continue for now."""
        kinds = {share.kind for share in score.shares if share.trips}
        if kinds.intersection(_DEFINITE):
            return False
        settings, options, folder = self._settings, self._context.options, str(self._context.folder)
        evidence = StuckEvidence(
            *(options.agent_label, short_task(options.task), 1.0, score.evidence, (), self._steps)
        )
        state_folder = Path(default_file(folder)).parent
        keep_out_of_git(str(state_folder))
        request = evidence.request(settings)
        with self.waiting() as run_ends:
            found = consult_in_thread(
                settings, request, str(state_folder / FOLDER), folder, run_ends
            )
        granted, sentence = found.decide_delay(self._delays, settings)
        circuit.send(
            Override("second opinion", sentence, reset=granted, kind=EventKind.SECOND_OPINION)
        )
        self._context.view.noted(f"second opinion: {sentence}")
        self._hint = opinion.for_agent(found.hint) if found.verdict == HINT else ""
        if granted:
            self._delays += 1
            self._delay_left, self._delayed = found.steps, score
        return granted

    def due(self, signal: Signal) -> Score | None:
        """Count a step of a delay. Returns the score of the delayed stop if it is due now."""
        if self._delayed is None or signal.step is None:
            return None
        self._delay_left -= 1
        if self._delay_left > 0:
            return None
        score, self._delayed = self._delayed, None
        return score

    def take_hint(self) -> str | None:
        """The hint for the next nudge, once; `None`: there is none."""
        hint, self._hint = self._hint, ""
        return hint or None
