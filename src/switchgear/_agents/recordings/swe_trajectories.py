"""Trajectories of OpenHands and SWE-agent.

OpenHands writes a list of events, evaluation outputs (one run per line) or a folder of events. It has two
generations of events: actions and observations joined by `cause`, and those of the agent SDK, which are joined by
the call's id and stored in a folder with a file per event. SWE-agent writes a `.traj` file, a document with
the turns of one run under `trajectory`.
"""

import os
from collections.abc import Iterable, Iterator
from typing import Any

from switchgear._agents.events import Usage
from switchgear._agents.fields import at, count, items, micros, number, part, words
from switchgear._agents.recordings.recording import (
    RecordedRun,
    RecordingFile,
    RecordingFormat,
    RecordingTally,
    RunBuilder,
    UnreadableRecording,
    name,
    timestamp,
    word,
)

_OPENHANDS = "openhands"

_IGNORED_ACTIONS = frozenset(
    {"system", "recall", "change_agent_state", "null", "condensation", "pause"}
)
_IGNORED_SDK_EVENTS = frozenset({
    *("SystemPromptEvent", "ConversationStateUpdateEvent", "Condensation", "CondensationRequest"),
    *("CondensationSummaryEvent", "PauseEvent", "TokenEvent", "LLMCompletionLogEvent"),
})  # fmt: skip


def _recognises(source: RecordingFile) -> bool:
    """Whether it is a list of events, or has lines with a history."""
    first = source.first
    listed = first.get("[]")
    if isinstance(listed, list):
        return any(_is_event(event) for event in listed[:20])
    return (isinstance(first.get("history"), list) and "instance_id" in first) or _is_event(first)


def is_events_folder(path: str) -> bool:
    """Whether a folder contains the events of a conversation."""
    return os.path.basename(path) == "events" and os.path.isdir(path)


def _read(source: RecordingFile, tally: RecordingTally) -> Iterator[RecordedRun]:
    """The run of a trajectory, or the runs of an evaluation."""
    run = RecordedRun(source.name, source.path, _OPENHANDS, _OPENHANDS)
    if is_events_folder(source.path):
        conversation = name(os.path.basename(os.path.dirname(source.path)))
        yield _run(run._replace(id=conversation), _read_event_files(source.path, tally), tally)
        return
    first = source.head()[0]
    lines: Iterable[Any] = first["[]"] if "[]" in first else source.lines(tally, _OPENHANDS)
    if "[]" not in first and "history" in first:
        for line in lines:
            yield _add_evaluation(line, source, tally)
    else:
        yield _run(run, lines, tally)


def _is_event(value: object) -> bool:
    keys = value.keys() if isinstance(value, dict) else set()
    first = {"source", "timestamp"} <= keys and bool({"action", "observation"} & keys)
    return first or str(at(value, "kind")).endswith(("Event", "Observation"))


def _read_event_files(folder: str, tally: RecordingTally) -> Iterator[Any]:
    try:
        names = sorted(each for each in os.listdir(folder) if each.endswith(".json"))
    except OSError as error:
        raise UnreadableRecording(f"cannot be read: {error.strerror}") from error
    for each in names:
        try:
            yield RecordingFile(os.path.join(folder, each)).document()
        except UnreadableRecording as problem:
            tally.problem(os.path.join(folder, each), str(problem))


def _add_evaluation(
    line: dict[str, Any], source: RecordingFile, tally: RecordingTally
) -> RecordedRun:
    result = line.get("test_result")
    verdicts = (
        *(at(line, "report", "resolved"), at(result, "report", "resolved")),
        *(at(result, "resolved"), at(result, "result"), line.get("resolved")),
    )
    instance = name(line.get("instance_id"))
    run = RecordedRun(
        *(instance or source.name, source.path, _OPENHANDS, _OPENHANDS),
        *(name(at(line, "metadata", "llm_config", "model")) or None, instance),
        next((verdict for verdict in verdicts if isinstance(verdict, bool)), None),
        name(line.get("error")),
        cost_micros=micros(at(line, "metrics", "accumulated_cost")),
    )
    events = items(line.get("history"))
    flat = [event for one in events for event in (one if isinstance(one, list) else [one])]
    return _run(run, flat, tally)


def _run(run: RecordedRun, events: Iterable[Any], tally: RecordingTally) -> RecordedRun:
    reading = _OpenHandsBuilder(run, tally)
    for event in events:
        if isinstance(event, dict):
            reading.read_message(event)
        else:
            reading.unknown("not an event")
    done = reading.finish()
    priced = any(step.usages for step in done.steps)
    return done._replace(cost_micros=None) if priced else done


class _OpenHandsBuilder(RunBuilder):
    _spent: tuple[int, ...] = (0, 0, 0, 0)

    def read_message(self, event: dict[str, Any]) -> None:
        self.at_s = timestamp(event.get("timestamp"))
        if isinstance(event.get("kind"), str):
            self._sdk(event, str(event["kind"]))
        elif "action" in event:
            self._action(event)
        elif "observation" in event:
            self._observation(event)
        else:
            self.unknown(next(iter(event), None))

    # The first generation

    def _action(self, event: dict[str, Any]) -> None:
        action, arguments = word(event.get("action")), event.get("args")
        if not action or action in _IGNORED_ACTIONS:
            return
        if action == "message":
            text = words(at(arguments, "content") or event.get("message"))
            if event.get("source") == "agent":
                self._add_usage_since_last(event.get("llm_metrics"))
                self.text(text)
                self.turn()
            else:
                self.fill(task=name(text))
            return
        self._add_usage_since_last(event.get("llm_metrics"))
        self.text(at(arguments, "thought"))
        given = part(event, "args")
        shown = {key: value for key, value in given.items() if key not in _IGNORED_ARGUMENTS}
        tool = at(event, "tool_call_metadata", "function_name") or action
        self.call(event.get("id"), tool, shown)
        if action == "finish":
            self.set(ended="finish")
            self.result(event.get("id"), "", ok=True)

    def _observation(self, event: dict[str, Any]) -> None:
        extras = event.get("extras")
        ok = _succeeded(at(extras, "metadata", "exit_code"), at(extras, "exit_code"))
        if event.get("observation") == "error" or event.get("success") is False:
            ok = False
        self.result(event.get("cause"), words(event.get("content")), ok=ok)

    def _add_usage_since_last(self, metrics: object) -> None:
        """Add the usage since the last event; the metrics are running totals."""
        usage = at(metrics, "accumulated_token_usage")
        keys = ("prompt_tokens", "completion_tokens", "cache_read_tokens")
        total = (
            micros(at(metrics, "accumulated_cost")) or 0,
            *(count(at(usage, key)) for key in keys),
        )
        cost, sent, received, cached = (
            max(now - before, 0) for now, before in zip(total, self._spent, strict=True)
        )
        if any(total):
            self._spent = total
        self.add_usage(Usage(self.run.model, sent, received, cached, 0, cost or None))

    # The agent SDK

    def _sdk(self, event: dict[str, Any], kind: str) -> None:
        call_id = event.get("tool_call_id")
        if kind == "ActionEvent":
            self.text(words(event.get("reasoning_content")))
            self.text(words(event.get("thought")))
            tool = event.get("tool_name") or at(event, "action", "kind")
            self.call(call_id, tool, _sdk_arguments(event))
            if tool == "finish":
                self.set(ended="finish")
        elif kind == "ObservationEvent":
            seen = event.get("observation")
            text = words(at(seen, "content") or at(seen, "output"))
            ok = _succeeded(at(seen, "exit_code"), at(seen, "metadata", "exit_code"))
            self.result(call_id, text, ok=False if at(seen, "is_error") is True else ok)
        elif kind in {"AgentErrorEvent", "UserRejectObservation"}:
            text = words(event.get("error") or event.get("rejection_reason"))
            self.result(call_id, text, ok=False)
        elif kind == "MessageEvent":
            text = words(at(event, "llm_message", "content"))
            if event.get("source") == "agent":
                self.text(text)
                self.turn()
            else:
                self.fill(task=name(text))
        elif kind == "ConversationErrorEvent":
            self.set(ended=name(event.get("code")))
        elif kind not in _IGNORED_SDK_EVENTS:
            self.unknown(kind)


_IGNORED_ARGUMENTS = frozenset({
    *("thought", "blocking", "hidden", "confirmation_state", "is_input", "security_risk"),
    *("is_static", "cwd", "impl_source"),
})  # fmt: skip


def _succeeded(*codes: object) -> bool | None:
    """Whether a command succeeded, by the first exit code that is reported; `None`: unknown."""
    code = next((each for each in codes if each is not None), None)
    return code in {0, -1} if isinstance(code, int) else None


def _sdk_arguments(event: dict[str, Any]) -> object:
    action = event.get("action")
    if not isinstance(action, dict):
        return at(event, "tool_call", "arguments") or at(
            event, "tool_call", "function", "arguments"
        )
    return {key: value for key, value in action.items() if key != "kind" and value is not None}


# SWE-agent

_SWE_AGENT = "swe-agent"

_COMMANDS = frozenset({
    *("edit", "create", "open", "goto", "scroll_up", "scroll_down", "search_dir", "search_file"),
    *("find_file", "submit", "str_replace_editor", "insert", "append", "view", "undo_edit"),
    *("filemap", "python", "exit_forfeit", "think"),
})  # fmt: skip


def _is_swe_agent(source: RecordingFile) -> bool:
    """Whether it has turns with an action."""
    turns = source.first.get("trajectory")
    return isinstance(turns, list) and (
        not turns or (isinstance(turns[0], dict) and "action" in turns[0])
    )


def _read_swe_agent(source: RecordingFile, tally: RecordingTally) -> Iterator[RecordedRun]:
    document = source.document()
    task = source.name.removesuffix(".gz").removesuffix(".traj")
    info = document.get("info")
    run = RecordedRun(
        *(name(task), source.path, _SWE_AGENT, _SWE_AGENT),
        name(at(document, "replay_config", "agent", "model", "name")) or None,
        name(at(document, "instance_id")) or name(task),
        ended=name(at(info, "exit_status")),
        cost_micros=micros(at(info, "model_stats", "instance_cost")),
    )
    builder = RunBuilder(run, tally)
    elapsed_s = 0.0
    for place, turn in enumerate(document["trajectory"]):
        action = words(at(turn, "action")).strip()
        if not isinstance(turn, dict) or not (action or turn.get("response")):
            builder.unknown("a turn without an action")
            continue
        builder.text(words(turn.get("thought") or (turn.get("response") if not action else "")))
        if not action:
            builder.turn()
            continue
        seconds = number(turn.get("execution_time"))
        elapsed_s += max(seconds or 0.0, 0.0)
        first, _, rest = action.partition(" ")
        builder.at_s = None
        # SWE-agent's own commands are tools; everything else is a shell command.
        builder.call(place, *((first, rest) if first in _COMMANDS else ("bash", action)))
        builder.at_s = None if seconds is None else elapsed_s
        builder.result(place, words(turn.get("observation")), seconds=seconds)
    yield builder.finish()


OPENHANDS = RecordingFormat(
    _OPENHANDS, "OpenHands trajectory", _recognises, _read, ("~/.openhands",), per_line=True
)
SWE_AGENT = RecordingFormat(_SWE_AGENT, "SWE-agent trajectory", _is_swe_agent, _read_swe_agent)
