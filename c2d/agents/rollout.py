"""The play loop: N environments in lock-step, one network pass per step for all of them.

    observe (FrameStack) → choose (ε-greedy) → step the environment → hand out the transition → observe

One step of every environment is a round. Environments step one after the other, or in threads; the transitions come
in the order of the environments either way, and nothing depends on which thread was faster.

Training, evaluation, the page and the measurements all play by `Rollout`. They differ in the generators that decide
about ε, in how actions are chosen (`Actor.greedy`, or by a criterion), and in what they do with the transitions.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import astuple, dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from c2d.envs.spec import Environment, EnvSpec
from c2d.nets.network import ValueNetwork
from c2d.replay.buffer import horizon, learner_view, to_device
from c2d.returns.bellman import greedy, q_values
from c2d.types import Phi, ResetFrame, ReturnDist, Sight, Step

# observations [B, *obs] or a `Sight` of B games and, where the environments have masks, legal actions [B, A] ->
# actions [B], before ε
Choose = Callable[..., np.ndarray]


class FrameStack:
    """The observation when acting: the last S frames of the running episode, zeros before its first.

    `Slots.observations` makes the same of stored frames when a batch is read: the replay holds each frame once.
    """

    def __init__(self, spec: EnvSpec) -> None:
        self._channels = spec.frame_shape[0]
        self.obs = np.zeros(spec.obs_shape, dtype=spec.frame_dtype)  # [S·C, H, W], newest frame last
        self.legal: np.ndarray | None = None  # [A] bool: the actions that may be taken now; None: all

    def reset(self, opening: ResetFrame) -> np.ndarray:
        """The first observation of an episode."""
        self.obs[:] = 0
        self.legal = opening.legal
        for _ in range(opening.repeats):
            self.push(opening.frame)
        return self.obs

    def push(self, frame: np.ndarray) -> np.ndarray:
        self.obs[: -self._channels] = self.obs[self._channels :]
        self.obs[-self._channels :] = frame
        return self.obs

    def update(self, step: Step) -> np.ndarray:
        """The observation after `step`: of the next episode if this one ended."""
        if step.reset is not None:
            return self.reset(step.reset)
        self.legal = step.legal
        return self.push(step.frame)

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
        self.values: list[float] = []  # [B] expected real returns of the actions that `greedy` chose last
        self.memory = getattr(network, "memory", 0)  # K; if it is above 0, observations come as a `Sight`
        self.remembered: np.ndarray | None = None  # [B, K] after the observations of the last call

    @torch.inference_mode()
    def greedy(self, obs: np.ndarray | Sight, legal: np.ndarray | None = None) -> np.ndarray:
        """The legal action of largest expected real return: the one wait for the device in acting. [B, *obs] -> [B]"""
        law, memory = self._pass(obs)
        q = q_values(law, self.phi)  # [B, A]
        mask = None if legal is None else torch.from_numpy(legal).to(self.device)
        best = greedy(q, mask).unsqueeze(-1)  # [B, 1]
        # [B, 2 + K] in one copy; actions are small integers
        every = torch.cat((best, q.gather(-1, best), *(() if memory is None else (memory,))), -1).cpu().numpy()
        self.values = every[:, 1].tolist()
        self.remembered = None if memory is None else every[:, 2:].copy()
        return every[:, 0].astype(np.int64)

    @torch.inference_mode()
    def laws(self, obs: np.ndarray | Sight) -> tuple[Tensor, Tensor]:
        """Atoms as real returns and their probabilities, to act by more than the mean. [B, *obs] -> 2 × [B, A, N]"""
        law = self.law(obs)
        return self.phi.back(law.atoms), law.log_probs.exp()

    def law(self, obs: np.ndarray | Sight) -> ReturnDist:
        """[B, *obs] -> [B, A, N] in φ-space"""
        law, memory = self._pass(obs)
        self.remembered = None if memory is None else memory.cpu().numpy()
        return law

    def _pass(self, obs: np.ndarray | Sight) -> tuple[ReturnDist, Tensor | None]:
        """The laws, and what is remembered then. [B, *obs] -> [B, A, N], [B, K]"""
        if isinstance(obs, Sight):
            return self.network.step(**to_device(obs._asdict(), self.device), rng=self.noise)
        law: ReturnDist = self.network(to_device({"obs": obs}, self.device)["obs"], "act", self.noise)
        return law, None


def epsilon_greedy(
    observations: Sequence[np.ndarray],  # B × [*obs]
    rngs: Sequence[np.random.Generator],  # of each row; may be the same one
    epsilon: float | Sequence[float],  # one for all rows, or one for each
    actions: int,
    choose: Choose | None,  # None only with ε = 1
    every_row: bool = False,
    legal: Sequence[np.ndarray | None] | None = None,  # B × [A]: the actions that may be taken; None: all
) -> list[tuple[int, bool]]:
    """Of each row the action, and whether it was drawn at random among the legal ones, as it is with probability ε.

    `choose` is called once: for the rows whose answer is used, and not at all if there are none; with `every_row`,
    for all of them.
    """
    each = [epsilon] * len(rngs) if isinstance(epsilon, float | int) else epsilon
    masks = [None] * len(rngs) if legal is None else legal
    drawn = [
        uniform(rng, actions, mask) if rng.random() < eps else None
        for rng, eps, mask in zip(rngs, each, masks, strict=True)
    ]
    rows = [row for row, action in enumerate(drawn) if every_row or action is None]
    chosen: dict[int, int] = {}
    if rows:
        assert choose is not None, "a policy is needed where ε < 1"
        masked = [mask for row in rows if (mask := masks[row]) is not None]  # of all rows, or of none
        answers = choose(np.stack([observations[row] for row in rows]), *([np.stack(masked)] if masked else []))
        chosen = {row: int(action) for row, action in zip(rows, answers, strict=True)}
    return [(chosen[row], False) if action is None else (action, True) for row, action in enumerate(drawn)]


def uniform(rng: np.random.Generator, actions: int, legal: np.ndarray | None) -> int:
    """One of the legal actions, each with the same probability."""
    if legal is None:
        return int(rng.integers(actions))
    choices = np.flatnonzero(legal)
    return int(choices[rng.integers(len(choices))])


class Transition(NamedTuple):
    """One agent step of one stream."""

    stream: int  # its position in the rollout
    action: int
    random: bool  # the action was drawn, not chosen
    step: Step
    value: float | None = None  # of the action by the network; None if it was drawn, or nobody asked
    memory: np.ndarray | None = None  # [K] of the network before it saw the observation; K may be 0
    opening: ResetFrame | None = None  # of a new game that began before this step, if no step brought it


class Stream:
    """One environment: what it shows, the generator that decides about ε, the action that is being carried out."""

    def __init__(self, env: Environment, rng: np.random.Generator) -> None:
        self.env, self.rng = env, rng
        self.stack = FrameStack(env.spec)
        self.remember(0)
        self.action: int | None = None  # chosen, and not carried out yet
        self.random = False
        self.value: float | None = None  # of `action` by the network; None if it was drawn, or nobody asked
        self.result: Step | Exception | None = None  # of an environment that has stepped, until it is handed out
        self.since: float | None = None  # when the step began that it is making now
        self.done = threading.Event()  # set when a thread has finished the step

    def reset(self) -> ResetFrame:
        """Begin a new game."""
        opening = self.env.reset()
        self.stack.reset(opening)
        self.remember(len(self.memory))
        self.action = self.result = None
        return opening

    def remember(self, size: int) -> None:
        """Begin an episode with an empty memory of so many numbers."""
        self.memory = np.zeros(size, np.float32)  # [K] before the observation that `stack` shows
        self.remembered: np.ndarray | None = None  # [K] after it, when an action was chosen
        self.before, self.earned = -1, 0.0  # the action before the observation, -1: none; the raw reward that came

    def move_on(self) -> None:
        """The step was handed out: its observation is seen. An episode of the learner begins with an empty memory."""
        step, action = self.result, self.action
        assert isinstance(step, Step) and action is not None
        self.stack.update(step)
        if step.reset is not None:
            self.remember(len(self.memory))
        else:
            self.before, self.earned = action, step.reward
            if self.remembered is not None:
                self.memory, self.remembered = self.remembered, None
        self.action = self.result = None

    def state_dict(self) -> dict[str, Any]:
        """The game in progress, its generator apart. The observation shares memory with the stream."""
        known = {"before": self.before, "earned": self.earned, "memory": self.memory, "after": self.remembered}
        return {
            "environment": self.env.state_dict(),
            "observation": self.stack.obs,
            "action": self.action,  # chosen, and not carried out yet
            "value": self.value,
            "so_far": list(self.env.so_far),  # score and steps, for people: the environment knows its own
            **({"memory": known} if len(self.memory) else {}),
            **({} if self.stack.legal is None else {"legal": self.stack.legal}),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue the game. ValueError for what does not fit, ReplayMismatch if the game cannot be brought back."""
        observation, action, value = state["observation"], state["action"], state.get("value")
        if observation.shape != self.stack.obs.shape or observation.dtype != self.stack.obs.dtype:
            raise ValueError(f"the observation is {observation.dtype} {observation.shape}")
        if action is not None and not (type(action) is int and 0 <= action < self.env.spec.actions):
            raise ValueError(f"chosen action is {action}")
        if type(value) not in (float, type(None)):
            raise ValueError(f"the value of the chosen action is {str(value)[:40]!r}")
        if len(self.memory):
            self._load_memory(state["memory"])
        legal, spec = state.get("legal"), self.env.spec
        if (legal is not None) != spec.masked:
            raise ValueError("it holds a mask of actions, or lacks one, unlike the environment")
        if legal is not None and not (legal.dtype == np.bool_ and legal.shape == (spec.actions,) and legal.any()):
            raise ValueError(f"the mask of actions is {legal.dtype} {legal.shape}, or forbids every action")
        self.stack.obs[:], self.stack.legal = observation, legal
        self.action, self.value = action, value
        self.env.load_state_dict(state["environment"])

    def _load_memory(self, saved: dict[str, Any]) -> None:
        before, earned, after = saved["before"], saved["earned"], saved["after"]
        for array in (saved["memory"], *(() if after is None else (after,))):
            if array.shape != self.memory.shape or array.dtype != np.float32 or not np.isfinite(array).all():
                raise ValueError(f"the memory is {array.dtype} {array.shape}, or not finite")
        if type(before) is not int or not -1 <= before < self.env.spec.actions or type(earned) not in (int, float):
            raise ValueError(f"before the observation came action {before!r:.40} and reward {earned!r:.40}")
        self.memory, self.remembered = saved["memory"].copy(), None if after is None else after.copy()
        self.before, self.earned = before, earned

    def carry_out(self) -> None:
        """Step the environment by the chosen action; `result` then is its step, or why there is none."""
        assert self.action is not None
        self.since = time.monotonic()
        try:
            self.result = self.env.step(self.action)
        except Exception as error:
            self.result = error
        finally:
            self.since = None
            self.done.set()


def sight(obs: np.ndarray, streams: Sequence[Stream]) -> Sight:
    """What a network with memory sees of these streams, which show the observations `obs`."""
    return Sight(
        obs,
        np.array([stream.before for stream in streams], np.int64),
        np.array([stream.earned for stream in streams], np.float32),
        np.stack([stream.memory for stream in streams]),
    )


class Rollout:
    """Environments that advance together. `reset` each stream before the first step."""

    def __init__(
        self,
        choose: Choose | None,  # None: only random play, ε = 1
        streams: Sequence[Stream] = (),
        every_row: bool = False,  # `choose` sees the observations of all streams, even where a random action is taken
        threads: int = 0,  # that step the environments; 0: the calling one does
        values: Callable[[], Sequence[float]] | None = None,  # of the actions that `choose` answered last
        recall: Actor | None = None,  # if its network has a memory: `choose` asks it, and gets a `Sight` of all streams
    ) -> None:
        self.choose, self.streams, self.every_row, self.values = choose, list(streams), every_row, values
        self.recall = recall if getattr(recall, "memory", 0) else None
        if self.recall is not None:
            self.every_row = True
            for stream in self.streams:
                stream.remember(self.recall.memory)
        self._tasks: queue.SimpleQueue[Stream | None] | None = queue.SimpleQueue() if threads else None
        self._launched: set[Stream] = set()  # given to the threads in this round, and not handed out
        for number in range(threads):  # daemons: an environment that hangs does not keep the process
            threading.Thread(target=_work, args=(self._tasks,), name=f"environments {number}", daemon=True).start()

    def add(self, env: Environment, rng: np.random.Generator) -> Stream:
        """One more stream, in the last place."""
        self.streams.append(Stream(env, rng))
        if self.recall is not None:
            self.streams[-1].remember(self.recall.memory)
        return self.streams[-1]

    def remove(self, stream: int) -> None:
        """Close an environment; the streams behind it move up."""
        self.streams.pop(stream).env.close()

    def reset(self) -> list[tuple[int, ResetFrame]]:
        """Begin new games: each stream and its first frame."""
        return [(number, stream.reset()) for number, stream in enumerate(self.streams)]

    @property
    def round_steps(self) -> int:
        """Agent steps of one round."""
        return len(self.streams)

    @property
    def at_rest(self) -> bool:
        """Whether every step that an environment has made was handed out."""
        return not self._launched and all(stream.result is None for stream in self.streams)

    def launch(self, epsilon: float | Sequence[float]) -> None:
        """Decide, and let the threads carry it out from now on; `step` hands out what comes of it."""
        self.decide(epsilon)
        if self._tasks is None:
            return
        for stream in self.streams:
            if stream.action is not None and stream.result is None and stream not in self._launched:
                stream.done.clear()
                self._launched.add(stream)
                self._tasks.put(stream)

    def step(self, epsilon: float | Sequence[float]) -> Iterator[Transition]:
        """One agent step of every stream, in their order. Exhaust the iterator: streams step as they are asked for.

        While a transition is handed out, its stream still shows the observation that was acted on, and the memory
        before it. If an environment fails, the others make their step, and then its error is raised with a note that
        names it. If it or the consumer fails, streams that have not finished keep their actions, and the next call
        finishes this round.
        """
        self.launch(epsilon)
        failed: Exception | None = None
        for number, stream in enumerate(self.streams):
            if stream.action is None:
                continue  # done before this round was interrupted
            if stream in self._launched:
                stream.done.wait()
                self._launched.discard(stream)
            elif stream.result is None:
                stream.carry_out()
            if isinstance(stream.result, Exception):
                error, stream.result = stream.result, None
                if len(self.streams) > 1:
                    error.add_note(f"environment {number} of {len(self.streams)}: {stream.env.spec.name}")
                failed = failed or error
                continue
            assert stream.result is not None
            yield Transition(number, stream.action, stream.random, stream.result, stream.value, stream.memory)
            stream.move_on()
        if failed is not None:
            raise failed

    def decide(self, epsilon: float | Sequence[float]) -> None:
        """Choose an action for every stream, unless a round is still to be finished."""
        streams = self.streams
        if not streams or any(stream.action is not None for stream in streams):
            return
        choices = epsilon_greedy(
            [stream.stack.obs for stream in streams],
            [stream.rng for stream in streams],
            epsilon,
            streams[0].env.spec.actions,
            self.choose if self.recall is None else self._choose_by_memory,
            self.every_row,
            [stream.stack.legal for stream in streams],
        )
        values = iter(() if self.values is None else self.values())
        for stream, (action, random) in zip(streams, choices, strict=True):
            stream.action, stream.random = action, random
            answer = next(values, None) if self.every_row or not random else None
            stream.value = None if random else answer

    def _choose_by_memory(self, obs: np.ndarray, *legal: np.ndarray) -> np.ndarray:
        """Of all streams, whose memory moves on with the observation."""
        assert self.recall is not None and self.choose is not None
        actions = self.choose(sight(obs, self.streams), *legal)
        assert self.recall.remembered is not None
        for stream, memory in zip(self.streams, self.recall.remembered, strict=True):
            stream.remembered = memory.copy()
        return actions

    def close(self) -> None:
        """Close the environments, except for one that is still in the middle of a step after some seconds."""
        if self._tasks is not None:
            self._tasks.put(None)
        deadline = time.monotonic() + _LAST_STEP
        for stream in self.streams:
            if stream not in self._launched or stream.done.wait(max(deadline - time.monotonic(), 0.0)):
                stream.env.close()


_LAST_STEP = 5.0  # seconds that an environment has to finish its step when all are closed


def _work(tasks: queue.SimpleQueue[Stream | None]) -> None:
    """Step the streams that are handed in, until None comes."""
    while (stream := tasks.get()) is not None:
        stream.carry_out()
    tasks.put(None)  # for the next thread


# ------------------------------------------------------------------------------------- what was expected, what came

Add = Callable[[str, float, int], None]  # name of a metric, sum of its new values, their number


@dataclass
class _Course:
    """Where a stream is in its game, and sums over the steps that count of the learner's episode so far."""

    time: int = 0  # steps of the game
    value: float | None = None  # of the action before; None: it was drawn, or none was taken in this episode
    reward: float = 0.0  # that came of it
    count: int = 0
    latest: int = 0  # time of the last one
    expected: float = 0.0  # Σ_t q_t
    realized: float = 0.0  # Σ_t Σ_{k ≥ t} γ^(k-t) r_k, as far as rewards have come
    trace: float = 0.0  # Σ_t γ^(now-t): by how much a reward that comes now adds to it


class OwnPlay:
    """The values of the actions that the network chose in training, against what came of them. O(1) per step.

    td_error_play: r + γ q(s', a') − q(s, a), or r − q(s, a) if nothing follows. Each q is from the pass that chose, so
    that the network may have been updated between the two.
    bias: q(s, a) less the discounted return to the end of the learner's episode, when that has come.

    Actions drawn at random are left out, as the network was not asked; the returns of earlier steps include what came
    of them. Rewards and ends are as the learner sees them. As in calibration, time alone decides which steps count for
    the bias: if a game was truncated after T steps, then from there on steps up to T − K of any game, where γ^K ≤ 1 %.
    """

    def __init__(self, streams: int, gamma: float, clip: float | None = None, truncation: str = "drop") -> None:
        self.gamma, self.clip, self.truncation = gamma, clip, truncation
        self._horizon = horizon(gamma)
        self._cut: int | None = None  # steps of the shortest game that was truncated
        self._courses = [_Course() for _ in range(streams)]

    def begin(self, stream: int) -> None:
        """A new game, whatever became of the one before."""
        self._courses[stream] = _Course()

    def follow(self, stream: int, value: float | None, step: Step, add: Add) -> None:
        """One step of a stream; `value` is that of the action, None if it was drawn."""
        course, seen = self._courses[stream], learner_view(step, self.truncation, self.clip)
        course.trace *= self.gamma
        if value is not None:
            if course.value is not None:
                add("td_error_play", course.reward + self.gamma * value - course.value, 1)
            if self._cut is None or course.time <= self._cut - self._horizon:
                course.count, course.latest = course.count + 1, course.time
                course.expected += value
                course.trace += 1.0
        course.realized += course.trace * seen.reward
        course.value, course.reward = value, seen.reward
        course.time += 1
        if step.reset is None:
            return
        if seen.terminal:
            if value is not None:
                add("td_error_play", seen.reward - value, 1)
        else:
            self._cut = course.time if self._cut is None else min(self._cut, course.time)
        if course.count and (seen.terminal or course.latest <= course.time - self._horizon):
            add("bias", course.expected - course.realized, course.count)
        self._courses[stream] = _Course(time=0 if step.game is not None else course.time)

    def state_dict(self) -> dict[str, Any]:
        return {"cut": self._cut, "courses": [list(astuple(course)) for course in self._courses]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """ValueError if it is not one that a run can have."""
        cut, courses = state["cut"], [_Course(*values) for values in state["courses"]]
        whole = [course.time for course in courses] + [course.count for course in courses]
        whole += [course.latest for course in courses] + ([] if cut is None else [cut])
        sums = [number for c in courses for number in (c.reward, c.expected, c.realized, c.trace)]
        sums += [course.value for course in courses if course.value is not None]
        if any(type(number) is not int or number < 0 for number in whole) or len(courses) != len(self._courses):
            raise ValueError("own play does not hold the counts of each environment")
        if any(type(number) not in (int, float) for number in sums):
            raise ValueError("own play holds a sum that is not a number")
        self._cut, self._courses = cut, courses
