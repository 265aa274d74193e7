"""c2d serve RUNS [options]"""

from __future__ import annotations

import re
import secrets
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import tyro

from c2d.cli.settings import options
from c2d.errors import UserError

if TYPE_CHECKING:
    import uvicorn

    from c2d.web.security import Access

DESCRIPTION = (
    "Show runs in a browser as they train, and agents at play beside the returns they expect. Reads the runs "
    "directory and changes nothing in it."
)
LOCAL = ("127.0.0.1", "localhost", "::1")
PORT = 8265


@dataclass(frozen=True)
class Serve:
    """What is shown, and to whom."""

    runs: tyro.conf.Positional[str] = "runs"
    """Directory with runs, or one run."""
    port: int = PORT
    """Port to listen on; 0: any free one."""
    host: str = "127.0.0.1"
    """Address to listen on. Any other than this machine's own lets others in, and then a token is asked for."""
    name: tuple[str, ...] = ()
    """Further names under which browsers may reach a public --host, such as lab.example.org."""
    token: str | None = None
    """The token for a public --host, at least 16 letters and digits. Default: a new one, which is printed."""
    trust: tuple[str, ...] = ()
    """Code of your own that runs use, my_package.my_module:MyEnv or :my_phi, and that may be imported."""


def main(arguments: Sequence[str]) -> None:
    chosen = options(Serve, list(arguments), "c2d serve", DESCRIPTION)
    if not Path(chosen.runs).is_dir():
        raise UserError(f"{chosen.runs} is no directory; accepted: a directory with runs, such as runs")
    if not 0 <= chosen.port <= 65_535:
        raise UserError(f"--port is {chosen.port}; accepted: 0 to 65535")
    listener = listen(chosen.host, chosen.port)
    access = access_of(chosen, listener.getsockname()[1])
    config = server_config(chosen, access)
    print(headline(chosen, access), flush=True)
    import uvicorn

    uvicorn.Server(config).run(sockets=[listener])


def server_config(chosen: Serve, access: Access) -> uvicorn.Config:
    """How the server runs: quiet, and with a bound on everything that comes in."""
    try:
        import uvicorn

        from c2d.web.app import MESSAGE_BYTES, make_app
        from c2d.web.connections import bounded, complain_seldom, open_files, places
        from c2d.web.security import HEADER_BYTES
    except ImportError as error:
        raise UserError(f"the page needs another package ({error.name}): pip install 'c2d[web]'") from None
    from c2d.runs.confined import Root

    most, backlog = places(open_files())
    config = uvicorn.Config(
        make_app(Root(chosen.runs), access, chosen.trust),
        log_level="warning",
        ws="websockets-sansio",
        ws_max_size=MESSAGE_BYTES,
        ws_per_message_deflate=False,  # pictures are compressed already
        http=bounded(most),
        backlog=backlog,
        h11_max_incomplete_event_size=HEADER_BYTES,
        server_header=False,
        timeout_graceful_shutdown=2,
    )
    complain_seldom()
    return config


def listen(host: str, port: int) -> socket.socket:
    """A socket on that address."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind, protocol)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
    except OSError as error:
        hint = "; choose another with --port, or --port 0 for any free one" if port else ""
        raise UserError(f"cannot listen on {host}, port {port}: {error.strerror or error}{hint}") from None
    listener.listen(128)
    return listener


def access_of(chosen: Serve, port: int) -> Access:
    """On this machine: no token, and only its own names. Elsewhere: a token."""
    from c2d.web.security import Access

    if chosen.host in LOCAL:
        if chosen.token is not None or chosen.name:
            raise UserError("--token and --name are for a --host that others can reach; 127.0.0.1 is not")
        return Access(port)
    token = secrets.token_urlsafe(24) if chosen.token is None else chosen.token
    if not re.fullmatch(r"[A-Za-z0-9_-]{16,200}", token):
        raise UserError("--token is too short or has other characters; accepted: 16 to 200 letters, digits, - and _")
    names = (*LOCAL, chosen.host.lower(), socket.gethostname().lower(), *(name.lower() for name in chosen.name))
    return Access(port, names, token)


def headline(chosen: Serve, access: Access) -> str:
    """Where to look, in one line; a warning with it where others can look too."""
    host = socket.gethostname() if chosen.host in ("0.0.0.0", "::") else chosen.host
    host = f"[{host}]" if ":" in host else host
    if access.token is None:
        return f"c2d serve {chosen.runs} | open http://{host}:{access.port} | Ctrl-C ends it"
    return (
        f"c2d serve {chosen.runs} | open http://{host}:{access.port}/?token={access.token} | whoever has this address "
        "can look at these runs and let their agents play; it travels unencrypted | Ctrl-C ends it"
    )
