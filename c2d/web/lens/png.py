"""Pictures without loss, by the standard library alone."""

from __future__ import annotations

import struct
import zlib

import numpy as np

_SIGNATURE = b"\x89PNG\r\n\x1a\n"


def encode(picture: np.ndarray) -> bytes:
    """[H, W, 3] u8 -> PNG: with a palette where 256 colors are enough, as in every Atari game."""
    height, width, _ = picture.shape
    wide = picture.astype(np.uint32)
    codes = (wide[..., 0] << 16 | wide[..., 1] << 8 | wide[..., 2]).ravel()
    colors, places = _palette(codes)
    if colors is None:
        kind, rows = 2, np.ascontiguousarray(picture).reshape(height, width * 3)
    else:
        kind, rows = 3, places.astype(np.uint8).reshape(height, width)
    lines = np.zeros((height, rows.shape[1] + 1), np.uint8)  # each begins with its filter: 0, none
    lines[:, 1:] = rows
    parts = [_chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, kind, 0, 0, 0))]
    if colors is not None:
        rgb = np.stack((colors >> 16, colors >> 8 & 255, colors & 255), -1).astype(np.uint8)
        parts.append(_chunk(b"PLTE", rgb.tobytes()))
    parts += [_chunk(b"IDAT", zlib.compress(lines.tobytes(), 1)), _chunk(b"IEND", b"")]
    return _SIGNATURE + b"".join(parts)


def _palette(codes: np.ndarray) -> tuple[np.ndarray | None, np.ndarray]:
    """The colors, and the place of each pixel among them; no colors if there are more than 256."""
    changes = np.flatnonzero(np.diff(codes)) + 1  # pictures are runs of one color: sort those, not the pixels
    starts = np.concatenate(([0], changes))
    colors, places = np.unique(codes[starts], return_inverse=True)
    if len(colors) > 256:
        return None, places
    return colors, np.repeat(places, np.diff(np.append(starts, len(codes))))


def _chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def decode(data: bytes) -> np.ndarray:
    """The inverse, for pictures that `encode` made. [H, W, 3] u8"""
    if not data.startswith(_SIGNATURE):
        raise ValueError("no PNG")
    chunks: dict[bytes, bytes] = {}
    place = len(_SIGNATURE)
    while place < len(data):
        size, name = struct.unpack(">I4s", data[place : place + 8])
        chunks[name] = data[place + 8 : place + 8 + size]
        place += size + 12
    width, height, _, kind = struct.unpack(">IIBB", chunks[b"IHDR"][:10])
    lines = np.frombuffer(zlib.decompress(chunks[b"IDAT"]), np.uint8).reshape(height, -1)[:, 1:]
    if kind == 3:
        return np.frombuffer(chunks[b"PLTE"], np.uint8).reshape(-1, 3)[lines]
    return lines.reshape(height, width, 3)
