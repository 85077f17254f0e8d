"""The contract of stores, in memory."""

from contract.contract import StoreContract


class TestMemory(StoreContract):
    place = "memory"
