"""One message of the lens as bytes: a JSON header, then arrays (float32, exactly as computed) and pictures.

    u32 length of the header, little-endian | header, padded with blanks to a multiple of 4 | part | part | ...

The header's "parts" tell of each part its name, place (from the end of the header), bytes, and the shape of an array.
"""

from __future__ import annotations

import json
import struct
from typing import Any

import numpy as np

from c2d.formatting import finite_for_json

Parts = dict[str, "np.ndarray | bytes"]


def pack(header: dict[str, Any], parts: Parts | None = None) -> bytes:
    body, table, place = [], [], 0
    for name, part in (parts or {}).items():
        data = part if isinstance(part, bytes) else np.ascontiguousarray(part, dtype="<f4").tobytes()
        entry: dict[str, Any] = {"name": name, "at": place, "bytes": len(data)}
        if not isinstance(part, bytes):
            entry["shape"] = list(part.shape)
        table.append(entry)
        data += b"\0" * (-len(data) % 4)
        body.append(data)
        place += len(data)
    head = _text({**header, "parts": table}).encode()
    head += b" " * (-len(head) % 4)
    return struct.pack("<I", len(head)) + head + b"".join(body)


def _text(header: dict[str, Any]) -> str:
    """JSON has no NaN and no infinity: null in their place, as of an agent that has diverged."""
    try:
        return json.dumps(header, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    except ValueError:
        return json.dumps(finite_for_json(header), ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def unpack(message: bytes) -> tuple[dict[str, Any], Parts]:
    (size,) = struct.unpack_from("<I", message)
    header = json.loads(message[4 : 4 + size])
    parts: Parts = {}
    for entry in header.pop("parts"):
        start = 4 + size + entry["at"]
        data = message[start : start + entry["bytes"]]
        parts[entry["name"]] = np.frombuffer(data, "<f4").reshape(entry["shape"]) if "shape" in entry else data
    return header, parts
