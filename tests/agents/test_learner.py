"""The gradient step: Adam's forms, clipping, weights, target network, what is reported."""

import copy
from copy import deepcopy

import numpy as np
import pytest
import torch

from c2d.agents.build import build_learner
from c2d.agents.learner import FusedAdam, fetch
from c2d.envs.spec import EnvSpec
from c2d.recipes.parts import Adam, Conjugated, MinAtar, Mlp
from c2d.recipes.recipe import Recipe
from c2d.returns.bellman import Bootstrap
from c2d.types import Batch, ReturnDist
from tests.oracles.slow_cramer import squared_cramer
from tests.oracles.slow_returns import backed_up_atom, expected_return

VECTOR = EnvSpec("gym/CartPole-v1", "gym", (4,), "float32", 1, 3, 1)
PLANES = EnvSpec("minatar/breakout", "minatar", (4, 10, 10), "uint8", 1, 3, 1)
HEAD = Conjugated(atoms=5, hidden=16, embedding=8)
EPS, BETA = 0.001, 1.99  # of the paper's φ


def make(optim=None, encoder=None, seed=0):
    recipe = Recipe(encoder=encoder or Mlp((8,)), head=HEAD, optim=optim or Adam(learning_rate=1e-3))
    env = PLANES if isinstance(encoder, MinAtar) else VECTOR
    return build_learner(recipe, env, torch.Generator().manual_seed(seed), torch.Generator())


def batch(size=16, planes=False, seed=0, weight=None):
    rng = torch.Generator().manual_seed(seed)

    def obs():
        if planes:
            return torch.randint(0, 2, (size, 4, 10, 10), generator=rng, dtype=torch.uint8)
        return torch.randn(size, 4, generator=rng)

    return Batch(
        obs=obs(),
        action=torch.randint(0, 3, (size,), generator=rng),
        reward=torch.randn(size, generator=rng),
        discount=torch.where(torch.rand(size, generator=rng) < 0.2, 0.0, 0.99),
        next_obs=obs(),
        weight=torch.ones(size) if weight is None else weight,
        indices=torch.arange(100, 100 + size),
    )


def flat(network):
    return torch.cat([p.detach().flatten().clone() for p in network.parameters()])


def slow_target(law, data):
    """Best action, its law, and that law after one step, one number at a time from the paper's formulas."""
    atoms, log_probs = [], []
    for b, (reward, discount) in enumerate(zip(data.reward.tolist(), data.discount.tolist(), strict=True)):
        actions = list(zip(law.atoms[b].tolist(), law.log_probs[b].exp().tolist(), strict=True))
        best = max(range(len(actions)), key=lambda a: expected_return(*actions[a], EPS, BETA))
        atoms.append([backed_up_atom(reward, discount, z, EPS, BETA) for z in actions[best][0]])
        log_probs.append(law.log_probs[b, best])
    return ReturnDist(torch.tensor(atoms), torch.stack(log_probs))


def gradient(learner, data):
    """The gradient of one update by a path of its own: slow formulas, plain autograd, no optimizer."""
    with torch.no_grad():
        target = slow_target(learner.target_network(data.next_obs, "target"), data)
    rows = torch.arange(len(data.action))
    online = copy.deepcopy(learner.online)
    prediction = online(data.obs, "target")  # batch statistics, and none are moved
    x, p = prediction.atoms[rows, data.action], prediction.log_probs[rows, data.action].exp()
    w, order = torch.cat((x, target.atoms), 1).sort(dim=1, stable=True)
    difference = torch.cat((p, -target.log_probs.exp()), 1).gather(1, order).cumsum(1)[:, :-1]
    per_sample = (difference.square() * w.diff(dim=1)).sum(1)
    loss = (per_sample * data.weight).mean()
    loss.backward()
    return (
        loss.item(),
        per_sample.detach(),
        torch.cat([p.grad.flatten() for p in online.parameters()]),
        (x.detach(), target),
    )


class NumpyAdam:
    """θ ← θ − lr·√(1−β₂ᵗ)/(1−β₁ᵗ)·m/(√v + ε): Keras' form, in float64."""

    def __init__(self, size, optim):
        self.m, self.v, self.t, self.optim = np.zeros(size), np.zeros(size), 0, optim

    def step(self, theta, gradient):
        o, g = self.optim, gradient.double().numpy()
        g = g * min(1.0, (o.clip_norm or np.inf) / np.sqrt((g**2).sum()))
        self.t += 1
        self.m = o.beta1 * self.m + (1 - o.beta1) * g
        self.v = o.beta2 * self.v + (1 - o.beta2) * g**2
        rate = o.learning_rate * np.sqrt(1 - o.beta2**self.t) / (1 - o.beta1**self.t)
        return theta.double().numpy() - rate * self.m / (np.sqrt(self.v) + o.eps)


@pytest.mark.parametrize("clip", [10.0, 0.05, None])
def test_keras_form_of_adam(clip):
    """Seven steps, each from where the learner stands; ε is large enough to matter."""
    optim = Adam(learning_rate=1e-2, eps=1e-2, clip_norm=clip, eps_form="keras")
    learner = make(optim)
    oracle = NumpyAdam(len(flat(learner.online)), optim)
    for seed in range(7):
        data = batch(seed=seed)
        before, (_, _, g, _) = flat(learner.online), gradient(learner, data)
        learner.update(data)
        wanted = oracle.step(before, g)
        moved, wanted_move = (
            flat(learner.online).double().numpy() - before.double().numpy(),
            wanted - before.double().numpy(),
        )
        np.testing.assert_allclose(moved, wanted_move, rtol=1e-3, atol=2e-6)
        assert np.abs(wanted_move).max() > 1e-4


def test_torch_form_of_adam():
    optim = Adam(learning_rate=1e-2, eps=1e-2, clip_norm=None, eps_form="torch")
    learner = make(optim)
    parameter = flat(learner.online).requires_grad_()
    plain = torch.optim.Adam([parameter], lr=1e-2, eps=1e-2)
    for seed in range(5):
        data = batch(seed=seed)
        parameter.grad = gradient(learner, data)[2]
        plain.step()
        learner.update(data)
        torch.testing.assert_close(flat(learner.online), parameter.detach(), rtol=1e-4, atol=1e-5)


def test_a_parameter_without_a_gradient_stays_and_its_later_steps_are_counted_with_the_others():
    optim = Adam(learning_rate=1e-2, eps=1e-2, clip_norm=None, eps_form="keras")
    always, late = (torch.nn.Parameter(torch.ones(3)) for _ in range(2))
    adam, oracle = FusedAdam([always, late], optim), NumpyAdam(3, optim)
    always.grad = torch.full((3,), 0.5)
    adam.step()
    assert torch.equal(late, torch.ones(3)) and not torch.equal(always, torch.ones(3))
    adam.clear()
    always.grad = late.grad = torch.full((3,), 0.25)
    adam.step()
    oracle.t = 1
    np.testing.assert_allclose(late.detach().numpy(), oracle.step(torch.ones(3), late.grad), rtol=1e-6)


def test_learning_rate_falls_linearly_with_updates():
    """From the first update to update `decay_updates`, and stays there; without a final rate it never changes."""
    learner = make(Adam(learning_rate=1e-2, learning_rate_final=2e-3, decay_updates=4))
    rates = []
    for _ in range(7):
        rates.append(learner.optimizers[0].learning_rate)
        learner.update(batch())
    assert rates == pytest.approx([1e-2, 8e-3, 6e-3, 4e-3, 2e-3, 2e-3, 2e-3])
    learner = make(Adam(learning_rate=1e-2))
    learner.update(batch())
    assert learner.optimizers[0].learning_rate == 1e-2


@pytest.mark.parametrize("form", ["keras", "torch"])
def test_the_head_has_a_rate_of_its_own(form):
    """Encoder and head, each against a float64 Adam of its rate, which also decays; both share one clip of the norm."""
    optim = Adam(
        1e-2, learning_rate_final=2e-3, decay_updates=4, head_rate=0.1, eps=1e-2, eps_form=form, clip_norm=0.05
    )
    learner = make(optim)
    inside = len(flat(learner.online.encoder))
    moments = np.zeros((2, len(flat(learner.online))))
    for step, rate in enumerate((1e-2, 8e-3, 6e-3, 4e-3, 2e-3, 2e-3), start=1):
        data = batch(seed=step)
        before, g = flat(learner.online), gradient(learner, data)[2].double().numpy()
        g = g * min(1.0, 0.05 / np.linalg.norm(g))
        learner.update(data)
        moments = moments * [[0.9], [0.999]] + np.stack((0.1 * g, 0.001 * g**2))
        mean, root = moments[0] / (1 - 0.9**step), np.sqrt(moments[1])
        correction = np.sqrt(1 - 0.999**step)
        below = root / correction + (1e-2 / correction if form == "keras" else 1e-2)
        wanted = -rate * mean / below * np.where(np.arange(len(g)) < inside, 1.0, 0.1)
        moved = (flat(learner.online) - before).double().numpy()
        rounding = 5e-8 + 1e-7 * before.abs().numpy()  # α is 50
        assert (np.abs(moved - wanted) <= 2e-3 * np.abs(wanted) + rounding).all()
        assert np.abs(wanted[:inside]).max() > 1e-5 < np.abs(wanted[inside:]).max() * 100


def test_the_heads_rate_changes_nothing_else():
    """A factor of 1 is one kernel for all parameters; the state has the same form whatever the factor."""
    plain, scaled = make(Adam(1e-3)), make(Adam(1e-3, head_rate=3.0))
    for learner in (plain, scaled):
        learner.update(batch())
    states = [learner.optimizers[0].state_dict() for learner in (plain, scaled)]
    assert {name: getattr(value, "shape", None) for name, value in states[0].items()} == {
        name: getattr(value, "shape", None) for name, value in states[1].items()
    }
    assert torch.equal(flat(plain.online.encoder), flat(scaled.online.encoder))
    assert not torch.equal(flat(plain.online.head), flat(scaled.online.head))
    resumed = make(Adam(1e-3, head_rate=3.0), seed=1)
    resumed.load_state_dict(scaled.state_dict())
    for learner in (scaled, resumed):
        learner.update(batch(seed=1))
    assert torch.equal(flat(scaled.online), flat(resumed.online))


def test_the_two_forms_differ():
    moves = []
    for form in ("keras", "torch"):
        learner = make(Adam(learning_rate=1e-2, eps=1e-2, eps_form=form))
        before = flat(learner.online)
        learner.update(batch())
        moves.append((flat(learner.online) - before).norm())
    assert moves[0] < 0.5 * moves[1]  # at the first step Keras' ε is in effect 31.6 times as large


def test_huge_gradients_act_as_if_scaled_to_the_bound():
    """Weights of a thousand: the step equals that of the gradient scaled to norm 10, with an ε of that order."""
    data = batch(weight=torch.full((16,), 1000.0))
    optim = Adam(learning_rate=1e-2, eps=1.0, clip_norm=10.0)
    learner = make(optim)
    before, (_, _, g, _) = flat(learner.online), gradient(learner, data)
    (update,) = fetch([learner.update(data)])
    assert g.norm() > 100
    wanted = NumpyAdam(len(before), Adam(learning_rate=1e-2, eps=1.0, clip_norm=None)).step(before, g * 10.0 / g.norm())
    np.testing.assert_allclose((flat(learner.online) - before).numpy(), wanted - before.numpy(), rtol=1e-3, atol=1e-6)
    assert update.metrics["gradient_norm"] == pytest.approx(float(g.norm()), rel=1e-4)  # before clipping


def test_small_gradients_are_not_clipped():
    data = batch()
    moves = []
    for clip in (1e6, None):
        learner = make(Adam(learning_rate=1e-2, clip_norm=clip))
        before = flat(learner.online)
        learner.update(data)
        moves.append(flat(learner.online) - before)
    torch.testing.assert_close(*moves)


@pytest.mark.parametrize("planes", [False, True])
def test_what_an_update_reports(planes):
    learner = make(encoder=MinAtar(norm="column") if planes else None)
    data = batch(planes=planes)
    loss, per_sample, g, (atoms, target) = gradient(learner, data)
    probs = learner.online(data.obs, "target").log_probs.exp().detach()[torch.arange(16), data.action]
    (update,) = fetch([learner.update(data)])
    assert update.loss == pytest.approx(loss, rel=1e-4)
    np.testing.assert_allclose(update.priority, per_sample.numpy(), rtol=1e-3, atol=1e-5)
    for b in range(3):  # the loss itself against the oracle of the laws
        predicted = list(zip(atoms[b].tolist(), probs[b].tolist(), strict=True))
        wanted = list(zip(target.atoms[b].tolist(), target.log_probs[b].exp().tolist(), strict=True))
        assert update.priority[b] == pytest.approx(float(squared_cramer(predicted, wanted)), rel=1e-3)
    np.testing.assert_array_equal(update.indices, np.arange(100, 116))
    assert update.metrics["gradient_norm"] == pytest.approx(float(g.norm()), rel=1e-3)
    assert update.metrics["atom_min"] == pytest.approx(float(atoms.min()), rel=1e-4)  # of the sampled actions only
    assert update.metrics["atom_max"] == pytest.approx(float(atoms.max()), rel=1e-4)


def test_weights_of_the_batch_scale_the_loss():
    weight = torch.linspace(0, 2, 16)
    (update,) = fetch([make().update(batch(weight=weight))])
    assert update.loss == pytest.approx(float((weight.numpy() * update.priority).mean()), rel=1e-5)
    (plain,) = fetch([make().update(batch())])
    np.testing.assert_allclose(plain.priority, update.priority, rtol=1e-5)  # feedback is without the weights
    (doubled,) = fetch([make().update(batch(weight=torch.full((16,), 2.0)))])
    assert doubled.metrics["gradient_norm"] == pytest.approx(2 * plain.metrics["gradient_norm"], rel=1e-4)


def test_zero_weight_hides_a_sample():
    weight = torch.ones(16)
    weight[3] = 0.0
    data = batch(weight=weight)
    other = data._replace(reward=data.reward.index_fill(0, torch.tensor(3), 50.0))
    moved = []
    for given in (data, other):
        learner = make()
        learner.update(given)
        moved.append(flat(learner.online))
    torch.testing.assert_close(*moved)


def test_loss_falls_on_a_fixed_batch():
    learner, data = make(Adam(learning_rate=3e-3)), batch()
    losses = [float(learner.update(data).loss) for _ in range(150)]
    assert np.mean(losses[-10:]) < 0.2 * losses[0]


def test_target_network_moves_at_syncs_only():
    learner = make(encoder=MinAtar(norm="column"))

    def differences():
        target = learner.target_network.state_dict()
        return [name for name, tensor in learner.online.state_dict().items() if not torch.equal(tensor, target[name])]

    assert differences() == []  # a copy from the beginning
    frozen = {name: tensor.clone() for name, tensor in learner.target_network.state_dict().items()}
    for seed in range(3):
        learner.update(batch(planes=True, seed=seed))
    for name, tensor in learner.target_network.state_dict().items():
        assert torch.equal(tensor, frozen[name]), name
    assert any("weight" in name for name in differences()) and any("running" in name for name in differences())
    learner.synchronize()
    assert differences() == []
    online, target = learner.online.head.alpha, learner.target_network.head.alpha
    assert online.data_ptr() != target.data_ptr()  # a copy, not the same memory


def test_no_gradient_reaches_the_target_network():
    learner = make()
    learner.update(batch())
    assert all(not p.requires_grad and p.grad is None for p in learner.target_network.parameters())
    assert {id(p) for p in learner.optimizers[0].parameters} == {id(p) for p in learner.online.parameters()}


def test_untrained_alpha_stays():
    recipe = Recipe(encoder=Mlp((8,)), head=Conjugated(atoms=5, hidden=16, embedding=8, train_alpha=False))
    learner = build_learner(recipe, VECTOR, torch.Generator().manual_seed(0), torch.Generator())
    for _ in range(3):
        learner.update(batch())
    assert learner.online.head.alpha.item() == 50.0
    trained = make()
    trained.update(batch())
    assert trained.online.head.alpha.item() != 50.0


def test_passes_are_those_the_bootstrap_asks_for():
    """And a bootstrap may change the reward, as entropy terms do."""
    asked = []

    def spy(laws, data, phi):
        asked.append((laws.choose_next is not laws.target_next, laws.target_now is not None))
        law = laws.target_next
        return data.reward + 1e3, law._replace(atoms=law.atoms[:, 0], log_probs=law.log_probs[:, 0])

    for needs in ((False, False), (True, False), (False, True)):
        learner = make()
        plain = make().update(batch()).loss
        learner.bootstrap = Bootstrap(spy, *needs)
        assert learner.update(batch()).loss > 10 * plain
        assert asked[-1] == needs


def test_acting_statistics_move_once_per_update():
    learner = make(encoder=MinAtar(norm="channel"))
    data = batch(planes=True)
    learner.update(data)
    norm = learner.online.encoder.activations[0]
    convolution = make(encoder=MinAtar(norm="channel")).online.encoder.convolutions[0]
    mean = convolution(data.obs.float()).mean((0, 2, 3)).detach()  # of obs alone: next_obs leaves no trace
    torch.testing.assert_close(norm.running_mean, 0.01 * mean, rtol=1e-3, atol=1e-6)
    assert not learner.target_network.encoder.activations[0].running_mean.any()


# ------------------------------------------------------------------------------ the target, asked for by itself


def test_update_compares_with_the_public_target():
    """And to ask for it, with or without a prediction, moves nothing."""
    for encoder in (None, MinAtar(norm="column")):
        learner, data, compared = make(encoder=encoder), batch(planes=encoder is not None), []
        before = deepcopy(learner.state_dict())
        wanted = learner.target(data)
        np.testing.assert_equal(learner.state_dict(), before)
        assert not wanted.atoms.requires_grad
        loss = learner.loss
        learner.loss = lambda prediction, target, loss=loss, out=compared: (
            out.append(target),
            loss(prediction, target),
        )[1]
        learner.update(data)
        assert torch.equal(compared[0].atoms, wanted.atoms) and torch.equal(compared[0].log_probs, wanted.log_probs)


def test_acting_targets_of_a_batch_are_those_of_its_rows():
    """Batch statistics would mix the rows; running ones do not, so a single step has a target."""
    learner, data = make(encoder=MinAtar(norm="column")), batch(size=6, planes=True)
    for seed in range(3):
        learner.update(batch(planes=True, seed=seed))
    learner.synchronize()
    before, state = deepcopy(learner.state_dict()), learner.rng.get_state()
    together = learner.target(data, acting=True)
    rows = [Batch(*(None if field is None else field[row : row + 1] for field in data)) for row in range(6)]
    alone = [learner.target(row, acting=True) for row in rows]
    torch.testing.assert_close(torch.cat([law.atoms for law in alone]), together.atoms, rtol=1e-4, atol=1e-4)
    assert (learner.target(data).atoms - together.atoms).abs().max() > 1e-3
    np.testing.assert_equal(learner.state_dict(), before)
    assert torch.equal(learner.rng.get_state(), state)
    wanted = slow_target(learner.target_network(data.next_obs, "act"), data)
    torch.testing.assert_close(together.atoms, wanted.atoms, rtol=1e-4, atol=1e-4)
