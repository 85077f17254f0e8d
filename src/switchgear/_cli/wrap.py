"""`switchgear wrap`: runs a command and guards the model calls of its Python processes."""

import json
import os
import re
from contextlib import suppress
from secrets import token_hex
from typing import Any

import click

from switchgear._cli.context import Session, file_of, open_session
from switchgear._cli.options import fail, parsed_by, store_options
from switchgear._cli.run_options import call_budget_options, check_node
from switchgear._cli.views.text import clean, say
from switchgear._core.errors import BudgetRefused, OverrideRefused, StoreError
from switchgear._run.options import seconds
from switchgear._run.wrap import WrapReport, WrapSettings, run_wrapped
from switchgear._text.formats import dollars, plural


@click.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@call_budget_options(
    "Spend at most USD dollars.",
    "Reserve from this node of the budgets, such as atlas/release-1; --budget limits the amount.",
)
@click.option(
    "--key",
    default="provider",
    metavar="KEY",
    help="One circuit per host, provider or model, or a name with {host}, {provider}, {model}.",
)
@click.option(
    "--fallback",
    "fallbacks",
    multiple=True,
    metavar="MODEL",
    help="Use this model of the same provider while the first one fails. Repeatable, in order.",
)
@click.option(
    "--max-refusals",
    type=click.IntRange(1),
    default=20,
    metavar="N",
    help="Stop the command after N refused calls in a row.",
)
@click.option(
    "--timeout",
    "timeout_s",
    metavar="D",
    callback=parsed_by(seconds),
    help="Time limit for the command (30m, 2h).",
)
@click.option(
    "--report",
    type=click.Path(dir_okay=False, writable=True),
    help="Write what the command did to this file, as JSON.",
)
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
@store_options
def wrap(command: tuple[str, ...], **given: Any) -> None:
    """Run COMMAND with its model calls guarded: switchgear wrap --budget 2 -- python agent.py.

    Guards calls to model APIs through httpx or httpx2, which the SDKs of OpenAI, Anthropic, Google
    and most others use, in COMMAND and in the Python processes that it starts. A refused call raises
    the SDK's own error, with the reason. Exits with the code of COMMAND. If COMMAND failed after
    refused calls, or was stopped, the code is as in 'switchgear run': 10 circuit, 11 budget, 12
    timeout, 16 not started, 130 interrupted.
    """
    with open_session() as session:
        node, opened = _budget(session, given)
        settings = WrapSettings(
            _store_url(session),
            node,
            given["allow_unknown_price"],
            _checked_key(given["key"], given["fallbacks"]),
            given["fallbacks"],
            None if session.config.source is None else os.path.abspath(session.config.source),
            given["max_refusals"],
            given["timeout_s"],
        )
        report = run_wrapped(command, settings)
        if opened is not None:
            # A call that was cut off keeps the budget open until its lease ends.
            with suppress(BudgetRefused, OverrideRefused, StoreError):
                session.panel.budgets.close(opened)
    if given["report"]:
        with open(given["report"], "w", encoding="utf-8") as file:
            json.dump(report.to_dict(), file, indent=2)
            file.write("\n")
    _say(report, given["budget_micros"])
    raise SystemExit(report.exit_code)


def _store_url(session: Session) -> str:
    """The URL of the store, with an absolute path: processes have other working folders."""
    file = file_of(session.store)
    if file is not None:
        return f"sqlite:///{file}"
    url = session.store.value or ""
    if url.startswith("memory:"):
        fail("--store is memory: processes cannot share it; name a file or a Redis server")
    return url


def _checked_key(key: str, fallbacks: tuple[str, ...]) -> str:
    if not all(fallbacks):
        fail("--fallback is '': it must be the name of a model")
    if key == "provider" and fallbacks:
        return "model"  # a fallback of the same provider needs its own circuit
    fields = re.findall(r"\{(host|provider|model)\}", key)
    others = re.sub(r"\{(host|provider|model)\}", "", key)
    if key not in {"host", "provider", "model"} and (not fields or set("{}") & set(others)):
        fail(
            f"--key is {key!r}: it must be host, provider, model, or have {{host}}, {{provider}} or {{model}}"
        )
    return key


def _budget(session: Session, given: dict[str, Any]) -> tuple[str | None, str | None]:
    """The budget node to use, and the node that was opened for this command only, if any."""
    node, limit = given["budget_node"], given["budget_micros"]
    check_node(session.panel.budgets, node)
    if limit is None:
        return node, None
    name = f"wrap-{token_hex(4)}"
    path = name if node is None else f"{node}/{name}"
    try:
        session.panel.budgets.open(path, limit)
    except BudgetRefused as error:
        fail(f"{error}; nothing was started")
    return path, path


def _say(report: WrapReport, budget_micros: int | None) -> None:
    cost = dollars(report.cost_micros)
    if report.unpriced:
        cost += f" and {report.unpriced} of unknown cost"
    if budget_micros is not None:
        cost += f" of {dollars(budget_micros)}"
    parts = [
        plural(report.calls, "model call"),
        f"{report.failed} failed",
        f"{report.refused} refused",
        f"{report.input_tokens:,} tokens in, {report.output_tokens:,} out",
        cost,
    ]
    say(clean(f"switchgear wrap: {'; '.join(parts)}", 1000), err=True)
    if report.reason != "exited":
        why = f": {report.last_refusal}" if report.last_refusal else ""
        say(clean(f"switchgear wrap: {report.reason}{why}", 2000), err=True)
    if not report.processes and report.command_exit_code is not None:
        say(
            "switchgear wrap: no Python process was guarded; 'python -I', '-E' and '-S' switch the "
            "guard off, and programs in other languages are guarded by 'switchgear proxy'",
            err=True,
        )
