"""The guard inside a process of `switchgear wrap`: it guards every HTTP client that the process creates.

Only requests to model APIs are guarded. A refusal is a response in the provider's error format: SDKs raise
it as their own error and do not retry it, so the script needs no change. Calls and refusals are appended to
a journal that the command reads.
"""

import json
import os
from functools import wraps
from types import ModuleType
from typing import Any

from switchgear._panel.panel import Panel
from switchgear.integrations._guard import HttpGuard, ModelUsage
from switchgear.integrations._http import guard_http_client

_MOST_REFUSALS = 1_000
"""Maximum number of refusals of one process in the journal; a loop causes many."""
_guards: dict[int, HttpGuard] = {}


def loaded(module: ModuleType) -> None:
    """Guard the clients of a module that was just imported."""
    if module.__name__ == "google.genai._api_client":
        client: Any = getattr(module, "BaseApiClient", None)
        if hasattr(client, "_use_aiohttp"):
            client._use_aiohttp = lambda _: False  # noqa: SLF001  so that its async side uses httpx
        return
    for name in ("Client", "AsyncClient"):
        _guard_class(getattr(module, name))


def _guard_class(kind: Any) -> None:
    """Guard each client of a class when it is created."""
    original_init = kind.__init__

    @wraps(original_init)
    def guarded_init(self: Any, *args: Any, **kwargs: Any) -> None:
        original_init(self, *args, **kwargs)
        guard_http_client(self, process_guard())

    kind.__init__ = guarded_init


def process_guard() -> HttpGuard:
    """The guard of this process; a forked child creates its own."""
    known = _guards.get(os.getpid())
    if known is None:
        _guards.clear()
        known = _guards[os.getpid()] = _made(json.loads(os.environ["SWITCHGEAR_WRAP"]))
    return known


def _made(settings: dict[str, Any]) -> HttpGuard:
    refusals = 0

    def journal(entry: dict[str, Any]) -> None:
        with open(settings["journal"], "a", encoding="utf-8") as file:  # noqa: PTH123
            file.write(json.dumps(entry) + "\n")

    def used(usage: ModelUsage) -> None:
        tokens = usage.usage
        journal(
            {
                "kind": "call",
                "circuit": usage.circuit,
                "model": usage.model,
                "outcome": usage.outcome,
                "input_tokens": None if tokens is None else tokens.input,
                "output_tokens": None if tokens is None else tokens.output,
                "cost_micros": usage.cost_micros,
            }
        )

    def refused(error: Exception) -> None:
        nonlocal refusals
        refusals += 1
        if refusals <= _MOST_REFUSALS:
            kind = "budget" if type(error).__name__ == "BudgetRefused" else "circuit"
            journal({"kind": "refusal", "by": kind, "reason": str(error)})

    return HttpGuard(
        panel=_panel(settings),
        key=settings["key"],
        budget=settings["budget"],
        allow_unknown=settings["allow_unknown"],
        on_refusal="answer",
        fallback=settings["fallback"],
        on_usage=used,
        on_refused=refused,
        models_only=True,
        is_sealed=True,
        owner="wrap",
    )


def _panel(settings: dict[str, Any]) -> Panel:
    """The panel over the store of the command, with its configured policies if they can be read here."""
    policies = None
    if settings["config"]:
        try:
            from switchgear._config import load_config  # noqa: PLC0415  needs PyYAML for some files

            policies = load_config(settings["config"]).policy_for
        except ImportError:
            policies = (
                None  # another environment, without PyYAML: circuits have their stored policies
            )
    return Panel(settings["store"], policies=policies)
