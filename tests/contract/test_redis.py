"""The contract of stores, in a Redis server."""

from contract import backends
from contract.contract import StoreContract


class TestRedis(StoreContract):
    place = staticmethod(backends.redis)
