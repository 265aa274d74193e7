"""The unit of rewards: learning is the same at every scale of rewards, and predictions are real returns."""

import signal
from dataclasses import replace

import numpy as np
import pytest
import torch

import c2d
from c2d.agents.agent import Agent
from c2d.config import Checkpointing, default_config
from c2d.envs import toy
from c2d.recipes.parts import Adam, Conjugated, Mlp
from c2d.runs.reader import read_records
from c2d.training import reward_unit
from c2d.training.session import Session
from tests.oracles import toy_law
from tests.training.short_runs import short_config
from tests.training.test_resume import go, results, saving

GAMMA, STEPS = 0.99, 1_200
TOY = "sure"  # nothing is random: a learned mean that is not the true one is an error of learning


def scale(monkeypatch, factor, name=TOY):
    """The toy with all rewards times `factor`; the oracle sees the same."""
    found = toy.TOYS[name]
    states = tuple(
        tuple(tuple(o._replace(reward=o.reward * factor) for o in outcomes) for outcomes in actions)
        for actions in found.states
    )
    monkeypatch.setitem(toy.TOYS, name, replace(found, states=states))


def session_of(name=TOY, unit="auto", learning_rate=5e-3, **schedule):
    usual = {"random_history": 2_000, "replay_capacity": 10_000, "batch_size": 64, "update_period": 2,
             "target_period": 40, "epsilon_decay_steps": 1_000, "epsilon_min": 0.2}  # fmt: skip
    config = short_config(f"toy/{name}", "unused", **{**usual, **schedule})
    recipe = replace(
        config.recipe,
        encoder=Mlp((64,)),
        head=Conjugated(hidden=64, embedding=64, unit=unit),
        optim=Adam(learning_rate, learning_rate_final=learning_rate / 100, decay_updates=STEPS // 2, eps=1e-6),
    )
    return Session(replace(config, recipe=recipe))


def trained(steps=STEPS, **settings):
    """The session, and every action that was taken."""
    session = session_of(**settings)
    session.fill_history()
    return session, played(session, steps)


def played(session, steps):
    taken, step = [], session.env.step
    session.env.step = lambda action: (taken.append(action), step(action))[1]
    for _ in range(steps):
        session.advance()
    return taken


def agent_of(session):
    return Agent(session.learner.acting, session.config.recipe, session.env.spec)


def error_of_means(session, name=TOY):
    """The largest error of a predicted mean, by the largest true one."""
    states = toy.TOYS[name].states
    laws = {(s, a): toy_law.law(name, s, a, GAMMA) for s, actions in enumerate(states) for a in range(len(actions))}
    means = {pair: float(probs @ values) for pair, (values, probs) in laws.items()}
    predicted = agent_of(session).distribution(np.eye(len(states), dtype=np.float32)).mean
    return max(abs(predicted[pair] - mean) for pair, mean in means.items()) / max(map(abs, means.values()))


def greedy(session):
    return agent_of(session).act(np.eye(4, dtype=np.float32)).tolist()


def weights(session):
    return {name: tensor for name, tensor in session.learner.online.state_dict().items() if name != "head.unit.u"}


@pytest.fixture(scope="module")
def usual():
    return trained()


@pytest.fixture(scope="module")
def beginning():
    """The first quarter of it."""
    return trained(STEPS // 4)


# ---------------------------------------------------------------------------------------------- the same at any scale


@pytest.mark.parametrize("factor", [1e-3, 1.0, 1e6, 1e9])
def test_means_are_true_at_every_scale(factor, usual, monkeypatch):
    scale(monkeypatch, factor)
    session, _ = usual if factor == 1.0 else trained()
    error = error_of_means(session)
    print(f"rewards × {factor:g}: largest error of a mean {100 * error:.2f} %")
    assert error < 0.05
    assert greedy(session) == greedy(usual[0]) == [toy_law.best_action(TOY, state, GAMMA) for state in range(4)]
    unit, other = (each.learner.online.head.unit.u.item() for each in (session, usual[0]))
    assert unit == pytest.approx(factor * other, rel=1e-6)


@pytest.mark.parametrize("power", [-10, 20, 30])
def test_powers_of_two_change_no_action_and_no_bit_of_the_weights(power, beginning, monkeypatch):
    """About 10⁻³, 10⁶ and 10⁹: nothing is rounded differently, so runs are the same at every step."""
    scale(monkeypatch, 2.0**power)
    session, taken = trained(STEPS // 4)
    assert taken == beginning[1]
    for name, tensor in weights(beginning[0]).items():
        assert torch.equal(tensor, weights(session)[name]), name


def test_without_a_unit_large_rewards_are_out_of_reach(monkeypatch):
    """Else the tests above could not fail."""
    scale(monkeypatch, 1e6)
    session, _ = trained(500, unit="one")
    assert error_of_means(session) > 0.9


# ---------------------------------------------------------------------------------------------------- finding it


def test_it_is_a_thirtieth_of_a_typical_return_and_the_run_says_so():
    session = session_of()
    session.fill_history()
    returns, total, ring = [], 0.0, session.replay.rings[0]
    for number in reversed(range(ring.head - 1)):  # an oracle, slot by slot; the newest slot has no action yet
        slots = session.replay.slots
        if slots.action[number] < 0:
            total = 0.0
            continue
        total = float(slots.reward[number]) + (0.0 if slots.terminal[number] else GAMMA * total)
        returns.append(abs(total))
    typical = sum(g * g for g in returns) / sum(returns)
    assert len(returns) == 2_000 and 1 < typical < 6  # gains of 0 to 6
    for network in (session.learner.online, session.learner.target_network):
        assert network.head.unit.u.item() == pytest.approx(typical / 30)
    [(text, warning)] = session.notices
    assert text.startswith(f"unit of rewards {typical / 30:.4g}: a typical discounted return") and not warning


def test_states_from_which_nothing_follows_do_not_count():
    class Stored:
        gamma = 0.5

        def __init__(self, *returns):
            self.slots = type("Slots", (), {"reward": np.array(returns)})

        def returns(self):
            return self.slots.reward

    assert reward_unit.typical_return(Stored(3.0, -3.0, 3.0)) == 3.0
    assert reward_unit.typical_return(Stored(*[0.0] * 997, 3.0, -3.0, 3.0)) == 3.0
    assert reward_unit.typical_return(Stored(1.0, -3.0)) == 10 / 4
    assert reward_unit.typical_return(Stored(0.0, 0.0)) == 0.0


def test_a_history_without_rewards(monkeypatch):
    """u is found at the first copy of the target network after a reward.

    The learning rate is lower than elsewhere here. At 5e-3, targets that are all 0 end most ReLUs of this small network
    for good: with this seed none is left, whether u is found or is 1 and rewards are, too.
    """
    scale(monkeypatch, 1e6)
    session = session_of(learning_rate=1e-3, random_history=200, replay_capacity=400, epsilon_min=1.0)
    rewarding = session.env._toy
    monkeypatch.undo()
    scale(monkeypatch, 0.0)
    session.env._toy = toy.TOYS[TOY]
    session.fill_history()
    session_unit = session.learner.online.head.unit
    played(session, 100)
    assert not session.notices and not session_unit.found and session_unit.u == 1
    monkeypatch.undo()
    scale(monkeypatch, 1e6)
    session.env._toy = rewarding
    played(session, 21)  # the copy at step 120 sees the first rewards
    assert session_unit.found and 1e4 < session_unit.u < 1e6 and len(session.notices) == 1
    played(session, STEPS)
    assert error_of_means(session) < 0.05


# ---------------------------------------------------------------------------------------------------- growing


def too_small(session, factor):
    for network in (session.learner.online, session.learner.target_network):
        network.head.unit.u.div_(factor)


def test_grows_from_a_thousandth():
    session = session_of()
    session.fill_history()
    right = session.learner.online.head.unit.u.item()
    too_small(session, 1_000)
    played(session, STEPS)
    found = session.learner.online.head.unit.u.item()
    grown = [text for text, _ in session.notices if "atoms reach their bound" in text]
    print(f"{len(grown)} doublings, u {found / right:.3g} of the usual one, error {error_of_means(session):.3f}")
    assert found == pytest.approx(right / 1_000 * 2 ** len(grown)) and 1 / 60 < found / right < 4
    assert error_of_means(session) < 0.05


def test_grows_no_further_than_any_return(monkeypatch):
    """Atoms at the bound are errors once it exceeds max|r|/(1 − γ)."""
    monkeypatch.setattr(reward_unit, "MOST", -1.0)
    session = session_of(gamma=0.5)
    session.fill_history()
    played(session, 200)
    head = session.learner.online.head
    reach = session.learner.phi.back(head.alpha.detach() * 0.95).item()
    assert reach >= 4 / 0.5 and len(session.notices) == 1  # u of the history reaches it already


@pytest.mark.parametrize("schedule", [{}, {"polyak": 0.05}, {"acting_average": 0.9}])
def test_all_networks_have_the_same_unit(schedule, monkeypatch):
    monkeypatch.setattr(reward_unit, "TYPICAL", 1e5)
    monkeypatch.setattr(reward_unit, "MOST", -1.0)
    session = session_of(**schedule)
    session.fill_history()
    learner = session.learner
    played(session, 170)
    units = [network.head.unit.u.item() for network in (learner.online, learner.target_network, learner.acting)]
    assert units[0] == units[1] == units[2]
    assert sum("→" in text for text, _ in session.notices) == 5  # at steps 0, 40, …, 160


def test_polyak_averaging_copies_the_unit():
    learner = session_of(polyak=0.05).learner
    learner.online.head.unit.u.fill_(8.0)
    learner.synchronize(0.05)
    assert learner.target_network.head.unit.u == 8.0


# ---------------------------------------------------------------------------------------------------- runs


def growing_config(path, monkeypatch, **changes):
    """A run whose unit doubles at every copy of the target network."""
    monkeypatch.setattr(reward_unit, "TYPICAL", 1e6)
    monkeypatch.setattr(reward_unit, "MOST", -1.0)
    config = short_config("toy/skewed", path, **changes)
    return saving(replace(config, recipe=replace(config.recipe, head=replace(config.recipe.head, unit="auto"))))


@pytest.mark.parametrize("stop", [10, 51, 130])
def test_resume_is_exact_after_a_doubling(stop, tmp_path, monkeypatch):
    straight = go(growing_config(tmp_path / "straight", monkeypatch))
    config = growing_config(tmp_path / "run", monkeypatch)
    first = go(config, stop=stop)
    assert sum("→" in text for text in first.notices) == 1 + stop // 50
    resumed = go(config)
    assert resumed.digests == straight.digests
    assert results(tmp_path / "run") == results(tmp_path / "straight")
    units = [record["unit"] for record in read_records(tmp_path / "run" / "records.jsonl")[1:]]
    assert len(units) == 2 and units[1] == 4 * units[0]
    assert any(text.startswith("unit of rewards ") for text in resumed.notices)


def test_resume_is_exact_within_the_history(tmp_path, monkeypatch):
    straight = go(growing_config(tmp_path / "straight", monkeypatch))
    fill, made = Session.fill, []

    def filling(self):
        made.append(fill(self))
        if len(made) == 30:
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(Session, "fill", filling)
    config = growing_config(tmp_path / "run", monkeypatch)
    first = go(config)
    assert (first.session.history, first.session.learner.online.head.unit.found.item()) == (30, 0.0)
    assert go(config).digests == straight.digests


def test_weights_file_and_agent_give_real_returns(tmp_path, monkeypatch):
    config = growing_config(tmp_path / "run", monkeypatch)
    session = go(replace(config, checkpoint=Checkpointing(keep=1))).session
    states = np.eye(3, dtype=np.float32)
    law = session.learner.online(torch.from_numpy(states), "act")
    u = session.learner.online.head.unit.u.item()
    phi = config.recipe.phi.build()
    loaded = c2d.load(tmp_path / "run")
    returns = (u * phi.back(law.atoms.sort(-1).values)).detach().numpy()
    np.testing.assert_allclose(loaded.distribution(states).returns, returns, rtol=1e-5)
    assert loaded.act(states).tolist() == session.actor.greedy(states).tolist()
    np.testing.assert_allclose(np.sort(loaded.actor.laws(states)[0].numpy()), returns, rtol=1e-5)


def test_a_recipe_with_one_has_the_state_it_had():
    session = session_of(unit="one")
    names = {name.partition(".")[2] for name in session.learner.online.state_dict() if name.startswith("head.")}
    layers = ("dense", "logits.advantage", "embedding", "support.advantage")
    assert names == {"alpha", *(f"{layer}.{kind}" for layer in layers for kind in ("weight", "bias"))}
    session.fill_history()
    played(session, 10)
    record = session.finish_iteration().to_json()
    assert "unit" not in record and not session.notices
    assert session.learner.phi.to(torch.tensor(8.0)) == session.config.recipe.phi.build().to(torch.tensor(8.0))


# ---------------------------------------------------------------------------------------------------- the warning


def warnings_of(tmp_path, alpha, iterations=3):
    config = short_config("toy/skewed", tmp_path / "run", iterations=iterations, steps=200, update_period=2)
    head = replace(config.recipe.head, alpha=alpha)
    witness = go(saving(replace(config, recipe=replace(config.recipe, head=head))))
    assert len(witness.result.records) == iterations
    return [text for text in witness.notices if text.startswith("warning: ")]


def test_saturated_atoms_are_warned_of_once(tmp_path):
    [text] = warnings_of(tmp_path, alpha=1.0)
    assert "of the predicted mass is at the bound of the atoms, α = 1" in text and "--head.unit auto" in text
    assert text.removeprefix("warning: ") in (tmp_path / "run" / "events.jsonl").read_text()


def test_a_healthy_run_is_not_warned(tmp_path):
    assert not warnings_of(tmp_path, alpha=50.0)


def test_a_few_atoms_at_the_bound_are_no_reason_to_warn(monkeypatch):
    """The extreme atom alone decides only whether the mass is measured."""
    session = session_of("skewed", unit="one")
    session.fill_history()
    assert reward_unit.warning(session.learner, session.replay, 49.9) is None
    monkeypatch.setattr(reward_unit, "MOST", -1.0)
    assert reward_unit.warning(session.learner, session.replay, 47.4) is None
    assert "0 % of the predicted mass" in reward_unit.warning(session.learner, session.replay, 47.6)


def test_measuring_for_the_warning_changes_nothing(tmp_path, monkeypatch):
    def digests(path):
        return go(saving(short_config("toy/skewed", path))).digests

    usual = digests(tmp_path / "one")
    measured = []
    warning = reward_unit.warning
    monkeypatch.setattr(reward_unit, "MOST", 2.0)
    monkeypatch.setattr(
        reward_unit, "warning", lambda learner, replay, _: measured.append(warning(learner, replay, 1e9))
    )
    assert digests(tmp_path / "other") == usual and measured == [None, None]


def test_rewards_of_a_million_from_start_to_end(tmp_path):
    """50 steps of a reward each: predicted means of the best actions against the true returns."""
    env = "tests.envs.large_rewards:Signs"
    config = default_config(env, iterations=3, run_dir=str(tmp_path / "run"), tensorboard=False, threads=1)
    schedule = replace(config.recipe.schedule, steps_per_iteration=2_000, epsilon_decay_steps=2_000)
    head = replace(config.recipe.head, unit="auto")
    config = replace(config, recipe=replace(config.recipe, head=head, schedule=schedule))
    witness = go(config)
    assert witness.session.step == 6_000 and not any(text.startswith("warning") for text in witness.notices)
    left = np.arange(50, 0, -1).repeat(2)
    true = 1e6 * (1 - GAMMA**left) / (1 - GAMMA)
    observations = np.stack((np.tile([-1.0, 1.0], 50), left / 25 - 1), 1).astype(np.float32)
    predicted = c2d.load(tmp_path / "run").distribution(observations).mean.max(-1)
    print(f"at the start: predicted {predicted[:2].mean():.3g}, true {true[0]:.3g}")
    assert np.abs(predicted - true).max() < 0.2 * true[0]
    assert abs(predicted[:2].mean() / true[0] - 1) < 0.2
