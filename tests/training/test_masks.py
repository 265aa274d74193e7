"""Masks by their effect, on a toy of known values: no illegal action is taken, drawn or bootstrapped from."""

import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

from c2d.agents.agent import Agent
from c2d.agents.learner import diagnose
from c2d.agents.rollout import Actor, epsilon_greedy
from c2d.api import load
from c2d.config import default_config
from c2d.envs.make import make
from c2d.envs.toy import TOYS
from c2d.errors import UserError
from c2d.evaluation.loaded_run import open_run
from c2d.evaluation.model_card import model_card
from c2d.evaluation.play import PlaySettings, evaluate, play, random_scores
from c2d.evaluation.prediction_log import PredictionLog
from c2d.evaluation.risk import MEAN, criterion
from c2d.nets.scales import RunningScale
from c2d.recipes.parts import Gru, Munchausen
from c2d.returns.bellman import CLIPPED_DOUBLE, DOUBLE, GREEDY, BootstrapLaws, backup, greedy, munchausen, q_values
from c2d.returns.phi import identity
from c2d.runs.confined import Root
from c2d.training.session import Session
from c2d.types import Batch, ReturnDist, Sequences
from c2d.web.lens.load import open_agent
from c2d.web.lens.messages import unpack
from c2d.web.lens.player import Player
from tests.envs.user_envs import Masked
from tests.training.actors_in_process import InProcess, actors_config, train_with
from tests.training.short_runs import short_config
from tests.training.test_resume import go, results, saving

STATES, GAMMA = TOYS["masked"].states, 0.9
LEGAL = np.array([[bool(outcomes) for outcomes in actions] for actions in STATES])  # [S, A]
TEMPTING = 1_000.0  # value of illegal actions, which nothing corrects


# ------------------------------------------------------------------------------ bootstraps against exact values


def exact(value):
    """q of every legal pair, from the last state to the first. `value(q of a state) -> v`"""
    q = {}
    for state in reversed(range(len(STATES))):
        for action, outcomes in enumerate(STATES[state]):
            if outcomes:
                q[state, action] = sum(p * (r + GAMMA * later(q, to, value)) for p, r, to in outcomes)
    return q


def later(q, state, value):
    return 0.0 if state is None else value([q[pair] for pair in q if pair[0] == state])


def exact_soft(alpha, tau, floor):
    """The same under a soft policy, whose bonus hangs on the values themselves: until they stay."""
    q = {(s, a): 0.0 for s, actions in enumerate(STATES) for a, outcomes in enumerate(actions) if outcomes}
    for _ in range(400):
        policy = {}
        for state in range(len(STATES)):
            pairs = [pair for pair in q if pair[0] == state]
            most = max(q[pair] for pair in pairs)
            total = sum(math.exp((q[pair] - most) / tau) for pair in pairs)
            policy |= {pair: math.exp((q[pair] - most) / tau) / total for pair in pairs}
        soft = [sum(p * (q[k] - tau * math.log(p)) for k, p in policy.items() if k[0] == s) for s in range(len(STATES))]
        q = {
            (s, a): sum(p * (r + GAMMA * (0.0 if to is None else soft[to])) for p, r, to in STATES[s][a])
            + alpha * min(max(tau * math.log(policy[s, a]), floor), 0.0)
            for s, a in q
        }
    return q


def iterated(bootstrap, fractions, masked=True, scale=None, sweeps=300):
    """q of a table that follows its own targets, one row per outcome. Illegal entries keep their tempting value."""
    rows = [(s, a, *o) for s, actions in enumerate(STATES) for a, outcomes in enumerate(actions) for o in outcomes]
    state, action, prob, reward, after = (
        torch.tensor([0 if v is None else v for v in c]) for c in zip(*rows, strict=True)
    )
    discount = torch.tensor([0.0 if row[4] is None else GAMMA for row in rows], dtype=torch.float64)
    legal = torch.from_numpy(LEGAL)
    masks = {"legal": legal[state], "next_legal": legal[after]} if masked else {}
    batch = Batch(state, action, reward.double(), discount, after, discount, state, **masks)
    q = torch.zeros(LEGAL.shape).double().masked_fill(~legal, TEMPTING)
    for _ in range(sweeps):
        laws = [table_law(q[where], fractions) for where in (after, after, state, state)]
        earned, law = bootstrap.fn(BootstrapLaws(*laws, scale=scale), batch, identity())
        values = q_values(backup(earned, discount, law, identity()), identity())  # [rows]
        new = torch.zeros_like(q).index_put((state, action), prob.double() * values, accumulate=True)
        q = torch.where(legal, new, q)
    return {(s, a): q[s, a].item() for s, a in zip(*np.nonzero(LEGAL), strict=True)}


def table_law(q, fractions):
    """Laws with two atoms around each value. [B, A] -> [B, A, 2]"""
    atoms = torch.stack((q - 1.0, q + 1.0), -1)
    log_probs = torch.full_like(atoms, 0.5).log()
    return ReturnDist(atoms, log_probs, torch.full_like(atoms, 0.5) if fractions else None)


SOFT = {"alpha": 0.9, "temperature": 0.5, "floor": -1.0}
BOOTSTRAPS = {
    "greedy": (GREEDY, exact(max), None),
    "double": (DOUBLE, exact(max), None),
    "clipped-double": (CLIPPED_DOUBLE, exact(max), None),
    "munchausen": (munchausen(**SOFT), exact_soft(0.9, 0.5, -1.0), None),
    "munchausen, online": (munchausen(**SOFT, online=True), exact_soft(0.9, 0.5, -1.0), None),
    "munchausen, scaled": (munchausen(**SOFT, scaled=True), exact_soft(0.9, 1.5, -3.0), torch.tensor(3.0).double()),
}


@pytest.mark.parametrize("fractions", [False, True])
@pytest.mark.parametrize("name", BOOTSTRAPS)
def test_every_bootstrap_finds_the_exact_values_of_the_legal_actions(name, fractions):
    bootstrap, wanted, scale = BOOTSTRAPS[name]
    found = iterated(bootstrap, fractions, scale=scale)
    assert found == {pair: pytest.approx(value, rel=1e-9) for pair, value in wanted.items()}
    wrong = iterated(bootstrap, fractions, masked=False, scale=scale, sweeps=5)
    assert wrong[0, 0] > found[0, 0] + 100.0  # the toy sees a bootstrap that ignores the mask


def test_a_greedy_choice_is_legal_whatever_the_values():
    q = torch.tensor([[3.0, 2.0, 1.0], [-math.inf] * 3, [math.nan, 0.0, 0.0], [math.inf, 0.0, 1.0]])
    legal = torch.tensor([[False, True, True], [False, False, True], [False, True, False], [False, True, True]])
    assert greedy(q, legal).tolist() == [1, 2, 1, 2] and greedy(q[0]).item() == 0


# ------------------------------------------------------------------------------ statistics of legal actions only


def test_scale_and_action_gap_are_those_of_legal_actions():
    rng = np.random.default_rng(0)
    q, legal = rng.normal(size=(6, 4)), rng.random((6, 4)) < 0.5
    legal[0], legal[1] = [1, 0, 0, 0], [1, 1, 0, 0]
    legal[:, 3] |= ~legal.any(-1)
    scale = RunningScale()
    scale.watch(torch.from_numpy(q).float(), torch.from_numpy(legal))
    spreads = [row[mask].std() for row, mask in zip(q, legal, strict=True)]
    assert scale.value.item() == pytest.approx(np.mean(spreads), rel=1e-5)
    law = ReturnDist(torch.from_numpy(q)[..., None], torch.zeros(6, 4, 1).double())
    target = ReturnDist(torch.zeros(6, 1).double(), torch.zeros(6, 1).double())
    action = torch.from_numpy(legal.argmax(-1))
    metrics = diagnose(law, action, target, identity(), None, torch.from_numpy(legal))
    gaps = [np.diff(sorted(row[mask])[-2:])[0] for row, mask in zip(q, legal, strict=True) if mask.sum() > 1]
    assert metrics["action_gap"].item() == pytest.approx(np.mean(gaps)) and len(gaps) < 6
    alone = diagnose(law, action, target, identity(), None, torch.eye(4).bool()[[0] * 6])
    assert alone["action_gap"].item() == 0.0


def test_an_update_measures_the_scale_of_legal_actions():
    config = short_config("toy/masked", "unused")
    session = Session(replace(config, recipe=replace(config.recipe, bootstrap=Munchausen(scale="running"))))
    session.fill_history()
    batch, learner = session.replay.sample(32, np.random.default_rng(0)), session.learner
    q = q_values(learner.online(batch.obs, "act"), learner.phi).detach().numpy()
    learner.losses(batch)
    spreads = [row[mask].std() for row, mask in zip(q, batch.legal.numpy(), strict=True)]
    assert learner.online.scale.value.item() == pytest.approx(np.mean(spreads), rel=1e-4)
    session.close()


# ------------------------------------------------------------------------------ play: the toy rejects illegal actions


class Prefers(nn.Module):
    """The same law for every observation: a later action in `order` has a larger return."""

    def __init__(self, order):
        super().__init__()
        value = torch.tensor([float(order.index(action)) for action in range(3)])
        self.atoms = nn.Parameter(torch.stack((value, value + 0.5), -1))
        self.requires_grad_(False)
        self.head = SimpleNamespace(unit=None)

    def forward(self, obs, purpose, rng=None):
        size = (len(obs), 3, 2)
        return ReturnDist(self.atoms.expand(size), torch.full(size, 0.5).log())


def preferring(order):
    agent = Agent.__new__(Agent)
    agent.network, agent.spec, agent.phi = Prefers(order), make("toy/masked", None, 0).spec, identity()
    agent.recipe = default_config("toy/masked", "dqn").recipe
    agent.actor, agent.rng = Actor(agent.network, identity()), np.random.default_rng(0)
    return agent


def toy(seed):
    return make("toy/masked", None, seed)


def test_random_actions_are_uniform_among_the_legal_ones():
    mask = np.array([True, False, True, True, False])
    rng, n = np.random.default_rng(0), 3_000
    chosen = epsilon_greedy([np.zeros(1)] * n, [rng] * n, 1.0, 5, None, legal=[mask] * n)
    shares = np.bincount([action for action, _ in chosen], minlength=5) / n
    assert (np.abs(shares - mask / 3) <= 5 * np.sqrt(2 / 9 / n) * mask).all()


@pytest.mark.parametrize("order", [(0, 1, 2), (0, 2, 1), (1, 2, 0)])  # each prefers an illegal action somewhere
def test_games_are_played_by_legal_actions(order):
    """Whole games by the mean and by every other criterion; the toy fails at an illegal action."""
    agent = preferring(order)
    best, state, wanted = [], 0, []
    while state is not None:
        action = max(np.flatnonzero(LEGAL[state]), key=order.index)
        best.append(order[-1] == action)
        wanted.append((state, action))
        state = STATES[state][action][0].to
    assert not all(best)  # without masks it would fail
    ends = evaluate(agent, toy, games=20, epsilon=0.3, seed=1)
    assert len(ends) == 20 and len(random_scores(toy, 50)) == 50
    for name in ("cvar:0.5", "entropic:-0.5", "mean-std:1", "above:5"):
        log = PredictionLog(GAMMA)
        played = play(agent, toy, PlaySettings(4, 0.0), criterion(name), MEAN, log)
        assert [end.steps for end in played.ends] == [3] * 4 and played.different == 0
        means = (log.sample().returns * log.sample().probs).sum(-1).reshape(4, 3)
        assert means.tolist() == [[order.index(action) + 0.25 for _, action in wanted]] * 4  # of what was taken


def test_an_agent_acts_by_the_mask_it_is_given():
    agent, obs = preferring((0, 1, 2)), np.eye(4, dtype=np.float32)
    assert agent.act(obs[0]) == 2 and agent.act(obs[0], mask=LEGAL[0]) == 1
    assert agent.act(obs, mask=LEGAL.astype(np.int8)).tolist() == [1, 2, 2, 2]
    assert {agent.act(obs[3], 1.0, mask=[1, 0, 1]) for _ in range(40)} == {0, 2}
    with pytest.raises(UserError, match=r"shape \(1, 2\) does not fit 1 rows of toy/masked; accepted: 3 flags for"):
        agent.act(obs[0], mask=[True, True])
    with pytest.raises(UserError, match="mask of type float64"):
        agent.act(obs[0], mask=[0.5, 1.0, 1.0])
    with pytest.raises(UserError, match="mask of toy/masked forbids every action; accepted: at least one"):
        agent.act(obs, mask=np.zeros((4, 3), bool))


# ------------------------------------------------------------------------------ whole runs


def states_of(seen):
    """The states that the rows of a batch are about."""
    if not isinstance(seen, Sequences):
        return seen.argmax(-1)
    grid = torch.full((int(seen.place.max()) + 1,), -1)
    grid[seen.place] = seen.obs.argmax(-1)
    return grid[seen.read]


CORES = {"none": {}, "gru": {"core": Gru(hidden=8, sequence=4, burn_in=2, overlap=2)}}


@pytest.mark.parametrize(("envs", "core"), [(1, "none"), (3, "none"), (2, "gru")])
@pytest.mark.parametrize("epsilon", [0.0, 1.0])
def test_training_never_takes_an_illegal_action(epsilon, envs, core):
    config = short_config("toy/masked", "unused", recipe="munchausen-iqn", epsilon_initial=epsilon, epsilon_min=epsilon)
    session = Session(replace(config, recipe=replace(config.recipe, envs=envs, **CORES[core])))
    session.fill_history()
    batch = session.replay.sample(200, np.random.default_rng(0))
    assert batch.legal.gather(1, batch.action[:, None]).all()
    states = states_of(batch.obs)
    assert torch.equal(batch.legal, torch.from_numpy(LEGAL)[states]) and len(states.unique()) == 4
    wanted = torch.from_numpy(LEGAL)[states_of(batch.next_obs)]
    assert torch.equal(batch.next_legal[batch.discount > 0], wanted[batch.discount > 0])
    while session.step < 60:
        session.advance()
    session.finish_iteration()
    assert session.probe_legal is not None and all(session.probe_legal[np.arange(64), session.probe[1]])
    session.close()


def test_actors_in_other_processes_play_by_masks_and_send_them(tmp_path, monkeypatch):
    config = actors_config("toy/masked", tmp_path / "run", iterations=1)
    seen, result = train_with(InProcess(), config, monkeypatch)
    batch = seen.session.replay.sample(100, np.random.default_rng(0))
    assert result.state == "finished" and torch.equal(batch.legal, torch.from_numpy(LEGAL)[states_of(batch.obs)])


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    path = tmp_path_factory.mktemp("masked") / "run"
    return path, go(saving(short_config("toy/masked", path))).digests


def test_stopped_and_resumed(run, tmp_path):
    path, wanted = run
    config = saving(short_config("toy/masked", tmp_path / "run"))
    for stop in (1, 130):
        go(config, stop=stop)
    resumed = go(config)
    assert any(": exact" in text for text in resumed.notices)
    assert resumed.digests == wanted and results(tmp_path / "run") == results(path)


def test_a_run_is_evaluated_and_watched_with_masks(run):
    path, _ = run
    agent, opened = load(path), open_run(path)
    assert agent.spec.masked and opened.passport["action_masks"] == "used"
    assert "action = agent.act(obs, mask=legal)" in model_card(opened)
    illegal = [state for state in range(4) if not LEGAL[state, agent.act(np.eye(4, dtype=np.float32)[state])]]
    assert illegal  # the network would choose wrongly
    evaluate(agent, opened.make_env, games=10, epsilon=0.2)
    lens = Player([open_agent(Root(path.parent), path.name, "weights")], "first", 3, 0.3, ())
    lens.criteria = [criterion(name) for name in ("mean", "cvar:0.3", "above:0")]
    seen, before = set(), None
    for _ in range(40):
        header, parts = unpack(lens.advance())
        (game,), (seat,) = header["games"], header["seats"]
        assert seat["legal"] in LEGAL.tolist() and seat["legal"][game["action"]]
        assert all(seat["legal"][action] for action in seat["would"])
        if before is not None:  # what the step before was compared with: the largest mean of the legal actions here
            best = max(mean for mean, legal in zip(seat["mean"], seat["legal"], strict=True) if legal)
            assert before == pytest.approx(0.99 * best, abs=1e-3)
        target = float((parts["0.target_returns"] * parts["0.target_probs"]).sum()) - game["reward"]
        before = None if game["terminal"] else target
        seen.add(tuple(seat["legal"]))
    lens.close()
    assert len(seen) == 4


def test_a_run_begun_without_masks_continues_without_them(tmp_path, monkeypatch):
    """Its environment gives them now, as Gymnasium's Taxi does to runs of earlier versions."""
    name = "tests.envs.user_envs:Masked"
    monkeypatch.setattr(Masked, "gives", False)
    wanted = go(saving(short_config(name, tmp_path / "straight"))).digests
    config = saving(short_config(name, tmp_path / "run"))
    go(config, stop=100)
    monkeypatch.setattr(Masked, "gives", True)
    resumed = go(config)
    assert resumed.digests == wanted and "without" in " ".join(resumed.notices)
    assert make(name, None, 0).spec.masked
    for run in ("straight", "run"):
        assert not open_run(tmp_path / run, name).make_env(0).spec.masked
        assert not open_agent(Root(tmp_path), run, "weights", (name,)).make_env(0).spec.masked
