"""`switchgear config init|check|show|schema|token|seal` and `switchgear completion`."""

import os
import re
from typing import TYPE_CHECKING, Any

import click

from switchgear._cli.config_init import init
from switchgear._cli.entry import Branch, fail
from switchgear._cli.options import json_option, store_options, token_option
from switchgear._cli.views.text import clean, say

if TYPE_CHECKING:
    from switchgear._cli.context import Choice
    from switchgear._config import Config
    from switchgear._fleet.manifest import Agent, Story
    from switchgear._fleet.targets import Target

# What a verb needs is imported when it is used; paths are texts, as in the stores.
# ruff: noqa: PLC0415, PTH123

SHELLS = ("bash", "zsh", "fish")


@click.group(cls=Branch, short_help="Write, check or show the configuration.")
def config() -> None:
    """Write, check and show the configuration; make or change the operator token."""


config.add_command(init)


@config.command(short_help="Check the file, and list what it holds.")
@click.argument("file", required=False)
@json_option
@store_options
def check(file: str | None, *, as_json: bool) -> None:
    """Check FILE, or the configuration that holds here, and list what was found in it.

    Reports unset environment variables and keys of earlier versions. Exit code 0: valid; 2: every
    problem is printed with its line.
    """
    from switchgear._cli.config_summary import (
        as_values,
        say_notes,
        say_summary,
        summary,
        unset_variables,
    )
    from switchgear._cli.context import choose_store, chosen_config_file, effective, file_of
    from switchgear._config import ConfigError
    from switchgear._config.loader import load_with_notes
    from switchgear._text.redact import redact

    found = chosen_config_file()
    path = file or found.value
    if path is None:
        fail("there is no configuration file here; write one: switchgear config init")
    loaded, notes = load_with_notes(path)
    choice = choose_store(loaded)
    url = f"sqlite:///{file_of(choice)}" if choice.value is None else redact(choice.value)
    rows = summary(loaded, store=f"{url} ({choice.source})")
    unset = unset_variables(loaded)
    if as_json:
        from switchgear._cli.json_values import printed

        values = {"file": path, "from": "argument" if file else found.source, **as_values(rows)}
        say(printed({**values, "unset_variables": unset, "notes": [str(note) for note in notes]}))
        return
    say(clean(f"{path} is valid", 1000))
    say_summary(rows)
    say_notes(notes, unset)
    try:
        notices = () if file else effective().notices
    except ConfigError as error:
        notices = tuple(str(error).splitlines())
    for notice in notices:
        say(clean(f"but {notice}", 1000))


@config.command()
@json_option
@store_options
def show(*, as_json: bool) -> None:
    """Show what holds here and where it comes from; secrets are masked."""
    from switchgear._cli.context import choose_store, chosen_config_file, load_chosen_config
    from switchgear._cli.json_values import printed

    found = chosen_config_file()
    loaded = load_chosen_config()
    values = _effective(loaded, choose_store(loaded), found)
    if as_json:
        say(printed(values))
        return
    for key, entry in values.items():
        value = entry["value"]
        source = f"  # {entry['from']}"
        if isinstance(value, dict | list) and value:
            say(clean(f"{key}:{source}"))
            rows = value.items() if isinstance(value, dict) else enumerate(value, 1)
            for name, item in rows:
                say(clean(f"  {name}: {_compact(item)}", 2000))
        else:
            say(clean(f"{key}: {_compact(value)}{source}", 2000))


def _compact(value: Any) -> str:
    from switchgear._cli.json_values import printed

    return value if isinstance(value, str) else printed(value, indent=None)


def _effective(loaded: "Config", store: "Choice", found: "Choice") -> dict[str, dict[str, Any]]:
    from switchgear._cli.context import file_of
    from switchgear._config import DEFAULT
    from switchgear._detectors.policy_wire import dump_policy
    from switchgear._text.redact import redact

    source = loaded.source or "default"

    def of(value: Any, *, same: bool) -> dict[str, Any]:
        return {"value": value, "from": "default" if same else source}

    url = f"sqlite:///{file_of(store)}" if store.value is None else redact(store.value)
    digest = loaded.operator_token_sha256
    masked = "none: orders need no token" if digest is None else f"set ({digest[:6]}...)"
    retention = {
        "events": loaded.retention.events,
        "idle_days": loaded.retention.idle_s / 86_400,
    }
    return {
        "file": {"value": found.value, "from": found.source},
        "store": {"value": url, "from": store.source},
        "operator_token_sha256": of(masked, same=digest is None),
        "retention": of(retention, same=loaded.retention == DEFAULT.retention),
        "policies": of(
            {name: dump_policy(policy) for name, policy in loaded.policies.items()},
            same=not loaded.policies,
        ),
        "circuits": of(
            [{"match": rule.match, "policy": dump_policy(rule.policy)} for rule in loaded.circuits],
            same=not loaded.circuits,
        ),
        "sinks": of([redact(repr(sink)) for sink in loaded.sinks], same=not loaded.sinks),
        "rules": of([rule.name for rule in loaded.rules.rules], same=loaded.rules == DEFAULT.rules),
        "agents": of(
            {name: _agent(one) for name, one in loaded.crew.agents.items()},
            same=not loaded.crew.agents,
        ),
        "stories": of(
            {name: _story(one) for name, one in loaded.crew.stories.items()},
            same=not loaded.crew.stories,
        ),
        "notifications": of(
            [shown_target(one) for one in loaded.notifications],
            same=not loaded.notifications,
        ),
    }


def _agent(one: "Agent") -> dict[str, Any]:
    return {
        "owner": one.owner,
        "models": [str(model) for model in one.models],
        "fallback_chain": one.fallback_chain,
        "stories": one.stories,
    }


def shown_target(one: "Target") -> str:
    """A target, without the path of its URL: that is often the secret, and no pattern knows it."""
    from switchgear._text.redact import redact

    url = one.fields().get("url")
    shown = repr(one) if url is None else repr(one).replace(repr(url), repr(place_of_url(url)))
    return redact(shown)


def place_of_url(url: str) -> str:
    """The scheme and the host of a URL, and that there is more."""
    scheme, _, rest = url.partition("://")
    authority = re.split(r"[/?#\\]", rest, maxsplit=1)[0]
    return f"{scheme}://{authority.rpartition('@')[2]}/..."


def _story(one: "Story") -> dict[str, Any]:
    return {"owner": one.owner, "budget_micros": one.budget_micros}


@config.command()
def schema() -> None:
    """Print the JSON Schema of the configuration file, for editors."""
    from switchgear._cli.json_values import printed
    from switchgear._config import config_schema

    say(printed(config_schema()))


@config.command(short_help="Make a new operator token.")
@click.option("-o", "--output", metavar="FILE", help="Write the token there, for you alone.")
def token(output: str | None) -> None:
    """Make a new operator token, and the line for the configuration that asks for it.

    The token is for operators, the line for the file. Keep the token where no agent can read it.
    """
    import secrets
    from hashlib import sha256

    made = f"swg_{secrets.token_urlsafe(32)}"
    line = f'operator_token_sha256: "{sha256(made.encode()).hexdigest()}"'
    if output is None:
        say("The token, shown this once; orders take it by --token-file or SWITCHGEAR_TOKEN:")
        say(f"  {made}")
        say("The line for switchgear.yaml:")
        say(f"  {line}")
        return
    try:
        handle = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        fail(f"{output} is there already; a token is never overwritten")
    with open(handle, "w", encoding="ascii") as file:
        file.write(made + "\n")
    say(line)


@config.command(short_help="Change the operator token of the store.")
@click.option("--remove", is_flag=True, help="From now on orders need no token.")
@token_option
@store_options
def seal(*, remove: bool) -> None:
    """Make the store ask for the configured operator token from now on; needs the present one.

    A store remembers the first digest that it is used with, so that leaving it out of the
    configuration opens nothing. To change the token, put the new digest into the configuration,
    then run this with the old token.
    """
    from switchgear._cli.context import open_session

    with open_session() as session:
        wanted = session.config.operator_token_sha256
        if remove and wanted is not None:
            fail(f"take operator_token_sha256 out of {session.config.source} first")
        if not remove and wanted is None:
            fail("there is no operator_token_sha256 in the configuration; --remove asks for none")
        store = session.panel.store
        store.operator.change(store.inner, wanted)
        if store.inner.operator_digest() != wanted:
            fail("somebody else sealed the store at the same time; look, and try again")
        needed = "no token" if wanted is None else "the configured operator token"
        say(clean(f"{session.label}: orders need {needed} from now on"))


# click keeps the lines of a paragraph behind a real backspace, which a raw docstring cannot hold.
COMPLETION_HELP = """Print the completion script of a SHELL; circuit names complete from the store.

\b
bash: eval "$(switchgear completion bash)"      in ~/.bashrc
zsh:  eval "$(switchgear completion zsh)"       in ~/.zshrc
fish: switchgear completion fish | source       in ~/.config/fish/config.fish
"""


@click.command(help=COMPLETION_HELP, short_help="Completion for bash, zsh or fish.")
@click.argument("shell", type=click.Choice(SHELLS))
def completion(shell: str) -> None:
    """Print the completion script of a shell."""
    from click.shell_completion import get_completion_class

    made = get_completion_class(shell)
    root = click.get_current_context().find_root().command
    if made is None:
        fail(f"click knows no completion for {shell}")
    instance = made(root, {}, "switchgear", "_SWITCHGEAR_COMPLETE")
    say(instance.source_template % instance.source_vars())
