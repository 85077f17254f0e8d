"""The watcher of a session: a small process that works while the agent is silent.

Run as `python -I -S …/watcher.py ROOT SESSION PID`, by the first hook of a session that finds none
at work. There is one per session: it holds a lock. It ends with the session, with the agent's
process, after a day, and when the store cannot be asked for long.
"""

import os
import signal
import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple

EVERY_S = 5.0
"""How soon it looks again when the store could not be asked."""
LONGEST_S = 86_400.0
GRACE_S = 15.0
"""How long an agent that was interrupted may stay silent before it is ended."""
MOST_FAILURES = 60
AGENT_GONE = "the agent is gone"


class Agent(NamedTuple):
    """The process that is watched, told from others that may get its number later."""

    pid: int
    began: str

    @classmethod
    def of(cls, pid: int) -> "Agent":
        """The process that has this number now."""
        from switchgear._hooks.interrupt import began_at  # noqa: PLC0415  found only now

        return cls(pid, began_at(pid))

    @property
    def lives(self) -> bool:
        """Whether it is still there."""
        try:
            os.kill(self.pid, 0)
        except PermissionError:
            return False  # somebody else's by now
        except (ProcessLookupError, OverflowError):
            return False
        from switchgear._hooks.interrupt import began_at  # noqa: PLC0415  found only now

        return began_at(self.pid) == self.began

    def send(self, number: signal.Signals) -> None:
        """Send it a signal, if it is still there."""
        if self.lives:
            try:
                os.kill(self.pid, number)
            except OSError:
                return


class Watcher:
    """Looks at one session again and again. Used by one thread.

    `look` is one look (see `watching.look`); `help_` starts the help with the evidence.
    """

    def __init__(
        self,
        look: Callable[[], Any],
        agent: Agent,
        *,
        help_: Callable[[str], object],
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._look = look
        self._agent = agent
        self._help = help_
        self._clock = clock
        self._sleep = sleep
        self._interrupted_s: float | None = None
        self._heard_s: float | None = None

    def run(self) -> str:
        """Watch until there is nothing left to watch; why it ended."""
        until_s, failures = self._clock() + LONGEST_S, 0
        while self._clock() < until_s:
            if not self._agent.lives:
                return AGENT_GONE
            every_s = EVERY_S
            try:
                looked = self._look()
                failures = 0
            except Exception:  # noqa: BLE001  the store may be gone for a while
                failures += 1
                if failures >= MOST_FAILURES:
                    return "the store cannot be asked"
            else:
                if looked.ends:
                    return "the session is over"
                self._act(looked)
                every_s = looked.every_s
            self._sleep(every_s)
        return "it has watched for a day"

    def _act(self, looked: Any) -> None:
        if looked.taken is not None and looked.taken.step_name == "escalate":
            self._help(looked.notes.stop or "")
        if looked.interrupts:
            self._agent.send(signal.SIGINT)
            self._interrupted_s, self._heard_s = self._clock(), looked.notes.heard_s
        elif self._interrupted_s is not None and self._clock() - self._interrupted_s >= GRACE_S:
            # Whoever still works on without a word does not hear: it is ended.
            if looked.notes.works and looked.notes.heard_s == self._heard_s:
                self._agent.send(signal.SIGTERM)
            self._interrupted_s = None


def main(argv: list[str]) -> None:
    """Watch one session: `watcher.py ROOT SESSION PID`."""
    root, session, pid = argv[1], argv[2], int(argv[3])
    from switchgear._hooks import after_reply, compiled, session_check  # noqa: PLC0415
    from switchgear._hooks import session as sessions  # noqa: PLC0415
    from switchgear._hooks.process import open_store  # noqa: PLC0415
    from switchgear._stores.url import default_file  # noqa: PLC0415
    from switchgear._text.digest import digest  # noqa: PLC0415  found only now

    lock = os.path.join(os.path.dirname(default_file(root)), f"watch-{digest(session)}.lock")
    if not _alone(lock):
        return
    known = compiled.compiled(root)
    from switchgear._hooks.committed import Recorder, hand_over  # noqa: PLC0415  found only now

    committed: list[Any] = []
    store: Any = Recorder(open_store(known), committed)
    subject = sessions.note_name(session)
    agent = Agent.of(pid)

    def at_work(inside: Any) -> None:
        """Write down which process watches and which is watched, so that no hook starts another."""
        if inside.note is not None:
            notes = sessions.Notes.load(inside.note)
            inside.note = notes._replace(watcher=os.getpid(), pid=pid, pid_began=agent.began).dump()

    store.transact(subject, at_work)

    def look() -> session_check.Look:
        found = look_once()
        if committed:  # sinks and targets are for silence, too
            if compiled.compiled(root).listens:
                hand_over(root, committed)
            committed.clear()
        return found

    def look_once() -> session_check.Look:
        # It may have been changed: then the new one holds, and what no operator did is reverted.
        now = compiled.compiled(root, during_call=None)
        policy = now.policy_for(subject)
        if now.tampered:
            from switchgear._hooks.recompile import take_tampering  # noqa: PLC0415  seldom

            found = session_check.stop_for_tampering(
                store, session, policy, now.policy_for("rules"), now.tampered
            )
            take_tampering(root, now.tampered)
            return found
        return session_check.look(store, session, policy, now.interventions)

    def help_(evidence: str) -> None:
        escalate = compiled.compiled(root).interventions.escalate
        if escalate:
            after_reply.start_help(escalate, evidence, session, root=root)

    try:
        why = Watcher(look, agent, help_=help_).run()
    finally:
        os.unlink(lock)
    if why == AGENT_GONE:
        store.transact(subject, _gone)


def _gone(inside: Any) -> None:
    """Write down that the session is over, so that nobody takes a dead agent for a silent one.

    Not if another watches by now: then the session goes on in another process.
    """
    from switchgear._hooks.session import Notes  # noqa: PLC0415  found only now

    notes = Notes.load(inside.note)
    if notes.watcher == os.getpid():
        inside.note = notes._replace(ended=True, watcher=None).dump()


def _alone(path: str) -> bool:
    """Whether no other watches this session; the lock is ours until the process ends."""
    import fcntl  # noqa: PLC0415  a hook that imports this module must not pay for it

    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(file)
        return False
    return True


if __name__ == "__main__":
    if os.fork():
        os._exit(0)  # whoever started us need not wait
    os.setsid()
    # As in entry.py: the package by its folder alone, without the whole library.
    package: Any = type(sys)("switchgear")
    package.__path__ = [__file__.rpartition("/_hooks/")[0]]
    sys.modules["switchgear"] = package
    main(sys.argv)
