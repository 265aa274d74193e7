"""c2d ablate RECIPE"""

from c2d.cli.sweep import ablate as main

__all__ = ["main"]
