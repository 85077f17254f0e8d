"""Shell completion of circuit names."""

import click
import pytest

from switchgear._cli import main
from switchgear._cli.context import names_starting_with
from switchgear._core.types import Signal
from switchgear._panel.panel import Panel


def offered(names: list[str], start: str) -> list[str]:
    panel = Panel("memory:")
    for name in names:
        panel.breaker(name).record(Signal(ok=True))
    with click.Context(main, obj=panel).scope():
        return names_starting_with(start)


def test_names_of_circuits_are_offered() -> None:
    names = ["other/x", "provider/anthropic", "provider/größe:1@eu"]
    assert offered(names, "provider/") == names[1:]


@pytest.mark.parametrize(
    "name", ["a;reboot", "a$(id)", "a`id`", "a b", "a\nb", "a'b", 'a"b', "a|b", "a\x1b[2J", "-rf"]
)
def test_a_name_that_a_shell_could_obey_is_not_offered(name: str) -> None:
    assert name not in offered([name, "b"], name[:1])
