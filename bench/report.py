"""The same results for three readers: the terminal, the documentation and a script."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from bench.library import Role

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from bench.environment import Environment
    from bench.proof import Proof
    from bench.result import Bar, Row, Section

WIDTH = 100
GAUGE_WIDTH = 30
EIGHTHS = " ▏▎▍▌▋▊▉█"
HOW_TO_READ = (
    "Medians over interleaved rounds; ± is half the interquartile range; "
    "a ratio is the median of the ratios within each round."
)
STYLES = {Role.FLOOR: "dim", Role.OURS: "bold green", Role.PEER: ""}


def make_console() -> Console:
    return Console(width=WIDTH, highlight=False)


def print_opening(console: Console, about: Environment, proofs: Sequence[Proof]) -> None:
    console.print(f"[bold]{about.python}[/] on {about.machine}")
    console.print(_versions(about), style="dim")
    console.print(f"\n{proof_sentence(proofs)}")
    console.print(HOW_TO_READ)


def proof_sentence(proofs: Sequence[Proof]) -> str:
    """Every adapter's proof in one sentence a reader can check against the libraries' defaults."""
    trips: dict[str, list[int]] = {}
    for proof in proofs:
        trips.setdefault(proof.library, []).append(proof.failures)
    counts = ", ".join(
        f"{name} {'/'.join(map(str, dict.fromkeys(failures)))}" for name, failures in trips.items()
    )
    return f"Verified first that each library guards; failures until it refused: {counts}."


def print_section(console: Console, section: Section) -> None:
    console.print(f"\n[bold]{section.title}[/]  [dim]({section.key})[/]")
    console.print(section.method, style="dim")
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    table.add_column("", min_width=28)
    for column in section.columns:
        table.add_column(column, justify="right", min_width=9)
    longest = max((row.gauge or 0.0) for row in section.rows)
    if longest:
        table.add_column("", width=GAUGE_WIDTH, no_wrap=True)
    for row in section.rows:
        cells: list[str] = [row.name, *row.cells]
        if row.gauge is not None:
            cells.append(_gauge(row.gauge / longest))
        table.add_row(*cells, style=STYLES[row.role])
    console.print(table)
    for bar in section.bars:
        console.print(_verdict(bar))


def print_closing(console: Console, sections: Sequence[Section], seconds: float) -> None:
    bars = [(section, bar) for section in sections for bar in section.bars]
    missed = [(section, bar) for section, bar in bars if not bar.passed]
    passed = f"{len(bars) - len(missed)} of {len(bars)} bars passed"
    console.print(f"\n[bold]{passed}[/] in {seconds:.0f} s")
    for section, bar in missed:
        console.print(Text("missed: ", style="bold red") + Text(f"{section.key}: {in_words(bar)}"))


def in_words(bar: Bar) -> str:
    """As in "1.21 times the floor (bar: at most 1.6)"."""
    rule = "at least" if bar.at_least else "at most"
    return f"{_number(bar.measured)} {bar.promise} (bar: {rule} {bar.limit:,g})"


def as_markdown(about: Environment, proofs: Sequence[Proof], sections: Sequence[Section]) -> str:
    """The tables for the documentation."""
    parts = [
        f"{about.python} on {about.machine}. {_versions(about)}.",
        f"{proof_sentence(proofs)} {HOW_TO_READ}",
        _markdown_bars(sections),
        *(_markdown_section(section) for section in sections),
    ]
    return "\n\n".join(parts) + "\n"


def as_json(about: Environment, proofs: Sequence[Proof], sections: Sequence[Section]) -> str:
    """Everything, with the raw medians in nanoseconds."""
    record: dict[str, Any] = {
        "about": about._asdict(),
        "proofs": [proof._asdict() for proof in proofs],
        "sections": [_record(section) for section in sections],
    }
    return json.dumps(record, indent=2, ensure_ascii=False) + "\n"


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def _versions(about: Environment) -> str:
    return ", ".join(f"{name} {version}" for name, version in about.versions.items())


def _record(section: Section) -> dict[str, Any]:
    return {
        "key": section.key,
        "title": section.title,
        "method": section.method,
        "numbers": section.numbers,
        "bars": [asdict(bar) | {"passed": bar.passed} for bar in section.bars],
    }


def _markdown_bars(sections: Sequence[Section]) -> str:
    lines = ["| measure | unit | measured | limit | |", "|---|---|---:|---:|---|"]
    for section in sections:
        for bar in section.bars:
            rule = "≥" if bar.at_least else "≤"
            verdict = "passed" if bar.passed else "**missed**"
            numbers = f"{_number(bar.measured)} | {rule} {bar.limit:,g}"
            lines.append(f"| {section.title} | {bar.promise} | {numbers} | {verdict} |")
    return "\n".join(lines)


def _markdown_section(section: Section) -> str:
    lines = [
        f"### {section.title}",
        "",
        section.method,
        "",
        f"| | {' | '.join(section.columns)} |",
        f"|---|{'---:|' * len(section.columns)}",
        *(_markdown_row(row) for row in section.rows),
    ]
    return "\n".join(lines)


def _markdown_row(row: Row) -> str:
    name = f"**{row.name}**" if row.role is Role.OURS else row.name
    return f"| {name} | {' | '.join(row.cells)} |"


def _verdict(bar: Bar) -> Text:
    mark = Text("  ✓ ", style="green") if bar.passed else Text("  ✗ ", style="bold red")
    return mark + Text(in_words(bar))


def _number(value: float) -> str:
    return f"{value:,.2f}" if value < 100 else f"{value:,.0f}"


def _gauge(share: float) -> str:
    """A bar of block characters, an eighth of a character precise."""
    eighths = max(1, round(share * GAUGE_WIDTH * 8))
    return "█" * (eighths // 8) + EIGHTHS[eighths % 8].strip()
