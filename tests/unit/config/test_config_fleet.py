"""The sections `breakers`, `agents` and `stories`: as in the specification of the fleet, every key alive, errors with lines."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from switchgear import Panel, Phase, Signal
from switchgear._config import (
    Config,
    ConfigError,
    config_schema,
    load_config,
    preset_policy,
    problems,
)
from switchgear._config.parts import fields_of
from switchgear._config.sections import ALIASES
from switchgear._core.machine import step
from switchgear._core.policy import Policy
from switchgear._core.types import Acquire, Record
from switchgear._fleet.categories import ABOUT, CATEGORIES, category_of, default_breakers
from switchgear.testing import FakeClock
from unit.config.test_config_schema import allows

SEED = """
breakers:
  budget:
    enabled: true
    window_seconds: 60
    threshold: 1.0 # at 100% of hard_cap
    cooldown_seconds: 600 # 10 min in open state
  failure_rate:
    enabled: true
    window_calls: 20
    threshold: 0.5 # 50% failure rate
    cooldown_seconds: 300
  latency:
    enabled: true
    baseline_p95_ms: 90000
    threshold_multiplier: 3.0
    sample_window_seconds: 300
    cooldown_seconds: 180
"""


def load(tmp_path: Path, text: str) -> Config:
    path = tmp_path / "switchgear.yaml"
    path.write_text(text, encoding="utf-8")
    return load_config(path)


def test_the_section_of_the_document_is_the_default(tmp_path: Path) -> None:
    written = load(tmp_path, SEED).breakers
    assert written == default_breakers() == load(tmp_path, "breakers:").breakers
    assert load(tmp_path, "").breakers is None


@pytest.mark.parametrize("name", CATEGORIES)
def test_a_category_is_the_preset_of_its_name_with_a_warning(name: str) -> None:
    policy = getattr(default_breakers(), name).policy
    assert policy.replace(tripping_at=None) == preset_policy(name)
    assert (policy.tripping_at is None) == (name == "constitutional")


@pytest.mark.parametrize(
    ("circuit", "name"),
    [
        ("agent/coder/budget", "budget"),
        ("agent/coder/failure_rate", "failure_rate"),
        ("agent/coder/latency", "latency"),
        ("rules", "constitutional"),
        ("rules/coder", "constitutional"),
        ("provider/anthropic", "external_dep"),
        ("lock/staging-db", "resource_lock"),
        ("story/S-12", "story_cost"),
    ],
)
def test_each_category_applies_to_its_circuits_unless_overridden_or_disabled(
    tmp_path: Path, circuit: str, name: str
) -> None:
    config = load(tmp_path, "breakers:")
    assert config.policy_for(circuit) == getattr(default_breakers(), name).policy
    assert category_of(circuit) == name
    assert load(tmp_path, f"breakers: {{{name}: {{enabled: false}}}}").policy_for(circuit) is None
    own = f"circuits: [{{match: {circuit}, policy: provider}}]\nbreakers:"
    assert load(tmp_path, own).policy_for(circuit) == preset_policy("provider")
    assert load(tmp_path, "").policy_for(circuit) is None


def test_the_latency_of_a_provider_is_evaluated_like_that_of_an_agent(tmp_path: Path) -> None:
    config = load(tmp_path, "breakers: {latency: {admit: 0.2}}")
    slow = config.policy_for("agent/coder/latency")
    assert config.policy_for("provider/anthropic/latency") == slow
    assert category_of("provider/anthropic/latency") == "latency"


@pytest.mark.parametrize(
    "circuit", ["agent/coder", "agent/budget", "provider/", "dep", "loop/1", "x"]
)
def test_other_circuits_belong_to_no_category(circuit: str) -> None:
    assert category_of(circuit) is None


def history(policy: Policy) -> list[Any]:
    """The history of a circuit that fails, spends, waits, slows down and breaks a rule."""
    circuit = policy.start("k", 0.0)
    seen: list[Any] = []
    now_s = 0.0
    bad = Signal(ok=False, seconds=300.0, cost_micros=900_000, waited_s=70.0, violation="rule x")
    mild = [
        Signal(
            ok=at % 4 != 0, seconds=280.0 if at % 25 == 0 else 1.0, cost_micros=1, waited_s=at % 50
        )
        for at in range(1, 60)
    ]
    quick = Signal(ok=False, seconds=1.0)
    calls = [Signal(ok=False, retry_after_s=5.0), *mild, *[quick] * 12, *[bad] * 900]
    for signal in calls:
        now_s += 7.0
        asked = step(policy, circuit, Acquire(), now_s)
        circuit, events = asked.circuit, asked.events
        if asked.verdict.admitted:
            told = step(policy, circuit, Record(signal, asked.verdict.permit), now_s)
            circuit, events = told.circuit, (*events, *told.events)
        seen += [(event.at_s, event.after, event.retry_after_s) for event in events]
        seen.append(asked.verdict.admitted)
    return seen


OTHER: dict[str, Any] = {
    "window_seconds": 1.0,
    "window_calls": 7,
    "failing_share": 0.0,
    "apart_seconds": 20.0,
    "rate_limits": 3,
    "cooldown_seconds": 33.0,
    "max_cooldown_seconds": 700.0,
    "tripping_at": 0.05,
    "admit": 0.1,
    "baseline_p95_ms": 110_000.0,
    "hard_cap_dollars": 1.5,
    "budget_dollars": 3.0,
    "threshold_multiplier": 3.4,
    "threshold_seconds": 80.0,
    "sample_window_seconds": 12.0,
}
WARNS_AT = {"external_dep": 0.9}
"""Its heat goes by halves."""
THRESHOLDS = {"budget": 0.4, "failure_rate": 0.8, "external_dep": 9, "story_cost": 0.5}


@pytest.mark.parametrize(
    ("name", "key"),
    [(name, key) for name, make in CATEGORIES.items() for key in fields_of(make)],
)
def test_every_key_has_an_effect(tmp_path: Path, name: str, key: str) -> None:
    others = {**OTHER, "threshold": THRESHOLDS.get(name)}
    others |= {"tripping_at": WARNS_AT[name]} if name in WARNS_AT else {}
    value = others.get(key, "false")
    config = load(tmp_path, f"breakers: {{{name}: {{{key}: {value}}}}}")
    circuit = ABOUT[name].circuits[0].replace("*", "x")
    changed = config.policy_for(circuit)
    if key == "enabled":
        assert changed is None
        return
    assert changed is not None
    default = getattr(default_breakers(), name).policy
    assert history(changed) != history(default), f"{name}.{key} changes nothing"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("breakers: {budgt: {}}", "1: breakers.budgt: unknown key; did you mean 'budget'?"),
        (
            "breakers:\n  budget: {window_second: 3}",
            "2: breakers.budget.window_second: unknown key",
        ),
        ("breakers: {budget: {hard_cap_dollars: -1}}", "is -1: it must be dollars above 0"),
        ("breakers: {budget: {hard_cap_dollars: 0.0000001}}", "more digits than that"),
        ("breakers: {budget: {threshold: .inf}}", "breakers.budget.threshold: is inf"),
        ("breakers: {budget: {threshold: [1]}}", "is a list: it must be a single value"),
        ("breakers: {budget: 7}", "breakers.budget: is 7: it must be a mapping"),
        ("breakers: {latency: {enabled: maybe}}", "is 'maybe': it must be true or false"),
        (
            "breakers: {latency: {max_cooldown_seconds: 5}}",
            "is 5: it must not be below cooldown_seconds, 180",
        ),
        ("breakers: {external_dep: {threshold: 1.5}}", "is 1.5: it must be a whole number"),
        ("agents: {a: {provider: p, model: m}}", "agents.a: needs the key 'owner'"),
        ("agents: {a: {owner: '', provider: p, model: m}}", "it must be a text that is not empty"),
        ("agents: {a/b: {owner: x, provider: p, model: m}}", "without a slash"),
        ("agents: {a: {owner: x, provider: p/q, model: m}}", "agents.a.provider: is 'p/q'"),
        (
            "agents: {a: {owner: x, provider: p, model: m, fallback_models: [q]}}",
            "agents.a.fallback_models: is 'q': it must be 'provider/model'",
        ),
        (
            (
                "agents:\n  coder: {owner: x, provider: p, model: m}\n"
                "  other: {owner: x, provider: p, model: m, fallback_chain: [codr]}"
            ),
            (
                "3: agents.other.fallback_chain: there is no agent 'codr' to fall back to; "
                "did you mean 'coder'?"
            ),
        ),
        (
            (
                "agents:\n  a: {owner: x, provider: p, model: m, fallback_chain: [b]}\n"
                "  b: {owner: x, provider: p, model: m, fallback_chain: [a]}"
            ),
            "2: agents.a.fallback_chain: its fallback_chain is a cycle: a → b → a",
        ),
        (
            "agents: {a: {owner: x, provider: p, model: m, fallback_chain: [a]}}",
            "is a cycle: a → a",
        ),
        (
            "agents: {a: {owner: x, provider: p, model: m, stories: [S, S]}}",
            "it must not name anything twice",
        ),
        ("stories: {S: {owner: x, budget_dollars: -2}}", "stories.S.budget_dollars: is -2"),
        ("stories: {S: {budget_dollars: 2}}", "stories.S: needs the key 'owner'"),
        ("stories: {S: 3}", "stories.S: is 3: it must be a mapping"),
    ],
)
def test_an_invalid_value_is_reported_with_its_line(
    tmp_path: Path, text: str, message: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        load(tmp_path, text)
    assert message in str(refused.value)


def test_a_missing_key_hides_no_other_error(tmp_path: Path) -> None:
    text = """
agents:
  a: {owner: ann, provider: p, fallback_chain: [b], fallback_models: [q]}
  b: {owner: 3, provider: p/q, fallback_chain: [a, c], stories: S}
  c d: {fallback_chain: 7}
stories:
  S: {budget_dollars: -2}
"""
    with pytest.raises(ConfigError) as refused:
        load(tmp_path, text)
    told = [(problem.line, problem.key, problem.message) for problem in refused.value.problems]
    found = [(line, key, message.partition(";")[0][:50]) for line, key, message in told]
    assert sorted(found) == [
        (3, "agents.a", "needs the key 'model'"),
        (3, "agents.a.fallback_chain", "its fallback_chain is a cycle: a → b → a"),
        (3, "agents.a.fallback_models", "is 'q': it must be 'provider/model'"),
        (4, "agents.b", "needs the key 'model'"),
        (4, "agents.b.fallback_chain", "there is no agent 'c' to fall back to"),
        (4, "agents.b.owner", "is 3: it must be a text that is not empty"),
        (4, "agents.b.provider", "is 'p/q': it must be a name of letters, digits and"),
        (4, "agents.b.stories", "is 'S': it must be a list"),
        (5, "agents['c d']", "agent.name is 'c d': it must be a name of letters,"),
        (5, "agents['c d']", "needs the key 'model'"),
        (5, "agents['c d']", "needs the key 'owner'"),
        (5, "agents['c d']", "needs the key 'provider'"),
        (5, "agents['c d'].fallback_chain", "is 7: it must be a list"),
        (7, "stories.S", "needs the key 'owner'"),
        (7, "stories.S.budget_dollars", "is -2: it must be dollars above 0, and at most 1,0"),
    ]


def test_a_task_is_evaluated_by_its_own_budget(tmp_path: Path) -> None:
    config = load(tmp_path, "stories: {S-1: {owner: ana, budget_dollars: 2}, S-2: {owner: ben}}")
    mine, other = config.policy_for("story/S-1"), config.policy_for("story/S-2")
    assert mine is not None
    assert (
        mine.detectors[0].reason(0, 0.0) == "$0.00 spent of $2.00 (threshold 1.5 of it, and more)"
    )
    assert other == default_breakers().story_cost.policy


def test_the_schema_has_the_sections_with_all_their_keys() -> None:
    found = config_schema()["properties"]
    assert found["breakers"]["properties"].keys() == CATEGORIES.keys() | ALIASES.keys()
    for name, make in CATEGORIES.items():
        keys = {*fields_of(make), *map(problems.key_of, fields_of(make))}
        assert found["breakers"]["properties"][name]["properties"].keys() == keys
    enabled = found["breakers"]["properties"]["budget"]["properties"]["enabled"]
    assert enabled == {"type": "boolean", "default": True}


@pytest.mark.parametrize("url", ["memory:", "sqlite:///{}/state.db"])
def test_new_policies_take_effect_at_once_and_no_evidence_is_lost(tmp_path: Path, url: str) -> None:
    clock = FakeClock(1_000_000.0)
    before = load(tmp_path, "breakers: {failure_rate: {window_calls: 4}}")
    with Panel(url.format(tmp_path), policies=before.policy_for, clock=clock) as panel:
        worried, cut = panel.breaker("agent/a/failure_rate"), panel.breaker("provider/p")
        for ok in (True, False, False, True):
            worried.record(Signal(ok=ok))
        cut.record(Signal(ok=False, retry_after_s=50.0))
        assert (worried.state, cut.state) == (Phase.CLOSED, Phase.OPEN)
        text = "breakers: {failure_rate: {window_calls: 4, threshold: 0.4}, external_dep: {threshold: 7}}"
        changed = panel.reload(load(tmp_path, text).policy_for)
        assert changed == ["agent/a/failure_rate", "provider/p"]
        assert cut.state is Phase.OPEN
        assert cut.snapshot().outage.retry_at_s == pytest.approx(clock() + 50.0)
        assert worried.totals.failed == 2
        assert worried.readings()["failure_rate"].heat == pytest.approx(1.0)
        worried.record(Signal(ok=True))
        assert panel.reload(load(tmp_path, text).policy_for) == []
        stored = panel.store.get("agent/a/failure_rate")
        assert stored is not None
        assert stored.policy == worried.policy


TOML = """
[breakers.budget]
hard_cap_dollars = 2.5
[agents.coder]
owner = "ana"
provider = "p"
model = "m"
fallback_chain = ["junior"]
[agents.junior]
owner = "ben"
provider = "q"
model = "n"
[stories.S-1]
owner = "cy"
[[notifications]]
slack = {url_env = "SLACK_URL"}
"""
YAML = """
breakers: {budget: {hard_cap_dollars: 2.5}}
agents:
  coder: {owner: ana, provider: p, model: m, fallback_chain: [junior]}
  junior: {owner: ben, provider: q, model: n}
stories: {S-1: {owner: cy}}
notifications: [{slack: {url_env: SLACK_URL}}]
"""


def test_yaml_and_toml_mean_the_same(tmp_path: Path) -> None:
    path = tmp_path / "switchgear.toml"
    path.write_text(TOML, encoding="utf-8")
    in_yaml, in_toml = load(tmp_path, YAML), load_config(path)
    assert in_yaml._replace(source=None) == in_toml._replace(source=None)
    assert allows(config_schema(), yaml.safe_load(YAML))


FORBIDDEN: list[Any] = [
    {"breakers": {"budgt": {}}},
    {"breakers": {"budget": {"enabled": "yes"}}},
    {"agents": {"a": {"provider": "p", "model": "m"}}},
    {"agents": {"a": {"owner": "x", "provider": "p", "model": "m", "fallback_chain": "b"}}},
    {"stories": {"S": {"owner": "x", "budget_dollars": 0}}},
    {"notifications": ["webhook"]},
    {"notifications": [{"webhook": {"url": "http://x", "timeout_s": 31}}]},
    {"notifications": [{"slack": {}}]},
]


@pytest.mark.parametrize("document", FORBIDDEN, ids=str)
def test_the_loader_refuses_what_the_schema_forbids(tmp_path: Path, document: Any) -> None:
    assert not allows(config_schema(), document)
    with pytest.raises(ConfigError):
        load(tmp_path, json.dumps(document))


EDGES: list[Any] = [0, 1, 0.0, 0.5, 0.999, 1.0, 1.5, -1, 10**6, 2, None, True, "x", [], {}]


@pytest.mark.parametrize(
    ("name", "key"),
    [(name, key) for name, make in CATEGORIES.items() for key in fields_of(make)],
)
def test_a_key_is_loaded_only_if_the_schema_allows_it(tmp_path: Path, name: str, key: str) -> None:
    schema = config_schema()
    for value in EDGES:
        document = {"breakers": {name: {key: value}}}
        try:
            load(tmp_path, json.dumps(document))
        except ConfigError:
            continue
        assert allows(schema, document), document
