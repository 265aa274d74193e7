"""Predicted laws along whole games, and the discounted returns that were realized from there.

Which steps count is decided by time alone, never by how a game went. A truncated game hides what would have followed.
If one was truncated after T steps, then in all games only steps up to T − K count, where γ^K ≤ 1 %: what is hidden
weighs at most that in their returns. Dropping only the last steps of the truncated games would drop good games and
keep bad ones. Of the steps that count, every 2^m-th is kept, so that there are not too many.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from torch import Tensor

from c2d.replay.buffer import horizon, learner_view
from c2d.types import Step


class Sample(NamedTuple):
    """Predictions and what was realized. Laws are of the action that was taken."""

    game: np.ndarray  # [n] i64 number of the game
    returns: np.ndarray  # [n, N] f64 atoms as real returns
    probs: np.ndarray  # [n, N] f64
    realized: np.ndarray  # [n] f64 discounted return from there
    stride: int  # every so many steps of a game
    dropped: int  # steps too near to the earliest truncation, before thinning
    cut_after: int | None  # steps of the shortest truncated game; None: there is none
    horizon: int  # K


class PredictionLog:
    """Records games as they are played."""

    def __init__(self, gamma: float, clip: float | None = None, truncation: str = "drop", limit: int = 8_192) -> None:
        self.gamma, self.clip, self.truncation, self.limit = gamma, clip, truncation, limit
        self.stride = 1
        self._rewards: dict[int, list[float]] = {}
        self._ends: dict[int, list[bool]] = {}  # whether nothing follows, as the learner sees it
        self._cuts: list[int] = []  # steps after which games were truncated
        self._laws: dict[tuple[int, int], tuple[np.ndarray, np.ndarray]] = {}  # (game, step) -> 2 × [N]

    def follow(self, number: int, step: Step, returns: Tensor, probs: Tensor) -> None:
        """One step of a game, and the law [N] predicted for it before it was made."""
        rewards, ends = self._rewards.setdefault(number, []), self._ends.setdefault(number, [])
        time = len(rewards)
        seen = learner_view(step, self.truncation, self.clip)
        rewards.append(seen.reward)
        ends.append(seen.terminal)
        if step.truncated and not seen.terminal:
            self._cuts.append(time + 1)
        if time % self.stride == 0:
            self._laws[number, time] = (returns.cpu().numpy().copy(), probs.cpu().numpy().copy())
            if len(self._laws) > self.limit:
                self.stride *= 2
                self._laws = {key: law for key, law in self._laws.items() if key[1] % self.stride == 0}

    def sample(self) -> Sample:
        """The steps that count."""
        hidden = horizon(self.gamma)
        last = min(self._cuts) - hidden if self._cuts else math.inf
        steps = sum(map(len, self._rewards.values()))
        counted = sum(min(len(rewards), max(0, last + 1)) for rewards in self._rewards.values())
        realized = {number: self._realized(number) for number in self._rewards}
        keys = sorted(key for key in self._laws if key[1] <= last)
        laws = [self._laws[key] for key in keys]
        empty = np.zeros((0, 1))
        return Sample(
            np.array([number for number, _ in keys], dtype=np.int64),
            np.stack([law[0] for law in laws]).astype(np.float64) if laws else empty,
            np.stack([law[1] for law in laws]).astype(np.float64) if laws else empty,
            np.array([realized[number][time] for number, time in keys], dtype=np.float64),
            self.stride,
            int(steps - counted),
            min(self._cuts) if self._cuts else None,
            hidden,
        )

    def _realized(self, number: int) -> np.ndarray:
        """G_t = r_t + γ G_{t+1}, nothing after an end. [T]"""
        rewards, ends = self._rewards[number], self._ends[number]
        out, later = np.empty(len(rewards)), 0.0
        for time in range(len(rewards) - 1, -1, -1):
            later = rewards[time] + (0.0 if ends[time] else self.gamma * later)
            out[time] = later
        return out
