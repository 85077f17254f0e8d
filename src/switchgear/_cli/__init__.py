"""The command. Thin: parse, call, print. What a verb needs is imported when it is used."""

import click

from switchgear import __version__
from switchgear._cli import (
    backtest,
    batch,
    budgets,
    check,
    config,
    doctor,
    export,
    fleet,
    hooks,
    incidents,
    intervene,
    label,
    locks,
    mcp,
    metrics,
    override,
    proxy,
    resume,
    rules,
    run,
    runs,
    selftest,
    serve,
    sessions,
    simulate,
    status,
    trust,
    tune,
    worker,
    wrap,
)
from switchgear._cli.options import Verbs, give_color_option, store_options


@click.group("switchgear", cls=Verbs, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="switchgear")
@store_options
def main() -> None:
    """Circuit breakers for AI agents: detect trouble, warn, stop calls, explain why, and recover."""


@main.command(short_help="Show a breaker at work; takes 13 seconds.")
@click.option(
    "--speed",
    type=click.FloatRange(0.1, 20.0),
    default=1.0,
    show_default=True,
    help="Speed factor; waits shrink accordingly.",
)
def demo(speed: float) -> None:
    """Show a breaker at work: a simulated agent, and a provider that fails and recovers.

    The provider is a real HTTP server on this machine's loopback and the calls are real; nothing
    leaves the machine and no key is needed. Takes about 13 seconds. Exit code 0 when the circuit
    opened, probed and closed as it should, else 1.
    """
    from switchgear._cli.demo import run_demo  # noqa: PLC0415

    raise SystemExit(run_demo(speed))


for verb in (
    *(run.run, resume.resume, runs.runs, batch.batch, worker.worker, wrap.wrap),
    *(hooks.hooks, serve.serve, metrics.metrics, proxy.proxy),
    *(backtest.backtest, label.label, tune.tune),
    *(sessions.sessions, status.status, status.watch, status.show, status.events),
    *(check.check, check.record, rules.rules),
    *(budgets.budgets, locks.locks),
    *(fleet.fleet, incidents.incidents, incidents.review, simulate.simulate),
    *(override.hold, override.release, override.reset, override.probe, intervene.intervene),
    *(mcp.mcp, mcp.requests),
    *(export.export_verb, export.import_verb, export.vacuum),
    *(selftest.selftest, doctor.doctor, config.config, trust.trust, config.completion),
):
    main.add_command(verb)
give_color_option(main)
