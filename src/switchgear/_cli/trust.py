"""`switchgear trust`: shows a project's configuration to the user, and puts it into effect."""

import os
import sys
import time
from collections.abc import Sequence
from typing import Any

import click

from switchgear._cli.context import open_session, say_result
from switchgear._cli.options import fail, json_option, token_option
from switchgear._cli.views.text import clean, say
from switchgear._config import load_config
from switchgear._config.loader import candidates, find_config, has_our_table
from switchgear._config.trust import (
    content,
    digest_of,
    is_own,
    key_path,
    may_read,
    record_of,
    records,
    show,
    trust_file,
)
from switchgear._config.trust import revoke as drop_trust
from switchgear._hooks.command import AGENTS
from switchgear._hooks.interrupt import agent_process
from switchgear._rules.builtin import BUILTIN
from switchgear._rules.rules import ALLOWED, Rule

# Paths are strings, as in the stores.
# ruff: noqa: PTH100, PTH111, PTH112

_AGENT_MARKS = (
    "CLAUDECODE",
    "GEMINI_CLI",
    "QWEN_CODE",
    "OPENCODE",
    "CODEX_SANDBOX",
    "SWITCHGEAR_ITERATION",
)
"""Variables that agents set for the commands that they run."""


@click.command()
@click.argument("path", required=False)
@click.option("--yes", is_flag=True, help="Do not prompt, as in CI.")
@click.option(
    "--allow-var",
    "variables",
    multiple=True,
    metavar="NAME",
    help="Also let the file read this environment variable. May be repeated.",
)
@click.option("--list", "listed", is_flag=True, help="List all trusted files.")
@click.option("--revoke", is_flag=True, help="Revoke the trust in the file.")
@token_option
@json_option
def trust(
    path: str | None,
    *,
    yes: bool,
    variables: tuple[str, ...],
    listed: bool,
    revoke: bool,
    as_json: bool,
) -> int | None:
    """Trust the configuration file PATH (a file or a folder; default: the one found here).

    A configuration that came with a project has no effect until you trust its content: it can name
    commands to run, servers to call and variables to read. The command shows them, then prompts. After
    a change, the content that you trusted stays in effect until you trust the new one. For CI:
    `--yes`, or SWITCHGEAR_TRUST=1 (or the file's SHA-256) for commands; hooks ignore that variable.

    Exit code 0 when the file is trusted, 1 when you declined.
    """
    if listed:
        _list(as_json=as_json)
        return None
    refuse_inside_an_agent("trust")
    file = _config_file(path, may_be_missing=revoke)
    _demand_operator(file)
    if revoke:
        was = "is no longer" if drop_trust(file) else "was not"
        say(clean(f"{file} {was} trusted", 1000))
        return None
    digest = show_file(file, variables)
    if not yes and not sys.stdin.isatty():
        fail("there is no terminal to prompt at: pass --yes to trust it")
    if not yes and not click.confirm("Trust this file?", default=False, err=True):
        say("nothing was changed: the file is not trusted")
        return 1
    trust_and_say(file, digest, variables)
    return None


def refuse_inside_an_agent(verb: str) -> None:
    """End the command if an agent runs it: a guarded agent must not change what guards it."""
    marked = next((name for name in _AGENT_MARKS if os.environ.get(name)), None)
    agent = next((name for name in AGENTS if agent_process(name) is not None), None)
    if marked or agent:
        where = agent or f"an agent ({marked} is set)"
        fail(f"{verb} was started inside {where}: run it in your own terminal")


def show_file(file: str, variables: tuple[str, ...] = ()) -> str:
    """Show what a configuration would run, call, write and read. Returns the digest of the file.

    Raises `ConfigError` for an invalid file.
    """
    data = content(file)
    if data is None:
        fail(f"{file}: it is not a readable file, or too large for a configuration")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        fail(f"{file}: it is not UTF-8 text")
    shown = show(file, text)
    record = record_of(file)
    allowed = (*variables, *(() if record is None else record.variables))
    say(clean(f"{file}", 1000))
    digest = digest_of(file, data)
    say(f"  sha256     {digest}")
    say(clean(f"  sections   {', '.join(shown.sections) or 'none'}", 1000))
    reads = [
        name if may_read(name, allowed) else f"{name} (not allowed)" for name in shown.variables
    ]
    for title, rows in (
        ("runs", shown.commands),
        ("calls", shown.targets),
        ("writes", shown.files),
        ("reads", (*(f"${{{row}}}" if " " not in row else row for row in reads), *shown.named)),
    ):
        for number, row in enumerate(rows or ("nothing",)):
            say(clean(f"  {title if not number else '':10} {row}", 1000))
    config = load_config(file, text=text, may_read=lambda name: may_read(name, allowed))
    for number, row in enumerate(_weakened_rules(config.rules.rules)):
        say(clean(f"  {'weakens' if not number else '':10} {row}", 1000))
    return digest


def _weakened_rules(rules: Sequence[Rule]) -> list[str]:
    """How a configuration weakens the built-in rules: disabled groups and exemptions."""
    configured = {rule.name: rule for rule in rules}
    rows: list[str] = []
    for group, built_in in BUILTIN.items():
        if any(rule.name not in configured for rule in built_in):
            rows.append(f"the built-in rules {group!r} are off")
            continue
        for name in ALLOWED:
            key = f"allow_{name}"
            added = {
                pattern: None
                for rule in built_in
                for pattern in getattr(configured[rule.name], key)
                if pattern not in getattr(rule, key)
            }
            if added:
                rows.append(f"the built-in rules {group!r} exempt {name}: {', '.join(added)}")
    return rows


def trust_and_say(file: str, digest: str, variables: tuple[str, ...] = ()) -> None:
    record = trust_file(file, variables=variables, expected=digest)
    say(clean(f"trusted: {record.path} is in effect, for hooks and commands", 1000))


def _config_file(path: str | None, *, may_be_missing: bool) -> str:
    """The configuration file that PATH names, or that of the folder, or the one found here."""
    if path is None:
        trusted = next(filter(record_of, candidates()), None) if may_be_missing else None
        found = trusted or find_config()
    elif os.path.isdir(path):
        found = next(filter(has_our_table, candidates(path)[:4]), None)
    else:
        found = os.path.abspath(os.path.expanduser(path))
    if found is None:
        fail("there is no configuration file here; name one, or write a switchgear.yaml")
    found = key_path(found)
    if not may_be_missing and not os.path.lexists(found):
        fail(f"there is no file {found}")
    if is_own(found):
        fail(f"{found} is your own configuration, not a project's: it is in effect already")
    return found


def _demand_operator(file: str) -> None:
    """Require the operator token if the trusted configuration has one."""
    if record_of(file) is None:
        return  # no configuration of this project is in effect, so none requires a token
    with open_session(reading=True) as session:
        session.demand_operator("trust", f"another configuration than the trusted {file}")


def _list(*, as_json: bool) -> None:
    rows: list[dict[str, Any]] = []
    for each in records():
        data, state = content(each.path), "gone"
        if data is not None:
            is_same = digest_of(each.path, data) == each.digest
            state = "as trusted" if is_same else "changed"
        row = {"path": each.path, "sha256": each.digest, "state": state}
        rows.append({**row, "variables": each.variables, "trusted_at_s": each.at_s})
    lines = map(_trusted_line, rows) if rows else ["No files are trusted."]
    say_result(rows, lines, as_json=as_json, longest=1000)


def _trusted_line(row: dict[str, Any]) -> str:
    when = time.strftime("%Y-%m-%d %H:%M", time.localtime(row["trusted_at_s"]))
    return f"{row['path']}  {row['state']}  {row['sha256'][:12]}  {when}"
