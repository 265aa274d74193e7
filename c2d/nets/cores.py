"""Cores: memory between encoder and head. What is remembered of an episode is a vector [K], zeros when it begins.

    observation -> encoder -> features, previous action, previous reward -> cell with memory -> head

The memory is carried by whoever plays (`Stream` in agents/rollout.py), and stored by the replay where sequences begin.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from c2d.types import Purpose, Sequences


class RecurrentCell(Protocol):
    """A recurrent module: what a declaration of a core builds."""

    features: int  # H of its output
    memory: int  # K of its state

    def __call__(self, x: Tensor, memory: Tensor) -> tuple[Tensor, Tensor]:
        """T steps of B sequences, and the memory after the last. [B, T, D], [B, K] -> [B, T, H], [B, K]"""
        ...


class Core(nn.Module):
    """A cell with what it is fed: the encoder's features and, with `fed`, what was done before and what it earned.

    The action is one-hot, zeros where an episode begins. The reward is as the learner sees it, clipped if the recipe
    clips, and then squeezed by the recipe's φ as returns are: clipped rewards are bounded, raw ones of any size are
    tame, and no setting is needed.
    """

    def __init__(
        self, cell: RecurrentCell, actions: int, fed: bool = True, squeeze: Callable[[Tensor], Tensor] = torch.asinh
    ) -> None:
        super().__init__()
        self.cell, self.actions, self.fed, self.squeeze = cell, actions, fed, squeeze
        self.features, self.memory = cell.features, cell.memory

    def step(self, features: Tensor, action: Tensor, reward: Tensor, memory: Tensor) -> tuple[Tensor, Tensor]:
        """One step of B games. [B, D], [B], [B], [B, K] -> [B, H], [B, K]"""
        out, memory = self.cell(self.inputs(features, action, reward).unsqueeze(1), memory)
        return out.squeeze(1), memory

    def first(self, features: Tensor) -> Tensor:
        """The first step of B episodes: nothing was done, earned or remembered. [B, D] -> [B, H]"""
        nothing = features.new_zeros(len(features))
        before = torch.full_like(nothing, -1, dtype=torch.int64)
        return self.step(features, before, nothing, features.new_zeros(len(features), self.memory))[0]

    def inputs(self, features: Tensor, action: Tensor, reward: Tensor) -> Tensor:
        """[F, D], [F], [F] -> [F, D + A + 1], or the features alone."""
        if not self.fed:
            return features
        before = F.one_hot(action + 1, self.actions + 1)[:, 1:].to(features.dtype)  # [F, A]
        return torch.cat((features, before, self.squeeze(reward).unsqueeze(1)), 1)

    def unroll(self, encoder: Callable[[Tensor, Purpose], Tensor], given: Sequences, purpose: Purpose) -> Tensor:
        """Outputs at all places of the grid; where it has no observation they mean nothing. -> [B·T, H]

        The burn-in is run without gradient, and moves no statistics of the encoder.
        """
        earlier = len(given.burn_in)
        memory = self._after_burn_in(encoder, given, "act" if purpose == "act" else "target")
        x = self.inputs(encoder(given.obs, purpose), given.action[earlier:], given.reward[earlier:])  # [F, D']
        rows = len(memory) * given.steps
        grid = x if len(x) == rows else x.new_zeros(rows, x.shape[1]).index_copy(0, given.place, x)
        out, _ = self.cell(grid.view(len(memory), given.steps, -1), memory)  # [B, T, H]
        return out.flatten(0, 1)

    @torch.no_grad()
    def _after_burn_in(
        self, encoder: Callable[[Tensor, Purpose], Tensor], given: Sequences, purpose: Purpose
    ) -> Tensor:  # [B, K]
        """The memory of each stretch where its burn-in ends. Stretches of equal burn-in run together."""
        earlier = len(given.burn_in)
        if not earlier:
            return given.memory
        x = self.inputs(encoder(given.burn_in, purpose), given.action[:earlier], given.reward[:earlier])
        parts, row, start = [], 0, 0
        for stretches, length in given.burn_ins:
            memory, end = given.memory[row : row + stretches], start + stretches * length
            if length:
                _, memory = self.cell(x[start:end].view(stretches, length, -1), memory)
            parts.append(memory)
            row, start = row + stretches, end
        return torch.cat(parts)


class _Recurrent(nn.Module):
    """PyTorch's cell in one layer; initial weights and biases uniform in ±1/√H, as PyTorch draws them.

    Those of the gate that keeps the memory are centered at 1, so that a fresh cell remembers for longer than a step or
    two (Jozefowicz et al. 2015): at 0 half of it would be lost in every step.
    """

    keeps = slice(0, 0)  # of the gates, in PyTorch's order, the one that keeps the memory

    def __init__(self, cell: nn.LSTM | nn.GRU, hidden: int, memory: int) -> None:
        super().__init__()
        self.cell, self.features, self.memory = cell, hidden, memory

    def initialize(self, rng: torch.Generator) -> None:
        bound = 1.0 / math.sqrt(self.features)
        for parameter in self.cell.parameters():
            nn.init.uniform_(parameter, -bound, bound, generator=rng)
        with torch.no_grad():
            bias: Any = self.cell.bias_ih_l0  # of all gates, one after the other
            bias.view(-1, self.features)[self.keeps].add_(1.0)


class LstmCell(_Recurrent):
    """Long short-term memory (Hochreiter and Schmidhuber 1997); its memory is output and cell state."""

    keeps = slice(1, 2)  # the forget gate

    def __init__(self, inputs: int, hidden: int) -> None:
        super().__init__(nn.LSTM(inputs, hidden, batch_first=True), hidden, 2 * hidden)

    def forward(self, x: Tensor, memory: Tensor) -> tuple[Tensor, Tensor]:
        output, cell = (part.contiguous() for part in memory.unsqueeze(0).chunk(2, -1))  # [1, B, H] each
        out, (output, cell) = self.cell(x, (output, cell))
        return out, torch.cat((output, cell), -1).squeeze(0)


class GruCell(_Recurrent):
    """Gated recurrent unit (Cho et al. 2014); its memory is its output."""

    keeps = slice(1, 2)  # the update gate

    def __init__(self, inputs: int, hidden: int) -> None:
        super().__init__(nn.GRU(inputs, hidden, batch_first=True), hidden, hidden)

    def forward(self, x: Tensor, memory: Tensor) -> tuple[Tensor, Tensor]:
        out, after = self.cell(x, memory.unsqueeze(0).contiguous())
        return out, after.squeeze(0)
