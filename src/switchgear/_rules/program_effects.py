"""What a program does to the words it is given: which files it changes or deletes, which hosts it calls.

Judged by role. Programs of `_HOW` are known word by word; those of `readers.py` are known to only
read. Every other program may do anything to whatever one of its words, options or texts names: those
paths are `given` to it.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from switchgear._rules.hosts import called_by, hosts_in, may_call
from switchgear._rules.interpreter_code import (
    DELETES,
    INTERPRETERS,
    WRITES,
    bracketed_in,
    code_of,
    joined,
    may_change,
    quoted_in,
    reads_input,
)
from switchgear._rules.options import has_flag, is_short, values_of, with_next
from switchgear._rules.patterns import ANY, word_set
from switchgear._rules.readers import only_reads
from switchgear._rules.shell.filters import finds
from switchgear._rules.shell.parser import ShellCommand, join
from switchgear._rules.shell.words import LONGEST_PATH, TooLong

_WRITES_ALL = frozenset(("tee", "touch", "truncate", "mkdir", "sponge"))
_ALTERS_ALL = frozenset(("chmod", "chown", "chgrp", "chattr", "setfacl", "setfattr", "xattr"))
DELETES_ALL = frozenset(
    (
        *("rm", "rmdir", "unlink", "shred", "trash", "srm", "rimraf", "del-cli", "trash-put"),
        *("wipe", "gomi", "wipefs", "blkdiscard", "mkswap", "mkfs"),
        *(f"mkfs.{kind}" for kind in ("ext2", "ext3", "ext4", "xfs", "btrfs", "vfat", "fat")),
        *(f"mkfs.{kind}" for kind in ("exfat", "ntfs", "f2fs", "minix")),
    )
)
"""Programs that delete what they are given; a new file system deletes what was on the disk."""
COPIES = frozenset(("cp", "install", "rsync", "scp", "gcp", "ditto"))
_TAKES_PATHS = DELETES_ALL | _ALTERS_ALL | {"mv", "cp", "tee", "truncate"}
_UNPACKS = frozenset(("tar", "bsdtar", "gtar", "unzip", "7z", "7za", "cpio", "unrar", "ar", "pax"))
_TEMPORARY = ("/tmp", "/var/tmp")  # noqa: S108  nothing is written there
_BACKUPS = tuple(
    f"{folder}/{name}"
    for folder in _TEMPORARY
    for name in ("switchgear.", ".claude", ".codex", ".gemini", ".qwen", ".opencode", ".pi")
)
"""Copies of the guard's files in folders that are no project's, see `without_backups`."""
_GUARD_PROGRAMS = frozenset(("switchgear", "switchgear-hook"))
_LEAVES_OUT = ("exclude", "ignore", "skip", "omit", "without", "except", "deselect", "prune")
"""Parts of long options that exclude something."""
_LEAVES_OUT_SHORT: dict[str, tuple[str, ...]] = {
    "tree": ("-I",),
    "fd": ("-E",),
    "zip": ("-x",),
    "bandit": ("-x",),
    "tokei": ("-e",),
    "nodemon": ("-i",),
    "7z": ("-x",),
    "du": ("-X",),
}
_SAYS = word_set("""
    -m --message --title --body --description --comment --subject --notes --summary --reason --why
    --label --author --grep --name
""")
"""Options whose value is a text for people."""
_PROMPTED = word_set("""
    claude codex gemini qwen opencode aider llm goose redis-cli valkey-cli keydb-cli xargs
""")
"""Programs whose words are not files: prompts for agents, queries for servers."""
_USED_HERE_BY = (
    *("--cacert=", "--cert=", "--key=", "--ca-certificate=", "--private-key=", "--cafile="),
    *("--defaults-file=", "--defaults-extra-file=", "--ssl-", "--tls"),
)
_USED_HERE = word_set("""
    -i --cacert --cert --key -E --netrc-file --capath --identity --ca-certificate --certificate
    --private-key --rsh --proxy-cacert --cafile --ssl-ca --ssl-cert --ssl-key
""")
"""Options whose file is a credential of the client, and is not sent."""
_SEPARATORS = "\"'`()[]{}<>|;&,=\n\t"
_GENTLE_MODES = frozenset("+rwxXugoast=,01234567")
ENVIRONMENT = "/proc/self/environ"
"""The file in which all variables are."""
MOST_PATHS = 1_500
"""Maximum number of paths of one call that are checked."""
MOST_TOKENS = 400
"""Words of one text that may be paths."""
_LONGEST_CLUSTER = 6


class Effects(NamedTuple):
    """What a command, a text or a tool call would do, as far as known without executing it.

    Paths are absolute, as written: links are not followed.
    """

    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    deletes: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    given: tuple[str, ...] = ()
    """Files named to a program or a tool of which it is not known that it only reads them."""
    alters: tuple[str, ...] = ()
    """Paths whose rights, owner or place in their folder change, with all that is below."""
    sweeps: tuple[str, ...] = ()
    """What git discards, as `kind:folder`; the kinds are those of `_hooks.git_state.swept`."""
    patches: tuple[str, ...] = ()
    commands: tuple[tuple[str, ...], ...] = ()
    """The programs that really run, each with its words; the first is a bare name."""
    runs: tuple[str, ...] = ()
    """Files that are run: scripts given to a shell, programs named by their path."""
    sends: tuple[str, ...] = ()
    """The files read that go to a host, through a pipe or a command."""
    variables: tuple[str, ...] = ()
    """Variables that hold a key and go to a host that is not its provider's, as `NAME to host`."""
    texts: tuple[str, ...] = ()
    """What is written, sent or run, as text."""
    inputs: tuple[str, ...] = ()
    """The single values among the inputs, as `name=value`."""
    tool: str = ""
    unread: str = ""
    """Why some of it could not be judged, if it could not."""


TOUCHED = Effects._fields[: Effects._fields.index("commands")]
"""The fields that a single command fills."""


class _Call(NamedTuple):
    """A command, taken apart."""

    command: ShellCommand
    rest: list[str]
    """The words after the program, without exclusions."""
    words: list[str]
    """The words that are not options."""
    paths: list[str]
    """The same as paths."""

    @property
    def operands(self) -> tuple[str, ...]:
        """The paths behind the verb, as in `git rm a b`."""
        return tuple(self.paths[1:])

    def seen(self, word: str) -> str:
        return join(self.command.cwd, word)


def touched_by(command: ShellCommand) -> Effects:
    """What one command touches, as far as its program is known."""
    program, *given = command.words
    rest = list(_significant(program, given))
    plain = [word for word in rest if word and not word.startswith("-")]
    if program in _TAKES_PATHS:  # "$(ls | head -1)": any of the lines
        plain = [line for word in plain for line in word.split("\n")]
    call = _Call(command, rest, plain, [join(command.cwd, path) for path in plain])
    hosts = tuple(called_by(command))
    found = _known_effect(program, call)
    reads = _read_by(call, is_calling=bool(hosts) or may_call(program))
    return found._replace(reads=(*reads, *found.reads), hosts=(*hosts, *found.hosts))


def without_backups(touch: Effects, live: Sequence[str]) -> Effects:
    """A copy without what it writes to temporary folders, where the folders in `live` are elsewhere.

    `live` are those with the guard's own files: the workspace and the home.
    """
    if any(folder in _TEMPORARY or folder.startswith(_BACKUPS) for folder in live):
        return touch
    fields = (touch.writes, touch.deletes, touch.alters)
    kept = [tuple(path for path in paths if not path.startswith(_BACKUPS)) for paths in fields]
    return touch._replace(writes=kept[0], deletes=kept[1], alters=kept[2])


def handled_by(command: ShellCommand) -> Effects:
    """What a program that only starts another one touches, by its own words."""
    program, *given = command.words
    rest = list(_significant(program, given))
    found = tuple(_tokens(_Call(command, rest, [], []), rest))
    return Effects(found, given=found)


def _known_effect(program: str, call: _Call) -> Effects:
    if call.command.foreign:  # a file of that name, which may be any program
        return _handles(call)
    if program.startswith(INTERPRETERS):
        return _program_text_effect(call)
    how = _HOW.get(program)
    if how is not None:
        return how(call)
    if program in _PROMPTED or only_reads(program, call.command.words[1:]):
        return Effects()
    return _handles(call)


def _significant(program: str, rest: Sequence[str]) -> Iterator[str]:
    """The words, without the values of options that exclude or describe something."""
    skips = False
    short = _LEAVES_OUT_SHORT.get(program, ())
    for word in rest:
        if skips:
            skips = False
            continue
        name, equals, _ = word.partition("=")
        small = name.lower()
        leaves_out = name.startswith("--") and any(part in small for part in _LEAVES_OUT)
        leaves_out = leaves_out and not name.startswith(("--no-", "--skip-"))
        if leaves_out or word in short or name in _SAYS:
            skips = not equals
        elif not (short and word.startswith(short)) and not word.startswith((":!", ":(exclude)")):
            yield word


def _read_by(call: _Call, *, is_calling: bool) -> tuple[str, ...]:
    words = call.rest[:MOST_PATHS]
    if call.command.words[0] in {"env", "printenv", "export", "declare", "set", "typeset"}:
        shows = not words or words[0] in {"-p", "-x", "-0"}
        return (ENVIRONMENT,) if shows or call.command.words[0] == "printenv" else ()
    if call.command.words[0] in {"echo", "printf"}:
        return ()  # their words are texts
    if not is_calling:
        return tuple(call.seen(word) for word in words if word and "://" not in word)
    texts = call.command.here_texts
    used = values_of(words, _USED_HERE)
    sent = [
        path
        for word in words
        if len(word) < LONGEST_PATH and word not in used and not word.startswith(_USED_HERE_BY)
        for path in _sent_in(word)
    ]
    if call.command.words[0] in {"sftp", "ftp", "lftp"}:  # orders to put files
        texts += [word for word in words if " " in word]
        texts.append(call.command.piped or "")
    sent += [path for text in texts for path in _paths_in_text(text)]
    return tuple(map(call.seen, sent))


def _sent_in(word: str) -> Iterator[str]:
    """The files that a word may send: `@file`, `name=<file`, `--post-file=file`, `-Tfile`."""
    if " " not in word:
        yield word
    for sign in "=@<:":
        if sign in word:
            named = word.rpartition(sign)[2].partition(";")[0]
            yield from (name.strip("\"'") for name in named.split(",", MOST_TOKENS))
    if is_short(word):
        yield from (word[at:].lstrip("@") for at in range(2, min(len(word), _LONGEST_CLUSTER)))


def _handles(call: _Call) -> Effects:
    """An unknown program may do anything to the paths in its words and here documents."""
    return Effects(given=tuple(_tokens(call, [*call.rest, *call.command.input_texts])))


def _other_paths(call: _Call, *known: str) -> tuple[str, ...]:
    """The paths in words that the known syntax of the program does not cover."""
    plain = set(known)
    return tuple(_tokens(call, [word for word in call.rest if word not in plain]))


def _tokens(call: _Call, words: Sequence[str]) -> Iterator[str]:
    if len(words) > MOST_PATHS:
        raise TooLong(f"a command with more than {MOST_PATHS} words")
    for word in words:
        for path in paths_in(word):
            yield call.seen(path)


def paths_in(word: str) -> list[str]:
    """The paths that a word may hold: itself, behind `=`, between colons, behind short options.

    Of a text with blanks, each word that looks like a path.

    >>> paths_in("--out=a/b"), paths_in("-sofile"), paths_in("rm a/b; x")
    (['--out=a/b', 'a/b'], ['ofile', 'file', 'ile', 'le', 'e'], ['a/b'])
    """
    if len(word) > LONGEST_PATH or " " in word or "\n" in word:
        return _paths_in_text(word)
    if "://" in word:
        return [word.removeprefix("file://")] if word.startswith("file://") else []
    found = [word] if word[:1] != "-" or "=" in word else []
    if "=" in word:
        found.append(word.partition("=")[2])
    if ":" in word:
        found += word.split(":")
        found += [part.partition(",")[0] for part in word.split(":") if "," in part]
    if is_short(word):
        found += [word[at:] for at in range(2, min(len(word), 2 + _LONGEST_CLUSTER))]
    if "@" in word:
        found.append(word.rpartition("@")[2])
    if any(sign in word for sign in "\"'`(<>|;&,{"):
        found += _paths_in_text(word)
    return [path for path in found if path]


def _paths_in_text(text: str) -> list[str]:
    """The words of a text that look like paths: with a slash, a dot or a star in them. Raises `TooLong`."""
    for sign in _SEPARATORS:
        if sign in text:
            text = text.replace(sign, " ")
    found = {
        word.rstrip(".:!?"): None
        for words in text.split()
        for word in ((words,) if len(words) < LONGEST_PATH else words.split(":"))
        if len(word) < LONGEST_PATH and ("." in word or "/" in word or "*" in word)
    }
    if len(found) > MOST_PATHS:
        raise TooLong(f"a text with more than {MOST_PATHS} paths in it")
    return list(found)


def _deletes(call: _Call) -> Effects:
    return Effects(deletes=tuple(call.paths), given=_other_paths(call, *call.words))


def _writes(call: _Call) -> Effects:
    return Effects(writes=tuple(call.paths), given=_other_paths(call, *call.words))


def _alters(call: _Call) -> Effects:
    """Adding rights leaves a project usable; removing them does not."""
    program = call.command.words[0]
    words = [word for word in call.rest if not word.startswith("--")]
    modes = [word for word in words if len(word) > 1 or word.isdigit()]
    gentle = program == "chmod" and not any(_takes_away(word) for word in modes[:2])
    paths = tuple(call.paths)
    return Effects(writes=paths) if gentle else Effects(writes=paths, alters=paths)


def _takes_away(mode: str) -> bool:
    """Whether a mode of `chmod` removes rights of the owner: `000`, `a-w`, `u=`."""
    if mode.isdigit():
        owner = mode[-3:-2] or "0"
        return owner not in {"7", "6"}
    return set(mode) <= (_GENTLE_MODES | {"-"}) and ("-" in mode or "=" in mode)


def _links(call: _Call) -> Effects:
    """A file with a second name can be changed by that name; a file replaced by a link is lost."""
    if len(call.paths) < 2 and "-t" not in call.rest:
        return Effects(given=_other_paths(call), writes=tuple(call.paths))
    return Effects(writes=_target(call), alters=tuple(call.paths[-1:]), given=_other_paths(call))


def _finding(call: _Call) -> Effects:
    found = tuple(call.seen(path) for path in finds(call.rest))
    named = values_of(call.rest, {"-fprint", "-fprintf", "-fls", "-fprint0"})
    deletes = found if "-delete" in call.rest else ()
    return Effects(writes=tuple(map(call.seen, named)), deletes=deletes)


def _moves(call: _Call) -> Effects:
    sources = call.paths if _into(call) else call.paths[:-1]
    return Effects(
        writes=_target(call),
        deletes=tuple(sources),
        alters=tuple(call.paths[-1:]),
        given=_other_paths(call, *call.words),
    )


def _copies(call: _Call) -> Effects:
    target = _target(call)
    program = call.command.words[0]
    clears = any(word.startswith(("--delete", "--del")) for word in call.rest)  # rsync
    takes = any(word == "--remove-source-files" for word in call.rest)
    links = program == "cp" and (
        has_flag(call.rest, "l", "--link") or has_flag(call.rest, "s", "--symbolic-link")
    )
    sources = call.paths if _into(call) else call.paths[:-1]
    deletes = (*(target[:1] if clears else ()), *(sources if takes else ()))
    spreads = (
        program == "rsync"
        or any(word.endswith(("/", "/.", "/..")) for word in call.words[:-1])
        or has_flag(call.rest, "T", "--no-target-directory")
    )
    whole = any(has_flag(call.rest, sign, "--recursive") for sign in "raR")
    below = tuple(f"{path.rstrip('/')}/*" for path in target[:1] if path != call.command.cwd)
    ours = tuple(path for path in sources if path.rpartition("/")[2] in _GUARD_PROGRAMS)
    return Effects(
        writes=(*target, *(sources if links else ()), *(below if spreads else ())),
        deletes=deletes,
        given=(*_other_paths(call, *call.words), *ours, *(sources if links else ())),
        alters=target[1:] if whole else (),
    )


def _unpacks(call: _Call) -> Effects:
    """Packing only reads files; unpacking writes to a folder or to the named files."""
    program, first = call.command.words[0], call.rest[0] if call.rest else ""
    letters = first.lstrip("-") if not first.startswith("--") else ""
    short = [word for word in call.rest if is_short(word) or word == first]
    packs = "tar" in program and any(
        not word.startswith("--") and {"c", "t"} & set(word.lstrip("-").partition("C")[0])
        for word in short[:2]
    )
    if packs or {"--create", "--list"} & set(call.rest) or (program == "unzip" and "l" in letters):
        gone = call.paths[1:] if "--remove-files" in call.rest else ()
        return Effects(deletes=tuple(gone), writes=tuple(_archives(call)))
    into = [call.seen(value) for value in values_of(call.rest, {"-C", "--directory", "-d", "-D"})]
    into += [call.seen(word[2:]) for word in call.rest if word[:2] in {"-C", "-d"} and word[2:]]
    landed = tuple(f"{folder}/*" for folder in into if folder != call.command.cwd)
    if call.command.cwd.rpartition("/")[2].startswith("."):  # in a folder of settings
        landed += (f"{call.command.cwd}/*",)
    return Effects(writes=landed, given=_handles(call).given)


def _archives(call: _Call) -> Iterator[str]:
    """The archive that `tar` writes: `czf file`, `-cf file`, `--file=file`."""
    for at, word in enumerate(call.rest):
        if word.startswith("--file="):
            yield call.seen(word.partition("=")[2])
        elif word == "--file" or (word[:2] != "--" and word.endswith("f") and at < 3):
            yield from (call.seen(value) for value in call.rest[at + 1 : at + 2])


def _zips(call: _Call) -> Effects:
    """The archive is written and the files are read, unless they are moved into it."""
    if only_reads("zip", call.command.words[1:]):
        return Effects(writes=tuple(call.paths[:1]))
    moved = has_flag(call.rest, "m", "--move")
    return _handles(call)._replace(deletes=tuple(call.paths[1:]) if moved else ())


def _trashes(call: _Call) -> Effects:
    """`gio trash folder`, `gio remove file`."""
    deletes = call.words[:1] in (["trash"], ["remove"], ["move"])
    return _handles(call)._replace(deletes=tuple(call.paths[1:]) if deletes else ())


def _synchronizes(call: _Call) -> Effects:
    """`rclone sync from to` deletes files that are only in the target; `host:path` is remote."""
    verbs = {"sync", "purge", "delete", "deletefile", "rmdir", "rmdirs", "move", "moveto"}
    pairs = zip(call.words[1:], call.operands, strict=True)
    here = tuple(path for word, path in pairs if ":" not in word)
    return _handles(call)._replace(deletes=here if set(call.words[:1]) & verbs else ())


def _patches(call: _Call) -> Effects:
    """The files that are named, and those of a patch whose text is known."""
    read = [path for op, path in call.command.redirects if op == "<"]
    lines = "\n".join(call.command.input_texts).split("\n")
    named = [line[4:].split("\t")[0].strip() for line in lines if line[:4] in {"+++ ", "--- "}]
    plain = [name[2:] if name[:2] in {"a/", "b/"} else name for name in named[:MOST_PATHS]]
    files = (*map(call.seen, read), *call.paths)
    return Effects(writes=tuple(map(call.seen, plain)), given=_handles(call).given, patches=files)


def _edits_by_lines(call: _Call) -> Effects:
    """Its file, and the files in the commands that it reads: `w file`, `!rm file`."""
    return _handles(call)._replace(writes=tuple(call.paths))


def _formats(call: _Call) -> Effects:
    """`python -m json.tool in out`."""
    return Effects(writes=tuple(call.paths[1:]))


def _queries(call: _Call) -> Effects:
    if {"-readonly", "--readonly"} & set(call.rest):
        return Effects()
    orders = [word for word in call.words if word.startswith(".") or "'" in word]
    given = (*_other_paths(call, *call.words), *_tokens(call, orders))
    return Effects(writes=tuple(call.paths), given=given)


def _edits(call: _Call) -> Effects:
    """The script names the files that it writes (`w file`); its other paths are patterns."""
    scripts = _scripts_of_sed(call)
    named = [part.partition("\n")[0] for text in scripts for part in _behind_w(text)]
    if any(_is_in_place(word) for word in call.rest):
        named += [word for word in call.words if word not in scripts]
    elif any(True for _ in run_by_sed(call.command)):
        return _handles(call)
    return Effects(writes=tuple(map(call.seen, named)))


def _behind_w(text: str) -> Iterator[str]:
    for mark in ("w ", "W ", "w\t"):
        yield from (part.strip().rstrip("}") for part in text.split(mark)[1:])
    for before in ("/", ";", "{", "$", "|", "#"):  # a blank is not needed: s/a/b/wfile
        yield from (part.strip().rstrip("}") for part in text.split(f"{before}w")[1:])
    if text[:1] == "w":
        yield text[1:].strip()


_ESCAPED = "\ue009"
"""Replaces an escaped separator."""


def read_script(command: ShellCommand) -> list[str]:
    """The program that `awk -f -` or `sed -f /dev/stdin` reads on its input, if it is known."""
    words = command.words
    named = values_of(words, {"-f", "--file"})
    named += [word.partition("f")[2] for word in words if is_short(word)]
    named += [word.partition("=")[2] for word in words if word.startswith("--file=")]
    if not {"-", "/dev/stdin"} & set(named):
        return []
    return command.input_texts


def run_by_sed(command: ShellCommand) -> Iterator[str]:
    r"""The commands that a script of sed runs: `1e ls`, `s/.*/ls/e`, or by an `e` alone what is there.

    >>> list(run_by_sed(ShellCommand(("sed", "s/.*/ls -l/e", "a"))))
    ['ls -l']
    >>> list(run_by_sed(ShellCommand(("sed", "s/e/f e/", "a"))))
    []

    Raises `TooLong`.
    """
    for word in (*command.words[1:], *read_script(command)):
        texts: list[str] = []
        if word[:1] == "-":  # -e'1e ls', --expression='1e ls'
            word = word.partition("=" if word[1:2] == "-" else "e")[2]  # noqa: PLW2901
        parts = word.replace("\n", ";").split(";")
        if len(parts) > MOST_TOKENS:
            raise TooLong(f"more than {MOST_TOKENS} commands in one script of sed")
        for part in parts:
            order = part.strip().lstrip("0123456789$,!~+{} ")
            if order.startswith("/"):  # an address that is a pattern
                order = order[1:].partition("/")[2].lstrip("!{ ")
            if order == "e":
                yield from texts
            elif order.startswith("e "):
                yield order[2:].rstrip("}")
            elif order[:1] == "s" and len(order) > 3 and not order[1].isalnum():
                escaped = order.replace(f"\\{order[1]}", _ESCAPED)
                pieces = [text.replace(_ESCAPED, order[1]) for text in escaped.split(order[1])]
                texts += pieces[2:3]
                if len(pieces) > 3 and "e" in pieces[3].partition("w")[0].strip(" }"):
                    yield pieces[2]


def _scripts_of_sed(call: _Call) -> list[str]:
    """The scripts after `-e` or `--expression`, or in a file; else the first word."""
    given = read_script(call.command)
    is_named = bool(given)
    for name, value in with_next(call.rest):
        letters, _, text = name.partition("=" if name[:2] == "--" else "e")
        if letters == "--expression":
            given.append(text or value)
        elif is_short(name) and "i" not in letters:  # -ie: a suffix
            if "f" not in letters and letters != name:
                given.append(text or value)
            is_named = is_named or "f" in letters
        is_named = is_named or letters == "--file"
    return given if given or is_named else call.words[:1]


def _is_in_place(word: str) -> bool:
    """`-i`, `-i.bak`, `-pi`, `--in-place=…`; letters after an `e` or `c` are program text."""
    letters = word.partition(".")[0].partition("e")[0].partition("c")[0]
    is_letter = is_short(word) and "i" in letters
    return is_letter or word.startswith(("--in-place", "--inplace"))


def _blocks(call: _Call) -> Effects:
    targets = [call.seen(word[3:]) for word in call.rest if word.startswith("of=")]
    return Effects(writes=tuple(targets))


def _git(call: _Call) -> Effects:
    how = _GIT.get(call.rest[0] if call.rest else "")
    if how is not None:
        return how(call)
    return Effects() if only_reads("git", call.command.words[1:]) else _handles(call)


def _git_removes(call: _Call) -> Effects:
    if call.rest[0] == "rm" and {"--cached", "-n", "--dry-run"} & set(call.rest):
        return Effects()
    return Effects(deletes=call.operands, given=_other_paths(call, *call.words))


def _git_restores(call: _Call) -> Effects:
    """The named files; without paths, or for the whole project, its modified files."""
    if "--staged" in call.rest and "--worktree" not in call.rest:
        return Effects()
    root = call.command.cwd
    top = [call.seen(word) for word in call.words if _is_top(word)]
    whole = [
        path
        for path in call.operands
        if path == root or root.startswith(path.rstrip("/") + "/") or path in top
    ]
    named = tuple(path for path in call.operands if path not in whole)
    forced = {"-f", "--force", "--discard-changes"} & set(call.rest)
    sweeps = _undone(root) if forced else (f"modified:{root}",) if whole else ()
    below = tuple(f"{path}/*" for path in named)
    return Effects(writes=(*named, *below), given=_other_paths(call, *call.words), sweeps=sweeps)


def _is_top(word: str) -> bool:
    """`:/`, `:(top)`: the whole project, whatever the folder is."""
    return word.startswith((":/", ":(top")) and not _below_top(word)


def _below_top(word: str) -> str:
    """`:/docs`, `:(top)docs`: a path in the project, whatever the folder is."""
    if word.startswith(":(top"):
        return word.partition(")")[2].strip("./")
    return word[2:].strip("./") if word.startswith(":/") else ""


def _anywhere(call: _Call, paths: Sequence[str]) -> list[str]:
    """Paths of git; those relative to the top of the project may be in any folder above."""
    top = {call.seen(word): f"/**/{below}" for word in call.words if (below := _below_top(word))}
    top |= dict.fromkeys([call.seen(word) for word in call.words if _is_top(word)], "/")
    return [top.get(path, path) for path in paths]


def _git_resets(call: _Call) -> Effects:
    hard = {"--hard", "--merge", "--keep"} & set(call.rest)
    return Effects(sweeps=_undone(call.command.cwd) if hard else ())


def _undone(folder: str) -> tuple[str, ...]:
    """What is lost when tracked files are reset to those of a commit."""
    return (f"modified:{folder}", f"uncommitted:{folder}")


def _git_cleans(call: _Call) -> Effects:
    """Untracked files, and with `-x` ignored ones."""
    if has_flag(call.rest[1:], "n", "--dry-run"):
        return Effects()
    kinds = [] if has_flag(call.rest[1:], "X") else ["untracked"]
    if any(has_flag(call.rest[1:], sign) for sign in "xX"):
        kinds.append("ignored")
    left_out = _behind_short(call, "e")
    named = [
        path
        for word, path in zip(call.words[1:], call.operands, strict=True)
        if word not in left_out
    ]
    where = _anywhere(call, named or [call.command.cwd])
    return Effects(sweeps=tuple(f"{kind}:{path}" for kind in kinds for path in where))


def _behind_short(call: _Call, letter: str) -> list[str]:
    """The words behind a short option that ends with this letter."""
    names = {word for word in call.rest if is_short(word) and word.endswith(letter)}
    return values_of(call.rest, names)


def _git_stashes(call: _Call) -> Effects:
    verbs = {"list", "show", "pop", "apply", "drop", "branch", "create", "store", "clear"}
    if set(call.words[1:2]) & verbs:
        return Effects()
    named = call.operands[1:] if call.words[1:2] in (["push"], ["save"]) else call.operands
    kinds = ["modified", "uncommitted"]
    all_of_it = has_flag(call.rest[1:], "a", "--all")
    if all_of_it or has_flag(call.rest[1:], "u", "--include-untracked"):
        kinds.append("untracked")
    if all_of_it:
        kinds.append("ignored")
    if call.words[1:2] == ["save"]:
        named = ()  # what follows is a message
    messages = [call.seen(value) for value in _behind_short(call, "m")]
    named = tuple(path for path in named if path not in messages)
    where = _anywhere(call, named or (call.command.cwd,))
    return Effects(
        deletes=named,
        given=_other_paths(call, *call.words),
        sweeps=tuple(f"{kind}:{path}" for kind in kinds for path in where),
    )


def _git_writes_all(call: _Call) -> Effects:
    """`git read-tree -u`, `git checkout-index -fa`: resets tracked files."""
    given = _other_paths(call, *call.words)
    return Effects(sweeps=_undone(call.command.cwd), given=given, writes=call.operands)


def _git_narrows(call: _Call) -> Effects:
    """`git sparse-checkout set folder` removes tracked files elsewhere."""
    verbs = {"set", "init", "reapply"}
    return Effects(sweeps=(f"tracked:{call.command.cwd}",) if set(call.words[1:2]) & verbs else ())


def _git_worktrees(call: _Call) -> Effects:
    """A worktree that is removed or moved may be the one in which the agent works."""
    gone = call.operands[1:] if set(call.words[1:2]) & {"remove", "move"} else ()
    return _handles(call)._replace(alters=gone)


def _git_clones(call: _Call) -> Effects:
    into = call.operands[-1:] if len(call.words) > 2 else ()
    return Effects(writes=(*into, *(f"{path}/*" for path in into)))


def _git_configures(call: _Call) -> Effects:
    """Commands in settings are checked elsewhere; this is about the file that is written."""
    return Effects(given=_other_paths(call, *call.words[2:]))


def _git_patches(call: _Call) -> Effects:
    if {"--check", "--stat", "--numstat", "--summary", "--cached"} & set(call.rest):
        return Effects()
    touch = _patches(call)
    return touch._replace(patches=call.operands or touch.patches)


_GIT: dict[str, Callable[[_Call], Effects]] = {
    "rm": _git_removes,
    "mv": _git_removes,
    **dict.fromkeys(("checkout", "restore", "switch"), _git_restores),
    "reset": _git_resets,
    "clean": _git_cleans,
    "stash": _git_stashes,
    **dict.fromkeys(("read-tree", "checkout-index"), _git_writes_all),
    "sparse-checkout": _git_narrows,
    "worktree": _git_worktrees,
    "clone": _git_clones,
    "config": _git_configures,
    **dict.fromkeys(("apply", "am"), _git_patches),
}


def _downloads(call: _Call) -> Effects:
    """The file that a download writes; files that are sent are only read."""
    written: list[str] = []
    sent: list[str] = []
    names = [word.rpartition("/")[2] for word in call.words if "/" in word]
    before = ""
    for word in call.rest:
        if _is_option_for(before, "oO", ("--output", "--output-document", "--dump-header")):
            written.append(word)
        elif before in {"-P", "--directory-prefix", "--output-dir"}:
            written += [word, *(f"{word}/{last}" for last in names)]
        elif before in _SENDING or word.startswith(("@", "--data", "--post", "--form", "--json")):
            sent.append(word)
        before = word
    written += [word.partition("=")[2] for word in call.rest if word.startswith("--output")]
    if any(_is_option_for(word, "O", ("--remote-name", "--remote-name-all")) for word in call.rest):
        written += names
    if call.command.words[0] == "wget":
        written += names
    others = _other_paths(call, *sent)
    if any(word.startswith(("-K", "--config")) for word in call.rest):
        others += tuple(_tokens(call, call.command.input_texts))
    return Effects(writes=tuple(map(call.seen, written)), given=others)


_SENDING = word_set("""
    -d -F -H -T -b -A -e -u -X --data --data-raw --header --data-binary --data-urlencode --form
    --form-string --upload-file --json --cookie --user-agent --referer --user --request --post-data
    --url --post-file --body-data --body-file --cacert --cert --key --netrc-file
""")


def _is_option_for(word: str, letters: str, names: Sequence[str]) -> bool:
    """`-o`, `-so`: a short option, alone or the last of several; or its long name."""
    is_letter = is_short(word) and word[-1:] in letters and len(word) <= 6
    return is_letter or word in names


def _into(call: _Call) -> str:
    """The folder of `-t folder`, `-tfolder`, `--target-directory=folder`."""
    for name, value in with_next(call.rest):
        if name == "--target-directory" or (
            is_short(name) and name.endswith("t") and len(name) < _LONGEST_CLUSTER
        ):
            is_copy = call.command.words[0] in {"cp", "mv", "ln", "install", "gcp"}
            return value if is_copy else ""
        if name.startswith("--target-directory="):
            return name.partition("=")[2]
    return ""


def _target(call: _Call) -> tuple[str, ...]:
    """Where a copy goes: `-t folder`, or the last word; into a folder, under its own name."""
    folder = _into(call)
    if folder:
        last = call.seen(folder)
        return (last, *(f"{last}/{path.rpartition('/')[2]}" for path in call.paths))
    words = call.words
    if len(words) < 2 or ":" in words[-1].partition("/")[0]:  # host:path is somewhere else
        return ()
    last = call.paths[-1]
    name = words[-1].rpartition("/")[2]
    if len(words) == 2 and "." in name.strip("."):  # a name such as x.yaml is that of a file
        return (last,)
    names = [path.rpartition("/")[2].rpartition(":")[2] for path in call.paths[:-1]]
    inside = [f"{last.rstrip('/')}/{name}" for name in names]
    return (last, *inside)


def _program_text_effect(call: _Call) -> Effects:
    """What a program text touches: its quoted texts, if it writes or deletes at all."""
    code = code_of(call.command)
    small = code.lower()
    texts = quoted_in(code)
    if call.command.words[0].startswith(("perl", "ruby")):
        texts += bracketed_in(code)
    texts += list(_filled_in(texts))
    if any(word in small for word in _LISTING):
        whole = any(word in small for word in _WHOLE)
        texts = [text for text in texts if whole or text != "."] + _listed_names(small, texts)
    if may_change(code) and any(word in code for word in ("environ", "getenv", ".env", "ENV")):
        texts += list(call.command.variables.values())
    paths = tuple(call.seen(path.lstrip("<>+ ")) for path in texts)
    deletes = paths if any(word in small for word in DELETES) else ()
    writes = paths if any(word in small for word in WRITES) else ()
    script = bool(call.paths) and not code
    changes = may_change(code)
    plain = [text.lstrip("<>+ ") for text in texts]
    named = [text for text in plain if " " not in text]  # others are commands or messages
    given = tuple(call.seen(path) for path in (*named, *_joined_paths(named))) if changes else ()
    if changes and call.command.words[0] == "tclsh":  # its texts need no quotes
        given += tuple(map(call.seen, _paths_in_text(code)))
    in_place = any(_is_in_place(word) for word in call.rest)
    others = _other_paths(call) if script else ()
    if code:
        # Words behind the program text are its arguments, which it may change.
        args = [word for word in call.rest if word not in code and not word.startswith("-")]
        others = tuple(_tokens(call, args)) if changes or in_place else ()
        if "argv" in small and any(word in small for word in DELETES):
            deletes += tuple(map(call.seen, args))
    piped = call.command.piped or "\n".join(call.command.here_texts)
    if piped and reads_input(call.command) and may_change(code.replace(piped, "")):
        others = (*others, *_tokens(call, list(dict.fromkeys(piped.split()))))
    if changes and ("switchgear.__path__" in code or "switchgear.__file__" in code):
        others = (*others, _PACKAGE)
    hosts = tuple(hosts_in(code))
    if any(word in small for word in _CONNECTS):
        hosts += tuple(text for text in texts if "." in text and text[:1] not in "./*")
    named = _paths_in_text(code) if hosts else []
    reads = (*paths, *map(call.seen, named))
    return Effects(reads, writes, deletes, hosts, (*given, *others))


def _filled_in(texts: Sequence[str]) -> Iterator[str]:
    """Format strings with the texts after them filled in: `"{}.c".format("a")`."""
    for at, text in enumerate(texts[:MOST_TOKENS]):
        if len(text) > 200 or not ("%s" in text or "{" in text):
            continue
        others = iter([*texts[at + 1 : at + 9], *texts[:at]])
        filled, wild = "", ""
        rest = text.replace("%s", "{}").replace("${", "{")
        while rest:
            head, opened, behind = rest.partition("{")
            _, _, rest = behind.partition("}")
            filled += head + (next(others, "") if opened else "")
            wild += head + (ANY if opened else "")
        yield filled
        if len(wild.partition(ANY)[0]) > 2:
            yield wild


_PACKAGE = "/usr/lib/python3/site-packages/switchgear"
_CONNECTS = ("socket", "httpconnection", "httpsconnection", "smtplib", "ftplib", "net.connect")
"""Words of code that calls a host by its bare name."""
_LISTING = ("listdir", "scandir", "iterdir", "os.walk", "readdir", "rglob", "opendir")
_WHOLE = ("rmtree", "rm_rf", "remove_tree", "rmsync", "rename", "move")
"""Words of code that takes a folder as a whole."""
_HERE = ('(".")', "('.')", "listdir()", "scandir()", "path()", "cwd()", "'.',", '".",')


def _listed_names(code: str, texts: Sequence[str]) -> list[str]:
    """The names that code may find in its working directory, or below it with `rglob`."""
    if not any(word in code for word in _HERE):
        return []
    names = [text for text in texts if "/" not in text and " " not in text and len(text) > 2]
    if "rglob" in code or "walk" in code:
        return [f"**/{name.replace('*', ANY)}" for name in names or [ANY]]
    return [f"*{name}*" for name in names] or [ANY]


def _joined_paths(texts: Sequence[str]) -> Iterator[str]:
    """Paths that code may join from its texts: `join(".claude", "settings.json")`."""
    parts = [text for text in texts if text and " " not in text and len(text) < 200]
    for first, second in zip(parts, parts[1:], strict=False):
        yield f"{first}/{second}"
        yield f"{first}{second}"
    for count in (3, 4, 5):
        for at in range(min(len(parts) - count + 1, 20)):
            yield "".join(parts[at : at + count])


def _awk(call: _Call) -> Effects:
    """The same for awk, which has its own redirections; `-i inplace` writes its files."""
    texts = [word for word in call.rest if " " in word or "{" in word]
    code = " ".join((*texts, *read_script(call.command)))
    if any("inplace" in word for word in call.rest if " " not in word):
        return _writes(call)
    if not any(sign in code for sign in (">", "|", "system(")):
        return Effects()
    named = [word for text in quoted_in(joined(code)) for word in paths_in(text)]
    variables = [word.partition("=")[2] for word in call.rest if "=" in word and "{" not in word]
    if "ARGV" in code or "FILENAME" in code:
        variables += call.words
    if "ENVIRON" in code:
        variables += list(call.command.variables.values())
    if "$" in code:
        variables += dict.fromkeys((call.command.piped or "").split())
    named += [path for value in variables for path in paths_in(value)]
    return Effects(writes=tuple(map(call.seen, named)))


_HOW: dict[str, Callable[[_Call], Effects]] = {
    **dict.fromkeys(DELETES_ALL, _deletes),
    **dict.fromkeys(_WRITES_ALL, _writes),
    **dict.fromkeys(_ALTERS_ALL, _alters),
    **dict.fromkeys(COPIES, _copies),
    **dict.fromkeys(("sed", "gsed"), _edits),
    **dict.fromkeys(("curl", "wget"), _downloads),
    **dict.fromkeys(_UNPACKS, _unpacks),
    **dict.fromkeys(("awk", "gawk", "mawk", "nawk"), _awk),
    "ln": _links,
    "patch": _patches,
    "zip": _zips,
    "gio": _trashes,
    "rclone": _synchronizes,
    "ed": _edits_by_lines,
    "ex": _edits_by_lines,
    "json": _formats,
    "find": _finding,
    "mv": _moves,
    "sqlite3": _queries,
    "dd": _blocks,
    "git": _git,
}
"""The function that interprets the words of each program."""
