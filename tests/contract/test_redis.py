"""The contract of stores, in a Redis server."""

from contract.contract import StoreContract


class TestRedis(StoreContract):
    place = "redis"
    all_or_nothing = False
