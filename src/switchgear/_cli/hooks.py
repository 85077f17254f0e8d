"""`switchgear hooks install|uninstall|status|doctor|restart`: guards an agent through its hooks."""

import difflib
import os
from collections.abc import Iterable
from functools import partial
from time import monotonic, sleep
from typing import Any

import click

from switchgear._agents.hook_protocol import PROJECT, SCOPES, USER
from switchgear._cli.context import open_session, say_result
from switchgear._cli.doctor import examine_hooks, note, report, resident_process
from switchgear._cli.options import Branch, fail, json_option, store_options, token_option
from switchgear._cli.trust import refuse_inside_an_agent, show_file, trust_and_say
from switchgear._cli.views.terminal import column_widths, table_line
from switchgear._cli.views.text import clean, plural, say, signs_for, warn
from switchgear._config import ConfigError
from switchgear._config.loader import candidates, has_our_table
from switchgear._config.trust import NotTrusted, content, digest_of, is_own, record_of
from switchgear._hooks import resident
from switchgear._hooks.command import AGENTS
from switchgear._hooks.install.saved_copies import forget, is_saved, save
from switchgear._hooks.install.settings import (
    ALIASES,
    HOOKED,
    HookFile,
    InstallChange,
    InstallState,
    hook_file,
    scopes_of,
)

# Paths are strings, as in the stores.
# ruff: noqa: PTH109, PTH111


def _agent_name(_ctx: click.Context, _parameter: click.Parameter, value: str | None) -> str | None:
    """The agent of this name or alias. Raises BadParameter for an agent without hooks."""
    name = "-".join((value or "").lower().split())
    agent = ALIASES.get(name, name)
    if value is None or agent in AGENTS:
        return agent or None
    near = difflib.get_close_matches(name, [*AGENTS, *ALIASES], n=1, cutoff=0.6)
    hint = f"did you mean {ALIASES.get(near[0], near[0])!r}? " if near else ""
    raise click.BadParameter(
        f"there are no hooks for {value!r}; {hint}AGENT is one of {', '.join(AGENTS)}"
    )


def _complete_agent(_ctx: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    return [name for name in AGENTS if name.startswith(incomplete)]


_agent = partial(click.argument, "agent", callback=_agent_name, shell_complete=_complete_agent)
agent_argument = _agent(metavar="AGENT")
any_agent_argument = _agent(metavar="[AGENT]", required=False)
scope_option = click.option(
    "--scope",
    type=click.Choice(SCOPES),
    default=PROJECT,
    help="project: shared settings of this folder; local: this checkout only, not in version"
    " control (Claude Code); user: all your projects.",
)

only_option = click.option(
    "--scope", type=click.Choice(SCOPES), help="Only this scope. [default: all]"
)


@click.group(cls=Branch)
def hooks() -> None:
    """Guard an agent with its hooks: check circuits before each tool call, record the result after.

    AGENT is claude-code, codex, gemini, qwen, opencode or pi.
    """


@hooks.command(short_help="Install the hooks in an agent's settings.")
@agent_argument
@scope_option
def install(agent: str, scope: str) -> None:
    """Install the hooks of AGENT in its settings, or its plugin in its folder.

    Every other byte of the settings stays unchanged, and a copy is kept. Idempotent. Invalid
    settings are not changed. Shows the project's configuration file and trusts it (see 'switchgear
    trust').
    """
    if scope not in HOOKED[agent].scopes:
        known = " or ".join(f"--scope {each}" for each in HOOKED[agent].scopes)
        fail(f"{HOOKED[agent].title} has no {scope} settings; use {known}")
    if scope not in _scopes(agent):
        path = _short_path(HOOKED[agent].file(scope, os.getcwd()))
        fail(f"in this folder {path} applies to all your projects: confirm it with --scope user")
    for other in _scopes(agent):
        found = None if other == scope else _hook_file(agent, other).state()
        if found is not None and found.installed:
            fail(
                f"the hooks of {HOOKED[agent].title} are already installed in scope {other}, in "
                f"{_short_path(found.path)}; both would count every call twice; "
                f"'switchgear hooks uninstall {agent} --scope {other}' removes those"
            )
    if scope != USER:
        _trust_project_file()
    change = _hook_file(agent, scope).install()
    _save(agent, scope)
    _say_installed(agent, scope, change)


@hooks.command(short_help="Remove the hooks from an agent's settings.")
@agent_argument
@scope_option
@token_option
@store_options
def uninstall(agent: str, scope: str) -> None:
    """Remove the hooks of AGENT from its settings, or its plugin from its folder.

    If nothing else has changed since the installation, the file is restored exactly; otherwise only
    the entries of Switchgear are removed. Needs the operator token where one is configured, so that
    an agent cannot remove its own guard.
    """
    file = _hook_file(agent, scope)
    if file.state().installed or is_saved(agent, scope, os.getcwd()):
        with open_session(reading=True) as session:
            session.demand_operator(agent, f"removing the hooks of {HOOKED[agent].title}")
    forget(
        agent, scope, os.getcwd()
    )  # first: a concurrent hook would restore the file from the copy
    try:
        change = file.uninstall()
    except BaseException:
        _save(agent, scope)
        raise
    forget(agent, scope, os.getcwd())  # a hook may have saved a copy in the meantime
    title, path = HOOKED[agent].title, _short_path(change.path)
    if not change.changed:
        say(clean(f"{title}: there are no hooks of Switchgear in {path}"))
        for other in _scopes(agent):
            if other != scope and _hook_file(agent, other).state().installed:
                again = f"switchgear hooks uninstall {agent} --scope {other}"
                say(f"  They are installed with --scope {other}: '{again}' removes them.")
        return
    done = f"the hooks were removed from {path}; everything else in it is unchanged"
    if change.removed:
        done = f"{path} was removed; it contained only the hooks"
    say(clean(f"{title}: {done}"))
    say(clean(f"  backup   {_short_path(change.backup or '')}"))
    say("  An agent that is running now keeps its hooks until it is restarted.")


@hooks.command(short_help="Show which hooks are installed where.")
@any_agent_argument
@only_option
@json_option
def status(agent: str | None, scope: str | None, *, as_json: bool) -> int:
    """Show the installed hooks of AGENT, or of all agents, and their location.

    Exit code 0; 1 if AGENT is not installed, or an installation needs attention.
    """
    chosen = AGENTS if agent is None else (agent,)
    found = [
        (name, each, _hook_file(name, each).state())
        for name in chosen
        for each in _scopes(name)
        if scope in {None, each}
    ]
    installed = [entry for entry in found if entry[2].installed]
    has_problems = any(_problems(state) for _, _, state in found if _matters(state))
    values = [_describe_state(*entry) for entry in found]
    say_result(values, _status_lines(found), as_json=as_json, longest=1000)
    return 1 if has_problems or (agent is not None and not installed) else 0


@hooks.command(short_help="Test the installed hooks by sending an event.")
@any_agent_argument
@only_option
@json_option
@token_option
def doctor(agent: str | None, scope: str | None, *, as_json: bool) -> int:
    """Test the hooks of AGENT, or of all installed agents. Exit code 1: warnings, 2: problems.

    Reads the command from the agent's settings, runs it as the agent would, checks the event in
    the store and the response in the agent's format, and reports what is missing.
    """
    findings = [
        finding
        for name in (AGENTS if agent is None else (agent,))
        for finding in examine_hooks(name, scope, requested=agent is not None)
    ]
    if findings:
        findings += resident_process()
    else:
        findings = [note("no hooks are installed here", "switchgear hooks install AGENT")]
    return report(findings, as_json=as_json)


@hooks.command(short_help="Restart the process that answers hooks.")
def restart() -> int:
    """Restart the resident process, which answers the hooks of all your agents.

    Events in progress are not affected. The process also restarts automatically when another
    version is installed. Exit code 0; 1 if no resident process can run here.
    """
    resident.stop()
    why = resident.obstacle()
    found = None
    until_s, start_s = monotonic() + 10.0, 0.0
    while not why and found is None and monotonic() < until_s:
        if monotonic() >= start_s:
            resident.start()
            start_s = monotonic() + 3.0
        sleep(0.05)
        found = resident.status()
    if found is None:
        say(clean(f"no resident process: {why or 'it did not start within 10 s'}", 500), err=True)
        return 1
    say(f"resident process {found['pid']}, version {found['version']}")
    return 0


def _save(agent: str, scope: str) -> None:
    """Save a copy from which hooks restore the file. A failure is only a warning."""
    try:
        save(agent, scope, os.getcwd())
    except OSError as error:
        why = error.strerror or str(error)
        warn(f"no copy could be saved ({why}): changes will not be repaired")


def _trust_project_file() -> None:
    """Show and trust the configuration of this project, so that its rules take effect.

    An invalid configuration stays untrusted, with a warning.
    """
    file = next(filter(has_our_table, candidates()), None)
    if file is None or is_own(file):
        return
    data, record = content(file), record_of(file)
    if data is not None and record is not None and record.digest == digest_of(file, data):
        return
    refuse_inside_an_agent("hooks install")
    try:
        trust_and_say(file, show_file(file))
    except (ConfigError, NotTrusted) as error:
        for line in str(error).splitlines():
            warn(line)
        warn("the configuration is not trusted and has no effect")


def _scopes(agent: str) -> tuple[str, ...]:
    return scopes_of(agent, os.getcwd())


def _hook_file(agent: str, scope: str) -> HookFile:
    return hook_file(agent, scope, os.getcwd())


def _say_installed(agent: str, scope: str, change: InstallChange) -> None:
    hooked, state = HOOKED[agent], _hook_file(agent, scope).state()
    what = "installed" if change.changed else "installed already"
    kind = "the plugin is" if hooked.is_plugin else "the hooks are"
    say(clean(f"{hooked.title}: {kind} {what} in {_short_path(change.path)}"))
    say(clean(f"  events   {', '.join(state.events)}", 500))
    say(clean(f"  command  {' '.join(state.commands)}", 1000))
    if change.backup:
        say(clean(f"  backup   {_short_path(change.backup)}"))
    if hooked.trust and (scope == PROJECT or agent == "codex"):
        say(clean(f"  Note: {hooked.trust}."))
    say("  Restart an agent that is running now: it reads its hooks when it starts.")
    say(f"  'switchgear hooks doctor {agent}' tests them.")


def _status_lines(found: Iterable[tuple[str, str, InstallState]]) -> list[str]:
    rows = [
        (name, scope, _short_path(state.path), ", ".join(_facts(state)))
        for name, scope, state in found
    ]
    widths, signs = column_widths(rows), signs_for()
    return [table_line(row, widths, signs) for row in rows]


def _facts(state: InstallState) -> list[str]:
    if state.trouble:
        return [f"cannot be read: {state.trouble}"]
    if not state.installed:
        return ["not installed"]
    return [plural(len(state.events), "event"), *(_problems(state) or ["current"])]


def _matters(state: InstallState) -> bool:
    return state.installed or bool(state.trouble)


def _problems(state: InstallState) -> list[str]:
    """Why an installation does not work, or differs from what this version would install."""
    problems = [state.trouble] if state.trouble else []
    if state.missing_paths:
        problems.append(f"gone: {', '.join(state.missing_paths)}")
    if state.missing and state.installed:
        problems.append(f"missing: {', '.join(state.missing)}")
    if state.outdated:
        problems.append("outdated: install again")
    if state.switched_off:
        problems.append(f"switched off: {state.switched_off}")
    return problems


def _describe_state(name: str, scope: str, state: InstallState) -> dict[str, Any]:
    return {
        "agent": name,
        "scope": scope,
        "file": state.path,
        "installed": state.installed,
        "current": state.installed and not _problems(state),
        "events": state.events,
        "commands": state.commands,
        "worries": _problems(state) if _matters(state) else [],
    }


def _short_path(path: str) -> str:
    """The path relative to the current folder or to the home folder, if it is below one of them."""
    here, home = os.getcwd(), os.path.expanduser("~")
    for folder, sign in ((here, "."), (home, "~")):
        if path.startswith(folder + os.sep):
            return sign + path[len(folder) :]
    return path
