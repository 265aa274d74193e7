"""Frames that spell their number, so that a wrong one is seen at once."""

from __future__ import annotations

import numpy as np

from c2d.envs.spec import EnvSpec

SHAPE = (2, 8, 8)  # 128 bytes: large enough to be compressed


def numbered() -> np.ndarray:
    """Frame number k spells k; its two channels differ; number 0 is all zeros. [K, C, H, W]"""
    numbers = np.arange(1000)
    frames = np.zeros((1000, *SHAPE), dtype=np.uint8)
    frames[:, 0, 3, :3] = np.stack([numbers % 256, numbers // 256, numbers > 0], axis=1)
    frames[:, 1, 5, :3] = np.stack([numbers % 256, numbers // 256, 2 * (numbers > 0)], axis=1)
    return frames


FRAMES = numbered()


def spec_of(stack: int) -> EnvSpec:
    return EnvSpec("test", "gym", SHAPE, "uint8", stack, actions=50, frames_per_step=1, masked=True)


def legal_of(tag: int) -> np.ndarray:
    """A mask that spells the number of its frame in bits. [50] bool"""
    return np.array([tag >> bit & 1 for bit in range(49)] + [1], dtype=np.bool_)


def observations(stacks: list[list[int | None]], stack: int) -> np.ndarray:
    """Stacks of numbers, None for zeros, as observations. [B, S·C, H, W]"""
    numbers = np.array([[tag or 0 for tag in row] for row in stacks])  # [B, S]
    return FRAMES[numbers].reshape(len(stacks), stack * SHAPE[0], *SHAPE[1:])
