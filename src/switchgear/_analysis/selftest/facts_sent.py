"""Which facts each path really tells which circuits: found by driving the paths, not from a list.

A guard that stops telling a fact is noticed here: the detectors that need it are then attacked
without it, and do not fire.
"""

from collections import defaultdict
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from switchgear._agents.events import AgentError
from switchgear._agents.hook_call import Moment
from switchgear._analysis.selftest.rule_trials import Breach, breach_of
from switchgear._analysis.selftest.trial import facts_of
from switchgear._analysis.selftest.virtual_fleet import NAME, VirtualFleet
from switchgear._analysis.selftest.virtual_hooks import EPOCH_S, VirtualHooks
from switchgear._breaker.rules import RuleGuard, place_at
from switchgear._config import Config
from switchgear._core.policy import Policy
from switchgear._core.types import Message, Record, Step
from switchgear._fleet.categories import category_of
from switchgear._fleet.manifest import Crew
from switchgear._panel.panel import Panel
from switchgear._run.circuits import Circuits, Measured
from switchgear._run.judge import Judgement
from switchgear._run.options import RunOptions
from switchgear._stores.base import Transaction
from switchgear._stores.memory import MemoryStore
from switchgear.testing import FakeClock

T = TypeVar("T")
OTHERS = "library"
"""The path of circuits that no guard of ours alone tells: whoever tells them may tell everything."""


class RateLimited(Exception):
    """A provider that asks to be left alone for a while."""

    status_code = 429
    retry_after = 30


class Path(NamedTuple):
    """Who tells the circuits of a family, and what."""

    name: str
    sent: frozenset[str]


def family_of(name: str) -> str:
    """Circuits, or globs of them, that one guard tells: an agent of a fleet has one per category.

    >>> family_of("session/*"), family_of("agent/coder/budget"), family_of("agent/coder")
    ('session', 'agent/budget', 'agent')
    """
    head = name.partition("/")[0]
    category = category_of(name) if head == "agent" else None
    return head if category is None else f"agent/{category}"


class Listening(MemoryStore):
    """A store in memory that notes which facts each family of circuits was told."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__(clock=clock)
        self.heard: dict[str, set[str]] = defaultdict(set)

    def note(self, key: str, message: Message) -> None:
        """Note the facts of a message."""
        if isinstance(message, Record):
            self.heard[family_of(key)] |= facts_of(message.signal)

    def apply(self, key: str, policy: Policy, message: Message, now_s: float) -> Step:
        """As in memory."""
        self.note(key, message)
        return super().apply(key, policy, message, now_s)

    def transact(self, name: str, work: Callable[[Transaction], T]) -> T:
        """As in memory."""

        def listened(inside: Transaction) -> T:
            fold = inside.apply

            def apply(key: str, policy: Policy, message: Message) -> Step:
                self.note(key, message)
                return fold(key, policy, message)

            return work(_Overheard(inside, apply))

        return super().transact(name, listened)


class _Overheard:
    """A transaction whose messages are listened to. Used by one thread."""

    def __init__(self, inside: Transaction, apply: Callable[..., Step]) -> None:
        object.__setattr__(self, "_inside", inside)
        object.__setattr__(self, "apply", apply)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inside, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._inside, name, value)


def paths(config: Config, root: str) -> dict[str, Path]:
    """The families of circuits that only guards of ours tell, each with its path."""
    config = config._replace(circuits=())  # whoever cuts early would be told less
    drives = (_hooks, _runner, _library, _router)
    hooks, runner, library, router = (_heard(drive, config, root) for drive in drives)
    # `switchgear check` and `record` tell operations as well: their facts are those of a call.
    told = {"ok", "seconds", "error", "retry_after_s", "cost_micros"}
    return {
        "session": Path("hooks", frozenset(hooks["session"])),
        "op": Path("hooks", frozenset(hooks["op"] | told)),
        "rules": Path("hooks", frozenset(hooks["rules"] | library["rules"])),
        "loop": Path("loop runner", frozenset(runner["loop"])),
        "lock": Path("locks", frozenset(library["lock"])),
        **{
            family: Path("router", frozenset(facts))
            for family, facts in router.items()
            if family.startswith("agent/")
        },
    }


def _heard(
    drive: Callable[[Config, str, Listening, FakeClock], None], config: Config, root: str
) -> dict[str, set[str]]:
    clock = FakeClock(EPOCH_S)
    store = Listening(clock)
    drive(config, root, store, clock)
    return store.heard


def _hooks(config: Config, root: str, store: Listening, clock: FakeClock) -> None:
    """Everything that a hook can say, once."""
    agent = VirtualHooks(config, root, store, clock)
    agent.hear(Moment.PROMPT)
    agent.call("Edit", {"file_path": "selftest.txt", "old_string": "a", "new_string": "b"})
    agent.call("Bash", {"command": "make"}, ok=False, error="Exit code 2\nno rule", seconds=1.0)
    agent.call("WebFetch", {"url": "http://localhost/"}, ok=False, error="timed out")
    agent.call("Read", {"file_path": "selftest.txt"}, context_used=0.4, cost_micros=1)
    clock.advance(3600.0)
    agent.watch()
    for breach in _breaches(config, root):
        agent.before(breach.tool, breach.inputs)
    agent.hear(Moment.STOP, tokens=1000, cost_micros=1)


def _runner(config: Config, root: str, store: Listening, clock: FakeClock) -> None:
    """An iteration that worked, one that failed, one that its provider failed."""
    del config, root
    with Panel(store, clock=clock) as panel:
        circuits = Circuits(panel, "loop/selftest", RunOptions("selftest", agent="demo"))
        measured = Measured(1.0, 1, 1, 1, 1)
        trouble = AgentError("overloaded", "529 overloaded", 529, 30.0)
        for judged in (
            Judgement("worked", ok=True),
            Judgement("failed", ok=False, error="no rule"),
            Judgement("provider", provider=trouble),
        ):
            leave = circuits.ask()
            circuits.tell_loop(leave, judged, measured)
            circuits.tell_provider(leave, judged, 1.0)


def _library(config: Config, root: str, store: Listening, clock: FakeClock) -> None:
    """A lock that is had, and a rule that is kept and one that is broken."""
    with Panel(store, clock=clock) as panel:
        with panel.lock("selftest"):
            clock.advance(1.0)
        place = place_at(root)
        guard = RuleGuard(panel.breaker("rules/selftest"), config.rules.rules, place)
        guard.ask("Bash", {"command": "make"})
        for breach in _breaches(config, root):
            guard.ask(breach.tool, breach.inputs)


def _router(config: Config, root: str, store: Listening, clock: FakeClock) -> None:
    """Work that is done, work that fails, a provider that fails it, and one that asks to wait."""
    del root
    stage = VirtualFleet(config._replace(breakers=None, crew=Crew()), store, clock)
    with stage.fleet as fleet:
        for error in (None, ValueError("no rule"), TimeoutError("no answer"), RateLimited("slow")):
            route = fleet.route(NAME)
            route.spent(1)
            route.record(ok=None if error else True, seconds=1.0, error=error)


def _breaches(config: Config, root: str) -> list[Breach]:
    """A call that breaks a rule, if there is a rule that one can be made up for."""
    place = place_at(root)
    found = (breach_of(rule, place).breach for rule in config.rules.rules)
    return [breach for breach in found if breach is not None][:1]
