"""Budgets that many agents share: money is reserved in a tree before it is spent, in one store.

`panel.budgets` is the object of a panel. A request is decided in one transaction of the store (`fold.py`);
afterwards, costs are recorded in circuits.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from os import urandom
from typing import Any, NamedTuple, Self, TypedDict, Unpack

from switchgear._breaker.handle import Breaker
from switchgear._budgets import tree as core
from switchgear._budgets.fold import NO_RESERVATION, FoldResult, apply
from switchgear._budgets.tree import (
    BudgetAnswer,
    BudgetBook,
    BudgetNode,
    BudgetRequest,
    Line,
    Renew,
    Settle,
    SpentAt,
    audit,
    checked_micros,
    find_settlement,
)
from switchgear._core import values
from switchgear._core.errors import (
    BudgetRefused,
    OverrideRefused,
    Rejected,
    StoreCorrupt,
    StoreError,
    StoreUnavailable,
)
from switchgear._core.policy import Latched, Policy
from switchgear._core.types import Signal
from switchgear._detectors import TotalCost
from switchgear._sinks.dispatch import log_exception, log_warning
from switchgear._stores.base import Amended, Ledger, checked_name
from switchgear._system.threads import run_in_thread
from switchgear._text.formats import Money, micros_of
from switchgear._text.redact import redacted_name

LEASE_S = 900.0
"""Default lease of a reservation in seconds."""


class Reservation:
    """A reserved amount for one invocation. Not thread-safe: one thread or task at a time.

    A context manager, also with `async with`. A reservation that is not settled inside the block counts as
    spent, because its cost is unknown; if a circuit rejected the call, the reservation is released.
    """

    def __init__(
        self,
        ask: Callable[[BudgetRequest], BudgetAnswer],
        path: str,
        amount_micros: int,
        tag: "Callable[[str, int, Tags | None], None] | None" = None,
    ) -> None:
        self.path = path
        self._tag = tag
        self.amount_micros = amount_micros
        self._ask = ask
        self._is_open = True

    def settle(self, cost_micros: int | None, *, tags: "Tags | None" = None) -> int:
        """Settle with the actual cost and release the rest. Returns the charge in micro-dollars.

        `None` means that the cost is unknown: the whole reservation is charged. A cost above the
        reservation is charged in full. Settling twice charges once. `tags` describe what the money was
        for, such as `{"model": "gpt-5"}`; see `Budgets.spent_by_tag`.
        """
        if tags:
            checked_tags(tags)
        if cost_micros is not None:
            checked_micros("cost_micros", cost_micros)
        charged = self._ask(Settle(self.path, cost_micros)).charged_micros
        first, self._is_open = self._is_open, False
        if first and tags and self._tag is not None:
            self._tag(self.path, charged, tags)
        return charged

    def release(self) -> None:
        """Release the whole reservation."""
        self.settle(0)

    def renew(self, lease_s: float = LEASE_S) -> None:
        """Extend the lease to `lease_s` seconds from now. Raises `BudgetRefused` if it has expired."""
        self._ask(Renew(self.path, values.check_seconds("lease_s", lease_s)))

    async def asettle(self, cost_micros: int | None, *, tags: "Tags | None" = None) -> int:
        """`settle` without blocking the event loop."""
        return await run_in_thread(lambda: self.settle(cost_micros, tags=tags))

    async def arenew(self, lease_s: float = LEASE_S) -> None:
        """`renew` without blocking the event loop."""
        await run_in_thread(lambda: self.renew(lease_s))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self._finish(error)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: object, error: object, trace: object) -> None:
        await run_in_thread(lambda: self._finish(error))

    def _finish(self, error: object) -> None:
        if not self._is_open:
            return
        try:
            # `isinstance` would call the exception's own code, which may raise.
            self.settle(0 if issubclass(type(error), Rejected) else None)
        except (StoreError, BudgetRefused) as trouble:
            if error is None:
                raise
            # The caller's exception is never replaced; the end of the lease settles the cost.
            log_warning("reservation %r could not be settled: %s", self.path, trouble)

    def __repr__(self) -> str:
        return f"<Reservation {self.path} {self.amount_micros} micro-dollars>"


Tags = Mapping[str, str]
"""The purpose of a cost: names and values, such as `{"model": "gpt-5", "team": "search"}`."""
MOST_TAGS, MOST_NAMES, OTHER = 200, 8, "other"
"""Maximum number of values of a tag and of tag names of a tree; all others are counted as `other`."""
TAG_SHELF = "tags"


def checked_tags(tags: Tags | None) -> None:
    """Raise ValueError unless `tags` maps at most `MOST_NAMES` short names to strings."""
    given: Mapping[Any, Any] = tags or {}  # whatever an untyped caller passes
    for name, value in given.items():
        if not (isinstance(name, str) and isinstance(value, str) and 0 < len(name) <= 60):
            raise ValueError(
                f"tags has {name!r}: {value!r}: both must be texts, and the name must have 1 to 60 characters"
            )
    if tags and len(tags) > MOST_NAMES:
        raise ValueError(f"tags has {len(tags)} names: it must have at most {MOST_NAMES}")


def _with_tags(value: Any, charged_micros: int, tags: Tags) -> dict[str, dict[str, int]]:
    """The sums by tag with one more charge: bounded, and without secrets."""
    sums_by_tag = {name: dict(sums) for name, sums in (value or {}).items()}
    for tag, text in tags.items():
        name = redacted_name("tag", tag)
        if name not in sums_by_tag and len(sums_by_tag) >= MOST_NAMES:
            name = OTHER
        sums = sums_by_tag.setdefault(name, {})
        key = redacted_name("tag", text)
        if key not in sums and len(sums) >= MOST_TAGS:
            key = OTHER
        sums[key] = sums.get(key, 0) + charged_micros
    return sums_by_tag


SHELF = "budget"
PLAN_SHELF = "plan"
"""Where the limits of the last applied plan are stored."""
NOTICES = frozenset(("warned", "exhausted", "overrun", "expired"))
"""The kinds of lines that are passed to listeners."""

Renews = Callable[[Policy], bool]
"""Whether a policy may be replaced by a new one."""
BreakerOf = Callable[[str, Policy | None, Renews], Breaker]
"""The breaker of a circuit; the policy applies unless another one is configured or stored that
may not be replaced."""


def budget_policy(limit_micros: int) -> Policy:
    """The default policy of the circuit of a node: it opens when all is spent.

    From 75 % of the limit on it is TRIPPING; once open, it stays open until it is reset.

    >>> budget_policy(2_000_000).detectors[0].limit_micros
    1999999
    """
    # The detector trips above a share, so the share is just below the whole limit.
    almost_all = 1 - 0.5 / limit_micros
    return Policy([TotalCost(limit_micros, almost_all)], Latched(), tripping_at=core.WARN_AT)


def is_budget_policy(policy: Policy) -> bool:
    """Whether `budget_policy` made the policy, for any limit."""
    first = policy.detectors[0]
    return isinstance(first, TotalCost) and policy == budget_policy(first.budget_micros)


class NodeStatus(NamedTuple):
    """The state of a node."""

    path: str
    level: str
    """team, wave, story, capsule or invocation."""
    node: BudgetNode


class Applied(NamedTuple):
    """The result for one node of a plan."""

    node: str
    what: str
    """`opened`, `changed`, `same`, `kept` (an operator's limit), `closed` or `refused`."""
    why: str = ""

    @property
    def is_refused(self) -> bool:
        """Whether the plan could not be followed."""
        return self.what == "refused"


class Audit(NamedTuple):
    """The result of an audit of one tree: `problems` is empty if the book and its lines agree."""

    root: str
    lines: int
    charged_micros: int
    problems: tuple[str, ...]


class ReserveOptions(TypedDict, total=False):
    """The options of a reservation besides its amount; `Budgets.reserve` documents them."""

    amount: Money | str | None
    owner: str
    circuit: str
    lease_s: float | None
    on_expiry: str
    allow_unknown: bool


class Budgets:
    """The budgets of an installation. Thread-safe; processes share them through the store.

    A node is named by its path: `team/release/task`. Amounts are whole millionths of a dollar.

    >>> from switchgear import Panel
    >>> budgets = Panel("memory:").budgets
    >>> budgets.open("atlas", 5_000_000)
    >>> budgets.open("atlas/release-1", 2_000_000)
    >>> with budgets.reserve("atlas/release-1", 500_000) as reservation:
    ...     reservation.settle(120_000)
    120000
    >>> budgets.free_micros("atlas/release-1")
    1880000
    """

    def __init__(
        self,
        ledger: Ledger,
        breaker_of: BreakerOf | None = None,
        demand: Callable[[str, str], object] | None = None,
    ) -> None:
        self._ledger = ledger
        self._demand = demand
        """Raises `OverrideRefused` unless overrides are allowed; called with the node and the operation."""
        self._breaker_of = breaker_of
        self._listeners: list[Callable[[Line], object]] = []

    def open(
        self,
        node: str,
        limit_micros: int | None = None,
        *,
        limit: Money | str | None = None,
        circuit: str = "",
        who: str = "",
    ) -> None:
        """Open a node with a limit, which is reserved from its parent; a root has no parent.

        The limit is `limit="$5"` or `limit_micros=5_000_000`. Without either, the node has no limit, and
        reservations come from the node above. `circuit` records all that is spent at or below the node.
        Opening a node again with the same limit changes nothing. Raises `BudgetRefused`, and ValueError
        for an invalid name or a negative amount.
        """
        path = core.checked_path(node)
        limit_micros = micros_of("limit", limit, limit_micros)
        if limit_micros is not None:
            core.checked_micros("limit_micros", limit_micros)
        if circuit:
            checked_name(circuit)
        self.ask(core.Open(path, limit_micros, circuit, redacted_name("who", who)))

    def reserve(
        self,
        node: str,
        amount_micros: int | None = None,
        *,
        amount: Money | str | None = None,
        owner: str = "",
        circuit: str = "",
        lease_s: float | None = LEASE_S,
        on_expiry: str = core.EXPIRY[0],
        allow_unknown: bool = False,
    ) -> Reservation:
        """Reserve the maximum cost of one invocation before it is made. Raises `BudgetRefused`.

        The amount is `amount="$0.50"` or `amount_micros=500_000`. An unknown price (`None`) is
        refused, unless `allow_unknown` is true: then nothing is reserved, and the cost may exceed the
        limit. The reservation expires after `lease_s` seconds (900; `None`: never) unless it is renewed:
        the amount then counts as spent, or is released with `on_expiry="returned"`.
        """
        path = core.checked_path(node)
        if on_expiry not in core.EXPIRY:
            values.check_one_of("on_expiry", on_expiry, core.EXPIRY)
        if lease_s is not None and lease_s != LEASE_S:
            lease_s = values.check_seconds("lease_s", lease_s)
        owner = redacted_name("owner", owner)
        amount_micros = micros_of("amount", amount, amount_micros)
        if amount_micros is None and not allow_unknown:
            raise BudgetRefused(path, "the price is unknown, so nothing can be reserved", None)
        if circuit:
            checked_name(circuit)
        held = core.checked_micros("amount_micros", amount_micros or 0)
        reserved_path = f"{path}/{core.MARK}{urandom(8).hex()}"
        self.ask(core.Reserve(reserved_path, held, owner, lease_s, on_expiry, circuit))
        return Reservation(self.ask, reserved_path, held, self._add_tags)

    async def areserve(
        self, node: str, amount_micros: int | None = None, **options: Unpack[ReserveOptions]
    ) -> Reservation:
        """`reserve` without blocking the event loop; a task that is cancelled holds no reservation."""
        return await run_in_thread(
            lambda: self.reserve(node, amount_micros, **options), Reservation.release
        )

    def settle(
        self, reservation: str, cost_micros: int | None, *, tags: "Tags | None" = None
    ) -> int:
        """Settle a reservation by its path; see `Reservation.settle`."""
        return Reservation(self.ask, reservation, 0, self._add_tags).settle(cost_micros, tags=tags)

    def spent_by_tag(self, root: str) -> dict[str, dict[str, int]]:
        """What a tree has spent for each value of each tag, in millionths of a dollar.

        Only tagged costs are counted, so the sums may be less than what was spent. A tag has at most 200
        values; further values are counted as `other`.
        """
        stored: Any = self._ledger.value(TAG_SHELF, core.root_of(core.checked_path(root)))
        return {tag: dict(sums) for tag, sums in (stored or {}).items()}

    def _add_tags(self, path: str, charged_micros: int, tags: "Tags | None") -> None:
        """Count a charge under its tags. The charge itself is already recorded, so a failure is only logged."""
        if not tags or not charged_micros:
            return

        def work(value: Any, now_s: float) -> Amended:
            del now_s
            return Amended(None, _with_tags(value, charged_micros, tags))

        try:
            self._ledger.amend(TAG_SHELF, core.root_of(path), work)
        except StoreError as trouble:
            log_warning("tags of %r could not be counted: %s", path, trouble)

    def charge(
        self, node: str, cost_micros: int, *, who: str = "", tags: "Tags | None" = None
    ) -> None:
        """Charge money that was spent without a reservation. Never refused.

        `tags` describe what the money was for; see `spent_by_tag`.
        """
        checked_tags(tags)
        cost = core.checked_micros("cost_micros", cost_micros)
        self.ask(
            core.Charge(core.checked_path(node), cost, redacted_name("who", who), urandom(8).hex())
        )
        self._add_tags(node, cost, tags)

    async def acharge(
        self, node: str, cost_micros: int, *, who: str = "", tags: "Tags | None" = None
    ) -> None:
        """`charge` without blocking the event loop."""
        await run_in_thread(lambda: self.charge(node, cost_micros, who=who, tags=tags))

    def limit(
        self,
        node: str,
        limit_micros: int | None = None,
        *,
        limit: Money | str | None = None,
        who: str = "",
    ) -> None:
        """Change the limit of a node. Raises `BudgetRefused` below what is spent or reserved."""
        micros = core.checked_micros("limit_micros", micros_of("limit", limit, limit_micros))
        self.ask(core.Limit(core.checked_path(node), micros, redacted_name("who", who)))

    def close(self, node: str, *, who: str = "") -> None:
        """Close a node and the nodes below it; unspent money returns to the parent.

        Raises `BudgetRefused` while reservations below it are open.
        """
        self.ask(core.Close(core.checked_path(node), redacted_name("who", who)))

    def apply(self, planned: Sequence[core.Open], *, who: str = "") -> list[Applied]:
        """Change the trees to match a plan, such as that of the configuration. Idempotent.

        Missing nodes are opened, parents before children. A limit is changed only if the plan has
        changed since it was last applied, so that a limit that an operator has set stays. A closed node
        stays closed. Refused changes are reported in the result, and the rest is applied.
        """
        known: dict[str, Any] = self._ledger.value(PLAN_SHELF, "budgets") or {}
        done = [self._apply_node(node, known, who) for node in planned]
        pairs = zip(planned, done, strict=True)
        kept = known | {node.node: node.limit_micros for node, one in pairs if not one.is_refused}
        if kept != known:
            self._ledger.amend(PLAN_SHELF, "budgets", lambda *_: Amended(None, kept))
        return done

    def _apply_node(self, node: core.Open, known: dict[str, Any], who: str) -> Applied:
        path, limit = node.node, node.limit_micros
        try:
            found = self.book(core.root_of(path)).nodes.get(path)
            if found is None and self._is_closed(path):
                return Applied(path, "closed")
            if found is None:
                self.open(path, limit, circuit=node.circuit, who=who)
                return Applied(path, "opened")
            if found.limit_micros == limit:
                return Applied(path, "same")
            if path in known and known[path] == limit:
                return Applied(path, "kept")
            if limit is None:
                raise BudgetRefused(path, "a limit can be changed, but not removed", None)
            self.limit(path, limit, who=who)
        except (BudgetRefused, OverrideRefused) as error:
            return Applied(path, "refused", str(error))
        return Applied(path, "changed")

    def _is_closed(self, path: str) -> bool:
        lines = [line.kind for line in self.lines(core.root_of(path)) if line.node == path]
        return [kind for kind in lines if kind in {"opened", "closed"}][-1:] == ["closed"]

    def listen(self, listener: Callable[[Line], object]) -> None:
        """Call the listener with each warning line of this process; see `NOTICES`."""
        self._listeners.append(listener)

    # Reading

    def roots(self) -> list[str]:
        """The names of all trees, sorted, including those whose root is closed."""
        return self._ledger.keys(SHELF)

    def tree(self, root: str) -> list[NodeStatus]:
        """The open nodes of a tree, each before those below it."""
        nodes = self.book(root).nodes
        ordered = sorted(nodes, key=lambda path: path.split("/"))
        return [NodeStatus(path, core.level_of(path), nodes[path]) for path in ordered]

    def free_micros(self, node: str) -> int | None:
        """The micro-dollars that can still be reserved at a node; `None`: no limit, or not open."""
        found = self.book(core.root_of(node)).nodes.get(node)
        return None if found is None else found.free_micros

    def lines(self, root: str) -> Iterator[Line]:
        """The account of a tree, oldest line first."""
        for fields in self._ledger.lines(SHELF, root):
            yield Line(*fields)

    def audit(self, root: str) -> Audit:
        """Recompute a tree from its lines, and compare the result with the stored book."""
        # The lines first: lines that are added while they are read are beyond the book's number.
        lines = list(self.lines(root))
        kept = self._stored_book(root)
        if len(lines) < kept.lines:
            lines = list(self.lines(root))
        problems = audit(kept, lines[: kept.lines])
        return Audit(root, kept.lines, kept.charged_micros, problems)

    def book(self, root: str) -> BudgetBook:
        """The current state of a whole tree. Nothing is saved: expired leases end in this copy only."""
        return apply(self._stored_book(root), core.PassTime(), self._ledger.now_s()).book

    def sweep(self, root: str) -> None:
        """End expired leases. Every other operation on a tree does this first, too."""
        self.ask(core.PassTime(), core.root_of(root))

    def _stored_book(self, root: str) -> BudgetBook:
        return self._load_book(root, self._ledger.value(SHELF, core.root_of(root)))

    # One transaction

    def ask(self, asked: BudgetRequest, root: str = "") -> BudgetAnswer:
        """Apply a request in one transaction, then update circuits and notify listeners.

        Raises `BudgetRefused`, and `OverrideRefused` if changing a limit or closing a node requires the
        operator token and it is missing.
        """
        if self._demand is not None and isinstance(asked, core.Limit | core.Close):
            what = "a limit for" if isinstance(asked, core.Limit) else "closing"
            self._demand(asked.node, f"{what} budget {asked.node!r}")
        key = root or core.root_of(getattr(asked, "node", ""))
        step = self._fold(key, asked)
        if step.answer.refused == NO_RESERVATION and isinstance(asked, core.Settle):
            # The book remembers only the last settlements; the account has all of them.
            settlement = find_settlement(asked.node, self.lines(key))
            if settlement is not None:
                step = self._fold(key, asked._replace(settlement=settlement))
        if step.costs or self._listeners:
            self._notify(step)
        answer = step.answer
        if answer.refused:
            raise BudgetRefused(answer.node, answer.refused, answer.free_micros)
        return answer

    def _fold(self, key: str, request: BudgetRequest) -> FoldResult:
        def work(value: Any, now_s: float) -> Amended:
            before = self._load_book(key, value)
            step = apply(before, request, now_s)
            if step.book is before:
                return Amended(step)
            return Amended(step, core.dump_book(step.book), step.lines)

        try:
            done: FoldResult = self._ledger.amend(SHELF, key, work)
        except StoreUnavailable:
            if isinstance(request, core.Close):
                raise
            # Whether it was applied is unknown; idempotent requests are repeated.
            done = self._ledger.amend(SHELF, key, work)
        return done

    def _notify(self, step: FoldResult) -> None:
        for line in step.lines:
            for listener in self._listeners if line.kind in NOTICES else ():
                try:
                    listener(line)
                except Exception:  # noqa: BLE001  a failing listener must not affect the caller
                    log_exception("a listener of budgets failed on %r", line)
        for cost in step.costs:
            self._record_cost(cost)

    def _record_cost(self, cost: SpentAt) -> None:
        """Record a cost in the circuit, with the policy for the current limit."""
        if self._breaker_of is None:
            return
        policy = budget_policy(cost.limit_micros) if cost.limit_micros else None
        breaker = self._breaker_of(cost.circuit, policy, is_budget_policy)
        if cost.cost_micros:
            breaker.record(Signal(cost_micros=cost.cost_micros))

    def _load_book(self, root: str, value: Any) -> BudgetBook:
        try:
            return core.load_book(value)
        except ValueError as error:
            why = f"budget {root!r}: {error}"
            what = "restore it from a backup, or use the newer Switchgear that wrote it"
            raise StoreCorrupt(self._ledger.label, why, what) from None
