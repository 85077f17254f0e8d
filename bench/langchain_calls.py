"""Measure: what a guarded model call of a LangChain agent takes, against the same agent with an empty middleware.

The model is the real ChatOpenAI, and its API a server on loopback. An agent without any middleware is shown as well;
what an empty one adds is LangChain's. Once with a tool and once without: to an agent without tools LangChain adds the
node of the tools for a middleware that wraps tool calls. CPU time of this process, because nothing in it depends on
the network.
"""

from __future__ import annotations

import random
import statistics
import time
from typing import TYPE_CHECKING, Any

from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware
from langchain_core.messages import HumanMessage
from langchain_openai import ChatOpenAI

from bench.http_calls import api
from bench.library import Role
from bench.result import TIMES, Bar, Row, Section
from switchgear import Panel
from switchgear.integrations.langchain import guard

if TYPE_CHECKING:
    from bench.measure import Effort

AT_MOST_TIMES = 1.05
BATCH = 3
Case = tuple[str, str]
"""The middleware of an agent, and whether it has a tool."""


def search(query: str) -> str:
    """Search for a text."""
    return query


class Empty(AgentMiddleware[Any, Any, Any]):
    """Calls the model and does nothing else."""

    def wrap_model_call(self, request: Any, handler: Any) -> Any:
        return handler(request)


def section(effort: Effort) -> Section:
    with api() as url, Panel("memory:") as panel:
        agents = {
            (kind, tools): _agent(url, tools, *middleware)
            for tools in ("with a tool", "without a tool")
            for kind, middleware in (
                ("no middleware", ()),
                ("empty middleware", (Empty(),)),
                ("Switchgear", (guard(panel=panel),)),
            )
        }
        samples = _samples(agents, max(60, effort.rounds))
        panel.flush()
        if not any(panel.breaker(view.name).totals.succeeded for view in panel.circuits()):
            raise RuntimeError("the model calls were not guarded")
    ratios, rows, bars = {}, [], []
    for (kind, tools), times_s in samples.items():
        floor = samples["empty middleware", tools]
        ratio = statistics.median(a / b for a, b in zip(times_s, floor, strict=True))
        taken_us = statistics.median(times_s) * 1e6 / BATCH
        is_ours = kind == "Switchgear"
        cells = (f"{taken_us:,.0f} us", f"{ratio:.3f} {TIMES}")
        name = f"{kind}, {tools}"
        rows.append(Row(name, Role.OURS if is_ours else Role.FLOOR, cells, ratio))
        ratios[name] = ratio
        if is_ours:
            bars.append(Bar(f"times an empty middleware, {tools}", ratio, AT_MOST_TIMES))
    return Section(
        key="langchain",
        title="A guarded model call of a LangChain agent",
        method=(
            f"Batches of {BATCH} runs of an agent with ChatOpenAI and an API on loopback; CPU time."
        ),
        columns=("run", "of empty"),
        rows=rows,
        bars=bars,
        numbers={"ratios": ratios},
    )


def _agent(url: str, tools: str, *middleware: Any) -> Any:
    model = ChatOpenAI(model="gpt-4.1", base_url=f"{url}/v1", api_key="none", max_retries=0)
    return create_agent(model, [search] if tools == "with a tool" else [], middleware=middleware)


def _samples(agents: dict[Case, Any], rounds: int) -> dict[Case, list[float]]:
    found: dict[Case, list[float]] = {name: [] for name in agents}
    names = list(agents)
    for _ in range(rounds + 1):
        random.shuffle(names)
        for name in names:
            begun_s = time.process_time()
            for _ in range(BATCH):
                agents[name].invoke({"messages": [HumanMessage("Hello")]})
            found[name].append(time.process_time() - begun_s)
    return {name: times_s[1:] for name, times_s in found.items()}
