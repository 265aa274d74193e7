"""Optimizers: PyTorch's kernels called directly. On small networks `torch.optim` spends more time around them."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.autograd.graph import increment_version

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

    def _gradients(self) -> tuple[list[int], list[Tensor], Tensor]:
        """Which parameters have gradients, these, and their global norm."""
        used = [k for k, p in enumerate(self.parameters) if p.grad is not None]
        gradients = [p.grad for p in self.parameters if p.grad is not None]
        norm: Tensor = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(gradients)))  # type: ignore[arg-type]
        return used, gradients, norm


class Adam(_Moments):
    """Adam with a bound on the global gradient norm, as one fused kernel."""

    def __init__(self, parameters: Iterable[nn.Parameter], optim: Optim) -> None:
        super().__init__(parameters)
        self.optim = optim
        self._updates = torch.zeros((), device=self.parameters[0].device)  # steps made, where the kernel reads them

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
        used, gradients, norm = self._gradients()
        self.updates += 1
        self._updates.fill_(self.updates)
        eps = optim.eps
        if optim.eps_form == "keras":  # deviates: D03
            eps /= math.sqrt(1.0 - optim.beta2**self.updates)
        torch._fused_adam_(
            [self.parameters[k] for k in used],
            gradients,
            [self.mean[k] for k in used],
            [self.square[k] for k in used],
            [],
            [self._updates] * len(used),
            lr=learning_rate,
            beta1=optim.beta1,
            beta2=optim.beta2,
            weight_decay=0.0,
            eps=eps,
            amsgrad=False,
            maximize=False,
            # the kernel divides gradients by this on its way through
            grad_scale=None if optim.clip_norm is None else torch.clamp(norm / optim.clip_norm, min=1.0),
        )
        increment_version(self.parameters)  # the kernel itself does not tell that it changed them
        return norm


class CentredRmsProp(_Moments):
    """θ ← θ − lr·g / √(E[g²] − E[g]² + ε), as in TensorFlow 1, where E[g²] begins at 1."""

    def __init__(self, parameters: Iterable[nn.Parameter], optim: RmsProp) -> None:
        super().__init__(parameters)
        self.optim = optim
        torch._foreach_add_(self.square, 1.0)

    @torch.no_grad()
    def step(self) -> Tensor:
        optim = self.optim
        used, gradients, norm = self._gradients()
        self.updates += 1
        if optim.clip_norm is not None:
            torch._foreach_div_(gradients, torch.clamp(norm / optim.clip_norm, min=1.0))
        parameters: list[Tensor] = [self.parameters[k] for k in used]
        mean, square = [self.mean[k] for k in used], [self.square[k] for k in used]
        torch._foreach_lerp_(mean, gradients, 1.0 - optim.decay)
        torch._foreach_mul_(square, optim.decay)
        torch._foreach_addcmul_(square, gradients, gradients, value=1.0 - optim.decay)
        variance = torch._foreach_addcmul(square, mean, mean, value=-1.0)
        torch._foreach_clamp_min_(variance, 0.0)
        torch._foreach_add_(variance, optim.eps)
        torch._foreach_sqrt_(variance)
        torch._foreach_addcdiv_(parameters, gradients, variance, value=-optim.learning_rate)
        return norm
