"""Every `switchgear` command that a page shows, in a block or in a sentence, has such a verb and such options."""

import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from architecture.pages import PAGES, blocks, page_name
from switchgear._cli import main

INLINE = re.compile(r"`((?:[A-Z_]+=\S+ )?switchgear [^`\n]+)`")
COMMAND = re.compile(r"(?<![\w./-])switchgear ([^|;&<>#\n)]*)")
OPTION = re.compile(r"(?<![\w-])(--[a-z][a-z-]*|-[a-z])\b")
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
    """What there is not of the command, in words."""
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


def test_a_wrong_verb_and_a_wrong_option_are_noticed() -> None:
    page = "```sh\nswitchgear shw x   # look\n```\nSay `switchgear run x --agnet claude` or\n`switchgear\nstatus --all`."
    assert [problem_with(command) for command in commands_of(page)] == [
        "there is no verb 'shw'",
        "there is no option '--agnet'",
        None,
    ]
