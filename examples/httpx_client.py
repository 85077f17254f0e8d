"""A guarded httpx2 client: five errors open the circuit, the sixth request is not sent. httpx works alike."""

import httpx2

from switchgear import Panel, Rejected
from switchgear.integrations.httpx import guard


def overloaded(request: httpx2.Request) -> httpx2.Response:
    """Stands in for a server that is overloaded."""
    return httpx2.Response(503, headers={"retry-after": "90"})


with Panel("memory:") as panel, httpx2.Client(transport=httpx2.MockTransport(overloaded)) as client:
    guard(client, panel=panel)
    for _ in range(5):
        print(client.get("https://api.example.com/search").status_code)
    try:
        client.get("https://api.example.com/search")
    except Rejected as refused:
        print(refused)
