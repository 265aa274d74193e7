"""The last layers of every head: plain or dueling, of plain or noisy weights."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from c2d.nets.layers import NoisyLinear, PlainLinear


class Style(NamedTuple):
    """What the recipe says about the layers of its head."""

    dueling: bool = False
    noise: float | None = None  # σ₀; None: plain weights

    def linear(self, inputs: int, outputs: int) -> PlainLinear | NoisyLinear:
        if self.noise is None:
            return PlainLinear(inputs, outputs)
        return NoisyLinear(inputs, outputs, self.noise)


class Output(nn.Module):
    """Hidden units -> one row of `size` numbers per action. [..., D] -> [..., A, N]

    Dueling (Wang et al. 2016, Eq. 9): a row of the state plus rows of the actions, whose mean over actions is
    taken away, so that the two parts are determined by their sum.
    """

    def __init__(self, inputs: int, actions: int, size: int, style: Style) -> None:
        super().__init__()
        self.actions, self.size = actions, size
        self.advantage = style.linear(inputs, actions * size)
        self.value = style.linear(inputs, size) if style.dueling else None

    def forward(self, x: Tensor, rng: torch.Generator | None) -> Tensor:
        out: Tensor = self.advantage(x, rng).unflatten(-1, (self.actions, self.size))
        if self.value is not None:
            out = self.value(x, rng).unsqueeze(-2) + out - out.mean(-2, keepdim=True)
        return out
