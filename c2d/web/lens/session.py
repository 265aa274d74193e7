"""One open lens: a worker process on one side, a page on the other, the last minutes in between.

Backpressure: a page acknowledges what it has painted, at most `_IN_FLIGHT` messages are under way to it, and of those
that must wait only the newest is kept. The worker never waits for a page, and nothing grows without bound.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import secrets
import struct
import sys
from collections import deque
from typing import Any

from c2d.runs.confined import Root
from c2d.web.lens.commands import Open, Refused, parse
from c2d.web.lens.wire import pack

_IN_FLIGHT = 4
_HISTORY_BYTES = 96 << 20
_HISTORY_COUNT = 6_000  # about six minutes at 15 steps per second
_PATIENCE = 0.8  # seconds for a worker to end, once asked and once forced
_MESSAGE = 1 << 24  # bytes of the largest message of a worker


class History:
    """The last moments, bounded in number and bytes."""

    def __init__(self) -> None:
        self.moments: deque[bytes] = deque()
        self.opened: bytes | None = None  # who plays
        self._bytes = 0

    def add(self, message: bytes) -> None:
        self.moments.append(message)
        self._bytes += len(message)
        while self._bytes > _HISTORY_BYTES or len(self.moments) > _HISTORY_COUNT:
            self._bytes -= len(self.moments.popleft())

    def begin(self, opened: bytes) -> None:
        self.opened, self._bytes = opened, 0
        self.moments.clear()


class Session:
    """Made for one WebSocket, closed with it."""

    def __init__(self, root: Root, trusted: tuple[str, ...] = ()) -> None:
        self.id = secrets.token_urlsafe(16)
        self.root, self.trusted = root, trusted
        self.history = History()
        self.dropped = 0  # moments that the page was too slow for
        self._process: asyncio.subprocess.Process | None = None
        self._waiting: deque[bytes] = deque(maxlen=64)  # answers and notices: few
        self._newest: bytes | None = None  # moment not yet sent
        self._in_flight = 0
        self._wake = asyncio.Event()
        self._listening = False

    async def start(self) -> None:
        environment = {
            **os.environ,
            "OMP_NUM_THREADS": "1",
            "SDL_VIDEODRIVER": "dummy",
            "PYGAME_HIDE_SUPPORT_PROMPT": "1",
        }
        self._process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "c2d.web.lens.worker",
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, env=environment,
            start_new_session=True,  # Ctrl-C is for the server, which ends it
        )  # fmt: skip
        self._say({"kind": "session", "id": self.id})

    async def close(self) -> None:
        """Sooner than the server's own patience ends (`timeout_graceful_shutdown`)."""
        process = self._process
        if process is None or process.returncode is not None:
            return
        for end in (process.terminate, process.kill):
            with contextlib.suppress(ProcessLookupError):
                end()
            try:
                await asyncio.wait_for(self._end_of(process), _PATIENCE)
                return
            except TimeoutError:
                continue

    async def _end_of(self, process: asyncio.subprocess.Process) -> None:
        """What it still sends is taken and dropped: until its pipe is empty, asyncio does not see it end."""
        if self._listening or process.stdout is None:
            await process.wait()
            return
        while await process.stdout.read(1 << 16):
            pass
        await process.wait()

    # --------------------------------------------------------- from the page

    async def command(self, text: str | bytes) -> None:
        """Do what a message of the page asks, or say what is wrong with it. The worker tells when it is done."""
        try:
            command = parse(text)
            if command["do"] == "ack":
                self._in_flight = max(0, self._in_flight - 1)
                self._wake.set()
                return
            await self._tell(self._with_place(command))
        except Refused as error:
            self._say({"kind": "error", "text": str(error), "about": error.about})

    def _with_place(self, command: dict[str, Any]) -> dict[str, Any]:
        if command["do"] != Open.name:
            return command
        return {**command, "root": str(self.root.path), "trusted": list(self.trusted)}

    async def _tell(self, command: dict[str, Any]) -> None:
        assert self._process is not None and self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(command).encode() + b"\n")
            await self._process.stdin.drain()
        except (ConnectionError, RuntimeError):
            raise Refused("the process that plays has ended: reload the page", about=command["do"]) from None

    # ------------------------------------------------------- from the worker

    async def listen(self) -> None:
        """Take in what the worker sends, until it ends."""
        assert self._process is not None and self._process.stdout is not None
        stream = self._process.stdout
        self._listening = True
        try:
            while True:
                (size,) = struct.unpack("<I", await stream.readexactly(4))
                if size > _MESSAGE:
                    raise ConnectionError(f"a message of {size} bytes")
                self._take(await stream.readexactly(size))
        except (asyncio.IncompleteReadError, ConnectionError):
            code = await self._process.wait()
            text = f"the process that plays has ended (exit code {code}): reload the page"
            self._say({"kind": "ended", "text": text})
        finally:
            self._listening = False

    def tell_progress(self, done: int, of: int) -> None:
        """How far an export is."""
        self._say({"kind": "progress", "done": done, "of": of})

    def _take(self, message: bytes) -> None:
        if b'"kind":"moment"' in message[4:40]:
            self.history.add(message)
            self.dropped += self._newest is not None
            self._newest = message
        else:
            if b'"kind":"opened"' in message[4:40]:
                self.history.begin(message)
                self._newest = None  # of those who played before
            self._waiting.append(message)
        self._wake.set()

    def _say(self, header: dict[str, Any]) -> None:
        self._waiting.append(pack(header))
        self._wake.set()

    # ----------------------------------------------------------- to the page

    async def next_message(self) -> bytes:
        """What to send next; waits until there is something that may be sent."""
        while True:
            if self._waiting:
                return self._waiting.popleft()
            if self._newest is not None and self._in_flight < _IN_FLIGHT:
                message, self._newest = self._newest, None
                self._in_flight += 1
                return message
            self._wake.clear()
            await self._wake.wait()
