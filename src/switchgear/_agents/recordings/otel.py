"""OpenTelemetry: spans with the conventions for generative AI, as OTLP JSON or one span per line.

Spans are in the order of their ends, so the whole file is read before runs are built; only the data that steps need
is kept of each span. A run is a conversation, or a trace if no conversation is named; the spans below an
`invoke_agent` span are the run of that agent.
"""

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from switchgear._agents.events import Usage
from switchgear._agents.fields import TokenCounts, at, count, items, parsed, words
from switchgear._agents.recordings.recording import (
    RecordedRun,
    RecordingFile,
    RecordingFormat,
    RecordingTally,
    RunBuilder,
    as_json,
    body,
    name,
    timestamp,
    word,
)

_OTEL = "otel"

MAX_SPANS = 500_000
_MODEL_OPERATIONS = frozenset({"chat", "generate_content", "text_completion"})
_AGENT_OPERATIONS = frozenset({"invoke_agent", "create_agent", "invoke_workflow"})


class _Span(NamedTuple):
    key: str
    parent: str
    trace: str
    began_s: float
    ended_s: float | None
    operation: str
    facts: dict[str, Any]
    failed: str | None
    """The error message; `None`: the span did not fail."""


def _recognises(source: RecordingFile) -> bool:
    """Whether it contains spans, in OTLP or one per line."""
    first = source.first
    spans = _spans_in(first.get("[]") if "[]" in first else first)
    return "resourceSpans" in first or any(_is_span(span) for span in spans)


def _read(source: RecordingFile, tally: RecordingTally) -> Iterator[RecordedRun]:
    first = source.head()[0]
    whole = "[]" in first or len(source.head()) == 1
    spans: dict[str, _Span] = {}
    for document in [source.document()] if whole else source.lines(tally, _OTEL):
        for raw in _spans_in(document):
            span = _reduce_span(raw) if _is_span(raw) else None
            if span is None:
                tally.unknown_line(_OTEL, at(raw, "name"))
            elif len(spans) < MAX_SPANS:
                spans[span.key] = span
            else:
                tally.unknown_line(_OTEL, f"spans beyond {MAX_SPANS:,}")
    groups: dict[tuple[str, str], list[_Span]] = {}
    for span in sorted(spans.values(), key=lambda span: (span.began_s, span.key)):
        groups.setdefault(_run_of(span, spans), []).append(span)
    for (conversation, agent), members in groups.items():
        if any(span.operation in {*_MODEL_OPERATIONS, "execute_tool"} for span in members):
            run_id = f"{conversation}/{agent}" if agent else conversation
            named = name(spans[agent].facts.get("gen_ai.agent.name")) if agent in spans else ""
            yield _build_run(RecordedRun(run_id, source.path, _OTEL, named), members)


def _spans_in(document: object) -> Iterable[Any]:
    if isinstance(document, list):
        return [span for each in document[:MAX_SPANS] for span in _spans_in(each)]
    if isinstance(at(document, "resourceSpans"), list):
        return [
            span
            for resource in at(document, "resourceSpans")
            for scope in items(at(resource, "scopeSpans"))
            for span in items(at(scope, "spans"))
        ]
    return [document]


def _is_span(span: object) -> bool:
    keys = span.keys() if isinstance(span, dict) else set()
    named = "name" in keys and "attributes" in keys
    return named and bool({"spanId", "span_id", "context"} & keys)


def _reduce_span(span: dict[str, Any]) -> _Span | None:
    facts = _attributes(span.get("attributes"))
    operation = facts.get("gen_ai.operation.name")
    if not isinstance(operation, str):
        operation = str(span.get("name")).partition(" ")[0]
    context = span.get("context")
    began_s = timestamp(span.get("startTimeUnixNano") or span.get("start_time"))
    status = span.get("status")
    code = at(status, "code") or at(status, "status_code")
    failed = code in (2, "STATUS_CODE_ERROR", "ERROR") or bool(facts.get("error.type"))
    why = words(at(status, "message") or at(status, "description") or facts.get("error.type"))
    kept = {
        key: _truncate_attribute(key, value)
        for key, value in facts.items()
        if key.startswith("gen_ai.")
    }
    kept["events"] = _reply_in_events(span.get("events"))
    return _Span(
        key=name(span.get("spanId") or span.get("span_id") or at(context, "span_id")),
        parent=name(
            span.get("parentSpanId") or span.get("parent_id") or span.get("parent_span_id")
        ),
        trace=name(span.get("traceId") or span.get("trace_id") or at(context, "trace_id")),
        began_s=began_s or 0.0,
        ended_s=timestamp(span.get("endTimeUnixNano") or span.get("end_time")),
        operation=operation,
        facts=kept,
        failed=(why or "failed") if failed else None,
    )


def _truncate_attribute(key: str, value: Any) -> Any:
    """An attribute in the form that is kept: messages are parsed, and texts are truncated."""
    if key in {"gen_ai.output.messages", "gen_ai.input.messages"}:
        return value if isinstance(value, list) else parsed(str(value))
    return body(value) if isinstance(value, str) else value


def _attributes(value: object) -> dict[str, Any]:
    if isinstance(value, dict):
        return value
    return {
        str(at(pair, "key")): _value(at(pair, "value"))
        for pair in items(value)
        if isinstance(pair, dict)
    }


def _value(value: object) -> Any:
    if not isinstance(value, dict):
        return value
    if isinstance(at(value, "arrayValue", "values"), list):
        return [_value(each) for each in at(value, "arrayValue", "values")]
    if isinstance(at(value, "kvlistValue", "values"), list):
        return _attributes(at(value, "kvlistValue", "values"))
    found: Any = next(iter(value.values()), None)
    return int(found) if "intValue" in value and str(found).isdecimal() else found


def _reply_in_events(events: object) -> str:
    """The model's reply in events, as in older conventions."""
    texts = []
    for event in items(events)[-4:]:
        facts = _attributes(at(event, "attributes"))
        content = facts.get("gen_ai.completion") or facts.get("content")
        if word(at(event, "name")) in {"gen_ai.content.completion", "gen_ai.choice"} and content:
            texts.append(as_json(content))
    return "\n".join(texts)[:8000]


def _run_of(span: _Span, spans: dict[str, _Span]) -> tuple[str, str]:
    """The conversation or trace of a span, and its nearest agent span if that is inside another agent span."""
    conversation, agents, current = "", [], span
    for _ in range(64):
        conversation = conversation or name(current.facts.get("gen_ai.conversation.id"))
        if current.operation in _AGENT_OPERATIONS:
            agents.append(current.key)
        if current.parent not in spans:
            break
        current = spans[current.parent]
    return conversation or span.trace, agents[0] if len(agents) > 1 else ""


def _build_run(run: RecordedRun, spans: list[_Span]) -> RecordedRun:
    builder = RunBuilder(run)
    by_spans = any(span.operation == "execute_tool" for span in spans)
    for span in spans:
        if span.operation == "execute_tool":
            _add_tool_span(builder, span)
        elif span.operation in _MODEL_OPERATIONS:
            _add_model_span(builder, span, calls=not by_spans)
        else:
            builder.fill(agent=name(span.facts.get("gen_ai.agent.name")))
    return builder.finish()


def _add_tool_span(builder: RunBuilder, span: _Span) -> None:
    tool = span.facts.get("gen_ai.tool.name")
    arguments = span.facts.get("gen_ai.tool.call.arguments")
    if isinstance(arguments, str) and arguments.startswith("{"):
        arguments = parsed(arguments) or arguments
    builder.at_s = span.began_s
    builder.call(span.key, tool, arguments or "")
    result = span.facts.get("gen_ai.tool.call.result")
    output = as_json(result) if result is not None else span.failed or ""
    ok = False if span.failed is not None else None
    builder.at_s = span.ended_s
    builder.result(span.key, output, ok=ok)


def _add_model_span(builder: RunBuilder, span: _Span, *, calls: bool) -> None:
    facts, builder.at_s = span.facts, span.began_s
    if calls:
        for part in _message_parts(facts.get("gen_ai.input.messages")):
            if at(part, "type") == "tool_call_response":
                result = at(part, "response") or at(part, "result")
                builder.result(at(part, "id"), as_json(result))
    builder.turn()
    model = name(facts.get("gen_ai.response.model") or facts.get("gen_ai.request.model"))
    builder.fill(model=model)
    used = {key.removeprefix("gen_ai.usage."): value for key, value in facts.items()}
    tokens = (
        used.get("input_tokens", used.get("prompt_tokens")),
        used.get("output_tokens", used.get("completion_tokens")),
        *(used.get("cache_read.input_tokens"), used.get("cache_creation.input_tokens")),
    )
    builder.add_usage(Usage(model or None, *TokenCounts(*map(count, tokens))))
    builder.text(facts.get("events"))
    builder.at_s = span.ended_s
    for part in _message_parts(facts.get("gen_ai.output.messages")):
        if word(at(part, "type")) in {"text", "reasoning"}:
            builder.text(at(part, "content"))
        elif at(part, "type") == "tool_call" and calls:
            builder.call(at(part, "id"), at(part, "name"), at(part, "arguments"))


def _message_parts(messages: object) -> Iterator[Any]:
    for message in items(messages):
        yield from items(at(message, "parts"))


SPANS = RecordingFormat(_OTEL, "OpenTelemetry GenAI spans", _recognises, _read)
