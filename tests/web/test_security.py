"""Who is let in, and what pages are allowed to do."""

import pytest

from c2d.web.security import COOKIE, Access, Guard
from tests.web.asgi import handshake, request

LOCAL = Access(8265)
TOKEN = "a-token-of-some-length"
PUBLIC = Access(8265, ("127.0.0.1", "localhost", "lab.example.org"), TOKEN)


async def application(scope, receive, send):
    if scope["type"] == "websocket":
        await receive()
        await send({"type": "websocket.accept"})
        return
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"inside"})


local, public = Guard(application, LOCAL), Guard(application, PUBLIC)


@pytest.mark.parametrize(
    "host", ["127.0.0.1:8265", "localhost:8265", "LOCALHOST:8265", "[::1]:8265", "localhost:9000", "127.0.0.1"]
)
def test_this_machine_is_let_in_under_its_own_names(host):
    assert request(local, "/", host=host).body == b"inside"


@pytest.mark.parametrize(
    "host",
    ["evil.example:8265", "evil.example:9000", "127.0.0.1.evil.example:8265", "user@127.0.0.1:8265", "", "[::1",
     "10.0.0.5:8265", "127.0.0.1:8265/x", "127.0.0.1:notaport", "localhost.evil.example:8265"],
)  # fmt: skip
def test_other_names_are_refused(host):
    """A name that someone's DNS points here must not be one under which we answer."""
    answer = request(local, "/", host=host)
    assert answer.status == 403 and b"inside" not in answer.body
    assert handshake(local, host=host, origin=f"http://{host}")[0]["type"] == "websocket.close"


def test_no_host_at_all_is_refused():
    assert request(local, "/", host=None).status == 403


@pytest.mark.parametrize(
    "origin", [None, "http://evil.example", "null", "http://127.0.0.1:9999", "http://localhost:8265", "file://"]
)
def test_a_websocket_of_another_site_is_refused(origin):
    """Browsers send cookies and no preflight with a WebSocket: the Origin is the only guard."""
    headers = {} if origin is None else {"origin": origin}
    assert handshake(local, **headers)[0]["type"] == "websocket.close"


@pytest.mark.parametrize("origin", ["http://localhost:9000", "http://localhost:8265", "http://evil.example:9000"])
def test_a_tunnel_may_end_on_another_port(origin):
    """`ssh -L 9000:localhost:8265`: the page and its WebSocket go by the browser's port, pages of others do not."""
    answer = handshake(local, host="localhost:9000", origin=origin)
    assert answer[0]["type"] == ("websocket.accept" if origin == "http://localhost:9000" else "websocket.close")


def test_a_websocket_of_our_page_is_let_in():
    assert handshake(local, origin="http://127.0.0.1:8265")[0]["type"] == "websocket.accept"


def test_other_sites_get_no_data():
    assert request(local, "/api/runs", {"origin": "http://evil.example"}).status == 403
    assert request(local, "/api/runs", {"sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors"}).status == 403
    assert request(local, "/", {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}).status == 200
    assert request(local, "/api/runs", {"sec-fetch-site": "same-origin", "sec-fetch-mode": "cors"}).status == 200


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "PATCH"])
def test_nothing_but_reading(method):
    assert request(local, "/", method=method).status == 405


def test_every_answer_carries_the_policy():
    for answer in (request(local, "/"), request(local, "/", host="evil:1"), request(local, "/", method="POST")):
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy and "script-src 'self'" in policy and "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy and "trusted-types 'none'" in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["cross-origin-resource-policy"] == "same-origin"
        assert "access-control-allow-origin" not in answer.headers


@pytest.mark.parametrize(
    "headers",
    [{}, {"cookie": f"{COOKIE}=wrong"}, {"authorization": "Bearer wrong"}, {"authorization": f"Basic {TOKEN}"},
     {"cookie": f"other={TOKEN}"}, {"cookie": "\x00;;;="}, {"cookie": f"{COOKIE}=ü"}],
)  # fmt: skip
def test_beyond_this_machine_a_token_is_needed(headers):
    answer = request(public, "/api/runs", headers)
    assert answer.status == 401 and b"inside" not in answer.body and TOKEN.encode() not in answer.body
    assert handshake(public, origin="http://127.0.0.1:8265", **headers)[0]["type"] == "websocket.close"


def test_the_right_token_is_let_in():
    for headers in ({"cookie": f"{COOKIE}={TOKEN}"}, {"authorization": f"Bearer {TOKEN}"}):
        assert request(public, "/", headers).body == b"inside"
        assert request(public, "/", headers, host="192.168.1.7:8265").body == b"inside"
        assert request(public, "/", headers, host="lab.example.org:8265").body == b"inside"
        assert handshake(public, origin="http://127.0.0.1:8265", **headers)[0]["type"] == "websocket.accept"


def test_the_token_does_not_replace_the_check_of_names():
    assert request(public, "/", {"cookie": f"{COOKIE}={TOKEN}"}, host="evil.example:8265").status == 403


def test_a_token_in_the_address_moves_into_a_cookie():
    answer = request(public, "/lens", token=TOKEN, run="a b")
    assert answer.status == 303 and answer.headers["location"] == "/lens?run=a+b"
    assert answer.headers["set-cookie"] == f"{COOKIE}={TOKEN}; Path=/; HttpOnly; SameSite=Lax"
    assert request(public, "/", token="wrong").status == 401
    assert request(public, "//evil.example/x", token=TOKEN).headers["location"] == "/evil.example/x"
