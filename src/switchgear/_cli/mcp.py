"""`switchgear mcp` and `switchgear requests`: agents read why they were refused and make requests, users answer."""

import os

import click

from switchgear._cli.context import open_session, say_result
from switchgear._cli.options import Branch, fail, reader_options, store_options, token_option
from switchgear._cli.trust import refuse_inside_an_agent
from switchgear._cli.views.text import clean, plural, say
from switchgear._console.requests import (
    GRANTED,
    OPEN,
    all_requests,
    answer_request,
    granted,
)
from switchgear._hooks.handler import containing_project
from switchgear._mcp.answers import GuardAnswers, request_line
from switchgear._system.login import login_name


@click.command()
@store_options
def mcp() -> None:
    """Serve the Model Context Protocol on stdin and stdout, for the agent that starts it.

    Tools: why_refused, what_was_tried, request_more and request_status. None of them can change a
    circuit, a budget or a setting. A request for more time or money waits until a person answers it
    with `switchgear requests answer`.

    Needs the package mcp: pip install 'switchgear[mcp]'. Register it in the agent, for example:
    claude mcp add switchgear -- switchgear mcp

    Exit code 0: the agent closed the connection; 2: the package is missing.
    """
    try:
        from switchgear._mcp.server import create_server  # noqa: PLC0415  needs the extra
    except ImportError:
        fail("the package mcp is not installed: pip install 'switchgear[mcp]'")
    with open_session(acts=False, applying=False) as session:
        answers = GuardAnswers(session.panel, containing_project(os.getcwd()))  # noqa: PTH109
        create_server(answers).run("stdio")


@click.group(cls=Branch)
def requests() -> None:
    """Show and answer the requests that agents make through `switchgear mcp`."""


@requests.command("list", short_help="List the unanswered requests.")
@click.option("--all", "everything", is_flag=True, help="Also list answered requests.")
@reader_options
def list_requests(*, everything: bool, as_json: bool) -> None:
    """List the unanswered requests, the oldest first."""
    with open_session(reading=True) as session:
        rows = all_requests(session.panel.store.transact)
    shown = [row for row in rows if everything or row.state == OPEN]
    waiting = sum(row.state == OPEN for row in rows)
    total = "No requests are waiting."
    if waiting:
        count = plural(waiting, "request")
        total = f"{count} waiting; answer: switchgear requests answer ID --grant"
    lines = [*map(request_line, shown), total]
    say_result([row._asdict() for row in shown], lines, as_json=as_json, longest=1000)


@requests.command("answer", short_help="Grant or deny a request.")
@click.argument("request_id", metavar="ID")
@click.option("--grant/--deny", "grant", default=None, help="Grant or deny the request.")
@click.option(
    "--why", default="", show_default=False, metavar="TEXT", help="Reason, which the agent reads."
)
@store_options
@token_option
def answer(request_id: str, why: str, *, grant: bool | None) -> None:
    """Grant or deny the request ID; the agent reads the answer at its next step.

    Granted time extends the session's time limit, if it has one. Granting money does not raise the
    budget: the command that does so is printed. Needs the operator token where one is configured.

    Exit code 0: answered; 2: no such request, or it was already answered.
    """
    if grant is None:
        fail("pass --grant or --deny")
    refuse_inside_an_agent("requests answer")
    with open_session() as session:
        session.demand_operator(request_id, "an answer to an agent's request")
        request = answer_request(
            session.transact, request_id, grant=grant, by=login_name(), why=why
        )
        say(clean(f"{request.id}: {request.wish} {request.state}", 300))
        if request.state == GRANTED:
            say(clean(granted(session.transact, request), 300))
