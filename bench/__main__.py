"""`python -m bench`: prove, measure, judge, print, write; exit 1 if a bar was missed."""

from __future__ import annotations

import argparse
import logging
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.result import Section

try:
    from bench import (
        backtests,
        calls,
        environment,
        fleet,
        hooks,
        http_calls,
        iterations,
        langchain_calls,
        ledger,
        many,
        memory,
        outage,
        proxy,
        redis_calls,
        remote_batch,
        report,
        server,
        simulation,
        sqlite_messages,
        threads,
        windows,
    )
    from bench.measure import FULL, QUICK, Effort
    from bench.ours import OURS
    from bench.peers import PEERS
    from bench.proof import NotGuardingError, prove
except ModuleNotFoundError as missing:
    sys.exit(f"{missing}; `make bench` installs what the suite compares")

MEASURES: dict[str, Callable[[Effort], Section]] = {
    "closed": calls.closed_sync,
    "windowed": calls.closed_windowed,
    "async": calls.closed_async,
    "refusal": calls.refusal_sync,
    "refusal-async": calls.refusal_async,
    "threads": threads.section,
    "memory": memory.section,
    "window-success": windows.section_of_successes,
    "window-failure": windows.section_of_failures,
    "sqlite": sqlite_messages.section,
    "redis": redis_calls.section,
    "trip": fleet.section_of_trips,
    "crowd": fleet.section_of_a_crowd,
    "outage": outage.section,
    "many-sqlite": many.section_of_sqlite,
    "many-redis": many.section_of_redis,
    "run": iterations.section,
    "ledger": ledger.section,
    "backtest": backtests.section,
    "hooks": hooks.section,
    "simulation": simulation.section,
    "httpx": http_calls.section,
    "langchain": langchain_calls.section,
    "proxy": proxy.section,
    "remote": remote_batch.section,
    "remote-scale": remote_batch.section_of_many,
}
ONLY_BY_NAME = {"remote-scale"}
"""Measures that take too long for every run."""
NEED_A_SERVER = {"redis", "trip", "crowd", "outage", "many-redis"}


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer rounds: quick and imprecise")
    parser.add_argument("--only", action="append", choices=MEASURES, help="may be repeated")
    parser.add_argument("--json", type=Path, default=Path("build/bench.json"), metavar="PATH")
    parser.add_argument("--markdown", type=Path, default=Path("build/bench.md"), metavar="PATH")
    return parser.parse_args(arguments)


def main() -> int:
    options = parse()
    logging.getLogger("switchgear").addHandler(logging.NullHandler())  # thousands of trips
    begun_s = time.perf_counter()
    console = report.make_console()
    chosen = options.only or [key for key in MEASURES if key not in ONLY_BY_NAME]
    try:
        if NEED_A_SERVER.intersection(chosen):
            server.binary()  # now, not after minutes of other measures
        proofs = [proof for library in (OURS, *PEERS) for proof in prove(library)]
    except (NotGuardingError, server.NoServerError) as error:
        console.print(f"no measure was taken: {error}", style="bold red")
        return 2
    about = environment.describe()
    report.print_opening(console, about, proofs)

    sections = []
    for key in chosen:
        section = MEASURES[key](QUICK if options.quick else FULL)
        report.print_section(console, section)
        sections.append(section)

    report.print_closing(console, sections, time.perf_counter() - begun_s)
    report.write(options.json, report.as_json(about, proofs, sections))
    report.write(options.markdown, report.as_markdown(about, proofs, sections))
    return 0 if all(bar.passed for section in sections for bar in section.bars) else 1


if __name__ == "__main__":
    sys.exit(main())
