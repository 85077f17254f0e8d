"""Qwen Code, headless. It speaks Claude Code's stream with other habits.

Its input tokens include those of the cache, its output tokens are real in every message, and it
names no price. Its own loop guard ends a run with an error in the result.
"""

from pathlib import Path

from switchgear._agents.base import Agent, Invocation, StreamReader, as_argument, at, count
from switchgear._agents.claude_code.command import ClaudeReader


class QwenReader(ClaudeReader):
    """Reads Qwen Code's stream."""

    placeholder_output = False

    def input_tokens(self, usage: object) -> int:
        """All input tokens, as told."""
        return count(at(usage, "input_tokens"))


class Qwen(Agent):
    """Alibaba's Qwen Code."""

    name = "qwen"
    install = "npm install -g @qwen-code/qwen-code"

    def invocation(
        self, prompt: str, cwd: Path, *, model: str | None = None, extra: tuple[str, ...] = ()
    ) -> Invocation:
        """Every tool is allowed, for nobody is there to ask."""
        del cwd
        argv = ["qwen", "--output-format", "stream-json", "--approval-mode", "yolo"]
        argv += ["--model", model] if model else []
        return Invocation((*argv, *extra, f"--prompt={as_argument(prompt)}"))

    def reader(self, *, model: str | None = None) -> StreamReader:
        """A reader for one run."""
        return QwenReader(model=model)
