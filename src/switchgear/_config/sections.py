"""The section `circuit_breaker`: operations under hooks, by the keys of the operations specification."""

from collections.abc import Callable
from typing import Any, TypeVar

from switchgear._breaker.presets import LOOP_PRESETS, LoopPreset
from switchgear._budgets.tree import Open, checked_micros, checked_path
from switchgear._config.model import Hooks, Rule
from switchgear._config.parts import construct, fields_of
from switchgear._config.problems import Node, Report, shown, suggestion
from switchgear._core import values
from switchgear._core.policy import Policy
from switchgear._core.recovery import Cooldown
from switchgear._detectors import FailuresInWindow
from switchgear._stores.base import checked_name
from switchgear._stuck import escalation, timeouts
from switchgear._stuck.escalation import Interventions
from switchgear._stuck.timeouts import Timeouts

T = TypeVar("T")


def interventions(
    *,
    when_alone: Any = escalation.STEP_NAMES,
    hint: str = escalation.HINT,
    extend_s: float = 300.0,
    escalate: str | None = None,
    helper: str = escalation.HELPER,
    ask_s: float = 60.0,
    in_runs: bool = False,
    progress: bool = True,
) -> Interventions:
    """What is done about a stuck agent, when somebody is there and when nobody is."""
    if not isinstance(when_alone, list | tuple):
        rule = f"it must be a list of {', '.join(escalation.STEP_NAMES)}"
        raise ValueError(f"Interventions.when_alone is {when_alone!r}: {rule}")
    step_names = tuple(when_alone)
    plan = Interventions(step_names, hint, extend_s, escalate, helper, ask_s, in_runs, progress)
    return escalation.checked(plan)


def time_rules(
    *,
    policy: str = "adaptive",
    fixed_s: float = 300.0,
    base_s: float = 120.0,
    per_file_s: float = 30.0,
    per_line_s: float = 0.1,
    per_dependency_s: float = 60.0,
    complex_factor: float = 2.0,
    deviations: float = 4.0,
    min_runs: int = 5,
    session_s: float | None = None,
) -> Timeouts:
    """How long tasks may take: fixed, by size, or learned from similar ones."""
    rules = Timeouts(
        *(policy, fixed_s, base_s, per_file_s, per_line_s, per_dependency_s, complex_factor),
        *(deviations, min_runs, session_s),
    )
    return timeouts.checked(rules)


def build_interventions(node: Node, report: Report) -> Interventions:
    """The section; the default for what is wrong, which is reported."""
    nodes = report.mapping(node, fields_of(interventions))
    return _built(interventions, nodes, node, report) or Interventions()


def build_timeouts(node: Node, report: Report) -> Timeouts:
    """The section; the default for what is wrong, which is reported."""
    nodes = report.mapping(node, fields_of(time_rules))
    return _built(time_rules, nodes, node, report) or Timeouts()


def _built(make: Callable[..., T], nodes: dict[str, Node], node: Node, report: Report) -> T | None:
    given = {name: child.plain() for name, child in nodes.items()}
    return construct(make, given, nodes, node, report)


_KEYS = ("limit_dollars", "circuit", "nodes")


def build_budgets(node: Node, report: Report) -> tuple[Open, ...]:
    """The nodes, each before those below it."""
    found: list[Open] = []
    for name, child in report.mapping(node).items():
        _add(name, child, report, found)
    return tuple(found)


def _add(path: str, node: Node, report: Report, found: list[Open]) -> None:
    nodes = report.mapping(node, _KEYS)
    given = {name: child.plain() for name, child in nodes.items() if name != "nodes"}
    made = construct(_opened, {"path": path, **given}, nodes, node, report)
    if made is not None:
        found.append(made)
    for name, child in report.mapping(nodes.get("nodes", Node(None))).items():
        _add(f"{path}/{name}", child, report, found)


def _opened(path: str, limit_dollars: Any = None, circuit: Any = None) -> Open:
    """Checks a node as the command does."""
    limit = None
    if limit_dollars is not None:
        dollars = values.number("budgets.limit_dollars", limit_dollars)
        exact = round(dollars * 1_000_000)
        if dollars < 0 or exact / 1_000_000 != dollars:
            rule = "it must not be below 0, and have at most 6 decimals"
            raise ValueError(f"budgets.limit_dollars is {limit_dollars!r}: {rule}")
        limit = checked_micros("budgets.limit_dollars", exact)
    if circuit is not None:
        checked_name(values.text("budgets.circuit", circuit))
    return Open(checked_path(path), limit, circuit or "")


ON_TROUBLE = ("admit", "refuse")


def hooks_of(
    *,
    on_trouble: str = Hooks().on_trouble,
    lease_s: float = Hooks().lease_s,
    story: str | None = None,
    context_tokens: int | None = None,
) -> Hooks:
    """Checks the values as the parts of a policy do."""
    if story is not None:
        checked_name(values.text("Hooks.story", story))
    return Hooks(
        values.one_of("Hooks.on_trouble", on_trouble, ON_TROUBLE),
        values.seconds("Hooks.lease_s", lease_s),
        story,
        None
        if context_tokens is None
        else values.whole("Hooks.context_tokens", context_tokens, least=1000),
    )


def build_hooks(node: Node, report: Report) -> Hooks:
    """The section; the default for what is wrong, which is reported."""
    nodes = report.mapping(node, fields_of(hooks_of))
    given: dict[str, Any] = {name: child.plain() for name, child in nodes.items()}
    return construct(hooks_of, given, nodes, node, report) or Hooks()


def build_loops(node: Node, report: Report) -> dict[str, LoopPreset]:
    """The presets by their names; one may extend one of ours, or one that stands before it."""
    built: dict[str, LoopPreset] = {}
    for name, child in report.mapping(node).items():
        nodes = report.mapping(child, ("extends", *KEYS))
        base = _base(nodes.pop("extends", None), built, report)
        given = {key: value.plain() for key, value in nodes.items()}
        told = {} if base is None else {key: getattr(base, key) for key in KEYS}
        if "max_iterations" not in {**told, **given}:
            report.add(child, "needs the key 'max_iterations', or a loop that it extends")
            continue
        preset = construct(loop_preset, {**told, **given}, nodes, child, report)
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
    """A loop: how long it may run, what stops it, and what the agent is told before the task."""
    for field, value in (("validate", validate), ("commit", commit)):
        if not isinstance(value, bool):
            raise ValueError(f"loop.{field} is {value!r}: it must be true or false")
    for field, text in (("description", description), ("prompt", prompt)):
        if not isinstance(text, str):
            raise ValueError(f"loop.{field} is {text!r}: it must be a text")
    return LoopPreset(
        "",
        values.whole("loop.max_iterations", max_iterations),
        description,
        prompt,
        values.whole("loop.consecutive_failures", consecutive_failures),
        values.whole("loop.same_error", same_error),
        validate,
        commit,
    )


KEYS = (
    *("max_iterations", "description", "prompt", "consecutive_failures", "same_error"),
    *("validate", "commit"),
)


def _base(node: Node | None, built: dict[str, LoopPreset], report: Report) -> LoopPreset | None:
    if node is None:
        return None
    known = {**LOOP_PRESETS, **built}
    name: Any = node.value
    if name in known if isinstance(name, str) else False:
        return known[name]
    hint = suggestion(str(name), sorted(known))
    report.add(node, f"is {shown(name)}: there is no such loop before it; {hint}")
    return None


MATCH = "op/*"


def operations(
    *,
    failure_threshold: int = 3,
    failure_window_s: float = 60.0,
    open_duration_s: float = 30.0,
    half_open_max_calls: int = 1,
) -> Policy:
    """How every operation (`op/*`) is judged: so many failures in the window open it for so long."""
    name = "circuit_breaker"
    failures = values.whole(f"{name}.failure_threshold", failure_threshold)
    window_s = values.window(f"{name}.failure_window_s", failure_window_s)
    open_s = values.seconds(f"{name}.open_duration_s", open_duration_s)
    probes = values.whole(f"{name}.half_open_max_calls", half_open_max_calls)
    cooldown = Cooldown(open_s, open_s, probes=probes)
    return Policy([FailuresInWindow(failures, window_s)], cooldown)


def build_operations(node: Node, report: Report) -> tuple[Rule, ...]:
    """The rule for `op/*`, if the section is there; it comes after those of `circuits`."""
    nodes = report.mapping(node, fields_of(operations))
    if not isinstance(node.value, dict):
        return ()
    given = {name: child.plain() for name, child in nodes.items()}
    policy = construct(operations, given, nodes, node, report)
    return () if policy is None else (Rule(MATCH, policy),)
