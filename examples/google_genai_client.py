"""A guarded Gemini client whose refusals are the SDK's own errors. Needs no key."""

import httpx2
from google import genai
from google.genai import errors, types

from switchgear import Panel
from switchgear.integrations.google_genai import guard


def overloaded(request: httpx2.Request) -> httpx2.Response:
    """Stands in for an overloaded API."""
    error = {"code": 503, "message": "The model is overloaded.", "status": "UNAVAILABLE"}
    return httpx2.Response(503, json={"error": error})


fake = httpx2.Client(transport=httpx2.MockTransport(overloaded))
client = genai.Client(api_key="none", http_options=types.HttpOptions(httpx_client=fake))
guard(client, panel=Panel("memory:"), on_refusal="answer")
for _ in range(6):
    try:
        client.models.generate_content(model="gemini-2.5-flash", contents="Hello")
    except errors.ServerError as error:
        print(error.message)
