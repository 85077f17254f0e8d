"""What a run cost: the agent's figure, else the price list, else not known and said so."""

import socket
import sys

import pytest

from switchgear.agents.events import Usage
from switchgear.agents.prices import cost_of


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


def test_a_models_provider_may_stand_before_it() -> None:
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
        ([], "told no usage"),
        ([Usage("no-such-model-of-anyone", 10, 1)], "does not know the model 'no-such-model"),
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


def test_without_the_extra_the_way_to_get_it_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "genai_prices", None)
    assert "switchgear[prices]" in cost_of([Usage("gpt-5", 10, 1)]).unknown


def test_no_network_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: object) -> None:
        raise AssertionError(arguments)

    monkeypatch.setattr(socket.socket, "connect", refuse)
    assert cost_of([Usage("gemini-2.5-pro", 10, 1)]).micros
