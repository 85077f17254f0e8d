"""The panel: many circuits over one store, with their policies, sinks and one stream of events."""

import atexit
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, Self, TypedDict, Unpack
from weakref import WeakSet

from switchgear._breaker.circuit_breaker import CircuitBreaker, classic
from switchgear._breaker.handle import Breaker
from switchgear._breaker.loop_breaker import LoopBreaker, LoopLimits, loop_policy
from switchgear._breaker.permits import Permits
from switchgear._breaker.signals import ExceptionTest, check_probes
from switchgear._breaker.views import View, view_of
from switchgear._core import values
from switchgear._core.errors import Rejected, StoreCorrupt, StoreError
from switchgear._core.policy import Policy
from switchgear._core.types import Message, Mode, Override, Verdict
from switchgear._panel.background import KEPT_BREAKERS, BackgroundThread, KeptBreakers
from switchgear._sinks.dispatch import CallHook, Sink, checked_hooks, checked_sinks
from switchgear._stores.base import (
    IDLE_S,
    KEEP_EVENTS,
    Entry,
    Store,
    Vacuumed,
    checked_name,
    ledger_of,
)
from switchgear._stores.fallback import Resilient
from switchgear._stores.operator import OperatorLock
from switchgear._stores.url import default_url, open_store
from switchgear._system.clock import Clock, monotonic
from switchgear._system.threads import run_in_thread
from switchgear._text.glob import is_plain, matcher

if TYPE_CHECKING:
    from switchgear._budgets.budgets import Budgets
    from switchgear._locks.locks import Locks, ResourceLock

PolicyOf = Callable[[str], Policy | None]
"""The policy of a circuit by its name; `None`: not configured."""


class Retained(Protocol):
    """How much a store keeps."""

    @property
    def events(self) -> int:
        """The number of events."""

    @property
    def idle_s(self) -> float:
        """Seconds without a change after which a circuit is removed."""


class Configured(Protocol):
    """What a panel needs from a configuration; `switchgear.config.Config` is one."""

    @property
    def store(self) -> str | None:
        """The URL of the store."""

    @property
    def operator_token_sha256(self) -> str | None:
        """The digest of the token that overrides need."""

    @property
    def retention(self) -> Retained:
        """How much the store keeps."""

    @property
    def sinks(self) -> tuple[Sink, ...]:
        """Receivers of the events."""

    def policy_for(self, name: str) -> Policy | None:
        """The policy of a circuit, if configured."""


_panels: "WeakSet[Panel]" = WeakSet()


class BreakerOptions(TypedDict, total=False):
    """The options of `Panel.breaker` besides a policy; `CircuitBreaker` documents them."""

    fallback: Callable[..., Any] | None
    failure_if: ExceptionTest
    failure_if_result: Callable[[Any], bool] | None
    ignore: ExceptionTest
    success_if: ExceptionTest
    on_call: CallHook | Sequence[CallHook]
    sinks: Sequence[Sink]


_OPTIONS = BreakerOptions.__annotations__.keys()


class Panel:
    """Many circuits over one store. Thread-safe; in a forked child it opens its own connections.

    - `store`: `memory:`, `sqlite:///path` or `redis://host`, or a store; default: the SQLite file
      of the project (`.switchgear/state.db`) or, outside any project, of the working folder.
    - `policies`: maps names to policies, by a function or a dictionary. The keys of a dictionary are
      names or globs (`provider/*`): an exact name comes first, then the globs in order. Other
      circuits have their last stored policy, or that of `CircuitBreaker(name)`.
    - `sinks`: called with each `Event` of this process.
    - `on_call`: a function, or several, called with a `Call` after each call and each refusal.
    - `timer`: end cooldowns and holds on time even without calls (default: with the next call or
      reader), so that sinks receive the event within a second. Starts a thread.
    - `keep`: maximum number of breakers that are kept although nothing else refers to them (2,000);
      the most recently used stay. Their circuits stay in the store; only `memory:` removes a circuit
      that has never failed. Breakers with a policy or options of their own are always kept.
    - `operator_token_sha256`: if given, overrides need the `token` with this digest; the store
      saves it, so that omitting it later does not remove the protection.
    - `clock`: returns seconds; for tests.
    - `keep_events` (10,000), `idle_s` (30 days): the number of events that `vacuum` keeps, and the
      seconds without a change after which it removes a circuit.

    Nothing is opened before it is needed. While the store cannot be reached, calls continue and there
    is an event; only reading from the store raises `StoreError`. Raises ValueError for arguments out
    of range.

    >>> with Panel("memory:") as panel:
    ...     panel.breaker("provider/anthropic").call(len, "abc")
    ...     [view.name for view in panel.circuits("provider/*")]
    3
    ['provider/anthropic']
    """

    def __init__(
        self,
        store: str | Store | None = None,
        *,
        policies: PolicyOf | dict[str, Policy] | None = None,
        sinks: Sequence[Sink] = (),
        on_call: CallHook | Sequence[CallHook] = (),
        operator_token_sha256: str | None = None,
        token: str | None = None,
        clock: Clock | None = None,
        keep_events: int = KEEP_EVENTS,
        idle_s: float = IDLE_S,
        timer: bool = False,
        keep: int = KEPT_BREAKERS,
    ) -> None:
        self._keep_events = values.check_int("Panel.keep_events", keep_events)
        self._idle_s = values.check_seconds("Panel.idle_s", idle_s)
        url = store if isinstance(store, str) else default_url() if store is None else None
        if store is None or isinstance(store, str):
            store = open_store(url, clock=clock, keep_events=keep_events, idle_s=idle_s)
        self._clock = clock or monotonic
        self._policies = _policy_of(policies)
        self._sinks = checked_sinks("Panel.sinks", sinks)
        self._on_call = checked_hooks("Panel.on_call", on_call)
        self._loops: dict[str, LoopBreaker] = {}
        self._budgets: Budgets | None = None
        operator = OperatorLock(operator_token_sha256, token)
        self.store: Resilient = Resilient(store, url=url, operator=operator, clock=self._clock)
        self._wall = self.store.now_s  # one for all breakers
        self._breakers: KeptBreakers[CircuitBreaker] = KeptBreakers(
            values.check_int("Panel.keep", keep, least=0), self._release_breaker
        )
        self._background = BackgroundThread(self.store, self._breakers, self._loops, timer=timer)
        _panels.add(self)

    @classmethod
    def from_config(
        cls, config: Configured, *, token: str | None = None, clock: Clock | None = None
    ) -> Self:
        """The panel that a configuration describes: `Panel.from_config(load_config(path))`."""
        return cls(
            config.store,
            policies=config.policy_for,
            sinks=config.sinks,
            operator_token_sha256=config.operator_token_sha256,
            token=token,
            clock=clock,
            keep_events=config.retention.events,
            idle_s=config.retention.idle_s,
        )

    # Breakers

    def breaker(
        self, name: str, policy: Policy | None = None, **options: Unpack[BreakerOptions]
    ) -> CircuitBreaker:
        """The breaker of this circuit, the same object each time.

        `options` are those of `CircuitBreaker`: `fallback`, `failure_if`, `failure_if_result`,
        `ignore`, `success_if`, `on_call` and `sinks`. Raises ValueError if it was created before
        with another policy or with options, TypeError for other options.
        """
        if not options.keys() <= _OPTIONS:
            unknown = min(options.keys() - _OPTIONS)
            instead = "Policy([ConsecutiveFailures(3)], Cooldown(60.0, 300.0))"
            raise TypeError(
                f"Panel.breaker takes no {unknown!r}; limits are in a policy: {instead}"
            )
        known = self._breakers.get(name)
        if known is None:
            known = self._make(name, policy, options, releasable=policy is None and not options)
        elif options or (policy is not None and policy != known.policy):
            raise _already_created(name)
        return known

    def _run_breaker(self, name: str, policy: Policy) -> CircuitBreaker:
        """The breaker of a circuit that is used for one run of an agent.

        A configured policy takes precedence over `policy`. The breaker may be dropped like one without
        a policy of its own, because a server may create one for every request.
        """
        known = self._breakers.get(name)
        if known is None:
            policy = self._configured_policy(name) or policy
            known = self._make(name, policy, {}, releasable=True)
        return known

    def _make(
        self, name: str, policy: Policy | None, options: BreakerOptions, *, releasable: bool
    ) -> CircuitBreaker:
        hooks = checked_hooks("CircuitBreaker.on_call", options.pop("on_call", ()))
        shared = self._breaker_options(name, policy, options.pop("sinks", ()), classic)
        rest: dict[str, Any] = {**shared, **options}
        made = CircuitBreaker(name, on_call=(*self._on_call, *hooks), **rest)
        # Another thread may have created it first.
        known = self._breakers.add(name, made, releasable=releasable)
        self._join(known)
        return known

    def loop(
        self,
        name: str,
        policy: Policy | None = None,
        *,
        sinks: Sequence[Sink] = (),
        **limits: Unpack[LoopLimits],
    ) -> LoopBreaker:
        """The loop breaker of this circuit, the same object each time.

        `limits` are those of `LoopBreaker`: `no_progress`, `same_error`, `cooldown_s`… Without limits
        and without a policy, the loop has its configured policy, else its stored policy, else the
        limits of `LoopBreaker(name)`. Raises ValueError if it was created before with other limits or
        with sinks.

        >>> with Panel("memory:") as panel:
        ...     [panel.loop("loop/7f3a").record_failure("no such table") for _ in range(3)]
        [False, False, True]
        """
        own_limits = limits if policy is None else LoopLimits()
        if limits:
            policy = LoopBreaker(name, policy=policy, **limits).policy
        known = self._loops.get(name)
        if known is None:
            shared = self._breaker_options(name, policy, sinks, loop_policy)
            if own_limits:  # the breaker makes the policy from them
                del shared["policy"]
            known = self._loops.setdefault(name, LoopBreaker(name, **shared, **own_limits))
            self._join(known)
        elif sinks or (policy is not None and policy != known.policy):
            raise _already_created(name)
        return known

    def ask_all(self, names: Sequence[str]) -> Permits:
        """Acquire permits from several circuits for one call: from all of them or from none.

        A context manager: each circuit records the result of the block. Raises `Rejected` of the
        first circuit that refuses, after returning the permits of the others.
        """
        breakers = [self.breaker(name) for name in dict.fromkeys(names)]
        if not breakers:
            raise ValueError("names is empty: it must name at least one circuit")
        permits = Permits()
        try:
            for breaker in breakers:
                permits.take(breaker)
        except Rejected:
            permits.give_back()
            raise
        return permits

    # Budgets and locks

    @property
    def budgets(self) -> "Budgets":
        """The budgets of the installation, in the same store; see `switchgear.budgets`.

        An unavailable store raises an error here, so that no money is spent without a reservation.
        """
        from switchgear._budgets.budgets import Budgets  # noqa: PLC0415  only needed for budgets

        if self._budgets is None:  # one object for all, because it has the listeners
            self._budgets = Budgets(
                ledger_of(self.store.inner), self._breaker_with_default, self._demand_operator
            )
        return self._budgets

    @property
    def locks(self) -> "Locks":
        """The locks of the installation, in the same store; see `lock`."""
        from switchgear._locks.locks import Locks  # noqa: PLC0415  only needed for locks

        return Locks(ledger_of(self.store.inner), self._breaker_with_default, self._demand_operator)

    def lock(
        self,
        resource: str,
        *,
        owner: str = "",
        lease_s: float | None = None,
        timeout_s: float | None = None,
        sleep: Callable[[float], object] = time.sleep,
    ) -> "ResourceLock":
        """An exclusive lock on a resource: `with panel.lock("staging-db", lease_s=60) as lock:`.

        - `owner`: the name of the holder for displays; default: host and process id.
        - `lease_s`: seconds until the lock expires unless it is renewed (60).
        - `timeout_s`: maximum wait in seconds; `None`: as long as the circuit allows.
        - `sleep`: called with the seconds of each pause, for tests.

        Raises `Rejected` while the circuit `lock/<resource>` is open.
        """
        locks = self.locks
        if lease_s is None:
            return locks.lock(resource, owner=owner, timeout_s=timeout_s, sleep=sleep)
        return locks.lock(resource, owner=owner, lease_s=lease_s, timeout_s=timeout_s, sleep=sleep)

    def _demand_operator(self, name: str, what: str) -> None:
        """Raise `OverrideRefused` unless this process may override, `StoreError` if that is unknown."""
        self.store.operator.demand(self.store, name, what)

    def _breaker_with_default(
        self, name: str, policy: Policy | None, renews: Callable[[Policy], bool] | None = None
    ) -> CircuitBreaker:
        """The breaker of a circuit; the policy applies unless another one is configured or stored.

        A stored policy that `renews` accepts is replaced.
        """
        if policy is None or self._configured_policy(name) is not None:
            return self.breaker(name)
        if name not in self._breakers and not self._is_stored(name):
            return self.breaker(name, policy)
        known = self.breaker(name)
        if renews is not None and policy != known.policy and renews(known.policy):
            known.set_policy(policy)
        return known

    def _configured_policy(self, name: str) -> Policy | None:
        return None if self._policies is None else self._policies(name)

    def _is_stored(self, name: str) -> bool:
        try:
            return self.store.get(name) is not None
        except StoreError:
            return True  # the caller's next message handles the error

    def policy_of(self, name: str, default: Callable[[], Policy] = classic) -> Policy:
        """The policy of a circuit: configured, else stored with it, else the default."""
        policy = self._configured_policy(name)
        if policy is not None:
            return policy
        try:
            found = self.store.get(name)
        except StoreError:
            found = None  # missing or unreadable: the first message reports it, in an event
        return default() if found is None else found.policy

    def reload(
        self,
        policies: PolicyOf | dict[str, Policy],
        *,
        sinks: Sequence[Sink] | None = None,
        retention: Retained | None = None,
    ) -> list[str]:
        """Apply other policies from now on; circuits keep their phase and evidence.

        `sinks` replace the sinks of the panel, `retention` replaces how much the store keeps; `None`:
        as before. Circuits without a new policy keep theirs. Returns the names of the breakers of this
        process whose policy changed, sorted.
        """
        self._policies = _policy_of(policies) or (lambda _: None)
        if sinks is not None:
            self._set_sinks(checked_sinks("Panel.sinks", sinks))
        if retention is not None:
            self._keep_events, self._idle_s = retention.events, retention.idle_s
            self.store.retain(keep_events=retention.events, idle_s=retention.idle_s)
        changed = []
        for breaker in sorted(self._all(), key=lambda breaker: breaker.name):
            policy = self._policies(breaker.name)
            if policy is not None and policy != breaker.policy:
                breaker.set_policy(policy)
                changed.append(breaker.name)
        return list(dict.fromkeys(changed))

    def add_sink(self, sink: Sink) -> None:
        """Send the events of all breakers to one more sink from now on."""
        self._set_sinks((*self._sinks, *checked_sinks("sink", [sink])))

    def add_on_call(self, hook: CallHook) -> None:
        """Call one more hook with the calls and refusals of all breakers from now on."""
        [checked] = checked_hooks("hook", hook)
        self._on_call = (*self._on_call, checked)
        for breaker in self._breakers.values():
            breaker.add_on_call(checked)

    def _set_sinks(self, sinks: tuple[Sink, ...]) -> None:
        before, self._sinks = self._sinks, sinks
        for breaker in self._all():
            own = breaker.sinks[len(before) :]
            breaker.sinks = (*sinks, *own)

    # Reading

    def circuits(self, glob: str = "*") -> Iterator[View]:
        """The circuits whose names match a glob, sorted by name, each with its current state.

        If some circuits cannot be read or may be lost (see `lost`), the others are returned first, and
        then `StoreCorrupt` is raised.
        """
        self.flush()
        found = None
        for found in self.store.find(glob):
            yield view_of(found, self.store.now_s())
        if (found is None or not is_plain(glob)) and (lost := self.lost()) is not None:
            raise lost

    def __iter__(self) -> Iterator[View]:
        return self.circuits()

    def view(self, name: str) -> View | None:
        """The current state of one circuit; `None`: there is no circuit with this name.

        Raises `StoreCorrupt` if the circuit may have been in a damaged file, because it may have been
        open.
        """
        self.flush()
        found = self.store.get(name)
        if found is None and (lost := self.lost()) is not None:
            raise lost
        return None if found is None else view_of(found, self.store.now_s())

    def lost(self) -> StoreCorrupt | None:
        """Why circuits may be missing: a damaged file was set aside.

        `None`: nothing is known to be lost, or an operator has removed the damaged file.
        """
        lost = getattr(self.store.inner, "lost", None)  # only stores in a file have it
        found: StoreCorrupt | None = None if lost is None else lost()
        return found

    def events(
        self, *, after: str | None = None, glob: str = "*", limit: int = 1000
    ) -> list[Entry]:
        """At most `limit` events after a cursor, oldest first; without a cursor, the newest events."""
        return self.store.events(after=after, glob=glob, limit=limit)

    # Overrides

    def order(
        self,
        name: str,
        *,
        by: str,
        why: str,
        mode: Mode | None = None,
        reset: bool = False,
        for_s: float | None = None,
        probe: bool = False,
    ) -> Verdict:
        """Apply an operator's override with its author (`by`) and reason (`why`).

        `mode` sets the mode, which ends after `for_s` seconds (default: when it is changed again).
        `reset` clears the evidence and closes the circuit. `probe` lets an open circuit probe now;
        raises ValueError if its policy recovers without probes. Raises `OverrideRefused` if the
        operator token is required and missing.
        """
        by, why = values.check_text("by", by), values.check_text("why", why)
        if probe:
            check_probes(name, (self._loops.get(name) or self.breaker(name)).policy)
        until_s = None if for_s is None else self._wall() + values.check_seconds("for_s", for_s)
        return self.send(name, Override(by, why, mode, reset, until_s=until_s, probe=probe))

    def send(self, name: str, message: Message) -> Verdict:
        """Send one message to a circuit."""
        return (self._loops.get(name) or self.breaker(name)).send(message)

    # Variants that do not block the event loop

    async def acircuits(self, glob: str = "*") -> list[View]:
        """The views of `circuits`, as a list; raises `StoreCorrupt` as `circuits` does."""
        return await run_in_thread(lambda: list(self.circuits(glob)))

    async def aview(self, name: str) -> View | None:
        """`view` without blocking the event loop."""
        return await run_in_thread(lambda: self.view(name))

    async def aevents(
        self, *, after: str | None = None, glob: str = "*", limit: int = 1000
    ) -> list[Entry]:
        """`events` without blocking the event loop."""
        return await run_in_thread(lambda: self.events(after=after, glob=glob, limit=limit))

    async def aask_all(self, names: Sequence[str]) -> Permits:
        """`ask_all` without blocking the event loop; a task that is cancelled holds no permits."""
        return await run_in_thread(lambda: self.ask_all(names), Permits.give_back)

    async def aorder(
        self,
        name: str,
        *,
        by: str,
        why: str,
        mode: Mode | None = None,
        reset: bool = False,
        for_s: float | None = None,
        probe: bool = False,
    ) -> Verdict:
        """`order` without blocking the event loop."""
        return await run_in_thread(
            lambda: self.order(
                name, by=by, why=why, mode=mode, reset=reset, for_s=for_s, probe=probe
            )
        )

    async def asend(self, name: str, message: Message) -> Verdict:
        """`send` without blocking the event loop."""
        return await run_in_thread(lambda: self.send(name, message))

    async def avacuum(self) -> Vacuumed:
        """`vacuum` without blocking the event loop."""
        return await run_in_thread(self.vacuum)

    async def aflush(self) -> None:
        """`flush` without blocking the event loop."""
        await run_in_thread(self.flush)

    def vacuum(self) -> Vacuumed:
        """Remove the oldest events and idle circuits, beyond `keep_events` and `idle_s` of the panel.

        Raises `OverrideRefused` if less than the default is kept and a required operator token is missing.
        """
        now_s = self.store.now_s()
        return self.store.vacuum(keep_events=self._keep_events, idle_s=self._idle_s, now_s=now_s)

    # Lifecycle

    def flush(self) -> None:
        """Save the unsaved counts of the breakers of this process."""
        for breaker in self._all():
            breaker.flush()

    def close(self) -> None:
        """Save the unsaved counts and close the store. Idempotent."""
        self._background.stop()
        self.flush()
        for breaker in self._all():
            breaker.settle()
        self.store.close()
        _panels.discard(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def aclose(self) -> None:
        """`close` without blocking the event loop."""
        await run_in_thread(self.close)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def __repr__(self) -> str:
        return f"<Panel {self.store.label} circuits={len({*self._breakers, *self._loops})}>"

    def _breaker_options(
        self, name: str, policy: Policy | None, own: Sequence[Sink], default: Callable[[], Policy]
    ) -> dict[str, Any]:
        """The arguments that every breaker of the panel is created with."""
        checked_name(name)
        self.store.operator.keep_in(self.store)
        return {
            "policy": policy or self.policy_of(name, default),
            "sinks": (*self._sinks, *own) if own else self._sinks,
            "clock": self._clock,
            "store": self.store,
            "wall": self._wall,
        }

    def _release_breaker(self, name: str) -> None:
        if name not in self._loops:
            self.store.release(name)

    def _join(self, breaker: Breaker) -> None:
        breaker.refresh()
        self._background.start()

    def _all(self) -> list[Breaker]:
        return [*self._breakers.values(), *self._loops.values()]

    def _after_fork(self) -> None:
        self._breakers.forget_fork()
        self.store.forget_fork()
        self._background.forget_fork()


def _policy_of(policies: Any) -> PolicyOf | None:
    """A function that finds a policy by the exact name, else by the first matching glob. Raises ValueError."""
    if policies is None:
        return None
    if callable(policies) and not isinstance(policies, Mapping):
        function: PolicyOf = policies
        return function
    if not isinstance(policies, Mapping):
        raise ValueError(f"Panel.policies is {policies!r}: it must be a dictionary or a function")
    for name, policy in policies.items():
        if not isinstance(name, str) or not isinstance(policy, Policy):
            rule = "it must map names or globs to policies"
            raise ValueError(f"Panel.policies holds {name!r}: {policy!r}, and {rule}")
    names: dict[str, Policy] = dict(policies)
    globs = [(matcher(name), policy) for name, policy in names.items() if not is_plain(name)]

    def find(name: str) -> Policy | None:
        exact = names.get(name)
        if exact is not None:
            return exact
        return next((policy for matches, policy in globs if matches(name)), None)

    return find if globs else names.get


def _already_created(name: str) -> ValueError:
    return ValueError(
        f"circuit {name!r} already has a breaker here; give its policy and options the first time "
        "only"
    )


def _after_fork() -> None:
    for panel in list(_panels):
        panel._after_fork()  # noqa: SLF001


def _close_all() -> None:
    for panel in list(_panels):
        panel.close()


os.register_at_fork(after_in_child=_after_fork)
atexit.register(_close_all)
