"""The command. Thin: parse, call, print. What a verb needs is imported when it is used."""

import click

from switchgear import __version__
from switchgear.cli import (
    asking,
    backtest,
    batch,
    budgets,
    configuring,
    fleet,
    health,
    hooks,
    incidents,
    intervening,
    locks,
    looking,
    moving,
    orders,
    resume,
    rules,
    run,
    runs,
    selftest,
    serve,
    sessions,
    simulate,
    trust,
    tune,
)
from switchgear.cli.entry import Verbs
from switchgear.cli.options import give_color_option, store_options


@click.group("switchgear", cls=Verbs, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="switchgear")
@store_options
def main() -> None:
    """Circuit breakers for AI agents: notice, warn, cut, explain, and let the current flow again."""


@main.command(short_help="Watch a breaker at work, 13 seconds.")
@click.option(
    "--speed",
    type=click.FloatRange(0.1, 20.0),
    default=1.0,
    show_default=True,
    help="Run that many times faster; the waits of the breaker shrink alike.",
)
def demo(speed: float) -> None:
    """Watch a breaker at work: a stand-in agent, a provider that goes down and comes back.

    The provider is a real HTTP server on this machine's loopback and the calls are real; nothing
    leaves the machine and no key is needed. Takes about 13 seconds. Exit code 0 when the circuit
    opened, probed and closed as it should, else 1.
    """
    from switchgear.cli.demo import run_demo  # noqa: PLC0415

    raise SystemExit(run_demo(speed))


for verb in (
    *(run.run, resume.resume, runs.runs, batch.batch, hooks.hooks, serve.serve),
    *(backtest.backtest, tune.tune),
    *(sessions.sessions, looking.status, looking.watch, looking.show, looking.events),
    *(asking.check, asking.record, rules.rules),
    *(budgets.budgets, locks.locks),
    *(fleet.fleet, incidents.incidents, incidents.review, simulate.simulate),
    *(orders.hold, orders.release, orders.reset, orders.probe, intervening.intervene),
    *(moving.export_verb, moving.import_verb, moving.vacuum),
    *(selftest.selftest, health.doctor, configuring.config, trust.trust, configuring.completion),
):
    main.add_command(verb)
give_color_option(main)
