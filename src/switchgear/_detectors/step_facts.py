"""An agent's step as small numbers: its words, its action, the lines that came back.

The progress detectors compare steps. They keep no text but a few short excerpts: words,
lines, files and actions become numbers of 24 bits, the same in every process and version, so what
is stored stays small and holds no secrets. Only the beginnings and ends of texts are read,
so a step costs the same whatever an agent prints.

`re` and `zlib` cost a hook process milliseconds, so they are imported when a first step comes. No
pattern can explode: repeats are bounded, or of one class that nothing behind it shares.
"""

from collections.abc import Iterable
from typing import Any, NamedTuple

from switchgear._core.types import AgentStep, Signal
from switchgear._text.fingerprint import fingerprint

THOUGHT_CHARS = 400
"""Characters of a thought that are read: an agent states its intention at the beginning."""
ARGS_CHARS = 2_000
RESULT_CHARS = 4_000
"""Of a longer result, the first and the last half of these."""
MOST = 128
"""Words, lines or files that are kept of one step."""
FEWEST_WORDS = 3
"""A thought of fewer words is ignored."""
NUMBERS = 4
"""Numbers of a result that are compared."""
EXCERPT_CHARS = 60
_BITS = 0xFFFFFF

_DIGITS = r"[0-9](?:[xX][0-9a-fA-F]{1,64}|[0-9a-f]{7,39}\b|[0-9]*)"
"""What varies in an action: numbers, and what is written in hexadecimal and begins with a digit."""
_TIMES = (
    r"[0-9](?:[xX][0-9a-fA-F]{1,64}|[0-9]{3}-[0-9]{2}-[0-9]{2}|[0-9a-f]{7,39}\b"
    r"|[0-9]?:[0-9]{2}(?::[0-9]{2})?(?:[.,][0-9]{1,9})?"
    r"|[0-9]{0,4}m ?[0-9]{1,2}(?:\.[0-9]{1,9})?s\b"
    r"|[0-9]{0,8}(?:\.[0-9]{1,9})? ?(?:ns|us|µs|ms|s|secs?|seconds?|min|minutes?)\b)"
)
"""What varies in a result although nothing has changed: clocks, durations, addresses, digests.

Other numbers stay: a poll that sees 40 % after 30 % has learnt something. All begin with a digit,
which makes the search quick; of digests, those that do.
"""
_PATH_CHARS = r"[\w./:~-]{2,300}"
_EXTENSION = 5
"""Letters of the longest ending by which a name is a file's."""

_tools: "dict[str, Any]" = {}
"""Compiled patterns and the hash function, made at the first use and the same ever after."""
_latest: "list[tuple[AgentStep, ActFacts]]" = []
"""The facts of the last step, for the other detectors of the same step."""


class ActFacts(NamedTuple):
    """The facts of one step that detectors compare. Numbers stand for texts; none comes twice."""

    thought: frozenset[int]
    """The words of three letters and more of the thought."""
    words: tuple[int, ...]
    """The words of the action, in their order."""
    key: int
    """The action, but for its numbers."""
    lines: tuple[int, ...]
    """The lines of the result, but for clocks and durations."""
    paths: tuple[int, ...]
    """The files and addresses that the action names."""
    is_silent: bool
    """Whether nothing came back."""
    shape: int
    """The result, but for its numbers."""
    numbers: tuple[float, ...]
    """The last numbers of the last line that has any, outside clocks and durations."""
    names: tuple[int, ...]
    """The words of the action without their numbers."""
    call: int
    """The words of the action in their order: `22` and `"22"` are the same."""


def facts_of(act: AgentStep) -> ActFacts:
    """The numbers of a step.

    >>> facts_of(AgentStep("bash", "sed -n 1,9p a.py")).key == facts_of(AgentStep("bash", "sed -n 10,20p a.py")).key
    True
    """
    for latest, facts in _latest:
        if latest is act:
            return facts
    action = f"{act.tool} {act.args[:ARGS_CHARS]}"
    result = _ends(act.result or "").replace("\\n", "\n")
    lines = tuple(filter(None, map(str.strip, _tool("times").sub("#", result).split("\n"))))
    bare = _tool("digits").sub("#", action)
    words = _tool("word").findall(action.lower())
    facts = ActFacts(
        words_of(act.thought or ""),
        _numbers(words),
        number_of(" ".join(bare.split())),
        _numbers(lines),
        _numbers(filter(_is_path, _tool("path").findall(act.args[:ARGS_CHARS]))),
        not result or result.isspace(),
        *_shape(lines),
        _numbers(_tool("word").findall(bare.lower())),
        number_of(act.call_key or " ".join(words)),
    )
    _latest[:] = [(act, facts)]
    return facts


def _shape(lines: tuple[str, ...]) -> tuple[int, tuple[float, ...]]:
    """A number for the lines, but for their numbers; and the last of these."""
    few = lines if len(lines) <= MOST else (*lines[: MOST // 2], *lines[-MOST // 2 :])
    for line in reversed(few):
        if found := _tool("number").findall(line):
            return number_of(_tool("number").sub("#", "\n".join(few))), tuple(
                map(float, found[-NUMBERS:])
            )
    return number_of("\n".join(few)), ()


def words_of(text: str) -> frozenset[int]:
    """The words of three letters and more at the beginning of a text."""
    return frozenset(_numbers(_tool("long word").findall(text[:THOUGHT_CHARS].lower())))


def number_of(text: str) -> int:
    """A number of 24 bits that stands for a text."""
    hashed: int = _tool("crc32")(text.encode(errors="replace"))
    return hashed & _BITS


def failure_of(signal: Signal) -> int:
    """A number that stands for what went wrong; equal for errors that differ in variables only."""
    text = signal.error or (signal.step and signal.step.result) or ""
    return int(fingerprint(text[:ARGS_CHARS])[:6], 16)


def alike(one: frozenset[int], other: frozenset[int]) -> int:
    """How much two sets resemble each other, in percent: what they share of all they have.

    >>> alike(frozenset({1, 2, 3}), frozenset({2, 3, 4}))
    50
    """
    shared = len(one & other)
    return 100 * shared // (len(one) + len(other) - shared) if shared else 0


def excerpt(text: str) -> str:
    r"""The beginning of a text on one line, without what a terminal would obey.

    >>> excerpt("I apologise\x1b[2J for\nthe confusion. " * 9)
    'I apologise [2J for the confusion. I apologise [2J for the …'
    """
    text = text[: 4 * EXCERPT_CHARS]
    if not text.isprintable():
        text = "".join([char if char.isprintable() else " " for char in text])
    line = " ".join(text.split())
    return line if len(line) <= EXCERPT_CHARS else f"{line[: EXCERPT_CHARS - 1]}…"


def _is_path(word: str) -> bool:
    """Whether a word is a file or an address by its shape: `src/a`, `a.py`, `https://x.test`."""
    if "/" in word:
        return True
    name, _, ending = word.strip(".:").rpartition(".")
    return bool(name) and len(ending) <= _EXTENSION and ending.isalpha()


def _ends(text: str) -> str:
    if len(text) <= RESULT_CHARS:
        return text
    return f"{text[: RESULT_CHARS // 2]}\n{text[-RESULT_CHARS // 2 :]}"


def _numbers(texts: Iterable[str]) -> tuple[int, ...]:
    """The numbers of different texts; of too many, the first and the last."""
    crc32 = _tool("crc32")
    found = dict.fromkeys(texts)
    if len(found) > MOST:
        few = list(found)
        found = dict.fromkeys(few[: MOST // 2] + few[-MOST // 2 :])
    return tuple(dict.fromkeys([crc32(text.encode(errors="replace")) & _BITS for text in found]))


def _tool(name: str) -> Any:
    if not _tools:
        _tools.update(_made())
    return _tools[name]


def _made() -> dict[str, Any]:
    import re  # noqa: PLC0415  see the docstring of the module
    import zlib  # noqa: PLC0415

    return {
        "crc32": zlib.crc32,
        "word": re.compile(r"\w+"),
        "long word": re.compile(r"[^\W\d_]{3,}"),
        "digits": re.compile(_DIGITS),
        "number": re.compile(r"-?[0-9]{1,15}(?:\.[0-9]{1,15})?"),
        "times": re.compile(_TIMES),
        "path": re.compile(_PATH_CHARS),
    }
