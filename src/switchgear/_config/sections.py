"""The configuration, and functions that build its sections."""

from collections.abc import Callable
from functools import wraps
from typing import Any, NamedTuple, TypeVar, cast

from switchgear._breaker.presets import LOOP_PRESETS, PRESETS, LoopPreset
from switchgear._budgets.tree import Open, checked_micros, checked_path
from switchgear._config.parts import REQUIRED, build_part, construct, fields_of
from switchgear._config.problems import ConfigNode, Report, join, shown, suggestion
from switchgear._config.proxy import ProxySection
from switchgear._core import values
from switchgear._core.detector import Detector
from switchgear._core.policy import Cooldown, Policy
from switchgear._detectors import ConsecutiveFailures, FailuresInWindow
from switchgear._detectors.policy_wire import COMBINES, DETECTORS, RECOVERIES
from switchgear._fleet.categories import CATEGORIES, Breakers, Category
from switchgear._fleet.manifest import Crew, FleetAgent, agent, faults, story
from switchgear._fleet.targets import TARGETS, Target
from switchgear._opinion.opinion import SecondOpinion, second_opinion
from switchgear._rules import rules as core_rules
from switchgear._rules.builtin import BUILTIN, builtin_rules
from switchgear._rules.patterns import LONGEST_PATTERN
from switchgear._rules.rules import ALLOWED, ASPECTS, Rule
from switchgear._sinks import Sink
from switchgear._stores.base import IDLE_S, KEEP_EVENTS, checked_name
from switchgear._stuck import escalation, timeouts
from switchgear._stuck.escalation import Interventions
from switchgear._stuck.timeouts import Timeouts
from switchgear._text.glob import matcher
from switchgear._text.redact import redact

T = TypeVar("T")


class Retention(NamedTuple):
    """How many events a store keeps, and how long idle circuits: see `Store.vacuum`."""

    events: int = KEEP_EVENTS
    idle_s: float = IDLE_S


class Hooks(NamedTuple):
    """How the hooks of agents decide: the section `hooks`."""

    on_trouble: str = "admit"
    """What a hook does if it cannot decide: `admit` or `refuse`; it reports either."""
    lease_s: float = 1800.0
    """Seconds after which a tool call without a result is given up."""
    story: str | None = None
    """The task of the work: hooks check the circuit `story/<name>` and record on it, if it has a policy."""
    context_tokens: int | None = None
    """Size of the context window in tokens, if the agent does not report it; `None`: by the price list."""


class CircuitPolicy(NamedTuple):
    """The policy of the circuits whose names match a glob."""

    match: str
    policy: Policy


class RuleBook(NamedTuple):
    """The absolute rules in effect, and the paths that belong to the guard."""

    rules: tuple[core_rules.Rule, ...] = builtin_rules()
    protected: tuple[str, ...] = ()
    """Globs in addition to the built-in ones, and to the configuration and the store."""


class Config(NamedTuple):
    """The configuration of an installation. Immutable; any thread may read it.

    >>> Config().policy_for("provider/anthropic") is None
    True
    """

    store: str | None = None
    """The URL of the store, with variables expanded and an absolute path. May contain a password."""
    operator_token_sha256: str | None = None
    """The SHA-256 of the token for overrides, as 64 hexadecimal digits; `None`: they need no token."""
    retention: Retention = Retention()
    policies: dict[str, Policy] = {}  # noqa: RUF012  never changed
    """The policies of the file by name, without presets."""
    circuits: tuple[CircuitPolicy, ...] = ()
    loop_presets: dict[str, LoopPreset] = {}  # noqa: RUF012  never changed
    """The user's own presets of `switchgear run`, by their names."""
    rules: RuleBook = RuleBook()
    """The rules for all agents; default: all built-in rules."""
    hooks: Hooks = Hooks()
    """How the hooks of agents decide."""
    interventions: Interventions = Interventions()
    """What is done about a stuck agent."""
    timeouts: Timeouts = Timeouts()
    """How long tasks may take."""
    sinks: tuple[Sink, ...] = ()
    breakers: Breakers | None = None
    """The seven breakers of a fleet; `None`: the file configures no fleet."""
    crew: Crew = Crew()
    """The agents and stories of a fleet."""
    notifications: tuple[Target, ...] = ()
    """Where `switchgear fleet watch` sends events; secrets are in variables, not in here."""
    budgets: tuple[Open, ...] = ()
    """Nodes of budgets with their limits, each before those below it; see `Budgets.apply`."""
    source: str | None = None
    """The file of the configuration; `None`: there is none."""
    store_as_written: str | None = None
    """The URL of the store with its `${NAME}`, for storage: the values of the variables are secret."""
    second_opinion: SecondOpinion | None = None
    """The second opinion to request before a stuck agent is stopped; `None`: none."""
    proxy: ProxySection | None = None
    """The defaults of `switchgear proxy`; `None`: not configured."""

    def policy_for(self, name: str) -> Policy | None:
        """The policy of the first match for a circuit; `None`: no match."""
        for rule in self.circuits:
            if matcher(rule.match)(name):
                return rule.policy
        return None

    def __repr__(self) -> str:
        store = None if self.store is None else redact(self.store)
        return (
            f"<Config of {self.source!r}: store {store!r}, {len(self.policies)} policies, "
            f"{len(self.circuits)} rules for circuits, {len(self.sinks)} sinks>"
        )


DEFAULT = Config()
"""The configuration in effect without a file."""


LONGEST_CHAIN = 16
"""Maximum number of policies in a chain in which each extends the next."""
MOST_DETECTORS = 32
POLICY_KEYS = ("extends", "detectors", "recovery", "combine", "tripping_at", "strict")


def preset_policy(name: str) -> Policy:
    """The policy of a preset. Raises KeyError for an unknown name."""
    report = Report("presets")
    policy = _build(_nodes(PRESETS[name], name).value, ConfigNode(None, None, name), report)
    report.raise_if_any()
    return cast("Policy", policy)  # otherwise `raise_if_any` has raised


def default_policy(name: str) -> Policy:
    """The policy of a circuit without a configured one: `operation` for `op/*`, as in hooks."""
    return preset_policy("operation" if name.startswith("op/") else "provider")


class Policies:
    """Resolves the policies of one file. Used by one thread."""

    def __init__(self, named: dict[str, ConfigNode], report: Report) -> None:
        self._named = named
        self._report = report

    def all_named(self) -> dict[str, Policy]:
        """The valid policies of the `policies` section; problems of the others are reported."""
        found = {name: self.of(node, (name,)) for name, node in self._named.items()}
        return {name: policy for name, policy in found.items() if policy is not None}

    def of(self, node: ConfigNode, trail: tuple[str, ...] = ()) -> Policy | None:
        """The policy of a node: a mapping, or, in `circuits`, the name of a policy or a preset."""
        by_name = isinstance(node.value, str) and not trail
        keys = self._keys_by_name(node, ()) if by_name else self._keys(node, trail)
        return None if keys is None else _build(keys, node, self._report)

    def _keys(self, node: ConfigNode, trail: tuple[str, ...]) -> dict[str, ConfigNode] | None:
        """The keys of a policy, merged over those of the policy that it extends."""
        if not isinstance(node.value, dict):
            rule = "it must be a mapping with detectors, or with extends"
            self._report.add(node, f"is {shown(node.value)}: {rule}")
            return None
        own = dict(self._report.mapping(node, POLICY_KEYS))
        base = own.pop("extends", None)
        if base is None or base.value is None:
            return own
        inherited = None
        if isinstance(base.value, str):
            inherited = self._keys_by_name(base, trail)
        else:
            self._report.add(base, f"is {shown(base.value)}: it must be the name of a policy")
        if inherited is None:
            # The other keys are checked anyway, with a detector in place of the inherited ones.
            _build({"detectors": _nodes([ConsecutiveFailures.kind], ""), **own}, node, self._report)
            return None
        return {**inherited, **own}

    def _keys_by_name(
        self, node: ConfigNode, trail: tuple[str, ...]
    ) -> dict[str, ConfigNode] | None:
        name = node.value
        # A policy may have the name of a preset and extend it; inside of it, the name means the preset.
        if name in self._named and not (trail[-1:] == (name,) and name in PRESETS):
            if name in trail:
                cycle = " → ".join((*trail[trail.index(name) :], name))
                self._report.add(
                    node, f"is {shown(name)}: policies extend each other in a cycle: {cycle}"
                )
                return None
            if len(trail) >= LONGEST_CHAIN:
                self._report.add(node, f"extends more than {LONGEST_CHAIN} policies in a chain")
                return None
            return self._keys(self._named[name], (*trail, name))
        if name in PRESETS:
            keys: dict[str, ConfigNode] = _nodes(PRESETS[name], f"preset {name}").value
            return keys
        hint = suggestion(name, [*self._named, *PRESETS])
        self._report.add(node, f"is {shown(name)}: there is no such policy or preset; {hint}")
        return None


def _build(keys: dict[str, ConfigNode], place: ConfigNode, report: Report) -> Policy | None:
    before = report.added
    given: dict[str, Any] = {}
    for name in ("tripping_at", "strict"):
        if name in keys and isinstance(keys[name].value, list | dict):
            report.add(keys[name], f"is {shown(keys[name].value)}: it must be a single value")
        elif name in keys:
            given[name] = keys[name].value
    if "recovery" in keys:
        given["recovery"] = build_part(keys["recovery"], RECOVERIES, report)
    if "combine" in keys:
        given["combine"] = build_part(keys["combine"], COMBINES, report)
    detectors = _detectors(keys, place, report)
    if detectors is None:
        # The other keys except `combine` are checked anyway, with a placeholder.
        detectors = [ConsecutiveFailures()]
        given.pop("combine", None)
    given["detectors"] = detectors
    policy = construct(Policy, given, keys | _nodes_of_combine(keys), place, report)
    return policy if report.added == before else None


def _nodes_of_combine(keys: dict[str, ConfigNode]) -> dict[str, ConfigNode]:
    """The nodes for errors of the policy that name a field of its combine rule."""
    if "combine" not in keys:
        return {}
    whole = keys["combine"]
    nodes = {"weights": whole, "threshold": whole}
    if isinstance(whole.value, dict):
        for inner in whole.value.values():
            nodes |= inner.value if isinstance(inner.value, dict) else {}
    return nodes


def _detectors(
    keys: dict[str, ConfigNode], place: ConfigNode, report: Report
) -> list[Detector] | None:
    before = report.added
    if "detectors" not in keys:
        report.add(place, "needs the key 'detectors', or 'extends' to take them from a policy")
        return None
    node = keys["detectors"]
    items = report.items(node)
    if not items and report.added == before:
        report.add(node, f"is empty: it must have at least one of {', '.join(sorted(DETECTORS))}")
    if len(items) > MOST_DETECTORS:
        report.add(node, f"has {len(items)} detectors: at most {MOST_DETECTORS} are allowed")
        return None
    detectors = [build_part(item, DETECTORS, report) for item in items]
    valid = [detector for detector in detectors if detector is not None]
    return valid if report.added == before else None


def _nodes(value: Any, key: str) -> ConfigNode:
    """Plain data, such as a preset, as nodes."""
    if isinstance(value, dict):
        value = {name: _nodes(child, join(key, name)) for name, child in value.items()}
    elif isinstance(value, list | tuple):
        value = [_nodes(child, join(key, index)) for index, child in enumerate(value)]
    return ConfigNode(value, None, key)


SECTION_KEYS = ("builtin", "allow", "protected", "own")
RULE_KEYS = ("name", "why", *ASPECTS, "allow")


def build_rules(node: ConfigNode, report: Report) -> RuleBook:
    """The rules in effect, the built-in ones first; an empty section leaves only those."""
    keys = report.mapping(node, SECTION_KEYS)
    groups = _groups(keys.get("builtin"), report)
    exemptions = {
        name: _allow(child, report)
        for name, child in report.mapping(keys.get("allow", ConfigNode(None)), BUILTIN).items()
    }
    for name in exemptions:
        if name not in groups:
            place = keys["allow"].value[name]
            report.add(place, f"exempts calls from the built-in rules {shown(name)}, which are off")
    rules = [
        rule.replace(
            **{
                name: (*getattr(rule, name), *patterns)
                for name, patterns in exemptions.get(group, {}).items()
            }
        )
        for group in groups
        for rule in BUILTIN[group]
    ]
    rules += _own_rules(keys.get("own", ConfigNode(None)), {rule.name for rule in rules}, report)
    return RuleBook(tuple(rules), _patterns(keys.get("protected"), report))


def _groups(node: ConfigNode | None, report: Report) -> tuple[str, ...]:
    if node is None or node.value is None:
        return tuple(BUILTIN)
    names: list[str] = []
    for item in report.items(node):
        if not isinstance(item.value, str) or item.value not in BUILTIN:
            hint = suggestion(str(item.value), BUILTIN)
            report.add(item, f"is {shown(item.value)}: there are no such built-in rules; {hint}")
        elif item.value not in names:
            names.append(item.value)
    return tuple(names)


def _own_rules(node: ConfigNode, taken: set[str], report: Report) -> list[Rule]:
    rules: list[Rule] = []
    for item in report.items(node):
        keys = report.mapping(item, RULE_KEYS)
        if not isinstance(item.value, dict):
            if item.value is None:
                report.add(item, "is empty: it must be a rule with a name")
            continue
        before = report.added
        given: dict[str, Any] = {key: keys[key].plain() for key in ("name", "why") if key in keys}
        given |= {aspect: _patterns(keys.get(aspect), report) for aspect in ASPECTS}
        given |= _allow(keys.get("allow", ConfigNode(None)), report)
        if "name" not in keys:
            report.add(item, "needs the key 'name'")
        elif keys["name"].value in taken:
            report.add(keys["name"], f"is {shown(keys['name'].value)}: another rule has that name")
        if report.added > before:
            continue
        rule = construct(Rule, given, keys, item, report)
        if rule is not None:
            taken.add(rule.name)
            rules.append(rule)
    return rules


def _allow(node: ConfigNode, report: Report) -> dict[str, tuple[str, ...]]:
    keys = report.mapping(node, ALLOWED)
    return {f"allow_{name}": _patterns(child, report) for name, child in keys.items()}


def _patterns(node: ConfigNode | None, report: Report) -> tuple[str, ...]:
    """The valid patterns of a list; the others are reported."""
    if node is None:
        return ()
    found: list[str] = []
    for item in report.items(node):
        text = item.value
        if not isinstance(text, str) or not text.strip():
            report.add(item, f"is {shown(text)}: a pattern must be a text that is not empty")
        elif len(text) > LONGEST_PATTERN:
            report.add(item, f"has {len(text)} characters: a pattern has {LONGEST_PATTERN} at most")
        else:
            found.append(text)
    return tuple(found)


ALIASES = {"provider": "external_dep", "policy_violation": "constitutional"}
"""The current keys of categories, and their names in `CATEGORIES`, which are also accepted."""


def build_breakers(node: ConfigNode, report: Report) -> Breakers:
    keys = report.mapping(node, (*CATEGORIES, *ALIASES))
    for alias, category in ALIASES.items():
        if alias in keys and category in keys:
            report.add(keys[alias], f"means the same as {category!r}: keep one of them")
        elif alias in keys:
            keys[category] = keys.pop(alias)
    built: dict[str, Category] = {}
    for name, make in CATEGORIES.items():
        child = keys.get(name, ConfigNode(None))
        nodes = report.mapping(child, fields_of(make))
        found = construct(make, _plain_values(nodes, report), nodes, child, report)
        built[name] = make() if found is None else found
    return Breakers(**built)


def build_crew(agents: ConfigNode, stories: ConfigNode, report: Report) -> Crew:
    """The agents and stories, checked against each other."""
    named = report.mapping(agents)
    found = {name: _make_named(agent, name, child, report) for name, child in named.items()}
    valid: dict[str, FleetAgent] = {name: one for name, one in found.items() if one is not None}
    for name, why in faults({name: _chain(child) for name, child in named.items()}):
        report.add(named[name].value["fallback_chain"], why)
    built = [
        _make_named(story, name, child, report) for name, child in report.mapping(stories).items()
    ]
    return Crew(valid, {one.name: one for one in built if one is not None})


def build_targets(node: ConfigNode, report: Report) -> tuple[Target, ...]:
    """The targets of notifications; their names must differ, because they identify the queues."""
    found: dict[str, Target] = {}
    for item in report.items(node):
        target = build_part(item, TARGETS, report)
        if target is None:
            continue
        if target.match.startswith("dep/"):
            report.note(item, "match is accepted; circuits of providers are now named provider/…")
            target = target.replace(match=f"provider/{target.match.removeprefix('dep/')}")
        if target.name in found:
            report.add(item, f"is the second target {target.name!r}: give it a name of its own")
        found[target.name] = target
    return tuple(found.values())


def _make_named(make: Callable[..., T], name: str, place: ConfigNode, report: Report) -> T | None:
    """The manifest of an agent or story, whose name is its key in the file."""
    fields = {field: one for field, one in fields_of(make).items() if field != "name"}
    nodes = report.mapping(place, fields)
    if place.value is not None and not isinstance(place.value, dict):
        return None
    before = report.added
    given = {field: child.plain() for field, child in nodes.items() if child.value is not None}
    # Placeholders replace missing or invalid required fields, so that other problems are reported, too.
    instead = {field: "unknown" for field, one in fields.items() if one.default is REQUIRED}
    for field in instead:
        if field not in given:
            report.add(place, f"needs the key {field!r}")
    given = {**instead, **given, "name": name}
    made = construct(make, given, nodes, place, report, instead={**instead, "name": "unknown"})
    return made if report.added == before else None


def _chain(place: ConfigNode) -> tuple[str, ...]:
    """The fallbacks of an agent as far as they are readable, even if the agent has other problems."""
    value = place.value if isinstance(place.value, dict) else {}
    items = value.get("fallback_chain", ConfigNode(None)).plain()
    return tuple(i for i in items if isinstance(i, str) and i) if isinstance(items, list) else ()


def _plain_values(nodes: dict[str, ConfigNode], report: Report) -> dict[str, Any]:
    given: dict[str, Any] = {}
    for name, child in nodes.items():
        if isinstance(child.value, list | dict):
            report.add(child, f"is {shown(child.value)}: it must be a single value")
        else:
            given[name] = child.value
    return given


# `wraps` gives the functions below the signature of the value that they check.


@wraps(Interventions, assigned=(), updated=())
def interventions(**given: Any) -> Interventions:
    """What is done about a stuck agent, with and without an operator."""
    plan = Interventions(**given)
    steps: Any = plan.when_alone
    if not isinstance(steps, list | tuple):
        rule = f"it must be a list of {', '.join(escalation.STEP_NAMES)}"
        raise ValueError(f"Interventions.when_alone is {steps!r}: {rule}")
    return escalation.checked(plan._replace(when_alone=tuple(steps)))


@wraps(Timeouts, assigned=(), updated=())
def time_rules(**given: Any) -> Timeouts:
    """How long tasks may take: fixed, by size, or learned from similar ones."""
    return timeouts.checked(Timeouts(**given))


def build_section(make: Callable[..., T], node: ConfigNode, report: Report) -> T | None:
    """The section that `make` builds; `None` if it has problems, which are reported."""
    nodes = report.mapping(node, fields_of(make))
    given = {name: child.plain() for name, child in nodes.items()}
    return construct(make, given, nodes, node, report)


def build_second_opinion(node: ConfigNode, report: Report) -> SecondOpinion | None:
    """The section; `None` if there is none or it has problems, which are reported."""
    keys = node.value if isinstance(node.value, dict) else {}
    if node.value is not None and ("command" in keys) == ("model" in keys):
        report.mapping(node, fields_of(second_opinion))
        report.add(node, "needs one of the keys 'command' and 'model'")
        return None
    return None if node.value is None else build_section(second_opinion, node, report)


_KEYS = ("limit_dollars", "circuit", "nodes")


def build_budgets(node: ConfigNode, report: Report) -> tuple[Open, ...]:
    found: list[Open] = []
    for name, child in report.mapping(node).items():
        _add(name, child, report, found)
    return tuple(found)


def _add(path: str, node: ConfigNode, report: Report, found: list[Open]) -> None:
    nodes = report.mapping(node, _KEYS)
    given = {name: child.plain() for name, child in nodes.items() if name != "nodes"}
    made = construct(_check_node, {"path": path, **given}, nodes, node, report)
    if made is not None:
        found.append(made)
    for name, child in report.mapping(nodes.get("nodes", ConfigNode(None))).items():
        _add(f"{path}/{name}", child, report, found)


def _check_node(path: str, limit_dollars: Any = None, circuit: Any = None) -> Open:
    """A node of the budgets, with the checks of the command `switchgear budgets`."""
    limit = None
    if limit_dollars is not None:
        dollars = values.check_number("budgets.limit_dollars", limit_dollars)
        exact = round(dollars * 1_000_000)
        if dollars < 0 or exact / 1_000_000 != dollars:
            rule = "it must not be below 0, and have at most 6 decimals"
            raise ValueError(f"budgets.limit_dollars is {limit_dollars!r}: {rule}")
        limit = checked_micros("budgets.limit_dollars", exact)
    if circuit is not None:
        checked_name(values.check_text("budgets.circuit", circuit))
    return Open(checked_path(path), limit, circuit or "")


ON_TROUBLE = ("admit", "refuse")


@wraps(Hooks, assigned=(), updated=())
def hooks_of(**given: Any) -> Hooks:
    """How the hooks of agents decide."""
    made = Hooks(**given)
    if made.story is not None:
        checked_name(values.check_text("Hooks.story", made.story))
    values.check_one_of("Hooks.on_trouble", made.on_trouble, ON_TROUBLE)
    if made.context_tokens is not None:
        values.check_int("Hooks.context_tokens", made.context_tokens, least=1000)
    return made._replace(lease_s=values.check_seconds("Hooks.lease_s", made.lease_s))


def build_loops(node: ConfigNode, report: Report) -> dict[str, LoopPreset]:
    """The loop presets by name; a preset may extend a built-in preset or an earlier one."""
    built: dict[str, LoopPreset] = {}
    fields = fields_of(loop_preset)
    for name, child in report.mapping(node).items():
        nodes = report.mapping(child, ("extends", *fields))
        base = _base(nodes.pop("extends", None), built, report)
        given = {key: value.plain() for key, value in nodes.items()}
        inherited = {} if base is None else {key: getattr(base, key) for key in fields}
        if "max_iterations" not in {**inherited, **given}:
            report.add(child, "needs the key 'max_iterations', or a loop that it extends")
            continue
        preset = construct(loop_preset, {**inherited, **given}, nodes, child, report)
        if preset is not None:
            built[name] = preset._replace(name=name)
    return built


def loop_preset(
    *,
    max_iterations: int,
    description: str = "",
    prompt: str = "",
    consecutive_failures: int = 3,
    same_error: int = 5,
    validate: bool = True,
    commit: bool = False,
) -> LoopPreset:
    """A loop: how long it may run, what stops it, and the text before the task in the prompt."""
    for field, text in (("description", description), ("prompt", prompt)):
        if not isinstance(text, str):
            raise ValueError(f"loop.{field} is {text!r}: it must be a text")
    return LoopPreset(
        "",
        values.check_int("loop.max_iterations", max_iterations),
        description,
        prompt,
        values.check_int("loop.consecutive_failures", consecutive_failures),
        values.check_int("loop.same_error", same_error),
        values.check_bool("loop.validate", validate),
        values.check_bool("loop.commit", commit),
    )


def _base(
    node: ConfigNode | None, built: dict[str, LoopPreset], report: Report
) -> LoopPreset | None:
    if node is None:
        return None
    known = {**LOOP_PRESETS, **built}
    name: Any = node.value
    if isinstance(name, str) and name in known:
        return known[name]
    hint = suggestion(str(name), sorted(known))
    report.add(node, f"is {shown(name)}: there is no such loop before it; {hint}")
    return None


def operations(
    *,
    failure_threshold: int = 3,
    failure_window_s: float = 60.0,
    open_duration_s: float = 30.0,
    half_open_max_calls: int = 1,
) -> Policy:
    """The policy of every operation (`op/*`): failures in the window that open it, and for how long."""
    name = "circuit_breaker"
    failures = values.check_int(f"{name}.failure_threshold", failure_threshold)
    window_s = values.check_window_s(f"{name}.failure_window_s", failure_window_s)
    open_s = values.check_seconds(f"{name}.open_duration_s", open_duration_s)
    probes = values.check_int(f"{name}.half_open_max_calls", half_open_max_calls)
    cooldown = Cooldown(open_s, open_s, probes=probes)
    return Policy([FailuresInWindow(failures, window_s)], cooldown)


def build_operations(node: ConfigNode, report: Report) -> tuple[CircuitPolicy, ...]:
    """The policy for `op/*` if the section exists; it comes after those of `circuits`."""
    policy = None if node.value is None else build_section(operations, node, report)
    return () if policy is None else (CircuitPolicy("op/*", policy),)
