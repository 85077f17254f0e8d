"""Redis and Valkey as a store. Only importing this package loads what it needs."""

from switchgear._stores.redis.store import RedisStore

__all__ = ["RedisStore"]
