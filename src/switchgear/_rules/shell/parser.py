r"""Finds the simple commands in a shell text, as the shell would run them, without running any.

A rule about `rm` is worth little if `r\m`, `X=rm; $X`, `sh -c 'rm …'`, `$(…)` or `cd / && rm …`
evades it. Quotes, variables, functions, substitutions, braces, here documents and changes of folder
are followed as far as possible without running anything; what cannot be known is `UNKNOWN`. This
parser understands ordinary commands and simple tricks; it is not a sandbox and cannot see text that is
computed, downloaded, or in a script file.

One pass over the text, whose length, depth and number of words are bounded.
"""

# ruff: noqa: PLR0911, PLR0912  one answer for each form of a command

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from switchgear._rules.interpreter_code import INTERPRETERS, code_of, printed_by
from switchgear._rules.options import behind_options, operands, options_in
from switchgear._rules.patterns import ANY, word_set
from switchgear._rules.shell.filters import FILTERS as _FILTERS
from switchgear._rules.shell.filters import filtered, finds, listed, listed_below
from switchgear._rules.shell.words import (
    DEEPEST,
    LONGEST_PATH,
    MARKS,
    MOST_LOOKUPS,
    STREAM,
    UNKNOWN,
    Setting,
    TooLong,
    WordReader,
    Work,
    choice,
    expanded,
    holds_key,
    parted,
    unescaped,
    unmarked,
)

FILE = "\ue008"
"""Prefix of the path of a file whose content is part of a command's words."""
TEMPORARY = "/tmp/mktemp"  # noqa: S108  nothing is written there
"""The value of `$(mktemp)`."""
MOST_WORDS = 4_096
"""Maximum number of words of one command."""
MOST_DOCUMENTS = 100
"""Maximum number of here documents in one line."""
MOST_LINES = 256
MOST_READ = 1_000
"""Maximum number of distinct words in a text that a loop or `xargs` reads."""
RUN_VARIABLES = word_set("""
    PROMPT_COMMAND BASH_ENV ENV EDITOR VISUAL PAGER GIT_EDITOR GIT_PAGER GIT_SSH_COMMAND
    GIT_SEQUENCE_EDITOR GIT_EXTERNAL_DIFF MANPAGER LESSOPEN LESSCLOSE FCEDIT GIT_ASKPASS SSH_ASKPASS
    BROWSER
""")
"""Variables whose text is run as a command by the programs that read them."""

_BLANK = " \t\r"
_RESERVED = word_set("if then else elif fi do done while until esac ! { } coproc")
_DECLARE = frozenset(("export", "declare", "local", "readonly", "typeset"))
_PASSES_ON = word_set("echo printf printenv base64 tr rev xxd sed cat head cut")
"""Programs that print their arguments or their input."""
_TAKES_NAMES = frozenset(("xargs", "parallel", "read", "mapfile", "readarray"))
_ECHO_OPTIONS = frozenset(("-n", "-e", "-E", "-ne", "-en", "-nE"))


class Redirect(NamedTuple):
    """A redirection such as `> file` or `< file`; a here document has `<<<` and its text as the target."""

    op: str
    target: str


class ShellCommand(NamedTuple):
    """One simple command: its words, expanded as far as possible, and where it would run."""

    words: tuple[str, ...]
    redirects: Sequence[Redirect] = ()
    cwd: str = ""
    piped: str | None = None
    """What the command before it in a pipe would print, if known."""
    pipe: str = ""
    """The pipe it is part of; pipes inside that pipe have its name and a slash as a prefix."""
    secrets: tuple[str, ...] = ()
    """The variables with keys that its words use."""
    foreign: bool = False
    """Whether the program is in a folder that is not trusted."""
    mounts: tuple[str, ...] = ()
    """In a container: the folders of this machine that are mounted."""
    written: str | None = None
    """The text that it writes to a file, if known."""
    variables: Mapping[str, str] = {}
    """The variables of the surrounding shell."""

    @property
    def here_texts(self) -> list[str]:
        """The texts of its here documents and here strings."""
        return [target for op, target in self.redirects if op == "<<<"]

    @property
    def input_texts(self) -> list[str]:
        """The texts of its here documents, and the output of the pipe before it, empty if unknown."""
        return [*self.here_texts, self.piped or ""]

    @property
    def given(self) -> str | None:
        """The text on its standard input, if known."""
        texts = self.here_texts
        return texts[-1] if texts else self.piped


def commands_of(text: str, setting: Setting, depth: int = 0) -> list[ShellCommand]:
    """Every simple command in a text, also in substitutions. Raises `TooLong`.

    >>> [found.words for found in commands_of("X=/etc; 'r'm -rf $X | cat", Setting("/w"))]
    [('rm', '-rf', '/etc'), ('cat',)]
    """
    return _read(text, setting, depth).commands


def join(folder: str, path: str) -> str:
    """The absolute path for a path in a folder, without `.` and `..`; `UNKNOWN` if it cannot be known.

    A path in an unknown folder begins with `UNKNOWN`.

    >>> join("/w/a", "../b/./c")
    '/w/b/c'
    """
    whole = path if path.startswith("/") else f"{folder}/{path}"
    if len(whole) > 2 * LONGEST_PATH:
        return UNKNOWN
    if not whole.startswith("/"):
        if path.startswith(UNKNOWN) or not folder.startswith(UNKNOWN) or ".." in path:
            return UNKNOWN
        return UNKNOWN + join("/", f"{folder[1:]}/{path}") if path.strip("./") else UNKNOWN
    parts: list[str] = []
    for part in whole.split("/"):
        if part == "..":
            parts[-1:] = []
        elif part not in {"", "."}:
            parts.append(part)
    return "/" + "/".join(parts)


def within(command: ShellCommand, pipe: str) -> ShellCommand:
    """The command, moved into a pipe."""
    return command._replace(pipe=f"{pipe}/{command.pipe}")


def _read(text: str, setting: Setting, depth: int, given: str | None = None) -> "_Reader":
    if depth > DEEPEST:
        raise TooLong(f"commands nested deeper than {DEEPEST} levels")
    if setting.work is None:
        setting = setting._replace(work=Work())
    if setting.work is not None:
        setting.work.count_text(text)
    if "\0" in text:
        raise TooLong("a NUL character, which no shell can read")
    for mark in MARKS:
        if mark in text:
            text = text.replace(mark, "")
    reader = _Reader(text, setting, depth)
    reader.printed, reader.is_piped = given, given is not None
    reader.read()
    if reader.reads_loop:
        again = _Reader(text, setting, depth)
        again.line_values = reader.line_values
        again.read()
        return again
    return reader


class _Reader(WordReader):
    """Parses one text. Used by one thread, once."""

    def __init__(self, text: str, setting: Setting, depth: int) -> None:
        super().__init__(text, setting)
        self.commands: list[ShellCommand] = []
        self.printed: str | None = None
        """What the last command would print, if known."""
        self.reads_loop = False
        """Whether a loop with `read` gets its lines from a known text after `done`."""
        self.line_values: list[str] = []
        self._names_read: list[str] = []
        self._depth = depth
        self._outer: list[tuple[str, dict[str, str]]] = []
        self._cases: list[int] = []
        """For each open `case`, the number of open parentheses around it."""
        self._folders: list[str] = []
        """The folders that `pushd` left."""
        self._earlier_words: set[str] = set()
        """Words of earlier commands, which may be folders that they created."""
        self._words: list[str] = []
        self._redirects: list[Redirect] = []
        self._documents: list[tuple[list[Redirect], int, str, bool, bool]] = []
        """Here documents not yet read: the list and index of the redirection, the word that ends the
        document, whether tabs are stripped, whether the word was quoted."""
        self.is_piped = False
        """Whether the output of the last command goes to the next command."""
        self._pipe = 0
        self._line = 0
        """The index of the first command of the current line."""
        self._later_cwd = ""
        """The folder after the next command: `cd x || exit`."""
        self._functions: dict[str, str] = dict(setting.functions)
        self._variables_copy: Mapping[str, str] | None = None
        self._socket = ""
        """The path of the last socket that was opened: `exec 3<>/dev/tcp/host/80`."""
        self._loops: list[tuple[int, int]] = []
        """For each open loop, the index of its first command, and the pipe that feeds it or -1."""
        self._files: dict[str, list[str] | None] = {}
        """Files that commands write, with the text written, in parts; `None`: unknown."""
        self._stars_match_dots = False
        """Whether a star also matches names that begin with a dot."""

    def read(self) -> None:
        text = self._text
        while self._at < len(text):
            char = text[self._at]
            if char in _BLANK:
                self._at += 1
                self._work.count_step()
            elif text.startswith("\\\n", self._at):
                self._at += 2
            elif char == "#":
                end = text.find("\n", self._at)
                self._at = len(text) if end < 0 else end
            elif char in ";&|\n()":
                self._operator(char)
            elif char in "<>" and self._next() != "(":
                self._redirect()
            else:
                self._read_words()
        self._end()

    def _run(self, text: str) -> str:
        """Add the commands of a substitution; returns their output as far as known."""
        if text.startswith("<") and not text.startswith("<<"):  # $(< file)
            text = f"cat {text}"
        inner = self._inner(text)
        for command in inner.commands[:MOST_DOCUMENTS]:
            if command.words[:1] and command.words[0] in _PASSES_ON:
                self._secrets.update(command.secrets)
                named = [word for word in command.words[1:9] if word[:1] not in {"-", ""}]
                named += [target for op, target in command.redirects if op == "<"]
                if command.words[0] not in {"echo", "printf", "printenv"}:
                    self._secrets.update(FILE + join(command.cwd, word) for word in named)
        if inner.printed is not None:
            return inner.printed.rstrip("\n")
        if len(inner.commands) == 1:
            names = self._names_of_cat(inner.commands[0])
            if names is not None:
                return names.strip()
        return UNKNOWN if inner.commands else ""

    def _inner(
        self, text: str, mark: str = "", *, given: str | None = None, **env: str
    ) -> "_Reader":
        """Read another text and add its commands; a `mark` in their pipe means the same shell.

        `given` is the input of its first command.
        """
        self._work.count_step(20)  # about the cost of a new reader
        setting = self._setting._replace(
            cwd=self._cwd,
            env={**self._setting.env, **self._variables, "OLDPWD": self._before_cd, **env},
            functions=self._functions,
            work=self._work,
        )
        inner = _read(text, setting, self._depth + 1, given)
        # The input of a substitution goes to the same hosts as the words that it prints.
        self.commands += (
            command._replace(pipe=f"{self._pipe}/{mark}{command.pipe}")
            for command in inner.commands
        )
        return inner

    def _add_command(self, command: ShellCommand) -> None:
        self._work.count_command()
        self.commands.append(command)

    def _operator(self, char: str) -> None:
        following = self._next()
        is_name = bool(self._words) and _RESERVED.issuperset(self._words[:-1])
        if char == "(" and is_name and self._defines_function():
            return
        self._at += 1
        self._work.count_step()
        if char == "&" and following == ">":  # &> file
            self._redirect()
            return
        self._end(char + following if char in "|&" and following == char else char)
        if char == "(":
            self._outer.append((self._cwd, dict(self._variables)))
        elif char == ")" and self._outer and self._cases[-1:] != [len(self._outer)]:
            self._cwd, self._variables = self._outer.pop()
        elif char == "\n":
            self._read_documents()
        elif char in "|&" and following in {char, "&"}:
            self._at += 1

    def _defines_function(self) -> bool:
        """Store the body of `name() { … }` for later calls; the body itself is also read as commands."""
        at = self._at + 1
        while self._text[at : at + 1] in {" ", "\t"}:
            at += 1
        if self._text[at : at + 1] != ")":
            return False
        self._at = at + 1
        self._read_body(self._words.pop())
        return True

    def _read_body(self, name: str) -> None:
        text, at = self._text, self._at
        while text[at : at + 1] in {" ", "\t", "\n", "\r"}:
            at += 1
        pair = {"{": "{}", "(": "()"}.get(text[at : at + 1])
        if pair is None:
            return
        self._at = at + 1
        end = self._closing(pair)
        end = len(text) if end < 0 else end
        self._functions[name] = text[at + 1 : end]
        self._body_ends = max(self._body_ends, end)
        self._at = at + (pair == "{}")

    def _end(self, operator: str = "") -> None:
        """Complete the simple command before an operator."""
        words, redirects = self._words, self._redirects
        self._words, self._redirects = [], []
        words = self._without_reserved(words, redirects)
        while words and (name := _assigned_name(words[0])):
            self._assign(name, words.pop(0))
        piped = self.printed if self.is_piped else None
        if piped is None and words[:1]:
            bare = list(unwrapped(tuple(words)))
            if bare[0].rpartition("/")[2] in _TAKES_NAMES:
                piped = self._names_for(bare, redirects, is_piped=self.is_piped)
        if words or redirects:
            self.printed = None
        if words or redirects or operator != "(":
            self.is_piped = operator == "|"
        secrets = tuple(sorted(self._secrets)) if words or redirects else ()
        if words or redirects:
            self._secrets.clear()
        text = self._functions.get(words[0]) if words else None
        if words[:1] == ["eval"] and UNKNOWN not in " ".join(words):
            text = " ".join(words[1:])
        if text is not None and self._depth < DEEPEST:
            self._call(words, text)
            words = words[:1] if words[0] == "eval" else []
        if words or redirects:
            command = ShellCommand(
                tuple(words),
                redirects,
                self._cwd,
                piped,
                str(self._pipe),
                secrets,
                variables=self._snapshot(),
            )
            if words[:1] == ["printenv"]:
                command = command._replace(secrets=tuple(filter(holds_key, words[1:])))
            shown = _known_output(command, self._setting)
            if shown is None and words[:1] == ["cat"]:
                shown = self._written_text(words[1:])
            if _is_written(command):
                self._note_written(command, shown)
                command, shown = command._replace(written=shown), None
            self._note_copies(command)
            self._add_command(command)
            self._feed_outputs(command, shown if shown is not None else command.written)
            self.printed = shown
            later, self._later_cwd = self._later_cwd, ""
            self._remember(words, command, operator)
            self._cwd = later or self._cwd
        self._pipe += operator != "|" and not (operator == "(" and not words and not redirects)

    def _feed_outputs(self, command: ShellCommand, shown: str | None) -> None:
        """Pass the output of a command to the commands in its `>(…)`, as if they were in its pipe."""
        texts, self._outputs = self._outputs, []
        if texts and command.words[:1] == ("tee",):
            shown = command.given
        for text in texts:
            start = len(self.commands)
            self._inner(text, given=shown)
            for at in range(start, len(self.commands)):
                self.commands[at] = self.commands[at]._replace(pipe=command.pipe)

    def _written_text(self, files: Sequence[str]) -> str | None:
        """The text that earlier commands have written to files."""
        texts = [self._text_in(join(self._cwd, file)) for file in files if file[:1] != "-"]
        known = [text for text in texts if text is not None]
        return "\n".join(known) if known else None

    def _text_in(self, path: str) -> str | None:
        """The text that earlier commands have written to a file; each read counts as work."""
        parts = self._files.get(path)
        if parts is None:
            return None
        text = "".join(parts)
        self._work.count_value(text)
        return text

    def _note_written(self, command: ShellCommand, shown: str | None) -> None:
        """Store the text that a command writes to a file, for commands that read the file."""
        for op, path in command.redirects:
            if op.startswith((">", "&>")) and len(self._files) < MOST_LINES and path != STREAM:
                file = join(command.cwd, path)
                parts = self._files.get(file) if op.endswith(">>") else None
                if shown is None or parts is None:
                    self._files[file] = None if shown is None else [shown]
                else:
                    parts.append(shown)

    def _note_copies(self, command: ShellCommand) -> None:
        """Store the text that `tee FILE` and `find -fprint FILE` write."""
        program, *rest = command.words or ("",)
        text = command.given
        if program in {"tee", "sponge"} and text is not None:
            for word in rest:
                self._files[join(command.cwd, word)] = [text]
        elif program == "find" and "-fprint" in rest[:-1]:
            file = rest[rest.index("-fprint") + 1]
            self._files[join(command.cwd, file)] = ["\n".join(finds(rest))]

    def _names_for(
        self, words: list[str], redirects: Sequence[Redirect], *, is_piped: bool
    ) -> str | None:
        """The names that `xargs` or `read` gets from a file: by an option, `<`, or `cat FILE |`."""
        for name, value in options_in(words):
            if name in {"-a", "--arg-file", "-0a", "-ra", "-r0a"}:
                names = self._names_in(value)
                if names is not None:
                    return names
        for op, target in redirects:
            if op == "<":
                return self._names_in(target)
        before = self.commands[-1] if self.commands and is_piped else None
        return None if before is None else self._names_of_cat(before)

    def _names_of_cat(self, command: ShellCommand) -> str | None:
        """The names in the files of a `cat FILE`."""
        files = operands(command.words[1:])
        files += [target for op, target in command.redirects if op == "<"]
        if command.words[:1] not in {("cat",), ("sort",), ("head",), ("tail",), ("uniq",)}:
            return None
        names = [self._names_in(each) for each in files if not each.isdecimal()]
        known = [each for each in names if each is not None]
        return "\n".join(known) if known else None

    def _names_in(self, path: str) -> str | None:
        whole = join(self._cwd, path)
        if whole in self._files:
            return self._text_in(whole)
        names_in = self._setting.names_in
        if names_in is None or UNKNOWN in whole or self._work.lookups >= MOST_LOOKUPS:
            return None
        self._work.lookups += 1
        return names_in(whole)

    def _without_reserved(self, words: list[str], redirects: list[Redirect]) -> list[str]:
        """The words of a simple command, without the shell's reserved words around it."""
        while words and words[0] in _RESERVED:
            word = words.pop(0)
            if word in {"while", "until"}:
                self._loops.append((len(self.commands), self._pipe if self.is_piped else -1))
            elif word == "done" and self._loops:
                self._feed_loop(*self._loops.pop(), redirects)
            if word == "done" and self._names_read and not self.line_values:
                for op, target in redirects:
                    self._reads_lines(op, target)
            elif word == "esac" and self._cases:
                self._cases.pop()
        if words[:1] == ["time"] and (
            words[1:2] == ["-p"] or (words[1:2] and words[1] in _RESERVED)
        ):
            return self._without_reserved(words[1 + (words[1] == "-p") :], redirects)
        first = words[0] if words else ""
        if first in {"for", "select"} and len(words) > 1:
            values = words[3:] if words[2:3] == ["in"] else [self._argument("@")]
            self._variables[words[1]] = choice(values)
            return []
        if first == "case" and "in" in words:
            self._cases.append(len(self._outer))
            return []
        if first == "function" and len(words) > 1:
            at = self._at
            self._read_body(words[1])
            self._at = at
            return words[2:] if words[2:3] != ["{"] else words[3:]
        return words

    def _feed_loop(self, start: int, pipe: int, redirects: list[Redirect]) -> None:
        """Pass the input of a loop to the commands in it."""
        files = [redirect for redirect in redirects if redirect.op == "<"]
        sources = [ShellCommand((), files, self._cwd)] if files else []
        if pipe >= 0:
            before = self.commands[max(start - 8, 0) : start]
            sources += [command for command in before if command.pipe == str(pipe)]
        if sources:
            pipes = dict.fromkeys(command.pipe for command in self.commands[start:][:MOST_LINES])
            for inner in pipes:
                for source in sources:
                    self._add_command(source._replace(pipe=inner))

    def _reads_lines(self, op: str, target: str) -> None:
        """Store the lines that a loop reads from a text after it; everything is then parsed again."""
        if op == "<":
            op, target = "<<<", self._names_in(target) or ""
        if op == "<<<" and target:
            self.line_values = _words_read(target)
            self.reads_loop = bool(self.line_values)

    def _call(self, words: list[str], text: str) -> None:
        known = self._functions
        self._functions = {name: body for name, body in known.items() if name != words[0]}
        env = {str(at): word for at, word in enumerate(words[1:10], 1)}
        try:
            args = {"@": parted(words[1:]), "*": " ".join(words[1:])}
            inner = self._inner(text, "+", **args, **env)
        finally:
            self._functions = known
        self._cwd = inner._cwd  # noqa: SLF001  the same shell
        given = {
            name: value
            for name, value in inner._variables.items()  # noqa: SLF001
            if name != "_" and name[:1].isidentifier()
        }
        self._variables.update(given)
        self.printed = inner.printed

    def _remember(self, words: list[str], command: ShellCommand, operator: str) -> None:
        """Apply a command's changes to the folder and the variables."""
        first, rest = (words[0], words[1:]) if words else ("", [])
        if words:
            self._variables["_"] = words[-1]
        if first in {"cd", "pushd", "popd", "chdir"}:
            self._change_folder(first, rest, operator)
        elif first in _DECLARE:
            self._secrets.update(command.secrets)
            refers = any(word[:1] == "-" and "n" in word for word in rest)
            for word in rest:
                if name := _assigned_name(word):
                    self._assign(name, word)
                    if refers:
                        self._references[name] = word.partition("=")[2]
            self._secrets.clear()
        elif first == "set" and ("--" in rest or (rest and rest[0][:1] not in {"-", "+"})):
            given = rest[rest.index("--") + 1 :] if "--" in rest else rest
            self._variables.update({"@": parted(given), "*": parted(given)})
            self._variables.update({str(at): word for at, word in enumerate(given[:99], 1)})
        elif first in {"read", "mapfile", "readarray"}:
            self._read_values(rest, command)
        elif first == "printf" and rest[:1] == ["-v"] and len(rest) > 2:
            shown = _known_output(command._replace(words=("printf", *rest[2:])), self._setting)
            self._variables[rest[1]] = UNKNOWN if shown is None else shown
        elif first == "alias":
            for word in rest:
                name, equals, text = word.partition("=")
                if equals:
                    self._functions[name] = f'{text} "$@"'
        elif first == "hash" and rest[:1] == ["-p"] and len(rest) > 2:
            self._functions[rest[2]] = f'{rest[1]} "$@"'
        elif first in {"shopt", "setopt", "set"}:
            self._stars_match_dots = self._stars_match_dots or bool(
                {"dotglob", "globdots", "glob_dots"} & set(rest)
            )
        elif first in {"source", ".", "eval"}:
            self._unset = UNKNOWN
        if len(self._earlier_words) < MOST_LINES:
            self._earlier_words.update(rest[:8])

    def _read_values(self, rest: list[str], command: ShellCommand) -> None:
        """Set the variables of `read name` to the words of its input, if they are known."""
        text = command.given
        known = _words_read(text) if text and UNKNOWN not in text else self.line_values
        value = choice(known) if known else UNKNOWN
        is_array = command.words[0] != "read" or any(
            word[:1] == "-" and "a" in word for word in rest
        )
        if is_array and known:
            value = parted(known)
        names = operands(rest) or ["REPLY"]
        self._names_read += names
        self._variables.update(dict.fromkeys(names, value))
        files = {FILE + join(command.cwd, path) for op, path in command.redirects if op == "<"}
        if files:
            self._held.update(dict.fromkeys(names, frozenset(files)))

    def _change_folder(self, program: str, rest: list[str], operator: str) -> None:
        where = [word for word in rest if word == "-" or not word.startswith(("-", "+"))]
        target = where[0] if where else self._setting.home or UNKNOWN
        if program == "popd" or target == "-":
            is_pop = program == "popd" and self._folders
            new = self._folders.pop() if is_pop else self._before_cd
        else:
            new = join(self._cwd, target)
        if len(new) > LONGEST_PATH:
            raise TooLong(f"a folder whose path has more than {LONGEST_PATH} characters")
        if program == "pushd":
            self._folders.append(self._cwd)
        exists = target in self._earlier_words or operator == "&&" or self._is_folder(new)
        if not exists:
            return  # `cd` fails, and the next commands run in the same folder
        if operator == "||":
            self._later_cwd = new
        else:
            self._before_cd, self._cwd = self._cwd, new

    def _is_folder(self, path: str) -> bool:
        is_folder = self._setting.is_folder
        if is_folder is None or UNKNOWN in path or self._work.lookups >= MOST_LOOKUPS:
            return True
        self._work.lookups += 1
        return is_folder(path)

    def _snapshot(self) -> Mapping[str, str]:
        """The current variables: the same mapping until one is set."""
        if self._variables_copy is None:
            self._variables_copy = dict(self._variables)
        return self._variables_copy

    def _assign(self, name: str, word: str) -> None:
        """Set a variable for `NAME=value` or `NAME+=more`."""
        before = self._variables.get(name, "") if word.startswith(f"{name}+") else ""
        value = before + word.partition("=")[2]
        self._work.count_value(value)
        self._variables[name] = value
        self._variables_copy = None
        if self._secrets:
            self._held[name] = frozenset(self._secrets)
        if name in RUN_VARIABLES and value and UNKNOWN not in value:
            self._inner(value)

    def _redirect(self) -> None:
        start = self._at
        self._work.count_step()
        while self._at - start < 3 and self._text[self._at : self._at + 1] in {*"<>&|"}:
            self._at += 1
        if self._text.startswith("<<-", start):
            self._at = start + 3
        op = self._text[start : self._at]
        while self._text[self._at : self._at + 1] in {*_BLANK}:
            self._at += 1
        if op == "<" and self._text.startswith("<(", self._at):
            op = "<<<"  # the text that the commands print
        raw, quoted = self._word()
        if op.endswith("&") and (raw.rstrip("-").isdigit() or raw == "-"):  # 2>&1
            if self._socket and raw not in {"0", "1", "2", "-"}:
                self._redirects.append(Redirect(">", self._socket))
            return
        *others, target = expanded(raw, keep_empty=True) or [""]
        if op == "<<<":
            others, target = [], " ".join((*others, target))
        self._redirects += (Redirect(op, other) for other in others)
        if op in {"<<", "<<-"}:
            if len(self._documents) >= MOST_DOCUMENTS:
                raise TooLong(f"more than {MOST_DOCUMENTS} here documents in a line")
            pending = (self._redirects, len(self._redirects), target, op == "<<-", quoted)
            self._documents.append(pending)
            op, target = "<<<", ""
        if target.startswith(("/dev/tcp/", "/dev/udp/")):
            self._socket = target
        self._redirects.append(Redirect(op, target))

    def _read_documents(self) -> None:
        """The here documents of the commands of the line that has just ended."""
        documents, self._documents = self._documents, []
        for redirects, index, end, strips, quoted in documents:
            text = self._document(end, strips=strips)
            redirects[index] = Redirect("<<<", text if quoted else self._sub(text))
        if documents:
            self._pass_on()
        self._line = len(self.commands)

    def _document(self, end: str, *, strips: bool) -> str:
        """The text of a here document, up to the line `end`."""
        if not strips:  # in one step, because a document may be long
            if self._text.startswith(f"{end}\n", self._at) or self._text[self._at :] == end:
                self._at += len(end) + 1
                return ""
            found = self._text.find(f"\n{end}\n", self._at)
            if found < 0 and self._text.endswith(f"\n{end}"):
                found = len(self._text) - len(end) - 1
            text = self._read_until(found)
            self._at += len(end) + 1 if found >= 0 else 0
            return text
        lines: list[str] = []
        while self._at < len(self._text):
            self._work.count_step()
            line = self._read_until(self._text.find("\n", self._at)).lstrip("\t")
            if line == end:
                break
            lines.append(line)
        return "\n".join(lines)

    def _pass_on(self) -> None:
        """Pass the output of a here document to the next commands of the pipe."""
        printed: dict[str, str | None] = {}
        for at in range(self._line, len(self.commands)):
            command = self.commands[at]
            if command.pipe in printed:
                command = self.commands[at] = command._replace(piped=printed[command.pipe])
            shown = printed[command.pipe] = _known_output(command, self._setting)
            if _is_written(command):
                self.commands[at] = command._replace(written=shown)
            self.printed = None if _is_written(command) else shown
            if command.words[:1] == ("read",):
                self._read_values(list(command.words[1:]), command)
            for op, target in command.redirects if not command.words else ():
                if self._names_read and not self.line_values:
                    self._reads_lines(op, target)

    def _read_words(self) -> None:
        """Read one word of the text and add the words that it expands to, which may be none."""
        start = self._at
        raw, quoted = self._word()
        if raw.isdigit() and not quoted and self._text[self._at : self._at + 1] in {"<", ">"}:
            return  # the number of a stream: 2> file
        if raw.endswith("=") and not quoted and self._text[self._at : self._at + 1] == "(":
            self._array(raw[:-1].removesuffix("+"))
            return
        is_value = not self._words and _assigned_name(raw)
        found = [unmarked(raw)] if is_value else expanded(raw, keep_empty=quoted)
        if self._stars_match_dots:
            found = [word.replace("*", ANY) for word in found]
        self._words.extend(found)
        self._work.count_step(len(found))
        if len(self._words) > MOST_WORDS:
            raise TooLong(f"more than {MOST_WORDS} words in one command")
        if self._at == start:  # nothing was read: no word begins with this character
            self._at += 1

    def _array(self, name: str) -> None:
        """Set an array for `name=(a b c)`."""
        self._at += 1
        inner = self._read_until(self._closing("()"))
        self._inner(f": {inner}")
        for command in reversed(self.commands):
            if command.words[:1] == (":",):
                values = [
                    word.partition("]=")[2] if word.startswith("[") and "]=" in word else word
                    for word in command.words[1:]
                ]
                self._variables[name] = parted(values)
                break
        if not name.replace("_", "a").isalnum():
            self._words.append(UNKNOWN)


def _assigned_name(word: str) -> str:
    """The name of the variable that a word sets, or an empty string."""
    name, equals, _ = word.partition("=")
    name = name.removesuffix("+")
    is_name = name.replace("_", "a").isalnum() and not name[:1].isdigit()
    return name if equals and is_name else ""


def _known_output(command: ShellCommand, setting: Setting) -> str | None:
    """The output of a command if it can be computed, which it can for few programs."""
    program, *rest = unwrapped(command.words) or ("",)
    program = program.rpartition("/")[2]
    below = listed_below(program, rest)
    if below is not None and (command.piped is None or program not in _FILTERS):
        return below
    if program in _FILTERS:
        return None if command.given is None else filtered(program, rest, command.given)
    if program in {"find", "ls", "dir", "vdir"}:
        return listed(program, rest)
    if program.startswith(INTERPRETERS):
        return printed_by(code_of(command))
    if program == "xargs" and command.piped and UNKNOWN not in command.piped:
        inner = behind_options(tuple(rest), {"-n", "-I", "-P", "-L", "-d", "-E", "-s", "-a"})
        words = (*inner, *_words_read(command.piped))
        return (
            _known_output(command._replace(words=words, piped=None), setting) if inner else words[0]
        )
    if program == "printf" and rest:
        rest = rest[1:] if rest[0] == "--" else rest
        return _printf_output(rest) if rest else ""
    if program == "git":
        return setting.workspace if rest == ["rev-parse", "--show-toplevel"] else None
    if program == "echo":
        while rest and rest[0] in _ECHO_OPTIONS:
            if "e" in rest[0]:
                return unescaped(" ".join(rest[1:]))
            rest = rest[1:]
        return " ".join(rest)
    if program in {"which", "type"} or rest[:1] == ["-v"]:  # command -v
        if not rest or program not in {"which", "type", "command"}:
            return None
        return rest[-1] if "/" in rest[-1] else f"/usr/bin/{rest[-1]}"
    if program in {"basename", "dirname", "realpath", "readlink"}:
        return _part_of_path(program, rest)
    return {"pwd": command.cwd, "mktemp": TEMPORARY, "true": "", ":": ""}.get(program)


_WRAPPERS = word_set("""
    sudo doas env nice ionice timeout gtimeout stdbuf nohup setsid command builtin exec time busybox
    toybox unbuffer chrt taskset
""")
_WRAPPED = word_set("""
    xargs parallel find ls dir grep rg fd git cat echo tree printf du sort head tail awk sed cut tr
    tee locate
""")


def unwrapped(words: tuple[str, ...]) -> tuple[str, ...]:
    """The words of a program that prints or takes names, without the wrappers that start it.

    >>> unwrapped(("sudo", "-u", "me", "xargs", "rm"))
    ('xargs', 'rm')
    """
    if not words or words[0].rpartition("/")[2] not in _WRAPPERS:
        return words
    for at, word in enumerate(words[1:8], 1):
        if word.rpartition("/")[2] in _WRAPPED:
            return words[at:]
    return words


def _is_written(command: ShellCommand) -> bool:
    """Whether the output of a command goes to a file."""
    return any(op.startswith((">", "&>")) for op, _ in command.redirects)


def _printf_output(rest: list[str]) -> str:
    """The output of `printf format word…`, which repeats the format until no word is left."""
    pieces = unescaped(rest[0].replace("%%", "%\\045")).replace("%b", "%s").replace("%d", "%s")
    words = list(rest[1:])
    shown = ""
    while True:
        for at, part in enumerate(pieces.split("%s")):
            shown += (words.pop(0) if words and at else "") + part
        if not words or "%s" not in pieces:
            break
    return shown.replace("%%", "%")


def _words_read(text: str) -> list[str]:
    """The distinct words of a text. Raises `TooLong`."""
    found = list(dict.fromkeys(text.split()))
    if len(found) > MOST_READ:
        raise TooLong(f"a text of more than {MOST_READ} words for a loop or xargs")
    return found


def _part_of_path(program: str, rest: list[str]) -> str | None:
    plain = operands(rest)
    if not plain or any(UNKNOWN in word for word in plain):
        return None
    if program == "dirname":
        return "\n".join(word.rstrip("/").rpartition("/")[0] or "." for word in plain)
    name = plain[0].rstrip("/").rpartition("/")[2]
    if program == "basename":
        return name.removesuffix(plain[1]) if len(plain) > 1 else name
    return plain[0]
