"""Small decision processes for which the distribution of the discounted return is known exactly.

A state offers actions; an action is a list of outcomes, each with a probability, a reward and a next state
(or the end of the episode). An action without outcomes is illegal, and a toy that has one gives masks. States are
numbered and observed as one-hot vectors. An episode visits no state twice, so all outcomes can be enumerated.
In those of `HIDDEN`, several states look alike: they are for agents that remember.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np

from c2d.envs.protocols import GymRules
from c2d.envs.spec import EnvSpec
from c2d.errors import UserError, unknown_name
from c2d.types import GameEnd, ResetFrame, Step


class Outcome(NamedTuple):
    prob: float
    reward: float
    to: int | None  # None: the episode ends


@dataclass(frozen=True)
class Toy:
    """Episodes start in state 0. Transitions only lead to higher states."""

    about: str
    states: tuple[tuple[tuple[Outcome, ...], ...], ...]  # [state][action][outcome]; no outcomes: illegal
    shown: tuple[int, ...] = ()  # what each state is observed as; empty: as itself

    @property
    def masked(self) -> bool:
        return not all(outcomes for actions in self.states for outcomes in actions)


def _walk(reward: float, to: int | None) -> tuple[Outcome, ...]:
    return (Outcome(1.0, reward, to),)


TOYS: dict[str, Toy] = {
    "bimodal": Toy(
        "Two distant modes after a deterministic first step; the worse action has a single mode.",
        (
            (_walk(1.0, 1), _walk(0.0, 2)),
            ((Outcome(0.5, 10.0, 3), Outcome(0.5, -6.0, 3)), _walk(-2.0, 3)),
            (_walk(0.0, 3), _walk(0.5, 3)),
            (_walk(1.0, None), (Outcome(0.5, 1.0, None), Outcome(0.5, -3.0, None))),
        ),
    ),
    "skewed": Toy(
        "A chain with a rare prize at each of three states: a long right tail.",
        (
            ((Outcome(0.9, 0.0, 1), Outcome(0.1, 20.0, 1)), _walk(0.5, 1)),
            ((Outcome(0.8, 1.0, 2), Outcome(0.2, 8.0, 2)), _walk(2.0, 2)),
            ((Outcome(0.95, 0.0, None), Outcome(0.05, 40.0, None)), _walk(1.0, None)),
        ),
    ),
    "negative": Toy(
        "Only losses. The best action accepts a larger loss now for a much smaller one later.",
        (
            (_walk(-1.0, 1), _walk(-3.0, 2)),
            ((Outcome(0.7, -12.0, 3), Outcome(0.3, -4.0, 3)), _walk(-10.0, 3)),
            ((Outcome(0.5, -1.0, 3), Outcome(0.5, -5.0, 3)), _walk(-4.0, 3)),
            ((Outcome(0.25, -8.0, None), Outcome(0.75, 0.0, None)), _walk(-3.0, None)),
        ),
    ),
    "large": Toy(
        "Returns around a thousand and a loss as large: clipped rewards cannot tell these apart.",
        (
            ((Outcome(0.75, 900.0, 1), Outcome(0.25, -300.0, 1)), _walk(400.0, 1)),
            ((Outcome(0.6, 700.0, 2), Outcome(0.4, 100.0, 2)), _walk(450.0, 2)),
            (_walk(200.0, None), (Outcome(0.5, -1000.0, None), Outcome(0.5, 1000.0, None))),
        ),
    ),
    "gamble": Toy(
        "The counterexample of C2D, Prop. 3.1: a coin toss for 0 or 100, or a certain 40, which T_h prefers.",
        (((Outcome(0.5, 0.0, None), Outcome(0.5, 100.0, None)), _walk(40.0, None)),),
    ),
    "sure": Toy(
        "Four states, nothing random: the return is a single number, and only looking ahead finds it.",
        (
            (_walk(1.0, 1), _walk(0.0, 2)),
            (_walk(1.0, 3), _walk(0.0, 3)),
            (_walk(4.0, 3), _walk(0.0, 3)),
            (_walk(2.0, None), _walk(-1.0, None)),
        ),
    ),
    "masked": Toy(
        "Only losses, and some actions are illegal in some states: what is never learned, near 0, would look best.",
        (
            (_walk(-1.0, 1), _walk(-3.0, 2), ()),
            ((), (Outcome(0.5, -12.0, 3), Outcome(0.5, -4.0, 3)), _walk(-10.0, 3)),
            ((), (), _walk(-4.0, 3)),
            ((Outcome(0.25, -8.0, None), Outcome(0.75, 0.0, None)), (), _walk(-3.0, None)),
        ),
    ),
}


REMEMBERED = 20  # steps from the cue to the question in `recall`


def _recall(steps: int) -> Toy:
    """State 0, then for each of two cues a row of states: the cue, `steps` - 1 that look alike, the question."""
    starts = (1, 1 + steps + 1)  # where the rows begin
    cue = tuple(Outcome(0.5, 0.0, start) for start in starts)
    states: list[tuple[tuple[Outcome, ...], ...]] = [(cue, cue)]
    for right, start in enumerate(starts):
        states += [(_walk(0.0, state + 1), _walk(0.0, state + 1)) for state in range(start, start + steps)]
        states.append(tuple(_walk(1.0 if action == right else -1.0, None) for action in range(2)))
    shown = [0, *(code for cue in (1, 2) for code in (cue, *[3] * (steps - 1), 4))]
    return Toy("A cue, left or right; 20 steps later the question which. Without memory every answer is a guess.",
               tuple(states), tuple(shown))  # fmt: skip


HIDDEN: dict[str, Toy] = {"recall": _recall(REMEMBERED)}
MASKED = "masked-cartpole"  # CartPole without its velocities (gymnasium.py)
NAMES = (*TOYS, *HIDDEN, MASKED)


def find(name: str) -> Toy:
    known = TOYS | HIDDEN
    if name not in known:
        raise unknown_name("toy environment", name, NAMES)
    return known[name]


class ToyEnv:
    """An `Environment` for one of `TOYS`. Frames are one-hot states [D] f32, all zeros after the end."""

    def __init__(self, name: str, rules: GymRules, seed: int) -> None:
        self.rules = rules
        self._toy = find(name)
        self._rng = np.random.Generator(np.random.PCG64(seed))
        shown = self._toy.shown or tuple(range(len(self._toy.states)))
        states = max(shown) + 1  # as far as they can be told apart
        self._codes = np.eye(states, dtype=np.float32)[list(shown)]
        actions = len(self._toy.states[0])
        self.spec = EnvSpec(
            name=f"toy/{name}",
            family="gym",
            frame_shape=(states,),
            frame_dtype="float32",
            stack=rules.stack,
            actions=actions,
            frames_per_step=1,
            action_names=tuple(str(action) for action in range(actions)),
            masked=self._toy.masked and rules.action_masks == "use",
        )
        self.reset()

    def reset(self) -> ResetFrame:
        self._state = 0
        self._steps = 0
        self._score = 0.0
        return ResetFrame(self._codes[0].copy(), 1, self._legal())

    def _legal(self) -> np.ndarray | None:
        """The legal actions of the current state. [A] bool"""
        return np.array([bool(outcomes) for outcomes in self._toy.states[self._state]]) if self.spec.masked else None

    def step(self, action: int) -> Step:
        outcomes = self._toy.states[self._state][action]
        if not outcomes:
            raise UserError(f"{self.spec.name}: action {action} is illegal in state {self._state}")
        draw, chosen = self._rng.random(), outcomes[-1]
        for outcome in outcomes:
            draw -= outcome.prob
            if draw < 0:
                chosen = outcome
                break
        self._steps += 1
        self._score += chosen.reward
        terminal = chosen.to is None
        frame = self._codes[chosen.to].copy() if chosen.to is not None else np.zeros_like(self._codes[0])
        capped = self._steps == self.rules.cap_steps
        self._state = 0 if chosen.to is None else chosen.to
        legal = None if terminal else self._legal()
        if not terminal and not capped:
            return Step(frame, chosen.reward, False, False, None, None, legal)
        game = GameEnd(self._score, self._steps)
        return Step(frame, chosen.reward, terminal, not terminal, self.reset(), game, legal)

    @property
    def so_far(self) -> GameEnd:
        return GameEnd(self._score, self._steps)

    def state_dict(self) -> dict[str, Any]:
        return {
            "state": self._state,
            "steps": self._steps,
            "score": self._score,
            "rng": self._rng.bit_generator.state,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        if state["state"] not in range(len(self._toy.states)):
            raise ValueError(f"the state is {state['state']!r}; accepted: 0 to {len(self._toy.states) - 1}")
        self._state, self._steps, self._score = state["state"], int(state["steps"]), float(state["score"])
        self._rng.bit_generator.state = state["rng"]

    def passport(self) -> dict[str, Any]:
        rules = {name: value for name, value in asdict(self.rules).items() if name != "action_masks"}
        masks = {"action_masks": "used"} if self.spec.masked else {}
        return {"env": self.spec.name, **rules, **masks, "score": "raw, whole episodes"}

    def render(self) -> np.ndarray:
        """A row of cells; the current state is bright."""
        row = (255 * self._codes[self._state]).astype(np.uint8).repeat(16)  # [16·D]
        return np.broadcast_to(row[None, :, None], (16, row.size, 3)).copy()

    def close(self) -> None:
        """Nothing to free."""
