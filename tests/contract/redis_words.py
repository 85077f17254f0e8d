"""What the tests of circuits in a Redis server have in common."""

from switchgear._core.policy import Policy
from switchgear._core.types import Ask, Circuit, Order, Signal, Tell
from switchgear._detectors import ConsecutiveFailures
from switchgear._stores.redis import RedisStore

POLICY = Policy([ConsecutiveFailures(3)])
STRICT = POLICY.replace(strict=True)
FAILED = Tell(Signal(ok=False, error="529 overloaded"))
SUCCEEDED = Tell(Signal(ok=True))
KEY = "{switchgear}:c:api"


def tell(
    store: RedisStore, message: Tell | Order | Ask = FAILED, policy: Policy = POLICY
) -> Circuit:
    return store.apply("api", policy, message, store.now_s()).circuit


def trip(store: RedisStore) -> Circuit:
    return [tell(store) for _ in range(3)][-1]
