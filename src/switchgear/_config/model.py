"""What a configuration is, once it is read: plain values, nothing of the file's syntax."""

from typing import NamedTuple

from switchgear._breaker.presets import LoopPreset
from switchgear._budgets.tree import Open
from switchgear._core.policy import Policy
from switchgear._fleet.categories import Breakers
from switchgear._fleet.manifest import Crew
from switchgear._fleet.targets import Target
from switchgear._opinion.opinion import SecondOpinion
from switchgear._rules import rules as core_rules
from switchgear._rules.builtin import builtin_rules
from switchgear._sinks import Sink
from switchgear._stores.base import IDLE_S, KEEP_EVENTS
from switchgear._stuck.escalation import Interventions
from switchgear._stuck.timeouts import Timeouts
from switchgear._text.glob import matcher
from switchgear._text.redact import redact


class Retention(NamedTuple):
    """What a store keeps: see `Store.vacuum`."""

    events: int = KEEP_EVENTS
    idle_s: float = IDLE_S


class Hooks(NamedTuple):
    """How the hooks of agents decide: the section `hooks`."""

    on_trouble: str = "admit"
    """What a hook does that cannot decide: `admit` or `refuse`. It says so either way."""
    lease_s: float = 1800.0
    """After how long a tool call whose end was never told is given up."""
    story: str | None = None
    """Which story the work is for: the circuit `story/<name>` is asked and told, if it has a policy."""
    context_tokens: int | None = None
    """How large the context window is, where the agent does not tell; `None`: as the price list says."""


class CircuitPolicy(NamedTuple):
    """Which policy the circuits have whose names match a glob."""

    match: str
    policy: Policy


class RuleBook(NamedTuple):
    """The absolute rules that hold, and the paths that belong to the guard."""

    rules: tuple[core_rules.Rule, ...] = builtin_rules()
    protected: tuple[str, ...] = ()
    """Globs beyond those that are built in, and the configuration and store themselves."""


class Config(NamedTuple):
    """An installation's choices. Immutable; any thread may read it.

    >>> Config().policy_for("provider/anthropic") is None
    True
    """

    store: str | None = None
    """The URL of the store, complete: variables filled in, paths absolute. May hold a password."""
    operator_token_sha256: str | None = None
    """The SHA-256 of the token that orders need, as 64 hexadecimal digits; `None`: they need none."""
    retention: Retention = Retention()
    policies: dict[str, Policy] = {}  # noqa: RUF012  nobody changes it
    """The policies that the file names; presets are not among them."""
    circuits: tuple[CircuitPolicy, ...] = ()
    loop_presets: dict[str, LoopPreset] = {}  # noqa: RUF012  nobody changes it
    """The user's own presets of `switchgear run`, by their names."""
    rules: RuleBook = RuleBook()
    """What no agent may do; all built-in rules, unless the file says otherwise."""
    hooks: Hooks = Hooks()
    """How the hooks of agents decide."""
    interventions: Interventions = Interventions()
    """What is done about a stuck agent."""
    timeouts: Timeouts = Timeouts()
    """How long tasks may take."""
    sinks: tuple[Sink, ...] = ()
    breakers: Breakers | None = None
    """The seven breakers of a fleet; `None`: the file says nothing of a fleet."""
    crew: Crew = Crew()
    """The agents and stories of a fleet."""
    notifications: tuple[Target, ...] = ()
    """Where `switchgear fleet watch` sends events; secrets are in variables, not in here."""
    budgets: tuple[Open, ...] = ()
    """Nodes of budgets with their limits, each before those below it; see `Budgets.apply`."""
    source: str | None = None
    """The file it was read from; `None`: from none."""
    store_as_written: str | None = None
    """The URL of the store with its `${NAME}`, for who keeps it: what they stand for is secret."""
    second_opinion: SecondOpinion | None = None
    """Who is asked before a stuck agent is stopped; `None`: nothing is."""

    def policy_for(self, name: str) -> Policy | None:
        """The policy of a circuit: that of the first match; `None`: the file does not say."""
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
"""What holds where there is no file."""
