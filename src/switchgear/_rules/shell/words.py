"""Words of a shell text: quotes removed, variables, substitutions and braces expanded.

This module parses single words; `parser.py` assembles them to commands. Every text is read in one
pass, and `Work` bounds the total cost of a call.
"""

# ruff: noqa: PLR0911  one answer for each form of a command

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from switchgear._rules.patterns import glob_matches, is_wild, word_list, word_set

UNKNOWN = "\ufffc"
"""Stands for the part of a word that is only known at run time."""
MOST_WORDS = 1_024
"""Maximum number of words that braces and variables may make of one word."""
MOST_FILLED_IN = 400_000
"""Maximum characters of all variables and substitutions of one call, which can double with each use."""
MOST_CHARACTERS = 400_000
"""Maximum characters of all texts of one call; text inside another command counts again."""
MOST_STEPS = 60_000
"""Maximum special characters (blanks, quotes, dollars) and words of all texts of one call."""
MOST_COMMANDS = 3_000
MOST_LOOKUPS = 64
"""Maximum number of files and folders that are looked up for one call."""
DEEPEST = 12
"""Maximum nesting of commands in commands, and of defaults in defaults."""
LONGEST_PATH = 4_096
STREAM = "/dev/fd/63"
"""The path that a program gets for a `>(…)`."""
ENDS = " \t\r\n;&|()<>"
"""Characters that end an unquoted word."""

_OPEN, _COMMA, _CLOSE, _SPLIT = MARKS = "\ue000\ue001\ue002\ue003"
"""Braces, commas and blanks that are special to the shell; in quotes they are plain characters."""
_BRACES = {"{": _OPEN, ",": _COMMA, "}": _CLOSE}
_ESCAPES = dict(zip("ntrabefv", "\n\t\r\a\b\x1b\f\v", strict=True))
_CODES = {"x": (16, 2), "u": (16, 4), "U": (16, 8)}
_LONGEST_NAME = 200
_NUMBERS = "?$!#-"
_DEFAULTS = (":-", ":=", ":+", "-", "=", "+")
_STOP = "\0"
_IN_WORD = ENDS + "'\"\\$`~{},"
_IN_DOUBLE = '"\\$`'
_IN_BRACKETS = {pair: "\\'\"<" + pair for pair in ("()", "{}")}
_GLOBBING = "?*+@!"
_EMPTY_VARIABLES = frozenset("@*123456789")
_AT_THE_ROOT = word_set("""
    bin boot dev etc home lib opt proc root sbin srv sys usr var Users Library System Applications
    private
""")
_SECRET_PARTS = word_set("TOKEN SECRET PASSWORD PASSWD APIKEY CREDENTIAL CREDENTIALS PAT KEY")
_NOT_SECRET = word_list("PUBLIC_KEY PRIMARY_KEY CACHE_KEY KEY_ID KEY_NAME KEY_FILE KEY_PATH")


class TooLong(ValueError):
    """A text that is too long, too deep or too complex to be judged."""


class Work:
    """Counts what one call has cost so far; every `count_*` raises `TooLong` beyond its limit.

    Used by one thread, for one call.
    """

    __slots__ = ("characters", "commands", "filled_in", "lookups", "steps")

    def __init__(self) -> None:
        self.characters = self.commands = self.filled_in = self.lookups = self.steps = 0

    def count_text(self, text: str) -> None:
        """Count another text to read."""
        self.characters += len(text)
        if self.characters > MOST_CHARACTERS:
            raise TooLong(f"shell text of more than {MOST_CHARACTERS} characters")

    def count_step(self, count: int = 1) -> None:
        """Count characters that are read one by one."""
        self.steps += count
        if self.steps > MOST_STEPS:
            raise TooLong(f"more than {MOST_STEPS} shell words and special characters in one call")

    def count_command(self) -> None:
        self.commands += 1
        if self.commands > MOST_COMMANDS:
            raise TooLong(f"more than {MOST_COMMANDS} commands in one call")

    def count_value(self, value: str) -> None:
        """Count the value of a variable or substitution."""
        self.filled_in += len(value)
        if self.filled_in > MOST_FILLED_IN:
            raise TooLong(f"variables of more than {MOST_FILLED_IN} characters")


class Setting(NamedTuple):
    """The environment that a shell starts with."""

    cwd: str
    home: str = ""
    workspace: str = ""
    env: Mapping[str, str] = {}
    functions: Mapping[str, str] = {}
    """The text of functions and aliases that are already defined, by name."""
    is_folder: Callable[[str], bool] | None = None
    """Whether a path is a folder now; `None`: every folder is assumed to exist."""
    names_in: Callable[[str], str | None] | None = None
    """Returns the names that a file lists, one per line, or `None` if it lists none or is unreadable."""
    work: Work | None = None
    unset: str = ""
    """The value of an unset variable; `UNKNOWN` if it may be set before the text is run."""


class WordReader:
    """Reads the words of a text. Used by one thread, once."""

    def __init__(self, text: str, setting: Setting) -> None:
        self._text = text
        self._at = 0
        self._setting = setting
        self._work = setting.work or Work()
        self._cwd = setting.cwd
        self._before_cd = setting.env.get("OLDPWD") or setting.cwd
        self._variables: dict[str, str] = {"IFS": " \t\n"}
        self._level = 0
        self._masks: dict[str, str] = {}
        self._unset = setting.unset
        """The value of an unset variable; `UNKNOWN` after a command that may have set it."""
        self._secrets: set[str] = set()
        """Variables with keys that the current command uses."""
        self._held: dict[str, frozenset[str]] = {}
        """For each variable, the variables with keys that its value was built from."""
        self._outputs: list[str] = []
        """The texts in `>(…)` of the current command, whose commands read its output."""
        self._references: dict[str, str] = {}
        """Variables that refer to another variable: `declare -n`."""
        self._body_ends = 0
        """The end of the function body that is being read; its arguments are unknown."""

    def _run(self, text: str) -> str:
        """The output of the commands of a substitution, as far as known."""
        raise NotImplementedError

    def _mask(self, chars: str) -> str:
        """The text with a marker for each special character, so that searching for one is fast."""
        found = self._masks.get(chars)
        if found is None:
            found = self._text
            for char in chars:
                found = found.replace(char, _STOP)
            self._masks[chars] = found
        return found

    def _span(self, chars: str) -> str:
        """The characters before the next special character; moves after them."""
        end = self._mask(chars).find(_STOP, self._at)
        end = len(self._text) if end < 0 else end
        found = self._text[self._at : end]
        self._at = end
        return found

    def _word(self) -> tuple[str, bool]:
        """The next word with its marks, and whether part of the word was quoted."""
        parts: list[str] = []
        quoted = False
        start = self._at
        while self._at < len(self._text):
            span = self._span(_IN_WORD)
            if span:
                parts.append(span)
                if self._at >= len(self._text):
                    break
            self._work.count_step()
            char = self._text[self._at]
            following = self._next()
            if char == "<" and following == "(":
                self._at += 1
                parts.append(self._in_parentheses())
            elif char == ">" and following == "(":
                self._at += 2
                self._outputs.append(self._read_until(self._closing("()")))
                parts.append(STREAM)
            elif char == "(" and self._at > start and self._text[self._at - 1] in _GLOBBING:
                self._at += 1  # @(a|b), !(a): any text
                parts[-1] = parts[-1][:-1]
                self._read_until(self._closing("()"))
                parts.append("*")
            elif char in ENDS:
                break
            elif char in "'\"" or (char == "$" and following in {"'", '"'}):
                quoted = True
                parts.append(self._read_quoted())
            elif char == "\\":
                quoted = quoted or following not in {"\n", ""}
                parts.append(following.replace("\n", ""))
                self._at += 2
            elif char in "$`":
                parts.append(self._splitting(self._value()))
            elif char == "~" and (self._at == start or self._text[self._at - 1] in "=:"):
                self._at += 1
                parts.append(self._home())
            else:
                parts.append(_BRACES.get(char, char))
                self._at += 1
        return "".join(parts), quoted

    def _next(self) -> str:
        return self._text[self._at + 1 : self._at + 2]

    def _home(self) -> str:
        """`~` alone or before a slash is the user's home; `~name` is another user's."""
        following = self._text[self._at : self._at + 1]
        if following in {"+", "-"}:
            self._at += 1
            return self._cwd if following == "+" else self._before_cd
        is_ours = not following or following in "/:" + ENDS
        return (self._setting.home or "~") if is_ours else "/home/"

    def _read_quoted(self) -> str:
        """Any of '…', "…", $'…' and $"…"."""
        is_dollar = self._text[self._at] == "$"
        self._at += is_dollar
        plain = self._text[self._at] == "'"
        self._at += 1
        if not plain:
            return self._double('"')
        return self._ansi() if is_dollar else self._read_until(self._text.find("'", self._at))

    def _read_until(self, end: int) -> str:
        """The text up to a position; moves after that position."""
        end = len(self._text) if end < 0 else end
        found = self._text[self._at : end]
        self._at = end + 1
        return found

    def _closing(self, pair: str) -> int:
        """The position of the closing bracket; quotes and here documents are skipped."""
        text, depth = self._text, 1
        mask = self._mask(_IN_BRACKETS[pair])
        at = mask.find(_STOP, self._at)
        while at >= 0:
            self._work.count_step()
            char, behind = text[at], at + 1
            if char == "\\":
                behind += 1
            elif char == "'":
                behind = text.find("'", behind) + 1
                if not behind:
                    return -1
            elif char == '"':
                behind = self._behind_quotes(behind)
            elif char == "<":
                behind = self._behind_document(at)
            elif char == pair[0]:
                depth += 1
            elif char == pair[1]:
                depth -= 1
                if not depth:
                    return at
            at = mask.find(_STOP, behind)
        return -1

    def _behind_quotes(self, start: int) -> int:
        """The position after the double quotes that open before `start`, or `start` if they contain commands."""
        end = self._text.find('"', start)
        while end > start and self._text[end - 1] == "\\":
            end = self._text.find('"', end + 1)
        inner = self._text[start:end]
        return start if end < 0 or "$(" in inner or "`" in inner else end + 1

    def _behind_document(self, at: int) -> int:
        """The position after the here document that begins at `<<`, if there is one."""
        text = self._text
        if not text.startswith("<<", at) or text.startswith("<<<", at):
            return at + 1
        line = text.find("\n", at)
        word = text[at + 2 : min(line, at + 80)].lstrip("-").strip() if line >= 0 else ""
        word = word.split(None, 1)[0].strip("'\"\\") if word else ""
        end = text.find(f"\n{word}", line) if word.replace("_", "a").isalnum() else -1
        return at + 2 if end < 0 else end + 1 + len(word)

    def _double(self, end: str = "") -> str:
        """Text in which only dollars, backticks and a few escapes are special."""
        parts: list[str] = []
        while self._at < len(self._text):
            parts.append(self._span(_IN_DOUBLE))
            if self._at >= len(self._text):
                break
            self._work.count_step()
            char = self._text[self._at]
            if char == end:
                self._at += 1
                break
            if char == "\\":
                following = self._next()
                escapes = following in '$`"\\' or following == "\n"
                parts.append(following.replace("\n", "") if escapes else "\\" + following)
                self._at += 2
            elif char in "$`":
                parts.append(self._value())
            else:
                parts.append(char)
                self._at += 1
        return "".join(parts)

    def _ansi(self) -> str:
        """$'…': escapes as in C."""
        parts: list[str] = []
        while self._at < len(self._text) and self._text[self._at] != "'":
            self._work.count_step()
            char = self._text[self._at]
            self._at += 1
            if char == "\\":
                char = self._text[self._at : self._at + 1]
                self._at += 1
                if char in _CODES or char.isdigit():
                    char = self._code(char)
                else:
                    char = _ESCAPES.get(char, char)
            parts.append(char)
        self._at += 1
        return "".join(parts)

    def _code(self, kind: str) -> str:
        """A character by its number."""
        base, length = _CODES.get(kind, (8, 3))
        start = self._at if kind in _CODES else self._at - 1
        digits = "0123456789abcdef"[:base]
        self._at = start
        while self._at - start < length and self._text[self._at : self._at + 1].lower() in digits:
            if self._at >= len(self._text):
                break
            self._at += 1
        number = _number(self._text[start : self._at], base)
        return chr(number) if 0 < number < 0x110000 else ""

    def _value(self) -> str:
        """The value of a `$…` or a `` `…` ``. Raises `TooLong` if all values together are too long."""
        value = self._expansion()
        self._work.count_value(value)
        return value

    def _expansion(self) -> str:
        if self._text[self._at] == "`":
            self._at += 1
            return self._run(self._read_backquoted())
        following = self._next()
        if following == "(":
            self._at += 1
            return self._in_parentheses()
        if following == "{":
            self._at += 2
            return self._in_braces(self._read_until(self._closing("{}")))
        self._at += 1
        if following.isalpha() or following == "_":
            start = self._at
            self._at += _name_length(self._text[self._at : self._at + _LONGEST_NAME])
            return self._variable(self._text[start : self._at])
        if following and (following in _NUMBERS or following in "@*" or following.isdigit()):
            self._at += 1
            return "0" if following in _NUMBERS else self._argument(following)
        return "$"

    def _read_backquoted(self) -> str:
        """The text up to the next unescaped backquote, with its escapes removed."""
        start = self._at
        end = self._text.find("`", start)
        while end > start and self._text[end - 1] == "\\":
            end = self._text.find("`", end + 1)
        return self._read_until(end).replace("\\`", "`").replace("\\\\", "\\").replace("\\$", "$")

    def _argument(self, name: str) -> str:
        """The value of `$1` or `$@` in a function or a `bash -c`; empty at the top level."""
        if name != "0" and name.isdigit() and "shift" in self._text:  # any argument, after shifts
            given = self._argument("@").split(_SPLIT)
            return choice(given) if len(given) > 1 else given[0]
        if name in self._variables:
            return self._variables[name]
        if self._at <= self._body_ends:
            return UNKNOWN
        return self._setting.env.get(name, "" if name in _EMPTY_VARIABLES else "bash")

    def _in_parentheses(self) -> str:
        """The value of `$(…)`, `$((…))` or `<(…)`, starting at the parenthesis."""
        self._at += 1
        start = self._at
        inner = self._read_until(self._closing("()"))
        if (
            inner.startswith("(")
            and inner.endswith(")")
            and self._text[start - 2 : start - 1] == "$"
        ):
            number = inner[1:-1].strip()
            self._run(inner) if "$(" in inner or "`" in inner else None
            return number if number.isdecimal() else UNKNOWN
        return self._run(inner)

    def _in_braces(self, inner: str) -> str:
        """The value of `${NAME}`, also with an operator such as `${NAME:-default}`."""
        if inner.startswith("!") and len(inner) > 1:
            if inner in {"!#", "!@", "!*"}:  # the last argument
                return self._argument("@").split(_SPLIT)[-1]
            name = self._variable(inner[1 : 1 + _name_length(inner[1:])])
            return self._variable(name) if name and UNKNOWN not in name else UNKNOWN
        length = _name_length(inner)
        if not length and inner[:1] in _EMPTY_VARIABLES:
            length = 1
        name, rest = inner[:length], inner[length:]
        if not name:
            return "0" if inner.startswith("#") else UNKNOWN
        value = self._argument(name) if name in _EMPTY_VARIABLES else self._variable(name)
        if rest.startswith("["):
            index, _, rest = rest[1:].partition("]")
            value = _element(value, index)
        if not rest:
            return value
        for how in _DEFAULTS:
            if rest.startswith(how):
                other = self._sub(rest[len(how) :])
                takes_other = bool(value) == how.endswith("+")
                if takes_other and how.endswith("="):
                    self._variables[name] = other
                return other if takes_other else value or ""
        if rest.startswith((":?", "?")) and value:
            return value
        if UNKNOWN in value:
            return UNKNOWN
        if rest.startswith(":") and (_SPLIT in value or name in {"@", "*"}):
            return value  # a slice of several words: assume all words
        return _alter_parameter(value, self._sub(rest) if "$" in rest else rest)

    def _sub(self, text: str) -> str:
        """The text of a default, with its variables replaced."""
        if self._level >= DEEPEST:
            raise TooLong(f"variables nested deeper than {DEEPEST} levels")
        self._work.count_text(text)
        outer = self._text, self._at, self._masks
        self._text, self._at, self._masks = text, 0, {}
        self._level += 1
        found = self._double()
        self._level -= 1
        self._text, self._at, self._masks = outer
        return found.strip("'\"")

    def _variable(self, name: str) -> str:
        if name.isupper() or name in self._held:
            if holds_key(name):
                self._secrets.add(name)
            self._secrets |= self._held.get(name, frozenset())
        if name in self._references:
            name = self._references[name]
        if name == "PWD":
            return self._cwd
        if name == "OLDPWD":
            return self._before_cd
        if name in self._variables:
            return self._variables[name]
        if name == "HOME":
            return self._setting.home or UNKNOWN
        if name in self._setting.env:
            return self._setting.env[name]
        if name in {"TMPDIR", "TMP", "TEMP"} and not self._unset:
            return "/tmp"  # noqa: S108
        return self._of_unset()

    def _of_unset(self) -> str:
        """An unset variable is empty; `$BUILD/cache` names an unknown folder."""
        text, at = self._text, self._at
        if text[at : at + 1] == "}":
            at += 1
        if text[at : at + 1] != "/":
            return self._unset
        length = _name_length(text[at + 1 : at + 20])
        name = text[at + 1 : at + 1 + length]
        return UNKNOWN if name and name not in _AT_THE_ROOT else self._unset

    def _splitting(self, value: str) -> str:
        """An unquoted value: its blanks separate words."""
        for char in self._variables["IFS"][:8]:
            if char in value:
                value = value.replace(char, _SPLIT)
        return value


def holds_key(name: str) -> bool:
    """Whether a variable of this name holds a key, a token or a password.

    >>> holds_key("ANTHROPIC_API_KEY"), holds_key("CACHE_KEY"), holds_key("HOME")
    (True, False, False)
    """
    if name.endswith(_NOT_SECRET) or not name.isupper():
        return False
    return not _SECRET_PARTS.isdisjoint(name.split("_"))


def _number(digits: str, base: int) -> int:
    try:
        return int(digits or "0", base)
    except ValueError:
        return 0


def _element(value: str, index: str) -> str:
    """The value of `${a[@]}` or `${a[1]}` for an array."""
    parts = value.split(_SPLIT)
    if index in {"@", "*"} or not index.lstrip("-").isdecimal() or len(index) > 6:
        return value
    at = int(index)
    return parts[at] if -len(parts) <= at < len(parts) else ""


def _alter_parameter(value: str, how: str) -> str:
    """The value of `${NAME#a}`, `${NAME%a}`, `${NAME,,}`, `${NAME//a/b}` or `${NAME:1:3}`."""
    kind, plain = how[:1], how.lstrip("#%")
    if kind in {"#", "%"}:
        return _without(value, plain, is_front=kind == "#", is_longest=how[1:2] == kind)
    if how in {",,", "^^"}:
        return value.lower() if how == ",," else value.upper()
    if how in {",", "^"}:
        return (value[:1].lower() if how == "," else value[:1].upper()) + value[1:]
    if how in {"@Q", "@E", "@P", "@L", "@U"}:
        return {"@L": value.lower(), "@U": value.upper()}.get(how, value)
    if kind == "/":
        old, _, new = how.lstrip("/").lstrip("#%").partition("/")
        if is_wild(old) or "[" in old or not old:
            return UNKNOWN
        return value.replace(old, new, -1 if how.startswith("//") else 1)
    numbers = [number.strip() for number in how.split(":")[1:]]
    if kind == ":" and all(each.lstrip("-").isdecimal() and len(each) < 8 for each in numbers):
        start = int(numbers[0])
        value = value[start:]
        return value[: int(numbers[1])] if numbers[1:] else value
    return UNKNOWN


def _without(value: str, pattern: str, *, is_front: bool, is_longest: bool) -> str:
    """A text without the shortest or the longest beginning or end that matches a glob."""
    if not is_wild(pattern) and "[" not in pattern:
        return value.removeprefix(pattern) if is_front else value.removesuffix(pattern)
    if len(value) > LONGEST_PATH or len(pattern) > _LONGEST_NAME:
        return UNKNOWN
    lengths = range(len(value) + 1)
    for length in reversed(lengths) if is_longest else lengths:
        part = value[:length] if is_front else value[len(value) - length :]
        if glob_matches(pattern, part):
            return value[length:] if is_front else value[: len(value) - length]
    return value


def unescaped(text: str) -> str:
    r"""The text with its C escapes resolved: `\x73h` is `sh`."""
    return WordReader(text.replace("'", "\\'") + "'", Setting(""))._ansi()  # noqa: SLF001  same module


def parted(words: Sequence[str]) -> str:
    """Several words as one text that is later split into the same words: `"$@"`."""
    return _SPLIT.join(words)


def _name_length(text: str) -> int:
    """The length of the variable name at the beginning."""
    for length, char in enumerate(text):
        if not (char.isalnum() or char == "_"):
            return length
    return len(text)


def choice(values: Sequence[str]) -> str:
    """One value that stands for any of several values, like braces."""
    if len(values) == 1:
        return values[0]
    return f"{_OPEN}{_COMMA.join(values)}{_CLOSE}" if values else UNKNOWN


def expanded(raw: str, *, keep_empty: bool) -> list[str]:
    """The words that a word with marks expands to. Raises `TooLong` if there are too many."""
    words = [raw]
    for _ in range(MOST_WORDS if _CLOSE in raw else 0):
        grown = [found for word in words for found in _once(word)]
        if len(grown) > MOST_WORDS or len(grown) * len(raw) > MOST_FILLED_IN:
            raise TooLong(f"braces that make more than {MOST_WORDS} words")
        if grown == words:
            break
        words = grown
    if _SPLIT in raw:
        words = [part for word in words for part in word.split(_SPLIT) if part]
        if len(words) > MOST_STEPS // 4:
            raise TooLong(f"a variable of more than {MOST_STEPS // 4} words")
    return [unmarked(word) for word in words if word or keep_empty]


def _once(word: str) -> list[str]:
    """A word with its innermost braces expanded, once."""
    close = word.find(_CLOSE)
    start = word.rfind(_OPEN, 0, close) if close >= 0 else -1
    if start < 0:
        return [word]
    choices = word[start + 1 : close].split(_COMMA)
    if len(choices) == 1:
        choices = _sequence(choices[0])
    if not choices:  # {} and {x} are plain text
        plain = "{" + word[start + 1 : close] + "}"
        return [word[:start] + plain + word[close + 1 :]]
    return [word[:start] + each + word[close + 1 :] for each in choices]


def _sequence(inner: str) -> list[str]:
    """The words of a sequence such as `{1..3}` or `{a..c}`; empty for anything else."""
    first, dots, last = inner.partition("..")
    last = last.partition("..")[0]
    if not dots or not first or not last:
        return []
    if len(first) == len(last) == 1 and not first.isdecimal() and ord(first) < 128 > ord(last):
        low, high = sorted((ord(first), ord(last)))
        return [chr(number) for number in range(low, high + 1)]
    if first.lstrip("-").isdecimal() and last.lstrip("-").isdecimal() and len(inner) < 14:
        low, high = sorted((int(first), int(last)))
        if high - low >= MOST_WORDS:
            raise TooLong(f"braces that make more than {MOST_WORDS} words")
        return [str(number) for number in range(low, high + 1)]
    return []


def unmarked(word: str) -> str:
    """A word with its remaining marks as plain characters."""
    for mark, char in zip(MARKS, "{,} ", strict=True):
        if mark in word:
            word = word.replace(mark, char)
    return word
