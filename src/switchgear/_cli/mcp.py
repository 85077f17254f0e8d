"""`switchgear mcp` and `switchgear requests`: agents learn why they were refused, people answer requests."""

import os

import click

from switchgear._cli.options import Branch, fail, json_option, store_options, token_option
from switchgear._cli.views.text import clean, plural, say

# ruff: noqa: PLC0415  what a verb needs is imported when it is used


@click.command(short_help="Serve MCP: why calls are refused, what was tried.")
@store_options
def mcp() -> int:
    """Serve the Model Context Protocol on stdin and stdout, for the agent that starts it.

    Tools: why_refused, what_was_tried, request_more and request_status. They read the store; none of
    them can reset, release or change anything. A request for more time or money waits until a
    person answers it with `switchgear requests answer`.

    Needs the package mcp: pip install 'switchgear[mcp]'. Register it in the agent, for example:
    claude mcp add switchgear -- switchgear mcp

    Exit code 0: the agent closed the connection; 2: the package is missing.
    """
    try:
        from switchgear._mcp.server import made
    except ImportError:
        fail("the package mcp is not installed: pip install 'switchgear[mcp]'")
    from switchgear._cli.context import open_session
    from switchgear._hooks.handler import whole_project
    from switchgear._mcp.answers import GuardAnswers

    with open_session(acts=False, applying=False) as session:
        answers = GuardAnswers(session.panel, whole_project(os.getcwd()))  # noqa: PTH109
        made(answers).run("stdio")
    return 0


@click.group(cls=Branch, short_help="Answer requests of agents for time or money.")
def requests() -> None:
    """Show and answer the requests that agents leave through `switchgear mcp`."""


@requests.command("list", short_help="List the requests.")
@click.option("--all", "everything", is_flag=True, help="Also list answered requests.")
@json_option
@store_options
def list_requests(*, everything: bool, as_json: bool) -> int:
    """List the requests that wait for an answer, the oldest first."""
    from switchgear._cli.context import open_session
    from switchgear._console.requests import OPEN, all_requests
    from switchgear._console.values import printed
    from switchgear._mcp.answers import request_line

    with open_session(reading=True) as session:
        rows = all_requests(session.panel.store.transact)
    shown = [row for row in rows if everything or row.state == OPEN]
    if as_json:
        say(printed([row._asdict() for row in shown]))
        return 0
    for row in shown:
        say(clean(request_line(row), 1000))
    waiting = sum(row.state == OPEN for row in rows)
    say(f"{plural(waiting, 'request')} waiting; answer: switchgear requests answer ID --grant")
    return 0


@requests.command("answer", short_help="Grant or deny a request.")
@click.argument("request_id", metavar="ID")
@click.option("--grant/--deny", "grant", default=None, help="Whether to grant it.")
@click.option("--why", default="", metavar="TEXT", help="The answer that the agent reads.")
@store_options
@token_option
def answer(request_id: str, why: str, *, grant: bool | None) -> int:
    """Grant or deny the request ID; the agent reads the answer at its next step.

    Granted time extends the session's time limit, if it has one. Granted money is not spent by
    itself: the command that raises the budget is printed. Needs the operator token where one is
    configured.

    Exit code 0: answered; 2: no such request, or answered already.
    """
    from switchgear._cli.context import open_session
    from switchgear._cli.run_options import who
    from switchgear._cli.trust import refuse_inside_an_agent
    from switchgear._console.requests import GRANTED, RequestRefused, answer_request, granted

    if grant is None:
        fail("pass --grant or --deny")
    refuse_inside_an_agent("requests answer")
    with open_session() as session:
        session.demand_operator(request_id, "an answer to an agent's request")
        try:
            done = answer_request(session.transact, request_id, grant=grant, by=who(), why=why)
        except RequestRefused as problem:
            fail(str(problem))
        say(clean(f"{done.id}: {done.wish} {done.state}", 300))
        if done.state == GRANTED:
            say(clean(granted(session.transact, done), 300))
    return 0
