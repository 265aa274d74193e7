"""The counterexample, the table of statements (and that it can fail), the search, the command."""

import numpy as np
import pytest
import torch

import c2d.theory.statements as statements
from c2d.cli.main import main
from c2d.errors import UserError
from c2d.theory import Laws, from_dict, named, random_mdp, value_iteration
from c2d.theory.examples import (
    clipping,
    counterexample,
    cycle,
    expansion,
    fixed_point,
    losses,
    survey,
    wilson,
    worst_loss,
)
from c2d.theory.operators import conjugated
from c2d.theory.statements import LOSSES, sample_bias


@pytest.mark.parametrize("h", [named("h"), named("symlog"), named("asinh"), named("h", eps=0.0)], ids=lambda h: h.name)
def test_counterexample(h):
    found = counterexample(h, 100.0)
    assert found.low == pytest.approx(float(h.back(h.to(np.array([100.0])) / 2)[0])) and found.high == 50
    assert found.choice == {"T*": "a", "T_h": "b", "T_φ": "a"}
    assert found.q["T*"].tolist() == pytest.approx([50, found.sure]) == found.q["T_φ"].tolist()
    assert found.q["T_h"].tolist() == pytest.approx([found.low, found.sure])
    assert set(counterexample(h, 100.0, sure=found.low * 0.99).choice.values()) == {"a"}
    assert set(counterexample(h, 100.0, sure=50.1).choice.values()) == {"b"}
    for wrong, words in (
        (dict(prize=-1.0), "R is -1"),
        (dict(sure=float("nan")), "r is nan"),
        (dict(gamma=2.0), "gamma is 2"),
    ):
        with pytest.raises(UserError, match=words):
            counterexample(h, **wrong)


def test_every_statement_holds():
    found = list(statements.check(mdps=4, states=4, actions=3, steps=2, cases=100))
    assert len(found) == 19 and all(finding.holds for finding in found), found


BREAK = {
    "conjugated": lambda mdp, laws, phi: conjugated(mdp, laws.push(lambda x: 0.999 * x), phi),
    "optimal": lambda mdp, laws: Laws(laws.atoms + 0.01, laws.probs),
    "energy": lambda one, two: np.zeros(one.atoms.shape[0]),
    "clipping_loss": lambda: 0.0,
    "cycle": lambda steps: [Laws.of(np.full((1, 1), 0.9 * k), np.ones((1, 1))) for k in range(steps)],  # a steady drift
    "expansion": lambda bonus: (0.9, 0.9),
    "project": lambda law, grid: torch.full((law.atoms.shape[0], 51), 1 / 51, dtype=law.atoms.dtype),
    "LOSSES": {"squared Cramér": LOSSES["Wasserstein"], "Wasserstein": LOSSES["squared Cramér"]},
}  # fmt: skip


@pytest.mark.parametrize("part", BREAK)
def test_the_table_can_fail(part, monkeypatch):
    monkeypatch.setattr(statements, part, BREAK[part])
    assert not all(finding.holds for finding in statements.check(1, 3, 2, 2, cases=20, draws=20_000))


def test_sample_gradients_in_expectation():
    """From single draws: no bias for the squared Cramér distance, a large one for Wasserstein."""
    cramer, wasserstein = (sample_bias(LOSSES[name], 40_000, 1, seed=3) for name in ("squared Cramér", "Wasserstein"))
    assert (np.abs(cramer.bias) <= 4.5 * cramer.error + 1e-12).all()
    assert (np.abs(wasserstein.bias) > 10 * wasserstein.error + 1e-9).any()


@pytest.mark.parametrize("seed", [4, 42, 47, 49])
def test_the_verdict_on_gradients_does_not_depend_on_the_seed(seed):
    assert all(finding.holds for finding in statements._gradients(seed, 30_000))


def test_not_a_contraction_and_clipping():
    one, two, three = cycle(2)
    assert np.array_equal(one.atoms, three.atoms) and not np.array_equal(one.atoms, two.atoms)
    assert expansion(1e-3)[1] > 100
    real, clipped = clipping()
    assert value_iteration(real)[0].argmax() == 1 and value_iteration(clipped)[0].argmax() == 0


def test_the_search_agrees_with_a_slow_loop():
    mdp, h = random_mdp(states=4, actions=2, outcomes=2, count=30, seed=1, spread=2.0), named("h")
    found = losses(mdp, h)
    for k in range(30):
        entries = [array[k].tolist() for array in (mdp.prob, mdp.reward, mdp.after)]
        table = {
            s: {
                a: [(p, r, None if t < 0 else t) for p, r, t in zip(*(e[s][a] for e in entries), strict=True)]
                for a in (0, 1)
            }
            for s in range(4)
        }
        one = from_dict(table, mdp.gamma)
        best, wrong = value_iteration(one), fixed_point(one, h).argmax(-1)
        loses = any(best[s].max() - best[s, wrong[s]] > 1e-6 * best.max() for s in range(4))
        assert loses == (found[k] > 0)
    assert 0 < (found > 0).mean() < 1 and found.max() <= 1
    sure, chance = survey((0.0, 0.5), (100.0,), (1e-3,), (2.0,), mdps=40, gamma=0.7)
    assert sure.wrong == 0 and chance.wrong > 0.05 and chance.low < chance.wrong < chance.high
    assert wilson(0.0, 10) == (0.0, pytest.approx(0.2775, abs=1e-3))  # Wilson 1927
    worst = worst_loss(1e-3)
    h = named("h", 1e-3)
    sure_r = h.back(worst.chance * h.to(np.array([worst.prize])))[0]
    assert worst.loss == pytest.approx(1 - sure_r / (worst.chance * worst.prize)) and worst.loss > 0.99


def run(capsys, *words):
    code = main(["theory", *words])
    out = capsys.readouterr()
    return code, out.out, out.err


def test_command(capsys, tmp_path):
    code, out, _ = run(capsys, "--h", "x / (1 + abs(x))", "--reward", "3", "--save", str(tmp_path / "a.svg"))
    assert code == 0 and "0.6 < r < 1.5" in out and "b   wrong" in out
    assert "<svg" in (tmp_path / "a.svg").read_text()
    code, out, _ = run(capsys, "phi", "x / sqrt(1 + x*x)", "--save", str(tmp_path / "b.png"))
    assert code == 0 and "J = (-1, 1)" in out and (tmp_path / "b.png").read_bytes()[:4] == b"\x89PNG"
    code, out, _ = run(capsys, "phi", "tests.theory.own_phi:cube_root_like")
    assert code == 0 and "by bisection" in out
    few = ("--mdps", "3", "--eps", "0.01", "--reward-scale", "9", "--stochasticity", "0", "1", "--gamma", "0.6")
    code, out, _ = run(capsys, "search", *few, "--spread", "0", "2", "--save", str(tmp_path / "c.svg"))
    assert code == 0 and "the most that can be lost" in out and (tmp_path / "c.svg").stat().st_size > 10_000
    code, out, _ = run(capsys, "check", "--mdps", "1", "--states", "2", "--actions", "2", "--steps", "2")
    assert code == 0 and "all statements hold" in out
    assert run(capsys, "--help")[0] == 0
    code, out, _ = run(capsys, "--sure", "50")
    assert "T*                  50          50   either" in out and "wrong\n" not in out.split("operator")[1]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["chek"], "Did you mean 'check'"),
        (["--h", "identity"], "not strictly concave"),
        (["--h", "x**3"], "not strictly concave"),
        (["--h", "exp(x)"], "not odd"),
        (["--h", "tanh(x)"], "is 1.0, outside J = (-1, 1)"),
        (["--h", "asih"], "Did you mean 'asinh'"),
        (["--save", "a.jpg"], "must end in .svg or .png or .pdf"),
        (["--save", "/no/where/a.svg"], "a file in a directory that exists"),
        (["--gamma", "1"], "gamma is 1"),
        (["--h", "x/(1+abs(x))", "--sure", "1e300"], "of r = 1e+300: value[0] is 1.0, outside J"),
        (["check", "--steps", "20"], "--steps is 20; accepted: at most 8"),
        (["check", "--seed", "-1"], "--seed is -1"),
        (["search", "--eps", "-1"], "--eps is -1"),
        (["search", "--stochasticity"], "--stochasticity is empty"),
        (["search", "--reward-scale", "0"], "--reward-scale is 0"),
        (["phi", "x", "--inverse", "2*y"], "the given inverse is not that of φ"),
        (["phi", "x", "--inverse", "x"], 'unknown name "x" in the formula; accepted: y,'),
        (["phi", "numpy:arcsinh"], "accepted: a function of torch tensors"),
        (["phi", "os:getcwd"], "accepted: a function of torch tensors"),
        (["check", "--mdps", "0"], "--mdps is 0"),
        (["search", "--gamma", "2"], "gamma is 2"),
        (["phi"], "no function given"),
        (["phi", "sin(x)"], "not increasing"),
        (["phi", "no.such.module:f"], "cannot be imported"),
        (["phi", "math:pi"], '"math:pi" is a float'),
    ],
)
def test_bad_input_is_one_line(capsys, words, message):
    code, _, err = run(capsys, *words)
    assert code == 2 and message in err and err.count("\n") == 1
