"""Applies requests to a tree of budgets: a pure function, like the state machine.

It does not wait, read a clock or do I/O. A store runs it inside a transaction, and runs it again if
another process committed first.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from switchgear._budgets.tree import (
    EXPIRY,
    MOST_NODES,
    REMEMBERED,
    WARN_AT,
    BudgetAnswer,
    BudgetBook,
    BudgetNode,
    BudgetRequest,
    Charge,
    Close,
    Limit,
    Line,
    Open,
    PassTime,
    Renew,
    Reserve,
    Settle,
    SpentAt,
    is_reservation,
    parent_of,
    root_of,
)
from switchgear._text.formats import dollars

NO_RESERVATION = "there is no such reservation"
"""Why a settlement is refused: the reservation is neither open nor remembered."""


class FoldResult(NamedTuple):
    book: BudgetBook
    answer: BudgetAnswer
    lines: tuple[Line, ...]
    costs: tuple[SpentAt, ...]
    """The costs to record in circuits."""


def apply(book: BudgetBook, request: BudgetRequest, now_s: float) -> FoldResult:
    """Apply a request to the tree, if it is allowed. Pure.

    >>> from switchgear._budgets.tree import EMPTY
    >>> book = apply(EMPTY, Open("atlas", 100), 0.0).book
    >>> apply(book, Reserve("atlas/~1", 60), 0.0).book.nodes["atlas"].free_micros
    40
    >>> apply(book, Reserve("atlas/~1", 160), 0.0).answer.refused
    '$0.00016 requested, $0.0001 of $0.0001 free'
    """
    draft = _Draft(book, now_s)
    if book.expires_s is not None and book.expires_s <= draft.now_s:
        draft.expire()
    answer = (
        BudgetAnswer()
        if isinstance(request, PassTime)
        else _HANDLERS[type(request)](draft, request)
    )
    return FoldResult(draft.book(), answer, tuple(draft.lines), tuple(draft.costs))


class _Draft:
    """A book while one request is applied."""

    def __init__(self, book: BudgetBook, now_s: float) -> None:
        self.lines: list[Line] = []
        self.costs: list[SpentAt] = []
        self._nodes = dict(book.nodes)
        self._before = book
        self._settled = book.settled
        self._expires_s = book.expires_s
        self._charged = book.charged_micros
        self.now_s = max(now_s, book.seen_s)

    def book(self) -> BudgetBook:
        """The book after the request; the same object if nothing changed."""
        if not self.lines and self._settled == self._before.settled:
            return self._before
        number = self._before.lines + len(self.lines)
        return BudgetBook(
            self._nodes, number, self._charged, self._settled, self._expires_s, self.now_s
        )

    def expire(self) -> None:
        """Close the reservations whose lease has expired."""
        leases = [(node.lease_until_s, path) for path, node in self._nodes.items()]
        for _, path in sorted((s, path) for s, path in leases if s is not None and s <= self.now_s):
            node = self._nodes[path]
            self._note("expired", path, node.limit_micros, node.owner)
            charged = node.claim_micros if node.on_expiry == EXPIRY[0] else 0
            if charged:
                self._charge(path, charged, node.owner)
            self._close(path, node.owner)
            self._remember(path, charged, final=False)
        left = (node.lease_until_s for node in self._nodes.values())
        self._expires_s = min((until for until in left if until is not None), default=None)

    def open(self, request: Open) -> BudgetAnswer:
        path = request.node
        known = self._nodes.get(path)
        if known is not None:
            if known.limit_micros == request.limit_micros:
                return self._answer(path)  # another process opened it with the same limit
            return BudgetAnswer("it is open already, with another limit", path, known.free_micros)
        refusal = self._hold(path, request.limit_micros or 0)
        if refusal is not None:
            return refusal
        self._nodes[path] = BudgetNode(
            request.limit_micros, circuit=request.circuit, opened_s=self.now_s
        )
        self._note("opened", path, request.limit_micros, request.who)
        return self._answer(path)

    def reserve(self, request: Reserve) -> BudgetAnswer:
        path = request.node
        if path in self._nodes:
            return self._answer(path)  # the request is repeated because its answer was lost
        if parent_of(path) not in self._nodes:
            return BudgetAnswer("there is no such budget", parent_of(path))
        refusal = self._hold(path, request.amount_micros)
        if refusal is not None:
            return refusal
        until_s = None if request.lease_s is None else self.now_s + request.lease_s
        self._nodes[path] = BudgetNode(
            request.amount_micros,
            circuit=request.circuit,
            owner=request.owner,
            lease_until_s=until_s,
            on_expiry=request.on_expiry,
            opened_s=self.now_s,
        )
        if until_s is not None:
            self._expect(until_s)
        self._note("reserved", path, request.amount_micros, request.owner)
        return self._answer(path)

    def settle(self, request: Settle) -> BudgetAnswer:
        path = request.node
        node = self._nodes.get(path)
        if node is None or not is_reservation(path):
            return self._settle_late(request)
        cost = node.claim_micros if request.cost_micros is None else request.cost_micros
        if cost > (node.limit_micros or 0):
            self._note("overrun", path, cost - (node.limit_micros or 0), node.owner)
        self._charge(path, cost, node.owner)
        self._close(path, node.owner)
        self._remember(path, cost, final=True)
        return BudgetAnswer(node=path, charged_micros=cost)

    def _settle_late(self, request: Settle) -> BudgetAnswer:
        """Settle a reservation that is no longer open.

        If it was settled before, nothing changes. If its lease expired, the part of the real cost
        that the expiry did not charge is charged now.
        """
        path = request.node
        found = [(charged, final) for known, charged, final in self._settled if known == path]
        if not found and request.settlement is None:
            return BudgetAnswer(NO_RESERVATION, path)
        charged, final = found[-1] if found else request.settlement or (0, True)
        more = max(0, (request.cost_micros or 0) - charged)
        if final or not more:
            return BudgetAnswer(node=path)
        self._settled = tuple(settled for settled in self._settled if settled[0] != path)
        self._remember(path, charged + more, final=True)
        self._note("overrun", path, more, "settled after its lease")
        self._charge(parent_of(path), more, "settled after its lease")
        return BudgetAnswer(node=path, charged_micros=more)

    def renew(self, request: Renew) -> BudgetAnswer:
        node = self._nodes.get(request.node)
        if node is None or not is_reservation(request.node):
            return BudgetAnswer("there is no such reservation, or its lease ran out", request.node)
        until_s = self.now_s + request.lease_s
        self._nodes[request.node] = node._replace(lease_until_s=until_s)
        self._expect(until_s)
        self._note("renewed", request.node, node.limit_micros, node.owner)
        return self._answer(request.node)

    def charge_only(self, request: Charge) -> BudgetAnswer:
        if request.mark and any(known == request.mark for known, _, _ in self._settled):
            return BudgetAnswer(node=request.node)  # the same charge again
        if request.node not in self._nodes:
            return BudgetAnswer("there is no such budget", request.node)
        free = self._free(request.node)
        if free is not None and request.cost_micros > free:
            self._note("overrun", request.node, request.cost_micros - max(0, free), request.who)
        self._charge(request.node, request.cost_micros, request.who)
        if request.mark:
            self._remember(request.mark, request.cost_micros, final=True)
        return BudgetAnswer(node=request.node, charged_micros=request.cost_micros)

    def limit(self, request: Limit) -> BudgetAnswer:
        path = request.node
        node = self._nodes.get(path)
        if node is None or is_reservation(path):
            return BudgetAnswer("there is no such budget", path)
        used = node.spent_micros + node.held_micros
        if request.limit_micros < used:
            return BudgetAnswer(
                f"{dollars(used)} of it are spent or reserved", path, node.free_micros
            )
        changed = node._replace(limit_micros=request.limit_micros)
        refusal = self._hold(path, changed.claim_micros - node.claim_micros)
        if refusal is not None:
            return refusal
        self._nodes[path] = changed
        self._note("limited", path, request.limit_micros, request.who)
        self._record_cost(path, 0)
        return self._answer(path)

    def close_all(self, request: Close) -> BudgetAnswer:
        path = request.node
        if path not in self._nodes:
            return BudgetAnswer("there is no such budget", path)
        below = [other for other in self._nodes if other.startswith(f"{path}/")]
        taken = [other for other in below if is_reservation(other)]
        if taken:
            number = "1 reservation is" if len(taken) == 1 else f"{len(taken)} reservations are"
            return BudgetAnswer(f"{number} still open below it", path)
        for other in sorted(below, key=lambda other: (-other.count("/"), other)):
            self._close(other, request.who)
        self._close(path, request.who)
        return BudgetAnswer(node=path)

    # Parts of these

    def _hold(self, path: str, more: int) -> BudgetAnswer | None:
        """Reserve more money for a node in the nodes above it; the answer is a refusal, or `None`."""
        above = parent_of(path)
        if above and above not in self._nodes:
            return BudgetAnswer("there is no such budget", above)
        if len(self._nodes) >= MOST_NODES and path not in self._nodes:
            return BudgetAnswer(
                f"{MOST_NODES:,} nodes of this tree are open; close some", root_of(path)
            )
        held: dict[str, BudgetNode] = {}
        while above:
            node = self._nodes[above]
            free = node.free_micros
            if free is not None and more > 0 and more > free:
                of = dollars(node.limit_micros or 0)
                why = f"{dollars(more)} requested, {dollars(max(0, free))} of {of} free"
                return BudgetAnswer(why, above, max(0, free))
            held[above] = node._replace(held_micros=node.held_micros + more)
            # A node with a limit has already reserved it from the node above; a node without has not.
            above = "" if free is not None else parent_of(above)
        self._nodes.update(held)
        return None

    def _charge(self, path: str, cost: int, who: str) -> None:
        """Charge a cost to the node and to all nodes above it."""
        self._note("charged", path, cost, who)
        self._charged += cost
        delta = 0
        at = path
        while at:
            node = self._nodes.get(at)
            if node is not None:  # a closed node has returned its money
                spent = node._replace(
                    spent_micros=node.spent_micros + cost, held_micros=node.held_micros + delta
                )
                self._nodes[at] = spent
                delta = spent.claim_micros - node.claim_micros
                self._record_cost(at, cost)
            at = parent_of(at)

    def _close(self, path: str, who: str) -> None:
        """Close the node and release what the node above held for it."""
        returned = self._nodes[path].claim_micros
        self._hold(path, -returned)
        del self._nodes[path]
        self._note("closed", path, returned, who)

    def _expect(self, until_s: float) -> None:
        known = self._expires_s
        self._expires_s = until_s if known is None else min(known, until_s)

    def _remember(self, path: str, charged: int, *, final: bool) -> None:
        self._settled = (*self._settled, (path, charged, final))[-REMEMBERED:]

    def _record_cost(self, path: str, cost: int) -> None:
        """Add a cost to record in the circuit of a node, and a line if the node crosses 75 % or 100 %."""
        node = self._nodes[path]
        # The maximum cost of one invocation is not a limit of its circuit.
        limit = None if is_reservation(path) else node.limit_micros
        if node.circuit:
            self.costs.append(SpentAt(node.circuit, limit, cost))
        if not limit:
            return
        share = node.spent_micros / limit
        level = 2 if share >= 1 else 1 if share >= WARN_AT else 0
        self._nodes[path] = node._replace(told=level)
        if level > node.told:
            kind = "exhausted" if level == 2 else "warned"
            self._note(kind, path, node.spent_micros, "")

    def _note(self, kind: str, path: str, amount: int | None, who: str) -> None:
        number = self._before.lines + len(self.lines) + 1
        self.lines.append(Line(number, self.now_s, kind, path, amount, who))

    def _answer(self, path: str) -> BudgetAnswer:
        return BudgetAnswer(node=path, free_micros=self._free(path))

    def _free(self, path: str) -> int | None:
        """The free amount of the node, or of the nearest node above it that has a limit."""
        while path:
            free = self._nodes[path].free_micros
            if free is not None:
                return free
            path = parent_of(path)
        return None


_HANDLERS: dict[type[BudgetRequest], Callable[[_Draft, Any], BudgetAnswer]] = {
    Open: _Draft.open,
    Limit: _Draft.limit,
    Reserve: _Draft.reserve,
    Renew: _Draft.renew,
    Settle: _Draft.settle,
    Charge: _Draft.charge_only,
    Close: _Draft.close_all,
}
