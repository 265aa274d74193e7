"""What crosses between host and device: one copy of each batch and each observation there, two reads per round back.

No GPU is needed. On the device "meta" tensors have no numbers, so whatever reads one fails. The two reads that are
allowed, `Tensor.cpu` of the actions and of `fetch`, are counted and answered with zeros.
"""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from c2d.agents import learner as learner_module
from c2d.agents.learner import fetch
from c2d.agents.rollout import OwnPlay, Rollout, Stream
from c2d.config import default_config
from c2d.envs.make import make
from c2d.recipes.part import with_known
from c2d.recipes.rows import RECIPES
from c2d.replay.buffer import Replay, to_device
from c2d.training import session as session_module
from c2d.training.session import Session
from c2d.types import Update
from tests.agents.test_learner import batch, flat
from tests.agents.test_learner import make as make_learner
from tests.training.short_runs import short_config


class Crossings(TorchDispatchMode):
    """Notes the operations that have tensors on the host and on the device, arguments or results."""

    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        tensors = [leaf for leaf in tree_leaves((args, kwargs, result)) if isinstance(leaf, torch.Tensor)]
        if len({tensor.device.type for tensor in tensors}) > 1:
            self.names.append(func.overloadpacket.__name__)
        return result


@pytest.fixture
def reads(monkeypatch):
    """The shapes of the tensors that were read from the device."""
    shapes = []
    monkeypatch.setattr(
        torch.Tensor,
        "cpu",
        lambda self: (shapes.append(tuple(self.shape)), torch.zeros(self.shape, dtype=self.dtype))[1],
    )
    generator = session_module.torch_generator
    monkeypatch.setattr(session_module, "torch_generator", lambda seed, name, device="cpu": generator(seed, name))
    return shapes


def session_on_meta(env, recipe, **changes):
    config = short_config(env, "unused", recipe=recipe, update_period=1, target_period=2, **changes)
    head = with_known(config.recipe.head, unit="one")  # a unit is read when it may grow: below
    session = Session(replace(config, device="meta", recipe=replace(config.recipe, envs=1, head=head)))
    session.fill_history()
    session.step = 10**6  # ε is at its least: the network acts
    for stream in session.rollout.streams:
        stream.rng = np.random.Generator(np.random.PCG64(5))
    return session


# On CartPole every row, on pictures one of each encoder.
ENCODERS = {default_config("minatar/breakout", name).recipe.encoder: name for name in reversed(RECIPES)}
ROUNDS = [(name, "gym/CartPole-v1") for name in RECIPES if name not in ("r2d2", "r2d2-c51", "drqn")] + [
    (name, "minatar/breakout") for name in ENCODERS.values()
]


@pytest.mark.parametrize(("recipe", "env"), ROUNDS)
def test_a_round_reads_the_actions_and_what_its_update_reports(recipe, env, reads):
    """In the first round also diagnostics: TD error, effective atoms, spread, gap, saturation if there is a bound."""
    session = session_on_meta(env, recipe)
    for diagnostics in (4 + (session.learner.online.head.bound is not None), 0):
        del reads[:]
        with Crossings() as crossings:
            session.advance()
        # an action, its value and the memory; loss, norm, extremes of the atoms, diagnostics, four priorities (or those
        # of all steps of four sequences)
        memory = session.actor.memory
        assert reads[0] == (1, 2 + memory) and len(reads) == 2
        assert reads[1] == (4 + diagnostics + 4,) or (memory and reads[1] > (4 + diagnostics + 4,))
        assert crossings.names == ["to", "_to_copy"]  # an observation, in inference mode, and a batch
    session.close()


def test_a_unit_of_rewards_is_read_at_copies_of_the_target_network_only(reads):
    config = short_config("gym/CartPole-v1", "unused", update_period=1, target_period=3)
    head = replace(config.recipe.head, unit="auto")
    session = Session(replace(config, recipe=replace(config.recipe, head=head), device="meta"))
    session.fill_history()  # finds it, and reads nothing
    session.step = 10**6
    session.rollout.streams[0].rng = np.random.Generator(np.random.PCG64(5))
    with Crossings() as crossings:
        session.advance()  # step 1,000,000 = 1 modulo 3
    assert reads == [(1, 2), (4 + 5 + 4,)] and crossings.names == ["to", "_to_copy"]
    session.advance()
    with pytest.raises(NotImplementedError):
        session.advance()
    session.close()


def test_a_read_within_an_update_would_be_noticed(reads, monkeypatch):
    """Else the test above could not fail."""
    session = session_on_meta("gym/CartPole-v1", "c2d")
    loss = session.learner.loss
    for read in (torch.Tensor.item, bool, float, torch.Tensor.tolist, torch.Tensor.numpy):
        monkeypatch.setattr(
            session.learner, "loss", lambda *laws, read=read: (read(loss(*laws).detach().sum()), loss(*laws))[1]
        )
        with pytest.raises((RuntimeError, NotImplementedError, TypeError)):
            session.learner.update(session.replay.sample(4, session.sampling, "meta"))
    monkeypatch.setattr(session.learner, "loss", lambda *laws: loss(*laws) + torch.ones(4).to("meta"))
    data = session.replay.sample(4, session.sampling, "meta")
    with Crossings() as crossings:
        session.learner.update(data)
    assert crossings.names == ["_to_copy"]
    session.close()


def test_a_round_of_several_updates_is_fetched_at_once(reads):
    """Of three environments, whose three updates are read by one copy. Each acts by the same pass."""
    session = session_on_meta("gym/CartPole-v1", "c2d")
    config = session.config
    streams = [Stream(make(config.env, config.rules, seed), np.random.default_rng(seed)) for seed in range(3)]
    session.rollout = Rollout(session.actor.greedy, streams)
    session.play = OwnPlay(3, 0.99)
    session.replay = Replay(streams[0].env.spec, 150, streams=3)
    session.history = 0
    session.fill_history()
    del reads[:]
    session.advance()
    assert session.learner.updates == session.tally.updates == 3
    assert reads == [(3, 2), (5 + 3 * (4 + 4),)]  # the first of the updates has diagnostics
    session.close()


def test_what_is_fetched_is_what_was_reported():
    updates = []
    for k, size in ((1.0, 5), (2.0, 3)):
        metrics = {"b": torch.tensor(-k / 3), "a": torch.tensor(k / 7)}
        updates.append(Update(torch.tensor(k + 0.1), np.arange(size), torch.rand(size), metrics))
    fetched = fetch(updates)
    assert fetch([]) == [] and len(fetched) == 2
    for before, after in zip(updates, fetched, strict=True):
        assert type(after.loss) is float and after.loss == float(before.loss)
        assert after.metrics == {name: float(value) for name, value in before.metrics.items()}
        assert after.priority.dtype == np.float32 and after.priority.tolist() == before.priority.tolist()
        assert after.indices is before.indices


def test_arrays_that_travel_together_arrive_as_they_were(monkeypatch):
    """On the way to another device, which here is a copy in memory."""
    rng = np.random.default_rng(0)
    arrays = {
        "frames": rng.integers(256, size=(3, 2, 5, 7), dtype=np.uint8)[:, ::-1],  # of odd size, not contiguous
        "action": rng.integers(9, size=3),
        "reward": rng.normal(size=3).astype(np.float32),
        "nothing": np.zeros((0, 4), np.float32),
    }
    there, asked = [to_device(arrays, "meta")], []
    assert all(tensor.device.type == "meta" for tensor in there[0].values())
    monkeypatch.setattr(torch.Tensor, "to", lambda self, *_, **how: (asked.append(how), self.clone())[1])
    there.append(to_device(arrays, "meta"))
    assert asked == [{"non_blocking": True}]
    for tensors in (*there, to_device({"frames": arrays["frames"].copy()}, "cpu")):
        for name, tensor in tensors.items():
            assert tuple(tensor.shape) == arrays[name].shape
            assert torch.empty(0, dtype=tensor.dtype).numpy().dtype == arrays[name].dtype
            assert tensor.device.type == "meta" or np.array_equal(tensor.numpy(), arrays[name]), name


def test_indices_stay_on_the_host():
    session = Session(short_config("gym/CartPole-v1", "unused"))
    session.fill_history()
    data = session.replay.sample(4, session.sampling, "meta")
    others = [part for name, part in data._asdict().items() if name != "indices" and part is not None]
    assert data.indices.device.type == "cpu" and {part.device.type for part in others} == {"meta"}


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3, float("nan")])
def test_gradients_are_clipped_alike_without_a_look_at_their_norm(scale, monkeypatch):
    """Where reading the norm would wait, gradients within the bound are divided by 1: the same bits."""
    weights, norms = [], []
    for waits in (False, True):
        monkeypatch.setattr(learner_module, "_reading_waits", lambda _, waits=waits: waits)
        trained = make_learner()
        for _ in range(3):
            norms.append(trained.update(batch(weight=torch.full((16,), scale))).metrics["gradient_norm"])
        weights.append(flat(trained.online))
    assert weights[0].numpy().tobytes() == weights[1].numpy().tobytes()
    assert (norms[0] > 10.0) == (scale > 1.0)  # both sides of the bound are met
