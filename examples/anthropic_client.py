"""A guarded Anthropic client within a budget of $0.02: the third call is refused. Needs no key."""

import httpx2
from anthropic import Anthropic, DefaultHttpxClient

from switchgear import Panel
from switchgear.errors import BudgetRefused
from switchgear.integrations.anthropic import guard


def api(request: httpx2.Request) -> httpx2.Response:
    """Stands in for Anthropic's API: each answer has 500 tokens."""
    usage = {"input_tokens": 20, "output_tokens": 500}
    message = {"id": "m", "type": "message", "role": "assistant", "content": [], "usage": usage}
    return httpx2.Response(200, json={**message, "model": "claude-sonnet-4-6"})


panel = Panel("memory:")
panel.budgets.open("team", 20_000)  # millionths of a dollar
transport = DefaultHttpxClient(transport=httpx2.MockTransport(api))
client = guard(Anthropic(api_key="sk-none", http_client=transport), panel=panel, budget="team")
try:
    while True:
        hello = [{"role": "user", "content": "Hello"}]
        client.messages.create(model="claude-sonnet-4-6", max_tokens=500, messages=hello)  # type: ignore[arg-type]
        print("left:", panel.budgets.free_micros("team"))
except BudgetRefused as refused:
    print(refused)
