"""Whole networks in PyTorch's tools: traces, exports, compiled networks and FLOP counts agree with eager ones."""

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from c2d import native
from c2d.agents.build import build_network
from c2d.envs.spec import EnvSpec
from c2d.recipes.rows import adapt, find

ENVS = {
    "atari": EnvSpec("atari/pong", "atari", (1, 84, 84), "uint8", 4, 6, 4),
    "minatar": EnvSpec("minatar/breakout", "minatar", (4, 10, 10), "uint8", 1, 3, 1),
}
pytestmark = pytest.mark.usefixtures("kernels")


class Atoms(nn.Module):
    """A network for one purpose, tensors in and out."""

    def __init__(self, network, purpose):
        super().__init__()
        self.network, self.purpose = network, purpose

    def forward(self, obs):
        law = self.network(obs, self.purpose)
        return law.atoms, law.log_probs


def network_and_images(env, recipe="c2d", batch=8):
    rng = torch.Generator().manual_seed(0)
    network = build_network(adapt(find(recipe), ENVS[env]), ENVS[env], rng)
    draw = [torch.randint(0, 256 if env == "atari" else 2, (batch, *ENVS[env].obs_shape), generator=rng) for _ in "ab"]
    return network, [obs.to(torch.uint8) for obs in draw]


@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning", "ignore:`torch.jit:DeprecationWarning")
@pytest.mark.parametrize("env", ENVS)
@pytest.mark.parametrize("purpose", ["act", "target"])
def test_traces_and_exports_follow_their_input(env, purpose, tmp_path):
    network, (first, second) = network_and_images(env)
    atoms = Atoms(network, purpose)
    with torch.no_grad():
        wanted = atoms(second)
        traced = torch.jit.trace(atoms, (first,))
        found = [traced(second), torch.export.export(atoms, (first,)).module()(second)]
        if purpose == "act":  # what one would hand on
            torch.jit.save(traced, tmp_path / "traced.pt")
            found.append(torch.jit.load(tmp_path / "traced.pt")(second))
    for other in found:
        torch.testing.assert_close(other, wanted, rtol=1e-4, atol=1e-4)
    assert not torch.allclose(wanted[0], atoms(first)[0], rtol=1e-3)


@pytest.mark.parametrize("env", ["minatar", pytest.param("atari", marks=pytest.mark.compiler)])
@pytest.mark.parametrize("purpose", ["act", "predict"])
def test_compiled_networks_have_the_same_results_and_gradients(env, purpose):
    """Traced as a compiler does, with no break in the graph; "aot_eager" leaves out the code generator alone."""
    network, (obs, _) = network_and_images(env)
    atoms, results = Atoms(network, purpose), []
    before = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    for run in (atoms, torch.compile(atoms, backend="aot_eager", fullgraph=True)):
        network.load_state_dict(before)
        network.zero_grad()
        out = run(obs)
        (out[0].square().sum() + out[1].sum()).backward()
        gradients = [parameter.grad.clone() for parameter in network.parameters() if parameter.grad is not None]
        results.append([*(tensor.detach() for tensor in out), *gradients, *network.buffers()])
        results[-1] = [tensor.clone() for tensor in results[-1]]
    torch.testing.assert_close(results[1], results[0], rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("recipe", ["c2d", "c51"])
def test_flop_counters_count_the_same_with_and_without(recipe, monkeypatch):
    network, (obs, _) = network_and_images("atari", recipe)
    counts = []
    for available in (native.AVAILABLE, False):
        monkeypatch.setattr(native, "AVAILABLE", available)
        with FlopCounterMode(display=False) as counter:
            network(obs, "predict").log_probs.square().sum().backward()
        counts.append(counter.get_total_flops())
    assert counts[0] == counts[1] > 0
