"""What `switchgear hooks doctor` looks at: an event is sent through the wiring, and must arrive."""

import os
import secrets
import shutil
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from switchgear._agents.codex.hook_trust import ask_codex
from switchgear._cli.context import load_chosen_config, open_session
from switchgear._cli.doctor_checks import GOOD, NOTE, PROBLEM, WARNING, Finding
from switchgear._config import ConfigError
from switchgear._core.errors import OverrideRefused, StoreError
from switchgear._core.types import Mode, Override
from switchgear._hooks.compiled import Compiled, Unconfigured, compiled
from switchgear._hooks.install.agents import HOOKED, PROJECT, TIMEOUT_S, USER, HookSettings
from switchgear._hooks.install.files import CannotChange
from switchgear._hooks.install.outcome import Place, Standing
from switchgear._hooks.install.place import place, scopes_of
from switchgear._hooks.install.probe import AFTER, BEFORE, Probe, event_of
from switchgear._hooks.interrupt import agent_process
from switchgear._hooks.process import open_store

if TYPE_CHECKING:
    from switchgear._stores.base import Store

# ruff: noqa: PTH109, PTH120  paths are texts, as in the stores


_FOR = {
    "project": "for the project",
    "local": "for the project, on this machine only",
    "user": "for the user",
}
"""What a scope covers, in words."""


def examine(name: str, only: str | None, *, wanted: bool) -> Iterator[Finding]:
    """Everything about one agent, in one scope or both; `wanted`: somebody asked for it by name."""
    agent, folder = HOOKED[name], os.getcwd()
    scopes = [scope for scope in scopes_of(name, folder) if only in {None, scope}]
    places = {scope: place(name, scope, folder) for scope in scopes}
    standings = {scope: there.look() for scope, there in places.items()}
    installed = [scope for scope in scopes if standings[scope].installed]
    if not wanted and not installed:
        return
    yield from _program(agent)
    for scope in scopes:
        if standings[scope].trouble:
            what = f"{standings[scope].path}: {standings[scope].trouble}"
            yield Finding(PROBLEM, what, "mend it: the agent cannot read it either")
    if not installed:
        where = "neither for this project nor for the user" if only is None else _FOR[only]
        what = f"no hooks of {agent.title} are installed, {where}"
        yield Finding(PROBLEM, what, f"switchgear hooks install {name}")
    if len(installed) > 1:
        twice = " and ".join(f"--scope {scope}" for scope in installed)
        what = f"{agent.title}: installed with {twice}: each call counts more than once"
        yield Finding(PROBLEM, what, f"switchgear hooks uninstall {name} --scope {installed[-1]}")
    for scope in installed:
        yield from _standing(agent, scope, standings[scope])
        yield from _proved(agent, scope, places[scope], folder)


def _program(agent: HookSettings) -> Iterator[Finding]:
    found = shutil.which(agent.program)
    if found is None:
        what = f"{agent.program} is not on the PATH here"
        yield Finding(NOTE, what, f"the hooks wait until {agent.title} is started elsewhere")
    else:
        yield Finding(GOOD, f"{agent.title} is {found}")


def _standing(agent: HookSettings, scope: str, standing: Standing) -> Iterator[Finding]:
    count = f"{len(standing.events)} of {len(agent.events)} events"
    again = f"switchgear hooks install {agent.name} --scope {scope}"
    if standing.gone:
        yield Finding(PROBLEM, f"{standing.path} needs {', '.join(standing.gone)}: gone", again)
    if standing.missing:
        what = f"{standing.path} lacks {', '.join(standing.missing)}"
        yield Finding(WARNING, what, again)
    elif standing.outdated:
        yield Finding(WARNING, f"{standing.path} is of another installation or version", again)
    else:
        yield Finding(GOOD, f"{standing.path} has {count}, {_FOR[scope]}")
    if standing.switched_off:
        what = f"{agent.title} runs no hooks: {standing.switched_off}"
        yield Finding(PROBLEM, what, "change that setting")


def _proved(agent: HookSettings, scope: str, there: Place, folder: str) -> Iterator[Finding]:
    """Send events through the commands that the file holds, and look for them."""
    try:
        known = compiled(folder)
        store = open_store(known)
        began_s = store.now_s()
        commands = there.commands()
    except (Unconfigured, StoreError, CannotChange) as error:
        yield Finding(PROBLEM, str(error), "mend it; the hooks cannot decide without it")
        return
    # A new session each time: one that is examined again and again would look stuck.
    probe = Probe(agent.name, f"doctor-{secrets.token_hex(3)}", folder, float(TIMEOUT_S))
    yield from _tried(agent, probe, known, store, commands, began_s=began_s)
    yield from _removed(probe, store)
    yield from hook_trials(agent.name, commands.get(event_of(agent.name, BEFORE)), _source())
    yield from _trust(agent, scope, folder, set(commands.values()))


def _tried(
    agent: HookSettings,
    probe: Probe,
    known: Compiled,
    store: "Store",
    commands: dict[str, str],
    *,
    began_s: float,
) -> Iterator[Finding]:
    for when in (BEFORE, AFTER):
        command = commands.get(event_of(agent.name, when))
        if command is None:
            continue  # told already: it is missing
        answer = probe.send(command, when)
        event = event_of(agent.name, when)
        if answer.trouble or answer.remark:
            what = f"{event}: {answer.trouble or answer.remark}"
            yield Finding(PROBLEM, what, f"run it by hand: {command}")
            return
        said = f"{event} was sent through the command and answered: {answer.action}"
        if answer.action in {"deny", "stop"}:  # a call that does nothing: something else is wrong
            why = f"{said}: {' '.join(answer.text.split())}"
            yield Finding(WARNING, why, "see 'switchgear status' and 'switchgear events'")
            continue
        yield Finding(GOOD, said)
    found = store.get(probe.circuit)
    if found is None or found.circuit.seen_s < began_s:
        what = f"the event did not arrive in the store {known.store}"
        yield Finding(PROBLEM, what, "see 'switchgear doctor'")
        return
    yield Finding(GOOD, f"it arrived in {known.store}, as {probe.circuit!r}")
    yield from _refused(agent, probe, known, store, commands.get(event_of(agent.name, BEFORE)))


def hook_trials(agent: str, command: str | None, config: str | None) -> Iterator[Finding]:
    """Send forbidden and ordinary calls through the command, in a throw-away project, repeatedly.

    The project has a store of its own and the configuration file `config`, so that nothing of the
    user's is touched and everything that is configured is exercised.
    """
    from switchgear._analysis.selftest.hook_trials import tried  # noqa: PLC0415  only here

    if command is None or agent_process(agent, os.getpid()) is not None:
        return  # inside the agent, a refusal could interrupt it
    number = 0
    for found in tried(agent, command, config):
        if found.wrong:
            what = f"{HOOKED[agent].title}: {found.attack}: {found.wrong}"
            yield Finding(PROBLEM, what, "see 'switchgear selftest --live --only live-hooks'")
            return
        number += found.sent
    what = "forbidden calls and unreadable input are refused, ordinary calls admitted"
    yield Finding(GOOD, f"{HOOKED[agent].title}: {what} ({number} hooks, cold and cached)")


def resident_process() -> Iterator[Finding]:
    """The process that answers the hooks of this user, or why there is none."""
    from switchgear._hooks import resident  # noqa: PLC0415  only here

    found = resident.status()
    if found is not None:
        sessions = f"{len(found['sessions'])} sessions watched"
        age = f"running for {found['age_s']:.0f} s"
        what = f"resident process {found['pid']}, version {found['version']}, {age}, {sessions}"
        yield Finding(GOOD, what)
        return
    why = resident.obstacle()
    if why:
        what = f"hooks decide without a resident process: {why}"
        yield Finding(NOTE, what, "they are slower, and silent sessions are not watched")
    else:
        yield Finding(GOOD, "no resident process runs: the next hook starts it")


def installed_trials() -> Iterator[Finding]:
    """The same for every agent whose hooks are installed here."""
    from switchgear._analysis.selftest.hook_trials import installed_commands  # noqa: PLC0415  only here

    commands = installed_commands(os.getcwd())
    for agent, command in commands.items():
        yield from hook_trials(agent, command, _source())
    if commands:
        yield from resident_process()


def _source() -> str | None:
    """The configuration file that holds here; one that cannot be read is told of elsewhere."""
    try:
        return load_chosen_config().source
    except ConfigError:
        return None


def _removed(probe: Probe, store: Any) -> Iterator[Finding]:
    """Remove the circuit of the trial, or report why that failed."""
    try:
        store.forget(probe.circuit)
    except (StoreError, AttributeError) as error:
        yield Finding(NOTE, f"circuit {probe.circuit!r} of the trial could not be removed: {error}")


def _refused(
    agent: HookSettings, probe: Probe, known: Compiled, store: "Store", command: str | None
) -> Iterator[Finding]:
    """Hold the circuit of the probe open for a moment: the answer must be a refusal."""
    if command is None:
        return
    policy, by = known.policy_for(probe.circuit), "switchgear hooks doctor"

    def order(mode: Mode) -> None:
        store.apply(probe.circuit, policy, Override(by, "a trial", mode), store.now_s())

    try:
        with open_session(acts=False) as session:
            session.panel.store.operator.demand(store, probe.circuit)
        order(Mode.HELD_OPEN)
        try:
            answer = probe.send(command, BEFORE)
        finally:
            order(Mode.AUTO)
    except OverrideRefused:
        what = "that a refusal is understood was not tried: it takes the operator token"
        yield Finding(NOTE, what, "pass --token-file")
        return
    except StoreError as error:
        yield Finding(PROBLEM, str(error))
        return
    if answer.action in {"deny", "stop"}:
        yield Finding(GOOD, f"a refusal is written as {agent.title} obeys it: {answer.action}")
    else:
        what = f"a refusal came out as {answer.action or answer.trouble!r}"
        yield Finding(PROBLEM, what, "this is a defect of Switchgear; please report it")


def _trust(agent: HookSettings, scope: str, folder: str, commands: set[str]) -> Iterator[Finding]:
    """Whether the agent will run what was installed."""
    program = shutil.which(agent.program)
    if agent.name != "codex" or program is None:
        if agent.trust and (scope == PROJECT or agent.name == "codex"):
            yield Finding(NOTE, agent.trust)
        return
    told = ask_codex(program, folder, commands, os.path.dirname(agent.file(USER, folder)))
    review = "start codex in this folder, type /hooks, and trust them"
    if not told.asked:
        yield Finding(NOTE, f"{agent.trust}; whether you have could not be asked", review)
    elif not told.seen:
        what = "Codex does not look at this project's hooks: it does not trust the project"
        yield Finding(PROBLEM, what, "start codex here and trust the folder, or use --scope user")
    elif told.trusted < told.seen:
        what = f"Codex trusts {told.trusted} of {told.seen} hooks, and skips the others silently"
        yield Finding(PROBLEM, what, review)
    else:
        yield Finding(GOOD, f"Codex trusts all {told.seen} hooks")
