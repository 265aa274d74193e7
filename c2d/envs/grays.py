"""The emulator's screen in gray.

The emulator converts all 33,600 pixels of a picture each time. Its colors come from a table of 128, and most rows
of a screen stay as they were: where screen.c was compiled, the rows that changed are looked up there. The gray of
a color is learned from the first picture in which the emulator shows it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from c2d.envs import resize

_UNKNOWN = 256  # above every gray


class Grays:
    """Takes pictures of one emulator (ale_py's ALEInterface, with a cartridge in)."""

    def __init__(self, ale: Any) -> None:
        self._colors, self._grays = ale.getScreen, ale.getScreenGrayscale
        self._table = np.full(256, _UNKNOWN, dtype=np.uint16)  # gray of each color

    def into(self, picture: np.ndarray) -> Callable[[], None]:
        """A function that writes the present screen into `picture` [height, width] u8, which nobody else writes to."""
        if not resize.NATIVE:
            return lambda: self._grays(picture)
        from c2d.envs._screen import lookup

        colors, seen, take, table = np.zeros_like(picture), np.zeros_like(picture), self._colors, self._table
        width = picture.shape[1]
        self._grays(picture)
        take(seen)

        def write() -> None:
            take(colors)
            if lookup(colors, seen, table, picture, width):  # a color unknown so far
                self._grays(picture)
                table[colors] = picture

        return write
