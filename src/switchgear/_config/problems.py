"""Problems of a configuration file, each with its place and what to do.

Problems are collected and not raised one by one, so that reading a file reports all of them.
"""

import os
import re
from collections.abc import Iterable
from typing import Any, NamedTuple, NoReturn

from switchgear._core.errors import SwitchgearError

SECONDS, DOLLARS = "_seconds", "_dollars"
_TIMES = {SECONDS: 1.0, "_s": 1.0, "_ms": 0.001, "_days": 86_400.0}
_AMOUNTS = {DOLLARS: 1_000_000.0, "_micros": 1.0}
_KEPT = frozenset({"_days"})
"""Endings that are not replaced by the standard one, because they name a larger unit."""


class Argument(NamedTuple):
    """The constructor argument that a key stands for."""

    name: str
    factor: float
    """The value of the key is multiplied by this."""


def key_of(name: str) -> str:
    """The key of the file for a constructor argument.

    >>> key_of("timeout_s"), key_of("hard_cap_micros"), key_of("baseline_p95_ms"), key_of("name")
    ('timeout_seconds', 'hard_cap_dollars', 'baseline_p95_seconds', 'name')
    """
    for endings, key in ((_TIMES, SECONDS), (_AMOUNTS, DOLLARS)):
        stem, ending = _split(name, endings)
        if ending and ending not in _KEPT:
            return stem + key
    return name


def argument_of(key: str, allowed: Iterable[str]) -> Argument | None:
    """The allowed argument that a key with another unit stands for; `None` if there is none.

    >>> argument_of("timeout_seconds", ["name", "timeout_s"])
    Argument(name='timeout_s', factor=1.0)
    >>> argument_of("hard_cap_dollars", ["hard_cap_micros"])
    Argument(name='hard_cap_micros', factor=1000000.0)
    """
    names = set(allowed)
    for endings in (_TIMES, _AMOUNTS):
        stem, ending = _split(key, endings)
        if not ending:
            continue
        for other, size in endings.items():
            if stem + other in names:
                return Argument(stem + other, endings[ending] / size)
    return None


def converted(value: object, factor: float, name: str) -> object:
    """A value in the unit of the argument; if it is not a number, unchanged, for a later check."""
    if isinstance(value, bool) or not isinstance(value, int | float) or factor == 1.0:
        return value
    found = value * factor
    near = round(found)
    if name.endswith("_micros") and abs(found - near) < 1e-6 * max(1.0, abs(found)):
        return near
    return float(f"{found:.15g}")


def _split(name: str, endings: dict[str, float]) -> tuple[str, str]:
    for ending in endings:
        if name.endswith(ending) and name != ending:
            return name.removesuffix(ending), ending
    return name, ""


LONGEST_SHOWN = 60
"""Maximum length of a value or key in a message, in characters."""
LONGEST_MESSAGE = 400
MOST_PROBLEMS = 100
"""Maximum number of reported problems; a file of garbage would have thousands."""
MOST_NAMES = 500
"""Maximum number of names that are searched for a suggestion."""
_PLAIN_NAME = re.compile(r"[\w/*?+-]+", re.ASCII)


class Problem(NamedTuple):
    """One error: file, line, key and message."""

    path: str
    line: int | None
    """The line, from 1; `None`: the whole file."""
    key: str
    """A key such as `policies.patient.detectors[0].failure_rate.window`; empty: the whole document."""
    message: str

    def __str__(self) -> str:
        where = self.path if self.line is None else f"{self.path}:{self.line}"
        return f"{where}: {self.key}: {self.message}" if self.key else f"{where}: {self.message}"


class ConfigError(SwitchgearError):
    """A configuration file that cannot be used. `problems` lists all errors."""

    args: tuple[tuple[Problem, ...]]

    @property
    def problems(self) -> tuple[Problem, ...]:
        """All errors, in the order of the lines."""
        return self.args[0]

    def __str__(self) -> str:
        return "\n".join(map(str, self.problems))


class ConfigNode(NamedTuple):
    """A value of the document with its line and key."""

    value: Any
    """A text, number, truth value or `None`; a list of nodes; or a dict of nodes by name."""
    line: int | None = None
    key: str = ""

    def plain(self) -> Any:
        """The value without lines and keys."""
        if isinstance(self.value, dict):
            return {name: node.plain() for name, node in self.value.items()}
        if isinstance(self.value, list):
            return [node.plain() for node in self.value]
        return self.value


class Report:
    """Collects the problems of one file. Used by one thread."""

    def __init__(self, path: str) -> None:
        self.path = _shown_path(path)
        self.added = 0
        """The number of problems found so far, also repeated ones; if it grows, a part has a problem."""
        self._problems: dict[Problem, None] = {}  # a part inherited twice is reported once
        self._notes: dict[Problem, None] = {}
        self._unreadable: set[str] = set()

    def add(self, node: ConfigNode, message: str) -> None:
        self.added += 1
        if node.key in self._unreadable:
            return
        self._problems[Problem(self.path, node.line, node.key, _shorten_quotes(message))] = None
        if len(self._problems) >= MOST_PROBLEMS:
            self.fail(None, f"has {MOST_PROBLEMS} problems or more; fix these first")

    def add_unreadable(self, node: ConfigNode, message: str) -> None:
        """Report a value that cannot be read; further problems with it are not reported."""
        self.add(node, message)
        self._unreadable.add(node.key)

    def note(self, node: ConfigNode, message: str) -> None:
        """Note something outdated that is still accepted."""
        if len(self._notes) < MOST_PROBLEMS:
            self._notes[Problem(self.path, node.line, node.key, _shorten_quotes(message))] = None

    @property
    def notes(self) -> tuple[Problem, ...]:
        """Notes about outdated keys that are still accepted, in the order of the lines."""
        return tuple(sorted(self._notes, key=lambda problem: problem.line or 0))

    def fail(self, line: int | None, message: str) -> NoReturn:
        """Report a problem that makes further checks useless, and raise all problems."""
        self._problems[Problem(self.path, line, "", _shorten_quotes(message))] = None
        raise self.error()

    def error(self) -> ConfigError:
        by_line = sorted(self._problems, key=lambda problem: problem.line or 0)
        return ConfigError(tuple(by_line))

    def raise_if_any(self) -> None:
        """Raise the collected problems, if there are any."""
        if self._problems:
            raise self.error()

    # Used by all sections

    def mapping(
        self, node: ConfigNode, allowed: Iterable[str] | None = None
    ) -> dict[str, ConfigNode]:
        """The entries of a node that must be a mapping; unknown keys are reported and skipped.

        An empty node is an empty mapping, as in a section whose lines are all commented out.
        """
        if node.value is None:
            return {}
        if not isinstance(node.value, dict):
            self.add(node, f"is {shown(node.value)}: it must be a mapping of keys to values")
            return {}
        if allowed is None:
            return node.value
        names = list(allowed)
        found: dict[str, ConfigNode] = {}
        for key, child in node.value.items():
            argument = Argument(key, 1.0) if key in names else argument_of(key, names)
            if argument is None:
                known = dict.fromkeys(map(key_of, names))
                self.add(child, f"unknown key; {suggestion(key, known)}")
                continue
            if argument.name in found:
                known_key = shown(found[argument.name].key)
                self.add(child, f"means the same as {known_key}: keep one of them")
                continue
            # A key of an earlier version; a node of a built-in preset has no line.
            if key_of(key) != key and child.line is not None:
                self.note(child, f"is accepted; the key is {key_of(key)!r} now")
            value = converted(child.value, argument.factor, argument.name)
            found[argument.name] = child._replace(value=value)
        return found

    def items(self, node: ConfigNode) -> list[ConfigNode]:
        """The items of a node that must be a list; an empty node is an empty list."""
        if node.value is None:
            return []
        if not isinstance(node.value, list):
            self.add(node, f"is {shown(node.value)}: it must be a list")
            return []
        return node.value


def suggestion(name: str, allowed: Iterable[str]) -> str:
    """`did you mean 'threshold'?`, or the allowed names if none is similar."""
    import difflib  # noqa: PLC0415  only needed for errors

    names = list(allowed)[:MOST_NAMES]
    near = difflib.get_close_matches(name[:LONGEST_SHOWN], names, n=1)
    if near:
        return f"did you mean {near[0]!r}?"
    return "allowed: " + ", ".join(sorted(names)) if names else "no key is allowed here"


def shown(value: Any) -> str:
    """A value for a message: short, on one line, without control characters."""
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list):
        return "a list"
    if value is None or isinstance(value, bool):
        return {None: "empty", True: "true", False: "false"}[value]
    text = repr(value)
    return text if len(text) <= LONGEST_SHOWN else text[: LONGEST_SHOWN - 1] + "…"


def join(key: str, name: str | int) -> str:
    """The key of a child: `policies.patient`, `detectors[0]`, `circuits["a.b"]`."""
    if isinstance(name, int):
        return f"{key}[{name}]"
    if not _PLAIN_NAME.fullmatch(name) or len(name) > LONGEST_SHOWN:
        return f"{key}[{shown(name)}]"
    return f"{key}.{name}" if key else name


def _shorten_quotes(message: str) -> str:
    """A message of a constructor or parser, without its middle if it is long, and printable."""
    if len(message) > LONGEST_MESSAGE:
        message = f"{message[: LONGEST_MESSAGE // 2]} … {message[-LONGEST_MESSAGE // 2 :]}"
    return message if message.isprintable() else ascii(message)[1:-1]


def _shown_path(path: str) -> str:
    """The path for messages, relative if it is in the current folder, on one line."""
    try:
        near = os.path.relpath(path)
    except (OSError, ValueError):
        near = path
    name = path if near.startswith("..") else near
    return name if name.isprintable() else ascii(name)
