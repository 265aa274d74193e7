"""Each ingredient by its effect on an update: what moved, what was drawn, who chose."""

import dataclasses
import threading

import numpy as np
import pytest
import safetensors.torch
import torch

from c2d.agents.build import build_learner, build_network, build_phi
from c2d.agents.learner import CenteredRmsProp, fetch
from c2d.agents.rollout import Actor
from c2d.config import default_config
from c2d.envs.spec import EnvSpec
from c2d.errors import UserError
from c2d.nets.scales import RunningScale
from c2d.recipes.parts import (
    Categorical,
    ClippedDouble,
    MinAtar,
    Mlp,
    Munchausen,
    PhiSpec,
    Prioritized,
    Quantile,
    RmsProp,
)
from c2d.recipes.recipe import check_recipe
from c2d.recipes.rows import RECIPES, adapt, find
from c2d.returns.bellman import at_action
from c2d.returns.losses import td_error
from c2d.runs.checkpoints import Checkpoints
from c2d.runs.confined import Root
from c2d.training.observers import Observer
from c2d.training.resume import continue_from
from c2d.training.run import run
from c2d.training.session import Session
from c2d.training.verification import digests
from c2d.types import Batch
from c2d.web.lens.load import open_agent
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
        optimizer.optim = dataclasses.replace(optimizer.optim, learning_rate=1e-2)
    losses = [float(trained.update(batch()).loss) for _ in range(50)]
    assert np.isfinite(losses).all()
    assert np.mean(losses[-10:]) < 0.9 * np.mean(losses[:5])  # a cross-entropy cannot fall below the target's entropy


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
    (update,) = fetch([session.learner.update(data)])
    session.replay.feedback(update.indices, update.priority)
    stored = session.replay.sampler.state_dict()["priorities"][update.indices]
    last = {i: p for i, p in zip(update.indices.tolist(), update.priority.tolist(), strict=True)}
    assert stored == pytest.approx([np.sqrt(last[i] + 1e-10) for i in update.indices.tolist()], rel=1e-5)


@pytest.mark.parametrize("name", ["iqn", "c2d"])
def test_priorities_by_td_error_change_what_is_reported_and_not_the_update(name):
    plain, ranked = (learner(small(name, sampler=Prioritized(by=by))) for by in ("loss", "td-error"))
    one, two = (each.update(batch()) for each in (plain, ranked))
    assert one.loss == two.loss and torch.equal(flat(plain.online), flat(ranked.online))
    assert not torch.allclose(one.priority, two.priority) and not two.priority.requires_grad
    again = learner(small(name))
    predicted = again.online(batch().obs, "predict", again.rng)
    prediction = at_action(predicted, batch().action)
    target = again.target(batch(), predicted)
    torch.testing.assert_close(two.priority, td_error(prediction, target).detach())


def test_noisy_layers_make_greedy_actions_vary_and_evaluation_steady():
    network = build_network(small("rainbow-c2d"), VECTOR, torch.Generator().manual_seed(0))
    phi, obs = build_phi(find("rainbow-c2d"), network), np.zeros((1, 4), np.float32)
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


def test_clipped_double_takes_the_law_of_smaller_mean_at_the_online_choice():
    """Row by row, by a loop: action of the online network, then whichever network expects less there."""
    trained = learner(small("c2d", bootstrap=ClippedDouble()))
    with torch.no_grad():
        for parameter in trained.target_network.head.parameters():
            parameter += 0.2 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(3))
    data, phi = batch(size=64), trained.phi
    online, frozen = (network(data.next_obs, "target") for network in (trained.online, trained.target_network))
    found, taken = trained.target(data), []
    for row in range(64):
        means = [(law.log_probs.exp() * phi.back(law.atoms)).sum(-1)[row].tolist() for law in (online, frozen)]
        best = max(range(3), key=lambda action: means[0][action])
        taken.append(means[0][best] < means[1][best])
        law = online if taken[-1] else frozen
        wanted = phi.to(data.reward[row] + data.discount[row] * phi.back(law.atoms[row, best]))
        torch.testing.assert_close(found.atoms[row], wanted, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(found.log_probs[row], law.log_probs[row, best], rtol=1e-4, atol=1e-5)
    assert 0 < sum(taken) < 64


@pytest.mark.parametrize("name", ["dqn", "c51", "qr-dqn", "fqf"])
def test_clipped_double_trains_other_heads(name):
    trained = learner(small(name, bootstrap=ClippedDouble()))
    before = flat(trained.online)
    assert torch.isfinite(trained.update(batch()).loss) and not torch.equal(flat(trained.online), before)


def test_clipped_double_needs_laws_of_one_size():
    recipe = dataclasses.replace(find("iqn"), bootstrap=ClippedDouble())
    with pytest.raises(UserError, match=r"--head\.policy-atoms is 32; accepted: target-atoms = 64 with"):
        check_recipe(recipe)
    check_recipe(dataclasses.replace(recipe, head=dataclasses.replace(recipe.head, policy_atoms=64)))


@pytest.mark.parametrize("env", [VECTOR, "minatar/breakout", "breakout"])
@pytest.mark.parametrize("name", ["c2d", "c51", "qr-dqn"])
def test_the_learning_rate_decays_at_every_scale(env, name):
    """To 0 after 3 updates: the weights move three times and never again."""
    specs = {
        "minatar/breakout": EnvSpec("minatar/breakout", "minatar", (4, 10, 10), "uint8", 1, 3, 1),
        "breakout": EnvSpec("breakout", "atari", (1, 84, 84), "uint8", 4, 3, 4),
    }
    spec = env if isinstance(env, EnvSpec) else specs[env]
    row = adapt(find(name), spec)
    optim = dataclasses.replace(row.optim, learning_rate_final=0.0, decay_updates=3)
    head = dataclasses.replace(row.head, hidden=16)
    recipe = dataclasses.replace(row, optim=optim, head=head)
    trained = build_learner(recipe, spec, torch.Generator().manual_seed(0), torch.Generator())
    data = batch(size=4)
    obs = torch.randint(0, 2, (2, 4, *spec.obs_shape), generator=torch.Generator().manual_seed(0)).to(
        torch.float32 if spec.frame_dtype == "float32" else torch.uint8
    )
    moved = []
    for _ in range(5):
        before = flat(trained.online)
        trained.update(data._replace(obs=obs[0], next_obs=obs[1]))
        moved.append(not torch.equal(flat(trained.online), before))
    assert moved == [True, True, True, False, False]


def test_munchausen_changes_the_target_by_its_bonus():
    plain, soft = (learner(small(name)) for name in ("iqn", "munchausen-iqn"))
    data = batch()._replace(discount=torch.zeros(16))  # so the target is the reward alone
    law = plain.online(data.obs, "predict", torch.Generator().manual_seed(0))
    with torch.no_grad():
        difference = (soft.target(data, law).atoms - plain.target(data, law).atoms)[:, 0]
    settings = Munchausen()
    assert (difference <= 1e-6).all() and (difference >= settings.alpha * settings.floor - 1e-6).all()
    assert difference.min() < -1e-3


def test_munchausens_own_policy_may_be_that_of_the_prediction():
    """Then the target network is not asked about the present state, and its weights do not matter to the bonus."""
    for policy in ("target", "online"):
        trained = learner(small("iqn", bootstrap=Munchausen(multi_step="first", policy=policy)))
        data = batch()._replace(discount=torch.zeros(16))  # so the target is the reward alone
        law = trained.online(data.obs, "predict", torch.Generator().manual_seed(0))
        asked = []
        trained.target_network.encoder.register_forward_hook(lambda *_, out=asked: out.append(1))
        bonus = trained.target(data, law).atoms[:, 0] - data.reward
        assert len(asked) == (2 if policy == "target" else 1)
        log_pi = (law.atoms.mean(-1) / 0.03).log_softmax(-1).gather(1, data.action[:, None]).squeeze(1)
        by_prediction = 0.9 * (0.03 * log_pi).clamp(-1.0, 0.0)
        with torch.no_grad():
            for parameter in trained.target_network.parameters():
                parameter += 0.3
        close = torch.allclose(bonus, by_prediction, atol=1e-5)
        assert close == (policy == "online")
        again = trained.target(data, law).atoms[:, 0] - data.reward
        assert torch.equal(bonus, again) == (policy == "online")


SCALED = Munchausen(multi_step="first", scale="running")


def test_the_running_scale_is_the_mean_deviation_of_the_predictions():
    """The plain mean at first, of the real means that updates predict; the target network has it after a copy."""
    trained, seen = learner(small("c2d", bootstrap=SCALED)), []
    assert trained.online.scale is not None and learner(small("c2d")).online.scale is None
    for seed in range(5):
        law = trained.online(batch(seed=seed).obs, "act")
        q = (law.log_probs.exp() * trained.phi.back(law.atoms)).sum(-1).detach().numpy()
        seen.append(q.std(-1).mean())
        trained.update(batch(seed=seed))
        assert trained.online.scale.value.item() == pytest.approx(np.mean(seen), rel=1e-4)
    assert trained.target_network.scale.value == 1.0
    trained.synchronize(0.1)
    assert trained.target_network.scale.value == trained.online.scale.value
    assert trained.online.diagnostics()["scale_of_means"] == pytest.approx(np.mean(seen), rel=1e-4)
    other = learner(small("c2d", bootstrap=SCALED), seed=5)
    other.load_state_dict(trained.state_dict())
    assert other.update(batch()).loss == trained.update(batch()).loss
    assert torch.equal(other.online.scale.value, trained.online.scale.value)


def test_later_batches_count_a_thousandth_in_the_running_scale():
    scale = RunningScale()
    for _ in range(2_000):
        scale.watch(torch.tensor([[1.0, 3.0]]))
    scale.watch(torch.tensor([[0.0, 4.0], [2.0, 2.0], [0.0, 10.0]]))
    assert scale.value.item() == pytest.approx(1.0 + 1e-3 * (7.0 / 3 - 1.0), rel=1e-6)
    alike = RunningScale()
    alike.watch(torch.zeros(2, 1))
    assert alike.value > 0


def test_targets_in_units_of_the_running_scale_follow_the_size_of_rewards():
    """Returns, predictions and rewards a hundred times as large: so is the target. Not so with a fixed temperature."""
    for scale, follows in (("running", True), ("one", False)):
        bootstrap = Munchausen(multi_step="first", scale=scale)
        recipe = small("iqn", bootstrap=bootstrap)
        targets = []
        for size in (1.0, 100.0):
            trained = learner(recipe)
            with torch.no_grad():
                for network in (trained.online, trained.target_network):
                    for parameter in network.head.quantile.output.parameters():
                        parameter *= size
            data = batch()._replace(reward=size * batch().reward)
            rng = trained.rng.get_state()
            predicted = trained.online(data.obs, "predict", trained.rng)
            if scale == "running":
                trained.online.scale.watch((predicted.atoms.mean(-1)).detach())
            trained.rng.set_state(rng)
            targets.append(trained.target(data, predicted).atoms)
        assert torch.allclose(100.0 * targets[0], targets[1], rtol=1e-3, atol=1e-2) == follows


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


def averaging(decay, **changes):
    return small("c2d", schedule=dataclasses.replace(find("c2d").schedule, acting_average=decay), **changes)


@pytest.mark.parametrize("decay", [0.0, 0.7, 0.999])
def test_the_acting_network_is_the_weighted_mean_of_the_online_ones(decay):
    """Against Σ_i d^(t−i) θ_i / Σ_i d^(t−i) in float64, from all weights that there were after an update."""
    trained, seen = learner(averaging(decay)), []
    for seed in range(6):
        trained.update(batch(seed=seed))
        seen.append(flat(trained.online).double())
        weights = decay ** torch.arange(len(seen) - 1, -1, -1, dtype=torch.float64)
        wanted = (torch.stack(seen) * weights[:, None]).sum(0) / weights.sum()
        torch.testing.assert_close(flat(trained.acting).double(), wanted, rtol=1e-5, atol=1e-7)
    assert not any(p.requires_grad for p in trained.acting.parameters())


def test_the_average_changes_who_acts_and_not_what_an_update_does():
    plain, averaged = learner(small("c2d")), learner(averaging(0.9))
    for seed in range(3):
        assert plain.update(batch(seed=seed)).loss == averaged.update(batch(seed=seed)).loss
    assert torch.equal(flat(plain.online), flat(averaged.online))
    assert plain.acting is plain.online and not torch.equal(flat(averaged.acting), flat(averaged.online))
    assert "acting" not in plain.state_dict()


def test_statistics_of_the_acting_network_are_those_of_the_online_one():
    planes = EnvSpec("minatar/breakout", "minatar", (4, 10, 10), "uint8", 1, 3, 1)
    recipe = dataclasses.replace(averaging(0.9), encoder=MinAtar(norm="channel"))
    trained = build_learner(recipe, planes, torch.Generator().manual_seed(0), torch.Generator())
    trained.update(batch(planes=True))
    trained.update(batch(planes=True, seed=1))
    for one, other in zip(trained.acting.buffers(), trained.online.buffers(), strict=True):
        assert torch.equal(one, other)
    moved = trained.acting.encoder.activations[0].running_mean
    assert moved.abs().max() > 0


def test_the_average_plays_and_is_the_runs_weights(tmp_path):
    """Stopped and resumed or not; and a checkpoint shows the same network as the file of weights."""
    config = short_config("minatar/breakout", tmp_path / "straight", acting_average=0.9)
    run(config)
    weights = (tmp_path / "straight" / "weights.safetensors").read_bytes()
    session, checkpoint = continue_from(Checkpoints(tmp_path / "straight"), lambda: Session(config), print)
    assert session.actor.network is session.learner.acting
    found = safetensors.torch.load(weights)
    assert all(torch.equal(found[name], tensor) for name, tensor in session.learner.acting.state_dict().items())
    assert any(not torch.equal(found[name], tensor) for name, tensor in session.learner.online.state_dict().items())
    shown = open_agent(Root(tmp_path), "straight", checkpoint.path.name).agent.network.state_dict()
    assert all(torch.equal(found[name], tensor) for name, tensor in shown.items())
    stop, resumed = threading.Event(), dataclasses.replace(config, run_dir=str(tmp_path / "resumed"))
    run(resumed, [Stopping(stop, 150)], stop)
    run(resumed)
    assert (tmp_path / "resumed" / "weights.safetensors").read_bytes() == weights
    assert digests(continue_from(Checkpoints(tmp_path / "resumed"), lambda: Session(resumed), print)[0]) == digests(
        session
    )


class Stopping(Observer):
    """Asks the run to stop after a step."""

    def __init__(self, event, at):
        self.event, self.at = event, at

    def step(self, run, games):
        if run.step == self.at:
            self.event.set()


def test_a_fork_of_a_run_without_the_average_begins_with_the_online_network():
    plain, averaged = learner(small("c2d")), learner(averaging(0.9), seed=5)
    plain.update(batch())
    averaged.load_state_dict(plain.state_dict())
    assert torch.equal(flat(averaged.acting), flat(plain.online))


def test_conjugated_c51_and_qr_dqn_reduce_exactly_to_the_originals():
    """With φ = identity, the grid and the clipping of the original, not one bit differs."""
    for name, head in (("c51", Categorical(hidden=16)), ("qr-dqn", Quantile(hidden=16))):
        back = small(f"{name}-conjugated", phi=PhiSpec("identity"), clip_reward=1.0, loss=find(name).loss)
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
