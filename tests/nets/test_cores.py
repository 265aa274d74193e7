"""Memory between encoder and head: against plain loops over single steps."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch

from c2d.agents.build import build_network, build_phi
from c2d.config import default_config
from c2d.envs.spec import EnvSpec
from c2d.errors import UserError
from c2d.recipes.parts import Gru, Lstm, Scalar
from c2d.recipes.recipe import exchange
from c2d.recipes.rows import adapt, find
from c2d.types import Sequences

ENV = EnvSpec("gym/x", "gym", (4,), "float32", 1, 3, 1)
IMAGES = EnvSpec("minatar/x", "minatar", (2, 10, 10), "uint8", 1, 3, 1)


def network_of(core, env=ENV, recipe="dqn-adam", **changes):
    row = adapt(find(recipe), env)
    small = dataclasses.replace(row, core=core, head=Scalar(hidden=8) if recipe == "dqn-adam" else row.head, **changes)
    return small, build_network(small, env, torch.Generator().manual_seed(3))


def sequences(network, env, lengths, steps):
    """Stretches with (burn-in, observations after it), the burn-ins in ascending order; all after it are read."""
    rng = torch.Generator().manual_seed(5)
    earlier, after = (sum(part) for part in zip(*lengths, strict=True))

    def observations(count):
        drawn = torch.randint(0, 2, (count, *env.obs_shape), generator=rng)
        return drawn.to(torch.uint8) if env.frame_dtype == "uint8" else drawn.float()

    groups = {burn_in: sum(one == burn_in for one, _ in lengths) for burn_in, _ in lengths}
    place = torch.tensor([row * steps + k for row, (_, count) in enumerate(lengths) for k in range(count)])
    return Sequences(
        observations(earlier),
        observations(after),
        torch.randint(-1, env.actions, (earlier + after,), generator=rng),
        torch.randn(earlier + after, generator=rng) * 3,
        torch.randn(len(lengths), network.memory, generator=rng),
        place,
        place,
        tuple((count, burn_in) for burn_in, count in groups.items()),
        steps,
    )


def by_single_steps(network, given, lengths, phi, clip):
    """Features step by step in a Python loop, the burn-in without gradient; written out for an LSTM or a GRU."""
    cell = network.core.cell.cell
    w_in, w_on, b_in, b_on = cell.weight_ih_l0, cell.weight_hh_l0, cell.bias_ih_l0, cell.bias_hh_l0
    units, rows, e, f = cell.hidden_size, [], 0, 0
    for number, (burn_in, count) in enumerate(lengths):
        memory = given.memory[number]
        for k in range(burn_in + count):
            early = k < burn_in
            obs = given.burn_in[e] if early else given.obs[f]
            at = e if early else len(given.burn_in) + f
            e, f = e + early, f + (not early)
            with torch.set_grad_enabled(not early):
                x = network.encoder(obs[None], "act")[0]
                one_hot = torch.zeros(network.core.actions)
                if given.action[at] >= 0:
                    one_hot[given.action[at]] = 1.0
                reward = given.reward[at] if clip is None else given.reward[at].clamp(-clip, clip)
                x = torch.cat((x, one_hot, phi.to(reward)[None]))
                if isinstance(cell, torch.nn.LSTM):
                    h, c = memory[:units], memory[units:]
                    i, forget, g, o = (w_in @ x + b_in + w_on @ h + b_on).chunk(4)
                    c = forget.sigmoid() * c + i.sigmoid() * g.tanh()
                    memory = torch.cat((o.sigmoid() * c.tanh(), c))
                else:
                    (r_x, z_x, n_x), (r_h, z_h, n_h) = (w_in @ x + b_in).chunk(3), (w_on @ memory + b_on).chunk(3)
                    r, z = (r_x + r_h).sigmoid(), (z_x + z_h).sigmoid()
                    memory = (1 - z) * (n_x + r * n_h).tanh() + z * memory
            if not early:
                rows.append(memory[:units])
    return torch.stack(rows)


LENGTHS = [(0, 5), (0, 2), (2, 4), (3, 5), (3, 1)]


@pytest.mark.parametrize("core", [Lstm(hidden=6), Gru(hidden=6)], ids=["lstm", "gru"])
@pytest.mark.parametrize("env", [ENV, IMAGES], ids=["vector", "image"])
def test_values_and_gradients_through_time_are_those_of_a_plain_loop(core, env):
    recipe, network = network_of(core, env)
    given = sequences(network, env, LENGTHS, 5)
    wanted = by_single_steps(network, given, LENGTHS, build_phi(recipe, network), recipe.clip_reward)
    found = network.features(given, "predict")
    torch.testing.assert_close(found, wanted)
    weight = torch.randn(found.shape, generator=torch.Generator().manual_seed(1))
    parameters = [p for name, p in network.named_parameters() if not name.startswith("head")]
    for one, other in zip(
        torch.autograd.grad((found * weight).sum(), parameters),
        torch.autograd.grad((wanted * weight).sum(), parameters),
        strict=True,
    ):
        assert one.abs().sum() > 0
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


def test_a_burn_in_gives_no_gradient_but_matters():
    """Of a sequence whose only step after the burn-in sees zeros, the encoder's weights of inputs learn nothing."""
    _, network = network_of(Lstm(hidden=6))
    given = sequences(network, ENV, [(4, 1)], 1)
    given = given._replace(obs=torch.zeros_like(given.obs))
    out = network.features(given, "predict")
    first = network.encoder.layers[0].weight
    (gradient,) = torch.autograd.grad(out.sum(), first, retain_graph=True)
    assert not gradient.any() and given.burn_in.any()
    other = network.features(given._replace(burn_in=1 - given.burn_in), "predict")
    assert (other - out).abs().max() > 1e-3


def test_what_is_not_there_contributes_nothing():
    """A short sequence next to a long one has the features and gradients that it has alone."""
    _, network = network_of(Lstm(hidden=6))
    given = sequences(network, ENV, [(0, 2), (0, 6)], 6)
    alone = given._replace(
        obs=given.obs[:2], action=given.action[:2], reward=given.reward[:2], memory=given.memory[:1],
        place=given.place[:2], read=given.read[:2], burn_ins=((1, 0),), steps=2,
    )  # fmt: skip
    together, single = network.features(given, "predict")[:2], network.features(alone, "predict")
    torch.testing.assert_close(together, single)
    for parameter in network.core.parameters():
        pair = [torch.autograd.grad(out.sum(), parameter, retain_graph=True)[0] for out in (together, single)]
        torch.testing.assert_close(*pair)


def test_acting_step_by_step_is_one_sequence():
    _, network = network_of(Gru(hidden=6))
    given = sequences(network, ENV, [(0, 7)], 7)
    laws, memory = [], given.memory
    for k in range(7):
        law, memory = network.step(given.obs[k : k + 1], given.action[k : k + 1], given.reward[k : k + 1], memory)
        laws.append(law.atoms)
    torch.testing.assert_close(torch.cat(laws), network(given, "act").atoms)


def test_one_pass_has_the_next_states_too_and_those_without_gradient():
    _, network = network_of(Lstm(hidden=6))
    given = sequences(network, ENV, LENGTHS, 5)
    after = given._replace(read=given.read.roll(-1))
    now, following = network.features_and_next(given, after, "predict")
    torch.testing.assert_close(following, network.features(after, "choose"), rtol=0, atol=0)
    assert now.requires_grad and not following.requires_grad


def test_what_a_core_is_fed():
    """Actions one-hot, rewards clipped if the recipe clips and then through φ; a first step has neither."""
    for recipe, clipped in (("dqn-adam", True), ("c2d", False)):
        row, network = network_of(Lstm(hidden=6), recipe=recipe)
        x = network.core.inputs(torch.zeros(3, 2), torch.tensor([-1, 0, 2]), torch.tensor([0.0, -0.5, 100.0]))
        phi = build_phi(row, network)
        last = 1.0 if clipped else float(phi.to(torch.tensor(100.0)))
        wanted = [[0, 0, 0, 0], [1, 0, 0, float(phi.to(torch.tensor(-0.5)))], [0, 0, 1, last]]
        torch.testing.assert_close(x[:, 2:], torch.tensor(wanted))
    _, blind = network_of(Lstm(hidden=6, feed="nothing"))
    assert blind.core.inputs(torch.ones(3, 2), torch.tensor([-1, 0, 2]), torch.ones(3)).shape == (3, 2)


def test_without_a_core_nothing_changes():
    row = adapt(find("c2d"), ENV)
    network = build_network(row, ENV, torch.Generator().manual_seed(3))
    assert network.core is None and network.memory == 0
    assert not [name for name in network.state_dict() if name.startswith("core")]


def test_a_core_that_is_exchanged_has_the_size_of_the_head():
    small = exchange(default_config("minatar/breakout").recipe, {"core": "lstm"}).core
    assert (small.hidden, small.sequence, small.burn_in, small.overlap) == (128, 40, 20, 20)
    large = exchange(find("c2d"), {"core": "gru"}).core
    assert (large.hidden, large.sequence, large.burn_in, large.overlap) == (512, 80, 40, 40)


def test_sequences_that_never_move_on_are_rejected():
    config = default_config("gym/CartPole-v1")
    recipe = dataclasses.replace(config.recipe, core=Lstm(sequence=10, overlap=10))
    with pytest.raises(UserError, match=r"--core.overlap is 10; accepted: below .* --core.sequence 10"):
        recipe.core.check(recipe)


def test_initial_weights_come_from_the_runs_generator():
    (_, one), (_, same) = network_of(Lstm(hidden=6)), network_of(Lstm(hidden=6))
    for name, tensor in one.state_dict().items():
        assert torch.equal(tensor, same.state_dict()[name]), name
    bounds = [p.abs().max().item() for p in one.core.parameters()]
    assert all(0.8 / np.sqrt(6) < bound <= 1 / np.sqrt(6) for bound in bounds[:2])
    forget = one.core.cell.cell.bias_ih_l0.view(4, 6).mean(1)  # a fresh cell keeps its memory
    assert forget.argmax() == 1 and abs(forget[1] - 1) < 0.4
