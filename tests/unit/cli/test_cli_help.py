"""Help texts and pages that show policies are readable."""

from collections.abc import Iterator

import click
import pytest
from click.testing import CliRunner

from switchgear import Panel, Signal
from switchgear._cli import main
from switchgear._config.sections import preset_policy


def verbs(command: click.Command, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The path of every verb and sub-verb."""
    yield path
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            assert found is not None
            yield from verbs(found, (*path, name))


@pytest.mark.parametrize("words", [" ".join(words) for words in verbs(main)])
def test_every_help_text_is_plain_and_fits_80_columns(words: str) -> None:
    done = CliRunner().invoke(main, [*words.split(), "--help"], env={"COLUMNS": "80"})
    assert done.exit_code == 0
    assert done.output.startswith("Usage: ")
    assert "\\b" not in done.output
    assert "\b" not in done.output
    assert all(len(line) <= 80 for line in done.output.splitlines())


@pytest.mark.parametrize("name", ["stuck", "progress", "budget", "service"])
def test_a_policy_is_shown_without_python_s_punctuation(name: str) -> None:
    panel = Panel("memory:")
    panel.breaker("x", preset_policy(name)).record(Signal(ok=True))
    shown = CliRunner().invoke(main, ["show", "x"], obj=panel).output
    policy = shown.partition("\nPolicy\n")[2].partition("\n\n")[0]
    assert policy
    assert not [part for part in ("('", "((", "',", "),", "{", "None") if part in policy], policy
