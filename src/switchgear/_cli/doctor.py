"""`switchgear doctor` and `switchgear hooks doctor`: check the installation, suggest fixes."""

import importlib.metadata
import importlib.util
import os
import secrets
import shutil
import stat
import sys
import time
from collections import Counter
from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

import click
from rich.text import Text

from switchgear._agents.codex.agent import ask_codex
from switchgear._agents.hook_protocol import PROJECT, TIMEOUT_S, USER, HookSettings
from switchgear._analysis.selftest.hook_trials import (
    AFTER,
    BEFORE,
    Probe,
    event_of,
    installed_commands,
    tried,
)
from switchgear._cli.context import (
    TOKEN_VARIABLE,
    Session,
    StoreChoice,
    choose_store,
    chosen_config_file,
    effective,
    file_of,
    load_chosen_config,
    open_session,
    read_token,
    say_json,
)
from switchgear._cli.fleet import fleet_of, pending_lines
from switchgear._cli.options import given, json_option, store_options, token_option
from switchgear._cli.views.terminal import Screen
from switchgear._cli.views.text import ASCII, clean, clock_time, plural, signs_for
from switchgear._config import DEFAULT, Config, ConfigError
from switchgear._core.errors import OverrideRefused, StoreError
from switchgear._core.types import EventKind, Mode, Override
from switchgear._fleet.delivery import Delivery
from switchgear._hooks import resident
from switchgear._hooks.hook_config import HookConfig, Unconfigured, config_of
from switchgear._hooks.install.files import CannotChange
from switchgear._hooks.install.settings import HOOKED, HookFile, InstallState, hook_file, scopes_of
from switchgear._hooks.interrupt import agent_process
from switchgear._hooks.process import open_store
from switchgear._stores.base import Store
from switchgear._stores.operator import fits
from switchgear._stores.sqlite.file import is_full
from switchgear._stores.url import REDIS_URLS
from switchgear._text.formats import elapsed
from switchgear._text.redact import redact

# Paths are strings, as in the stores.
# ruff: noqa: PTH109, PTH111, PTH112, PTH116, PTH120

GOOD, NOTE, WARNING, PROBLEM = "good", "note", "warning", "problem"
_OLDEST_PYTHON = (3, 11)
_WARNING = "WARNING, "
"""Marks a fact of a store as a warning; what to do follows a semicolon."""
_EARLIEST_CLOCK_S = 1_700_000_000.0
"""A time before this version: a clock that shows less is wrong."""


class DoctorFinding(NamedTuple):
    level: str
    what: str
    to_do: str = ""


good, note, warning, problem = (
    partial(DoctorFinding, level) for level in (GOOD, NOTE, WARNING, PROBLEM)
)


def examine() -> Iterator[DoctorFinding]:
    """Check the installation, the configuration and the store. What is wrong is a result, not an exception."""
    yield from _python()
    config = DEFAULT
    try:
        found = effective()
    except ConfigError as error:
        for each in error.problems:
            yield problem(str(each), "fix it, then run 'switchgear config check'")
    else:
        config = found.config
        yield from _config(config)
        for notice in found.notices:
            what, _, to_do = notice.partition("; ")
            yield warning(what, to_do)
    choice = choose_store(config)
    yield from _check_token(config)
    yield from _redis(choice)
    yield from _terminal()
    yield from _store(choice)
    yield from installed_trials()


def _python() -> Iterator[DoctorFinding]:
    version = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info < _OLDEST_PYTHON:
        yield problem(f"Python {version}", "use Python 3.11 or newer")
        return
    parts = [f"Python {version}"]
    for name in ("switchgear", "click", "jinja2", "rich", "pyyaml"):
        try:
            parts.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            yield warning(f"{name} is not installed as a package", "pip install switchgear")
    yield good(", ".join(parts))


def _config(config: Config) -> Iterator[DoctorFinding]:
    choice = chosen_config_file()
    if config.source is None:
        yield good("no configuration file: the defaults apply")
        return
    rules = plural(len(config.circuits), "rule")
    yield good(f"configuration {config.source} ({choice.source}): {rules} for circuits")
    mode = os.stat(config.source).st_mode
    if mode & stat.S_IWOTH:
        yield problem(f"{config.source} is writable by everyone", f"chmod o-w {config.source}")


def _check_token(config: Config) -> Iterator[DoctorFinding]:
    digest, token = config.operator_token_sha256, read_token()
    if digest is None:
        what = "overrides need no token: anyone who can reach the store, agents included, can release a circuit"
        yield note(what, "'switchgear config token' creates one")
        return
    yield good("overrides need the operator token")
    if token is None:
        return
    if not fits(token, digest):
        yield warning("the operator token given here does not match the configured one")
    path = given("token_file")
    if path is not None and os.stat(os.path.expanduser(path)).st_mode & 0o077:
        yield warning(f"others can read the token in {path}", f"chmod 600 {path}")
    if os.environ.get(TOKEN_VARIABLE):
        what = f"{TOKEN_VARIABLE} is set here: programs started from here, agents included, can read it"
        yield warning(what, "keep it in a file that agents cannot read: --token-file")


def _redis(choice: StoreChoice) -> Iterator[DoctorFinding]:
    if importlib.util.find_spec("redis") is not None:
        yield good(f"redis client {importlib.metadata.version('redis')}")
    elif (choice.value or "").startswith(REDIS_URLS):
        what = "the store is Redis, but its client is not installed"
        yield problem(what, "pip install 'switchgear[redis]'")
    else:
        yield good("no redis client; none is needed for this store")


def _terminal() -> Iterator[DoctorFinding]:
    encoding = getattr(sys.stdout, "encoding", None) or "unknown"
    if signs_for() is ASCII:
        to_do = "for graphical symbols and bars, set LANG to a UTF-8 locale such as C.UTF-8"
        yield note(f"output encoding {encoding}: symbols are drawn in ASCII", to_do)
    else:
        yield good(f"output encoding {encoding}")


def _store(choice: StoreChoice) -> Iterator[DoctorFinding]:
    file = file_of(choice)
    if file is not None and not os.path.lexists(file):
        yield note(f"store sqlite:///{file} ({choice.source}) does not exist yet")
        yield from _room_for(file)
        return
    if file is not None:
        yield from _file(file)
    try:
        with open_session(acts=False) as session:
            session.drains = False  # the doctor sends no notifications
            facts = session.panel.store.facts()
            warned, others = _split_facts(facts)
            yield good(f"store {session.label} ({choice.source}): {others}")
            yield from warned
            yield from _contents(session, facts)
            yield from _seal(session)
            yield from _policies(session)
            yield from _notifications(session)
            yield from _clock(session)
    except StoreError as error:
        yield problem(f"store {error.store} {error.problem}: {error.why}", error.what_to_do)
    except (ValueError, ImportError) as error:
        yield problem(redact(str(error)))
    if choice.value in {"memory:", "memory://"}:
        yield warning(
            "the store is in memory: its content is lost when the process ends", "name a file"
        )


def _split_facts(facts: dict[str, str]) -> tuple[list[DoctorFinding], str]:
    """The facts of a store that are warnings, and one text of the others."""
    warned = [
        warning(f"store: {name} {what.replace(_WARNING, '')}", to_do)
        for name, value in facts.items()
        if _WARNING in value
        for what, _, to_do in [value.partition("; ")]
    ]
    others = [f"{name} {value}" for name, value in facts.items() if _WARNING not in value]
    return warned, ", ".join(fact for fact in others if not fact.startswith("file "))


def _room_for(file: str) -> Iterator[DoctorFinding]:
    folder = os.path.dirname(file)
    while not os.path.lexists(folder) and folder != os.path.dirname(folder):
        folder = os.path.dirname(folder)
    if not os.path.isdir(folder):
        yield problem(f"{folder} is not a folder", "name another place with --store")
    elif not os.access(folder, os.W_OK | os.X_OK):
        yield problem(f"{folder} cannot be written", "name another place with --store")


def _file(path: str) -> Iterator[DoctorFinding]:
    try:
        found = os.stat(path)
    except OSError as error:
        yield problem(f"{path}: {error.strerror}")
        return
    mode = stat.S_IMODE(found.st_mode)
    if mode & 0o077:
        to_do = f"chmod 600 {path}"
        yield warning(f"{path} has mode {mode:04o}: others can read or change it", to_do)
    else:
        yield good(f"{path} has mode {mode:04o}")
    if found.st_uid != os.geteuid():
        yield warning(f"{path} belongs to user number {found.st_uid}, not to you")
    for each in (path, os.path.dirname(path)):
        if not os.access(each, os.W_OK):
            yield problem(f"{each} is read-only for this user")
    if is_full(os.path.dirname(path)):
        what = f"the disk of {path} has no space left: the store is read-only"
        yield problem(what, "free some space, then run 'switchgear vacuum'")


def _contents(session: Session, facts: dict[str, str]) -> Iterator[DoctorFinding]:
    set_aside = facts.get("set aside", "nothing")
    if set_aside != "nothing":
        what = f"a damaged file was set aside: {set_aside}"
        yield warning(what, "inspect it, then move it away; until then circuits start from scratch")
    if facts.get("unreadable", "0") != "0":
        what = f"{plural(int(facts['unreadable']), 'state')} could not be read: set aside"
        yield warning(what, "see 'switchgear events' for which, and why")
    newest = session.panel.events(limit=1000)
    lost = {
        entry.event.circuit for entry in newest if entry.event.kind is EventKind.STATE_UNREADABLE
    }
    if lost:
        names = ", ".join(sorted(lost)[:3])
        what = f"{plural(len(lost), 'circuit')} restarted from scratch after unreadable states: {names}"
        yield note(what)
    for _ in session.panel.store.find():  # raises StoreError for a state that cannot be read
        continue


def _policies(session: Session) -> Iterator[DoctorFinding]:
    """Whether circuits have other policies than the configured ones, if the store needs a token."""
    if session.panel.store.inner.operator_digest() is None:
        return
    differing = [
        found.circuit.key
        for found in session.panel.store.find()
        if session.config.policy_for(found.circuit.key) not in (None, found.policy)
    ]
    if differing:
        what = f"{plural(len(differing), 'circuit')} with another policy than the configured one"
        to_do = "to apply the configured one: 'switchgear record CIRCUIT ignored' with the token"
        yield warning(f"{what}, such as {differing[0]!r}", to_do)


def _notifications(session: Session) -> Iterator[DoctorFinding]:
    """Whether the variables of targets are set, and which notifications are pending, and why."""
    for target in session.config.notifications:
        fields = target.fields()
        for key in ("secret_env", "url_env"):
            name = fields.get(key)
            if name and not os.environ.get(name):
                what = f"notification target {target.name!r}: the variable {name} is not set"
                yield warning(what, f"set {name} where Switchgear runs")
        pending = Delivery(fleet_of(session), target).pending()
        first, *more = pending_lines(pending, session.now_s())
        if not pending.waiting and not pending.aside:
            yield good(f"notification {first}")
            continue
        why = "; ".join(line.strip() for line in more if "switchgear fleet" not in line)
        to_do = "'switchgear fleet deliver' retries and reports what is left"
        if pending.aside:
            to_do += "; --retry also sends what was set aside, --drop discards it"
        joint = ": " if pending.waiting else "; "
        yield warning(f"notification {first}{f'{joint}{why}' if why else ', not tried yet'}", to_do)


def _seal(session: Session) -> Iterator[DoctorFinding]:
    stored = session.panel.store.inner.operator_digest()
    configured = session.config.operator_token_sha256
    if stored is None or stored == configured:
        return
    if configured is None:
        what = "the store needs an operator token that the configuration does not have"
        to_do = "add its operator_token_sha256, or 'switchgear config seal --remove' with the token"
    else:
        what = "the store needs another operator token than the configuration"
        to_do = "'switchgear config seal' with the store's token applies the configured one"
    yield warning(what, to_do)


def _clock(session: Session) -> Iterator[DoctorFinding]:
    here_s, there_s = time.time(), session.now_s()
    if here_s < _EARLIEST_CLOCK_S:
        yield problem(f"the clock shows {time.strftime('%Y-%m-%d')}", "set the clock")
    elif abs(here_s - there_s) > 30:
        ahead = "ahead" if there_s > here_s else "behind"
        what = f"the store's clock is {abs(there_s - here_s):.0f} s {ahead} of this machine's"
        yield warning(what, "waits follow the store's clock; displayed times may differ")
    else:
        yield good(f"clock: {clock_time(there_s, 0.0)}, same as the store's")
    ahead_of = [
        found.circuit.key
        for found in session.panel.store.find()
        if found.circuit.seen_s > there_s + 60
    ]
    if ahead_of:
        what = (
            f"{plural(len(ahead_of), 'circuit')} with times in the future, such as {ahead_of[0]!r}"
        )
        yield warning(what, "a clock was ahead; these circuits do not change until then")


_SCOPE_TEXT = {
    "project": "for the project",
    "local": "for the project, on this machine only",
    "user": "for the user",
}
"""What a scope covers."""


def examine_hooks(name: str, only: str | None, *, requested: bool) -> Iterator[DoctorFinding]:
    """Check the hooks of an agent, in all scopes or one; `requested`: the user named the agent."""
    agent, folder = HOOKED[name], os.getcwd()
    scopes = [scope for scope in scopes_of(name, folder) if only in {None, scope}]
    files = {scope: hook_file(name, scope, folder) for scope in scopes}
    states = {scope: file.state() for scope, file in files.items()}
    installed = [scope for scope in scopes if states[scope].installed]
    if not requested and not installed:
        return
    program = shutil.which(agent.program)
    if program is None:
        what = f"{agent.program} is not on the PATH here"
        yield note(what, f"the hooks take effect where {agent.title} is installed")
    else:
        yield good(f"{agent.title} is {program}")
    for scope in scopes:
        if states[scope].trouble:
            what = f"{states[scope].path}: {states[scope].trouble}"
            yield problem(what, "fix it: the agent cannot read it either")
    if not installed:
        where = "neither for this project nor for the user" if only is None else _SCOPE_TEXT[only]
        what = f"no hooks of {agent.title} are installed, {where}"
        yield problem(what, f"switchgear hooks install {name}")
    if len(installed) > 1:
        twice = " and ".join(f"--scope {scope}" for scope in installed)
        what = f"{agent.title}: installed with {twice}: each call counts more than once"
        yield problem(what, f"switchgear hooks uninstall {name} --scope {installed[-1]}")
    for scope in installed:
        yield from _install_checks(agent, scope, states[scope])
        yield from _test_hooks(agent, scope, files[scope], folder)


def _install_checks(
    agent: HookSettings, scope: str, state: InstallState
) -> Iterator[DoctorFinding]:
    count = f"{len(state.events)} of {len(agent.events)} events"
    again = f"switchgear hooks install {agent.name} --scope {scope}"
    if state.missing_paths:
        yield problem(f"{state.path} needs {', '.join(state.missing_paths)}: gone", again)
    if state.missing:
        yield warning(f"{state.path} lacks {', '.join(state.missing)}", again)
    elif state.outdated:
        yield warning(f"{state.path} was written by another installation or version", again)
    else:
        yield good(f"{state.path} has {count}, {_SCOPE_TEXT[scope]}")
    if state.switched_off:
        what = f"{agent.title} runs no hooks: {state.switched_off}"
        yield problem(what, "change that setting")


def _test_hooks(
    agent: HookSettings, scope: str, file: HookFile, folder: str
) -> Iterator[DoctorFinding]:
    """Send events through the installed commands, and check that they arrive in the store."""
    try:
        known = config_of(folder)
        store: Any = open_store(known)
        began_s = store.now_s()
        commands = file.commands()
    except (Unconfigured, StoreError, CannotChange) as error:
        yield problem(str(error), "fix it; the hooks cannot decide without it")
        return
    # A new session each time: the same events again and again in one session would look stuck.
    probe = Probe(agent.name, f"doctor-{secrets.token_hex(3)}", folder, float(TIMEOUT_S))
    yield from _try_events(agent, probe, known, store, commands, began_s=began_s)
    for circuit in probe.circuits:
        try:
            store.forget(circuit)
        except (StoreError, AttributeError) as error:
            yield note(f"circuit {circuit!r} of the test could not be removed: {error}")
    yield from hook_trials(agent.name, commands.get(event_of(agent.name, BEFORE)), _source())
    yield from _trust(agent, scope, folder, set(commands.values()))


def _try_events(
    agent: HookSettings,
    probe: Probe,
    known: HookConfig,
    store: Store,
    commands: dict[str, str],
    *,
    began_s: float,
) -> Iterator[DoctorFinding]:
    for when in (BEFORE, AFTER):
        event = event_of(agent.name, when)
        command = commands.get(event)
        if command is None:
            continue  # missing, which was already reported
        answer = probe.send(command, when)
        if answer.trouble or answer.remark:
            what = f"{event}: {answer.trouble or answer.remark}"
            yield problem(what, f"run it by hand: {command}")
            return
        summary = f"{event} was sent through the command and answered: {answer.action}"
        if answer.action in {"deny", "stop"}:  # something else refuses this harmless call
            why = f"{summary}: {' '.join(answer.text.split())}"
            yield warning(why, "see 'switchgear status' and 'switchgear events'")
            continue
        yield good(summary)
    found = store.get(probe.circuit)
    if found is None or found.circuit.seen_s < began_s:
        what = f"the event did not arrive in the store {known.store}"
        yield problem(what, "see 'switchgear doctor'")
        return
    yield good(f"it arrived in {known.store}, as {probe.circuit!r}")
    yield from _try_refusal(agent, probe, known, store, commands.get(event_of(agent.name, BEFORE)))


def hook_trials(agent: str, command: str | None, config: str | None) -> Iterator[DoctorFinding]:
    """Send forbidden and ordinary calls through the command, in a temporary project, repeatedly.

    The project has its own store, so that the user's stays unchanged, and the configuration file
    `config`, so that the configured rules are tested.
    """
    if command is None or agent_process(agent, os.getpid()) is not None:
        return  # inside the agent, a refusal could interrupt the agent
    sent = 0
    for trial in tried(agent, command, config):
        if trial.wrong:
            what = f"{HOOKED[agent].title}: {trial.attack}: {trial.wrong}"
            yield problem(what, "see 'switchgear selftest --live --only live-hooks'")
            return
        sent += trial.sent
    what = "forbidden calls and unreadable input are refused, ordinary calls admitted"
    yield good(f"{HOOKED[agent].title}: {what} ({sent} hooks, cold and cached)")


def resident_process() -> Iterator[DoctorFinding]:
    """The process that answers the hooks of this user, or why there is none."""
    status, why, until_s = resident.status(), resident.obstacle(), time.monotonic() + 3.0
    while status is None and not why and resident.unresponsive() and time.monotonic() < until_s:
        time.sleep(0.05)  # it may be starting
        status = resident.status()
    if status is not None:
        sessions = f"{plural(len(status['sessions']), 'session')} watched"
        age = f"running for {elapsed(status['age_s'])}"
        what = f"resident process {status['pid']}, version {status['version']}, {age}, {sessions}"
        yield good(what)
    elif why:
        what = f"hooks decide without a resident process: {why}"
        yield note(what, "they are slower, and silent sessions are not watched")
    elif (pid := resident.unresponsive()) is not None:
        what = f"hooks decide without a resident process: process {pid} does not respond"
        yield note(what, "restart it: switchgear hooks restart")
    else:
        yield good("no resident process runs: the next hook starts it")


def installed_trials() -> Iterator[DoctorFinding]:
    """The trials of every agent whose hooks are installed here, and the resident process."""
    commands = installed_commands(os.getcwd())
    for agent, command in commands.items():
        yield from hook_trials(agent, command, _source())
    if commands:
        yield from resident_process()


def _source() -> str | None:
    """The configuration file in effect; an unreadable one is reported elsewhere."""
    try:
        return load_chosen_config().source
    except ConfigError:
        return None


def _try_refusal(
    agent: HookSettings, probe: Probe, known: HookConfig, store: Store, command: str | None
) -> Iterator[DoctorFinding]:
    """Hold the circuit of the probe open for a moment, and check that the answer is a refusal."""
    if command is None:
        return
    policy, by = known.policy_for(probe.circuit), "switchgear hooks doctor"

    def hold(mode: Mode) -> None:
        store.apply(probe.circuit, policy, Override(by, "a trial", mode), store.now_s())

    try:
        with open_session(acts=False) as session:
            session.panel.store.operator.demand(store, probe.circuit)
        hold(Mode.HELD_OPEN)
        try:
            answer = probe.send(command, BEFORE)
        finally:
            hold(Mode.AUTO)
    except OverrideRefused:
        yield note("refusals were not tested: this needs the operator token", "pass --token-file")
        return
    except StoreError as error:
        yield problem(str(error))
        return
    if answer.action in {"deny", "stop"}:
        yield good(f"refusals have the form that {agent.title} obeys: {answer.action}")
    else:
        what = f"a refusal was written as {answer.action or answer.trouble!r}"
        yield problem(what, "this is a defect of Switchgear; please report it")


def _trust(
    agent: HookSettings, scope: str, folder: str, commands: set[str]
) -> Iterator[DoctorFinding]:
    """Whether the agent will run what was installed."""
    program = shutil.which(agent.program)
    if agent.name != "codex" or program is None:
        if agent.trust and (scope == PROJECT or agent.name == "codex"):
            yield note(agent.trust)
        return
    trust = ask_codex(program, folder, commands, os.path.dirname(agent.file(USER, folder)))
    review = "start codex in this folder, type /hooks, and trust them"
    if not trust.asked:
        yield note(f"{agent.trust}; whether you did could not be determined", review)
    elif not trust.seen:
        what = "Codex ignores this project's hooks, because the project is not trusted"
        yield problem(what, "start codex here and trust the folder, or use --scope user")
    elif trust.trusted < trust.seen:
        what = f"Codex trusts {trust.trusted} of {trust.seen} hooks, and skips the others silently"
        yield problem(what, review)
    else:
        yield good(f"Codex trusts all {trust.seen} hooks")


@click.command()
@json_option
@token_option
@store_options
def doctor(*, as_json: bool) -> int:
    """Check the installation: exit code 0 no problems, 1 warnings, 2 problems.

    Checks Python, packages, configuration, token, store (present, writable, intact, private),
    pending notifications, clocks and terminal, and prints what to do.
    """
    return report(list(examine()), as_json=as_json)


def report(findings: list[DoctorFinding], *, as_json: bool) -> int:
    """Print the results. Returns the exit code: 0 no problems, 1 warnings, 2 problems."""
    counts = Counter(finding.level for finding in findings)
    code = 2 if counts[PROBLEM] else 1 if counts[WARNING] else 0
    if as_json:
        found = [finding._asdict() for finding in findings]
        say_json({"exit_code": code, "findings": found})
        return code
    screen = Screen()
    signs = screen.signs
    drawn = {
        GOOD: (signs.good, "green"),
        NOTE: (signs.dot, "dim"),
        WARNING: ("!", "yellow"),
        PROBLEM: (signs.bad, "bold red"),
    }
    width = len(signs.good)
    for finding in findings:
        sign, style = drawn[finding.level]
        line = Text.assemble((f"{sign:{width}}", style), f" {clean(finding.what, 1000)}")
        screen.line(line, width + 1)
        if finding.to_do:
            screen.line(
                Text(f"{'':{width}} {signs.arrow} {clean(finding.to_do)}", "dim"), width + 4
            )
    summary = f"{plural(counts[PROBLEM], 'problem')}, {plural(counts[WARNING], 'warning')}"
    screen.line()
    screen.line(summary if code else "no problems found")
    return code
