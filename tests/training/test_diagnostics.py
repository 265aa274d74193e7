"""Diagnostics of training: each against a slow oracle and on toys of known value; they change nothing, and resume."""

import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from c2d.agents import learner as learner_module
from c2d.agents.learner import diagnose, fetch
from c2d.agents.rollout import Actor, OwnPlay
from c2d.nets.heads import EDGE
from c2d.recipes.recipe import Recipe
from c2d.recipes.rows import RECIPES
from c2d.replay.buffer import learner_view
from c2d.returns.bellman import greedy, q_values
from c2d.runs.checkpoints import Checkpoints
from c2d.runs.records import metrics
from c2d.training.run import run
from c2d.training.session import PROBED, Session
from c2d.types import GameEnd, ResetFrame, ReturnDist, Step
from tests.agents.test_learner import BETA, EPS, batch, make
from tests.oracles import toy_law
from tests.oracles.slow_returns import expected_return
from tests.training.short_runs import short_config

NAMES = ["td_error", "td_error_play", "bias", "effective_atoms", "saturated", "law_std", "law_std_fresh", "action_gap",
         "churn"]  # fmt: skip
FILES = {"records.jsonl": b'{"versions": {}}', "episodes.csv": b""}  # of a checkpoint


# ------------------------------------------------------------------------------------------------------- in batches


def random_law(*shape, seed=0):
    rng = torch.Generator().manual_seed(seed)
    return ReturnDist(4 * torch.randn(shape, generator=rng), torch.randn(shape, generator=rng).log_softmax(-1))


def test_diagnostics_of_a_batch_against_loops():
    predicted, target, action = random_law(6, 3, 5), random_law(6, 4, seed=1), torch.tensor([0, 2, 1, 1, 0, 2])
    got = diagnose(predicted, action, target, Recipe().phi.build(), torch.tensor(5.0))
    wanted = {name: [] for name in got}
    for b, a in enumerate(action.tolist()):
        atoms, probs = predicted.atoms[b].tolist(), predicted.log_probs[b].exp().tolist()  # [A, N] each
        laws = [list(zip(*law, strict=True)) for law in zip(atoms, probs, strict=True)]
        q = [expected_return(*zip(*law, strict=True), EPS, BETA) for law in laws]
        backed_up = expected_return(target.atoms[b].tolist(), target.log_probs[b].exp().tolist(), EPS, BETA)
        mean = sum(p * z for z, p in laws[a])
        wanted["td_error"].append(backed_up - q[a])
        wanted["effective_atoms"].append(1 / sum(p**2 for _, p in laws[a]))
        wanted["law_std"].append(math.sqrt(sum(p * (z - mean) ** 2 for z, p in laws[a])))
        wanted["action_gap"].append(sorted(q)[-1] - sorted(q)[-2])
        wanted["saturated"].append(sum(p for z, p in laws[a] if abs(z) > EDGE * 5.0))
    assert got.keys() == {"td_error", "effective_atoms", "law_std", "action_gap", "saturated"}
    for name, values in wanted.items():
        assert float(got[name]) == pytest.approx(sum(values) / 6, rel=1e-4), name
    assert 0 < float(got["saturated"]) < 1


def test_one_atom_one_action_and_no_bound():
    point = ReturnDist(torch.ones(2, 1, 1), torch.zeros(2, 1, 1))
    target = ReturnDist(torch.ones(2, 1), torch.zeros(2, 1))
    got = diagnose(point, torch.zeros(2, dtype=torch.int64), target, Recipe().phi.build(), None)
    assert {name: float(value) for name, value in got.items()} == {
        "td_error": 0.0,
        "effective_atoms": 1.0,
        "law_std": 0.0,
    }


def test_a_value_that_is_too_high_shows_in_batches(monkeypatch):
    """Every law of the target moved by 3 in real space, which is a TD error of 3 more."""
    errors = []
    for more in (0.0, 3.0):
        learner, data = make(), batch()
        phi, target = learner.phi, learner.target(data)
        moved = target._replace(atoms=phi.to(phi.back(target.atoms) + more))
        monkeypatch.setattr(learner, "target", lambda *_, moved=moved: moved)
        errors.append(float(learner.update(data).metrics["td_error"]))
    assert errors[1] - errors[0] == pytest.approx(3.0, abs=1e-4)


def test_one_update_in_some_reports(monkeypatch):
    monkeypatch.setattr(learner_module, "DIAGNOSED", 3)
    learner = make()
    made = fetch([learner.update(batch(seed=seed)) for seed in range(7)])
    always = {"atom_min", "atom_max", "gradient_norm"}
    diagnostics = {"td_error", "effective_atoms", "law_std", "action_gap", "saturated"}
    assert [update.metrics.keys() - always for update in made] == [diagnostics, set(), set()] * 2 + [diagnostics]
    assert all(always <= update.metrics.keys() for update in made)


def test_saturated_needs_a_bound():
    for recipe in RECIPES:
        session = Session(short_config("toy/sure", "unused", recipe=recipe))
        bound = session.learner.online.head.bound
        assert (bound is not None) == ("alpha" in session.learner.online.diagnostics()), recipe
        assert bound is None or float(bound) == session.learner.online.diagnostics()["alpha"]
        session.close()


# ---------------------------------------------------------------------------------------------------------- in play


class SlowPlay:
    """The same with whole lists: returns are summed when an episode is over."""

    def __init__(self, gamma, truncation, clip):
        self.gamma, self.truncation, self.clip = gamma, truncation, clip
        self.horizon = next(k for k in range(1, 10**4) if gamma**k <= 0.01)
        self.cuts, self.games, self.errors, self.gaps = [math.inf], {}, [], []

    def follow(self, stream, value, step):
        time, episode = self.games.setdefault(stream, (0, []))
        seen = learner_view(step, self.truncation, self.clip)
        counts = value is not None and time <= min(self.cuts) - self.horizon
        episode.append((value, seen.reward, counts, time))
        if len(episode) > 1 and episode[-2][0] is not None and value is not None:
            self.errors.append(episode[-2][1] + self.gamma * value - episode[-2][0])
        if seen.terminal and value is not None:
            self.errors.append(seen.reward - value)
        if step.reset is None:
            self.games[stream] = (time + 1, episode)
            return
        whole = True
        if not seen.terminal:
            self.cuts.append(time + 1)
            whole = all(when <= time + 1 - self.horizon for _, _, counts, when in episode if counts)
        for start, (expected, _, counts, _) in enumerate(episode):
            if counts and whole:
                rewards = [reward for _, reward, _, _ in episode[start:]]
                self.gaps.append(expected - sum(self.gamma**k * reward for k, reward in enumerate(rewards)))
        self.games[stream] = (0 if step.game else time + 1, [])


def made_up_step(rng, time):
    """Lives and games end; a few games are truncated."""
    opening, draw = ResetFrame(np.zeros(1)), rng.random()
    reward, frame = float(rng.normal()), np.zeros(1)
    if draw < 0.06:
        return Step(frame, reward, True, False, opening, GameEnd(0.0, time))
    if draw < 0.12:
        return Step(frame, reward, True, False, opening, None)
    if draw < 0.16 and time > 12:
        return Step(frame, reward, False, True, opening, GameEnd(0.0, time))
    return Step(frame, reward, False, False, None, None)


@pytest.mark.parametrize("truncation", ["drop", "bootstrap", "terminal"])
@pytest.mark.parametrize("gamma", [0.5, 0.0])
def test_own_play_against_whole_lists(truncation, gamma):
    rng, sums = np.random.default_rng(3), {"td_error_play": [0.0, 0], "bias": [0.0, 0]}
    play, slow = OwnPlay(2, gamma, 1.0, truncation), SlowPlay(gamma or 1e-9, truncation, 1.0)
    times = [0, 0]

    def add(name, total, count):
        sums[name] = [sums[name][0] + total, sums[name][1] + count]

    for _ in range(3_000):
        for stream in range(2):
            times[stream] += 1
            step = made_up_step(rng, times[stream])
            value = None if rng.random() < 0.2 else float(rng.normal())
            play.follow(stream, value, step, add)
            slow.follow(stream, value, step)
            times[stream] *= step.game is None
        again = OwnPlay(2, gamma, 1.0, truncation)
        again.load_state_dict(play.state_dict())  # resumed after every step
        play = again
    assert sums["td_error_play"][1] == len(slow.errors) > 1_000 and sums["bias"][1] == len(slow.gaps) > 1_000
    assert sums["td_error_play"][0] == pytest.approx(sum(slow.errors), abs=1e-6)
    assert sums["bias"][0] == pytest.approx(sum(slow.gaps), abs=1e-6)
    assert (len(slow.cuts) > 1) == (truncation != "terminal")


def knowing(name, gamma, more, phi):
    """A network that knows the value of every action of a toy, and is wrong by `more`."""
    states = range(len(toy_law.find(name).states))
    table = [[float(np.dot(*toy_law.law(name, s, a, gamma))) + more for a in range(2)] for s in states]

    def network(obs, purpose, noise):
        atoms = phi.to(torch.tensor(table)[obs.argmax(-1)]).unsqueeze(-1)
        return ReturnDist(atoms, torch.zeros_like(atoms))

    return network


def played(name, more, steps, envs=1, **changes):
    config = short_config(f"toy/{name}", "unused", epsilon_initial=0.0, epsilon_min=0.0, gamma=0.9, **changes)
    session = Session(replace(config, recipe=replace(config.recipe, envs=envs)))
    session.actor.network = knowing(name, 0.9, more, session.learner.phi)
    session.fill_history()
    for _ in range(steps):
        session.advance()
    session.close()
    return session.tally.record()


@pytest.mark.parametrize("envs", [1, 3])
def test_exact_values_have_no_bias_and_no_error(envs):
    record = played("sure", 0.0, 60, envs)
    assert record["bias"] == pytest.approx(0.0, abs=1e-4) and record["td_error_play"] == pytest.approx(0.0, abs=1e-4)


@pytest.mark.parametrize("envs", [1, 3])
def test_a_network_that_is_wrong_by_a_constant(envs):
    """Games of toy/sure have 3 steps: two errors of (γ − 1)·c and one of −c, and a bias of c."""
    record = played("sure", 2.0, 60, envs)
    assert record["bias"] == pytest.approx(2.0, abs=1e-4)
    assert record["td_error_play"] == pytest.approx((2 * -0.1 * 2.0 - 2.0) / 3, abs=1e-4)


def test_over_many_games_the_bias_of_the_true_law_vanishes():
    record = played("bimodal", 0.0, 3_000, update_period=1_000)
    assert abs(record["bias"]) < 1.0 and played("bimodal", 5.0, 3_000, update_period=1_000)["bias"] > 4.0
    assert abs(record["td_error_play"]) < 0.6


def test_values_are_those_of_the_actions_that_were_chosen():
    session = Session(short_config("minatar/breakout", "unused"))
    obs = np.random.default_rng(0).integers(0, 2, (5, *session.env.spec.obs_shape), dtype=np.uint8)
    q = q_values(session.actor.law(obs), session.learner.phi)
    actions = session.actor.greedy(obs)
    assert actions.dtype == np.int64 and actions.tolist() == greedy(q).tolist()
    assert session.actor.values == q.amax(-1).tolist()
    session.fill_history()
    session.rollout.decide(0.0)
    (stream,) = session.rollout.streams
    assert [stream.value] == session.actor.values and not stream.random
    stream.action = None
    session.rollout.decide(1.0)
    assert stream.random and stream.value is None
    session.close()


def test_values_go_to_the_streams_that_asked():
    """Of several environments, where some draw their action."""
    config = short_config("toy/sure", "unused")
    session = Session(replace(config, recipe=replace(config.recipe, envs=6)))
    session.fill_history()
    session.rollout.choose = lambda obs: np.arange(len(obs)) % 2
    session.rollout.values = lambda: [10.0 + k for k in range(6)]
    for every_row in (False, True):
        session.rollout.every_row = every_row
        seen = set()
        for _ in range(20):
            session.rollout.decide(0.5)
            streams = session.rollout.streams
            rows = range(6) if every_row else np.cumsum([not s.random for s in streams]) - 1
            wanted = [None if s.random else 10.0 + int(k) for s, k in zip(streams, rows, strict=True)]
            assert [stream.value for stream in streams] == wanted
            seen |= {stream.random for stream in streams}
            for stream in streams:
                stream.action = None
        assert seen == {True, False}
    session.close()


# --------------------------------------------------------------------------------------------- from record to record


def test_churn_counts_actions_that_changed(monkeypatch):
    session = Session(short_config("minatar/breakout", "unused"))
    session.fill_history()
    assert session.finish_iteration().churn is None  # nothing to compare with
    states, actions = session.probe
    assert states.shape == (PROBED, *session.env.spec.obs_shape)
    assert actions.tolist() == Actor(session.learner.acting, session.learner.phi).greedy(states).tolist()
    assert session.finish_iteration().churn == 0.0
    session.probe = session.probe[0], (session.probe[1] + (np.arange(PROBED) < 16)) % session.env.spec.actions
    assert session.finish_iteration().churn == 0.25
    session.close()


def test_the_spread_of_fresh_laws_is_that_before_the_first_update(tmp_path):
    config = short_config("minatar/breakout", tmp_path / "run", steps=40)
    session = Session(config)
    session.fill_history()
    for _ in range(2):
        session.advance()
    first = session.fresh_std
    assert first == session.tally.values["law_std"] > 0.1  # of the first update, the only one that reported
    session.close()
    result = run(config)
    assert [record["law_std_fresh"] for record in result.records] == [first, first]


@pytest.mark.parametrize("recipe", RECIPES)
def test_every_recipe_records_them(recipe, tmp_path):
    result = run(short_config("minatar/breakout", tmp_path / "run", recipe=recipe, update_period=2))
    absent = set(NAMES) - result.records[1].keys()
    head = Session(short_config("minatar/breakout", "unused", recipe=recipe)).learner.online.head
    assert absent == (set() if head.bound is not None else {"saturated"})
    assert all(math.isfinite(result.records[1][name]) for name in set(NAMES) - absent)


# ------------------------------------------------------------------------------------------------- they change nothing


def without_diagnostics(monkeypatch):
    """As training was before there were any."""

    def plain(self, obs):
        with torch.inference_mode():
            return greedy(q_values(self.law(obs), self.phi)).cpu().numpy()

    monkeypatch.setattr(Actor, "greedy", plain)
    monkeypatch.setattr(OwnPlay, "follow", lambda *_: None)
    monkeypatch.setattr(Session, "_churn", lambda self: None)
    monkeypatch.setattr(learner_module, "diagnose", lambda *_: {})


ALONE = ("c2d-fast", "dqn", "c51", "qr-dqn", "fqf", "btr-c2d-munchausen")  # the other kinds play in many environments


@pytest.mark.parametrize(
    ("recipe", "many"),
    [*((row, False) for row in ALONE), *((row, True) for row in ("c2d", "iqn", "rainbow-full", "r2d2-c2d"))],
)
def test_they_change_nothing(recipe, many, tmp_path, monkeypatch):
    """Weights and scores bit for bit, and what else is recorded; with three environments that step while it learns."""
    found = []
    for name in ("with", "without"):
        config = short_config("minatar/breakout", tmp_path / name, recipe=recipe, update_period=2, replay_capacity=300)
        if many:
            config = replace(config, recipe=replace(config.recipe, envs=3, overlap=True))
        records = [record.copy() for record in run(config).records]
        removed = [len([record.pop(key) for key in NAMES if key in record]) for record in records]
        for record in records:
            del record["measured"]
        found.append(
            (records, *((tmp_path / name / file).read_bytes() for file in ("weights.safetensors", "episodes.csv")))
        )
        assert min(removed) >= 7 if name == "with" else max(removed) == 0
        without_diagnostics(monkeypatch)
    assert found[0] == found[1]


def test_nothing_that_training_draws_from_moves():
    session = Session(short_config("minatar/breakout", "unused", recipe="rainbow-full"))
    session.fill_history()
    session.advance()

    def state():
        saved = session.state_dict()
        networks = [session.learner.online, session.learner.target_network]
        weights = [tensor.clone() for network in networks for tensor in network.state_dict().values()]
        return saved["generators"], saved["torch_generators"], saved["replay"]["sampler"], weights

    before = state()
    assert session.finish_iteration().churn is None and session.finish_iteration().churn is not None
    after = state()
    assert before[:2] == after[:2]
    assert all(np.array_equal(before[2][name], after[2][name]) for name in before[2])
    assert all(map(torch.equal, before[3], after[3]))
    session.close()


# ----------------------------------------------------------------------------------------------------------- resuming


def resumed(session, config, path, change=lambda state: None):
    """A new session that continues where this one is."""
    path.mkdir()
    checkpoints = Checkpoints(path)
    checkpoints.save(session, {}, 0.0, FILES)
    other = Session(config)
    checkpoint = checkpoints.read(next(checkpoints.newest_first()), other)
    change(checkpoint.session)
    checkpoints.restore(checkpoint, other)
    return other


@pytest.mark.parametrize("overlap", [False, True])
def test_resumed_exactly(overlap, tmp_path):
    """With games, actions and values under way, and states that are being watched."""
    config = short_config("toy/skewed", "unused", update_period=2, replay_capacity=300, epsilon_decay_steps=30)
    config = replace(config, recipe=replace(config.recipe, envs=3, overlap=overlap))
    lines = []
    for stop in (None, 20):
        session = Session(config)
        session.fill_history()
        for step in range(40):
            if step == 10:
                session.finish_iteration()
            if step == stop:
                session.rollout.decide(session.epsilons)
                values = [stream.value for stream in session.rollout.streams]
                session = resumed(session, config, tmp_path / "run")
                assert [stream.value for stream in session.rollout.streams] == values != [None] * 3
            session.advance()
        lines.append(session.finish_iteration())
        session.close()
    assert lines[0] == lines[1] and all(getattr(lines[0], name) is not None for name in NAMES)


def test_a_checkpoint_without_them_is_resumed(tmp_path):
    """Those of earlier versions: weights as without a stop, and diagnostics of what comes from there on."""
    config = short_config("minatar/breakout", "unused", update_period=2)

    def older(state):
        del state["diagnostics"]
        for stream in state["streams"]:
            del stream["value"]

    sessions = []
    for stop in (None, 30):
        session = Session(config)
        session.fill_history()
        for step in range(60):
            if step == stop:
                session = resumed(session, config, tmp_path / "run", older)
            session.advance()
        sessions.append(session)
    straight, again = sessions
    pairs = zip(straight.learner.online.state_dict().values(), again.learner.online.state_dict().values(), strict=True)
    assert all(torch.equal(one, two) for one, two in pairs)
    record = again.finish_iteration()
    assert record.law_std_fresh is None and record.churn is None and record.td_error_play is not None


@pytest.mark.parametrize(
    "damage",
    [
        lambda saved: saved["play"].update(cut=-1),
        lambda saved: saved["play"].update(courses=[]),
        lambda saved: saved["play"]["courses"][0].__setitem__(0, 1.5),
        lambda saved: saved["play"]["courses"][0].__setitem__(5, "many"),
        lambda saved: saved.update(fresh_std="wide"),
        lambda saved: saved["probe"].update(states=np.zeros((2, 3), np.float32)),
        lambda saved: saved["probe"].update(actions=np.zeros(3, np.int64)),
    ],
)
def test_what_no_run_has_saved_is_rejected(damage):
    session = Session(short_config("toy/skewed", "unused"))
    session.fill_history()
    session.finish_iteration()
    saved = session.state_dict()["diagnostics"]
    Session(session.config)._load_diagnostics(saved)
    damage(saved)
    with pytest.raises((ValueError, TypeError)):
        Session(session.config)._load_diagnostics(saved)


def test_all_of_them_are_shown():
    shown = {each.name: each for each in metrics()}
    assert all(shown[name].chart is not None and shown[name].tensorboard and shown[name].optional for name in NAMES)
    assert SimpleNamespace(**shown).saturated.title == "saturated atoms"
