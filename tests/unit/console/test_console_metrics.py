"""Metrics: the names, a bounded number of series, rules and dashboard that Prometheus accepts."""

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider

from e2e.console.installation import promtool
from switchgear import Panel
from switchgear._cli import main
from switchgear._config import Config
from switchgear._console.metrics import ConsoleMetrics, circuit_families
from switchgear._console.monitoring import ALERTS, PANELS, dashboard, rules_text
from switchgear._console.sources import Sources
from switchgear._core.types import Mode, Record, Signal
from switchgear._proxy.metrics import ProxyCounts
from switchgear._sinks.metrics import Metrics, escaped, exposition
from switchgear.sinks import OpenTelemetry
from unit.console_stage import Stage, stage

SAMPLE = re.compile(r'^(\w+)(\{(\w+="([^"\\\n]|\\.)*",?)*\})? (-?[0-9.e+-]+|\+Inf|NaN)$')
PROMTOOL = promtool()


@pytest.fixture(name="on")
def on_stage(tmp_path: Path) -> Iterator[Stage]:
    with stage(tmp_path) as made:
        yield made


def names_in(text: str) -> set[str]:
    found = set()
    for line in text.splitlines():
        if not line.startswith("#"):
            match = SAMPLE.match(line)
            assert match, line
            found.add(match[1])
    return found


def row(name: str, phase: str = "closed", **more: Any) -> dict[str, Any]:
    totals = {"succeeded": 3, "failed": 1, "ignored": 0, "late": 0, "refused": 2}
    return {
        "name": name,
        "phase": phase,
        "mode": "auto",
        "heat": 0.5,
        "retry_after_s": None,
        "totals": totals,
    } | more


def test_the_endpoint_has_the_documented_names_and_valid_lines(on: Stage) -> None:
    store = on.panel.store.inner
    store.apply("p/x", on.panel.policy_of("p/x"), Record(Signal(ok=False, count=5)), store.now_s())
    on.panel.order("p/x", by="a", why="b", mode=Mode.SHADOW)
    on.panel.budgets.open("team", 1_000_000)
    counts = ProxyCounts()
    counts.request("anthropic", "success")
    for seconds in (0.0004, 0.002, 60.0):
        counts.overhead(seconds)
    counts.save(store)
    text = on.get("/metrics").text
    found = {name.removesuffix("_bucket") for name in names_in(text)}
    documented = set(re.findall(r"`(switchgear_[a-z_]+)`", Path("docs/metrics.md").read_text()))
    missing = {"switchgear_transitions_total", "switchgear_overrides_total", "switchgear_sessions"}
    missing |= {"switchgear_hook_decisions_total", "switchgear_http_refused_total"}
    missing |= {"switchgear_circuit_retry_after_seconds"}
    assert documented - missing <= found
    assert 'switchgear_circuit_state{circuit="p/x",state="shadow"} 1' in text
    assert 'switchgear_proxy_requests_total{upstream="anthropic",outcome="success"} 1' in text
    for limit, count in (("0.00025", 0), ("0.0005", 1), ("0.0025", 2), ("5", 2), ("+Inf", 3)):
        assert f'switchgear_proxy_overhead_seconds_bucket{{le="{limit}"}} {count}' in text
    assert "switchgear_proxy_overhead_seconds_count 3" in text


def test_ten_thousand_sessions_and_circuits_make_a_bounded_number_of_series() -> None:
    rows = [row(f"session/{number}") for number in range(10_000)]
    rows += [row(f"session/{number}/agent/x") for number in range(1_000)]
    rows += [row(f"loop/{number}") for number in range(1_000)]
    rows += [row(f"provider/{number}") for number in range(5_000)]
    rows += [row("provider/bad", "open", retry_after_s=9.0)]
    text = exposition(circuit_families(rows))
    assert text.count("\n") < 6_000
    assert "session/1" not in text
    assert 'switchgear_circuits{family="session",state="closed"} 11000' in text
    assert 'switchgear_calls_total{circuit="session/*",outcome="success"} 33000' in text
    assert 'switchgear_circuit_retry_after_seconds{circuit="provider/bad"} 9' in text
    assert 'circuit="other"' in text


def test_hostile_names_stay_inside_their_label() -> None:
    nasty = 'a"} 1\nevil{x="y\\'
    text = exposition(
        circuit_families([row(f"p/{nasty}"), row("p/" + "x" * 5_000), row("p/\ud800")])
    )
    names_in(text)
    assert "\nevil" not in text
    assert len(escaped("x" * 5_000)) == 200


def test_a_store_without_budgets_still_has_metrics(tmp_path: Path) -> None:
    with Panel("memory:") as panel:
        made = ConsoleMetrics(Sources(panel, Config(), tmp_path))
        assert "switchgear_event_stream_clients 0" in made.text([], {"clients": 0, "dropped": 0})


def test_the_sink_counts_events_and_calls_of_a_process() -> None:
    metrics = Metrics(most_circuits=2)
    with Panel("memory:", sinks=[metrics], on_call=metrics.on_call) as panel:
        for name in ("p/1", "p/2", "p/3", "session/abc"):
            panel.breaker(name).call(len, "x")
        panel.breaker("p/1").hold_open(by="a", why="b")
    text = metrics.text()
    names_in(text)
    assert 'switchgear_calls_total{circuit="p/1",outcome="success"} 1' in text
    assert 'switchgear_calls_total{circuit="other",outcome="success"} 2' in text
    assert 'switchgear_overrides_total{circuit="p/1",mode="held_open"} 1' in text
    assert 'switchgear_call_duration_seconds_bucket{circuit="p/1",le="+Inf"} 1' in text
    assert "abc" not in text


def test_the_sink_for_opentelemetry_measures_and_marks_the_current_span() -> None:
    reader = InMemoryMetricReader()
    telemetry = OpenTelemetry(MeterProvider([reader]).get_meter("test"))
    tracer = TracerProvider().get_tracer("test")
    with Panel("memory:", sinks=[telemetry], on_call=telemetry.on_call) as panel:
        span: Any
        with tracer.start_as_current_span("work") as span:
            panel.breaker("session/abc").call(len, "x")
            panel.breaker("session/abc").hold_open(by="a", why="maintenance")
        assert span.events[0].name == "switchgear.override"
        assert span.events[0].attributes["switchgear.reason"] == "maintenance"
    data = reader.get_metrics_data()
    assert data is not None
    metrics: dict[str, Any] = {
        each.name: each for each in data.resource_metrics[0].scope_metrics[0].metrics
    }
    assert {
        "switchgear.calls",
        "switchgear.call.duration",
        "switchgear.overrides",
    } <= metrics.keys()
    assert (
        next(iter(metrics["switchgear.calls"].data.data_points)).attributes["circuit"]
        == "session/*"
    )


def every_expression() -> list[str]:
    panels = [target["expr"] for panel in dashboard()["panels"] for target in panel["targets"]]
    return [alert.expr for alert in ALERTS] + [
        each.replace("$__rate_interval", "5m") for each in panels
    ]


def test_rules_and_dashboard_use_only_metrics_that_exist() -> None:
    documented = Path("docs/metrics.md").read_text()
    documented += " switchgear_budget_spent_dollars switchgear_budget_reserved_dollars"
    for expression in every_expression():
        for name in re.findall(r"switchgear_[a-z_]+", expression):
            assert name.removesuffix("_bucket") in documented, name


def test_the_command_prints_rules_and_dashboard() -> None:
    rules = yaml.safe_load(CliRunner().invoke(main, ["metrics", "rules"]).output)
    assert [each["alert"] for each in rules["groups"][0]["rules"]] == [
        alert.name for alert in ALERTS
    ]
    shown = json.loads(CliRunner().invoke(main, ["metrics", "dashboard"]).output)
    assert [panel["title"] for panel in shown["panels"]] == [panel.title for panel in PANELS]
    places = [tuple(panel["gridPos"].values()) for panel in shown["panels"]]
    assert len(set(places)) == len(places)


@pytest.mark.console
@pytest.mark.skipif(PROMTOOL is None, reason="promtool is not installed: make console")
def test_promtool_accepts_the_rules_every_expression_and_the_metrics(
    tmp_path: Path, on: Stage
) -> None:
    assert PROMTOOL is not None
    (tmp_path / "rules.yaml").write_text(rules_text())
    subprocess.run(
        [PROMTOOL, "check", "rules", tmp_path / "rules.yaml"], check=True, capture_output=True
    )
    queries = [
        {"record": f"check:{at}", "expr": each} for at, each in enumerate(every_expression())
    ]
    (tmp_path / "all.yaml").write_text(json.dumps({"groups": [{"name": "all", "rules": queries}]}))
    subprocess.run(
        [PROMTOOL, "check", "rules", tmp_path / "all.yaml"], check=True, capture_output=True
    )
    store = on.panel.store.inner
    store.apply("p/x", on.panel.policy_of("p/x"), Record(Signal(ok=False, count=5)), store.now_s())
    text = on.get("/metrics").text
    checked = subprocess.run(
        [PROMTOOL, "check", "metrics"], input=text, capture_output=True, text=True, check=False
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr


@pytest.mark.console
@pytest.mark.skipif(PROMTOOL is None, reason="promtool is not installed: make console")
def test_a_circuit_whose_probes_fail_is_reported_and_one_that_recovers_is_not(
    tmp_path: Path,
) -> None:
    assert PROMTOOL is not None
    (tmp_path / "rules.yaml").write_text(rules_text())
    ups_and_downs = {
        'circuit="fails",state="open"': "1 1 1 0 " * 8,  # a probe a minute, in vain
        'circuit="fails",state="half_open"': "0 0 0 1 " * 8,
        'circuit="recovers",state="open"': "1 1 1 0 " + "0 0 0 0 " * 7,
        'circuit="recovers",state="half_open"': "0 0 0 1 " + "0 0 0 0 " * 7,
    }
    summary = "Circuit fails has been open for 5 minutes."
    labels = {"severity": "warning", "circuit": "fails"}
    test = {
        "interval": "15s",
        "input_series": [
            {"series": f"switchgear_circuit_state{{{labels}}}", "values": values.strip()}
            for labels, values in ups_and_downs.items()
        ],
        "alert_rule_test": [
            {
                "eval_time": "7m",
                "alertname": "SwitchgearCircuitOpen",
                "exp_alerts": [{"exp_labels": labels, "exp_annotations": {"summary": summary}}],
            }
        ],
    }
    whole = {"rule_files": ["rules.yaml"], "evaluation_interval": "15s", "tests": [test]}
    (tmp_path / "test.yaml").write_text(json.dumps(whole))
    done = subprocess.run(
        [PROMTOOL, "test", "rules", tmp_path / "test.yaml"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
