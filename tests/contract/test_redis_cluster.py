"""The contract of stores, in a Redis Cluster of three nodes."""

from contract import backends
from contract.contract import StoreContract


class TestRedisCluster(StoreContract):
    place = staticmethod(backends.redis_cluster)
