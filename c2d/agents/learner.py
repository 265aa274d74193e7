"""The only gradient step of the project, and its optimizers. It knows return distributions, not algorithms.

Nothing in an update waits for the device: what it reports stays there until `fetch` (docs/gpu.md).

Optimizers call PyTorch's functions directly: on small networks the classes of `torch.optim` cost more time.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.autograd.graph import increment_version
from torch.optim.adam import adam

from c2d.nets.heads import saturation
from c2d.nets.network import ValueNetwork, average, synchronize
from c2d.recipes.parts import Adam, RmsProp
from c2d.recipes.recipe import Schedule, epsilon_ladder
from c2d.returns.bellman import Bootstrap, BootstrapLaws, at_action, backup, q_values
from c2d.returns.losses import Loss
from c2d.types import Batch, FetchedUpdate, Phi, Purpose, ReturnDist, Update

DIAGNOSED = 17  # of this many updates one reports how its laws look; a prime, so that it meets every phase of a period
_LARGEST_COUNT = 10**15  # no run makes this many updates

Losses = tuple[Tensor, Tensor, Tensor, dict[str, Tensor]]


class Learner:
    """Owns the online and the target network and the optimizers, of which the first trains the law."""

    def __init__(
        self,
        online: ValueNetwork,
        target_network: ValueNetwork,
        phi: Phi,
        loss: Loss,
        bootstrap: Bootstrap,
        optimizers: list[Optimizer],
        rng: torch.Generator,
        polyak: float | None = None,
        acting_average: float | None = None,  # decay per update of the mean of weights that acts
        compile: str = "off",  # a mode of torch.compile for `losses` and its gradient
        priority: Loss | None = None,  # what the sampler gets for each sample; None: its loss
    ) -> None:
        self.priority = priority
        self.online, self.target_network = online, target_network
        self.phi, self.loss, self.bootstrap = phi, loss, bootstrap
        self.optimizers, self.rng, self.polyak, self.acting_average = optimizers, rng, polyak, acting_average
        # What plays, is evaluated and is kept as the run's weights: the online network, or the mean of its weights.
        self.acting = online if acting_average is None else copy.deepcopy(online).requires_grad_(False)
        self._compiles = compile != "off"  # then diagnostics are always computed: one graph, in which they cost little
        self._losses = _compiled(self.losses, compile) if self._compiles else self.losses

    @property
    def updates(self) -> int:
        """Gradient steps made."""
        return self.optimizers[0].updates

    def state_dict(self) -> dict[str, Any]:
        """Networks with their normalization statistics, and the optimizers. Arrays may share memory with them."""
        mean = {"acting": _to_arrays(self.acting.state_dict())} if self.acting_average is not None else {}
        return {
            "online": _to_arrays(self.online.state_dict()),
            "target": _to_arrays(self.target_network.state_dict()),
            "optimizers": [optimizer.state_dict() for optimizer in self.optimizers],
            **mean,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """ValueError for what does not fit."""
        _copy_into(self.online.state_dict(), state["online"], "online")
        _copy_into(self.target_network.state_dict(), state["target"], "target")
        if self.acting_average is not None:  # a fork of a run without it begins with the online network
            _copy_into(self.acting.state_dict(), state.get("acting", state["online"]), "acting")
        for optimizer, saved in zip(self.optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(saved)

    def update(self, batch: Batch) -> Update:
        """One step of Algorithm 2 (and of every other recipe): predict, back up, compare, descend."""
        for optimizer in self.optimizers:
            optimizer.clear()
        diagnosed = self.updates % DIAGNOSED == 0
        total, loss, priority, metrics = self._losses(batch, diagnosed or self._compiles)
        total.backward()  # type: ignore[no-untyped-call]
        norm, *_ = [optimizer.step() for optimizer in self.optimizers]
        if self.polyak is not None:
            self.synchronize(self.polyak)
        if self.acting_average is not None:  # Σ_i d^(t−i) θ_i / Σ_i d^(t−i): initial weights do not count
            average(self.acting, self.online, (1 - self.acting_average) / (1 - self.acting_average**self.updates))
        always = {"atom_min": metrics["atom_min"], "atom_max": metrics["atom_max"], "gradient_norm": norm}
        return Update(loss, batch.indices.numpy(), priority, {**metrics, **always} if diagnosed else always)

    def losses(self, batch: Batch, diagnosed: bool = False) -> Losses:
        """What is descended, and without gradient: the loss, priorities of the samples [B], metrics [] of the batch."""
        features, following = self.online.features_and_next(batch.obs, batch.next_obs, "predict")
        predicted: ReturnDist = self.online.head(features, "predict", self.rng)  # [B, A, N]
        prediction = at_action(predicted, batch.action)  # [B, N]
        if self.online.scale is not None:
            self.online.scale.watch(q_values(predicted, self.phi).detach(), batch.legal)
        target = self.target(batch, predicted, False, following)  # [B, M]
        per_sample = self.loss(prediction, target)  # [B]
        loss = (per_sample * batch.weight).mean()
        total = loss
        auxiliary = self.online.head.auxiliary(features, prediction, batch.action, self.rng)  # [B]
        if auxiliary is not None:  # summed over the batch, as FQF's authors do: its optimizer has its own rate
            total = loss + (auxiliary * batch.weight).sum()
        atom_min, atom_max = torch.aminmax(prediction.atoms.detach())
        metrics = {"atom_min": atom_min, "atom_max": atom_max}
        if diagnosed:
            metrics |= diagnose(predicted, batch.action, target, self.phi, self.online.head.bound, batch.legal)
        with torch.no_grad():
            priority = per_sample.detach() if self.priority is None else self.priority(prediction, target)
        return total, loss.detach(), priority, metrics

    @torch.no_grad()
    def target(
        self,
        batch: Batch,
        predicted: ReturnDist | None = None,
        acting: bool = False,
        following: Tensor | None = None,
    ) -> ReturnDist:
        """The law that a prediction for `batch` is compared with. -> [B, M]

        `predicted` [B, A, N] is the online network's prediction at `batch.obs`, made here if it is not given, and
        `following` [B, D] are its features at `batch.next_obs`, if the same pass gave them. With
        `acting`, every pass is made as in acting: running statistics, no noise. So a batch may be a single step.
        """
        rng = None if acting else self.rng
        choosing: Purpose = "act" if acting else "choose"
        if predicted is None:
            predicted = self.online(batch.obs, "act" if acting else "target", rng)
        if acting:
            choose = law = self.target_network(batch.next_obs, "act", None, predicted)
        else:
            choose, law = self.target_network.choose_and_target(batch.next_obs, rng, predicted)
        if self.bootstrap.online_chooses:
            if following is None:
                following = self.online.features(batch.next_obs, choosing)
            choose = self.online.head(following, choosing, rng)
        now = self.target_network(batch.obs, choosing, rng) if self.bootstrap.needs_target_now else None
        online_now = predicted if self.bootstrap.needs_online_now else None
        scale = None if self.online.scale is None else self.online.scale.value
        reward, law = self.bootstrap.fn(BootstrapLaws(law, choose, now, online_now, scale), batch, self.phi)
        return backup(reward, batch.discount, law, self.phi)

    def synchronize(self, fraction: float = 1.0) -> None:
        """Move the target network toward the online one; by default it becomes a copy."""
        synchronize(self.target_network, self.online, fraction)


@torch.no_grad()
def diagnose(
    predicted: ReturnDist,  # [B, A, N]
    action: Tensor,  # [B]
    target: ReturnDist,  # [B, M]
    phi: Phi,
    bound: Tensor | None,  # [] of the head
    legal: Tensor | None = None,  # [B, A] bool
) -> dict[str, Tensor]:
    """How the laws of a batch look: means over its samples, [] each. Nothing is drawn, and nothing waits.

    The action gap is that of the legal actions, over the states with at least two of them (0 without such states).
    """
    law = at_action(predicted, action)  # [B, N]
    q, probs = q_values(predicted, phi), law.log_probs.exp()  # [B, A], [B, N]
    error = q_values(target, phi) - q.gather(1, action[:, None]).squeeze(1)  # [B] of the real mean
    centered = law.atoms - (probs * law.atoms).sum(-1, keepdim=True)  # [B, N]
    metrics = {
        "td_error": error.mean(),
        "effective_atoms": probs.square().sum(-1).reciprocal().mean(),
        "law_std": (probs * centered.square()).sum(-1).sqrt().mean(),
    }
    if q.shape[1] > 1 and legal is None:
        best, second = q.topk(2, -1).values.unbind(-1)
        metrics["action_gap"] = (best - second).mean()
    elif legal is not None and q.shape[1] > 1:
        best, second = q.masked_fill(~legal, -torch.inf).topk(2, -1).values.unbind(-1)
        several = legal.sum(-1) > 1  # [B]
        metrics["action_gap"] = (best - second).where(several, 0.0).sum() / several.sum().clamp_min(1)
    if bound is not None:
        metrics["saturated"] = saturation(law, bound)
    return metrics


def fetch(updates: Sequence[Update]) -> list[FetchedUpdate]:
    """What updates report, on the host: one copy, and one wait for the device, for all of them."""
    if not updates:
        return []
    scalars = torch.stack([scalar for each in updates for scalar in (each.loss, *each.metrics.values())])
    packed = torch.cat((scalars, *(each.priority for each in updates))).cpu().numpy()
    values = iter(packed[: len(scalars)].tolist())
    fetched, start = [], len(scalars)
    for each in updates:
        end = start + len(each.priority)
        loss, metrics = next(values), {name: next(values) for name in each.metrics}
        fetched.append(FetchedUpdate(loss, each.indices, packed[start:end], metrics))
        start = end
    return fetched


def _compiled(losses: Callable[[Batch, bool], Losses], mode: str) -> Callable[[Batch, bool], Losses]:
    """`losses` and its gradient by PyTorch's compiler."""
    import torch._dynamo  # half a second, hence not above

    # Drawing from a generator ends a piece of compiled code: noisy networks have more pieces than the default allows.
    torch._dynamo.config.recompile_limit = max(torch._dynamo.config.recompile_limit, 64)
    compiled = torch.compile(losses, mode=mode, dynamic=False)
    if mode != "reduce-overhead":
        return compiled

    def call(batch: Batch, diagnosed: bool) -> Losses:
        torch.compiler.cudagraph_mark_step_begin()  # type: ignore[no-untyped-call]
        total, loss, priority, metrics = compiled(batch, diagnosed)
        kept = {name: tensor.clone() for name, tensor in metrics.items()}  # the next replay overwrites the graph's own
        return total, loss.clone(), priority.clone(), kept

    return call


def _to_arrays(tensors: Mapping[str, Tensor]) -> dict[str, NDArray[Any]]:
    return {name: tensor.detach().cpu().contiguous().numpy() for name, tensor in tensors.items()}


def _copy_into(tensors: Mapping[str, Tensor], arrays: Mapping[str, NDArray[Any]], part: str) -> None:
    """Copy arrays into tensors of the same names, shapes and types; ValueError if they differ."""
    if differing := sorted(set(tensors) ^ set(arrays)):
        raise ValueError(f"tensors of {part} differ: {', '.join(differing[:3])}")
    for name, tensor in tensors.items():
        stored = torch.from_numpy(arrays[name])
        if stored.shape != tensor.shape or stored.dtype != tensor.dtype:
            raise ValueError(
                f"{part}.{name} is {tuple(stored.shape)} in the checkpoint, {tuple(tensor.shape)} in the run"
            )
        tensor.detach().copy_(stored)


# ------------------------------------------------------------------------------------------ schedules, optimizers


def linear(step: int, start: float, end: float, steps: int) -> float:
    """From `start` at step 0 to `end` at `steps` and after."""
    return end if step >= steps else start + (end - start) * (step / steps)


def epsilon(schedule: Schedule, step: int) -> float:
    """As `epsilon_at` in recipes/recipe.py, which the page uses: it does without PyTorch, and this with fewer files."""
    initial, least, steps = schedule.epsilon_initial, schedule.epsilon_min, schedule.epsilon_decay_steps
    if schedule.epsilon_off_steps is not None and step >= schedule.epsilon_off_steps:
        return 0.0
    if schedule.epsilon_decay == "geometric" and steps > 1:
        return float(least + (initial - least) * (1.0 - 1.0 / steps) ** step)
    return least if schedule.epsilon_decay == "geometric" else linear(step, initial, least, steps)


def epsilons(schedule: Schedule, step: int, envs: int) -> list[float]:
    """ε of each environment of a run at a training step."""
    now = epsilon(schedule, step)
    return [now] if envs == 1 else epsilon_ladder(now, schedule.epsilon_ladder, envs)


class Optimizer(Protocol):
    """Moves some parameters along their gradients."""

    updates: int  # steps made

    def clear(self) -> None:
        """Forget the gradients of the last step."""
        ...

    def step(self) -> Tensor:
        """Clip by the global norm and descend; returns the norm before clipping."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """All it has learned about gradients, and the steps made. Arrays may share memory with it."""
        ...

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """ValueError for what does not fit."""
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

    def state_dict(self) -> dict[str, Any]:
        return {"updates": self.updates, **_to_arrays(self._tensors())}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        updates = state["updates"]
        if type(updates) is not int or not 0 <= updates <= _LARGEST_COUNT:
            raise ValueError(f"updates are {str(updates)[:40]}")
        _copy_into(self._tensors(), {name: array for name, array in state.items() if name != "updates"}, "optimizer")
        self.updates = updates

    def _tensors(self) -> dict[str, Tensor]:
        moments = {"mean": self.mean, "square": self.square}
        return {f"{name}.{k}": tensor for name, kept in moments.items() for k, tensor in enumerate(kept)}

    def _clipped(self, clip_norm: float | None) -> tuple[list[int], list[Tensor], Tensor]:
        """Which parameters have gradients, these within the bound, and their global norm before."""
        used = [k for k, p in enumerate(self.parameters) if p.grad is not None]
        gradients = [p.grad for p in self.parameters if p.grad is not None]
        norm: Tensor = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(gradients)))
        if clip_norm is not None and (_reading_waits(norm) or not norm <= clip_norm):  # NaN too
            torch._foreach_div_(gradients, (norm / clip_norm).clamp_min(1.0))  # a division by 1 changes nothing
        return used, gradients, norm


def _reading_waits(tensor: Tensor) -> bool:
    """Whether the host would wait for a device if it read a number of this tensor."""
    return tensor.device.type != "cpu"


class FusedAdam(_Moments):
    """Adam with a bound on the global gradient norm, as one fused kernel for all parameters of the same rate."""

    def __init__(self, parameters: Iterable[nn.Parameter], optim: Adam, head: Iterable[nn.Parameter] = ()) -> None:
        apart = list(head)  # whose learning rate has the factor `head_rate`
        super().__init__([*parameters, *apart])
        self.optim = optim
        scaled = {id(parameter) for parameter in apart}
        self._factors = [optim.head_rate if id(p) in scaled else 1.0 for p in self.parameters]
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
        for factor in sorted(set(self._factors)):
            rows = [row for row, k in enumerate(used) if self._factors[k] == factor]
            group = [used[row] for row in rows]
            adam(
                [self.parameters[k] for k in group],
                [gradients[row] for row in rows],
                [self.mean[k] for k in group],
                [self.square[k] for k in group],
                [],
                [self._counters[k] for k in group],
                fused=True,
                lr=learning_rate * factor,
                beta1=optim.beta1,
                beta2=optim.beta2,
                weight_decay=0.0,
                eps=eps,
                amsgrad=False,
                maximize=False,
            )
        increment_version(self.parameters)  # the kernel itself does not mark them as changed
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
