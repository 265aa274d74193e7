"""The only place that turns a recipe into objects: networks, learner, replay; and what they would take in memory."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, fields
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from c2d.agents.learner import Learner, Optimizer
from c2d.envs.spec import EnvSpec
from c2d.errors import UserError
from c2d.formatting import size
from c2d.nets.cores import Core
from c2d.nets.heads import Head, Style
from c2d.nets.network import Encoder, ValueNetwork, initialize
from c2d.nets.scales import RunningScale
from c2d.recipes import parts as spec
from c2d.recipes.part import PARTS, EncoderSpec, Recurrent, part_name
from c2d.recipes.recipe import Recipe
from c2d.replay.buffer import Replay
from c2d.replay.ring import compressed
from c2d.replay.sequences import SequenceReplay
from c2d.returns.phi import in_units
from c2d.types import Phi
from c2d.user_code import is_user_code


def build_phi(recipe: Recipe, network: ValueNetwork) -> Phi:
    """φ and its inverse between real returns and the atoms of `network`, whose unit of rewards they follow."""
    phi, unit = recipe.phi.build(), network.head.unit
    return phi if unit is None else in_units(phi, unit.u)


def build_network(recipe: Recipe, env: EnvSpec, rng: torch.Generator) -> ValueNetwork:
    """Encoder and head with weights drawn from `rng`."""
    check_network(recipe, env)
    network = _assemble_network(recipe, env)
    try:
        initialize(network, rng, recipe.initializer)
    except TypeError as error:  # a layer of a user's part; those of the package have rules
        raise UserError(f"{error}; name them in the layer's `constants` or give it a method initialize(rng)") from None
    return network


def _assemble_network(recipe: Recipe, env: EnvSpec) -> ValueNetwork:
    encoder, core, head = build_parts(recipe, env)
    scale = RunningScale() if recipe.bootstrap.build().needs_scale else None
    network = ValueNetwork(encoder, head, scale, core)
    if core is not None:
        core.squeeze = _squeeze(recipe, network)
    return network


def _squeeze(recipe: Recipe, network: ValueNetwork) -> Callable[[Tensor], Tensor]:
    """What is done to rewards before a core sees them; those of the replay are clipped already."""
    phi, clip = build_phi(recipe, network), recipe.clip_reward
    return phi.to if clip is None else lambda reward: phi.to(reward.clamp(-clip, clip))


def build_parts(recipe: Recipe, env: EnvSpec) -> tuple[Encoder, Core | None, Head]:
    """Encoder, core and head with the weights they happen to have."""
    _check_observations(recipe.encoder, env)
    encoder: Any = recipe.encoder.build(env)
    if not (isinstance(encoder, nn.Module) and isinstance(getattr(encoder, "features", None), int)):
        _reject(recipe.encoder, encoder, "torch.nn.Module with an int `features`")
    core = _build_core(recipe, encoder.features, env.actions)
    noise, separate = recipe.noise if recipe.noisy else None, recipe.dueling_hidden == "separate"
    style = Style(recipe.dueling, noise, recipe.layer_norm, separate)
    head: Any = recipe.head.build(encoder.features if core is None else core.features, env.actions, style)
    if not isinstance(head, Head):
        _reject(recipe.head, head, "c2d.nets.heads.Head")
    return encoder, core, head


def _build_core(recipe: Recipe, features: int, actions: int) -> Core | None:
    spec = recipe.core
    if not isinstance(spec, Recurrent):
        return None
    fed = spec.feed == "action-reward"
    cell: Any = spec.build(features + actions + 1 if fed else features)
    sizes = [getattr(cell, name, None) for name in ("features", "memory")]
    if not (isinstance(cell, nn.Module) and all(type(size) is int and size > 0 for size in sizes)):
        _reject(spec, cell, "torch.nn.Module with ints `features` and `memory`")
    return Core(cell, actions, fed)


def _reject(spec: Any, built: object, accepted: str) -> None:
    raise UserError(f"{part_name(spec)}.build returned a {type(built).__name__}; accepted: a {accepted}")


def _check_observations(encoder: EncoderSpec, env: EnvSpec) -> None:
    kind = "image" if len(env.frame_shape) == 3 else "vector"
    if encoder.observations in (kind, "any"):
        return
    others = [name for name, cls in PARTS["encoder"].items() if getattr(cls, "observations", "") == kind]
    raise UserError(
        f"encoder {part_name(encoder)} takes {encoder.observations} observations, {env.name} gives {env.obs_shape}; "
        f"accepted: {', '.join(others)}"
    )


def build_learner(
    recipe: Recipe,
    env: EnvSpec,
    weights: torch.Generator,
    learning: torch.Generator,
    device: str = "cpu",
    compile: str = "off",
) -> Learner:
    """`weights` draws the initial weights, `learning` the noise and the fractions of updates."""
    online, target = (build_network(recipe, env, weights).to(device) for _ in range(2))
    for parameter in target.parameters():
        parameter.requires_grad_(False)
    learner = assemble_learner(recipe, online, target, learning, _build_optimizers(recipe, online), compile)
    learner.synchronize()
    return learner


def assemble_learner(
    recipe: Recipe,
    online: ValueNetwork,
    target: ValueNetwork,
    learning: torch.Generator,
    optimizers: list[Optimizer] | None = None,  # None: it has targets, but cannot be trained
    compile: str = "off",
) -> Learner:
    """A learner with these two networks as they are."""
    phi = build_phi(recipe, online)
    return Learner(
        online,
        target,
        phi,
        recipe.loss.build(phi),
        recipe.bootstrap.build(),
        optimizers or [],
        learning,
        polyak=recipe.schedule.polyak,
        acting_average=recipe.schedule.acting_average,
        compile=compile,
        priority=recipe.sampler.build_priority(),
    )


def _build_optimizers(recipe: Recipe, online: ValueNetwork) -> list[Optimizer]:
    """The recipe's optimizer, and one for each group of parameters that the head trains apart."""
    apart = online.head.trained_apart()
    others = {id(parameter) for _, group in apart for parameter in group}
    shared = [p for p in online.parameters() if id(p) not in others]
    inner = {id(parameter) for parameter in online.head.parameters()}
    encoder, head = [p for p in shared if id(p) not in inner], [p for p in shared if id(p) in inner]
    together = recipe.optim.build_for(encoder, head)
    return [together, *(spec.build(group) for spec, group in apart)]


def build_replay(
    recipe: Recipe,
    env: EnvSpec,
    truncation: str,
    compress: bool | None,
    memory: int | None = None,
    streams: int | None = None,
) -> Replay:
    """`memory`: K of the network, if the caller knows it. `streams`: environments that play; None: the recipe's."""
    streams = recipe.envs if streams is None else streams
    capacity = recipe.schedule.replay_capacity // streams * streams  # each environment has as many slots
    kind: Callable[..., Replay] = Replay
    if isinstance(core := recipe.core, Recurrent):
        kind = partial(SequenceReplay, core=core, memory=_memory(recipe, env) if memory is None else memory)
    try:
        return kind(
            env,
            capacity=capacity,
            n_step=recipe.n_step,
            gamma=recipe.schedule.gamma,
            truncation=truncation,
            clip_reward=recipe.clip_reward,
            compress=compress,
            sampler=recipe.sampler.build(capacity, streams),
            streams=streams,
        )
    except MemoryError:
        raise UserError(f"--schedule.replay-capacity is {capacity:,}: there is not enough memory for it") from None


def _memory(recipe: Recipe, env: EnvSpec) -> int:
    with torch.device("meta"):
        return _assemble_network(recipe, env).memory


def parameter_count(network: nn.Module) -> int:
    return sum(p.numel() for p in network.parameters())


_CERTAIN = 1 << 30  # bytes; nothing below is rejected
_LAYERS = 12  # no network has more weights than this many layers from its widest to its second widest
_UNITS = ("hidden", "embedding", "cosines")  # settings that are widths of layers
_GATES = 4  # dense layers of its size in a cell that remembers, at most
_NETWORKS = 5  # copies in training: online weights, target weights, gradients, two moments


def check_network(recipe: Recipe, env: EnvSpec, networks: int = 1) -> None:
    """Reject a network that does not fit into memory."""
    if networks * most_network_bytes(recipe, env) > max(_CERTAIN, available_memory()):
        needed = networks * network_bytes(recipe, env)
        _require_memory(needed, "its networks", "widths, units and atoms under --encoder and --head")


def check_training(recipe: Recipe, env: EnvSpec, compress: bool | None) -> None:
    """Reject networks, a batch or a replay that do not fit into memory."""
    check_network(recipe, env, _NETWORKS + (recipe.schedule.acting_average is not None))
    _require_memory(update_bytes(recipe, env), "one update", "--schedule.batch-size, or atoms under --head")
    capacity = recipe.schedule.replay_capacity
    slot = (
        10 + env.mask_bytes + 8 * compressed(env.frame_bytes, capacity, compress) + 32
    )  # without the frames, which come later
    _require_memory(slot * capacity, "its empty replay", "--schedule.replay-capacity")


def most_network_bytes(recipe: Recipe, env: EnvSpec) -> int:
    """An upper bound on the bytes of one network, quickly. The count is exact if a part is the user's own."""
    if any(is_user_code(part_name(part)) for part in _own_parts(recipe)):
        return network_bytes(recipe, env)
    wide = sorted(_widths(recipe, env), reverse=True)
    layers = _LAYERS + len(getattr(recipe.encoder, "widths", ()))
    return 4 * (layers * wide[0] * wide[1] * (2 if recipe.noisy else 1) + _convolutions(recipe, env))


def _own_parts(recipe: Recipe) -> tuple[Any, ...]:
    """Those that a network is made of."""
    return recipe.encoder, recipe.core, recipe.head


def network_bytes(recipe: Recipe, env: EnvSpec) -> int:
    """The bytes of one network, exactly: built without memory for its weights, which takes a second at first."""
    try:
        with torch.device("meta"):
            network = _assemble_network(recipe, env)
        return sum(tensor.nbytes for tensor in (*network.parameters(), *network.buffers()))
    except (RuntimeError, TypeError, OverflowError):  # more than can be counted, or a user's part that needs values
        return 0 if any(is_user_code(part_name(part)) for part in _own_parts(recipe)) else 1 << 62


def update_bytes(recipe: Recipe, env: EnvSpec) -> int:
    """About the bytes that one gradient step takes in addition to the networks."""
    batch, atoms = recipe.schedule.batch_size, _atoms(recipe)
    if isinstance(core := recipe.core, Recurrent):
        batch *= core.burn_in + core.sequence + recipe.n_step
    rows = batch * recipe.head.rows
    maps = batch * _feature_maps(recipe, env)
    compared = "fractions" in recipe.loss.needs or recipe.sampler.build_priority() is not None
    pairs = atoms * atoms if compared else 0
    law = env.actions * (1 if rows > batch else atoms)
    streams = 2 if recipe.dueling_hidden == "separate" else 1
    units = law + streams * getattr(recipe.head, "hidden", 0) + getattr(recipe.head, "embedding", 0)
    units += _GATES * getattr(recipe.core, "hidden", 0)
    return 4 * (maps + 3 * rows * units + 3 * batch * pairs + 4 * batch * math.prod(env.obs_shape))


def _require_memory(needed: int, what: str, settings: str) -> None:
    if needed <= _CERTAIN:
        return
    free = available_memory()
    if needed > free:
        raise UserError(
            f"{what} may take {size(needed)} of memory, and {size(max(free, 0))} are free; lower {settings}"
        )


def _atoms(recipe: Recipe) -> int:
    return max((value for name, value in asdict(recipe.head).items() if name.endswith("atoms") and value), default=1)


def _widths(recipe: Recipe, env: EnvSpec) -> list[int]:
    """Inputs and outputs of the dense layers."""
    encoder: Any = recipe.encoder
    widths = [env.actions * _atoms(recipe)]
    if isinstance(recipe.core, Recurrent):
        widths.append(_GATES * recipe.core.hidden)
    streams = 2 if recipe.dueling_hidden == "separate" else 1
    widths += [streams * getattr(recipe.head, field.name) for field in fields(recipe.head) if field.name in _UNITS]
    if isinstance(encoder, spec.Mlp):
        return [*widths, math.prod(env.obs_shape), *encoder.widths]
    pixels = math.prod(side // 8 + 1 for side in env.frame_shape[1:])  # of the last feature map
    if isinstance(encoder, spec.MinAtar):
        return [*widths, encoder.channels * math.prod(env.frame_shape[1:])]
    if isinstance(encoder, spec.Impala):
        return [*widths, 32 * encoder.scale * (encoder.pool**2 or pixels)]
    return [*widths, 64 * pixels]


def _feature_maps(recipe: Recipe, env: EnvSpec) -> int:
    """Numbers per image that the residual encoder keeps for its gradient, and those that this takes on the way.

    Of each block: the map that is pooled, where its maxima are (two numbers each), and seven maps of half the side.
    """
    encoder: Any = recipe.encoder
    if not isinstance(encoder, spec.Impala):
        return 0  # a few maps, small beside a batch of images
    kept, (height, width) = 0, env.frame_shape[1:]
    for channels in (16, 32, 32):
        pooled = ((height + 1) // 2) * ((width + 1) // 2)
        kept += channels * encoder.scale * (height * width + 9 * pooled)
        height, width = (height + 1) // 2, (width + 1) // 2
    return kept


def _convolutions(recipe: Recipe, env: EnvSpec) -> int:
    """At most how many weights the convolutions and their normalization have, vectors of spectral norms included."""
    encoder: Any = recipe.encoder
    largest = {spec.MinAtar: 0, spec.Impala: 32 * getattr(encoder, "scale", 0), spec.Mlp: 0}.get(type(encoder), 64)
    out = max(largest, getattr(encoder, "channels", 0))
    return 64 * out * env.obs_shape[0] + 15 * 16 * largest**2 + 4 * sum(env.frame_shape) + (1 << 18)


def available_memory(root: Path = Path("/")) -> int:
    """Bytes that programs on this machine can still allocate, or the container's limit if that is lower.

    Where the system does not tell, everything counts as available.
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
    """The lines that begin with a name and a whole number."""
    return {words[0]: int(words[1]) for words in map(str.split, path.read_text().splitlines()) if len(words) > 1}


WORTH_DIVIDING = 500_000  # weights; with fewer, a second thread makes training slower (docs/results/threads.md)


def default_threads(recipe: Recipe, env: EnvSpec) -> int:
    """CPU threads if the user names none: OMP_NUM_THREADS, or all cores for large networks and one for small ones."""
    if "OMP_NUM_THREADS" not in os.environ and network_bytes(recipe, env) < 4 * WORTH_DIVIDING:
        return 1
    return min(torch.get_num_threads(), available_cores())  # PyTorch counts cores, not what shares one


def available_cores(root: Path = Path("/")) -> int:
    """Cores that this process may use: by its affinity, and by the container's limit if that is lower."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    with suppress(OSError, ValueError):  # "max" is not a number
        quota, period = (root / "sys/fs/cgroup/cpu.max").read_text().split()
        cores = min(cores, int(quota) // int(period))
    return max(cores, 1)


@contextmanager
def threads_restored() -> Iterator[None]:
    """Afterwards PyTorch has as many threads as before."""
    before = torch.get_num_threads()
    try:
        yield
    finally:
        torch.set_num_threads(before)


def check_device(device: str) -> None:
    """Reject a device that PyTorch does not have."""
    try:
        torch.zeros(1, device=device).item()  # a device without data ("meta") fails too
    except (RuntimeError, AssertionError) as error:
        kind = device.partition(":")[0]
        reason = f" ({str(error).splitlines()[0]})" if kind in ("cuda", "mps", "xpu") else ""
        raise UserError(
            f'--device is "{device}"; accepted: cpu, cuda, cuda:1, as far as PyTorch finds them here{reason}'
        ) from None
