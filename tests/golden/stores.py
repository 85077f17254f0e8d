"""What today's code writes into SQLite and Redis: a circuit in every phase, budgets, locks, a note.

A file of these is never written again: what was stored once must load forever. A new layout or format
gets new files beside the old ones.
"""

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import redis
from click.testing import CliRunner

from switchgear import Cooldown, Latched, Panel, Policy, Signal, detectors
from switchgear._cli import main
from switchgear._stores.redis import RedisStore
from switchgear._stores.sqlite import SqliteStore

NOTE = "session/s1"
NOTE_TEXT = '{"agent":"claude-code","task":"fix the parser","works":true}'
FOR_EVER_S = 100 * 365 * 86_400.0
NOW_S = 1_790_000_000.0
NAMESPACE = "golden"
SQLITE = "store-sqlite-layout-2"
REDIS = "store-redis-format-1"
FEW = Policy([detectors.ConsecutiveFailures(3)], Cooldown(60.0, 300.0))
BY: dict[str, Any] = {"by": "ada", "why": "the provider is down"}


def fill(panel: Panel) -> None:
    """Some of everything."""
    bad = Signal(ok=False, seconds=0.5, error="529 overloaded")
    panel.breaker("calm", policy=FEW).record(Signal(ok=True, seconds=0.25))
    for _ in range(3):
        panel.breaker("provider/open", policy=FEW).record(bad)
    probing = panel.breaker("provider/probing", policy=FEW)
    for _ in range(3):
        probing.record(bad)
    probing.probe_now(**BY)
    probing.enter()
    warm = FEW.replace(tripping_at=0.5)
    for _ in range(2):
        panel.breaker("op/tripping", policy=warm).record(bad)
    panel.breaker("op/held", policy=FEW).hold_open(**BY)
    panel.breaker("op/shadow", policy=FEW).shadow(**BY)
    money = Policy([detectors.TotalCost(2_000_000)], Latched(), tripping_at=0.75)
    panel.breaker("story/x", policy=money).record(Signal(cost_micros=120_000))
    panel.breaker("rules/coder", policy=Policy([detectors.Violation()], Latched())).record(
        Signal(violation="rule deletes/outside")
    )
    budgets = panel.budgets
    budgets.open("atlas", 5_000_000)
    budgets.open("atlas/wave-1", 2_000_000)
    budgets.reserve("atlas/wave-1", 500_000, owner="coder").settle(120_000)
    budgets.reserve("atlas/wave-1", 300_000, owner="tester")
    panel.lock("db", owner="ada", lease_s=600.0).acquire()

    def note(tx: Any) -> None:
        tx.note, tx.keep_s = NOTE_TEXT, FOR_EVER_S

    panel.store.transact(NOTE, note)


def facts(panel: Panel) -> dict[str, Any]:
    """The whole content of a store, as the command exports it, and the note."""

    def typed(*words: str) -> list[Any]:
        done = CliRunner().invoke(main, words, obj=panel)
        assert done.exit_code == 0, done.output
        return [json.loads(line) for line in done.stdout.splitlines()]

    return {
        "export": typed("export"),
        "events": typed("events", "--json", "--limit", "1000"),
        "audit": [list(panel.budgets.audit(root)) for root in panel.budgets.roots()],
        "note": panel.store.transact(NOTE, lambda tx: tx.note),
    }


# SQLite: the file as SQL


def sqlite_panel(path: Path) -> Panel:
    return Panel(SqliteStore(path, clock=lambda: NOW_S), clock=lambda: NOW_S)


def dump_sqlite(path: Path) -> str:
    with closing(sqlite3.connect(path)) as db:
        marks = [
            f"PRAGMA {name} = {db.execute(f'PRAGMA {name}').fetchone()[0]};"
            for name in ("application_id", "user_version")
        ]
        return "\n".join([*db.iterdump(), *marks]) + "\n"


def restore_sqlite(path: Path, text: str) -> None:
    with closing(sqlite3.connect(path)) as db:
        db.executescript(text)


# Redis: the keys with their values


def redis_panel(url: str) -> Panel:
    return Panel(RedisStore(url, namespace=NAMESPACE))


_READ: dict[str, Callable[[Any, str], Any]] = {
    "string": lambda server, key: server.get(key),
    "list": lambda server, key: server.lrange(key, 0, -1),
    "hash": lambda server, key: server.hgetall(key),
    "set": lambda server, key: sorted(server.smembers(key)),
    "zset": lambda server, key: server.zrange(key, 0, -1, withscores=True),
    "stream": lambda server, key: server.xrange(key),
}


def dump_redis(url: str) -> str:
    with closing(redis.Redis.from_url(url, decode_responses=True)) as server:
        rows = []
        for key in sorted(server.scan_iter()):
            kind = str(server.type(key))
            rows.append({"key": key, "type": kind, "value": _READ[kind](server, key)})
    return json.dumps(rows, indent=1) + "\n"


def restore_redis(url: str, text: str) -> None:
    with closing(redis.Redis.from_url(url, decode_responses=True)) as server:
        for row in json.loads(text):
            key, value = row["key"], row["value"]
            if row["type"] == "string":
                server.set(key, value)
            elif row["type"] == "list":
                server.rpush(key, *value)
            elif row["type"] == "hash":
                server.hset(key, mapping=value)
            elif row["type"] == "set":
                server.sadd(key, *value)
            elif row["type"] == "zset":
                server.zadd(key, dict(value))
            else:
                for number, fields in value:
                    server.xadd(key, fields, id=number)
