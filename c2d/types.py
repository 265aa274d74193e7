"""The data that flows between the parts of the system. Imports nothing else of the package.

Shape legend, used in comments everywhere:
    B batch    A actions    N, M atoms of a law    D features    S stacked frames    C H W channels, height, width
    T steps of a trajectory    P games played in parallel    K numbers of a core's memory
Laws live in φ-space: an atom z stands for the real return φ⁻¹(z).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:  # environments and reports use this module without paying for torch
    import numpy as np
    from torch import Tensor

# What a pass of a network is for; `nets/network.py` turns it into normalization modes.
#   act      running statistics, nothing is updated
#   choose   batch statistics (greedy choice inside an update)
#   predict  batch statistics, and the running ones move
#   target   batch statistics, nothing is updated
Purpose = Literal["act", "choose", "predict", "target"]


class ResetFrame(NamedTuple):
    """The first frame of a learner's episode. It is pushed `repeats` times onto a stack of zeros."""

    frame: np.ndarray  # [*frame_shape]
    repeats: int = 1
    legal: np.ndarray | None = None  # [A] bool: the actions that may be taken here; None: all


class GameEnd(NamedTuple):
    """A whole game (not a life) ended."""

    score: float  # sum of raw rewards
    steps: int  # agent steps


class FinishedGame(NamedTuple):
    """A whole game of a run."""

    score: float
    steps: int
    env: int = 0  # which environment of the run played it


class Step(NamedTuple):
    """The result of one agent step. A learner's episode may end (life loss) while the game continues.

    What the learner sees of it is decided by `learner_view` in `replay/buffer.py` alone.
    """

    frame: np.ndarray  # [*frame_shape] newest observation; the true final one when the episode ended
    reward: float  # raw: never clipped, never scaled
    terminal: bool  # the learner's episode ended and nothing can follow (discount 0)
    truncated: bool  # the learner's episode was cut short by a time limit; more would have followed
    reset: ResetFrame | None  # of the next episode, if this one ended (the environment resets itself)
    game: GameEnd | None  # set when a whole game ended
    legal: np.ndarray | None = None  # [A] bool: the actions that may follow `frame`; None: all, or nothing follows


class Sight(NamedTuple):
    """What a network with memory acts by: the newest observations, what came before them, what is remembered."""

    obs: np.ndarray  # [B, *obs]
    action: np.ndarray  # [B] i64 the one before; -1: none, the episode begins
    reward: np.ndarray  # [B] f32 raw, that came with the observation; 0 if the episode begins
    memory: np.ndarray  # [B, K] f32 before the observation; zeros if the episode begins


class Sequences(NamedTuple):
    """B stretches of episodes for networks with memory, in order of time, one after the other; and what is read there.

    A stretch has a burn-in, which only prepares the memory, and then up to T observations. Nothing is padded:
    E and F count observations that exist, and `read` names the R of them whose features are wanted. So B in `Batch`
    is R, and every loss, statistic and mean is over steps that exist.
    """

    burn_in: Tensor  # [E, *obs] u8 or f32
    obs: Tensor  # [F, *obs] what follows it
    action: Tensor  # [E + F] i64 taken before each of them, those of `burn_in` first; -1: none, the episode begins
    reward: Tensor  # [E + F] f32 that came with each, as the learner sees it
    memory: Tensor  # [B, K] f32 before the first observation of each stretch, as it was when it was played
    place: Tensor  # [F] i64 of each in the grid [B, T], row by row
    read: Tensor  # [R] i64 places in that grid
    burn_ins: tuple[tuple[int, int], ...]  # (stretches, length of their burn-in), in order of the stretches
    steps: int  # T


class Batch(NamedTuple):
    """All that an algorithm knows about data. Ends are folded into rewards and discounts: no loss sees `done`.

    For networks with memory, B counts the steps that are read of all sequences together.
    """

    obs: Tensor | Sequences  # [B, *obs] u8 or f32
    action: Tensor  # [B] i64
    reward: Tensor  # [B] f32   Σ_{k<m} γ^k r_{t+k}, m ≤ n
    discount: Tensor  # [B] f32   γ^m; 0 after a terminal
    next_obs: Tensor | Sequences  # [B, *obs]
    weight: Tensor  # [B] f32   1 when sampling is uniform
    indices: Tensor  # [B] i64   for priority feedback; always on the host
    legal: Tensor | None = None  # [B, A] bool   the actions that may be taken at obs; None: all
    next_legal: Tensor | None = None  # [B, A] bool   at next_obs


class ReturnDist(NamedTuple):
    """A discrete law Σ_k p_k δ_{z_k} with atoms in φ-space. Atoms need not be sorted."""

    atoms: Tensor  # [..., N]
    log_probs: Tensor  # [..., N]
    taus: Tensor | None = None  # [..., N] quantile heads only


class Phi(NamedTuple):
    """An increasing homeomorphism of R onto (low, high), with its inverse."""

    to: Callable[[Tensor], Tensor]
    back: Callable[[Tensor], Tensor]
    low: float = -float("inf")
    high: float = float("inf")


class Update(NamedTuple):
    """What one gradient step reports, where it was computed: reading a number of it would wait for the device."""

    loss: Tensor  # []
    indices: np.ndarray  # [B] i64 of the batch
    priority: Tensor  # [B] f32 loss of the sample, or what else the sampler draws by
    metrics: dict[str, Tensor]  # [] each


class FetchedUpdate(NamedTuple):
    """The same on the host, as `fetch` in `agents/learner.py` brings it there."""

    loss: float
    indices: np.ndarray  # [B] i64 of the batch
    priority: np.ndarray  # [B] f32 loss of the sample, or what else the sampler draws by
    metrics: dict[str, float]
