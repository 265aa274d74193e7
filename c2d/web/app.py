"""The web application: pages, their data, and two WebSockets. It reads run directories and changes nothing."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import BaseRoute, Mount, Route, WebSocketRoute
from starlette.staticfiles import StaticFiles
from starlette.websockets import WebSocket, WebSocketDisconnect

from c2d.errors import UserError
from c2d.runs.confined import Root, dumps
from c2d.runs.layout import REPORTS
from c2d.web.lens.connection import LensConnection
from c2d.web.published_curves import published
from c2d.web.run_index import LiveRows, RunIndex, report_of
from c2d.web.security import REPORT_POLICY, Access, App, Guard
from c2d.web.watched_run import chart_list

_T = TypeVar("_T")
STATIC = Path(__file__).parent / "static"
MAX_LENSES = 4  # each is a process of its own
MAX_PAGES = 100  # that follow changes; the other connections remain for requests
MESSAGE_BYTES = 1 << 20  # a larger WebSocket message ends the connection; smaller ones are answered
_MAX_CURVES = 50
_REPORT_BYTES = 1 << 26


class NotFound(UserError):
    """Answered with status 404."""


class Site:
    """Everything the handlers share."""

    def __init__(self, root: Root, trusted: tuple[str, ...] = ()) -> None:
        self.root, self.trusted = root, trusted
        self.index = RunIndex(root)
        self.live = LiveRows(self.index)
        self.lenses: dict[str, LensConnection] = {}
        self.exporting = asyncio.Lock()

    # ------------------------------------------------------------------- pages

    def page(self, name: str) -> Callable[[Request], Awaitable[Response]]:
        async def show(request: Request) -> Response:
            return FileResponse(STATIC / f"{name}.html", media_type="text/html; charset=utf-8")

        return show

    # -------------------------------------------------------------------- data

    async def runs(self, request: Request) -> Response:
        await asyncio.to_thread(self.index.refresh)
        rows = list(self.index.rows.values())
        return _json({"root": str(self.root.path), "rows": rows, "charts": chart_list()})

    async def run(self, request: Request) -> Response:
        return _json(await asyncio.to_thread(self.index.detail, await self._run_named(request)))

    async def curves(self, request: Request) -> Response:
        names = request.query_params.getlist("run")
        if not 1 <= len(names) <= _MAX_CURVES:
            raise UserError(f"{len(names)} runs were requested; accepted: 1 to {_MAX_CURVES}")
        await self._known(names)
        columns, fine = request.query_params.getlist("column"), "fine" in request.query_params
        return _json(await asyncio.to_thread(self.index.curves, names, columns, fine))

    async def episodes(self, request: Request) -> Response:
        return _json(await asyncio.to_thread(self.index.episodes, await self._run_named(request)))

    async def published(self, request: Request) -> Response:
        return _json(published(request.query_params.get("env", "")))

    async def report(self, request: Request) -> Response:
        """A report in the run directory, shown in a sandbox, since anyone may have written it."""
        name = await self._run_named(request)
        place = report_of(self.index.runs[name])
        try:
            data = await asyncio.to_thread(self.root.read, name, place or REPORTS[0], limit=_REPORT_BYTES)
        except OSError:
            raise NotFound("this run has no report yet; `c2d report` writes one") from None
        return Response(data, media_type="text/html; charset=utf-8", headers={"Content-Security-Policy": REPORT_POLICY})

    async def export(self, request: Request) -> Response:
        """The last seconds of a lens as one file."""
        from c2d.web.export import export

        session = self.lenses.get(request.query_params.get("session", ""))
        if session is None:
            raise NotFound("this lens is no longer open")
        if self.exporting.locked():
            raise UserError("another export is in progress; try again when it is done")
        wanted = request.query_params
        async with self.exporting:
            work = export(
                session.history, wanted.get("format", ""), wanted.get("seconds", "60"), session.report_progress
            )
            try:
                data, kind, name = await _while_connected(request, work)
            except asyncio.CancelledError:  # by the server, which is shutting down
                return Response(dumps({"error": "the server is shutting down"}), 503, media_type="application/json")
        return Response(data, media_type=kind, headers={"Content-Disposition": f'attachment; filename="{name}"'})

    async def _run_named(self, request: Request) -> str:
        name = request.query_params.get("run", "")
        await self._known([name])
        if self.index.find(name) is None:
            raise NotFound("there is no such run in the runs directory")
        return name

    async def _known(self, names: list[str]) -> None:
        """Search for runs only if one is unknown: names are never used as paths."""
        if any(self.index.find(name) is None for name in names):
            await asyncio.to_thread(self.index.refresh)

    # -------------------------------------------------------------- WebSockets

    async def watch(self, socket: WebSocket) -> None:
        """Sends rows of runs as they change."""
        await socket.accept()
        if len(self.live.subscribers) >= MAX_PAGES:
            await socket.close(4429, f"{MAX_PAGES} pages are already open; close one of them")
            return
        async with self.live.subscribe() as subscriber:

            async def send() -> None:
                while True:
                    await socket.send_bytes(dumps(await subscriber.next()))

            await _until_one_ends(send(), _ignore(socket))

    async def lens(self, socket: WebSocket) -> None:
        """Agents that play."""
        await socket.accept()
        if len(self.lenses) >= MAX_LENSES:
            await socket.close(4429, f"{MAX_LENSES} lenses are already open; close one of them")
            return
        session = LensConnection(self.root, self.trusted)
        self.lenses[session.id] = session
        try:
            await session.start()

            async def send() -> None:
                while True:
                    await socket.send_bytes(await session.next_message())

            async def receive() -> None:
                while True:
                    message = await socket.receive()
                    if message["type"] == "websocket.disconnect":
                        return
                    text = message.get("text")
                    await session.command(message.get("bytes") or b"" if text is None else text)

            await _until_one_ends(send(), receive(), background=session.listen())
        finally:
            del self.lenses[session.id]
            await session.close()


async def _ignore(socket: WebSocket) -> None:
    """Drops whatever a page sends that should only listen."""
    with contextlib.suppress(WebSocketDisconnect):
        while (await socket.receive())["type"] != "websocket.disconnect":
            pass


async def _until_one_ends(*works: Any, background: Any = None) -> None:
    """Run together; when one ends or fails, cancel all. `background` may end earlier."""
    tasks = [asyncio.ensure_future(work) for work in works]
    extra = [] if background is None else [asyncio.ensure_future(background)]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            with contextlib.suppress(WebSocketDisconnect, RuntimeError, OSError):
                task.result()
    finally:
        for task in (*tasks, *extra):
            task.cancel()
        await asyncio.gather(*tasks, *extra, return_exceptions=True)


def _until_shutdown(serve: Callable[[WebSocket], Awaitable[None]]) -> Callable[[WebSocket], Awaitable[None]]:
    """A connection that the server cancels when it shuts down is not a failure."""

    async def wrapped(socket: WebSocket) -> None:
        with contextlib.suppress(asyncio.CancelledError):
            await serve(socket)

    return wrapped


async def _while_connected(request: Request, work: Coroutine[Any, Any, _T]) -> _T:
    """The result of long work, which is canceled when the client disconnects."""
    task = asyncio.ensure_future(work)
    try:
        while not (await asyncio.wait({task}, timeout=0.5))[0]:
            if await request.is_disconnected():
                raise UserError("the client has disconnected")
        return task.result()
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def _json(value: Any) -> Response:
    return Response(dumps(value), media_type="application/json")


async def _error_response(request: Request, error: Exception) -> Response:
    status = 404 if isinstance(error, NotFound) else 400
    return Response(dumps({"error": str(error)}), status, media_type="application/json")


def make_app(root: Root, access: Access, trusted: tuple[str, ...] = ()) -> App:
    """The application behind its guard."""
    site = Site(root, trusted)
    routes: list[BaseRoute] = [
        Route("/", site.page("index")),
        Route("/run", site.page("run")),
        Route("/lens", site.page("lens")),
        Route("/api/runs", site.runs),
        Route("/api/run", site.run),
        Route("/api/curves", site.curves),
        Route("/api/episodes", site.episodes),
        Route("/api/published", site.published),
        Route("/api/report", site.report),
        Route("/api/export", site.export),
        WebSocketRoute("/ws/runs", _until_shutdown(site.watch)),
        WebSocketRoute("/ws/lens", _until_shutdown(site.lens)),
        Mount("/static", StaticFiles(directory=STATIC)),
    ]
    application = Starlette(routes=routes, exception_handlers={UserError: _error_response})
    return Guard(application, access)
