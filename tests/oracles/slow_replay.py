"""A replay buffer written the obvious way: whole episodes as lists, stacks made by pushing frames.

Nothing is shared with the ring of `c2d.replay`. Every frame gets a number as it arrives; a transition is
sampleable if its n-step window is complete and every numbered frame in its two stacks is among the last
`capacity` frames. Zeros are None.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass
class State:
    number: int  # of its newest frame, counted since the beginning
    stack: list[Any]  # the frames themselves, oldest first; None for zeros
    numbers: list[int]  # of the frames in the stack
    legal: Any = None  # the actions that may be taken


@dataclass
class Episode:
    states: list[State]
    actions: list[int] = field(default_factory=list)
    rewards: list[float] = field(default_factory=list)
    ended: str = "no"  # "no": still running, "terminal", or "cut": more would have followed


@dataclass
class Transition:
    number: int
    obs: list[Any]
    action: int
    reward: float
    discount: float
    next_obs: list[Any]
    legal: Any = None
    next_legal: Any = None


class SlowReplay:
    def __init__(self, capacity: int, stack: int, n_step: int, gamma: float, truncation: str) -> None:
        self.capacity, self.stack, self.n_step, self.gamma = capacity, stack, n_step, gamma
        self.truncation = truncation
        self.episodes: list[Episode] = []
        self.frames = 0

    def begin(self, frame: Any, count: int, legal: Any = None) -> None:
        if self.episodes and self.episodes[-1].ended == "no":
            self.episodes[-1].ended = "cut"
        stack: list[Any] = [None] * self.stack
        for _ in range(count):
            stack = [*stack[1:], frame]
        self.episodes.append(Episode([State(self.frames, stack, [self.frames], legal)]))
        self.frames += 1

    def add(
        self, action: int, reward: float, frame: Any, terminal: bool, opening: tuple[Any, ...] | None, legal: Any = None
    ) -> None:
        episode = self.episodes[-1]
        cut = opening is not None and not terminal
        if cut and self.truncation == "terminal":
            terminal, cut = True, False
        if not (cut and self.truncation == "drop"):
            episode.actions.append(action)
            episode.rewards.append(reward)
        if not terminal and not (cut and self.truncation == "drop"):
            last = episode.states[-1]
            numbers = [*last.numbers, self.frames][-self.stack :]
            episode.states.append(State(self.frames, [*last.stack[1:], frame], numbers, legal))
            self.frames += 1
        if opening is not None:
            episode.ended = "terminal" if terminal else "cut"
            self.begin(*opening)

    def transitions(self) -> list[Transition]:
        """Everything that may be drawn now, oldest first."""
        found = []
        for position, episode in enumerate(self.episodes):
            following = self.episodes[position + 1].states[0] if position + 1 < len(self.episodes) else None
            for t in range(len(episode.actions)):
                transition = self._from(episode, t, following)
                if transition is not None:
                    found.append(transition)
        return found

    def _from(self, episode: Episode, t: int, following: State | None) -> Transition | None:
        length = len(episode.actions)
        total, discount, at = 0.0, 1.0, t
        while at < length and at < t + self.n_step:
            total += discount * episode.rewards[at]
            discount *= self.gamma
            at += 1
        reached_end = at == length
        if reached_end and episode.ended == "terminal":
            assert following is not None
            then, discount = following, 0.0
        elif at == t + self.n_step or episode.ended == "cut":
            then = episode.states[at]
        else:
            return None  # the window is still open
        state = episode.states[t]
        needed = [*state.numbers, *then.numbers]
        if min(needed) < self.frames - self.capacity:
            return None
        action, masks = episode.actions[t], (state.legal, then.legal)
        return Transition(state.number, state.stack, action, total, discount, then.stack, *masks)
