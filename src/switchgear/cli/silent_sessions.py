"""Tells the silence of sessions while `switchgear watch` runs: of those that no watcher looks at.

Whoever watches sees every session of the store, and knows neither their folders nor what their
projects want to be done. So it steps in nowhere: that is left to the sessions' own hooks.
"""

import time
from collections.abc import Callable

from switchgear.cli.opening import Session
from switchgear.hooks.rounds import Rounds
from switchgear.hooks.sessions import Notes, note_name
from switchgear.hooks.watching import Look, at_work, look_for_a_watcher


def rounds_of(session: Session) -> Callable[[], None]:
    """A function to be called now and then, which never waits."""

    def look(name: str) -> Look:
        store = session.panel.store
        found = store.get(note_name(name))
        if found is None:
            return Look(Notes(), known=False)
        return look_for_a_watcher(session, name, found.policy)

    rounds = Rounds(look, find=lambda: at_work(session.panel.store))
    return lambda: rounds.tick(time.monotonic())
