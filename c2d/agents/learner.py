"""The only gradient step of the project. It knows laws, not algorithms."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from c2d.agents.recipe import Optim
from c2d.agents.schedules import linear
from c2d.nets.network import ValueNetwork, synchronize
from c2d.returns.bellman import backup
from c2d.returns.bootstrap import Bootstrap, Laws
from c2d.returns.values import at_action
from c2d.types import Batch, Phi, ReturnDist, Update

Loss = Callable[[ReturnDist, ReturnDist], Tensor]  # prediction [B, N], target [B, M] -> [B]


class Learner:
    """Owns the online and the target network and the optimizer."""

    def __init__(
        self,
        online: ValueNetwork,
        target: ValueNetwork,
        phi: Phi,
        loss: Loss,
        bootstrap: Bootstrap,
        optim: Optim,
    ) -> None:
        self.online, self.target = online, target
        self.phi, self.loss, self.bootstrap, self.optim = phi, loss, bootstrap, optim
        self._parameters = [p for p in online.parameters() if p.requires_grad]
        self.optimizer = torch.optim.Adam(
            self._parameters,
            lr=optim.learning_rate,
            betas=(optim.beta1, optim.beta2),
            eps=optim.eps,
            fused=True,
        )
        self.updates = 0
        for parameter in target.parameters():
            parameter.requires_grad_(False)
        self.synchronize()

    def synchronize(self) -> None:
        """Copy the online network to the target network."""
        synchronize(self.target, self.online)

    def update(self, batch: Batch) -> Update:
        """One step of Algorithm 2 (and of every other recipe): predict, back up, compare, descend."""
        with torch.no_grad():
            laws = Laws(
                self.target(batch.next_obs, "target"),
                self.online(batch.next_obs, "choose") if self.bootstrap.needs_online_next else None,
                self.target(batch.obs, "target") if self.bootstrap.needs_target_now else None,
            )
            reward, law = self.bootstrap.fn(laws, batch, self.phi)
            target = backup(reward, batch.discount, law, self.phi)  # [B, M]
        prediction = at_action(self.online(batch.obs, "predict"), batch.action)  # [B, N]
        per_sample = self.loss(prediction, target)  # [B]
        loss = (per_sample * batch.weight).mean()
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        norm = self._descend()
        low, high = torch.aminmax(prediction.atoms.detach())
        metrics = {"atom_min": float(low), "atom_max": float(high), "gradient_norm": float(norm)}
        return Update(float(loss.detach()), batch.index.cpu().numpy(), per_sample.detach().cpu().numpy(), metrics)

    def _descend(self) -> Tensor:
        """Clip by the global norm and step; returns the norm before clipping."""
        gradients = [p.grad for p in self._parameters if p.grad is not None]
        norm: Tensor = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(gradients)))
        if self.optim.clip_norm is not None:  # the fused kernel divides gradients by this on its way through
            self.optimizer.grad_scale = torch.clamp(norm / self.optim.clip_norm, min=1.0)  # type: ignore[attr-defined]
            self.optimizer.found_inf = torch.zeros_like(norm)  # type: ignore[attr-defined]
        group = self.optimizer.param_groups[0]
        if self.optim.learning_rate_final is not None:
            start, end = self.optim.learning_rate, self.optim.learning_rate_final
            group["lr"] = linear(self.updates, start, end, self.optim.decay_updates)
        self.updates += 1
        if self.optim.eps_form == "keras":  # deviates: D03
            correction = math.sqrt(1.0 - self.optim.beta2**self.updates)
            group["eps"] = self.optim.eps / correction
        self.optimizer.step()
        return norm
