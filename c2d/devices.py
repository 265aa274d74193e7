"""Where tensors live, and with how many threads they are worked on."""

from __future__ import annotations

import torch

from c2d.errors import UserError


def prepare_torch(device: str, threads: int | None = None) -> int:
    """Check the device and set the threads, if given; returns the number of threads in use."""
    if threads is not None:
        torch.set_num_threads(threads)
    try:
        torch.zeros(1, device=device).item()  # a device that holds no numbers ("meta") fails too
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise UserError(f"--device {device} cannot be used here: {reason}") from None
    return torch.get_num_threads()
