"""`switchgear doctor`: whether everything is well, and what to do where it is not."""

from typing import Any

import click

from switchgear._cli.options import json_option, store_options, token_option
from switchgear._cli.views.text import say

# ruff: noqa: PLC0415  what a verb needs is imported when it is used


@click.command(short_help="Check the installation.")
@json_option
@token_option
@store_options
def doctor(*, as_json: bool) -> int:
    """Check the installation: exit code 0 all is well, 1 warnings, 2 problems.

    Checks Python, packages, configuration, token, store (present, writable, intact, private),
    pending notifications, clocks and terminal, and says what to do.
    """
    from switchgear._cli.doctor_checks import examine

    return report(list(examine()), as_json=as_json)


def report(findings: list[Any], *, as_json: bool) -> int:
    """Print what a doctor found; its exit code: 0 well, 1 warnings, 2 problems."""
    from switchgear._cli.doctor_checks import PROBLEM, WARNING

    levels = {finding.level for finding in findings}
    code = 2 if PROBLEM in levels else 1 if WARNING in levels else 0
    if as_json:
        from switchgear._cli.json_values import printed

        found = [finding._asdict() for finding in findings]
        say(printed({"exit_code": code, "findings": found}))
        return code
    _draw(findings)
    return code


def _draw(findings: list[Any]) -> None:
    from rich.text import Text

    from switchgear._cli.doctor_checks import GOOD, NOTE, PROBLEM, WARNING
    from switchgear._cli.views.screen import Screen
    from switchgear._cli.views.text import clean, plural

    screen = Screen()
    signs = screen.signs
    drawn = {
        GOOD: (signs.good, "green"),
        NOTE: (signs.dot, "dim"),
        WARNING: ("!", "yellow"),
        PROBLEM: (signs.bad, "bold red"),
    }
    width = len(signs.good)
    for finding in findings:
        sign, style = drawn[finding.level]
        line = Text.assemble((f"{sign:{width}}", style), f" {clean(finding.what, 1000)}")
        screen.line(line, width + 1)
        if finding.to_do:
            screen.line(
                Text(f"{'':{width}} {signs.arrow} {clean(finding.to_do)}", "dim"), width + 4
            )
    problems = sum(finding.level == PROBLEM for finding in findings)
    warnings = sum(finding.level == WARNING for finding in findings)
    told = f"{plural(problems, 'problem')}, {plural(warnings, 'warning')}"
    screen.line()
    screen.line(told if problems or warnings else "all is well")
