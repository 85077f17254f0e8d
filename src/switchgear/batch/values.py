"""The values of a file of tasks: each key with what it may say. Raises ValueError for the rest."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from switchgear.agents.registry import agent_named, agent_of_command
from switchgear.batch.model import AUTO, OPEN_CHOICES, TIMEOUT_CHOICES
from switchgear.config.problems import shown
from switchgear.core import record
from switchgear.core.book import checked_path
from switchgear.runner.amounts import micros, per_hour, seconds
from switchgear.runner.options import AUTO as AUTO_TESTS
from switchgear.timeouts import POLICIES

MOST_PARALLEL = 64
_NAME = re.compile(r"\w[\w.-]{0,59}")

Read = Callable[[str, Any], Any]
"""A value of the file, by its key; raises ValueError with what it must be."""


def text(key: str, value: Any) -> str:
    """A text that is not empty."""
    return record.text(key, value)


def _name(key: str, value: Any) -> str:
    if not isinstance(value, str) or not _NAME.fullmatch(value):
        rule = "a name of letters, digits, '.', '_' and '-', at most 60, that begins with a letter"
        raise ValueError(f"{key} is {shown(value)}: it must be {rule}")
    return value


def _names(key: str, value: Any) -> tuple[str, ...]:
    values = [value] if isinstance(value, str) else value
    if not isinstance(values, list) or not all(isinstance(each, str) for each in values):
        raise ValueError(f"{key} is {shown(value)}: it must be a list of names of tasks")
    return tuple(dict.fromkeys(values))


def _flag(key: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"{key} is {shown(value)}: it must be true or false")
    return value


def _whole(least: int, most: int = 10**9) -> Read:
    def read(key: str, value: Any) -> int:
        if record.whole(key, value, least=least) > most:
            raise ValueError(f"{key} is {value!r}: it must be at most {most}")
        return int(value)

    return read


def _one_of(*known: str) -> Read:
    return lambda key, value: record.one_of(key, value, known)


def _amount(parse: Callable[[str, str], Any]) -> Read:
    """An amount as it is typed; a number is meant as it stands."""

    def read(key: str, value: Any) -> Any:
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            raise ValueError(f"{key} is {shown(value)}: it must be an amount, such as 5 or '30m'")
        return parse(key, str(value))

    return read


def _seconds(key: str, typed: str) -> float:
    return seconds(key, typed, bare=True)  # a number in a file of tasks is seconds


def _span(key: str, value: Any) -> float:
    found: float = _amount(_seconds)(key, value)
    return record.seconds(key, found)


def _timeout(key: str, value: Any) -> float | str | None:
    """A span, a policy, `auto`; 0 is no end."""
    if value in (AUTO, *POLICIES):
        return str(value)
    try:
        found: float = _amount(_seconds)(key, value)
    except ValueError as problem:
        raise ValueError(f"{problem}, or one of {', '.join((AUTO, *POLICIES))}") from None
    return found or None


def _agent(key: str, value: Any) -> str:
    agent_named(text(key, value))
    return str(value)


def _command(key: str, value: Any) -> str:
    agent_of_command(text(key, value))
    return str(value)


def _validation(key: str, value: Any) -> str:
    """A command; true is the project's own tests, false is none."""
    if isinstance(value, bool):
        return AUTO_TESTS if value else ""
    return text(key, value)


def _node(key: str, value: Any) -> str:
    return checked_path(text(key, value))


def _folder(key: str, value: Any) -> str:
    path = Path(text(key, value)).expanduser().resolve()
    if not path.is_dir():
        raise ValueError(f"{key} is {shown(value)}: there is no such folder")
    return str(path)


WHOLE: dict[str, Read] = {
    "parallel": _whole(1, MOST_PARALLEL),
    "budget": _amount(micros),
    "on_open": _one_of(*OPEN_CHOICES),
}
TASK: dict[str, Read] = {
    "name": _name,
    "task": text,
    "needs": _names,
    "files": _whole(0),
    "loc": _whole(0),
    "complex": _flag,
}
RUN: dict[str, Read] = {
    "agent": _agent,
    "agent_cmd": _command,
    "model": text,
    "preset": text,
    "validate": _validation,
    "commit": _flag,
    "budget": _amount(micros),
    "budget_node": _node,
    "allow_unknown_price": _flag,
    "max_iterations": _whole(1),
    "rate_limit": _amount(per_hour),
    "idle_timeout": _span,
    "completion_promise": text,
    "plan": text,
    "stuck": _flag,
}
"""What is an option of the task's run."""
SHARED: dict[str, Read] = {
    **RUN,
    "timeout": _timeout,
    "cwd": _folder,
    "worktree": _flag,
    "on_timeout": _one_of(*TIMEOUT_CHOICES),
    "attempts": _whole(1, 100),
    "more_time": _span,
}
"""What a task may say, and the defaults for all."""
FLAGS = {"budget": "budget_micros", "idle_timeout": "idle_timeout_s"}
"""Keys that are called otherwise in `RunOptions`."""
