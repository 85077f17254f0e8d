"""The JSON Schema matches the loader: what it allows is loaded, what it forbids is not."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from switchgear._breaker.presets import PRESETS
from switchgear._config import ConfigError, config_schema, load_config, problems
from switchgear._config.loader import KEYS
from switchgear._config.parts import fields_of
from switchgear._config.sections import POLICY_KEYS
from switchgear._detectors.policy_wire import COMBINES, DETECTORS, RECOVERIES
from switchgear._sinks import SINKS
from switchgear._sinks.log import LEVELS
from unit.config_texts import WHOLE_YAML

SCHEMA = config_schema()
KINDS: dict[str, Any] = {
    "detector": DETECTORS,
    "recovery": RECOVERIES,
    "combine": COMBINES,
    "sink": SINKS,
}
TYPES: dict[str, Any] = {
    "object": lambda value: isinstance(value, dict),
    "array": lambda value: isinstance(value, list),
    "string": lambda value: isinstance(value, str),
    "boolean": lambda value: isinstance(value, bool),
    "null": lambda value: value is None,
    "number": lambda value: isinstance(value, int | float) and not isinstance(value, bool),
    "integer": lambda value: isinstance(value, int) and not isinstance(value, bool),
}


def allows(schema: dict[str, Any], value: Any) -> bool:
    """Whether a value is valid under the few keywords that our schema uses."""
    return all(
        RULES[keyword](schema[keyword], value, schema) for keyword in schema if keyword in RULES
    )


def _resolve(reference: str) -> dict[str, Any]:
    found: dict[str, Any] = SCHEMA["$defs"][reference.removeprefix("#/$defs/")]
    return found


def _number(value: Any) -> bool:
    return bool(TYPES["number"](value))


def _additional(rule: Any, value: Any, schema: dict[str, Any]) -> bool:
    if not isinstance(value, dict):
        return True
    others = [value[name] for name in value if name not in schema.get("properties", {})]
    return not others if rule is False else all(allows(rule, other) for other in others)


RULES: dict[str, Any] = {
    "$ref": lambda rule, value, _: allows(_resolve(rule), value),
    "type": lambda rule, value, _: any(
        TYPES[name](value) for name in ([rule] if isinstance(rule, str) else rule)
    ),
    "anyOf": lambda rule, value, _: any(allows(one, value) for one in rule),
    "oneOf": lambda rule, value, _: sum(allows(one, value) for one in rule) == 1,
    "enum": lambda rule, value, _: isinstance(value, str) and value in rule,
    "const": lambda rule, value, _: value == rule,
    "properties": lambda rule, value, _: (
        not isinstance(value, dict) or all(allows(rule[k], value[k]) for k in rule if k in value)
    ),
    "additionalProperties": _additional,
    "required": lambda rule, value, _: not isinstance(value, dict) or set(rule) <= set(value),
    "items": lambda rule, value, _: (
        not isinstance(value, list) or all(allows(rule, item) for item in value)
    ),
    "minItems": lambda rule, value, _: not isinstance(value, list) or len(value) >= rule,
    "minProperties": lambda rule, value, _: not isinstance(value, dict) or len(value) >= rule,
    "maxProperties": lambda rule, value, _: not isinstance(value, dict) or len(value) <= rule,
    "minLength": lambda rule, value, _: not isinstance(value, str) or len(value) >= rule,
    "maxLength": lambda rule, value, _: not isinstance(value, str) or len(value) <= rule,
    "minimum": lambda rule, value, _: not _number(value) or value >= rule,
    "exclusiveMinimum": lambda rule, value, _: not _number(value) or value > rule,
    "maximum": lambda rule, value, _: not _number(value) or value <= rule,
    "exclusiveMaximum": lambda rule, value, _: not _number(value) or value < rule,
}
SILENT = {"$schema", "$defs", "title", "description", "default"}


def keywords(schema: Any) -> set[str]:
    """Every keyword that is used anywhere in a schema."""
    if isinstance(schema, list):
        return {word for one in schema for word in keywords(one)}
    if not isinstance(schema, dict):
        return set()
    found = set(schema)
    for word, rule in schema.items():
        named = word in {"properties", "$defs"}
        found |= {w for one in rule.values() for w in keywords(one)} if named else keywords(rule)
    return found


def loads(folder: Path, document: Any) -> bool:
    path = folder / "switchgear.yaml"
    path.write_text(json.dumps(document))
    try:
        load_config(path)
    except ConfigError:
        return False
    return True


def test_this_test_covers_every_keyword_of_the_schema() -> None:
    assert keywords(SCHEMA) <= RULES.keys() | SILENT


def test_the_schema_is_json_and_each_time_the_same() -> None:
    assert json.loads(json.dumps(SCHEMA, allow_nan=False)) == SCHEMA == config_schema()


def test_the_schema_has_every_section_and_every_key_of_a_policy() -> None:
    assert SCHEMA["properties"].keys() == set(KEYS)
    assert SCHEMA["$defs"]["policy"]["properties"].keys() == set(POLICY_KEYS)


@pytest.mark.parametrize("part", KINDS)
def test_the_schema_has_every_registered_kind_with_every_field(part: str) -> None:
    bare, mapping = SCHEMA["$defs"][part]["oneOf"]
    assert mapping["properties"].keys() == KINDS[part].keys()
    for name, kind in KINDS[part].items():
        written = {problems.key_of(field) for field in fields_of(kind)}
        keys = mapping["properties"][name]["properties"].keys()
        assert keys == written | fields_of(kind).keys()
        assert mapping["properties"][name]["description"]
        is_needed = {"required", "anyOf"} & mapping["properties"][name].keys()
        assert (name in bare["enum"]) == (not is_needed)


def test_the_schema_suggests_every_preset() -> None:
    names = {one.get("const") for one in SCHEMA["$defs"]["policy_name"]["anyOf"]}
    assert names == {*PRESETS, None}


def test_limits_are_those_of_the_constructors() -> None:
    _, mapping = config_schema()["$defs"]["detector"]["oneOf"]
    latency = mapping["properties"]["latency_p95"]
    assert latency["anyOf"] == [{"required": ["baseline_seconds"]}, {"required": ["baseline_s"]}]
    limits = {name: field for name, field in latency["properties"].items() if field.pop("type")}
    old = {"baseline_s", "window_s"}
    assert {limits.pop(name)["description"] for name in old} == {
        "As in earlier versions: use baseline_seconds.",
        "As in earlier versions: use window_seconds.",
    }
    assert limits == {
        "baseline_seconds": {"exclusiveMinimum": 0},
        "multiplier": {"minimum": 1, "default": 3.0},
        "window_seconds": {"exclusiveMinimum": 0, "default": 300.0},
        "min_calls": {"minimum": 1, "default": 20},
        "admit": {"minimum": 0, "exclusiveMaximum": 1, "default": 0.5},
    }


def test_closed_choices_are_those_of_the_constructors() -> None:
    _, detectors = SCHEMA["$defs"]["detector"]["oneOf"]
    same_error = detectors["properties"]["same_error"]["properties"]
    assert same_error["scope"] == {"enum": ["total", "consecutive"], "default": "total"}
    assert same_error["fingerprint"] == {"enum": ["default", "documented"], "default": "default"}
    _, sinks = SCHEMA["$defs"]["sink"]["oneOf"]
    assert sinks["properties"]["log"]["properties"]["level"]["enum"] == list(LEVELS)
    _, combines = SCHEMA["$defs"]["combine"]["oneOf"]
    weights = combines["properties"]["weighted_sum"]["properties"]["weights"]
    assert weights["properties"].keys() == DETECTORS.keys()


def test_an_integer_has_a_maximum_only_if_its_constructor_has_one() -> None:
    _, detectors = SCHEMA["$defs"]["detector"]["oneOf"]
    fields = {
        (kind, name): field.get("maximum")
        for kind, part in detectors["properties"].items()
        for name, field in part["properties"].items()
        if "integer" in field.get("type", ())
    }
    assert fields.pop(("output_decline", "min_iterations")) == 20
    assert set(fields.values()) == {None}


def test_a_complete_file_is_allowed() -> None:
    assert allows(SCHEMA, yaml.safe_load(WHOLE_YAML))
    assert allows(SCHEMA, None)


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_is_allowed_as_a_policy(name: str) -> None:
    assert allows(SCHEMA, {"policies": {"mine": PRESETS[name]}})


FORBIDDEN: list[Any] = [
    {"stor": "x"},
    {"retention": {"events": 0}},
    {"retention": {"events": True}},
    {"policies": {"a": {"detectors": []}}},
    {"policies": {"a": {"detectors": ["slow_calls"]}}},
    {"policies": {"a": {"detectors": [{"failure_rate": {"thresold": 1}}]}}},
    {"policies": {"a": {"detectors": [{"failure_rate": {}, "slow_calls": {"slow_s": 1}}]}}},
    {"policies": {"a": {"extends": "provider", "tripping_at": 1}}},
    {"policies": {"a": {"extends": "provider", "recovery": {"cooldown": {"jitter": 1}}}}},
    {"policies": {"a": {"extends": "provider", "recovery": {"cooldown": {"factor": 0.5}}}}},
    {"policies": {"a": {"extends": "provider", "strict": "yes"}}},
    {"policies": {"a": {"detectors": [{"same_error": {"scope": "twice"}}]}}},
    {"policies": {"a": {"detectors": [{"same_error": {"fingerprint": "md5"}}]}}},
    {"policies": {"a": {"detectors": [{"output_decline": {"min_iterations": 21}}]}}},
    {
        "policies": {
            "a": {
                "detectors": ["failure_rate"],
                "combine": {"weighted_sum": {"weights": {"failure_rate": 60, "vibes": 9}}},
            }
        }
    },
    {"circuits": [{"match": "a"}]},
    {"circuits": [{"match": "", "policy": "provider"}]},
    {"rules": {"builtin": ["secret"]}},
    {"rules": {"allow": {"guard": {"contents": ["x"]}}}},
    {"rules": {"own": [{"tools": ["x"]}]}},
    {"rules": {"own": [{"name": "x", "why": "about nothing"}]}},
    {"rules": {"own": [{"name": "x", "tools": [""]}]}},
    {"rules": {"protected": ["x" * 501]}},
    {"sinks": ["jsonl"]},
    {"sinks": [{"log": {"level": "loud"}}]},
]


@pytest.mark.parametrize("document", FORBIDDEN, ids=str)
def test_the_loader_refuses_what_the_schema_forbids(tmp_path: Path, document: Any) -> None:
    assert not allows(SCHEMA, document)
    assert not loads(tmp_path, document)


FIELDS = [
    (part, name, field)
    for part, kinds in KINDS.items()
    if part != "sink"
    for name, kind in kinds.items()
    for field in fields_of(kind)
]


@pytest.mark.parametrize(("part", "name", "field"), FIELDS)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=10)
@given(data=st.data())
def test_a_field_is_loaded_only_if_the_schema_allows_it(
    tmp_path: Path, part: str, name: str, field: str, data: st.DataObject
) -> None:
    """The schema sees one field at a time, so the loader may refuse more, but never less."""
    edges: st.SearchStrategy[Any] = st.sampled_from(
        [0, 1, 0.0, 0.5, 0.999, 1.0, 1.5, -1, 10**6, None, True, "x", [], {}]
    )
    value = data.draw(edges | st.floats(-2, 2) | st.integers(-2, 100))
    required = dict.fromkeys(
        SCHEMA["$defs"][part]["oneOf"][1]["properties"][name].get("required", ()), 1
    )
    inner = {name: {**required, field: value}}
    policy: dict[str, Any] = {"extends": "provider", part: inner}
    if part == "detector":
        policy = {"detectors": [inner]}
    document = {"policies": {"a": policy}}
    if loads(tmp_path, document):
        assert allows(SCHEMA, document), document


def test_descriptions_are_one_line_each() -> None:
    text = json.dumps(SCHEMA)
    assert not re.search(r"\\n", text)
