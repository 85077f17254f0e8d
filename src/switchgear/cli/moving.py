"""The verbs that move and remove what is stored: `export`, `import`, `vacuum`."""

import os
import sys
import tempfile
from collections.abc import Callable, Iterable
from typing import IO, TypeVar

import click

from switchgear.cli.entry import fail
from switchgear.cli.options import (
    circuit_argument,
    json_option,
    number,
    store_options,
    token_option,
)
from switchgear.cli.text import clean, plural, say

# What a verb needs is imported when it is used; paths are texts, as in the stores.
# ruff: noqa: PLC0415, PTH100, PTH105, PTH108, PTH110, PTH113, PTH120, PTH123

LARGEST_BYTES = 2 * 1024**3
_DAY_S = 86_400.0
T = TypeVar("T")


@click.command("export", short_help="Write circuits as lines of JSON.")
@circuit_argument("glob", default="*")
@click.option("-o", "--output", metavar="FILE", help="Into this file, readable by you alone.")
@store_options
def export_verb(glob: str, *, output: str | None) -> None:
    """Write the circuits that match GLOB, with policy, state and events, as lines of JSON.

    Budgets (named budget/TEAM), locks (lock/RESOURCE) and routes (agent/NAME) that match come along.
    """
    from switchgear.cli.jsonl import export_lines
    from switchgear.cli.opening import open_session

    with open_session(reading=True) as session:
        lines = export_lines(session.panel, glob)
        if output is None or output == "-":
            for line in lines:
                say(line)
        else:
            count = _write(output, lines)
            say(clean(f"{plural(count, 'line')} written to {output}"), err=True)
        session.stop_if_lost()


def _write(path: str, lines: Iterable[str]) -> int:
    """Beside the place first, then there: a file of that name is whole or as it was."""
    if _is_no_file(path):
        with open(path, "w", encoding="ascii") as file:
            return _write_lines(file, lines)
    path = os.path.realpath(path)  # a link stays one
    # Made with mode 0600: errors of providers are in it.
    handle, new = tempfile.mkstemp(dir=os.path.dirname(path), prefix=".switchgear-export-")
    try:
        with open(handle, "w", encoding="ascii") as file:
            count = _write_lines(file, lines)
        os.replace(new, path)
    except BaseException:
        os.unlink(new)
        raise
    return count


def _is_no_file(path: str) -> bool:
    """Whether it is a pipe, a terminal or the like, which is written to and never replaced."""
    if os.path.abspath(path).startswith(("/dev/fd/", "/dev/std", "/proc/")):
        return True  # the names of open files: what is behind them is somebody else's
    return os.path.exists(path) and not os.path.isfile(path)


def _write_lines(file: IO[str], lines: Iterable[str]) -> int:
    count = 0
    for line in lines:
        file.write(line + "\n")
        count += 1
    return count


@click.command("import", short_help="Take over circuits that were exported.")
@click.argument("file", metavar="FILE|-")
@token_option
@store_options
def import_verb(file: str) -> None:
    """Take over what FILE holds, or standard input for '-', as 'export' wrote it.

    Every line is checked first; if one is bad, nothing is written. A circuit or an account (budget,
    lock, route) of which as new a version is here stays as it is.
    """
    from switchgear.cli.accounts import take
    from switchgear.cli.jsonl import BadLines, read_lines
    from switchgear.cli.opening import open_session
    from switchgear.stores.ledger import ledger_of

    lines = _read(file)
    # Budgets that the configuration opens in a new store would be taken for newer ones.
    with open_session(applying=False) as session:
        session.demand_operator("import", "an import")
        try:
            found = read_lines(lines, session.now_s())
        except BadLines as error:
            fail(f"nothing was imported from {file}:\n{error}")
        store, ledger = session.panel.store, ledger_of(session.panel.store.inner)
        put = _take(found.circuits, lambda one: store.put(one.found, one.events), "circuit")
        say(f"{put} (as new or newer)")
        if found.accounts:
            put = _take(found.accounts, lambda one: take(ledger, one), "account")
            say(f"{put} (as new, newer or other ones)")


def _take(found: list[T], put: Callable[[T], bool], what: str) -> str:
    """Put all of them; how many were taken, which is said also when it ends in the middle."""
    written = 0
    for each in found:
        try:
            written += put(each)
        except Exception:
            say(f"{written} of {plural(len(found), what)} taken before:", err=True)
            raise
    kept = len(found) - written
    return f"{plural(written, what)} taken, {kept} kept as they are"


def _read(path: str) -> list[bytes]:
    if path == "-":
        data = sys.stdin.buffer.read(LARGEST_BYTES + 1)
    else:
        with open(path, "rb") as file:
            data = file.read(LARGEST_BYTES + 1)
    if len(data) > LARGEST_BYTES:
        fail(f"{path} is larger than {LARGEST_BYTES // 1024**3} GiB")
    return data.removesuffix(b"\n").split(b"\n") if data else []


@click.command(short_help="Remove old events and idle circuits.")
@click.option("--keep-events", type=click.IntRange(1), help="Keep the newest so many events.")
@click.option(
    "--idle-days", type=number("days", above_zero=True), help="Forget circuits idle for so long."
)
@json_option
@token_option
@store_options
def vacuum(*, keep_events: int | None, idle_days: float | None, as_json: bool) -> None:
    """Remove the oldest events, and closed circuits that nobody has touched for long.

    How many and how long is configured. Where there is an operator token, keeping less than the
    10,000 events and 30 days of the defaults needs it.
    """
    from switchgear.cli.opening import open_session

    with open_session(reading=True) as session:
        retention = session.config.retention
        gone = session.panel.store.vacuum(
            keep_events=keep_events or retention.events,
            idle_s=retention.idle_s if idle_days is None else idle_days * _DAY_S,
            now_s=session.now_s(),
        )
    if as_json:
        from switchgear.cli.values import printed

        say(printed(gone._asdict()))
        return
    say(f"removed {plural(gone.circuits, 'circuit')} and {plural(gone.events, 'event')}")
