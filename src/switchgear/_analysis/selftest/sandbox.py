"""The user's configuration over temporary stores and virtual time, for attacks."""

from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from typing import Any, NamedTuple

from switchgear._agents.hook_protocol import HookFacts, Moment, Ruling
from switchgear._agents.registry import dialect_of
from switchgear._breaker.circuit_breaker import CircuitBreaker
from switchgear._config import Config
from switchgear._core.errors import LockTimeout, Rejected
from switchgear._core.policy import Policy
from switchgear._core.types import Mode, Phase, Reading
from switchgear._fleet.categories import Category, category_of, default_breakers
from switchgear._fleet.fleet import Fleet, policies_of
from switchgear._fleet.manifest import Crew, FleetAgent, agent, crew
from switchgear._fleet.router import Refused, Route
from switchgear._hooks.compiler import compile_config
from switchgear._hooks.decide import decide
from switchgear._hooks.hook_config import HookConfig, load
from switchgear._hooks.session_check import CheckResult, check_watched_session
from switchgear._panel.panel import Panel
from switchgear._stores.memory import MemoryStore
from switchgear._text.formats import duration
from switchgear.testing import FakeClock


class GuardStatus(StrEnum):
    """The result of testing a guard."""

    OK = "ok"
    """It fired."""
    FAILED = "failed"
    """It is configured and cannot fire; see the reason."""
    SKIPPED = "skipped"
    """It was not tried; see the reason. This is not a failure."""


class GuardRow(NamedTuple):
    """The result of one attack on one guard. Immutable.

    >>> GuardRow("provider/*", "failures", "library", "consecutive_failures", 5, 0.4).after
    '5 signals, 0.4 s'
    """

    guard: str
    attack: str
    path: str
    """The tested path: `mechanism`, `library`, `hooks`, `loop runner`, `router`, `locks`,
    `budgets`, `store`, or one of these with `live`."""
    detector: str = ""
    """The detectors that tripped, joined by ` + `."""
    signals: int = 0
    """The number of signals, calls or iterations until the trip."""
    seconds: float = 0.0
    """The time until the trip: virtual time, or with `live` real time."""
    status: GuardStatus = GuardStatus.OK
    reason: str = ""
    """The evidence of the trip, or why there is none."""

    @property
    def after(self) -> str:
        """When it fired, as text."""
        if not self.signals:
            return ""
        noun = "signal" if self.signals == 1 else "signals"
        return f"{self.signals:,} {noun}, {duration(self.seconds)}"


class GuardCase(NamedTuple):
    """A guard to attack, and the path of the attack. Its methods return the row of the result."""

    guard: str
    attack: str
    path: str

    def fired(
        self, detector: str, signals: int, seconds: float = 0.0, reason: object = ""
    ) -> GuardRow:
        return GuardRow(*self, detector, signals, seconds, reason=str(reason))

    def failed(self, reason: str) -> GuardRow:
        return GuardRow(*self, status=GuardStatus.FAILED, reason=reason)

    def skipped(self, reason: str) -> GuardRow:
        return GuardRow(*self, status=GuardStatus.SKIPPED, reason=reason)

    def unwatched(self, policy: Policy, kinds: Iterable[str]) -> GuardRow | None:
        """A row that skips the attack, if the policy has none of these detectors; else `None`."""
        if watchers(policy, kinds):
            return None
        found = ", ".join(detector.kind for detector in policy.detectors)
        return self.skipped(f"{self.guard} has no detector for it, only {found}")


NAME = "selftest"
FIRST = "first"
"""The provider of the stand-in agent."""
_CALLS_WHEN_OPEN = 40
"""Number of calls to an open circuit: one that admits a share must refuse at least one."""


def stand_in() -> Crew:
    """The agents to attack if none are configured: one with two models, and a second agent."""
    deputy = agent(name="deputy", owner=NAME, provider="third", model="small")
    fallbacks = {"fallback_models": ["second/large"], "fallback_chain": ["deputy"]}
    first = agent(name=NAME, owner=NAME, provider=FIRST, model="large", **fallbacks)
    return crew([first, deputy])


class VirtualFleet:
    """The fleet of a configuration, its router and its circuits. Used by one thread.

    Policies are chosen as in `Fleet.from_config`: rows of `circuits` first, then the categories of
    `breakers`.
    """

    def __init__(self, config: Config, store: MemoryStore, clock: FakeClock) -> None:
        self.clock = clock
        self.is_configured = bool(config.crew.agents)
        self.crew = config.crew if self.is_configured else stand_in()
        self.breakers = default_breakers() if config.breakers is None else config.breakers
        by_category = policies_of(self.breakers, self.crew)

        def policy_for(name: str) -> Policy | None:
            return config.policy_for(name) or by_category(name)

        token = config.operator_token_sha256
        self.panel = Panel(store, policies=policy_for, operator_token_sha256=token, clock=clock)
        self.fleet = Fleet(self.panel, self.crew, self.breakers, clock=clock)

    @property
    def first(self) -> FleetAgent:
        """The agent to attack if any agent will do."""
        return next(iter(self.crew.agents.values()))

    @property
    def chains(self) -> dict[str, list[str]]:
        """The providers of agents in order; one agent for each distinct order."""
        agents: dict[tuple[str, ...], str] = {}
        for one in self.crew.agents.values() if self.is_configured else (self.first,):
            chain = self.fleet.router.settings.chain(one)
            providers = dict.fromkeys(model.provider for each in chain for model in each.models)
            agents.setdefault(tuple(providers), one.name)
        return {name: list(providers) for providers, name in agents.items()}

    @property
    def story(self) -> str:
        return next(iter(self.crew.stories), NAME)

    def category(self, circuit: str) -> Category:
        """The category that switches the circuit on or off."""
        found: Category = getattr(self.breakers, category_of(circuit) or "")
        return found

    def opened(self, circuit: str) -> bool:
        view = self.panel.view(circuit)
        return view is not None and view.circuit.phase is Phase.OPEN

    def call(self, name: str, work: Callable[[Route], object], **where: Any) -> Exception | None:
        """A call through the router, half a second after the last; the error that it ends with."""
        self.clock.advance(0.5)
        try:
            self.fleet.call(name, work, **where)
        except Exception as error:  # noqa: BLE001  whatever an attack raises
            return error
        return None

    def refusal(self, name: str, circuit: str, **where: Any) -> tuple[Route, Refused] | None:
        """A route that this circuit refused; `None`: the circuit admits every call."""
        for _ in range(_CALLS_WHEN_OPEN):
            route = self.fleet.route(name, **where)
            route.give_back()
            for refused in route.refused:
                if refused.circuit == circuit:
                    return route, refused
        return None


AGENT = "claude-code"
SESSION = "selftest"
CIRCUIT = f"session/{SESSION}"
EPOCH_S = 1_750_000_000.0
"""The start of virtual time; hooks use wall time."""
_EVENTS = {
    Moment.PROMPT: "UserPromptSubmit",
    Moment.BEFORE_TOOL: "PreToolUse",
    Moment.AFTER_TOOL: "PostToolUse",
    Moment.STOP: "Stop",
}


class VirtualHooks:
    """One session of an agent under the hooks of a configuration. Used by one thread.

    `root` is the path of the project; nothing is read from it.
    """

    def __init__(self, config: Config, root: str, store: MemoryStore, clock: FakeClock) -> None:
        hook_config: HookConfig = load(compile_config(config, root), root)
        # No nudge before the stop: a nudge closes the circuit, and the test reads the open one.
        plan = hook_config.interventions._replace(when_alone=())
        self.hook_config = hook_config._replace(interventions=plan)
        self.clock = clock
        self.store = store
        self.root = root
        self.calls = 0
        """Number of tool calls that were started."""

    def disable_progress_detectors(self) -> None:
        """Disable the progress detectors, which trip earlier than the score."""
        plan = self.hook_config.interventions._replace(progress=False)
        self.hook_config = self.hook_config._replace(interventions=plan)

    def send(self, moment: Moment, **facts: Any) -> Ruling:
        """Send one event to the hooks, a tenth of a second after the last one."""
        self.clock.advance(0.1)
        event = HookFacts(AGENT, _EVENTS[moment], moment, SESSION, cwd=self.root, **facts)
        return decide(event, self.hook_config, self.store, dialect_of(AGENT).warns)

    def before(self, tool: str, args: Any) -> Ruling:
        self.calls += 1
        return self.send(Moment.BEFORE_TOOL, tool=tool, args=args, call_id=f"call-{self.calls}")

    def call(self, tool: str, args: Any, **outcome: Any) -> Ruling:
        """Make a complete tool call, unless it is refused. Returns the last ruling."""
        ruling = self.before(tool, args)
        if ruling.action in {"deny", "stop"}:
            return ruling
        result = {"ok": True, "result": "fine", **outcome}
        call_id = f"call-{self.calls}"
        return self.send(Moment.AFTER_TOOL, tool=tool, args=args, call_id=call_id, **result)

    def watch(self) -> CheckResult:
        """Perform the check that the watcher performs every few seconds."""
        policy = self.hook_config.policy_for(CIRCUIT)
        return check_watched_session(self.store, SESSION, policy, self.hook_config.interventions)

    def opened(self, key: str = CIRCUIT) -> bool:
        found = self.store.get(key)
        return found is not None and found.circuit.phase is Phase.OPEN

    def hot(self, key: str = CIRCUIT) -> tuple[tuple[str, ...], str]:
        """The detectors of a circuit that trip, and the reason of its policy."""
        found = self.store.get(key)
        if found is None:
            return (), "nothing was recorded on it"
        now_s = max(self.store.now_s(), found.circuit.seen_s)
        readings = found.policy.readings(found.circuit.memories, now_s)
        pairs = zip(found.policy.detectors, readings, strict=True)
        kinds = tuple(detector.kind for detector, reading in pairs if reading.heat >= 1)
        return kinds, found.policy.reason(found.circuit.memories, now_s)


FAILURES = (
    *("consecutive_failures", "failure_rate", "failure_share", "failures_in_window"),
    "same_error",
)
LOOPS = ("same_tool", "tool_flood", "actions_debt", "stagnation")
SLOW = ("slow_calls", "slow_call_share", "latency_p95")
MAX_ATTEMPTS = 1000
"""Calls or iterations after which a guard counts as unable to fire."""
OVERLOADED = "529 overloaded"
"""The error of a dead provider."""


class ProviderOutage(Exception):
    """What a guarded call raises in an attack: the answer of an overloaded provider."""

    status_code = 529


class HeldCircuit(NamedTuple):
    """A circuit in the user's store that an operator holds."""

    name: str
    mode: Mode
    by: str
    why: str


class Bench(NamedTuple):
    """The input of a self-test; never modified."""

    config: Config
    root: str
    """The project."""
    store_url: str | None = None
    """The configured store; `None`: the default file."""
    held: tuple[HeldCircuit, ...] = ()
    """Circuits in the store whose mode is not `auto`."""
    token: str | None = None
    """The operator's token, for the live store."""

    def hooks(self) -> VirtualHooks:
        """A new session under the hooks of the configuration."""
        clock = FakeClock(EPOCH_S)
        return VirtualHooks(self.config, self.root, MemoryStore(clock=clock), clock)

    def fleet(self) -> VirtualFleet:
        """A new fleet with the configured agents and breakers."""
        clock = FakeClock(EPOCH_S)
        return VirtualFleet(self.config, MemoryStore(clock=clock), clock)

    def panel(self) -> tuple[Panel, FakeClock]:
        """A new panel in memory with the configured policies."""
        clock = FakeClock(EPOCH_S)
        token, policies = self.config.operator_token_sha256, self.config.policy_for
        store = MemoryStore(clock=clock)
        return Panel(store, policies=policies, operator_token_sha256=token, clock=clock), clock


def watchers(policy: Policy, kinds: Iterable[str]) -> list[str]:
    """The kinds among `kinds` for which the policy has a detector."""
    wanted = set(kinds)
    return [detector.kind for detector in policy.detectors if detector.kind in wanted]


def hot(readings: Mapping[str, Reading]) -> str:
    """The kinds of the detectors that trip, joined by ` + `."""
    return " + ".join(kind for kind, reading in readings.items() if reading.heat >= 1)


def reasons_of(breaker: CircuitBreaker) -> str:
    return "; ".join(reading.reason for reading in breaker.readings().values())


def until_refused(
    case: GuardCase,
    attempt: Callable[[int], object],
    readings: Callable[[], Mapping[str, Reading]],
    clock: Callable[[], float],
) -> GuardRow | None:
    """The row of the first refused attempt; `None`: none of `MAX_ATTEMPTS` attempts is refused.

    `attempt` receives the number of the attempt, from 1. The refused attempt is not counted.
    """
    began_s = clock()
    for number in range(1, MAX_ATTEMPTS + 1):
        try:
            attempt(number)
        except Rejected as refused:
            return case.fired(hot(readings()), number - 1, clock() - began_s, refused)
        except ProviderOutage:
            continue
    return None


def wait_for_held_lock(panel: Panel, clock: FakeClock) -> tuple[int, Exception | None]:
    """Let one owner hold the lock `selftest` while another waits for it, for a day at most.

    Returns how often the other owner tried, and its error; `None`: it acquired the lock as well.
    """
    panel.lock("selftest", owner="holder", lease_s=1e6).acquire()
    tries = 0

    def wait(seconds: float) -> None:
        nonlocal tries
        tries += 1
        clock.advance(max(5.0, seconds))

    waiting = panel.locks.lock("selftest", owner="waiter", timeout_s=24 * 3600.0, sleep=wait)
    try:
        waiting.acquire()
    except (LockTimeout, Rejected) as error:
        return tries, error
    return tries, None
