r"""A shell command as the simple commands it runs: for telling git from make, and reads from writes.

Not a shell: nothing is expanded but quotes, and what only a shell could know (variables, what a
command prints) stays unknown. `bash -c "…"`, `$(…)`, `env`, `sudo` and the like are looked into.
"""

import os
import re
from typing import NamedTuple

LONGEST = 20_000
"""Characters of a command that are looked at."""
DEEPEST = 4
"""How many commands inside of commands are looked into."""
_SHELLS = frozenset({"bash", "sh", "zsh", "dash", "ksh", "fish", "eval", "source", "."})
_WRAPPERS = frozenset(
    {
        *("sudo", "doas", "env", "nohup", "time", "exec", "command", "builtin", "nice", "ionice"),
        *("timeout", "stdbuf", "setsid", "xargs", "unbuffer", "caffeinate", "chronic", "busybox"),
        *("uv", "uvx", "pipx", "poetry", "pdm", "hatch", "rye", "run", "tool"),
        *("if", "then", "else", "elif", "while", "until", "do", "!", "{", "}"),
    }
)
_SPECIAL = frozenset(";|&\n()`'\"\\<>$#")
_LEXEMES = r"""
      (?P<end> \n | ;+ | &&? (?!>) | \|\|? | \$\( | [()`] )
    | (?P<redirect> (?:\d*|&) >[>|&]? )
    | (?P<comment> (?<!\S) \#[^\n]* )
    | (?P<word> (?: '[^']*' | "(?:\\.|[^"\\])*" | \\. | \$(?!\() | [^\s;&|()<>`'"\\$] )+ )
    | (?P<other> \S )
"""
_HERE = r"""<<-?[ \t]*(['"]?)(\w+)\1([^\n]*)\n(.*?)(?:\n[ \t]*\2[ \t]*(?=\n|$)|$)"""
_PIECE = r"""'([^']*)'|"((?:\\.|[^"\\])*)"|\\(.)|([^'"\\]+|.)"""


class Simple(NamedTuple):
    """One simple command: its words without quotes, and what it writes to by redirection."""

    words: tuple[str, ...]
    writes: tuple[str, ...] = ()
    given: str = ""
    """The text that stands behind `<<`, which it reads."""

    @property
    def name(self) -> str:
        """The program, without its folder."""
        return os.path.basename(self.words[0]) if self.words else ""


def simple_commands(command: str, depth: int = 0) -> list[Simple]:
    r"""The simple commands of a shell command, wrappers taken off, shells looked into.

    >>> [found.words for found in simple_commands("cd a && X=1 sudo git push 2>log | tee b")]
    [('cd', 'a'), ('git', 'push'), ('tee', 'b')]
    >>> [found.name for found in simple_commands("bash -lc 'git pull; make'")]
    ['git', 'make']
    """
    found: list[Simple] = []
    for raw, substituted in _split(command[:LONGEST]):
        inner = [*substituted]
        simple = raw._replace(words=_unwrapped(raw.words))
        script = _script(simple)
        if script is None:
            found.append(simple)
        else:
            inner.append(script)
            if simple.writes:
                found.append(Simple((), simple.writes))
        for text in inner:
            if depth < DEEPEST:
                found.extend(simple_commands(text, depth + 1))
    return [each for each in found if each.words or each.writes]


def _split(command: str) -> list[tuple[Simple, list[str]]]:
    """The simple commands as they stand, each with what its quoted words substitute."""
    if _SPECIAL.isdisjoint(command):
        return [(Simple(tuple(command.split())), [])]
    texts: list[str] = []

    def set_aside(here: re.Match[str]) -> str:
        texts.append(here[4])
        return f" \0{len(texts) - 1} {here[3]}"

    command = command.replace("\0", "")
    if "<<" in command:
        command = re.sub(_HERE, set_aside, command, flags=re.DOTALL)
    found: list[tuple[Simple, list[str]]] = []
    words: list[str] = []
    writes: list[str] = []
    inner: list[str] = []
    given, into = "", words
    for match in re.finditer(_LEXEMES, f"{command}\n", re.VERBOSE | re.DOTALL):
        if match.lastgroup == "end":
            found.append((Simple(tuple(words), tuple(writes), given), [*inner]))
            words, writes, inner, given = [], [], [], ""
            into = words
        elif match.lastgroup == "redirect":
            into = writes
        elif match[0].startswith("\0"):
            given = texts[int(match[0][1:])]
        elif match.lastgroup != "comment":
            into.append(_unquoted(match[0], inner))
            into = words
    return found


def _unquoted(word: str, inner: list[str]) -> str:
    """A word without its quotes; the commands that it substitutes are added to `inner`."""
    if _SPECIAL.isdisjoint(word):
        return word
    parts: list[str] = []
    for single, double, escaped, plain in re.findall(_PIECE, word, re.DOTALL):
        if double:
            pairs = re.findall(r"\$\((.*)\)|`([^`]*)`", double, re.DOTALL)
            inner.extend(one or other for one, other in pairs)
        parts.append(single or re.sub(r"\\(.)", r"\1", double) or escaped or plain)
    return "".join(parts)


def _unwrapped(words: tuple[str, ...]) -> tuple[str, ...]:
    """Without assignments, and without programs whose business is to run another one."""
    rest = list(words)
    while rest:
        first = rest[0]
        if _is_assignment(first):
            rest.pop(0)
        elif os.path.basename(first) in _WRAPPERS:
            rest.pop(0)
            # Options of the wrapper, and the duration that `timeout` and `nice` take.
            while rest and (rest[0].startswith("-") or rest[0].rstrip("smhd").isdigit()):
                rest.pop(0)
        else:
            break
    return tuple(rest)


def _is_assignment(word: str) -> bool:
    name, equals, _ = word.partition("=")
    return bool(equals) and name.isidentifier()


def _script(simple: Simple) -> str | None:
    """The commands that a shell is given as text; `None`: it is no shell, or runs a file."""
    if simple.name not in _SHELLS:
        return None
    if simple.name == "eval":
        return " ".join(simple.words[1:])
    for index, word in enumerate(simple.words[1:-1], 1):
        if word.startswith("-") and not word.startswith("--") and word.endswith("c"):
            return simple.words[index + 1]
    return simple.given or None
