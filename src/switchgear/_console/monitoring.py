"""Alert rules for Prometheus and a dashboard for Grafana, over the metrics of `metrics`."""

import json
from typing import Any, NamedTuple


class Alert(NamedTuple):
    name: str
    expr: str
    for_: str
    """How long the expression must be true."""
    severity: str
    summary: str


class DashboardPanel(NamedTuple):
    title: str
    kind: str
    unit: str
    queries: tuple[tuple[str, str], ...]
    """Expressions and their legends."""
    width: int = 12
    about: str = ""


ALERTS = (
    Alert(
        "SwitchgearCircuitOpen",
        # Failing probes make the circuit half-open for moments; that must not restart the five minutes.
        'max by (circuit) (switchgear_circuit_state{state=~"open|half_open"}) == 1',
        "5m", "warning", "Circuit {{ $labels.circuit }} has been open for 5 minutes.",
    ),
    Alert(
        "SwitchgearCircuitHeldOpen",
        'max by (circuit) (switchgear_circuit_state{state="held_open"}) == 1',
        "1h", "warning", "An operator has held circuit {{ $labels.circuit }} open for an hour.",
    ),
    Alert(
        "SwitchgearCircuitFlapping",
        'sum by (circuit) (increase(switchgear_transitions_total{to="open"}[30m])) > 5',
        "0m", "warning", "Circuit {{ $labels.circuit }} opened more than 5 times in 30 minutes.",
    ),
    Alert(
        "SwitchgearSessionsStopped",
        'sum by (agent) (switchgear_sessions{state="stopped"}) > 0',
        "10m", "warning", "{{ $value }} sessions of {{ $labels.agent }} are stopped and wait for help.",
    ),
    Alert(
        "SwitchgearBudgetNearlyExhausted",
        "(switchgear_budget_spent_dollars + switchgear_budget_reserved_dollars)"
        " / (switchgear_budget_limit_dollars > 0) > 0.9",
        "5m", "warning", "Budget {{ $labels.node }} is {{ $value | humanizePercentage }} spent or reserved.",
    ),
    Alert(
        "SwitchgearFailureShareHigh",
        'sum by (circuit) (rate(switchgear_calls_total{outcome="failure"}[5m]))'
        ' / (sum by (circuit) (rate(switchgear_calls_total{outcome=~"success|failure"}[5m])) > 0) > 0.5',
        "5m", "warning", "More than half of the calls of {{ $labels.circuit }} fail.",
    ),
    Alert(
        "SwitchgearRequestsRefused",
        'sum(rate(switchgear_http_refused_total{reason=~"no_token|wrong_token|origin|host"}[5m])) > 1',
        "5m", "warning", "The console refuses more than one request per second for its token or origin.",
    ),
    Alert(
        "SwitchgearDown", 'up{job="switchgear"} == 0', "5m", "critical",
        "The metrics of Switchgear cannot be read.",
    ),
)  # fmt: skip

PANELS = (
    DashboardPanel("Open circuits", "stat", "none", (('sum(switchgear_circuits{state="open"}) or vector(0)', "open"),), 6),
    DashboardPanel(
        "Stopped sessions", "stat", "none",
        (('sum(switchgear_sessions{state="stopped"}) or vector(0)', "stopped"),), 6,
    ),
    DashboardPanel(
        "Live sessions", "stat", "none",
        (('sum(switchgear_sessions{state!="ended"}) or vector(0)', "sessions"),), 6,
    ),
    DashboardPanel("Open incidents", "stat", "none", (("sum(switchgear_incidents_open)", "incidents"),), 6),
    DashboardPanel(
        "Circuits by state", "timeseries", "none",
        (("sum by (state) (switchgear_circuits)", "{{state}}"),),
    ),
    DashboardPanel(
        "Hottest circuits", "timeseries", "percentunit",
        (("topk(10, switchgear_circuit_heat_ratio)", "{{circuit}}"),),
        about="How close the evidence is to a trip.",
    ),
    DashboardPanel(
        "Calls per second", "timeseries", "ops",
        (("sum by (outcome) (rate(switchgear_calls_total[$__rate_interval]))", "{{outcome}}"),),
    ),
    DashboardPanel(
        "Transitions to open", "timeseries", "none",
        (('sum by (circuit) (increase(switchgear_transitions_total{to="open"}[$__rate_interval]))', "{{circuit}}"),),
    ),
    DashboardPanel(
        "Time to the next probe", "bargauge", "s",
        (("switchgear_circuit_retry_after_seconds", "{{circuit}}"),),
    ),
    DashboardPanel(
        "Budgets: share used", "bargauge", "percentunit",
        (
            (
                ("(switchgear_budget_spent_dollars + switchgear_budget_reserved_dollars)"
                " / (switchgear_budget_limit_dollars > 0)"),
                "{{node}}",
            ),
        ),
    ),
    DashboardPanel(
        "Spend per hour", "timeseries", "currencyUSD",
        (("sum by (node) (rate(switchgear_budget_spent_dollars[$__rate_interval])) * 3600", "{{node}}"),),
    ),
    DashboardPanel(
        "Hook decisions per second", "timeseries", "ops",
        (
            (
                "sum by (agent, decision) (rate(switchgear_hook_decisions_total[$__rate_interval]))",
                "{{agent}} {{decision}}",
            ),
        ),
    ),
    DashboardPanel("Sessions", "timeseries", "none", (("sum by (agent, state) (switchgear_sessions)", "{{agent}} {{state}}"),)),
    DashboardPanel(
        "Time added by the proxy", "timeseries", "s",
        tuple(
            (
                (f"histogram_quantile({share}, sum by (le) "
                "(rate(switchgear_proxy_overhead_seconds_bucket[$__rate_interval])))"),
                f"p{share * 100:g}",
            )
            for share in (0.5, 0.99)
        ),
    ),
    DashboardPanel(
        "Refused requests", "timeseries", "ops",
        (("sum by (reason) (rate(switchgear_http_refused_total[$__rate_interval]))", "{{reason}}"),),
    ),
)  # fmt: skip


def rules_text() -> str:
    """The alert rules as YAML, for `rule_files` of Prometheus."""
    lines = ["groups:", "  - name: switchgear", "    rules:"]
    for alert in ALERTS:
        lines += [
            f"      - alert: {alert.name}",
            f"        expr: {json.dumps(alert.expr)}",
            f"        for: {alert.for_}",
            "        labels:",
            f"          severity: {alert.severity}",
            "        annotations:",
            f"          summary: {json.dumps(alert.summary)}",
        ]
    return "\n".join(lines) + "\n"


def dashboard() -> dict[str, Any]:
    panels, x, y, tallest = [], 0, 0, 0
    for number, panel in enumerate(PANELS, start=1):
        height = 4 if panel.kind == "stat" else 8
        if x + panel.width > 24:
            x, y, tallest = 0, y + tallest, 0
        panels.append(
            {
                "id": number,
                "title": panel.title,
                "description": panel.about,
                "type": panel.kind,
                "datasource": {"type": "prometheus", "uid": "${datasource}"},
                "gridPos": {"x": x, "y": y, "w": panel.width, "h": height},
                "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
                "targets": [
                    {"refId": chr(65 + at), "expr": expr, "legendFormat": legend}
                    for at, (expr, legend) in enumerate(panel.queries)
                ],
            }
        )
        x, tallest = x + panel.width, max(tallest, height)
    source = {
        "name": "datasource",
        "label": "Data source",
        "type": "datasource",
        "query": "prometheus",
    }
    return {
        "title": "Switchgear",
        "uid": "switchgear",
        "tags": ["switchgear"],
        "schemaVersion": 39,
        "editable": True,
        "refresh": "10s",
        "time": {"from": "now-6h", "to": "now"},
        "templating": {"list": [source]},
        "panels": panels,
    }
