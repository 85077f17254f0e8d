"""Checks rules on a real machine: its home folder, variables and links.

The core checks values; this module reads them from the machine. It imports little, because every
hook uses it.
"""

import os
import stat
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from switchgear._core.types import AgentStep, Signal
from switchgear._rules.effects import Place
from switchgear._rules.rules import Rule, judge
from switchgear._text.redact import redact

if TYPE_CHECKING:
    from switchgear._breaker.handle import Breaker

# ruff: noqa: PTH100, PTH111  pathlib is slow to import, and hooks come here

LARGEST_LIST = 16_384
"""Bytes of a file with names that commands are given (`xargs -a FILE`); longer ones are not read."""


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
        _names_in,
    )


def _resolve_links(path: str) -> str:
    """A path with its links followed; a path that cannot be followed is returned unchanged."""
    try:
        return os.path.realpath(path)
    except (OSError, ValueError):
        return path


def _names_in(path: str) -> str | None:
    """The lines of a small file that lists names: none with blanks, or with an equals sign."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError):
        return None
    try:
        found = os.fstat(file)
        if not stat.S_ISREG(found.st_mode) or found.st_size > LARGEST_LIST:
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


def broken_by_act(rules: Iterable[Rule], act: AgentStep, place: Place) -> str | None:
    """The same for an `AgentStep`, whose `args` may be JSON or a text."""
    return broken_rule(rules, act.tool, inputs_of(act.args), place)


def violation(rules: Iterable[Rule], act: AgentStep, place: Place) -> Signal | None:
    """The signal for the circuit of the rules if the act breaks one, else `None`."""
    line = broken_by_act(rules, act, place)
    return None if line is None else Signal(violation=line, step=act)


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


def inputs_of(args: str) -> Any:
    """The inputs in a text: its JSON value, or the text itself."""
    import json  # noqa: PLC0415  a hook has parsed its inputs already

    try:
        return json.loads(args)
    except ValueError:
        return args
