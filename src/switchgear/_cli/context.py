"""Opens a panel from the options, the environment and the configuration.

The store is that of `--store`, else SWITCHGEAR_STORE, else the configuration, else the default file. A
verb that only reads does not create a missing store. Commands write to the store itself, without the
fallback of breakers: if the store is unavailable, the command fails, because an operator must know.
"""

import difflib
import os
import re
from collections.abc import Callable, Iterable
from itertools import islice
from typing import Any, NamedTuple, Self, TypeVar

import click

from switchgear._breaker.views import View
from switchgear._cli.options import fail, given, refuse_ambiguous
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

# Paths are strings, as in the stores.
# ruff: noqa: PLC0415, PTH100, PTH109, PTH111, PTH112, PTH123, PTH208

T = TypeVar("T")
STORE_VARIABLE, TOKEN_VARIABLE = "SWITCHGEAR_STORE", "SWITCHGEAR_TOKEN"
SESSION = "session/"
"""Begins the names of sessions. Their ids are long, so that verbs find them without it."""
_SHOWN_NOTICES = "switchgear.notices"
ALL_EVENTS = 10_000_000
"""A limit above the number of events that any store keeps."""
_PLAIN_NAME = re.compile(r"(?!-)[\w./:@%+,-]+")


def say_json(value: Any, indent: int | None = 2) -> None:
    """Print a value as JSON, for other programs."""
    say(printed(value, indent))


def say_result(value: Any, lines: Iterable[str], *, as_json: bool, longest: int = LONGEST) -> None:
    """Print the value as JSON, or the lines for people, each cut to `longest` characters."""
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
    """An open panel and its configuration. A context manager; used by one thread."""

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
        """The file of a store that does not exist yet; the panel is then an empty one in memory."""
        self._borrowed = borrowed
        """Whether the caller of the command closes the panel."""
        self.drains = True
        """Whether a process is started at the end that writes incidents and sends notifications."""
        self.label = (
            panel.store.label if absent is None else f"{SQLITE}{absent} (does not exist yet)"
        )

    def reopen_if_created(self) -> None:
        """Open the store if it was created in the meantime; for verbs that poll."""
        if self._absent is None or not _has_existed(self._absent):
            return
        self._absent = None
        self.panel.close()
        self.panel = _open_panel(self.store.value, self.config)
        self.label = self.panel.store.label

    def now_s(self) -> float:
        return self.panel.store.now_s()

    def send(self, name: str, message: Message) -> Step:
        """Apply a message to a circuit. Raises `StoreError`, `OverrideRefused`."""
        if isinstance(message, Override):
            self.demand_operator(name)
        store = self.panel.store.inner
        # Save the configured digest in the store, or a later session without it would need no token.
        self.panel.store.operator.keep_in(store)
        step = store.apply(name, self._policy_for(name), message, store.now_s())
        for event in step.events:
            self._call_sinks(event)
        return step

    def transact(self, name: str, work: Callable[[Transaction], T]) -> T:
        """Do `work` on a circuit, its neighbours and its note in one transaction, then call the sinks."""
        # Slow to import, and few commands need it.
        from switchgear._hooks.after_reply import RecordingStore

        committed: list[Event] = []
        result: T = RecordingStore(self.panel.store, committed).transact(name, work)
        for event in committed:
            self._call_sinks(event)
        return result

    def read(self, glob: str) -> tuple[list[View], StoreError | None]:
        """The readable circuits that match, and the error if there are others."""
        views: list[View] = []
        try:
            views.extend(self.panel.circuits(glob))
        except StoreError as error:
            return views, error
        return views, None

    def raise_if_lost(self) -> None:
        """Raise `StoreCorrupt` if the store lost state, so that the output is incomplete."""
        lost = self.panel.lost()
        if lost is not None:
            raise lost

    def demand_operator(self, name: str, what: str = "") -> None:
        """Raise `OverrideRefused` unless overrides are allowed here. `what`: the attempt; default: an override of `name`."""
        self.panel.store.operator.demand(self.panel.store.inner, name, what)

    def owner_of(self, agent: str) -> str:
        """The person to notify about an agent such as `claude` or `demo:spin`.

        The owner of the fleet's agent of that name, else the login name.
        """
        fleet_agent = self.config.crew.agents.get(agent.partition(":")[0])
        return login_name() if fleet_agent is None else fleet_agent.owner

    def is_operator(self) -> bool:
        """Whether overrides are allowed here. Raises `StoreError` when that is unknown."""
        return self.panel.store.operator.allows(self.panel.store.inner)

    def _policy_for(self, name: str) -> Policy:
        """The configured policy, or the stored one if only an operator may replace it."""
        configured = self.panel.policy_of(name, lambda: default_policy(name))
        try:
            stored = self.panel.store.get(name)
        except StoreCorrupt:
            return configured  # the stored policy cannot be read
        if stored is None or stored.policy == configured or self.is_operator():
            return configured
        why = "the configured one differs, and can replace it only with the operator token"
        warn(f"circuit {name!r} uses its stored policy: {why}")
        return stored.policy

    def _call_sinks(self, event: Event) -> None:
        for sink in self.config.sinks:
            try:
                sink(event)
            except Exception as error:  # noqa: BLE001  a failed sink does not fail the command
                warn(f"a sink failed: {error}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._borrowed:
            return
        self._start_drain()
        self.panel.close()

    def _start_drain(self) -> None:
        """Start a process that writes incidents and sends notifications that are due, if any.

        So they are sent even if no watcher runs.
        """
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
    """Open the panel and the configuration that the options of the running command name.

    `reading`: do not create a missing store. `applying`: open the budgets of the configuration,
    unless `reading`. `acts`: end the command if a configuration is not trusted, instead of
    continuing without it; default: unless `reading`.
    """
    injected = click.get_current_context().find_object(Panel)
    if injected is not None:
        choice = StoreChoice(injected.store.label, "given")
        return Session(injected, DEFAULT, store=choice, borrowed=True)
    config = load_chosen_config(acts=not reading if acts is None else acts)
    choice = choose_store(config)
    absent = file_of(choice) if reading else None
    if absent is not None and _has_existed(absent):
        absent = None
    panel = _open_panel(choice.value if absent is None else "memory:", config)
    if config.budgets and applying and not reading:
        _apply_budgets(panel, config)
    return Session(panel, config, store=choice, absent=absent)


def _apply_budgets(panel: Panel, config: Config) -> None:
    """Apply the configured budgets; failures are reported, and the command continues."""
    try:
        changes = panel.budgets.apply(config.budgets, who="configuration")
    except StoreError:
        return  # the command reports it itself, if it needs the store
    for change in changes:
        if change.is_refused:
            warn(f"budget {change.node}: {change.why}")


def _has_existed(file: str) -> bool:
    """Whether the store exists, or was moved aside because it was damaged."""
    folder, name = os.path.split(file)
    if os.path.lexists(file) or not os.path.isdir(folder):
        return os.path.lexists(file)
    leftovers = (f"{name}.corrupt-", f"{name}.head")
    return any(other.startswith(leftovers) for other in os.listdir(folder))


def _open_panel(url: str | None, config: Config) -> Panel:
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
    source = "SWITCHGEAR_CONFIG" if os.environ.get("SWITCHGEAR_CONFIG") else "found"
    return StoreChoice(find_config(), source)


def effective() -> Effective:
    """The configuration in effect here, and notices about files that are not. Raises `ConfigError`.

    A file that the user names is in effect; a file that is found must be trusted.
    """
    given_path = given("config")
    if given_path is None:
        return effective_config(for_command=True)
    path = os.path.abspath(os.path.expanduser(given_path))
    return Effective(load_config(path), path)


def load_chosen_config(*, acts: bool = False) -> Config:
    """The configuration in effect, or the default one. Raises `ConfigError`.

    Files that are not trusted are reported. With `acts` they end the command, which would otherwise
    act without what they configure.
    """
    found = effective()
    if found.notices and acts:
        fail("\n".join(found.notices))
    for notice in found.notices:
        _warn_once(notice)
    return found.config


def _warn_once(notice: str) -> None:
    """Warn once per command; not during shell completion."""
    context = click.get_current_context(silent=True)
    shown: set[str] = (
        set() if context is None else context.find_root().meta.setdefault(_SHOWN_NOTICES, set())
    )
    if context is not None and context.info_name == "trust":
        return  # the notice recommends this command
    if notice not in shown and not os.environ.get("_SWITCHGEAR_COMPLETE"):
        shown.add(notice)
        warn(notice)


def choose_store(config: Config) -> StoreChoice:
    """The URL of the store and where it came from; `None` stands for the default file."""
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
    """The file of a SQLite store; `None`: the store is not a file."""
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


def names_starting_with(start: str, limit: int = 200) -> list[str]:
    """Names of circuits for shell completion. Never raises.

    Returns only names that a shell reads as one plain word, because guarded agents choose names.
    """
    try:
        with open_session(reading=True) as session:
            found = session.panel.store.find(literal(start) + "*")
            names = (each.circuit.key for each in found)
            return list(islice(filter(_PLAIN_NAME.fullmatch, names), limit))
    except Exception:  # noqa: BLE001  a completing shell cannot show errors
        return []


def full_name(session: Session, name: str) -> str | None:
    """The name of the circuit that `name` stands for; `None`: there is none.

    The circuit of exactly this name, the session of this id, or the only circuit or session whose
    name begins with it. Ends the command if several do.
    """
    store = session.panel.store
    for each in (name, f"{SESSION}{name}"):
        try:
            if store.get(each) is not None:
                return each
        except StoreCorrupt:
            return each  # it exists, but cannot be read
    starts = [found.circuit.key for found in store.find(f"{literal(name)}*")]
    starts = starts or [found.circuit.key for found in store.find(f"{SESSION}{literal(name)}*")]
    matches = [key for key in starts if "/agent/" not in key] or starts
    if not name or not matches:
        return None
    refuse_ambiguous(name, matches, "circuits")
    return matches[0]


def with_prefixes(session: Session, glob: str) -> str:
    """The glob; for a plain name that no circuit has, the glob of all names that begin with it."""
    store = session.panel.store
    if not is_plain(glob) or next(iter(store.find(glob)), None) is not None:
        return glob
    for start in (glob, f"{SESSION}{glob}"):
        if next(iter(store.find(f"{start}*")), None) is not None:
            return f"{start}*"
    return glob


def view_named(session: Session, name: str) -> View:
    """The circuit that `name` stands for, see `full_name`. Ends the command if there is none."""
    view = session.panel.view(name)
    if view is None:
        found = full_name(session, name)
        view = None if found is None else session.panel.view(found)
    if view is None:
        fail(unknown_circuit(session, name))
    return view


def unknown_circuit(session: Session, name: str) -> str:
    """The message about an unknown circuit, with the nearest name."""
    names = [found.circuit.key for found in islice(session.panel.store.find(), 10_000)]
    near = [key for key in names if key.endswith(f"/{name}")]
    near = near or difflib.get_close_matches(name, names, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"the store has {plural(len(names), 'other')}"
    if not names:
        hint = "the store is empty"
    return f"there is no circuit {name!r} in {session.label}; {hint}"
