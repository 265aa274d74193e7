"""Requests to an application without a network."""

import asyncio
import json
from urllib.parse import urlencode


class Answer:
    def __init__(self) -> None:
        self.status, self.headers, self.body = 0, {}, b""

    @property
    def json(self):
        return json.loads(self.body)


def request(app, path, headers=None, method="GET", host="127.0.0.1:8265", **query) -> Answer:
    """One HTTP request. `query` values may be lists."""
    return asyncio.run(_request(app, path, headers or {}, method, host, urlencode(query, doseq=True)))


async def _request(app, path, headers, method, host, query) -> Answer:
    answer = Answer()
    sent = {"host": host, **headers} if host is not None else dict(headers)
    scope = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": method, "scheme": "http",
        "path": path, "raw_path": path.encode(), "root_path": "", "query_string": query.encode(),
        "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 8265),
        "headers": [(name.lower().encode(), value.encode("latin-1")) for name, value in sent.items()],
    }  # fmt: skip

    bodies = [{"type": "http.request", "body": b"", "more_body": False}]

    async def receive():
        if not bodies:
            await asyncio.sleep(3_600)  # the client stays
        return bodies.pop()

    async def send(message):
        if message["type"] == "http.response.start":
            answer.status = message["status"]
            answer.headers = {name.decode(): value.decode("latin-1") for name, value in message["headers"]}
        else:
            answer.body += message.get("body", b"")

    await app(scope, receive, send)
    return answer


def handshake(app, path="/ws/runs", host="127.0.0.1:8265", **headers) -> list[dict]:
    """What a WebSocket is answered until it is accepted or closed; then the client leaves."""
    return asyncio.run(_handshake(app, path, {"host": host, **headers}))


async def _handshake(app, path, headers):
    sent: list[dict] = []
    coming = [{"type": "websocket.connect"}, {"type": "websocket.disconnect", "code": 1000}]
    scope = {
        "type": "websocket", "path": path, "raw_path": path.encode(), "root_path": "", "scheme": "ws",
        "query_string": b"",
        "headers": [(name.lower().encode(), value.encode()) for name, value in headers.items()], "subprotocols": [],
        "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 8265),
    }  # fmt: skip

    async def receive():
        if not coming:
            await asyncio.sleep(60)
        return coming.pop(0)

    async def send(message):
        sent.append(message)

    await app(scope, receive, send)
    return sent
