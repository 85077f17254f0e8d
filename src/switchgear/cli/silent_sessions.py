"""Looks at silent sessions while `switchgear watch` runs: those that no watcher of their own looks at."""

import time
from collections.abc import Callable

from switchgear.cli.opening import Session
from switchgear.hooks.errands import start_help
from switchgear.hooks.rounds import Rounds
from switchgear.hooks.sessions import Notes, note_name
from switchgear.hooks.watching import Look, at_work, look_for_a_watcher


def rounds_of(session: Session) -> Callable[[], None]:
    """A function to be called now and then, which never waits."""
    plan = session.config.interventions

    def look(name: str) -> Look:
        store = session.panel.store
        found = store.get(note_name(name))
        if found is None:
            return Look(Notes(), known=False)
        return look_for_a_watcher(store, name, found.policy, plan)

    def help_(name: str, evidence: str) -> None:
        if plan.escalate:
            start_help(plan.escalate, evidence, name)

    rounds = Rounds(look, help_, lambda: at_work(session.panel.store))
    return lambda: rounds.tick(time.monotonic())
