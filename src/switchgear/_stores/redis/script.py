"""The one script that runs inside the server: compare, set, and a queue for the other writers.

It contains no breaker logic. A value begins with a stamp that no two writes share; a writer that passes the
stamp it has read may replace the value. Another one gets the winner's value, and may leave a
message in the inbox: while that is not empty, only a writer that takes messages out of it commits.

Each message has an identity. The commit that applies it writes a receipt under that identity, in
the same script: a message that is sent again, because its reply was lost, finds the receipt and is
not applied again. A receipt goes when its sender confirms the reply with a later call, or after
`RECEIPT_MS`. Every reply repeats the nonce of its call, so that a reply to another call is noticed.
An error repeats nothing: it may be the reply to another call, and proves nothing about this one.
"""

import hashlib
from collections.abc import Sequence
from typing import Any, NamedTuple

BATCH = 256
"""How many messages one commit takes out of the inbox at most."""
ANSWER_MS = 60_000
"""Milliseconds that an answer is kept for its process."""
RECEIPT_MS = 86_400_000
"""How long a receipt waits for a sender that never got the reply: a day."""
CONFIRMED = 64
"""How many receipts one call removes at most."""
WARN_EVERY_MS = 250
"""How often it is published at most that a circuit fails: each time, every process that uses it is
woken, and reports for a second."""
UNHEARD = "|"
"""What an identity ends with if its sender waits for the answer to the message behind it."""
PLUS = "+"
"""What identities contain and the tokens of older versions do not: those never ask for receipts."""
SUMMARY = "s"
"""What the stamp of a summary ends with: no stored value has it."""
LEAD = b"lead"
"""What the first in the queue receives when it is its turn to commit."""

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
        if whose:find('{PLUS}', 1, true) then redis.call('SET', receipts .. whose, text, 'PX', {RECEIPT_MS}) end
        if whose:sub(-1) ~= '{UNHEARD}' then answer(whose, text .. '\\n' .. shown) end
      end
    end
    if stays ~= '' then return {{1, now[1], now[2], left, nonce}} end
  end
  return {{1, now[1], now[2], nonce}}
end

local mail = false
if token ~= '' then mail = redis.call('LPOP', answers .. token) end
-- The turn of a message that has left the queue since: it queues again.
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
-- Who is not in the queue tries again by the value: many waiting messages would be a long reply.
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


def sha(script: str) -> str:
    """The name under which a server keeps a script."""
    return hashlib.sha1(script.encode(), usedforsecurity=False).hexdigest()


SHAS = {
    script: sha(script)
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


class Script(NamedTuple):
    """Run a script in the server."""

    text: str
    keys: tuple[str, ...]
    args: tuple[Any, ...]
    nonce: str
    """What the reply ends with, if it is the reply to this call."""

    def is_answered_by(self, reply: Any) -> bool:
        """Whether this is the reply to this very call."""
        return isinstance(reply, list) and bool(reply) and reply[-1] == self.nonce.encode()

    def arguments(self) -> tuple[Any, ...]:
        """What EVAL and EVALSHA want behind the script."""
        return (len(self.keys), *self.keys, *self.args)


class Wait(NamedTuple):
    """Wait for an answer. A script cannot wait, so no nonce distinguishes this reply from an earlier one.

    An earlier reply about the same message has the same effect, and an empty reply only means to
    look again.
    """

    answers: tuple[str, ...]
    """The keys of the answers to a message and to the one before it."""
    wait_s: float

    def is_answered_by(self, reply: Any) -> bool:
        """Whether this is a reply about this message, or that nothing came."""
        if reply is None:
            return True
        pair = isinstance(reply, list | tuple) and len(reply) == 2
        keys = [key.encode() for key in self.answers]
        return pair and reply[0] in keys and isinstance(reply[1], bytes)


Call = Script | Wait


class Lost(NamedTuple):
    """The value is another than expected, or other messages wait before it."""

    have: bytes | None
    waiting: list[bytes]
    mail: bytes | None
    """An answer that was there already."""
    place: int = 0
    """How many waited before a message when it joined the queue; 0 if it joined earlier."""


class Received(NamedTuple):
    """The message was applied before: it was sent again because its reply was lost."""

    have: bytes | None
    """The value now."""
    receipt: bytes
    """What it came to, as `envelope.seal_answer` writes it; `APPLIED` where the value is enough."""


APPLIED = b"1"


class Names:
    """How the keys of a namespace are called. One hash tag: in a Cluster all are on one node."""

    def __init__(self, namespace: str) -> None:
        self.namespace = namespace
        root = f"{{{namespace}}}:"
        self.root: str = root
        """What every key begins with."""
        self.log: str = root + "events"
        """The stream of events."""
        self.operator: str = root + "operator"
        """The digest of the operator's token."""
        self.channel: str = root + "moves"
        """Where moves are published."""
        self.warm: str = root + "warm"
        """Where failures are published, so that every process reports its successes."""
        self.answers: str = root + "answer:"
        """What the keys of answers begin with."""
        self.receipts: str = root + "receipt:"
        """What the keys of receipts begin with."""
        self.circuits: str = root + "c:"
        """What the keys of circuits begin with."""

    def circuit(self, key: str) -> str:
        return self.circuits + key

    def inbox(self, key: str) -> str:
        return f"{self.root}inbox:{key}"

    def failing(self, key: str) -> str:
        """The key that exists for a moment after it was published that a circuit fails."""
        return f"{self.root}failing:{key}"

    def note(self, name: str) -> str:
        return f"{self.root}note:{name}"

    def turn(self, name: str) -> str:
        """The key with the holder of that note's lock."""
        return f"{self.root}turn:{name}"

    def unreadable(self, key: str, now_s: float) -> str:
        """Where a value that could not be read is kept."""
        return f"{self.root}unreadable:{key}:{now_s:.6f}"


class Exchange(NamedTuple):
    """The arguments of one exchange; the defaults only look."""

    expected: bytes
    """`-` nothing is there · `=…` it begins so · `#…` it is exactly this · `?` never matches."""
    new: bytes = b""
    """What to set; empty: only look."""
    mine: bytes = b""
    """How the new value begins: a call that was sent twice is done once."""
    ttl_ms: int | None = None
    alone: bool = True
    """Whether other waiters come first."""
    aside: str = ""
    entry: bytes = b""
    before: bytes = b""
    """A message of the same sender that queues directly before that one."""
    token: str = ""
    publish: bool = False
    events: tuple[bytes, ...] = ()
    answers: tuple[tuple[bytes, bytes], ...] = ()
    """The messages taken out of the inbox: whose (or the whole, if unreadable), what to answer."""
    identity: str = ""
    """The message that this applies, or asks for the receipt of."""
    outcome: bytes = APPLIED
    """The content of its receipt."""
    warm: bytes = b""
    """What is published when a shared circuit fails: which process, which circuit. Not if the sender `stays` and more waits."""
    summary: bytes = b""
    """What is published and answered instead of the new value; empty: the value."""
    stays: bool = False
    """Whether the sender also folds what has queued in the meantime: it is returned, and no other process woken."""

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
        """The call of the script that does it, unless it is later than that on the server."""
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
    """Whether the exchange removed the receipts that its sender has confirmed."""
    return int(reply[0]) not in (2, 3)


def is_late(reply: Any) -> bool:
    """Whether the server found that the answer comes too late, and did nothing."""
    return int(reply[0]) == 2


def queued(reply: Any) -> list[bytes]:
    """The messages that have queued in the meantime, if the sender of a commit stays the first."""
    is_done = int(reply[0]) == 1 and len(reply) > 4
    return list(reply[3]) if is_done else []


def outcome(reply: Any) -> Lost | Received | None:
    """What an exchange answered; `None`: done."""
    if int(reply[0]) == 3:
        return Received(reply[3], reply[4])
    if int(reply[0]) == 4:
        return Lost(None, [], None, int(reply[3]))
    if int(reply[0]):
        return None
    have, waiting, mail, place = reply[3:7]
    return Lost(have, waiting, mail, int(place))
