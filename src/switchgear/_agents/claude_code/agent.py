"""Claude Code, headless: `claude -p` with `--output-format stream-json`.

One response of the model is several lines with the same id and the same usage, whose output tokens are a placeholder
until the result. `total_cost_usd` is cumulative. A run that a hook stopped reports `subtype: success`.
"""

import time
from collections.abc import Iterator
from typing import Any

from switchgear._agents.base import Agent, Invocation, JsonReader, NotUnderstood
from switchgear._agents.claude_code.hooks import token_counts
from switchgear._agents.events import (
    AgentError,
    AgentResult,
    Question,
    StreamEvent,
    Usage,
    error_from_text,
)
from switchgear._agents.fields import TokenCounts, at, count, items, micros, words
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
from switchgear._text.agent_text import clean, one_line

_CHARS_PER_TOKEN = 4
_QUESTION_TOOLS = frozenset(
    {"askuserquestion", "ask_user_question", "exitplanmode", "exit_plan_mode"}
)
_MAX_IDS = 10_000


class ClaudeReader(JsonReader):
    """Reads Claude Code's stream; Qwen Code's differs in how it counts tokens."""

    placeholder_output = True
    token_counts = staticmethod(token_counts)

    def __init__(self, *, model: str | None = None) -> None:
        super().__init__(model=model)
        self._seen: dict[str, int] = {}

    def read(self, line: dict[str, Any]) -> Iterator[StreamEvent]:
        kind = line.get("type")
        self.subagent = one_line(str(line.get("parent_tool_use_id") or ""), 80)
        if kind == "assistant":
            yield from self._assistant(line)
        elif kind == "user":
            yield from self._tool_results(line)
        elif kind == "result":
            yield from self._result(line)
        elif kind == "system":
            yield from self._system(line)
        elif kind == "rate_limit_event" and at(line, "rate_limit_info", "status") == "rejected":
            yield _rate_limit_error(line["rate_limit_info"])
        elif kind not in {"rate_limit_event", "stream_event"}:
            raise NotUnderstood

    def _system(self, line: dict[str, Any]) -> Iterator[StreamEvent]:
        if line.get("subtype") == "init" and isinstance(line.get("model"), str):
            self.model = line["model"]
        elif line.get("subtype") == "api_retry":
            status = count(line.get("error_status")) or None
            error = error_from_text(
                f"API error {status or ''} {line.get('error') or ''}".replace("  ", " "),
                status=status,
            )
            if status is None and error.kind == "other":  # the provider was not reached
                error = error._replace(kind="connection")
            delay_s = count(line.get("retry_delay_ms")) / 1000
            yield error._replace(retry_after_s=delay_s) if error.kind == "rate_limit" else error

    def _assistant(self, line: dict[str, Any]) -> Iterator[StreamEvent]:
        message = line.get("message")
        content = at(message, "content")
        if line.get("is_api_error_message"):  # repeated in the result
            return
        for part in content if isinstance(content, list) else [content]:
            if at(part, "type") == "tool_use":
                yield from self.started(at(part, "id"), at(part, "name"), at(part, "input"))
                if str(at(part, "name")).lower() in _QUESTION_TOOLS:
                    yield Question(clean(_question_text(at(part, "input"))), by_tool=True)
            elif at(part, "type") == "text" or isinstance(part, str):
                yield from self.message(words(part))
        yield from self._message_usage(message, content)

    def _message_usage(self, message: object, content: object) -> Iterator[StreamEvent]:
        usage, model = at(message, "usage"), at(message, "model")
        if not isinstance(usage, dict) or model == "<synthetic>":
            return
        model = model if isinstance(model, str) else self.model
        tokens = self.token_counts(usage)
        if self.placeholder_output:
            output = max(tokens.output, len(str(content)) // _CHARS_PER_TOKEN)
            tokens = tokens._replace(output=output)
        message_id = str(at(message, "id"))
        if message_id in self._seen:
            tokens = TokenCounts(output=tokens.output)
        if len(self._seen) < _MAX_IDS:
            self._seen[message_id] = 1
        yield self.meter.add(model, *tokens)._replace(estimated=self.placeholder_output)

    def _tool_results(self, line: dict[str, Any]) -> Iterator[StreamEvent]:
        for part in items(at(line, "message", "content")):
            if at(part, "type") == "tool_result":
                ok, output = at(part, "is_error") is not True, words(at(part, "content"))
                yield from self.finished(at(part, "tool_use_id"), ok=ok, output=output)

    def _result(self, line: dict[str, Any]) -> Iterator[StreamEvent]:
        yield from self._result_usage(line)
        text = words(line.get("result") or line.get("errors") or at(line, "error", "message"))
        failed = line.get("is_error") is True
        reason = line.get("terminal_reason") or line.get("subtype")
        if failed:
            status = count(line.get("api_error_status")) or None
            error = error_from_text(text or str(reason), status=status, final=True)
            yield error._replace(kind="limit") if "max_turns" in str(reason) else error
        else:
            yield from self.question_in(text)
        stopped = str(reason) not in {"completed", "success"}
        yield AgentResult(clean(text), not failed and not stopped, str(reason) if reason else None)

    def _result_usage(self, line: dict[str, Any]) -> Iterator[Usage]:
        models = line.get("modelUsage")
        if isinstance(models, dict) and models:
            for model, usage in models.items():
                read = count(at(usage, "cacheReadInputTokens"))
                written = count(at(usage, "cacheCreationInputTokens"))
                sent = count(at(usage, "inputTokens")) + read + written
                tokens = (sent, at(usage, "outputTokens"), read, written)
                yield self.meter.set(str(model), *tokens, dollars=at(usage, "costUSD"))
        elif isinstance(usage := line.get("usage"), dict):
            cost = line.get("total_cost_usd")
            yield self.meter.set(self.model, *self.token_counts(usage), dollars=cost)


class Claude(Agent):
    name = "claude"
    install = "npm install -g @anthropic-ai/claude-code"
    reader_class = ClaudeReader

    def command(self, prompt: str, options: tuple[str, ...]) -> Invocation:
        """Edits and commands are allowed, because there is no user to confirm; the prompt is on stdin."""
        tools = "Bash,Edit,Glob,Grep,MultiEdit,NotebookEdit,Read,Task,TodoWrite,WebFetch,Write"
        argv = ["claude", "-p", "--output-format", "stream-json", "--verbose"]
        argv += ["--permission-mode", "acceptEdits", "--allowedTools", tools]
        return Invocation((*argv, *options), prompt)


def _question_text(arguments: object) -> str:
    questions = at(arguments, "questions")
    if isinstance(questions, list):
        return "\n".join(str(at(question, "question")) for question in questions)
    return str(at(arguments, "question") or at(arguments, "plan") or "a question")


def _rate_limit_error(info: dict[str, Any]) -> AgentError:
    resets_at_s = count(info.get("resetsAt"))
    wait_s = max(0.0, resets_at_s - time.time()) if resets_at_s else None
    which = info.get("rateLimitType") or "usage"
    return error_from_text(f"rate limit reached ({which})", status=429, retry_after_s=wait_s)


# Transcripts

_FORMAT = "claude"

_IGNORED_LINES = frozenset({
    *("summary", "attachment", "queue-operation", "last-prompt", "tools-used", "cost-state"),
    *("api-request", "api-request-blob", "api-request-shape", "atis-latch", "progress", "mode"),
    *("file-history-snapshot", "custom-title", "ai-title", "agent-name", "pr-link", "tag"),
    *("stream_event", "rate_limit_event", "permission-mode", "worktree-state", "agent-setting"),
    "system",
})  # fmt: skip
_MESSAGE_LINES = ("user", "assistant")
_TERMINAL_PREFIXES = (
    *("<command-name>", "<command-message>", "<local-command-", "<bash-input>", "<bash-stdout>"),
    *("<bash-stderr>", "<system-reminder>", "<task-notification>", "Caveat: The messages below"),
)
"""Prefixes of user messages that the terminal writes: commands such as `/compact`, and their output."""


def _recognises(source: RecordingFile) -> bool:
    """Whether a line has a session and a type of Claude Code."""
    head = source.head()
    if any(isinstance(at(line, "message", "parts"), list) for line in head):
        return False  # Qwen Code's
    known = _IGNORED_LINES.union(_MESSAGE_LINES)
    return any(
        line.get("type") in known
        and ("sessionId" in line or "session_id" in line or "leafUuid" in line)
        and "projectHash" not in line
        and at(line, "message", "parts") is None
        for line in head
        if isinstance(line.get("type"), str)
    )


def _read(source: RecordingFile, tally: RecordingTally) -> Iterator[RecordedRun]:
    """The session in a file, and each of its sub-agents as a run."""
    sessions: dict[str, _ClaudeSession] = {}
    for line in source.lines(tally, _FORMAT):
        kind = word(line.get("type"))
        if kind not in _MESSAGE_LINES:
            session = sessions.get(_run_key(line)) if kind == "result" else None
            if session is not None:
                cost_micros = micros(line.get("total_cost_usd"))
                session.fill(ended=name(line.get("subtype")), cost_micros=cost_micros)
            elif kind != "result" and kind not in _IGNORED_LINES:
                tally.unknown_line(_FORMAT, kind)
            continue
        key = _run_key(line)
        if key not in sessions:
            run = RecordedRun(key or source.name, source.path, _FORMAT, "claude")
            sessions[key] = _ClaudeSession(run._replace(folder=word(line.get("cwd"))))
        sessions[key].read_message(kind, line)
    for session in sessions.values():
        yield session.finish()


def _run_key(line: dict[str, Any]) -> str:
    session = name(line.get("sessionId") or line.get("session_id"))
    parent = line.get("parent_tool_use_id")
    if line.get("isSidechain") is True or parent:
        return f"{session}/{name(line.get('agentId') or parent) or 'sub-agent'}"
    return session


class _ClaudeSession(RunBuilder):
    _answer: object = None
    """The id of the current response, which can have several lines."""

    def read_message(self, kind: str, line: dict[str, Any]) -> None:
        message, self.at_s = line.get("message"), timestamp(line.get("timestamp"))
        content = at(message, "content")
        if kind == "user":
            self._user(content, human=line.get("isMeta") is not True)
        elif line.get("isApiErrorMessage") is True:
            self.turn()
            self.set(ended=name(words(content)))
        else:
            self.set(ended="")  # the agent continued after an earlier error
            self._assistant(message, content)

    def _user(self, content: object, *, human: bool) -> None:
        parts = content if isinstance(content, list) else [{"type": "text", "text": content}]
        for part in parts:
            if at(part, "type") == "tool_result":
                output = words(at(part, "content"))
                ok = at(part, "is_error") is not True
                self.result(at(part, "tool_use_id"), output, ok=ok)
            elif at(part, "type") == "text":
                self.turn()
                if human and not str(at(part, "text")).lstrip().startswith(_TERMINAL_PREFIXES):
                    self.user(at(part, "text"))

    def _assistant(self, message: object, content: object) -> None:
        if at(message, "id") != self._answer or self._answer is None:
            self._answer = at(message, "id")
            self.turn()
            model = name(at(message, "model"))
            self.fill(model=model if model != "<synthetic>" else "")
            self.add_usage(Usage(model, *token_counts(at(message, "usage"))))
        for part in items(content):
            kind = word(at(part, "type"))
            if kind in {"text", "thinking"}:
                self.text(at(part, kind))
            elif kind in {"tool_use", "server_tool_use", "mcp_tool_use"}:
                self.call(at(part, "id"), at(part, "name"), at(part, "input"))


TRANSCRIPTS = RecordingFormat(
    _FORMAT, "Claude Code transcript", _recognises, _read, ("~/.claude/projects",)
)
