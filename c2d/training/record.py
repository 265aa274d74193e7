"""The records of a run: one JSON line first for what ran, then one per iteration.

What depends on clock or machine stands under the one key `measured`; without it, two runs of one config on one
machine give the same bytes (`canonical`).
"""

from __future__ import annotations

import json
from pathlib import Path
from types import TracebackType
from typing import Any

MEASURED = "measured"


def canonical(record: dict[str, Any]) -> bytes:
    """The reproducible part of one record line, as bytes: without `measured`, keys sorted."""
    kept = {key: value for key, value in record.items() if key != MEASURED}
    return json.dumps(kept, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def canonical_records(path: Path) -> bytes:
    """The reproducible part of a record file."""
    return b"\n".join(canonical(record) for record in read_records(path))


def read_records(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines() if line]


class RecordFile:
    """Lines appended and flushed, so that another process can follow."""

    def __init__(self, path: Path) -> None:
        self._file = open(path, "a", encoding="utf-8")

    def append(self, record: dict[str, Any]) -> None:
        self._file.write(json.dumps(record, ensure_ascii=False) + "\n")
        self._file.flush()

    def __enter__(self) -> RecordFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()
