"""Changes of runs, told to every open page. Files are looked at only while someone watches."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from c2d.web.index import Index

PERIOD = 1.0  # seconds between looks
_SOON = 0.1  # of it, while there is more to read than one look allows


class Subscriber:
    """What one page has not been told yet: the newest row of each run, so never more than there are runs."""

    def __init__(self) -> None:
        self.rows: dict[str, dict[str, Any]] = {}
        self.gone: set[str] = set()
        self.wake = asyncio.Event()

    def add(self, rows: list[dict[str, Any]], gone: list[str]) -> None:
        for row in rows:
            self.rows[row["id"]] = row
            self.gone.discard(row["id"])
        for name in gone:
            self.rows.pop(name, None)
            self.gone.add(name)
        if rows or gone:
            self.wake.set()

    async def next(self) -> dict[str, Any]:
        await self.wake.wait()
        self.wake.clear()
        message = {"kind": "runs", "rows": list(self.rows.values()), "gone": sorted(self.gone)}
        self.rows, self.gone = {}, set()
        return message


class Live:
    """One look per period for all pages together."""

    def __init__(self, index: Index) -> None:
        self.index = index
        self.subscribers: set[Subscriber] = set()
        self._task: asyncio.Task[None] | None = None

    @asynccontextmanager
    async def subscribe(self) -> AsyncIterator[Subscriber]:
        """A subscriber that is told everything first, then changes."""
        await asyncio.to_thread(self.index.refresh)
        subscriber = Subscriber()
        subscriber.add(list(self.index.rows.values()), [])
        subscriber.wake.set()  # an empty directory is news too
        self.subscribers.add(subscriber)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._look())
        try:
            yield subscriber
        finally:
            self.subscribers.discard(subscriber)

    async def _look(self) -> None:
        while self.subscribers:
            await asyncio.sleep(PERIOD * (_SOON if self.index.reading else 1.0))
            change = await asyncio.to_thread(self.index.refresh)
            for subscriber in list(self.subscribers):
                subscriber.add(change.rows, change.gone)
