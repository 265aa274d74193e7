"""Who may access the server, and what its pages may do.

A browser runs scripts of any site on this machine. So the Host must be an address of this server (a name that someone
else's DNS points here is rejected), a WebSocket must come from a page of this server, other sites get no data, and from
other machines every request needs the token. Pages run only scripts of this package and load nothing else.
"""

from __future__ import annotations

import hmac
import ipaddress
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass
from http.cookies import CookieError, SimpleCookie
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

COOKIE = "c2d-token"
HEADER_BYTES = 32_768  # of one request
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; "
    "trusted-types 'none'"
)
# A report is a file in the runs directory: it may run its scripts, but it has no origin and loads nothing.
REPORT_POLICY = (
    "sandbox allow-scripts; default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; "
    "img-src data:; font-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), microphone=(), geolocation=()",
    "cache-control": "no-cache",
}
_LOCAL = ("127.0.0.1", "localhost", "::1")


@dataclass(frozen=True)
class Access:
    """The names under which the server answers, and the token it requires."""

    port: int
    hosts: tuple[str, ...] = _LOCAL  # on a public address every numeric address is accepted too
    token: str | None = None  # None: the server is reachable from this machine only

    def is_own_host(self, host: str) -> bool:
        """DNS can point any name at this machine, but it cannot change the Host that the browser sends."""
        try:
            parts = urlsplit(f"//{host}")
            name, port = (parts.hostname or "").rstrip("."), parts.port
        except ValueError:
            return False
        if parts.username is not None or parts.path:
            return False
        if name in _LOCAL and name in self.hosts:
            return True  # on any port: a tunnel may use another one
        if (80 if port is None else port) != self.port:
            return False
        return name in self.hosts or (self.token is not None and _numeric(name))

    def is_own_origin(self, origin: str, host: str) -> bool:
        return self.is_own_host(host) and origin.lower() in (f"http://{host}".lower(), f"https://{host}".lower())

    def accepts(self, offered: str | None) -> bool:
        if self.token is None:
            return True
        return offered is not None and hmac.compare_digest(offered.encode(), self.token.encode())


def _numeric(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


class Guard:
    """Wraps the application: checks each request, and adds headers to each answer."""

    def __init__(self, app: App, access: Access) -> None:
        self.app, self.access = app, access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self.app(scope, receive, send)
            return
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        rejection = self._rejection(scope, headers)
        if scope["type"] == "websocket":
            if rejection is None:
                await self.app(scope, receive, send)
            else:
                await receive()
                await send({"type": "websocket.close", "code": 4403, "reason": rejection[1]})
            return
        if rejection is not None:
            await _answer(send, *rejection)
            return
        query = dict(parse_qsl(scope["query_string"].decode("latin-1")))
        if self.access.token is not None and "token" in query:
            await self._set_cookie(scope, send, query)
            return
        await self.app(scope, receive, _with_headers(send))

    def _rejection(self, scope: Scope, headers: dict[str, str]) -> tuple[int, str] | None:
        """Status and reason; None if the request may pass."""
        host, origin = headers.get("host", ""), headers.get("origin")
        if sum(map(len, headers.values())) > HEADER_BYTES:
            return 431, f"the headers of a request have more than {HEADER_BYTES:,} bytes"
        if not self.access.is_own_host(host):
            return 403, "this server does not answer under that name"
        if scope["type"] == "websocket":
            if origin is None or not self.access.is_own_origin(origin, host):
                return 403, "a WebSocket must be opened by a page of this server"
        elif scope["method"] not in ("GET", "HEAD"):
            return 405, "only GET is accepted"
        elif _from_another_site(headers) or (origin is not None and not self.access.is_own_origin(origin, host)):
            return 403, "other sites get no data"
        if not self.access.accepts(_offered_token(scope, headers)):
            return 401, "the token is missing or wrong: open the address that `c2d serve` printed"
        return None

    async def _set_cookie(self, scope: Scope, send: Send, query: dict[str, str]) -> None:
        """Store the token in a cookie and remove it from the address."""
        del query["token"]
        rest = f"?{urlencode(query)}" if query else ""
        place = quote("/" + scope["path"].lstrip("/")) + rest
        cookie = f"{COOKIE}={self.access.token}; Path=/; HttpOnly; SameSite=Lax"
        await _answer(send, 303, "", {"location": place, "set-cookie": cookie})


def _offered_token(scope: Scope, headers: dict[str, str]) -> str | None:
    """The token in a cookie, a header, or (first visit) the address."""
    scheme, _, bearer = headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer":
        return bearer.strip()
    query = dict(parse_qsl(scope["query_string"].decode("latin-1")))
    if "token" in query and scope["type"] == "http":
        return str(query["token"])
    try:
        cookie = SimpleCookie(headers.get("cookie", "")).get(COOKIE)
    except CookieError:
        return None
    if cookie is None:
        return None
    value: str = cookie.value
    return value


def _from_another_site(headers: dict[str, str]) -> bool:
    """According to the browser's headers. Following a link is harmless: it opens a page of this server."""
    return headers.get("sec-fetch-site") == "cross-site" and headers.get("sec-fetch-mode") != "navigate"


async def _answer(send: Send, status: int, text: str, more: dict[str, str] | None = None) -> None:
    headers = {**HEADERS, "content-type": "text/plain; charset=utf-8", **(more or {})}
    encoded = [(name.encode(), value.encode("latin-1")) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": status, "headers": encoded})
    await send({"type": "http.response.body", "body": f"{text}\n".encode() if text else b""})


def _with_headers(send: Send) -> Send:
    async def wrapped(message: Message) -> None:
        if message["type"] == "http.response.start":
            given = {name.lower() for name, _ in message["headers"]}
            message["headers"] = list(message["headers"]) + [
                (name.encode(), value.encode()) for name, value in HEADERS.items() if name.encode() not in given
            ]
        await send(message)

    return wrapped
