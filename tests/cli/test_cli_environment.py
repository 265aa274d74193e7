"""Arguments of an environment and wrappers around it: trained, evaluated, resumed; and the user's mistakes."""

import json

import gymnasium
import pytest

from c2d import default_config
from c2d.cli.main import main
from c2d.cli.train import read
from c2d.config import changed_settings, default_run_name, from_json, options_of, to_json, user_code
from c2d.envs.make import make
from c2d.envs.protocols import GymRules, as_arguments
from c2d.errors import UserError
from c2d.training.passport import passport
from c2d.user_code import TRUSTED, trusted_modules

OWN = f"{__name__}:Corridor"
WRAP = f"{__name__}:doubled"
SHORT = ["--schedule.steps-per-iteration", "60", "--schedule.random-history", "40", "--schedule.replay-capacity", "500",
         "--iterations", "1", "--threads", "1", "--tensorboard", "False"]  # fmt: skip


class Corridor(gymnasium.Env):
    """Ends after `size` steps with a reward."""

    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, size, goal="right", scale=1.0):
        self.size, self.goal, self.scale = size, goal, scale
        self.observation_space = gymnasium.spaces.Box(0, 1, (size,))

    def reset(self, *, seed=None, options=None):
        self.place = 0
        return self._obs(), {}

    def step(self, action):
        self.place += 1
        return self._obs(), self.scale, self.place == self.size, False, {}

    def _obs(self):
        obs = self.observation_space.low.copy()
        obs[min(self.place, self.size - 1)] = 1
        return obs


def doubled(env):
    return gymnasium.wrappers.TransformReward(env, lambda reward: 2 * reward)


def no_env(env):
    return 3


def failing(env):
    raise RuntimeError("broken")


@pytest.fixture(autouse=True)
def _nothing_named():
    before = set(TRUSTED)
    yield
    TRUSTED.clear()
    TRUSTED.update(before)


def test_arguments_and_wrappers_decide_shape_name_and_passport():
    config = read([OWN, "--env-kwargs.size", "7", "--env-kwargs.scale=0.5", "--wrapper", WRAP])
    assert config.rules.env_kwargs == ("scale=0.5", "size=7") and config.rules.wrappers == (WRAP,)
    assert from_json(json.loads(json.dumps(to_json(config)))) == config
    env = make(config.env, config.rules, 0)
    assert env.spec.frame_shape == (7,)
    env.reset()
    assert env.step(0).reward == 1.0
    changes = {"env-kwargs.scale": "0.5", "env-kwargs.size": "7", "wrapper": [WRAP]}
    assert changed_settings(config) == changes
    assert options_of(changes) == f"--env-kwargs.scale 0.5 --env-kwargs.size 7 --wrapper {WRAP}"
    other = read([OWN, "--env-kwargs.size", "7"])
    assert len({default_run_name(config), default_run_name(other)}) == 2
    assert passport(config, env)["hash"] != passport(other, make(other.env, other.rules, 0))["hash"]
    assert user_code(config) == [WRAP]


def test_without_them_nothing_changes():
    """Neither names nor passports, whose hash tells whether two runs had the same rules."""
    config = default_config("gym/CartPole-v1")
    assert changed_settings(config) == {}
    facts = passport(config, make(config.env, config.rules, 0))
    assert not {"env_kwargs", "wrappers"} & set(facts)
    old = to_json(config)
    del old["rules"]["env_kwargs"], old["rules"]["wrappers"]
    assert from_json(old) == config


@pytest.mark.parametrize("value", [7, -0.5, True, None, "left", "7", "True", "a=b", [1, "x"], ""])
def test_values_survive_as_text(value):
    rules = GymRules(env_kwargs=as_arguments({"goal": value}))
    assert rules.arguments == {"goal": value} and type(rules.arguments["goal"]) is type(value)


def test_order_does_not_matter():
    assert as_arguments({"a": 1, "b": 2}) == as_arguments({"b": 2, "a": 1})


def test_registered_environments_take_arguments():
    config = read(["gym/FrozenLake-v1", "--env-kwargs.map-name", "8x8", "--env-kwargs.is_slippery", "false"])
    assert config.rules.arguments == {"map_name": "8x8", "is_slippery": False}
    assert make(config.env, config.rules, 0).spec.frame_shape == (64,)
    limited = read(["gym/CartPole-v1", "--env-kwargs.max-episode-steps", "3"])
    env = make(limited.env, limited.rules, 0)
    env.reset()
    assert [env.step(0).truncated for _ in range(3)] == [False, False, True]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([OWN], "missing 1 required positional argument: 'size'"),
        ([OWN], "give arguments as --env-kwargs.NAME VALUE"),
        (
            [OWN, "--env-kwargs.sizes", "3"],
            "has no argument \"sizes\"; accepted: size, goal, scale. Did you mean 'size'?",
        ),
        ([OWN, "--env-kwargs.size", "x"], "failed when called with size=x: "),
        ([OWN, "--env-kwargs.size"], "--env-kwargs.size needs a value"),
        (["gym/FrozenLake-v1", "--env-kwargs.map", "8x8"], 'gym/FrozenLake-v1 has no argument "map"; accepted: '),
        (["gym/CartPole-v1", "--wrapper", "doubled"], '--wrapper is "doubled"; accepted: my_package.my_module:wrap'),
        (["gym/CartPole-v1", "--wrapper", f"{__name__}:double"], "Did you mean 'doubled'?"),
        (
            ["gym/CartPole-v1", "--wrapper", f"{__name__}:no_env"],
            "is not a Gymnasium environment: it lacks action_space",
        ),
        (
            ["gym/CartPole-v1", "--wrapper", f"{__name__}:failing"],
            "failed when called with the environment: RuntimeError",
        ),
        (["breakout", "--env-kwargs.size", "3"], "do not fit atari/breakout; accepted: a registered Gymnasium"),
        (["toy/bimodal", "--wrapper", WRAP], "do not fit toy/bimodal"),
    ],
)
def test_mistakes_get_one_line(words, message, capsys):
    assert main(["train", *words]) == 2
    err = capsys.readouterr().err
    assert message in err and err.count("\n") == 1


def test_such_a_run_is_evaluated_and_resumed_if_its_code_is_named(capsys, tmp_path):
    run = str(tmp_path / "run")
    assert main(["train", OWN, "--env-kwargs.size", "7", "--wrapper", WRAP, "--run-dir", run, *SHORT]) == 0
    assert f"next: c2d evaluate {run} --env {OWN} --trust {WRAP}" in capsys.readouterr().out
    TRUSTED.clear()
    for verb in ("evaluate", "resume"):
        assert main([verb, run]) == 2
        assert f"add --env {OWN}" in capsys.readouterr().err
        assert main([verb, run, "--env", OWN]) == 2
        assert f"add --trust {WRAP}" in capsys.readouterr().err
    named = ["--env", OWN, "--trust", WRAP]
    assert main(["evaluate", run, *named, "--games", "2"]) == 0
    assert "mean      14.00" in capsys.readouterr().out  # 7 steps, doubled
    assert main(["resume", run, *named, "--iterations", "2"]) == 0
    assert "exact" in capsys.readouterr().out
    assert main(["resume", run, *named, "--env-kwargs.size", "8"]) == 2
    assert "env-kwargs.size: 7 → 8" in capsys.readouterr().err


def test_a_config_does_not_bring_code_or_paths_of_its_own(tmp_path):
    """Not by a wrapper, and not by a text that a registered environment could open or import."""
    config = default_config("gym/FrozenLake-v1", env_kwargs={"desc": ["SF", "FG"]}, wrappers=[WRAP])
    TRUSTED.clear()
    path = tmp_path / "config.json"
    path.write_text(json.dumps(to_json(config)))
    with pytest.raises(UserError, match=f"add --trust {WRAP}"):
        changed_settings(read(["--config", str(path)]))
    tree = to_json(config) | {"rules": to_json(GymRules(env_kwargs=("map_name=/etc/passwd",)))}
    path.write_text(json.dumps(tree))
    with pytest.raises(UserError, match="trains on FrozenLake-v1 with map_name=/etc/passwd, used only if you name it"):
        read(["--config", str(path)])


def test_a_module_is_trusted_once_for_a_directory(capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("C2D_CONFIG_DIR", str(tmp_path / "config"))
    run, here = str(tmp_path / "run"), tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    named = ["--env-kwargs.size", "7", "--wrapper", WRAP]
    assert main(["train", OWN, *named, "--run-dir", run, *SHORT]) == 0
    for module in (__name__, __name__.partition(".")[0]):  # or its package
        TRUSTED.clear()
        assert main(["evaluate", run, "--games", "1"]) == 2
        assert f"or once for this directory: c2d trust {__name__}" in capsys.readouterr().err
        assert main(["trust", module]) == 0
        assert f"trusted in {here}: {module} (" in capsys.readouterr().out
        assert main(["evaluate", run, "--games", "1"]) == 0
        TRUSTED.clear()
        monkeypatch.chdir(tmp_path)  # where my_module may be another one
        assert main(["evaluate", run, "--games", "1"]) == 2
        monkeypatch.chdir(here)
        assert main(["trust", module, "--forget"]) == 0
    assert main(["evaluate", run, "--games", "1"]) == 2
    assert main(["trust"]) == 0 and f"trusted in {here}: none" in capsys.readouterr().out


def test_what_others_can_write_is_not_trusted(capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("C2D_CONFIG_DIR", str(tmp_path))
    assert main(["trust", "some_module"]) == 0
    file = tmp_path / "trusted.json"
    assert file.stat().st_mode & 0o777 == 0o600 and trusted_modules() == ["some_module"]
    file.chmod(0o666)
    with pytest.raises(UserError, match="others can write to it"):
        trusted_modules()
    file.chmod(0o600)
    file.write_text("{")
    with pytest.raises(UserError, match="cannot be read"):
        trusted_modules()


@pytest.mark.parametrize("words", [["my_module:MyEnv"], ["../x"], ["absent", "--forget"]])
def test_trust_mistakes(words, capsys):
    assert main(["trust", *words]) == 2
    assert "accepted: my_package.my_module" in (err := capsys.readouterr().err) or "not trusted here" in err
