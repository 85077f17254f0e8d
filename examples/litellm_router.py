"""A LiteLLM router skips the deployment whose circuit is open. Needs no key."""

import asyncio

import litellm
from litellm.router import Router

from switchgear import Panel
from switchgear.integrations.litellm import guard

down = "litellm.InternalServerError"
spare = {"model": "claude-haiku-4-5", "mock_response": "Hi."}
models = [
    {"model_name": "chat", "litellm_params": {"model": "gpt-4o", "mock_response": down}},
    {"model_name": "spare", "litellm_params": spare},
]
# Without LiteLLM's own cooldowns: the circuit decides.
router = Router(models, fallbacks=[{"chat": ["spare"]}], num_retries=0, disable_cooldowns=True)
panel = Panel("memory:")
litellm.callbacks.append(guard(panel=panel))


async def main() -> None:
    for _ in range(8):
        answer = await router.acompletion("chat", messages=[{"role": "user", "content": "Hello?"}])
        failed = panel.breaker("provider/openai").totals.failed
        print(answer.choices[0].message.content, failed, "requests to openai have failed")


asyncio.run(main())
