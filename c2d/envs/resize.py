"""From the emulator's screens to the learner's frame.

OpenCV's area kernel takes about a sixth of the time of four emulated frames. Yet from one step to the next
most of a screen stays as it was, and rows shrink in groups that do not mix: from 210 to 84, five rows of the
screen, a band, make two rows of the frame. So only bands that changed are resized. screen.c does all of it in
one call, where it was compiled (`C2D_KERNELS=off` leaves it aside). The result is always OpenCV's.
"""

from __future__ import annotations

from math import ceil, floor, gcd

import cv2
import numpy as np

from c2d.compiled import usable
from c2d.envs.protocols import Resize

try:
    from c2d.envs import _screen
except ImportError:
    NATIVE = False
else:
    NATIVE = usable(_screen)

_KERNELS: dict[Resize, int] = {
    "area": cv2.INTER_AREA,
    "linear": cv2.INTER_LINEAR,
    "nearest": cv2.INTER_NEAREST,
}
_any = np.logical_or.reduce


class Resizer:
    """Write pictures into `screen`, and `earlier` if two are pooled, then call for a new [1, size, size] u8.

    It only reads them.
    """

    def __init__(self, height: int, width: int, size: int, kernel: Resize) -> None:
        self.name = f"{kernel}, OpenCV {cv2.__version__}"
        self.screen = np.zeros((height, width), dtype=np.uint8)
        self.earlier = np.zeros_like(self.screen)
        # a kernel that looks beyond the pixels it covers makes the whole screen one band
        bands = gcd(height, size) if kernel == "area" else 1
        by_area = kernel == "area" and height > size < width and (height % size or width % size)
        self._shrink = _Native(self, size, bands) if NATIVE and by_area else _Bands(self, size, bands, _KERNELS[kernel])

    def __call__(self, pooled: bool = False) -> np.ndarray:
        """The frame of the screen, or of the larger of each two pixels."""
        frame: np.ndarray = self._shrink(pooled)
        return frame[None].copy()


class _Bands:
    """By OpenCV, the changed bands one below the other."""

    def __init__(self, pictures: Resizer, size: int, bands: int, kernel: int) -> None:
        self._screen, self._earlier = pictures.screen, pictures.earlier
        self._larger = np.zeros_like(self._screen)
        height, self._width = self._screen.shape
        self._size, self._rows, self._kernel = size, size // bands, kernel  # rows of the frame per band
        self._bands = self._larger.reshape(bands, height // bands, self._width)
        self._words = self._bands.reshape(bands, -1).view(np.uint64)  # eight pixels each: fewer to compare
        self._seen = self._words.copy()  # the words of the last call
        self._differs = np.empty(self._words.shape, dtype=np.bool_)
        self._frame = np.zeros((bands, self._rows, size), dtype=np.uint8)  # black shrinks to black

    def __call__(self, pooled: bool) -> np.ndarray:
        if pooled:
            np.maximum(self._screen, self._earlier, out=self._larger)
        else:
            self._larger[:] = self._screen
        np.not_equal(self._words, self._seen, out=self._differs)
        changed = _any(self._differs, 1).nonzero()[0]
        count = len(changed)
        if count:
            self._seen[:] = self._words
            tall = self._bands[changed].reshape(-1, self._width)
            small = cv2.resize(tall, (self._size, count * self._rows), None, 0, 0, self._kernel)
            self._frame[changed] = small.reshape(count, self._rows, self._size)
        return self._frame.reshape(self._size, self._size)


class _Native:
    """By screen.c. It shrinks by fractions only: whole factors are another path in OpenCV, with other roundings."""

    def __init__(self, pictures: Resizer, size: int, bands: int) -> None:
        self._screen, self._earlier = pictures.screen, pictures.earlier
        height, width = self._screen.shape
        self._seen = np.zeros_like(self._screen)
        self._frame = np.zeros((size, size), dtype=np.uint8)
        self._rest = (width, size, bands, *area_table(width, size), *area_table(height, size))

    def __call__(self, pooled: bool) -> np.ndarray:
        _screen.shrink(self._screen, self._earlier if pooled else None, self._seen, self._frame, *self._rest)
        return self._frame


def area_table(source: int, size: int) -> tuple[np.ndarray, np.ndarray]:
    """Which pixels each place of the result covers, and by which share. -> index, weight [most pixels, size]"""
    scale = source / size
    places: list[list[tuple[int, float]]] = []
    for place in range(size):
        begin, end = place * scale, (place + 1) * scale
        covered = [(k, min(k + 1, end) - max(k, begin)) for k in range(floor(begin), min(ceil(end), source))]
        places.append([(k, share / scale) for k, share in covered if share > 1e-3])
    most = max(len(place) for place in places)
    filled = [place + [(place[-1][0], 0.0)] * (most - len(place)) for place in places]
    index, weight = zip(*(zip(*place, strict=True) for place in filled), strict=True)
    return np.array(index, np.int32).T.copy(), np.array(weight, np.float32).T.copy()
