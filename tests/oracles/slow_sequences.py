"""Sequences of steps out of whole episodes, by the definition: every multiple of the stride, one after the other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tests.oracles.slow_replay import SlowReplay


@dataclass
class Sequence:
    number: int  # of the newest frame of its first state
    burn_in: list[list[Any]]  # stacks
    obs: list[list[Any]]  # stacks from the first step to the last state that one bootstraps from
    before: list[tuple[int, float]]  # action and reward before each of all these; (-1, 0) where the episode begins
    memory_of: int | None  # number of the state before which the memory is wanted; None: zeros
    actions: list[int]
    rewards: list[float]  # n-step
    discounts: list[float]
    ahead: list[int]  # place in `obs` of what each step bootstraps from, unless its discount is 0


class SlowSequences(SlowReplay):
    def __init__(self, length: int, burn_in: int, overlap: int, *rest: Any) -> None:
        super().__init__(*rest)
        self.length, self.burn_in, self.overlap = length, burn_in, overlap

    def sequences(self) -> list[Sequence]:
        found = []
        for episode in self.episodes:
            steps, closed = len(episode.actions), episode.ended != "no"
            for start in range(0, steps, self.length - self.overlap):
                end = min(start + self.length, steps)
                if not closed and start + self.length - 1 + self.n_step > steps:
                    continue  # a window of it is open
                if start > 0 and (start - (self.length - self.overlap)) + self.length >= steps and closed:
                    continue  # the one before has all of it
                first = max(start - self.burn_in, 0)
                needed = [*episode.states[first].numbers, *([episode.states[first - 1].number] if first else [])]
                if min(needed) < self.frames - self.capacity:
                    continue
                found.append(self._sequence(episode, first, start, end))
        return found

    def _sequence(self, episode: Any, first: int, start: int, end: int) -> Sequence:
        rewards, discounts, ahead = [], [], []
        for t in range(start, end):
            until = min(t + self.n_step, len(episode.actions))
            rewards.append(sum(self.gamma ** (k - t) * episode.rewards[k] for k in range(t, until)))
            dead = until == len(episode.actions) and episode.ended == "terminal"
            discounts.append(0.0 if dead else self.gamma ** (until - t))
            ahead.append(until - start)
        last = min(start + self.length + self.n_step, len(episode.states))
        states = episode.states[first:last]
        before = [(episode.actions[t - 1], episode.rewards[t - 1]) if t else (-1, 0.0) for t in range(first, last)]
        return Sequence(
            episode.states[start].number,
            [state.stack for state in states[: start - first]],
            [state.stack for state in states[start - first :]],
            before,
            episode.states[first].number if first else None,
            episode.actions[start:end],
            rewards,
            discounts,
            ahead,
        )
