"""The options of a run: amounts as people type them, their precedence, and the loop limits they set.

Flags take precedence over the preset, the preset over the configuration, and that over the defaults.
Each option is one field of `RunOptions`, and each field can be written to a file and read again, so
that a run resumes as it began.

A limit is set by a flag, by a preset or by a task of a batch; all others have their defaults. A limit
that was set takes precedence over those that were not:

- an unset count of failures or of equal errors is raised, so that it does not stop the loop before
  the count that was set;
- where a count of failures or of equal errors is set, an iteration that failed is judged by those
  two alone: an unset `no_progress` and an unset `output_decline_percent` ignore it;
- where `no_progress` is set, an unset `output_decline_percent` ignores iterations without progress.

0 (never) sets a limit too, but raises no other.
"""

import math
import re
from collections.abc import Iterable, Mapping
from decimal import Decimal, InvalidOperation
from typing import Any, NamedTuple

from switchgear._breaker.loop_breaker import LimitsInEffect
from switchgear._breaker.presets import LOOP_PRESETS, LoopPreset
from switchgear._budgets.tree import checked_path
from switchgear._core import values
from switchgear._fleet.manifest import near
from switchgear._providers.prices import Rates

_SPAN = re.compile(r"(\d{1,9}(?:\.\d{1,6})?) ?(ms|s|sec|m|min|h|d)?", re.ASCII)
_SECONDS = {"ms": 0.001, "s": 1.0, "sec": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86_400.0}
_RATE = re.compile(r"(\d{1,9})(?: ?/ ?(?:h|hour))?", re.ASCII)
MAX_MICROS = 10**15


def seconds(field: str, text: str, *, bare: bool = False) -> float:
    """Parse a span such as `90s`, `30m`, `1.5h` or `1h30m` to seconds; 0 needs no unit. Raises ValueError.

    `bare`: a number without a unit is allowed, and means seconds.

    >>> seconds("--timeout", "1h30m"), seconds("timeout", "45", bare=True)
    (5400.0, 45.0)
    """
    total, rest = 0.0, text.strip()
    alone = _SPAN.fullmatch(rest)
    if alone is not None and alone[2] is None and not bare and float(alone[1]):
        number = alone[1]
        raise ValueError(
            f"{field} is {text!r}: it needs a unit; write {number}s for seconds, {number}m for "
            f"minutes or {number}h for hours"
        )
    while rest:
        match = _SPAN.match(rest)
        if match is None or (match[2] is None and (total or match.end() < len(rest))):
            break
        total += float(match[1]) * _SECONDS[match[2] or "s"]
        rest = rest[match.end() :].strip()
    if rest or not text.strip() or not math.isfinite(total):
        raise ValueError(f"{field} is {text!r}: it must be a span such as 90s, 30m, 2h or 1h30m")
    return total


def micros(field: str, text: str) -> int:
    """Parse dollars to whole micro-dollars. Raises ValueError.

    >>> micros("--budget", "1.50"), micros("--budget", "$0.000001")
    (1500000, 1)
    """
    try:
        amount = Decimal(text.strip().removeprefix("$")) * 1_000_000
    except InvalidOperation:
        amount = Decimal("NaN")
    if not amount.is_finite() or not 0 <= amount <= MAX_MICROS or amount != int(amount):
        raise ValueError(
            f"{field} is {text!r}: it must be dollars such as 5 or 0.25, with at most six decimals, "
            f"and not above {MAX_MICROS // 1_000_000:,}"
        )
    return int(amount)


def per_hour(field: str, text: str) -> int:
    """Parse `50/h` or `50`. Raises ValueError.

    >>> per_hour("--rate-limit", "50/h")
    50
    """
    match = _RATE.fullmatch(text.strip())
    if match is None or not int(match[1]):
        raise ValueError(f"{field} is {text!r}: it must be iterations an hour, such as 50 or 50/h")
    return int(match[1])


AUTO = "auto"
"""The value of `validate` that selects the project's own test command."""
DEFAULT_ITERATIONS = 30
DEFAULT_IDLE_S = 1800.0
"""Seconds without output after which an agent counts as hung."""
LIMITS = ("consecutive_failures", "same_error", "no_progress", "output_decline_percent")
"""The limits of the loop's circuit."""


class RunOptions(NamedTuple):
    """The options of a run. Immutable.

    A limit that is `None` is disabled; on the command line that is 0.
    """

    task: str
    agent: str | None = None
    """The name of a known agent; `None` with `agent_cmd`."""
    agent_cmd: str | None = None
    """A command instead, with `{prompt}` where the prompt belongs."""
    model: str | None = None
    preset: str | None = None
    prompt: str = ""
    """Text of the preset that precedes the task."""
    consecutive_failures: int | None = 3
    same_error: int | None = 5
    no_progress: int | None = 3
    output_decline_percent: float | None = 70.0
    max_iterations: int = DEFAULT_ITERATIONS
    validate: str | None = None
    """The command that must succeed; `auto`: the project's own; `None`: none."""
    commit: bool = False
    rate_limit: int | None = None
    """Iterations an hour."""
    budget_micros: int | None = None
    budget_node: str | None = None
    """The node of the budgets from which the budget is reserved, such as `atlas/release-1`."""
    allow_unknown_price: bool = False
    price_in_micros: int | None = None
    """The price of a million input tokens in micro-dollars; `None`: by the price list."""
    price_out_micros: int | None = None
    timeout_s: float | None = None
    """Time limit for the whole run, including waits."""
    idle_timeout_s: float | None = DEFAULT_IDLE_S
    completion_promise: str | None = None
    plan: str | None = None
    """A file with a checklist, relative to the folder."""
    shadow: bool = False
    stuck: bool = False
    """Detect a stuck agent by its steps, and respond: see `docs/stuck.md`."""
    given: tuple[str, ...] = ()
    """Which of `LIMITS` a flag or a preset set, even to their defaults."""

    @property
    def rates(self) -> Rates | None:
        """The user's own prices of tokens; `None`: none are given."""
        if self.price_in_micros is None or self.price_out_micros is None:
            return None
        sent, output = self.price_in_micros, self.price_out_micros
        return Rates(sent, output, sent, sent)

    @property
    def differing(self) -> tuple[str, ...]:
        """Which of `LIMITS` differ from their defaults."""
        usual = self._field_defaults
        return tuple(name for name in LIMITS if getattr(self, name) != usual[name])

    @property
    def agent_label(self) -> str:
        """The name of the agent, also in names of circuits."""
        if self.agent is not None:
            return self.agent
        return (self.agent_cmd or "").split(maxsplit=1)[0].rsplit("/", 1)[-1] or "command"

    def dump(self) -> dict[str, Any]:
        """As JSON values."""
        return {**self._asdict(), "given": list(self.given)}

    @classmethod
    def load(cls, data: Mapping[str, Any]) -> "RunOptions":
        """The inverse of `dump`; a field that is missing has its default. Raises ValueError."""
        known = {key: value for key, value in data.items() if key in cls._fields}
        if not isinstance(known.get("task"), str):
            raise ValueError("the options of the run have no task")
        given = known.pop("given", None)
        options = cls(**known)
        if given is None:  # written by an older version
            given = options.differing
        return checked(options._replace(given=tuple(name for name in given if name in LIMITS)))

    def changed(self, flags: Mapping[str, Any]) -> "RunOptions":
        """The options with these flags applied, for a resumed run. Raises ValueError."""
        given = _switched_off({key: value for key, value in flags.items() if value is not None})
        return checked(self._replace(**given, given=_limits_set(self.given, flags)))


def _limits_set(before: Iterable[str], flags: Mapping[str, Any]) -> tuple[str, ...]:
    """The limits that were set before or are set by these flags, in the order of `LIMITS`."""
    chosen = {*before, *(name for name in LIMITS if flags.get(name) is not None)}
    return tuple(name for name in LIMITS if name in chosen)


def run_options(
    task: str,
    flags: Mapping[str, Any],
    *,
    presets: Mapping[str, LoopPreset] | None = None,
    defaults: Mapping[str, Any] | None = None,
) -> RunOptions:
    """The options of a run. A flag that is `None` was not given.

    `presets` are the user-defined ones; `defaults` are the configured options of every run, by field name.
    Raises ValueError with the field, the value and the rule.
    """
    given = {key: value for key, value in flags.items() if value is not None}
    values = dict(defaults or {})
    name = given.get("preset", values.get("preset"))
    if name is not None:
        preset = preset_named(name, presets or {})
        shared = ("prompt", "max_iterations", "consecutive_failures", "same_error", "commit")
        values |= {field: getattr(preset, field) for field in shared}
        values |= {"preset": preset.name, "validate": AUTO if preset.validate else None}
    merged = {**_switched_off(values | given), "given": _limits_set((), values | given)}
    unknown = merged.keys() - set(RunOptions._fields)
    if unknown:
        raise ValueError(f"a run has no option {min(unknown)!r}")
    if "agent" in given or "agent_cmd" in given:  # a flag for one replaces a default for the other
        merged = {"agent": None, "agent_cmd": None, **merged}
        merged |= {"agent": given.get("agent"), "agent_cmd": given.get("agent_cmd")}
    return checked(RunOptions(**{"task": task, **merged}))


def preset_named(name: str, presets: Mapping[str, LoopPreset]) -> LoopPreset:
    """A preset by its name, the user's own first. Raises ValueError, with the nearest name."""
    known = LOOP_PRESETS | dict(presets)
    if name in known:
        return known[name]
    raise ValueError(f"there is no preset {name!r}; {near(name, known)}")


def checked(options: RunOptions) -> RunOptions:
    """Return valid options unchanged. Raises ValueError for others."""
    if not options.task.strip():
        raise ValueError("the task is empty: describe what to do")
    if options.agent is not None and options.agent_cmd is not None:
        raise ValueError("--agent and --agent-cmd are both given: a run has one agent")
    if options.agent is None and not (options.agent_cmd or "").strip():
        raise ValueError("no agent is named: add --agent NAME or --agent-cmd 'CMD {prompt}'")
    if (options.price_in_micros is None) is not (options.price_out_micros is None):
        raise ValueError("--price-in and --price-out belong together: both are dollars per million")
    if options.completion_promise is not None and not options.completion_promise.strip():
        raise ValueError(
            "--completion-promise is empty: it must be a text that the agent can print"
        )
    values.check_int("--max-iterations", options.max_iterations)
    for check, field, value in (
        (values.check_int, "--circuit-breaker-failures", options.consecutive_failures),
        (values.check_int, "--circuit-breaker-errors", options.same_error),
        (values.check_int, "--no-progress", options.no_progress),
        (values.check_int, "--rate-limit", options.rate_limit),
        (values.check_seconds, "--timeout", options.timeout_s),
        (values.check_seconds, "--idle-timeout", options.idle_timeout_s),
    ):
        if value is not None:
            check(field, value)
    percent = options.output_decline_percent
    if percent is not None and not 0 < percent <= 100:
        raise ValueError(f"--output-decline is {percent!r}: it must be above 0 and at most 100")
    if options.budget_node is not None:
        checked_path(options.budget_node)
    return options


_ZERO_IS_OFF = frozenset((*LIMITS, "rate_limit", "timeout_s", "idle_timeout_s"))


def _switched_off(given: Mapping[str, Any]) -> dict[str, Any]:
    """Replace what switches an option off by `None`: 0 for a limit, and an empty validation."""
    switched: dict[str, Any] = {
        key: None if key in _ZERO_IS_OFF and value == 0 else value for key, value in given.items()
    }
    if switched.get("validate") == "":
        switched["validate"] = None
    return switched


_TEXTS = {
    "consecutive_failures": "failed iterations in a row: {}",
    "same_error": "occurrences of the same error: {}",
    "no_progress": "iterations without progress: {}, then one more",
    "output_decline_percent": "output under {:g}% of its usual length, twice in a row",
}


def limits_of(options: RunOptions) -> LimitsInEffect:
    """The limits in effect for a run.

    >>> limits_of(RunOptions("t", "demo", consecutive_failures=8, given=("consecutive_failures",)))[:3]
    (8, 8, 3)
    """
    limits = LimitsInEffect(*(getattr(options, name) for name in LIMITS))
    return limits.with_set(options.given)


def describe_limits(options: RunOptions) -> list[str]:
    """A line of text for each limit: what stops the loop, and whether that was set."""
    limits, chosen = limits_of(options), frozenset(options.given)
    lines = []
    for name, text in _TEXTS.items():
        value = getattr(limits, name)
        how = "set" if name in chosen else "default"
        if name not in chosen and value != getattr(options, name):
            how = "default, raised to what is set"
        elif (name == "no_progress" and limits.standstill_ignores_failures) or (
            name == "output_decline_percent" and limits.output_ignores_failures
        ):
            how = "default, without failed iterations"
        off = f"{name.replace('_', ' ').removesuffix(' percent')}: off"
        lines.append(off if value is None else f"{text.format(value)} ({how})")
    return lines
