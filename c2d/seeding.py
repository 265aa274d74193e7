"""Named random generators: one seed, one independent stream per purpose."""

from __future__ import annotations

import zlib

import numpy as np
import torch


def stream(seed: int, name: str) -> np.random.SeedSequence:
    """A seed sequence that depends only on the run's seed and on its purpose."""
    return np.random.SeedSequence([seed, zlib.crc32(name.encode())])


def numpy_generator(seed: int, name: str) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64(stream(seed, name)))


def torch_generator(seed: int, name: str, device: str = "cpu") -> torch.Generator:
    return torch.Generator(device).manual_seed(integer(seed, name))


def integer(seed: int, name: str) -> int:
    """A seed as a plain integer."""
    return int(stream(seed, name).generate_state(1, np.uint32)[0])
