"""The contract of stores, in a SQLite file."""

from contract import backends
from contract.contract import StoreContract


class TestSqlite(StoreContract):
    place = staticmethod(backends.sqlite)
