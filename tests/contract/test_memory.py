"""The contract of stores, in memory."""

from contract import backends
from contract.contract import StoreContract


class TestMemory(StoreContract):
    place = staticmethod(backends.memory)
