"""The watcher of sessions whose hooks come over HTTP: the server itself, which lives anyway.

It cannot tell which process an agent is, so it interrupts nobody: it tells silence and takes rungs,
and what an agent must hear it hears at its next hook.
"""

import threading
from collections.abc import Callable

from switchgear.hooks.watching import LEAST_S, Look

LONGEST = 1000
"""Sessions that are watched at a time; of more the oldest are let go."""


class Rounds:
    """Looks at sessions, one after the other, in a thread of its own. Thread-safe.

    `look` looks at one; `help_` is called with a session and the evidence where help is wanted.
    """

    def __init__(self, look: Callable[[str], Look], help_: Callable[[str, str], object]) -> None:
        self._look = look
        self._help = help_
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
        """Begin a round, if a session is due and the last round is over. Does not wait for it."""
        with self._lock:
            due = [name for name, due_s in self._due_s.items() if due_s <= now_s]
            if not due or (self._under_way is not None and self._under_way.is_alive()):
                return
            self._under_way = threading.Thread(target=self.make, args=(due, now_s), daemon=True)
            self._under_way.start()

    def make(self, due: list[str], now_s: float) -> None:
        """Look at these sessions."""
        for session in due:
            every_s = LEAST_S
            try:
                looked = self._look(session)
                if looked.taken is not None and looked.taken.rung == "escalate":
                    self._help(session, looked.notes.stop or "")
                every_s = looked.every_s
            except Exception:  # noqa: BLE001  the store may be gone for a while
                looked = None
            with self._lock:
                if looked is not None and looked.ends:
                    self._due_s.pop(session, None)
                elif session in self._due_s:
                    self._due_s[session] = now_s + every_s
