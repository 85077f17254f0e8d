"""The API: circuits, permits, results, overrides, idempotency, and what it refuses."""

import json
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import quote

import click
import pytest

from switchgear._cli import main
from switchgear._cli.views import circuits
from switchgear._cli.views.circuits import NowView
from switchgear._cli.views.terminal import Screen
from switchgear._config import Config
from switchgear._console.access import Places, RequestRate
from switchgear._console.endpoints import ENDPOINTS, SCHEMAS, document
from switchgear._console.requests import add_request
from switchgear._core.types import Mode, Record, Signal
from switchgear._hooks.session import Notes, note_name
from unit.console_stage import CLIENT, HOME, OPERATOR, READ, Stage, bearer, stage


@pytest.fixture(name="on")
def on_stage(tmp_path: Path) -> Iterator[Stage]:
    with stage(tmp_path) as made:
        yield made


def trip(on: Stage, name: str = "provider/anthropic") -> None:
    store = on.panel.store.inner
    failure = Record(Signal(ok=False, error="overloaded", count=5))
    store.apply(name, on.panel.policy_of(name), failure, store.now_s())


# Circuits


def test_a_circuit_of_another_panel_is_listed_with_its_state_and_reason(on: Stage) -> None:
    trip(on)
    found = on.get("/v1/circuits").json()
    assert found["total"] == 1
    assert found["circuits"][0]["name"] == "provider/anthropic"
    assert found["circuits"][0]["phase"] == "open"
    assert "5 failures in a row" in found["circuits"][0]["reason"]


def test_a_list_can_be_filtered_and_read_page_by_page(on: Stage) -> None:
    for name in ("a/1", "a/2", "a/3", "b/1"):
        on.panel.breaker(name).call(len, "x")
    trip(on, "b/2")
    page = on.get("/v1/circuits?glob=a/*&limit=2").json()
    assert ([row["name"] for row in page["circuits"]], page["next"]) == (["a/1", "a/2"], "a/2")
    rest = on.get("/v1/circuits?glob=a/*&limit=2&after_name=a/2").json()
    assert ([row["name"] for row in rest["circuits"]], rest["next"]) == (["a/3"], None)
    assert [row["name"] for row in on.get("/v1/circuits?state=open").json()["circuits"]] == ["b/2"]


@pytest.mark.parametrize(
    "name", ["plain", "a/b/c", "a b", "ä/ö", "x?y#z", "100%", "a/acquire", "<b>"]
)
def test_names_are_percent_encoded(on: Stage, name: str) -> None:
    path = f"/v1/circuits/{quote(name, safe='')}"
    assert on.post(f"{path}/acquire", token=CLIENT).json()["name"] == name
    assert on.post(f"{path}/record", {"outcome": "failure"}, CLIENT).json()["name"] == name
    assert on.get(path).json()["name"] == name


def test_one_circuit_shows_detectors_failures_and_events(on: Stage) -> None:
    trip(on)
    found = on.get("/v1/circuits/provider%2Fanthropic").json()
    assert found["detectors"][0]["value"] == 5
    assert found["failures"][0]["error"] == "overloaded"
    assert found["events"][-1]["after"] == "open"
    assert on.get("/v1/circuits/none").status_code == 404


def test_the_heat_of_an_answer_is_at_most_one_as_in_the_lists(on: Stage) -> None:
    path = "/v1/circuits/provider%2Fx"
    failure = {"outcome": "failure", "count": 9}
    assert on.post(f"{path}/record", failure, CLIENT).json()["heat"] == 1.0
    assert on.post(f"{path}/acquire", token=CLIENT).json()["heat"] == 1.0
    order = {"action": "shadow", "by": "ann", "why": "tuning"}
    assert on.post(f"{path}/override", order).json()["heat"] == 1.0
    assert on.get(path).json()["heat"] == 1.0


def test_a_permit_is_acquired_and_its_result_is_recorded(on: Stage) -> None:
    leave = on.post("/v1/circuits/p/acquire", token=CLIENT).json()
    assert leave["admitted"] is True
    done = on.post(
        "/v1/circuits/p/record",
        {
            "outcome": "failure",
            "error": "boom sk-proj-abcdefghijklmnop",
            "permit": leave["permit"],
            "count": 5,
        },
        CLIENT,
    ).json()
    assert done["phase"] == "open"
    refused = on.post("/v1/circuits/p/acquire", token=CLIENT)
    assert refused.json()["admitted"] is False
    assert int(refused.headers["retry-after"]) >= 1
    assert "[redacted]" in on.get("/v1/circuits/p").json()["failures"][0]["error"]


def test_a_permit_of_another_circuit_is_refused(on: Stage) -> None:
    permit = on.post("/v1/circuits/p/acquire", token=CLIENT).json()["permit"]
    answer = on.post("/v1/circuits/q/record", {"outcome": "success", "permit": permit}, CLIENT)
    assert answer.status_code == 422
    assert "another circuit" in answer.json()["error"]


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"outcome": "maybe"},
        {"outcome": "success", "error": "x"},
        {"outcome": "success", "seconds": -1},
        {"outcome": "success", "seconds": True},
        {"outcome": "success", "cost_micros": 1.5},
        {"outcome": "success", "count": 0},
        {"outcome": "success", "colour": "red"},
        {"outcome": "success", "permit": "nonsense"},
        {"outcome": ["success"]},
        [],
        "text",
    ],
)
def test_an_invalid_result_is_refused_with_the_reason(on: Stage, body: Any) -> None:
    answer = on.post("/v1/circuits/p/record", body, CLIENT)
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid")
    assert on.panel.view("p") is None


def test_a_body_that_is_not_json_too_large_or_of_another_type_is_refused(on: Stage) -> None:
    path, headers = "/v1/circuits/p/record", bearer(CLIENT)
    json_type = headers | {"content-type": "application/json"}
    assert on.client.post(path, content=b"{", headers=json_type).status_code == 400
    assert on.client.post(path, content=b"[" * 50_000, headers=json_type).status_code == 400
    assert on.client.post(path, content=b"\xff", headers=json_type).status_code == 400
    assert on.client.post(path, content=b" " * 70_000, headers=json_type).status_code == 413
    form = headers | {"content-type": "text/plain"}
    assert on.client.post(path, content=b'{"outcome":"success"}', headers=form).status_code == 415
    assert on.panel.view("p") is None


# Overrides


def test_an_override_is_an_event_with_author_and_reason(on: Stage) -> None:
    trip(on)
    body = {"action": "hold_closed", "by": "ann", "why": "maintenance", "for_s": 60}
    assert (
        on.post("/v1/circuits/provider%2Fanthropic/override", body).json()["mode"] == "held_closed"
    )
    event = on.panel.events(limit=1)[0].event
    assert (event.kind, event.by, event.why) == ("ordered", "ann", "maintenance")
    row = on.get("/v1/circuits").json()["circuits"][0]
    assert (row["held_by"], 0 < row["hold_left_s"] <= 60) == ("ann", True)


@pytest.mark.parametrize(
    ("action", "mode", "phase"),
    [
        ("hold_open", Mode.HELD_OPEN, "open"),
        ("shadow", Mode.SHADOW, "open"),
        ("reset", Mode.AUTO, "closed"),
        ("probe", Mode.AUTO, "half_open"),
        ("release", Mode.AUTO, "open"),
    ],
)
def test_every_override_works_as_documented(on: Stage, action: str, mode: Mode, phase: str) -> None:
    trip(on)
    answer = on.post(
        "/v1/circuits/provider%2Fanthropic/override", {"action": action, "by": "a", "why": "b"}
    )
    assert answer.status_code == 200
    view = on.panel.view("provider/anthropic")
    assert view is not None
    assert (view.circuit.mode, view.circuit.phase) == (mode, phase)


@pytest.mark.parametrize(
    "body",
    [
        {"action": "reset", "by": "a"},
        {"action": "reset", "why": "a"},
        {"action": "reset", "by": " ", "why": "b"},
        {"action": "explode", "by": "a", "why": "b"},
        {"action": "reset", "by": "a", "why": "b", "for_s": 5},
        {"action": "hold_open", "by": "a", "why": "b", "for_s": 0},
        {"action": "hold_open", "by": "a", "why": "b", "for_s": 1e300},
        {"action": "hold_open", "by": 1, "why": "b"},
    ],
)
def test_an_invalid_override_or_one_without_author_or_reason_changes_nothing(
    on: Stage, body: Any
) -> None:
    trip(on)
    before = on.panel.view("provider/anthropic")
    assert on.post("/v1/circuits/provider%2Fanthropic/override", body).status_code == 422
    after = on.panel.view("provider/anthropic")
    assert before is not None
    assert after is not None
    assert before.circuit.version == after.circuit.version


def test_an_override_creates_no_circuit_without_create(on: Stage) -> None:
    body = {"action": "hold_open", "by": "a", "why": "b"}
    assert on.post("/v1/circuits/new/override", body).status_code == 404
    assert on.post("/v1/circuits/new/override", {**body, "create": True}).status_code == 200


def test_a_repeated_request_with_an_idempotency_key_gets_the_first_answer(on: Stage) -> None:
    body = {"outcome": "failure", "error": "boom"}
    once = {"Idempotency-Key": "k1"}
    first = on.post("/v1/circuits/p/record", body, CLIENT, **once)
    again = on.post("/v1/circuits/p/record", body, CLIENT, **once)
    assert first.json() == again.json()
    assert again.headers["idempotency-replayed"] == "true"
    assert on.get("/v1/circuits/p").json()["totals"]["failed"] == 1
    other = on.post("/v1/circuits/p/record", {"outcome": "success"}, CLIENT, **once)
    assert other.status_code == 409
    assert (
        on.post("/v1/circuits/p/record", body, OPERATOR, **once).headers.get("idempotency-replayed")
        is None
    )


# Access


@pytest.mark.parametrize(
    ("headers", "status", "code"),
    [
        ({}, 401, "no_token"),
        ({"Authorization": "Bearer "}, 401, "no_token"),
        ({"Authorization": "Basic abc"}, 401, "no_token"),
        (bearer("wrong"), 401, "wrong_token"),
        (bearer(READ) | {"Host": "evil.example:4737"}, 403, "host"),
        (bearer(READ) | {"Host": "127.0.0.1.evil.example"}, 403, "host"),
        (bearer(READ) | {"Host": ""}, 403, "host"),
        (bearer(READ) | {"Host": "10.0.0.1:4737"}, 403, "host"),
        (bearer(READ) | {"Origin": "https://evil.example"}, 403, "origin"),
        (bearer(READ) | {"Origin": "null"}, 403, "origin"),
        (bearer(READ) | {"Origin": "http://localhost:4737"}, 403, "origin"),
        (bearer(READ) | {"Sec-Fetch-Site": "cross-site"}, 403, "origin"),
    ],
)
def test_requests_without_a_token_or_from_elsewhere_are_refused_and_counted(
    on: Stage, headers: dict[str, str], status: int, code: str
) -> None:
    for method, path in (
        ("GET", "/v1/circuits"),
        ("GET", "/v1/events"),
        ("POST", "/v1/circuits/p/acquire"),
    ):
        answer = on.client.request(method, path, headers=headers)
        assert (answer.status_code, answer.json()["code"]) == (status, code)
    assert f'switchgear_http_refused_total{{reason="{code}"}} 3' in on.get("/metrics").text
    assert on.panel.view("p") is None


def test_the_own_page_and_other_names_of_this_machine_are_accepted(on: Stage) -> None:
    assert on.get("/v1/now", Origin=HOME, **{"Sec-Fetch-Site": "same-origin"}).status_code == 200
    for host in ("localhost:4737", "[::1]:4737", "127.0.0.1"):
        assert on.get("/v1/now", Host=host).status_code == 200


def test_a_link_of_another_site_leads_to_the_page_but_never_to_data(on: Stage) -> None:
    link = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}
    followed = {**link, "Sec-Fetch-Dest": "document"}
    assert on.client.get("/run/r1", headers=followed).status_code == 200
    assert on.client.get("/v1/now", headers=bearer(READ) | followed).status_code == 403
    for framed in ({**link, "Sec-Fetch-Dest": "iframe"}, {**followed, "Sec-Fetch-Mode": "no-cors"}):
        assert on.client.get("/run/r1", headers=framed).status_code == 403


@pytest.mark.parametrize("name", ["Host", "Origin", "Authorization"])
def test_a_duplicate_security_header_is_refused(on: Stage, name: str) -> None:
    good = {"Host": "127.0.0.1", "Origin": "http://127.0.0.1", **bearer(READ)}
    twice = [*good.items(), (name, good[name])]
    assert on.client.get("/v1/now", headers=list(good.items())).status_code == 200
    assert on.client.get("/v1/now", headers=twice).status_code == 400


@pytest.mark.parametrize("token", [READ, CLIENT])
def test_only_the_operator_token_overrides(on: Stage, token: str) -> None:
    trip(on)
    body = {"action": "reset", "by": "a", "why": "b"}
    answer = on.post("/v1/circuits/provider%2Fanthropic/override", body, token)
    assert answer.status_code == 403
    assert answer.json()["code"] == ("read_only" if token == READ else "role")
    view = on.panel.view("provider/anthropic")
    assert view is not None
    assert view.circuit.phase == "open"


def test_the_read_only_token_reads_and_changes_nothing(on: Stage) -> None:
    for each in ENDPOINTS:
        path = each.path.replace("{key}", "p").replace("{id}", "p")
        answer = on.client.request(
            each.method, path, headers=bearer(READ), json={} if each.method == "POST" else None
        )
        assert (answer.status_code == 403) == (each.method == "POST"), each
    assert on.panel.view("p") is None


def test_where_the_store_requires_an_operator_token_only_that_one_overrides(tmp_path: Path) -> None:
    secret = "the-real-operator-token"
    config = Config(operator_token_sha256=sha256(secret.encode()).hexdigest())
    with stage(tmp_path, config) as on:
        trip(on)
        body = {"action": "reset", "by": "a", "why": "b"}
        path = "/v1/circuits/provider%2Fanthropic/override"
        assert on.post(path, body, OPERATOR).status_code == 401
        assert on.post(path, body, secret).json()["phase"] == "closed"


def test_other_addresses_accept_ip_literals_and_named_hosts_only(tmp_path: Path) -> None:
    with stage(tmp_path, places=Places(is_loopback=False, names=frozenset({"box.lan"}))) as on:
        assert on.get("/v1/now", Host="10.1.2.3:4737").status_code == 200
        assert on.get("/v1/now", Host="BOX.lan:4737").status_code == 200
        assert on.get("/v1/now", Host="evil.example").status_code == 403
        assert on.client.get("/v1/now", headers={"Host": "10.1.2.3"}).status_code == 401


def test_every_answer_has_a_strict_policy_and_cannot_be_framed(on: Stage) -> None:
    for path in ("/", "/v1/circuits", "/v1/now", "/nothing/here"):
        headers = on.client.get(path).headers
        policy = headers["content-security-policy"]
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
        assert headers["x-frame-options"] == "DENY"
        assert headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize(
    "path", ["/../app.py", "/%2e%2e/app.py", "/..%2fapp.py", "/static/../app.py", "/.git/config"]
)
def test_no_file_but_those_of_the_page_is_served(on: Stage, path: str) -> None:
    assert on.client.get(path).status_code == 404


def test_a_hook_call_on_a_connection_of_the_console_is_refused_and_never_an_error(
    on: Stage,
) -> None:
    answer = on.client.post("/hooks/claude", json={"tool_name": "Bash"})
    assert answer.status_code == 200
    assert answer.json()["decision"] == "block"


def test_a_rate_limit_is_per_key_and_recovers() -> None:
    limit = RequestRate(per_s=2.0, at_once=3.0)
    assert [limit.allows("a", 0.0) for _ in range(4)] == [True, True, True, False]
    assert limit.allows("b", 0.0)
    assert limit.allows("a", 0.5)
    assert not limit.allows("a", 0.5)


# The rest


def test_all_lists_answer_on_an_empty_installation(on: Stage) -> None:
    for path, key in (
        ("sessions", "sessions"), ("runs", "runs"), ("batches", "batches"),
        ("budgets", "budgets"), ("incidents", "incidents"), ("fleet", "agents"), ("now", "attention"),
    ):  # fmt: skip
        answer = on.get(f"/v1/{path}")
        assert (answer.status_code, len(answer.json()[key])) == (200, 0), path


@pytest.mark.parametrize(
    "path", ["sessions/x", "runs/x", "runs/x/diff", "batches/x", "batches/..%2F..", "incidents/x"]
)
def test_a_missing_object_is_not_found(on: Stage, path: str) -> None:
    assert on.get(f"/v1/{path}").status_code == 404


def test_budgets_are_listed_and_a_nearly_spent_one_needs_attention(on: Stage) -> None:
    on.panel.budgets.open("team", 1_000_000, who="test")
    on.panel.budgets.charge("team", 900_000)
    assert on.get("/v1/budgets").json()["budgets"][0]["spent_micros"] == 900_000
    item = on.get("/v1/now").json()["attention"][0]
    assert (item["kind"], item["state"], item["name"]) == ("budget", "nearly exhausted", "team")


def test_an_open_circuit_needs_attention_with_reason_wait_and_action(on: Stage) -> None:
    trip(on)
    item = on.get("/v1/now").json()["attention"][0]
    assert (item["kind"], item["state"]) == ("circuit", "open")
    assert "5 failures" in item["reason"]
    assert item["retry_after_s"] > 0
    assert "switchgear probe 'provider/anthropic'" in item["command"]


def test_the_openapi_document_has_every_route_and_every_schema_exists(on: Stage) -> None:
    found = on.client.get("/v1/openapi.json").json()
    assert found == json.loads(json.dumps(document()))
    shown = {
        (method.upper(), path) for path, methods in found["paths"].items() for method in methods
    }
    assert shown == {(each.method, each.path) for each in ENDPOINTS}
    text = json.dumps(found)
    for name in SCHEMAS:
        assert f"#/components/schemas/{name}" in text


def test_an_unknown_path_or_method_is_an_error_in_json(on: Stage) -> None:
    assert on.get("/v1/nothing").json()["code"] == "not_found"
    answer = on.client.delete("/v1/circuits", headers=bearer(OPERATOR))
    assert (answer.status_code, answer.json()["code"]) == (405, "method")


def test_the_terminal_shows_the_same_items_in_the_same_order_with_the_same_commands(
    on: Stage,
) -> None:
    trip(on)
    trip(on, "tool/search")
    on.panel.order("db/main", by="ann", why="migration", mode=Mode.HELD_OPEN)
    on.panel.budgets.open("atlas", 10_000_000, who="ann")
    on.panel.budgets.charge("atlas", 9_000_000)
    items = on.get("/v1/now").json()["attention"]
    session: Any = SimpleNamespace(panel=on.panel, config=on.sources.config)
    with click.Context(main):
        screen = Screen()
    for width in (80, 120):
        shown = [line.plain for line in NowView(session).lines(width, 60, screen)]
        places = [
            next(at for at, line in enumerate(shown) if f"  {item['name']} (" in line)
            for item in items
        ]
        assert len(items) == 4
        assert places == sorted(places)
        for item in items:
            assert any(item["command"] in line for line in shown)
            assert any(item["action"] in line for line in shown)
    short = [line.plain for line in NowView(session).lines(80, 6, screen)]
    assert short[0] == "Needs attention (4)"
    assert items[0]["command"] in "\n".join(short)


@pytest.mark.parametrize(
    ("rates", "shown"),
    [
        ([None], "1 live session, 1 dormant"),
        ([None, 20_000], "2 live sessions, 1 dormant, at least $0.02/min"),
        ([20_000, 30_000], "2 live sessions, 1 dormant, $0.05/min"),
    ],
)
def test_the_terminal_shows_no_unknown_spend(rates: list[int | None], shown: str) -> None:
    rows = [{"activity": "live", "spend_micros_per_min": rate} for rate in rates]
    rows.append({"activity": "dormant", "spend_micros_per_min": None})
    assert circuits._sessions_line(rows, []) == shown


@pytest.mark.parametrize("verdict", ["perhaps", {}, [], 7, True])
def test_an_invalid_verdict_closes_no_incident(on: Stage, verdict: Any) -> None:
    body = {"by": "ann", "why": "done", "verdict": verdict}
    answer = on.post("/v1/incidents/i1/close", body, OPERATOR)
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid")
    assert on.post("/v1/incidents/i1/close", {"by": "ann", "why": "done"}).status_code == 404


# Requests of agents


def test_an_operator_answers_a_request_and_granted_time_extends_the_session(on: Stage) -> None:
    store = on.panel.store.inner

    def begin(tx: Any) -> None:
        tx.note = Notes("claude-code", began_s=tx.now_s, heard_s=tx.now_s, limit_s=60.0).dump()

    store.transact(note_name("s1"), begin)
    made = add_request(store.transact, "s1", "time", 600, "the build is slow")
    [row] = on.get("/v1/requests").json()["requests"]
    assert (row["id"], row["wish"], row["state"]) == (made.id, "10 minutes", "open")
    answer = {"action": "grant", "by": "ann", "why": "once"}
    path = f"/v1/requests/{made.id}/answer"
    assert on.post(path, answer, CLIENT).status_code == 403, "an agent answers nothing"
    done = on.post(path, answer, OPERATOR).json()
    assert done["done"] == "10 minutes granted; the session may take 600 s longer"
    [row] = on.get("/v1/requests").json()["requests"]
    assert (row["state"], row["by"], row["answer"]) == ("granted", "ann", "once")
    again = on.post(path, {**answer, "action": "deny"}, OPERATOR)
    assert again.status_code == 422
    assert "granted already" in again.json()["error"]


def test_an_answer_to_an_unknown_request_or_without_a_reason_is_refused(on: Stage) -> None:
    answer = {"action": "deny", "by": "ann", "why": "no"}
    assert on.post("/v1/requests/none/answer", answer, OPERATOR).status_code == 404
    for wrong in ({**answer, "action": "perhaps"}, {"action": "deny", "by": "ann"}):
        assert on.post("/v1/requests/none/answer", wrong, OPERATOR).status_code == 422
