"""The JSON Schema of the configuration file, made from the registries.

Types and defaults are those of the constructors. Limits and closed choices are found by calling the
constructors, so that no rule is written twice or out of date.
"""

import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from switchgear._breaker.presets import DESCRIPTIONS, LOOP_PRESETS, PRESETS
from switchgear._config.parts import REQUIRED, Field, fields_of
from switchgear._config.problems import argument_of, key_of
from switchgear._config.proxy import ProxySection
from switchgear._config.sections import (
    ALIASES,
    ON_TROUBLE,
    POLICY_KEYS,
    Retention,
    hooks_of,
    interventions,
    loop_preset,
    operations,
    time_rules,
)
from switchgear._core.policy import Policy
from switchgear._detectors.policy_wire import COMBINES, DETECTORS, RECOVERIES
from switchgear._fleet.categories import CATEGORIES
from switchgear._fleet.targets import LONGEST_TIMEOUT_S, TARGETS
from switchgear._opinion.opinion import MIN_HEAT, second_opinion
from switchgear._providers.upstreams import DEFAULT_URLS
from switchgear._rules.builtin import BUILTIN
from switchgear._rules.rules import ALLOWED, ASPECTS
from switchgear._sinks import SINKS
from switchgear._stuck.escalation import STEP_NAMES
from switchgear._stuck.timeouts import POLICIES

Schema = dict[str, Any]
_HUGE = 10**6
_CHOICES = re.compile(r"it must be one of (?P<words>.+)")


def schema() -> Schema:
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Switchgear configuration",
        **_maybe(_mapping(_sections())),
        "$defs": {
            "policy": _policy(),
            "policy_name": {
                "anyOf": [
                    *({"const": name, "description": DESCRIPTIONS[name]} for name in PRESETS),
                    _text("A name of the policies section."),
                ]
            },
            "detector": _one_of(DETECTORS),
            "recovery": _one_of(RECOVERIES),
            "combine": _one_of(COMBINES),
            "sink": _one_of(SINKS),
            "target": _one_of(TARGETS),
            "budget": _budget(),
        },
    }


def _sections() -> dict[str, Schema]:
    retention = Retention()
    policies = {"type": "object", "additionalProperties": _ref("policy")}
    rule = _mapping(
        {
            "match": _text("The name of a circuit, or a glob; the first match wins."),
            "policy": {"anyOf": [_ref("policy_name"), _ref("policy")]},
        },
        required=("match", "policy"),
    )
    return {
        "store": _maybe(
            _text("memory:, sqlite:///path, redis://host or rediss://host; ${NAME} is a variable.")
        ),
        "operator_token_sha256": _maybe(
            _text("The SHA-256 of the token that overrides need, or ${NAME}.")
        ),
        "retention": _maybe(
            _mapping(
                {
                    "events": {"type": "integer", "minimum": 1, "default": retention.events},
                    "idle_days": {
                        "type": "number",
                        "exclusiveMinimum": 0,
                        "default": retention.idle_s / 86_400,
                    },
                }
            )
        ),
        "policies": _maybe(policies),
        "circuits": _maybe({"type": "array", "items": rule}),
        "loops": _maybe({"type": "object", "additionalProperties": _loop()}),
        "rules": _maybe(_rules()),
        "hooks": _hooks(),
        "interventions": _interventions(),
        "second_opinion": _second_opinion(),
        "timeouts": _timeouts(),
        "sinks": _maybe({"type": "array", "items": _ref("sink")}),
        "breakers": _breakers(),
        "circuit_breaker": _part(operations),
        "budgets": _maybe({"type": "object", "additionalProperties": _ref("budget")}),
        "agents": _maybe({"type": "object", "additionalProperties": _agent()}),
        "stories": _maybe({"type": "object", "additionalProperties": _story()}),
        "notifications": _maybe({"type": "array", "items": _ref("target")}),
        "proxy": _proxy(),
    }


def _proxy() -> Schema:
    names: Schema = {"type": "array", "items": {"type": "string", "minLength": 1}}
    fields: dict[str, Schema] = {
        "upstreams": {"type": "object", "additionalProperties": _maybe(_upstream())},
        "fallbacks": {"type": "object", "additionalProperties": _maybe(names)},
        "allow_hosts": names,
        "port": {"type": "integer", "minimum": 0, "maximum": 65_535},
        "workers": {"type": "integer", "minimum": 1, "maximum": 64},
        "max_body_mb": {"type": "integer", "minimum": 1, "maximum": 1024},
        "timeout_seconds": {"type": "number", "minimum": 1},
        "drain_seconds": {"type": "number", "minimum": 0},
    }
    for name in ("budget_dollars", "session_budget_dollars", "key_budget_dollars"):
        fields[name] = {"type": "number", "exclusiveMinimum": 0}
    for name in ("price_in_dollars", "price_out_dollars"):
        fields[name] = {"type": "number", "minimum": 0, "description": "For a million tokens."}
    for name in ("allow_unknown_price", "loops", "hint", "insecure_http"):
        fields[name] = {"type": "boolean", "default": ProxySection._field_defaults[name]}
    for name in ("host", "budget_node", "access_log", "token_file", "tls_cert", "tls_key"):
        fields[name] = {"type": "string", "minLength": 1}
    return _maybe(_mapping({name: _maybe(value) for name, value in fields.items()}))


def _upstream() -> Schema:
    return _mapping(
        {
            "url": _text("Scheme, host and the path before that of the API."),
            "protocol": {"enum": list(DEFAULT_URLS)},
            "key_env": _text("The environment variable with the key that replaces the client's."),
        }
    )


def _breakers() -> Schema:
    parts = {name: _part(make) for name, make in CATEGORIES.items()}
    return _maybe(_mapping({**parts, **{alias: parts[one] for alias, one in ALIASES.items()}}))


def _budget() -> Schema:
    nodes = _maybe({"type": "object", "additionalProperties": _ref("budget")})
    limit: Schema = {"type": ["number", "null"], "minimum": 0}
    circuit = _text("The circuit that records its costs.")
    return _maybe(_mapping({"limit_dollars": limit, "circuit": _maybe(circuit), "nodes": nodes}))


def _agent() -> Schema:
    names = {"type": ["array", "null"], "items": {"type": "string", "minLength": 1}}
    texts = {
        "owner": _text("Person to notify when one of its circuits trips."),
        "provider": _text("Provider of its model: the circuit provider/<provider>."),
        "model": _text("The model's own name."),
    }
    lists = {
        "fallback_models": {**names, "description": "provider/model, in order."},
        "fallback_chain": {**names, "description": "Agents that stand in for it, in order."},
        "stories": names,
    }
    return _mapping({**texts, **lists}, required=tuple(texts))


def _story() -> Schema:
    budget = {"type": ["number", "null"], "exclusiveMinimum": 0}
    texts = {"owner": _text("Person to notify when it is paused.")}
    return _mapping({**texts, "budget_dollars": budget}, required=("owner",))


def _rules() -> Schema:
    patterns = {"type": "array", "items": {"type": "string", "minLength": 1, "maxLength": 500}}
    allow = _maybe(_mapping(dict.fromkeys(ALLOWED, _maybe(patterns))))
    own = {
        "name": _text("Name of the rule in refusals."),
        "why": {"type": "string", "description": "Reason for the rule, shown in refusals."},
        **dict.fromkeys(ASPECTS, _maybe(patterns)),
        "allow": allow,
    }
    about = [{"required": [aspect]} for aspect in ASPECTS]
    rule = {**_mapping(own, required=("name",)), "anyOf": about}
    return _mapping(
        {
            "builtin": _maybe({"type": "array", "items": {"enum": list(BUILTIN)}}),
            "allow": _maybe(_mapping(dict.fromkeys(BUILTIN, allow))),
            "protected": _maybe(patterns),
            "own": _maybe({"type": "array", "items": rule}),
        }
    )


def _loop() -> Schema:
    part = _part(loop_preset)
    fields: dict[str, Schema] = part["properties"]
    for name in ("validate", "commit"):
        fields[name] = {"type": "boolean", "default": fields_of(loop_preset)[name].default}
    names = [{"const": name} for name in sorted(LOOP_PRESETS)]
    extends = {"anyOf": [*names, _text("A name of the loops section.")]}
    return _mapping({"extends": extends, **fields})


def _hooks() -> Schema:
    part = _part(hooks_of)
    part["properties"]["on_trouble"] = {"enum": list(ON_TROUBLE), "default": ON_TROUBLE[0]}
    part["properties"]["story"] = _maybe(_text("The task that the work is for."))
    return _maybe(part)


def _interventions() -> Schema:
    part = _part(interventions)
    step_names = {"type": "array", "items": {"enum": list(STEP_NAMES)}, "default": list(STEP_NAMES)}
    part["properties"]["when_alone"] = step_names
    part["properties"]["in_runs"] = {"type": "boolean", "default": False}
    part["properties"]["progress"] = {"type": "boolean", "default": True}
    part["properties"]["escalate"] = _maybe(_text("The name of an agent, or a command."))
    return part


def _second_opinion() -> Schema:
    part = _part(second_opinion)
    fields = part["properties"]
    fields["command"] = _text("A command without a shell: JSON on stdin, the verdict as JSON.")
    fields["model"] = _text("The model's own name.")
    fields["key_env"] = _maybe(_text("The environment variable with the API key."))
    fields["base_url_env"] = _maybe(_text("The environment variable with the base URL."))
    fields["ask_at"] |= {"minimum": MIN_HEAT, "maximum": 1}
    fields["ask_at"].pop("exclusiveMinimum", None)
    return {**part, "oneOf": [{"required": ["command"]}, {"required": ["model"]}, {"type": "null"}]}


def _timeouts() -> Schema:
    part = _part(time_rules)
    part["properties"]["policy"] |= {"enum": list(POLICIES)}
    part["properties"]["min_runs"]["minimum"] = 2
    return part


def _policy() -> Schema:
    limits = fields_of(Policy)
    policy = partial(Policy, [kind() for kind in DETECTORS.values() if not _required_fields(kind)])
    properties: dict[str, Schema] = {
        "extends": _maybe(_ref("policy_name")),
        "detectors": {"type": "array", "items": _ref("detector"), "minItems": 1},
        "recovery": _ref("recovery"),
        "combine": _ref("combine"),
        "tripping_at": _value(policy, "tripping_at", limits["tripping_at"]),
        "strict": {"type": "boolean", "default": limits["strict"].default},
    }
    return _mapping({key: properties[key] for key in POLICY_KEYS})


def _one_of(kinds: Mapping[str, Callable[..., Any]]) -> Schema:
    """A part: the bare name of a kind without required fields, or a kind with its fields."""
    bare = [kind for kind in sorted(kinds) if not _required_fields(kinds[kind])]
    written = {
        **_mapping({kind: _part(kinds[kind]) for kind in sorted(kinds)}),
        "minProperties": 1,
        "maxProperties": 1,
    }
    return {"oneOf": [{"enum": bare}, written]} if bare else written


def _part(kind: Callable[..., Any]) -> Schema:
    fields = fields_of(kind)
    required = _required_fields(kind)
    about = (kind.__doc__ or "").strip().partition("\n\n")[0]
    properties: dict[str, Schema] = {}
    for name, field in fields.items():
        properties |= _keys_for(name, _value(kind, name, field))
    plain = tuple(name for name in required if key_of(name) == name)
    part = {**_mapping(properties, required=plain), "description": " ".join(about.split())}
    both = [name for name in required if key_of(name) != name]
    if both:  # the current key or the key of an earlier version
        [name] = both
        part["anyOf"] = [{"required": [key_of(name)]}, {"required": [name]}]
    return part if required else _maybe(part)


def _keys_for(name: str, value: Schema) -> dict[str, Schema]:
    """The keys for an argument: the current one, in the unit of the file, and that of earlier versions."""
    key = key_of(name)
    if key == name:
        return {name: value}
    argument = argument_of(key, [name])
    factor = 1.0 if argument is None else argument.factor
    sized = {
        word: number / factor if isinstance(number, int | float) and factor != 1.0 else number
        for word, number in value.items()
    }
    if factor != 1.0:
        sized["type"] = "number" if value["type"] in {"integer", "number"} else value["type"]
    if "minimum" in sized and factor > 1.0:
        sized["exclusiveMinimum"] = 0
        del sized["minimum"]
    return {key: sized, name: {**value, "description": f"As in earlier versions: use {key}."}}


def _required_fields(kind: Callable[..., Any]) -> tuple[str, ...]:
    return tuple(name for name, field in fields_of(kind).items() if field.default is REQUIRED)


def _value(kind: Callable[..., Any], name: str, field: Field) -> Schema:
    annotation = str(field.annotation)
    default = {} if field.default is REQUIRED else {"default": field.default}
    if field.is_mapping:
        weight: Schema = {"type": "number", "exclusiveMinimum": 0}
        return {**_mapping(dict.fromkeys(sorted(DETECTORS), weight)), "minProperties": 1, **default}
    if field.annotation is bool:
        return {"type": "boolean", **default}
    if field.annotation is str:
        words = _CHOICES.search(_objection(kind, name, "\0") or "")
        texts: Schema = {"enum": words["words"].split(", ")} if words else {"type": "string"}
        return {**texts, **default}
    if name == "timeout_s":
        limits = {"exclusiveMinimum": 0, "maximum": LONGEST_TIMEOUT_S}
        return {"type": "number", **limits, **default}
    is_whole = "int" in annotation
    names = ["integer" if is_whole else "number", *(["null"] if "None" in annotation else [])]
    limits = (_whole_limits if is_whole else _limits)(kind, name)
    return {"type": names if len(names) > 1 else names[0], **limits, **default}


def _objection(kind: Callable[..., Any], field: str, value: Any, **others: Any) -> str | None:
    """The error of a constructor for a value of a field; `None` if it accepts the value."""
    fields = fields_of(kind)
    needed: Schema = {
        name: {"any": 1.0} if fields[name].is_mapping else 1 for name in _required_fields(kind)
    }
    try:
        kind(**{**needed, **others, field: value})
    except ValueError as error:
        return str(error)
    return None


def _accepts(kind: Callable[..., Any], field: str, value: float, others: int) -> bool:
    """Whether a constructor accepts a value, with `others` or the defaults for its whole numbers."""
    more = {name: others for name, other in fields_of(kind).items() if other.annotation is int}
    return any(_objection(kind, field, value, **each) is None for each in (more, {}))


def _whole_limits(kind: Callable[..., Any], field: str) -> Schema:
    """The range of a whole number: from 1 to the largest accepted value, if there is a limit."""
    accepts = partial(_accepts, kind, field, others=_HUGE)
    if accepts(_HUGE):
        return {"minimum": 1}
    accepted, refused = 1, _HUGE
    while refused - accepted > 1:
        middle = (accepted + refused) // 2
        accepted, refused = (middle, refused) if accepts(middle) else (accepted, middle)
    return {"minimum": 1, "maximum": accepted}


def _limits(kind: Callable[..., Any], field: str) -> Schema:
    """The range of a field according to its constructor, whatever the other fields are."""
    accepts = partial(_accepts, kind, field, others=1)
    limits: Schema = {}
    if accepts(-1.0):
        return limits
    if accepts(0.0):
        limits["minimum"] = 0
    elif accepts(1.0) and not accepts(0.999):
        limits["minimum"] = 1
    else:
        limits["exclusiveMinimum"] = 0
    if not accepts(_HUGE):
        limits["maximum" if accepts(1.0) else "exclusiveMaximum"] = 1
    return limits


def _mapping(properties: dict[str, Schema], required: tuple[str, ...] = ()) -> Schema:
    found: Schema = {"type": "object", "properties": properties, "additionalProperties": False}
    return {**found, "required": list(required)} if required else found


def _maybe(inner: Schema) -> Schema:
    """A schema that also accepts null."""
    if "type" in inner:
        return {**inner, "type": [inner["type"], "null"]}
    return {"anyOf": [inner, {"type": "null"}]}


def _text(description: str) -> Schema:
    return {"type": "string", "minLength": 1, "description": description}


def _ref(name: str) -> Schema:
    return {"$ref": f"#/$defs/{name}"}
