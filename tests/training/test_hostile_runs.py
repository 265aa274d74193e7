"""Run directories made by an enemy: nothing in them is executed, and nothing of an unexpected size is taken."""

import json
import sys

import pytest

from c2d.cli.main import main
from c2d.runs.checkpoints import Checkpoints, _sign
from tests.training.crashed_runs import crashed, rewrite, runs
from tests.training.short_runs import short_config
from tests.training.test_resume import go, results, saving

__all__ = ["crashed", "runs"]  # fixtures


@pytest.mark.parametrize(
    "change",
    [
        lambda state: state["session"].update(step="many"),
        lambda state: state["session"].update(tally={"__class__": "os.system"}),
        lambda state: state["session"]["tally"]["values"].update(atom_min="low"),
        lambda state: state["session"]["tally"]["counts"].update(mean_loss=-1),
        lambda state: state["session"].update(generators={}),
        lambda state: state["session"]["generators"].update(actions={"bit_generator": "MT19937"}),
        lambda state: state["session"]["replay"]["streams"][0].update(head=10**18),
        lambda state: state["session"]["replay"]["streams"][0].update(head=-1),
        lambda state: state["session"]["replay"].update(streams=[]),
        lambda state: state["session"]["streams"][0].update(environment={"ale": "text"}),
        lambda state: state["session"]["streams"][0].update(action=99),
        lambda state: state["session"]["streams"][0].update(observation={"array": "no/such/array"}),
        lambda state: state["session"]["streams"][0].update(observation=[0.0]),
        lambda state: state["session"]["learner"]["online"].popitem(),
        lambda state: state["session"]["learner"].update(optimizers=[]),
        lambda state: state["session"]["learner"]["optimizers"][0].update(updates=-3),
        lambda state: state.update(session="text"),
        lambda state: state.update(seconds="long"),
        lambda state: state.update(format=1),
        lambda state: state.update(format=99),
        lambda state: state.clear(),
    ],
)
def test_hostile_state_is_refused_like_damage(change, crashed):
    run, config, wanted, where = crashed
    rewrite(next(Checkpoints(run).newest_first()), change)
    resumed = go(config)
    assert any("cannot be used" in text for text in resumed.notices)
    assert resumed.digests == wanted and results(run) == results(where / "straight")


def test_manifest_that_points_elsewhere_is_refused(crashed):
    run, config, _, _ = crashed
    newest = next(Checkpoints(run).newest_first())
    manifest = json.loads((newest / "manifest.json").read_bytes())
    del manifest["sha256"]
    manifest["files"]["../../config.json"] = {"bytes": 1, "sha256": "x"}
    (newest / "manifest.json").write_bytes(_sign(manifest))
    assert any("names a file elsewhere" in text for text in go(config).notices)


def test_no_code_is_imported_because_a_file_names_it(crashed, tmp_path, monkeypatch, capsys):
    run, _, _, _ = crashed
    (tmp_path / "evil.py").write_text("raise SystemExit('executed')")
    monkeypatch.syspath_prepend(tmp_path)
    config = json.loads((run / "config.json").read_text())
    config["env"], config["rules"] = "gym/evil:Env", {"class": "GymRules"}
    (run / "config.json").write_text(json.dumps(config))
    for path in Checkpoints(run).newest_first():
        rewrite(path, lambda state: state.update(config=config))
    for words in (["resume", str(run)], ["resume", str(run), "--env", "other:Env"], ["evaluate", str(run)]):
        assert main(words) == 2
        error = capsys.readouterr().err
        assert "code that is imported only if you name it yourself" in error and "--env evil:Env" in error
    assert "evil" not in sys.modules


def test_a_run_of_the_users_own_class_resumes_when_named_again(tmp_path, monkeypatch, capsys):
    (tmp_path / "own_env_to_resume.py").write_text(
        "import gymnasium, numpy as np\n"
        "class Env(gymnasium.Env):\n"
        "    observation_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)\n"
        "    action_space = gymnasium.spaces.Discrete(2)\n"
        "    def reset(self, *, seed=None, options=None):\n"
        "        super().reset(seed=seed); self.t = 0\n"
        "        return self.np_random.random(2).astype(np.float32), {}\n"
        "    def step(self, action):\n"
        "        self.t += 1\n"
        "        return self.np_random.random(2).astype(np.float32), 1.0, self.t == 9, False, {}\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    go(saving(short_config("own_env_to_resume:Env", tmp_path / "straight")))
    go(saving(short_config("own_env_to_resume:Env", tmp_path / "run")), stop=100)
    assert main(["resume", str(tmp_path / "run"), "--env", "own_env_to_resume:Env"]) == 0
    assert "resumed from the checkpoint at step 100: exact" in capsys.readouterr().out
    assert results(tmp_path / "run") == results(tmp_path / "straight")


@pytest.mark.parametrize(
    ("name", "claim"), [("state.json", 1 << 40), ("tensors.safetensors", 1 << 35), ("records.jsonl", 1 << 31)]
)
def test_sizes_are_bounded_before_anything_is_read(name, claim, crashed):
    run, config, wanted, _ = crashed
    newest = next(Checkpoints(run).newest_first())
    manifest = json.loads((newest / "manifest.json").read_bytes())
    del manifest["sha256"]
    manifest["files"][name]["bytes"] = claim
    (newest / "manifest.json").write_bytes(_sign(manifest))
    with open(newest / name, "r+b") as file:
        file.truncate(claim)  # takes no room on the disk
    resumed = go(config)
    assert any(f"{name} is too large" in text for text in resumed.notices) and resumed.digests == wanted


def test_a_segment_larger_than_its_slots_is_not_read(crashed):
    run, config, wanted, _ = crashed
    newest = next(Checkpoints(run).newest_first())
    manifest = json.loads((newest / "manifest.json").read_bytes())
    del manifest["sha256"]
    manifest["segments"][-1][2] = 1 << 40
    (newest / "manifest.json").write_bytes(_sign(manifest))
    resumed = go(config)
    assert any("is larger than its slots can be" in text for text in resumed.notices) and resumed.digests == wanted


def test_a_config_file_does_not_bring_code_either(crashed, tmp_path, monkeypatch, capsys):
    run, _, _, _ = crashed
    (tmp_path / "evil_config.py").write_text("raise SystemExit('executed')")
    monkeypatch.syspath_prepend(tmp_path)
    config = json.loads((run / "config.json").read_text())
    config["env"], config["rules"] = "gym/evil_config:Env", {"class": "GymRules"}
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert main(["train", "--config", str(tmp_path / "config.json")]) == 2
    assert "imported only if you name it yourself; if you trust it, add evil_config:Env" in capsys.readouterr().err
    assert "evil_config" not in sys.modules
