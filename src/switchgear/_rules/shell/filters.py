"""The output of a few filters for a known text: `echo … | rev`, `| tr a-z n-za-m`, `| base64 -d`.

A known text that passes through a known filter can be checked like any other text of a command.
The output of any other filter, or with unknown options, is `None`: unknown.
"""

# ruff: noqa: PLR0911  one answer for each form of a command

from collections.abc import Callable, Iterator, Sequence

from switchgear._rules.options import is_short, operands, options_in, with_next
from switchgear._rules.patterns import ANY, word_set

LONGEST = 65_536
"""Maximum length of a text that is filtered, in characters."""
_ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"


def filtered(program: str, rest: Sequence[str], text: str) -> str | None:
    """The output of a filter with these arguments for a text, or `None` if it is unknown.

    >>> filtered("rev", [], "mr"), filtered("tr", ["a-z", "n-za-m"], "ez"), filtered("awk", [], "x")
    ('rm', 'rm', None)
    """
    how = FILTERS.get(program)
    if how is None or len(text) > LONGEST:
        return None
    return how(list(rest), text)


def _same(rest: list[str], text: str) -> str | None:
    """The text unchanged; the content of a named file is unknown."""
    return text if all(word.startswith("-") for word in rest) else None


def listed(program: str, rest: Sequence[str]) -> str | None:
    """The output of `find` or `ls`, as globs."""
    if program == "find":
        acts = {"-exec", "-execdir", "-ok", "-delete", "-ls"} & set(rest)
        shown = next((value for name, value in options_in(rest) if name == "-printf"), "%p")
        if acts or not any(char in shown for char in ("%p", "%P", "%f", "%h")):
            return None
        found = finds(rest)
        if "%h" in shown:
            found = [each.rpartition("/")[0] for each in found]
        return "\n".join(found)
    letters = "".join(word for word in rest if is_short(word))
    if "l" in letters or any(word.startswith("--") for word in rest):
        return None
    plain = operands(rest)
    name = ANY if "a" in letters or "A" in letters else "*"
    if not plain:
        return name
    if "d" in letters:
        return "\n".join(plain)
    below = [f"{word.rstrip('/')}/{name}" for word in plain]
    # `ls` prints bare names; they matter for hidden folders, because those of the guard are hidden.
    is_hidden = len(plain) == 1 and plain[0].rstrip("/").rpartition("/")[2].startswith(".")
    return "\n".join((*plain, *below, *([name] if is_hidden and plain[0].strip("./") else [])))


def listed_below(program: str, rest: Sequence[str]) -> str | None:
    """The output of a program that prints names of files, as globs, or `None` if it is unknown.

    A search by content of the whole project can only list files of the guard that contain the pattern:
    `grep -rl foo .` cannot list the settings of an agent, `grep -rl hooks .` does.
    """
    if program == "git":
        program, rest = f"git {rest[0] if rest else ''}", rest[1:]
    if program in _PRINTS_WORDS:
        skipped = 1 if program in _GREPS else 0
        letters = _letters(rest)
        named = operands(rest)[skipped:]
        if program not in _GREPS or ("c" in letters and not {"r", "R"} & letters):
            return "\n".join(word for word in named if not word.startswith(("%", "+"))) or None
    if program == "git status" and (_letters(rest) & {"s"} or _has(rest, "--short", "--porcelain")):
        return f"?? ./**/{ANY}"
    if program == "git clean":
        is_dry = "n" in _letters(rest) or "--dry-run" in rest
        return f"Would remove ./**/{ANY}" if is_dry else None
    if program in {"locate", "plocate", "mlocate"} and rest:
        return f"./**/{ANY}{rest[-1]}{ANY}"
    if program == "compgen":
        return ANY if "-f" in rest or "-d" in rest else "\n".join(rest[-1:])
    needs = _LISTERS.get(program)
    if needs is None or (needs and not any(map(_is_one_of(needs), rest))):
        return None
    return _listed_by(program, rest)


def _listed_by(program: str, rest: Sequence[str]) -> str | None:
    """The output of a program of `_LISTERS`, as globs."""
    plain = list(_without_values(program, rest))
    letters = _letters(rest)
    has_pattern = program in _WITH_PATTERN and not (
        _has(rest, "--files") or (program in _GREPS and {"e", "f"} & letters)
    )
    pattern = plain[0] if has_pattern and plain else ""
    where = plain[1:] if has_pattern else plain
    folders = [word.rstrip("/") for word in where if word.strip("./")]
    if len(folders) == len(where) > 0:
        if program == "git ls-files" and all("*" in word for word in folders):
            return "\n".join(f"./**/{word}" for word in folders)
        return "\n".join(line for each in folders for line in (each, f"{each}/**/{ANY}"))
    is_recursive = bool({"r", "R"} & letters) or _has(rest, "--recursive", "--dereference")
    if program in _GREPS and not is_recursive:
        return None
    if program == "git ls-files" and not ("o" in letters or _has(rest, "--others")):
        return None  # it lists tracked files
    if program == "git grep" and not _has(rest, "--untracked", "--no-index"):
        return None
    skips_hidden = program in _HIDES and not ({"H", ".", "a"} & letters or _has(rest, "--hidden"))
    skips_hidden = skips_hidden and "".join(rest).count("u") < (
        1 if program.startswith("fd") else 2
    )
    star = "*" if skips_hidden else ANY
    if program in {"fd", "fdfind"}:
        return _found_by_fd(pattern, rest, star)
    if (
        has_pattern
        and not {"L", "v"} & letters
        and not may_be_in_guard(pattern, in_settings=not skips_hidden)
    ):
        return None
    kinds = [value for option, value in options_in(rest) if option in {"-t", "--type"}]
    if _has(rest, "--exclude-dir") or (kinds and kinds[0] not in _GUARD_KINDS):
        return None
    names = [
        value.replace("*", star)
        for option, value in options_in(rest)
        if option in {"--include", "-g", "--glob", "--iglob", "-P"} and value[:1] != "!"
    ]
    return "\n".join(f"./**/{name}" for name in names or [star])


def _found_by_fd(pattern: str, rest: Sequence[str], star: str) -> str | None:
    ends = [value for option, value in options_in(rest) if option in {"-e", "--extension"}]
    if ends:
        return "\n".join(f"./**/{star}.{end}" for end in ends)
    name = pattern.strip("^$.*").replace("\\", "")
    if name:
        return f"./**/{ANY}{name}{ANY}" if star == ANY else None
    return f"./**/{star}"


def may_be_in_guard(pattern: str, *, in_settings: bool) -> bool:
    """Whether a search for this pattern can find a file of the guard, judging by the words in them.

    `in_settings`: whether the settings of agents, which are in hidden folders, are searched too.

    >>> may_be_in_guard("PreTool.*", in_settings=True), may_be_in_guard("TODO", in_settings=True)
    (True, False)
    """
    text = _GUARD_TEXT if in_settings else _CONFIG_TEXT
    for part in pattern.replace("\\|", "|").lower().split("|"):
        for char in "\\^$*+?()[]{}.":
            part = part.replace(char, "\0")  # noqa: PLW2901  pieces of plain text are left
        pieces = [piece for piece in part.split("\0") if piece.strip()]
        if all(piece in text for piece in pieces):
            return True
    return False


_CONFIG_TEXT = (
    "version: hooks: on_trouble: admit refuse rules: builtin: own: allow: protected: name: why: commands: "
    "circuits: - match: policy: {detectors: recovery: agents: breakers: stories: budgets: store: sqlite:///"
    " sinks: interventions: timeouts: escalate: switchgear session/* progress/* op/*"
)
"""Words of a configuration of Switchgear, in lower case."""
_GUARD_TEXT = _CONFIG_TEXT + (
    ' {"hooks": {"pretooluse": [{"matcher": "", "hooks": [{"type": "command", "command": "/bin/python3 -i -s '
    '/lib/site-packages/switchgear/hooks/entry.py claude-code --root /home || exit 2", "timeout": 15}]}]'
    ' "posttooluse" "posttoolusefailure" "posttoolbatch" "userpromptsubmit" "sessionstart" "sessionend" '
    '"stop" "subagentstart" "subagentstop" "notification" "precompact" "beforetool" "aftertool" '
    '"beforeagent" "afteragent" "permissions": {"allow": [], "deny": [], "defaultmode"} "env": "model" '
    "codex gemini qwen opencode pi [features] trust_level enabled = true false import { spawn } from "
    "'node:child_process' const switchgear = function ask(message, say, before) return new promise(("
    "resolve) => { let output let child timer settimeout try catch (error) json.parse export default async"
)
"""Words of the files in which agents' hooks are installed, in lower case."""


def _letters(rest: Sequence[str]) -> set[str]:
    """The letters of all short options."""
    return {char for word in rest if is_short(word) for char in word[1:]}


def _has(rest: Sequence[str], *names: str) -> bool:
    return any(word.partition("=")[0] in names for word in rest)


def _without_values(program: str, rest: Sequence[str]) -> Iterator[str]:
    """The words that are neither options nor their values."""
    valued, skips = _VALUED.get(program.partition(" ")[0], ""), False
    for word in rest:
        if skips:
            skips = False
        elif not word.startswith("-"):
            yield word
        elif word[1:2] != "-":
            skips = word[-1] in valued
        else:
            skips = "=" not in word and word in _VALUED_LONG


_VALUED = {
    **dict.fromkeys(("grep", "egrep", "fgrep", "zgrep"), "mABCefd"),
    **dict.fromkeys(("rg", "ag", "ack"), "mABCefgtTjM"),
    **dict.fromkeys(("fd", "fdfind"), "etEdjSo"),
    "tree": "LPI",
    "du": "dtX",
    "git": "xX",
}
"""Short options that have a value, by program."""
_VALUED_LONG = word_set("""
    --include --exclude --exclude-dir --glob --iglob --type --type-not --extension --max-depth
    --min-depth --size --changed-within --regexp
""")


def _is_one_of(options: str) -> Callable[[str], bool]:
    """A test whether a word is one of these options; a letter may be in a group like `-xyz`."""
    long = frozenset(word for word in options.split() if len(word) > 2)
    short = frozenset(word[1] for word in options.split() if len(word) == 2)
    return lambda word: word in long or (is_short(word) and bool(short & set(word)))


_GUARD_KINDS = frozenset(("json", "yaml", "toml", "js", "ts", "config", "f", "d"))
"""Types of the files of the guard, as `rg -t` names them."""
_GREPS = frozenset(("grep", "egrep", "fgrep", "zgrep"))
_HIDES = frozenset(("rg", "ag", "ack", "fd", "fdfind", "tree"))
"""Programs that skip hidden files by default."""
_PRINTS_WORDS = frozenset(
    (
        *("stat", "file", "wc", "md5sum", "sha1sum", "sha256sum", "sha512sum", "cksum", "b2sum"),
        *("shasum", "sum", *_GREPS),
    )
)
"""Programs whose output includes the names in their arguments."""
_LISTERS = {
    **dict.fromkeys(_GREPS, "-l -L --files-with-matches --files-without-match"),
    **dict.fromkeys(
        ("rg", "ag", "ack"), "-l --files-with-matches --files -g --files-without-match"
    ),
    **dict.fromkeys(("fd", "fdfind", "tree", "du", "git ls-files"), ""),
    "git grep": "-l --files-with-matches --name-only",
}
"""Programs that list files, and the options that make them; an empty string: always."""
_WITH_PATTERN = frozenset((*_GREPS, "rg", "ag", "ack", "fd", "fdfind", "git grep"))


def finds(rest: Sequence[str]) -> list[str]:
    """The paths that `find` may find, as globs: the requested names below its start."""
    starts: list[str] = []
    for word in rest:
        if word.startswith(("-", "(", "!")):
            break
        starts.append(word)
    name = "empty" if "-empty" in rest else ANY  # empty files need no protection
    names: list[str] = []
    path, before, depth = "", "", ""
    for test, value in with_next(rest):
        if before in {"-not", "!"}:
            pass
        elif test in {"-name", "-iname"}:
            names.append(value.replace("*", ANY))
        elif test == "-prune" and value in {"-o", "-or", ")"}:  # the tests so far exclude paths
            names, path = [], ""
        elif test in {"-path", "-ipath", "-wholename"}:
            path = "/".join("**" if part.strip("*") == "" else part for part in value.split("/"))
        elif test == "-maxdepth":
            depth = value
        before = test
    if path[:1] == "*" != path[1:2]:
        path = f"**/{path}"  # in `-path`, a star also matches slashes
    path = path.replace("**", "\0").replace("*", ANY).replace("\0", "**")
    if path and name == ANY and not names:
        is_whole = path.startswith(("/", "."))
        return [path] if is_whole else [f"{each}/{path}" for each in starts or ["."]]
    between = "" if depth in {"0", "1"} else "**/"
    found = [f"{start}/{between}{each}" for start in starts or ["."] for each in names or [name]]
    whole = name == ANY and not names
    return [*(start for start in starts if whole and start.strip("./")), *found]


def _grep(rest: list[str], text: str) -> str | None:
    """The lines that contain the pattern; a glob is narrowed to the names that contain it."""
    plain = operands(rest)
    letters = "".join(word for word in rest if is_short(word))
    if not plain or "v" in letters:
        return text
    found: list[str] = []
    for pattern in _alternatives(plain[0]):
        literal = "".join(char for char in pattern if char not in "\\^$*[]()|+?")
        for line in text.split("\n"):
            if ANY in line or "*" in line:
                found.append(f"./**/{ANY}{literal}{ANY}" if literal else line)
            elif literal in line or literal != pattern:
                found.append(line)
    return "\n".join(dict.fromkeys(found))


def _alternatives(pattern: str) -> list[str]:
    """The alternatives of a pattern with `|`: `a(b|c)` gives `ab` and `ac`."""
    pattern = pattern.replace("\\(", "(").replace("\\)", ")").replace("\\|", "|")
    if "|" not in pattern:
        return [pattern]
    head, opened, rest = pattern.partition("(")
    inner, closed, tail = rest.partition(")")
    if not opened or not closed or "|" in head or "|" not in inner:
        return pattern.split("|")[:20]
    return [f"{head}{each}{tail}" for each in inner.split("|")[:20]]


def _all_lines(rest: list[str], text: str) -> str | None:
    """All lines, for programs that print some of them."""
    del rest
    return text


def _reverse(rest: list[str], text: str) -> str | None:
    return None if rest else "\n".join(line[::-1] for line in text.split("\n"))


def _translate(rest: list[str], text: str) -> str | None:
    """The output of `tr a b`, `tr -d a` or `tr -s a`."""
    options = [word for word in rest if word.startswith("-") and len(word) > 1]
    sets = [_char_set(word) for word in rest if word not in options]
    if options in (["-d"], ["--delete"]) and len(sets) == 1:
        return "".join(char for char in text if char not in sets[0])
    if options in (["-s"], ["--squeeze-repeats"]) and len(sets) == 1:
        return text
    if options or len(sets) != 2 or not sets[1]:
        return None
    last = sets[1][-1]
    table = {
        ord(char): sets[1][at] if at < len(sets[1]) else last for at, char in enumerate(sets[0])
    }
    return text.translate(table)


def _char_set(word: str) -> str:
    """The characters of a set of `tr`."""
    word = word.replace("[:lower:]", "a-z").replace("[:upper:]", "A-Z").replace("[:digit:]", "0-9")
    word = word.replace("\\n", "\n").replace("\\t", "\t").replace("\\r", "\r").strip("[]")
    found: list[str] = []
    at = 0
    while at < len(word):
        if word[at + 1 : at + 2] == "-" and at + 2 < len(word) and len(found) < LONGEST:
            first, last = ord(word[at]), min(ord(word[at + 2]), ord(word[at]) + 255)
            found += [chr(number) for number in range(first, last + 1)]
            at += 3
        else:
            found.append(word[at])
            at += 1
    return "".join(found)


def _base64(rest: list[str], text: str) -> str | None:
    if not any(word in {"-d", "-D", "-di", "--decode"} for word in rest):
        return None
    if any(not word.startswith("-") for word in rest):
        return None
    bits, count = 0, 0
    data = bytearray()
    for char in text:
        number = _ALPHABET.find(char)
        if number < 0:
            continue
        bits, count = (bits << 6 | number) & 0xFFFF, count + 6
        if count >= 8:
            count -= 8
            data.append(bits >> count & 0xFF)
    return _text(bytes(data))


def _hex(rest: list[str], text: str) -> str | None:
    options = "".join(word for word in rest if word.startswith("-"))
    if "r" not in options or "p" not in options or any(not each.startswith("-") for each in rest):
        return None
    digits = "".join(text.split())
    try:
        return _text(bytes.fromhex(digits))
    except ValueError:
        return None


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace").replace("\0", "")


def _cut_fields(rest: list[str], text: str) -> str | None:
    """The output of `cut -d: -f2` (a field by its number) or `cut -c4-` (the characters from a column on)."""
    char, number, columns = "\t", "", ""
    for option, value in with_next(rest):
        if option.startswith("-d"):
            char = option[2:] or value
        elif option.startswith("-f"):
            number = option[2:] or value
        elif option[:2] in {"-c", "-b"}:
            columns = option[2:] or value
    if columns:
        first = columns.partition("-")[0] or "1"
        start = int(first) - 1 if first.isdecimal() and len(first) < 6 else 0
        lines = text.split("\n")
        return "\n".join(
            _last(line) if _is_listing(line) else line[start:] or _last(line) for line in lines
        )
    if not number.isdecimal() or len(char) != 1:
        return None
    rows = [line.split(char) for line in text.split("\n")]
    # A line with too few fields may be a glob, whose fields are unknown.
    return "\n".join(
        row[int(number) - 1] if len(row) >= int(number) > 0 else row[-1] for row in rows
    )


def _is_listing(text: str) -> bool:
    """Whether a text contains globs for the file names that a program would list."""
    return ANY in text or "**" in text


def _last(line: str) -> str:
    """The last word of a line: the name in a listing."""
    return line.rsplit(maxsplit=1)[-1] if line.strip() else line


def _fields(rest: list[str], text: str) -> str | None:
    """The output of `awk '{print $2}'`."""
    plain = operands(rest)
    code = plain[0].replace(" ", "") if plain else ""
    _, found, behind = code.partition("{print")  # the lines that it selects do not matter
    field = behind.rstrip("};").lstrip("$")
    if not found or len(plain) != 1 or not (field.isdecimal() or field in {"", "NF"}):
        return None
    lines: list[str] = []
    for line in text.split("\n"):
        words = line.split()
        number = int(field) if field.isdecimal() else len(words) if field else 0
        is_whole = number == 0 or not words
        lines.append(line if is_whole else words[min(number, len(words)) - 1])
    return "\n".join(lines)


def _sed(rest: list[str], text: str) -> str | None:
    """The output of `sed s/a/b/g` with plain texts, or of selected lines (`sed 1,2d`, `sed -n 3p`)."""
    if rest[:1] == ["-e"]:
        rest = rest[1:]
    if len(rest) == 2 and rest[0] == "-n" and rest[1][:1] == "/" and rest[1].endswith("/p"):
        return _grep([rest[1][1:-2]], text)
    if rest and all(word == "-n" or not word.strip("0123456789,$dp") for word in rest):
        return text
    if len(rest) == 1 and rest[0][:1] == "s" and _is_listing(text):
        return text  # the names behind a glob are unknown
    if len(rest) != 1 or len(rest[0]) < 4 or rest[0][0] != "s":
        return None
    parts = rest[0].split(rest[0][1])
    if len(parts) != 4 or parts[3] not in {"", "g"} or any(char in parts[1] for char in "\\.*[^$"):
        return None
    if not parts[1] or any(char in parts[2] for char in "\\&"):
        return None
    count = -1 if parts[3] == "g" else 1
    return "\n".join(line.replace(parts[1], parts[2], count) for line in text.split("\n"))


FILTERS: dict[str, Callable[[list[str], str], str | None]] = {
    "cat": _same,
    "tee": _all_lines,
    "sponge": _same,
    **dict.fromkeys(
        ("sort", "uniq", "head", "tail", "tac", "shuf", "fzf", "nl", "column"), _all_lines
    ),
    **dict.fromkeys(("awk", "gawk", "mawk", "nawk"), _fields),
    **dict.fromkeys(("grep", "egrep", "fgrep"), _grep),
    "rev": _reverse,
    "tr": _translate,
    **dict.fromkeys(("base64", "gbase64"), _base64),
    "xxd": _hex,
    "sed": _sed,
    "cut": _cut_fields,
}
"""The functions that compute the output, by program."""
