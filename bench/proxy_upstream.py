"""A model API for the measure of proxies, and a bare pass-through. `python -m bench.proxy_upstream api|bare …`."""

from __future__ import annotations

import asyncio
import json
import sys

ANSWER = json.dumps(
    {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "claude-sonnet-4-5",
        "content": [{"type": "text", "text": "x" * 3600}],
        "stop_reason": "end_turn",
        "usage": {"input_tokens": 1000, "output_tokens": 100},
    }
).encode()
WHOLE = (
    b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(ANSWER)
    + ANSWER
)
STREAM = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


def event(kind: str, **more: object) -> bytes:
    data = f"event: {kind}\ndata: {json.dumps({'type': kind, **more})}\n\n".encode()
    return b"%x\r\n%s\r\n" % (len(data), data)


START = event("message_start", message={**json.loads(ANSWER), "content": []})
DELTA = event("content_block_delta", index=0, delta={"type": "text_delta", "text": "word " * 8})
END = event("message_delta", delta={}, usage={"output_tokens": 100}) + event("message_stop")


class Api(asyncio.Protocol):
    """Answers at once; a body with `"stream"` gets 20 events, `hold_s` seconds apart in all."""

    def __init__(self, hold_s: float) -> None:
        self._hold_s = hold_s
        self._data = b""
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]

    def data_received(self, data: bytes) -> None:
        self._data += data
        while True:
            head, sign, rest = self._data.partition(b"\r\n\r\n")
            length = int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0] or 0)
            if not sign or len(rest) < length:
                return
            body, self._data = rest[:length], rest[length:]
            if b'"stream": true' in body or b'"stream":true' in body:
                self._transport.write(STREAM + START)
                asyncio.get_running_loop().create_task(self._go_on())
            else:
                self._transport.write(WHOLE)

    async def _go_on(self) -> None:
        for _ in range(20):
            await asyncio.sleep(self._hold_s / 20)
            self._transport.write(DELTA)
        self._transport.write(END + b"0\r\n\r\n")


async def serve_api(port: int, hold_s: float) -> None:
    server = await asyncio.get_running_loop().create_server(
        lambda: Api(hold_s), "127.0.0.1", port, backlog=1024
    )
    await server.serve_forever()


def serve_bare(port: int, upstream: str) -> None:
    """The least that a proxy of aiohttp does."""
    from aiohttp import ClientSession, web  # noqa: PLC0415

    async def forward(request: web.Request) -> web.StreamResponse:
        body = await request.read()
        headers = {key: value for key, value in request.headers.items() if key.lower() != "host"}
        client: ClientSession = request.app["client"]
        async with client.post(upstream + request.path_qs, data=body, headers=headers) as got:
            response = web.StreamResponse(status=got.status)
            response.content_type = got.content_type
            await response.prepare(request)
            async for chunk in got.content.iter_any():
                await response.write(chunk)
            await response.write_eof()
            return response

    async def client(app: web.Application) -> object:
        app["client"] = ClientSession(auto_decompress=False)
        yield
        await app["client"].close()

    app = web.Application(client_max_size=2**26)
    app.cleanup_ctx.append(client)  # type: ignore[arg-type]
    app.router.add_route("*", "/{path:.*}", forward)
    web.run_app(app, host="127.0.0.1", port=port, print=None, access_log=None)


if __name__ == "__main__":
    import uvloop

    if sys.argv[1] == "api":
        uvloop.run(serve_api(int(sys.argv[2]), float(sys.argv[3])))
    else:
        uvloop.install()
        serve_bare(int(sys.argv[2]), sys.argv[3])
