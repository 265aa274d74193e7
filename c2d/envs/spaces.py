"""What the spaces of a Gymnasium environment become: observations become frames, actions numbers from 0 on.

Frames are vectors [D] f32 or images [C, H, W] u8 or f32. Dictionaries and tuples of vectors are joined in the order of
`gymnasium.spaces.utils.flatten`. Combinations of discrete actions are numbered. Masks of actions become [A] bool.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import reduce
from typing import Any, NamedTuple

import numpy as np

from c2d.errors import UserError

ACCEPTED = (
    "a Box with at most 1 dimension, an image [H, W], [H, W, C] or [C, H, W], Discrete, MultiBinary, MultiDiscrete, or "
    "a Dict or Tuple of them without images"
)
MAX_CHANNELS = 16  # the last axis of an image is its channels if it is at most this long and not longer than the first
MOST_ACTIONS = 1_024  # combinations of a MultiDiscrete or MultiBinary action space
_HELP = "docs/environments.md"
_FLATTEN = "--wrapper gymnasium.wrappers:FlattenObservation"

Converter = Callable[[Any], np.ndarray]
FLOAT32 = np.dtype(np.float32)


# ------------------------------------------------------------------------------------------------------------ actions


class Actions(NamedTuple):
    """Discrete actions, or all combinations of them, numbered from 0."""

    number: int
    names: tuple[str, ...]
    parts: tuple[int, ...] = ()  # values of each part of an action that is a vector; (): it is a number
    start: tuple[int, ...] = ()  # least value of each part, or of the number; (): 0


def read_actions(space: Any, name: str) -> Actions:
    """The actions of a space; UserError if it cannot be learned."""
    from gymnasium.spaces import Discrete, MultiBinary, MultiDiscrete

    if isinstance(space, Discrete):
        start = int(space.start)
        names = tuple(str(start + action) for action in range(int(space.n)))
        return Actions(int(space.n), names, start=(start,) if start else ())
    if not isinstance(space, MultiDiscrete | MultiBinary) or len(space.shape) != 1:
        raise UserError(
            f"{name} has the action space {space}; accepted: Discrete, and MultiDiscrete or MultiBinary with 1 "
            f"dimension. A wrapper that numbers the actions helps: --wrapper my_module:wrap ({_HELP}#actions)"
        )
    parts = (2,) * space.shape[0] if isinstance(space, MultiBinary) else tuple(map(int, space.nvec))
    least = tuple(map(int, getattr(space, "start", ())))
    count = math.prod(parts)
    if count > MOST_ACTIONS:
        raise UserError(
            f"{name} has the action space {space} with {count:,} combinations; accepted: at most {MOST_ACTIONS:,}. A "
            f"wrapper that offers the useful ones as a Discrete space helps: --wrapper my_module:wrap ({_HELP}#actions)"
        )
    rows = np.stack(np.unravel_index(np.arange(count), parts), -1) + np.array(least or (0,))
    joint = "" if isinstance(space, MultiBinary) else ","
    names = tuple(joint.join(map(str, row)) for row in rows.tolist())
    return Actions(count, names, parts, least if any(least) else ())


# -------------------------------------------------------------------------------------------------------------- masks


def mask_method(env: Any) -> Callable[[], Any] | None:
    """The method `action_masks` of an environment, or of what its wrappers wrap."""
    from gymnasium import Wrapper

    while not callable(method := getattr(env, "action_masks", None)):
        if not isinstance(env, Wrapper):
            return None
        env = env.env
    return method  # type: ignore[no-any-return]


def read_mask(given: Any, actions: Actions) -> np.ndarray:
    """A mask as the environment gives it: one flag per action, or per combination in the shape of `parts`, or a tuple
    with the flags of each part. ValueError, in words, if it is none. -> [A] bool, a copy"""
    if isinstance(given, tuple) and actions.parts and len(given) == len(actions.parts):
        each = [_flags(flags, (size,)) for flags, size in zip(given, actions.parts, strict=True)]
        return np.asarray(reduce(np.logical_and.outer, each)).reshape(-1)
    return _flags(given, (actions.number,), actions.parts)


def _flags(given: Any, *shapes: tuple[int, ...]) -> np.ndarray:
    accepted = f"accepted: {shapes[0][0]} flags, True or 1 for each legal action"
    try:
        flags = np.asarray(given)
    except ValueError:  # lists of unlike lengths
        raise ValueError(f"is {type(given).__name__}; {accepted}") from None
    if flags.shape not in shapes:
        raise ValueError(f"has shape {flags.shape}; {accepted}")
    if flags.dtype != np.bool_ and not (flags.dtype.kind in "iu" and ((flags == 0) | (flags == 1)).all()):
        values = " with values other than 0 and 1" if flags.dtype.kind in "iu" else ""
        raise ValueError(f"is of type {flags.dtype}{values}; {accepted}")
    return flags.astype(np.bool_).reshape(-1)


# ------------------------------------------------------------------------------------------------------- observations


class Observations(NamedTuple):
    """How observations become frames."""

    convert: Converter  # copies; ValueError or TypeError for what is not in the space
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    limits: tuple[np.ndarray, np.ndarray] | None = None  # declared for what `limited` shows
    limited: Converter = np.asarray  # from an observation
    layout: str | None = None  # of the parts that were joined, in words


def read_observations(space: Any, name: str) -> Observations:
    """How the observations of a space become frames; UserError if they cannot."""
    from gymnasium.spaces import Box, Dict, Tuple
    from gymnasium.spaces.utils import flatten_space

    if isinstance(space, Dict | Tuple) and len(space.spaces) == 1:
        key, only = next(iter(_entries(space)))
        inner = read_observations(only, name)
        convert, limited = (_picked(key, reader) for reader in (inner.convert, inner.limited))
        return inner._replace(convert=convert, limited=limited)
    if (vector := _vector(space)) is not None:
        convert, size = vector
        if isinstance(space, Dict | Tuple):
            parts = ", ".join(_described(space))
            layout = f"{size} numbers: {parts}"
            return Observations(convert, (size,), FLOAT32, declared_limits(flatten_space(space)), convert, layout)
        return Observations(convert, (size,), FLOAT32, declared_limits(space))
    if isinstance(space, Box) and len(space.shape) in (2, 3):
        dtype = np.dtype(np.uint8) if space.dtype == np.uint8 else FLOAT32
        plain, shape = _image(space.shape, dtype)
        bound = float(max(abs(np.min(space.low)), abs(np.max(space.high))))
        scaled = dtype == FLOAT32 and 1.0 < bound < np.inf  # such as 0 … 255: networks expect about 0 … 1
        convert = (lambda observation: plain(observation) / np.float32(bound)) if scaled else plain
        return Observations(convert, shape, dtype, declared_limits(space))
    shape_note = f" of shape {space.shape}" if getattr(space, "shape", None) else ""
    wrong = _unlearnable(space)
    part = f" with {wrong}" if isinstance(space, Dict | Tuple) else ""
    hint = ""
    if isinstance(space, Dict | Tuple) and "image" in wrong:
        hint = f". One vector of everything: {_FLATTEN}; the image alone: a wrapper of your own ({_HELP}#observations)"
    elif isinstance(space, Box):
        hint = f". A wrapper makes a vector of it: {_FLATTEN}"
    raise UserError(
        f"{name} has the observation space {type(space).__name__}{shape_note}{part}; accepted: {ACCEPTED}{hint}"
    )


def declared_limits(space: Any) -> tuple[np.ndarray, np.ndarray] | None:
    """The bounds of a Box, if observations of its type can leave them."""
    from gymnasium.spaces import Box

    if not isinstance(space, Box) or not (np.isfinite(space.low).any() or np.isfinite(space.high).any()):
        return None
    if space.dtype == np.uint8 and not space.low.any() and (space.high == 255).all():
        return None
    return space.low, space.high


def _entries(space: Any) -> list[tuple[Any, Any]]:
    """Keys and parts of a Dict or Tuple, in the order in which Gymnasium joins them."""
    return list(space.spaces.items() if isinstance(space.spaces, Mapping) else enumerate(space.spaces))


def _picked(key: Any, convert: Converter) -> Converter:
    return lambda observation: convert(_part(observation, key))


def _part(observation: Any, key: Any) -> Any:
    try:
        return observation[key]
    except (LookupError, TypeError):
        raise ValueError(f"{type(observation).__name__} without {key!r}") from None


def _vector(space: Any) -> tuple[Converter, int] | None:
    """How observations of a space become vectors, and their length; None if they do not."""
    from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Tuple

    if isinstance(space, Discrete):
        return _one_hot(np.array([space.n]), np.array([space.start])), int(space.n)
    if isinstance(space, MultiDiscrete):
        sizes = space.nvec.reshape(-1)
        start = np.asarray(getattr(space, "start", np.zeros_like(space.nvec))).reshape(-1)
        return _one_hot(sizes, start), int(sizes.sum())
    if isinstance(space, MultiBinary) or (isinstance(space, Box) and len(space.shape) <= 1):
        return _numbers(space.shape), math.prod(space.shape)
    if not isinstance(space, Dict | Tuple) or not space.spaces:
        return None
    keys, parts = zip(*((key, _vector(part)) for key, part in _entries(space)), strict=True)
    if any(part is None for part in parts):
        return None

    def convert(observation: Any) -> np.ndarray:
        return np.concatenate([part[0](_part(observation, key)) for key, part in zip(keys, parts, strict=True)])

    return convert, sum(part[1] for part in parts)


def _described(space: Any, above: str = "") -> list[str]:
    """The parts of a Dict or Tuple in words: "goal (4)"."""
    found = []
    for key, part in _entries(space):
        name = f"{above}{key}"
        if hasattr(part, "spaces"):
            found += _described(part, f"{name}.")
        else:
            vector = _vector(part)
            found.append(f"{name} ({'?' if vector is None else vector[1]})")
    return found


def _unlearnable(space: Any, name: str = "") -> str:
    """The first part that is not a vector, in words."""
    from gymnasium.spaces import Box, Dict, Tuple

    if isinstance(space, Dict | Tuple):
        found = (_unlearnable(part, f"{name}{'.' * bool(name)}{key}") for key, part in _entries(space))
        return next((text for text in found if text), "" if space.spaces else "no part")
    if _vector(space) is not None:
        return ""
    if isinstance(space, Box) and len(space.shape) in (2, 3):
        return f'the image "{name}" of shape {space.shape} among other parts'
    shape_note = f" of shape {space.shape}" if getattr(space, "shape", None) else ""
    return f'the part "{name}", a {type(space).__name__}{shape_note}'


def _numbers(shape: tuple[int, ...]) -> Converter:
    def convert(observation: Any) -> np.ndarray:
        values = np.array(observation, dtype=np.float32)
        if values.shape != shape:
            raise ValueError(f"it has shape {values.shape}, not {shape}")
        return values.reshape(-1)

    return convert


def _one_hot(sizes: np.ndarray, start: np.ndarray) -> Converter:
    """Concatenated one-hot codes."""
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


def _image(shape: tuple[int, ...], dtype: np.dtype[Any]) -> tuple[Converter, tuple[int, ...]]:
    """[H, W] -> [1, H, W]; [H, W, C] -> [C, H, W]; [C, H, W] is kept."""
    if len(shape) == 2:
        return lambda observation: np.array(observation, dtype=dtype)[None], (1, *shape)
    channels_last = shape[2] <= MAX_CHANNELS and shape[2] <= shape[0]
    if not channels_last:
        return lambda observation: np.array(observation, dtype=dtype), shape

    def convert(observation: Any) -> np.ndarray:
        image = np.asarray(observation)
        return np.array(np.moveaxis(image, -1, 0) if image.ndim == 3 else image, dtype=dtype, order="C")

    return convert, (shape[2], shape[0], shape[1])
