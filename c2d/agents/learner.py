"""The only gradient step of the project. It knows laws, not algorithms."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from c2d.agents.optimizer import Adam
from c2d.agents.recipe import Optim
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
        self.phi, self.loss, self.bootstrap = phi, loss, bootstrap
        self.optimizer = Adam(online.parameters(), optim)
        for parameter in target.parameters():
            parameter.requires_grad_(False)
        self.synchronize()

    @property
    def updates(self) -> int:
        """Gradient steps made."""
        return self.optimizer.updates

    def synchronize(self) -> None:
        """Copy the online network to the target network."""
        synchronize(self.target, self.online)

    def tensors(self) -> dict[str, Tensor]:
        """Networks with their normalization statistics, and the optimizer: its state, to copy from or into."""
        parts = {
            "online": self.online.state_dict(),
            "target": self.target.state_dict(),
            "optimizer": self.optimizer.tensors(),
        }
        return {f"{part}.{name}": tensor for part, tensors in parts.items() for name, tensor in tensors.items()}

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
        self.optimizer.clear()
        loss.backward()  # type: ignore[no-untyped-call]
        norm = self.optimizer.step()
        low, high = torch.aminmax(prediction.atoms.detach())
        metrics = {"atom_min": float(low), "atom_max": float(high), "gradient_norm": float(norm)}
        return Update(float(loss.detach()), batch.index.cpu().numpy(), per_sample.detach().cpu().numpy(), metrics)
