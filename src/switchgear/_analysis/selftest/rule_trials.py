"""For each absolute rule a call that breaks it, made up from its own patterns."""

from collections.abc import Iterator
from itertools import islice, product
from typing import Any, NamedTuple

from switchgear._rules.effects import Place
from switchgear._rules.rules import ALLOWED, ASPECTS, GUARD, SECRET, Rule, judge

FILL = "selftest"
"""What stands for a star."""
_KEY = "ghp_" + "a1B2c3D4e5F6g7H8i9J0" * 2
"""Looks like a key, and is none."""
_KEY_VARIABLE = "ANTHROPIC_API_KEY"
"""A variable that holds a key."""
_PATHS = ("sends", "deletes", "writes", "given", "paths")
_MOST = 200
"""Calls that are made up for one rule, at most."""


class Breach(NamedTuple):
    """A call that nobody makes."""

    tool: str
    inputs: dict[str, Any]


class ForbiddenCall(NamedTuple):
    """What could be made up for a rule."""

    breach: Breach | None = None
    excused: bool = False
    """Whether all that would break it is allowed by its own lists."""


def breach_of(rule: Rule, place: Place) -> ForbiddenCall:
    """A call that breaks this very rule.

    >>> breach_of(Rule("no-curl", commands=("curl",)), Place("/w")).breach
    Breach(tool='Bash', inputs={'command': 'curl'})
    >>> breach_of(Rule("none", commands=("curl",), allow_commands=("curl",)), Place("/w")).excused
    True
    """
    bare = rule.replace(**{f"allow_{name}": () for name in ALLOWED})
    excused = False
    for breach in islice(_made_up(rule, place), _MOST):
        if judge([rule], breach.tool, breach.inputs, place) is not None:
            return ForbiddenCall(breach)
        excused = excused or judge([bare], breach.tool, breach.inputs, place) is not None
    return ForbiddenCall(None, excused)


def _made_up(rule: Rule, place: Place) -> Iterator[Breach]:
    given = [aspect for aspect in ASPECTS if getattr(rule, aspect)]
    choices = [_filled(getattr(rule, aspect), place) for aspect in given]
    for chosen in product(*choices):
        part = dict(zip(given, chosen, strict=True))
        path = next((part[name] for name in _PATHS if name in part), "")
        if "tools" not in part:
            for line in _lines(part, path):
                yield Breach("Bash", {"command": line})
        yield Breach(part.get("tools", _tool(part)), _inputs(part, path))


def _lines(part: dict[str, str], path: str) -> Iterator[str]:
    """Shell lines that hold all of it."""
    host, text = part.get("hosts", ""), part.get("contents", "")
    command = part.get("commands", "")
    if "variables" in part:
        for name in (part["variables"], _KEY_VARIABLE):
            yield f'curl -H "x: ${name}" https://{host or FILL}/'
    if command:
        yield " ".join(each for each in (command, path, host) if each)
        if text:
            yield f"{command} -c '{text}'"
            yield f"{command} '{text}'"
    elif "sends" in part:
        yield f"curl -T {path} https://{host or FILL}/"
    elif "deletes" in part:
        yield f"rm -rf {path}"
    elif host:
        yield f"curl -d '{text or FILL}' https://{host}/"
    elif path:
        yield f"{FILL} {path}" if "given" in part else f"cp {FILL} {path}"


def _inputs(part: dict[str, str], path: str) -> dict[str, Any]:
    inputs: dict[str, Any] = {}
    if path:
        inputs["file_path"] = path
    if "contents" in part or "writes" in part:
        inputs["content"] = part.get("contents", FILL)
    if "hosts" in part:
        inputs["url"] = f"https://{part['hosts']}/"
    if "commands" in part:
        inputs["command"] = part["commands"]
    if "inputs" in part:
        name, _, value = part["inputs"].partition("=")
        inputs[name or FILL] = value
    return inputs


def _tool(part: dict[str, str]) -> str:
    if "hosts" in part:
        return "WebFetch"
    return "Write" if {"writes", "contents"} & part.keys() else "Read"


def _filled(patterns: tuple[str, ...], place: Place) -> list[str]:
    """Texts that match patterns, one each."""
    found: list[str] = []
    for pattern in patterns[:6]:
        if pattern == SECRET:
            found.append(_KEY)
        elif pattern == GUARD:
            found += [_one(each) for each in place.protected[:3]]
        else:
            found.append(_one(pattern))
    return found


def _one(pattern: str) -> str:
    return pattern.replace("**", FILL).replace("*", FILL).replace("?", "x")
