"""How this process gets its memory, arranged for training: large tensors that come and go with every update.

Left alone, the C library returns such memory to the system and asks for it again, page by page of 4 kB. On Linux
with glibc, `keep_memory` makes it keep what it has, and lets the kernel back the first part with pages of 2 MB.
Elsewhere it does nothing. Results do not depend on it. The commands do it, in processes that are theirs; whoever
calls `c2d.train` from Python keeps his memory as it is.
"""

from __future__ import annotations

import ctypes
import platform
from functools import cache
from pathlib import Path

_TRIM_THRESHOLD, _TOP_PAD, _MMAP_THRESHOLD = -1, -2, -3  # of mallopt(3)
_MADV_HUGEPAGE = 14  # of madvise(2)
_LARGEST_KEPT = 32 << 20  # bytes; the most that mallopt accepts. Larger blocks, the raw replay, stay mapped apart
_RESERVE = 256 << 20  # bytes of address space, not of memory: weights, moments and activations fit several times
_GROWTH = 16 << 20


@cache
def keep_memory() -> bool:
    """Arrange it, once; whether that worked."""
    if platform.libc_ver()[0] != "glibc":
        return False
    libc = ctypes.CDLL(None)
    libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
    libc.free.argtypes = [ctypes.c_void_p]
    libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    libc.mallopt(_MMAP_THRESHOLD, _LARGEST_KEPT)
    libc.mallopt(_TRIM_THRESHOLD, 2**31 - 1)
    libc.mallopt(_TOP_PAD, _RESERVE)
    libc.free(libc.malloc(_LARGEST_KEPT - (1 << 20)))  # extends the heap by the reserve
    libc.mallopt(_TOP_PAD, _GROWTH)
    for line in Path("/proc/self/maps").read_text().splitlines():
        if line.endswith("[heap]"):
            first, last = (int(address, 16) for address in line.split()[0].split("-"))
            return int(libc.madvise(first, last - first, _MADV_HUGEPAGE)) == 0
    return False
