"""A guarded OpenAI client: while gpt-4.1 is overloaded, gpt-4.1-mini answers. Needs no key."""

import json

import httpx2
from openai import DefaultHttpx2Client, OpenAI

from switchgear import Panel
from switchgear.integrations.openai import ModelUsage, guard


def api(request: httpx2.Request) -> httpx2.Response:
    """Stands in for OpenAI while one model is overloaded."""
    model = json.loads(request.content)["model"]
    if model == "gpt-4.1":
        return httpx2.Response(503, json={"error": {"message": "overloaded"}})
    usage = {"input_tokens": 1_000, "output_tokens": 50}
    return httpx2.Response(200, json={"model": model, "output": [], "usage": usage})


def show(used: ModelUsage) -> None:
    """Print what a call cost."""
    print(used.model, used.outcome, used.cost_micros)


http_client = DefaultHttpx2Client(transport=httpx2.MockTransport(api))
client = OpenAI(api_key="sk-none", max_retries=0, http_client=http_client)
guard(client, panel=Panel("memory:"), fallback=["gpt-4.1-mini"], on_usage=show)
print(client.responses.create(model="gpt-4.1", input="Hello").model)
