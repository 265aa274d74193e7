"""The records of a run: one JSON line first for what ran, then one per iteration.

What depends on clock or machine stands under the one key `measured`; without it, two runs of one config on one
machine give the same bytes (`canonical`), however often they were stopped and resumed.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

from c2d.files import LINES, load_json, open_own, read_file, read_up_to, write_atomically

MEASURED = "measured"


def canonical(record: dict[str, Any]) -> bytes:
    """The reproducible part of one record line, as bytes: without `measured`, keys sorted."""
    kept = {key: value for key, value in record.items() if key != MEASURED}
    return json.dumps(kept, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def canonical_records(path: Path) -> bytes:
    """The reproducible part of a record file."""
    return b"\n".join(canonical(record) for record in read_records(path))


def read_records(path: Path) -> list[dict[str, Any]]:
    """Whole lines only: the last may be in the making. ValueError if one is not a record."""
    whole = read_file(path, LINES, within=path.parent).decode().rpartition("\n")[0]
    records = [load_json(line) for line in whole.split("\n") if line]
    if not all(isinstance(record, dict) for record in records):
        raise ValueError("a line does not hold a record")
    return records


def line_of(record: dict[str, Any]) -> str:
    return json.dumps(record, ensure_ascii=False) + "\n"


class LineFile:
    """Lines appended whole and at once, so that another process can follow.

    Lines the disk refuses are kept and tried again with the next; `trouble` is the last refusal, until one succeeds.
    """

    def __init__(self, path: Path, content: str) -> None:
        """Begin with `content`, in place of what the file held."""
        self.path = path
        self.trouble: OSError | None = None
        self._pending = ""
        write_atomically(path, content.encode())
        self._file = open_own(path, os.O_RDWR)
        self._size = len(content.encode())

    def append(self, line: str) -> None:
        self._pending += line
        with suppress(OSError):
            self.flush()

    def flush(self) -> None:
        """Write what is pending; OSError if that fails, and then the file is as before."""
        data = self._pending.encode()
        try:
            done = 0
            while done < len(data):
                done += os.pwrite(self._file, data[done:], self._size + done)
        except OSError as error:
            self.trouble = error
            with suppress(OSError):
                os.ftruncate(self._file, self._size)
            raise
        self._size += len(data)
        self._pending, self.trouble = "", None

    def content(self) -> bytes:
        """Everything appended so far; OSError if it is not all on the way to the disk."""
        self.flush()
        return read_up_to(self._file, self._size)

    def close(self) -> None:
        with suppress(OSError):
            self.flush()
        os.close(self._file)
