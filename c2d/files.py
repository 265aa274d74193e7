"""Files are written whole or not at all."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from c2d.errors import UserError


def write_atomically(path: Path, data: bytes) -> None:
    """Write beside the file, flush to disk, rename over it."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        write_flushed(temporary, data)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
    flush_directory(path.parent)


def write_flushed(path: Path, data: bytes) -> None:
    """Write and wait until it is on the disk."""
    with open(path, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def flush_directory(path: Path) -> None:
    """Names in a directory reach the disk apart from the files themselves."""
    directory = os.open(path, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def write_json(path: Path, value: Any) -> None:
    write_atomically(path, (json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode())


def check_destination(path: Path, option: str, endings: tuple[str, ...] = ()) -> None:
    """Whether a file can be written there: found out before the work, not after."""
    if endings and path.suffix.lower() not in endings:
        raise UserError(f"{option} {path}: the name must end in {' or '.join(endings)}")
    if path.is_dir() or not path.parent.is_dir() or not os.access(path.parent, os.W_OK):
        raise UserError(f"{option} {path} cannot be written; accepted: a file in a directory that exists")
