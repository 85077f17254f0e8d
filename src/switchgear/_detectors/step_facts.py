"""An agent's step as small numbers: its words, its action, the lines of its result.

The progress detectors compare steps. They keep only a few short excerpts of text: words, lines,
files and actions become numbers of 24 bits, the same in every process and version, so the stored
memory is small and contains no secrets. Only the beginnings and ends of texts are read, so the time
per step is bounded.

Importing `re` and `zlib` takes a hook process milliseconds, so they are imported at the first step.
Matching takes linear time: repeats are bounded, or of one class that does not occur after them.
"""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from switchgear._core.types import AgentStep, Signal
from switchgear._text.fingerprint import fingerprint

THOUGHT_CHARS = 400
"""Characters of a thought that are read: an agent states its intention at the beginning."""
ARGS_CHARS = 2_000
RESULT_CHARS = 4_000
"""Characters of a result that are read; of a longer one, the first and the last half of these."""
FAILURE_CHARS = 1_000
"""The same for the shape of a failure: longer ones have enough lines to compare."""
MOST = 128
"""Maximum number of words, lines or files of one step."""
FEWEST_WORDS = 3
"""A thought of fewer words is ignored."""
NUMBERS = 4
"""Number of numbers of a result that are compared."""
EXCERPT_CHARS = 60
_BITS = 0xFFFFFF

_DIGITS = r"[0-9](?:[xX][0-9a-fA-F]{1,64}|[0-9a-f]{7,39}\b|[0-9]*)"
"""The variable parts of an action: numbers, and hexadecimal numbers that begin with a digit."""
_TIMES = (
    r"[0-9](?:[xX][0-9a-fA-F]{1,64}|[0-9]{3}-[0-9]{2}-[0-9]{2}|[0-9a-f]{7,39}\b"
    r"|[0-9]?:[0-9]{2}(?::[0-9]{2})?(?:[.,][0-9]{1,9})?"
    r"|[0-9]{0,4}m ?[0-9]{1,2}(?:\.[0-9]{1,9})?s\b"
    r"|[0-9]{0,8}(?:\.[0-9]{1,9})? ?(?:ns|us|µs|ms|s|secs?|seconds?|min|minutes?)\b)"
)
"""The parts of a result that vary without a change: clocks, durations, addresses, digests.

Other numbers stay: a poll that returns 40 % after 30 % shows progress. All begin with a digit,
which makes the search fast.
"""
_UUID_REST = r"-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}(?![0-9A-Za-z])"
_UUID_CHARS = 36
_TWO_NUMBERS = r"[0-9][A-Za-z]+[0-9][A-Za-z0-9]*"
_IDENTIFIER = (
    r"(?![0-9]+[eE][0-9]+$)[0-9a-fA-F]{6,}$|(?=.{6})[^0-9]*[0-9]+[^0-9]+[0-9]+[^0-9]+[0-9]"
)
"""Words of six characters that vary: hexadecimal ones with digits in two places, or digits in three.

So `cb45b7` and the digest of a commit. Names with one or two numbers stay, as `step12`, `S01E05` or
`page1of20`, and so do numbers with an exponent: they may count something.
"""
_DIGIT_WORD = (
    r"(?<!ttempt )(?<!etry )(?P<count>[0-9]{1,15}(?:\.[0-9]{1,9})?(?: ?[A-Za-z]{1,9})?"
    r"(?: ?%| of [0-9]{1,15}| ?/ ?[0-9]{1,15}\b(?!/)))|[0-9#][\w.#]*"
)
"""A word from its first digit on; or a count with its total or percent sign, which shows progress.

Attempts are not counts, with or without their maximum.
"""
_PATH_CHARS = r"[\w./:~-]{2,300}"
_EXTENSION = 5
"""Maximum length of a file extension."""

_patterns: "dict[str, Any]" = {}
"""Compiled patterns and the hash function, created on first use."""
_latest: "list[tuple[AgentStep, ActFacts]]" = []
"""The facts of the last step, for the other detectors of the same step."""


class ActFacts(NamedTuple):
    """The facts of one step that detectors compare. Numbers represent texts, without duplicates."""

    thought: frozenset[int]
    """The words of three letters and more of the thought."""
    words: tuple[int, ...]
    """The words of the action, in order."""
    key: int
    """The action without its numbers."""
    lines: tuple[int, ...]
    """The lines of the result without clocks, durations and identifiers."""
    paths: tuple[int, ...]
    """The files and addresses that the action names."""
    is_silent: bool
    """Whether the result is empty."""
    shape: int
    """The result without its numbers."""
    numbers: tuple[float, ...]
    """The last numbers of the last line that has any, outside clocks and durations."""
    names: tuple[int, ...]
    """The words of the action without their numbers."""
    call: int
    """The sequence of the words of the action: `22` and `"22"` are the same."""


def facts_of(act: AgentStep) -> ActFacts:
    """The numbers of a step.

    >>> facts_of(AgentStep("bash", "sed -n 1,9p a.py")).key == facts_of(AgentStep("bash", "sed -n 10,20p a.py")).key
    True
    """
    for latest, facts in _latest:
        if latest is act:
            return facts
    action = f"{act.tool} {act.args[:ARGS_CHARS]}"
    lines = _lines(act.result or "")
    bare = _pattern("digits").sub("#", action)
    words = _pattern("word").findall(action.lower())
    facts = ActFacts(
        words_of(act.thought or ""),
        _numbers(words),
        number_of(" ".join(bare.split())),
        _numbers(lines),
        _numbers(filter(_is_path, _pattern("path").findall(act.args[:ARGS_CHARS]))),
        not lines,
        *_shape_and_numbers(lines),
        _numbers(_pattern("word").findall(bare.lower())),
        number_of(act.call_key or " ".join(words)),
    )
    _latest[:] = [(act, facts)]
    return facts


def _lines(result: str) -> tuple[str, ...]:
    """The lines of a result without clocks, durations and identifiers."""
    text = _ends(result).replace("\\n", "\n")
    text = _mask_words("rest of a UUID", text, lambda found: len(found) == _UUID_CHARS)
    text = _mask_words("two numbers", text, _pattern("identifier").match)
    return tuple(filter(None, map(str.strip, _pattern("times").sub("#", text).split("\n"))))


def _mask_words(pattern: str, text: str, is_masked: Callable[[str], object] = bool) -> str:
    """Replace each match and the letters before it by `#`, if `is_masked`; counts stay.

    The patterns begin with a digit or a hyphen, which makes the search fast.
    """
    parts, at = [], 0
    for found in _pattern(pattern).finditer(text):
        start, end = found.span()
        while start > at and text[start - 1].isalnum():
            start -= 1
        if found.lastgroup != "count" and is_masked(text[start:end]):
            parts.append(text[at:start])
            at = end
    return "#".join([*parts, text[at:]])


def _shape_and_numbers(lines: tuple[str, ...]) -> tuple[int, tuple[float, ...]]:
    """A number for the lines without their numbers, and the last numbers."""
    few = lines if len(lines) <= MOST else (*lines[: MOST // 2], *lines[-MOST // 2 :])
    for line in reversed(few):
        if found := _pattern("number").findall(line):
            return number_of(_pattern("number").sub("#", "\n".join(few))), tuple(
                map(float, found[-NUMBERS:])
            )
    return number_of("\n".join(few)), ()


def words_of(text: str) -> frozenset[int]:
    """The words of three letters and more at the beginning of a text."""
    return frozenset(_numbers(_pattern("long word").findall(text[:THOUGHT_CHARS].lower())))


def number_of(text: str) -> int:
    """A number of 24 bits that represents a text."""
    hashed: int = _pattern("crc32")(text.encode(errors="replace"))
    return hashed & _BITS


def failure_shape(result: str) -> int:
    """A number for the result of a failed call without its words that contain a digit, except counts."""
    return number_of(_mask_words("digit word", "\n".join(_lines(_ends(result, FAILURE_CHARS)))))


def failure_of(signal: Signal) -> int:
    """A number that represents an error; equal for errors that differ only in variable parts."""
    text = signal.error or (signal.step and signal.step.result) or ""
    return int(fingerprint(text[:ARGS_CHARS])[:6], 16)


def resemblance(one: frozenset[int], other: frozenset[int]) -> int:
    """The resemblance of two sets in percent: the size of the intersection divided by that of the union.

    >>> resemblance(frozenset({1, 2, 3}), frozenset({2, 3, 4}))
    50
    """
    shared = len(one & other)
    return 100 * shared // (len(one) + len(other) - shared) if shared else 0


def excerpt(text: str) -> str:
    r"""The beginning of a text on one line, without control characters.

    >>> excerpt("I apologise\x1b[2J for\nthe confusion. " * 9)
    'I apologise [2J for the confusion. I apologise [2J for the …'
    """
    text = text[: 4 * EXCERPT_CHARS]
    if not text.isprintable():
        text = "".join([char if char.isprintable() else " " for char in text])
    line = " ".join(text.split())
    return line if len(line) <= EXCERPT_CHARS else f"{line[: EXCERPT_CHARS - 1]}…"


def _is_path(word: str) -> bool:
    """Whether a word looks like a file or an address: `src/a`, `a.py`, `https://x.test`."""
    if "/" in word:
        return True
    name, _, ending = word.strip(".:").rpartition(".")
    return bool(name) and len(ending) <= _EXTENSION and ending.isalpha()


def _ends(text: str, most: int = RESULT_CHARS) -> str:
    return text if len(text) <= most else f"{text[: most // 2]}\n{text[-most // 2 :]}"


def _numbers(texts: Iterable[str]) -> tuple[int, ...]:
    """The numbers of texts without duplicates; of too many, the first and the last."""
    crc32 = _pattern("crc32")
    found = dict.fromkeys(texts)
    if len(found) > MOST:
        few = list(found)
        found = dict.fromkeys(few[: MOST // 2] + few[-MOST // 2 :])
    return tuple(dict.fromkeys([crc32(text.encode(errors="replace")) & _BITS for text in found]))


def _pattern(name: str) -> Any:
    if not _patterns:
        _patterns.update(_compile_patterns())
    return _patterns[name]


def _compile_patterns() -> dict[str, Any]:
    import re  # noqa: PLC0415  see the docstring of the module
    import zlib  # noqa: PLC0415

    return {
        "crc32": zlib.crc32,
        "word": re.compile(r"\w+"),
        "long word": re.compile(r"[^\W\d_]{3,}"),
        "digits": re.compile(_DIGITS),
        "number": re.compile(r"-?[0-9]{1,15}(?:\.[0-9]{1,15})?"),
        "times": re.compile(_TIMES),
        "rest of a UUID": re.compile(_UUID_REST),
        "two numbers": re.compile(_TWO_NUMBERS),
        "identifier": re.compile(_IDENTIFIER),
        "digit word": re.compile(_DIGIT_WORD),
        "path": re.compile(_PATH_CHARS),
    }
