"""What the rest of the system knows of an environment: its shape, seven methods, and how its game stands."""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np

from c2d.types import GameEnd, ResetFrame, Step

Family = Literal["atari", "minatar", "gym"]


@dataclass(frozen=True)
class EnvSpec:
    """Shapes and names. An observation is the last `stack` frames joined along their first axis."""

    name: str  # canonical, e.g. "atari/breakout"
    family: Family
    frame_shape: tuple[int, ...]  # [C, H, W] for images, [D] for vectors
    frame_dtype: Literal["uint8", "float32"]
    stack: int  # frames per observation
    actions: int
    frames_per_step: int  # emulated frames per agent step; 1 where there is no emulator
    action_names: tuple[str, ...] = ()
    masked: bool = False  # its frames come with the actions that are legal
    action_parts: tuple[int, ...] = ()  # values of each part of its own actions, where these are vectors
    action_start: tuple[int, ...] = ()  # least value of each part of its own actions, or of the number; (): 0

    @property
    def obs_shape(self) -> tuple[int, ...]:
        """[S·C, H, W] or [S·D]."""
        return (self.stack * self.frame_shape[0], *self.frame_shape[1:])

    def own_action(self, action: int | np.ndarray) -> Any:
        """An action that counts from 0, or a batch of them, in the environment's own form. [*] -> [*] or [*, parts]"""
        own = np.stack(np.unravel_index(action, self.action_parts), -1) if self.action_parts else action
        if not self.action_start:
            return own
        return own + (np.array(self.action_start) if self.action_parts else self.action_start[0])

    @property
    def pixel_scale(self) -> float:
        """What a network multiplies frames by: bytes are pixels, except MinAtar's, which are zeros and ones."""
        return 1 / 255 if self.frame_dtype == "uint8" and self.family != "minatar" else 1.0

    @property
    def frame_bytes(self) -> int:
        return math.prod(self.frame_shape) * np.dtype(self.frame_dtype).itemsize

    @property
    def mask_bytes(self) -> int:
        """Of the bits of the legal actions, in the replay."""
        return -(-self.actions // 8) if self.masked else 0


class Environment(Protocol):
    """One environment that resets itself. Every random draw comes from the seed given at construction."""

    spec: EnvSpec

    def reset(self) -> ResetFrame:
        """Begin a new game, abandoning one in progress."""
        ...

    def step(self, action: int) -> Step:
        """One agent step; if the learner's episode ends, `Step.reset` already begins the next."""
        ...

    @property
    def so_far(self) -> GameEnd:
        """Score and agent steps of the game in progress, as if it ended now."""
        ...

    def passport(self) -> dict[str, Any]:
        """The rules under which scores arise, as plain JSON values."""
        ...

    def render(self) -> np.ndarray:
        """The image a person would see now. [H, W, 3] u8"""
        ...

    def state_dict(self) -> dict[str, Any]:
        """Everything the rest of the game depends on: plain values, lists, dictionaries and bytes."""
        ...

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue where `state_dict` was called, in any process. Raises `ReplayMismatch` if that is not possible."""
        ...

    def close(self) -> None: ...


class LegalPlay:
    """Steps an environment by numbers that were drawn without its masks: each stands for one of the legal actions."""

    def __init__(self, env: Environment) -> None:
        self.env = env
        self._legal = env.reset().legal

    def step(self, drawn: int) -> tuple[int, Step]:
        """The action taken, and what came of it. Without masks it is the number itself."""
        action = drawn
        if self._legal is not None:
            choices = np.flatnonzero(self._legal)
            action = int(choices[drawn % len(choices)])
        step = self.env.step(action)
        self._legal = step.legal if step.reset is None else step.reset.legal
        return action, step


class ReplayMismatch(Exception):
    """A game played again from its seed and its actions did not lead to the same observation."""


def check_actions(actions: Any, count: int) -> None:
    """ValueError unless these are the saved actions of a game."""
    if not isinstance(actions, list):
        raise ValueError(f"the actions of the game are {type(actions).__name__}, not a list")
    for number, action in enumerate(actions):
        if type(action) is not int or not 0 <= action < count:
            raise ValueError(f"action {number} of the game is {action!r}; accepted: 0 to {count - 1}")


class ActionLog:
    """The way back into a game that cannot be saved: its number, which gives its seed, and its actions."""

    def __init__(self) -> None:
        self.game = 0
        self.begin(0)

    def begin(self, game: int) -> None:
        self.game = game
        self.actions: list[int] = []

    def state_dict(self, frame: np.ndarray) -> dict[str, Any]:
        return {"game": self.game, "actions": list(self.actions), "frame": _digest(frame)}

    def play_again(self, env: Environment, state: dict[str, Any]) -> None:
        """Take the actions again in a game that `env.reset` begins; its last frame must be the saved one."""
        if type(state["game"]) is not int or state["game"] < 0:
            raise ValueError(f"the number of the game is {state['game']!r}; accepted: 0 or more")
        check_actions(state["actions"], env.spec.actions)
        frame = env.reset().frame
        for number, action in enumerate(state["actions"]):
            step = env.step(action)
            frame = step.frame
            if step.reset is not None:
                raise ReplayMismatch(
                    f"{env.spec.name}: game {state['game']} ended at step {number + 1} when played again"
                )
        if _digest(frame) != state["frame"]:
            raise ReplayMismatch(
                f"{env.spec.name}: game {state['game']}, played again from its seed and its "
                f"{len(state['actions'])} actions, shows another observation"
            )


def _digest(frame: np.ndarray) -> str:
    return hashlib.sha256(np.ascontiguousarray(frame).tobytes()).hexdigest()
