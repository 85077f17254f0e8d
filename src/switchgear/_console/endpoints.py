"""The endpoints of the API in one table: the routes and the OpenAPI document are made from it."""

from typing import Any, NamedTuple

from switchgear import __version__
from switchgear._console.access import Role
from switchgear._console.actions import (
    ANSWERS,
    LONGEST_KEY,
    LONGEST_TEXT,
    OVERRIDES,
    VERDICTS,
)
from switchgear._console.interventions import INTERVENTIONS, RUN_ACTIONS
from switchgear._core.types import Mode, Phase


class Endpoint(NamedTuple):
    method: str
    path: str
    """The path in the syntax of OpenAPI; `{key}` may contain slashes."""
    name: str
    """The id of the operation, and the name of its handler."""
    summary: str
    role: Role = Role.READ
    query: tuple[str, ...] = ()
    """Names in `QUERY`."""
    body: str = ""
    """The name of the schema of the request; empty for requests without a body."""
    answer: str = ""
    """The name of the schema of the response; empty: any object."""
    media: str = "application/json"


ENDPOINTS = (
    Endpoint("GET", "/v1/now", "now", "What needs attention, the most urgent first, and live sessions."),
    Endpoint(
        "GET", "/v1/circuits", "circuits", "List circuits, sorted by name.",
        query=("glob", "state", "limit", "after_name"), answer="Circuits",
    ),
    Endpoint(
        "GET", "/v1/circuits/{key}", "circuit", "Show one circuit with detectors, failures and events.",
        query=("events",), answer="Circuit",
    ),
    Endpoint(
        "POST", "/v1/circuits/{key}/acquire", "acquire", "Acquire a permit for one call.",
        Role.CLIENT, body="Acquire", answer="Acquired",
    ),
    Endpoint(
        "POST", "/v1/circuits/{key}/record", "record", "Record the result of a call.",
        Role.CLIENT, body="Record", answer="Standing",
    ),
    Endpoint(
        "POST", "/v1/circuits/{key}/override", "override", "Override a circuit, with author and reason.",
        Role.OPERATOR, body="Override", answer="Standing",
    ),
    Endpoint(
        "GET", "/v1/events", "events",
        "Follow events (Accept: text/event-stream), or list them (any other Accept).",
        query=("after", "glob", "limit", "views"), answer="Events",
    ),
    Endpoint("GET", "/v1/sessions", "sessions", "List guarded sessions, stopped ones first.", query=("all",)),
    Endpoint("GET", "/v1/sessions/{id}", "session", "Show one session with its circuit."),
    Endpoint(
        "POST", "/v1/sessions/{id}/intervene", "intervene", "Help or stop a session.",
        Role.OPERATOR, body="Intervention",
    ),
    Endpoint("GET", "/v1/runs", "runs", "List the newest runs of the project.", query=("limit",)),
    Endpoint("GET", "/v1/runs/{id}", "run", "Show one run with its iterations."),
    Endpoint("GET", "/v1/runs/{id}/diff", "run_diff", "The changes that a run has saved.", media="text/plain"),
    Endpoint(
        "GET", "/v1/runs/{id}/log", "run_log", "What the agent did in one iteration of a run.",
        query=("iteration",), media="text/plain",
    ),
    Endpoint(
        "POST", "/v1/runs/{id}/intervene", "intervene_run", "Help or stop a run.",
        Role.OPERATOR, body="RunIntervention",
    ),
    Endpoint("GET", "/v1/batches", "batches", "List the newest batches of the project.", query=("limit",)),
    Endpoint("GET", "/v1/batches/{id}", "batch", "Show one batch with its tasks."),
    Endpoint("GET", "/v1/budgets", "budgets", "List all nodes of all budgets."),
    Endpoint("GET", "/v1/incidents", "incidents", "List incidents, oldest first.", query=("all",)),
    Endpoint("GET", "/v1/incidents/{id}", "incident", "Show one incident with its report."),
    Endpoint(
        "POST", "/v1/incidents/{id}/close", "close_incident", "Close an incident, with author and reason.",
        Role.OPERATOR, body="Closure",
    ),
    Endpoint("GET", "/v1/requests", "requests", "List requests of agents for more time or money, oldest first."),
    Endpoint(
        "POST", "/v1/requests/{id}/answer", "answer_request", "Grant or deny a request, with author and reason.",
        Role.OPERATOR, body="RequestAnswer",
    ),
    Endpoint("GET", "/v1/fleet", "fleet", "Agents, routes, stories, providers and locks."),
    Endpoint("GET", "/v1/role", "role", "The role of the token that was sent."),
    Endpoint("GET", "/metrics", "metrics", "Metrics in the text format of Prometheus.", media="text/plain"),
    Endpoint("GET", "/health", "health", "Whether the server answers, and for which project."),
)  # fmt: skip

QUERY: dict[str, dict[str, Any]] = {
    "iteration": {
        "schema": {"type": "integer", "minimum": 1, "maximum": 1_000_000, "default": 1},
        "description": "The number of the iteration.",
    },
    "glob": {"schema": {"type": "string", "maxLength": 500, "default": "*"}, "description": "Match names."},
    "state": {
        "schema": {"type": "string", "enum": [*map(str, Phase), *(str(mode) for mode in Mode if mode != "auto")]},
        "description": "List only circuits in this state.",
    },
    "limit": {"schema": {"type": "integer", "minimum": 1, "maximum": 10_000}, "description": "At most N entries."},
    "after_name": {"schema": {"type": "string"}, "description": "Continue after this name."},
    "events": {
        "schema": {"type": "integer", "minimum": 0, "maximum": 1_000, "default": 50},
        "description": "At most N events.",
    },
    "after": {
        "schema": {"type": "string"},
        "description": "Continue after this cursor; the header Last-Event-ID comes first. 0: from the oldest.",
    },
    "views": {
        "schema": {"type": "boolean", "default": False},
        "description": "Also send the state of circuits that have changed.",
    },
    "all": {"schema": {"type": "boolean", "default": False}, "description": "Include what has ended."},
}  # fmt: skip

_TEXT = {"type": "string", "maxLength": LONGEST_TEXT}
_NUMBER = {"type": ["number", "null"]}
_STANDING = {
    "name": {"type": "string"},
    "phase": {"type": "string", "enum": [str(phase) for phase in Phase]},
    "mode": {"type": "string", "enum": [str(mode) for mode in Mode]},
    "admits": {"type": "boolean"},
    "reason": {"type": "string"},
    "retry_after_s": _NUMBER,
    "heat": _NUMBER,
}


def _object(properties: dict[str, Any], *required: str) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(required)}


def _request(*required: str, **properties: dict[str, Any]) -> dict[str, Any]:
    """The schema of a request: an object without further fields."""
    return {**_object(properties, *required), "additionalProperties": False}


_BY = {**_TEXT, "minLength": 1, "description": "Author."}
_WHY = {**_TEXT, "minLength": 1, "description": "Reason."}
_SECONDS = {"type": ["number", "null"], "exclusiveMinimum": 0, "description": "With extend: seconds."}  # fmt: skip


SCHEMAS: dict[str, dict[str, Any]] = {
    "Error": _object({"error": {"type": "string"}, "code": {"type": "string"}}, "error", "code"),
    "Circuits": _object(
        {
            "circuits": {"type": "array", "items": _object(_STANDING, "name", "phase", "mode")},
            "next": {"type": ["string", "null"], "description": "Continue with after_name; null: the end."},
            "total": {"type": "integer"},
        },
        *("circuits", "next", "total"),
    ),
    "Circuit": _object(
        {**_STANDING, "detectors": {"type": "array"}, "failures": {"type": "array"}, "events": {"type": "array"}},
        *("name", "phase", "mode", "detectors", "failures", "events"),
    ),
    "Standing": _object({**_STANDING, "events": {"type": "array"}}, "name", "phase", "mode", "admits"),
    "Acquire": _request(),
    "Acquired": _object(
        {**_STANDING, "admitted": {"type": "boolean"}, "permit": {"type": ["string", "null"]}},
        *("name", "phase", "mode", "admitted", "permit"),
    ),
    "Record": _request(
        "outcome",
        outcome={"type": "string", "enum": ["success", "failure", "ignored"]},
        seconds={"type": ["number", "null"], "minimum": 0},
        error={**_TEXT, "description": "With outcome failure only."},
        retry_after_s={"type": ["number", "null"], "minimum": 0},
        cost_micros={"type": ["integer", "null"], "minimum": 0},
        count={"type": ["integer", "null"], "minimum": 1, "maximum": 1_000_000},
        permit={"type": "string", "description": "As acquire returned it."},
    ),
    "Override": _request(
        "action", "by", "why",
        action={"type": "string", "enum": list(OVERRIDES)},
        by=_BY,
        why=_WHY,
        for_s={**_SECONDS, "description": "Seconds a hold lasts."},
        create={"type": "boolean", "description": "Create the circuit if it does not exist."},
    ),
    "Intervention": _request(
        "action", "by", "why",
        action={"type": "string", "enum": list(INTERVENTIONS)},
        by=_BY,
        why=_WHY,
        hint={**_TEXT, "description": "With nudge: the hint for the agent."},
        for_s=_SECONDS,
    ),
    "RunIntervention": _request(
        "action", "by", "why",
        action={"type": "string", "enum": list(RUN_ACTIONS)},
        by=_BY,
        why=_WHY,
        hint={**_TEXT, "description": "With nudge: the hint, in the next prompt."},
        for_s=_SECONDS,
        iterations={"type": ["integer", "null"], "minimum": 1, "description": "With extend: iterations."},
        cost_micros={"type": ["integer", "null"], "minimum": 1, "description": "With extend: millionths of a dollar."},
    ),
    "Closure": _request(
        "by", "why",
        by=_BY,
        why={**_WHY, "description": "How it was resolved."},
        verdict={"type": ["string", "null"], "enum": [*VERDICTS, None], "description": "Whether the trip was right."},
    ),
    "RequestAnswer": _request(
        "action", "by", "why",
        action={"type": "string", "enum": [*ANSWERS]},
        by=_BY,
        why={**_WHY, "description": "What the agent reads."},
    ),

    "Events": _object(
        {"events": {"type": "array", "items": _object({"cursor": {"type": "string"}}, "cursor")}}, "events"
    ),
}  # fmt: skip

_ERRORS = {
    "400": "The request cannot be read.",
    "401": "No token, or a wrong one.",
    "403": "The token does not allow it, or the request comes from elsewhere.",
    "404": "It does not exist.",
    "409": "The Idempotency-Key was used for another request.",
    "413": "The request is too large.",
    "415": "The request is not JSON.",
    "422": "The request has an invalid value.",
    "429": "Too many requests.",
    "503": "The store cannot be read or written.",
}


def document() -> dict[str, Any]:
    paths: dict[str, Any] = {}
    for each in ENDPOINTS:
        paths.setdefault(each.path, {})[each.method.lower()] = _operation(each)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Switchgear",
            "version": __version__,
            "description": "Circuits, sessions, runs and budgets of one installation.",
            "license": {"name": "MIT", "identifier": "MIT"},
        },
        "paths": paths,
        "security": [{"token": []}],
        "components": {
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            "schemas": SCHEMAS,
        },
    }


def _operation(each: Endpoint) -> dict[str, Any]:
    parameters: list[dict[str, Any]] = []
    for name in ("key", "id"):
        if f"{{{name}}}" in each.path:
            about = (
                {"description": "Name of the circuit, percent-encoded."} if name == "key" else {}
            )
            schema = {"type": "string", "minLength": 1}
            parameters.append(
                {"name": name, "in": "path", "required": True, "schema": schema, **about}
            )
    parameters += [{"name": name, "in": "query", **QUERY[name]} for name in each.query]
    if each.method == "POST":
        schema = {"type": "string", "minLength": 1, "maxLength": LONGEST_KEY}
        about = {"description": "A repeated request with the same key gets the first answer again."}
        parameters.append({"name": "Idempotency-Key", "in": "header", "schema": schema, **about})
    answer = {"$ref": f"#/components/schemas/{each.answer}"} if each.answer else {"type": "object"}
    media = {
        each.media: {"schema": answer if each.media == "application/json" else {"type": "string"}}
    }
    if each.name == "events":
        media["text/event-stream"] = {"schema": {"type": "string"}}
    error = {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}
    operation: dict[str, Any] = {
        "operationId": each.name,
        "summary": each.summary,
        "x-role": each.role.name.lower(),
        "parameters": parameters,
        "responses": {
            "200": {"description": "Done.", "content": media},
            **{code: {"description": words, "content": error} for code, words in _ERRORS.items()},
        },
    }
    if each.body:
        schema = {"$ref": f"#/components/schemas/{each.body}"}
        required = each.body != "Acquire"
        operation["requestBody"] = {
            "required": required,
            "content": {"application/json": {"schema": schema}},
        }
    return operation
