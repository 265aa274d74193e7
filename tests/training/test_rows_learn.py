"""Every row learns: the known law of a toy, CartPole, and some hundred steps of Atari without harm."""

from dataclasses import replace

import numpy as np
import pytest

from c2d.agents.agent import Agent
from c2d.agents.learner import fetch
from c2d.config import default_config
from c2d.envs import toy
from c2d.recipes.part import Recurrent
from c2d.recipes.parts import Adam, Categorical, Fraction, Implicit, Mlp, Munchausen, QuantileHuber, RmsProp, Scalar
from c2d.recipes.rows import RECIPES
from c2d.training.run import run
from c2d.training.session import Session
from tests.oracles import toy_law
from tests.training.short_runs import UNLIKE, short_config
from tests.training.test_cartpole import RANDOM_SCORE, mean_score
from tests.training.test_learned_laws import GAMMA, errors
from tests.training.test_resume import go, saving

RATE = 5e-3
SOFT = [name for name, row in RECIPES.items() if isinstance(row.bootstrap, Munchausen)]  # learn laws of a soft policy


def remembers(row):
    return isinstance(row.core, Recurrent)


def small(head):
    head = replace(head, hidden=64)
    if isinstance(head, Fraction):
        head = replace(head, atoms=16, cosines=32)
    return replace(head, atoms=24, target_atoms=24, policy_atoms=24) if isinstance(head, Implicit) else head


def trained(row, name):
    """As in test_learned_laws. Steps are single: longer ones would learn the law of random play."""
    config = default_config(f"toy/{name}", row, seed=1)
    recipe = config.recipe
    head = small(recipe.head)
    if isinstance(head, Categorical):
        head = replace(head, atoms=201, v_min=-30.0, v_max=10.0)
    updates = 900 if isinstance(head, Implicit | Fraction) else 600  # fractions drawn at random learn more slowly
    optim = Adam(RATE, learning_rate_final=0.01 * RATE, decay_updates=updates, eps=1e-6)
    if isinstance(recipe.optim, RmsProp):
        optim = replace(recipe.optim, learning_rate=1e-3)
    loss = recipe.loss
    if isinstance(loss, QuantileHuber):  # with κ = 1 the atoms are between quantiles and expectiles
        loss = QuantileHuber(0.0)
    schedule = replace(recipe.schedule, random_history=5_000, gamma=GAMMA, epsilon_initial=1.0)
    recipe = replace(
        recipe,
        encoder=Mlp((64,)),
        head=head,
        loss=loss,
        schedule=schedule,
        optim=optim,
        n_step=1,
        clip_reward=None,
        noisy=False,
    )
    session = Session(replace(config, recipe=recipe))
    session.fill_history()
    for update in range(updates):
        if update % 30 == 0:
            session.learner.synchronize()
        (made,) = fetch([session.learner.update(session.replay.sample(64, session.sampling))])
        session.replay.feedback(made.indices, made.priority)
    return Agent(session.learner.online, recipe, session.env.spec)


# Rows of btr are here what others are: munchausen-iqn, rainbow-c2d-full. On CartPole each learns by itself.
LAWS = [n for n, row in RECIPES.items() if not n.startswith(("c2d", "btr")) and not remembers(row)]


@pytest.mark.parametrize("row", LAWS)
def test_toy(row):
    scalar = isinstance(RECIPES[row].head, Scalar)
    name = "sure" if scalar else "negative"  # T_h of th-dqn is exact without chance only
    agent = trained(row, name)
    codes = np.eye(len(toy.TOYS[name].states), dtype=np.float32)
    assert [agent.act(code) for code in codes] == [toy_law.best_action(name, s, GAMMA) for s in range(len(codes))]
    if row in SOFT:
        return
    found = errors(agent, name)
    # few atoms, at random places; those of FQF stay where they began, which is not at equal distances
    bound = {Implicit: 0.3, Fraction: 0.5}.get(type(RECIPES[row].head), 0.2)
    assert max(found.values()) <= bound, found


def test_cartpole_has_no_pictures_to_normalize():
    """So these rows are one there, and the test below of the one is that of the other."""
    assert default_config("gym/CartPole-v1", "c2d-channel").recipe == default_config("gym/CartPole-v1", "c2d").recipe


# c2d: test_cartpole.py; rows that remember: test_recurrent.py
@pytest.mark.parametrize(
    "row", [n for n, row in RECIPES.items() if n not in ("c2d", "c2d-channel") and not remembers(row)]
)
def test_cartpole(row):
    """Several times better than chance, and than untrained, within some thousand steps: FQF needs most.

    A few games decide when training ends. Other games, played once, decide whether it succeeded.
    """
    config = default_config("gym/CartPole-v1", row, seed=1, threads=1)
    recipe = config.recipe
    schedule = replace(recipe.schedule, batch_size=32, epsilon_decay_steps=2_000, random_history=500)
    recipe = replace(recipe, head=small(recipe.head), encoder=Mlp((64,)), schedule=schedule)
    config = replace(config, recipe=recipe)
    session = Session(config)
    session.fill_history()
    agent = Agent(session.learner.online, recipe, session.env.spec)
    untrained = mean_score(agent, config, 10, 0.001, seed=7)
    while session.step < 9_000:
        for _ in range(500 if recipe.envs == 1 else 1_000 // recipe.envs):
            session.advance()
        if mean_score(agent, config, 5, 0.001) > 5 * RANDOM_SCORE:
            break
    assert mean_score(agent, config, 10, 0.001, seed=7) > max(4 * RANDOM_SCORE, untrained)


@pytest.mark.parametrize("row", [*UNLIKE, "c2d-channel"])  # which differs from c2d on these pictures alone
def test_atari(row, tmp_path):
    """A hundred steps of Breakout without harm."""
    result = run(short_config("breakout", tmp_path / "run", recipe=row, iterations=1, steps=40))
    assert result.state == "finished" and all(np.isfinite(r["mean_loss"]) for r in result.records)


@pytest.mark.parametrize("row", UNLIKE)
def test_exact_resume(row, tmp_path):
    """Stopped and resumed, not one bit differs. (On Atari: test_resume.py.)"""
    wanted = go(saving(short_config("minatar/breakout", tmp_path / "straight", recipe=row, steps=40)))
    assert wanted.result.state == "finished"
    config = saving(short_config("minatar/breakout", tmp_path / "run", recipe=row, steps=40))
    go(config, stop=50)
    assert go(config).digests == wanted.digests
