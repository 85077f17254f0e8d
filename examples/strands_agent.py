"""A Strands agent whose model fails: the sixth call is refused without a request. Needs no key."""

from collections.abc import AsyncIterator
from typing import Any

from strands import Agent
from strands.models import Model

from switchgear import Panel, Rejected
from switchgear.integrations.strands import guard


class Down(Model):  # stands in for a model whose provider is down
    update_config: Any = None
    structured_output: Any = None

    def get_config(self) -> dict[str, str]:
        return {"model_id": "down"}

    def stream(self, *args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        raise ConnectionError("connection refused")


agent = Agent(model=Down(), plugins=[guard(panel=Panel("memory:"))], callback_handler=None)
for number in range(1, 8):
    try:
        agent("Hello?")
    except (ConnectionError, Rejected) as error:
        print(number, error)
