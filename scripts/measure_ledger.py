"""How well does the ledger know a stuck agent? On recorded runs, beside what others publish.

    python scripts/measure_ledger.py FOLDER            prints the tables, keeps build/stuck.md (--out)
    python scripts/measure_ledger.py FOLDER --paste    puts them into docs/stuck.md, too
    python scripts/measure_ledger.py FOLDER --quick    without the table of changed numbers

FOLDER is the corpus, or the environment variable SWITCHGEAR_CORPUS names it. The ledger is the
preset `ledger`, folded by the real `step`. `score.py` beside the corpus can be asked, too:

    PYTHONPATH=scripts python FOLDER/score.py measure_ledger:factory --per-source
"""

import argparse
import itertools
import os
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from paste_results import pasted, today_and_commit
from published_detectors import PUBLISHED
from stuck_corpus import Run, Score, Step, judged, read, score, signal_of, stops_by

from switchgear._config import preset_policy
from switchgear._core.machine import step
from switchgear._core.policy import Policy
from switchgear._core.types import Phase, Record
from switchgear._detectors import progress, step_facts
from switchgear._detectors import progress as errors_debt
from switchgear._detectors import progress as words_debt
from switchgear._detectors.progress import Debt

ROOT = Path(__file__).resolve().parents[1]
LEDGER = "**the ledger**"
HIDDEN = "the ledger, thoughts hidden from it"
FORESEEABLE = 1e6
"""A limit that nothing reaches: what is found under it holds for every other limit."""
SCALES = {
    "words_debt": (0.8, 1.0, 1.3),
    "actions_debt": (0.75, 1.0, 1.25),
    "errors_debt": (0.8, 1.0, 1.25),
}
"""The limits to choose from when a source is left out, against those of the preset."""
RECENT = ("gemini-3", "claude-opus-4", "claude-sonnet-4", "gpt-5")
"""How the names of recent models begin."""
SIDES = ("half 1", "half 2")
MODULES = (words_debt, progress, errors_debt)
CONSTANTS = (
    (progress, "RESEMBLES"),
    (progress, "SILENT"),
    (errors_debt, "CALM"),
    (errors_debt, "AGAIN"),
    (errors_debt, "FEW"),
    (errors_debt, "NEW_THOUGHT"),
)

Stops = list[int | None]


class Ledger:
    """The preset, as `score.py` wants a detector: `step` says whether to stop now."""

    def __init__(self, policy: Policy | None = None) -> None:
        self.policy = policy or preset_policy("ledger")
        self.circuit = self.policy.start("agent/recorded", 0.0)
        self.now_s = 0.0

    def step(self, recorded: Step) -> bool:
        """Fold one recorded step by the real mechanism."""
        self.now_s += 1.0
        told = Record(signal_of(recorded))
        self.circuit = step(self.policy, self.circuit, told, self.now_s).circuit
        return self.circuit.phase is Phase.OPEN


def factory() -> Ledger:
    """A fresh ledger, for `score.py`."""
    return Ledger()


def debts_of_the_preset() -> dict[str, Debt]:
    """The debts of the preset, by kind."""
    return {d.kind: d for d in preset_policy("ledger").detectors if isinstance(d, Debt)}


# What the debts say at every step, from which every limit is read


def peaks(detector: Debt, runs: Sequence[Run]) -> list[list[float]]:
    """The debt after each step of each run, under a limit that nothing reaches."""
    endless = detector.replace(limit=FORESEEABLE)
    found = []
    for run in runs:
        memory, debts = endless.start(), []
        for signal in run.signals:
            memory = endless.fold(memory, signal, 0.0)
            debts.append(memory.points / 100)
        found.append(debts)
    return found


def first_at(debts: Sequence[Sequence[float]], limit: float) -> Stops:
    """After how many steps each run has that debt."""
    return [next((n for n, debt in enumerate(run, 1) if debt >= limit), None) for run in debts]


def either(*stops: Stops) -> Stops:
    """The first of several stops."""
    return [min(filter(None, run), default=None) for run in zip(*stops, strict=True)]


def by_limits(debts: dict[str, list[list[float]]], limits: dict[str, float]) -> Stops:
    """Where the ledger stops under these limits."""
    return either(*(first_at(debts[kind], limit) for kind, limit in limits.items()))


# Tables


def row(name: str, found: Score) -> str:
    """One line of a table."""

    def part(number: float | None) -> str:
        return "n/a" if number is None else f"{number:.1f}"

    return f"| {name} | {' | '.join(map(part, found))} |"


def table(rows: Sequence[tuple[str, Score]], first: str = "detector") -> str:
    """A table of scores."""
    head = f"| {first} | false stops | FSRh | catchX | savedX | net5 |"
    return "\n".join([head, "|---|---:|---:|---:|---:|---:|", *(row(*one) for one in rows)])


def left_out(runs: list[Run], debts: dict[str, list[list[float]]]) -> list[tuple[str, Score]]:
    """Each source judged under limits that were chosen on all the others."""
    limits = {kind: debt.limit for kind, debt in debts_of_the_preset().items()}
    scales = [
        dict(zip(SCALES, chosen, strict=True)) for chosen in itertools.product(*SCALES.values())
    ]
    tried = [
        by_limits(debts, {kind: limit * scale.get(kind, 1.0) for kind, limit in limits.items()})
        for scale in scales
    ]
    sources = list(judged(runs))
    rows = []
    chosen_stops: Stops = [None] * len(runs)
    for source in sources:
        others = [other for other in sources if other != source]
        best = max(tried, key=lambda stops: _worth(score(runs, stops, others)))
        rows.append((source, score(runs, best, [source])))
        chosen_stops = [
            b if run.source == source else c
            for run, b, c in zip(runs, best, chosen_stops, strict=True)
        ]
    return [*rows, ("all, each left out once", score(runs, chosen_stops))]


def _worth(found: Score) -> float:
    """What limits are chosen by: steps saved, as long as hardly any work is lost."""
    return (found.saved or 0.0) + found.net5 - 100 * max(0.0, found.harmful - 0.5)


def without_thoughts(runs: list[Run]) -> Score:
    """The ledger on agents that do not tell what they think."""
    silent = [
        run._replace(
            signals=tuple(
                s._replace(step=s.step and s.step._replace(thought=None)) for s in run.signals
            )
        )
        for run in runs
    ]
    preset = debts_of_the_preset()
    debts = {kind: peaks(debt, silent) for kind, debt in preset.items()}
    return score(runs, by_limits(debts, {kind: debt.limit for kind, debt in preset.items()}))


def sensitivity(
    runs: list[Run], debts: dict[str, list[list[float]]]
) -> Iterator[tuple[str, Score]]:
    """Every number of the ledger, a quarter higher and lower, one at a time."""
    preset = debts_of_the_preset()
    limits = {kind: debt.limit for kind, debt in preset.items()}
    for detector in preset.values():
        for name, value in detector.fields().items():
            for share in (0.75, 1.25):
                changed = detector.replace(**{name: _scaled(value, share)})
                again = debts if name == "limit" else {**debts, detector.kind: peaks(changed, runs)}
                stops = by_limits(again, {**limits, detector.kind: changed.limit})
                yield f"`{detector.kind}.{name}` x {share:g}", score(runs, stops)
    for module, name in CONSTANTS:
        kind = module.__name__.rpartition(".")[2]
        detector = preset[kind]
        value = getattr(module, name)
        for share in (0.75, 1.25):
            setattr(module, name, _scaled(value, share))
            stops = by_limits({**debts, kind: peaks(detector, runs)}, limits)
            setattr(module, name, value)
            yield f"`{kind}`, {name.lower()} x {share:g}", score(runs, stops)


def _scaled(value: Any, share: float) -> Any:
    return max(1, round(value * share)) if isinstance(value, int) else value * share


def fired(runs: Sequence[Run], stops: Stops) -> str:
    """How often it stops runs of which nobody knows whether they went well."""
    lines = ["| source, ends not known | runs | stopped |", "|---|---:|---:|"]
    known = judged(runs)
    for source in dict.fromkeys(run.source for run in runs if run.source not in known):
        found = [stop for run, stop in zip(runs, stops, strict=True) if run.source == source]
        lines.append(f"| {source} | {len(found)} | {len(found) - found.count(None)} |")
    return "\n".join(lines)


def tables(runs: list[Run], *, quick: bool) -> str:
    """All that is measured, as one text."""
    remember_facts()
    real = stops_by(lambda: Ledger().step, runs)
    rows = [(name, score(runs, stops_by(make, runs))) for name, make in PUBLISHED.items()]
    preset = debts_of_the_preset()
    debts = {kind: peaks(debt, runs) for kind, debt in preset.items()}
    limits = {kind: debt.limit for kind, debt in preset.items()}
    assert by_limits(debts, limits) == real, "the short way and the real step disagree"
    parts = [(f"{kind} alone", score(runs, first_at(debts[kind], limits[kind]))) for kind in limits]
    halves = [
        (f"{side} of the tasks", _part(runs, real, lambda run: run.side, side)) for side in SIDES
    ]
    recent = _part(runs, real, lambda run: run.model.startswith(RECENT), True)
    sources = [(source, score(runs, real, [source])) for source in judged(runs)]
    where = f"{len(runs):,} runs of {len({run.source for run in runs})} sources"
    text = [
        f"Measured {today_and_commit()} by `scripts/measure_ledger.py` on {where}.",
        table([*rows, *parts, (LEDGER, score(runs, real)), (HIDDEN, without_thoughts(runs))]),
        "Each source left out once, and judged under limits chosen on the others:",
        table(left_out(runs, debts), "source left out"),
        "By source, by half of the tasks, and for recent models, with the numbers of the preset:",
        table([*sources, *halves, ("recent models", recent)], "runs"),
        fired(runs, real),
    ]
    if not quick:
        text += [
            "One number of the ledger changed by a quarter, the others kept:",
            table(list(sensitivity(runs, debts)), "changed"),
        ]
    return "\n\n".join(text) + "\n"


def _part(runs: list[Run], stops: Stops, of: Callable[[Run], object], wanted: object) -> Score:
    """The score over some of the runs."""
    pairs = [(run, stop) for run, stop in zip(runs, stops, strict=True) if of(run) == wanted]
    return score([run for run, _ in pairs], [stop for _, stop in pairs])


def remember_facts() -> None:
    """The numbers of a step are worked out once and not for every detector that is tried."""
    remembered = lru_cache(maxsize=None)(step_facts.facts_of)
    for module in MODULES:
        setattr(module, "facts_of", remembered)  # noqa: B010  it is not theirs to export


def main() -> None:
    """Measure, print, keep, and paste if asked."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("folder", nargs="?", default=os.environ.get("SWITCHGEAR_CORPUS"))
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "stuck.md", metavar="FILE")
    parser.add_argument("--paste", action="store_true", help="into docs/stuck.md")
    parser.add_argument("--quick", action="store_true", help="without the table of changed numbers")
    chosen = parser.parse_args()
    if not chosen.folder:
        parser.error("name the folder of the corpus, or set SWITCHGEAR_CORPUS")
    found = tables(read(Path(chosen.folder)), quick=chosen.quick)
    print(found)
    chosen.out.parent.mkdir(exist_ok=True)
    chosen.out.write_text(found, encoding="utf-8")
    if chosen.paste:
        page = ROOT / "docs" / "stuck.md"
        page.write_text(pasted(page.read_text(encoding="utf-8"), "stuck", found), encoding="utf-8")


if __name__ == "__main__":
    main()
