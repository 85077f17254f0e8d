r"""Shell text to the simple commands in it, as the shell would run them, without running any.

A rule about `rm` is worth little if `r\m`, `X=rm; $X`, `sh -c 'rm …'`, `$(…)` or `cd / && rm …`
gets past it. Quotes, variables, substitutions, braces, here documents and folders changed on the
way are followed as far as that can be done without running anything; what cannot be known is
`UNKNOWN`. This is a reader of honest commands and simple tricks, not a sandbox: a text that is
computed, fetched, or lies in a script file is beyond it.

One pass over the text, whose length, depth and number of words are bounded.
"""

from typing import NamedTuple

from switchgear.core.shell_words import (
    DEEPEST,
    MARKS,
    UNKNOWN,
    Setting,
    TooLong,
    WordReader,
    choice,
    expanded,
    parted,
    unescaped,
)

__all__ = [
    "DEEPEST",
    "MOST_WORDS",
    "UNKNOWN",
    "Command",
    "Redirect",
    "Setting",
    "TooLong",
    "commands_of",
    "join",
    "within",
]

TEMPORARY = "/tmp/mktemp"  # noqa: S108  nothing is written there
"""What `$(mktemp)` is taken for."""
LONGEST = 262_144
"""Characters of one shell text; longer ones are not read, and rules refuse them."""
MOST_COMMANDS = 5_000
MOST_WORDS = 4_096
"""Words of one command."""

_BLANK = " \t\r"
_RESERVED = frozenset(
    (
        *("if", "then", "else", "elif", "fi", "do", "done", "while", "until", "esac"),
        *("!", "{", "}", "time", "coproc"),
    )
)
_DECLARE = frozenset(("export", "declare", "local", "readonly", "typeset"))


class Redirect(NamedTuple):
    """`> file`, `< file`; of `<<` and `<<<` the target is the text."""

    op: str
    target: str


class Command(NamedTuple):
    """One simple command: its words with all that is known filled in, and where it would run."""

    words: tuple[str, ...]
    redirects: tuple[Redirect, ...] = ()
    cwd: str = ""
    piped: str | None = None
    """What the command before it in a pipe would print, if that can be told."""
    pipe: str = ""
    """The pipe it is in; those that run inside of it begin with its name and a slash."""


def commands_of(text: str, setting: Setting, depth: int = 0) -> list[Command]:
    """Every simple command in a text, those in substitutions too. Raises `TooLong`.

    >>> [found.words for found in commands_of("X=/etc; 'r'm -rf $X | cat", Setting("/w"))]
    [('rm', '-rf', '/etc'), ('cat',)]
    """
    return _read(text, setting, depth).commands


def join(folder: str, path: str) -> str:
    """The path as seen from a folder, without `.` and `..`; `UNKNOWN` if it cannot be known.

    >>> join("/w/a", "../b/./c")
    '/w/b/c'
    """
    whole = path if path.startswith("/") else f"{folder}/{path}"
    if whole.startswith(UNKNOWN) or not whole.startswith("/"):
        return UNKNOWN
    parts: list[str] = []
    for part in whole.split("/"):
        if part == "..":
            parts[-1:] = []
        elif part not in {"", "."}:
            parts.append(part)
    return "/" + "/".join(parts)


def within(command: Command, pipe: str) -> Command:
    """The command as one that runs inside of a pipe."""
    return command._replace(pipe=f"{pipe}/{command.pipe}")


def _read(text: str, setting: Setting, depth: int) -> "_Reader":
    if len(text) > LONGEST:
        raise TooLong(f"a command of {len(text)} characters (at most {LONGEST} are read)")
    if depth > DEEPEST:
        raise TooLong(f"commands nested deeper than {DEEPEST} levels")
    for mark in MARKS:
        text = text.replace(mark, "")
    reader = _Reader(text, setting, depth)
    reader.read()
    return reader


class _Reader(WordReader):
    """Reads one text. Used by one thread, once."""

    def __init__(self, text: str, setting: Setting, depth: int) -> None:
        super().__init__(text, setting)
        self.commands: list[Command] = []
        self.printed: str | None = None
        """What the last command would print, if that can be told."""
        self._depth = depth
        self._outer: list[tuple[str, dict[str, str]]] = []
        self._words: list[str] = []
        self._redirects: list[Redirect] = []
        self._documents: list[tuple[str, bool, bool]] = []
        """Here documents to come: the word that ends them, whether tabs go, whether it was quoted."""
        self._is_piped = False
        self._pipe = 0
        self._filled = 0
        """The last command that was given its here document."""

    def read(self) -> None:
        """To the end of the text."""
        text = self._text
        while self._at < len(text):
            sign = text[self._at]
            if sign in _BLANK:
                self._at += 1
            elif text.startswith("\\\n", self._at):
                self._at += 2
            elif sign == "#":
                end = text.find("\n", self._at)
                self._at = len(text) if end < 0 else end
            elif sign in ";&|\n()":
                self._operator(sign)
            elif sign in "<>" and self._next() != "(":
                self._redirect()
            else:
                self._take_words()
        self._end()

    def _run(self, text: str) -> str:
        """The commands of a substitution are commands like others."""
        setting = self._setting._replace(
            cwd=self._cwd, env={**self._setting.env, **self._variables}
        )
        inner = _read(text, setting, self._depth + 1)
        # What a substitution reads goes where its words go.
        self._keep(*(within(command, str(self._pipe)) for command in inner.commands))
        return UNKNOWN if inner.printed is None else inner.printed

    def _keep(self, *commands: Command) -> None:
        self.commands += commands
        if len(self.commands) > MOST_COMMANDS:
            raise TooLong(f"more than {MOST_COMMANDS} commands in one")

    def _operator(self, sign: str) -> None:
        following = self._next()
        self._at += 1
        if sign == "&" and following == ">":  # &> file
            self._redirect()
            return
        self._end(is_pipe=sign == "|" and following != "|")
        if sign == "(":
            self._outer.append((self._cwd, dict(self._variables)))
        elif sign == ")" and self._outer:
            self._cwd, self._variables = self._outer.pop()
        elif sign == "\n":
            self._read_documents()
        elif sign == "|" and following in {"|", "&"}:
            self._at += 1

    def _end(self, *, is_pipe: bool = False) -> None:
        """A simple command is complete."""
        words, redirects = self._words, tuple(self._redirects)
        self._words, self._redirects = [], []
        while words and words[0] in _RESERVED:
            words.pop(0)
        if words[:1] == ["for"] and len(words) > 1:
            self._variables[words[1]] = choice(words[3:])
            words = []
        while words and (name := _assigned(words[0])):
            self._assign(name, words.pop(0))
        piped = self.printed if self._is_piped else None
        self._is_piped, self.printed = is_pipe, None
        if words or redirects:
            command = Command(tuple(words), redirects, self._cwd, piped, str(self._pipe))
            self._keep(command)
            self.printed = _printed(command, self._setting)
            self._remember(words)
        self._pipe += not is_pipe

    def _remember(self, words: list[str]) -> None:
        """What a command does to the folder and the variables of those behind it."""
        first, rest = (words[0], words[1:]) if words else ("", [])
        if first in {"cd", "pushd"}:
            where = [word for word in rest if word == "-" or not word.startswith("-")]
            target = where[0] if where else self._setting.home
            self._cwd = UNKNOWN if target == "-" else join(self._cwd, target)
        elif first in _DECLARE:
            for word in rest:
                if name := _assigned(word):
                    self._assign(name, word)
        elif first == "set" and "--" in rest:
            given = rest[rest.index("--") + 1 :]
            self._variables.update({"@": parted(given), "*": parted(given)})
            self._variables.update({str(at): word for at, word in enumerate(given[:9], 1)})
        elif first in {"read", "mapfile", "readarray"}:
            self._variables.update(dict.fromkeys(rest, UNKNOWN))
        elif first in {"source", ".", "eval"}:
            self._unset = UNKNOWN

    def _assign(self, name: str, word: str) -> None:
        """`NAME=value`, `NAME+=more`."""
        before = self._variables.get(name, "") if word.startswith(f"{name}+") else ""
        self._variables[name] = before + word.partition("=")[2]

    def _redirect(self) -> None:
        start = self._at
        while self._at - start < 3 and self._text[self._at : self._at + 1] in {*"<>&|"}:
            self._at += 1
        if self._text.startswith("<<-", start):
            self._at = start + 3
        op = self._text[start : self._at]
        while self._text[self._at : self._at + 1] in {*_BLANK}:
            self._at += 1
        before = len(self._words)
        raw, quoted = self._word()
        if op.endswith("&") and raw.isdigit():  # 2>&1
            return
        target = " ".join(expanded(raw, keep_empty=True))
        del self._words[before:]
        if op in {"<<", "<<-"}:
            self._documents.append((target, op == "<<-", quoted))
            target = ""
        self._redirects.append(Redirect(op, target))

    def _read_documents(self) -> None:
        """The here documents of the command that has just ended."""
        documents, self._documents = self._documents, []
        for end, strips, quoted in documents:
            lines: list[str] = []
            while self._at < len(self._text):
                line = self._taken(self._text.find("\n", self._at))
                if (line.lstrip("\t") if strips else line) == end:
                    break
                lines.append(line)
            text = "\n".join(lines)
            self._fill(text if quoted else self._sub(text))

    def _fill(self, document: str) -> None:
        """Give a here document to the first command that still waits for one."""
        for at in range(self._filled, len(self.commands)):
            command = self.commands[at]
            for index, (op, target) in enumerate(command.redirects):
                if op in {"<<", "<<-"} and not target:
                    redirects = list(command.redirects)
                    redirects[index] = Redirect("<<<", document)
                    self.commands[at] = command._replace(redirects=tuple(redirects))
                    self._filled = at
                    self._pass_on(at)
                    return

    def _pass_on(self, at: int) -> None:
        """What a command prints of its here document goes to the next one in its pipe."""
        command = self.commands[at]
        for behind in range(at + 1, len(self.commands)):
            following = self.commands[behind]
            if following.pipe == command.pipe:
                printed = _printed(command, self._setting)
                self.commands[behind] = following._replace(piped=following.piped or printed)
                return

    def _take_words(self) -> None:
        """One word of the text, which braces and variables may make several, or none."""
        raw, quoted = self._word()
        if raw.isdigit() and not quoted and self._text[self._at : self._at + 1] in {"<", ">"}:
            return  # the number of a stream: 2> file
        self._words.extend(expanded(raw, keep_empty=quoted))
        if len(self._words) > MOST_WORDS:
            raise TooLong(f"more than {MOST_WORDS} words in one command")


def _assigned(word: str) -> str:
    """The name of the variable that a word sets, or nothing."""
    name, equals, _ = word.partition("=")
    name = name.removesuffix("+")
    is_name = name.replace("_", "a").isalnum() and not name[:1].isdigit()
    return name if equals and is_name else ""


def _printed(command: Command, setting: Setting) -> str | None:
    """What a command prints, for the few of which it can be told."""
    program, *rest = command.words or ("",)
    program = program.rpartition("/")[2]
    if program == "printf" and rest:
        shown = rest[0].replace("%b", "%s")
        for word in rest[1:]:
            shown = shown.replace("%s", word, 1)
        return unescaped(shown)
    if program == "cat" and not rest:
        texts = [target for op, target in command.redirects if op == "<<<"]
        return texts[-1] if texts else command.piped
    if program == "git":
        return setting.workspace if rest == ["rev-parse", "--show-toplevel"] else None
    if program == "echo":
        shown = " ".join(word for word in rest if word not in {"-n", "-e", "-E", "-ne", "-en"})
        return unescaped(shown) if {"-e", "-ne", "-en"} & set(rest) else shown
    if program in {"which", "type"} or rest[:1] == ["-v"]:  # command -v
        return rest[-1] if rest and program in {"which", "type", "command"} else None
    told = {
        "pwd": command.cwd,
        "mktemp": TEMPORARY,
    }
    return told.get(program)
