"""Rules asked about a real machine: where home is, what the variables are, where links lead.

The core judges values; this is where they come from. Imports little: a hook asks it each time.
"""

import os
from collections.abc import Iterable, Mapping
from typing import Any

from switchgear.core.deeds import Place
from switchgear.core.rules import Rule, judge
from switchgear.core.types import Act, Signal
from switchgear.redact import redact

# ruff: noqa: PTH100, PTH111  pathlib is slow to import, and hooks come here


def place_at(
    workspace: str,
    *,
    cwd: str = "",
    protected: Iterable[str] = (),
    env: Mapping[str, str] | None = None,
) -> Place:
    """The place of an agent that works in a folder of this machine.

    `cwd` is where its commands run (default: the workspace), `protected` are paths of the guard
    itself: the configuration that holds, the file of the store, the settings with the hooks.
    """
    env = os.environ if env is None else env
    return Place(
        os.path.abspath(workspace),
        cwd,
        os.path.expanduser("~"),
        env,
        os.path.realpath,
        tuple(protected),
    )


def broken_rule(rules: Iterable[Rule], tool: str, inputs: Any, place: Place) -> str | None:
    """The rule that a call would break, in one line without secrets, or `None`.

    >>> rule = Rule("no-curl", commands=("curl",))
    >>> broken_rule([rule], "Bash", {"command": "curl example.com"}, place_at("."))
    'rule no-curl: curl example.com'
    """
    broken = judge(rules, tool, inputs, place)
    return None if broken is None else redact(str(broken))


def broken_by_act(rules: Iterable[Rule], act: Act, place: Place) -> str | None:
    """The same for an `Act`, whose `args` may be JSON or a text."""
    return broken_rule(rules, act.tool, inputs_of(act.args), place)


def violation(rules: Iterable[Rule], act: Act, place: Place) -> Signal | None:
    """What to tell the circuit of the rules: a signal if the act breaks one, else `None`."""
    line = broken_by_act(rules, act, place)
    return None if line is None else Signal(violation=line, act=act)


def inputs_of(args: str) -> Any:
    """The inputs in a text: what JSON says, or the text itself."""
    import json  # noqa: PLC0415  a hook has parsed its inputs already

    try:
        return json.loads(args)
    except ValueError:
        return args
