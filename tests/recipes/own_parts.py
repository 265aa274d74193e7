"""Parts as a user writes them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import torch
from torch import nn

from c2d.nets.heads import Head, Output
from c2d.recipes.part import EncoderSpec, HeadSpec, LossSpec
from c2d.recipes.parts import RmsProp
from c2d.types import Phi, ReturnDist
from c2d.validation import between


@dataclass(frozen=True)
class MyHead(HeadSpec):
    """Probabilities on a grid, and a trained scale."""

    size: Annotated[int, between(2, 9)] = 5
    """Atoms of the grid."""
    rate: float = 0.01
    """Learning rate of the scale."""

    gives = ("grid",)

    def build(self, features, actions, style):
        return GridHead(features, actions, style, self.size, self.rate)


class GridHead(Head):
    constants = ("scale",)

    def __init__(self, features, actions, style, size, rate):
        super().__init__()
        self.output = Output(features, actions, size, style)
        self.scale = nn.Parameter(torch.tensor(1.0))
        self.rate = rate
        self.register_buffer("grid", torch.linspace(-5, 5, size), persistent=False)

    def forward(self, features, purpose, rng=None, like=None):
        log_probs = self.output(features, rng).log_softmax(-1)
        return ReturnDist(self.grid.expand_as(log_probs), log_probs)

    def auxiliary(self, features, prediction, action, rng):
        return (self.scale - 3.0).square().expand(len(action))

    def trained_apart(self):
        return [(RmsProp(learning_rate=self.rate), [self.scale])]

    def diagnostics(self):
        return {"scale": self.scale.item()}


@dataclass(frozen=True)
class NeedsColor(LossSpec):
    """A loss that no head fits."""

    needs = ("color",)


@dataclass(frozen=True)
class NotAModule(EncoderSpec):
    """Builds something else."""

    def build(self, env):
        return 3


@dataclass(frozen=True)
class GlobalWeights(EncoderSpec):
    """Weights without a rule."""

    attention: bool = False

    def build(self, env):
        encoder = Drawn() if self.attention else nn.LSTM(env.obs_shape[0], 8)
        encoder.features = 8
        return encoder


class Drawn(nn.Module):
    """Draws the weights of a layer that has no rule."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Bilinear(1, 1, 8)

    def initialize(self, rng):
        for parameter in self.parameters():
            nn.init.normal_(parameter, generator=rng)


sine = Phi(torch.sin, torch.asin)
wrong_inverse = Phi(torch.asinh, torch.tanh)
overflow = Phi(lambda x: x / 0, lambda y: y)
in_words = Phi("sin", "asin")
raising = Phi(torch.atan, lambda y: y.tangent())
