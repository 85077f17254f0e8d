"""What a session has used since its last hook: each answer once, whoever asks and how often.

A part of the session's note, changed in the same transaction as the circuits: how far each
transcript was read, and what was charged for its last answers. Agents write an answer in several
lines and tell its tokens again, or more of them, in each; only what is new is charged.
"""

import time
from collections.abc import Mapping
from typing import NamedTuple

from switchgear._agents.hook_events import lines_since
from switchgear._agents.hook_protocol import DEFAULT_WINDOW, AnswerUsage
from switchgear._agents.registry import usages_in
from switchgear._hooks.open_calls import Book
from switchgear._hooks.prices import Card, card_of

LAST = 8
"""Answers of a transcript that may still be told again."""


class Bill(NamedTuple):
    """What is new since the last time."""

    context_used: float | None = None
    """The share of the window that the last answer has left in use."""
    cost_micros: int | None = None
    unpriced: Mapping[str, str] = {}
    """The models whose price is not known, and why."""


class Reader(NamedTuple):
    """Whose transcript is read, and what is known of it beforehand."""

    agent: str
    transcript: str
    is_sub_agent: bool
    model: str
    """Of answers that name none."""
    since_s: float
    """Answers from before are not charged: the session was not guarded then."""
    folder: str
    """Where prices are kept."""
    context_tokens: int | None
    """How large the window is, if the user says so."""


def charge(book: Book, reader: Reader, now_s: float) -> tuple[Book, Bill]:
    """Read on in a transcript: the book afterwards, and what is new."""
    offset, lines = lines_since(reader.transcript, book.offset)
    answers = dict(book.answers)
    spent: dict[str, list[int]] = {}
    since = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(reader.since_s))
    latest: AnswerUsage | None = None
    model = reader.model or book.model
    for used in usages_in(reader.agent, lines):
        if used.window != 0 and (reader.is_sub_agent or not used.aside):
            latest = used
        model = used.model or model
        before = answers.pop(used.id, (0, 0, 0, 0))
        answers[used.id] = tuple(map(max, before, used.tokens))
        if used.at and used.at < since:
            continue
        new = [now - then for now, then in zip(answers[used.id], before, strict=True)]
        total = spent.setdefault(model, [0, 0, 0, 0])
        total[:] = [one + other for one, other in zip(total, new, strict=True)]
    kept = dict(list(answers.items())[-LAST:])
    if latest is not None:
        latest = latest._replace(model=latest.model or model)
    return Book(offset, kept, model), _bill(reader, spent, latest, now_s)


def _bill(
    reader: Reader, spent: dict[str, list[int]], latest: AnswerUsage | None, now_s: float
) -> Bill:
    cards = {name: card_of(name, reader.folder, now_s) for name in spent}
    micros: int | None = None
    for name, tokens in spent.items():
        cost = cards[name].cost_micros(tokens)
        if cost is not None:
            micros = cost + (micros or 0)
    unpriced = {name: card.unknown for name, card in cards.items() if card.unknown}
    return Bill(latest and _share(reader, latest, cards), micros, unpriced)


def _share(reader: Reader, latest: AnswerUsage, cards: Mapping[str, Card]) -> float:
    listed = cards.get(latest.model, Card()).window
    window = latest.window or reader.context_tokens or listed or DEFAULT_WINDOW
    return min(1.0, (latest.tokens.input + latest.tokens.output) / window)
