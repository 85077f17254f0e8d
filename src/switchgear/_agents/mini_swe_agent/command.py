"""mini-swe-agent, headless: `mini --yolo`. It prints its conversation as plain text.

A heading says whose words follow: the agent's, with the step and the cost so far, or the
observation of the command that the agent put into a fenced block.
"""

import re
from collections.abc import Iterator
from pathlib import Path

from switchgear._agents.base import Agent, Invocation, StreamReader, as_argument
from switchgear._agents.events import Result, StreamEvent
from switchgear._agents.provider_messages import complaint
from switchgear._text.agent_text import clean

_STEP = re.compile(r"^mini-swe-agent \(step (\d{1,9}), \$([\d.]{1,12})\):")
_HEADING = re.compile(r"^(System|User|Tool|Exit|Assistant|Function_call_output):$")
_RETURN_CODE = re.compile(r"^<returncode>(?:(-?\d{1,10})</returncode>)?$")
_FAILED = re.compile(r"^(\w{0,60}(?:Error|Exceeded|Interruption))$", re.MULTILINE)
_TRAILER = ("Saved trajectory to ",)
_LONGEST_BLOCK = 20_000


class MiniReader(StreamReader):
    """Reads what `mini` prints when it is piped."""

    def __init__(self, *, model: str | None = None) -> None:
        super().__init__(model=model)
        self._block = ""
        """Whose words are being read."""
        self._lines: list[str] = []
        self._size = 0
        self._steps = 0
        self._last_words = ""

    def read_line(self, text: str) -> Iterator[StreamEvent]:
        """The events of one line: a heading ends the block before it."""
        if text.startswith(_TRAILER) or (text and not text.strip("─ ")):
            return  # a rule across the terminal
        step = _STEP.match(text)
        heading = _HEADING.match(text)
        if step or heading:
            yield from self._end_of_block()
            self._block = "agent" if step else heading[1].lower() if heading else ""
            if step:
                yield self.meter.set(self.model, dollars=float(step[2]) or None)
        elif self._size < _LONGEST_BLOCK:
            self._lines.append(text)
            self._size += len(text)
        if self._block == "agent" and not step:
            yield from self.said(text)

    def read_end(self, exit_code: int | None) -> Iterator[StreamEvent]:
        """The last block and what the run came to."""
        block, said = self._block, "\n".join(self._lines).strip()
        yield from self._end_of_block()
        if block == "exit":
            failed = _FAILED.search(said)
            if failed:
                error = complaint(failed[1], final=True)
                limit = failed[1].endswith("Exceeded")
                yield error._replace(kind="limit") if limit else error
            yield Result(clean(said or self._last_words), failed is None, "exit")
        elif block:
            yield Result(clean(self._last_words), False if exit_code else None)

    def _end_of_block(self) -> Iterator[StreamEvent]:
        lines, self._lines, self._size = self._lines, [], 0
        if self._block == "agent":
            self._last_words = "\n".join(lines).strip()
            if command := _fenced(lines):
                self._steps += 1
                yield from self.started(self._steps, "bash", {"command": command})
        elif self._block in {"user", "tool", "function_call_output"}:
            code = _return_code(lines)
            if code is not None:
                output = "\n".join(lines).partition("<output>")[2].strip()
                said = output if code == 0 else f"{output}\nexit code {code}".strip()
                yield from self.finished(self._steps, ok=code == 0, output=said)


class Mini(Agent):
    """mini-swe-agent."""

    name = "mini"
    install = "python3 -m pip install mini-swe-agent"

    def invocation(
        self, prompt: str, cwd: Path, *, model: str | None = None, extra: tuple[str, ...] = ()
    ) -> Invocation:
        """No confirmations; its trajectory stays in its own configuration folder."""
        del cwd
        argv = ["mini", "--yolo", "--exit-immediately", *(("--model", model) if model else ())]
        env = {"MSWEA_CONFIGURED": "true", "COLUMNS": "1000"}
        env["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # else its start depends on the network
        return Invocation((*argv, *extra, "--task", as_argument(prompt)), None, env)

    def reader(self, *, model: str | None = None) -> StreamReader:
        """A reader for one run."""
        return MiniReader(model=model)


def _fenced(lines: list[str]) -> str:
    """The last fenced block of the agent's words: what it wants to run."""
    fences = [index for index, line in enumerate(lines) if line.startswith("```")]
    if len(fences) < 2:
        return ""
    return "\n".join(lines[fences[-2] + 1 : fences[-1]]).strip()


def _return_code(lines: list[str]) -> int | None:
    for index, line in enumerate(lines):
        match = _RETURN_CODE.match(line.strip())
        if match is None:
            continue
        told = match[1] or (lines[index + 1].strip() if index + 1 < len(lines) else "")
        return int(told) if re.fullmatch(r"-?\d{1,10}", told) else None
    return None
