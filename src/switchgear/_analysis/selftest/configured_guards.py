"""Attacks each detector of every configured guard, with the facts that its path records."""

from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from switchgear._agents.events import AgentError
from switchgear._agents.hook_protocol import Moment
from switchgear._analysis.selftest.attacks import (
    EVERYTHING,
    Trial,
    against,
    attacks_on,
    facts_of,
    masked,
    needed,
)
from switchgear._analysis.selftest.hook_trials import first_breach
from switchgear._analysis.selftest.sandbox import (
    EPOCH_S,
    NAME,
    Bench,
    GuardCase,
    GuardRow,
    VirtualFleet,
    VirtualHooks,
)
from switchgear._breaker.circuit_breaker import classic
from switchgear._breaker.loop_breaker import loop_policy
from switchgear._breaker.presets import PRESETS
from switchgear._breaker.rules import RuleGuard, place_at
from switchgear._config import Config, preset_policy
from switchgear._config.loader import read_document
from switchgear._config.problems import Report
from switchgear._core.detector import Detector
from switchgear._core.policy import Policy
from switchgear._core.types import Message, Record, Step
from switchgear._fleet.categories import category_of
from switchgear._fleet.manifest import Crew
from switchgear._hooks.compiler import DEFAULTS
from switchgear._locks.locks import lock_policy
from switchgear._panel.panel import Panel
from switchgear._run.circuits import Circuits, Measured
from switchgear._run.judge import Judgement
from switchgear._run.options import RunOptions
from switchgear._stores.base import StoredCircuit
from switchgear._stores.memory import MemoryStore
from switchgear._text.glob import matcher
from switchgear.testing import FakeClock

OTHERS = "library"
"""The path of circuits that any caller may record on, so every fact may occur."""


class RateLimited(Exception):
    """A provider that responds with Retry-After."""

    status_code = 429
    retry_after = 30


class Path(NamedTuple):
    """The path that records on a family of circuits, and the facts it records."""

    name: str
    sent: frozenset[str]


def family_of(name: str) -> str:
    """The family of a circuit or glob: one path records on it. Agents of a fleet have one for each category.

    >>> family_of("session/*"), family_of("agent/coder/budget"), family_of("agent/coder")
    ('session', 'agent/budget', 'agent')
    """
    head = name.partition("/")[0]
    category = category_of(name) if head == "agent" else None
    return head if category is None else f"agent/{category}"


class FactRecordingStore(MemoryStore):
    """A store in memory that collects the facts recorded on each family of circuits."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__(clock=clock)
        self.received: dict[str, set[str]] = defaultdict(set)

    def _fold_message(
        self,
        key: str,
        policy: Policy,
        message: Message,
        now_s: float,
        changed: dict[str, StoredCircuit],
    ) -> Step:
        if isinstance(message, Record):
            self.received[family_of(key)] |= facts_of(message.signal)
        return super()._fold_message(key, policy, message, now_s, changed)


def paths(config: Config, root: str) -> dict[str, Path]:
    """The families of circuits that only built-in guards record on, each with its path."""
    config = config._replace(circuits=())  # a policy that opens early would see fewer facts
    drives = (_hooks, _runner, _library, _router)
    hooks, runner, library, router = (_recorded_facts(drive, config, root) for drive in drives)
    # `switchgear check` and `record` also record on operations: their facts are those of a call.
    call_facts = {"ok", "seconds", "error", "retry_after_s", "cost_micros"}
    return {
        "session": Path("hooks", frozenset(hooks["session"])),
        "op": Path("hooks", frozenset(hooks["op"] | call_facts)),
        "rules": Path("hooks", frozenset(hooks["rules"] | library["rules"])),
        "loop": Path("loop runner", frozenset(runner["loop"])),
        "lock": Path("locks", frozenset(library["lock"])),
        **{
            family: Path("router", frozenset(facts))
            for family, facts in router.items()
            if family.startswith("agent/")
        },
    }


def _recorded_facts(
    drive: Callable[[Config, str, FactRecordingStore, FakeClock], None], config: Config, root: str
) -> dict[str, set[str]]:
    clock = FakeClock(EPOCH_S)
    store = FactRecordingStore(clock)
    drive(config, root, store, clock)
    return store.received


def _hooks(config: Config, root: str, store: FactRecordingStore, clock: FakeClock) -> None:
    """Every kind of event that a hook can send, once."""
    agent = VirtualHooks(config, root, store, clock)
    agent.send(Moment.PROMPT)
    agent.call("Edit", {"file_path": "selftest.txt", "old_string": "a", "new_string": "b"})
    agent.call("Bash", {"command": "make"}, ok=False, error="Exit code 2\nno rule", seconds=1.0)
    agent.call("WebFetch", {"url": "http://localhost/"}, ok=False, error="timed out")
    agent.call("Read", {"file_path": "selftest.txt"}, context_used=0.4, cost_micros=1)
    clock.advance(3600.0)
    agent.watch()
    if breach := first_breach(config.rules.rules, place_at(root)):
        agent.before(breach.tool, breach.inputs)
    agent.send(Moment.STOP, tokens=1000, cost_micros=1)


def _runner(config: Config, root: str, store: FactRecordingStore, clock: FakeClock) -> None:
    """A successful iteration, a failed one, and one that failed because of its provider."""
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
            permits = circuits.acquire()
            circuits.record_loop(permits, judged, measured)
            circuits.record_provider(permits, judged, 1.0)


def _library(config: Config, root: str, store: FactRecordingStore, clock: FakeClock) -> None:
    """A lock that is acquired, a call that no rule forbids, and one that breaks a rule."""
    with Panel(store, clock=clock) as panel:
        with panel.lock("selftest"):
            clock.advance(1.0)
        place = place_at(root)
        guard = RuleGuard(panel.breaker("rules/selftest"), config.rules.rules, place)
        guard.ask("Bash", {"command": "make"})
        if breach := first_breach(config.rules.rules, place):
            guard.ask(breach.tool, breach.inputs)


def _router(config: Config, root: str, store: FactRecordingStore, clock: FakeClock) -> None:
    """Work that succeeds, work that fails, a provider that times out, and one that requests a wait."""
    del root
    stage = VirtualFleet(config._replace(breakers=None, crew=Crew()), store, clock)
    with stage.fleet as fleet:
        for error in (None, ValueError("no rule"), TimeoutError("no answer"), RateLimited("slow")):
            route = fleet.route(NAME)
            route.spent(1)
            route.record(ok=None if error else True, seconds=1.0, error=error)


_FILLS = ("selftest", "x", "0", "a/b", "zz-9", "Q")
"""Replacements for a star in a glob; the first whose name no earlier row matches is used."""


def guards(bench: Bench) -> Iterator[GuardRow]:
    """The rows for `circuits`, for other circuits' defaults, for unused policies, and for loops."""
    known_paths = paths(bench.config, bench.root)
    for index, rule in enumerate(bench.config.circuits):
        name = sample_name(bench.config, index)
        if name is None:
            case = GuardCase(rule.match, "any", "configuration")
            yield case.failed(_earlier_match(bench.config, index))
            continue
        yield from _attack_guard(rule.match, rule.policy, _path_of(rule.match, known_paths))
    yield from _defaults(bench.config, known_paths)
    yield from _unused_policies(bench.config)
    yield from _loops(bench.config)
    if bench.config.source is None:
        for name in PRESETS:
            everything = Path("mechanism", EVERYTHING)
            yield from _attack_guard(f"preset {name}", preset_policy(name), everything)


def _attack_guard(guard: str, policy: Policy, path: Path) -> Iterator[GuardRow]:
    """A row for each detector; detectors that trip together share a row."""
    yield from dict.fromkeys(_against(guard, policy, path, each) for each in policy.detectors)


def _against(guard: str, policy: Policy, path: Path, detector: Detector) -> GuardRow:
    trial = against(policy, detector, masked(path.sent))
    if trial.tripped:
        case = GuardCase(guard, trial.attack, path.name)
        by = " + ".join(trial.detectors)
        return case.fired(by, trial.signals, trial.seconds, trial.reason)
    why = _why_not(policy, detector, path, trial)
    names = [attack.name for attack in attacks_on(detector)]
    case = GuardCase(guard, names[0] if names else "any", path.name)
    return case.failed(f"{detector.kind}: {why}")


def _why_not(policy: Policy, detector: Detector, path: Path, trial: Trial) -> str:
    attacks = attacks_on(detector)
    if not attacks:
        return "this version of Switchgear has no such detector, so it never fires here"
    if against(policy, detector).tripped:
        lacks = min((needed(attack) - path.sent for attack in attacks), key=len)
        facts = ", ".join(sorted(lacks)) or "the combination that it weighs"
        return f"the facts it needs are not recorded on this path ({path.name}): {facts}"
    return f"out of reach: {trial.signals:,} signals of the attack reach {trial.heat:.0%}: {trial.reason}"


def _path_of(glob: str, known_paths: dict[str, Path]) -> Path:
    """The only path that records on the circuits of a glob, else the library, which records everything."""
    return known_paths.get(family_of(glob), Path(OTHERS, EVERYTHING))


def sample_name(config: Config, index: int) -> str | None:
    """The name of a circuit whose first matching row is this one; `None`: earlier rows match all such names."""
    match = config.circuits[index].match
    earlier = [matcher(rule.match) for rule in config.circuits[:index]]
    for fill in _FILLS:
        name = _matching_name(match, fill)
        if matcher(match)(name) and not any(matches(name) for matches in earlier):
            return name
    return None


def _matching_name(glob: str, fill: str) -> str:
    """A name that matches a glob: stars are filled, and a set is replaced by its first character."""
    name, rest = "", glob
    while rest:
        sign, rest = rest[0], rest[1:]
        if sign == "[" and "]" in rest[1:]:
            inside, _, rest = rest.partition("]")
            name += inside.lstrip("!")[:1] if not inside.startswith("!") else fill[:1]
        else:
            name += fill if sign == "*" else fill[:1] if sign == "?" else sign
    return name


def _earlier_match(config: Config, index: int) -> str:
    name = _matching_name(config.circuits[index].match, _FILLS[0])
    first = next(rule.match for rule in config.circuits if matcher(rule.match)(name))
    return f"never used: the first match wins, and {first!r} before it catches its circuits"


def _defaults(config: Config, known_paths: dict[str, Path]) -> Iterator[GuardRow]:
    """The policies of circuits that the file does not name."""
    holds: dict[str, Policy] = {glob: preset_policy(name) for glob, name in DEFAULTS[:-1]}
    holds |= {"provider/*": classic(), "loop/*": loop_policy(), "lock/*": lock_policy()}
    for glob, policy in holds.items():
        if config.policy_for(_matching_name(glob, _FILLS[0])) is None:
            yield from _attack_guard(f"{glob} (default)", policy, _path_of(glob, known_paths))


def _unused_policies(config: Config) -> Iterator[GuardRow]:
    if config.source is None or not config.policies:
        return
    document: Any = read_document(config.source, Report(config.source)).plain()
    named = set(_used_policies(document))
    for name in config.policies:
        if name not in named:
            why = "it is unused: no row of `circuits` and no other policy names it"
            yield GuardCase(f"policy {name}", "any", "configuration").failed(why)


def _used_policies(document: Any) -> Iterator[str]:
    """The names of policies that circuits and other policies use."""
    for policy in (document.get("policies") or {}).values():
        yield str(policy.get("extends"))
    for rule in document.get("circuits") or ():
        if isinstance(rule["policy"], str):
            yield rule["policy"]
        else:
            yield str(rule["policy"].get("extends"))


def _loops(config: Config) -> Iterator[GuardRow]:
    """The user-defined loops: a detector that needs more iterations than the loop has cannot fire."""
    for name, loop in config.loop_presets.items():
        policy = loop_policy(consecutive_failures=loop.consecutive_failures, same_error=None)
        for detector in policy.detectors:
            trial = against(policy, detector)
            case = GuardCase(f"loop {name}", trial.attack, "loop runner")
            if trial.signals > loop.max_iterations:
                why = f"it needs {trial.signals} iterations, and the loop ends after"
                yield case.failed(f"{detector.kind}: {why} {loop.max_iterations}")
            else:
                yield case.fired(" + ".join(trial.detectors), trial.signals, trial.seconds)
