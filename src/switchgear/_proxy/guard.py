"""The checks of the proxy before it forwards a request, and what it records afterwards.

It checks session, loop, key, budget and upstream, in this order; the first refusal decides. For a request
without new steps, while the open allotment has money, no check needs the store: circuits decide by their
last known state (`_breaker`). Everything that needs the store runs in threads beside the event loop.
"""

import asyncio
import json
import math
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple, TypeVar

from switchgear._breaker.circuit_breaker import CircuitBreaker
from switchgear._breaker.views import View, view_of
from switchgear._core.errors import BudgetRefused, Rejected, StoreError
from switchgear._core.policy import Latched, Policy
from switchgear._core.types import EventKind, Mode, Override, Permit, Phase, Record, Signal
from switchgear._hooks.session import Notes
from switchgear._panel.panel import Panel
from switchgear._providers.prices import Rates
from switchgear._providers.table import ProviderErrorKind
from switchgear._providers.traffic import ModelProtocol, ModelRequest
from switchgear._providers.usage import Metered
from switchgear._providers.verdicts import ResponseVerdict
from switchgear._proxy import lanes
from switchgear._proxy.allotments import BudgetShare, BudgetShort, CallEstimate, NodeBudget
from switchgear._proxy.changes import ChangeFeed
from switchgear._proxy.history import (
    PendingCall,
    ToolTurn,
    dump_response,
    is_user_turn,
    load_response,
    turns_of,
)
from switchgear._proxy.identity import Identity
from switchgear._proxy.metrics import ProxyCounts
from switchgear._proxy.refusals import ProxyRefusal, Reaction
from switchgear._stores.base import Transaction
from switchgear._stuck.score import evidence_score, session_policy
from switchgear._text.redact import redact

T = TypeVar("T")
MOST_KNOWN = 5_000
"""Maximum number of breakers, of sessions, of budgets and of prices that a worker remembers."""
_RECENT = 3
_MARGIN = 1.25
"""Factor by which the next call may cost more than recent calls."""
_BUSY_S = 2.0
"""Seconds that a call waits for money that other calls have reserved and may return."""
_BUSY_STEP_S = 0.05
_MOST_CALLS = 64
_RECENT_NAMES = 100
"""Number of recent breakers, and of recent sessions, that are read again without an event."""
_READ_S = 1.0
"""Seconds that a request waits for the store to find out whether its session is held."""
_KEY_FAILURES = frozenset((ProviderErrorKind.AUTH, ProviderErrorKind.QUOTA))
_DAY_S = 86_400.0
CHECK_S = 0.25
"""Minimum seconds between two checks whether a session is held."""
_STORE_S = 2.0
"""Seconds that a request waits for the store to reserve money or to record its steps."""
_AWAY_S = 1.0
"""Seconds without a new attempt after the store did not answer; requests do not wait for it then."""


class GuardSettings(NamedTuple):
    """The settings of the guards. Amounts are in millionths of a dollar."""

    budget_node: str = ""
    """The budget node of all calls; empty: none."""
    session_budget_micros: int | None = None
    key_budget_micros: int | None = None
    rates: Rates | None = None
    """The user's own prices; they take precedence over any list."""
    allow_unknown_price: bool = False
    detect_loops: bool = True
    policy_for: Callable[[str], Policy | None] = lambda _: None
    """Returns the configured policy of a circuit."""
    owner: str = "proxy"

    @property
    def has_budgets(self) -> bool:
        """Whether money is reserved for calls."""
        limits = (self.session_budget_micros, self.key_budget_micros)
        return bool(self.budget_node) or limits != (None, None)


class CallRefused(Exception):
    """Raised for a request that is not forwarded."""

    def __init__(self, refusal: ProxyRefusal) -> None:
        super().__init__(refusal.why)
        self.refusal = refusal


class ProxiedCall(NamedTuple):
    """A model request and its sender."""

    identity: Identity
    request: ModelRequest


@dataclass(slots=True)
class AdmittedCall:
    """An admitted call, and what it holds until it is settled. Used by one task."""

    call: ProxiedCall
    session: "SessionState | None" = None
    key: tuple[CircuitBreaker, Permit] | None = None
    shares: list[BudgetShare] = field(default_factory=list)
    warning: str = ""

    @property
    def is_free(self) -> bool:
        return self.call.request.protocol is ModelProtocol.ANTHROPIC_COUNT_TOKENS


@dataclass(slots=True)
class SessionState:
    """The state of a session that a worker keeps in memory."""

    identity: Identity = Identity("")  # noqa: RUF009  immutable
    keys: frozenset[str] = frozenset()
    """The turns that this worker has recorded."""
    heat: float = 0.0
    costs: dict[str, deque[tuple[int, int]]] = field(default_factory=dict)
    """The costs and estimated input tokens of the last calls, by model."""
    spent_micros: int | None = None
    unsaved_micros: int = 0
    checked_s: float = -math.inf
    """When the worker last checked whether the session is held, on the monotonic clock."""
    refusal: ProxyRefusal | None = None
    calls: OrderedDict[str, PendingCall] = field(default_factory=OrderedDict)
    """Tool calls of stored responses; later requests contain only their results."""


class RecordedSteps(NamedTuple):
    """The result of recording the steps of a request."""

    keys: frozenset[str]
    heat: float
    warning: str
    tripped: str
    """The evidence if the circuit has opened; empty if it has not."""
    circuit: str
    spent_micros: int | None


class Guard:
    """The guards of one worker. Its coroutines run in one event loop."""

    def __init__(self, panel: Panel, settings: GuardSettings) -> None:
        self.panel = panel
        self.settings = settings
        self._threads = ThreadPoolExecutor(8, "switchgear-guard")
        self._breakers: OrderedDict[str, CircuitBreaker] = OrderedDict()
        self._sessions: OrderedDict[str, SessionState] = OrderedDict()
        self._nodes: OrderedDict[str, NodeBudget] = OrderedDict()
        self._model_costs: dict[str, deque[tuple[int, int]]] = {}
        self._changes = ChangeFeed(panel.store, self._note_changes)
        self.counts = ProxyCounts()
        self._returning: set[asyncio.Future[None]] = set()
        """Probes that are being returned."""
        self._unsaved_costs: set[str] = set()
        """Models whose first costs are not in the store yet."""
        self._responses: OrderedDict[str, str] = OrderedDict()
        self._store_retry_s = -math.inf
        """When the store may be used again after it did not answer, on the monotonic clock."""
        self._store_problem = ""

    @property
    def is_store_away(self) -> bool:
        """Whether the store cannot be read or recently did not answer."""
        return time.monotonic() < self._store_retry_s or not self._changes.is_current

    def _note_store_problem(self, error: BaseException) -> None:
        self._store_retry_s = time.monotonic() + _AWAY_S
        late = f"it did not answer within {_STORE_S:g} s"
        self._store_problem = late if isinstance(error, TimeoutError) else redact(str(error), 300)

    async def run_in_thread(self, work: Callable[[], T]) -> T:
        """Run `work` in a thread and return its result; it completes even if the task is cancelled."""
        loop = asyncio.get_running_loop()
        return await asyncio.shield(loop.run_in_executor(self._threads, work))

    # Before a request

    async def admit(self, call: ProxiedCall) -> AdmittedCall:
        """Check everything except the circuit of the upstream. Raises `CallRefused`, and then holds nothing."""
        admission = AdmittedCall(call)
        identity = call.identity
        try:
            if identity.session:
                await self._check_session(admission)
            if identity.key:
                await self._check_key(admission)
            if self.settings.has_budgets and not admission.is_free:
                await self._reserve(admission)
        except BaseException:
            self.release(admission)
            raise
        return admission

    async def _check_session(self, admission: AdmittedCall) -> None:
        identity = admission.call.identity
        known = self._known_session(identity.session)
        admission.session = known
        known.identity = identity
        if self._is_due(known):
            known.checked_s = time.monotonic()
            with suppress(StoreError, TimeoutError):  # then the last known refusal applies
                async with asyncio.timeout(_READ_S):
                    known.refusal = await self.run_in_thread(
                        lambda: self._current_refusal(identity)
                    )
        if known.refusal is not None:
            raise CallRefused(known.refusal)
        if self.settings.detect_loops and not admission.is_free:
            await self._record_steps(admission, known)

    def _is_due(self, known: SessionState) -> bool:
        """Whether to check again if a session is held; the feed usually reports changes."""
        was_read = known.checked_s != -math.inf and known.refusal is None
        if was_read and self._changes.is_current:
            return False
        return time.monotonic() - known.checked_s > CHECK_S

    def _note_changes(self, names: set[str] | None) -> None:
        """Read circuits that moved; `None`: any circuit may have. Called in the thread of the feed."""
        if names is None:
            breakers = list(self._breakers.values())[-_RECENT_NAMES:]
            sessions = list(self._sessions.values())[-_RECENT_NAMES:]
        else:
            found = [self._breakers.get(name) for name in names]
            breakers = [breaker for breaker in found if breaker is not None]
            moved = {name.split("/")[1] for name in names if name.startswith("session/")}
            sessions = [
                known
                for known in (list(self._sessions.values()) if moved else ())
                if moved & {known.identity.session, known.identity.parent}
            ]
        store = self.panel.store
        for breaker in breakers:
            stored = store.get(breaker.name)
            if stored is not None:
                breaker.adopt(store.seen(stored.circuit))
        for known in sessions:
            known.refusal = self._current_refusal(known.identity)

    def _current_refusal(self, identity: Identity) -> ProxyRefusal | None:
        """The refusal if the session, or the session that started it, is held or open now."""
        for name in dict.fromkeys((identity.parent, identity.session)):
            found = self.panel.store.get(f"session/{name}") if name else None
            if found is None:
                continue
            view = view_of(found, self.panel.store.now_s())
            if not view.verdict.admitted and view.circuit.phase is not Phase.HALF_OPEN:
                return _session_refusal(view)
        return None

    async def _record_steps(self, admission: AdmittedCall, known: SessionState) -> None:
        call = admission.call
        request = call.request
        turns = turns_of(request.protocol, request.payload, known.calls)
        if not turns:
            return
        if known.keys and turns[-1].key in known.keys and _have_ids(turns):
            return  # the last step was recorded, so all earlier steps were, too
        keys = [turn.key for turn in turns]
        if known.keys == frozenset(_number_duplicates(keys)):
            return  # a history without ids that was recorded before
        if time.monotonic() < self._store_retry_s:
            return  # loops are detected again when the store is back; see docs/proxy.md
        try:
            async with asyncio.timeout(_STORE_S):
                recorded = await self.run_in_thread(
                    lambda: self._record_turns(call, turns, keys, known)
                )
        except (StoreError, TimeoutError) as error:
            self._note_store_problem(error)
            return
        known.keys, known.heat = recorded.keys, recorded.heat
        if recorded.spent_micros is not None:
            known.spent_micros = recorded.spent_micros
        admission.warning = recorded.warning
        if recorded.tripped:
            raise CallRefused(
                ProxyRefusal(Reaction.STOP, recorded.tripped, "loop", None, recorded.circuit)
            )

    def _record_turns(
        self, call: ProxiedCall, turns: list[ToolTurn], keys: list[str], known: SessionState
    ) -> RecordedSteps:
        """Record the new steps in the circuit of the session, in one transaction."""
        identity = call.identity
        session = f"session/{identity.parent or identity.session}"
        place = f"proxy:{identity.session}" if identity.parent else "proxy"
        has_ids = all(turn.has_ids for turn in turns) and len(set(keys)) == len(keys)
        payload = call.request.payload
        continues = bool(payload.get("previous_response_id") or payload.get("conversation"))
        unsaved, known.unsaved_micros = known.unsaved_micros, 0

        def work(tx: Transaction) -> RecordedSteps:
            notes = Notes.load(tx.note)
            if notes.host:  # the agent's hooks record its steps
                return RecordedSteps(
                    frozenset(_number_duplicates(keys)), 0.0, "", "", session, notes.spent_micros
                )
            known_lanes = lanes.load(notes.more.get(place, {}))
            found = lanes.new_turns(known_lanes, keys, have_ids=has_ids, continues=continues)
            agent = identity.session if identity.parent else found.lane
            name = f"{session}/agent/{agent}" if agent else session
            policy = proxy_policy(name, self.settings.policy_for)
            heat, warning, tripped = 0.0, "", ""
            for index, turn in enumerate(turns):
                if not found.is_new(index):
                    continue
                step = tx.apply(name, policy, Record(turn.signal()))
                heat = step.verdict.heat
                warning = step.verdict.reason if step.verdict.phase is Phase.TRIPPING else ""
                if step.circuit.phase is Phase.OPEN and step.circuit.mode is Mode.AUTO:
                    readings = policy.readings(step.circuit.memories, tx.now_s)
                    tripped = "; ".join(evidence_score(policy, readings).evidence)
                    tripped = tripped or step.verdict.reason
                    why = f"refused one request: {tripped}"
                    reset = Override("switchgear", why, reset=True, kind=EventKind.INTERVENED)
                    tx.apply(name, policy, reset)
            if tripped and is_user_turn(call.request.protocol, call.request.payload):
                tripped = ""  # the user has already reacted
            spent = notes.spent_micros
            if unsaved or spent is not None:
                spent = (spent or 0) + unsaved
            notes = notes._replace(
                agent=notes.agent or call.identity.agent or "proxy",
                began_s=tx.now_s if notes.began_s is None else notes.began_s,
                heard_s=tx.now_s,
                works=True,
                last_step=turns[-1].line,
                spent_micros=spent,
                more={**notes.more, place: lanes.dump(found.lanes)},
            )
            tx.note = notes.dump()
            return RecordedSteps(
                frozenset(_number_duplicates(keys)), heat, warning, _loop_text(tripped), name, spent
            )

        try:
            return self.panel.store.inner.transact(session, work)
        except StoreError:
            known.unsaved_micros += unsaved
            raise

    async def _check_key(self, admission: AdmittedCall) -> None:
        breaker = await self.breaker(f"key/{admission.call.identity.key}")
        try:
            admission.key = (breaker, await self._permit(breaker))
        except Rejected as error:
            wait_s = error.retry_after_s
            reaction = Reaction.STOP if wait_s is None else Reaction.WAIT
            why = f"Switchgear: {redact(str(error), 600)}"
            raise CallRefused(ProxyRefusal(reaction, why, "key", wait_s, error.circuit)) from None

    # Money

    async def _reserve(self, admission: AdmittedCall) -> None:
        call = admission.call
        estimate = self._estimate(call)
        if estimate is not None and not estimate.is_learned:
            estimate = await self._learned_estimate(call) or estimate
        if estimate is None:
            if self.settings.allow_unknown_price:
                return
            raise CallRefused(_price_refusal(call.request))
        for node in self._budget_nodes(call.identity):
            share = node.acquire_local(estimate)
            if share is None:
                share = await self._acquire_share(node, estimate, call)
            admission.shares.append(share)

    async def _learned_estimate(self, call: ProxiedCall) -> CallEstimate | None:
        """An estimate by the costs of the model's calls in other workers; `None`: unknown."""
        model = call.request.model
        with suppress(StoreError, ValueError):
            name = f"proxy-cost/{_safe_name(model)}"
            text = await self.run_in_thread(
                lambda: self.panel.store.inner.transact(name, lambda tx: tx.note)
            )
            seen = [(int(cost), int(size)) for cost, size in json.loads(text or "[]")]
            if seen and model not in self._model_costs:
                self._model_costs[model] = deque(seen, maxlen=_RECENT)
                return self._estimate(call)
        return None

    def _save_costs(self) -> None:
        """Save the first costs of models for other workers. Runs in a thread, before reservations are settled."""
        while self._unsaved_costs:
            model = self._unsaved_costs.pop()
            text = json.dumps(list(self._model_costs.get(model, ())))

            def work(tx: Transaction, text: str = text) -> None:
                tx.note = text

            with suppress(StoreError, ValueError):
                self.panel.store.inner.transact(f"proxy-cost/{_safe_name(model)}", work)

    async def _acquire_share(
        self, node: NodeBudget, estimate: CallEstimate, call: ProxiedCall
    ) -> BudgetShare:
        deadline_s = time.monotonic() + _BUSY_S
        while True:
            if time.monotonic() < self._store_retry_s:
                raise CallRefused(_store_refusal(self._store_problem))
            try:
                async with asyncio.timeout(_STORE_S):
                    return await self._acquire_or_undo(node, estimate)
            except BudgetShort as short:
                if not short.held_micros or time.monotonic() >= deadline_s:
                    raise CallRefused(_short_refusal(short)) from None
            except BudgetRefused as error:
                why = f"Switchgear: {redact(str(error), 600)}"
                raise CallRefused(ProxyRefusal(Reaction.STOP, why, "budget")) from None
            except (StoreError, TimeoutError) as error:
                self._note_store_problem(error)
                raise CallRefused(_store_refusal(self._store_problem)) from None
            await asyncio.sleep(_BUSY_STEP_S)
            if not estimate.is_learned:
                estimate = self._estimate(call) or estimate
                if not estimate.is_learned:
                    estimate = await self._learned_estimate(call) or estimate

    async def _acquire_or_undo(self, node: NodeBudget, estimate: CallEstimate) -> BudgetShare:
        loop = asyncio.get_running_loop()
        acquiring = loop.run_in_executor(self._threads, lambda: node.acquire(estimate))
        try:
            return await asyncio.shield(acquiring)
        except asyncio.CancelledError:
            acquiring.add_done_callback(_give_back)
            raise

    def _estimate(self, call: ProxiedCall) -> CallEstimate | None:
        """The maximum cost of a call; `None`: the price is unknown."""
        request, rates = call.request, self.settings.rates
        known = self._sessions.get(call.identity.session)
        recent = known.costs.get(request.model) if known is not None else None
        recent = recent or self._model_costs.get(request.model)
        if rates is not None:
            most: int | None = rates.cost_micros(*request.most_usage())
        else:
            most = request.most_cost().micros
        if most is None:
            return None
        if not recent:
            return CallEstimate(most, is_learned=False)
        size = max(1, request.input_tokens)
        highest = max(cost * max(1.0, size / max(1, then)) for cost, then in recent)
        return CallEstimate(max(1, round(highest * _MARGIN)), is_learned=True)

    def _budget_nodes(self, identity: Identity) -> list[NodeBudget]:
        settings = self.settings
        limits: list[tuple[str, int | None]] = []
        if settings.budget_node:
            limits.append((settings.budget_node, None))
        if settings.key_budget_micros is not None and identity.key:
            limits.append((f"proxy-key-{identity.key}", settings.key_budget_micros))
        if settings.session_budget_micros is not None:
            session = identity.parent or identity.session or f"key-{identity.key or 'none'}"
            limits.append((f"proxy-session-{session}", settings.session_budget_micros))
        return [self._node(*each) for each in limits]

    def _node(self, name: str, limit_micros: int | None) -> NodeBudget:
        node = self._nodes.get(name)
        if node is None:
            node = NodeBudget(
                lambda: self.panel.budgets,
                name,
                limit_micros=limit_micros,
                owner=self.settings.owner,
                before_settling=self._save_costs,
            )
            self._nodes[name] = node
            if len(self._nodes) > MOST_KNOWN:
                idle = next((key for key, each in self._nodes.items() if each.is_idle), None)
                if idle is not None:
                    del self._nodes[idle]
        return node

    # The upstream

    async def enter(self, upstream: str, model: str) -> tuple[CircuitBreaker, Permit]:
        """A permit of the circuit of an upstream and model. Raises `Rejected`."""
        breaker = await self.breaker(circuit_name(upstream, model))
        return breaker, await self._permit(breaker)

    async def _permit(self, breaker: CircuitBreaker) -> Permit:
        """A permit by the last known state while the feed is current, else by the store. Raises `Rejected`."""
        permit = breaker.known_permit() if self._changes.is_current else None
        return permit or await breaker.aenter()

    async def record(
        self,
        entered: tuple[CircuitBreaker, Permit],
        verdict: ResponseVerdict | None,
        seconds: float,
    ) -> None:
        """Record the result of a request in the circuit of the upstream; `None`: unknown."""
        breaker, permit = entered
        if verdict is None or verdict.outcome == "ignored":
            await breaker.agive_back(permit)
        elif verdict.outcome == "success":
            await breaker.asucceeded(permit, seconds)
        else:
            await breaker.arecord(verdict.signal(seconds), permit)

    # After a request

    def settle(
        self, admission: AdmittedCall, metered: Metered | None, verdict: ResponseVerdict | None
    ) -> int | None:
        """Settle the reservations and return the cost, `None` if unknown. No I/O."""
        call = admission.call
        cost = self._cost(call.request, metered, verdict)
        for share in admission.shares:
            share.settle(cost)
        admission.shares.clear()
        if cost:
            self._learn(call, cost)
        known = admission.session
        if known is not None and cost:
            known.spent_micros = (known.spent_micros or 0) + cost
            known.unsaved_micros += cost
        return cost

    async def record_key(self, admission: AdmittedCall, verdict: ResponseVerdict | None) -> None:
        """Record the result of a call in the circuit of its key."""
        if admission.key is None:
            return
        breaker, permit = admission.key
        admission.key = None
        error = None if verdict is None else verdict.error
        if error is not None and error.kind in _KEY_FAILURES:
            signal = Signal(ok=False, error=error.text, retry_after_s=error.retry_after_s)
            await breaker.arecord(signal, permit)
        elif verdict is not None and verdict.outcome == "success":
            await breaker.asucceeded(permit, None)
        else:
            await breaker.agive_back(permit)

    def _cost(
        self, request: ModelRequest, metered: Metered | None, verdict: ResponseVerdict | None
    ) -> int | None:
        if metered is None:
            return 0  # there was no response
        error = None if verdict is None else verdict.error
        if error is not None and (error.status or 0) >= 400 and metered.usage is None:
            return 0  # providers do not charge for errors
        if request.protocol is ModelProtocol.ANTHROPIC_COUNT_TOKENS:
            return 0
        if self.settings.rates is not None:
            if metered.usage is None and not metered.output_tokens:
                return None
            return self.settings.rates.cost_micros(*metered.usage_or_estimate(request))
        return metered.cost(request).micros

    def _learn(self, call: ProxiedCall, cost: int) -> None:
        seen = (cost, max(1, call.request.input_tokens))
        model = call.request.model
        known = self._sessions.get(call.identity.session)
        if known is not None:
            known.costs.setdefault(model, deque(maxlen=_RECENT)).append(seen)
        if model not in self._model_costs:
            if len(self._model_costs) >= MOST_KNOWN:
                return
            self._unsaved_costs.add(model)
        self._model_costs.setdefault(model, deque(maxlen=_RECENT)).append(seen)

    def release(self, admission: AdmittedCall) -> None:
        """Return everything that the call holds, because it was not forwarded. No I/O."""
        for share in admission.shares:
            share.settle(0)
        admission.shares.clear()
        entered, admission.key = admission.key, None
        if entered is not None and entered[1].probe:  # an ordinary permit holds nothing
            task = asyncio.ensure_future(entered[0].agive_back(entered[1]))
            self._returning.add(task)
            task.add_done_callback(self._returning.discard)

    # Stored responses

    async def session_of_response(self, response_id: str, session: str) -> str:
        """The session that continues a stored response, by default the session of the response.

        Empty if it is unknown. Also loads the tool calls in a response that another worker has seen.
        """
        found = self._responses.get(response_id)
        if found is not None and session in {"", found}:
            return found
        name = f"response/{response_id[:120]}"
        try:
            note = await self.run_in_thread(
                lambda: self.panel.store.transact(name, lambda tx: tx.note or "")
            )
        except (StoreError, ValueError):
            return session
        stored, calls = load_response(note)
        if session or stored:
            self._keep_response(response_id, session or stored, calls)
        return session or stored

    async def remember_response(
        self, response_id: str, session: str, calls: list[PendingCall]
    ) -> None:
        """Remember the session of a stored response and the calls in it."""
        note = dump_response(session, calls)
        self._keep_response(response_id, *load_response(note))

        def work(tx: Transaction) -> None:
            tx.note = note
            tx.keep_s = _DAY_S

        with suppress(StoreError, ValueError):  # this worker has it in memory
            name = f"response/{response_id[:120]}"
            await self.run_in_thread(lambda: self.panel.store.transact(name, work))

    def _keep_response(self, response_id: str, session: str, calls: list[PendingCall]) -> None:
        known = self._known_session(session)
        for call in calls:
            _remember(known.calls, call.id, call, _MOST_CALLS)
        _remember(self._responses, response_id, session)

    # Caches

    def _known_session(self, session: str) -> SessionState:
        return _remember(self._sessions, session, self._sessions.get(session) or SessionState())

    async def breaker(self, name: str) -> CircuitBreaker:
        """The breaker of a circuit; the first call for a name reads the store, beside the event loop."""
        found = self._breakers.get(name)
        if found is None:
            found = await self.run_in_thread(lambda: self.panel.breaker(name))
        return _remember(self._breakers, name, found)

    # In the background

    def start(self) -> None:
        """Begin to read the changes of other processes."""
        self._changes.start()

    def tick(self) -> None:
        """Settle, renew and report what is due. Runs in a thread; after a store error, the next call retries."""
        for breaker in list(self._breakers.values())[-_RECENT_NAMES:]:
            with suppress(StoreError):
                breaker.flush()
        for node in list(self._nodes.values()):
            if not node.is_idle:
                try:
                    node.tick()
                except StoreError:
                    return  # every further node would wait for the store, too

    def save_counts(self) -> None:
        """Write the metrics and the costs of sessions to the store, for other commands. Runs in a thread."""
        with suppress(StoreError):
            self.counts.save(self.panel.store.inner)
            self._save_spend()

    def _save_spend(self) -> None:
        """Add unsaved costs to the sessions in the store. Raises `StoreError`."""
        for session, known in list(self._sessions.items()):
            if known.unsaved_micros:
                amount, known.unsaved_micros = known.unsaved_micros, 0
                try:
                    self.panel.store.transact(f"session/{session}", _spend(amount))
                except StoreError:
                    known.unsaved_micros += amount
                    raise

    def close(self) -> None:
        """Settle everything and end the threads."""
        self._changes.stop()
        self.tick()
        for node in list(self._nodes.values()):
            node.close()
        self.save_counts()
        self._threads.shutdown(wait=True)


def _remember(cache: OrderedDict[str, T], key: str, value: T, limit: int = MOST_KNOWN) -> T:
    """Cache a value as the most recent; the oldest is dropped if there are more than `limit`."""
    cache[key] = value
    cache.move_to_end(key)
    if len(cache) > limit:
        cache.popitem(last=False)
    return value


@lru_cache(4096)
def circuit_name(upstream: str, model: str) -> str:
    """The circuit of an upstream and model: `provider/<upstream>/<model>`."""
    kept = _safe_name(model)
    return f"provider/{upstream}/{kept}" if kept else f"provider/{upstream}"


def _safe_name(model: str) -> str:
    """A model as part of a circuit's name: letters, digits and a few other characters."""
    return "".join(
        char if char.isascii() and (char.isalnum() or char in "-_.:@") else "_"
        for char in model[:120]
    )


def proxy_policy(name: str, configured: Callable[[str], Policy | None]) -> Policy:
    """The policy of a circuit: the configured one, else that of its kind."""
    from switchgear._config import preset_policy  # noqa: PLC0415  slow to import

    found = configured(name)
    if name.startswith("session/"):
        progress = configured(f"progress/{name.removeprefix('session/')}")
        progress = progress or preset_policy("progress")
        if found is None:
            found = Policy(progress.detectors, Latched(), tripping_at=progress.tripping_at)
        return session_policy(found, progress)
    return found if found is not None else preset_policy("provider")


def _have_ids(turns: list[ToolTurn]) -> bool:
    """Whether every turn has ids, and no two turns have the same."""
    ids = {tuple(call.id for call in turn.calls) for turn in turns}
    return len(ids) == len(turns) and all(turn.has_ids for turn in turns)


def _number_duplicates(keys: list[str]) -> list[str]:
    """The keys, with a number appended to repeated ones."""
    counts: dict[str, int] = {}
    found = []
    for key in keys:
        number = counts[key] = counts.get(key, 0) + 1
        found.append(key if number == 1 else f"{key}#{number}")
    return found


def _spend(amount: int) -> Callable[[Transaction], None]:
    def work(tx: Transaction) -> None:
        notes = Notes.load(tx.note)
        spent = (notes.spent_micros or 0) + amount
        began_s = tx.now_s if notes.began_s is None else notes.began_s
        notes = notes._replace(spent_micros=spent, began_s=began_s, heard_s=tx.now_s)
        tx.note = notes._replace(agent=notes.agent or "proxy").dump()

    return work


def _give_back(acquiring: "asyncio.Future[BudgetShare]") -> None:
    if not acquiring.cancelled() and acquiring.exception() is None:
        acquiring.result().settle(0)


def _loop_text(evidence: str) -> str:
    if not evidence:
        return ""
    return (
        f"Switchgear: the agent repeats itself without progress: {redact(evidence, 600)}. "
        "This request is refused; the next one is admitted. Tell the agent what to do differently."
    )


def _session_refusal(view: View) -> ProxyRefusal:
    verdict = view.verdict
    held = verdict.reason.startswith("held open")
    state = verdict.reason if held else f"{verdict.phase.replace('_', '-')}: {verdict.reason}"
    until = (
        f"`switchgear release {view.name}` releases it" if held else "an operator has to reset it"
    )
    why = f"Switchgear: {view.name!r} is {redact(state, 400)}; {until}."
    return ProxyRefusal(Reaction.STOP, why, "session", None, view.name)


def _short_refusal(short: BudgetShort) -> ProxyRefusal:
    need = f"the next call may cost {_cents(short.need_micros)}"
    left = f"{_cents(short.free_micros)} left, and {need}"
    if short.held_micros:
        held = f"{_cents(short.held_micros)} is reserved by other calls"
        why = f"Switchgear: budget {short.node!r}: {left}; {held}. Retry in a moment."
        return ProxyRefusal(Reaction.WAIT, why, "budget", 2.0)
    why = (
        f"Switchgear: budget {short.node!r} is used up: {left}. Raise it with "
        f"`switchgear budgets set {short.node} USD`."
    )
    return ProxyRefusal(Reaction.STOP, why, "budget")


def _store_refusal(why: str) -> ProxyRefusal:
    text = f"Switchgear: the budget cannot be checked, so the call is not made: {why}"
    return ProxyRefusal(Reaction.WAIT, text, "store", 5.0)


def _cents(micros: int) -> str:
    """Dollars and cents without further digits, because OpenCode retries any message that contains 503.

    >>> _cents(503_058), _cents(1)
    ('$0.50', 'less than $0.01')
    """
    return "less than $0.01" if 0 < micros < 10_000 else f"${micros / 1e6:.2f}"


def _price_refusal(request: ModelRequest) -> ProxyRefusal:
    unknown = request.most_cost().unknown or "the price is unknown"
    why = (
        f"Switchgear: {redact(unknown, 300)}, so the budget cannot be kept. Start the proxy with "
        "--price-in and --price-out, or with --allow-unknown-price."
    )
    return ProxyRefusal(Reaction.STOP, why, "price")
