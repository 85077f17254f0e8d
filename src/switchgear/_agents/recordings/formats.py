"""The formats, and which of them a file has: told by what is in it, never by its name alone."""

from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any, NamedTuple

from switchgear._agents.claude_code import transcript
from switchgear._agents.codex import transcript as codex
from switchgear._agents.gemini import transcript as gemini
from switchgear._agents.mini_swe_agent import transcript as mini_swe_agent
from switchgear._agents.opencode import transcript as opencode
from switchgear._agents.pi import transcript as pi
from switchgear._agents.qwen import transcript as qwen
from switchgear._agents.recordings import openhands, otel, own_runs, plain, swe_agent
from switchgear._agents.recordings.files import Source, Unreadable
from switchgear._agents.recordings.recorded import Recorded, Tally


class Format(NamedTuple):
    """One way in which sessions are recorded."""

    name: str
    label: str
    places: tuple[str, ...]
    """Where the sessions usually are."""
    per_line: bool
    """Whether each line is a run by itself, so that lines may be read apart."""
    recognises: Callable[[list[dict[str, Any]], Source], bool]
    read: Callable[[Source, Tally], Iterator[Recorded]]


def _format(module: ModuleType) -> Format:
    return Format(
        module.NAME,
        module.LABEL,
        module.PLACES,
        module.PER_LINE,
        module.recognises,
        module.read,
    )


FORMATS: dict[str, Format] = {
    module.NAME: _format(module)
    for module in (
        *(own_runs, plain, qwen, transcript, codex, gemini, opencode, pi),
        *(openhands, swe_agent, mini_swe_agent, otel),
    )
}
"""The formats by name, those that are told most surely first."""


def recognise(source: Source) -> Format:
    """The format of a file. Raises `Unreadable`."""
    if openhands.is_folder(source.path):
        return FORMATS[openhands.NAME]
    if source.is_database:
        if opencode.is_database(source):
            return FORMATS[opencode.NAME]
        raise Unreadable("is a database of another program")
    head = source.head()
    for each in FORMATS.values():
        try:
            if each.recognises(head, source):
                return each
        except _MISREADINGS:
            continue
    raise Unreadable("is in no format that is known")


def runs_in(source: Source, tally: Tally, force: str | None = None) -> Iterator[Recorded]:
    """The runs of a file that hold at least one step. Never raises; problems are in the tally."""
    try:
        found = FORMATS[force] if force else recognise(source)
        tally.formats[found.name] += source.first_line == 1
        for run in found.read(source, tally):
            if run.steps:
                tally.runs += 1
                yield run
            else:
                tally.empty += 1
    except Unreadable as problem:
        tally.problem(source.path, str(problem))
    except _MISREADINGS as error:
        # A shape that no reader foresaw: the rest of this file is lost, no other file is.
        tally.problem(source.path, f"is not as its format has it: {type(error).__name__}")


_MISREADINGS = (
    *(AttributeError, KeyError, IndexError, TypeError, ValueError, OverflowError),
    *(RecursionError, OSError),
)
