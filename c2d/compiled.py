"""Which of the modules in C are used: those of this version, unless `C2D_KERNELS=off`."""

from __future__ import annotations

import os
from types import ModuleType

INTERFACE = 2  # raised with every change of arguments in C, here, in nets/lanes.h and in envs/screen.c


def usable(*modules: ModuleType) -> bool:
    """An older module, left by an installation before the last update, is none."""
    wanted = os.environ.get("C2D_KERNELS") != "off"
    return wanted and all(getattr(module, "INTERFACE", None) == INTERFACE for module in modules)
