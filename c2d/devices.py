"""The device of tensors and the number of threads, for training and evaluation."""

from __future__ import annotations

import torch

from c2d.errors import UserError


def prepare_torch(device: str, threads: int | None = None) -> int:
    """Check the device and set the threads, if given; returns the number of threads in use."""
    if threads is not None:
        torch.set_num_threads(threads)
    try:
        torch.zeros(1, device=device).item()  # a device without data ("meta") fails too
    except (RuntimeError, AssertionError) as error:
        kind = device.partition(":")[0]
        reason = f" ({str(error).splitlines()[0]})" if kind in ("cuda", "mps", "xpu") else ""
        raise UserError(
            f'--device is "{device}"; accepted: cpu, cuda, cuda:1, as far as PyTorch finds them here{reason}'
        ) from None
    return torch.get_num_threads()
