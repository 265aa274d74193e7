"""One open lens: it connects a page with a process in which agents play, and keeps the last minutes.

Backpressure: a page acknowledges each moment that it has painted, at most `_IN_FLIGHT` are sent without acknowledgment,
and of those that have to wait only the newest is kept. The process never waits for a page, and all buffers are bounded.
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
from c2d.web.lens.commands import OPEN, RejectedCommand, parse
from c2d.web.lens.messages import pack

_IN_FLIGHT = 4
_HISTORY_BYTES = 96 << 20
_HISTORY_COUNT = 6_000  # about six minutes at 15 steps per second
_END_TIMEOUT = 0.8  # seconds for the process to end, after SIGTERM and again after SIGKILL
_MAX_MESSAGE = 1 << 24  # bytes


class History:
    """The last moments, bounded in number and bytes."""

    def __init__(self) -> None:
        self.moments: deque[bytes] = deque()
        self.opened: bytes | None = None  # the message that describes the agents
        self._bytes = 0

    def add(self, message: bytes) -> None:
        self.moments.append(message)
        self._bytes += len(message)
        while self._bytes > _HISTORY_BYTES or len(self.moments) > _HISTORY_COUNT:
            self._bytes -= len(self.moments.popleft())

    def restart(self, opened: bytes) -> None:
        self.opened, self._bytes = opened, 0
        self.moments.clear()


class LensConnection:
    """Created for one WebSocket, closed with it."""

    def __init__(self, root: Root, trusted: tuple[str, ...] = ()) -> None:
        self.id = secrets.token_urlsafe(16)
        self.root, self.trusted = root, trusted
        self.history = History()
        self.dropped = 0  # moments skipped because the page was too slow
        self._process: asyncio.subprocess.Process | None = None
        self._waiting: deque[bytes] = deque(maxlen=64)  # answers and notices
        self._newest: bytes | None = None  # the newest moment that was not sent yet
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
            sys.executable, "-m", "c2d.web.lens.agent_process",
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, env=environment,
            start_new_session=True,  # Ctrl-C reaches only the server, which ends it
        )  # fmt: skip
        self._queue({"kind": "session", "id": self.id})

    async def close(self) -> None:
        """Ends the process, faster than the server's own timeout (`timeout_graceful_shutdown`)."""
        process = self._process
        if process is None or process.returncode is not None:
            return
        for end in (process.terminate, process.kill):
            with contextlib.suppress(ProcessLookupError):
                end()
            try:
                await asyncio.wait_for(self._wait_for(process), _END_TIMEOUT)
                return
            except TimeoutError:
                continue

    async def _wait_for(self, process: asyncio.subprocess.Process) -> None:
        """Reads and drops what the process still sends: asyncio sees its end only when the pipe is empty."""
        if self._listening or process.stdout is None:
            await process.wait()
            return
        while await process.stdout.read(1 << 16):
            pass
        await process.wait()

    # --------------------------------------------------------- from the page

    async def command(self, text: str | bytes) -> None:
        """Forward a command of the page, or answer what is wrong with it. The process reports when it is done."""
        try:
            command = parse(text)
            if command["do"] == "ack":
                self._in_flight = max(0, self._in_flight - 1)
                self._wake.set()
                return
            await self._send(self._with_root(command))
        except RejectedCommand as error:
            self._queue({"kind": "error", "text": str(error), "about": error.about})

    def _with_root(self, command: dict[str, Any]) -> dict[str, Any]:
        if command["do"] != OPEN:
            return command
        return {**command, "root": str(self.root.path), "trusted": list(self.trusted)}

    async def _send(self, command: dict[str, Any]) -> None:
        assert self._process is not None and self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(command).encode() + b"\n")
            await self._process.stdin.drain()
        except (ConnectionError, RuntimeError):
            raise RejectedCommand("the player process has ended: reload the page", about=command["do"]) from None

    # ------------------------------------------------------- from the process

    async def listen(self) -> None:
        """Receive what the process sends, until it ends."""
        assert self._process is not None and self._process.stdout is not None
        stream = self._process.stdout
        self._listening = True
        try:
            while True:
                (size,) = struct.unpack("<I", await stream.readexactly(4))
                if size > _MAX_MESSAGE:
                    raise ConnectionError(f"a message of {size} bytes")
                self._receive(await stream.readexactly(size))
        except (asyncio.IncompleteReadError, ConnectionError):
            code = await self._process.wait()
            text = f"the player process has ended (exit code {code}): reload the page"
            self._queue({"kind": "ended", "text": text})
        finally:
            self._listening = False

    def report_progress(self, done: int, of: int) -> None:
        """The progress of an export."""
        self._queue({"kind": "progress", "done": done, "of": of})

    def _receive(self, message: bytes) -> None:
        if b'"kind":"moment"' in message[4:40]:
            self.history.add(message)
            self.dropped += self._newest is not None
            self._newest = message
        else:
            if b'"kind":"opened"' in message[4:40]:
                self.history.restart(message)
                self._newest = None  # it belongs to the previous agents
            self._waiting.append(message)
        self._wake.set()

    def _queue(self, header: dict[str, Any]) -> None:
        self._waiting.append(pack(header))
        self._wake.set()

    # ----------------------------------------------------------- to the page

    async def next_message(self) -> bytes:
        """The next message to send; waits until there is one."""
        while True:
            if self._waiting:
                return self._waiting.popleft()
            if self._newest is not None and self._in_flight < _IN_FLIGHT:
                message, self._newest = self._newest, None
                self._in_flight += 1
                return message
            self._wake.clear()
            await self._wake.wait()
