"""The acceptance table of the integrations: the test that proves each cell with the real package.

A cell is the name of a test in the file of its row, or why there is none, in brackets.
"""

import ast
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1] / "integrations"
CELLS = (
    "opens",  # five failures open the circuit
    "refuses",  # the sixth call is refused without a request
    "recovers",  # a probe closes it
    "fallback",
    "streams",
    "cancels",  # cancellation leaks nothing
    "loops",  # tool loops are detected
    "costs",  # costs add up
)
OPENS = "five_failures_open_the_circuit_and_the_sixth_call_makes_no_request"
FALLBACK = "the_fallback_answers_while_the_model_is_refused"
STREAM = "a_stream_is_one_call"
SILENT = "a_stream_that_ends_silently_is_a_failure"
CANCELS = "cancellation_leaks_no_permit_and_no_reservation"
LOOPS = "a_tool_loop_is_warned_and_stopped"
COSTS = "costs_add_up_and_sub_agents_share_the_budget"
NO_MODEL = "[it calls no model]"
NO_TOOLS = "[it has no tools of its own; an agent around it does]"
# Of httpx, httpx2, openai 2 and 3, anthropic and google-genai, sync and async: the cases are parameters.
HTTP = (
    *["five_failures_open_the_circuit_and_the_sixth_call_is_refused_without_a_request"] * 3,
    "another_model_answers_while_the_first_fails_and_while_its_circuit_is_open",
    "a_stream_belongs_to_the_call_until_its_last_byte",
    "a_cancelled_task_leaves_nothing_behind",
    NO_TOOLS,
    "costs_add_up_in_circuit_budget_and_callback",
)
TABLE = {
    "http_clients": HTTP,
    "langchain": (
        *[OPENS] * 3,
        FALLBACK,
        "streaming_works_and_a_stream_that_breaks_is_a_failure",
        CANCELS,
        LOOPS,
        COSTS,
    ),
    "pydantic_ai": (
        *[OPENS] * 3,
        FALLBACK,
        "streaming_works_and_a_stream_that_breaks_is_a_failure",
        CANCELS,
        LOOPS,
        COSTS,
    ),
    "openai_agents": (
        *[OPENS] * 3,
        FALLBACK,
        SILENT,
        CANCELS,
        LOOPS,
        "costs_add_up_and_sub_agents_and_handoffs_share_the_budget",
    ),
    "litellm": (
        *[OPENS] * 3,
        FALLBACK,
        "streams_belong_to_the_call_until_their_end",
        CANCELS,
        NO_TOOLS,
        "costs_add_up_in_the_budget",
    ),
    "google_adk": (*[OPENS] * 3, FALLBACK, STREAM, CANCELS, LOOPS, COSTS),
    "strands": (
        *[OPENS] * 3,
        FALLBACK,
        STREAM,
        CANCELS,
        "a_tool_loop_is_guided_and_stopped",
        COSTS,
    ),
    "agent_framework": (
        *[OPENS] * 3,
        FALLBACK,
        "a_stream_is_one_call_and_is_paid_for",
        CANCELS,
        LOOPS,
        COSTS,
    ),
    "claude_agent_sdk": (
        *["failed_queries_open_the_circuit_and_the_next_one_starts_nothing"] * 3,
        "[the SDK has fallback_model]",
        "a_query_works_and_its_cost_is_settled",
        "an_abandoned_query_returns_its_permit_and_reservation",
        LOOPS,
        "a_query_works_and_its_cost_is_settled",
    ),
    "mcp": (
        *["five_failures_open_the_circuit_and_the_sixth_call_is_not_sent"] * 3,
        "[a tool has no substitute]",
        "[a tool has one result]",
        "cancellation_is_not_evidence_and_leaks_no_permit",
        LOOPS,
        NO_MODEL,
    ),
    "celery": (
        *["a_refused_task_is_retried_until_the_circuit_admits_it"] * 2,
        "a_task_that_is_revoked_while_it_probes_does_not_block_the_circuit",
        "[a refused task is retried later]",
        "[a task has one result]",
        "a_task_that_is_revoked_while_it_probes_does_not_block_the_circuit",
        NO_TOOLS,
        "a_task_without_budget_is_retried_when_the_budget_is_raised",
    ),
    "temporalio": (
        *["a_refused_activity_is_retried_when_the_circuit_may_admit_it"] * 3,
        "[a refused activity is retried later]",
        "[an activity has one result]",
        "cancellation_is_not_evidence",
        NO_TOOLS,
        NO_MODEL,
    ),
    "wrap": (
        *["a_loop_of_failing_calls_is_stopped"] * 2,
        "a_probe_closes_the_circuit_again",
        "a_fallback_model_answers",
        "streams_that_break_off_open_the_circuit",
        "cancelled_calls_leave_nothing_behind",
        "[the guard sees requests, not tools; a loop of refused calls is ended]",
        "a_used_up_budget_refuses_calls_and_is_the_exit_code",
    ),
    "retries": (
        *["tenacity_ends_with_the_refusal_itself"] * 2,
        "tenacity_waits_for_the_circuit_and_succeeds",
        "[the function that is retried has one]",
        "[a function is retried, not a stream]",
        "a_cancelled_call_is_not_retried_and_the_next_call_probes",
        NO_TOOLS,
        NO_MODEL,
    ),
    "asgi_apps": (
        *["five_failures_open_the_circuit_and_the_proxy_answers_the_sixth_request"] * 3,
        "[the application has one, or answers 503]",
        "an_application_can_be_guarded_from_outside",
        "[it takes no permits]",
        NO_TOOLS,
        NO_MODEL,
    ),
}


@pytest.mark.parametrize("name", list(TABLE))
def test_each_cell_of_an_integration_names_a_test_or_why_there_is_none(name: str) -> None:
    tree = ast.parse((TESTS / f"test_{name}.py").read_text(encoding="utf-8"))
    found = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    cells = dict(zip(CELLS, TABLE[name], strict=True))
    named = {cell: f"test_{text}" for cell, text in cells.items() if text[0] != "["}
    assert {cell: test for cell, test in named.items() if test not in found} == {}


def test_every_integration_test_file_has_a_row() -> None:
    others = {
        *("agent_runs", "sdk_usage"),  # more about the same integrations
        *("ci_checks", "examples", "mcp_server"),  # what guards no calls
    }
    files = {path.stem.removeprefix("test_") for path in TESTS.glob("test_*.py")}
    assert files - others == set(TABLE)
