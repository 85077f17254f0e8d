"""aider, headless: `aider --message`. It prints plain text; a few lines report edits, tokens and errors."""

import re
from collections.abc import Iterator

from switchgear._agents.base import Agent, Invocation, StreamReader, as_argument
from switchgear._agents.events import AgentError, AgentResult, StreamEvent, error_from_text
from switchgear._text.agent_text import clean

_TOKENS = re.compile(
    r"^Tokens: ([\d.,]{1,12}k?) sent(?:, ([\d.,]{1,12}k?) cache write)?"
    r"(?:, ([\d.,]{1,12}k?) cache hit)?, ([\d.,]{1,12}k?) received\."
)
_COST = re.compile(r"Cost: \$([\d.]{1,12}) message, \$[\d.]{1,12} session\.")
_EDITED = re.compile(r"^Applied edit to (.{1,500})$")
_MODEL = re.compile(r"^(?:Main model|Model): (\S{1,120})")
_FAILED_EDIT = re.compile(r"^The LLM did not conform to the edit format|SEARCH.{0,20}block failed")
_PROVIDER = re.compile(r"^(?:litellm\.\w{1,60}|The API provider|Unable to connect)", re.IGNORECASE)


class AiderReader(StreamReader):
    def __init__(self, *, model: str | None = None) -> None:
        super().__init__(model=model)
        self._edits = 0
        self._last_line = ""
        self._error: AgentError | None = None

    def read_line(self, text: str) -> Iterator[StreamEvent]:
        if match := _EDITED.match(text):
            self._edits += 1
            arguments = {"path": match[1], "edit": self._edits}
            yield from self.started(self._edits, "edit", arguments)
            yield from self.finished(self._edits, ok=True, output=text)
        elif _FAILED_EDIT.search(text):
            self._edits += 1
            yield from self.started(self._edits, "edit", {})
            yield from self.finished(self._edits, ok=False, output=text)
        elif tokens := _TOKENS.match(text):
            cost = _COST.search(text)
            written, read = _thousands(tokens[2]), _thousands(tokens[3])
            yield self.meter.add(
                self.model,
                max(_thousands(tokens[1]), written + read),
                _thousands(tokens[4]),
                read,
                written,
                dollars=float(cost[1]) if cost else None,
            )
        elif _PROVIDER.match(text):
            self._error = error_from_text(text)
            yield self._error
        elif match := _MODEL.match(text):
            self.model = self.model or match[1]
        else:
            self._last_line = text.strip() or self._last_line
            yield from self.message(text)

    def read_end(self, exit_code: int | None) -> Iterator[StreamEvent]:
        """The result, which aider does not print: an applied edit counts as a claim of success."""
        if self._error and not self._edits:
            yield self._error._replace(final=True)
            yield AgentResult(self._error.text, claimed_success=False, reason="error")
            return
        if not self._edits:
            yield from self.question_in(self._last_line)
        yield AgentResult(clean(self._last_line), exit_code == 0 and self._edits > 0)


class Aider(Agent):
    name = "aider"
    install = "python3 -m pip install aider-chat"
    reader_class = AiderReader

    def command(self, prompt: str, options: tuple[str, ...]) -> Invocation:
        """One message without confirmations, update checks and commits; the caller commits."""
        argv = ["aider", "--yes-always", "--no-pretty", "--no-stream", "--no-auto-commits"]
        argv += ["--no-check-update", "--no-analytics", "--no-show-release-notes"]
        argv += ["--no-gitignore", "--no-detect-urls"]
        env = {"LITELLM_LOCAL_MODEL_COST_MAP": "True"}  # otherwise its start requires the network
        return Invocation((*argv, *options, f"--message={as_argument(prompt)}"), None, env)


def _thousands(text: str | None) -> int:
    if not text:
        return 0
    number = text.replace(",", "")
    return round(float(number[:-1]) * 1000) if number.endswith("k") else int(float(number))
