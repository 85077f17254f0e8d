"""Whether a recorded run was solved: labelled by a person, in the recording, or inferred from its end.

Transcripts of coding agents have no outcome, but their end has evidence of it: tests, a commit, the user's
next message, an interruption. Each sign has a weight in log odds; their sum gives a probability. An outcome
counts only above a confidence that the caller chooses. Every inference names its evidence.
"""

import hashlib
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from switchgear._agents.recordings.recording import (
    RecordedRun,
    RecordedStep,
    command_of,
    is_shell,
)
from switchgear._analysis.backtest.commit_fate import CommitFate, Fate, fate_of
from switchgear._measure.test_counts import SuiteCounts, suite_counts

LABEL, GIVEN, RECORDED, INFERRED, UNKNOWN = "label", "given", "recording", "inferred", ""
DEFAULT_CONFIDENCE = 0.7
"""The default confidence from which an inferred outcome counts."""
PASSING, FAILING, COMMIT, MESSAGE, INTERRUPTION, END, ERRORS = 1.25, 0.42, 1.5, 1.7, 1.1, 1.7, 0.42
"""The weight of each sign in log odds: 1.7 alone is a confidence of 85 %.

`scripts/measure_outcomes.py` compares them with known outcomes. Failing tests are weak, because many
projects have tests that fail anyway. Messages, interruptions and surviving commits are estimates.
"""
MAX_CONFIDENCE = 0.97
"""Maximum confidence: the signs of a run are not independent, and their weights are only estimates."""
_STALE = 0.4
"""The factor for a sign's weight if the work was changed after it."""
_COMMIT = re.compile(r"\bgit\b[^|;&\n]*\bcommit\b")
_OTHER_FOLDER = re.compile(r"(?:\bcd|\bgit\s+-C)\s+(\"[^\"]+\"|'[^']+'|[^\s;&|]+)")
_COMMITTED = re.compile(r"^\[[^\]\n]{1,200}? ([0-9a-f]{7,40})\] ?([^\n]{0,200})", re.MULTILINE)
_UNDONE = re.compile(
    r"\bgit\b[^|;&\n]*\b(?:reset\s+--hard|revert\b|restore\s+(?:--\S+\s+)*\.|checkout\s+(?:--\s+)?\.)"
)
_FATES = {
    Fate.KEPT: ("its commit {commit} is still on a branch", 1.0),
    Fate.REWRITTEN: (
        "its commit {commit} is on a branch as {other}, rebased, amended or squashed",
        0.6,
    ),
    Fate.UNKNOWN: ("it ends with a commit ({commit})", 0.6),
    Fate.LOST: ("its commit {commit} is no longer on a branch, nor in the repository", -0.4),
    Fate.REVERTED: ("its commit {commit} was reverted by {other}", -1.0),
    Fate.DROPPED: ("its commit {commit} is no longer on a branch", -1.0),
}
"""For each fate of a commit, the text of its sign and the factor for its weight."""
_THANKS = re.compile(
    r"\b(?:(?<!no )thanks(?! (?:for nothing|in advance))|thank you(?! in advance)|thx|(?<!would be )(?:perfect|great|excellent|awesome)|"
    r"nice work|good job|well done|works now|it works|(?:that|this) fixed it|"
    r"works (?:fine|well|great|like a charm|perfectly)|looks good|lgtm|that works|ship it|merged|all good)\b"
)
_COMPLAINT = re.compile(
    r"\bstill (?:not|fails?|failing|broken|doesn'?t|the same|wrong)\b|traceback \(most recent call last\)|"
    r"(?:^|[.!,;] )(?:(?:no|nope|please|can you|could you|and|but)[,.!]? )*"
    r"(?:that(?:'?s| is) (?:wrong|not)\b|(?:undo|revert) (?:that|this|it)\b)|^(?:no|nope|undo|revert)\W*$"
)
"""A complaint, even within a request: `can you look? it still fails`."""
_STATED_COMPLAINT = re.compile(
    r"\b(?:not working|(?:doesn'?t|does not|didn'?t|did not|won'?t) (?:work|compile|build|pass|run|start|help)|"
    r"(?:don'?t|do not) (?:work|pass)|(?:you|that|this) broke|is broken|same (?:error|problem|issue|bug)|"
    r"not what i|stop doing|in circles|useless|not (?:perfect|great|good|nice)|n'?t (?:perfect|great|good|working|nice))\b"
)
"""A complaint, unless it belongs to the next request: `show the same error in both`."""
_TROUBLE = re.compile(
    r"\b(?:fail(?:s|ed|ing)?|crash(?:es|ed|ing)?|broken|(?<!nothing )(?<!not )(?<!nothing is )wrong)\b"
)
"""A problem, unless it is over: `it crashes`, but not `no test fails any more`."""
_REQUEST = re.compile(
    r"^(?:(?:please|now|next|also|then|and|so|ok|okay|yes|hi|hey)\b[,.! ]*)*"
    r"(?:(?:(?:can|could|would|will|should|do|does|did|is|are|was|were)(?! not\b)|what|what's|how|why|when|where|which|who|if)\b|"
    r"(?:let'?s|(?:i|we) (?:want|need|would like)|i'd like)\b|"
    r"(?:add|allow|build|change|check|clean|commit|continue|create|delete|describe|do|document|explain|find|fix|go|handle|"
    r"implement|improve|investigate|list|look|make|move|open|print|push|read|refactor|remove|rename|replace|run|show|"
    r"summari[sz]e|support|tell|test|try|update|use|verify|write)\b)"
)
"""The beginning of a question or of the next request, which is no evidence about the work before it."""
_OVER = re.compile(
    r"\b(?:no|not|nothing|never|none|without|fixed|gone|used to|any ?more|no longer)\b|n't\b"
)
_DOUBT = re.compile(r"\?|\b(?:but|except|however|not sure)\b|n't (?:think|believe|know)\b")
"""A question or a reservation: a friendly message that contains one is no praise."""
_GAVE_UP = re.compile(
    r"\bi(?: am|'m)? giv(?:e|ing) up|\bi (?:was|am)(?: still)? (?:unable|not able) to|\bi'm (?:unable|not able) to|"
    r"\bi (?:could ?n[o']t|can ?not|can't|was ?n't able to) "
    r"(?:fix|solve|complete|finish|find|get|make|resolve|reproduce|determine)\b"
)
_ENDED_BADLY = re.compile(
    r"error|exception|max.?(?:turns|rounds|steps|iterations)|time.?out|timed.?out|limit|abort|stuck|"
    r"exhaust|cancel|circuit|budget|cost|context|killed|g[ai]ve.?up|forfeit"
)


class OutcomeSign(NamedTuple):
    """One piece of evidence, and its weight."""

    text: str
    weight: float
    """In log odds: above 0 suggests solved."""


class InferredOutcome(NamedTuple):
    """The outcome that the end of a run suggests. `solved=None`: it suggests none."""

    solved: bool | None = None
    confidence: float = 0.5
    """0.5 to `MAX_CONFIDENCE`: how likely `solved` is right, if the weights are."""
    signs: tuple[OutcomeSign, ...] = ()

    @property
    def how(self) -> str:
        """The evidence, in one line."""
        return "; ".join(sign.text for sign in self.signs) or "its end shows no outcome"


def infer(run: RecordedRun, *, look_at_git: bool = True) -> InferredOutcome:
    """Infer the outcome from the end of a run. `look_at_git`: check in its repository whether a commit still exists."""
    signs = [
        sign
        for sign in (
            _tests(run),
            _commit(run, look_at_git=look_at_git),
            _message(run),
            _end(run) or _last_words(run),
            _errors(run),
        )
        if sign is not None
    ]
    total = sum(sign.weight for sign in signs)
    likely = 1 / (1 + math.exp(-total))
    if not signs or abs(total) < 1e-9:
        return InferredOutcome(signs=tuple(signs))
    return InferredOutcome(total > 0, min(max(likely, 1 - likely), MAX_CONFIDENCE), tuple(signs))


def _tests(run: RecordedRun) -> OutcomeSign | None:
    """The result of the last test run with a known summary."""
    last = _test_run(run, range(len(run.steps) - 1, -1, -1))
    if last is None:
        return None
    index, counts = last
    changed = any(each.changed for each in run.steps[index + 1 :])
    after = ", before the last change" if changed else ""
    share = _STALE if changed else 1.0
    if not counts.failed:
        return OutcomeSign(f"the last test run passes ({counts.passed}){after}", PASSING * share)
    many = f"({counts.failed} of {counts.passed + counts.failed})"
    first = _test_run(run, range(index))
    if first is not None and first[1].failed >= counts.failed:
        return OutcomeSign(f"the last test run fails as the first did {many}", 0.0)
    return OutcomeSign(f"the last test run fails {many}{after}", -FAILING * share)


def _test_run(run: RecordedRun, indexes: Iterable[int]) -> tuple[int, SuiteCounts] | None:
    """The first of these steps that is a test run, and its counts."""
    for index in indexes:
        step = run.steps[index]
        counts = suite_counts(step.result) if is_shell(step.tool) and step.result else None
        if counts is not None and counts.passed + counts.failed:
            return index, counts
    return None


def _commit(run: RecordedRun, *, look_at_git: bool) -> OutcomeSign | None:
    """The fate of the last commit of the run."""
    undone = False
    for step in reversed(run.steps):
        command = _shell_command(step)
        if not command or step.ok is False:
            continue
        if _UNDONE.search(command):
            undone = True
        if not _COMMIT.search(command):
            continue
        found = _COMMITTED.search(step.result or "")
        if found is None:
            continue
        if undone:
            return OutcomeSign("its last commit was undone in the run", -COMMIT)
        result = CommitFate(Fate.UNKNOWN)
        if look_at_git:
            folder = _folder_of_commit(command, run.folder)
            result = fate_of(folder, found[1], found[2], step.at_s)
        text, share = _FATES[result.fate]
        text = text.format(commit=found[1][:7], other=result.commit[:7])
        return OutcomeSign(text, COMMIT * share)
    return OutcomeSign("its work was discarded", -COMMIT) if undone else None


def _folder_of_commit(command: str, folder: str) -> str:
    """The folder in which a command commits: the session's, unless the command changes it; empty: unknown."""
    commit = _COMMIT.search(command)
    for index in _OTHER_FOLDER.findall(command[: commit.end() if commit else None]):
        try:
            target = Path(folder, Path(index.strip("\"'")).expanduser())
            if "$" in index or not (target.is_absolute() and target.is_dir()):
                return ""
            folder = str(target.resolve())
        except (RuntimeError, OSError, ValueError):
            return ""
    return folder


def _shell_command(step: RecordedStep) -> str:
    """The command of a shell step; `args` is JSON or the command itself."""
    if not is_shell(step.tool):
        return ""
    try:
        arguments = json.loads(step.args)
    except (ValueError, RecursionError):
        arguments = step.args
    return command_of(arguments)[:4000] or step.args[:4000]


def _message(run: RecordedRun) -> OutcomeSign | None:
    """The user's last message, if no tool was called after it."""
    message = next((each for each in reversed(run.messages) if each.after > 0), None)
    if message is None or any(step.tool for step in run.steps[message.after :]):
        return None
    if message.interrupts:
        return OutcomeSign("the user interrupted it", -INTERRUPTION)
    praise = _is_praise(message.text.lower().replace("\u2019", "'"))
    if praise is None:
        return None
    how = "is positive" if praise else "complains"
    return OutcomeSign(f"the user's last message {how}", MESSAGE if praise else -MESSAGE)


def _is_praise(text: str) -> bool | None:
    """Whether a message praises the work before it, or complains; `None`: neither."""
    if _COMPLAINT.search(text):
        return False
    if _REQUEST.match(text):
        return None
    if _STATED_COMPLAINT.search(text):
        return False
    praises = _THANKS.search(text) is not None and not _DOUBT.search(text)
    if _TROUBLE.search(text) and not _OVER.search(text):
        return None if praises or text.rstrip().endswith("?") else False
    return True if praises else None


def _end(run: RecordedRun) -> OutcomeSign | None:
    """The end of the run according to the recording."""
    ended = run.ended.lower()
    if "interrupt" in ended:
        return OutcomeSign("it was interrupted", -INTERRUPTION)
    if _ENDED_BADLY.search(ended):
        return OutcomeSign(f"it ended with {run.ended!r}", -END)
    return None


def _last_words(run: RecordedRun) -> OutcomeSign | None:
    """Whether the agent itself reports failure; a report of success is no evidence."""
    last = run.steps[-1] if run.steps else None
    words = "" if last is None or last.tool else last.thought or ""
    if _GAVE_UP.search(words.lower().replace("\u2019", "'")):
        return OutcomeSign("its last words are that it gave up", -END)
    return None


def _errors(run: RecordedRun) -> OutcomeSign | None:
    """Whether its last tool calls failed."""
    last = [step for step in run.steps if step.tool][-3:]
    if len(last) == 3 and all(step.ok is False for step in last):
        return OutcomeSign("its last three tool calls failed", -ERRORS)
    return None


class OutcomeSources(NamedTuple):
    """The sources of outcomes, in order of precedence: labels, a given file, the recording, inference."""

    labels: Mapping[str, bool | None] = {}
    """By `label_key`; `None`: labelled as unknown, so nothing is inferred."""
    given: Mapping[str, bool] = {}
    """By the id of a run or of its task."""
    least_confidence: float | None = DEFAULT_CONFIDENCE
    """The confidence from which an inferred outcome counts; `None`: nothing is inferred."""

    def resolved(self, run: RecordedRun) -> RecordedRun:
        """The run with its outcome and the source of the outcome."""
        for key in label_names(run) if self.labels else ():
            if key in self.labels:
                return run._replace(solved=self.labels[key], outcome_from=LABEL, confidence=1.0)
        solved = self.given.get(run.id, self.given.get(run.task)) if self.given else None
        if solved is not None:
            return run._replace(solved=solved, outcome_from=GIVEN, confidence=1.0)
        if run.solved is not None:
            return run._replace(outcome_from=RECORDED, confidence=1.0)
        if self.least_confidence is None:
            return run
        found = infer(run)
        counts = found.solved is not None and found.confidence >= self.least_confidence
        return run._replace(
            solved=found.solved if counts else None,
            outcome_from=INFERRED if counts else UNKNOWN,
            confidence=found.confidence,
            outcome_how=found.how,
        )


_OWN_IDS = frozenset({"claude", "codex", "gemini", "qwen", "opencode", "pi", "switchgear"})
"""Formats whose ids are unique on this machine; in others an id is unique in its file only."""


def label_key(run: RecordedRun) -> str:
    """The name under which the label of a run is saved."""
    if run.format in _OWN_IDS:
        return f"{run.format}:{run.id}"
    return f"{run.format}:{Path(run.source).resolve()}:{run.id}"


_KEY_STEPS = 5
"""Steps at the beginning of a run that identify it; a run that grows keeps them."""


def content_key(run: RecordedRun) -> str:
    """A name that identifies a run by its content, for any file name; empty: its id is enough."""
    return "" if run.format in _OWN_IDS else _content_key(run, min(_KEY_STEPS, len(run.steps)))


def named(key: str, content: str) -> str:
    """The name of a label for the run with this content only: another run in the file may get the same id."""
    return f"{key} {content}" if content else key


def label_names(run: RecordedRun) -> Iterator[str]:
    """The names under which the label of a run may be saved, the most specific first."""
    key = label_key(run)
    yield key
    if run.format not in _OWN_IDS:
        # The run may have been labelled when it was shorter.
        contents = [
            _content_key(run, count) for count in range(min(_KEY_STEPS, len(run.steps)), 0, -1)
        ]
        yield from (named(key, content) for content in contents)
        yield from contents


def _content_key(run: RecordedRun, count: int) -> str:
    first_steps = [(step.tool, step.args) for step in run.steps[:count]]
    own_id = run.id.removeprefix(Path(run.source).name)
    identity = json.dumps([own_id, run.task, first_steps])
    return (
        f"{run.format}:content:{hashlib.sha256(identity.encode(errors='replace')).hexdigest()[:32]}"
    )
