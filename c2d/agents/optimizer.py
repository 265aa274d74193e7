"""Adam with a bound on the global gradient norm, as one fused kernel."""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch
from torch import Tensor, nn

from c2d.agents.recipe import Optim
from c2d.agents.schedules import linear


class Adam:
    """Calls PyTorch's fused kernel itself: on small networks `torch.optim` spends more time around it than in it."""

    def __init__(self, parameters: Iterable[nn.Parameter], optim: Optim) -> None:
        self.optim = optim
        self.parameters = [p for p in parameters if p.requires_grad]
        self.mean = [torch.zeros_like(p) for p in self.parameters]  # of gradients
        self.square = [torch.zeros_like(p) for p in self.parameters]  # mean of their squares
        self.updates = 0  # steps made
        self._updates = torch.zeros((), device=self.parameters[0].device)  # the same, where the kernel reads it

    @property
    def learning_rate(self) -> float:
        """Of the next step."""
        optim = self.optim
        if optim.learning_rate_final is None:
            return optim.learning_rate
        return linear(self.updates, optim.learning_rate, optim.learning_rate_final, optim.decay_updates)

    def tensors(self) -> dict[str, Tensor]:
        """All it has learned about gradients, by name; with `updates`, its whole state."""
        moments = {"mean": self.mean, "square": self.square}
        return {f"{name}.{k}": tensor for name, kept in moments.items() for k, tensor in enumerate(kept)}

    def clear(self) -> None:
        """Forget the gradients of the last step."""
        for parameter in self.parameters:
            parameter.grad = None

    @torch.no_grad()
    def step(self) -> Tensor:
        """Clip by the global norm and descend; returns the norm before clipping."""
        optim, learning_rate = self.optim, self.learning_rate
        used = [k for k, p in enumerate(self.parameters) if p.grad is not None]
        gradients = [self.parameters[k].grad for k in used]
        norm: Tensor = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(gradients)))  # type: ignore[arg-type]
        self.updates += 1
        self._updates.fill_(self.updates)
        eps = optim.eps
        if optim.eps_form == "keras":  # deviates: D03
            eps /= math.sqrt(1.0 - optim.beta2**self.updates)
        torch._fused_adam_(
            [self.parameters[k] for k in used],
            gradients,  # type: ignore[arg-type]
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
        return norm
