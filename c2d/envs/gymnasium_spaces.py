"""Gymnasium's spaces as numbers of actions and as frames: vectors [D] f32, pictures [C, H, W] u8 or f32."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from c2d.errors import UserError

ACCEPTED = "Box of 1 dimension or a picture [H, W], [H, W, C], [C, H, W]; Discrete, MultiBinary, MultiDiscrete"
MOST_CHANNELS = 16  # a picture's shortest side at an end is its channels if it is at most this long

Converter = Callable[[Any], np.ndarray]


def action_range(space: Any, name: str) -> tuple[int, int]:
    """First action and number of actions of a Discrete space."""
    from gymnasium.spaces import Discrete

    if not isinstance(space, Discrete):
        raise UserError(f"{name} has the action space {space}; only Discrete action spaces are accepted.")
    return int(space.start), int(space.n)


def observation_converter(space: Any, name: str) -> tuple[Converter, tuple[int, ...], np.dtype[Any]]:
    """A function from observations to new frames, with the frames' shape and type."""
    from gymnasium.spaces import Box, Discrete, MultiBinary, MultiDiscrete

    float32 = np.dtype(np.float32)
    if isinstance(space, Discrete):
        return _one_hot(np.array([space.n]), np.array([space.start])), (int(space.n),), float32
    if isinstance(space, MultiDiscrete) and space.nvec.ndim == 1:
        start = np.asarray(getattr(space, "start", np.zeros_like(space.nvec)))
        return _one_hot(space.nvec, start), (int(space.nvec.sum()),), float32
    if isinstance(space, MultiBinary) and len(space.shape) == 1:
        return _vector, space.shape, float32
    if isinstance(space, Box) and len(space.shape) == 1:
        return _vector, space.shape, float32
    if isinstance(space, Box) and len(space.shape) in (2, 3):
        dtype = np.dtype(np.uint8) if space.dtype == np.uint8 else float32
        picture, shape = _picture(space.shape, dtype)
        brightest = float(max(abs(np.min(space.low)), abs(np.max(space.high))))
        if dtype == float32 and 1.0 < brightest < np.inf:  # such as 0 … 255: networks expect about 0 … 1
            return lambda observation: picture(observation) / np.float32(brightest), shape, dtype
        return picture, shape, dtype
    shape_note = f" of shape {space.shape}" if getattr(space, "shape", None) else ""
    kind = type(space).__name__
    raise UserError(f"{name} has the observation space {kind}{shape_note}; accepted: {ACCEPTED}.")


def _vector(observation: Any) -> np.ndarray:
    return np.array(observation, dtype=np.float32)


def _one_hot(sizes: np.ndarray, start: np.ndarray) -> Converter:
    """One-hot codes, one after the other."""
    offsets = np.concatenate([[0], np.cumsum(sizes)[:-1]]) - start
    total = int(sizes.sum())

    def convert(observation: Any) -> np.ndarray:
        values = np.asarray(observation).reshape(-1)
        if values.shape != sizes.shape or not ((values >= start) & (values < start + sizes)).all():
            raise ValueError(str(observation))
        code = np.zeros(total, dtype=np.float32)
        code[values + offsets] = 1.0
        return code

    return convert


def _picture(shape: tuple[int, ...], dtype: np.dtype[Any]) -> tuple[Converter, tuple[int, ...]]:
    """[H, W] -> [1, H, W]; [H, W, C] -> [C, H, W]; [C, H, W] stays."""
    if len(shape) == 2:
        return lambda observation: np.array(observation, dtype=dtype)[None], (1, *shape)
    channels_last = shape[2] <= MOST_CHANNELS and shape[2] <= shape[0]
    if not channels_last:
        return lambda observation: np.array(observation, dtype=dtype), shape

    def convert(observation: Any) -> np.ndarray:
        picture = np.asarray(observation)
        return np.array(np.moveaxis(picture, -1, 0) if picture.ndim == 3 else picture, dtype=dtype, order="C")

    return convert, (shape[2], shape[0], shape[1])
