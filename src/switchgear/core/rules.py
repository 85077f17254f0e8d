"""Absolute rules over what an agent is about to do: declared as patterns, judged before the act.

A rule names what it is about (tools, commands, paths, hosts, contents, inputs) and is broken by a
call that has a match in every one of them which no allow-list excuses. Judging is pure: whoever
asks says where the workspace is and how links are followed.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from switchgear.core import record
from switchgear.core.deeds import Deed, Place, deed_of
from switchgear.core.keys import key_in
from switchgear.core.patterns import (
    LONGEST_PATTERN,
    is_wild,
    name_matches,
    path_is_above,
    path_matches,
    paths_meet,
    telling_part,
    text_contains,
)
from switchgear.core.record import Record

SECRET = "@secret"  # noqa: S105  the name of a pattern
"""The pattern of contents that is found where something looks like a key."""
GUARD = "@guard"
"""The pattern of paths that stands for all protected ones (`Place.protected`)."""
LONGEST_SHOWN = 120
ASPECTS = (
    *("tools", "hosts", "commands", "inputs", "paths", "writes", "deletes", "sends", "given"),
    "contents",
)
"""What a rule can be about; the last that matches is what is shown."""
ALLOWED = ("tools", "hosts", "commands", "paths")
Patterns = tuple[str, ...]


class Broken(NamedTuple):
    """A rule that a call would break. As a text: one line."""

    rule: str
    what: str
    """The part of the call that breaks it, cut and cleaned; redact it before it is kept."""
    why: str

    def __str__(self) -> str:
        return f"rule {self.rule}: {self.what}" + (f" ({self.why})" if self.why else "")


class Rule(Record):
    """One absolute rule.

    It is broken by a call that has, of each aspect given, something that matches one of its
    patterns and none of the allowed ones.

    `commands` are patterns of words: the first is the program, each other must be found behind it,
    in any order; `-f` is found in `-fu` too. `paths` are those read, written or deleted, `writes`
    those written or deleted, `sends` those that go to a host, `given` those named to a program or a
    tool of which it is not known that it only reads them; relative ones are of the workspace, `~` is
    home, `**` any folders. What is forbidden is so in upper and in lower case.

    >>> rule = Rule("no-prod", commands=("kubectl --context=prod*",), why="production is not yours")
    >>> str(judge([rule], "Bash", {"command": "kubectl get po --context=prod-1"}, Place("/w")))
    'rule no-prod: kubectl get po --context=prod-1 (production is not yours)'
    """

    __slots__ = (
        *("name", "why", *ASPECTS),
        *("allow_tools", "allow_hosts", "allow_commands", "allow_paths"),
    )
    name: str
    why: str
    tools: Patterns
    commands: Patterns
    paths: Patterns
    writes: Patterns
    deletes: Patterns
    sends: Patterns
    given: Patterns
    hosts: Patterns
    contents: Patterns
    inputs: Patterns
    allow_tools: Patterns
    allow_commands: Patterns
    allow_paths: Patterns
    allow_hosts: Patterns

    def __init__(self, name: str, why: str = "", **patterns: Iterable[str]) -> None:
        known = type(self).__slots__[2:]
        for field in patterns:
            if field not in known:
                raise ValueError(f"Rule.{field} is unknown: it must be one of {', '.join(known)}")
        fields: dict[str, Patterns] = dict.fromkeys(known, ())
        fields |= {field: _patterns(f"Rule.{field}", value) for field, value in patterns.items()}
        if not any(fields[aspect] for aspect in ASPECTS):
            raise ValueError(f"Rule.name is {name!r}: a rule needs one of {', '.join(ASPECTS)}")
        if not isinstance(why, str):
            raise ValueError(f"Rule.why is {why!r}: it must be a text")
        self._set(name=record.text("Rule.name", name), why=why, **fields)


def judge(rules: Iterable[Rule], tool: str, inputs: Any, place: Place) -> Broken | None:
    """The first rule that a call of this tool with these inputs would break, or `None`.

    `inputs` as parsed from JSON. What is too long or too deep to be read breaks the rule `readable`.

    >>> rule = Rule("stay", writes=("/**",), allow_paths=("./**",))
    >>> judge([rule], "Write", {"file_path": "notes.md"}, Place("/w")) is None
    True
    >>> judge([rule], "Write", {"file_path": "/etc/hosts"}, Place("/w")).what
    '/etc/hosts'
    """
    return judge_deed(rules, deed_of(tool, inputs, place), place)


def judge_deed(rules: Iterable[Rule], deed: Deed, place: Place) -> Broken | None:
    """The same for a deed that is known already."""
    rules = tuple(rules)
    if deed.unread and rules:
        return Broken("readable", deed.unread, "what cannot be read cannot be judged")
    paths = _Paths(place)
    for rule in rules:
        found = _breaks(rule, deed, paths)
        if found is not None:
            return Broken(rule.name, one_line(found), rule.why)
    return None


def _breaks(rule: Rule, deed: Deed, paths: "_Paths") -> str | None:
    """What breaks the rule, if anything does."""
    if any(name_matches(pattern, deed.tool) for pattern in rule.allow_tools):
        return None
    telling = ""
    for aspect in ASPECTS:
        if not getattr(rule, aspect):
            continue
        found = next(_matching(rule, aspect, deed, paths), None)
        if found is None:
            return None
        telling = found
    return telling


def _matching(rule: Rule, aspect: str, deed: Deed, paths: "_Paths") -> Iterator[str]:
    """What of the deed breaks this aspect of the rule."""
    patterns: Patterns = getattr(rule, aspect)
    if aspect == "tools":
        yield from (deed.tool for pattern in patterns if name_matches(pattern, deed.tool))
    elif aspect == "commands":
        for words in deed.commands:
            if _any_command(patterns, words) and not _any_command(rule.allow_commands, words):
                yield " ".join(words)
    elif aspect == "hosts":
        for host in deed.hosts:
            if _any_name(patterns, host) and not _any_name(rule.allow_hosts, host):
                yield host
    elif aspect == "inputs":
        yield from (value for value in deed.inputs if _any_name(patterns, value))
    elif aspect == "contents":
        for text in deed.texts:
            yield from (found for pattern in patterns if (found := _in_text(pattern, text)))
    else:
        yield from paths.matching(aspect, patterns, rule.allow_paths, deed)


class _Paths:
    """Patterns and paths as seen from one place. Used by one thread, for one call."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._known: dict[Patterns, list[tuple[str, str]]] = {}
        self._roots = [place.workspace.rstrip("/") or "/"]
        if place.resolve is not None:
            self._roots.append(place.resolve(place.workspace).rstrip("/") or "/")

    def matching(
        self, aspect: str, patterns: Patterns, allowed: Patterns, deed: Deed
    ) -> Iterator[str]:
        """Paths of the deed that match a pattern and are not excused."""
        touched = list(_touched(aspect, deed))
        denied = self._denied(patterns) if touched else []
        excused = self._absolute(allowed) if touched else []
        for path, how in touched:
            forms = self._forms(path, is_deleted=how == "deletes")
            if not any(_hits(form.lower(), denied, how) for form in forms):
                continue
            if not all(any(path_matches(good, form) for good in excused) for form in forms):
                yield path

    def _denied(self, patterns: Patterns) -> list[tuple[str, str]]:
        """Patterns of what is forbidden, in lower case, each behind its telling part.

        Some file systems take upper case for lower: what is forbidden is so in both.
        """
        found = self._known.get(patterns)
        if found is None:
            small = [pattern.lower() for pattern in self._absolute(patterns)]
            found = self._known[patterns] = [(telling_part(each), each) for each in small]
        return found

    def _forms(self, path: str, *, is_deleted: bool) -> list[str]:
        """The path as written and with its links followed; deleting a link leaves what it leads to."""
        resolve = self._place.resolve
        if resolve is None:
            return [path]
        folder, _, name = path.rpartition("/")
        real = f"{resolve(folder or '/').rstrip('/')}/{name}" if is_deleted else resolve(path)
        return [path, real] if real != path else [path]

    def _absolute(self, patterns: Sequence[str]) -> list[str]:
        """Patterns with the workspace, home and the guard's own paths filled in."""
        found: list[str] = []
        for pattern in patterns:
            if pattern == GUARD:
                found += self._absolute(self._place.protected)
            elif pattern.startswith("~"):
                if self._place.home:
                    found.append(self._place.home.rstrip("/") + pattern[1:])
            elif pattern.startswith(("/", "**")):
                found.append(pattern)
            else:
                found += [f"{root}/{pattern.removeprefix('./')}" for root in self._roots]
        return found


def _hits(path: str, denied: Sequence[tuple[str, str]], how: str) -> bool:
    """Whether a path is forbidden: by its name, by what lies in it, or by what a shell makes of it."""
    for part, pattern in denied:
        if part in path and path_matches(pattern, path):
            return True
        if how == "deletes" and path_is_above(path, pattern):
            return True
        if how in {"deletes", "writes"} and is_wild(path) and paths_meet(path, pattern):
            return True
    return False


def _touched(aspect: str, deed: Deed) -> Iterator[tuple[str, str]]:
    """Paths of an aspect, and what is done to them."""
    if aspect in {"sends", "given"}:
        yield from ((path, aspect) for path in getattr(deed, aspect))
        return
    for how in {"deletes": ("deletes",), "writes": ("deletes", "writes")}.get(
        aspect, ("deletes", "writes", "reads")
    ):
        yield from ((path, how) for path in getattr(deed, how))


def _any_name(patterns: Patterns, name: str) -> bool:
    return any(name_matches(pattern, name) for pattern in patterns)


def _any_command(patterns: Patterns, words: Sequence[str]) -> bool:
    program = words[0]
    return any(
        _is_command(pattern.split(), words)
        for pattern in patterns
        if name_matches(pattern.partition(" ")[0], program)
    )


def _is_command(pattern: Sequence[str], words: Sequence[str]) -> bool:
    """Whether what is behind the program has those words, in any order."""
    return all(any(_is_word(wanted, word) for word in words[1:]) for wanted in pattern[1:])


def _is_word(wanted: str, word: str) -> bool:
    if len(wanted) == 2 and wanted[0] == "-" != wanted[1]:
        return word[:1] == "-" != word[1:2] and wanted[1] in word[1:].partition("=")[0]
    return name_matches(wanted, word)


def _in_text(pattern: str, text: str) -> str:
    """What of a text matches, named so that it may be shown."""
    if pattern == SECRET:
        kind = key_in(text)
        return f"what looks like {kind}" if kind else ""
    return f"{pattern!r}" if text_contains(pattern, text) else ""


def one_line(text: str) -> str:
    """A text of an agent on one line, cut, with nothing in it that a terminal would obey."""
    text = " ".join(text.split())
    text = "".join(sign if sign.isprintable() else "?" for sign in text[: LONGEST_SHOWN + 1])
    return text if len(text) <= LONGEST_SHOWN else text[: LONGEST_SHOWN - 1] + "…"


def _patterns(field: str, value: Iterable[str]) -> Patterns:
    if isinstance(value, str) or not all(isinstance(each, str) for each in value):
        raise ValueError(f"{field} is {value!r}: it must be a list of texts")
    patterns = tuple(value)
    for pattern in patterns:
        if not pattern.strip() or len(pattern) > LONGEST_PATTERN:
            rule = f"must have 1 to {LONGEST_PATTERN} characters"
            raise ValueError(f"{field} has {pattern[:60]!r}: a pattern {rule}")
    return patterns
