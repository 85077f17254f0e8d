"""The contract of stores, in a Redis server."""

import asyncio
from typing import Any

from contract.backends import Backend
from contract.contract import StoreContract
from contract.words import FAILED, NOW_S, POLICY


class TestRedis(StoreContract):
    place = "redis"
    all_or_nothing = False

    def test_a_coroutine_that_is_closed_while_it_reports_ends(self, backend: Backend) -> None:
        store = backend.open()

        async def report() -> None:
            reporting: Any = store.aapply("api", POLICY, FAILED, NOW_S)
            reporting.send(None)
            reporting.close()  # raises if it awaits anything more

        asyncio.run(report())
