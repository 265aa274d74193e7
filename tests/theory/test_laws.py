import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st

from c2d.errors import UserError
from c2d.theory.laws import Laws, compress, cramer, energy, kolmogorov, wasserstein

RNG = np.random.default_rng(0)


def some(laws=20, atoms=7, ties=True):
    places = RNG.integers(-4, 5, (laws, atoms)) if ties else RNG.normal(0, 5, (laws, atoms))
    probs = RNG.dirichlet(np.ones(atoms), laws)
    probs[:, 2] = 0.0
    return places.astype(float), probs / probs.sum(-1, keepdims=True)


def test_equal_atoms_are_merged_exactly():
    atoms, probs = some()
    laws = Laws.of(atoms, probs)
    for row in range(len(atoms)):
        wanted = {}
        for z, p in zip(atoms[row], probs[row], strict=True):
            if p > 0:
                wanted[z] = wanted.get(z, 0.0) + p
        found, weights = laws.at(row)
        assert found.tolist() == sorted(wanted)
        np.testing.assert_allclose(weights, [wanted[z] for z in found], rtol=1e-14)
    assert laws.atoms.shape[-1] < atoms.shape[-1] + 1 and (np.diff(laws.atoms) >= 0).all()
    low, high = laws.support()
    assert low[0] == laws.at(0)[0][0] and high[0] == laws.at(0)[0][-1]


@pytest.mark.parametrize("ties", [True, False])
def test_distances_against_scipy_and_the_definition(ties):
    (x, p), (y, q) = some(ties=ties), some(atoms=5, ties=ties)
    one, two = Laws.of(x, p), Laws.of(y, q)
    got = [d(one, two) for d in (cramer, wasserstein, kolmogorov, energy)]
    for k in range(len(x)):
        distance = scipy.stats.energy_distance(x[k], y[k], p[k], q[k])
        places = np.concatenate((x[k], y[k]))
        sup = max(abs(p[k][x[k] <= z].sum() - q[k][y[k] <= z].sum()) for z in places)
        wanted = [distance**2 / 2, scipy.stats.wasserstein_distance(x[k], y[k], p[k], q[k]), sup, distance**2]
        np.testing.assert_allclose([g[k] for g in got], wanted, rtol=1e-9, atol=1e-12)
    assert cramer(one, one).max() < 1e-30 and kolmogorov(one, Laws.of(x[:, ::-1], p[:, ::-1])).max() < 1e-15


@settings(max_examples=40)
@given(st.integers(1, 12), st.integers(0, 10_000))
def test_compressing_keeps_the_mean_and_states_its_error(size, seed):
    rng = np.random.default_rng(seed)
    laws = Laws.of(rng.normal(0, 10, (4, 3, 30)), rng.dirichlet(np.ones(30), (4, 3)))
    small, error = compress(laws, size)
    assert small.atoms.shape[-1] <= size
    np.testing.assert_allclose(small.mean(), laws.mean(), atol=1e-12)
    wanted = [
        [scipy.stats.energy_distance(*both) for both in zip(a, b, p, q, strict=True)]
        for a, b, p, q in zip(laws.atoms, small.atoms, laws.probs, small.probs, strict=True)
    ]
    np.testing.assert_allclose(error, np.array(wanted) / np.sqrt(2), rtol=1e-6, atol=1e-9)
    low, high = laws.support()
    assert (error**2 <= (high - low) / size + 1e-12).all()


def test_bad_input_is_named():
    for atoms, probs, words in (
        ([[0.0, np.nan]], [[0.5, 0.5]], r"atoms\[0, 1\] is nan"),
        ([[0.0, 1.0]], [[1.5, -0.5]], r"probs\[0, 1\] is -0.5"),
        ([[0.0, 1.0]], [[0.5, 0.4]], r"law \[0\] sum to 0.9; accepted: 1"),
    ):
        with pytest.raises(UserError, match=words):
            Laws.of(np.array(atoms), np.array(probs))
    with pytest.raises(UserError, match="to 0 atoms"):
        compress(Laws.of(np.zeros((1, 2)), np.array([[0.5, 0.5]])), 0)
