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
    "Show runs in a browser while they train, and agents at play with the returns they predict. Reads the runs "
    "directory and changes nothing in it."
)
LOCAL = ("127.0.0.1", "localhost", "::1")
PORT = 8265


@dataclass(frozen=True)
class ServeOptions:
    """The options of `c2d serve`."""

    runs: tyro.conf.Positional[str] = "runs"
    """Directory of runs, or one run."""
    port: int = PORT
    """Port to listen on; 0: any free port."""
    host: str = "127.0.0.1"
    """Address to listen on. Any other address admits other machines, and then requires a token."""
    name: tuple[str, ...] = ()
    """Other host names under which browsers may reach a public --host, such as lab.example.org."""
    token: str | None = None
    """Token for a public --host, at least 16 letters and digits; None: a new one, which is printed."""
    trust: tuple[str, ...] = ()
    """Your own code that runs use and that may be imported: my_package.my_module:MyEnv, :my_phi or :MyHead."""


def main(arguments: Sequence[str]) -> None:
    chosen = options(ServeOptions, list(arguments), "c2d serve", DESCRIPTION)
    if not Path(chosen.runs).is_dir():
        raise UserError(f"{chosen.runs} is not a directory; accepted: a directory of runs, such as runs")
    if not 0 <= chosen.port <= 65_535:
        raise UserError(f"--port is {chosen.port}; accepted: 0 to 65535")
    listener = listen(chosen.host, chosen.port)
    access = access_of(chosen, listener.getsockname()[1])
    config = server_config(chosen, access)
    print(headline(chosen, access), flush=True)
    import uvicorn

    uvicorn.Server(config).run(sockets=[listener])


def server_config(chosen: ServeOptions, access: Access) -> uvicorn.Config:
    """The server's settings: quiet, with bounds on everything it receives."""
    try:
        import uvicorn

        from c2d.web.app import MESSAGE_BYTES, make_app
        from c2d.web.connections import bounded, connection_limits, limit_log_rate, open_files
        from c2d.web.security import HEADER_BYTES
    except ImportError as error:
        raise UserError(f"the page needs the package {error.name}; install it with: pip install 'c2d[web]'") from None
    from c2d.runs.confined import Root

    most, backlog = connection_limits(open_files())
    config = uvicorn.Config(
        make_app(Root(chosen.runs), access, chosen.trust),
        log_level="warning",
        ws="websockets-sansio",
        ws_max_size=MESSAGE_BYTES,
        ws_per_message_deflate=False,  # images are already compressed
        http=bounded(most),
        backlog=backlog,
        h11_max_incomplete_event_size=HEADER_BYTES,
        server_header=False,
        timeout_graceful_shutdown=2,
    )
    limit_log_rate()
    return config


def listen(host: str, port: int) -> socket.socket:
    """A socket on that address."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind, protocol)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
    except OSError as error:
        hint = "; choose another --port, or --port 0 for any free one" if port else ""
        raise UserError(f"cannot listen on {host}, port {port}: {error.strerror or error}{hint}") from None
    listener.listen(128)
    return listener


def access_of(chosen: ServeOptions, port: int) -> Access:
    """For a local address no token, and only local names; for others a token."""
    from c2d.web.security import Access

    if chosen.host in LOCAL:
        if chosen.token is not None or chosen.name:
            raise UserError(
                f"--token and --name are given with --host {chosen.host}; accepted: only with a public --host"
            )
        return Access(port)
    token = secrets.token_urlsafe(24) if chosen.token is None else chosen.token
    if not re.fullmatch(r"[A-Za-z0-9_-]{16,200}", token):
        raise UserError("--token is too short or has other characters; accepted: 16 to 200 letters, digits, - and _")
    names = (*LOCAL, chosen.host.lower(), socket.gethostname().lower(), *(name.lower() for name in chosen.name))
    return Access(port, names, token)


def headline(chosen: ServeOptions, access: Access) -> str:
    """The address, on one line, with a warning if other machines can reach it."""
    host = socket.gethostname() if chosen.host in ("0.0.0.0", "::") else chosen.host
    host = f"[{host}]" if ":" in host else host
    if access.token is None:
        return f"c2d serve {chosen.runs} | open http://{host}:{access.port} | Ctrl-C stops it"
    return (
        f"c2d serve {chosen.runs} | open http://{host}:{access.port}/?token={access.token} | anyone with this address "
        "can view these runs and let their agents play; the connection is not encrypted | Ctrl-C stops it"
    )
