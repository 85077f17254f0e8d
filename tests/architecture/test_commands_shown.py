"""Every `switchgear` command that a page shows, in a block or in a sentence, has such a verb and such options."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from architecture.pages import PAGES, blocks, page_name
from switchgear._cli import main

INLINE = re.compile(r"`((?:[A-Z_]+=\S+ )?switchgear [^`\n]+)`")
COMMAND = re.compile(r"(?<![\w./-])switchgear ([^|;&<>#\n)]*)")
OPTION = re.compile(r"(?<![\w-])(--[a-z][a-z-]*|-[a-z])\b")
WHOLE = re.compile(r"(?:^|[|&;(] ?)switchgear ((?:[^|;&<>#\n)'\"]|'[^']*'|\"[^\"]*\")*)")
"""A command at the beginning of a line, or behind another one; quotes may hold any character."""
QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"")


def commands_of(page: str) -> Iterator[str]:
    """The words behind `switchgear`, up to the end of the command."""
    shown = [block.text for block in blocks(page) if block.language in {"sh", "bash"}]
    shown += [
        each.removeprefix("$ ") for each in re.findall(r"^\$ switchgear .*$", page, re.MULTILINE)
    ]
    shown += [found[1] for found in INLINE.finditer(" ".join(page.split("\n")))]
    for text in shown:
        yield from (found[1] for found in COMMAND.finditer(text))


def problem_with(command: str) -> str | None:
    """The verb or option of the command that does not exist, as a sentence."""
    command = QUOTED.sub("TEXT", command).partition(" -- ")[0]  # what follows is another program's
    where: click.Command = main
    known = _options(main)
    for word in command.split():
        if not isinstance(where, click.Group) or not word.isidentifier() or not word.islower():
            break
        if word not in where.commands:
            return f"there is no verb {word!r}"
        where = where.commands[word]
        known |= _options(where)
    unknown = [option for option in OPTION.findall(command) if option not in known]
    return f"there is no option {unknown[0]!r}" if unknown else None


def _options(command: click.Command) -> set[str]:
    names = (name for each in command.params for name in (*each.opts, *each.secondary_opts))
    return {"--help", "-h", *names}


@pytest.mark.parametrize("page", PAGES, ids=page_name)
def test_every_command_that_a_page_shows_exists(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    wrong = {
        command.strip(): problem
        for command in commands_of(text)
        if (problem := problem_with(command)) is not None
    }
    assert not wrong


def test_a_wrong_verb_and_a_wrong_option_are_detected() -> None:
    page = "```sh\nswitchgear shw x   # look\n```\nSay `switchgear run x --agnet claude` or\n`switchgear\nstatus --all`."
    assert [problem_with(command) for command in commands_of(page)] == [
        "there is no verb 'shw'",
        "there is no option '--agnet'",
        None,
    ]


def parsed(command: str) -> str | None:
    """The error of click about the arguments of a command."""
    where: click.Command | None = main
    name: str | None = "switchgear"
    words = shlex.split(command, comments=True)
    above: click.Context | None = None
    try:
        while where is not None:
            above = where.make_context(name, list(words), parent=above)
            rest = [*getattr(above, "_protected_args", []), *above.args]
            if not isinstance(where, click.Group) or not rest:
                break
            name, where, words = where.resolve_command(above, rest)
    except click.exceptions.Exit:
        return None
    except click.ClickException as error:
        return error.format_message() or type(error).__name__
    return None


@pytest.mark.parametrize("page", PAGES, ids=page_name)
def test_every_command_in_a_block_has_the_arguments_that_it_needs(page: Path) -> None:
    shown = [
        block.text.replace("\\\n", " ")
        for block in blocks(page.read_text(encoding="utf-8"))
        if block.language in {"sh", "bash"}
    ]
    lines = [line for text in shown for line in text.splitlines()]
    commands = [found[1] for line in lines for found in WHOLE.finditer(line)]
    wrong = {
        command: problem
        for command in commands
        if not set(command) & set("$…") and (problem := parsed(command)) is not None
    }
    assert not wrong
