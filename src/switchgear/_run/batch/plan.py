"""Which tasks may begin, which are blocked and by what, and what cannot be ordered. Pure."""

from collections.abc import Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from pathlib import PurePath

from switchgear._run.batch.model import BROKEN, SATISFIED, Status, Task

Statuses = Mapping[str, Status]


def ready(tasks: Sequence[Task], statuses: Statuses) -> list[Task]:
    """The tasks that may begin now, in the order of the file.

    >>> [task.name for task in ready([Task("a", ""), Task("b", "", ("a",))], {})]
    ['a']
    """
    return [
        task
        for task in tasks
        if statuses.get(task.name, Status.WAITING) is Status.WAITING
        and all(statuses.get(need) in SATISFIED for need in task.needs)
    ]


def blocked(tasks: Sequence[Task], statuses: Statuses) -> dict[str, str]:
    """The waiting tasks that can never begin, each with the task whose failure is the cause.

    >>> chain = [Task("a", ""), Task("b", "", ("a",)), Task("c", "", ("b",))]
    >>> blocked(chain, {"a": Status.FAILED})
    {'b': 'a', 'c': 'a'}
    """
    causes: dict[str, str] = {}
    found = True
    while found:
        found = False
        for task in tasks:
            stands = statuses.get(task.name, Status.WAITING)
            if task.name in causes or stands not in {Status.WAITING, Status.BLOCKED}:
                continue
            for need in task.needs:
                failed = statuses.get(need) in BROKEN - {Status.BLOCKED}
                if failed or need in causes:
                    causes[task.name] = need if failed else causes[need]
                    found = True
                    break
    return {
        name: cause
        for name, cause in causes.items()
        if statuses.get(name, Status.WAITING) is Status.WAITING
    }


def cycle(needs: Mapping[str, Sequence[str]]) -> list[str] | None:
    """Tasks that need each other in a cycle, starting and ending with the same; `None`: none do.

    The cycle starts with the task that comes first in the file.

    >>> cycle({"a": ["b"], "b": ["c"], "c": ["a"]})
    ['a', 'b', 'c', 'a']
    """
    try:
        TopologicalSorter(needs).prepare()
    except CycleError as error:
        ring = error.args[1][:0:-1]  # graphlib lists each task before the one that needs it
        first = ring.index(next(name for name in needs if name in ring))
        return [*ring[first:], *ring[:first], ring[first]]
    return None


def ancestors(tasks: Sequence[Task]) -> dict[str, frozenset[str]]:
    """All that each task needs, directly or not. The tasks must not need each other in a cycle."""
    needs = {task.name: task.needs for task in tasks}
    found: dict[str, frozenset[str]] = {}
    for name in TopologicalSorter(needs).static_order():
        found[name] = frozenset(needs[name]).union(*(found[need] for need in needs[name]))
    return found


def clash(tasks: Sequence[Task], places: Mapping[str, str]) -> tuple[str, str] | None:
    """Two tasks that could run at the same time in the same place; `None`: no two could.

    A place is the working tree that a task changes; one inside another is the same.
    """
    above = ancestors(tasks)
    for at, one in enumerate(tasks):
        for other in tasks[at + 1 :]:
            ordered = one.name in above[other.name] or other.name in above[one.name]
            if not ordered and _overlap(places.get(one.name), places.get(other.name)):
                return one.name, other.name
    return None


def _overlap(one: str | None, other: str | None) -> bool:
    if one is None or other is None:
        return False
    first, second = PurePath(one), PurePath(other)
    return first.is_relative_to(second) or second.is_relative_to(first)
