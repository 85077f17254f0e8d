"""Absolute rules: what they are about, which call breaks them, and their form as JSON values."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from switchgear._core import values
from switchgear._core.values import Value
from switchgear._rules.effects import Place, call_effects
from switchgear._rules.hosts import is_loopback
from switchgear._rules.options import is_short, with_next
from switchgear._rules.patterns import (
    ANY,
    LONGEST_PATTERN,
    is_glob,
    name_matches,
    path_is_above,
    path_matches,
    paths_meet,
    required_text,
    text_contains,
    word_list,
    word_set,
)
from switchgear._rules.program_effects import Effects
from switchgear._rules.programs import OPERATED
from switchgear._rules.shell.words import UNKNOWN, TooLong

_UPPER = "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
_ALPHABET = f"abcdefghijklmnopqrstuvwxyz{_UPPER}_-"
_FORMS: tuple[tuple[str, int, str, str], ...] = (
    ("sk-ant-", 40, _ALPHABET, "an Anthropic key"),
    ("sk-proj-", 40, _ALPHABET, "an OpenAI key"),
    ("sk-", 40, _ALPHABET, "a provider's key"),
    ("sk_live_", 20, _ALPHABET, "a Stripe key"),
    ("rk_live_", 20, _ALPHABET, "a Stripe key"),
    ("AKIA", 16, _UPPER, "an AWS key"),
    ("ASIA", 16, _UPPER, "an AWS key"),
    ("AIza", 35, _ALPHABET, "a Google key"),
    ("ghp_", 36, _ALPHABET, "a GitHub token"),
    ("gho_", 36, _ALPHABET, "a GitHub token"),
    ("ghs_", 36, _ALPHABET, "a GitHub token"),
    ("github_pat_", 50, _ALPHABET, "a GitHub token"),
    ("glpat-", 20, _ALPHABET, "a GitLab token"),
    ("xoxb-", 24, _ALPHABET, "a Slack token"),
    ("xoxp-", 24, _ALPHABET, "a Slack token"),
    ("hf_", 30, _ALPHABET, "a Hugging Face token"),
    ("npm_", 36, _ALPHABET, "an npm token"),
    ("pypi-", 80, _ALPHABET, "a PyPI token"),
)
"""Prefix, minimum length of the rest, its characters, and the name of the kind."""
_PEM = ("-----BEGIN ", "PRIVATE KEY-----")
_PLACEHOLDERS = word_list("example your xxxx dummy fake placeholder redacted 1234567890")
_MOST = 10_000
"""Occurrences of one prefix that are checked in a text."""
_LEAST_DIFFERENT = 9


def key_in(text: str) -> str | None:
    """What kind of key a text seems to contain, or `None`.

    >>> key_in("token ghp_" + "a1B2c3D4e5F6g7H8i9J0" * 2)
    'a GitHub token'
    >>> key_in("export OPENAI_API_KEY=sk-your-key-here") is None
    True
    """
    start = text.find(_PEM[0])
    if start >= 0 and 0 <= text.find(_PEM[1], start) - start < 60:
        return "a private key"
    for beginning, least, alphabet, kind in _FORMS:
        at = text.find(beginning)
        for _ in range(_MOST):
            if at < 0:
                break
            end = at + len(beginning)
            is_start = at == 0 or text[at - 1] not in _ALPHABET
            rest = text[end : end + 300]
            if is_start and _is_key(rest[: len(rest) - len(rest.lstrip(alphabet))], least):
                return kind
            at = text.find(beginning, end)
    return None


def _is_key(body: str, least: int) -> bool:
    if len(body) < least or len(set(body)) < _LEAST_DIFFERENT:
        return False
    small = body.lower()
    has_digit = any(sign.isdigit() for sign in body)
    return has_digit and not any(word in small for word in _PLACEHOLDERS)


SECRET = "@secret"  # noqa: S105  the name of a pattern
"""The pattern of contents that is found where something looks like a key."""
GUARD = "@guard"
"""The pattern of paths that stands for all protected ones (`Place.protected`)."""
LOOPBACK = "@loopback"
"""The pattern of hosts that stands for this machine, by its addresses and by `localhost`."""
LONGEST_SHOWN = 120
MOST_PATHS = 1_500
"""Paths of one call whose links are followed."""
GUARD_FOLDERS = word_set(".claude .codex .gemini .qwen .opencode .pi .switchgear switchgear")
"""Folders that are the guard's, or an agent's with its hooks, by their names."""
ASPECTS = (
    *("tools", "hosts", "commands", "inputs", "paths", "writes", "deletes", "sends", "given"),
    *("variables", "contents"),
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


class Rule(Value):
    """One absolute rule.

    It is broken by a call that has, of each aspect given, something that matches one of its
    patterns and none of the allowed ones.

    `commands` are patterns of words: the first is the program, each other must be found behind it,
    in any order; `-f` is found in `-fu` too. `paths` are those read, written or deleted, `writes`
    those written or deleted, `sends` those that go to a host, `given` those named to a program or a
    tool of which it is not known that it only reads them; relative ones are of the workspace, `~` is
    home, `**` any folders. An option and its value are found as `--a=b`, `--a b`, `-ab` and `-a b`. What is forbidden is so in upper and in lower case.

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
    variables: Patterns
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
        self._set(name=values.check_text("Rule.name", name), why=why, **fields)


def judge(rules: Iterable[Rule], tool: str, inputs: Any, place: Place) -> Broken | None:
    """The first rule that a call of this tool with these inputs would break, or `None`.

    `inputs` as parsed from JSON. A call that is too long or too deeply nested to be analysed breaks the rule `readable`.

    >>> rule = Rule("stay", writes=("/**",), allow_paths=("./**",))
    >>> judge([rule], "Write", {"file_path": "notes.md"}, Place("/w")) is None
    True
    >>> judge([rule], "Write", {"file_path": "/etc/hosts"}, Place("/w")).what
    '/etc/hosts'
    """
    return judge_effects(rules, call_effects(tool, inputs, place), place)


def judge_effects(rules: Iterable[Rule], effects: Effects, place: Place) -> Broken | None:
    """The same for the effects of a call."""
    rules = tuple(rules)
    if effects.unread and rules:
        return Broken("readable", effects.unread, "what cannot be parsed cannot be checked")
    paths = _Paths(place)
    try:
        for rule in rules:
            found = _breaks(rule, effects, paths)
            if found is not None:
                return Broken(rule.name, one_line(found), rule.why)
    except TooLong as error:
        return Broken("readable", str(error), "what cannot be parsed cannot be checked")
    return None


def _breaks(rule: Rule, effects: Effects, paths: "_Paths") -> str | None:
    if _any_name(rule.allow_tools, effects.tool):
        return None
    telling = ""
    for aspect in ASPECTS:
        if not getattr(rule, aspect):
            continue
        found = next(_matching(rule, aspect, effects, paths), None)
        if found is None:
            return None
        telling = found
    return telling


def _matching(rule: Rule, aspect: str, effects: Effects, paths: "_Paths") -> Iterator[str]:
    """What of the effects breaks this aspect of the rule."""
    patterns: Patterns = getattr(rule, aspect)
    if aspect == "tools":
        yield from [effects.tool] if _any_name(patterns, effects.tool) else []
    elif aspect == "commands":
        for words in effects.commands:
            if _any_command(patterns, words) and not _any_command(rule.allow_commands, words):
                yield " ".join(words).removeprefix(f"{OPERATED} ")
    elif aspect == "hosts":
        for host in effects.hosts:
            if _any_host(patterns, host) and not _any_host(rule.allow_hosts, host):
                yield host
    elif aspect in {"variables", "inputs"}:
        yield from (value for value in getattr(effects, aspect) if _any_name(patterns, value))
    elif aspect == "contents":
        for text in effects.texts:
            yield from (found for pattern in patterns if (found := _in_text(pattern, text)))
    else:
        yield from paths.matching(aspect, patterns, rule.allow_paths, effects)


class _Paths:
    """Patterns and paths relative to one place. Used by one thread, for one call."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._resolved: dict[str, str] = {}
        self._roots = [place.workspace.rstrip("/") or "/"]
        if place.resolve is not None:
            self._roots.append(place.resolve(place.workspace).rstrip("/") or "/")

    def matching(
        self, aspect: str, patterns: Patterns, allowed: Patterns, effects: Effects
    ) -> Iterator[str]:
        """Paths of the effects that match a pattern and are not excused."""
        touched = list(_touched_paths(aspect, effects))
        if not touched:
            return
        # Some file systems take upper case for lower: what is forbidden is so in both.
        denied = _denied(tuple(pattern.lower() for pattern in self._absolute(patterns)))
        excused = self._absolute(allowed)
        for path, how in touched:
            forms = self._forms(path, is_deleted=how in {"deletes", "alters"})
            if not any(_hits(form.lower(), denied, how) for form in forms):
                continue
            if not all(any(path_matches(good, form) for good in excused) for form in forms):
                yield path.replace(ANY, "*")

    def _forms(self, path: str, *, is_deleted: bool) -> list[str]:
        """The path as written, and with links resolved; deleting a link keeps its target."""
        if self._place.resolve is None or path.startswith(UNKNOWN):
            return [path]
        folder, _, name = path.rpartition("/")
        real = f"{self._real(folder or '/').rstrip('/')}/{name}" if is_deleted else self._real(path)
        return [path, real] if real != path else [path]

    def _real(self, path: str) -> str:
        """A path with its links followed. Raises `TooLong` for too many."""
        found = self._resolved.get(path)
        if found is None:
            if len(self._resolved) >= MOST_PATHS:
                raise TooLong(f"more than {MOST_PATHS} paths in one call")
            resolve = self._place.resolve
            found = self._resolved[path] = path if resolve is None else resolve(path)
        return found

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


class _Denied(NamedTuple):
    """Forbidden path patterns, indexed so that most paths are recognised as allowed quickly."""

    patterns: Sequence[tuple[str, str]]
    """Pairs of a literal part and the pattern."""
    above: frozenset[str]
    """The folders above them."""
    wild: Sequence[str]
    """Those with a star in a folder."""


_known_denied: dict[Patterns, _Denied] = {}
MOST_DENIED = 64


def _denied(patterns: Patterns) -> _Denied:
    """The index of these patterns; the most recent ones are cached."""
    found = _known_denied.pop(patterns, None)
    if found is None:
        above: set[str] = set()
        wild: list[str] = []
        for pattern in patterns:
            folder = pattern[:-3] if pattern.endswith("/**") else pattern.rpartition("/")[0]
            if is_glob(folder):
                wild.append(pattern)
                continue
            while folder:
                above.add(folder)
                folder = folder.rpartition("/")[0]
            above.add("/")
        pairs = [(required_text(each), each) for each in patterns]
        found = _Denied(pairs, frozenset(above), wild)
    _known_denied[patterns] = found
    while len(_known_denied) > MOST_DENIED:
        del _known_denied[next(iter(_known_denied))]
    return found


def _hits(path: str, denied: _Denied, how: str) -> bool:
    """Whether a path is forbidden: by its name, its contents, or what a shell expands it to."""
    if how in {"reads", "sends"}:
        return any(_is_read(path, part, pattern, how) for part, pattern in denied.patterns)
    if UNKNOWN in path:
        path = _guess_glob(path)
        if not path:
            return False
    below = how in {"deletes", "alters"} or (how == "given" and _is_guard_folder(path))
    if is_glob(path):
        return any(
            path_matches(pattern, path)
            or paths_meet(path, pattern)
            or (below and path_is_above(path, pattern))
            for _, pattern in denied.patterns
        )
    if below and (path in denied.above or any(_lies_in(path, each) for each in denied.wild)):
        return True
    return any(part in path and path_matches(pattern, path) for part, pattern in denied.patterns)


def _lies_in(path: str, pattern: str) -> bool:
    """Whether a pattern with a star in a folder can match something in this folder."""
    if pattern.endswith("/**") and path_matches(pattern[:-3], path):
        return True
    return path_is_above(path, pattern)


def _is_read(path: str, part: str, pattern: str, how: str) -> bool:
    if part in path and path_matches(pattern, path):
        return True
    if how != "sends" or not is_glob(path) or "*" in path.rpartition("/")[2][:1]:
        return False
    # What a shell would complete to a file of secrets: `.en?`.
    name = pattern.rpartition("/")[2]
    return not is_glob(name) and paths_meet(f"/{path.rpartition('/')[2]}", f"/{name}")


def _is_guard_folder(path: str) -> bool:
    """Whether a folder belongs to the guard, by one of the last two names in its path."""
    last = path.rstrip("/").rpartition("/")
    if is_glob(last[2]):
        return last[2][:1] == "." or last[2][:3] == "swi"
    return last[2] in GUARD_FOLDERS or last[0].rpartition("/")[2] in GUARD_FOLDERS


def _guess_glob(path: str) -> str:
    """A partly unknown path as a glob; empty if it may be any path."""
    known = path.removeprefix(UNKNOWN)
    if path.startswith(UNKNOWN) and UNKNOWN not in known:
        return path
    parts = path.split("/")
    guarded = False
    for at, part in enumerate(parts):
        if UNKNOWN in part:
            below = any(each in GUARD_FOLDERS for each in parts[at + 1 :])
            if not guarded and not below and len(part.partition(UNKNOWN)[0]) < 3:
                return ""
            parts[at] = part.replace(UNKNOWN, ANY)
        guarded = guarded or part in GUARD_FOLDERS
    return "/".join(parts)


def _touched_paths(aspect: str, effects: Effects) -> Iterator[tuple[str, str]]:
    """Paths of an aspect, and what is done to them."""
    for how in _NEEDS[aspect]:
        for path in getattr(effects, how):
            if not (how == "deletes" and aspect == "deletes" and path.startswith(UNKNOWN)):
                yield path, how


def _any_name(patterns: Patterns, name: str) -> bool:
    return any(name_matches(pattern, name) for pattern in patterns)


def _any_host(patterns: Patterns, host: str) -> bool:
    return any(
        is_loopback(host) if pattern == LOOPBACK else name_matches(pattern, host)
        for pattern in patterns
    )


def _any_command(patterns: Patterns, words: Sequence[str]) -> bool:
    program = words[0].lower()
    fitting: list[list[str]] = []
    for pattern in patterns:
        first = pattern.partition(" ")[0]
        is_plain = "*" not in first and "?" not in first  # most are: no call for those
        if first.lower() == program if is_plain else name_matches(first, program):
            fitting.append(pattern.split())
    if not fitting:
        return False
    forms = _forms_of(words[1:])
    return any(
        all(any(_is_word(wanted, word) for word in forms) for wanted in pattern[1:])
        for pattern in fitting
    )


def _forms_of(words: Sequence[str]) -> list[str]:
    """The words, and options with their values in all spellings."""
    found = list(words)
    for word, value in with_next(words):
        if word[:1] != "-" or len(word) < 2:
            continue
        name, equals, attached = word.partition("=")
        if equals:
            found.append(attached)
        elif value and not value.startswith("-"):
            found.append(f"{name}={value}")
        if word[1] != "-" and len(word) > 2:
            found += (f"{word[:2]}={word[2:].lstrip('=')}", word[2:])
    return found


def _is_word(wanted: str, word: str) -> bool:
    if len(wanted) == 2 and wanted[0] == "-" != wanted[1]:
        return is_short(word) and wanted[1] in word[1:].partition("=")[0]
    return name_matches(wanted, word)


def _in_text(pattern: str, text: str) -> str:
    """What a pattern matches in a text, in a form that may be shown."""
    if pattern == SECRET:
        kind = key_in(text)
        return f"what looks like {kind}" if kind else ""
    return f"{pattern!r}" if text_contains(pattern, text) else ""


def one_line(text: str) -> str:
    """A text of an agent on one line, shortened, without control characters."""
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


_NEEDS = {
    "paths": ("deletes", "alters", "writes", "reads"),
    "writes": ("deletes", "alters", "writes"),
    "contents": ("texts",),
    **{
        name: (name,)
        for name in ("commands", "deletes", "sends", "given", "hosts", "inputs", "variables")
    },
}
"""The effects of a call that can break an aspect of a rule: a call without them cannot."""


def dump_rules(rules: tuple[Rule, ...]) -> list[dict[str, Any]]:
    """The rules, with the fields that are not empty.

    >>> dump_rules((Rule("no-curl", commands=("curl",)),))
    [{'name': 'no-curl', 'commands': ['curl']}]
    """
    return [
        {
            name: value if isinstance(value, str) else list(value)
            for name, value in rule.fields().items()
            if value
        }
        for rule in rules
    ]


def load_rules(data: Any) -> tuple[Rule, ...]:
    """The inverse of `dump_rules`; raises ValueError for what it never dumped."""
    if not isinstance(data, list) or not all(isinstance(each, dict) for each in data):
        raise ValueError(f"rules are {data!r}: they must be a list of mappings")
    try:
        return tuple(Rule(**each) for each in data)
    except TypeError as error:
        raise ValueError(f"a rule cannot be read: {error}") from None


def load_rules_about(
    data: Any, effects: Effects, made: dict[int, Rule] | None = None
) -> tuple[Rule, ...]:
    """The rules that these effects could break: making all of them would take longer.

    `made`: rules of the same data that are made already, by their places in it; it gets the others.
    """
    if (
        effects.unread
        or not isinstance(data, list)
        or not all(isinstance(one, dict) for one in data)
    ):
        return load_rules(data)
    made = {} if made is None else made
    programs = {words[0].lower() for words in effects.commands if words}
    found = [at for at, each in enumerate(data) if _could_break(each, effects, programs)]
    new = [at for at in found if at not in made]
    made.update(zip(new, load_rules([data[at] for at in new]), strict=True))
    return tuple(made[at] for at in found)


def _could_break(rule: dict[str, Any], effects: Effects, programs: set[str]) -> bool:
    for aspect, parts in _NEEDS.items():
        if aspect in rule and not any(getattr(effects, part) for part in parts):
            return False
    if "commands" not in rule:
        return True
    firsts = [str(pattern).partition(" ")[0].lower() for pattern in rule["commands"]]
    return any(first in programs or "*" in first or "?" in first for first in firsts)
