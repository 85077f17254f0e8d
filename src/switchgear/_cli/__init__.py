"""The command. The verbs only parse, call and print; the module of a verb is imported when it is used."""

import click

from switchgear import __version__
from switchgear._cli.options import VerbGroup, Verbs, color_option, store_options

VERBS = {
    "demo": ("demo.demo", "Show a breaker that trips and recovers (13 seconds)."),
    "run": ("run.run", "Run an agent in a loop until it is done or stuck."),
    "resume": ("resume.resume", "Resume a run that stopped."),
    "runs": ("runs.runs", "List the runs of this project, or show one."),
    "batch": ("batch.batch", "Run many tasks in the order of their dependencies."),
    "worker": ("worker.worker", "Execute tasks of batches from other hosts."),
    "wrap": ("wrap.wrap", "Guard the model calls of a Python program without editing it."),
    "hooks": ("hooks.hooks", "Guard a coding agent through its hooks: install, check, remove."),
    "serve": ("serve.serve", "Serve hooks, the API, metrics and the web page over HTTP."),
    "metrics": ("metrics.metrics", "Print alert rules for Prometheus and a dashboard for Grafana."),
    "proxy": ("proxy.proxy", "Guard all agents on this machine with a proxy for model APIs."),
    "backtest": ("backtest.backtest", "Replay recorded sessions with a policy."),
    "label": ("label.label", "Label recorded runs as solved or not."),
    "tune": ("tune.tune", "Propose thresholds that keep false stops below a rate."),
    "sessions": ("sessions.sessions", "List guarded agent sessions, stopped ones first."),
    "status": ("status.status", "Show all circuits, open ones first."),
    "watch": ("status.watch", "Show the circuits live."),
    "show": ("status.show", "Show everything about one circuit."),
    "events": ("status.events", "Show or follow the events of circuits."),
    "check": ("check.check", "Test whether a circuit admits calls: exit code 0 or 1."),
    "record": ("check.record", "Record a result on a circuit."),
    "rules": ("rules.rules", "Show and test the absolute rules."),
    "budgets": ("budgets.budgets", "Show and change shared budgets."),
    "locks": ("locks.locks", "Show shared locks, their holders and waiters."),
    "fleet": ("fleet.fleet", "Show agents and fallbacks; resume paused tasks."),
    "incidents": ("incidents.incidents", "Show and close incidents."),
    "review": ("incidents.review", "Propose threshold changes from recorded events."),
    "simulate": ("simulate.simulate", "Simulate a fleet with and without breakers."),
    "hold": ("override.hold", "Hold a circuit open, closed or in shadow."),
    "release": ("override.release", "End a hold: the evidence decides again."),
    "reset": ("override.reset", "Discard the evidence and close a circuit."),
    "probe": ("override.probe", "Admit a probe on an open circuit now."),
    "intervene": ("intervene.intervene", "Help a stuck agent, or deal with a tripped circuit."),
    "mcp": ("mcp.mcp", "Serve MCP tools with which an agent reads why a call was refused."),
    "requests": ("mcp.requests", "Grant or deny requests of agents for time or money."),
    "export": ("export.export_verb", "Export circuits as lines of JSON."),
    "import": ("export.import_verb", "Import exported circuits."),
    "vacuum": ("export.vacuum", "Remove old events and idle circuits."),
    "selftest": ("selftest.selftest", "Test whether every guard fires."),
    "doctor": ("doctor.doctor", "Check the installation."),
    "config": ("config.config", "Write, check or show the configuration."),
    "trust": ("trust.trust", "Trust the configuration file of a project."),
    "completion": ("config.completion", "Print the completion script for bash, zsh or fish."),
}
"""Each verb, in the order of the help: its module and function, and what it does."""


@click.group(
    "switchgear",
    cls=VerbGroup,
    commands=Verbs(VERBS),
    context_settings={"help_option_names": ["-h", "--help"], "show_default": True},
)
@click.version_option(__version__, prog_name="switchgear")
@store_options
@color_option
def main() -> None:
    """Circuit breakers for AI agents: detect trouble, warn, stop calls, explain why, and recover."""
