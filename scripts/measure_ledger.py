"""How well do the progress presets recognise a stuck agent? Measured on recorded runs.

    python scripts/measure_ledger.py FOLDER            prints the tables, keeps build/stuck.md (--out)
    python scripts/measure_ledger.py FOLDER --paste    also updates docs/stuck.md
    python scripts/measure_ledger.py FOLDER --quick    without the sensitivity table

FOLDER is the corpus, or the environment variable SWITCHGEAR_CORPUS names it. Every step is recorded
by the real mechanism. `score.py` of the corpus gives the same figures:

    PYTHONPATH=scripts python FOLDER/score.py measure_ledger:factory --per-source
"""

import argparse
import os
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from paste_results import pasted, today_and_commit
from published_detectors import PUBLISHED
from stuck_corpus import Run, Score, Step, judged, read, score, signal_of, stops_by

from switchgear._config import preset_policy
from switchgear._core.machine import step
from switchgear._core.policy import Policy
from switchgear._core.types import AgentStep, Phase, Record, Signal
from switchgear._detectors import Stagnation, stagnation, step_facts
from switchgear._detectors.progress import STEP

ROOT = Path(__file__).resolve().parents[1]
PRESETS = ("careful", "default", "eager")
OUT_OF_REACH = 1e6
"""A limit that no run reaches: the debts under it give the stops of every other limit."""
LIMITS = (7.5, 8.0, 9.0, 10.5, 12.0, 14.0, 16.0)
"""The limits to choose from when a source is left out."""
MOST_HARM = 1.0
"""Harmful stops of solved runs that a limit may cause on the other sources, in percent."""
RECENT = ("gemini-3", "claude-opus-4", "claude-sonnet-4", "gpt-5", "rovodev")
"""How the names of recent models begin."""
FEW = 10
"""Sources with fewer exhausted runs are left out of the pooled column of the sensitivity table."""
CONSTANTS = (
    *(
        "REPEATED",
        "KNOWN",
        "THOUGHT",
        "FEWEST",
        "NO_THOUGHT",
        "TALK",
        "AT_ONCE",
        "LONGEST",
        "NEW",
        "ALIKE",
        "PACE",
        "REMEMBER",
    ),
)
REMOVED = {"FEWEST": 1, "REMEMBER": 1, "AT_ONCE": 10**9, "LONGEST": 10**9, "ALIKE": 10**9}
"""What stands for the absence of a constant; of the others, 0."""

SENSITIVITY = (
    "Each constant of the detector removed, and changed by a quarter: harmful stops and catchX. In "
    "the last column, the change of catchX over all exhausted runs of sources with ten or more:"
)

Stops = list[int | None]


class Preset:
    """A preset as `score.py` expects a detector: `step` returns whether to stop now."""

    def __init__(self, policy: Policy | None = None) -> None:
        self.policy = policy or preset_policy("default")
        self.circuit = self.policy.start("agent/recorded", 0.0)
        self.now_s = 0.0

    def step(self, recorded: Step) -> bool:
        """Record one step by the real mechanism."""
        self.now_s += 1.0
        told = Record(signal_of(recorded))
        self.circuit = step(self.policy, self.circuit, told, self.now_s).circuit
        return self.circuit.phase is Phase.OPEN


def factory() -> Preset:
    """The preset `default`, for `score.py`."""
    return Preset()


def careful() -> Preset:
    """The preset `careful`, for `score.py`."""
    return Preset(preset_policy("careful"))


def eager() -> Preset:
    """The preset `eager`, for `score.py`."""
    return Preset(preset_policy("eager"))


def limit_of(preset: str) -> float:
    """The limit of a preset."""
    [detector] = preset_policy(preset).detectors
    assert isinstance(detector, Stagnation)
    return detector.limit


def debts(
    runs: Sequence[Run], poorer: Callable[[AgentStep], Signal] | None = None
) -> list[list[float]]:
    """The debt after each step of each run, in steps; `poorer`: what another agent would report of it."""
    detector, found = Stagnation(OUT_OF_REACH), []
    for run in runs:
        memory, row = detector.start(), list[float]()
        for signal in run.signals:
            told = poorer(signal.step) if poorer and signal.step else signal
            if told.ok is None:
                told = told._replace(ok=signal.ok)
            memory = detector.fold(memory, told, 0.0)
            row.append(memory.points / STEP)
        found.append(row)
    return found


def _one_tool(act: AgentStep) -> AgentStep:
    return act._replace(tool="act", args=f"{act.tool} {act.args}") if act.tool else act


def _cut(act: AgentStep) -> AgentStep:
    return act._replace(result=(act.result or "")[:SHORT])


SHORT = 500
"""Characters of a result that a poorer recording keeps."""
POORER: dict[str, Callable[[AgentStep], Signal]] = {
    "default, without thoughts": lambda act: Signal(step=act._replace(thought=None)),
    "default, without error flags": lambda act: Signal(ok=True, step=act),
    "default, results cut to 500 characters": lambda act: Signal(step=_cut(act)),
    "default, one tool with the call as a text": lambda act: Signal(step=_one_tool(act)),
    "default, all of these": lambda act: Signal(
        ok=True, step=_cut(_one_tool(act._replace(thought=None)))
    ),
}
"""What agents report that say less than those of the corpus: a preset should not depend on it."""


def first_at(found: Sequence[Sequence[float]], limit: float) -> Stops:
    """After how many steps each run has that debt."""
    return [next((n for n, debt in enumerate(run, 1) if debt >= limit), None) for run in found]


def first_stops(runs: Sequence[Run], limit: float) -> Stops:
    """After how many steps each run is stopped; only of those that harm and catchX count."""
    detector, found, known = Stagnation(limit), Stops(), judged(runs)
    for run in runs:
        memory, stop = detector.start(), None
        counts = run.source in known and (run.solved or run.exhausted)
        for number, signal in enumerate(run.signals if counts else (), 1):
            memory = detector.fold(memory, signal, 0.0)
            if memory.points >= STEP * limit:
                stop = number
                break
        found.append(stop)
    return found


# Tables


def row(name: str, found: Score) -> str:
    """One line of a table."""

    def part(number: float | None) -> str:
        return "n/a" if number is None else f"{number:.1f}"

    harm = f"{found.harm}/{found.solved}"
    cells = [harm, part(found.harmful), part(found.caught), part(found.saved), part(found.net5)]
    return f"| {name} | {' | '.join(cells)} |"


def table(rows: Sequence[tuple[str, Score]], first: str = "detector") -> str:
    """A table of scores."""
    head = f"| {first} | harm | FSRh | catchX | savedX | net5 |"
    return "\n".join([head, "|---|---:|---:|---:|---:|---:|", *(row(*one) for one in rows)])


def left_out(runs: list[Run], found: list[list[float]]) -> tuple[str, str]:
    """Each source judged under the limit chosen on all the others, and the worst of them.

    Chosen is the lowest limit whose harm on the others, pooled, is at most `MOST_HARM`.
    """
    tried = {limit: first_at(found, limit) for limit in LIMITS}
    sources, lines = judged(runs), list[tuple[str, Score]]()
    for source in sources:
        others = [other for other in sources if other != source]
        limit = next((each for each in LIMITS if _is_safe(runs, tried[each], others)), LIMITS[-1])
        lines.append((f"{source} (limit {limit:g})", score(runs, tried[limit], [source])))
    caught = [(found.caught, name) for name, found in lines if found.caught is not None]
    harm = max((100 * found.harm / found.solved, name) for name, found in lines)
    worst = f"Worst: catchX {min(caught)[0]:.1f} ({min(caught)[1]})" if caught else "Worst: n/a"
    return table(lines, "source left out"), f"{worst}; harm {harm[0]:.1f} % ({harm[1]})."


def _is_safe(runs: list[Run], stops: Stops, sources: Sequence[str]) -> bool:
    each = [score(runs, stops, [source]) for source in sources]
    pooled = 100 * sum(one.harm for one in each) / max(1, sum(one.solved for one in each))
    return pooled <= MOST_HARM


def sensitivity(runs: list[Run], found: list[list[float]]) -> str:
    """Every constant of the detector without, a quarter lower and a quarter higher."""
    limit = limit_of("default")
    lines = [
        "| constant | removed: harm, catchX | x 0.75 | x 1.25 | pooled catchX x 0.75, x 1.25 |",
        "|---|---:|---:|---:|---:|",
    ]
    rows: list[tuple[str, list[Stops | None]]] = [
        ("limit", [None, first_at(found, 0.75 * limit), first_at(found, 1.25 * limit)])
    ]
    for name in CONSTANTS:
        value = getattr(stagnation, name)
        stops: list[Stops | None] = []
        for changed in (REMOVED.get(name, 0), _scaled(value, 0.75), _scaled(value, 1.25)):
            setattr(stagnation, name, changed)
            stops.append(first_stops(runs, limit))
            setattr(stagnation, name, value)
        rows.append((name.lower(), stops))
    base = _pooled(runs, first_at(found, limit))
    for name, three in rows:
        cells = [_harm_and_catch(runs, each) for each in three]
        pooled = ", ".join(f"{_pooled(runs, each) - base:+.1f}" for each in three[1:] if each)
        lines.append(f"| {name} | {' | '.join(cells)} | {pooled} |")
    return "\n".join(lines)


def _harm_and_catch(runs: list[Run], stops: Stops | None) -> str:
    if stops is None:
        return "n/a"
    found = score(runs, stops)
    return f"{found.harm}, {found.caught or 0.0:.1f}"


def _pooled(runs: list[Run], stops: Stops) -> float:
    """CatchX over all exhausted runs of the sources with `FEW` or more, in percent."""
    large = {
        source
        for source, found in judged(runs).items()
        if sum(run.exhausted for run in found) >= FEW
    }
    pairs = zip(runs, stops, strict=True)
    hits = [stop is not None for run, stop in pairs if run.exhausted and run.source in large]
    return 100 * sum(hits) / max(1, len(hits))


def _scaled(value: Any, share: float) -> Any:
    scaled = value * share
    return round(scaled) if isinstance(value, int) and value >= 8 else scaled


def fired(runs: Sequence[Run], stops: Stops) -> str:
    """How often runs without a known result are stopped."""
    lines = ["| source, result unknown | runs | stopped |", "|---|---:|---:|"]
    known = judged(runs)
    for source in dict.fromkeys(run.source for run in runs if run.source not in known):
        found = [stop for run, stop in zip(runs, stops, strict=True) if run.source == source]
        lines.append(f"| {source} | {len(found)} | {len(found) - found.count(None)} |")
    return "\n".join(lines)


def tables(runs: list[Run], *, quick: bool) -> str:
    """All that is measured, as one text."""
    remember_facts()
    real = stops_by(lambda: factory().step, runs)
    found = debts(runs)
    stops = {preset: first_at(found, limit_of(preset)) for preset in PRESETS}
    assert stops["default"] == real, "the short way and the real step disagree"
    rows = [(name, score(runs, stops_by(make, runs))) for name, make in PUBLISHED.items()]
    ours = [(f"**{preset}**", score(runs, stops[preset])) for preset in PRESETS]
    poorer = [
        (name, score(runs, first_at(debts(runs, change), limit_of("default"))))
        for name, change in POORER.items()
    ]
    sources = [(source, score(runs, real, [source])) for source in judged(runs)]
    where = f"{len(runs):,} runs of {len({run.source for run in runs})} sources"
    chosen, worst = left_out(runs, found)
    text = [
        f"Measured {today_and_commit()} by `make stuck CORPUS=folder` on {where}.",
        table([*rows, *ours, *poorer]),
        "Each source left out, with the limit chosen on the others:",
        chosen,
        worst,
        "Recent models only:",
        table([(f"**{preset}**", _recent(runs, stops[preset])) for preset in PRESETS], "preset"),
        "By source, with the preset `default`:",
        table(sources, "source"),
        fired(runs, real),
    ]
    if not quick:
        text += [
            SENSITIVITY,
            sensitivity(runs, found),
        ]
    return "\n\n".join(text) + "\n"


def _recent(runs: list[Run], stops: Stops) -> Score:
    """The score over the runs of recent models."""
    pairs = [(r, s) for r, s in zip(runs, stops, strict=True) if r.model.startswith(RECENT)]
    return score([run for run, _ in pairs], [stop for _, stop in pairs])


def remember_facts() -> None:
    """Compute the facts of a step once, not for every variant."""
    remembered = lru_cache(maxsize=None)(step_facts.facts_of)
    setattr(stagnation, "facts_of", remembered)  # noqa: B010  it is not theirs to export


def main() -> None:
    """Measure, print, keep, and paste if asked."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("folder", nargs="?", default=os.environ.get("SWITCHGEAR_CORPUS"))
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "stuck.md", metavar="FILE")
    parser.add_argument("--paste", action="store_true", help="into docs/stuck.md")
    parser.add_argument("--quick", action="store_true", help="without the sensitivity table")
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
