"""From options, environment and configuration to an open panel.

The store: `--store`, else SWITCHGEAR_STORE, else the configuration's, else the default file. A verb
that only reads does not make a file where there is none. What a command sends goes to the store
itself and fails when the store does: a breaker may continue without it, an operator must know.
"""

import difflib
import os
import re
from collections.abc import Callable, Iterable
from itertools import islice
from typing import Any, NamedTuple, Self, TypeVar

import click

from switchgear._breaker.views import View
from switchgear._cli.options import demand_one, fail, given
from switchgear._cli.views.text import LONGEST, clean, say, warn
from switchgear._config import DEFAULT, Config, find_config, load_config
from switchgear._config.sections import Retention, default_policy
from switchgear._config.trust import Effective, effective_config
from switchgear._console.values import printed
from switchgear._core.errors import StoreCorrupt, StoreError, SwitchgearError
from switchgear._core.policy import Policy
from switchgear._core.types import Event, Message, Override, Step
from switchgear._panel.panel import Panel
from switchgear._stores.base import IDLE_S, KEEP_EVENTS, Transaction
from switchgear._stores.url import SQLITE, default_file, sqlite_file
from switchgear._system.login import login_name
from switchgear._text.formats import plural
from switchgear._text.glob import is_plain, literal

# Paths are texts, as in the stores.
# ruff: noqa: PLC0415, PTH100, PTH109, PTH111, PTH112, PTH123, PTH208

T = TypeVar("T")
STORE_VARIABLE, TOKEN_VARIABLE = "SWITCHGEAR_STORE", "SWITCHGEAR_TOKEN"
_SAID = "switchgear.notices"
_PLAIN_NAME = re.compile(r"(?!-)[\w./:@%+,-]+")


def say_json(value: Any, indent: int | None = 2) -> None:
    """Print a value as JSON, for other programs."""
    say(printed(value, indent))


def say_found(value: Any, lines: Iterable[str], *, as_json: bool, longest: int = LONGEST) -> None:
    """Print what was found: the value as JSON, or the lines for people, each at most `longest` characters."""
    if as_json:
        say_json(value)
        return
    for line in lines:
        say(clean(line, longest))


class StoreChoice(NamedTuple):
    """A value and where it came from."""

    value: str | None
    source: str


class Session:
    """An open panel and what was configured. A context manager; used by one thread."""

    def __init__(
        self,
        panel: Panel,
        config: Config,
        *,
        store: StoreChoice,
        absent: str | None = None,
        borrowed: bool = False,
    ) -> None:
        self.panel = panel
        self.config = config
        self.store = store
        self._absent = absent
        """The file of the store, as long as it is not there: then the panel is an empty one."""
        self._borrowed = borrowed
        self.drains = True
        """Whether what is due is written and sent at the end, by a separate process."""
        self.label = (
            panel.store.label if absent is None else f"{SQLITE}{absent} (does not exist yet)"
        )

    def look_again(self) -> None:
        """Open the store if it was created in the meantime; for callers that poll."""
        if self._absent is None or not _was_there(self._absent):
            return
        self._absent = None
        self.panel.close()
        self.panel = _panel(self.store.value, self.config)
        self.label = self.panel.store.label

    def now_s(self) -> float:
        return self.panel.store.now_s()

    def send(self, name: str, message: Message) -> Step:
        """Apply a message to a circuit. Raises `StoreError`, `OverrideRefused`."""
        if isinstance(message, Override):
            self.demand_operator(name)
        store = self.panel.store.inner
        # A session that is configured with a digest saves it here, else the next one needs no token.
        self.panel.store.operator.keep_in(store)
        done = store.apply(name, self._policy_for(name), message, store.now_s())
        for event in done.events:
            self._call_sinks(event)
        return done

    def transact(self, name: str, work: Callable[[Transaction], T]) -> T:
        """Do `work` on a circuit, its neighbours and its note at once, and call the sinks after it."""
        from switchgear._hooks.after_reply import (
            RecordingStore,
        )  # slow to import, and few commands need it

        committed: list[Event] = []
        done: T = RecordingStore(self.panel.store, committed).transact(name, work)
        for event in committed:
            self._call_sinks(event)
        return done

    def read(self, glob: str) -> tuple[list[View], StoreError | None]:
        """The circuits, and the error that kept others from being read: a damaged one hides no other."""
        views: list[View] = []
        try:
            views.extend(self.panel.circuits(glob))
        except StoreError as error:
            return views, error
        return views, None

    def stop_if_lost(self) -> None:
        """Raise `StoreCorrupt` where what was shown is not all that there was."""
        lost = self.panel.lost()
        if lost is not None:
            raise lost

    def demand_operator(self, name: str, what: str = "") -> None:
        """Raise `OverrideRefused` unless overrides are allowed here. `what`: the attempt, if it is none of a circuit."""
        self.panel.store.operator.demand(self.panel.store.inner, name, what)

    def owner_of(self, agent: str) -> str:
        """The person to notify about an agent such as `claude` or `demo:spin`.

        The owner of the fleet's agent of that name; the login name if there is none.
        """
        found = self.config.crew.agents.get(agent.partition(":")[0])
        return login_name() if found is None else found.owner

    def is_operator(self) -> bool:
        """Whether overrides are allowed here. Raises `StoreError` when that is unknown."""
        return self.panel.store.operator.allows(self.panel.store.inner)

    def _policy_for(self, name: str) -> Policy:
        """The configured policy, or the stored one if only an operator may replace it."""
        configured = self.panel.policy_of(name, lambda: default_policy(name))
        try:
            found = self.panel.store.get(name)
        except StoreCorrupt:
            return configured  # there is none that could be read
        if found is None or found.policy == configured or self.is_operator():
            return configured
        why = "the configured one differs, and can replace it only with the operator token"
        warn(f"circuit {name!r} uses its stored policy: {why}")
        return found.policy

    def _call_sinks(self, event: Event) -> None:
        for sink in self.config.sinks:
            try:
                sink(event)
            except Exception as error:  # noqa: BLE001  observers cannot hurt the observed
                warn(f"a sink failed: {error}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._borrowed:
            return
        self._start_drain()
        self.panel.close()

    def _start_drain(self) -> None:
        """Let a separate process write and send what is due: no watcher needs to run for that."""
        if self._absent is not None or not self.drains:
            return
        try:
            from switchgear._hooks import drain

            if drain.has_outbox(self.config) and drain.is_due(self.config, self.panel):
                url = self.panel.store.url
                if url is not None and not url.startswith("memory:"):
                    named = given("config")
                    path = None if named is None else self.config.source
                    drain.start(os.getcwd(), config=path, store=url, for_command=True)
        except (SwitchgearError, OSError, ValueError):
            return  # an unavailable store was reported already


def open_session(
    *, reading: bool = False, applying: bool = True, acts: bool | None = None
) -> Session:
    """The panel that the options of the running command name, with what was configured.

    `reading`: no file is made where there is none. `applying`: budgets of the configuration are
    opened, unless this only reads. `acts`: a configuration that is not trusted ends the command
    instead of being passed over; default: unless this only reads.
    """
    injected = click.get_current_context().find_object(Panel)
    if injected is not None:
        choice = StoreChoice(injected.store.label, "given")
        return Session(injected, DEFAULT, store=choice, borrowed=True)
    config = load_chosen_config(acts=not reading if acts is None else acts)
    choice = choose_store(config)
    absent = file_of(choice) if reading else None
    if absent is not None and _was_there(absent):
        absent = None
    panel = _panel(choice.value if absent is None else "memory:", config)
    if config.budgets and applying and not reading:
        _apply_budgets(panel, config)
    return Session(panel, config, store=choice, absent=absent)


def _apply_budgets(panel: Panel, config: Config) -> None:
    """Apply the configured budgets; failures are reported, and the command continues."""
    try:
        done = panel.budgets.apply(config.budgets, who="configuration")
    except StoreError:
        return  # the command reports it itself, if it needs the store
    for one in done:
        if one.is_refused:
            warn(f"budget {one.node}: {one.why}")


def _was_there(file: str) -> bool:
    """Whether there is a store, or a damaged one that was moved aside: then it is not a new one."""
    folder, name = os.path.split(file)
    if os.path.lexists(file) or not os.path.isdir(folder):
        return os.path.lexists(file)
    beside = (f"{name}.corrupt-", f"{name}.head")
    return any(other.startswith(beside) for other in os.listdir(folder))


def _panel(url: str | None, config: Config) -> Panel:
    """The panel over a store. A configuration cannot shorten retention below the minimum."""
    panel = Panel(
        url,
        policies=config.policy_for,
        sinks=config.sinks,
        operator_token_sha256=config.operator_token_sha256,
        token=read_token(),
    )
    panel.reload(config.policy_for, retention=allowed_retention(panel, config))
    return panel


def allowed_retention(panel: Panel, config: Config) -> Retention:
    """How much the store keeps: less than the defaults only where overrides are allowed."""
    events, idle_s = config.retention
    if events >= KEEP_EVENTS and idle_s >= IDLE_S:
        return config.retention
    try:
        if panel.store.operator.allows(panel.store.inner):
            return config.retention
    except StoreError:
        pass  # a command that needs the store reports it
    return Retention(max(events, KEEP_EVENTS), max(idle_s, IDLE_S))


def chosen_config_file() -> StoreChoice:
    """The configuration file and how it was found; trust is not checked."""
    path = given("config")
    if path is not None:
        return StoreChoice(os.path.abspath(os.path.expanduser(path)), "--config")
    found = find_config()
    return StoreChoice(
        found, "SWITCHGEAR_CONFIG" if os.environ.get("SWITCHGEAR_CONFIG") else "found"
    )


def effective() -> Effective:
    """The configuration in effect here, and what has no effect. Raises `ConfigError`.

    A file that the user names is in effect; one that is found must be trusted.
    """
    given_path = given("config")
    if given_path is None:
        return effective_config(for_command=True)
    path = os.path.abspath(os.path.expanduser(given_path))
    return Effective(load_config(path), path)


def load_chosen_config(*, acts: bool = False) -> Config:
    """The configuration in effect, or the default one. Raises `ConfigError`.

    Files that are not trusted are reported; `acts`: the command ends then, because what it would do
    is not what the file says.
    """
    found = effective()
    if found.notices and acts:
        fail("\n".join(found.notices))
    for notice in found.notices:
        _say_once(notice)
    return found.config


def _say_once(notice: str) -> None:
    """Report on standard error, once for each command; nothing during shell completion."""
    context = click.get_current_context(silent=True)
    shown: set[str] = (
        set() if context is None else context.find_root().meta.setdefault(_SAID, set())
    )
    if context is not None and context.info_name == "trust":
        return  # it is the command that the notice names
    if notice not in shown and not os.environ.get("_SWITCHGEAR_COMPLETE"):
        shown.add(notice)
        warn(notice)


def choose_store(config: Config) -> StoreChoice:
    """The URL of the store and where it came from; no URL is the default file."""
    url = given("store")
    if url is not None:
        return StoreChoice(url, "--store")
    url = os.environ.get(STORE_VARIABLE)
    if url:
        return StoreChoice(url, STORE_VARIABLE)
    if config.store is not None:
        return StoreChoice(config.store, str(config.source))
    return StoreChoice(None, "default")


def file_of(choice: StoreChoice) -> str | None:
    """The file of a SQLite store; `None`: it is no file."""
    if choice.value is None:
        return default_file()
    return sqlite_file(choice.value)


def read_token() -> str | None:
    """The operator token of `--token-file` or SWITCHGEAR_TOKEN."""
    path = given("token_file")
    if path is None:
        return os.environ.get(TOKEN_VARIABLE, "").strip() or None
    try:
        with open(os.path.expanduser(path), encoding="utf-8") as file:
            token = file.read(10_000).strip()
    except UnicodeDecodeError:
        fail(f"--token-file {path}: it must hold a token as text")
    if not token:
        fail(f"--token-file {path}: it is empty")
    return token


def names_beginning(start: str, limit: int = 200) -> list[str]:
    """Names of circuits for the completion of a shell, which must never see an error.

    Only names that a shell takes for one word: agents create names, and an operator presses Tab.
    """
    try:
        with open_session(reading=True) as session:
            found = session.panel.store.find(literal(start) + "*")
            names = (each.circuit.key for each in found)
            return list(islice(filter(_PLAIN_NAME.fullmatch, names), limit))
    except Exception:  # noqa: BLE001  a shell that completes has no place for errors
        return []


FAMILY_FIRST = "session/"
"""The family whose names are long ids: they are found without the prefix."""


def full_name(session: Session, name: str) -> str | None:
    """The circuit that a name means; `None`: there is none.

    One of that very name, a session of that id, or the only one that begins so. Fails, with the
    names, where several begin so.
    """
    store = session.panel.store
    for each in (name, f"{FAMILY_FIRST}{name}"):
        try:
            if store.get(each) is not None:
                return each
        except StoreCorrupt:
            return each  # it is there, and cannot be read
    starts = [found.circuit.key for found in store.find(f"{literal(name)}*")]
    starts = starts or [
        found.circuit.key for found in store.find(f"{FAMILY_FIRST}{literal(name)}*")
    ]
    whole = [key for key in starts if "/agent/" not in key] or starts
    if not name or not whole:
        return None
    demand_one(name, whole, "circuits")
    return whole[0]


def widened(session: Session, glob: str) -> str:
    """The glob, or, of a plain name that no circuit has, one for all circuits that begin so."""
    store = session.panel.store
    if not is_plain(glob) or next(iter(store.find(glob)), None) is not None:
        return glob
    for start in (glob, f"{FAMILY_FIRST}{glob}"):
        if next(iter(store.find(f"{start}*")), None) is not None:
            return f"{start}*"
    return glob


def view_named(session: Session, name: str) -> View:
    """The circuit that a name means, see `full_name`. Fails where there is none."""
    view = session.panel.view(name)
    if view is None:
        found = full_name(session, name)
        view = None if found is None else session.panel.view(found)
    if view is None:
        fail(unknown_circuit(session, name))
    return view


def unknown_circuit(session: Session, name: str) -> str:
    """The message about an unknown circuit, with the nearest name."""
    names = [found.circuit.key for found, _ in zip(session.panel.store.find(), range(10_000))]  # noqa: B905
    near = [key for key in names if key.endswith(f"/{name}")]
    near = near or difflib.get_close_matches(name, names, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"the store has {plural(len(names), 'other')}"
    if not names:
        hint = "the store is empty"
    return f"there is no circuit {name!r} in {session.label}; {hint}"
