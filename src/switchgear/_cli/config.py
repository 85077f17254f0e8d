"""`switchgear config init|check|show|schema|token|seal` and `switchgear completion`."""

import json
import os
import re
import secrets
import sys
from collections.abc import Callable, Sequence
from hashlib import sha256
from importlib.resources import files
from tempfile import NamedTemporaryFile
from typing import Any, NamedTuple

import click
from click.shell_completion import get_completion_class

from switchgear._cli.context import (
    StoreChoice,
    choose_store,
    chosen_config_file,
    effective,
    file_of,
    load_chosen_config,
    open_session,
    say_json,
)
from switchgear._cli.options import Branch, fail, reader_options, store_options, token_option
from switchgear._cli.views.text import clean, plural, say
from switchgear._config import DEFAULT, Config, ConfigError, config_schema, load_config
from switchgear._config.loader import load_with_notes
from switchgear._config.trust import is_own, trust_file, variables_in
from switchgear._console.values import printed
from switchgear._detectors.policy_wire import dump_policy
from switchgear._fleet.categories import shown_name
from switchgear._fleet.delivery import target_from_text
from switchgear._fleet.manifest import FleetAgent
from switchgear._fleet.targets import Target
from switchgear._rules.builtin import builtin_rules
from switchgear._sinks import SINKS
from switchgear._stores.url import STORE_URLS
from switchgear._system.login import login_name
from switchgear._text.formats import dollars
from switchgear._text.redact import redact

# Paths are strings, as in the stores.
# ruff: noqa: PTH100, PTH111, PTH112, PTH120, PTH123

MOST_ITEMS = 20
"""Items shown of a section; the others are counted."""


class SummaryRow(NamedTuple):
    """One section of a configuration."""

    title: str
    entries: int
    items: list[str]


def summary(config: Config, *, store: str) -> list[SummaryRow]:
    """The content of the configuration by section; empty sections are left out."""
    crew, opinion = config.crew, config.second_opinion
    providers = sorted({model.provider for agent in crew.agents.values() for model in agent.models})
    builtin = {rule.name for rule in builtin_rules()}
    own = [rule.name for rule in config.rules.rules if rule.name not in builtin]
    rule_count = len(config.rules.rules)
    sections = {
        "store": [store],
        "agents": [_agent_line(agent) for agent in crew.agents.values()],
        "providers": providers,
        "stories": [
            _amount(f"{story.name} ({story.owner})", story.budget_micros)
            for story in crew.stories.values()
        ],
        "breakers": _breakers(config),
        "policies": list(config.policies),
        "circuits": [rule.match for rule in config.circuits],
        "loops": list(config.loop_presets),
        "rules": [f"{rule_count - len(own)} built-in", *own],
        "sinks": [
            f"{kind} {' '.join(fields.values())}"
            for sink in config.sinks
            for kind, fields in shown_sink(sink).items()
        ],
        "targets": [_target_line(target) for target in config.notifications],
        "budgets": [
            _amount(budget.node, budget.limit_micros, " no limit") for budget in config.budgets
        ],
        "opinion": [] if opinion is None else [opinion.model or opinion.command or ""],
        "upstreams": [] if config.proxy is None else list(config.proxy.upstreams),
    }
    rows = [
        SummaryRow(title, rule_count if title == "rules" else len(items), items)
        for title, items in sections.items()
    ]
    return [row for row in rows if row.entries]


def unset_variables(config: Config) -> list[str]:
    """The environment variables that the file names but that are not set here, each with what needs it."""
    named = [
        (target.fields().get(key), f"target {target.name!r}")
        for target in config.notifications
        for key in ("secret_env", "url_env")
    ]
    opinion, proxy = config.second_opinion, config.proxy
    if opinion is not None and opinion.model is not None:
        named.append((opinion.key_variable, "the second opinion"))
    for name, choice in () if proxy is None else proxy.upstreams.items():
        named.append((choice.key_env, f"upstream {name!r} of the proxy"))
    return [
        f"{name}, which {what} needs" for name, what in named if name and not os.environ.get(name)
    ]


def say_summary(rows: list[SummaryRow]) -> None:
    width = max(len(row.title) for row in rows)
    for row in rows:
        more = len(row.items) - MOST_ITEMS
        shown = row.items[:MOST_ITEMS] + ([f"and {more} more"] if more > 0 else [])
        count = "" if row.title == "store" else f"{row.entries}: "
        say(clean(f"  {row.title.ljust(width)}  {count}{'; '.join(shown)}", 4000))


def as_values(rows: list[SummaryRow]) -> dict[str, Any]:
    return {row.title: {"count": row.entries, "items": row.items} for row in rows}


def _agent_line(agent: FleetAgent) -> str:
    models = ", then ".join(map(str, agent.models))
    chain = f", then agent {', '.join(agent.fallback_chain)}" if agent.fallback_chain else ""
    return f"{agent.name} ({agent.owner}) on {models}{chain}"


def _breakers(config: Config) -> list[str]:
    if config.breakers is None:
        return []
    breakers = config.breakers._asdict().items()
    return [shown_name(name) + ("" if each.enabled else " (off)") for name, each in breakers]


def _target_line(target: Target) -> str:
    """A notification target, without its secrets."""
    fields = shown_target(target)[target.kind]
    where = fields.get("url") or fields.get("url_env") or fields.get("run") or ""
    signed = f", signed with {fields['secret_env']}" if fields.get("secret_env") else ""
    about = "" if target.match == "*" else f", for {target.match}"
    return redact(f"{target.name}: {target.kind} {where}".rstrip() + signed + about)


def _amount(what: str, micros: int | None, unlimited: str = "") -> str:
    return f"{what}{unlimited if micros is None else f' {dollars(micros)}'}"


def say_notes(notes: Sequence[object], unset: list[str]) -> None:
    """Print unset variables and keys of earlier versions, with which the file is valid."""
    for variable in unset:
        say(clean(f"  not set: {variable}", 1000))
    for note in notes:
        say(clean(f"  note: {note}", 1000))
    if notes:
        say(f"  {plural(len(notes), 'key')} of earlier versions: accepted, no action is needed")


DEFAULT_NAME = "switchgear.yaml"
DEFAULT_STORE = ".switchgear/state.db"
NONE = "none"


class InitAnswers(NamedTuple):
    """The content of the new file."""

    agents: dict[str, list[str]]
    """The models of each agent, as `provider/model`, the primary model first."""
    owner: str
    targets: list[str]
    """In the form of `--notify`."""
    store: str
    budgets: dict[str, float]


@click.command("init", short_help="Write a commented configuration file.")
@click.option(
    "--agent",
    "agents",
    multiple=True,
    metavar="NAME=MODEL[,MODEL…]",
    help="An agent and its models, as provider/model; all but the first are fallbacks, in order.",
)
@click.option(
    "--owner", metavar="NAME", help="Person to notify about the agents [default: login name]."
)
@click.option(
    "--notify",
    multiple=True,
    metavar="TARGET",
    help="desktop, a webhook URL, slack:VARIABLE or command:PROGRAM.",
)
@click.option("--budget", "budgets", multiple=True, metavar="NODE=DOLLARS", help="A budget.")
@click.option(
    "--store", "url", metavar="URL", help="Where state is kept [default: .switchgear/state.db]."
)
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    default=DEFAULT_NAME,
    help="The file to write. An existing file is never overwritten.",
)
@click.option("-y", "--yes", is_flag=True, help="Do not prompt; use the options and the defaults.")
def init(  # noqa: PLR0917  click passes them by name
    agents: tuple[str, ...],
    owner: str | None,
    notify: tuple[str, ...],
    budgets: tuple[str, ...],
    url: str | None,
    output: str,
    *,
    yes: bool,
) -> None:
    """Write a commented configuration file, and check it.

    At a terminal it prompts for missing options; elsewhere, or with --yes, it does not prompt.
    """
    path = os.path.abspath(os.path.expanduser(output))
    _check_new_file(path, output)
    login = owner or login_name()
    try:
        crew = dict(_parse_agent(text) for text in agents)
    except ValueError as problem:
        fail(f"--agent {problem}")
    answers = InitAnswers(crew, login, list(notify), url or "", _parse_budgets(budgets))
    if not yes and sys.stdin.isatty():
        answers = _prompt_answers(answers, asks_owner=owner is None)
    for target in answers.targets:
        try:
            target_from_text(target)
        except ValueError as error:
            fail(f"--notify {target!r}: {error}")
    text = _render(answers)
    _write(path, text, output)
    if not is_own(path):  # this user wrote it
        trust_file(path, variables=variables_in(path, text))
    say(clean(f"written: {output}", 1000))
    loaded = load_config(path)
    url = loaded.store or f"sqlite:///{file_of(StoreChoice(None, 'default'))}"
    say_summary(summary(loaded, store=redact(url)))
    say_notes((), unset_variables(loaded))
    say("next: switchgear config check; switchgear doctor; switchgear fleet status")


def _check_new_file(path: str, shown: str) -> None:
    if not path.endswith((".yaml", ".yml")):
        fail(f"{shown}: the name must end in .yaml")
    if os.path.lexists(path):
        fail(f"{shown} exists already and is never overwritten; use -o for another file")
    if not os.path.isdir(os.path.dirname(path)):
        fail(f"{shown}: there is no such folder")


def _parse_agent(text: str) -> tuple[str, list[str]]:
    """An agent and its models. Raises ValueError."""
    name, _, models = text.partition("=")
    listed = [model.strip() for model in models.split(",") if model.strip()]
    if not name.strip() or not listed or not all("/" in model for model in listed):
        raise ValueError(f"{text!r}: it must be NAME=PROVIDER/MODEL, with commas between models")
    return name.strip(), listed


def _parse_budgets(texts: tuple[str, ...]) -> dict[str, float]:
    found: dict[str, float] = {}
    for text in texts:
        node, _, amount = text.partition("=")
        try:
            found[node.strip()] = float(amount.strip().removeprefix("$"))
        except ValueError:
            fail(f"--budget {text!r}: it must be NODE=DOLLARS, such as atlas=50")
    return found


def _prompt_answers(given: InitAnswers, *, asks_owner: bool) -> InitAnswers:
    """Prompt for the answers that the options do not give; an empty answer takes the default."""
    say("Press Enter to accept the value in brackets. Ctrl-C writes nothing.")
    agents = dict(given.agents)
    if not agents:
        say("Agents that a fleet routes: a name, then models as provider/model.")
    while not given.agents:
        name = click.prompt("Agent (empty: no more)", default="", show_default=False)
        if not name:
            break
        try:
            agent, models = _parse_agent(name) if "=" in name else _prompt_models(name)
        except ValueError as problem:
            say(clean(str(problem)), err=True)
            continue
        agents[agent] = models
    owner = given.owner
    if agents and asks_owner:
        owner = click.prompt("Person to notify about them", default=owner)
    targets = given.targets
    if not targets:
        where = "Notifications to (desktop, a URL, slack:VARIABLE, command:PROGRAM)"
        answer = _prompt_until_valid(where, NONE, target_from_text)
        targets = [] if answer == NONE else [answer]
    store = given.store or _prompt_until_valid("Where state is kept", DEFAULT_STORE, _check_store)
    return InitAnswers(agents, owner, targets, store, given.budgets)


def _check_store(url: str) -> None:
    """Raise ValueError unless this can be the URL of a store."""
    if not url.startswith(STORE_URLS):
        raise ValueError("it must be a URL: sqlite:///path, redis://host or memory:")


def _prompt_models(name: str) -> tuple[str, list[str]]:
    """An agent and the models that the user enters."""

    def check(models: str) -> None:
        _parse_agent(f"{name}={models}")

    question = f"Models of {name}, the primary one first"
    return _parse_agent(f"{name}={_prompt_until_valid(question, 'anthropic/opus', check)}")


def _prompt_until_valid(text: str, default: str, check: Callable[[str], object]) -> str:
    """Prompt until the answer is the default or passes `check`. Prints why an answer is invalid."""
    while True:
        answer = str(click.prompt(text, default=default)).strip()
        if answer == default:
            return answer
        try:
            check(answer)
        except ValueError as problem:
            say(clean(str(problem)), err=True)
            continue
        return answer


def _render(given: InitAnswers) -> str:
    """The file: every section with a comment; sections that were not requested are commented out."""
    from jinja2 import Environment  # noqa: PLC0415  shells run `completion` when they start

    environment = Environment(trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True)  # noqa: S701  no HTML
    environment.filters["json"] = json.dumps
    template = files("switchgear._cli").joinpath("templates", "switchgear.yaml.jinja")
    return environment.from_string(template.read_text("utf-8")).render(
        store=given.store if given.store != DEFAULT_STORE else "",
        agents=given.agents,
        owner=given.owner,
        targets=[_kind_and_value(target) for target in given.targets],
        budgets=given.budgets,
    )


def _kind_and_value(target: str) -> tuple[str, str]:
    """The key of a target in the file, and its value, from the form of `--notify`."""
    kind, _, rest = target.partition(":")
    return (kind, rest) if kind in {"desktop", "slack", "command"} else ("webhook", target)


def _write(path: str, text: str, shown: str) -> None:
    """Write a new file atomically, if the text is valid. Never overwrites a file."""
    try:
        load_config(path, text=text)
    except ConfigError as error:
        why = "; ".join(f"{problem.key}: {problem.message}" for problem in error.problems[:5])
        fail(f"nothing was written, because the answers do not make a valid file: {why}")
    try:
        with NamedTemporaryFile("w", encoding="utf-8", dir=os.path.dirname(path)) as draft:
            draft.write(text)
            draft.flush()
            os.link(draft.name, path)  # unlike a rename, never over another file
    except FileExistsError:
        fail(f"{shown} exists already and is never overwritten; use -o for another file")
    except OSError as error:
        fail(f"{shown} cannot be written: {error.strerror or error}")


SHELLS = ("bash", "zsh", "fish")


@click.group(cls=Branch)
def config() -> None:
    """Write, check and show the configuration; create or change the operator token."""


config.add_command(init)


@config.command(short_help="Check the file, and list what it contains.")
@click.argument("file", required=False)
@reader_options
def check(file: str | None, *, as_json: bool) -> None:
    """Check FILE, or the configuration in effect, and list what it contains.

    Reports unset environment variables and keys of earlier versions. Exit code 0: valid; 2: every
    problem is printed with its line.
    """
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
        values = {"file": path, "from": "argument" if file else found.source, **as_values(rows)}
        say_json({**values, "unset_variables": unset, "notes": [str(note) for note in notes]})
        return
    say(clean(f"{path} is valid", 1000))
    say_summary(rows)
    say_notes(notes, unset)
    try:
        notices = () if file else effective().notices
    except ConfigError as error:
        notices = tuple(str(error).splitlines())
    for notice in notices:
        say(clean(f"note: {notice}", 1000))


@config.command()
@reader_options
def show(*, as_json: bool) -> None:
    """Show the configuration in effect and its source; secrets are masked."""
    found = chosen_config_file()
    loaded = load_chosen_config()
    values = _shown_values(loaded, choose_store(loaded), found)
    if as_json:
        say_json(values)
        return
    for key, entry in values.items():
        value = entry["value"]
        source = f"  # {entry['from']}"
        if key == "file" and value is None:
            say("file: none")
        elif isinstance(value, dict | list) and value:
            say(clean(f"{key}:{source}"))
            rows = value.items() if isinstance(value, dict) else enumerate(value, 1)
            for name, item in rows:
                say(clean(f"  {name}: {_compact(item)}", 2000))
        else:
            say(clean(f"{key}: {_compact(value)}{source}", 2000))


def _compact(value: Any) -> str:
    return value if isinstance(value, str) else printed(value, indent=None)


def _shown_values(
    loaded: Config, store: StoreChoice, found: StoreChoice
) -> dict[str, dict[str, Any]]:
    """Each key with its value and the file that it comes from, or `default`."""
    source = loaded.source or "default"

    def of(value: Any, *, is_default: bool | None = None) -> dict[str, Any]:
        default = not value if is_default is None else is_default
        return {"value": value, "from": "default" if default else source}

    url = f"sqlite:///{file_of(store)}" if store.value is None else redact(store.value)
    digest = loaded.operator_token_sha256
    masked = "none: overrides need no token" if digest is None else f"set ({digest[:6]}...)"
    retention = {"events": loaded.retention.events, "idle_days": loaded.retention.idle_s / 86_400}
    return {
        "file": {"value": found.value, "from": found.source},
        "store": {"value": url, "from": store.source},
        "operator_token_sha256": of(masked, is_default=digest is None),
        "retention": of(retention, is_default=loaded.retention == DEFAULT.retention),
        "policies": of({name: dump_policy(policy) for name, policy in loaded.policies.items()}),
        "circuits": of(
            [{"match": rule.match, "policy": dump_policy(rule.policy)} for rule in loaded.circuits]
        ),
        "sinks": of([shown_sink(sink) for sink in loaded.sinks]),
        "rules": of(
            [rule.name for rule in loaded.rules.rules], is_default=loaded.rules == DEFAULT.rules
        ),
        "agents": of({name: _agent(each) for name, each in loaded.crew.agents.items()}),
        "stories": of(
            {
                name: {"owner": story.owner, "budget_micros": story.budget_micros}
                for name, story in loaded.crew.stories.items()
            }
        ),
        "notifications": of([shown_target(target) for target in loaded.notifications]),
    }


def _agent(agent: FleetAgent) -> dict[str, Any]:
    return {
        "owner": agent.owner,
        "models": [str(model) for model in agent.models],
        "fallback_chain": agent.fallback_chain,
        "stories": agent.stories,
    }


def shown_target(target: Target) -> dict[str, Any]:
    """A target as in the file, without the path of its URL, which is often secret and matches no pattern."""
    fields = target.fields()
    if "url" in fields:
        fields["url"] = _without_path(fields["url"])
    return {target.kind: _redact_fields(fields)}


def shown_sink(sink: Any) -> dict[str, Any]:
    kind = next(name for name, sink_class in SINKS.items() if sink_class is type(sink))
    return {kind: _redact_fields(sink.fields())}


def _redact_fields(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: redact(each) if isinstance(each, str) else each for name, each in fields.items()}


def _without_path(url: str) -> str:
    """The scheme and the host of a URL, with `...` for the rest."""
    scheme, _, rest = url.partition("://")
    authority = re.split(r"[/?#\\]", rest, maxsplit=1)[0]
    return f"{scheme}://{authority.rpartition('@')[2]}/..."


@config.command()
def schema() -> None:
    """Print the JSON Schema of the configuration file, for editors."""
    say_json(config_schema())


@config.command(short_help="Create an operator token.")
@click.option(
    "-o", "--output", metavar="FILE", help="Write the token to this file, readable only by you."
)
def token(output: str | None) -> None:
    """Create an operator token, and the configuration line that requires it.

    Put the line into the configuration file. Keep the token where no agent can read it.
    """
    created = f"swg_{secrets.token_urlsafe(32)}"
    line = f'operator_token_sha256: "{sha256(created.encode()).hexdigest()}"'
    if output is None:
        say("The token, shown only once; pass it with --token-file or SWITCHGEAR_TOKEN:")
        say(f"  {created}")
        say("The line for switchgear.yaml:")
        say(f"  {line}")
        return
    try:
        handle = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        fail(f"{output} exists already; a token is never overwritten")
    with open(handle, "w", encoding="ascii") as file:
        file.write(created + "\n")
    say(line)


@config.command(short_help="Change the operator token of the store.")
@click.option("--remove", is_flag=True, help="Remove the seal: overrides no longer need a token.")
@token_option
@store_options
def seal(*, remove: bool) -> None:
    """Make the store require the configured operator token; needs the current one.

    A store keeps the first digest that it is used with, so that removing it from the
    configuration does not disable the check. To change the token, put the new digest into the
    configuration, then run this command with the old token.
    """
    with open_session() as session:
        digest = session.config.operator_token_sha256
        if remove and digest is not None:
            fail(f"remove operator_token_sha256 from {session.config.source} first")
        if not remove and digest is None:
            fail(
                "there is no operator_token_sha256 in the configuration; --remove removes the seal"
            )
        store = session.panel.store
        store.operator.change(store.inner, digest)
        if store.inner.operator_digest() != digest:
            fail("another process sealed the store at the same time; check it, then try again")
        needed = "no token" if digest is None else "the configured operator token"
        say(clean(f"{session.label}: overrides need {needed} from now on"))


# click does not rewrap a paragraph that begins with a backspace character, which a raw docstring cannot contain.
COMPLETION_HELP = """Print the completion script of a SHELL; circuit names complete from the store.

\b
bash: eval "$(switchgear completion bash)"      in ~/.bashrc
zsh:  eval "$(switchgear completion zsh)"       in ~/.zshrc
fish: switchgear completion fish | source       in ~/.config/fish/config.fish
"""


@click.command(help=COMPLETION_HELP)
@click.argument("shell", type=click.Choice(SHELLS))
def completion(shell: str) -> None:
    """Print the completion script of a shell."""
    completion_class = get_completion_class(shell)
    if completion_class is None:
        fail(f"click has no completion for {shell}")
    root = click.get_current_context().find_root().command
    script = completion_class(root, {}, "switchgear", "_SWITCHGEAR_COMPLETE")
    say(script.source_template % script.source_vars())
