"""JSON out of files that anyone may have written: finite numbers of bearable size, or nothing."""

from __future__ import annotations

import json
import math
from typing import Any

_LARGEST = 2**53  # integers above lose digits in a browser


def loads(data: bytes) -> Any:
    """ValueError if it is no JSON. Numbers a browser cannot hold become None."""
    try:
        return json.loads(data, parse_constant=lambda _: None, parse_float=_float, parse_int=_int)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def dumps(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()


def number(record: Any, *keys: str) -> float | None:
    """record[key][key]..., if it is a number."""
    found = entry(record, *keys)
    return found if isinstance(found, int | float) and not isinstance(found, bool) else None


def count(record: Any, *keys: str) -> int:
    """Likewise a whole number; 0 if it is none."""
    found = number(record, *keys)
    return int(found) if found is not None else 0


def text(record: Any, *keys: str, default: str = "") -> str:
    """Likewise a short text."""
    found = entry(record, *keys)
    return found[:1_000] if isinstance(found, str) else default


def entry(record: Any, *keys: str) -> Any:
    for key in keys:
        record = record.get(key) if isinstance(record, dict) else None
    return record


def _float(digits: str) -> float | None:
    value = float(digits)
    return value if math.isfinite(value) else None


def _int(digits: str) -> int | None:
    value = int(digits) if len(digits) < 20 else _LARGEST
    return value if -_LARGEST < value < _LARGEST else None
