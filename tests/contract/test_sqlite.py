"""The contract of stores, in a SQLite file."""

from contract.contract import StoreContract


class TestSqlite(StoreContract):
    place = "sqlite"
