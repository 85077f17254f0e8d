"""What a program does to the words it is given: which files it writes or deletes, whom it calls.

A program that is not known here reads the paths it is given; whether it does more cannot be told,
so they are `given` to it, too.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from switchgear.core.code_text import (
    DELETES,
    INTERPRETERS,
    WRITES,
    code_of,
    may_change,
    quoted_in,
)
from switchgear.core.hosts import called_by, hosts_in
from switchgear.core.readers import only_reads
from switchgear.core.shell import Command, join

_WRITES_ALL = frozenset(
    (
        "tee",
        "touch",
        "truncate",
        "chmod",
        "chown",
        "chgrp",
        "chattr",
        "mkdir",
        "sponge",
        "ed",
        "ex",
        "ln",  # what it leads to, too: what has a second name can be changed by that one
    )
)
_DELETES_ALL = frozenset(("rm", "rmdir", "unlink", "shred", "trash", "srm"))
_COPIES = frozenset(("cp", "install", "rsync", "scp"))
_UNPACKS = frozenset(("tar", "bsdtar", "unzip", "7z", "cpio"))
LONGEST_PATH = 4096


class Touch(NamedTuple):
    """What a command touches; paths are absolute, as written (links are the guard's to follow)."""

    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    deletes: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    given: tuple[str, ...] = ()
    """Paths given to a program of which it is not known that it only reads them."""

    def joined(self, other: "Touch") -> "Touch":
        """All that either touches."""
        return Touch(*(one + more for one, more in zip(self, other, strict=True)))


class _Call(NamedTuple):
    """A command, taken apart."""

    command: Command
    rest: list[str]
    """The words behind the program."""
    paths: list[str]
    """Those that are no options, as paths."""

    def seen(self, word: str) -> str:
        """A word as a path."""
        return join(self.command.cwd, word)


def touched_by(command: Command) -> Touch:
    """What one command touches, by what is known of its program."""
    program, *rest = command.words
    plain = [word for word in rest if not word.startswith("-")]
    call = _Call(command, rest, [join(command.cwd, path) for path in plain])
    reads = tuple(call.seen(_file_in(word)) for word in rest if "://" not in word)
    how = _interpreted if program.startswith(INTERPRETERS) else _HOW.get(program)
    if how is None and not only_reads(program, rest):
        how = _handles
    found = Touch() if how is None else how(call)
    return Touch(
        (*reads, *found.reads),
        found.writes,
        found.deletes,
        (*called_by(command), *found.hosts),
        found.given,
    )


def _handles(call: _Call) -> Touch:
    """Nobody knows what it does with what it is given."""
    return Touch(given=tuple(call.seen(path) for word in call.rest for path in paths_in(word)))


def paths_in(word: str) -> list[str]:
    """The paths that a word may hold: itself, behind `=`, between colons, behind a short option.

    >>> paths_in("-v=a:/b"), paths_in("a sentence of words")
    (['-v=a:/b', 'a:/b', '-v=a', '/b', '=a:/b'], [])
    """
    if " " in word or "\n" in word or len(word) > LONGEST_PATH:
        return []
    if "://" in word:
        return [word.removeprefix("file://")] if word.startswith("file://") else []
    found = [word] if word[:1] != "-" or "=" in word else []
    if "=" in word:
        found.append(word.partition("=")[2])
    if ":" in word:
        found += word.split(":")
    if word[:1] == "-" and len(word) > 2:
        found.append(word[2:])
    return [path for path in found if path]


def _deletes(call: _Call) -> Touch:
    return Touch(deletes=tuple(call.paths))


def _writes(call: _Call) -> Touch:
    return Touch(writes=tuple(call.paths))


def _finding(call: _Call) -> Touch:
    found = tuple(call.seen(path) for path in finds(call.rest))
    return Touch(deletes=found if "-delete" in call.rest else ())


def _moves(call: _Call) -> Touch:
    return Touch(writes=_target(call), deletes=tuple(call.paths[:-1]))


def _copies(call: _Call) -> Touch:
    target = _target(call)
    clears = any(word.startswith("--delete") for word in call.rest)  # rsync
    takes = any(word == "--remove-source-files" for word in call.rest)
    links = call.command.words[0] == "cp" and _has_flag(call.rest, "l", "--link")
    deletes = (*(target[:1] if clears else ()), *(call.paths[:-1] if takes else ()))
    return Touch(writes=(*target, *(call.paths[:-1] if links else ())), deletes=deletes)


def _has_flag(rest: Sequence[str], letter: str, name: str) -> bool:
    """`-l`, `-al`, `--link`."""
    return any(word == name or (word[:1] == "-" != word[1:2] and letter in word) for word in rest)


def _unpacks(call: _Call) -> Touch:
    """What is packed is only read; what is unpacked lands in a folder, or is named."""
    program, first = call.command.words[0], call.rest[0] if call.rest else ""
    packs = "tar" in program and "c" in first.lstrip("-") and not first.startswith("--")
    if packs or "--create" in call.rest:
        gone = call.paths[1:] if "--remove-files" in call.rest else ()
        return Touch(deletes=tuple(gone))
    into = [
        call.seen(value)
        for name, value in zip(call.rest, call.rest[1:], strict=False)
        if name in {"-C", "--directory", "-d"}
    ]
    landed = tuple(f"{folder}/*" for folder in into if folder != call.command.cwd)
    return Touch(writes=landed, given=_handles(call).given)


def _patches(call: _Call) -> Touch:
    """The files that are named, and those of a patch that is known."""
    texts = [target for op, target in call.command.redirects if op == "<<<"]
    lines = "\n".join((*texts, call.command.piped or "")).split("\n")
    named = [line[4:].split("\t")[0].strip() for line in lines if line[:4] in {"+++ ", "--- "}]
    plain = [name[2:] if name[:2] in {"a/", "b/"} else name for name in named]
    return Touch(writes=tuple(map(call.seen, plain)), given=_handles(call).given)


def _formats(call: _Call) -> Touch:
    """`python -m json.tool in out`."""
    return Touch(writes=tuple(call.paths[1:]))


def _queries(call: _Call) -> Touch:
    return Touch() if "-readonly" in call.rest else _writes(call)


def _edits(call: _Call) -> Touch:
    if any(_says_in_place(word) for word in call.rest):
        return _writes(call)
    # `w file` in the text of sed; other texts that look like it name nothing that is guarded.
    named = (word.rpartition("w ")[2] for word in call.rest if "w " in word)
    return Touch(writes=tuple(map(call.seen, named)))


def _says_in_place(word: str) -> bool:
    """`-i`, `-i.bak`, `-pi`, `--in-place=…`, `--inplace`."""
    is_short = word[:1] == "-" != word[1:2] and "i" in word.partition(".")[0]
    return is_short or word.startswith(("--in-place", "--inplace"))


def _blocks(call: _Call) -> Touch:
    targets = [call.seen(word[3:]) for word in call.rest if word.startswith("of=")]
    return Touch(writes=tuple(targets))


def _git(call: _Call) -> Touch:
    verb = call.rest[0] if call.rest else ""
    paths = tuple(call.paths[1:])
    if verb in {"rm", "mv"}:
        return Touch(deletes=paths)
    if verb in {"checkout", "restore"}:
        only_staged = "--staged" in call.rest and "--worktree" not in call.rest
        below = [f"{path}/*" for path in paths if path != call.command.cwd]
        return Touch(writes=() if only_staged else (*paths, *below))
    if verb in {"apply", "am"}:
        return _patches(call)
    return Touch() if only_reads("git", call.rest) else _handles(call)


def _downloads(call: _Call) -> Touch:
    written: list[str] = []
    names = [word.rpartition("/")[2] for word in call.rest if "://" in word]
    for name, value in zip(call.rest, call.rest[1:], strict=False):
        if name in {"-o", "-O", "--output", "--output-document"}:
            written.append(value)
        elif name in {"-P", "--directory-prefix", "--output-dir"}:
            written += [value, *(f"{value}/{last}" for last in names)]
    written += [word.partition("=")[2] for word in call.rest if word.startswith("--output")]
    return Touch(writes=tuple(map(call.seen, written)))


def _target(call: _Call) -> tuple[str, ...]:
    """Where a copy goes: `-t folder`, or the last word; into a folder, under its own name."""
    for name, value in zip(call.rest, call.rest[1:], strict=False):
        if name in {"-t", "--target-directory"}:
            return (call.seen(value),)
    words = [word for word in call.rest if not word.startswith("-")]
    if len(words) < 2 or ":" in words[-1].partition("/")[0]:  # host:path is somewhere else
        return ()
    last = call.paths[-1]
    name = words[-1].rpartition("/")[2]
    if len(words) == 2 and "." in name.strip("."):  # a name such as x.yaml is that of a file
        return (last,)
    inside = [f"{last.rstrip('/')}/{path.rpartition('/')[2]}" for path in call.paths[:-1]]
    return (last, *inside)


def finds(rest: Sequence[str]) -> list[str]:
    """What `find` would find, as paths with stars: below where it begins, of the name it looks for."""
    starts: list[str] = []
    for word in rest:
        if word.startswith(("-", "(", "!")):
            break
        starts.append(word)
    name = "empty" if "-empty" in rest else "*"  # what is empty is nothing that anybody protects
    for test, value in zip(rest, rest[1:], strict=False):
        if test in {"-name", "-iname"}:
            name = value
    return [f"{start}/**/{name}" for start in starts or ["."]]


def _file_in(word: str) -> str:
    """The path in `@file`, `name=@file`, `--data=@file`, or the word itself."""
    return word.rpartition("@")[2] if "@" in word and "/" not in word.partition("@")[0] else word


def _interpreted(call: _Call) -> Touch:
    """What a line of program text touches: the texts in quotes, if it writes or deletes at all."""
    code = code_of(call.command)
    small = code.lower()
    paths = tuple(call.seen(path.lstrip("<>+ ")) for path in quoted_in(code))
    deletes = paths if any(word in small for word in DELETES) else ()
    writes = paths if any(word in small for word in WRITES) else ()
    script = bool(call.paths) and not code
    given = paths if may_change(code) else ()
    return Touch(
        paths,
        (*writes, *_edits(call).writes),
        deletes,
        tuple(hosts_in(code)),
        (*given, *(call.paths[1:] if script else ())),
    )


def _awk(call: _Call) -> Touch:
    """The same for awk, which redirects within its text; `-i inplace` writes its files."""
    code = " ".join(word for word in call.rest if " " in word or "{" in word)
    if "inplace" in call.rest:
        return _writes(call)
    acts = any(sign in code for sign in (">", "|", "system("))
    return Touch(writes=tuple(map(call.seen, quoted_in(code))) if acts else ())


_HOW: dict[str, Callable[[_Call], Touch]] = {
    **dict.fromkeys(_DELETES_ALL, _deletes),
    **dict.fromkeys(_WRITES_ALL, _writes),
    **dict.fromkeys(_COPIES, _copies),
    **dict.fromkeys(("sed", "gsed", "yq"), _edits),
    **dict.fromkeys(("curl", "wget"), _downloads),
    **dict.fromkeys(_UNPACKS, _unpacks),
    **dict.fromkeys(("awk", "gawk", "mawk", "nawk"), _awk),
    "patch": _patches,
    "json": _formats,
    "find": _finding,
    "mv": _moves,
    "sqlite3": _queries,
    "dd": _blocks,
    "git": _git,
}
"""By the program, what its words mean."""
