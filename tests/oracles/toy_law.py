"""The exact law of the return of a toy, by listing all outcomes."""

import numpy as np

from c2d.envs.toy import find


def law(name: str, state: int, action: int, gamma: float) -> tuple[np.ndarray, np.ndarray]:
    """Law of the discounted return after `action` in `state`, best actions afterwards.

    Returns (values [K], probabilities [K]), values ascending and distinct.
    """
    return _pushed(find(name), state, action, gamma)


def best_action(name: str, state: int, gamma: float) -> int:
    """The action of largest expected return; the first of equals."""
    toy = find(name)
    means = {action: float(np.dot(*_pushed(toy, state, action, gamma))) for action in legal(toy, state)}
    return max(means, key=means.get)


def legal(toy, state: int) -> list[int]:
    """Actions with outcomes."""
    return [action for action, outcomes in enumerate(toy.states[state]) if outcomes]


def _pushed(toy, state: int, action: int, gamma: float) -> tuple[np.ndarray, np.ndarray]:
    values, probs = [], []
    for outcome in toy.states[state][action]:
        later, chance = _optimal(toy, outcome.to, gamma)
        values.append(outcome.reward + gamma * later)
        probs.append(outcome.prob * chance)
    return _merged(np.concatenate(values), np.concatenate(probs))


def _optimal(toy, state: int | None, gamma: float) -> tuple[np.ndarray, np.ndarray]:
    if state is None:
        return np.zeros(1), np.ones(1)
    laws = [_pushed(toy, state, action, gamma) for action in legal(toy, state)]
    return max(laws, key=lambda pair: float(np.dot(*pair)))  # the first of equals


def _merged(values: np.ndarray, probs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Equal values (to 12 digits) become one."""
    distinct, where = np.unique(values.round(12), return_inverse=True)
    return distinct, np.bincount(where, weights=probs)
