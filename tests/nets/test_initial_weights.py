"""Initial weights: their bounds in every row, orthogonal ones, and that all of them come from the run's generator."""

import dataclasses
import math

import pytest
import torch
from torch import nn

from c2d.agents.build import build_network
from c2d.envs.spec import EnvSpec
from c2d.nets.heads import NoisyLinear, PlainLinear
from c2d.nets.network import INITIALIZERS, BatchNormReLU, initialize
from c2d.recipes.part import PARTS
from c2d.recipes.parts import Conjugated, Fraction, Impala, Mlp, Nature
from c2d.recipes.recipe import Recipe
from c2d.recipes.rows import RECIPES

ATARI = EnvSpec("atari/pong", "atari", (1, 84, 84), "uint8", 4, 6, 4)
PIXELS = EnvSpec("atari/small", "atari", (1, 36, 36), "uint8", 2, 3, 4)
UNEVEN = EnvSpec("gym/uneven", "gym", (1, 20, 18), "uint8", 2, 3, 1)
PLANES = EnvSpec("minatar/breakout", "minatar", (4, 10, 10), "uint8", 1, 3, 1)
VECTOR = EnvSpec("gym/CartPole-v1", "gym", (4,), "float32", 1, 3, 1)


def rng(seed=0):
    return torch.Generator().manual_seed(seed)


# ------------------------------------------------------------------------------------------------- bounds of the rows

# Inputs and outputs (times the field of a convolution) of every layer in its order on Atari with 6 actions: typed from
# the networks of Dopamine, of FQF's authors and of C2D's.
NATURE = ((4 * 64, 32 * 64), (32 * 16, 64 * 16), (64 * 9, 64 * 9))
SAME, VALID, COSINE = 11 * 11 * 64, 7 * 7 * 64, (64, 11 * 11 * 64)
LAYERS = {
    "c2d": (*NATURE, (VALID, 512), (512, 192), (192, 512), (1024, 192)),
    "dqn": (*NATURE, (SAME, 512), (512, 6)),
    "dqn-adam": (*NATURE, (SAME, 512), (512, 6)),
    "th-dqn": (*NATURE, (SAME, 512), (512, 6)),
    "c51": (*NATURE, (SAME, 512), (512, 306)),
    "c51-conjugated": (*NATURE, (SAME, 512), (512, 306)),
    "rainbow": (*NATURE, (SAME, 512), (512, 306)),
    "qr-dqn": (*NATURE, (SAME, 512), (512, 1200)),
    "qr-dqn-conjugated": (*NATURE, (SAME, 512), (512, 1200)),
    "iqn": (*NATURE, COSINE, (SAME, 512), (512, 6)),
    "munchausen-iqn": (*NATURE, COSINE, (SAME, 512), (512, 6)),
    "fqf": (*NATURE, (SAME, 32), COSINE, (SAME, 512), (512, 6)),
    "rainbow-full": NATURE,  # the rest is noisy
    "btr": (
        *((9 * n, 9 * m) for n, m in ((4, 32), *(4 * ((32, 32),)), (32, 64), *(4 * ((64, 64),)), *(5 * ((64, 64),)))),
        (64, 36 * 64),
    ),
}
TORCH = {"btr"}
GLOROT = {"c2d", "dqn", "dqn-adam", "th-dqn", "rainbow-full"}


@pytest.mark.parametrize("name", LAYERS)
def test_bounds_and_variances_of_every_layer(name):
    network = build_network(RECIPES[name], ATARI, rng())
    layers = [layer for layer in network.modules() if isinstance(layer, nn.Linear | nn.Conv2d)]
    assert len(layers) == len(LAYERS[name])
    for layer, (inputs, outputs) in zip(layers, LAYERS[name], strict=True):
        bound = math.sqrt(6 / (inputs + outputs)) if name in GLOROT else math.sqrt(math.sqrt(3) / inputs)
        bound = 1 / math.sqrt(inputs) if name in TORCH else bound
        weight = layer.weight.detach()
        assert 0.99 * bound < weight.abs().max().item() <= bound * (1 + 1e-6)
        assert weight.std().item() == pytest.approx(bound / math.sqrt(3), rel=0.03)
        assert abs(weight.mean().item()) < 5 * weight.std().item() / math.sqrt(weight.numel())
        assert not layer.bias.any()


@pytest.mark.parametrize(("name", "sigma"), [("rainbow-full", 0.1), ("rainbow-c2d", 0.5)])
def test_noisy_layers_have_their_own(name, sigma):
    """Fortunato et al.: means uniform in ±1/√inputs, noise σ₀/√inputs; σ₀ is 0.1 in Dopamine, 0.5 in Hessel et al."""
    network = build_network(RECIPES[name], ATARI, rng())
    layers = [layer for layer in network.modules() if isinstance(layer, NoisyLinear)]
    assert len(layers) == (3 if name == "rainbow-full" else 4)
    narrow = {id(network.head.support.advantage): 0.05} if name == "rainbow-c2d" else {}  # its atoms start near 0
    for layer in layers:
        size, scale = 1 / math.sqrt(layer.weight.shape[1]), narrow.get(id(layer), 1.0)
        for mean in (layer.weight.detach(), layer.bias.detach()):
            assert 0.9 * scale * size < mean.abs().max().item() <= scale * size
        assert layer.weight.std().item() == pytest.approx(scale * size / math.sqrt(3), rel=0.03)
        for noise in (layer.sigma_weight, layer.sigma_bias):
            assert noise.min().item() == noise.max().item() == pytest.approx(scale * sigma * size)


def test_orthogonal_weights_are_orthogonal():
    recipe = Recipe(encoder=Nature(), head=Conjugated(hidden=16, embedding=40), initializer="orthogonal")
    network = build_network(recipe, PIXELS, rng())
    layers = [layer for layer in network.modules() if isinstance(layer, nn.Linear | nn.Conv2d)]
    assert len(layers) == 7
    for layer in layers:
        rows = layer.weight.detach().flatten(1).double()
        rows = rows if rows.shape[0] <= rows.shape[1] else rows.t()
        torch.testing.assert_close(rows @ rows.t(), torch.eye(len(rows), dtype=torch.float64), rtol=0, atol=1e-5)
        assert not layer.bias.any()


# --------------------------------------------------------------------------------------- from the run's generator alone


def networks():
    """All parts that there are, also those that come later: (words, recipe, environment)."""
    worlds, seen = {"mlp": VECTOR, "minatar": PLANES, "impala": PLANES}, set()
    for name, row in RECIPES.items():
        for kind, part in PARTS["encoder"].items():
            encoder = row.encoder if isinstance(row.encoder, part) else part()
            network = (encoder, row.head, row.dueling, row.noisy, row.initializer)
            if network not in seen:
                world = ATARI if getattr(encoder, "pool", 0) else worlds.get(kind, PIXELS)
                yield f"{name} {kind}", dataclasses.replace(row, encoder=encoder), world
            seen.add(network)
    for kind, part in PARTS["head"].items():
        for dueling in (False, True):
            for noisy in (False, True):
                for how in INITIALIZERS:
                    recipe = Recipe(encoder=Mlp((8,)), head=part(), dueling=dueling, noisy=noisy, initializer=how)
                    yield f"{kind} {dueling=} {noisy=} {how}", recipe, VECTOR


def weights(recipe, env, seed, world):
    torch.manual_seed(world)  # the global generator, which must have no say
    head = dataclasses.replace(recipe.head, hidden=8)
    network = build_network(dataclasses.replace(recipe, head=head), env, rng(seed))
    return {name: tensor.detach() for name, tensor in network.named_parameters()}


def test_every_weight_comes_from_the_runs_generator():
    seen = 0
    for words, recipe, env in networks():
        one, same, other = (weights(recipe, env, seed, world) for seed, world in ((1, 10), (1, 20), (2, 10)))
        for name, tensor in one.items():
            assert torch.equal(tensor, same[name]), f"{words}: {name} hangs on the global generator"
            constant = bool((tensor == tensor.flatten()[0]).all())
            assert constant or not torch.equal(tensor, other[name]), f"{words}: {name} does not hang on the seed"
            assert not constant or tensor.dim() < 2 or "sigma" in name, f"{words}: {name} is constant"
            seen += 1
    assert seen > 1000


class Scaled(PlainLinear):
    def __init__(self):
        super().__init__(3, 2)
        self.scale = nn.Parameter(torch.randn(2, generator=rng()))


class Odd(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Parameter(torch.randn(3, 2, generator=rng()))


@pytest.mark.parametrize(
    ("layer", "names"),
    [
        (nn.LayerNorm(4), "LayerNorm .*: bias, weight"),
        (nn.Embedding(3, 2), "Embedding .*: weight"),
        (nn.Conv1d(2, 3, 1), "Conv1d .*: bias, weight"),
        (Scaled(), "Scaled .*: scale"),
        (Odd(), "Odd .*: table"),
    ],
)
def test_a_layer_without_a_rule_is_an_error(layer, names):
    with pytest.raises(TypeError, match=names):
        initialize(nn.Sequential(PlainLinear(4, 4), layer), rng())


def test_layers_of_constants_are_left_alone():
    layer = BatchNormReLU("channel", 3, 4)
    initialize(layer, rng())
    assert layer.weight.tolist() == [1, 1, 1] and layer.bias.tolist() == [0, 0, 0]


# ------------------------------------------------------------------------------------------------------------- IMPALA


def shifted(x, i, j, rows, columns, stride, fill):
    """The picture seen from place (i, j) of a 3×3 window: [B, C, rows, columns], `fill` outside."""
    padded = x.new_full((*x.shape[:2], x.shape[2] + 3, x.shape[3] + 3), fill)
    padded[:, :, 1:-2, 1:-2] = x
    return padded[:, :, i : i + stride * rows : stride, j : j + stride * columns : stride]


def convolved(x, weight, bias):
    places = [(i, j) for i in range(3) for j in range(3)]
    parts = [
        torch.einsum("bchw,oc->bohw", shifted(x, i, j, *x.shape[2:], 1, 0.0), weight[:, :, i, j]) for i, j in places
    ]
    return sum(parts) + bias[:, None, None]


def pooled(x):
    rows, columns = (x.shape[2] + 1) // 2, (x.shape[3] + 1) // 2
    views = [shifted(x, i, j, rows, columns, 2, -math.inf) for i in range(3) for j in range(3)]
    return torch.stack(views).amax(0)


def impala(x, weights):
    """Espeholt et al. 2018, Figure 3, right, without its dense and recurrent layers."""
    zero = torch.zeros((), dtype=x.dtype)
    for block in range(3):
        w = [weights[f"encoder.blocks.{block}.{k}.{kind}"] for k in range(5) for kind in ("weight", "bias")]
        x = pooled(convolved(x, w[0], w[1]))
        for first in (2, 6):
            inner = convolved(torch.maximum(x, zero), w[first], w[first + 1])
            x = x + convolved(torch.maximum(inner, zero), w[first + 2], w[first + 3])
    return torch.maximum(x, zero).permute(0, 2, 3, 1).flatten(1)


@pytest.mark.parametrize(("env", "scale", "features"), [(UNEVEN, 1, 3 * 3 * 32), (PLANES, 2, 2 * 2 * 64)])
def test_impala_against_a_plain_one(env, scale, features):
    """Features and gradients; odd and even sizes are met on the way: 20, 10, 5, 3 and 18, 9, 5, 3."""
    recipe = Recipe(encoder=Impala(scale), head=Conjugated(atoms=4, hidden=8, embedding=8))
    network = build_network(recipe, env, rng())
    top = 2 if env is PLANES else 256
    obs = torch.randint(0, top, (2, *env.obs_shape), dtype=torch.uint8, generator=rng(1))
    assert network.encoder.features == features
    found = network.features(obs, "predict")
    assert found.shape == (2, features)
    toward = torch.randn(found.shape, generator=rng(2))
    (found * toward).sum().backward()
    slow = {n: p.detach().double().requires_grad_() for n, p in network.named_parameters() if n.startswith("encoder")}
    assert len(slow) == 30
    wanted = impala(obs.double() / (1 if env is PLANES else 255), slow)
    torch.testing.assert_close(found.double(), wanted, rtol=1e-4, atol=1e-5)
    (wanted * toward).sum().backward()
    for name, parameter in network.named_parameters():
        if name in slow:
            gradient = slow[name].grad
            assert gradient.abs().max() > 0
            torch.testing.assert_close(
                parameter.grad.double(), gradient, rtol=1e-3, atol=1e-4 * gradient.abs().max().item()
            )


def test_impala_with_every_head_gives_laws():
    for part in PARTS["head"].values():
        head = dataclasses.replace(part(), hidden=8)
        network = build_network(Recipe(encoder=Impala(), head=head), PLANES, rng())
        law = network(torch.ones(2, 4, 10, 10, dtype=torch.uint8), "predict", rng(1))
        assert law.atoms.shape[:2] == (2, 3) and torch.isfinite(law.atoms).all()
        torch.testing.assert_close(law.log_probs.exp().sum(-1), torch.ones(2, 3))
        assert isinstance(part(), Fraction) == bool(network.head.trained_apart())
