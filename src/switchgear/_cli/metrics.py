"""`switchgear metrics rules|dashboard`: alert rules and a dashboard for the metrics of `switchgear serve`."""

import click

from switchgear._cli.context import say_json
from switchgear._cli.options import Branch
from switchgear._cli.views.text import say
from switchgear._console.monitoring import dashboard as dashboard_json
from switchgear._console.monitoring import rules_text


@click.group(cls=Branch)
def metrics() -> None:
    """Print alert rules for Prometheus and a dashboard for Grafana.

    `switchgear serve` exposes the metrics under /metrics.
    """


@metrics.command(short_help="Print alert rules for Prometheus.")
def rules() -> None:
    """Print alert rules in YAML, for the `rule_files` of Prometheus."""
    say(rules_text().rstrip("\n"))


@metrics.command(short_help="Print a dashboard for Grafana.")
def dashboard() -> None:
    """Print a dashboard in JSON, to import into Grafana."""
    say_json(dashboard_json())
