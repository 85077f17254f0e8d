"""Reads a file of tasks as a `Batch`. All of it is checked before a task is started."""

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from switchgear._agents.registry import agent_named, agent_of_command
from switchgear._breaker.presets import LoopPreset
from switchgear._budgets.tree import checked_path
from switchgear._config.loader import read_document
from switchgear._config.problems import ConfigNode, Report, shown, suggestion
from switchgear._core import values
from switchgear._fleet.manifest import cycle
from switchgear._run.batch.model import (
    ATTEMPTS,
    AUTO,
    OPEN_CHOICES,
    TIMEOUT_CHOICES,
    Batch,
    Task,
)
from switchgear._run.options import AUTO as AUTO_TESTS
from switchgear._run.options import micros, per_hour, preset_named, seconds
from switchgear._stuck.timeouts import POLICIES, Estimate

MAX_PARALLEL = 1024
MAX_BYTES = 4 * 1024 * 1024
"""Maximum size of a file of tasks: enough for 20,000 tasks, and still read in seconds."""
MAX_VALUES = 300_000
"""Maximum number of values in a file of tasks, after aliases are expanded."""
_NAME = re.compile(r"\w[\w.-]{0,59}")

Read = Callable[[str, Any], Any]
"""Converts the value of a key; raises ValueError with the rule."""


def _name(key: str, value: Any) -> str:
    if not isinstance(value, str) or not _NAME.fullmatch(value):
        rule = "a name of letters, digits, '.', '_' and '-', at most 60, that begins with a letter"
        raise ValueError(f"{key} is {shown(value)}: it must be {rule}")
    return value


def _names(key: str, value: Any) -> tuple[str, ...]:
    names = [value] if isinstance(value, str) else value
    if not isinstance(names, list) or not all(isinstance(each, str) for each in names):
        raise ValueError(f"{key} is {shown(value)}: it must be a list of names of tasks")
    return tuple(dict.fromkeys(names))


def _labels(key: str, value: Any) -> tuple[str, ...]:
    return tuple(_name(key, each) for each in _names(key, value))


def _flag(key: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"{key} is {shown(value)}: it must be true or false")
    return value


def _read_int(least: int, most: int = 10**9) -> Read:
    def read(key: str, value: Any) -> int:
        if values.check_int(key, value, least=least) > most:
            raise ValueError(f"{key} is {value!r}: it must be at most {most}")
        return int(value)

    return read


def _one_of(*known: str) -> Read:
    return lambda key, value: values.check_one_of(key, value, known)


def _amount(parse: Callable[[str, str], Any]) -> Read:
    """An amount as a text or a number."""

    def read(key: str, value: Any) -> Any:
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            raise ValueError(f"{key} is {shown(value)}: it must be an amount, such as 5 or '30m'")
        return parse(key, str(value))

    return read


def _seconds(key: str, typed: str) -> float:
    return seconds(key, typed, bare=True)  # a number in a file of tasks is seconds


def _span(key: str, value: Any) -> float:
    found: float = _amount(_seconds)(key, value)
    return values.check_seconds(key, found)


def _timeout(key: str, value: Any) -> float | str | None:
    """A span, a policy or `auto`; 0 means no limit."""
    if value in (AUTO, *POLICIES):
        return str(value)
    try:
        found: float = _amount(_seconds)(key, value)
    except ValueError as problem:
        raise ValueError(f"{problem}, or one of {', '.join((AUTO, *POLICIES))}") from None
    return found or None


def _checked(check: Callable[[str], object]) -> Read:
    """A text that `check` accepts; it raises ValueError for others."""

    def read(key: str, value: Any) -> str:
        check(values.check_text(key, value))
        return str(value)

    return read


def _validation(key: str, value: Any) -> str:
    """A command; true is the project's own tests, false is none."""
    if isinstance(value, bool):
        return AUTO_TESTS if value else ""
    return values.check_text(key, value)


def _folder(key: str, value: Any) -> str:
    path = Path(values.check_text(key, value)).expanduser().resolve()
    if not path.is_dir():
        raise ValueError(f"{key} is {shown(value)}: there is no such folder")
    return str(path)


BATCH_KEYS: dict[str, Read] = {
    "parallel": _read_int(1, MAX_PARALLEL),
    "budget": _amount(micros),
    "on_open": _one_of(*OPEN_CHOICES),
    "labels": _labels,
}
TASK_KEYS: dict[str, Read] = {
    "name": _name,
    "task": values.check_text,
    "needs": _names,
    "files": _read_int(0),
    "loc": _read_int(0),
    "complex": _flag,
}
RUN_KEYS: dict[str, Read] = {
    "agent": _checked(agent_named),
    "agent_cmd": _checked(agent_of_command),
    "model": values.check_text,
    "preset": values.check_text,
    "validate": _validation,
    "commit": _flag,
    "budget": _amount(micros),
    "budget_node": _checked(checked_path),
    "allow_unknown_price": _flag,
    "max_iterations": _read_int(1),
    "rate_limit": _amount(per_hour),
    "idle_timeout": _span,
    "completion_promise": values.check_text,
    "plan": values.check_text,
    "stuck": _flag,
}
"""The keys that are options of the task's run."""
SHARED_KEYS: dict[str, Read] = {
    **RUN_KEYS,
    "timeout": _timeout,
    "cwd": _folder,
    "worktree": _flag,
    "on_timeout": _one_of(*TIMEOUT_CHOICES),
    "attempts": _read_int(1, 100),
    "more_time": _span,
}
"""The keys of a task, and of the defaults for all."""
OPTION_NAMES = {"budget": "budget_micros", "idle_timeout": "idle_timeout_s"}
"""Keys that have another name in `RunOptions`."""
MAX_TASKS = 20_000
KEYS = ("tasks", "defaults", *BATCH_KEYS)


def read_batch(
    path: str | os.PathLike[str], *, presets: Mapping[str, LoopPreset] | None = None
) -> Batch:
    """The tasks of a file. Raises `ConfigError` with all its problems.

    `presets` are the user-defined ones.
    """
    report = Report(os.fspath(path))
    root = read_document(os.fspath(path), report, largest_bytes=MAX_BYTES, most_values=MAX_VALUES)
    batch = _BatchFileReader(report, presets or {}).batch(root)
    report.raise_if_any()
    return batch


class _BatchFileReader:
    """Reads one file. Used by one thread."""

    def __init__(self, report: Report, presets: Mapping[str, LoopPreset]) -> None:
        self._report = report
        self._presets = presets

    def batch(self, root: ConfigNode) -> Batch:
        """The batch; problems are added to the report."""
        report = self._report
        if root.value is None or root.value == {}:
            report.fail(None, "is empty: it must have the key 'tasks', a list of tasks")
        keys = report.mapping(root, KEYS)
        defaults = self._values(keys.get("defaults", ConfigNode(None)), SHARED_KEYS)
        nodes = report.items(keys["tasks"]) if "tasks" in keys else []
        if not nodes and isinstance(root.value, dict):
            report.add(
                keys.get("tasks", root),
                "there are no tasks: 'tasks' must be a list with at least one",
            )
        if len(nodes) > MAX_TASKS:
            report.fail(nodes[MAX_TASKS].line, f"has more than {MAX_TASKS} tasks")
        values = self._read({name: keys[name] for name in keys if name in BATCH_KEYS}, BATCH_KEYS)
        labels = values.get("labels", ())
        tasks = [(node, self._task(node, defaults, labels)) for node in nodes]
        self._check_names(tasks, labels)
        return Batch(
            tuple(task for _, task in tasks if task is not None),
            values.get("parallel", 1),
            values.get("budget"),
            values.get("on_open", OPEN_CHOICES[0]),
        )

    def _task(
        self, node: ConfigNode, defaults: Mapping[str, Any], labels: tuple[str, ...]
    ) -> Task | None:
        before = self._report.added
        values = self._values(node, {**TASK_KEYS, **SHARED_KEYS})
        for key in ("name", "task"):
            if isinstance(node.value, dict) and key not in node.value:
                self._report.add(node, f"needs the key {key!r}")
        if self._report.added > before:
            return None
        # The agent of a task replaces either kind of default agent.
        other = {"agent": "agent_cmd", "agent_cmd": "agent"}
        replaced = {other[key] for key in values if key in other}
        merged = {key: defaults[key] for key in defaults if key not in replaced} | values
        if merged.get("agent") is None and merged.get("agent_cmd") is None:
            self._report.add(node, "has no agent: it needs the key 'agent' or 'agent_cmd'")
            return None
        return _make_task(merged, labels)

    def _values(self, node: ConfigNode, known: Mapping[str, Read]) -> dict[str, Any]:
        """The converted values of a task or of the defaults."""
        nodes = self._report.mapping(node, known)
        values = self._read(nodes, known)
        if "agent" in nodes and "agent_cmd" in nodes:
            self._report.add(
                nodes["agent_cmd"], "cannot be combined with 'agent': a task has one agent"
            )
        return values

    def _read(self, nodes: Mapping[str, ConfigNode], known: Mapping[str, Read]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key, child in nodes.items():
            value = child.plain()
            try:
                if key == "preset":
                    preset_named(values.check_text(key, value), self._presets)
                found[key] = known[key](key, value)
            except ValueError as problem:
                # The message begins with the key already.
                self._report.add(child, str(problem).removeprefix(f"{key} "))
        return found

    def _check_names(
        self, tasks: list[tuple[ConfigNode, Task | None]], labels: tuple[str, ...]
    ) -> None:
        lines: dict[str, int | None] = {}
        every = {task.name for _, task in tasks if task is not None}
        for node, task in tasks:
            if task is None:
                continue
            if task.name in labels:
                why = f"is {task.name!r}, which is also a label of hosts: rename one of them"
                self._report.add(node.value["name"], why)
            if task.name in lines:
                place = node.value["name"]
                why = f"is {task.name!r}: another task of that name is in line {lines[task.name]}"
                self._report.add(place, why)
            lines.setdefault(task.name, node.line)
            for need in task.needs:
                if need not in every:
                    hint = suggestion(need, sorted(every))
                    why = f"is {shown(need)}: there is no task of that name; {hint}"
                    self._report.add(node.value["needs"], why)
        ring = cycle({task.name: task.needs for _, task in tasks if task is not None})
        if ring is not None:
            place = next(node for node, task in tasks if task is not None and task.name == ring[0])
            self._report.add(
                place.value["needs"],
                f"the tasks need each other in a cycle: {' needs '.join(ring)}",
            )


def _make_task(values: Mapping[str, Any], labels: tuple[str, ...]) -> Task:
    """The task; its needs are split into tasks and labels of hosts."""
    needs = values.get("needs", ())
    flags = {OPTION_NAMES.get(key, key): value for key, value in values.items() if key in RUN_KEYS}
    size = Estimate(
        values.get("files", 0), values.get("loc", 0), len(needs), values.get("complex", False)
    )
    return Task(
        name=values["name"],
        words=values["task"],
        needs=tuple(each for each in needs if each not in labels),
        labels=tuple(each for each in needs if each in labels),
        estimate=size,
        timeout=values.get("timeout", AUTO),
        flags=flags,
        cwd=values.get("cwd"),
        worktree=values.get("worktree", False),
        on_timeout=values.get("on_timeout", TIMEOUT_CHOICES[0]),
        attempts=values.get("attempts", ATTEMPTS),
        more_time_s=values.get("more_time"),
    )
