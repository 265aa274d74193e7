"""Optimizers: PyTorch's functions called directly. On small networks the classes of `torch.optim` cost more time."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.autograd.graph import increment_version
from torch.optim.adam import adam

from c2d.agents.parts import Optim, RmsProp
from c2d.agents.schedules import linear


class Optimizer(Protocol):
    """Moves some parameters by their gradients."""

    updates: int  # steps made

    def clear(self) -> None:
        """Forget the gradients of the last step."""
        ...

    def step(self) -> Tensor:
        """Clip by the global norm and descend; returns the norm before clipping."""
        ...

    def tensors(self) -> dict[str, Tensor]:
        """All it has learned about gradients, by name; with `updates`, its whole state."""
        ...


class _Moments:
    """Parameters and, for each, two running means."""

    def __init__(self, parameters: Iterable[nn.Parameter]) -> None:
        self.parameters = [p for p in parameters if p.requires_grad]
        self.mean = [torch.zeros_like(p) for p in self.parameters]  # of gradients
        self.square = [torch.zeros_like(p) for p in self.parameters]  # of their squares
        self.updates = 0

    def clear(self) -> None:
        for parameter in self.parameters:
            parameter.grad = None

    def tensors(self) -> dict[str, Tensor]:
        moments = {"mean": self.mean, "square": self.square}
        return {f"{name}.{k}": tensor for name, kept in moments.items() for k, tensor in enumerate(kept)}

    def _clipped(self, clip_norm: float | None) -> tuple[list[int], list[Tensor], Tensor]:
        """Which parameters have gradients, these within the bound, and their global norm before."""
        used = [k for k, p in enumerate(self.parameters) if p.grad is not None]
        gradients = [p.grad for p in self.parameters if p.grad is not None]
        norm: Tensor = torch.linalg.vector_norm(torch.stack([torch.linalg.vector_norm(g) for g in gradients]))
        if clip_norm is not None and not norm <= clip_norm:  # NaN too
            factor = norm / clip_norm
            for gradient in gradients:
                gradient.div_(factor)
        return used, gradients, norm


class Adam(_Moments):
    """Adam with a bound on the global gradient norm, as one fused kernel."""

    def __init__(self, parameters: Iterable[nn.Parameter], optim: Optim) -> None:
        super().__init__(parameters)
        self.optim = optim
        self._updates = torch.zeros(len(self.parameters), device=self.parameters[0].device)  # for each, steps made
        self._counters = list(self._updates.unbind())  # views of it

    @property
    def learning_rate(self) -> float:
        """Of the next step."""
        optim = self.optim
        if optim.learning_rate_final is None:
            return optim.learning_rate
        return linear(self.updates, optim.learning_rate, optim.learning_rate_final, optim.decay_updates)

    @torch.no_grad()
    def step(self) -> Tensor:
        optim, learning_rate = self.optim, self.learning_rate
        used, gradients, norm = self._clipped(optim.clip_norm)
        self._updates.fill_(self.updates)  # `adam` counts this step
        self.updates += 1
        eps = optim.eps
        if optim.eps_form == "keras":  # deviates: D03
            eps /= math.sqrt(1.0 - optim.beta2**self.updates)
        adam(
            [self.parameters[k] for k in used],
            gradients,
            [self.mean[k] for k in used],
            [self.square[k] for k in used],
            [],
            [self._counters[k] for k in used],
            fused=True,
            lr=learning_rate,
            beta1=optim.beta1,
            beta2=optim.beta2,
            weight_decay=0.0,
            eps=eps,
            amsgrad=False,
            maximize=False,
        )
        increment_version(self.parameters)  # the kernel itself does not tell that it changed them
        return norm


class CenteredRmsProp(_Moments):
    """θ ← θ − lr·g / √(E[g²] − E[g]² + ε), as in TensorFlow 1, where E[g²] begins at 1."""

    def __init__(self, parameters: Iterable[nn.Parameter], optim: RmsProp) -> None:
        super().__init__(parameters)
        self.optim = optim
        for square in self.square:
            square.fill_(1.0)

    @torch.no_grad()
    def step(self) -> Tensor:
        optim = self.optim
        used, gradients, norm = self._clipped(optim.clip_norm)
        self.updates += 1
        for k, gradient in zip(used, gradients, strict=True):
            mean, square = self.mean[k], self.square[k]
            mean.lerp_(gradient, 1.0 - optim.decay)
            square.mul_(optim.decay).addcmul_(gradient, gradient, value=1.0 - optim.decay)
            variance = torch.addcmul(square, mean, mean, value=-1.0).clamp_min_(0.0)
            deviation = variance.add_(optim.eps).sqrt_()
            self.parameters[k].addcdiv_(gradient, deviation, value=-optim.learning_rate)
        return norm
