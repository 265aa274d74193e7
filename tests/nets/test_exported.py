"""Networks as files for other programs: every recipe, any batch, and what a file says is what the agent says."""

import json
from dataclasses import replace
from itertools import chain

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from torch._subclasses import FakeTensorMode

from c2d.agents.agent import Agent
from c2d.agents.build import build_network
from c2d.agents.exported import OUTPUTS, Acting, Agreement, compare, exported_program, made_up
from c2d.envs.spec import EnvSpec
from c2d.errors import UserError
from c2d.recipes.parts import Gru, Lstm
from c2d.recipes.rows import RECIPES, adapt, find
from c2d.types import Phi, Sight

ENVS = {
    "minatar": EnvSpec("minatar/breakout", "minatar", (4, 10, 10), "uint8", 1, 3, 1, ("NOOP", "LEFT", "RIGHT")),
    "vector": EnvSpec("gym/CartPole-v1", "gym", (4,), "float32", 2, 2, 1, ("0", "1")),
}


def agent_of(recipe="c2d", env="minatar", seed=0, core=None, **head):
    spec = ENVS[env]
    row = adapt(find(recipe), spec)
    row = row if core is None else replace(row, core=core)
    row = replace(row, head=replace(row.head, hidden=16, **head))
    network = build_network(row, spec, torch.Generator().manual_seed(seed))
    with torch.no_grad():  # statistics and noise that an export must not leave out, or take in
        for name, tensor in network.state_dict().items():
            if name.endswith(("running_mean", "sigma_weight", "sigma_bias")):
                tensor.add_(0.3)
    return Agent(network, row, spec)


def observations(agent, count, seed=7):
    rng = np.random.default_rng(seed)
    return rng.integers(2, size=(count, *agent.spec.obs_shape)).astype(agent.spec.frame_dtype)


def _network(recipe):
    style = recipe.dueling, recipe.dueling_hidden, recipe.noisy, recipe.layer_norm
    return recipe.encoder, getattr(recipe.core, "hidden", None), recipe.core.__class__, recipe.head, recipe.phi, style


# Of the recipes with the same network the first.
NETWORKS = tuple({str(_network(recipe)): name for name, recipe in reversed(RECIPES.items())}.values())


@pytest.mark.parametrize("recipe", NETWORKS)
def test_every_recipe_can_be_exported_and_traced(recipe):
    """For any batch, whatever the example was; the outputs are those of the agent."""
    check_program_and_trace(agent_of(recipe))


def test_networks_that_remember_can_be_exported_and_traced():
    check_program_and_trace(agent_of("dqn", core=Gru(hidden=16, feed="nothing")))


def check_program_and_trace(agent):
    program = exported_program(agent).module()
    with torch.no_grad(), pytest.warns():  # torch.jit is deprecated
        traced = torch.jit.trace(Acting(agent), tuple(map(torch.from_numpy, made_up(agent, 2))), check_trace=False)
    for count in (1, 6):
        given = made_up(agent, count)
        tensors = [torch.from_numpy(part) for part in given]
        with torch.inference_mode():
            wanted = Acting(agent)(*tensors)
            for found in (program(*tensors), traced(*tensors)):
                for mine, other in zip(wanted, found, strict=True):
                    torch.testing.assert_close(other, mine, rtol=1e-4, atol=1e-4)
    law = agent.distribution(Sight(*given) if agent.remembers else given[0])
    np.testing.assert_allclose(wanted[0].numpy(), law.mean, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(np.sort(wanted[1].numpy(), -1), law.returns, rtol=1e-5, atol=1e-5)
    if not agent.remembers:
        assert (wanted[0].argmax(-1).numpy() == agent.act(*given)).all()


def test_an_onnx_model_that_remembers_plays_as_the_agent_does(tmp_path):
    """Step by step: what it remembers is given back to it."""
    agent, path = agent_of("dqn", "vector", core=Lstm(hidden=16)), tmp_path / "policy.onnx"
    assert agent.export_onnx(path).memory < 1e-5
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    assert [given.name for given in session.get_inputs()] == ["observation", "last_action", "last_reward", "memory"]
    memory, action, reward = np.zeros((2, 32), np.float32), np.array([-1, -1]), np.zeros(2, np.float32)
    for step in range(3):
        obs = 10 * observations(agent, 2, seed=step)
        given = {"observation": obs, "last_action": action, "last_reward": reward, "memory": memory}
        expected, _, _, memory = session.run([*OUTPUTS, "next_memory"], given)
        np.testing.assert_allclose(expected, agent.distribution(obs, reward).mean, rtol=1e-4, atol=1e-5)
        action = agent.act(obs, reward=reward)
        assert (action == expected.argmax(-1)).all()
        reward = np.array([0.5, -2.0], np.float32) * step


@pytest.mark.parametrize("recipe", ["c2d", "rainbow-c2d-full", "munchausen-iqn"])
def test_fake_tensors_pass_through_training_and_have_the_right_shapes(recipe):
    """No compiled loop reads an address that is not there."""
    network = agent_of(recipe).network
    with FakeTensorMode() as mode:
        named = chain(network.named_parameters(), network.named_buffers())
        state = {name: mode.from_tensor(tensor) for name, tensor in named}
        obs = mode.from_tensor(torch.zeros(8, 4, 10, 10, dtype=torch.uint8))
        for purpose in ("act", "predict", "target"):
            law = torch.func.functional_call(network, state, (obs, purpose))
            assert law.atoms.shape[:2] == law.log_probs.shape[:2] == (8, 3)
            law.atoms.sum().backward()
    parts = [tensor for name, tensor in state.items() if tensor.requires_grad and name.startswith("encoder")]
    assert parts and all(tensor.grad.shape == tensor.shape for tensor in parts)


def test_onnx_is_what_the_agent_says(tmp_path):
    agent, path = agent_of("c2d", unit="auto"), tmp_path / "policy.onnx"
    agent.network.head.unit.u.fill_(20.0)
    compared = agent.export_onnx(path)
    assert compared.returns <= 1e-4 * (1 + compared.scale) and compared.probabilities < 1e-5 and compared.scale > 1
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    for count in (1, 7):
        obs = observations(agent, count)
        expected, returns, probabilities = session.run(list(OUTPUTS), {"observation": obs})
        law = agent.distribution(obs)
        np.testing.assert_allclose(expected, law.mean, rtol=1e-3, atol=1e-3)
        np.testing.assert_allclose(np.sort(returns, -1), law.returns, rtol=1e-3, atol=1e-3)
        np.testing.assert_allclose((probabilities * returns).sum(-1), expected, rtol=1e-3, atol=1e-3)
    assert agent_of("c2d").distribution(obs).returns.max() < 0.5 * law.returns.max()  # the unit is in it
    model = onnx.load(path)
    assert onnx.checker.check_model(model) is None
    facts = {entry.key: entry.value for entry in model.metadata_props}
    assert facts["environment"] == "minatar/breakout" and json.loads(facts["actions"]) == ["NOOP", "LEFT", "RIGHT"]
    assert [entry.name for entry in tmp_path.iterdir()] == ["policy.onnx"]


@pytest.mark.compiler
@pytest.mark.parametrize("recipe", RECIPES)
def test_onnx_of_every_recipe(recipe, tmp_path):
    agent = agent_of(recipe, "vector")
    compared = agent.export_onnx(tmp_path / "policy.onnx")
    assert compared.returns <= 1e-4 * (1 + compared.scale) and compared.probabilities < 1e-5


def test_exported_programs_are_read_by_pytorch(tmp_path):
    agent, path = agent_of("iqn", "vector"), tmp_path / "policy.pt2"
    assert agent.export_torch(path).returns < 1e-4
    extra = {"c2d.json": ""}
    program, obs = torch.export.load(path, extra_files=extra).module(), observations(agent, 9)
    np.testing.assert_allclose(program(torch.from_numpy(obs))[0], agent.distribution(obs).mean, rtol=1e-4, atol=1e-4)
    assert json.loads(extra["c2d.json"])["observation"] == {"type": "float32", "shape": ["batch", 8], "frames": 2}


def test_a_file_that_disagrees_is_not_written(tmp_path, monkeypatch):
    agent, path = agent_of("dqn", "vector"), tmp_path / "policy.pt2"
    path.write_text("mine")

    def wrong(given, error):
        with torch.inference_mode():
            parts = [part.numpy().copy() for part in Acting(agent)(*map(torch.from_numpy, given))]
        parts[0][0, 0] += error
        return parts

    assert compare(agent, lambda given: wrong(given, 1e-5), "it").returns == pytest.approx(1e-5, rel=0.1)
    for error in (0.1, np.nan):
        with pytest.raises(UserError, match="does not agree with the network and is not written; largest"):
            compare(agent, lambda given, error=error: wrong(given, error), "it")
    with pytest.raises(UserError, match="does not agree"):
        compare(agent, lambda given: [part[:, :1] for part in wrong(given, 0.0)], "it")
    monkeypatch.setattr("c2d.agents.exported.compare", lambda *_: compare(agent, lambda given: wrong(given, 1.0), "it"))
    with pytest.raises(UserError, match="does not agree"):
        agent.export_torch(path)
    assert path.read_text() == "mine" and len(list(tmp_path.iterdir())) == 1


def test_what_onnx_cannot_express_is_said_in_a_line(tmp_path):
    agent, path = agent_of("dqn", "vector"), tmp_path / "policy.onnx"
    cases = [
        ({"opset": 9}, r"--opset is 9; accepted: from 13 to \d+, with this version of ONNX"),
        ({"opset": 14}, r"--opset is 14, which lacks an operator of this network; accepted: \d+, or none"),
    ]
    agent.phi = Phi(lambda x: x, lambda z: z * (1 + 0 * z.mean(-1, keepdim=True)))  # no form in opset 14
    for words, message in cases:
        with pytest.raises(UserError, match=message):
            agent.export_onnx(path, **words)
    agent.phi = Phi(lambda x: x, torch.special.digamma)
    with pytest.raises(UserError, match=r"ONNX has no operator for \w+\.digamma, which this network uses; accepted"):
        agent.export_onnx(path)
    agent.phi = Phi(lambda x: x, lambda z: z if bool(z.sum() > 0) else -z)
    with pytest.raises(UserError, match=r"torch.export cannot read this network: .*do not depend on values") as error:
        agent.export_torch(tmp_path / "policy.pt2")
    assert "\n" not in str(error.value)
    with pytest.raises(UserError, match=r"name must end in \.onnx"):
        agent.export_onnx(tmp_path / "policy.pt")
    with pytest.raises(UserError, match="cannot be written; accepted: a file in a directory that exists"):
        agent.export_onnx(tmp_path / "nowhere" / "policy.onnx")
    assert list(tmp_path.iterdir()) == []


def test_weights_that_are_not_finite_are_not_exported(tmp_path):
    agent = agent_of("dqn", "vector")
    with torch.no_grad():
        next(agent.network.parameters())[0, 0] = np.nan
    with pytest.raises(UserError, match="weights that are not finite"):
        agent.export_torch(tmp_path / "policy.pt2")


def test_a_missing_extra_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr("c2d.agents.exported.find_spec", lambda name: None if name == "onnxscript" else object())
    with pytest.raises(UserError, match=r"not installed \(onnxscript\): pip install 'c2d\[onnx\]'"):
        agent_of("dqn", "vector").export_onnx(tmp_path / "policy.onnx")


def test_the_comparison_in_words():
    said = Agreement(1.25e-05, 22.987, 3e-08).line()
    assert said == "largest difference from PyTorch: 1.3e-05 in returns of up to 22.99, 3e-08 in probabilities"
