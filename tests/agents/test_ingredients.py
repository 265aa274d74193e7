"""Each ingredient by its effect on an update: what moved, what was drawn, who chose."""

import dataclasses

import numpy as np
import pytest
import torch

from c2d.agents.build import build_learner, build_network, build_phi
from c2d.agents.learner import CenteredRmsProp
from c2d.agents.rollout import Actor
from c2d.config import default_config
from c2d.envs.spec import EnvSpec
from c2d.recipes.parts import Categorical, Mlp, Munchausen, PhiSpec, Quantile, RmsProp
from c2d.recipes.rows import RECIPES, find
from c2d.training.session import Session
from c2d.types import Batch
from tests.agents.test_learner import batch, flat
from tests.training.short_runs import short_config

VECTOR = EnvSpec("gym/CartPole-v1", "gym", (4,), "float32", 1, 3, 1)


def small(name, **changes):
    row = find(name)
    head = dataclasses.replace(row.head, hidden=16)
    return dataclasses.replace(row, encoder=Mlp((8,)), head=head, **changes)


def learner(recipe, seed=0):
    rngs = (torch.Generator().manual_seed(seed), torch.Generator().manual_seed(seed + 1))
    return build_learner(recipe, VECTOR, *rngs)


@pytest.mark.parametrize("name", RECIPES)
def test_every_row_learns_a_fixed_batch(name):
    trained = learner(small(name))
    for optimizer in trained.optimizers[:1]:
        optimizer.optim = dataclasses.replace(optimizer.optim, learning_rate=3e-3)
    losses = [trained.update(batch()).loss for _ in range(150)]
    assert np.isfinite(losses).all()
    assert np.mean(losses[-20:]) < 0.9 * np.mean(losses[:5])  # a cross-entropy cannot fall below the target's entropy


@pytest.mark.parametrize("name", RECIPES)
def test_only_what_should_move_moves(name):
    trained = learner(small(name))
    before, frozen = flat(trained.online), flat(trained.target_network)
    trained.update(batch())
    assert not torch.equal(flat(trained.online), before)
    assert torch.equal(flat(trained.target_network), frozen)
    assert all(p.grad is None for p in trained.target_network.parameters())


def test_priorities_move_with_prioritized_replay_and_nothing_with_uniform():
    for name, moves in (("c2d", False), ("c2d-per3", True)):
        session = Session(short_config("gym/CartPole-v1", "unused", recipe=name))
        session.fill_history()
        before = session.replay.sampler.state_dict()
        session.advance()
        after = session.replay.sampler.state_dict()
        assert bool(before) == moves
        if moves:
            changed = np.flatnonzero(before["priorities"][:60] != after["priorities"][:60])
            assert 1 <= len(changed) <= 8  # those of the batch
            assert len(np.unique(after["priorities"][changed])) > 1


def test_priority_is_the_root_of_the_loss():
    session = Session(short_config("gym/CartPole-v1", "unused", recipe="rainbow-c2d"))
    session.fill_history()
    data = session.replay.sample(8, np.random.default_rng(0))
    update = session.learner.update(data)
    session.replay.feedback(update.indices, update.priority)
    stored = session.replay.sampler.state_dict()["priorities"][update.indices]
    last = {i: p for i, p in zip(update.indices.tolist(), update.priority.tolist(), strict=True)}
    assert stored == pytest.approx([np.sqrt(last[i] + 1e-10) for i in update.indices.tolist()], rel=1e-5)


def test_noisy_layers_make_greedy_actions_vary_and_evaluation_steady():
    network = build_network(small("rainbow-c2d"), VECTOR, torch.Generator().manual_seed(0))
    phi, obs = build_phi(find("rainbow-c2d")), np.zeros((1, 4), np.float32)
    noisy = Actor(network, phi, torch.Generator().manual_seed(0))
    assert len({int(noisy.greedy(obs)[0]) for _ in range(60)}) > 1
    steady = Actor(network, phi)
    assert len({int(steady.greedy(obs)[0]) for _ in range(60)}) == 1


def test_noise_of_both_networks_is_drawn_in_each_update():
    trained = learner(small("rainbow-full"))
    states = [trained.rng.get_state()]
    for _ in range(2):
        trained.update(batch())
        states.append(trained.rng.get_state())
    assert not torch.equal(states[0], states[1]) and not torch.equal(states[1], states[2])


def test_double_lets_the_online_network_choose():
    """With an online network that prefers another action, the law of that action is backed up."""
    chosen = {}
    for name in ("rainbow", "rainbow-full"):
        trained = learner(small(name, noisy=False))
        with torch.no_grad():  # the online network now loves action 2, the target network does not know
            trained.online.head.output.advantage.bias.view(3, -1)[2, -1] += 50.0
        data = batch()._replace(discount=torch.ones(16))
        law = trained.target_network(data.next_obs, "target")
        target = trained.target(data, law)
        chosen[name] = torch.equal(target.log_probs, law.log_probs[:, 2])
    assert chosen == {"rainbow": False, "rainbow-full": True}


def test_munchausen_changes_the_target_by_its_bonus():
    plain, soft = (learner(small(name)) for name in ("iqn", "munchausen-iqn"))
    data = batch()._replace(discount=torch.zeros(16))  # so the target is the reward alone
    law = plain.online(data.obs, "predict", torch.Generator().manual_seed(0))
    with torch.no_grad():
        difference = (soft.target(data, law).atoms - plain.target(data, law).atoms)[:, 0]
    settings = Munchausen()
    assert (difference <= 1e-6).all() and (difference >= settings.alpha * settings.floor - 1e-6).all()
    assert difference.min() < -1e-3


def test_polyak_follows_each_update_and_ignores_the_period():
    schedule = dataclasses.replace(find("c2d").schedule, polyak=0.25)
    trained = learner(small("c2d", schedule=schedule))
    before = flat(trained.target_network)
    trained.update(batch())
    wanted = before + 0.25 * (flat(trained.online) - before)
    torch.testing.assert_close(flat(trained.target_network), wanted)
    config = short_config("gym/CartPole-v1", "unused", target_period=1)
    for polyak, copies in ((None, 3), (0.25, 0)):
        schedule = dataclasses.replace(config.recipe.schedule, polyak=polyak)
        session = Session(dataclasses.replace(config, recipe=dataclasses.replace(config.recipe, schedule=schedule)))
        session.fill_history()
        fractions, synchronize = [], session.learner.synchronize
        session.learner.synchronize = lambda *f, out=fractions, do=synchronize: (out.append(f), do(*f))
        for _ in range(3):
            session.advance()
        assert fractions.count(()) == copies and (polyak is None or set(fractions) == {(0.25,)})


def test_conjugated_c51_and_qr_dqn_reduce_exactly_to_the_originals():
    """With φ = identity, the grid and the clipping of the original, not one bit differs."""
    for name, head in (("c51", Categorical(hidden=16)), ("qr-dqn", Quantile(hidden=16))):
        back = small(f"{name}-conjugated", phi=PhiSpec("identity"), clip_reward=1.0)
        one, two = learner(small(name)), learner(dataclasses.replace(back, head=head))
        for seed in range(5):
            assert one.update(batch(seed=seed)).loss == two.update(batch(seed=seed)).loss
        assert torch.equal(flat(one.online), flat(two.online))


def test_centered_rmsprop_equals_its_formula():
    parameter = torch.nn.Parameter(torch.tensor([1.0, -2.0]))
    optimizer = CenteredRmsProp([parameter], RmsProp(learning_rate=0.1, decay=0.9, eps=0.01))
    theta, mean, square = np.array([1.0, -2.0]), np.zeros(2), np.ones(2)
    for step in range(6):
        gradient = np.array([0.5 + step, -1.0])
        parameter.grad = torch.tensor(gradient, dtype=torch.float32)
        norm = optimizer.step()
        mean, square = 0.9 * mean + 0.1 * gradient, 0.9 * square + 0.1 * gradient**2
        theta = theta - 0.1 * gradient / np.sqrt(square - mean**2 + 0.01)
        np.testing.assert_allclose(parameter.detach().numpy(), theta, rtol=1e-5)
        assert norm.item() == pytest.approx(np.linalg.norm(gradient), rel=1e-6)


def test_n_step_tails_at_an_end_and_at_a_cut():
    """Rewards 1, 10, 100: from the last states of an episode only what is left is summed."""
    config = default_config("toy/sure", "rainbow")
    assert config.recipe.n_step == 3
    from c2d.replay.buffer import Replay
    from c2d.types import ResetFrame, Step

    spec = EnvSpec("toy/x", "gym", (1,), "float32", 1, 2, 1)
    frame = np.zeros(1, np.float32)
    for terminal in (True, False):
        replay = Replay(spec, 20, n_step=3, gamma=0.5, truncation="bootstrap")
        replay.begin(ResetFrame(frame))
        for number, reward in enumerate((1.0, 10.0, 100.0)):
            last = number == 2
            opening = ResetFrame(frame) if last else None
            replay.add(0, Step(frame, reward, last and terminal, last and not terminal, opening, None))
        read: Batch = replay.read(np.array([0, 1, 2]))
        assert read.reward.tolist() == [1 + 5 + 25, 10 + 50, 100]
        assert read.discount.tolist() == ([0, 0, 0] if terminal else [0.125, 0.25, 0.5])
