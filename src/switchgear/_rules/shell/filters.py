"""What a few filters make of a text that is known: `echo … | rev`, `| tr a-z n-za-m`, `| base64 -d`.

A text that only passes through a filter is as plain as the command it stands in, so it is read.
A filter that is not known here, or options of one that are not, give `None`: not known.
"""

from collections.abc import Callable, Sequence

from switchgear._rules.patterns import ANY

LONGEST = 65_536
"""Characters of a text that is filtered."""
_ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"


def filtered(program: str, rest: Sequence[str], text: str) -> str | None:
    """What a filter with these words prints of a text, or `None` if that is not known.

    >>> filtered("rev", [], "mr"), filtered("tr", ["a-z", "n-za-m"], "ez"), filtered("awk", [], "x")
    ('rm', 'rm', None)
    """
    how = FILTERS.get(program)
    if how is None or len(text) > LONGEST:
        return None
    return how(list(rest), text)


def _same(rest: list[str], text: str) -> str | None:
    """The text as it is; a file that is named besides is not known."""
    return text if all(word.startswith("-") for word in rest) else None


def listed(program: str, rest: Sequence[str]) -> str | None:
    """What `find` or `ls` prints, as globs."""
    if program == "find":
        acts = {"-exec", "-execdir", "-ok", "-delete", "-printf", "-ls"} & set(rest)
        return None if acts else "\n".join(finds(rest))
    letters = "".join(word for word in rest if word[:1] == "-" != word[1:2])
    if "l" in letters or any(word.startswith("--") for word in rest):
        return None
    plain = [word for word in rest if not word.startswith("-")]
    name = ANY if "a" in letters or "A" in letters else "*"
    if not plain:
        return name
    if "d" in letters:
        return "\n".join(plain)
    below = [f"{word.rstrip('/')}/{name}" for word in plain]
    # `ls` prints bare names; of a hidden folder they matter, because the guard's are hidden.
    is_hidden = len(plain) == 1 and plain[0].rstrip("/").rpartition("/")[2].startswith(".")
    return "\n".join((*plain, *below, *([name] if is_hidden and plain[0].strip("./") else [])))


def listed_below(program: str, rest: Sequence[str]) -> str | None:
    """What a program that prints the names of files prints, as globs; `None`: not known.

    Only of folders that are named: what `grep -rl x .` finds may be any file.
    """
    if program == "git":
        program, rest = f"git {rest[0] if rest else ''}", rest[1:]
    needs = _LISTERS.get(program)
    if needs is None or (needs and not any(map(_is_one_of(needs), rest))):
        return None
    plain = [word for word in rest if not word.startswith("-")]
    if program in {"fd", "fdfind"} and {"-H", "--hidden", "-u", "-uu"} & set(rest) and plain[:1]:
        return f"./**/{ANY}{plain[0]}{ANY}"
    skipped = 1 if program in _WITH_PATTERN and not {"-e", "-f", "--files"} & set(rest) else 0
    folders = [word.rstrip("/") for word in plain[skipped:] if word.strip("./")]
    return "\n".join(line for each in folders for line in (each, f"{each}/**/{ANY}")) or None


def _is_one_of(options: str) -> Callable[[str], bool]:
    """Whether a word is one of these options; a single letter may stand among others."""
    long = frozenset(word for word in options.split() if len(word) > 2)
    short = frozenset(word[1] for word in options.split() if len(word) == 2)
    return lambda word: word in long or (word[:1] == "-" != word[1:2] and bool(short & set(word)))


_LISTERS = {
    **dict.fromkeys(("grep", "egrep", "fgrep", "zgrep"), "-l -L --files-with-matches"),
    **dict.fromkeys(("rg", "ag", "ack"), "-l --files-with-matches --files -g"),
    **dict.fromkeys(("fd", "fdfind", "tree", "du", "git ls-files"), ""),
    "git grep": "-l --files-with-matches --name-only",
}
"""Programs that print names of files, and the options with which they do; "": always."""
_WITH_PATTERN = frozenset(
    ("grep", "egrep", "fgrep", "zgrep", "rg", "ag", "ack", "fd", "fdfind", "git grep")
)


def finds(rest: Sequence[str]) -> list[str]:
    """What `find` would find, as paths with stars: below where it begins, of the name it looks for."""
    starts: list[str] = []
    for word in rest:
        if word.startswith(("-", "(", "!")):
            break
        starts.append(word)
    name = "empty" if "-empty" in rest else ANY  # what is empty is nothing that anybody protects
    path, before, depth = "", "", ""
    for test, value in zip(rest, rest[1:], strict=False):
        if before in {"-not", "!"}:
            pass
        elif test in {"-name", "-iname"}:
            name = value.replace("*", ANY)
        elif test in {"-path", "-ipath", "-wholename"}:
            path = "/".join("**" if part.strip("*") == "" else part for part in value.split("/"))
        elif test == "-maxdepth":
            depth = value
        before = test
    if path[:1] == "*" != path[1:2]:
        path = f"**/{path}"  # here a star stands for slashes, too
    path = path.replace("**", "\0").replace("*", ANY).replace("\0", "**")
    if path and name == ANY:
        is_whole = path.startswith(("/", "."))
        return [path] if is_whole else [f"{each}/{path}" for each in starts or ["."]]
    between = "" if depth in {"0", "1"} else "**/"
    found = [f"{start}/{between}{name}" for start in starts or ["."]]
    return [*(start for start in starts if name == ANY and start.strip("./")), *found]


def _grepped(rest: list[str], text: str) -> str | None:
    """The lines that have a text in them; of globs, what they become with it."""
    plain = [word for word in rest if not word.startswith("-")]
    letters = "".join(word for word in rest if word[:1] == "-" != word[1:2])
    if not plain or "v" in letters:
        return text
    wanted = "".join(sign for sign in plain[0] if sign not in "\\^$*[]()|+?")
    found: list[str] = []
    for line in text.split("\n"):
        if ANY in line or "*" in line:
            found.append(f"./**/{ANY}{wanted}{ANY}" if wanted else line)
        elif wanted in line or wanted != plain[0]:
            found.append(line)
    return "\n".join(found)


def _rows(rest: list[str], text: str) -> str | None:
    """Some of the lines: which ones does not matter to who must expect any of them."""
    del rest
    return text


def _reversed(rest: list[str], text: str) -> str | None:
    return None if rest else "\n".join(line[::-1] for line in text.split("\n"))


def _translated(rest: list[str], text: str) -> str | None:
    """`tr a b`, `tr -d a`, `tr -s a`."""
    options = [word for word in rest if word.startswith("-") and len(word) > 1]
    sets = [_set(word) for word in rest if word not in options]
    if options in (["-d"], ["--delete"]) and len(sets) == 1:
        return "".join(sign for sign in text if sign not in sets[0])
    if options in (["-s"], ["--squeeze-repeats"]) and len(sets) == 1:
        return text
    if options or len(sets) != 2 or not sets[1]:
        return None
    last = sets[1][-1]
    table = {
        ord(sign): sets[1][at] if at < len(sets[1]) else last for at, sign in enumerate(sets[0])
    }
    return text.translate(table)


def _set(word: str) -> str:
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
    for sign in text:
        number = _ALPHABET.find(sign)
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


def _cut(rest: list[str], text: str) -> str | None:
    """`cut -d: -f2`: the field with that number."""
    sign, number = "\t", ""
    for option, value in zip(rest, (*rest[1:], ""), strict=False):
        if option.startswith("-d"):
            sign = option[2:] or value
        elif option.startswith("-f"):
            number = option[2:] or value
    if not number.isdecimal() or len(sign) != 1:
        return None
    rows = [line.split(sign) for line in text.split("\n")]
    # Of a glob it is not known where its fields are.
    return "\n".join(
        row[int(number) - 1] if len(row) >= int(number) > 0 else row[-1] for row in rows
    )


def _replaced(rest: list[str], text: str) -> str | None:
    """`sed s/a/b/g` with plain texts, and some of the lines (`sed 1,2d`, `sed -n 3p`)."""
    if rest[:1] == ["-e"]:
        rest = rest[1:]
    if rest and all(word == "-n" or not word.strip("0123456789,$dp") for word in rest):
        return text
    if len(rest) != 1 or len(rest[0]) < 4 or rest[0][0] != "s":
        return None
    parts = rest[0].split(rest[0][1])
    if len(parts) != 4 or parts[3] not in {"", "g"} or any(sign in parts[1] for sign in "\\.*[^$"):
        return None
    if not parts[1] or any(sign in parts[2] for sign in "\\&"):
        return None
    count = -1 if parts[3] == "g" else 1
    return "\n".join(line.replace(parts[1], parts[2], count) for line in text.split("\n"))


FILTERS: dict[str, Callable[[list[str], str], str | None]] = {
    "cat": _same,
    "tee": _rows,
    "sponge": _same,
    **dict.fromkeys(("sort", "uniq", "head", "tail", "tac"), _rows),
    **dict.fromkeys(("grep", "egrep", "fgrep"), _grepped),
    "rev": _reversed,
    "tr": _translated,
    **dict.fromkeys(("base64", "gbase64"), _base64),
    "xxd": _hex,
    "sed": _replaced,
    "cut": _cut,
}
"""By the program, what it makes of its input."""
