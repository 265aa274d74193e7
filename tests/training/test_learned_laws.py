"""Toys whose law of the return is known: the learned law must be it, and a broken backup must not pass for it."""

from dataclasses import replace

import numpy as np
import pytest
import torch

import c2d.agents.learner
from c2d.agents.agent import Agent
from c2d.config import default_config
from c2d.envs import toy
from c2d.recipes.parts import Adam, Conjugated, Mlp
from c2d.training.session import Session
from tests.oracles import toy_law

GAMMA = 0.99
BOUND = 0.05  # of the square root of the true law's standard deviation
UPDATES, LEARNING_RATE, HISTORY = 1600, 5e-3, 20_000


def trained_agent(name, updates=UPDATES):
    """Random play, then updates with a learning rate that falls to nearly 0; the target is copied every 40."""
    config = default_config(f"toy/{name}", seed=1)
    recipe = replace(
        config.recipe,
        encoder=Mlp((64,)),
        head=Conjugated(hidden=64, embedding=64, alpha=100.0, c=4.0),
        schedule=replace(config.recipe.schedule, random_history=HISTORY, gamma=GAMMA),
        optim=Adam(LEARNING_RATE, learning_rate_final=0.01 * LEARNING_RATE, decay_updates=updates, eps=1e-6),
    )
    session = Session(replace(config, recipe=recipe))
    session.fill_history()
    for update in range(updates):
        if update % 40 == 0:
            session.learner.synchronize()
        session.learner.update(session.replay.sample(64, session.sampling))
    return Agent(session.learner.online, recipe, session.env.spec)


def cramer(values, probs, other_values, other_probs):
    """ℓ₂ between two discrete laws of real returns, not squared."""
    places = np.concatenate((values, other_values))
    order = places.argsort(kind="stable")
    difference = np.concatenate((probs, -other_probs))[order].cumsum()[:-1]
    return np.sqrt((difference**2 * np.diff(places[order])).sum())


def deviation(values, probs):
    return np.sqrt(probs @ (values - probs @ values) ** 2)


def decided(name, state):
    """Whether the best action is better by more than what 20,000 steps of play leave uncertain."""
    laws = [toy_law.law(name, state, action, GAMMA) for action in toy_law.legal(toy.TOYS[name], state)]
    *_, second, best = sorted([probs @ values for values, probs in laws] + [-np.inf])
    return best - second > 0.05 * max(deviation(*law) for law in laws)


def pairs(name):
    """(state, action) whose law does not hang on a choice left open."""
    states = toy.TOYS[name].states
    for state, actions in enumerate(states):
        for action, outcomes in enumerate(actions):
            if outcomes and all(outcome.to is None or decided(name, outcome.to) for outcome in outcomes):
                yield state, action


def errors(agent, name):
    """ℓ₂ of each pair over √(standard deviation). A sure pair is held to the most uncertain one of its toy,
    and a toy without chance to its largest return."""
    laws = {pair: toy_law.law(name, *pair, GAMMA) for pair in pairs(name)}
    most = max(deviation(*law) for law in laws.values()) or max(abs(values).max() for values, _ in laws.values())
    codes = np.eye(len(toy.TOYS[name].states), dtype=np.float32)
    found = {}
    for (state, action), law in laws.items():
        learned = agent.distribution(codes[state])
        returns, probs = (part[action].astype(np.float64) for part in (learned.returns, learned.probs))
        scale = deviation(*law) if deviation(*law) > 1e-6 else most
        found[state, action] = cramer(returns, probs, *law) / np.sqrt(scale)
    return found


@pytest.mark.parametrize("name", sorted(set(toy.TOYS) - {"gamble"}))  # that one is in tests/theory
def test_learned_law_is_the_true_one(name):
    found = errors(trained_agent(name), name)
    assert len(found) >= 4
    assert max(found.values()) <= BOUND, found


def mean_only(backup):
    def broken(reward, discount, law, phi):
        target = backup(reward, discount, law, phi)
        mean = (target.log_probs.exp() * target.atoms).sum(-1, keepdim=True)
        return target._replace(atoms=mean.expand_as(target.atoms))

    return broken


BROKEN = {
    "sums in φ-space": lambda backup: (
        lambda r, d, law, phi: law._replace(atoms=phi.to(r)[:, None] + d[:, None] * law.atoms)
    ),
    "forgets φ⁻¹": lambda backup: (
        lambda r, d, law, phi: law._replace(atoms=phi.to(r[:, None] + d[:, None] * law.atoms))
    ),
    "discounts wrongly": lambda backup: lambda r, d, law, phi: backup(r, d * 0.95, law, phi),
    "keeps the mean only": mean_only,
}


@pytest.mark.parametrize("fault", sorted(BROKEN))
def test_broken_backup_is_caught(fault, monkeypatch):
    monkeypatch.setattr(c2d.agents.learner, "backup", BROKEN[fault](c2d.agents.learner.backup))
    found = errors(trained_agent("negative", UPDATES // 2), "negative")
    assert max(found.values()) > 3 * BOUND, found


def test_the_right_backup_is_far_below_what_broken_ones_must_exceed():
    found = errors(trained_agent("negative", UPDATES // 2), "negative")
    assert max(found.values()) < 2 * BOUND, found


def test_distance_of_this_file():
    """Two points a apart: √a."""
    one, other = np.array([0.0]), np.array([9.0])
    assert cramer(one, np.ones(1), other, np.ones(1)) == 3.0
    assert torch.get_num_threads() == 1
