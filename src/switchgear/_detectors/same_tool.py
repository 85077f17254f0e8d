"""Tool calls without progress: the same call again and again, or many calls and no changed file."""

from typing import Any, ClassVar, NamedTuple

from switchgear._core import values
from switchgear._core.detector import Detector, Measure
from switchgear._core.types import AgentStep, Signal
from switchgear._text.fingerprint import digest, fingerprint
from switchgear._text.formats import plural


class ToolFlood(Detector):
    """Trips at more than `threshold` calls (default 20) since a file last changed.

    Counts calls of any tool. A call whose files were not measured counts like one without changes.

    >>> ToolFlood().reason(25, now_s=0.0)
    '25 calls without a file change (more than 20 trips)'
    """

    __slots__ = ("threshold",)
    kind: ClassVar[str] = "tool_flood"
    threshold: int

    def __init__(self, threshold: int = 20) -> None:
        self._set(threshold=values.check_int("ToolFlood.threshold", threshold))

    def start(self) -> int:
        return 0

    def fold(self, memory: int, signal: Signal, now_s: float) -> int:
        """A change of files resets the count; a call without one adds one."""
        if signal.files_changed and signal.count:
            return 0
        called = signal.step is not None and signal.step.tool
        return memory + signal.count if called else memory

    def heat(self, memory: int, now_s: float) -> float:
        return memory / (self.threshold + 1)

    def reason(self, memory: int, now_s: float) -> str:
        return f"{plural(memory, 'call')} without a file change (more than {self.threshold} trips)"

    def measure(self, memory: int, now_s: float) -> Measure:
        return Measure(memory, self.threshold + 1, "calls")

    def dump(self, memory: int) -> int:
        return memory

    def load(self, data: Any) -> int:
        return values.check_int("calls without a file change", data, least=0)


MATCHES = ("outcome", "call", "tool")
LONGEST_TOOL = 80
"""Characters kept of a tool's name."""


class EqualCalls(NamedTuple):
    """The current row of equal calls: the tool, the key of the calls, and their number."""

    tool: str = ""
    key: str = ""
    times: int = 0


class SameTool(Detector):
    """Trips when one tool is called more than `threshold` times in a row (default 5) without a new result.

    `match` defines which calls are the same. `"outcome"` (the default): tool, arguments and
    result, so that reading many files or polling a build that changes is not a loop; for failures
    the fingerprint of the error counts. `"call"`: tool and arguments. `"tool"`: the tool alone.

    >>> SameTool().reason(EqualCalls("Bash", "9.1f", 7), now_s=0.0)
    'Bash called 7 times in a row with the same outcome (more than 5 trips)'
    """

    __slots__ = ("threshold", "match")  # noqa: RUF023  the constructor's order
    kind: ClassVar[str] = "same_tool"
    threshold: int
    match: str

    def __init__(self, threshold: int = 5, match: str = "outcome") -> None:
        self._set(
            threshold=values.check_int("SameTool.threshold", threshold),
            match=values.check_one_of("SameTool.match", match, MATCHES),
        )

    def start(self) -> EqualCalls:
        return EqualCalls()

    def fold(self, memory: EqualCalls, signal: Signal, now_s: float) -> EqualCalls:
        """An equal call adds one to the row; another call starts a new row."""
        act = signal.step
        if act is None or not act.tool or not signal.count:
            return memory
        key = self._key(act, signal)
        before = memory.times if key == memory.key else 0
        return EqualCalls(act.tool[:LONGEST_TOOL], key, before + signal.count)

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

    def heat(self, memory: EqualCalls, now_s: float) -> float:
        return memory.times / (self.threshold + 1)

    def reason(self, memory: EqualCalls, now_s: float) -> str:
        same = {"outcome": " with the same outcome", "call": " with the same arguments"}
        if not memory.times:
            return f"no call is repeated (more than {self.threshold} in a row trips)"
        what = f"{memory.tool} called {plural(memory.times, 'time')} in a row"
        return f"{what}{same.get(self.match, '')} (more than {self.threshold} trips)"

    def measure(self, memory: EqualCalls, now_s: float) -> Measure:
        return Measure(memory.times, self.threshold + 1, "calls")

    def dump(self, memory: EqualCalls) -> list[Any]:
        return list(memory)

    def load(self, data: Any) -> EqualCalls:
        tool, key, times = values.check_list("a row of calls", data, 3)
        for text in (tool, key):
            if not isinstance(text, str) or len(text) > LONGEST_TOOL:
                raise ValueError(f"{text!r} must be a text of at most {LONGEST_TOOL} characters")
        if values.check_int("calls in a row", times, least=0) and not (tool and key):
            raise ValueError(f"{times} calls in a row need a tool and a key")
        return EqualCalls(tool, key, times) if times else EqualCalls()
