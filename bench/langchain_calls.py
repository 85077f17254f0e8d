"""Measure: what a guarded model call of a LangChain agent takes, against the same agent with an empty middleware.

The model is LangChain's own fake, which answers at once: all that is measured is the framework and the guard. An
agent without any middleware is shown as well; what an empty one adds is LangChain's.
"""

from __future__ import annotations

import random
import statistics
import time
from typing import TYPE_CHECKING, Any

from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, HumanMessage

from bench.library import Role
from bench.result import TIMES, Bar, Row, Section
from switchgear import Panel
from switchgear.integrations.langchain import guard

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.measure import Effort

AT_MOST_TIMES = 1.05
BATCH = 10


class Empty(AgentMiddleware[Any, Any, Any]):
    """Calls the model and does nothing else."""

    def wrap_model_call(self, request: Any, handler: Any) -> Any:
        return handler(request)


def answers() -> Iterator[AIMessage]:
    tokens = {"input_tokens": 1000, "output_tokens": 50, "total_tokens": 1050}
    while True:
        yield AIMessage("word " * 50, usage_metadata=tokens)


def section(effort: Effort) -> Section:
    with Panel("memory:") as panel:
        agents = {
            "no middleware": _agent(),
            "empty middleware": _agent(Empty()),
            "Switchgear": _agent(guard(panel=panel)),
        }
        samples = _samples(agents, max(15, effort.rounds // 3))
        panel.flush()
        if not any(panel.breaker(view.name).totals.succeeded for view in panel.circuits()):
            raise RuntimeError("the model calls were not guarded")
    floor = samples["empty middleware"]
    ratios, rows = {}, []
    for name, times_s in samples.items():
        ratios[name] = statistics.median(a / b for a, b in zip(times_s, floor, strict=True))
        taken_us = statistics.median(times_s) * 1e6 / BATCH
        role = Role.OURS if name == "Switchgear" else Role.FLOOR
        cells = (f"{taken_us:,.0f} us", f"{ratios[name]:.3f} {TIMES}")
        rows.append(Row(name, role, cells, ratios[name]))
    return Section(
        key="langchain",
        title="A guarded model call of a LangChain agent",
        method=f"Batches of {BATCH} runs of an agent with LangChain's fake model, which answers at once.",
        columns=("run", "of empty"),
        rows=rows,
        bars=[Bar("times an empty middleware", ratios["Switchgear"], AT_MOST_TIMES)],
        numbers={"ratios": ratios},
    )


def _agent(*middleware: Any) -> Any:
    return create_agent(GenericFakeChatModel(messages=answers()), [], middleware=middleware)


def _samples(agents: dict[str, Any], rounds: int) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {name: [] for name in agents}
    names = list(agents)
    for _ in range(rounds + 1):
        random.shuffle(names)
        for name in names:
            begun_s = time.perf_counter()
            for _ in range(BATCH):
                agents[name].invoke({"messages": [HumanMessage("Hello")]})
            found[name].append(time.perf_counter() - begun_s)
    return {name: times_s[1:] for name, times_s in found.items()}
