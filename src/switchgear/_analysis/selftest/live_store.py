"""The configured store itself, under circuits that nobody else has, removed afterwards."""

import os
import secrets
from collections.abc import Iterator
from typing import Any

from switchgear._analysis.selftest.rows import GuardRow, GuardStatus, failed, skipped
from switchgear._analysis.selftest.sandbox import Bench
from switchgear._analysis.selftest.shared_store import shared
from switchgear._core.errors import OverrideRefused, StoreError
from switchgear._core.types import Acquire, Mode
from switchgear._panel.panel import Panel
from switchgear._stores.url import default_file
from switchgear._text.redact import redact

PATH = "store live"
_SQLITE = "sqlite:///"


def attacked(bench: Bench) -> Iterator[GuardRow]:
    """A trip that two connections share, and an order without the token."""
    url = bench.store_url or f"{_SQLITE}{default_file(bench.root)}"
    guard = f"store {redact(url)}"
    file = url.removeprefix(_SQLITE) if url.startswith(_SQLITE) else None
    if url.startswith("memory:"):
        yield skipped(
            guard, "dead provider", PATH, "memory: is this process's own; nothing is shared"
        )
        return
    if file is not None and not os.path.exists(os.path.expanduser(file)):  # noqa: PTH110, PTH111
        why = "the file is not there yet, and a test makes none; use Switchgear once"
        yield skipped(guard, "dead provider", PATH, why)
        return
    name = f"selftest/{secrets.token_hex(6)}"
    try:
        yield shared(url, name, guard, PATH)
        yield _ordered(url, name, guard)
        if bench.token is not None:
            yield _obeyed(url, name, guard, bench.token)
    except StoreError as error:
        yield failed(guard, "dead provider", PATH, str(error))
    finally:
        left = _removed(url, name)
    if left:
        yield GuardRow(guard, "removed", PATH, status=GuardStatus.SKIPPED, reason=left)


def _ordered(url: str, name: str, guard: str) -> GuardRow:
    """An agent's order: where the store is sealed, it must be refused."""
    attack = "self-release"
    with Panel(url) as panel:
        if panel.store.operator_digest() is None:
            why = "the store is not sealed: orders need no token; `switchgear config seal`"
            return skipped(guard, attack, PATH, why)
        try:
            panel.order(name, by="an agent", why="I am fine", mode=Mode.HELD_CLOSED)
        except OverrideRefused as refused:
            return GuardRow(guard, attack, PATH, "operator token", 1, reason=str(refused))
    return failed(guard, attack, PATH, "an order without the token was obeyed")


def _obeyed(url: str, name: str, guard: str, token: str) -> GuardRow:
    """The operator's order: with the token that was given it must be obeyed."""
    with Panel(url, token=token) as panel:
        try:
            panel.order(name, by="selftest", why="a trial", mode=Mode.HELD_OPEN)
        except OverrideRefused as refused:
            return failed(guard, "operator's order", PATH, f"the token does not fit: {refused}")
        verdict = panel.send(name, Acquire())
    if verdict.admitted:
        return failed(guard, "operator's order", PATH, "the circuit is held open and admits")
    return GuardRow(guard, "operator's order", PATH, "held open", 1, reason=verdict.reason)


def _removed(url: str, name: str) -> str:
    """Remove what was made; what cannot be is told."""
    with Panel(url) as panel:
        store: Any = panel.store.inner
        try:
            store.forget(name)
        except (StoreError, AttributeError) as error:
            return f"circuit {name!r} could not be removed: {error}"
    return ""
