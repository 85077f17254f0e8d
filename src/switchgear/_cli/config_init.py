"""`switchgear config init`: asks a few questions and writes a commented configuration file."""

import os
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from switchgear._cli.entry import fail
from switchgear._cli.views.text import clean, say

if TYPE_CHECKING:
    from collections.abc import Callable

# What the verb needs is imported when it is used; paths are texts, as in the stores.
# ruff: noqa: PLC0415, PTH100, PTH107, PTH111, PTH112, PTH118, PTH120, PTH123

DEFAULT_NAME = "switchgear.yaml"
DEFAULT_STORE = ".switchgear/state.db"
NONE = "none"


class Answers(NamedTuple):
    """What the file is to say."""

    agents: dict[str, list[str]]
    """Names of agents and their models, `provider/model`, the primary one first."""
    owner: str
    targets: list[str]
    """As `--notify` takes them."""
    store: str
    budgets: dict[str, float]


@click.command("init", short_help="Write a commented configuration file.")
@click.option(
    "--agent",
    "agents",
    multiple=True,
    metavar="NAME=MODEL[,MODEL…]",
    help="An agent and its models, as provider/model; the first is used while it works.",
)
@click.option("--owner", metavar="NAME", help="Who is told about the agents [default: login name].")
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
    show_default=True,
    help="The file to write. An existing file is never overwritten.",
)
@click.option("-y", "--yes", is_flag=True, help="Ask nothing; take the options and the defaults.")
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

    At a terminal it asks for what no option gives; elsewhere, or with --yes, it asks nothing.
    """
    import getpass
    import sys

    path = os.path.abspath(os.path.expanduser(output))
    _check_place(path, output)
    login = owner or getpass.getuser()
    given = Answers(_agents(agents), login, list(notify), url or "", _budgets(budgets))
    if not yes and sys.stdin.isatty():
        given = _asked(given, owner is None)
    _check_targets(given.targets)
    text = written(given)
    _write(path, text, output)
    _trust(path)
    say(clean(f"written: {output}", 1000))
    _report(path)


def _check_place(path: str, shown: str) -> None:
    if not path.endswith((".yaml", ".yml")):
        fail(f"{shown}: the name must end in .yaml")
    if os.path.lexists(path):
        fail(f"{shown} exists already and is never overwritten; use -o for another file")
    if not os.path.isdir(os.path.dirname(path)):
        fail(f"{shown}: there is no such folder")


def _agents(words: tuple[str, ...]) -> dict[str, list[str]]:
    try:
        return dict(_agent(word) for word in words)
    except ValueError as problem:
        fail(f"--agent {problem}")


def _agent(word: str) -> tuple[str, list[str]]:
    """An agent and its models. Raises ValueError."""
    name, _, models = word.partition("=")
    listed = [model.strip() for model in models.split(",") if model.strip()]
    if not name.strip() or not listed or not all("/" in model for model in listed):
        raise ValueError(f"{word!r}: it must be NAME=PROVIDER/MODEL, with commas between models")
    return name.strip(), listed


def _budgets(words: tuple[str, ...]) -> dict[str, float]:
    found: dict[str, float] = {}
    for word in words:
        node, _, amount = word.partition("=")
        try:
            found[node.strip()] = float(amount.strip().removeprefix("$"))
        except ValueError:
            fail(f"--budget {word!r}: it must be NODE=DOLLARS, such as atlas=50")
    return found


def _check_targets(words: list[str]) -> None:
    from switchgear._fleet.notify import target_from_text

    for word in words:
        try:
            target_from_text(word)
        except ValueError as error:
            fail(f"--notify {word!r}: {error}")


def _asked(given: Answers, asks_owner: bool) -> Answers:  # noqa: FBT001
    """The answers of the person at the terminal; an empty one takes the default."""
    from switchgear._fleet.notify import target_from_text

    say("An empty answer takes what stands in brackets. Ctrl-C writes nothing.")
    agents = dict(given.agents)
    if not agents:
        say("Agents, if a fleet is to be routed: a name, then models as provider/model.")
    while not given.agents:
        name = click.prompt("Agent (empty: no more)", default="", show_default=False)
        if not name:
            break
        try:
            agent, models = _agent(name) if "=" in name else _models_of(name)
        except ValueError as problem:
            say(clean(str(problem)), err=True)
            continue
        agents[agent] = models
    owner = given.owner
    if agents and asks_owner:
        owner = click.prompt("Who is told about them", default=owner)
    targets = list(given.targets)
    if not targets:
        where = "Notifications to (desktop, a URL, slack:VARIABLE, command:PROGRAM)"
        word = _answer(where, NONE, target_from_text)
        targets = [] if word == NONE else [word]
    store = given.store or _answer("Where state is kept", DEFAULT_STORE, _check_store)
    return Answers(agents, owner, targets, store, given.budgets)


def _check_store(url: str) -> None:
    """Raise ValueError unless this can be the URL of a store."""
    from switchgear._stores.url import STORE_URLS

    if not url.startswith(STORE_URLS):
        raise ValueError("it must be a URL: sqlite:///path, redis://host or memory:")


def _models_of(name: str) -> tuple[str, list[str]]:
    """An agent with the models that are answered, asked until they are models."""

    def check(models: str) -> None:
        _agent(f"{name}={models}")

    asked = f"Models of {name}, the first one first"
    return _agent(f"{name}={_answer(asked, 'anthropic/opus', check)}")


def _answer(text: str, default: str, check: "Callable[[str], object]") -> str:
    """An answer that passes `check`, or the default; asked again, with the reason, until it does."""
    while True:
        word = str(click.prompt(text, default=default)).strip()
        if word == default:
            return word
        try:
            check(word)
        except ValueError as problem:
            say(clean(str(problem)), err=True)
            continue
        return word


def written(given: Answers) -> str:
    """The file: every section with a comment, what was not asked for commented out."""
    import json

    store = given.store if given.store != DEFAULT_STORE else ""
    lines = [
        "# Switchgear. Check this file with: switchgear config check",
        "# Every key: docs/configuration.md. Times are in seconds, money in dollars.",
        "",
        "# Where circuits, events and budgets are kept. redis://host for many machines.",
        f"store: {json.dumps(store)}" if store else "# store: sqlite:///.switchgear/state.db",
        "",
        "# Which policy a circuit has: the first match wins.",
        "circuits:",
        '  - {match: "op/*", policy: operation}   # what an agent does: git, shell, network',
        "",
    ]
    lines += _fleet_lines(given, json.dumps)
    lines += _target_lines(given.targets, json.dumps)
    lines += _budget_lines(given.budgets, json.dumps)
    lines += [
        "# Events as lines of a file, for other programs.",
        "# sinks:",
        "#   - jsonl: {path: .switchgear/events.jsonl}",
    ]
    return "\n".join(lines) + "\n"


def _fleet_lines(given: Answers, quoted: Any) -> list[str]:
    agents = given.agents
    if not agents:
        return [
            "# Agents that a fleet routes: the next model or agent works while one is cut.",
            "# agents:",
            "#   coder:",
            "#     owner: ana",
            "#     provider: anthropic",
            "#     model: opus",
            "#     fallback_models: [openai/large]",
            "",
        ]
    lines = ["# Agents: the next model works while a provider is cut.", "agents:"]
    for name, models in agents.items():
        provider, _, model = models[0].partition("/")
        lines += [
            f"  {quoted(name)}:",
            f"    owner: {quoted(given.owner)}   # who is told when something of it trips",
            f"    provider: {quoted(provider)}",
            f"    model: {quoted(model)}",
        ]
        if models[1:]:
            lines.append(f"    fallback_models: [{', '.join(map(quoted, models[1:]))}]")
        lines.append("    # fallback_chain: [another-agent]   # agents that stand in for it")
    return [
        *lines,
        "",
        "# When agents and providers are cut. These are the defaults.",
        "breakers:",
        "  provider: {threshold: 3, window_seconds: 60, cooldown_seconds: 60}",
        "  failure_rate: {window_calls: 20, threshold: 0.5, cooldown_seconds: 300}",
        "  budget: {hard_cap_dollars: 5, window_seconds: 60, cooldown_seconds: 600}",
        "",
    ]


def _target_lines(targets: list[str], quoted: Any) -> list[str]:
    head = ["# Who is notified of trips. Secrets stay in environment variables."]
    if not targets:
        example = '#   - webhook: {url: "https://ops.example.com/hook", secret_env: HOOK_KEY}'
        return [*head, "# notifications:", example, ""]
    rows: list[str] = []
    for number, word in enumerate(targets, 1):
        kind, _, rest = word.partition(":")
        name = f"name: {'webhook' if kind in {'http', 'https'} else kind}-{number}"
        if word == "desktop":
            rows.append("  - desktop")
        elif kind == "slack":
            rows.append(f"  - slack: {{{name}, url_env: {quoted(rest)}}}")
        elif kind == "command":
            rows.append(f"  - command: {{{name}, run: {quoted(rest)}}}")
        else:
            rows.append(f"  - webhook: {{{name}, url: {quoted(word)}}}   # secret_env: NAME signs")
    return [*head, "notifications:", *rows, ""]


def _budget_lines(budgets: dict[str, float], quoted: Any) -> list[str]:
    head = ["# Budgets that runs and agents share: switchgear budgets list"]
    if not budgets:
        return [*head, "# budgets:", "#   atlas: {limit_dollars: 50}", ""]
    rows = [f"  {quoted(node)}: {{limit_dollars: {limit:g}}}" for node, limit in budgets.items()]
    return [*head, "budgets:", *rows, ""]


def _write(path: str, text: str, shown: str) -> None:
    """Check the text as a file of its own, then let it appear under its name, whole or not at all."""
    from switchgear._config import ConfigError, load_config

    folder, name = os.path.split(path)
    draft = os.path.join(folder, f".{os.getpid()}-{os.urandom(4).hex()}-{name}")
    try:
        handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with open(handle, "w", encoding="utf-8") as file:
            file.write(text)
        try:
            load_config(draft)
        except ConfigError as error:
            why = "; ".join(f"{one.key}: {one.message}" for one in error.problems[:5])
            fail(f"nothing was written, because the answers make no valid file: {why}")
        os.link(draft, path)  # unlike a rename, never over another file
    except FileExistsError:
        fail(f"{shown} exists already and is never overwritten; use -o for another file")
    except OSError as error:
        fail(f"{shown} cannot be written: {error.strerror or error}")
    finally:
        if os.path.lexists(draft):
            os.remove(draft)


def _trust(path: str) -> None:
    """The person who wrote it trusts it."""
    from switchgear._config.trust import is_own, trust_file, variables_in

    if not is_own(path):
        with open(path, encoding="utf-8") as file:
            used = variables_in(path, file.read())
        trust_file(path, variables=used)


def _report(path: str) -> None:
    from switchgear._cli.config_summary import say_notes, say_summary, summary, unset_variables
    from switchgear._cli.context import Choice, file_of
    from switchgear._config import load_config
    from switchgear._text.redact import redact

    loaded = load_config(path)
    url = loaded.store or f"sqlite:///{file_of(Choice(None, 'default'))}"
    say_summary(summary(loaded, store=redact(url)))
    say_notes((), unset_variables(loaded))
    say("next: switchgear config check; switchgear doctor; switchgear fleet status")
