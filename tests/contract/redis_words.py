"""What the tests of circuits in a Redis server have in common."""

from switchgear._core.policy import Policy
from switchgear._core.types import Acquire, Circuit, Override, Record, Signal
from switchgear._detectors import ConsecutiveFailures
from switchgear._stores.redis import RedisStore

POLICY = Policy([ConsecutiveFailures(3)])
STRICT = POLICY.replace(strict=True)
FAILED = Record(Signal(ok=False, error="529 overloaded"))
SUCCEEDED = Record(Signal(ok=True))
KEY = "{switchgear}:c:api"


def tell(
    store: RedisStore, message: Record | Override | Acquire = FAILED, policy: Policy = POLICY
) -> Circuit:
    return store.apply("api", policy, message, store.now_s()).circuit


def trip(store: RedisStore) -> Circuit:
    return [tell(store) for _ in range(3)][-1]
