"""Which configuration files are trusted, and which configuration is in effect for a folder.

A trusted file of the project is used, otherwise the user's own, otherwise none.
"""

import json
import os
import re
import time
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from switchgear._config.loader import (
    LARGEST_BYTES,
    PROJECT,
    candidates,
    config_home,
    has_our_table,
    load_config,
    named_config,
    read_document,
    user_config,
)
from switchgear._config.problems import ConfigNode, Report
from switchgear._config.sections import DEFAULT, Config
from switchgear._core.errors import SwitchgearError
from switchgear._opinion.opinion import SecondOpinion
from switchgear._system.files import read_private, read_regular, state_folder, write_private

VARIABLE = "SWITCHGEAR_TRUST"
"""Trusts files for commands, not for hooks: `1`, or digests of files, separated by commas."""
ALLOWED = ("SWITCHGEAR_*", "REDIS_*", "VALKEY_*", "HOME", "USER", "TMPDIR", "XDG_*", "CI")
"""Environment variables that a project's file may read; others need `switchgear trust --allow-var`."""
NEVER = frozenset({"SWITCHGEAR_TOKEN"})
"""Variables that no project's file may read: the operator token."""
_LARGEST_RECORD = 8 * LARGEST_BYTES
_USED = re.compile(r"(?<!\$)\$\{([A-Za-z_]\w*)\}", re.ASCII)
_EXPANDED = ("store", "operator_token_sha256", "sinks")
"""The sections in which `${NAME}` is replaced; elsewhere it is text, such as a pattern of a rule."""
_COMMAND_KEYS = frozenset({"command", "escalate", "run"})


class NotTrusted(SwitchgearError):
    """A configuration file that cannot be trusted. `args` are the file, the reason, and what to do."""

    args: tuple[str, str, str]

    def __str__(self) -> str:
        path, why, what_to_do = self.args
        return f"{path}: {why}; {what_to_do}"


class Trusted(NamedTuple):
    """The content of one file that the user has trusted."""

    path: str
    digest: str
    text: str
    """The whole file as it was then."""
    variables: tuple[str, ...] = ()
    """Environment variables beyond `ALLOWED` that the user allows the file to read."""
    at_s: float = 0.0


class FilePowers(NamedTuple):
    """What `switchgear trust` shows about a file."""

    sections: tuple[str, ...]
    commands: tuple[str, ...]
    targets: tuple[str, ...]
    """Network addresses."""
    files: tuple[str, ...]
    variables: tuple[str, ...]
    """Variables whose values become a part of an address or a path: `${NAME}`."""
    named: tuple[str, ...]
    """Variables that contain a whole secret or address, from keys such as `secret_env`."""


def key_path(path: str) -> str:
    """The path that identifies a file: links in its folder are resolved, the file itself is not."""
    full = os.path.abspath(os.path.expanduser(path))
    return os.path.join(os.path.realpath(os.path.dirname(full)), os.path.basename(full))


def is_own(path: str) -> bool:
    """Whether a file is the user's own and no project's: in the home or the configuration folder."""
    folder = os.path.dirname(key_path(path))
    home = os.path.realpath(os.path.expanduser("~"))
    return folder in {home, os.path.realpath(config_home())}


def content(path: str) -> bytes | None:
    """The content of a configuration file; `None` if it is unreadable, too large or no regular file."""
    try:
        data = read_regular(path, LARGEST_BYTES + 1)
    except (OSError, ValueError):
        return None
    return data if len(data) <= LARGEST_BYTES else None


def digest_of(path: str, data: bytes) -> str:
    """The SHA-256 of the content that Switchgear reads: in a `pyproject.toml`, only its own table."""
    from hashlib import sha256  # noqa: PLC0415  not needed without a configuration

    if os.path.basename(path) == PROJECT:
        data = json.dumps(_table_in(data), sort_keys=True, default=str).encode()
    return sha256(data).hexdigest()


def _table_in(data: bytes) -> Any:
    """The table `[tool.switchgear]`; content that cannot be parsed is returned as a text."""
    import tomllib  # noqa: PLC0415  only for TOML

    try:
        tool = tomllib.loads(data.decode("utf-8-sig")).get("tool")
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError):
        return data.decode("latin-1")
    return tool.get("switchgear") if isinstance(tool, dict) else None


def trust_folder() -> str:
    return state_folder("trust")


def record_of(path: str) -> Trusted | None:
    """The trusted content of a file; `None`: there is no valid record."""
    path = key_path(path)
    if _lies_in(trust_folder(), os.path.dirname(path)):
        return None  # a project could bring its own records
    return _load_record(read_private(_record_path(path), _LARGEST_RECORD), path)


def _lies_in(folder: str, project: str) -> bool:
    """Whether a folder of the user is in a project; a folder that contains the home is no project."""
    around = os.path.join(project, "")
    home = os.path.join(os.path.realpath(os.path.expanduser("~")), "")
    return os.path.realpath(folder).startswith(around) and not home.startswith(around)


def _record_path(path: str) -> str:
    from hashlib import sha256  # noqa: PLC0415

    name = sha256(path.encode(errors="surrogateescape")).hexdigest()
    return os.path.join(trust_folder(), f"{name[:32]}.json")


def _load_record(data: bytes | None, path: str | None = None) -> Trusted | None:
    try:
        data_read = json.loads(data or b"null")
        named, digest, text = (str(data_read[key]) for key in ("path", "digest", "text"))
        variables = tuple(map(str, data_read.get("variables", ())))
        found = Trusted(named, digest, text, variables, float(data_read.get("at_s", 0.0)))
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    if path is not None and found.path != path:
        return None
    data = text.encode(errors="surrogateescape")
    return found if digest_of(named, data) == digest else None


def records() -> list[Trusted]:
    folder = trust_folder()
    try:
        names = os.listdir(folder)
    except OSError:
        return []
    found = (
        _load_record(read_private(os.path.join(folder, name), _LARGEST_RECORD))
        for name in names
        if name.endswith(".json")
    )
    return sorted((each for each in found if each is not None), key=lambda each: each.path)


def trust_file(path: str, *, variables: Iterable[str] = (), expected: str | None = None) -> Trusted:
    """Trust the current content of a configuration file; no other function makes a file trusted.

    `variables` are environment variables beyond `ALLOWED` that the file may read, in addition to those
    that were allowed before. `expected` is the digest of the content that a person was shown; other
    content is not trusted. Raises `NotTrusted`, `ConfigError` for a file that cannot be used, OSError.
    """
    path = key_path(path)
    data = content(path)
    if data is None:
        raise NotTrusted(path, "it is not a readable file", "inspect it")
    digest = digest_of(path, data)
    if expected not in {None, digest}:
        raise NotTrusted(path, "it has changed since it was shown", "run 'switchgear trust' again")
    before = record_of(path)
    names = dict.fromkeys((*(() if before is None else before.variables), *variables))
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        raise NotTrusted(path, "it is not UTF-8 text", "save it as UTF-8") from None
    load_config(path, text=text, may_read=lambda name: may_read(name, tuple(names)))
    used = {name for name in variables_in(path, text) if not may_read(name)}
    kept = tuple(sorted(used.intersection(names)))
    made = Trusted(path, digest, text, kept, time.time())
    if _lies_in(trust_folder(), os.path.dirname(path)):
        why = f"the record would lie in {trust_folder()}, inside the project"
        raise NotTrusted(path, why, "set XDG_STATE_HOME to a folder outside the project")
    write_private(_record_path(path), json.dumps(made._asdict()).encode())
    return made


def revoke(path: str) -> bool:
    """Stop trusting a file; returns whether it was trusted. Raises OSError."""
    was_trusted = record_of(path) is not None
    record = _record_path(key_path(path))
    if os.path.lexists(record):
        write_private(record, b"null")  # unlike a record that was removed
    return was_trusted


def is_lost(path: str) -> bool:
    """Whether a file has no record, not even a revoked one."""
    return not os.path.lexists(_record_path(key_path(path)))


def may_read(name: str, allowed: Iterable[str] = ()) -> bool:
    """Whether a project's file may read an environment variable.

    >>> may_read("REDIS_PASSWORD"), may_read("ANTHROPIC_API_KEY"), may_read("SWITCHGEAR_TOKEN")
    (True, False, False)
    """
    return name not in NEVER and any(
        name == pattern or (pattern[-1:] == "*" and name.startswith(pattern[:-1]))
        for pattern in (*ALLOWED, *allowed)
    )


def is_trusted_by_environment(digest: str) -> bool:
    """Whether SWITCHGEAR_TRUST names this content: for commands in CI, never for hooks."""
    value = os.environ.get(VARIABLE, "")
    words = {word.strip().lower() for word in value.split(",")}
    return "1" in words or digest in words


def variables_in(path: str, text: str) -> list[str]:
    """The environment variables that a configuration uses, sorted."""
    root = read_document(path, Report(path), text)
    return sorted({name for _, name in used_variables(root)})


def used_variables(root: ConfigNode) -> Iterator[tuple[ConfigNode, str]]:
    """Each use of an environment variable as `${NAME}`, with its node."""
    for _, node in _scalars(root):
        if node.key.startswith(_EXPANDED):
            for name in _USED.findall(node.value):
                yield node, name


def show(path: str, text: str) -> FilePowers:
    """What a file would run, call, write and read. Raises `ConfigError` if it cannot be parsed."""
    from switchgear._text.redact import redact  # noqa: PLC0415  only for a command

    root = read_document(path, Report(path), text)
    commands: list[str] = []
    targets: list[str] = []
    files: list[str] = []
    named: set[str] = set()
    for key, node in _scalars(root):
        if key.endswith("_env") and node.value:
            named.add(node.value)
        where = f"{node.key}: {redact(node.value, 300)}"
        if key in _COMMAND_KEYS:
            commands.append(where)
        elif "://" in node.value and not node.value.startswith("sqlite:"):
            targets.append(where)
        elif node.key == "second_opinion.model":
            targets.append(f"{where} {_model_address(root)}")
        elif key == "path" or node.value.startswith("sqlite:"):
            files.append(where)
    sections = tuple(root.value) if isinstance(root.value, dict) else ()
    found = (commands, targets, files, variables_in(path, text), sorted(named))
    return FilePowers(sections, *map(tuple, found))


def _model_address(root: ConfigNode) -> str:
    """The address of the model for second opinions, and what is sent to it."""
    section = root.value["second_opinion"].plain() if isinstance(root.value, dict) else {}
    api = "openai" if section.get("api") == "openai" else "anthropic"
    settings = SecondOpinion(api=api, base_url_env=section.get("base_url_env"))
    where = f"at ${settings.url_variable}, else {settings.default_url}"
    return f"{where}; sends redacted evidence of stuck sessions"


def _scalars(node: ConfigNode, key: str = "") -> Iterator[tuple[str, ConfigNode]]:
    """Every text of a document, with the name of the nearest key around it."""
    if isinstance(node.value, dict):
        for name, child in node.value.items():
            yield from _scalars(child, str(name))
    elif isinstance(node.value, list):
        for child in node.value:
            yield from _scalars(child, key)
    elif isinstance(node.value, str):
        yield key, node


class Effective(NamedTuple):
    """The configuration in effect, and files without effect."""

    config: Config = DEFAULT
    path: str | None = None
    """The file of the configuration; `None`: there is none."""
    notices: tuple[str, ...] = ()
    """Messages about files without effect: which, why, and what to type."""
    trusted: Trusted | None = None
    """The record that makes a project's file trusted."""
    changed: str = ""
    """The digest of a file that differs from its trusted copy, which is in effect; `-`: the file is gone."""


def effective_config(start: str | None = None, *, for_command: bool = False) -> Effective:
    """The configuration in effect for the folder `start`. Raises `ConfigError`.

    With `for_command`, SWITCHGEAR_CONFIG and SWITCHGEAR_TRUST are trusted, because a person typed the
    command. Hooks do not trust them, because an agent may take its environment from the project.
    """
    named = named_config()
    if named is not None and for_command:
        return Effective(load_config(named), named)
    notices: list[str] = []
    if named is not None and not has_our_table(named):
        notices.append(f"SWITCHGEAR_CONFIG is {named}: there is no such file")
    for path in (*([named] if named else ()), *candidates(start)):
        if is_own(path):
            if has_our_table(path):
                return Effective(load_config(path), path, tuple(notices))
            continue
        found = _project_file(path, notices, for_command=for_command)
        if found is not None:
            return found._replace(notices=tuple(notices))
    own = user_config()
    if own is not None:
        return Effective(load_config(own), own, tuple(notices))
    return Effective(notices=tuple(notices))


def _project_file(path: str, notices: list[str], *, for_command: bool) -> Effective | None:
    """A project's file, if it is in effect; otherwise a message about it is added to the notices."""
    exists = has_our_table(path)
    record = record_of(path)
    if record is None and not exists:
        return None
    data = content(path) if exists else None
    digest = "-" if data is None else digest_of(path, data)
    names = () if record is None else record.variables

    def load(text: str) -> Config:
        return load_config(path, text=text, may_read=lambda name: may_read(name, names))

    if data is not None and record is not None and digest == record.digest:
        return Effective(load(_text(data)), path, (), record)
    if data is not None and for_command and is_trusted_by_environment(digest):
        return Effective(load(_text(data)), path)
    if record is None:
        notices.append(f"{path} is not trusted and has no effect; {_how_to_trust(path)}")
        return None
    what = "is gone" if data is None else "has changed since you trusted it"
    remedy = _how_to_trust(path)
    if data is None:
        remedy = f"to stop using it, run: switchgear trust --revoke {_quote_path(path)}"
    notices.append(f"{path} {what}: the content that you trusted stays in effect; {remedy}")
    return Effective(load(record.text), path, (), record, digest)


def _how_to_trust(path: str) -> str:
    does = "'switchgear trust' shows what it does and, if you agree, puts it in effect"
    return f"{does}: switchgear trust {_quote_path(path)}"


def _quote_path(path: str) -> str:
    import shlex  # noqa: PLC0415  most configurations are trusted, and hooks load this module

    return shlex.quote(path)


def _text(data: bytes) -> str:
    return data.decode("utf-8", errors="replace")
