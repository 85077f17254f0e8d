"""Which configuration is in effect for a folder: trusted files, else the user's own, else none."""

from collections.abc import Callable
from typing import NamedTuple

from switchgear._config.loader import load_config
from switchgear._config.model import DEFAULT, Config
from switchgear._config.places import candidates, has_our_table, named_config, user_config
from switchgear._config.trust import (
    Trusted,
    content,
    digest_of,
    is_own,
    is_trusted_by_environment,
    may_read,
    record_of,
)


class Effective(NamedTuple):
    """The configuration in effect, and what has no effect."""

    config: Config = DEFAULT
    path: str | None = None
    """The file that it comes from; `None`: from none."""
    notices: tuple[str, ...] = ()
    """Files that have no effect: which, why, and what to type."""
    trusted: Trusted | None = None
    """The record by which a project's file is in effect."""
    changed: str = ""
    """The digest of a file that differs from its trusted copy, which is in effect; `-`: it is gone."""


def effective_config(
    start: str | None = None, *, for_command: bool = False, path: str | None = None
) -> Effective:
    """The configuration in effect for the folder `start`. Raises `ConfigError`.

    `for_command`: a person typed a command, so SWITCHGEAR_CONFIG and SWITCHGEAR_TRUST are theirs.
    For hooks they are not: an agent may take its environment from the project. `path`: look at this
    file alone.
    """
    named = named_config() if path is None else None
    if named is not None and for_command:
        return Effective(load_config(named), named)
    notices: list[str] = []
    if named is not None and not has_our_table(named):
        notices.append(f"SWITCHGEAR_CONFIG is {named}: there is no such file")
    found_here = [] if path is not None else candidates(start)
    for place in (*filter(None, (path, named)), *found_here):
        if is_own(place):
            if has_our_table(place):
                return Effective(load_config(place), place, tuple(notices))
            continue
        found = _project_file(place, notices, for_command=for_command)
        if found is not None:
            return found._replace(notices=tuple(notices))
    own = user_config()
    if own is not None:
        return Effective(load_config(own), own, tuple(notices))
    return Effective(notices=tuple(notices))


def _project_file(path: str, notices: list[str], *, for_command: bool) -> Effective | None:
    """A project's file, if it is in effect; else what to say of it is added to the notices."""
    there = has_our_table(path)
    record = record_of(path)
    if record is None and not there:
        return None
    data = content(path) if there else None
    digest = "-" if data is None else digest_of(path, data)
    allowed = _allowing(record)
    if data is not None and record is not None and digest == record.digest:
        return Effective(load_config(path, text=_text(data), may_read=allowed), path, (), record)
    if data is not None and for_command and is_trusted_by_environment(digest):
        return Effective(load_config(path, text=_text(data), may_read=allowed), path)
    if record is None:
        notices.append(f"{path} is not trusted and has no effect; {_how_to_trust(path)}")
        return None
    what = "is gone" if data is None else "has changed since you trusted it"
    way_out = _how_to_trust(path)
    if data is None:
        way_out = f"to do without it, run: switchgear trust --revoke {_quoted(path)}"
    notices.append(f"{path} {what}: the content that you trusted stays in effect; {way_out}")
    config = load_config(path, text=record.text, may_read=allowed)
    return Effective(config, path, (), record, digest)


def _how_to_trust(path: str) -> str:
    does = "'switchgear trust' shows what it does and, if you agree, puts it in effect"
    return f"{does}: switchgear trust {_quoted(path)}"


def _quoted(path: str) -> str:
    import shlex  # noqa: PLC0415  most configurations are trusted, and hooks load this module

    return shlex.quote(path)


def _allowing(record: Trusted | None) -> Callable[[str], bool]:
    names = () if record is None else record.variables
    return lambda name: may_read(name, names)


def _text(data: bytes) -> str:
    return data.decode("utf-8", errors="replace")
