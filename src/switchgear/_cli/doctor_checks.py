"""What `switchgear doctor` looks at: each check says what it found and what to do about it."""

import importlib.metadata
import importlib.util
import os
import stat
import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from switchgear._cli.context import (
    TOKEN_VARIABLE,
    Choice,
    Session,
    choose_store,
    chosen_config_file,
    effective,
    file_of,
    open_session,
    read_token,
)
from switchgear._cli.options import given
from switchgear._cli.views.text import ASCII, clock_time, plural, signs_for
from switchgear._config import DEFAULT, ConfigError
from switchgear._core.errors import StoreError
from switchgear._core.types import EventKind
from switchgear._stores.operator import fits
from switchgear._stores.sqlite.errors import is_full
from switchgear._stores.url import REDIS_URLS
from switchgear._text.redact import redact

if TYPE_CHECKING:
    from switchgear._config import Config

# Paths are texts here, as in the stores.
# ruff: noqa: PTH111, PTH112, PTH116, PTH120

GOOD, NOTE, WARNING, PROBLEM = "good", "note", "warning", "problem"
_OLDEST_PYTHON = (3, 11)
_WARNING = "WARNING, "
"""How a fact of a store says that it is no good news; behind a semicolon, what to do."""
_BEFORE_US_S = 1_700_000_000.0


class Finding(NamedTuple):
    """One thing that was looked at."""

    level: str
    what: str
    to_do: str = ""


def examine() -> Iterator[Finding]:
    """Everything, from the ground up. Never raises for what it looks at."""
    yield from _python()
    try:
        found = effective()
        config = found.config
    except ConfigError as error:
        for problem in error.problems:
            yield Finding(PROBLEM, str(problem), "mend it; 'switchgear config check' tells when")
        config = DEFAULT
    else:
        yield from _config(config)
        for notice in found.notices:
            what, _, to_do = notice.partition("; ")
            yield Finding(WARNING, what, to_do)
    choice = choose_store(config)
    yield from _token(config)
    yield from _redis(choice)
    yield from _terminal()
    yield from _store(choice)
    yield from _hooks()


def _hooks() -> Iterator[Finding]:
    """The hook commands that are installed here, driven as their agents drive them."""
    from switchgear._cli.hooks_doctor import installed_trials  # noqa: PLC0415  which needs `Finding`

    yield from installed_trials()


def _python() -> Iterator[Finding]:
    version = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info < _OLDEST_PYTHON:
        yield Finding(PROBLEM, f"Python {version}", "use Python 3.11 or newer")
        return
    parts = [f"Python {version}"]
    for name in ("switchgear", "click", "rich", "pyyaml"):
        try:
            parts.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            yield Finding(
                WARNING, f"{name} is not installed as a package", "pip install switchgear"
            )
    yield Finding(GOOD, ", ".join(parts))


def _config(config: "Config") -> Iterator[Finding]:
    choice = chosen_config_file()
    if config.source is None:
        yield Finding(GOOD, "no configuration file: the defaults hold")
        return
    rules = plural(len(config.circuits), "rule")
    yield Finding(GOOD, f"configuration {config.source} ({choice.source}): {rules} for circuits")
    mode = os.stat(config.source).st_mode
    if mode & stat.S_IWOTH:
        to_do = f"chmod o-w {config.source}"
        yield Finding(PROBLEM, f"everybody may write {config.source}", to_do)


def _token(config: "Config") -> Iterator[Finding]:
    digest, token = config.operator_token_sha256, read_token()
    if digest is None:
        what = "orders need no token: whoever reaches the store can release a circuit, agents too"
        yield Finding(NOTE, what, "'switchgear config token' makes one")
        return
    yield Finding(GOOD, "orders need the operator token")
    if token is None:
        return
    if not fits(token, digest):
        yield Finding(WARNING, "the operator token given here does not fit the configured one")
    path = given("token_file")
    if path is not None and os.stat(os.path.expanduser(path)).st_mode & 0o077:
        yield Finding(WARNING, f"others can read the token in {path}", f"chmod 600 {path}")
    if os.environ.get(TOKEN_VARIABLE):
        what = f"{TOKEN_VARIABLE} is set here: programs started from here, agents too, have it"
        yield Finding(WARNING, what, "keep it in a file that agents cannot read: --token-file")


def _redis(choice: Choice) -> Iterator[Finding]:
    there = importlib.util.find_spec("redis") is not None
    wanted = (choice.value or "").startswith(REDIS_URLS)
    if there:
        yield Finding(GOOD, f"redis client {importlib.metadata.version('redis')}")
    elif wanted:
        what = "the store is a Redis, and its client is not installed"
        yield Finding(PROBLEM, what, "pip install 'switchgear[redis]'")
    else:
        yield Finding(GOOD, "no redis client; none is needed for this store")


def _terminal() -> Iterator[Finding]:
    encoding = getattr(sys.stdout, "encoding", None) or "unknown"
    if signs_for() is ASCII:
        to_do = "for lamps and bars set LANG to a UTF-8 locale, such as C.UTF-8"
        yield Finding(NOTE, f"output encoding {encoding}: signs are drawn in ASCII", to_do)
    else:
        yield Finding(GOOD, f"output encoding {encoding}")


def _store(choice: Choice) -> Iterator[Finding]:
    file = file_of(choice)
    if file is not None and not os.path.lexists(file):
        yield Finding(NOTE, f"store sqlite:///{file} ({choice.source}) is not there yet")
        yield from _room_for(file)
        return
    if file is not None:
        yield from _file(file)
    try:
        with open_session(acts=False) as session:
            session.drains = False  # who looks sends nothing
            facts = session.panel.store.facts()
            warned, told = _sorted(facts)
            yield Finding(GOOD, f"store {session.label} ({choice.source}): {told}")
            yield from warned
            yield from _contents(session, facts)
            yield from _seal(session)
            yield from _policies(session)
            yield from _notifications(session)
            yield from _clock(session)
    except StoreError as error:
        yield Finding(
            PROBLEM, f"store {error.store} {error.problem}: {error.why}", error.what_to_do
        )
    except (ValueError, ImportError) as error:
        yield Finding(PROBLEM, redact(str(error)))
    if choice.value == "memory:":
        yield Finding(WARNING, "the store is memory: it ends with each process", "name a file")


def _sorted(facts: dict[str, str]) -> tuple[list[Finding], str]:
    """The facts of a store that endanger circuits, each by itself, and the others in one text."""
    warned = [
        Finding(WARNING, f"store: {name} {what.replace(_WARNING, '')}", to_do)
        for name, value in facts.items()
        if _WARNING in value
        for what, _, to_do in [value.partition("; ")]
    ]
    told = [f"{name} {value}" for name, value in facts.items() if _WARNING not in value]
    return warned, ", ".join(fact for fact in told if not fact.startswith("file "))


def _room_for(file: str) -> Iterator[Finding]:
    folder = os.path.dirname(file)
    while not os.path.lexists(folder) and folder != os.path.dirname(folder):
        folder = os.path.dirname(folder)
    if not os.path.isdir(folder):
        yield Finding(PROBLEM, f"{folder} is no folder", "name another place with --store")
    elif not os.access(folder, os.W_OK | os.X_OK):
        yield Finding(PROBLEM, f"{folder} cannot be written", "name another place with --store")


def _file(path: str) -> Iterator[Finding]:
    try:
        found = os.stat(path)
    except OSError as error:
        yield Finding(PROBLEM, f"{path}: {error.strerror}")
        return
    mode = stat.S_IMODE(found.st_mode)
    if mode & 0o077:
        to_do = f"chmod 600 {path}"
        yield Finding(WARNING, f"{path} has mode {mode:04o}: others can read or change it", to_do)
    else:
        yield Finding(GOOD, f"{path} has mode {mode:04o}")
    if found.st_uid != os.geteuid():
        yield Finding(WARNING, f"{path} belongs to user number {found.st_uid}, not to you")
    for place in (path, os.path.dirname(path)):
        if not os.access(place, os.W_OK):
            yield Finding(PROBLEM, f"{place} cannot be written: it can only be read here")
    if is_full(os.path.dirname(path)):
        what = f"the disk of {path} has no space left: it can only be read here"
        yield Finding(PROBLEM, what, "free some space, then run 'switchgear vacuum'")


def _contents(session: Session, facts: dict[str, str]) -> Iterator[Finding]:
    aside = facts.get("set aside", "nothing")
    if aside != "nothing":
        what = f"a damaged file was set aside: {aside}"
        yield Finding(
            WARNING, what, "look at it, then move it away; until then circuits start anew"
        )
    if facts.get("unreadable", "0") != "0":
        what = f"{plural(int(facts['unreadable']), 'state')} could not be read and lies aside"
        yield Finding(WARNING, what, "see 'switchgear events' for which, and why")
    newest = session.panel.events(limit=1000)
    lost = {
        entry.event.circuit for entry in newest if entry.event.kind is EventKind.STATE_UNREADABLE
    }
    if lost:
        names = ", ".join(sorted(lost)[:3])
        what = f"{plural(len(lost), 'circuit')} started anew after unreadable states: {names}"
        yield Finding(NOTE, what)
    for _ in session.panel.store.find():  # raises what cannot be read
        continue


def _policies(session: Session) -> Iterator[Finding]:
    """Where a token guards the policies, one that is not the configured one deserves a look."""
    if session.panel.store.inner.operator_digest() is None:
        return
    others = [
        found.circuit.key
        for found in session.panel.store.find()
        if session.config.policy_for(found.circuit.key) not in (None, found.policy)
    ]
    if others:
        what = f"{plural(len(others), 'circuit')} judged by another policy than the configured one"
        to_do = "if it is as you want it, 'switchgear record CIRCUIT ignored' with the token"
        yield Finding(WARNING, f"{what}, such as {others[0]!r}", to_do)


def _notifications(session: Session) -> Iterator[Finding]:
    """What targets have yet to receive, and why; and whether their variables are set."""
    from switchgear._cli.fleet import fleet_of, pending_lines  # noqa: PLC0415  only with targets
    from switchgear._fleet.delivery import Delivery  # noqa: PLC0415

    for target in session.config.notifications:
        fields = target.fields()
        for key in ("secret_env", "url_env"):
            name = fields.get(key)
            if name and not os.environ.get(name):
                what = f"notification target {target.name!r}: the variable {name} is not set"
                yield Finding(WARNING, what, f"set {name} where Switchgear runs")
        pending = Delivery(fleet_of(session), target).pending()
        first, *more = pending_lines(pending, session.now_s())
        if not pending.waiting and not pending.aside:
            yield Finding(GOOD, f"notification {first}")
            continue
        why = "; ".join(line.strip() for line in more if "switchgear fleet" not in line)
        to_do = "'switchgear fleet deliver' tries again and says what is left"
        if pending.aside:
            to_do += "; with --retry also what was set aside, --drop forgets it"
        joint = ": " if pending.waiting else "; "
        yield Finding(
            WARNING, f"notification {first}{f'{joint}{why}' if why else ', not tried yet'}", to_do
        )


def _seal(session: Session) -> Iterator[Finding]:
    kept, wanted = session.panel.store.inner.operator_digest(), session.config.operator_token_sha256
    if kept is None or kept == wanted:
        return
    if wanted is None:
        what = "the store asks for an operator token of which the configuration knows nothing"
        to_do = "add its operator_token_sha256, or 'switchgear config seal --remove' with the token"
    else:
        what = "the store asks for another operator token than the configuration"
        to_do = "'switchgear config seal' with the store's token takes over the configured one"
    yield Finding(WARNING, what, to_do)


def _clock(session: Session) -> Iterator[Finding]:
    here_s, there_s = time.time(), session.now_s()
    if here_s < _BEFORE_US_S:
        yield Finding(PROBLEM, f"the clock says {time.strftime('%Y-%m-%d')}", "set the clock")
    elif abs(here_s - there_s) > 30:
        ahead = "ahead" if there_s > here_s else "behind"
        what = f"the store's clock is {abs(there_s - here_s):.0f} s {ahead} of this machine's"
        yield Finding(WARNING, what, "waits follow the store's clock; times shown may surprise")
    else:
        yield Finding(GOOD, f"clock: {clock_time(there_s, 0.0)}, the store's agrees")
    ahead_of = [
        found.circuit.key
        for found in session.panel.store.find()
        if found.circuit.seen_s > there_s + 60
    ]
    if ahead_of:
        what = f"{plural(len(ahead_of), 'circuit')} from the future, such as {ahead_of[0]!r}"
        yield Finding(WARNING, what, "somebody's clock was ahead; they stand still until then")
