"""What a run is told: flags beat the preset, the preset beats the configuration, that the defaults.

Each choice is one field of `RunOptions`, and each field can be written to a file and read again,
so that a run can be resumed as it was begun.
"""

import difflib
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from switchgear._agents.prices import Rates
from switchgear._breaker.presets import LOOP_PRESETS, LoopPreset
from switchgear._budgets.tree import checked_path
from switchgear._core import values

AUTO = "auto"
"""As the validation: the project's own test command is looked for."""
DEFAULT_ITERATIONS = 30
DEFAULT_IDLE_S = 1800.0
"""An agent that says nothing for so long hangs."""


LIMITS = ("consecutive_failures", "same_error", "no_progress", "output_decline_percent")
"""The limits of the loop's circuit."""


class RunOptions(NamedTuple):
    """Everything that decides how a run goes. Immutable.

    A limit that is `None` is not watched; on the command line that is 0.
    """

    task: str
    agent: str | None = None
    """The name of a known agent; `None` with `agent_cmd`."""
    agent_cmd: str | None = None
    """A command instead, with `{prompt}` where the prompt belongs."""
    model: str | None = None
    preset: str | None = None
    prompt: str = ""
    """Put before the task, by the preset."""
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
    """A node of the budgets that it is set aside from, such as `atlas/wave-1`."""
    allow_unknown_price: bool = False
    price_in_micros: int | None = None
    """What a million tokens of input cost, in micro-dollars; `None`: as the price list says."""
    price_out_micros: int | None = None
    timeout_s: float | None = None
    """For the whole run, with all that it waits."""
    idle_timeout_s: float | None = DEFAULT_IDLE_S
    completion_promise: str | None = None
    plan: str | None = None
    """A file with a checklist, relative to the folder."""
    shadow: bool = False
    stuck: bool = False
    """Watch the agent's steps by the stuck score, and step in: see `docs/stuck.md`."""
    given: tuple[str, ...] = ()
    """Which of `LIMITS` a flag or a preset set, even to their defaults; see `_run/limits.py`."""

    @property
    def rates(self) -> Rates | None:
        """The user's own prices of tokens; `None`: none are given."""
        if self.price_in_micros is None or self.price_out_micros is None:
            return None
        sent, said = self.price_in_micros, self.price_out_micros
        return Rates(sent, said, sent, sent)

    @property
    def differing(self) -> tuple[str, ...]:
        """Which of `LIMITS` differ from their defaults."""
        usual = self._field_defaults
        return tuple(name for name in LIMITS if getattr(self, name) != usual[name])

    @property
    def agent_label(self) -> str:
        """What the agent is called, in names of circuits too."""
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
        if given is None:  # by a version that did not write it
            given = options.differing
        known["given"] = tuple(name for name in given if name in LIMITS)
        return checked(cls(**known))

    def changed(self, flags: Mapping[str, Any]) -> "RunOptions":
        """The same with these flags, for a run that goes on. Raises ValueError."""
        given = _switched_off({key: value for key, value in flags.items() if value is not None})
        return checked(self._replace(**given, given=_given(self.given, flags)))


def _given(before: Iterable[str], flags: Mapping[str, Any]) -> tuple[str, ...]:
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

    `presets` are the user's own, beside ours; `defaults` is what the configuration says of every
    run, by the fields' names. Raises ValueError with the field, the value and the rule.
    """
    given = {key: value for key, value in flags.items() if value is not None}
    told = dict(defaults or {})
    name = given.get("preset", told.get("preset"))
    told |= {} if name is None else of_preset(preset_named(name, presets or {}))
    merged = {**_switched_off(told | given), "given": _given((), told | given)}
    unknown = merged.keys() - set(RunOptions._fields)
    if unknown:
        raise ValueError(f"a run has no option {min(unknown)!r}")
    if "agent" in given or "agent_cmd" in given:  # the one that was typed replaces the other
        merged = {"agent": None, "agent_cmd": None, **merged}
        merged |= {"agent": given.get("agent"), "agent_cmd": given.get("agent_cmd")}
    return checked(RunOptions(**{"task": task, **merged}))


def preset_named(name: str, presets: Mapping[str, LoopPreset]) -> LoopPreset:
    """A preset by its name, the user's own first. Raises ValueError, with the nearest name."""
    known = LOOP_PRESETS | dict(presets)
    if name in known:
        return known[name]
    near = difflib.get_close_matches(name, known, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(known)}"
    raise ValueError(f"there is no preset {name!r}; {hint}")


def of_preset(preset: LoopPreset) -> dict[str, Any]:
    """What a preset says, by the fields of `RunOptions`."""
    return {
        "preset": preset.name,
        "prompt": preset.prompt,
        "max_iterations": preset.max_iterations,
        "consecutive_failures": preset.consecutive_failures,
        "same_error": preset.same_error,
        "validate": AUTO if preset.validate else None,
        "commit": preset.commit,
    }


def checked(options: RunOptions) -> RunOptions:
    """The options, if they can be followed. Raises ValueError."""
    if not options.task.strip():
        raise ValueError("the task is empty: say what is to be done")
    if options.agent is not None and options.agent_cmd is not None:
        raise ValueError("--agent and --agent-cmd are both given: a run has one agent")
    if options.agent is None and not (options.agent_cmd or "").strip():
        raise ValueError("no agent is named: add --agent NAME or --agent-cmd 'CMD {prompt}'")
    if (options.price_in_micros is None) is not (options.price_out_micros is None):
        raise ValueError("--price-in and --price-out belong together: both are dollars per million")
    if options.completion_promise is not None and not options.completion_promise.strip():
        raise ValueError("--completion-promise is empty: it must be a text that the agent can say")
    values.whole("--max-iterations", options.max_iterations)
    for field, value in (
        ("--circuit-breaker-failures", options.consecutive_failures),
        ("--circuit-breaker-errors", options.same_error),
        ("--no-progress", options.no_progress),
        ("--rate-limit", options.rate_limit),
    ):
        if value is not None:
            values.whole(field, value)
    percent = options.output_decline_percent
    if percent is not None and not 0 < percent <= 100:
        raise ValueError(f"--output-decline is {percent!r}: it must be above 0 and at most 100")
    if options.timeout_s is not None:
        values.seconds("--timeout", options.timeout_s)
    if options.idle_timeout_s is not None:
        values.seconds("--idle-timeout", options.idle_timeout_s)
    if options.budget_node is not None:
        checked_path(options.budget_node)
    return options


_ZERO_IS_OFF = frozenset(
    (
        *("consecutive_failures", "same_error", "no_progress", "output_decline_percent"),
        *("rate_limit", "timeout_s", "idle_timeout_s"),
    )
)


def _switched_off(given: Mapping[str, Any]) -> dict[str, Any]:
    """0 switches a limit off; an empty validation switches that off."""
    switched: dict[str, Any] = {
        key: None if key in _ZERO_IS_OFF and value == 0 else value for key, value in given.items()
    }
    if switched.get("validate") == "":
        switched["validate"] = None
    return switched
