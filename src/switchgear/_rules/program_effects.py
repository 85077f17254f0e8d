"""What a program does with its arguments: which files it changes or deletes, which hosts it calls.

The arguments of the programs in `_PROGRAM_EFFECTS` are interpreted; the programs in `readers.py` only
read. Every other program may do anything to the paths that its words, options or texts name: those
paths are `given` to it.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from switchgear._rules.hosts import called_by, hosts_in, may_call
from switchgear._rules.interpreter_code import (
    DELETES,
    INTERPRETERS,
    PACKAGE_PATH,
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
"""Programs that delete the paths in their arguments; a new file system deletes everything on a disk."""
COPIES = frozenset(("cp", "install", "rsync", "scp", "gcp", "ditto"))
_TAKES_PATHS = DELETES_ALL | _ALTERS_ALL | {"mv", "cp", "tee", "truncate"}
_UNPACKS = frozenset(("tar", "bsdtar", "gtar", "unzip", "7z", "7za", "cpio", "unrar", "ar", "pax"))
_TEMPORARY = ("/tmp", "/var/tmp")  # noqa: S108  nothing is written there
_BACKUPS = tuple(
    f"{folder}/{name}"
    for folder in _TEMPORARY
    for name in ("switchgear.", ".claude", ".codex", ".gemini", ".qwen", ".opencode", ".pi")
)
"""Prefixes of backups of the guard's files in temporary folders, see `without_backups`."""
_GUARD_PROGRAMS = frozenset(("switchgear", "switchgear-hook"))
_EXCLUDING = ("exclude", "ignore", "skip", "omit", "without", "except", "deselect", "prune")
"""Parts of long options that exclude something."""
_EXCLUDING_SHORT: dict[str, tuple[str, ...]] = {
    "tree": ("-I",),
    "fd": ("-E",),
    "zip": ("-x",),
    "bandit": ("-x",),
    "tokei": ("-e",),
    "nodemon": ("-i",),
    "7z": ("-x",),
    "du": ("-X",),
}
_MESSAGE_OPTIONS = word_set("""
    -m --message --title --body --description --comment --subject --notes --summary --reason --why
    --label --author --grep --name
""")
"""Options whose value is a message for humans."""
_PROMPTED = word_set("""
    claude codex gemini qwen opencode aider llm goose redis-cli valkey-cli keydb-cli xargs
""")
"""Programs whose words are not files: prompts for agents, queries for servers."""
_CREDENTIAL_PREFIXES = (
    *("--cacert=", "--cert=", "--key=", "--ca-certificate=", "--private-key=", "--cafile="),
    *("--defaults-file=", "--defaults-extra-file=", "--ssl-", "--tls"),
)
_CREDENTIAL_OPTIONS = word_set("""
    -i --cacert --cert --key -E --netrc-file --capath --identity --ca-certificate --certificate
    --private-key --rsh --proxy-cacert --cafile --ssl-ca --ssl-cert --ssl-key
""")
"""Options whose file is a credential of the client, which is not sent."""
_SEPARATORS = "\"'`()[]{}<>|;&,=\n\t"
_MODE_CHARS = frozenset("+rwxXugoast=,01234567")
ENVIRONMENT = "/proc/self/environ"
"""The file that contains all environment variables."""
MOST_PATHS = 1_500
"""Maximum number of paths of one call that are checked."""
MOST_TOKENS = 400
"""Maximum number of words of one text that are checked as paths or commands."""
_LONGEST_CLUSTER = 6


class Effects(NamedTuple):
    """What a command, a text or a tool call would do, as far as known without running it.

    Paths are absolute, as written: links are not followed.
    """

    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    deletes: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    given: tuple[str, ...] = ()
    """Files that are named to a program or a tool that may do more than read them."""
    alters: tuple[str, ...] = ()
    """Paths whose permissions, owner or name change, with everything below them."""
    sweeps: tuple[str, ...] = ()
    """What git discards, as `kind:folder`; the kinds are those of `_hooks.git_state.discarded_file`."""
    patches: tuple[str, ...] = ()
    commands: tuple[tuple[str, ...], ...] = ()
    """The programs that run, each with its words; the first word is a name without a folder."""
    runs: tuple[str, ...] = ()
    """Files that are run: scripts of a shell, programs named by their path."""
    sends: tuple[str, ...] = ()
    """Files whose contents go to a host, through a pipe or a command."""
    variables: tuple[str, ...] = ()
    """Variables with keys that go to a host other than their provider's, as `NAME to host`."""
    texts: tuple[str, ...] = ()
    """The texts that are written, sent or run."""
    inputs: tuple[str, ...] = ()
    """The single values among the inputs, as `name=value`."""
    tool: str = ""
    unread: str = ""
    """Why a part of the call cannot be checked; empty if everything can."""


TOUCHED = Effects._fields[: Effects._fields.index("commands")]
"""The fields that a single command fills."""


class _Call(NamedTuple):
    """A command, split into its parts."""

    command: ShellCommand
    rest: list[str]
    """The words after the program, without exclusions."""
    words: list[str]
    """The words that are not options."""
    paths: list[str]
    """The same words as absolute paths."""

    @property
    def operands(self) -> tuple[str, ...]:
        """The paths after the verb, as in `git rm a b`."""
        return tuple(self.paths[1:])

    def absolute(self, word: str) -> str:
        return join(self.command.cwd, word)


def touched_by(command: ShellCommand) -> Effects:
    """What one command touches, as far as known."""
    program, *given = command.words
    rest = list(_significant(program, given))
    plain = [word for word in rest if word and not word.startswith("-")]
    if program in _TAKES_PATHS:  # "$(ls | head -1)" may be any of the lines
        plain = [line for word in plain for line in word.split("\n")]
    call = _Call(command, rest, plain, [join(command.cwd, path) for path in plain])
    hosts = tuple(called_by(command))
    found = _known_effect(program, call)
    reads = _read_by(call, is_calling=bool(hosts) or may_call(program))
    return found._replace(reads=(*reads, *found.reads), hosts=(*hosts, *found.hosts))


def without_backups(touch: Effects, live: Sequence[str]) -> Effects:
    """The effects of a copy, without backups of the guard's files in temporary folders.

    `live` are the folders with the guard's own files: the workspace and the home folder. If one of
    them is temporary itself, nothing is left out.
    """
    if any(folder in _TEMPORARY or folder.startswith(_BACKUPS) for folder in live):
        return touch
    fields = (touch.writes, touch.deletes, touch.alters)
    kept = [tuple(path for path in paths if not path.startswith(_BACKUPS)) for paths in fields]
    return touch._replace(writes=kept[0], deletes=kept[1], alters=kept[2])


def handled_by(command: ShellCommand) -> Effects:
    """What a wrapper, a program that only starts another one, touches with its own words."""
    program, *given = command.words
    rest = list(_significant(program, given))
    found = tuple(_tokens(_Call(command, rest, [], []), rest))
    return Effects(found, given=found)


def _known_effect(program: str, call: _Call) -> Effects:
    if call.command.foreign:  # a file of that name can be any program
        return _unknown_program(call)
    if program.startswith(INTERPRETERS):
        return _program_text_effect(call)
    how = _PROGRAM_EFFECTS.get(program)
    if how is not None:
        return how(call)
    if program in _PROMPTED or only_reads(program, call.command.words[1:]):
        return Effects()
    return _unknown_program(call)


def _significant(program: str, rest: Sequence[str]) -> Iterator[str]:
    """The words, without the values of options that exclude or describe something."""
    skips = False
    short = _EXCLUDING_SHORT.get(program, ())
    for word in rest:
        if skips:
            skips = False
            continue
        name, equals, _ = word.partition("=")
        small = name.lower()
        excludes = name.startswith("--") and any(part in small for part in _EXCLUDING)
        excludes = excludes and not name.startswith(("--no-", "--skip-"))
        if excludes or word in short or name in _MESSAGE_OPTIONS:
            skips = not equals
        elif not (short and word.startswith(short)) and not word.startswith((":!", ":(exclude)")):
            yield word


def _read_by(call: _Call, *, is_calling: bool) -> tuple[str, ...]:
    words = call.rest[:MOST_PATHS]
    if call.command.words[0] in {"env", "printenv", "export", "declare", "set", "typeset"}:
        shows = not words or words[0] in {"-p", "-x", "-0"}
        return (ENVIRONMENT,) if shows or call.command.words[0] == "printenv" else ()
    if call.command.words[0] in {"echo", "printf"}:
        return ()  # they print their words
    if not is_calling:
        return tuple(call.absolute(word) for word in words if word and "://" not in word)
    texts = call.command.here_texts
    used = values_of(words, _CREDENTIAL_OPTIONS)
    sent = [
        path
        for word in words
        if len(word) < LONGEST_PATH
        and word not in used
        and not word.startswith(_CREDENTIAL_PREFIXES)
        for path in _sent_in(word)
    ]
    if call.command.words[0] in {"sftp", "ftp", "lftp"}:  # commands that upload files
        texts += [word for word in words if " " in word]
        texts.append(call.command.piped or "")
    sent += [path for text in texts for path in _paths_in_text(text)]
    return tuple(map(call.absolute, sent))


def _sent_in(word: str) -> Iterator[str]:
    """The files that a word may send: `@file`, `name=<file`, `--post-file=file`, `-Tfile`."""
    if " " not in word:
        yield word
    for char in "=@<:":
        if char in word:
            named = word.rpartition(char)[2].partition(";")[0]
            yield from (name.strip("\"'") for name in named.split(",", MOST_TOKENS))
    if is_short(word):
        yield from (word[at:].lstrip("@") for at in range(2, min(len(word), _LONGEST_CLUSTER)))


def _unknown_program(call: _Call) -> Effects:
    """The effects of an unknown program, which may do anything to the paths in its words and input."""
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
            yield call.absolute(path)


def paths_in(word: str) -> list[str]:
    """The paths that a word may contain: the word itself, parts after `=`, `:` or short options.

    In a text with blanks, every word that looks like a path.

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
    if any(char in word for char in "\"'`(<>|;&,{"):
        found += _paths_in_text(word)
    return [path for path in found if path]


def _paths_in_text(text: str) -> list[str]:
    """The words of a text that look like paths: with a slash, a dot or a star in them. Raises `TooLong`."""
    for char in _SEPARATORS:
        if char in text:
            text = text.replace(char, " ")
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
    """Adding permissions only counts as writing, because the files stay usable."""
    program = call.command.words[0]
    words = [word for word in call.rest if not word.startswith("--")]
    modes = [word for word in words if len(word) > 1 or word.isdigit()]
    only_adds = program == "chmod" and not any(_removes_rights(word) for word in modes[:2])
    paths = tuple(call.paths)
    return Effects(writes=paths) if only_adds else Effects(writes=paths, alters=paths)


def _removes_rights(mode: str) -> bool:
    """Whether a mode of `chmod` removes permissions of the owner: `000`, `a-w`, `u=`."""
    if mode.isdigit():
        owner = mode[-3:-2] or "0"
        return owner not in {"7", "6"}
    return set(mode) <= (_MODE_CHARS | {"-"}) and ("-" in mode or "=" in mode)


def _links(call: _Call) -> Effects:
    """A link lets a file be changed by another name, and replaces a file that has the link's name."""
    if len(call.paths) < 2 and "-t" not in call.rest:
        return Effects(given=_other_paths(call), writes=tuple(call.paths))
    return Effects(writes=_targets(call), alters=tuple(call.paths[-1:]), given=_other_paths(call))


def _finding(call: _Call) -> Effects:
    found = tuple(call.absolute(path) for path in finds(call.rest))
    named = values_of(call.rest, {"-fprint", "-fprintf", "-fls", "-fprint0"})
    deletes = found if "-delete" in call.rest else ()
    return Effects(writes=tuple(map(call.absolute, named)), deletes=deletes)


def _moves(call: _Call) -> Effects:
    sources = call.paths if _target_folder(call) else call.paths[:-1]
    return Effects(
        writes=_targets(call),
        deletes=tuple(sources),
        alters=tuple(call.paths[-1:]),
        given=_other_paths(call, *call.words),
    )


def _copies(call: _Call) -> Effects:
    target = _targets(call)
    program = call.command.words[0]
    deletes_target = any(word.startswith(("--delete", "--del")) for word in call.rest)  # rsync
    deletes_sources = "--remove-source-files" in call.rest
    links = program == "cp" and (
        has_flag(call.rest, "l", "--link") or has_flag(call.rest, "s", "--symbolic-link")
    )
    sources = call.paths if _target_folder(call) else call.paths[:-1]
    deletes = (*(target[:1] if deletes_target else ()), *(sources if deletes_sources else ()))
    fills_target = (
        program == "rsync"
        or any(word.endswith(("/", "/.", "/..")) for word in call.words[:-1])
        or has_flag(call.rest, "T", "--no-target-directory")
    )
    is_recursive = any(has_flag(call.rest, char, "--recursive") for char in "raR")
    below = tuple(f"{path.rstrip('/')}/*" for path in target[:1] if path != call.command.cwd)
    guard = tuple(path for path in sources if path.rpartition("/")[2] in _GUARD_PROGRAMS)
    return Effects(
        writes=(*target, *(sources if links else ()), *(below if fills_target else ())),
        deletes=deletes,
        given=(*_other_paths(call, *call.words), *guard, *(sources if links else ())),
        alters=target[1:] if is_recursive else (),
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
        removed = call.paths[1:] if "--remove-files" in call.rest else ()
        return Effects(deletes=tuple(removed), writes=tuple(_archives(call)))
    into = [
        call.absolute(value) for value in values_of(call.rest, {"-C", "--directory", "-d", "-D"})
    ]
    into += [call.absolute(word[2:]) for word in call.rest if word[:2] in {"-C", "-d"} and word[2:]]
    unpacked = tuple(f"{folder}/*" for folder in into if folder != call.command.cwd)
    if call.command.cwd.rpartition("/")[2].startswith("."):  # in a folder of settings
        unpacked += (f"{call.command.cwd}/*",)
    return Effects(writes=unpacked, given=_unknown_program(call).given)


def _archives(call: _Call) -> Iterator[str]:
    """The archive that `tar` writes: `czf file`, `-cf file`, `--file=file`."""
    for at, word in enumerate(call.rest):
        if word.startswith("--file="):
            yield call.absolute(word.partition("=")[2])
        elif word == "--file" or (word[:2] != "--" and word.endswith("f") and at < 3):
            yield from (call.absolute(value) for value in call.rest[at + 1 : at + 2])


def _zips(call: _Call) -> Effects:
    """The archive is written and the files are read, unless they are moved into it."""
    if only_reads("zip", call.command.words[1:]):
        return Effects(writes=tuple(call.paths[:1]))
    moved = has_flag(call.rest, "m", "--move")
    return _unknown_program(call)._replace(deletes=tuple(call.paths[1:]) if moved else ())


def _trashes(call: _Call) -> Effects:
    """What `gio trash folder` and `gio remove file` delete."""
    deletes = call.words[:1] in (["trash"], ["remove"], ["move"])
    return _unknown_program(call)._replace(deletes=tuple(call.paths[1:]) if deletes else ())


def _synchronizes(call: _Call) -> Effects:
    """`rclone sync from to` deletes files that are only in the target; `host:path` is remote."""
    verbs = {"sync", "purge", "delete", "deletefile", "rmdir", "rmdirs", "move", "moveto"}
    pairs = zip(call.words[1:], call.operands, strict=True)
    local = tuple(path for word, path in pairs if ":" not in word)
    return _unknown_program(call)._replace(deletes=local if set(call.words[:1]) & verbs else ())


def _patches(call: _Call) -> Effects:
    """The named files, and the files in a patch whose text is known."""
    read = [path for op, path in call.command.redirects if op == "<"]
    lines = "\n".join(call.command.input_texts).split("\n")
    named = [line[4:].split("\t")[0].strip() for line in lines if line[:4] in {"+++ ", "--- "}]
    plain = [name[2:] if name[:2] in {"a/", "b/"} else name for name in named[:MOST_PATHS]]
    files = (*map(call.absolute, read), *call.paths)
    return Effects(
        writes=tuple(map(call.absolute, plain)), given=_unknown_program(call).given, patches=files
    )


def _edits_by_lines(call: _Call) -> Effects:
    """The edited file, and the files in the commands on its input: `w file`, `!rm file`."""
    return _unknown_program(call)._replace(writes=tuple(call.paths))


def _formats(call: _Call) -> Effects:
    """The file that `python -m json.tool in out` writes."""
    return Effects(writes=tuple(call.paths[1:]))


def _queries(call: _Call) -> Effects:
    if {"-readonly", "--readonly"} & set(call.rest):
        return Effects()
    commands = [word for word in call.words if word.startswith(".") or "'" in word]
    given = (*_other_paths(call, *call.words), *_tokens(call, commands))
    return Effects(writes=tuple(call.paths), given=given)


def _edits(call: _Call) -> Effects:
    """The script names the files that it writes (`w file`); its other paths are patterns."""
    scripts = _scripts_of_sed(call)
    named = [part.partition("\n")[0] for text in scripts for part in _written_by_sed(text)]
    if any(_is_in_place(word) for word in call.rest):
        named += [word for word in call.words if word not in scripts]
    elif any(True for _ in run_by_sed(call.command)):
        return _unknown_program(call)
    return Effects(writes=tuple(map(call.absolute, named)))


def _written_by_sed(text: str) -> Iterator[str]:
    for mark in ("w ", "W ", "w\t"):
        yield from (part.strip().rstrip("}") for part in text.split(mark)[1:])
    for before in ("/", ";", "{", "$", "|", "#"):  # a blank is not needed: s/a/b/wfile
        yield from (part.strip().rstrip("}") for part in text.split(f"{before}w")[1:])
    if text[:1] == "w":
        yield text[1:].strip()


_ESCAPED = "\ue009"
"""Replaces an escaped separator."""


def read_script(command: ShellCommand) -> list[str]:
    """The program text that `awk -f -` or `sed -f /dev/stdin` reads on its input, if known."""
    words = command.words
    named = values_of(words, {"-f", "--file"})
    named += [word.partition("f")[2] for word in words if is_short(word)]
    named += [word.partition("=")[2] for word in words if word.startswith("--file=")]
    if not {"-", "/dev/stdin"} & set(named):
        return []
    return command.input_texts


def run_by_sed(command: ShellCommand) -> Iterator[str]:
    r"""The commands that a sed script runs: `1e ls`, `s/.*/ls/e`; for `e` alone, earlier replacements.

    >>> list(run_by_sed(ShellCommand(("sed", "s/.*/ls -l/e", "a"))))
    ['ls -l']
    >>> list(run_by_sed(ShellCommand(("sed", "s/e/f e/", "a"))))
    []

    Raises `TooLong`.
    """
    for word in (*command.words[1:], *read_script(command)):
        replacements: list[str] = []
        if word[:1] == "-":  # -e'1e ls', --expression='1e ls'
            word = word.partition("=" if word[1:2] == "-" else "e")[2]  # noqa: PLW2901
        parts = word.replace("\n", ";").split(";")
        if len(parts) > MOST_TOKENS:
            raise TooLong(f"more than {MOST_TOKENS} commands in one script of sed")
        for part in parts:
            edit = part.strip().lstrip("0123456789$,!~+{} ")
            if edit.startswith("/"):  # an address that is a pattern
                edit = edit[1:].partition("/")[2].lstrip("!{ ")
            if edit == "e":
                yield from replacements
            elif edit.startswith("e "):
                yield edit[2:].rstrip("}")
            elif edit[:1] == "s" and len(edit) > 3 and not edit[1].isalnum():
                escaped = edit.replace(f"\\{edit[1]}", _ESCAPED)
                pieces = [text.replace(_ESCAPED, edit[1]) for text in escaped.split(edit[1])]
                replacements += pieces[2:3]
                if len(pieces) > 3 and "e" in pieces[3].partition("w")[0].strip(" }"):
                    yield pieces[2]


def _scripts_of_sed(call: _Call) -> list[str]:
    """The scripts after `-e` or `--expression`, or on its input; otherwise the first word."""
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
    """Whether a word is `-i`, `-i.bak`, `-pi`, `--in-place=…`; text after an `e` or `c` is a program."""
    letters = word.partition(".")[0].partition("e")[0].partition("c")[0]
    is_letter = is_short(word) and "i" in letters
    return is_letter or word.startswith(("--in-place", "--inplace"))


def _blocks(call: _Call) -> Effects:
    targets = [call.absolute(word[3:]) for word in call.rest if word.startswith("of=")]
    return Effects(writes=tuple(targets))


def _git(call: _Call) -> Effects:
    how = _GIT_EFFECTS.get(call.rest[0] if call.rest else "")
    if how is not None:
        return how(call)
    return Effects() if only_reads("git", call.command.words[1:]) else _unknown_program(call)


def _git_removes(call: _Call) -> Effects:
    if call.rest[0] == "rm" and {"--cached", "-n", "--dry-run"} & set(call.rest):
        return Effects()
    return Effects(deletes=call.operands, given=_other_paths(call, *call.words))


def _git_restores(call: _Call) -> Effects:
    """`git checkout` and `git restore` write the named files, or discard the modified files of the project."""
    if "--staged" in call.rest and "--worktree" not in call.rest:
        return Effects()
    root = call.command.cwd
    top = [call.absolute(word) for word in call.words if _is_top(word)]
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
    """Whether a word is the whole project in any folder: `:/`, `:(top)`."""
    return word.startswith((":/", ":(top")) and not _below_top(word)


def _below_top(word: str) -> str:
    """The path relative to the top of the project: `docs` for `:/docs` or `:(top)docs`, else empty."""
    if word.startswith(":(top"):
        return word.partition(")")[2].strip("./")
    return word[2:].strip("./") if word.startswith(":/") else ""


def _anywhere(call: _Call, paths: Sequence[str]) -> list[str]:
    """Paths of git; a path relative to the top of the project may be in any folder."""
    top = {
        call.absolute(word): f"/**/{below}" for word in call.words if (below := _below_top(word))
    }
    top |= dict.fromkeys([call.absolute(word) for word in call.words if _is_top(word)], "/")
    return [top.get(path, path) for path in paths]


def _git_resets(call: _Call) -> Effects:
    hard = {"--hard", "--merge", "--keep"} & set(call.rest)
    return Effects(sweeps=_undone(call.command.cwd) if hard else ())


def _undone(folder: str) -> tuple[str, ...]:
    """The sweeps of a reset of tracked files to a commit."""
    return (f"modified:{folder}", f"uncommitted:{folder}")


def _git_cleans(call: _Call) -> Effects:
    """`git clean` discards untracked files, and with `-x` also ignored files."""
    if has_flag(call.rest[1:], "n", "--dry-run"):
        return Effects()
    kinds = [] if has_flag(call.rest[1:], "X") else ["untracked"]
    if any(has_flag(call.rest[1:], char) for char in "xX"):
        kinds.append("ignored")
    excluded = _after_short(call, "e")
    named = [
        path
        for word, path in zip(call.words[1:], call.operands, strict=True)
        if word not in excluded
    ]
    where = _anywhere(call, named or [call.command.cwd])
    return Effects(sweeps=tuple(f"{kind}:{path}" for kind in kinds for path in where))


def _after_short(call: _Call, letter: str) -> list[str]:
    """The words after a short option that ends with this letter."""
    names = {word for word in call.rest if is_short(word) and word.endswith(letter)}
    return values_of(call.rest, names)


def _git_stashes(call: _Call) -> Effects:
    verbs = {"list", "show", "pop", "apply", "drop", "branch", "create", "store", "clear"}
    if set(call.words[1:2]) & verbs:
        return Effects()
    named = call.operands[1:] if call.words[1:2] in (["push"], ["save"]) else call.operands
    kinds = ["modified", "uncommitted"]
    is_all = has_flag(call.rest[1:], "a", "--all")
    if is_all or has_flag(call.rest[1:], "u", "--include-untracked"):
        kinds.append("untracked")
    if is_all:
        kinds.append("ignored")
    if call.words[1:2] == ["save"]:
        named = ()  # the words are a message
    messages = [call.absolute(value) for value in _after_short(call, "m")]
    named = tuple(path for path in named if path not in messages)
    where = _anywhere(call, named or (call.command.cwd,))
    return Effects(
        deletes=named,
        given=_other_paths(call, *call.words),
        sweeps=tuple(f"{kind}:{path}" for kind in kinds for path in where),
    )


def _git_writes_all(call: _Call) -> Effects:
    """`git read-tree -u` and `git checkout-index -fa` reset tracked files."""
    given = _other_paths(call, *call.words)
    return Effects(sweeps=_undone(call.command.cwd), given=given, writes=call.operands)


def _git_narrows(call: _Call) -> Effects:
    """`git sparse-checkout set folder` removes tracked files elsewhere."""
    verbs = {"set", "init", "reapply"}
    return Effects(sweeps=(f"tracked:{call.command.cwd}",) if set(call.words[1:2]) & verbs else ())


def _git_worktrees(call: _Call) -> Effects:
    """A worktree that is removed or moved may be the one in which the agent works."""
    removed = call.operands[1:] if set(call.words[1:2]) & {"remove", "move"} else ()
    return _unknown_program(call)._replace(alters=removed)


def _git_clones(call: _Call) -> Effects:
    into = call.operands[-1:] if len(call.words) > 2 else ()
    return Effects(writes=(*into, *(f"{path}/*" for path in into)))


def _git_configures(call: _Call) -> Effects:
    """The file that is written; `programs.py` checks commands in settings."""
    return Effects(given=_other_paths(call, *call.words[2:]))


def _git_patches(call: _Call) -> Effects:
    if {"--check", "--stat", "--numstat", "--summary", "--cached"} & set(call.rest):
        return Effects()
    touch = _patches(call)
    return touch._replace(patches=call.operands or touch.patches)


_GIT_EFFECTS: dict[str, Callable[[_Call], Effects]] = {
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
    """The files that a download writes; files that are sent are only read."""
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
    extra = _other_paths(call, *sent)
    if any(word.startswith(("-K", "--config")) for word in call.rest):
        extra += tuple(_tokens(call, call.command.input_texts))
    return Effects(writes=tuple(map(call.absolute, written)), given=extra)


_SENDING = word_set("""
    -d -F -H -T -b -A -e -u -X --data --data-raw --header --data-binary --data-urlencode --form
    --form-string --upload-file --json --cookie --user-agent --referer --user --request --post-data
    --url --post-file --body-data --body-file --cacert --cert --key --netrc-file
""")


def _is_option_for(word: str, letters: str, names: Sequence[str]) -> bool:
    """Whether a word is `-o`, alone or the last of a group like `-so`, or its long name."""
    is_letter = is_short(word) and word[-1:] in letters and len(word) <= 6
    return is_letter or word in names


def _target_folder(call: _Call) -> str:
    """The folder in `-t folder` or `--target-directory=folder`; empty if there is none."""
    for name, value in with_next(call.rest):
        if name == "--target-directory" or (
            is_short(name) and name.endswith("t") and len(name) < _LONGEST_CLUSTER
        ):
            is_copy = call.command.words[0] in {"cp", "mv", "ln", "install", "gcp"}
            return value if is_copy else ""
        if name.startswith("--target-directory="):
            return name.partition("=")[2]
    return ""


def _targets(call: _Call) -> tuple[str, ...]:
    """The paths that a copy may write: the target, and the names of the sources in that folder."""
    folder = _target_folder(call)
    if folder:
        last = call.absolute(folder)
        return (last, *(f"{last}/{path.rpartition('/')[2]}" for path in call.paths))
    words = call.words
    if len(words) < 2 or ":" in words[-1].partition("/")[0]:  # host:path is on another host
        return ()
    last = call.paths[-1]
    name = words[-1].rpartition("/")[2]
    if len(words) == 2 and "." in name.strip("."):  # x.yaml is a file and no folder
        return (last,)
    names = [path.rpartition("/")[2].rpartition(":")[2] for path in call.paths[:-1]]
    inside = [f"{last.rstrip('/')}/{name}" for name in names]
    return (last, *inside)


def _program_text_effect(call: _Call) -> Effects:
    """What the program text of an interpreter touches: the paths in its quotes."""
    code = code_of(call.command)
    small = code.lower()
    texts = quoted_in(code)
    if call.command.words[0].startswith(("perl", "ruby")):
        texts += bracketed_in(code)
    texts += list(_filled_in(texts))
    if any(word in small for word in _LISTING):
        whole = any(word in small for word in _TAKES_FOLDERS)
        texts = [text for text in texts if whole or text != "."] + _listed_names(small, texts)
    if may_change(code) and any(word in code for word in ("environ", "getenv", ".env", "ENV")):
        texts += list(call.command.variables.values())
    paths = tuple(call.absolute(path.lstrip("<>+ ")) for path in texts)
    deletes = paths if any(word in small for word in DELETES) else ()
    writes = paths if any(word in small for word in WRITES) else ()
    script = bool(call.paths) and not code
    changes = may_change(code)
    plain = [text.lstrip("<>+ ") for text in texts]
    named = [
        text for text in plain if " " not in text
    ]  # texts with blanks are commands or messages
    given = (
        tuple(call.absolute(path) for path in (*named, *_joined_paths(named))) if changes else ()
    )
    if changes and call.command.words[0] == "tclsh":  # its texts need no quotes
        given += tuple(map(call.absolute, _paths_in_text(code)))
    in_place = any(_is_in_place(word) for word in call.rest)
    extra = _other_paths(call) if script else ()
    if code:
        # Words after the program text are its arguments, which it may change.
        args = [word for word in call.rest if word not in code and not word.startswith("-")]
        extra = tuple(_tokens(call, args)) if changes or in_place else ()
        if "argv" in small and any(word in small for word in DELETES):
            deletes += tuple(map(call.absolute, args))
    piped = call.command.piped or "\n".join(call.command.here_texts)
    if piped and reads_input(call.command) and may_change(code.replace(piped, "")):
        extra = (*extra, *_tokens(call, list(dict.fromkeys(piped.split()))))
    if changes and ("switchgear.__path__" in code or "switchgear.__file__" in code):
        extra = (*extra, PACKAGE_PATH)
    hosts = tuple(hosts_in(code))
    if any(word in small for word in _CONNECTS):
        hosts += tuple(text for text in texts if "." in text and text[:1] not in "./*")
    named = _paths_in_text(code) if hosts else []
    reads = (*paths, *map(call.absolute, named))
    return Effects(reads, writes, deletes, hosts, (*given, *extra))


def _filled_in(texts: Sequence[str]) -> Iterator[str]:
    """Format strings, filled in with the other texts: `"{}.c".format("a")`."""
    for at, text in enumerate(texts[:MOST_TOKENS]):
        if len(text) > 200 or not ("%s" in text or "{" in text):
            continue
        extra = iter([*texts[at + 1 : at + 9], *texts[:at]])
        filled, wild = "", ""
        rest = text.replace("%s", "{}").replace("${", "{")
        while rest:
            head, opened, behind = rest.partition("{")
            _, _, rest = behind.partition("}")
            filled += head + (next(extra, "") if opened else "")
            wild += head + (ANY if opened else "")
        yield filled
        if len(wild.partition(ANY)[0]) > 2:
            yield wild


_CONNECTS = ("socket", "httpconnection", "httpsconnection", "smtplib", "ftplib", "net.connect")
"""Words of code that connects to a host without a URL."""
_LISTING = ("listdir", "scandir", "iterdir", "os.walk", "readdir", "rglob", "opendir")
_TAKES_FOLDERS = ("rmtree", "rm_rf", "remove_tree", "rmsync", "rename", "move")
"""Words of code that moves or deletes whole folders."""
_LISTS_CWD = ('(".")', "('.')", "listdir()", "scandir()", "path()", "cwd()", "'.',", '".",')


def _listed_names(code: str, texts: Sequence[str]) -> list[str]:
    """Globs for the names that code may list in its working directory, or below it with `rglob`."""
    if not any(word in code for word in _LISTS_CWD):
        return []
    names = [text for text in texts if "/" not in text and " " not in text and len(text) > 2]
    if "rglob" in code or "walk" in code:
        return [f"**/{name.replace('*', ANY)}" for name in names or [ANY]]
    return [f"*{name}*" for name in names] or [ANY]


def _joined_paths(texts: Sequence[str]) -> Iterator[str]:
    """Paths that code may build from its texts: `join(".claude", "settings.json")`."""
    parts = [text for text in texts if text and " " not in text and len(text) < 200]
    for first, second in zip(parts, parts[1:], strict=False):
        yield f"{first}/{second}"
        yield f"{first}{second}"
    for count in (3, 4, 5):
        for at in range(min(len(parts) - count + 1, 20)):
            yield "".join(parts[at : at + count])


def _awk(call: _Call) -> Effects:
    """The files that an awk program may write: in redirections, pipes and `system()`, or in place."""
    texts = [word for word in call.rest if " " in word or "{" in word]
    code = " ".join((*texts, *read_script(call.command)))
    if any("inplace" in word for word in call.rest if " " not in word):
        return _writes(call)
    if not any(char in code for char in (">", "|", "system(")):
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
    return Effects(writes=tuple(map(call.absolute, named)))


_PROGRAM_EFFECTS: dict[str, Callable[[_Call], Effects]] = {
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
"""The functions that interpret arguments, by program."""
