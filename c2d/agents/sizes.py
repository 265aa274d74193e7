"""Whether the networks of a recipe fit into memory: found out by counting, before anything is allocated."""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from c2d.envs.spec import EnvSpec
from c2d.errors import UserError
from c2d.formatting import size
from c2d.recipes import parts as spec
from c2d.recipes.recipe import Recipe
from c2d.replay.ring import compressed

_CERTAIN = 1 << 30  # bytes; below, no network is counted
_LAYERS = 12  # no network has more weights than so many layers from its widest to its second widest
_NETWORKS = 5  # in training: weights, those of the target, gradients, two moments


def check_network(recipe: Recipe, env: EnvSpec, networks: int = 1) -> None:
    """Refuse a network that cannot be built here."""
    if networks * most_network_bytes(recipe, env) > max(_CERTAIN, available_memory()):
        needed = networks * network_bytes(recipe, env)
        _refuse(needed, "its networks", "widths, units and atoms under --encoder and --head")


def check_training(recipe: Recipe, env: EnvSpec, compress: bool | None) -> None:
    """Refuse networks, a batch or a replay that cannot be had here."""
    check_network(recipe, env, _NETWORKS)
    _refuse(update_bytes(recipe, env), "one update", "--schedule.batch-size, or atoms under --head")
    capacity = recipe.schedule.replay_capacity
    slot = 10 + 8 * compressed(env.frame_bytes, capacity, compress) + 32  # beside the frames, which come later
    _refuse(slot * capacity, "its empty replay", "--schedule.replay-capacity")


def most_network_bytes(recipe: Recipe, env: EnvSpec) -> int:
    """Of one network, or more, but never less: counted quickly."""
    wide = sorted(_widths(recipe, env), reverse=True)
    layers = _LAYERS + len(getattr(recipe.encoder, "widths", ()))
    return 4 * (layers * wide[0] * wide[1] * (2 if recipe.noisy else 1) + _convolutions(recipe, env))


def network_bytes(recipe: Recipe, env: EnvSpec) -> int:
    """Of one network, exactly: built without memory for its numbers, which takes a second."""
    import torch

    from c2d.agents.build import build_parts

    try:
        with torch.device("meta"):
            parts = build_parts(recipe, env)
        return sum(tensor.nbytes for part in parts for tensor in (*part.parameters(), *part.buffers()))
    except (RuntimeError, TypeError, OverflowError):  # more than can be counted
        return 1 << 62


def update_bytes(recipe: Recipe, env: EnvSpec) -> int:
    """About what one gradient step takes beside the networks."""
    batch, atoms = recipe.schedule.batch_size, _atoms(recipe)
    rows = batch * (atoms if isinstance(recipe.head, spec.Implicit | spec.Fraction) else 1)
    pairs = atoms * atoms if isinstance(recipe.loss, spec.QuantileHuber) else 0
    law = env.actions * (1 if rows > batch else atoms)
    units = law + getattr(recipe.head, "hidden", 0) + getattr(recipe.head, "embedding", 0)
    return 4 * (3 * rows * units + 3 * batch * pairs + 4 * batch * math.prod(env.obs_shape))


def _refuse(needed: int, what: str, settings: str) -> None:
    if needed <= _CERTAIN:
        return
    free = available_memory()
    if needed > free:
        raise UserError(
            f"{what} may take {size(needed)} of memory, and {size(max(free, 0))} are free: lower {settings}"
        )


def _atoms(recipe: Recipe) -> int:
    return max((value for name, value in asdict(recipe.head).items() if name.endswith("atoms") and value), default=1)


def _widths(recipe: Recipe, env: EnvSpec) -> list[int]:
    """How many numbers go into and out of the dense layers."""
    encoder: Any = recipe.encoder
    found = [env.actions * _atoms(recipe)]
    found += [getattr(recipe.head, field.name) for field in fields(recipe.head) if field.name in _UNITS]
    if isinstance(encoder, spec.Mlp):
        return [*found, math.prod(env.obs_shape), *encoder.widths]
    pixels = math.prod(side // 8 + 1 for side in env.frame_shape[1:])  # of the last picture
    if isinstance(encoder, spec.MinAtar):
        return [*found, encoder.channels * math.prod(env.frame_shape[1:])]
    return [*found, (32 * encoder.scale if isinstance(encoder, spec.Impala) else 64) * pixels]


def _convolutions(recipe: Recipe, env: EnvSpec) -> int:
    """How many weights the convolutions and their normalization have at most."""
    encoder: Any = recipe.encoder
    largest = {spec.MinAtar: 0, spec.Impala: 32 * getattr(encoder, "scale", 0), spec.Mlp: 0}.get(type(encoder), 64)
    out = max(largest, getattr(encoder, "channels", 0))
    return 64 * out * env.obs_shape[0] + 15 * 16 * largest**2 + 4 * sum(env.frame_shape) + (1 << 18)


_UNITS = ("hidden", "embedding", "cosines")


def available_memory(root: Path = Path("/")) -> int:
    """Bytes that programs on this machine can still get, or the container's limit if that is lower.

    Where the system does not say, nothing is known to be out of reach.
    """
    group = root / "sys/fs/cgroup"
    free = 1 << 62
    with suppress(OSError, ValueError, KeyError):
        free = _table(root / "proc/meminfo")["MemAvailable:"] * 1024
    with suppress(OSError, ValueError, KeyError):
        used = int((group / "memory.current").read_text()) - _table(group / "memory.stat")["inactive_file"]
        free = min(free, int((group / "memory.max").read_text()) - used)  # cached files give way to programs
    return free


def _table(path: Path) -> dict[str, int]:
    """Lines that begin with a name and a whole number."""
    return {words[0]: int(words[1]) for words in map(str.split, path.read_text().splitlines()) if len(words) > 1}
