"""screen.c. Only resize.py and grays.py call it."""

import numpy as np

INTERFACE: int

def shrink(
    screen: np.ndarray,
    earlier: np.ndarray | None,
    seen: np.ndarray,
    frame: np.ndarray,
    width: int,
    size: int,
    bands: int,
    across_index: np.ndarray,
    across_weight: np.ndarray,
    down_index: np.ndarray,
    down_weight: np.ndarray,
    /,
) -> None: ...
def lookup(colors: np.ndarray, seen: np.ndarray, table: np.ndarray, grays: np.ndarray, width: int, /) -> bool: ...
