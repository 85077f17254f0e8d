"""The cost of a run: the agent's figure, else the price list, else reported as unknown."""

import json
import re
import socket
import sys
from pathlib import Path

import pytest
from genai_prices import Usage as Tokens
from genai_prices import calc_price
from genai_prices.data import providers

from switchgear._agents.events import Usage
from switchgear._agents.prices import cost_of
from switchgear._providers import prices
from switchgear._providers.prices import Rates, price_list, rates_of, window_of

PRICES = Path(prices.__file__).parent / "data" / "prices.json"


def test_the_agents_own_figure_counts() -> None:
    assert cost_of([Usage("claude-sonnet-4-5", 10, 1, cost_micros=123)])[:2] == (123, "agent")


def test_tokens_are_priced_by_the_list_and_rounded_up_to_whole_micro_dollars() -> None:
    # 3 dollars a million in, 0.30 from the cache, 3.75 into it, 15 out.
    usage = Usage("claude-sonnet-4-5", 1_000_000, 100_000, 500_000, 100_000)
    expected = 400_000 * 3 + 500_000 * 0.3 + 100_000 * 3.75 + 100_000 * 15
    assert cost_of([usage]) == (int(expected), "price list", "")
    assert cost_of([Usage("claude-sonnet-4-5", 1_001, 0, 1_001)]).micros == 301  # 300.3


def test_many_short_requests_are_not_priced_as_one_very_long_one() -> None:
    one = cost_of([Usage("claude-sonnet-4-5", 10_000, 1_000)]).micros
    assert one is not None
    assert cost_of([Usage("claude-sonnet-4-5", 10_000_000, 1_000_000)]).micros == 1_000 * one


def test_a_model_name_may_begin_with_its_provider() -> None:
    plain = cost_of([Usage("gpt-5", 1_000, 100)])
    assert plain.micros
    assert cost_of([Usage("openai/gpt-5", 1_000, 100)]) == plain
    assert cost_of([Usage("my-gateway/gpt-5", 1_000, 100)]) == plain


def test_models_add_up_from_both_sources() -> None:
    listed = cost_of([Usage("gpt-5", 1_000, 100)]).micros
    both = cost_of([Usage("gpt-5", 1_000, 100), Usage("other", 1, 1, cost_micros=7)])
    assert listed is not None
    assert both == (listed + 7, "agent and price list", "")


@pytest.mark.parametrize(
    ("usages", "words"),
    [
        ([], "reported no token usage"),
        ([Usage("no-such-model-of-anyone", 10, 1)], "has no price for the model 'no-such-model"),
        ([Usage(None, 10, 1)], "named no model"),
        ([Usage("gpt-5", 0, 0)], "neither tokens nor cost"),
        ([Usage("gpt-5", 10, 1, cost_micros=5), Usage(None, 10, 1)], "named no model"),
    ],
)
def test_an_unknown_price_is_none_with_the_reason_and_never_zero(
    usages: list[Usage], words: str
) -> None:
    cost = cost_of(usages)
    assert (cost.micros, cost.source) == (None, "")
    assert words in cost.unknown


def test_without_the_extra_the_bundled_list_prices_tokens_and_has_its_date(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    usages = [
        Usage("claude-sonnet-4-5", 40_000, 900, 30_000, 2_000),
        Usage("openai/gpt-5", 9_000, 100),
        Usage("gemini-2.5-pro", 9_000, 100),
    ]
    with_extra = [cost_of([usage]) for usage in usages]
    monkeypatch.setitem(sys.modules, "genai_prices", None)
    assert [cost_of([usage]) for usage in usages] == with_extra
    assert all(cost.micros for cost in with_extra)
    assert re.fullmatch(r"bundled price list of 20\d\d-\d\d-\d\d", price_list())
    unknown = cost_of([Usage("nobodys-model", 10, 1)]).unknown
    assert unknown == f"the {price_list()} has no price for the model 'nobodys-model'"
    assert window_of("claude-sonnet-4-5") == 200_000


def test_the_bundled_list_names_its_source_and_licence() -> None:
    held = json.loads(PRICES.read_text(encoding="ascii"))
    assert held["source"].startswith("genai-prices ")
    assert "MIT License" in held["licence"]
    assert sum(len(provider["models"]) for provider in held["providers"]) > 1_000


def test_the_bundled_list_agrees_with_its_source() -> None:
    differing = []
    for provider in (each for each in providers if each.id in {"anthropic", "openai", "google"}):
        for model in provider.models:
            rates = rates_of(model.id, provider.id)
            if rates is None:
                continue
            tokens = Tokens(input_tokens=10_000, output_tokens=500)
            price = calc_price(tokens, model_ref=model.id, provider_id=provider.id).total_price
            if abs(rates.cost_micros(10_000, 500) - float(price) * 1_000_000) > 1.5:
                differing.append(model.id)
    assert len(differing) <= 2, f"run scripts/snapshot_prices.py: {differing}"


def test_prices_of_the_users_own_take_precedence() -> None:
    rates = Rates(2_000_000, 4_000_000, 2_000_000, 2_000_000)
    assert cost_of([Usage("nobodys-model", 1_000, 500)], rates) == (4_000, "given prices", "")
    assert cost_of([Usage(None, 1_000, 500, 400)], rates).micros == 4_000
    assert cost_of([Usage("gpt-5", 10, 1, cost_micros=7)], rates).micros == 7


def test_no_network_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: object) -> None:
        raise AssertionError(arguments)

    monkeypatch.setattr(socket.socket, "connect", refuse)
    assert cost_of([Usage("gemini-2.5-pro", 10, 1)]).micros
