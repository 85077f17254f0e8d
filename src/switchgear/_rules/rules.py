"""Absolute rules: what they match, which call breaks them, and their JSON form."""

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
"""Prefix, minimum length of the rest, its characters, and how messages name the key."""
_PEM = ("-----BEGIN ", "PRIVATE KEY-----")
_PLACEHOLDERS = word_list("example your xxxx dummy fake placeholder redacted 1234567890")
_MOST = 10_000
"""Maximum number of occurrences of one prefix that are checked in a text."""
_LEAST_DISTINCT = 9
"""Minimum number of distinct characters in a key."""


def key_in(text: str) -> str | None:
    """The kind of key that a text seems to contain, or `None`.

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
    if len(body) < least or len(set(body)) < _LEAST_DISTINCT:
        return False
    small = body.lower()
    has_digit = any(char.isdigit() for char in body)
    return has_digit and not any(word in small for word in _PLACEHOLDERS)


SECRET = "@secret"  # noqa: S105  the name of a pattern
"""The pattern of `contents` that matches text with something that looks like a key."""
GUARD = "@guard"
"""The pattern of paths that stands for all protected paths (`Place.protected`)."""
LOOPBACK = "@loopback"
"""The pattern of hosts that stands for this machine: loopback addresses and `localhost`."""
LONGEST_SHOWN = 120
MOST_PATHS = 1_500
"""Maximum number of paths of one call whose links are followed."""
GUARD_FOLDERS = word_set(".claude .codex .gemini .qwen .opencode .pi .switchgear switchgear")
"""Names of folders that belong to the guard, or to an agent and contain its hooks."""
ASPECTS = (
    *("tools", "hosts", "commands", "inputs", "paths", "writes", "deletes", "sends", "given"),
    *("variables", "contents"),
)
"""What a rule can match; a message shows the match of the last aspect."""
ALLOWED = ("tools", "hosts", "commands", "paths")
Patterns = tuple[str, ...]


class Broken(NamedTuple):
    """A rule that a call would break; `str()` gives one line."""

    rule: str
    what: str
    """The part of the call that breaks it, shortened, on one line; redact it before storing it."""
    why: str

    def __str__(self) -> str:
        return f"rule {self.rule}: {self.what}" + (f" ({self.why})" if self.why else "")


class Rule(Value):
    """One absolute rule.

    A call breaks it if, for each aspect of the rule, some part of the call matches one of the
    patterns and none of the allowed patterns.

    A pattern of `commands` is a program followed by words that must occur after it, in any order;
    `-f` also matches `-fu`. An option with a value matches as `--a=b`, `--a b`, `-ab` and `-a b`.
    `paths` are read, written or deleted; `writes` are written or deleted; `sends` go to a host;
    `given` are named to a program or a tool that may do more than read them. Relative patterns are
    relative to the workspace, `~` is the home folder, `**` matches any folders. Forbidden patterns
    ignore case.

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

    `inputs` are as parsed from JSON. A call that is too long or too deeply nested to be analysed breaks the rule `readable`.

    >>> rule = Rule("stay", writes=("/**",), allow_paths=("./**",))
    >>> judge([rule], "Write", {"file_path": "notes.md"}, Place("/w")) is None
    True
    >>> judge([rule], "Write", {"file_path": "/etc/hosts"}, Place("/w")).what
    '/etc/hosts'
    """
    return judge_effects(rules, call_effects(tool, inputs, place), place)


def judge_effects(rules: Iterable[Rule], effects: Effects, place: Place) -> Broken | None:
    """The first rule that a call with these effects would break, or `None`."""
    rules = tuple(rules)
    if effects.unread and rules:
        return Broken("readable", effects.unread, "what cannot be parsed cannot be checked")
    paths = _Paths(place)
    try:
        for rule in rules:
            breaking_part = _breaking_part(rule, effects, paths)
            if breaking_part is not None:
                return Broken(rule.name, one_line(breaking_part), rule.why)
    except TooLong as error:
        return Broken("readable", str(error), "what cannot be parsed cannot be checked")
    return None


def _breaking_part(rule: Rule, effects: Effects, paths: "_Paths") -> str | None:
    """The part of the effects that breaks the rule; `None` if they do not break it."""
    if _any_name(rule.allow_tools, effects.tool):
        return None
    breaking_part = ""
    for aspect in ASPECTS:
        if not getattr(rule, aspect):
            continue
        found = next(_matching(rule, aspect, effects, paths), None)
        if found is None:
            return None
        breaking_part = found
    return breaking_part


def _matching(rule: Rule, aspect: str, effects: Effects, paths: "_Paths") -> Iterator[str]:
    """The parts of the effects that break this aspect of the rule."""
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
    """Matches paths against patterns in one place. Used by one thread, for one call."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._resolved: dict[str, str] = {}
        self._roots = [place.workspace.rstrip("/") or "/"]
        if place.resolve is not None:
            self._roots.append(place.resolve(place.workspace).rstrip("/") or "/")

    def matching(
        self, aspect: str, patterns: Patterns, allowed: Patterns, effects: Effects
    ) -> Iterator[str]:
        """Paths of the effects that match a pattern and are not allowed."""
        touched = list(_touched_paths(aspect, effects))
        if not touched:
            return
        # Some file systems ignore case, so forbidden patterns do too.
        denied = _denied_index(tuple(pattern.lower() for pattern in self._absolute(patterns)))
        exempt = self._absolute(allowed)
        for path, effect in touched:
            forms = self._forms(path, is_deleted=effect in {"deletes", "alters"})
            if not any(_is_denied(form.lower(), denied, effect) for form in forms):
                continue
            if not all(any(path_matches(each, form) for each in exempt) for form in forms):
                yield path.replace(ANY, "*")

    def _forms(self, path: str, *, is_deleted: bool) -> list[str]:
        """The path as written and with its links resolved; deleting a link keeps its target."""
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
    """Forbidden path patterns, indexed so that most allowed paths are recognised quickly."""

    patterns: Sequence[tuple[str, str]]
    """Pairs of a literal part and the pattern."""
    above: frozenset[str]
    """All folders that contain a forbidden path."""
    wild: Sequence[str]
    """The patterns with a star in a folder name."""


_denied_cache: dict[Patterns, _Denied] = {}
MOST_CACHED = 64


def _denied_index(patterns: Patterns) -> _Denied:
    """The index of these patterns; the most recent indexes are cached."""
    index = _denied_cache.pop(patterns, None)
    if index is None:
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
        index = _Denied(pairs, frozenset(above), wild)
    _denied_cache[patterns] = index
    while len(_denied_cache) > MOST_CACHED:
        del _denied_cache[next(iter(_denied_cache))]
    return index


def _is_denied(path: str, denied: _Denied, effect: str) -> bool:
    """Whether a path is forbidden: by its name, its contents, or what a shell expands it to."""
    if effect in {"reads", "sends"}:
        return any(_is_read_denied(path, part, each, effect) for part, each in denied.patterns)
    if UNKNOWN in path:
        path = _guess_glob(path)
        if not path:
            return False
    below = effect in {"deletes", "alters"} or (effect == "given" and _is_guard_folder(path))
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
    """Whether a pattern with a star in a folder name can match something in this folder."""
    if pattern.endswith("/**") and path_matches(pattern[:-3], path):
        return True
    return path_is_above(path, pattern)


def _is_read_denied(path: str, part: str, pattern: str, effect: str) -> bool:
    if part in path and path_matches(pattern, path):
        return True
    if effect != "sends" or not is_glob(path) or "*" in path.rpartition("/")[2][:1]:
        return False
    # A glob that a shell would expand to a file of secrets: `.en?`.
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
    """The paths of an aspect, each with what the call does to it."""
    for effect in _EFFECTS_OF_ASPECT[aspect]:
        for path in getattr(effects, effect):
            if not (effect == "deletes" and aspect == "deletes" and path.startswith(UNKNOWN)):
                yield path, effect


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
        is_plain = "*" not in first and "?" not in first  # the common case, without a call
        if first.lower() == program if is_plain else name_matches(first, program):
            fitting.append(pattern.split())
    if not fitting:
        return False
    forms = _forms_of(words[1:])
    return any(
        all(any(_word_matches(required, word) for word in forms) for required in pattern[1:])
        for pattern in fitting
    )


def _forms_of(words: Sequence[str]) -> list[str]:
    """The words, and the options with their values in all spellings."""
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


def _word_matches(pattern: str, word: str) -> bool:
    if len(pattern) == 2 and pattern[0] == "-" != pattern[1]:
        return is_short(word) and pattern[1] in word[1:].partition("=")[0]
    return name_matches(pattern, word)


def _in_text(pattern: str, text: str) -> str:
    """What a pattern matches in a text, in a form that can be shown."""
    if pattern == SECRET:
        kind = key_in(text)
        return f"what looks like {kind}" if kind else ""
    return f"{pattern!r}" if text_contains(pattern, text) else ""


def one_line(text: str) -> str:
    """An agent's text on one line, shortened, without control characters."""
    text = " ".join(text.split())
    text = "".join(char if char.isprintable() else "?" for char in text[: LONGEST_SHOWN + 1])
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


_EFFECTS_OF_ASPECT = {
    "paths": ("deletes", "alters", "writes", "reads"),
    "writes": ("deletes", "alters", "writes"),
    "contents": ("texts",),
    **{
        name: (name,)
        for name in ("commands", "deletes", "sends", "given", "hosts", "inputs", "variables")
    },
}
"""For each aspect of a rule, the effects that can break it; a call without them cannot."""


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
    """The inverse of `dump_rules`. Raises `ValueError` for data that it never returns."""
    if not isinstance(data, list) or not all(isinstance(each, dict) for each in data):
        raise ValueError(f"rules are {data!r}: they must be a list of mappings")
    try:
        return tuple(Rule(**each) for each in data)
    except TypeError as error:
        raise ValueError(f"a rule cannot be read: {error}") from None


def load_rules_about(
    data: Any, effects: Effects, loaded: dict[int, Rule] | None = None
) -> tuple[Rule, ...]:
    """The rules that these effects could break; faster than loading all rules.

    `loaded` caches the rules of the same data by their index; rules loaded now are added to it.
    """
    if (
        effects.unread
        or not isinstance(data, list)
        or not all(isinstance(each, dict) for each in data)
    ):
        return load_rules(data)
    loaded = {} if loaded is None else loaded
    programs = {words[0].lower() for words in effects.commands if words}
    relevant = [at for at, each in enumerate(data) if _could_break(each, effects, programs)]
    new = [at for at in relevant if at not in loaded]
    loaded.update(zip(new, load_rules([data[at] for at in new]), strict=True))
    return tuple(loaded[at] for at in relevant)


def _could_break(rule: dict[str, Any], effects: Effects, programs: set[str]) -> bool:
    for aspect, fields in _EFFECTS_OF_ASPECT.items():
        if aspect in rule and not any(getattr(effects, field) for field in fields):
            return False
    if "commands" not in rule:
        return True
    firsts = [str(pattern).partition(" ")[0].lower() for pattern in rule["commands"]]
    return any(first in programs or "*" in first or "?" in first for first in firsts)
