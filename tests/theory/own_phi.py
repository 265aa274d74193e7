"""A user's own φ, named on the command line in a test."""

import torch


def cube_root_like(x: torch.Tensor) -> torch.Tensor:
    return torch.asinh(x) + 0.01 * x
