"""What a program does to the words it is given: which files it writes or deletes, whom it calls.

A program that is not known here reads the paths it is given, and no more.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from switchgear.core.shell import Command, join

INTERPRETERS = ("python", "pypy", "perl", "ruby", "node", "nodejs", "deno", "bun", "php", "lua")
_CODE_FLAGS = ("-c", "-e", "-r", "-E", "--eval", "eval")
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
        "patch",
    )
)
_DELETES_ALL = frozenset(("rm", "rmdir", "unlink", "shred", "trash", "srm"))
_COPIES = frozenset(("cp", "install", "ln", "rsync", "scp"))
_CALLS = frozenset(
    (
        *("curl", "wget", "http", "https", "xh", "nc", "ncat", "netcat", "telnet", "ssh", "scp"),
        *("sftp", "rsync", "ftp", "lftp", "aria2c", "socat", "openssl", "websocat"),
    )
)
"""Programs whose words may be hosts without a scheme before them."""
_CALL_VALUED = frozenset(
    (
        *("-o", "-O", "-H", "-d", "-X", "-A", "-F", "-T", "-b", "-c", "-e", "-K", "-w", "-m", "-i"),
        *("-E", "-P", "-l", "-p", "--output", "--header", "--data", "--data-raw", "--request"),
        *("--data-binary", "--data-urlencode", "--form", "--user-agent", "--upload-file"),
        *("--cookie", "--cookie-jar", "--json", "--max-time", "--retry", "--write-out"),
        *("--output-document", "--post-data", "--post-file", "--body-data", "--directory-prefix"),
    )
)
_CODE_DELETES = ("rmtree", "remove(", "unlink", "rmdir", "rmsync", "rm_rf", "rm_r", "deletefile")
_CODE_WRITES = ("write", "dump(", "'w", '"w', "'a'", '"a"', "rename", "replace(", "copy", "move(")


class Touch(NamedTuple):
    """What a command touches; paths are absolute, as written (links are the guard's to follow)."""

    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    deletes: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()

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
    found = Touch() if how is None else how(call)
    return Touch(
        (*reads, *found.reads),
        found.writes,
        found.deletes,
        (*_hosts(program, rest), *found.hosts, *_device_hosts(command)),
    )


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
    return Touch(writes=target, deletes=target[:1] if clears else ())


def _queries(call: _Call) -> Touch:
    return Touch() if "-readonly" in call.rest else _writes(call)


def _edits(call: _Call) -> Touch:
    in_place = any(_says_in_place(word) for word in call.rest)
    return _writes(call) if in_place else Touch()


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
    return Touch(writes=paths if verb in {"checkout", "restore"} else ())


def _downloads(call: _Call) -> Touch:
    options = {"-o", "-O", "--output", "--output-document"}
    words = zip(call.rest, call.rest[1:], strict=False)
    return Touch(writes=tuple(call.seen(value) for name, value in words if name in options))


def _target(call: _Call) -> tuple[str, ...]:
    """Where a copy goes: `-t folder`, or the last word; into a folder, under its own name."""
    for name, value in zip(call.rest, call.rest[1:], strict=False):
        if name in {"-t", "--target-directory"}:
            return (call.seen(value),)
    if len(call.paths) < 2:
        return ()
    last = call.paths[-1]
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
    return [f"{start}/{name}" for start in starts or ["."]]


def _file_in(word: str) -> str:
    """The path in `@file`, `name=@file`, `--data=@file`, or the word itself."""
    return word.rpartition("@")[2] if "@" in word and "/" not in word.partition("@")[0] else word


def code_of(command: Command) -> str:
    """The program text that an interpreter is given: behind `-c` or `-e`, or as its input."""
    texts = [target for op, target in command.redirects if op == "<<<"]
    for flag, code in zip(command.words, command.words[1:], strict=False):
        is_short = flag[:1] == "-" != flag[1:2] and flag[-1:] in {"c", "e"}
        if is_short or flag in _CODE_FLAGS:
            texts.append(code)
    if command.piped is not None:
        texts.append(command.piped)
    return "\n".join(texts)


def _interpreted(call: _Call) -> Touch:
    """What a line of program text touches: the texts in quotes, if it writes or deletes at all."""
    code = code_of(call.command)
    small = code.lower()
    paths = tuple(call.seen(path) for path in quoted_in(code))
    deletes = paths if any(word in small for word in _CODE_DELETES) else ()
    writes = paths if any(word in small for word in _CODE_WRITES) else ()
    edited = _edits(call).writes
    return Touch(paths, (*writes, *edited), deletes, tuple(hosts_in(code)))


def quoted_in(code: str) -> list[str]:
    """The texts in quotes in a piece of code, of any language."""
    found: list[str] = []
    at = 0
    while at < len(code):
        if code[at] in "'\"`":
            end = code.find(code[at], at + 1)
            if end < 0:
                break
            found.append(code[at + 1 : end])
            at = end
        at += 1
    return [text for text in found if text]


def hosts_in(text: str) -> Iterator[str]:
    """The hosts of the URLs in a text."""
    at = text.find("://")
    while at >= 0:
        end = at + 3
        while end < len(text) and text[end] not in "/?#\\\"'`<>(){},; \t\r\n":
            end += 1
        host = host_of(text[at + 3 : end])
        if host:
            yield host
        at = text.find("://", end)


def host_of(authority: str) -> str:
    """The host of `user:password@Host.:8080`: `host`.

    >>> host_of("me@API.Example.com:8443"), host_of("[::1]:80")
    ('api.example.com', '::1')
    """
    host = authority.rpartition("@")[2].lower()
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0].rstrip(".")


def _hosts(program: str, rest: list[str]) -> Iterator[str]:
    for word in rest:
        yield from hosts_in(word)
    if program == "git" and rest:
        for word in rest[1:]:
            before, colon, _ = word.partition(":")
            if colon and "@" in before and "/" not in before:  # git@host:path
                yield host_of(before)
        return
    if program not in _CALLS:
        return
    before = ""
    for word in rest:
        if "://" not in word and not word.startswith("-") and before not in _CALL_VALUED:
            host = host_of(word.partition("/")[0])
            is_host = "." in host or host == "localhost" or "@" in word or program == "ssh"
            if is_host and host.replace("-", "").replace(".", "").isalnum():
                yield host
        before = word


def _device_hosts(command: Command) -> Iterator[str]:
    """`/dev/tcp/host/port`, which bash opens by itself."""
    for _, target in command.redirects:
        parts = target.split("/")
        if parts[:2] == ["", "dev"] and parts[2:3] in (["tcp"], ["udp"]) and len(parts) > 3:
            yield host_of(parts[3])


_HOW: dict[str, Callable[[_Call], Touch]] = {
    **dict.fromkeys(_DELETES_ALL, _deletes),
    **dict.fromkeys(_WRITES_ALL, _writes),
    **dict.fromkeys(_COPIES, _copies),
    **dict.fromkeys(("sed", "gsed", "yq"), _edits),
    **dict.fromkeys(("curl", "wget"), _downloads),
    "find": _finding,
    "mv": _moves,
    "sqlite3": _queries,
    "dd": _blocks,
    "git": _git,
}
"""By the program, what its words mean."""
