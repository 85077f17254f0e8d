"""Which programs a shell text really runs, and what they touch.

Wrappers, which only start another program (`sudo`, `env`, `timeout`, `xargs`, `sh -c`, `docker run`,
…), are removed; `program_effects.py` knows what the program that really runs touches.
"""

# ruff: noqa: PLR0911, PLR0912  one answer for each form of a command

from collections.abc import Iterator, Sequence
from typing import Any

from switchgear._rules.hosts import is_loopback, is_own_key
from switchgear._rules.interpreter_code import (
    INTERPRETERS,
    STARTS,
    bracketed_in,
    code_of,
    computes_code,
    printed_by,
    quoted_in,
    reads_input,
    variables_in,
)
from switchgear._rules.options import (
    behind_options,
    is_short,
    operands,
    options_in,
    with_next,
)
from switchgear._rules.patterns import word_list, word_set
from switchgear._rules.program_effects import (
    COPIES,
    DELETES_ALL,
    TOUCHED,
    Effects,
    handled_by,
    read_script,
    run_by_sed,
    touched_by,
    without_backups,
)
from switchgear._rules.readers import only_reads
from switchgear._rules.shell.filters import finds, listed_below
from switchgear._rules.shell.parser import (
    FILE,
    MOST_WORDS,
    Redirect,
    ShellCommand,
    commands_of,
    join,
    unwrapped,
    within,
)
from switchgear._rules.shell.words import DEEPEST, UNKNOWN, Setting, TooLong, Work

GUARD_NAME = "switchgear"
"""The command whose operator verbs agents must not run, directly or through another program."""
DECODED = "run-decoded"
"""First word of the command that stands for a shell that runs decoded text; the decoder follows."""
OPERATED = "operate-guard"
"""Prefix of a command of Switchgear that may do more than read."""

_WRAPPER_OPTIONS: dict[str, str] = {
    "sudo": "-u -g -h -p -C -T -U -D -R -r -t --user --group --host --prompt --chdir --chroot",
    "doas": "-u -C",
    "env": "-u -C -S --unset --chdir --split-string",
    "nice": "-n --adjustment",
    "ionice": "-c -n -p",
    "timeout": "-k -s --kill-after --signal",
    "stdbuf": "-i -o -e",
    "xargs": "-I -n -P -L -d -E -a -s --max-args --max-procs --delimiter --arg-file --replace",
    "strace": "-e -o -p -s -u -E -P",
    "ltrace": "-e -o -p -s -u",
    "time": "-f -o --format --output",
    "flock": "-w -E --timeout",
    "exec": "-a",
    "nsenter": "-t --target -S -G",
    "runuser": "-u -g -G",
    "pkexec": "--user",
    "proxychains": "-f",
    "proxychains4": "-f",
    "xvfb-run": "-n -s -e -f",
    "gtimeout": "-k -s",
    "sshpass": "-p -f -e",
    "systemd-run": "-p -u --property --unit --uid --gid --slice --description",
    "systemd-inhibit": "--what --who --why --mode",
    "caffeinate": "-t -w",
    **dict.fromkeys(
        word_list("""
            chrt taskset nohup setsid command builtin unbuffer unshare chroot setpriv rlwrap
            torsocks catchsegv valgrind faketime firejail dbus-run-session setarch prlimit numactl
            busybox toybox shx fakeroot chronic shell then do else
        """),
        "",
    ),
}
"""Programs that run the command in their arguments, with the options that take a value."""
_WRAPPER_WORDS = dict.fromkeys(word_list("timeout gtimeout taskset chrt flock chroot faketime"), 1)
"""The number of words between the options of a wrapper and the command."""
_FOLDER_OPTIONS = {"env": ("-C", "--chdir"), "sudo": ("-D", "--chdir")}
"""Options of wrappers that change the folder."""
_RUNNERS = {
    *((name, "run") for name in ("uv", "poetry", "pipenv", "pdm", "rye", "pipx", "hatch", "conda")),
    *((name, "run") for name in ("mamba", "micromamba", "pixi", "devbox", "mise")),
    *(
        (name, "exec")
        for name in ("npm", "pnpm", "yarn", "bundle", "mise", "asdf", "opam", "stack")
    ),
    *(("pnpm", "dlx"), ("yarn", "dlx"), ("bun", "x"), ("npm", "x"), ("mise", "x")),
}
_ONE_WORD_RUNNERS = frozenset(("uvx", "npx", "pnpx", "bunx"))
_RUNNER_OPTIONS = [
    *("--with", "--python", "-p", "--project", "--extra", "--package", "-n", "--name", "--from"),
    *("--directory", "--env-file", "--group", "--prefix"),
]
SHELLS = frozenset(("sh", "bash", "zsh", "dash", "ksh", "ash", "fish", "rbash", "mksh", "yash"))
_SHELL_VALUED = ["-O", "+O", "-o", "+o", "--rcfile", "--init-file"]
_VALUES_OF_SHELLS = [[option] for option in _SHELL_VALUED]
_RUNS_TEXT = SHELLS | {"eval", "source", "."}
_TEXT_OPTIONS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("su", "runuser", "script", "flock", "sg", "npm", "npx"), ("-c", "--command")),
    "nix-shell": ("--run", "--command"),
    "nix": ("-c", "--command"),
    "entr": ("-s",),
    "nodemon": ("-x", "--exec"),
    "expect": ("-c",),
    "git": ("--exec", "-x", "-O", "--open-files-in-pager", "--extcmd"),
    "xterm": ("-e",),
    "gnome-terminal": ("-e", "--command"),
    "watchexec": ("-s", "--shell"),
    "hyperfine": ("--prepare", "--setup", "--cleanup"),
    **dict.fromkeys(("mapfile", "readarray"), ("-C",)),
    "zip": ("-TT", "--unzip-command"),
    "rsync": ("--rsync-path", "-e", "--rsh"),
    "tar": ("--to-command", "--checkpoint-action", "-I", "--use-compress-program"),
    "make": ("--eval",),
    "gdb": ("-ex", "--eval-command"),
    **dict.fromkeys(("vi", "vim", "nvim", "ex", "view"), ("-c", "--cmd", "+")),
    **dict.fromkeys(("ssh", "scp", "sftp"), ("-o",)),
    "man": ("-P", "--pager"),
}
"""Options whose value is a shell text."""
_SSH_COMMANDS = ("proxycommand", "localcommand", "knownhostscomma")
"""Prefixes of ssh settings that are commands."""
_CLUSTERS = frozenset(("su", "runuser", "script", "sg", "flock"))
"""Programs whose `-c` may be the last letter of a group like `-lc`."""
_CLUSTERED = _CLUSTERS | {"ex", "vi", "vim", "nvim", "view"}
"""Programs, including editors, whose `-c` text may be attached to a group of letters."""
_PROMPTED = frozenset(("claude", "codex", "gemini", "qwen", "opencode", "aider", "goose", "llm"))
"""Agents: their words are prompts."""
_PACKAGERS = frozenset(("pip", "pip3", "uv", "poetry", "pdm", "conda", "mamba", "apt", "brew"))
"""Package managers: their words are names of packages."""
_ONLY_TEXTS = _CLUSTERS | {"ssh", "nix-shell", "nix", "npm", "npx", "tmux", "screen", "zellij"}
"""Programs that only pass their text on and touch none of its paths."""
_TEXT_WORDS = frozenset(("watch", "parallel", "trap", "hyperfine", "concurrently", "forkrun"))
"""Programs whose words are shell texts."""
_SESSIONS = frozenset(("tmux", "screen", "zellij", "dtach", "abduco"))
_CONTAINERS = frozenset(("docker", "podman", "nerdctl"))
_CONTAINER_VALUED = word_list("""
    -v --volume -w --workdir -e --env -u --user --name --network --net --entrypoint -p --publish
    --mount --env-file --platform -l --label -m --memory --cpus --add-host -h --hostname --tmpfs
    --shm-size --gpus --device --cap-add --cap-drop --security-opt --restart --pull --ulimit
    --volumes-from --ip --dns --log-driver --log-opt --pid --ipc --userns --cidfile -f --file
""")
_SANDBOXES = frozenset(("bwrap", "proot", "systemd-nspawn", "nsjail", "minijail0", "sandbox-exec"))
"""Programs that run a command with some folders of this machine mounted elsewhere."""
_BIND_OPTIONS = ("--bind", "--bind-try", "--dev-bind", "--dev-bind-try", "-b", "-B", "--bindmount")
_CMAKE = {
    **dict.fromkeys(("remove", "remove_directory"), ("rm",)),
    **dict.fromkeys(("copy", "copy_directory", "copy_if_different"), ("cp",)),
    "rename": ("mv",),
    "create_symlink": ("ln", "-s"),
    "chdir": ("env", "-C"),
}
"""The equivalents of the commands of `cmake -E`."""
_DISKS = tuple(
    f"/dev/{name}" for name in word_list("sd hd vd xvd nvme mmcblk disk rdisk md dm- mapper/")
)
"""Prefixes of the paths of disks; writing to a disk replaces everything on it."""
MOST_LINKS = 16
"""Maximum number of links created by one text that are followed for later commands."""
MOST_FOLLOWED = 20_000
"""Maximum number of comparisons of a path with a link."""
_DECODERS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("base64", "base32", "basenc", "gbase64"), ("-d", "-D", "-di", "--decode")),
    "openssl": ("-d",),
    "xxd": ("-r", "-rp", "-p"),
    "uudecode": (),
    "rev": (),
    "tr": (),
    "gpg": ("-d", "--decrypt"),
    "zcat": (),
    "gunzip": (),
    "gzip": ("-d", "-dc", "-cd"),
    "rot13": (),
}
"""Programs that transform text, with the options that make them decode."""
_MODULE_RUNNERS = word_set("pdb cProfile profile trace runpy coverage timeit viztracer")
"""Python modules that run another module."""
_PROGRAM_FOLDERS = ("/bin", "/sbin", "/usr/bin", "/usr/sbin", "/usr/local/bin", "/opt/homebrew/bin")
_TRUSTED_FOLDERS = ("venv/bin", "/.bin", "/env/bin")
"""Folders, and ends of folder names, whose programs are assumed to be what their names suggest."""
_AGENT_COMMANDS = frozenset(
    (
        *("demo", "run", "resume", "runs", "batch", "serve", "backtest", "tune", "status", "watch"),
        *("show", "events", "check", "rules", "simulate", "export", "selftest", "doctor", "help"),
        *("completion", "review", "sessions", "prices", "version", "record"),
        *("mcp", "requests list"),
        *("config check", "config schema", "config show", "config explain", "hooks doctor"),
        *("hooks install", "hooks status", "rules list", "rules test", "budgets audit"),
        *("budgets list", "budgets show", "fleet deliver", "fleet route", "fleet status"),
        *("fleet watch", "incidents add", "incidents list", "incidents show", "locks list"),
        *("locks", "fleet", "budgets", "incidents", "hooks", "config", "locks show"),
    )
)
"""Commands of Switchgear that agents may use; all others are for the operator.

They read, run or guard; `record` has its own rule.
"""
_GUARD_VERBS = word_set("""
    release reset hold import vacuum intervene trust record requests label config hooks budgets
    locks fleet incidents --store --config
""")
"""Words that make a text with the name of Switchgear a command."""
_COPIES_INPUT = frozenset(("tee", "sponge", "dd", "cp", "mv", "install", "ln"))
"""Programs that write their input or another file to a file."""
MOST_SOURCES = 32
"""Maximum number of source files that are tracked for one target."""
RUN_FILES = word_list(".bashrc .zshrc .profile .bash_profile .zprofile .bash_login .zshenv")
"""Files that the next shell runs."""
MOST_WRAPPERS = 64
MOST_TOKENS = 64
"""Maximum number of words, from a pipe or in code, that are checked one by one."""


def effects_of(text: str, setting: Setting) -> Effects:
    """What a shell text would do. Raises `TooLong` for a text that is too complex to check.

    >>> effects_of("sudo sh -c 'cd /etc && rm -f hosts'", Setting("/w")).deletes
    ('/etc/hosts',)
    """
    setting = setting._replace(work=setting.work or Work())
    return _gather(commands_of(text, setting), setting)


def effects_of_words(words: tuple[str, ...], setting: Setting) -> Effects:
    """What a command, given as its words, would do. Raises `TooLong`."""
    if len(words) > MOST_WORDS:
        raise TooLong(f"more than {MOST_WORDS} words in one command")
    setting = setting._replace(work=setting.work or Work())
    return _gather([ShellCommand(words, (), setting.cwd)], setting)


def _gather(commands: list[ShellCommand], setting: Setting) -> Effects:
    found: dict[str, dict[str, None]] = {field: {} for field in TOUCHED}
    real: dict[tuple[str, ...], None] = {}
    read: list[tuple[str, str]] = []  # pipe and path
    keys: list[tuple[str, str]] = []
    calling: dict[str, list[str]] = {}
    copied: dict[str, list[str]] = {}  # files, and the files that their content may come from
    linking: list[tuple[tuple[str, ...], str]] = []
    ran = list(_commands_run(commands, setting, 0))
    runs = dict.fromkeys(path for command in (*commands, *ran) for path in _scripts(command))
    for command in ran:
        if command.words[:1] in {(DECODED,), (OPERATED,)}:
            real[command.words] = None
            continue
        touch = _touch_of(command)
        if command.words[:1] == ("ln",):
            linking.append((command.words, command.cwd))
        if command.words and not command.words[0].startswith(_WRAPPER):
            real[command.words] = None
        judged = touch
        if command.words and command.words[0] in COPIES:
            judged = without_backups(touch, (setting.workspace, setting.home))
        for field in TOUCHED:
            found[field].update(dict.fromkeys(getattr(judged, field)))
        read += [(command.pipe, path) for path in touch.reads]
        for name in _keys_of(command):
            if name.startswith(FILE):
                read.append((command.pipe, name.removeprefix(FILE)))
            else:
                keys.append((command.pipe, name))
        if touch.writes:
            sources = [path for pipe, path in read[-MOST_SOURCES:] if pipe == command.pipe]
            for path in touch.writes[:MOST_SOURCES]:
                copied.setdefault(path, []).extend(sources)
        if touch.hosts:
            calling.setdefault(command.pipe, []).extend(touch.hosts)
    sends = [path for pipe, path in read if path != UNKNOWN and _called_from(pipe, calling)]
    for path in sends if copied else ():
        if len(sends) < MOST_WORDS:
            sends += copied.pop(path, [])  # a copy sends its sources, too
    leaks = [
        f"{name} to {host}"
        for pipe, name in keys
        for host in _called_from(pipe, calling)
        if not is_own_key(name, host)
    ]
    if found["sweeps"] and any(_adds_all(words) for words in real):
        added = [sweep.replace("modified:", "untracked:") for sweep in found["sweeps"]]
        found["sweeps"].update(dict.fromkeys(added))
    disks = [path for path in found["writes"] if path.startswith(_DISKS)]
    found["deletes"].update(dict.fromkeys(disks))
    links = [link for words, cwd in linking for link in _links_made(words, cwd)][:MOST_LINKS]
    for paths in found.values():
        paths.pop(UNKNOWN, None)
        if links:
            _follow(paths, links)
    fields: dict[str, Any] = {field: tuple(paths) for field, paths in found.items()}
    return Effects(
        **fields,
        commands=tuple(real),
        runs=tuple(runs),
        sends=tuple(dict.fromkeys(sends)),
        variables=tuple(dict.fromkeys(leaks)),
    )


def _adds_all(words: Sequence[str]) -> bool:
    """Whether git tracks all untracked files afterwards: `git add -A`."""
    if words[:2] not in {("git", "add"), ("git", "stage")}:
        return False
    everything = {".", "./", "*", ":/", "--all"} & set(words[2:])
    return bool(everything) or any(is_short(word) and "A" in word for word in words)


def _links_made(words: Sequence[str], cwd: str) -> Iterator[tuple[str, str]]:
    """The links that `ln -s` creates, and their targets."""
    plain = operands(words[1:])
    if not plain or len(plain) > MOST_LINKS or not any("s" in word for word in words[1:]):
        return
    folder = join(cwd, plain[-1] if len(plain) > 1 else ".")
    if len(plain) == 2:
        yield folder, join(folder.rpartition("/")[0] or "/", plain[0])
    for end in plain[:-1] or plain:
        yield join(folder, end.rstrip("/").rpartition("/")[2]), join(folder, end)


def _follow(paths: dict[str, None], links: Sequence[tuple[str, str]]) -> None:
    """Add the paths behind links that the same text creates, also of a link to a link."""
    for _ in range(2):
        if len(paths) * len(links) > MOST_FOLLOWED:
            raise TooLong(f"more than {MOST_FOLLOWED} paths in one call")
        for path in tuple(paths):
            for name, end in links:
                if path.startswith(f"{name}/"):
                    paths[join(end, path[len(name) + 1 :])] = None


_WRAPPER = "\ue007"
"""Prefix of the name of a wrapper, in a command that only has the wrapper's own words."""


def _touch_of(command: ShellCommand) -> Effects:
    """What a command touches; in a container, only paths in mounted folders."""
    files = [(op, join(command.cwd, path)) for op, path in command.redirects if op != "<<<"]
    reads = tuple(path for op, path in files if op in {"<", "<&"})
    touch = Effects(reads, tuple(path for op, path in files if op not in {"<", "<&"}))
    if command.words and command.words[0].startswith(_WRAPPER):
        touch = handled_by(command)
    elif command.words and _inner_text(command) is None:
        texts = _texts_in(command) if command.words[0] in _ONLY_TEXTS else []
        if command.words[0] in _CONTAINERS:
            command = command._replace(words=_outside_container(command.words))
        if texts:
            words = tuple(word for word in command.words if word not in texts)
            command = command._replace(words=words)
        found = touched_by(command)
        touch = found._replace(reads=touch.reads + found.reads, writes=touch.writes + found.writes)
    if not command.mounts:
        return touch
    inside = tuple(f"{mount.rstrip('/')}/" for mount in command.mounts)
    mounted: dict[str, Any] = {
        field: tuple(path for path in getattr(touch, field) if f"{path}/".startswith(inside))
        for field in TOUCHED
        if field != "hosts"
    }
    return touch._replace(**mounted)


def _keys_of(command: ShellCommand) -> Sequence[str]:
    """The variables with keys in the words or the program text of a command."""
    if command.words[:1] and command.words[0].startswith(INTERPRETERS):
        return (*command.secrets, *variables_in(code_of(command)))
    return command.secrets


def _called_from(pipe: str, calling: dict[str, list[str]]) -> list[str]:
    """The hosts that receive what a pipe reads: hosts called in this pipe or in one around it."""
    while pipe not in calling:
        pipe = pipe.rpartition("/")[0]
        if not pipe:
            return []
    return calling[pipe]


def _scripts(command: ShellCommand) -> Iterator[str]:
    """The files that a command runs, if it names them: `sh x.sh`, `. ./x`, `./x`."""
    program, *rest = command.words or ("",)
    if "/" in program and UNKNOWN not in program:
        yield join(command.cwd, program)
    if program.rpartition("/")[2] in _RUNS_TEXT - {"eval"} and rest[:1] != ["-c"]:
        script = next((word for word in rest if not word.startswith("-")), UNKNOWN)
        if UNKNOWN not in script:
            yield join(command.cwd, script)


def _decoded_markers(commands: list[ShellCommand]) -> Iterator[tuple[str, ...]]:
    """A marker for each shell that runs decoded text, or text changed on its way to the shell."""
    runs: dict[str, bool] = {}  # pipes in which a text is run, and whether by more than `eval`
    for command in commands:
        if command.words and _runs_given(command):
            more = command.words[0] != "eval"
            runs[command.pipe] = runs.get(command.pipe, False) or more
    if not runs:
        return
    texts: set[str] = set()
    for command in commands:
        program, *rest = _bare(command.words) or ("",)
        options = _DECODERS.get(program)
        decodes = options is not None and (not options or any(word in options for word in rest))
        if program == "tr":
            decodes = not any(word in {"-d", "-s", "--delete"} for word in rest)
        # The output of a substitution may be stored in a variable and run later.
        inner = any(not part.startswith("+") for part in command.pipe.split("/")[1:])
        if decodes and (_is_run(command.pipe, runs) or inner):
            yield (DECODED, program)
        elif command.pipe in texts and command.piped is None and command.pipe in runs:
            # A text has gone through an unknown filter to a shell.
            yield (DECODED, program)
        elif program.startswith(INTERPRETERS) and _computes_text(command, commands, runs):
            yield (DECODED, program)
        elif program in _LISTS and command.pipe in runs and not _by_xargs(command.pipe, commands):
            yield (DECODED, program)  # file names that a shell runs as commands
        if program in {"echo", "printf"} or any(op == "<<<" for op, _ in command.redirects):
            texts.add(command.pipe)


def _computes_text(
    command: ShellCommand, commands: list[ShellCommand], runs: dict[str, bool]
) -> bool:
    """Whether a shell runs the unknown output of a piece of code."""
    code = code_of(command)
    if not code or reads_input(command) or printed_by(code) is not None:
        return False
    if command.pipe in runs:
        return not _by_xargs(command.pipe, commands)
    around = command.pipe.rpartition("/")[0]
    shells = [each for each in commands if each.pipe == around and _runs_given(each)]
    return any(UNKNOWN in shell.words[1:] for shell in shells)


_LISTS = frozenset(("find", "ls", "dir", "fd", "fdfind", "compgen", "locate", "tree"))


def _by_xargs(pipe: str, commands: list[ShellCommand]) -> bool:
    """Whether the names in a pipe become arguments of a shell and not its input."""
    last = [command for command in commands if command.pipe == pipe and _runs_given(command)]
    return all(command.words[0].rpartition("/")[2] in {"xargs", "parallel"} for command in last)


def _is_run(pipe: str, runs: dict[str, bool]) -> bool:
    """Whether the output of a pipe is run; the output of commands in `eval` is not."""
    same_shell = False
    while pipe not in runs or (same_shell and not runs[pipe]):
        pipe, _, last = pipe.rpartition("/")
        same_shell = same_shell or last.startswith("+")
        if not pipe:
            return False
    return True


def _runs_given(command: ShellCommand) -> bool:
    """Whether a command runs text from a pipe or from a substitution."""
    program, *rest = _bare(command.words) or ("",)
    if program not in _RUNS_TEXT:
        return UNKNOWN in program
    plain = operands(rest)
    if program in {"eval", "source", "."} or not plain:
        return True
    return any("c" in word for word in rest if is_short(word)) or UNKNOWN in plain[0]


def _commands_run(
    commands: list[ShellCommand], setting: Setting, depth: int
) -> Iterator[ShellCommand]:
    """The commands that really run, also in inner shells."""
    if depth > DEEPEST:
        raise TooLong(f"commands nested deeper than {DEEPEST} levels")
    yield from (ShellCommand(words) for words in _decoded_markers(commands))
    written: dict[str, list[str]] = {}
    for command in commands:
        for path, parts, appends in _written_by(command, written):
            if appends and path in written:
                written[path] += parts
            else:
                written[path] = list(parts)
            if path.endswith(RUN_FILES):
                inner = commands_of("".join(parts), setting, depth + 1)
                yield from _commands_run(inner, setting, depth + 1)
        for each in _with_piped(_with_script(command, written) if written else command):
            yield from _commands_in(each, setting, depth)


def _written_by(
    command: ShellCommand, written: dict[str, list[str]]
) -> Iterator[tuple[str, list[str], bool]]:
    """The files that a command writes with known text: the path, the text in parts, whether it appends."""
    if command.written is not None:
        for op, path in command.redirects:
            if op.startswith((">", "&>")):
                yield join(command.cwd, path), [command.written], op.endswith(">>")
    program, *rest = _bare(command.words) or ("",)
    if program not in _COPIES_INPUT:
        return
    plain = operands(rest)
    parts = None if command.given is None else [command.given]
    if program in {"cp", "mv", "install", "ln"}:
        source = "".join(plain[-2:-1])
        parts = parts if source == "/dev/stdin" else written.get(join(command.cwd, source))
        plain = plain[-1:]
    if parts is not None:
        for word in plain[:MOST_SOURCES]:
            yield join(command.cwd, word.removeprefix("of=")), parts, False


def _with_script(command: ShellCommand, written: dict[str, list[str]]) -> ShellCommand:
    """The command; if it runs a file that was written before, with the text of the file instead."""
    words = _bare(command.words)
    read = [join(command.cwd, path) for op, path in command.redirects if op == "<"]
    if words[:1] and words[0] in _RUNS_TEXT:
        for path in filter(written.__contains__, read):
            return command._replace(redirects=(Redirect("<<<", "".join(written[path])),))
    for word in command.words:  # nohup ./x
        path = join(command.cwd, word)
        if path in written and words[:1] == (word.rpartition("/")[2],) and "/" in word:
            return command._replace(words=("bash", "-c", "".join(written[path]), *words[1:]))
    for path in (*_scripts(command), *(join(command.cwd, word) for word in words[1:])):
        if path not in written:
            continue
        text = "".join(written[path])
        if words[0] in {"make", "gmake"}:
            return command._replace(redirects=(*command.redirects, Redirect("<<<", text)))
        if words[0].startswith(INTERPRETERS):
            return command._replace(words=(words[0], "-c", text, *words[2:]))
        if words[0] in _RUNS_TEXT or path == join(command.cwd, command.words[0]):
            return command._replace(words=("bash", "-c", text, *words[1:]))
    return command


def _commands_in(command: ShellCommand, setting: Setting, depth: int) -> Iterator[ShellCommand]:
    """A command without its wrappers, the wrappers, and the commands that it starts."""
    if setting.work is not None:
        setting.work.count_step(5)
    wrappers: list[ShellCommand] = []
    here = _strip_wrappers(command, wrappers)
    yield from wrappers
    yield here
    if command.words[:1] == ("xargs",):
        yield here._replace(words=("xargs", *here.words))
    if here.words[:1] == (GUARD_NAME,) and not _is_read_only(here.words[1:]):
        yield here._replace(words=(OPERATED, *here.words))
    inner = _inner_text(here)
    if inner is not None:
        env = {**setting.env, **here.variables, **_arguments(here)}
        unset = UNKNOWN if here.words[:1] == ("trap",) else setting.unset
        at = setting._replace(cwd=here.cwd, env=env, unset=unset)
        runs = [
            within(each, here.pipe)._replace(mounts=here.mounts)
            for each in commands_of(inner, at, depth + 1)
        ]
        given = here.given
        if given is not None and given != inner:  # `bash -c '. /dev/stdin' <<< text`
            runs = [
                each._replace(piped=given)
                if each.piped is None and each.words[:1] and each.words[0] in _RUNS_TEXT
                else each
                for each in runs
            ]
        yield from _commands_run(runs, setting, depth + 1)
    for found in _inner_commands(here, setting):
        yield from _commands_run([found], setting, depth + 1)


def _is_read_only(words: Sequence[str]) -> bool:
    """Whether an agent may run this command of Switchgear."""
    rest = behind_options(tuple(words), ["--store", "--config"])
    if not rest or {"--help", "-h", "--version"} & set(words):
        return True
    if any("force-close" in word or "open=force" in word for word in words):
        return False
    groups = {"config", "hooks", "rules", "budgets", "locks", "fleet", "incidents", "requests"}
    verb = " ".join(rest[:2]) if rest[0] in groups else rest[0]
    return verb in _AGENT_COMMANDS


def _arguments(command: ShellCommand) -> dict[str, str]:
    """The values of `$0`, `$1`, `$@` in `sh -c text a b`."""
    program, *rest = command.words or ("",)
    texts = [at for at, word in enumerate(rest) if is_short(word) and "c" in word]
    if program in SHELLS and texts:
        args = rest[texts[0] + 2 :]
    elif program in SHELLS and "-s" in rest:
        args = ["bash", *(word for word in rest[rest.index("-s") + 1 :] if word != "--")]
    else:
        return {}
    named = {str(number): arg for number, arg in enumerate(args[:100])}
    return {**named, "@": "\ue003".join(args[1:]), "*": " ".join(args[1:])}


def _with_piped(command: ShellCommand) -> list[ShellCommand]:
    """The command; for `xargs`, with the words on its input, if they are known."""
    words, piped = unwrapped(command.words), command.given
    name = words[0].rpartition("/")[2] if words else ""
    if name not in {"xargs", "parallel"} or not piped or UNKNOWN in piped:
        return [command]
    tokens = piped.split()
    if len(tokens) > MOST_WORDS:
        raise TooLong(f"more than {MOST_WORDS} words for xargs")
    around = [command] if words != command.words else []  # `sudo -D folder xargs …`
    char = _replaced_by(words)
    if char and any(char in word for word in words[1:]):
        return around + [
            command._replace(
                words=tuple(
                    word
                    if word.startswith(("-I", "--replace")) or before == "-I"
                    else word.replace(char, token)
                    for before, word in zip(("", *words), words, strict=False)
                )
            )
            for token in tokens[:MOST_TOKENS]
        ]
    return [*around, command._replace(words=(*words, *tokens))]


def _replaced_by(words: Sequence[str]) -> str:
    """The text that `xargs -I` replaces, or an empty string."""
    for at, word in enumerate(words):
        if word == "-I" and at + 1 < len(words):
            return words[at + 1]
        if word.startswith("-I") and len(word) > 2:
            return word[2:]
        if word.startswith("--replace="):
            return word.partition("=")[2]
        if word in {"-i", "--replace"} or words[0].endswith("parallel"):
            return "{}"
    return ""


def _bare(words: tuple[str, ...]) -> tuple[str, ...]:
    """The words of the program that really runs, without wrappers."""
    return _strip_wrappers(ShellCommand(words), []).words


def _strip_wrappers(command: ShellCommand, wrappers: list[ShellCommand]) -> ShellCommand:
    """The command without its wrappers, which are appended to `wrappers`."""
    for _ in range(MOST_WRAPPERS):
        words = command.words
        if not words:
            return command
        folder, slash, program = words[0].rpartition("/")
        if slash and " " not in words[0]:
            words = (program, *words[1:])
            is_trusted = folder in _PROGRAM_FOLDERS or folder.endswith(_TRUSTED_FOLDERS)
            command = command._replace(words=words, foreign=not is_trusted)
        inner = _started_by(command, wrappers)
        if inner is None or not inner.words or inner.words == words:
            return command
        command = inner
    raise TooLong(f"more than {MOST_WRAPPERS} programs that start another")


def _started_by(command: ShellCommand, wrappers: list[ShellCommand]) -> ShellCommand | None:
    """The command that a wrapper starts; `None`: the program is not a wrapper."""
    words = command.words
    program = words[0]
    if program in _WRAPPER_OPTIONS:
        return _started_by_wrapper(command, wrappers)
    if words[:2] in _RUNNERS or program in _ONE_WORD_RUNNERS or words[:3] == ("uv", "tool", "run"):
        start = 1 if program in _ONE_WORD_RUNNERS else 3 if words[1] == "tool" else 2
        rest = behind_options(words[start:], _RUNNER_OPTIONS)
        _add_wrapper(wrappers, command, words[: len(words) - len(rest)])
        if not rest:
            return None
        return command._replace(words=(rest[0].partition("@")[0] or rest[0], *rest[1:]))
    if program.startswith(("python", "pypy")):
        module = _module(words)
        if not module:
            return None
        if module[0] in _MODULE_RUNNERS and len(module) > 1:
            rest = behind_options(module[1:], [])
            return command._replace(words=rest) if rest else None
        return command._replace(words=(module[0].partition(".")[0], *module[1:]))
    if program == "cmake" and words[1:2] == ("-E",) and len(words) > 2:
        return command._replace(words=(*_CMAKE.get(words[2], words[2:3]), *words[3:]))
    if program == "hub":
        return command._replace(words=("git", *words[1:]))
    if program == "git" and words[1:2] and words[1].startswith("-"):
        inner = _plain_git(command)
        _add_wrapper(wrappers, command, words[: len(words) - len(inner.words) + 1])
        return inner
    return None


def _started_by_wrapper(command: ShellCommand, wrappers: list[ShellCommand]) -> ShellCommand | None:
    words = command.words
    program = words[0]
    if program == "env":
        text = _split_text(words)
        if text is not None:
            return command._replace(words=text)
    rest = behind_options(words[1:], _WRAPPER_OPTIONS[program].split())
    inner = rest[_WRAPPER_WORDS.get(program, 0) :]
    while inner and "=" in inner[0] and program in {"env", "sudo"}:
        inner = inner[1:]
    own = words[: len(words) - len(inner)]
    if not inner:
        return None
    _add_wrapper(wrappers, command, own)
    cwd = command.cwd
    for name, value in options_in(own):
        if name in _FOLDER_OPTIONS.get(program, ()) and value:
            cwd = join(cwd, value)
    return command._replace(words=inner, cwd=cwd)


def _add_wrapper(wrappers: list[ShellCommand], command: ShellCommand, own: tuple[str, ...]) -> None:
    """Append the wrapper's own words, in which it may name a file to write: `time -o file`."""
    if len(own) > 1:
        named = (f"{_WRAPPER}{own[0]}", *own[1:])
        wrappers.append(command._replace(words=named, redirects=()))


def _split_text(words: tuple[str, ...]) -> tuple[str, ...] | None:
    """The words that `env -S 'rm -f x' y` runs; `None` without such an option."""
    for at, word in enumerate(words[1:], 1):
        if not word.startswith("-"):
            return None
        name, _, text = word.partition("=" if word[1:2] == "-" else "S")
        if name == "--split-string" or (is_short(word) and name != word):
            behind = words[at + 1 :]
            if not text:
                text, behind = "".join(behind[:1]), behind[1:]
            return (*_split(text), *behind)
    return None


def _split(text: str) -> list[str]:
    return text.replace("'", "").replace('"', "").replace("\\_", " ").replace("\\", "").split()


def _module(words: tuple[str, ...]) -> tuple[str, ...]:
    """The module that Python runs and its arguments: `a b` for `python -m a b`, `-ma b`, `-Im a b`."""
    at = 1
    while at < len(words) and words[at].startswith("-") and words[at] != "-":
        word = words[at]
        if word[1:2] != "-":
            for index, letter in enumerate(word[1:], 1):
                if letter == "m":
                    rest = word[index + 1 :]
                    return (rest, *words[at + 1 :]) if rest else words[at + 1 :]
                if letter == "c":
                    return ()
                if letter in "WX":
                    at += index + 1 == len(word)
                    break
        at += 1
    return ()


def _plain_git(command: ShellCommand) -> ShellCommand:
    """`git -C dir -c a=b push -f` as `git push -f` in that folder; aliases are resolved."""
    words = command.words
    valued = ["-C", "-c", "--git-dir", "--work-tree", "--namespace", "--config-env", "--exec-path"]
    rest = behind_options(words[1:], valued)
    cwd = command.cwd
    for name, value in with_next(words):
        if name == "-c" and rest[:1] == ("push",):
            rest = (*rest, *_pushed_by(*value.partition("=")[::2]))
        if name in {"-C", "--work-tree"}:
            cwd = join(cwd, value)
        elif name.startswith("--work-tree="):
            cwd = join(cwd, name.partition("=")[2])
        alias, equals, replacement = value.removeprefix("alias.").partition("=")
        if name == "-c" and value.startswith("alias.") and equals and rest[:1] == (alias,):
            return command._replace(words=_expand_alias(replacement, rest[1:]), cwd=cwd)
    return command._replace(words=("git", *rest), cwd=cwd)


def _pushed_by(name: str, value: str) -> Iterator[str]:
    """The arguments of `git push` that a setting implies."""
    name = name.lower()
    if name.startswith("remote.") and name.endswith(".mirror") and value != "false":
        yield "--mirror"
    elif name.startswith("remote.") and name.endswith(".push") and value.startswith("+"):
        yield value


def _expand_alias(replacement: str, rest: tuple[str, ...]) -> tuple[str, ...]:
    """The words that an alias of git runs."""
    if replacement.startswith("!"):
        return ("sh", "-c", f'{replacement[1:]} "$@"', "git", *rest)
    return ("git", *replacement.split(), *rest)


def _inner_text(command: ShellCommand) -> str | None:
    """The text that a command runs in another shell; `None` if there is none or it is unknown."""
    program, *rest = command.words or ("",)
    if program == "eval" or (" " in program and not rest):
        return " ".join((program, *rest) if rest == [] and program != "eval" else rest)
    if program == "trap":
        return next((word for word in rest if word != "--"), None)
    if program == "alias":
        return "\n".join(word.partition("=")[2] for word in rest)
    if program in _TEXT_WORDS and rest:
        return _words_as_text(program, rest)
    if program in {"at", "batch"}:
        return command.given
    if program in {"source", "."}:
        if rest == ["/dev/stdin"]:
            return command.given
        return rest[0] if rest and " " in rest[0] else None
    return _shell_text(command, rest) if program in SHELLS else None


def _words_as_text(program: str, rest: list[str]) -> str:
    """The shell text in the words of a command: `watch -n 1 'rm x'`, `parallel rm ::: x`."""
    if program == "parallel":
        at = next((at for at, word in enumerate(rest) if word.startswith(":::")), len(rest))
        args = [word for word in rest[at + 1 :] if not word.startswith(":::")]
        head = " ".join(behind_options(tuple(rest[:at]), ["-j", "--jobs", "-a", "--joblog", "-n"]))
        if "{}" in head and args:
            return "\n".join(head.replace("{}", arg) for arg in args[:MOST_TOKENS])
        return f"{head} {' '.join(args)}"
    words = behind_options(tuple(rest), ["-n", "--interval", "-w", "-r", "-m", "-M", "-k", "-N"])
    if program in {"hyperfine", "concurrently"}:
        return "\n".join(words)
    return " ".join(words)


def _shell_text(command: ShellCommand, rest: list[str]) -> str | None:
    """The text that a shell runs, after `-c` or on its input; a script file is not read."""
    for at, word in enumerate(rest):
        if word == "--command" or (is_short(word) and "c" in word):
            behind = behind_options(tuple(rest[at + 1 :]), _SHELL_VALUED)
            return behind[0] if behind else None
        if not word.startswith(("-", "+")) and rest[at - 1 : at] not in _VALUES_OF_SHELLS:
            break
    script = next((word for word in rest if not word.startswith("-")), "/dev/stdin")
    if script == "/dev/stdin" or "-s" in rest:
        return command.given
    if " " in script or "\n" in script:  # bash <(echo text)
        return script
    return UNKNOWN if UNKNOWN in rest else None


def _inner_commands(command: ShellCommand, setting: Setting) -> Iterator[ShellCommand]:
    """The commands that `find`, program text or an option starts."""
    here = command._replace(redirects=(), piped=None)
    program = command.words[0] if command.words else ""
    started: list[tuple[str, ...]] = []
    texts: list[str] = []
    is_code = program.startswith(INTERPRETERS)
    if is_code:
        code = code_of(command)
        if computes_code(code):
            yield ShellCommand((DECODED, program))
        if program.startswith(("perl", "ruby")):
            texts += [text for text in bracketed_in(code) if " " in text]
        quotes = program.startswith(("perl", "ruby", "php")) and "`" in code
        started += _started_by_code(code, quotes=quotes)
    if _inner_text(command) is None:
        texts_checked = _texts_in(command)
        if is_code:
            texts_checked += [word for word in command.words if " " in word]
        words = tuple(word for word in command.words if word not in texts_checked)
        started += _carried_commands(words)
    if program == "find":
        started += _find_exec_commands(command.words)
    elif program in {"fd", "fdfind"}:
        started += _executed_by_fd(command.words)
    elif program in _CONTAINERS:
        yield from _in_container(command)
    elif program in _SANDBOXES:
        started += _in_sandbox(command)
    elif program.endswith("awk"):
        codes = (*command.words[1:], *read_script(command))
        texts += [text for word in codes for text in quoted_in(word) if " " in text]
        if any("system(" in word or "|" in word for word in codes):
            texts += [word.partition("=")[2] for word in command.words[1:] if "=" in word]
    elif program in {"sed", "gsed"}:
        texts += run_by_sed(command)
    elif program == "ssh":
        yield from _on_this_machine(here, setting.home)
    elif program == "git":
        if command.words[1:3] == ("submodule", "foreach"):
            text = " ".join(word for word in command.words[3:] if not word.startswith("--"))
            yield here._replace(words=("sh", "-c", text), cwd=f"{here.cwd}/submodule")
        started += _set_by_git(command.words)
    texts += _texts_in(command, is_bare=True)
    started += [("sh", "-c", text) for text in texts]
    yield from (here._replace(words=words) for words in started)


def _texts_in(command: ShellCommand, *, is_bare: bool = False) -> list[str]:
    """The words of a command that are shell texts; with `is_bare`, without the option before them."""
    words = command.words or ("",)
    program = words[0]
    found: list[str] = []
    if program in _SESSIONS:
        found += [word for word in words[1:] if " " in word]
        if is_bare:
            found = [word.replace("^M", "\n") for word in found]
    elif program == "ssh" and not is_bare and any(True for _ in _on_this_machine(command, "/")):
        found += words[2:]
    for option in _TEXT_OPTIONS.get(program, ()):
        for at, word in enumerate(words):
            is_last = program in _CLUSTERED and option == "-c" and is_short(word)
            if word == option or (is_last and word.endswith("c") and len(word) < 5):
                text = "".join(words[at + 1 : at + 2])
            elif word.startswith(f"{option}=") and option.startswith("--"):
                text = word
            elif " " in word and word.startswith(option) and not option.startswith("--"):
                text = word if not is_bare else word.removeprefix(option)
            elif " " in word and is_last and "c" in word[:4]:
                text = word if not is_bare else word.partition("c")[2]
            else:
                continue
            if is_bare:
                text = text.removeprefix(f"{option}=").removeprefix("exec=").lstrip(":! ")
                text = text.removeprefix("shell ")
                if text[:15].lower().startswith(_SSH_COMMANDS):
                    text = text.replace("=", " ", 1).partition(" ")[2]
            found.append(text)
    return found


def _find_exec_commands(words: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """The commands of `find -exec`, with the paths that it finds."""
    paths = finds(words[1:])
    for at, word in enumerate(words):
        if word in {"-exec", "-execdir", "-ok", "-okdir"}:
            found: list[str] = []
            for inner in words[at + 1 :]:
                if inner in {";", "+"}:
                    break
                found += paths if inner == "{}" else [inner.replace("{}", paths[0])]
            yield tuple(found)


def _executed_by_fd(words: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """The commands of `fd -x`, with the paths that it finds."""
    for at, word in enumerate(words):
        if word in {"-x", "-X", "--exec", "--exec-batch"}:
            names = (listed_below("fd", words[1:at]) or "").split()
            inner = words[at + 1 :]
            if "{}" in inner and names:
                inner = tuple(names[0] if each == "{}" else each for each in inner)
                names = names[1:]
            yield (*inner, *names)


def _in_container(command: ShellCommand) -> Iterator[ShellCommand]:
    """The command that a container runs, with mounted paths mapped to this machine."""
    words = command.words
    at = next((at for at, word in enumerate(words[:4]) if word in {"run", "exec"}), -1)
    if at < 0:
        return
    mounts: list[tuple[str, str]] = []
    folder = entry = ""
    for name, value in options_in(words[at + 1 :]):
        if name in {"-v", "--volume"} and not value.endswith((":ro", ":ro,z")):
            source, _, target = value.partition(":")
            mounts.append((join(command.cwd, source), target.partition(":")[0].rstrip("/")))
        elif name == "--mount":
            parts = dict(part.partition("=")[::2] for part in value.split(","))
            source = parts.get("source") or parts.get("src", "")
            target = parts.get("target") or parts.get("dst") or parts.get("destination", "")
            if source and not {"ro", "readonly"} & set(parts):
                mounts.append((join(command.cwd, source), target.rstrip("/")))
        elif name in {"-w", "--workdir"}:
            folder = value
        elif name == "--entrypoint":
            entry = value
    image, *rest = behind_options(words[at + 1 :], _CONTAINER_VALUED) or ("",)
    if rest and rest[0].startswith("-") and not entry:  # options of the image's own program
        entry = image.rpartition("/")[2].partition(":")[0]
    if not mounts or not (rest or entry):
        return
    inner = (*((entry,) if entry else ()), *rest)
    cwd = _map_mounts(folder or "/", mounts)
    yield command._replace(
        words=tuple(_map_mounts(word, mounts) for word in inner),
        redirects=(),
        piped=None,
        cwd=cwd if cwd.startswith("/") else UNKNOWN,
        mounts=tuple(source for source, _ in mounts),
    )


def _in_sandbox(command: ShellCommand) -> Iterator[tuple[str, ...]]:
    """The command of `bwrap --bind folder /x rm /x/y`, with its paths mapped to this machine."""
    words = command.words
    mounts = [
        (join(command.cwd, words[at + 1]), words[at + 2].rstrip("/"))
        for at, word in enumerate(words[:-2])
        if word in _BIND_OPTIONS
    ]
    deletes = SHELLS | DELETES_ALL | {"mv", "find", "env"}
    runs = [at for at, word in enumerate(words) if at and word.rpartition("/")[2] in deletes]
    for at in runs[:1]:
        yield (words[at], *(_map_mounts(word, mounts) for word in words[at + 1 :]))


def _outside_container(words: tuple[str, ...]) -> tuple[str, ...]:
    """The words of `docker run` about this machine, without read-only mounts."""
    at = next((at for at, word in enumerate(words[:4]) if word == "run"), -1)
    if at < 0:
        return words
    inner = behind_options(words[at + 1 :], _CONTAINER_VALUED)
    own = words[: len(words) - len(inner)]
    return tuple(word for word in own if not word.endswith((":ro", ":ro,z", ":ro,Z", ",readonly")))


def _map_mounts(word: str, mounts: Sequence[tuple[str, str]]) -> str:
    """A word with the paths of a container replaced by those of this machine."""
    for source, target in mounts:
        if not target:
            continue
        if word == target:
            return source
        word = word.replace(f"{target}/", f"{source}/")
        if word.endswith(f" {target}"):
            word = word.removesuffix(target) + source
    return word


def _on_this_machine(command: ShellCommand, home: str) -> Iterator[ShellCommand]:
    """The command of `ssh localhost text`, which runs in the home folder."""
    valued = [f"-{letter}" for letter in "bcDEeFIiJLlmOopQRSWw"]
    rest = behind_options(command.words[1:], valued)
    if len(rest) > 1:
        host = rest[0].rpartition("@")[2]
        if is_loopback(host) or UNKNOWN in host:
            text = " ".join(rest[1:])
            yield command._replace(words=("sh", "-c", text), cwd=home or UNKNOWN)


def _set_by_git(words: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """Commands that git runs: aliases, editors and pagers in settings, `git bisect run`."""
    if words[1:2] == ("config",):
        plain = operands(words[2:])
        name, value = (plain[0], plain[1]) if len(plain) > 1 else ("", "")
        forced = tuple(_pushed_by(name, value))
        if name.startswith("alias."):
            yield _expand_alias(value, ())
        elif forced:
            yield ("git", "push", *forced)
        elif " " in value:  # many settings are commands: editors, pagers, filters, helpers
            yield ("sh", "-c", value)
    elif words[1:3] == ("remote", "add") and any("--mirror=push" in word for word in words):
        yield ("git", "push", "--mirror")
    elif words[1:3] in {("bisect", "run"), ("submodule", "foreach")}:
        rest = words[3:]
        yield ("sh", "-c", rest[0]) if len(rest) == 1 else rest
    elif any(word.startswith("ext::") for word in words):
        yield from (("sh", "-c", word[5:]) for word in words if word.startswith("ext::"))
    elif words[1:2] == ("filter-branch",):
        yield from (("sh", "-c", word) for word in words[2:] if " " in word)


def _carried_commands(words: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """Commands of Switchgear in the words of another program: `ssh host`, `tmux send-keys`."""
    if not any(GUARD_NAME in word.lower() for word in words[1:]):
        return
    if only_reads(words[0], words[1:]) or words[0] in _PROMPTED | _PACKAGERS:
        return
    for at, word in enumerate(words[1:], 1):
        if GUARD_NAME not in word.lower():
            continue
        if " " in word:
            yield from _guard_commands_in(word)
        elif word.rpartition("/")[2].lower() == GUARD_NAME and not word.startswith((".", "-")):
            yield (GUARD_NAME, *words[at + 1 :])


def _guard_commands_in(text: str) -> Iterator[tuple[str, ...]]:
    """Commands of Switchgear in any text: its name and one of its verbs."""
    for char in "\"'`();&|,[]{}":
        text = text.replace(char, " ")
    tokens = text.split()[:MOST_WORDS]
    for at, token in enumerate(tokens[:-1]):
        if token.lower().rpartition("/")[2] == GUARD_NAME and tokens[at + 1] in _GUARD_VERBS:
            yield (GUARD_NAME, *tokens[at + 1 : at + 4])


def _started_by_code(code: str, *, quotes: bool) -> Iterator[tuple[str, ...]]:
    """Commands that code starts: `os.system("…")`, `subprocess.run(["git", …])`, backquotes."""
    if not quotes and not any(word in code for word in STARTS):
        return
    for text in quoted_in(code):
        if " " in text:
            yield ("sh", "-c", text)
    for opens, closes in ("[]", "()"):
        for part in code.split(opens)[1:][:MOST_TOKENS]:
            words = quoted_in(part.partition(closes)[0][:10_000])
            if words:
                yield tuple(words)
