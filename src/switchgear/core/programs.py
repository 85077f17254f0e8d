"""Which programs a shell text really runs, and what they touch.

Programs that only start another (`sudo`, `env`, `timeout`, `xargs`, `sh -c`, …) are looked through;
what the one that really runs touches is told by `touches.py`.
"""

from collections.abc import Iterator
from typing import NamedTuple

from switchgear.core.code_text import INTERPRETERS, STARTS, code_of, quoted_in
from switchgear.core.readers import only_reads
from switchgear.core.shell import (
    DEEPEST,
    MOST_WORDS,
    UNKNOWN,
    Command,
    Setting,
    TooLong,
    commands_of,
    join,
    within,
)
from switchgear.core.touches import Touch, finds, touched_by

GUARD_NAME = "switchgear"
"""The command that must not be given orders, by whomever it is carried."""
DECODED = "run-decoded"
"""Stands for a shell that runs what a decoder in the same pipe puts out, with its name behind it."""

_VALUED: dict[str, str] = {
    "sudo": "-u -g -h -p -C -T -U -D -R -r -t --user --group --host --prompt --chdir --chroot",
    "doas": "-u -C",
    "env": "-u -C -S --unset --chdir",
    "nice": "-n --adjustment",
    "ionice": "-c -n -p",
    "timeout": "-k -s --kill-after --signal",
    "stdbuf": "-i -o -e",
    "xargs": "-I -n -P -L -d -E -a -s --max-args --max-procs --delimiter --arg-file --replace",
    "parallel": "-j --jobs -a",
    "watch": "-n --interval",
    "strace": "-e -o -p",
    "time": "-f -o",
    "chrt": "",
    "taskset": "",
    "flock": "-w -E",
    "nohup": "",
    "setsid": "",
    "command": "",
    "builtin": "",
    "exec": "-a",
    "unbuffer": "",
    "unshare": "",
    "systemd-run": "-p -u --property --unit --uid --gid --slice --description",
    "caffeinate": "",
    "busybox": "",
    "toybox": "",
    "then": "",
    "do": "",
    "else": "",
}
"""Programs that run the command behind them, with their options that take a value."""
_OWN_WORDS = {"timeout": 1, "taskset": 1, "chrt": 1, "flock": 1}
"""Words of their own between the options and the command."""
_RUNNERS = {
    (name, "run") for name in ("uv", "poetry", "pipenv", "pdm", "rye", "pipx", "hatch", "conda")
}
_RUNNING = frozenset(("uvx", "npx", "pnpx", "bunx"))
SHELLS = frozenset(("sh", "bash", "zsh", "dash", "ksh", "ash", "fish"))
_RUNS_TEXT = SHELLS | {"eval", "source", "."}
_DECODERS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("base64", "base32", "basenc", "gbase64"), ("-d", "-D", "-di", "--decode")),
    "openssl": ("-d",),
    "xxd": ("-r", "-rp"),
    "uudecode": (),
    "rev": (),
    "tr": (),
}
"""Programs that make another text of one, with the options by which they do."""
_SHOWS = frozenset(("pdb", "cProfile", "profile", "trace", "runpy", "coverage"))
"""Modules of Python that run another one."""


class Effects(NamedTuple):
    """What the commands of a text do; paths are absolute, as written."""

    commands: tuple[tuple[str, ...], ...] = ()
    """The programs that really run, each with its words; the first is a bare name."""
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    deletes: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    given: tuple[str, ...] = ()
    """Paths given to a program of which it is not known that it only reads them."""
    runs: tuple[str, ...] = ()
    """Files that are run: scripts given to a shell, programs named by their path."""
    sends: tuple[str, ...] = ()
    """Of what is read, that which goes into a pipe or a command that calls a host."""


def effects_of(text: str, setting: Setting) -> Effects:
    """What a shell text would do. Raises `TooLong` for one that cannot be judged.

    >>> effects_of("sudo sh -c 'cd /etc && rm -f hosts'", Setting("/w")).deletes
    ('/etc/hosts',)
    """
    return _gather(commands_of(text, setting), setting)


def effects_of_words(words: tuple[str, ...], setting: Setting) -> Effects:
    """The same for a command that is given as its words."""
    if len(words) > MOST_WORDS:
        raise TooLong(f"more than {MOST_WORDS} words in one command")
    return _gather([Command(words, (), setting.cwd)], setting)


def _gather(commands: list[Command], setting: Setting) -> Effects:
    found: dict[str, dict[str, None]] = {field: {} for field in Touch._fields}
    real: dict[tuple[str, ...], None] = {}
    read: list[tuple[str, str]] = []  # in which pipe, and what
    calling: set[str] = set()
    ran = list(_looked_through(commands, setting, 0))
    runs = dict.fromkeys(path for command in (*commands, *ran) for path in _scripts(command))
    real.update(dict.fromkeys(_decoded(ran)))
    for command in ran:
        touch = _redirected(command)
        if command.words:
            real[command.words] = None
            touch = touch.joined(touched_by(command))
        for field, values in touch._asdict().items():
            found[field].update(dict.fromkeys(value for value in values if value != UNKNOWN))
        read += [(command.pipe, path) for path in touch.reads]
        calling |= {command.pipe} if touch.hosts else set()
    sends = [path for pipe, path in read if path != UNKNOWN and _goes_into(pipe, calling)]
    fields = {field: tuple(values) for field, values in found.items()}
    return Effects(tuple(real), **fields, runs=tuple(runs), sends=tuple(dict.fromkeys(sends)))


def _scripts(command: Command) -> Iterator[str]:
    """The file that a command runs, if it is named: `sh x.sh`, `. ./x`, `./x`."""
    program, *rest = command.words or ("",)
    if "/" in program and UNKNOWN not in program:
        yield join(command.cwd, program)
    if program.rpartition("/")[2] in _RUNS_TEXT - {"eval"} and rest[:1] != ["-c"]:
        script = next((word for word in rest if not word.startswith("-")), UNKNOWN)
        if UNKNOWN not in script:
            yield join(command.cwd, script)


def _decoded(commands: list[Command]) -> Iterator[tuple[str, ...]]:
    """A word for each shell that runs what was decoded on the way to it."""
    runs = {command.pipe for command in commands if command.words[:1] and _runs_unknown(command)}
    if not runs:
        return
    for command in commands:
        program, *rest = command.words or ("",)
        options = _DECODERS.get(program)
        decodes = options is not None and (not options or any(word in options for word in rest))
        if decodes and _goes_into(command.pipe, runs):
            yield (DECODED, program)


def _runs_unknown(command: Command) -> bool:
    program, *rest = command.words
    if program not in _RUNS_TEXT:
        return False
    inner = _inner_text(command)
    if inner is None:
        return UNKNOWN in rest or all(word.startswith("-") for word in rest)
    return UNKNOWN in inner


def _redirected(command: Command) -> Touch:
    """What the redirections of a command touch."""
    files = [(op, join(command.cwd, path)) for op, path in command.redirects if op != "<<<"]
    reads = tuple(path for op, path in files if op.startswith("<"))
    return Touch(reads, tuple(path for op, path in files if not op.startswith("<")))


def _goes_into(pipe: str, calling: set[str]) -> bool:
    """Whether what is read in a pipe goes to somebody who calls: in the same, or in one around it."""
    while pipe not in calling:
        pipe = pipe.rpartition("/")[0]
        if not pipe:
            return False
    return True


def _looked_through(commands: list[Command], setting: Setting, depth: int) -> Iterator[Command]:
    """The commands that really run; those of inner shells among them."""
    if depth > DEEPEST:
        raise TooLong(f"commands nested deeper than {DEEPEST} levels")
    for command in commands:
        words = _peeled(_with_piped(command))
        here = command._replace(words=words)
        yield here
        if command.words[:1] == ("xargs",):
            yield here._replace(words=("xargs", *words))
        inner = _inner_text(here)
        if inner is not None:
            at = setting._replace(cwd=command.cwd)
            runs = [within(each, command.pipe) for each in commands_of(inner, at, depth + 1)]
            yield from _looked_through(runs, setting, depth + 1)
        for found in _inner_words(here):
            yield from _looked_through(
                [here._replace(words=found, redirects=())], setting, depth + 1
            )


def _with_piped(command: Command) -> tuple[str, ...]:
    """The words of a command; of `xargs`, with those that it reads, as far as they are known."""
    words, piped = command.words, command.piped
    if words[:1] != ("xargs",) or not piped or UNKNOWN in piped:
        return words
    return (*words, *piped.split()[:MOST_WORDS])


def _peeled(words: tuple[str, ...]) -> tuple[str, ...]:
    """The words without the programs that only start another."""
    while words:
        program = words[0].rpartition("/")[2]
        words = (program, *words[1:])
        if program in _VALUED:
            rest = _behind_options(words[1:], _VALUED[program].split())
            inner = rest[_OWN_WORDS.get(program, 0) :]
            while inner and "=" in inner[0] and program in {"env", "sudo"}:
                inner = inner[1:]
            if not inner:
                return words
            words = inner
        elif words[:2] in _RUNNERS or program in _RUNNING:
            rest = words[1 if program in _RUNNING else 2 :]
            words = _behind_options(rest, ["--with", "--python", "-p", "--project", "--extra"])
        elif program.startswith(("python", "pypy")) and "-m" in words[1:-1]:
            module = words[words.index("-m") + 1 :]
            if module[0] not in _SHOWS or len(module) < 2:
                return (module[0].partition(".")[0], *module[1:])
            words = _behind_options(module[1:], [])
        elif program == "git":
            return _plain_git(words)
        else:
            return words
    return words


def _behind_options(words: tuple[str, ...], valued: list[str]) -> tuple[str, ...]:
    at = 0
    while at < len(words) and words[at].startswith("-") and words[at] != "-":
        if words[at] == "--":
            return words[at + 1 :]
        at += 2 if words[at] in valued else 1
    return words[at:]


def _plain_git(words: tuple[str, ...]) -> tuple[str, ...]:
    """`git -C dir -c a=b push -f` as `git push -f`; an alias made on the way as what it stands for."""
    valued = ["-C", "-c", "--git-dir", "--work-tree", "--namespace", "--config-env"]
    rest = _behind_options(words[1:], valued)
    for name, value in zip(words, words[1:], strict=False):
        alias, equals, meant = value.removeprefix("alias.").partition("=")
        if name == "-c" and value.startswith("alias.") and equals and rest[:1] == (alias,):
            if meant.startswith("!"):
                return ("sh", "-c", meant[1:])
            return ("git", *meant.split(), *rest[1:])
    return ("git", *rest)


def _inner_text(command: Command) -> str | None:
    """The shell text that a command runs in a shell of its own, if it is known."""
    program, *rest = command.words or ("",)
    if program == "eval":
        return " ".join(rest)
    if program in {"su", "script"} and "-c" in rest[:-1]:
        return rest[rest.index("-c") + 1]
    if program == "alias":
        return "\n".join(word.partition("=")[2] for word in rest)
    if program == "at" or (program in {"source", "."} and rest == ["/dev/stdin"]):
        return _given(command)
    return _shell_text(command, rest) if program in SHELLS else None


def _shell_text(command: Command, rest: list[str]) -> str | None:
    """What a shell runs: behind `-c`, or its input; a script file is not read."""
    for at, word in enumerate(rest):
        if word == "--command" or (word[:1] == "-" != word[1:2] and "c" in word):
            return next((other for other in rest[at + 1 :] if not other.startswith("-")), None)
    if any(not word.startswith("-") and word != "/dev/stdin" for word in rest):
        return UNKNOWN if UNKNOWN in rest else None
    return _given(command)


def _given(command: Command) -> str | None:
    """What a command reads on its input, if it is known."""
    texts = [target for op, target in command.redirects if op == "<<<"]
    return texts[-1] if texts else command.piped


def _inner_words(command: Command) -> Iterator[tuple[str, ...]]:
    """Commands among the words: what `find` executes, what program text starts."""
    words = command.words
    if words[:1] and words[0].startswith(INTERPRETERS):
        yield from _started_by_code(code_of(command))
    yield from _carried(words)
    if words[:1] == ("find",):
        paths = finds(words[1:])
        for at, word in enumerate(words):
            if word in {"-exec", "-execdir", "-ok", "-okdir"}:
                found: list[str] = []
                for sign in words[at + 1 :]:
                    if sign in {";", "+"}:
                        break
                    found += paths if sign == "{}" else [sign]
                yield tuple(found)


def _carried(words: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """The guard's own command behind a program that may run it: `ssh host`, `tmux send-keys`, a shell."""
    for at, word in enumerate(words[1:], 1):
        if GUARD_NAME not in word.lower() or only_reads(words[0], words[1:]):
            continue
        if " " in word:
            start = word.index(GUARD_NAME) if GUARD_NAME in word else 0
            yield tuple(word[start:].split())
        elif word.rpartition("/")[2].lower() == GUARD_NAME:
            yield (GUARD_NAME, *words[at + 1 :])


def _started_by_code(code: str) -> Iterator[tuple[str, ...]]:
    """`os.system("…")` as a shell, `subprocess.run(["git", …])` as words."""
    if not any(word in code for word in STARTS):
        return
    for text in quoted_in(code):
        if " " in text:
            yield ("sh", "-c", text)
    for opens, closes in ("[]", "()"):
        for part in code.split(opens)[1:]:
            words = quoted_in(part.partition(closes)[0])
            if words:
                yield tuple(words)
