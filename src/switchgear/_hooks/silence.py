"""The watcher of sessions that have none of their own: `switchgear serve` and `watch`, which run anyway.

These are sessions whose hooks come over HTTP, or whose agent's process could not be found. Whoever
makes rounds cannot tell which process an agent is either, so it interrupts nobody, and what an agent must
hear it hears at its next hook. `serve` tells the silence of the sessions of its project and takes rungs;
`watch` tells that of all, and does nothing else about it.
"""

import threading
from collections.abc import Callable, Iterable
from contextlib import suppress

from switchgear._hooks.session_check import LEAST_S, Look

FIND_S = 30.0
"""How often it is looked for sessions."""
LONGEST = 1000
"""Sessions that are watched at a time; of more the oldest are let go."""


class Rounds:
    """Looks at sessions, one after the other, in a thread of its own. Thread-safe.

    `look` looks at one; `help_` is called with a session and the evidence where help is wanted;
    `find` finds sessions at work.
    """

    def __init__(
        self,
        look: Callable[[str], Look],
        help_: Callable[[str, str], object] = lambda _, __: None,
        find: Callable[[], Iterable[str]] = tuple,
    ) -> None:
        self._look = look
        self._help = help_
        self._find = find
        self._find_due_s = 0.0
        self._lock = threading.Lock()
        self._due_s: dict[str, float] = {}
        self._under_way: threading.Thread | None = None

    def add(self, session: str) -> None:
        """Watch this session, too."""
        with self._lock:
            self._due_s.setdefault(session, 0.0)
            while len(self._due_s) > LONGEST:
                del self._due_s[next(iter(self._due_s))]

    def tick(self, now_s: float) -> None:
        """Begin a round, if one is due and the last is over. Does not wait for it."""
        with self._lock:
            due = now_s >= self._find_due_s or any(at_s <= now_s for at_s in self._due_s.values())
            if not due or (self._under_way is not None and self._under_way.is_alive()):
                return
            self._under_way = threading.Thread(target=self.make, args=(now_s,), daemon=True)
            self._under_way.start()

    def make(self, now_s: float) -> None:
        """Look for sessions, and at those that are due."""
        if now_s >= self._find_due_s:
            self._find_due_s = now_s + FIND_S
            with suppress(Exception):  # the store may be gone for a while
                for session in self._find():
                    self.add(session)
        with self._lock:
            due = [name for name, due_s in self._due_s.items() if due_s <= now_s]
        for session in due:
            self._visit(session, now_s)

    def _visit(self, session: str, now_s: float) -> None:
        every_s = LEAST_S
        try:
            looked = self._look(session)
            if looked.taken is not None and looked.taken.step_name == "escalate":
                self._help(session, looked.notes.stop or "")
            every_s = looked.every_s
        except Exception:  # noqa: BLE001  the store may be gone for a while
            looked = None
        with self._lock:
            if looked is not None and looked.ends:
                self._due_s.pop(session, None)
            elif session in self._due_s:
                self._due_s[session] = now_s + every_s
