"""The only gradient step of the project. It knows laws, not algorithms."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from c2d.agents.optimizer import Optimizer
from c2d.nets.network import ValueNetwork, synchronize
from c2d.returns.bellman import backup
from c2d.returns.bootstrap import Bootstrap, Laws
from c2d.returns.values import at_action
from c2d.types import Batch, Phi, ReturnDist, Update

Loss = Callable[[ReturnDist, ReturnDist], Tensor]  # prediction [B, N], target [B, M] -> [B]
# features, prediction [B, N], action [B], generator -> [B]: what a head trains beside its law
Auxiliary = Callable[[Tensor, ReturnDist, Tensor, torch.Generator | None], Tensor]


class Learner:
    """Owns the online and the target network and the optimizers, of which the first trains the law."""

    def __init__(
        self,
        online: ValueNetwork,
        target: ValueNetwork,
        phi: Phi,
        loss: Loss,
        bootstrap: Bootstrap,
        optimizers: list[Optimizer],
        rng: torch.Generator,
        auxiliary: Auxiliary | None = None,
        polyak: float | None = None,
    ) -> None:
        self.online, self.target = online, target
        self.phi, self.loss, self.bootstrap = phi, loss, bootstrap
        self.optimizers, self.rng, self.auxiliary, self.polyak = optimizers, rng, auxiliary, polyak
        for parameter in target.parameters():
            parameter.requires_grad_(False)
        synchronize(target, online)

    @property
    def updates(self) -> int:
        """Gradient steps made."""
        return self.optimizers[0].updates

    def synchronize(self) -> None:
        """When its period is over: copy the online network to the target network, unless it follows each update."""
        if self.polyak is None:
            synchronize(self.target, self.online)

    def tensors(self) -> dict[str, Tensor]:
        """Networks with their normalization statistics, and the optimizers: its state, to copy from or into."""
        parts = {"online": self.online.state_dict(), "target": self.target.state_dict()}
        parts |= {f"optimizer.{k}": optimizer.tensors() for k, optimizer in enumerate(self.optimizers)}
        return {f"{part}.{name}": tensor for part, tensors in parts.items() for name, tensor in tensors.items()}

    def update(self, batch: Batch) -> Update:
        """One step of Algorithm 2 (and of every other recipe): predict, back up, compare, descend."""
        features = self.online.features(batch.obs, "predict")
        predicted: ReturnDist = self.online.head(features, "predict", self.rng)  # [B, A, N]
        prediction = at_action(predicted, batch.action)  # [B, N]
        target = self._target(batch, predicted)  # [B, M]
        per_sample = self.loss(prediction, target)  # [B]
        loss = (per_sample * batch.weight).mean()
        total = loss
        if self.auxiliary is not None:
            # summed over the batch, as FQF's authors do: its optimizer has a rate of its own
            total = loss + (self.auxiliary(features, prediction, batch.action, self.rng) * batch.weight).sum()
        for optimizer in self.optimizers:
            optimizer.clear()
        total.backward()  # type: ignore[no-untyped-call]
        norm, *_ = [optimizer.step() for optimizer in self.optimizers]
        if self.polyak is not None:
            synchronize(self.target, self.online, self.polyak)
        low, high = torch.aminmax(prediction.atoms.detach())
        metrics = {"atom_min": float(low), "atom_max": float(high), "gradient_norm": float(norm)}
        return Update(float(loss.detach()), batch.index.cpu().numpy(), per_sample.detach().cpu().numpy(), metrics)

    @torch.no_grad()
    def _target(self, batch: Batch, predicted: ReturnDist) -> ReturnDist:
        """The law that the prediction is compared with. -> [B, M]"""
        choose, law = self.target.choose_and_target(batch.next_obs, self.rng, predicted)
        if self.bootstrap.online_chooses:
            choose = self.online(batch.next_obs, "choose", self.rng)
        now = self.target(batch.obs, "choose", self.rng) if self.bootstrap.needs_target_now else None
        reward, law = self.bootstrap.fn(Laws(law, choose, now), batch, self.phi)
        return backup(reward, batch.discount, law, self.phi)
