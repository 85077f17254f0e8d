"""The scripts that run inside the server: compare and set, and a queue for competing writers.

They contain no breaker logic. A value begins with a stamp that no two writes share; a writer that passes
the stamp it has read may replace the value. Other writers get the current value, and may leave a
message in the inbox: while the inbox is not empty, only a writer that takes messages from it commits.

Each message has an identity. The commit that applies a message writes a receipt under its identity, in
the same script: a message that is sent again, because its reply was lost, finds the receipt and is
not applied again. A receipt is removed when its sender confirms the reply with a later call, or after
`RECEIPT_MS`. Every reply repeats the nonce of its call, so that a reply to another call is noticed.
An error reply contains no nonce: it may belong to another call, and proves nothing about this one.
"""

import hashlib
from collections.abc import Sequence
from typing import Any, NamedTuple

BATCH = 256
"""Maximum number of messages that one commit takes from the inbox."""
ANSWER_MS = 60_000
"""Milliseconds that an answer is kept for its process."""
RECEIPT_MS = 86_400_000
"""Milliseconds that a receipt is kept for a sender that never got the reply: one day."""
CONFIRMED = 64
"""Maximum number of receipts that one call removes."""
WARN_EVERY_MS = 250
"""Minimum milliseconds between two published failures of a circuit: each wakes every process that uses it,
and lets it report its successes for a second."""
NO_ANSWER_MARK = "|"
"""The end of the identity of a message whose answer is not read: its sender waits for a later answer."""
IDENTITY_MARK = "+"
"""Part of every identity, and not of the tokens of older versions, which never ask for receipts."""
SUMMARY = "s"
"""The end of the stamp of a summary; no stored value has it."""
LEAD = b"lead"
"""The answer to the first process in the queue when it must lead, that is, commit."""

EXCHANGE = f"""
local value, log, inbox, failing = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local expected, mine, new, ttl_ms, alone = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local aside, aside_ms, entry, token = ARGV[6], ARGV[7], ARGV[8], ARGV[9]
local answers, channel, keep, lines = ARGV[10], ARGV[11], ARGV[12], tonumber(ARGV[13])
local until_us = tonumber(ARGV[14])
local nonce, receipts, identity, outcome = ARGV[15], ARGV[16], ARGV[17], ARGV[18]
local confirmed, warm, warm_channel = tonumber(ARGV[19]), ARGV[20], ARGV[21]
-- What other processes receive; only a process that commits needs the whole value.
local shown, stays, before = ARGV[22] ~= '' and ARGV[22] or new, ARGV[23], ARGV[24]
local taken = (#ARGV - 24 - confirmed - lines) / 2
local pairs_at = 24 + confirmed + lines

local now = redis.call('TIME')
-- After the first write, never before: a full server refuses only a script that has not written yet.
local function clear_confirmed()
  for i = 1, confirmed do redis.call('DEL', receipts .. ARGV[24 + i]) end
end
if until_us and now[1] * 1000000 + now[2] > until_us then return {{2, now[1], now[2], nonce}} end
if identity ~= '' then
  local receipt = redis.call('GET', receipts .. identity)
  if receipt then return {{3, now[1], now[2], redis.call('GET', value), receipt, nonce}} end
end

local function answer(to, text)
  redis.call('RPUSH', answers .. to, text)
  redis.call('PEXPIRE', answers .. to, {ANSWER_MS})
end

-- What is not needed is not read: hundreds of processes may queue at once, and each waits for those before it.
local how, what = expected:sub(1, 1), expected:sub(2)
local have = how ~= '?' and redis.call('GET', value)
local waiting = taken > 0 and redis.call('LRANGE', inbox, 0, taken - 1)
local same = how == '-' and not have
if have and how == '=' then same = have:sub(1, #what) == what end
if have and how == '#' then same = have == what end
for i = 1, taken do
  local whose = ARGV[pairs_at + 2 * i - 1]
  local line = whose .. '\\n'
  same = same and waiting[i] and (waiting[i]:sub(1, #line) == line or waiting[i] == whose)
end

if same and new == '' then
  clear_confirmed()
  return {{1, now[1], now[2], nonce}}
end
if have and mine ~= '' and have:sub(1, #mine) == mine then return {{1, now[1], now[2], nonce}} end

if same and (taken > 0 or alone == '' or not redis.call('LINDEX', inbox, 0)) then
  if aside ~= '' then
    redis.call('RENAME', value, aside)
    redis.call('PEXPIRE', aside, aside_ms)
  end
  if ttl_ms == '' then redis.call('SET', value, new) else redis.call('SET', value, new, 'PX', ttl_ms) end
  if identity ~= '' and taken == 0 then redis.call('SET', receipts .. identity, outcome, 'PX', {RECEIPT_MS}) end
  clear_confirmed()
  for i = 1, lines do redis.call('XADD', log, 'MAXLEN', '~', keep, '*', 'e', ARGV[24 + confirmed + i]) end
  if channel ~= '' then redis.call('PUBLISH', channel, shown) end
  if taken > 0 then redis.call('LTRIM', inbox, taken, -1) end
  local left = taken > 0 and stays ~= '' and redis.call('LRANGE', inbox, 0, {BATCH - 1}) or {{}}
  -- If the sender is going to commit more, what that does to the circuit decides whether this is needed.
  if warm ~= '' and #left == 0 and redis.call('SET', failing, '1', 'NX', 'PX', {WARN_EVERY_MS}) then
    redis.call('PUBLISH', warm_channel, warm)
  end
  if taken > 0 then
    -- The next leader is woken first: all others in the queue wait for it.
    local next_one = stays == '' and redis.call('LINDEX', inbox, 0)
    if next_one then answer(next_one:match('^[^\\n]*'), '{LEAD.decode()}') end
    for i = 1, taken do
      local whose, text = ARGV[pairs_at + 2 * i - 1], ARGV[pairs_at + 2 * i]
      if whose == identity then
        redis.call('SET', receipts .. whose, outcome, 'PX', {RECEIPT_MS})
      elseif text ~= '' then
        if whose:find('{IDENTITY_MARK}', 1, true) then redis.call('SET', receipts .. whose, text, 'PX', {RECEIPT_MS}) end
        if whose:sub(-1) ~= '{NO_ANSWER_MARK}' then answer(whose, text .. '\\n' .. shown) end
      end
    end
    if stays ~= '' then return {{1, now[1], now[2], left, nonce}} end
  end
  return {{1, now[1], now[2], nonce}}
end

local mail = false
if token ~= '' then mail = redis.call('LPOP', answers .. token) end
-- That was for a message that has left the queue since: it queues again.
if entry ~= '' and mail == '{LEAD.decode()}' then mail = false end
if entry ~= '' and not mail then
  local function join(each)
    redis.call('LREM', inbox, -1, each)  -- a call that arrives twice queues once
    return redis.call('RPUSH', inbox, each) - 1
  end
  local place = before ~= '' and join(before)
  place = join(entry) - (place and 1 or 0)
  redis.call('PEXPIRE', inbox, aside_ms)
  if place > 0 then
    clear_confirmed()
    return {{4, now[1], now[2], place, nonce}}
  end
end
clear_confirmed()
if how == '?' then have = redis.call('GET', value) end
-- A writer that is not in the queue needs only the value: many waiting messages would be a long reply.
waiting = token ~= '' and redis.call('LRANGE', inbox, 0, {BATCH - 1}) or {{}}
return {{0, now[1], now[2], have, waiting, mail, 0, nonce}}
"""

FORGET = """
local have, removed = redis.call('GET', KEYS[1]), 0
if have and have:sub(1, #ARGV[1]) == ARGV[1] then removed = redis.call('DEL', KEYS[1]) end
return {removed, ARGV[2]}
"""

REPLACE = """
local have = redis.call('GET', KEYS[1]) or ''
if have ~= ARGV[1] then return {0, ARGV[3]} end
if ARGV[2] == '' then redis.call('DEL', KEYS[1]) else redis.call('SET', KEYS[1], ARGV[2]) end
return {1, ARGV[3]}
"""

TAKE = """
redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2])
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return {0, false, ARGV[3]} end
return {1, redis.call('GET', KEYS[2]), ARGV[3]}
"""

NOTE = f"""
if redis.call('GET', KEYS[3]) then return {{1, ARGV[4]}} end
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return {{0, ARGV[4]}} end
if ARGV[3] == '' then redis.call('DEL', KEYS[2]) else redis.call('SET', KEYS[2], ARGV[2], 'PX', ARGV[3]) end
redis.call('SET', KEYS[3], '1', 'PX', {ANSWER_MS})
redis.call('DEL', KEYS[1])
return {{1, ARGV[4]}}
"""

ON_KEYS = """
local reply = redis.call(ARGV[2], unpack(KEYS))
return {reply, ARGV[1]}
"""

ON_KEY = """
return {redis.call(ARGV[2], KEYS[1], unpack(ARGV, 3)), ARGV[1]}
"""

SCAN = """
return {redis.call('SCAN', ARGV[2], 'MATCH', ARGV[3], 'COUNT', ARGV[4]), ARGV[1]}
"""

WITHDRAW = f"""
local removed = redis.call('LREM', KEYS[1], 1, ARGV[1])
local next_one = redis.call('LINDEX', KEYS[1], 0)
if removed == 1 and next_one then
  local theirs = ARGV[2] .. next_one:match('^[^\\n]*')
  redis.call('RPUSH', theirs, '{LEAD.decode()}')
  redis.call('PEXPIRE', theirs, {ANSWER_MS})
end
return {{removed, redis.call('LPOP', KEYS[2]), redis.call('GET', ARGV[3]), redis.call('GET', KEYS[3]), ARGV[4]}}
"""

WAKE = f"""
local next_one = redis.call('LINDEX', KEYS[1], 0)
if next_one then
  local theirs = ARGV[1] .. next_one:match('^[^\\n]*')
  redis.call('RPUSH', theirs, '{LEAD.decode()}')
  redis.call('PEXPIRE', theirs, {ANSWER_MS})
end
return {{ARGV[2]}}
"""

RECALL = f"""
local line, removed = ARGV[1] .. '\\n', false
for _, raw in ipairs(redis.call('LRANGE', KEYS[1], 0, -1)) do
  if raw:sub(1, #line) == line then removed = redis.call('LREM', KEYS[1], 1, raw) end
end
local next_one = removed and redis.call('LINDEX', KEYS[1], 0)
if next_one then
  local theirs = ARGV[3] .. next_one:match('^[^\\n]*')
  redis.call('RPUSH', theirs, '{LEAD.decode()}')
  redis.call('PEXPIRE', theirs, {ANSWER_MS})
end
local answers = redis.call('LRANGE', KEYS[4], 0, -1)
return {{redis.call('GET', KEYS[2]), redis.call('GET', KEYS[3]), answers, ARGV[2]}}
"""


SHAS = {
    script: hashlib.sha1(script.encode(), usedforsecurity=False).hexdigest()
    for script in (
        EXCHANGE,
        FORGET,
        REPLACE,
        TAKE,
        NOTE,
        ON_KEYS,
        ON_KEY,
        SCAN,
        WITHDRAW,
        WAKE,
        RECALL,
    )
}
"""The hash of each script, by which a server finds it."""


class Script(NamedTuple):
    """A call of a script in the server."""

    text: str
    keys: tuple[str, ...]
    args: tuple[Any, ...]
    nonce: str
    """The last item of the reply, if it is the reply to this call."""

    def is_answered_by(self, reply: Any) -> bool:
        """Whether this is the reply to this call."""
        return isinstance(reply, list) and bool(reply) and reply[-1] == self.nonce.encode()

    def arguments(self) -> tuple[Any, ...]:
        """The arguments of EVAL and EVALSHA after the script."""
        return (len(self.keys), *self.keys, *self.args)


class Wait(NamedTuple):
    """A call that waits for an answer. It is no script, so the reply contains no nonce.

    A late reply to an earlier call about the same message has the same effect, and after an empty reply
    the caller checks again.
    """

    answers: tuple[str, ...]
    """The keys of the answers to a message and to the one before it."""
    wait_s: float

    def is_answered_by(self, reply: Any) -> bool:
        """Whether this is a reply about these messages, or the empty reply."""
        if reply is None:
            return True
        pair = isinstance(reply, list | tuple) and len(reply) == 2
        keys = [key.encode() for key in self.answers]
        return pair and reply[0] in keys and isinstance(reply[1], bytes)


Call = Script | Wait


class NotCommitted(NamedTuple):
    """Nothing was committed: the value is another than expected, or other messages wait."""

    have: bytes | None
    waiting: list[bytes]
    mail: bytes | None
    """An answer that had already arrived."""
    place: int = 0
    """Number of messages before this one when it joined the queue; 0 if it joined earlier."""


class AlreadyApplied(NamedTuple):
    """The message was applied before: it was sent again because its reply was lost."""

    have: bytes | None
    """The current value."""
    receipt: bytes
    """The result of the message, as `envelope.seal_answer` writes it; `APPLIED` if the value is enough."""


APPLIED = b"1"


class Names:
    """The names of the keys of a namespace, with one hash tag, so that a Cluster keeps them on one node."""

    def __init__(self, namespace: str) -> None:
        self.namespace = namespace
        root = f"{{{namespace}}}:"
        self.root: str = root
        """The prefix of every key."""
        self.log: str = root + "events"
        """The stream of events."""
        self.operator: str = root + "operator"
        """The digest of the operator's token."""
        self.channel: str = root + "moves"
        """The channel on which changed circuits are published."""
        self.warm: str = root + "warm"
        """The channel on which failures are published, so that every process reports its successes."""
        self.answers: str = root + "answer:"
        """The prefix of the keys of answers."""
        self.receipts: str = root + "receipt:"
        """The prefix of the keys of receipts."""
        self.circuits: str = root + "c:"
        """The prefix of the keys of circuits."""

    def circuit(self, key: str) -> str:
        return self.circuits + key

    def inbox(self, key: str) -> str:
        return f"{self.root}inbox:{key}"

    def failing(self, key: str) -> str:
        """The key that exists for `WARN_EVERY_MS` after a failure of the circuit was published."""
        return f"{self.root}failing:{key}"

    def note(self, name: str) -> str:
        return f"{self.root}note:{name}"

    def turn(self, name: str) -> str:
        """The key with the holder of the lock of a note."""
        return f"{self.root}turn:{name}"

    def unreadable(self, key: str, now_s: float) -> str:
        """The key under which an unreadable value is kept."""
        return f"{self.root}unreadable:{key}:{now_s:.6f}"


class Exchange(NamedTuple):
    """The arguments of one exchange; with the defaults it only reads."""

    expected: bytes
    """The expected value: `-` none · `=…` begins like this · `#…` exactly this · `?` never matches."""
    new: bytes = b""
    """The value to set; empty: only read."""
    mine: bytes = b""
    """The beginning of the new value, so that a call that is sent twice is applied once."""
    ttl_ms: int | None = None
    alone: bool = True
    """Whether to commit only if no messages wait in the inbox."""
    aside: str = ""
    """The key to which an unreadable value is moved; empty: there is none."""
    entry: bytes = b""
    """The message to queue if nothing is committed; empty: none."""
    before: bytes = b""
    """A message of the same sender that queues directly before `entry`."""
    token: str = ""
    publish: bool = False
    events: tuple[bytes, ...] = ()
    answers: tuple[tuple[bytes, bytes], ...] = ()
    """The messages to take from the inbox: the token (the whole message if it is unreadable) and the answer."""
    identity: str = ""
    """The identity of the message that this applies, or whose receipt it requests."""
    outcome: bytes = APPLIED
    """The content of its receipt."""
    warm: bytes = b""
    """The failure to publish: process and circuit. Not yet if the sender `stays` and more messages wait."""
    summary: bytes = b""
    """What is published and sent as an answer instead of the new value; empty: the value."""
    stays: bool = False
    """Whether the sender also applies what has queued meanwhile: it is returned, and no process is woken."""

    def call(
        self,
        names: Names,
        key: str,
        *,
        keep: int,
        idle_ms: int,
        until_s: float | None = None,
        nonce: str,
        confirmed: Sequence[str] = (),
    ) -> Script:
        """The call of the script; the server refuses it after `until_s` on its clock."""
        keys = (names.circuit(key), names.log, names.inbox(key), names.failing(key))
        args: list[Any] = [
            self.expected,
            self.mine,
            self.new,
            b"" if self.ttl_ms is None else self.ttl_ms,
            b"1" if self.alone else b"",
            self.aside,
            idle_ms,
            self.entry,
            self.token,
            names.answers,
            names.channel if self.publish else b"",
            keep,
            len(self.events),
            b"" if until_s is None else int(until_s * 1e6),
            nonce,
            names.receipts,
            self.identity,
            self.outcome,
            len(confirmed),
            self.warm,
            names.warm,
            self.summary,
            b"1" if self.stays else b"",
            self.before,
            *confirmed,
            *self.events,
        ]
        for token, text in self.answers:
            args += (token, text)
        return Script(EXCHANGE, keys, tuple(args), nonce)


def removes_receipts(reply: Any) -> bool:
    """Whether the exchange removed the confirmed receipts."""
    return int(reply[0]) not in (2, 3)


def is_late(reply: Any) -> bool:
    """Whether the server received the call after its deadline, and did nothing."""
    return int(reply[0]) == 2


def queued(reply: Any) -> list[bytes]:
    """The messages that queued during a commit whose sender `stays`."""
    is_done = int(reply[0]) == 1 and len(reply) > 4
    return list(reply[3]) if is_done else []


def outcome(reply: Any) -> NotCommitted | AlreadyApplied | None:
    """The result of an exchange; `None`: it was committed."""
    if int(reply[0]) == 3:
        return AlreadyApplied(reply[3], reply[4])
    if int(reply[0]) == 4:
        return NotCommitted(None, [], None, int(reply[3]))
    if int(reply[0]):
        return None
    have, waiting, mail, place = reply[3:7]
    return NotCommitted(have, waiting, mail, int(place))
