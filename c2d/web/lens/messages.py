"""Messages of the lens as bytes: a JSON header, then arrays (float32, exactly as computed) and PNG images.

    u32 length of the header, little-endian | header, padded with spaces to a multiple of 4 | part | part | ...

The header's "parts" lists for each part its name, its offset from the end of the header, its length in bytes, and the
shape if it is an array. js/lens/wire.js reads the same format.
"""

from __future__ import annotations

import json
import struct
import zlib
from typing import Any

import numpy as np

from c2d.formatting import finite_for_json

Parts = dict[str, "np.ndarray | bytes"]
_PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"


def pack(header: dict[str, Any], parts: Parts | None = None) -> bytes:
    body, table, offset = [], [], 0
    for name, part in (parts or {}).items():
        data = part if isinstance(part, bytes) else np.ascontiguousarray(part, dtype="<f4").tobytes()
        entry: dict[str, Any] = {"name": name, "at": offset, "bytes": len(data)}
        if not isinstance(part, bytes):
            entry["shape"] = list(part.shape)
        table.append(entry)
        data += b"\0" * (-len(data) % 4)
        body.append(data)
        offset += len(data)
    head = _text({**header, "parts": table}).encode()
    head += b" " * (-len(head) % 4)
    return struct.pack("<I", len(head)) + head + b"".join(body)


def _text(header: dict[str, Any]) -> str:
    """JSON has neither NaN nor infinity, which an agent that has diverged produces: null instead."""
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


# ---------------------------------------------------------------------------------------------------------- images


def encode_png(frame: np.ndarray) -> bytes:
    """[H, W, 3] u8 -> PNG, with a palette if 256 colors suffice, as in every Atari game: small and fast to send."""
    height, width, _ = frame.shape
    wide = frame.astype(np.uint32)
    codes = (wide[..., 0] << 16 | wide[..., 1] << 8 | wide[..., 2]).ravel()
    colors, indices = _palette(codes)
    if colors is None:
        kind, rows = 2, np.ascontiguousarray(frame).reshape(height, width * 3)
    else:
        kind, rows = 3, indices.astype(np.uint8).reshape(height, width)
    lines = np.zeros((height, rows.shape[1] + 1), np.uint8)  # each line starts with its filter: 0, none
    lines[:, 1:] = rows
    parts = [_chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, kind, 0, 0, 0))]
    if colors is not None:
        rgb = np.stack((colors >> 16, colors >> 8 & 255, colors & 255), -1).astype(np.uint8)
        parts.append(_chunk(b"PLTE", rgb.tobytes()))
    parts += [_chunk(b"IDAT", zlib.compress(lines.tobytes(), 1)), _chunk(b"IEND", b"")]
    return _PNG_SIGNATURE + b"".join(parts)


def _palette(codes: np.ndarray) -> tuple[np.ndarray | None, np.ndarray]:
    """The colors, and the index of each pixel's color; None if there are more than 256 colors."""
    changes = np.flatnonzero(np.diff(codes)) + 1  # frames consist of runs of one color: sort runs, not pixels
    starts = np.concatenate(([0], changes))
    colors, indices = np.unique(codes[starts], return_inverse=True)
    if len(colors) > 256:
        return None, indices
    return colors, np.repeat(indices, np.diff(np.append(starts, len(codes))))


def _chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
