"""Checks rules on a real machine: its home folder, variables and links.

The core checks values; this module reads them from the machine. It imports little, because every
hook uses it.
"""

import os
import stat
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from switchgear._core.types import Signal
from switchgear._rules.effects import Place
from switchgear._rules.rules import Rule, judge
from switchgear._text.redact import redact

if TYPE_CHECKING:
    from switchgear._breaker.handle import Breaker

# ruff: noqa: PTH100, PTH111  pathlib is slow to import, and hooks use this module

LARGEST_LIST = 16_384
"""Maximum size in bytes of a file with arguments of commands (`xargs -a FILE`) that is read."""


def place_at(
    workspace: str,
    *,
    cwd: str = "",
    protected: Iterable[str] = (),
    env: Mapping[str, str] | None = None,
) -> Place:
    """The place of an agent that works in a folder of this machine.

    `cwd` is where its commands run (default: the workspace), `protected` are paths of the guard
    itself: the configuration in effect, the file of the store, the settings with the hooks.
    """
    env = os.environ if env is None else env
    return Place(
        os.path.abspath(workspace),
        cwd,
        os.path.expanduser("~"),
        env,
        _resolve_links,
        tuple(protected),
        os.path.isdir,
        _read_list,
    )


def _resolve_links(path: str) -> str:
    """A path with its links followed; a path that cannot be followed is returned unchanged."""
    try:
        return os.path.realpath(path)
    except (OSError, ValueError):
        return path


def _read_list(path: str) -> str | None:
    """The text of a small file with one name per line; `None`: unreadable, large, or no such list.

    In a list of names, no line contains a blank or an equals sign.
    """
    try:
        file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError):
        return None
    try:
        status = os.fstat(file)
        if not stat.S_ISREG(status.st_mode) or status.st_size > LARGEST_LIST:
            return None
        text = os.read(file, LARGEST_LIST).decode(errors="replace")
    except OSError:
        return None
    finally:
        os.close(file)
    lines = text.split("\n")
    is_list = all(len(line.split()) < 2 and "=" not in line for line in lines)
    return text if is_list and "\0" not in text else None


def broken_rule(rules: Iterable[Rule], tool: str, inputs: Any, place: Place) -> str | None:
    """The rule that a call would break, in one line without secrets, or `None`.

    >>> rule = Rule("no-curl", commands=("curl",))
    >>> broken_rule([rule], "Bash", {"command": "curl example.com"}, place_at("."))
    'rule no-curl: curl example.com'
    """
    broken = judge(rules, tool, inputs, place)
    return None if broken is None else redact(str(broken))


class RuleGuard:
    """Checks the rules before a call, and records broken rules on a circuit. Thread-safe.

    `breaker` is the circuit of the rules, such as `rules/coder` under the preset `constitutional`:
    the first broken rule opens it, until an operator resets it.
    """

    def __init__(self, breaker: "Breaker", rules: Iterable[Rule], place: Place) -> None:
        self._breaker = breaker
        self._rules = tuple(rules)
        self._place = place

    def ask(self, tool: str, inputs: Any) -> str | None:
        """Check a call before it is made: raises `Rejected` if it, or an earlier one, broke a rule.

        Returns the broken rule if the circuit admits the call anyway: in shadow mode, or when an
        operator holds it closed. `None`: no rule is broken.
        """
        permit = self._breaker.enter()
        line = broken_rule(self._rules, tool, inputs, self._place)
        if line is None and not permit.probe:
            return None
        verdict = self._breaker.record(Signal(ok=line is None, violation=line), permit)
        if not verdict.admitted:
            self._breaker.enter()
        return line
