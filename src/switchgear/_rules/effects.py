"""A tool call to what it would do: files, commands, hosts and texts, whatever the agent calls them.

Every agent has its own names for the same few inputs. The names of inputs show what they are
(`file_path`, `command`, `url`, …), the tool's own name shows whether a path is read, written or
deleted; a tool with an unknown name is taken to write.
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
"""Inputs that are the folder in which a command runs; the last ones only beside a command."""
_FOLDER_KEYS = ("folder", "dir", "directory", "dir_path", "parent")
_NAME_KEYS = ("name", "filename", "file_name", "file", "basename")
_EDITORS = frozenset(("edit", "editor"))
"""Words of tools with several commands, one of which is `view`."""
_VIEW_KEYS = frozenset(("command", "path", "view_range"))
"""The inputs of that command: with any other input, the tool may do something else."""
_SENDING = frozenset(("post", "put", "upload", "send", "publish", "share", "attach", "request"))
"""Words of tools that send what they are given."""
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
"""Words of tools that change a folder with all that is in it."""
_MOVING = frozenset(("move", "rename", "mv"))
_SHELL_WORDS = word_set("""
    bash shell sh terminal exec execute console zsh stdin keys keystrokes tty pty term tmux iterm
""")
_TERMINALS = frozenset(("terminal", "term", "tmux", "iterm", "shell", "console", "tty", "screen"))
"""Servers whose tools type into a shell."""
_PROCESSES = frozenset(("process", "subprocess", "repl", "pane"))
_TYPING = frozenset(("interact", "send", "write", "type", "input", "feed", "communicate"))
"""A tool with one word of each types into a running program, which may be a shell."""
_CODE_WORDS = word_set("""
    python ipython jupyter notebook cell interpreter repl run execute exec node javascript js
""")
"""Tools that run the program text they are given as `code`."""
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
"""Prefix of the message about a call on which the parser itself failed: a defect of Switchgear."""
DEEPEST = 8
MOST_INPUTS = 5_000
LONGEST_LINE = 10_000
"""Characters of an input that a tool which runs something may run as a command."""


class Place(NamedTuple):
    """Where a call would run. Immutable; any thread may read it."""

    workspace: str
    """The folder that the agent may work in, absolute."""
    cwd: str = ""
    """Where its commands run; empty: in the workspace."""
    home: str = ""
    env: Mapping[str, str] = {}
    """Variables that its commands would see."""
    resolve: Callable[[str], str] | None = None
    """A path with its links followed, such as `os.path.realpath`; `None`: links are not followed."""
    protected: tuple[str, ...] = ()
    """Further globs of paths that belong to the guard: its configuration, store, hooks."""
    is_folder: Callable[[str], bool] | None = None
    """Whether a path is a folder now; `None`: every folder is taken to exist."""
    names_in: Callable[[str], str | None] | None = None
    """The names that a file lists, one on each line; `None`: it lists none, or cannot be read."""


_COLLECTED = [field for field in Effects._fields if field not in {"tool", "unread"}]


def call_effects(tool: str, inputs: Any, place: Place) -> Effects:
    """What a call of this tool with these inputs would do; inputs as parsed from JSON.

    >>> call_effects("Write", {"file_path": "../x", "content": "1"}, Place("/w")).writes
    ('/x',)
    """
    gathering = _Gathering(tool, place)
    try:
        gathering.take(inputs)
    except TooLong as error:
        gathering.unread = str(error)
    except Exception as error:  # noqa: BLE001  a guard that stumbles must not admit
        gathering.unread = f"{UNREADABLE} ({type(error).__name__})"
    return gathering.effects()


class _Gathering:
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
        self._named: list[str] = []  # by inputs with unknown names of a tool that reads
        self._runs_code = _has_word(tool, _CODE_WORDS)

    def effects(self) -> Effects:
        for paths in ("reads", "writes", "deletes", "given", "runs", "alters"):
            self._found[paths].pop(UNKNOWN, None)
        if self._found["hosts"] and not self._found["commands"]:
            self._found["sends"].update(self._found["reads"])
            self._found["sends"].update(dict.fromkeys(self._named))
            if _has_word(self._tool, _SENDING):  # a file that is uploaded
                self._found["sends"].update(self._found["writes"])
        found: dict[str, Any] = {field: tuple(values) for field, values in self._found.items()}
        return Effects(**found, tool=self._tool, unread=self.unread)

    def take(self, inputs: Any) -> None:
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
        self._take_names(lower)
        self._take_git(lower)
        for count, (key, value) in enumerate(_values(named)):
            if count > MOST_INPUTS:
                raise TooLong(f"more than {MOST_INPUTS} inputs in one call")
            self._take(key.lower(), value)

    def _take_names(self, inputs: Mapping[str, Any]) -> None:
        """A file whose folder and name are separate inputs."""
        for folder in (inputs.get(key) for key in _FOLDER_KEYS):
            for name in (inputs.get(key) for key in _NAME_KEYS):
                if isinstance(folder, str) and isinstance(name, str) and len(name) < LONGEST_LINE:
                    path = join(join(self._cwd, self._at_home(folder)), name)
                    self._add(**{self._access: [path]})

    def _take_git(self, inputs: Mapping[str, Any]) -> None:
        """A git tool that discards files or pushes, as the equivalent command."""
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
        self._effects(effects_of_words(("git", *words), self._setting))

    def _take(self, key: str, value: Any) -> None:
        if isinstance(value, list):  # a command as its words
            words = tuple(map(str, value))
            self._text(" ".join(words))
            self._effects(effects_of_words(words, self._setting))
        elif not isinstance(value, str):
            self._add(inputs=[f"{key}={_plain_text(value)}"])
        elif key in _SHELL_KEYS:
            self._text(value)
            self._effects(effects_of(value, self._setting))
        elif self._is_shell and key in _TYPED_KEYS:
            self._add_typed_text(value)
        elif key == "code" and self._runs_code:
            self._text(value)
            self._effects(effects_of_words(("python", "-c", value), self._setting))
        elif key in _URL_KEYS and ("://" in value or "." in value) and key != "uri":
            self._add(hosts=hosts_in(value) if "://" in value else [host_of(value.split("/")[0])])
            self._text(value)
        elif key in _PATH_KEYS:
            self._path(value)
        elif key in _TEXT_KEYS or len(value) > 1000 or "\n" in value:
            self._text(value, is_patch=key in {"patch", "diff"})
            if key not in _TEXT_KEYS:
                self._other(value)
        else:
            self._add(inputs=[f"{key}={value}"], hosts=hosts_in(value))
            self._text(value)
            self._other(value)

    def _add_typed_text(self, value: str) -> None:
        """Text typed into a running shell: a command, or the beginning of one."""
        self._text(value)
        text = "".join(sign for sign in value if sign.isprintable() or sign in "\n\t")
        lines = text.replace("\r", "\n")
        self._effects(effects_of(lines, self._setting))
        if "('" in text or '("' in text:  # the program that runs may be an interpreter
            self._effects(effects_of_words(("python", "-c", text), self._setting))
        last = lines.rpartition("\n")[2]
        if last.strip():  # more may follow: any end of the last word, and any further word
            self._effects(effects_of(f"{last}*", self._setting))
            if last.endswith(" "):
                self._effects(effects_of(f"{last}.*", self._setting))
            first = last.split()[0].rpartition("/")[2]
            if len(first) >= 3 and GUARD_NAME.startswith(first):
                self._add(commands=[(OPERATED, first)])

    def _other(self, value: str) -> None:
        """An input with an unknown name: it may be a path, or a command to the guard."""
        paths = [] if " " in value else paths_in(value)
        paths = [join(self._cwd, self._at_home(path)) for path in paths]
        if self._access == "reads":
            self._named += paths
            return
        if " " not in value:
            self._add(given=paths)
            if self._access == "deletes" and "/" in value:
                self._add(deletes=paths[:1])
        elif self._runs_code and len(value) < LONGEST_LINE:
            self._effects(effects_of(value, self._setting))
        if GUARD_NAME in value.lower():
            self._add(commands=effects_of(value, self._setting).commands)

    def _text(self, value: str, *, is_patch: bool = False) -> None:
        """A text; of a patch, also the files that it names."""
        self._add(texts=[value, joined(value)])
        if is_patch or _PATCH in value:
            self._patch(value)

    def _path(self, value: str) -> None:
        if "://" in value and not value.startswith("file://"):
            self._add(hosts=hosts_in(value))
            return
        if value.startswith("file://"):
            value = _unquote(value.removeprefix("file://").removeprefix("localhost"))
        self._add(**{self._access: [join(self._cwd, self._at_home(value))]})

    def _patch(self, text: str) -> None:
        for line in text.split("\n"):
            for start, access in _PATCH_FILES:
                if line.startswith(start):
                    name = line.removeprefix(start).split("\t")[0].strip()
                    if start in {"+++ ", "--- "} and name[:2] in {"a/", "b/"}:
                        name = name[2:]
                    if name != "/dev/null":
                        self._add(**{access: [join(self._cwd, self._at_home(name))]})

    def _effects(self, effects: Effects) -> None:
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
        return None  # taken for a command
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
        if value is True and forces and name != "force":  # which has its own rule
            yield "--force"
        elif isinstance(value, str) and name not in _TEXT_KEYS:
            yield from (word for word in value.split() if word.startswith(("-", "+")))


def typed_keys(value: Any) -> str:
    r"""What a call types, as one text; keys may have names, as those of tmux have.

    >>> typed_keys(["rm x", "Enter"])
    'rm x\n'
    """
    parts = value if isinstance(value, list) else [value]
    return "".join(_NAMED_KEYS.get(_lower(part), str(part)) for part in parts)


def _lower(name: Any) -> str:
    return str(name).lower()


def _values(inputs: Mapping[Any, Any]) -> Iterator[tuple[str, Any]]:
    """Every value with its name, also inside lists and mappings; a command may be a list."""
    waiting: list[tuple[str, Any, int]] = [("", inputs, 0)]
    while waiting:
        key, value, depth = waiting.pop()
        if depth > DEEPEST:
            raise TooLong(f"inputs nested deeper than {DEEPEST} levels")
        if isinstance(value, Mapping):
            waiting += [(str(name), inner, depth + 1) for name, inner in value.items()]
            waiting += [("command", words, depth + 1) for words in _words_in(value)]
        elif isinstance(value, list | tuple):
            is_words = key.lower() in _SHELL_KEYS and all(isinstance(word, str) for word in value)
            if is_words and key.lower() != "commands":
                yield key, list(value)
            else:
                waiting += [(key, inner, depth + 1) for inner in value]
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
    """A path of a URL: `%2E` is a dot."""
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
    """`mcp__fs__read_file`, `ReadFile`, `read-file`: read, file."""
    name = tool.rpartition("__")[2].rpartition(".")[2]
    spaced = "".join(f" {sign}" if sign.isupper() else sign for sign in name)
    return frozenset(spaced.lower().replace("_", " ").replace("-", " ").split())


def _access(tool: str) -> str:
    """Whether the paths given to a tool are read, written or deleted.

    A tool reads if a verb in its name does, and none of its words does more: not `find_and_replace`.
    """
    words = _words_of(tool) | {tool.lower()}
    if words & _DELETING or words & _MOVING:
        return "deletes"
    if words & _ALTERING and not words & _READING:
        return "alters"
    return "reads" if words & _READING and not words & _CHANGING else "writes"


def _server(tool: str) -> str:
    """The server of an MCP tool: `mcp__terminal__send` is of `terminal`."""
    return tool.split("__")[1] if tool.count("__") > 1 else ""


def _has_word(tool: str, words: frozenset[str]) -> bool:
    return bool((_words_of(tool) | {tool.lower()}) & words)
