"""The contract of stores, in a Redis Cluster of three nodes."""

from contract.contract import StoreContract


class TestRedisCluster(StoreContract):
    place = "redis_cluster"
    all_or_nothing = False
