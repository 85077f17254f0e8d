"""The contract of stores, in a Redis server."""

from contract.contract import StoreContract


class TestRedis(StoreContract):
    place = "redis"
