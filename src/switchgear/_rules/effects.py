"""What a tool call would do: the files, commands, hosts and texts in its inputs.

Every agent has its own names for the same few inputs. The name of an input shows what it is
(`file_path`, `command`, `url`, …); the name of the tool shows whether a path is read, written or
deleted. A tool with an unknown name is assumed to write.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from switchgear._rules.hosts import host_of, hosts_in
from switchgear._rules.interpreter_code import joined
from switchgear._rules.patterns import word_set
from switchgear._rules.program_effects import Effects, paths_in
from switchgear._rules.programs import GUARD_NAME, OPERATED, effects_of, effects_of_words
from switchgear._rules.shell.parser import join
from switchgear._rules.shell.words import UNKNOWN, Setting, TooLong, Work

_SHELL_KEYS = frozenset(("command", "cmd", "script", "shell_command", "bash", "commands"))
_TYPED_KEYS = frozenset(
    ("input", "text", "", "chars", "keys", "stdin", "data", "keystrokes", "line")
)
"""Inputs of a tool that types into a shell."""
_NAMED_KEYS = {
    **dict.fromkeys(("enter", "return", "c-m", "c-j", "kpenter", "{enter}", "<enter>"), "\n"),
    "space": " ",
    "tab": "\t",
    "c-i": "\t",
    "bspace": "\x7f",
    "backspace": "\x7f",
    "c-c": "\x03",
    "c-u": "\x15",
    "c-w": "\x17",
    "c-h": "\x7f",
    "c-d": "\x04",
    **dict.fromkeys(("up", "down", "left", "right", "home", "end", "escape", "c-a", "c-r"), "\x1b"),
}
_PATH_KEYS = word_set("""
    file_path path notebook_path filepath filename file target_file absolute_path relative_path
    dir_path directory dir folder paths source destination old_path new_path target uri files
    file_paths
""")
_TEXT_KEYS = word_set("""
    content contents new_string new_str old_string old_str text body file_text insert_text
    new_source patch diff input data message code replacement replace prompt description title
    comment
""")
_PLACE_KEYS = ("cwd", "workdir", "working_directory", "directory", "dir_path", "dir", "folder")
"""Inputs that name the folder in which a command runs; all but the first three only beside a command."""
_FOLDER_KEYS = ("folder", "dir", "directory", "dir_path", "parent")
_NAME_KEYS = ("name", "filename", "file_name", "file", "basename")
_EDITORS = frozenset(("edit", "editor"))
"""Words in the names of tools with several commands, one of which is `view`."""
_VIEW_KEYS = frozenset(("command", "path", "view_range"))
"""The inputs of the command `view`: with any other input, the tool may do something else."""
_SENDING = frozenset(("post", "put", "upload", "send", "publish", "share", "attach", "request"))
"""Words in the names of tools that send their inputs."""
_URL_KEYS = frozenset(("url", "uri", "urls", "endpoint", "href", "host", "hostname", "base_url"))
_READING = word_set("""
    read view cat open ls list glob grep search find get fetch stat show look diff tree rg query
    describe head ripgrep notebookread ls inspect count check lookup preview
""")
"""Verbs of tools that only read."""
_CHANGING = word_set("""
    write edit replace update create insert apply set put patch save append modify change add make
    mkdir copy upload import execute exec run eval rewrite fix format sort sync truncate overwrite
    substitute sub sed transform refactor merge commit push restore checkout revert reset clean
    clear empty touch chmod chown link symlink install uninstall send post and then or toggle swap
    mutate batch fill generate move rename stash store persist dump prepend inject alter strip wipe
""")
"""Words in the name of a tool that does more than read, whatever else it is called."""
_DELETING = word_set("""
    delete remove unlink rm rmdir trash destroy drop prune purge wipe erase shred
""")
_ALTERING = frozenset(("chmod", "chown", "chattr", "permissions", "symlink", "link", "mount"))
"""Words in the names of tools that change a folder and everything in it."""
_MOVING = frozenset(("move", "rename", "mv"))
_SHELL_WORDS = word_set("""
    bash shell sh terminal exec execute console zsh stdin keys keystrokes tty pty term tmux iterm
""")
_TERMINALS = frozenset(("terminal", "term", "tmux", "iterm", "shell", "console", "tty", "screen"))
"""Servers whose tools type into a shell."""
_PROCESSES = frozenset(("process", "subprocess", "repl", "pane"))
_TYPING = frozenset(("interact", "send", "write", "type", "input", "feed", "communicate"))
"""A tool whose name has a word of both sets types into a running program, which may be a shell."""
_CODE_WORDS = word_set("""
    python ipython jupyter notebook cell interpreter repl run execute exec node javascript js
""")
"""Words in the names of tools that run their input `code`."""
_PATCH = "*** Begin Patch"
_PATCH_FILES = (
    ("*** Add File: ", "writes"),
    ("*** Update File: ", "writes"),
    ("*** Delete File: ", "deletes"),
    ("*** Move to: ", "writes"),
    ("+++ ", "writes"),
    ("--- ", "writes"),
)
UNREADABLE = "the call could not be read"
"""Prefix of the message if the parser itself fails: a defect of Switchgear."""
DEEPEST = 8
MOST_INPUTS = 5_000
LONGEST_LINE = 10_000
"""Maximum length of an input that is parsed as a name or, if the tool runs code, as a command."""


class Place(NamedTuple):
    """Where a call would run. Immutable; any thread may read it."""

    workspace: str
    """The folder that the agent may work in, absolute."""
    cwd: str = ""
    """The folder in which its commands run; empty: the workspace."""
    home: str = ""
    env: Mapping[str, str] = {}
    """Variables that its commands would see."""
    resolve: Callable[[str], str] | None = None
    """Returns a path with its links followed, as `os.path.realpath` does; `None`: links are not followed."""
    protected: tuple[str, ...] = ()
    """Further globs of paths that belong to the guard: its configuration, store, hooks."""
    is_folder: Callable[[str], bool] | None = None
    """Whether a path is a folder now; `None`: every folder is assumed to exist."""
    names_in: Callable[[str], str | None] | None = None
    """Returns the names that a file lists, one per line, or `None` if it lists none or is unreadable."""


_COLLECTED = [field for field in Effects._fields if field not in {"tool", "unread"}]


def call_effects(tool: str, inputs: Any, place: Place) -> Effects:
    """What a call of this tool with these inputs, as parsed from JSON, would do.

    >>> call_effects("Write", {"file_path": "../x", "content": "1"}, Place("/w")).writes
    ('/x',)
    """
    collector = _Collector(tool, place)
    try:
        collector.add_inputs(inputs)
    except TooLong as error:
        collector.unread = str(error)
    except Exception as error:  # noqa: BLE001  a call that cannot be parsed must be refused
        collector.unread = f"{UNREADABLE} ({type(error).__name__})"
    return collector.effects()


class _Collector:
    """Collects the effects of the inputs of one call. Used by one thread, once."""

    def __init__(self, tool: str, place: Place) -> None:
        self.unread = ""
        self._tool = tool
        self._cwd = join(place.workspace, place.cwd or place.workspace)
        self._setting = Setting(
            self._cwd,
            place.home,
            place.workspace,
            place.env,
            is_folder=place.is_folder,
            names_in=place.names_in,
            work=Work(),
        )
        self._found: dict[str, dict[Any, None]] = {field: {} for field in _COLLECTED}
        self._access = _access(tool)
        self._is_shell = _is_terminal(tool)
        self._read_by_name: list[str] = []  # inputs with unknown names, of a tool that reads
        self._runs_code = _has_word(tool, _CODE_WORDS)

    def effects(self) -> Effects:
        for paths in ("reads", "writes", "deletes", "given", "runs", "alters"):
            self._found[paths].pop(UNKNOWN, None)
        if self._found["hosts"] and not self._found["commands"]:
            self._found["sends"].update(self._found["reads"])
            self._found["sends"].update(dict.fromkeys(self._read_by_name))
            if _has_word(self._tool, _SENDING):  # a file that is uploaded
                self._found["sends"].update(self._found["writes"])
        found: dict[str, Any] = {field: tuple(values) for field, values in self._found.items()}
        return Effects(**found, tool=self._tool, unread=self.unread)

    def add_inputs(self, inputs: Any) -> None:
        if isinstance(inputs, str):
            inputs = {"command" if self._is_shell else "text": inputs}
        named = inputs if isinstance(inputs, Mapping) else {"": inputs}
        lower = {_lower(key): value for key, value in named.items()}
        is_command = not _SHELL_KEYS.isdisjoint(lower)
        for place_key in _PLACE_KEYS if is_command else _PLACE_KEYS[:3]:
            folder = lower.get(place_key)
            if isinstance(folder, str) and folder:
                self._cwd = join(self._cwd, self._at_home(folder))
                self._setting = self._setting._replace(cwd=self._cwd)
        if lower.get("command") == "view" and lower.keys() <= _VIEW_KEYS:
            self._access = "reads" if _has_word(self._tool, _EDITORS) else self._access
        self._add_split_paths(lower)
        self._add_git_command(lower)
        for count, (key, value) in enumerate(_values(named)):
            if count > MOST_INPUTS:
                raise TooLong(f"more than {MOST_INPUTS} inputs in one call")
            self._add_input(key.lower(), value)

    def _add_split_paths(self, inputs: Mapping[str, Any]) -> None:
        """Add a path whose folder and name are separate inputs."""
        for folder in (inputs.get(key) for key in _FOLDER_KEYS):
            for name in (inputs.get(key) for key in _NAME_KEYS):
                if isinstance(folder, str) and isinstance(name, str) and len(name) < LONGEST_LINE:
                    path = join(join(self._cwd, self._at_home(folder)), name)
                    self._add(**{self._access: [path]})

    def _add_git_command(self, inputs: Mapping[str, Any]) -> None:
        """For a git tool that discards files or pushes, add the equivalent command."""
        words = _words_of(self._tool.replace("__", "_"))
        if "git" not in words or not words & {"clean", "stash", "reset", "push"}:
            return
        if "push" in words:
            self._effects_of_git("push", *_push_options(inputs))
            return
        arguments = {f"{key}={_plain_text(value)}".lower() for key, value in _values(inputs)}
        if "clean" in words:
            self._effects_of_git("clean", "-fd")
        elif "stash" in words:
            untracked = any("untracked=true" in each or each == "all=true" for each in arguments)
            self._effects_of_git("stash", *(["-u"] if untracked else []))
        elif any(each.endswith("=hard") or each == "hard=true" for each in arguments):
            self._effects_of_git("reset", "--hard")

    def _effects_of_git(self, *words: str) -> None:
        self._merge(effects_of_words(("git", *words), self._setting))

    def _add_input(self, key: str, value: Any) -> None:
        if isinstance(value, list):  # a command as its words
            words = tuple(map(str, value))
            self._add_text(" ".join(words))
            self._merge(effects_of_words(words, self._setting))
        elif not isinstance(value, str):
            self._add(inputs=[f"{key}={_plain_text(value)}"])
        elif key in _SHELL_KEYS:
            self._add_text(value)
            self._merge(effects_of(value, self._setting))
        elif self._is_shell and key in _TYPED_KEYS:
            self._add_typed_text(value)
        elif key == "code" and self._runs_code:
            self._add_text(value)
            self._merge(effects_of_words(("python", "-c", value), self._setting))
        elif key in _URL_KEYS and ("://" in value or "." in value) and key != "uri":
            self._add(hosts=hosts_in(value) if "://" in value else [host_of(value.split("/")[0])])
            self._add_text(value)
        elif key in _PATH_KEYS:
            self._add_path(value)
        elif key in _TEXT_KEYS or len(value) > 1000 or "\n" in value:
            self._add_text(value, is_patch=key in {"patch", "diff"})
            if key not in _TEXT_KEYS:
                self._add_unnamed(value)
        else:
            self._add(inputs=[f"{key}={value}"], hosts=hosts_in(value))
            self._add_text(value)
            self._add_unnamed(value)

    def _add_typed_text(self, value: str) -> None:
        """Add text that is typed into a running shell: a command, or the beginning of one."""
        self._add_text(value)
        text = "".join(char for char in value if char.isprintable() or char in "\n\t")
        lines = text.replace("\r", "\n")
        self._merge(effects_of(lines, self._setting))
        if "('" in text or '("' in text:  # the running program may be an interpreter
            self._merge(effects_of_words(("python", "-c", text), self._setting))
        last = lines.rpartition("\n")[2]
        if last.strip():  # more may be typed later: the rest of the last word, and more words
            self._merge(effects_of(f"{last}*", self._setting))
            if last.endswith(" "):
                self._merge(effects_of(f"{last}.*", self._setting))
            first = last.split()[0].rpartition("/")[2]
            if len(first) >= 3 and GUARD_NAME.startswith(first):
                self._add(commands=[(OPERATED, first)])

    def _add_unnamed(self, value: str) -> None:
        """Add an input with an unknown name, which may be a path or a command to the guard."""
        paths = [] if " " in value else paths_in(value)
        paths = [join(self._cwd, self._at_home(path)) for path in paths]
        if self._access == "reads":
            self._read_by_name += paths
            return
        if " " not in value:
            self._add(given=paths)
            if self._access == "deletes" and "/" in value:
                self._add(deletes=paths[:1])
        elif self._runs_code and len(value) < LONGEST_LINE:
            self._merge(effects_of(value, self._setting))
        if GUARD_NAME in value.lower():
            self._add(commands=effects_of(value, self._setting).commands)

    def _add_text(self, value: str, *, is_patch: bool = False) -> None:
        """Add a text; of a patch, also the files that it names."""
        self._add(texts=[value, joined(value)])
        if is_patch or _PATCH in value:
            self._add_patched_files(value)

    def _add_path(self, value: str) -> None:
        if "://" in value and not value.startswith("file://"):
            self._add(hosts=hosts_in(value))
            return
        if value.startswith("file://"):
            value = _unquote(value.removeprefix("file://").removeprefix("localhost"))
        self._add(**{self._access: [join(self._cwd, self._at_home(value))]})

    def _add_patched_files(self, text: str) -> None:
        for line in text.split("\n"):
            for start, access in _PATCH_FILES:
                if line.startswith(start):
                    name = line.removeprefix(start).split("\t")[0].strip()
                    if start in {"+++ ", "--- "} and name[:2] in {"a/", "b/"}:
                        name = name[2:]
                    if name != "/dev/null":
                        self._add(**{access: [join(self._cwd, self._at_home(name))]})

    def _merge(self, effects: Effects) -> None:
        self._add(**{field: getattr(effects, field) for field in _COLLECTED})

    def _at_home(self, path: str) -> str:
        home = self._setting.home
        return home + path[1:] if home and (path == "~" or path.startswith("~/")) else path

    def _add(self, **found: Any) -> None:
        for field, values in found.items():
            self._found[field].update(dict.fromkeys(values))


def types_into_shell(tool: str, inputs: Any) -> str | None:
    """The name of the input that a call types into a running shell; `None`: it types nothing.

    >>> types_into_shell("write_stdin", {"session_id": 1, "chars": "ls"})
    'chars'
    """
    if not _is_terminal(tool):
        return None
    if isinstance(inputs, str):
        return None  # it is a command
    if not isinstance(inputs, Mapping) or not _SHELL_KEYS.isdisjoint(map(_lower, inputs)):
        return None
    names = (key for key, value in inputs.items() if isinstance(value, str | list))
    return next((key for key in names if key.lower() in _TYPED_KEYS), None)


def _is_terminal(tool: str) -> bool:
    """Whether a tool runs commands in a shell, or types into one."""
    if _has_word(tool, _SHELL_WORDS) or _has_word(_server(tool), _TERMINALS):
        return True
    return _has_word(tool, _PROCESSES) and _has_word(tool, _TYPING)


def _push_options(inputs: Mapping[str, Any]) -> Iterator[str]:
    """The options and forced references in the inputs of a push tool."""
    for key, value in _values(inputs):
        name = key.lower()
        forces = "force" in name and "lease" not in name and "include" not in name
        if value is True and forces and name != "force":  # `force` has its own rule
            yield "--force"
        elif isinstance(value, str) and name not in _TEXT_KEYS:
            yield from (word for word in value.split() if word.startswith(("-", "+")))


def typed_keys(value: Any) -> str:
    r"""What a call types, as one text; keys may have names, as in tmux.

    >>> typed_keys(["rm x", "Enter"])
    'rm x\n'
    """
    parts = value if isinstance(value, list) else [value]
    return "".join(_NAMED_KEYS.get(_lower(part), str(part)) for part in parts)


def _lower(name: Any) -> str:
    return str(name).lower()


def _values(inputs: Mapping[Any, Any]) -> Iterator[tuple[str, Any]]:
    """Every value with its name, also in nested lists and mappings; a command may be a list."""
    pending: list[tuple[str, Any, int]] = [("", inputs, 0)]
    while pending:
        key, value, depth = pending.pop()
        if depth > DEEPEST:
            raise TooLong(f"inputs nested deeper than {DEEPEST} levels")
        if isinstance(value, Mapping):
            pending += [(str(name), inner, depth + 1) for name, inner in value.items()]
            pending += [("command", words, depth + 1) for words in _words_in(value)]
        elif isinstance(value, list | tuple):
            is_words = key.lower() in _SHELL_KEYS and all(isinstance(word, str) for word in value)
            if is_words and key.lower() != "commands":
                yield key, list(value)
            else:
                pending += [(key, inner, depth + 1) for inner in value]
        else:
            yield key, value


def _words_in(inputs: Mapping[Any, Any]) -> Iterator[list[str]]:
    """A command whose arguments are a separate input: `{"command": "git", "args": ["push", "-f"]}`."""
    for name in ("args", "argv", "arguments"):
        words = inputs.get(name)
        if isinstance(words, list) and words and all(isinstance(word, str) for word in words):
            programs = (inputs.get(key) for key in ("command", "cmd", "program", "executable"))
            program = next((each for each in programs if isinstance(each, str)), None)
            yield [*([program] if program else []), *words]


def _unquote(text: str) -> str:
    """The path of a URL with its escapes decoded: `%2E` is a dot."""
    first, *parts = text.split("%")
    for part in parts[:LONGEST_LINE]:
        try:
            first += chr(int(part[:2], 16)) + part[2:]
        except ValueError:
            first += f"%{part}"
    return first


def _plain_text(value: Any) -> str:
    return {None: "null", True: "true", False: "false"}.get(value) or str(value)


def _words_of(tool: str) -> frozenset[str]:
    """The words in the name of a tool: `mcp__fs__read_file`, `ReadFile` and `read-file` have `read` and `file`."""
    name = tool.rpartition("__")[2].rpartition(".")[2]
    spaced = "".join(f" {char}" if char.isupper() else char for char in name)
    return frozenset(spaced.lower().replace("_", " ").replace("-", " ").split())


def _access(tool: str) -> str:
    """What a tool does to its paths: `reads`, `writes`, `alters` or `deletes`.

    A tool reads if its name has a verb that reads and none that changes: `find_and_replace` writes.
    """
    words = _words_of(tool) | {tool.lower()}
    if words & _DELETING or words & _MOVING:
        return "deletes"
    if words & _ALTERING and not words & _READING:
        return "alters"
    return "reads" if words & _READING and not words & _CHANGING else "writes"


def _server(tool: str) -> str:
    """The server of an MCP tool: `terminal` for `mcp__terminal__send`."""
    return tool.split("__")[1] if tool.count("__") > 1 else ""


def _has_word(tool: str, words: frozenset[str]) -> bool:
    return bool((_words_of(tool) | {tool.lower()}) & words)
