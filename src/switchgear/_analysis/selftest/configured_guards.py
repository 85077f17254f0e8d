"""Every guard that is configured, row by row: each of its detectors is attacked where it stands."""

from collections.abc import Iterator
from typing import Any

from switchgear._analysis.selftest.attacks import attacks_on
from switchgear._analysis.selftest.facts_sent import OTHERS, Path, family_of, paths
from switchgear._analysis.selftest.rows import Row, failed
from switchgear._analysis.selftest.sandbox import Bench
from switchgear._analysis.selftest.trial import EVERYTHING, Trial, against, masked, needed
from switchgear._breaker.circuit_breaker import classic
from switchgear._breaker.loop_breaker import loop_policy
from switchgear._breaker.presets import PRESETS
from switchgear._config import Config, preset_policy
from switchgear._config.loader import read_document
from switchgear._config.problems import Report
from switchgear._core.detector import Detector
from switchgear._core.policy import Policy
from switchgear._hooks.compiler import DEFAULTS
from switchgear._locks.locks import lock_policy
from switchgear._text.glob import matcher

_FILLS = ("selftest", "x", "0", "a/b", "zz-9", "Q")
"""What stands for a star in the name of a circuit: one that an earlier row does not catch."""


def guards(bench: Bench) -> Iterator[Row]:
    """The rows of `circuits`, the defaults that hold beside them, unused policies, loops."""
    told = paths(bench.config, bench.root)
    for index, rule in enumerate(bench.config.circuits):
        name = sample_name(bench.config, index)
        if name is None:
            yield failed(rule.match, "any", "configuration", _shadowed(bench.config, index))
            continue
        yield from _attacked(rule.match, rule.policy, _path_of(rule.match, told))
    yield from _defaults(bench.config, told)
    yield from _unused(bench.config)
    yield from _loops(bench.config)
    if bench.config.source is None:
        for name in PRESETS:
            everything = Path("mechanism", EVERYTHING)
            yield from _attacked(f"preset {name}", preset_policy(name), everything)


def _attacked(guard: str, policy: Policy, path: Path) -> Iterator[Row]:
    """A row for each detector; those that trip only together, by one attack, share theirs."""
    yield from dict.fromkeys(_against(guard, policy, path, each) for each in policy.detectors)


def _against(guard: str, policy: Policy, path: Path, detector: Detector) -> Row:
    trial = against(policy, detector, masked(path.sent))
    if trial.tripped:
        by = " + ".join(trial.detectors)
        return Row(
            guard, trial.attack, path.name, by, trial.signals, trial.seconds, reason=trial.reason
        )
    why = _why_not(policy, detector, path, trial)
    names = [attack.name for attack in attacks_on(detector)]
    return failed(guard, names[0] if names else "any", path.name, f"{detector.kind}: {why}")


def _why_not(policy: Policy, detector: Detector, path: Path, trial: Trial) -> str:
    attacks = attacks_on(detector)
    if not attacks:
        return "this version of Switchgear does not know the detector, so it never fires here"
    if against(policy, detector).tripped:
        lacks = min((needed(attack) - path.sent for attack in attacks), key=len)
        facts = ", ".join(sorted(lacks)) or "what it weighs together with others"
        return f"nobody tells it its facts on this path ({path.name}): {facts}"
    return f"out of reach: {trial.signals:,} signals of the attack come to {trial.heat:.0%}: {trial.reason}"


def _path_of(glob: str, told: dict[str, Path]) -> Path:
    """The path that alone tells the circuits of a glob, or the library: everything."""
    return told.get(family_of(glob), Path(OTHERS, EVERYTHING))


def sample_name(config: Config, index: int) -> str | None:
    """The name of a circuit that this row decides; `None`: earlier rows catch all of its names."""
    match = config.circuits[index].match
    earlier = [matcher(rule.match) for rule in config.circuits[:index]]
    for fill in _FILLS:
        name = _named(match, fill)
        if matcher(match)(name) and not any(matches(name) for matches in earlier):
            return name
    return None


def _named(glob: str, fill: str) -> str:
    """A name that matches a glob: stars filled, of a set its first character."""
    name, rest = "", glob
    while rest:
        sign, rest = rest[0], rest[1:]
        if sign == "[" and "]" in rest[1:]:
            inside, _, rest = rest.partition("]")
            name += inside.lstrip("!")[:1] if not inside.startswith("!") else fill[:1]
        else:
            name += fill if sign == "*" else fill[:1] if sign == "?" else sign
    return name


def _shadowed(config: Config, index: int) -> str:
    name = _named(config.circuits[index].match, _FILLS[0])
    first = next(rule.match for rule in config.circuits if matcher(rule.match)(name))
    return f"never used: the first match wins, and {first!r} before it catches its circuits"


def _defaults(config: Config, told: dict[str, Path]) -> Iterator[Row]:
    """What holds for circuits that the file does not name."""
    holds: dict[str, Policy] = {glob: preset_policy(name) for glob, name in DEFAULTS[:-1]}
    holds |= {"provider/*": classic(), "loop/*": loop_policy(), "lock/*": lock_policy()}
    for glob, policy in holds.items():
        if config.policy_for(_named(glob, _FILLS[0])) is None:
            yield from _attacked(f"{glob} (default)", policy, _path_of(glob, told))


def _unused(config: Config) -> Iterator[Row]:
    """Policies that the file names and that judge nothing."""
    if config.source is None or not config.policies:
        return
    document: Any = read_document(config.source, Report(config.source)).plain()
    named = set(_references(document))
    for name in config.policies:
        if name not in named:
            why = "it judges nothing: no row of `circuits` and no other policy names it"
            yield failed(f"policy {name}", "any", "configuration", why)


def _references(document: Any) -> Iterator[str]:
    """The names of policies that circuits and other policies use."""
    for policy in (document.get("policies") or {}).values():
        yield str(policy.get("extends"))
    for rule in document.get("circuits") or ():
        if isinstance(rule["policy"], str):
            yield rule["policy"]
        else:
            yield str(rule["policy"].get("extends"))


def _loops(config: Config) -> Iterator[Row]:
    """The user's own loops: what needs more iterations than there are cannot fire."""
    for name, loop in config.loop_presets.items():
        policy = loop_policy(consecutive_failures=loop.consecutive_failures, same_error=None)
        for detector in policy.detectors:
            trial = against(policy, detector)
            guard, most = f"loop {name}", loop.max_iterations
            if trial.signals > most:
                why = f"it needs {trial.signals} iterations, and the loop ends after {most}"
                yield failed(guard, trial.attack, "loop runner", f"{detector.kind}: {why}")
            else:
                by = " + ".join(trial.detectors)
                yield Row(guard, trial.attack, "loop runner", by, trial.signals, trial.seconds)
