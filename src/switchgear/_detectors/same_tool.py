"""The same tool again and again, with nothing new coming of it (seed 002)."""

from typing import Any, ClassVar, NamedTuple

from switchgear._core import values
from switchgear._core.detector import Detector, Measure, plural
from switchgear._core.types import AgentStep, Signal
from switchgear._text.digest import digest
from switchgear._text.fingerprint import fingerprint

MATCHES = ("outcome", "call", "tool")
LONGEST_TOOL = 80
"""Characters kept of a tool's name."""


class Row(NamedTuple):
    """The calls in a row that are the same."""

    tool: str = ""
    key: str = ""
    times: int = 0


class SameTool(Detector):
    """Trips when one tool is called more than `threshold` times in a row (default 5), in vain.

    What is the same is told by `match`. `"outcome"` (the default): tool, arguments and what came
    back, so that reading many files or polling a build that changes is not a loop; of failures
    the fingerprint of the error counts. `"call"`: tool and arguments. `"tool"`: the tool alone.

    >>> SameTool().reason(Row("Bash", "9.1f", 7), now_s=0.0)
    'Bash called 7 times in a row with the same outcome (more than 5 trips)'
    """

    __slots__ = ("threshold", "match")  # noqa: RUF023  the constructor's order
    kind: ClassVar[str] = "same_tool"
    threshold: int
    match: str

    def __init__(self, threshold: int = 5, match: str = "outcome") -> None:
        self._set(
            threshold=values.whole("SameTool.threshold", threshold),
            match=values.one_of("SameTool.match", match, MATCHES),
        )

    def start(self) -> Row:
        """No call yet."""
        return Row()

    def fold(self, memory: Row, signal: Signal, now_s: float) -> Row:
        """The same call lengthens the row, another begins one."""
        del now_s
        act = signal.step
        if act is None or not act.tool or not signal.count:
            return memory
        key = self._key(act, signal)
        before = memory.times if key == memory.key else 0
        return Row(act.tool[:LONGEST_TOOL], key, before + signal.count)

    def _key(self, act: AgentStep, signal: Signal) -> str:
        parts = [act.tool]
        if self.match != "tool":
            parts.append(act.call_key or act.args)
        if self.match == "outcome":
            failed = signal.ok is False and signal.error is not None
            parts.append(
                fingerprint(signal.error or "") if failed else act.result_key or act.result or ""
            )
        return digest("\0".join(parts))

    def heat(self, memory: Row, now_s: float) -> float:
        """The row against the first that is too many."""
        del now_s
        return memory.times / (self.threshold + 1)

    def reason(self, memory: Row, now_s: float) -> str:
        """The row in words."""
        del now_s
        same = {"outcome": " with the same outcome", "call": " with the same arguments"}
        what = f"{memory.tool or 'no tool'} called {plural(memory.times, 'time')} in a row"
        return f"{what}{same.get(self.match, '')} (more than {self.threshold} trips)"

    def measure(self, memory: Row, now_s: float) -> Measure:
        """The row, and the first that is too many."""
        del now_s
        return Measure(memory.times, self.threshold + 1, "calls")

    def dump(self, memory: Row) -> list[Any]:
        """The fields."""
        return list(memory)

    def load(self, data: Any) -> Row:
        """The inverse of `dump`; raises ValueError for what it never dumped."""
        tool, key, times = values.row("a row of calls", data, 3)
        for text in (tool, key):
            if not isinstance(text, str) or len(text) > LONGEST_TOOL:
                raise ValueError(f"{text!r} must be a text of at most {LONGEST_TOOL} characters")
        if values.whole("calls in a row", times, least=0) and not (tool and key):
            raise ValueError(f"{times} calls in a row need a tool and a key")
        return Row(tool, key, times) if times else Row()
