"""The two operations that are written for speed, each beside its plain twin in PyTorch.

`column_norm` has a C loop, compiled at installation where GCC is there. `dense` needs no compiler, but has the same
switch. `C2D_KERNELS=off`, or no compiled module, selects the twins. What each saves is in docs/results/kernels.md.
"""

from __future__ import annotations

import os

import torch  # noqa: F401  (loads the OpenMP runtime that the compiled module uses)

INTERFACE = 3  # raised with every change of arguments, here and in column_norm.c

try:
    from c2d.native import _column_norm
except ImportError:
    AVAILABLE = False
else:
    # A module left by an older installation is not used.
    AVAILABLE = getattr(_column_norm, "INTERFACE", None) == INTERFACE and os.environ.get("C2D_KERNELS") != "off"
