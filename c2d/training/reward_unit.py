"""The unit of rewards of a run: found from what was played at random, enlarged when atoms reach their bound.

Atoms of the conjugated head lie within ±α, so predicted returns lie within ±u·φ⁻¹(α): about ±650·u. With u = 1, the
paper's, `warning` says if that is not enough. With `--head.unit auto`, `find` and `maintain` choose u. They are called
at the end of the random history and at copies of the target network, never within an update. What they decide depends
only on the networks and the replay, which checkpoints hold: a resumed run decides the same.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import torch

from c2d.agents.learner import Learner
from c2d.nets.heads import EDGE, saturation
from c2d.nets.network import ValueNetwork
from c2d.replay.buffer import Replay

TYPICAL = 30.0  # in units: a typical return of random play. Why 30: docs/plans/reward-unit.md
MOST = 0.01  # share of the mass beyond 95 % of the bound; above, atoms are saturated
GROWTH = 2.0  # factor on u when they are
_LARGEST = 1e36  # return that u may reach: float32 ends at 3e38
_SAMPLE = 1_024  # observations by which `warning` judges


def find(learner: Learner, replay: Replay) -> str | None:
    """Set u by the returns in the replay; says so. None if every reward is 0: then every target is φ(0), whatever u."""
    typical = typical_return(replay)
    if not typical:
        return None
    for network in _networks(learner):
        unit = network.head.unit
        assert unit is not None
        unit.u.fill_(typical / TYPICAL)
        unit.found.fill_(1.0)
        unit.share.zero_()
    return f"unit of rewards {typical / TYPICAL:.4g}: a typical discounted return of random play is {typical:.4g}"


def known(learner: Learner) -> str | None:
    """The unit that was found earlier, in words."""
    unit = learner.online.head.unit
    return f"unit of rewards {unit.u.item():.4g}" if unit is not None and unit.found.item() else None


def maintain(learner: Learner, replay: Replay) -> str | None:
    """At a copy of the target network: find u if that was not possible yet, enlarge it if atoms are saturated.

    It stops where no return can be larger: at max|r|/(1−γ), atoms at their bound are errors that pass.
    """
    head = learner.online.head
    assert head.unit is not None and head.bound is not None
    reach = learner.phi.back(EDGE * head.bound)
    found, share, before, reach = torch.stack((head.unit.found, head.unit.share, head.unit.u, reach)).tolist()
    if not found:
        return find(learner, replay)
    if share <= MOST or reach >= min(_largest_return(replay), _LARGEST):
        return None
    phi = learner.phi
    for network in _networks(learner):
        network.head.enlarge_unit(GROWTH, phi)
    return f"atoms reach their bound: unit of rewards {before:.4g} → {GROWTH * before:.4g}"


def warning(learner: Learner, replay: Replay, extreme: float) -> str | None:
    """What to do, if atoms are saturated and no unit adapts. `extreme`: the largest |atom| of the iteration.

    Only if that is near the bound, one pass over some stored observations measures the mass there.
    """
    head = learner.online.head
    if head.bound is None or head.unit is not None or extreme <= EDGE * head.bound.item():
        return None
    stored = replay.sampleable()
    some = stored[:: max(len(stored) * replay.reach // _SAMPLE, 1)]
    with torch.inference_mode():
        batch = replay.read(some, device=head.bound.device)
        law = learner.online(batch.obs, "act")
        if batch.legal is not None:  # nothing is learned of the others
            law = law._replace(atoms=law.atoms[batch.legal], log_probs=law.log_probs[batch.legal])
        share, reach = saturation(law, head.bound).item(), learner.phi.back(head.bound).item()
    if share <= MOST:
        return None
    return (
        f"{100 * share:.0f} % of the predicted mass is at the bound of the atoms, α = {head.bound.item():.4g}: returns "
        f"beyond ±{reach:.4g} cannot be predicted; train with --head.unit auto, which finds the scale of rewards"
    )


def typical_return(replay: Replay) -> float:
    """Σ G²/Σ|G| of the discounted returns in the replay: their mean size, weighted by itself.

    So the many states of a sparse game from which nothing follows do not count. 0 if all rewards are 0.
    """
    if not replay.slots.reward.any():
        return 0.0
    returns = np.abs(replay.returns())
    return float((returns**2).sum() / returns.sum())


def _largest_return(replay: Replay) -> float:
    largest = float(np.abs(replay.slots.reward).max())
    return largest / (1.0 - replay.gamma) if replay.gamma < 1.0 else np.inf


def _networks(learner: Learner) -> Iterable[ValueNetwork]:
    """Online, target, and the mean of weights that acts if there is one."""
    networks = (learner.online, learner.target_network, learner.acting)
    return {id(network): network for network in networks}.values()
