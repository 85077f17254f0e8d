"""`switchgear rules list|test`: show the absolute rules, and test a call against them."""

import json
import os
import shlex
import sys
from typing import Any

import click

from switchgear._breaker.rules import place_at
from switchgear._cli.context import choose_store, file_of, load_chosen_config, say_result
from switchgear._cli.options import Branch, checked_text, fail, reader_options
from switchgear._cli.views.text import clean, plural
from switchgear._config import Config
from switchgear._rules.rules import dump_rules, judge
from switchgear._text.redact import redact

# ruff: noqa: PTH100, PTH109

REFUSED = 1
MAX_CHARS = 4_000_000
"""How many characters of a call on standard input are accepted."""
_TOOL_KEYS = ("tool", "tool_name", "name")
_INPUT_KEYS = ("args", "tool_input", "input", "arguments", "parameters")


@click.group(cls=Branch)
def rules() -> None:
    """Show and test the absolute rules: calls that are refused for every agent."""


@rules.command("list", short_help="List the rules in effect.")
@reader_options
def list_rules(*, as_json: bool) -> None:
    """Show the rules in effect, in the order in which they are checked."""
    loaded = load_chosen_config()
    book = loaded.rules
    protected = _protected_paths(loaded)
    lines = [] if book.rules else ["No rules are in effect here."]
    for rule in book.rules:
        lines.append(f"{rule.name}: {rule.why}" if rule.why else rule.name)
        lines += [
            f"  {field.replace('_', ' ')}: {', '.join(value)}"
            for field, value in rule.fields().items()
            if field not in {"name", "why"} and value
        ]
    lines += [f"protected: {path}" for path in protected]
    values = {"rules": dump_rules(book.rules), "protected": protected}
    say_result(values, lines, as_json=as_json, longest=1000)


def _one_command(
    context: click.Context, parameter: click.Parameter, words: tuple[str, ...]
) -> str | None:
    """The command. Refuses one that the shell split into words, and says how to quote it."""
    if len(words) > 1:
        whole = shlex.quote(" ".join(words))
        fail(f"the command must be one argument; quote it: switchgear rules test {clean(whole)}")
    return checked_text(context, parameter, words[0] if words else None)


@rules.command(short_help="Test whether a call would be refused.")
@click.argument("text", metavar="[COMMAND]", nargs=-1, callback=_one_command)
@click.option("--tool", default="Bash", help="Name of the tool that the agent calls.")
@click.option("--command", callback=checked_text, help="Shell command that the call runs.")
@click.option("--path", callback=checked_text, help="File that the call names.")
@click.option("--url", callback=checked_text, help="URL that the call opens.")
@click.option("--content", callback=checked_text, help="Text that the call writes or sends.")
@click.option(
    "--workspace", metavar="FOLDER", help="Folder in which the agent works. [default: this one]"
)
@reader_options
def test(  # noqa: PLR0917  click passes them by name
    text: str | None,
    tool: str,
    command: str | None,
    path: str | None,
    url: str | None,
    content: str | None,
    workspace: str | None,
    *,
    as_json: bool,
) -> int:
    """Dry-run the rules against a hypothetical call: exit code 0 allowed, 1 refused, 2 error.

    COMMAND is the same as --command. Without COMMAND, --command, --path, --url and --content,
    the call is read from standard input as JSON, such as {"tool": "Bash", "args": {"command":
    "git push -f"}}, or in the format of an agent's hooks.
    """
    if text is not None and command is not None:
        fail("give the command once: as COMMAND or by --command")
    given = {
        "command": text if command is None else command,
        "file_path": path,
        "url": url,
        "content": content,
    }
    inputs: Any = {name: value for name, value in given.items() if value is not None}
    if not inputs:
        tool, inputs, workspace = _read_call(tool, workspace)
    loaded = load_chosen_config()
    folder = os.path.abspath(workspace) if workspace else os.getcwd()
    place = place_at(folder, protected=_protected_paths(loaded))
    broken = judge(loaded.rules.rules, tool, inputs, place)
    if broken is None:
        line = f"allowed by {plural(len(loaded.rules.rules), 'rule')}"
        say_result({"allowed": True}, [line], as_json=as_json)
        return 0
    parts = {name: redact(value) for name, value in broken._asdict().items()}
    say_result({"allowed": False, **parts}, [f"refused: {redact(str(broken))}"], as_json=as_json)
    return REFUSED


def _read_call(tool: str, workspace: str | None) -> tuple[str, Any, str | None]:
    """The call on standard input: the tool, its inputs and the agent's folder."""
    if sys.stdin is None or sys.stdin.isatty():
        fail("nothing to test: give --command, --path, --url or --content, or JSON on stdin")
    try:
        text = sys.stdin.read(MAX_CHARS + 1)
        call = json.loads(text)
    except RecursionError:
        fail("standard input: the JSON is nested too deeply")
    except ValueError as error:
        fail(f"standard input is not valid JSON: {error}")
    if len(text) > MAX_CHARS:
        fail(f"standard input is longer than {MAX_CHARS:,} characters")
    if not isinstance(call, dict):
        fail('standard input must be a mapping such as {"tool": "Bash", "args": {…}}')
    name = next((call[key] for key in _TOOL_KEYS if key in call), tool)
    inputs = next((call[key] for key in _INPUT_KEYS if key in call), None)
    if not isinstance(name, str) or inputs is None:
        fail(f"the call needs a tool and one of {', '.join(_INPUT_KEYS)}")
    folder = call.get("cwd")
    return name, inputs, workspace or (folder if isinstance(folder, str) else None)


def _protected_paths(loaded: Config) -> tuple[str, ...]:
    """The paths of this installation that no agent may change, beyond those built in."""
    file = file_of(choose_store(loaded))
    own = [path for path in (loaded.source, f"{file}*" if file else None) if path]
    return (*loaded.rules.protected, *own)
