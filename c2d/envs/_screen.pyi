"""screen.c. Only resize.py calls it."""

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
