"""mini-swe-agent, headless: `mini --yolo`. It prints its conversation as plain text.

A heading starts each block: a message of the agent, with the step and the cost so far, or the output of the command
that the agent put into a fenced code block.
"""

import re
from collections.abc import Iterator

from switchgear._agents.base import Agent, Invocation, StreamReader, as_argument
from switchgear._agents.events import AgentResult, StreamEvent, Usage, error_from_text
from switchgear._agents.fields import at, count, items, micros, parsed, words
from switchgear._agents.recordings.recording import (
    RecordedRun,
    RecordingFile,
    RecordingFormat,
    RecordingTally,
    RunBuilder,
    name,
    timestamp,
    word,
)
from switchgear._text.agent_text import clean

_STEP = re.compile(r"^mini-swe-agent \(step (\d{1,9}), \$([\d.]{1,12})\):")
_HEADING = re.compile(r"^(System|User|Tool|Exit|Assistant|Function_call_output):$")
_RETURN_CODE = re.compile(r"^<returncode>(?:(-?\d{1,10})</returncode>)?$")
_FAILED = re.compile(r"^(\w{0,60}(?:Error|Exceeded|Interruption))$", re.MULTILINE)
_TRAILER = ("Saved trajectory to ",)
_MAX_BLOCK_CHARS = 20_000


class MiniReader(StreamReader):
    def __init__(self, *, model: str | None = None) -> None:
        super().__init__(model=model)
        self._block = ""
        """The author of the current block."""
        self._lines: list[str] = []
        self._size = 0
        self._steps = 0

    def read_line(self, text: str) -> Iterator[StreamEvent]:
        """The events of one line. A heading ends the block before it."""
        if text.startswith(_TRAILER) or (text and not text.strip("─ ")):
            return  # a rule across the terminal
        step = _STEP.match(text)
        heading = _HEADING.match(text)
        if step or heading:
            yield from self._end_of_block()
            self._block = "agent" if step else heading[1].lower() if heading else ""
            if step:
                yield self.meter.set(self.model, dollars=float(step[2]) or None)
        elif self._size < _MAX_BLOCK_CHARS:
            self._lines.append(text)
            self._size += len(text)
        if self._block == "agent" and not step:
            yield from self.message(text)

    def read_end(self, exit_code: int | None) -> Iterator[StreamEvent]:
        """The events of the last block, and the result of the run."""
        block, text = self._block, "\n".join(self._lines).strip()
        yield from self._end_of_block()
        if block == "exit":
            failed = _FAILED.search(text)
            if failed:
                error = error_from_text(failed[1], final=True)
                limit = failed[1].endswith("Exceeded")
                yield error._replace(kind="limit") if limit else error
            yield AgentResult(clean(text or self._last_text), failed is None, "exit")
        elif block:
            yield AgentResult(clean(self._last_text), False if exit_code else None)

    def _end_of_block(self) -> Iterator[StreamEvent]:
        lines, self._lines, self._size = self._lines, [], 0
        if self._block == "agent":
            self._last_text = "\n".join(lines).strip()
            if command := _last_fenced_block(lines):
                self._steps += 1
                yield from self.started(self._steps, "bash", {"command": command})
        elif self._block in {"user", "tool", "function_call_output"}:
            code = _return_code(lines)
            if code is not None:
                output = "\n".join(lines).partition("<output>")[2].strip()
                result = output if code == 0 else f"{output}\nexit code {code}".strip()
                yield from self.finished(self._steps, ok=code == 0, output=result)


class Mini(Agent):
    name = "mini"
    install = "python3 -m pip install mini-swe-agent"
    reader_class = MiniReader

    def command(self, prompt: str, options: tuple[str, ...]) -> Invocation:
        """No confirmations; the trajectory is written to the agent's configuration folder."""
        argv = ["mini", "--yolo", "--exit-immediately"]
        env = {"MSWEA_CONFIGURED": "true", "COLUMNS": "1000"}
        env["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # otherwise its start requires the network
        return Invocation((*argv, *options, "--task", as_argument(prompt)), None, env)


def _last_fenced_block(lines: list[str]) -> str:
    fences = [index for index, line in enumerate(lines) if line.startswith("```")]
    if len(fences) < 2:
        return ""
    return "\n".join(lines[fences[-2] + 1 : fences[-1]]).strip()


def _return_code(lines: list[str]) -> int | None:
    for index, line in enumerate(lines):
        match = _RETURN_CODE.match(line.strip())
        if match is None:
            continue
        digits = match[1] or (lines[index + 1].strip() if index + 1 < len(lines) else "")
        return int(digits) if re.fullmatch(r"-?\d{1,10}", digits) else None
    return None


# Trajectories

_FORMAT = "mini-swe-agent"

_BLOCK = re.compile(r"```\w*\n(.*?)\n?```", re.DOTALL)
_CODE = re.compile(r"<returncode>\s*(-?\d{1,10})\s*</returncode>")
_TAGS = re.compile(r"</?(?:returncode|output|output_head|output_tail|elided_chars)>")


def _recognises(source: RecordingFile) -> bool:
    """Whether it is a conversation with the name of the format or the version of the agent."""
    first = source.first
    if not isinstance(first.get("messages"), list):
        return False
    named = str(first.get("trajectory_format")).startswith("mini-swe-agent")
    return named or at(first, "info", "mini_version") is not None


def _read(source: RecordingFile, tally: RecordingTally) -> Iterator[RecordedRun]:
    document = source.document()
    info = document.get("info")
    task = source.name.removesuffix(".gz").removesuffix(".traj.json").removesuffix(".json")
    run = RecordedRun(
        *(name(task), source.path, _FORMAT, _FORMAT),
        name(at(info, "config", "model", "model_name")) or None,
        name(document.get("instance_id")) or name(task),
        ended=name(at(info, "exit_status")),
        cost_micros=micros(at(info, "model_stats", "instance_cost")),
    )
    reading = _MiniSession(run, tally)
    for message in document["messages"]:
        reading.read_message(message)
    done = reading.finish()
    priced = any(usage.cost_micros for step in done.steps for usage in step.usages)
    yield done._replace(cost_micros=None) if priced else done


class _MiniSession(RunBuilder):
    def __init__(self, run: RecordedRun, tally: RecordingTally) -> None:
        super().__init__(run, tally)
        self._waiting: list[object] = []
        self._number = 0

    def read_message(self, message: object) -> None:
        role, self.at_s = word(at(message, "role")), timestamp(at(message, "extra", "timestamp"))
        if role == "assistant":
            self._answer(message)
        elif role in {"user", "tool"}:
            self._outcome(message)
        elif role not in {"system", "exit"}:
            self.unknown(role)

    def _answer(self, message: object) -> None:
        text = words(at(message, "content"))
        usage = at(message, "extra", "response", "usage")
        sent, received = count(at(usage, "prompt_tokens")), count(at(usage, "completion_tokens"))
        cost_micros = micros(at(message, "extra", "cost")) or None
        self.add_usage(Usage(self.run.model, sent, received, cost_micros=cost_micros))
        commands = list(_commands(message))
        blocks = [] if commands else _BLOCK.findall(text[:200_000])
        self.text(_BLOCK.sub("", text[:200_000]) if blocks else text)
        for call_id, command in commands or [(None, block) for block in blocks[:1]]:
            self._number += 1
            key = call_id or self._number
            self._waiting.append(key)
            self.call(key, "bash", {"command": command})
        if not (commands or blocks):
            self.turn()

    def _outcome(self, message: object) -> None:
        key = at(message, "tool_call_id")
        if key not in self._waiting:
            key = self._waiting[0] if self._waiting else None
        if key is None:
            return
        self._waiting.remove(key)
        text = words(at(message, "content"))
        match = _CODE.search(text)
        code = at(message, "extra", "returncode")
        code = int(match[1]) if match and not isinstance(code, int) else code
        output = _TAGS.sub("", _CODE.sub("", text)).strip("\n")
        ok = None if not isinstance(code, int) else code == 0
        self.result(key, output, ok=ok)


def _commands(message: object) -> Iterator[tuple[object, str]]:
    actions = items(at(message, "extra", "actions"))
    for action in actions:
        if isinstance(at(action, "command"), str):
            yield at(action, "tool_call_id"), at(action, "command")
    for call in items(at(message, "tool_calls")) if not actions else ():
        given = parsed(str(at(call, "function", "arguments")))
        if isinstance(at(given, "command"), str):
            yield at(call, "id"), at(given, "command")


TRAJECTORIES = RecordingFormat(
    _FORMAT, "mini-swe-agent trajectory", _recognises, _read, ("~/.config/mini-swe-agent",)
)
