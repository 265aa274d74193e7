"""The play loop: N environments in lock-step, one network pass per step for all of them.

    observe (FrameStack) → choose (ε-greedy) → step the environment → hand out the transition → observe

Training, evaluation, the page and the measurements all play by `Rollout`. They differ in the generators that decide
about ε, in how actions are chosen (`Actor.greedy`, or by a criterion), and in what they do with the transitions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from c2d.envs.spec import Environment, EnvSpec
from c2d.nets.network import ValueNetwork
from c2d.returns.bellman import greedy, q_values
from c2d.types import Phi, ResetFrame, ReturnDist, Step

Choose = Callable[[np.ndarray], np.ndarray]  # observations [B, *obs] -> actions [B], before ε


class FrameStack:
    """The observation when acting: the last S frames of the running episode, zeros before its first.

    `Slots.observations` makes the same of stored frames when a batch is read: the replay holds each frame once.
    """

    def __init__(self, spec: EnvSpec) -> None:
        self._channels = spec.frame_shape[0]
        self.obs = np.zeros(spec.obs_shape, dtype=spec.frame_dtype)  # [S·C, H, W], newest frame last

    def reset(self, opening: ResetFrame) -> np.ndarray:
        """The first observation of an episode."""
        self.obs[:] = 0
        for _ in range(opening.repeats):
            self.push(opening.frame)
        return self.obs

    def push(self, frame: np.ndarray) -> np.ndarray:
        self.obs[: -self._channels] = self.obs[self._channels :]
        self.obs[-self._channels :] = frame
        return self.obs

    def update(self, step: Step) -> np.ndarray:
        """The observation after `step`: of the next episode if this one ended."""
        return self.push(step.frame) if step.reset is None else self.reset(step.reset)

    def followed_by(self, frame: np.ndarray) -> np.ndarray:
        """A new array: the observation if `frame` came next, even where the episode ends with it."""
        return np.concatenate((self.obs[self._channels :], frame))


class Actor:
    """Sees return distributions, and the actions of largest mean, with a network that someone else trains."""

    def __init__(
        self,
        network: ValueNetwork,
        phi: Phi,
        noise: torch.Generator | None = None,  # of noisy layers and random fractions; None: means and midpoints
    ) -> None:
        self.network, self.phi, self.noise = network, phi, noise
        self.device = next(network.parameters()).device

    @torch.inference_mode()
    def greedy(self, obs: np.ndarray) -> np.ndarray:
        """The action of largest expected real return. [B, *obs] -> [B]"""
        return greedy(q_values(self._law(obs), self.phi)).cpu().numpy()

    @torch.inference_mode()
    def laws(self, obs: np.ndarray) -> tuple[Tensor, Tensor]:
        """Atoms as real returns and their probabilities, to act by more than the mean. [B, *obs] -> 2 × [B, A, N]"""
        law = self._law(obs)
        return self.phi.back(law.atoms), law.log_probs.exp()

    def _law(self, obs: np.ndarray) -> ReturnDist:
        law: ReturnDist = self.network(torch.from_numpy(obs).to(self.device), "act", self.noise)
        return law


def epsilon_greedy(
    observations: Sequence[np.ndarray],  # B × [*obs]
    rngs: Sequence[np.random.Generator],  # of each row; may be the same one
    epsilon: float,
    actions: int,
    choose: Choose | None,  # None only with ε = 1
    every_row: bool = False,
) -> list[tuple[int, bool]]:
    """Of each row the action, and whether it was drawn at random, which it is with probability ε.

    `choose` is called once: for the rows whose answer is used, and not at all if there are none; with `every_row`,
    for all of them.
    """
    drawn = [int(rng.integers(actions)) if rng.random() < epsilon else None for rng in rngs]
    rows = [row for row, action in enumerate(drawn) if every_row or action is None]
    chosen: dict[int, int] = {}
    if rows:
        assert choose is not None, "a policy is needed where ε < 1"
        answers = choose(np.stack([observations[row] for row in rows]))
        chosen = {row: int(action) for row, action in zip(rows, answers, strict=True)}
    return [(chosen[row], False) if action is None else (action, True) for row, action in enumerate(drawn)]


class Transition(NamedTuple):
    """One agent step of one stream."""

    stream: int  # its position in the rollout
    action: int
    random: bool  # the action was drawn, not chosen
    step: Step


class Stream:
    """One environment: what it shows, the generator that decides about ε, the action that is being carried out."""

    def __init__(self, env: Environment, rng: np.random.Generator) -> None:
        self.env, self.rng = env, rng
        self.stack = FrameStack(env.spec)
        self.action: int | None = None  # chosen, and not carried out yet
        self.random = False

    def reset(self) -> ResetFrame:
        """Begin a new game."""
        opening = self.env.reset()
        self.stack.reset(opening)
        self.action = None
        return opening


class Rollout:
    """Environments that advance together. `reset` each stream before the first step."""

    def __init__(
        self,
        choose: Choose | None,  # None: only random play, ε = 1
        streams: Sequence[Stream] = (),
        every_row: bool = False,  # `choose` sees the observations of all streams, even where a random action is taken
    ) -> None:
        self.choose, self.streams, self.every_row = choose, list(streams), every_row

    def add(self, env: Environment, rng: np.random.Generator) -> Stream:
        """One more stream, in the last place."""
        self.streams.append(Stream(env, rng))
        return self.streams[-1]

    def remove(self, stream: int) -> None:
        """Close an environment; the streams behind it move up."""
        self.streams.pop(stream).env.close()

    def step(self, epsilon: float) -> Iterator[Transition]:
        """One agent step of every stream, in their order. Exhaust the iterator: each stream steps as it is asked for.

        While a transition is handed out, its stream's `stack` still shows the observation that was acted on. If an
        environment or the consumer fails, the streams that have not finished keep their actions, and the next call
        finishes this round with them. The error then carries a note that names the stream, if there are several.
        """
        self.decide(epsilon)
        for number, stream in enumerate(self.streams):
            if stream.action is None:
                continue  # done before this round was interrupted
            try:
                step = stream.env.step(stream.action)
            except Exception as error:
                if len(self.streams) > 1:
                    error.add_note(f"environment {number} of {len(self.streams)}: {stream.env.spec.name}")
                raise
            yield Transition(number, stream.action, stream.random, step)
            stream.stack.update(step)
            stream.action = None

    def decide(self, epsilon: float) -> None:
        """Choose an action for every stream, unless a round is still to be finished."""
        streams = self.streams
        if not streams or any(stream.action is not None for stream in streams):
            return
        choices = epsilon_greedy(
            [stream.stack.obs for stream in streams],
            [stream.rng for stream in streams],
            epsilon,
            streams[0].env.spec.actions,
            self.choose,
            self.every_row,
        )
        for stream, (action, random) in zip(streams, choices, strict=True):
            stream.action, stream.random = action, random

    def close(self) -> None:
        for stream in self.streams:
            stream.env.close()
