"""Words of a shell text: quotes off, variables, substitutions and braces filled in.

The half of reading a command that is about single words; `shell.py` puts commands together.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

UNKNOWN = "\ufffc"
"""Stands in a word for what only running the command would tell."""
MOST_WORDS = 256
"""Words that braces and variables may make of one; more are left as they are written."""
MOST_FILLED_IN = 1_000_000
"""Characters that variables and substitutions of one text may come to: they can double each time."""
DEEPEST = 12
"""Levels of commands in commands, and of defaults in defaults."""
ENDS = " \t\r\n;&|()<>"
"""What ends a word that is not quoted."""

_OPEN, _COMMA, _CLOSE, _SPLIT = MARKS = "\ue000\ue001\ue002\ue003"
"""Braces, commas and blanks that the shell would act on; those in quotes are plain characters."""
_BRACES = {"{": _OPEN, ",": _COMMA, "}": _CLOSE}
_ESCAPES = dict(zip("ntrabefv", "\n\t\r\a\b\x1b\f\v", strict=True))
_CODES = {"x": (16, 2), "u": (16, 4), "U": (16, 8)}
_LONGEST_NAME = 200
_NUMBERS = "?$!#-"
_DEFAULTS = (":-", ":=", ":+", "-", "=", "+")


class TooLong(ValueError):
    """A text that is too long or too deep to be judged."""


class Setting(NamedTuple):
    """What a shell starts with."""

    cwd: str
    home: str = ""
    workspace: str = ""
    env: Mapping[str, str] = {}


class WordReader:
    """Reads words at a place of a text. Used by one thread, once."""

    def __init__(self, text: str, setting: Setting) -> None:
        self._text = text
        self._at = 0
        self._setting = setting
        self._cwd = setting.cwd
        self._variables: dict[str, str] = {"IFS": " "}
        self._level = 0
        self._filled_in = 0
        self._unset = ""
        """What a variable is that nobody set; `UNKNOWN` once something unread may have set it."""

    def _run(self, text: str) -> str:
        """What the commands of a substitution print, as far as it can be told."""
        raise NotImplementedError

    def _word(self) -> tuple[str, bool]:
        """The next word with its marks, and whether any of it was quoted."""
        parts: list[str] = []
        quoted = False
        start = self._at
        while self._at < len(self._text):
            sign = self._text[self._at]
            following = self._next()
            if sign in "<>" and following == "(":
                self._at += 1
                parts.append(self._in_parentheses())
            elif sign in ENDS:
                break
            elif sign in "'\"" or (sign == "$" and following in {"'", '"'}):
                quoted = True
                parts.append(self._quoted())
            elif sign == "\\":
                parts.append(following.replace("\n", ""))
                self._at += 2
            elif sign in "$`":
                parts.append(_splitting(self._value()))
            elif sign == "~" and self._at == start:
                self._at += 1
                parts.append(self._home())
            else:
                parts.append(_BRACES.get(sign, sign))
                self._at += 1
        return "".join(parts), quoted

    def _next(self) -> str:
        return self._text[self._at + 1 : self._at + 2]

    def _home(self) -> str:
        """`~` alone or before a slash is ours; somebody else's is just not ours."""
        following = self._text[self._at : self._at + 1]
        is_ours = not following or following in "/" + ENDS
        return (self._setting.home or "~") if is_ours else "/home/"

    def _quoted(self) -> str:
        """Any of '…', "…", $'…' and $"…"."""
        is_dollar = self._text[self._at] == "$"
        self._at += is_dollar
        plain = self._text[self._at] == "'"
        self._at += 1
        if not plain:
            return self._double('"')
        return self._ansi() if is_dollar else self._taken(self._text.find("'", self._at))

    def _taken(self, end: int) -> str:
        """The text up to a place, and the place behind it."""
        end = len(self._text) if end < 0 else end
        found = self._text[self._at : end]
        self._at = end + 1
        return found

    def _double(self, end: str = "") -> str:
        """Text in which only dollars, backticks and a few escapes mean something."""
        parts: list[str] = []
        while self._at < len(self._text):
            sign = self._text[self._at]
            if sign == end:
                self._at += 1
                break
            if sign == "\\":
                following = self._next()
                parts.append(following if following in '$`"\\' else "\\" + following)
                self._at += 2
            elif sign in "$`":
                parts.append(self._value())
            else:
                parts.append(sign)
                self._at += 1
        return "".join(parts).replace("\\\n", "")

    def _ansi(self) -> str:
        """$'…': escapes as in C."""
        parts: list[str] = []
        while self._at < len(self._text) and self._text[self._at] != "'":
            sign = self._text[self._at]
            self._at += 1
            if sign == "\\":
                sign = self._text[self._at : self._at + 1]
                self._at += 1
                if sign in _CODES or sign.isdigit():
                    sign = self._code(sign)
                else:
                    sign = _ESCAPES.get(sign, sign)
            parts.append(sign)
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
        number = int(self._text[start : self._at] or "0", base)
        return chr(number) if 0 < number < 0x110000 else ""

    def _value(self) -> str:
        """What stands for a `$…` or a `` `…` ``. Raises `TooLong` when all of them come to too much."""
        value = self._meant()
        self._filled_in += len(value)
        if self._filled_in > MOST_FILLED_IN:
            raise TooLong(f"variables of more than {MOST_FILLED_IN} characters")
        return value

    def _meant(self) -> str:
        if self._text[self._at] == "`":
            self._at += 1
            return self._run(self._taken(self._text.find("`", self._at)).replace("\\", ""))
        following = self._next()
        if following == "(":
            self._at += 1
            return self._in_parentheses()
        if following == "{":
            self._at += 2
            return self._in_braces(self._taken(_closing(self._text, self._at, "{", "}")))
        self._at += 1
        if following.isalpha() or following == "_":
            start = self._at
            self._at += _name_length(self._text[self._at : self._at + _LONGEST_NAME])
            return self._variable(self._text[start : self._at])
        if following and (following in _NUMBERS or following in "@*" or following.isdigit()):
            self._at += 1
            return "0" if following in _NUMBERS else self._variables.get(following, UNKNOWN)
        return "$"

    def _in_parentheses(self) -> str:
        """`$(…)`, `$((…))`, `<(…)`: the place is at the parenthesis."""
        self._at += 1
        inner = self._taken(_closing(self._text, self._at, "(", ")"))
        return self._run(inner)

    def _in_braces(self, inner: str) -> str:
        """`${NAME}` and what can be done to it."""
        length = _name_length(inner)
        name, rest = inner[:length], inner[length:]
        if not name:
            return "0" if inner.startswith("#") else UNKNOWN
        value = self._variable(name)
        if not rest:
            return value
        for how in _DEFAULTS:
            if rest.startswith(how):
                other = self._sub(rest[len(how) :])
                takes_other = bool(value) == how.endswith("+")
                return other if takes_other else value or ""
        if rest.startswith((":?", "?")) and value:
            return value
        return UNKNOWN if UNKNOWN in value else _altered(value, rest)

    def _sub(self, text: str) -> str:
        """The text of a default, with what stands in it filled in."""
        if self._level >= DEEPEST:
            raise TooLong(f"variables nested deeper than {DEEPEST} levels")
        outer = self._text, self._at
        self._text, self._at = text, 0
        self._level += 1
        found = self._double()
        self._level -= 1
        self._text, self._at = outer
        return found.strip("'\"")

    def _variable(self, name: str) -> str:
        if name == "PWD":
            return self._cwd
        if name in self._variables:
            return self._variables[name]
        if name == "HOME":
            return self._setting.home or UNKNOWN
        return self._setting.env.get(name, self._unset)


def _altered(value: str, how: str) -> str:
    """`${NAME#a}`, `${NAME%a}`, `${NAME,,}`, `${NAME//a/b}`, `${NAME:1:3}`, for plain texts."""
    kind, plain = how[:1], how.lstrip("#%")
    if kind in "#%" and "*" not in plain:
        return value.removeprefix(plain) if kind == "#" else value.removesuffix(plain)
    if how in {",,", "^^"}:
        return value.lower() if how == ",," else value.upper()
    if kind == "/":
        old, _, new = how.lstrip("/").partition("/")
        return value.replace(old, new, -1 if how.startswith("//") else 1) if old else UNKNOWN
    numbers = how.split(":")[1:]
    if kind == ":" and all(number.isdecimal() and len(number) < 8 for number in numbers):
        start = int(numbers[0])
        return value[start : start + int(numbers[1])] if numbers[1:] else value[start:]
    return UNKNOWN


def unescaped(text: str) -> str:
    r"""The text with its escapes as in C taken for what they are: `\x73h` is `sh`."""
    return WordReader(text.replace("'", "\\'") + "'", Setting(""))._ansi()  # noqa: SLF001  a part of it


def parted(words: Sequence[str]) -> str:
    """Several words as one text that parts into them again, also in quotes: `"$@"`."""
    return _SPLIT.join(words)


def _name_length(text: str) -> int:
    """How many characters at the beginning are the name of a variable."""
    for length, sign in enumerate(text):
        if not (sign.isalnum() or sign == "_"):
            return length
    return len(text)


def _closing(text: str, at: int, opens: str, closes: str) -> int:
    """Where the bracket that was open before `at` closes; quotes are passed over."""
    depth = 1
    while at < len(text):
        sign = text[at]
        if sign == "\\":
            at += 1
        elif sign == "'":
            end = text.find("'", at + 1)
            at = len(text) if end < 0 else end
        elif sign == opens:
            depth += 1
        elif sign == closes:
            depth -= 1
            if not depth:
                return at
        at += 1
    return -1


def _splitting(value: str) -> str:
    """A value outside of quotes: its blanks part words."""
    return value.replace(" ", _SPLIT).replace("\t", _SPLIT).replace("\n", _SPLIT)


def choice(values: Sequence[str]) -> str:
    """One value that stands for any of several, as braces do."""
    if len(values) == 1:
        return values[0]
    return f"{_OPEN}{_COMMA.join(values)}{_CLOSE}" if values else UNKNOWN


def expanded(raw: str, *, keep_empty: bool) -> list[str]:
    """The words that one word with marks becomes."""
    words = [raw]
    for _ in range(MOST_WORDS):
        grown = [found for word in words for found in _once(word)]
        too_much = len(grown) > MOST_WORDS or len(grown) * len(raw) > MOST_FILLED_IN
        if grown == words or too_much:
            break
        words = grown
    if _SPLIT in raw:
        words = [part for word in words for part in word.split(_SPLIT) if part]
    return [unmarked(word) for word in words if word or keep_empty]


def _once(word: str) -> list[str]:
    """The innermost braces of a word opened, once."""
    close = word.find(_CLOSE)
    start = word.rfind(_OPEN, 0, close) if close >= 0 else -1
    if start < 0:
        return [word]
    choices = word[start + 1 : close].split(_COMMA)
    if len(choices) == 1:  # {} and {x} are themselves
        plain = "{" + choices[0] + "}"
        return [word[:start] + plain + word[close + 1 :]]
    return [word[:start] + each + word[close + 1 :] for each in choices]


def unmarked(word: str) -> str:
    """A word with plain characters for the marks that are left."""
    for mark, sign in zip(MARKS, "{,} ", strict=True):
        word = word.replace(mark, sign)
    return word
