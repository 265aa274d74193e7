"""An agent that knows the law of each toy, or is wrong about it in a chosen way; nothing is learned here."""

from types import SimpleNamespace

import numpy as np
import torch

from c2d.envs import toy
from c2d.envs.make import make
from tests.oracles import toy_law

GAMMA = 0.9


def padded(values, probs, size):
    """Atoms without mass fill the row: a head has as many atoms everywhere."""
    rest = size - len(values)
    return np.concatenate((values, np.zeros(rest))), np.concatenate((probs, np.zeros(rest)))


def knowing(name, change=lambda values, probs: (values, probs)):
    """Predicts `change(true law)` for every state and action."""
    states = toy.TOYS[name].states
    laws = [[change(*toy_law.law(name, s, a, GAMMA)) for a in range(2)] for s in range(len(states))]
    size = max(len(values) for row in laws for values, _ in row)
    table = torch.tensor(np.array([[padded(*law, size) for law in row] for row in laws]))  # [S, A, 2, N]

    def predict(obs):
        rows = table[torch.from_numpy(obs).argmax(-1)]
        return rows[:, :, 0], rows[:, :, 1]

    recipe = SimpleNamespace(schedule=SimpleNamespace(gamma=GAMMA), clip_reward=None)
    return SimpleNamespace(spec=worlds(name)(0).spec, actor=SimpleNamespace(laws=predict), recipe=recipe)


def worlds(name):
    return lambda seed: make(f"toy/{name}", None, seed)
