"""httpx, httpx2 and the SDKs of OpenAI, Anthropic and Google against a scripted API on loopback."""

import asyncio
import ssl
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from model_streams import anthropic_events, chat_events, gemini_chunks, responses_events, sse
from sdk_cases import CASES, SDKS, Case, read_all, read_one
from servers.model_api import ModelApi, Reply, model_api
from switchgear import Panel, Phase, Rejected
from switchgear._providers.prices import token_cost
from switchgear.errors import BudgetRefused
from switchgear.integrations._guard import Fallback, HttpGuard, ModelUsage
from switchgear.testing import FakeClock

each_case = pytest.mark.parametrize("case", CASES, ids=repr)
each_sdk = pytest.mark.parametrize("case", SDKS, ids=repr)


@pytest.fixture(autouse=True)
def no_certificates(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every client loads all certificates when it is made, which takes longer than these tests."""
    monkeypatch.setattr(ssl.SSLContext, "load_verify_locations", lambda *_, **__: None)


@pytest.fixture
def api() -> Iterator[ModelApi]:
    with model_api() as running:
        yield running


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def panel(clock: FakeClock) -> Iterator[Panel]:
    with Panel("memory:", clock=clock) as opened:
        yield opened


def circuit(panel: Panel, name: str = "it") -> Any:
    return panel.breaker(name)


@each_case
def test_five_failures_open_the_circuit_and_the_sixth_call_is_refused_without_a_request(
    case: Case, api: ModelApi, panel: Panel, clock: FakeClock
) -> None:
    api.fail(5)
    client = case.client(api.url, panel, key="it")
    *failed, refused = case.run(client, *[case.ask] * 6)
    assert all(isinstance(error, Exception) for error in failed)
    assert not any(isinstance(error, Rejected) for error in failed)
    assert isinstance(refused, Rejected)
    assert refused.last_error is not None
    assert "503" in refused.last_error
    assert len(api.received) == 5

    clock.advance(61)
    (answer,) = case.run(case.client(api.url, panel, key="it"), case.ask)
    assert not isinstance(answer, Exception)
    assert circuit(panel).state is Phase.CLOSED
    assert len(api.received) == 6


@each_case
def test_a_stream_belongs_to_the_call_until_its_last_byte(
    case: Case, api: ModelApi, panel: Panel
) -> None:
    seen: list[int] = []

    def look(_: Any) -> None:
        seen.append(circuit(panel).totals.succeeded)

    def read(client: Any) -> None:
        for chunk in case.stream(client):
            look(chunk)

    async def aread(client: Any) -> None:
        async for chunk in case.stream(client):
            look(chunk)

    (result,) = case.run(case.client(api.url, panel, key="it"), aread if case.is_async else read)
    assert result is None
    assert seen[0] == 0
    assert circuit(panel).totals.succeeded == 1
    assert circuit(panel).totals.cost_micros > 0


@each_case
@pytest.mark.parametrize("how", ["cut", "broken"])
def test_a_stream_that_breaks_off_is_a_failure(
    case: Case, how: str, api: ModelApi, panel: Panel
) -> None:
    api.always = Reply(cut_at=300) if how == "cut" else Reply(breaks=True)
    case.run(case.client(api.url, panel, key="it"), *[read_all(case)] * 5)
    assert circuit(panel).totals[:3] == (0, 5, 0)
    assert circuit(panel).state is Phase.OPEN
    (refused,) = case.run(case.client(api.url, panel, key="it"), read_all(case))
    assert isinstance(refused, Rejected)
    assert len(api.received) == 5


@each_case
def test_a_response_that_breaks_off_is_a_failure(case: Case, api: ModelApi, panel: Panel) -> None:
    api.always = Reply(breaks=True)
    (error,) = case.run(case.client(api.url, panel, key="it"), case.ask)
    assert isinstance(error, Exception)
    assert circuit(panel).totals.failed == 1


ERRORS = {
    "openai chat": sse(*chat_events(done=False)[:2], {"error": {"type": "server_error"}}),
    "openai responses": sse(
        *responses_events(end=""),
        {"type": "error", "code": "server_error", "message": "no", "sequence_number": 9},
        named=True,
    ),
    "anthropic": sse(
        *anthropic_events(stop=False)[:4],
        {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}},
        named=True,
    ),
    "google": sse(
        gemini_chunks(finished=False)[0],
        {"error": {"code": 503, "message": "overloaded", "status": "UNAVAILABLE"}},
    ),
}


@each_sdk
def test_an_error_event_in_a_stream_with_status_200_is_a_failure(
    case: Case, api: ModelApi, panel: Panel
) -> None:
    api.always = Reply(body=ERRORS[case.name.removesuffix(" async")])
    case.run(case.client(api.url, panel, key="it"), read_all(case))
    assert circuit(panel).totals[:3] == (0, 1, 0)


@each_case
def test_a_stream_that_the_caller_closes_is_not_a_failure_and_leaves_nothing_behind(
    case: Case, api: ModelApi, panel: Panel
) -> None:
    panel.budgets.open("team", 1_000_000)
    client = case.client(api.url, panel, key="it", budget="team")
    (chunk,) = case.run(client, read_one(case))
    assert not isinstance(chunk, Exception)
    totals = circuit(panel).totals
    assert totals.failed == 0
    assert totals.succeeded + totals.ignored == 1  # a short stream may be read to its end at once
    assert reserved(panel, "team") == 0


def reserved(panel: Panel, node: str) -> int:
    return sum(
        status.node.held_micros for status in panel.budgets.tree(node) if status.path == node
    )


def spent(panel: Panel, node: str) -> int:
    return sum(
        status.node.spent_micros for status in panel.budgets.tree(node) if status.path == node
    )


@pytest.mark.parametrize("case", [case for case in CASES if case.is_async], ids=repr)
@pytest.mark.parametrize("streams", [False, True])
def test_a_cancelled_task_leaves_nothing_behind(
    case: Case, streams: bool, api: ModelApi, panel: Panel, clock: FakeClock
) -> None:
    panel.budgets.open("team", 1_000_000)
    api.fail(5)
    case.run(case.client(api.url, panel, key="it"), *[case.ask] * 5)
    assert circuit(panel).state is Phase.OPEN
    clock.advance(61)
    api.always = Reply(hangs=True)

    async def cancel(client: Any) -> None:
        call = read_all(case)(client) if streams else case.ask(client)
        task = asyncio.ensure_future(call)
        while len(api.received) < 6:  # noqa: ASYNC110  the server is in another thread
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    (done,) = case.run(case.client(api.url, panel, key="it", budget="team"), cancel)
    assert done is None
    assert reserved(panel, "team") == 0
    assert circuit(panel).totals.failed == 5
    # The probe that was cancelled gave its place back: the next one is admitted, and closes it.
    api.always = None
    (answer,) = case.run(case.client(api.url, panel, key="it"), case.ask)
    assert not isinstance(answer, Exception)
    assert circuit(panel).state is Phase.CLOSED


@each_case
def test_a_timeout_is_a_failure(case: Case, api: ModelApi, panel: Panel) -> None:
    api.always = Reply(hangs=True)
    client = case.client(api.url, panel, 0.3, key="it")
    (error,) = case.run(client, case.ask)
    assert isinstance(error, Exception)
    assert circuit(panel).totals[:3] == (0, 1, 0)


@each_case
def test_costs_add_up_in_circuit_budget_and_callback(
    case: Case, api: ModelApi, panel: Panel
) -> None:
    used: list[ModelUsage] = []
    panel.budgets.open("team", 50_000_000)
    options: dict[str, Any] = {"budget": "team", "tags": {"task": "S-1"}, "on_usage": used.append}
    client = case.client(api.url, panel, key="it", **options)
    results = case.run(client, case.ask, read_all(case), case.ask)
    assert not any(isinstance(result, Exception) for result in results)
    assert len(used) == 3
    assert all(one.usage is not None and one.outcome == "success" for one in used)
    expected = [token_cost(one.model, one.usage).micros for one in used if one.usage is not None]
    assert [one.cost_micros for one in used] == expected
    total = sum(one.cost_micros or 0 for one in used)
    assert total > 0
    assert circuit(panel).totals.cost_micros == total
    assert spent(panel, "team") == total
    assert reserved(panel, "team") == 0
    by_tag = panel.budgets.spent_by_tag("team")
    assert by_tag["task"] == {"S-1": total}
    assert sum(by_tag["model"].values()) == sum(by_tag["provider"].values()) == total


@each_case
def test_a_used_up_budget_refuses_without_a_request(
    case: Case, api: ModelApi, panel: Panel
) -> None:
    panel.budgets.open("team", 1)
    (error,) = case.run(case.client(api.url, panel, key="it", budget="team"), case.ask)
    assert isinstance(error, BudgetRefused)
    assert api.received == []
    assert circuit(panel).totals.failed == 0


@each_case
def test_a_call_that_the_provider_refused_costs_nothing(
    case: Case, api: ModelApi, panel: Panel
) -> None:
    panel.budgets.open("team", 1_000_000)
    api.fail(1, 529)
    case.run(case.client(api.url, panel, key="it", budget="team"), case.ask)
    assert (spent(panel, "team"), reserved(panel, "team")) == (0, 0)


@each_case
@pytest.mark.parametrize("status", [400, 404])
def test_errors_of_the_caller_are_not_failures(
    case: Case, status: int, api: ModelApi, panel: Panel
) -> None:
    api.fail(6, status)
    errors = case.run(case.client(api.url, panel, key="it"), *[case.ask] * 6)
    assert all(isinstance(error, Exception) for error in errors)
    assert not any(isinstance(error, Rejected) for error in errors)
    assert circuit(panel).totals[:3] == (0, 0, 6)
    assert len(api.received) == 6


WAITS = [
    {"retry_after": "240"},
    {"retry_after_ms": "240000"},
    {"x_ratelimit_remaining_requests": "0", "x_ratelimit_reset_requests": "4m0s"},
]


@pytest.mark.parametrize(
    ("case", "headers"),
    [*((case, WAITS[0]) for case in CASES), *((CASES[0], headers) for headers in WAITS[1:])],
    ids=str,
)
def test_the_wait_of_a_429_is_honoured(
    case: Case, headers: dict[str, str], api: ModelApi, panel: Panel
) -> None:
    api.fail(5, 429, **headers)
    *_, refused = case.run(case.client(api.url, panel, key="it"), *[case.ask] * 6)
    assert isinstance(refused, Rejected)
    assert refused.retry_after_s is not None
    assert 235 <= refused.retry_after_s <= 245


@each_sdk
def test_an_answered_refusal_is_the_typed_error_of_the_sdk_and_is_not_retried(
    case: Case, api: ModelApi, panel: Panel
) -> None:
    client = case.make(api.url, 30.0)
    if hasattr(client, "with_options"):
        client = client.with_options(max_retries=3)
    client = case.guard(client, panel=panel, key="it", on_refusal="answer")
    circuit(panel).hold_open(by="test", why="maintenance")
    (error,) = case.run(client, case.ask)
    assert not isinstance(error, Rejected)
    status = getattr(error, "status_code", None) or getattr(error, "code", None)
    assert status == 503
    assert "maintenance" in str(error)
    assert "Switchgear refused this call" in str(error)
    assert api.received == []
    assert circuit(panel).totals.refused == 1  # one attempt: it was not tried again


@each_sdk
def test_a_raised_refusal_is_not_retried(case: Case, api: ModelApi, panel: Panel) -> None:
    client = case.make(api.url, 30.0)
    if hasattr(client, "with_options"):
        client = client.with_options(max_retries=3)
    client = case.guard(client, panel=panel, key="it")
    circuit(panel).hold_open(by="test", why="maintenance")
    (error,) = case.run(client, case.ask)
    assert isinstance(error, Rejected)
    assert api.received == []
    assert circuit(panel).totals.refused == 1


@each_sdk
def test_an_answered_budget_refusal_carries_its_reason(
    case: Case, api: ModelApi, panel: Panel
) -> None:
    panel.budgets.open("team", 1)
    client = case.client(api.url, panel, key="it", budget="team", on_refusal="answer")
    (error,) = case.run(client, case.ask)
    assert "budget 'team' refuses" in str(error)
    assert api.received == []


OTHER = {
    "gpt-4.1": "gpt-4.1-mini",
    "claude-sonnet-4-6": "claude-haiku-4-5",
    "gemini-2.5-flash": "gemini-2.5-pro",
}
JSON_CASES = [case for case in CASES if case.model in OTHER]


@pytest.mark.parametrize("case", JSON_CASES, ids=repr)
def test_another_model_answers_while_the_first_fails_and_while_its_circuit_is_open(
    case: Case, api: ModelApi, panel: Panel
) -> None:
    api.models_down = {case.model}
    other = OTHER[case.model]
    client = case.client(api.url, panel, key="{model}", fallback=[other])
    answers = case.run(client, *[case.ask] * 6, read_all(case))
    assert not any(isinstance(answer, Exception) for answer in answers)
    asked = [received.model for received in api.received]
    assert asked == [case.model, other] * 5 + [other] * 2
    assert circuit(panel, case.model).state is Phase.OPEN
    assert circuit(panel, other).totals.succeeded == 7


@pytest.mark.parametrize("case", CASES, ids=repr)
def test_another_provider_answers_with_its_own_key(case: Case, api: ModelApi, panel: Panel) -> None:
    api.always = Reply(503)
    with model_api() as second:
        base = f"{second.url}/v1" if case.name.startswith(("openai", "httpx")) else second.url
        fallback = Fallback(base_url=base, api_key="sk-second")
        client = case.client(api.url, panel, fallback=[fallback])
        (answer, streamed) = case.run(client, case.ask, read_all(case))
        assert not isinstance(answer, Exception)
        assert not isinstance(streamed, Exception)
        assert len(second.received) == 2
        for received in second.received:
            sent = " ".join(received.headers.values())
            assert "sk-second" in sent
            assert "sk-test" not in sent
        assert second.received[0].path == api.received[0].path


@pytest.mark.parametrize("case", JSON_CASES, ids=repr)
def test_the_caller_sees_the_first_error_when_no_fallback_answers(
    case: Case, api: ModelApi, panel: Panel
) -> None:
    api.always = Reply(503)
    client = case.client(api.url, panel, key="{model}", fallback=[OTHER[case.model]])
    errors = case.run(client, *[case.ask] * 6)
    assert all(isinstance(error, Exception) for error in errors)
    assert isinstance(errors[-1], Rejected)


@pytest.mark.parametrize("case", JSON_CASES, ids=repr)
def test_a_bad_request_is_not_sent_to_a_fallback(case: Case, api: ModelApi, panel: Panel) -> None:
    api.fail(1, 400)
    client = case.client(api.url, panel, fallback=[OTHER[case.model]])
    (error,) = case.run(client, case.ask)
    assert isinstance(error, Exception)
    assert len(api.received) == 1


def test_threads_share_a_circuit_and_lose_no_result(api: ModelApi, panel: Panel) -> None:
    case = CASES[0]
    client = case.client(api.url, panel, key="it")
    threads = [
        threading.Thread(target=lambda: [case.ask(client) for _ in range(10)]) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    case.close(client)
    assert circuit(panel).totals.succeeded == 40


def test_one_circuit_per_host_provider_or_model(api: ModelApi, panel: Panel) -> None:
    case = CASES[0]
    host = api.url.removeprefix("http://")
    for key in ("host", "provider", "model", "mine/{provider}/{model}"):
        case.run(case.client(api.url, panel, key=key), case.ask)
    names = {view.name for view in panel.circuits()}
    assert names == {
        f"host/{host}",
        f"provider/{host}",
        f"provider/{host}/gpt-4.1",
        f"mine/{host}/gpt-4.1",
    }


def test_a_client_that_is_guarded_again_has_the_new_guard_only(api: ModelApi, panel: Panel) -> None:
    case = CASES[0]
    client = case.client(api.url, panel, key="first")
    client = case.guard(client, panel=panel, key="second")
    case.run(client, case.ask)
    assert {view.name for view in panel.circuits()} == {"second"}


def test_an_unknown_price_is_refused_within_a_budget_unless_it_is_allowed(
    api: ModelApi, panel: Panel
) -> None:
    case = CASES[0]
    panel.budgets.open("team", 1_000_000)

    def ask(client: Any) -> Any:
        payload = {"model": "no-such-model", "messages": []}
        return client.post("/v1/chat/completions", json=payload)

    options: dict[str, Any] = {"key": "it", "budget": "team"}
    (error,) = case.run(case.client(api.url, panel, **options), ask)
    assert isinstance(error, BudgetRefused)
    assert "no-such-model" in str(error)
    (answer,) = case.run(case.client(api.url, panel, **options, allow_unknown=True), ask)
    assert answer.status_code == 200


def test_requests_to_other_paths_are_guarded_too(api: ModelApi, panel: Panel) -> None:
    case = CASES[0]
    client = case.client(api.url, panel)
    (answer,) = case.run(client, lambda client: client.get("/v1/models"))
    assert answer.json() == {"data": []}
    host = api.url.removeprefix("http://")
    assert circuit(panel, f"host/{host}").totals.succeeded == 1


def test_a_transport_and_a_fake_transport_can_be_guarded(panel: Panel) -> None:
    case = CASES[0]
    library = __import__(case.name)
    replies = [library.Response(503)] * 5 + [library.Response(200, text="pong")]
    fake = library.MockTransport(lambda _: replies.pop(0))
    with library.Client(transport=case.guard(fake, panel=panel, key="it")) as client:
        for _ in range(5):
            assert client.get("https://api.example.com").status_code == 503
        with pytest.raises(Rejected):
            client.get("https://api.example.com")
    assert len(replies) == 1
    assert circuit(panel).totals.failed == 5


def test_a_streamed_upload_is_guarded(api: ModelApi, panel: Panel) -> None:
    case = CASES[0]

    def upload(client: Any) -> Any:
        return client.post(
            "/v1/files", content=(part for part in (b"a", b"b")), headers={"content-length": "2"}
        )

    (answer,) = case.run(case.client(api.url, panel, key="it"), upload)
    assert answer.status_code == 200


def test_invalid_requests_of_the_caller_are_not_failures(panel: Panel) -> None:
    case = CASES[0]
    client = case.client("ftp://127.0.0.1", panel, key="it")
    (error,) = case.run(client, case.ask)
    assert isinstance(error, Exception)
    assert circuit(panel).totals.failed == 0


def test_a_connection_that_is_refused_is_a_failure(panel: Panel) -> None:
    with model_api() as gone:
        url = gone.url
    case = CASES[0]
    (error,) = case.run(case.client(url, panel, key="it"), case.ask)
    assert isinstance(error, Exception)
    assert circuit(panel).totals.failed == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"key": "{nobody}"}, "key is '{nobody}'"),
        ({"key": ""}, "key is ''"),
        ({"on_refusal": "shrug"}, "on_refusal is 'shrug'"),
        ({"fallback": [7]}, "fallback is 7"),
        ({"fallback": [Fallback()]}, "fallback is Fallback"),
        ({"fallback": [Fallback(base_url="ftp://x")]}, "base_url must begin with"),
    ],
)
def test_options_out_of_range_are_explained(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message.replace("{", r"\{").replace("}", r"\}")):
        HttpGuard(**options)


def test_an_object_that_is_not_a_client_is_refused() -> None:
    with pytest.raises(TypeError, match="is not a Client or AsyncClient of httpx or httpx2"):
        CASES[0].guard(object())


def test_a_key_is_not_shown() -> None:
    assert "sk-secret" not in repr(Fallback("m", "https://x", "sk-secret"))
