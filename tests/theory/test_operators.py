from fractions import Fraction

import numpy as np
import pytest

from c2d.errors import UserError
from c2d.theory import (
    FiniteMDP,
    Laws,
    conjugated,
    cramer,
    evaluation,
    from_callables,
    from_dict,
    greedy,
    iterate,
    kolmogorov,
    named,
    optimal,
    policy_q,
    random_mdp,
    simulate,
    transformed,
    value_iteration,
)
from c2d.theory.examples import fixed_point, losses
from c2d.theory.operators import bellman
from tests.oracles import finite

HALF = Fraction(1, 2)
TABLE = {
    "x": {"l": [(HALF, 1, "y"), (HALF, -1, "x")], "r": [(Fraction(1), 0, "z")]},
    "y": {"l": [(Fraction(1), 2, "x")], "r": [(Fraction(1, 4), 8, None), (Fraction(3, 4), 0, "y")]},
    "z": {"l": [(HALF, 4, None), (HALF, 0, "x")], "r": [(Fraction(1), 1, "z")]},
}


def test_iterates_of_the_optimal_operator_are_those_in_exact_fractions():
    gamma = HALF
    mdp = from_dict(
        {s: {a: [(float(p), r, t) for p, r, t in o] for a, o in acts.items()} for s, acts in TABLE.items()}, 0.5
    )
    wanted = {(s, a): {Fraction(0): Fraction(1)} for s in TABLE for a in "lr"}
    for step in iterate(mdp, Laws.zero(mdp), 5):
        for s, state in enumerate(TABLE):
            for a, action in enumerate("lr"):
                law = wanted[state, action]
                atoms, probs = step.laws.at(s, a)
                assert atoms.tolist() == [float(z) for z in sorted(law)]  # powers of 2: no rounding at all
                assert probs.tolist() == [float(law[z]) for z in sorted(law)]
        assert step.error == 0.0
        wanted = finite.optimal(TABLE, wanted, gamma)


@pytest.mark.parametrize("name", ["identity", "h", "scaled_h", "symlog", "asinh"])
def test_conjugation_mirrors_the_optimal_operator(name):
    mdp, phi = random_mdp(count=5, seed=1), named(name)
    exact = Laws.of(np.random.default_rng(0).normal(0, 2, (*mdp.shape, 2)), np.full((*mdp.shape, 2), 0.5))
    laws, q = exact.push(phi.to), exact.mean()
    for _ in range(3):
        exact, laws, q = optimal(mdp, exact), conjugated(mdp, laws, phi), bellman(mdp, q)
        np.testing.assert_allclose(laws.mean(phi.back), q, rtol=0, atol=1e-10)
        np.testing.assert_allclose(laws.push(phi.back).atoms, exact.atoms, rtol=1e-10, atol=1e-12)


def test_a_wrong_conjugation_is_noticed():
    """Discounting in φ-space, a plausible mistake: the Q-functions differ at once."""
    mdp, phi = random_mdp(seed=1), named("h")
    wrong = Laws.zero(mdp)
    for _ in range(3):
        policy = greedy(wrong.mean(phi.back))
        moved = FiniteMDP(mdp.prob, phi.to(mdp.reward), mdp.after, mdp.gamma)
        wrong = evaluation(moved, wrong, policy)
    q = bellman(mdp, bellman(mdp, bellman(mdp, np.zeros(mdp.shape))))
    assert np.abs(wrong.mean(phi.back) - q).max() > 0.1


def test_many_mdps_at_once_give_the_same_as_one_by_one():
    many, phi = random_mdp(count=3, seed=4), named("scaled_h")
    together = conjugated(many, conjugated(many, Laws.zero(many), phi), phi)
    for k in range(3):
        mdp = FiniteMDP(many.prob[k], many.reward[k], many.after[k], many.gamma)
        alone = conjugated(mdp, conjugated(mdp, Laws.zero(mdp), phi), phi)
        for s in range(10):
            for a in range(4):
                assert np.array_equal(alone.at(s, a), together.at(k, s, a))


def test_ties_are_split_evenly_on_request():
    mdp = from_dict(
        {
            "x": {"a": [(1, 0, "y")], "b": [(1, 0, "y")]},
            "y": {"a": [(1, 0, None)], "b": [(0.5, -1, None), (0.5, 1, None)]},
        },
        gamma=0.5,
    )
    once = optimal(mdp, Laws.zero(mdp))
    first, even = optimal(mdp, once), optimal(mdp, once, ties="uniform")
    assert first.at(0, 0)[0].tolist() == [0.0]
    assert even.at(0, 0)[0].tolist() == [-0.5, 0.0, 0.5] and even.at(0, 0)[1].tolist() == [0.25, 0.5, 0.25]
    even = conjugated(mdp, once, named("identity"), ties="uniform")
    assert even.at(0, 0)[1].tolist() == [0.25, 0.5, 0.25]
    assert list(iterate(mdp, Laws.zero(mdp), 2, ties="uniform"))[-1].laws.at(0, 0)[1].tolist() == [0.25, 0.5, 0.25]
    with pytest.raises(UserError, match="ties is 'last'; accepted"):
        optimal(mdp, once, ties="last")


@pytest.mark.parametrize("phi", [None, named("scaled_h")])
def test_compressed_iterates_stay_within_the_stated_bound(phi):
    mdp = random_mdp(states=4, actions=2, outcomes=2, seed=3, gamma=0.8)
    exact = list(iterate(mdp, Laws.zero(mdp), 9, phi))
    small = list(iterate(mdp, Laws.zero(mdp), 9, phi, atoms=16))
    back = (lambda x: x) if phi is None else phi.back
    for one, two in zip(exact, small, strict=True):
        assert two.laws.atoms.shape[-1] <= 16
        apart = np.sqrt(cramer(one.laws.push(back), two.laws.push(back))).max()
        assert apart <= two.error + 1e-9
        np.testing.assert_allclose(two.laws.push(back).mean(), one.laws.push(back).mean(), atol=1e-10)
    assert 0 < small[-1].error < 0.5 and exact[-1].error == 0.0


@pytest.mark.parametrize("factor", [1e-12, 1e12])
def test_nothing_depends_on_the_unit_of_rewards(factor):
    one = random_mdp(seed=6)
    other = FiniteMDP(one.prob, one.reward * factor, one.after, one.gamma)
    np.testing.assert_allclose(value_iteration(other) / factor, value_iteration(one), rtol=1e-9)
    twice = [optimal(mdp, optimal(mdp, Laws.zero(mdp))).mean() for mdp in (one, other)]
    np.testing.assert_allclose(twice[1] / factor, twice[0], rtol=1e-9, atol=1e-15)
    sure = random_mdp(seed=2, stochasticity=0.0, reward_scale=factor)
    assert losses(sure, named("asinh" if factor < 1 else "h", eps=0.0)) == 0  # without chance T_h is exact


def test_laws_agree_with_simulated_returns():
    """Kolmogorov-Smirnov: 20,000 returns are within 1.63/√n of the law with probability 0.99."""
    mdp = random_mdp(states=5, actions=2, outcomes=2, end=0.4, gamma=0.7, seed=5)
    policy = greedy(value_iteration(mdp))
    laws = Laws.zero(mdp)
    for _ in range(12):
        laws = evaluation(mdp, laws, policy)
    for s, a in ((0, 0), (2, 1), (4, 0)):
        returns = simulate(mdp, policy, s, a, episodes=20_000, seed=7, horizon=12)
        empirical = Laws.of(returns.round(9), np.full(returns.size, 1 / returns.size))
        law = Laws.of(laws.at(s, a)[0].round(9), laws.at(s, a)[1])
        assert kolmogorov(empirical, law) < 1.63 / np.sqrt(returns.size)
        wrong = Laws(law.atoms + 0.3, law.probs)
        assert kolmogorov(empirical, wrong) > 1.63 / np.sqrt(returns.size)
        whole = simulate(mdp, policy, s, a, episodes=20_000, seed=8)
        assert abs(whole.mean() - policy_q(mdp, policy)[s, a]) < 4 * whole.std() / np.sqrt(whole.size)


def test_the_transformed_operator_on_laws_is_that_on_q():
    mdp, h = random_mdp(seed=2), named("h")
    laws = Laws.zero(mdp)
    for _ in range(400):
        laws = transformed(mdp, laws, h)
    np.testing.assert_allclose(laws.mean(), fixed_point(mdp, h), atol=1e-10)
    assert laws.atoms.shape[-1] == 1


def test_without_chance_the_transformed_operator_finds_the_optimal_values():
    mdp, h = random_mdp(seed=2, stochasticity=0.0), named("h")
    np.testing.assert_allclose(h.back(fixed_point(mdp, h)), value_iteration(mdp), atol=1e-8)


def test_bad_collections_are_named():
    mdp = random_mdp(seed=0)
    with pytest.raises(UserError, match=r"shape \(2,\), but the MDP \(10, 4\)"):
        optimal(mdp, Laws.of(np.zeros((2, 1)), np.ones((2, 1))))
    squeeze = from_callables(lambda x: x / (1 + abs(x)), lambda y: y / (1 - abs(y)), "s", low=-1.0, high=1.0)
    with pytest.raises(UserError, match=r"atom\[0, 0, 0\] is 1.0, outside J = \(-1, 1\)"):
        conjugated(mdp, Laws.zero(mdp, at=1.0), squeeze)
    with pytest.raises(UserError, match="after the backup, atom"):  # 1e17 is rounded to the end of J
        conjugated(FiniteMDP(mdp.prob, mdp.reward + 1e17, mdp.after, 0.9), Laws.zero(mdp), squeeze)
    with pytest.raises(UserError, match="outside J"):
        transformed(mdp, Laws.zero(mdp, at=2.0), squeeze)
    for policy in (np.full((10, 4), 0.2), np.zeros((10, 4)), np.zeros((3, 4)), -np.eye(4)[[0] * 10]):
        with pytest.raises(UserError, match="policy"):
            evaluation(mdp, Laws.zero(mdp), policy)
    with pytest.raises(UserError, match="accepted: one MDP"):
        simulate(mdp, greedy(value_iteration(mdp)), 10, 0, 5, seed=0)
    laws = Laws(np.zeros((10, 4, 500_000)), np.full((10, 4, 500_000), 2e-6))
    with pytest.raises(UserError, match="at most 50,000,000"):
        optimal(mdp, laws)
