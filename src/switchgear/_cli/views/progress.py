"""How far a long command is, with an estimate, on a terminal's standard error; elsewhere nothing."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

Report = Callable[[int, int], object]


@contextmanager
def progress(what: str, *, hidden: bool) -> Iterator[Report | None]:
    """A function to call with what is done and all there is; `None` where nobody would see it.

    A call with 0 done begins another pass, which is numbered.
    """
    if hidden or not sys.stderr.isatty():
        yield None
        return
    from rich import progress as bars  # noqa: PLC0415  only on a terminal
    from rich.console import Console  # noqa: PLC0415

    bar = bars.Progress(
        bars.TextColumn("{task.description}"),
        bars.BarColumn(),
        bars.TaskProgressColumn(),
        bars.TimeElapsedColumn(),
        bars.TextColumn("elapsed, about"),
        bars.TimeRemainingColumn(),
        bars.TextColumn("left"),
        console=Console(stderr=True),
        transient=True,
    )
    with bar:
        yield _Passes(bar, what)


class _Passes:
    def __init__(self, bar: Any, what: str) -> None:
        self._bar, self._what = bar, what
        self._passes = 0
        self._task: Any = None

    def __call__(self, done: int, total: int) -> None:
        if self._task is None or done == 0:
            if self._task is not None:
                self._bar.remove_task(self._task)
            self._passes += 1
            name = self._what if self._passes == 1 else f"{self._what}, pass {self._passes}"
            self._task = self._bar.add_task(name, total=max(1, total))
        self._bar.update(self._task, completed=done)
