"""Training, loading and looking into an agent from Python."""

import functools
import json
from dataclasses import replace
from pathlib import Path

import gymnasium
import numpy as np
import pytest
import torch
from packaging.version import Version
from setuptools.config.pyprojecttoml import read_configuration

import c2d
from c2d.agents.agent import Agent
from c2d.agents.build import build_network, build_phi
from c2d.cli.main import main
from c2d.envs.names import GIVEN
from c2d.envs.spec import EnvSpec
from c2d.recipes.parts import Conjugated, Mlp, Nature
from c2d.recipes.recipe import Recipe
from c2d.training.passport import versions
from c2d.types import Phi
from tests.envs.user_envs import Scripted
from tests.training.short_runs import short_config

SPEC = EnvSpec("gym/x", "gym", (4,), "float32", 1, 3, 1)
RECIPE = Recipe(encoder=Mlp((8,)), head=Conjugated(atoms=6, hidden=8, embedding=8, alpha=20.0, c=1.0))


@pytest.fixture
def agent():
    return Agent(build_network(RECIPE, SPEC, torch.Generator().manual_seed(0)), RECIPE, SPEC)


def observations(count=5):
    return np.random.default_rng(0).normal(size=(count, 4)).astype(np.float32)


def test_public_names_are_there_and_listed():
    for name in c2d.__all__:
        assert name in dir(c2d) and getattr(c2d, name).__module__.startswith("c2d."), name
    with pytest.raises(AttributeError, match="no attribute 'trian'"):
        c2d.trian  # noqa: B018


def test_one_version():
    """Written in one place: the package's own name for it, its metadata and the passport of a run are the same."""
    project = read_configuration(Path(__file__).parent.parent / "pyproject.toml", expand=True)["project"]
    assert project["version"] == c2d.__version__ == versions()["c2d"]
    assert Version(c2d.__version__) > Version("0.1.0")


def test_train_then_load(tmp_path):
    result = c2d.train(short_config("gym/CartPole-v1", tmp_path / "run", iterations=1), progress=False)
    agent = c2d.load(result.run_dir.path)
    again = c2d.load(str(result.run_dir.path))
    obs = observations(1)[0]
    assert agent.act(obs) == again.act(obs)
    np.testing.assert_array_equal(agent.distribution(obs).atoms, again.distribution(obs).atoms)
    assert agent.spec.actions == 2 and agent.distribution(obs).returns.shape == (2, 8)


def test_paths_of_any_kind(tmp_path):
    config = replace(short_config("gym/CartPole-v1", "", iterations=1, steps=10), run_dir=tmp_path / "run")
    result = c2d.train(config, progress=False)
    assert c2d.load(result.run_dir).spec == c2d.load(tmp_path / "run").spec


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"iterations": 1.5}, "config has 1.5 for iterations in Config; accepted: int"),
        ({"iterations": "3"}, "config has '3' for iterations"),
        ({"recipe": None}, "config has None for recipe"),
    ],
)
def test_values_of_a_wrong_type_are_named(change, message, tmp_path):
    with pytest.raises(c2d.UserError, match=message):
        c2d.train(replace(short_config("gym/CartPole-v1", tmp_path / "run"), **change), progress=False)
    with pytest.raises(c2d.UserError, match="an object of type NoneType"):
        c2d.train(None)
    assert not (tmp_path / "run").exists()


def test_train_shows_progress_unless_asked_not_to(tmp_path, capsys):
    config = short_config("gym/CartPole-v1", tmp_path / "loud", iterations=1, steps=10)
    c2d.train(config)
    assert "iteration 1/1" in capsys.readouterr().out
    c2d.train(replace(config, run_dir=str(tmp_path / "quiet")), progress=False)
    assert capsys.readouterr().out == ""


def test_train_takes_a_name(tmp_path, monkeypatch):
    seen = []
    monkeypatch.setattr("c2d.api.run", lambda config, observers: seen.append(config))
    c2d.train("gym/CartPole-v1", progress=False)
    assert seen == [c2d.default_config("gym/CartPole-v1")]


def test_default_config_takes_changes():
    config = c2d.default_config("pong", "c2d-channel", "dopamine", seed=4, iterations=2)
    assert (config.env, config.recipe_name, config.protocol, config.seed, config.iterations) == (
        "atari/pong",
        "c2d-channel",
        "dopamine",
        4,
        2,
    )
    assert config.recipe.encoder == Nature(norm="channel") and config.rules.life_loss_ends_episode is False


def test_distribution_is_the_networks_law_in_order(agent):
    obs = observations(1)[0]
    law = agent.network(torch.from_numpy(obs[None]), "act")
    found = agent.distribution(obs)
    phi = build_phi(RECIPE, agent.network)
    assert found.returns.shape == found.atoms.shape == found.probs.shape == (3, 6)
    for action in range(3):
        pairs = sorted(zip(law.atoms[0, action].tolist(), law.log_probs[0, action].exp().tolist(), strict=True))
        np.testing.assert_allclose(np.stack((found.atoms[action], found.probs[action]), 1), pairs, rtol=1e-5)
    np.testing.assert_allclose(found.returns, phi.back(torch.from_numpy(found.atoms)).numpy(), rtol=1e-6)
    assert (np.diff(found.returns, axis=-1) >= 0).all()
    np.testing.assert_allclose(found.probs.sum(-1), 1, rtol=1e-5)
    np.testing.assert_allclose(found.mean, (found.returns * found.probs).sum(-1))
    assert agent.act(obs) == int(found.mean.argmax())


def test_batches_give_what_single_observations_give(agent):
    obs = observations()
    together = agent.distribution(obs)
    assert together.atoms.shape == (5, 3, 6) and together.mean.shape == (5, 3)
    actions = agent.act(obs)
    assert actions.shape == (5,)
    for row in range(5):
        np.testing.assert_allclose(agent.distribution(obs[row]).atoms, together.atoms[row], rtol=1e-4, atol=1e-5)
        assert agent.act(obs[row]) == actions[row]


def test_epsilon_one_acts_at_random(agent):
    obs = observations(1)[0]
    assert {agent.act(obs, epsilon=1.0) for _ in range(60)} == {0, 1, 2}
    assert len({agent.act(obs) for _ in range(20)}) == 1


@pytest.mark.parametrize("shape", [(3,), (5, 5), (), (4, 1)])
def test_observation_of_a_wrong_shape_is_refused(shape, agent):
    for method in (agent.act, agent.distribution):
        with pytest.raises(c2d.UserError, match=r"does not fit gym/x; accepted: \(4,\)"):
            method(np.zeros(shape, np.float32))


def test_observation_of_two_batch_axes_is_refused(agent):
    with pytest.raises(c2d.UserError, match="does not fit"):
        agent.act(np.zeros((2, 3, 4), np.float32))


def test_what_cannot_be_acted_on_is_refused(agent):
    with pytest.raises(c2d.UserError, match="epsilon is 2; accepted: from 0 to 1"):
        agent.act(observations(1)[0], epsilon=2)
    with pytest.raises(c2d.UserError, match="NaN"):
        agent.act(np.full(4, np.nan, np.float32))


def test_weights_survive_their_bytes(agent):
    copy = Agent.from_bytes(agent.to_bytes(), RECIPE, SPEC)
    state, other = agent.network.state_dict(), copy.network.state_dict()
    assert state.keys() == other.keys() and all(torch.equal(state[name], other[name]) for name in state)


def test_looking_leaves_no_trace():
    """Statistics of normalization stay as they are, whatever is asked."""
    spec = EnvSpec("atari/pong", "atari", (1, 84, 84), "uint8", 4, 6, 4)
    agent = Agent(build_network(Recipe(), spec, torch.Generator().manual_seed(0)), Recipe(), spec)
    before = agent.to_bytes()
    obs = np.random.default_rng(0).integers(0, 256, (2, 4, 84, 84), dtype=np.uint8)
    agent.act(obs)
    agent.distribution(obs)
    assert agent.to_bytes() == before


class LocalEnv(Scripted):
    def __init__(self, reward=1.0):
        super().__init__()
        self.rewards = (reward,)


def make_local(reward=1.0):
    return LocalEnv(reward)


class Doubled(gymnasium.Wrapper):
    def step(self, action):
        obs, reward, *rest = self.env.step(action)
        return obs, 2 * reward, *rest


@pytest.mark.parametrize("given", [LocalEnv, make_local])
def test_a_class_or_a_function_is_an_environment(given, tmp_path):
    config = c2d.default_config(given, env_kwargs={"reward": 3.0}, wrappers=[Doubled], run_dir=str(tmp_path / "run"))
    assert config.env == f"gym/{__name__}:{given.__name__}"
    assert config.rules.env_kwargs == ("reward=3.0",) and config.rules.wrappers == (f"{__name__}:Doubled",)
    schedule = replace(config.recipe.schedule, steps_per_iteration=40, random_history=20, replay_capacity=100)
    config = replace(config, iterations=1, tensorboard=False, recipe=replace(config.recipe, schedule=schedule))
    assert c2d.train(config, progress=False).records[0]["mean_score"] == 4 * 6.0
    assert c2d.load(tmp_path / "run").spec.name == config.env


def test_a_local_class_is_an_environment_in_this_process_only(tmp_path):
    class Inner(LocalEnv):
        pass

    name = c2d.default_config(Inner).env
    assert c2d.make(Inner, seed=0).reset().frame.shape == (3,)
    GIVEN.pop(name.removeprefix("gym/"))
    with pytest.raises(c2d.UserError, match="was passed from Python, by a script, notebook or function"):
        c2d.default_config(name)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (lambda: LocalEnv(), "the environment is a lambda, which has no name to record a run under"),
        (LocalEnv(), "the environment is an object of type LocalEnv; accepted: a name, a class, or a function"),
        (functools.partial(LocalEnv, 2.0), "an object of type partial; accepted"),
    ],
)
def test_what_has_no_name_is_no_environment(given, message):
    for call in (c2d.default_config, c2d.train, lambda env: c2d.make(env, seed=0)):
        with pytest.raises(c2d.UserError, match=message):
            call(given)


@pytest.mark.parametrize(
    ("name", "hint"),
    [("learning_rate", "optim__learning_rate"), ("lr", "optim__learning_rate"),
     ("iteration", "iterations"), ("batch_size", "schedule__batch_size"), ("head__atom", "head__atoms")],
)  # fmt: skip
def test_an_unknown_field_gets_a_suggestion(name, hint):
    for call in (c2d.default_config, c2d.train):
        with pytest.raises(c2d.UserError, match=f'unknown setting "{name}"; accepted: .* Did you mean .?{hint}'):
            call("gym/CartPole-v1", **{name: 3})


def test_train_takes_fields_of_the_config(tmp_path):
    config = short_config("gym/CartPole-v1", tmp_path / "run", iterations=2)
    result = c2d.train(config, progress=False, seed=7, iterations=1)
    assert len(result.records) == 1 and result.run_dir.read_config().seed == 7


def test_a_phi_of_an_imported_module_may_be_named(tmp_path):
    config = short_config("gym/CartPole-v1", tmp_path / "run", iterations=1)
    phi = replace(config.recipe.phi, kind=f"{__name__}:CUBE_ROOT")
    assert c2d.train(replace(config, recipe=replace(config.recipe, phi=phi)), progress=False).state == "finished"


CUBE_ROOT = Phi(lambda x: x.sign() * x.abs() ** (1 / 3), lambda y: y**3)


# ------------------------------------------------------------------------------------------------ functions, settings


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    path = tmp_path_factory.mktemp("trained") / "run"
    return c2d.train(short_config("gym/CartPole-v1", path, iterations=1), progress=False)


def test_evaluate_gives_what_the_command_writes(trained, capsys):
    found = c2d.evaluate(trained, games=4, seed=3)
    assert main(["evaluate", str(trained.run_dir.path), "--games", "4", "--seed", "3"]) == 0
    records = [json.loads(path.read_text()) for path in sorted(trained.run_dir.evaluations.glob("*.json"))]
    assert found.path.name == "evaluation-001.json" and len(records) == 2
    keep = [{key: value for key, value in record.items() if key != "measured"} for record in records]
    assert keep[0] == keep[1] and list(found.scores) == keep[0]["scores"] and found.steps == 120
    assert (
        found.mean == pytest.approx(np.mean(found.scores)) and f"mean      {found.mean:.2f}" in capsys.readouterr().out
    )
    assert c2d.evaluate(trained.run_dir.path, games=1, save=False).path is None
    assert len(list(trained.run_dir.evaluations.glob("*.json"))) == 2
    with pytest.raises(c2d.UserError, match="--games is 0; accepted: at least 1"):
        c2d.evaluate(trained, games=0)


def test_resume_goes_on_or_forks(tmp_path):
    config = short_config("toy/skewed", tmp_path / "run", iterations=1, steps=40)
    first = c2d.train(config, progress=False)
    ended = []

    class Watch(c2d.Observer):
        def end(self, run, summary):
            ended.append(run.step)

    assert c2d.resume(first, iterations=2, progress=False, callbacks=[Watch()]).run_dir.path == tmp_path / "run"
    fork = c2d.resume(
        tmp_path / "run", fork_to=tmp_path / "fork", iterations=3, optim__learning_rate=0.5, progress=False
    )
    assert ended == [80] and fork.run_dir.path == tmp_path / "fork" and len(fork.records) == 3
    assert fork.run_dir.read_config().recipe.optim.learning_rate == 0.5
    assert first.run_dir.read_config().iterations == 2
    with pytest.raises(c2d.UserError, match=r"is a run with other settings \(optim.learning-rate: "):
        c2d.resume(first, optim__learning_rate=0.5)
    with pytest.raises(c2d.UserError, match="exists; accepted: a new directory"):
        c2d.resume(first, fork_to=tmp_path / "fork")


def test_own_code_is_named_again_to_resume(tmp_path):
    class Kept(LocalEnv):
        pass

    small = {"schedule__steps_per_iteration": 40, "schedule__random_history": 20, "tensorboard": False}
    first = c2d.train(Kept, progress=False, iterations=1, run_dir=tmp_path / "run", **small)
    with pytest.raises(c2d.UserError, match="only if you name it yourself"):
        c2d.resume(first, iterations=2)
    assert c2d.resume(first, env=Kept, iterations=2, progress=False).state == "finished"
    assert c2d.evaluate(first, games=1, env=Kept).scores == (4.0,)


def test_settings_in_one_expression():
    config = c2d.configure("breakout", recipe="iqn", seed=2, head__atoms=32, n_step=2, rules__sticky=0.0, log="csv")
    assert (config.recipe_name, config.seed, config.recipe.head.atoms, config.recipe.n_step) == ("iqn", 2, 32, 2)
    assert config.rules.sticky == 0.0 and config.log.to == "csv"
    assert (
        replace(config, recipe=replace(config.recipe, head=c2d.configure("breakout", recipe="iqn").recipe.head))
        != config
    )
    quantile = c2d.configure("breakout", head="quantile", loss="quantile-huber", head__atoms=7).recipe
    assert quantile == c2d.configure("breakout", head=type(quantile.head)(atoms=7), loss=type(quantile.loss)).recipe


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"head__atoms": "many"}, "head__atoms is 'many'; accepted: int"),
        ({"seed": 1.5}, "seed is 1.5; accepted: int"),
        ({"head": "quantil"}, 'unknown head "quantil"; accepted: .* Did you mean .quantile.'),
        ({"head": 3}, "head is 3; accepted: the name or the declaration of a part: scalar, "),
        ({"head__kappa": 1.0}, "head__kappa"),
        ({"loss__kappa": 1.0}, "loss__kappa is a setting of loss huber, quantile-huber, but this run has loss cramer"),
        ({"schedule__": 1.0}, "unknown setting"),
    ],
)
def test_settings_that_do_not_fit_are_named(settings, message):
    with pytest.raises(c2d.UserError, match=message):
        c2d.configure("minatar/breakout", **settings)


def test_make_takes_names(trained):
    env = c2d.make("gym/CartPole-v1", seed=4)
    assert (env.reset().frame == trained_env(4).reset().frame).all()
    assert (c2d.make("gym/CartPole-v1").reset().frame == trained_env(0).reset().frame).all()
    env = c2d.make(LocalEnv, seed=0, env_kwargs={"reward": 3.0}, wrappers=[Doubled])
    env.reset()
    assert env.step(0).reward == 6.0
    with pytest.warns(DeprecationWarning, match=r"deprecated: c2d.make\(env, seed=1\)"):
        assert (c2d.make("gym/CartPole-v1", None, 4).reset().frame == trained_env(4).reset().frame).all()
    with pytest.warns(DeprecationWarning), pytest.raises(TypeError, match="everything else is named"):
        c2d.make("gym/CartPole-v1", None, 4, seed=3)


def trained_env(seed):
    from c2d.envs.make import make

    return make("gym/CartPole-v1", None, seed)


def test_batches_are_acted_on(agent):
    obs = observations(5)
    assert agent.act_batch(obs).tolist() == [agent.act(row) for row in obs]
    assert agent.act_batch(obs[:1]).shape == (1,)
    with pytest.raises(c2d.UserError, match=r"of shape \(4,\) are no batch of gym/x; accepted: \(B, 4\)"):
        agent.act_batch(obs[0])


def test_compare_is_what_the_command_prints(trained, capsys):
    found = c2d.compare(trained, replications=200)
    assert main(["compare", str(trained.run_dir.path), "--replications", "200"]) == 0
    assert str(found) in capsys.readouterr().out and "gym/CartPole-v1 at 120 frames" in found.text
    assert (found.runs, found.agents, found.atari) == (1, ("c2d (own)",), None)
    with pytest.raises(c2d.UserError, match="no runs given"):
        c2d.compare()
    with pytest.raises(c2d.UserError, match="--replications is 3; accepted: at least 100"):
        c2d.compare(trained, replications=3)


def test_report_writes_a_page(trained, tmp_path):
    page = c2d.report(trained, out=tmp_path / "report", replications=200)
    assert page == tmp_path / "report" / "report.html" and "CartPole" in page.read_text()


def test_run_sweep_shows_its_plan(tmp_path, capsys):
    """What comes after the plan is the same code as the command's."""
    asked = {
        "recipes": ["c2d", "dqn"],
        "envs": ["toy/sure"],
        "iterations": 2,
        "out": tmp_path / "sweep",
        "dry_run": True,
    }
    runs = c2d.run_sweep(**asked, seeds=2, settings={"head__hidden": [16, 32]})
    assert len(runs) == 8 and {run.state for run in runs} == {"waiting"} and runs[0].path.parent == tmp_path / "sweep"
    assert "8 runs in" in capsys.readouterr().out
    assert len(c2d.run_sweep(**asked, seeds=[4], progress=False)) == 2 and capsys.readouterr().out == ""
    with pytest.raises(c2d.UserError, match=r"no plan given; accepted: one of .*, a file, or recipes and envs"):
        c2d.run_sweep(recipes=["c2d"])
    with pytest.raises(c2d.UserError, match='unknown plan "nope"'):
        c2d.run_sweep("nope")
    with pytest.raises(c2d.UserError, match="unknown setting"):
        c2d.run_sweep(**asked, settings={"head__atom": 3})


def test_a_result_stands_for_its_directory(trained):
    assert Path(trained) == trained.run_dir.path and c2d.load(trained).spec == c2d.load(Path(trained)).spec
