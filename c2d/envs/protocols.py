"""The rules of each family of environments, one field per rule, and the named Atari protocols.

The docstrings under the fields are the help texts of the command line.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Annotated, Any, Literal, TypeVar

import tyro

from c2d.errors import UserError
from c2d.validation import COUNT, FRACTION, UNITS_OR_0, between

# What becomes of the transition at which an episode was truncated (`learner_view` in `replay/buffer.py`):
#   drop       it is not stored (the paper)
#   bootstrap  it is stored and bootstraps from the true final observation
#   terminal   it is stored as if the episode had ended by itself
Truncation = Literal["drop", "bootstrap", "terminal"]
AnyRules = TypeVar("AnyRules")
Resize = Literal["area", "linear", "nearest"]
TRUNCATIONS: tuple[Truncation, ...] = ("drop", "bootstrap", "terminal")
RESIZES: tuple[Resize, ...] = ("area", "linear", "nearest")


def _require(ok: bool, setting: str, value: object, accepted: str) -> None:
    if not ok:
        raise UserError(f"--rules.{setting.replace('_', '-')} is {value}; accepted: {accepted}")


def _check_common(truncation: str, stack: int, cap_steps: int | None) -> None:
    _require(truncation in TRUNCATIONS, "truncation", truncation, f"one of {', '.join(TRUNCATIONS)}")
    _require(stack >= 1, "stack", stack, "a number of frames, at least 1")
    _require(cap_steps is None or cap_steps >= 1, "cap_steps", cap_steps, "steps, at least 1, or None")


@dataclass(frozen=True)
class AtariRules:
    """How an Atari game is played and cut into episodes. The defaults are the paper's."""

    sticky: Annotated[float, FRACTION] = 0.25
    """Probability, per emulated frame, that the last executed action is repeated (Machado et al. 2018)."""

    life_loss_ends_episode: bool = True
    """Whether losing a life ends the learner's episode. The game continues, and scores are those of whole games."""

    cap_steps: Annotated[int | None, COUNT] = 27_000
    """Longest game, in agent steps (27,000 of 4 frames are 108,000 frames or 30 minutes); None: no cap."""

    cap_frames: Annotated[int | None, COUNT] = None
    """Longest game, in emulated frames; None: no cap."""

    truncation: Truncation = "drop"
    """How the learner treats a step cut by a cap: drop it, bootstrap from its last frame, or treat it as terminal."""

    action_repeat: Annotated[int, COUNT] = 4
    """Emulated frames per agent step: the action is repeated this often and the rewards are summed."""

    frame_size: Annotated[int, between(8, 160)] = 84
    """Height and width of a frame after resizing, in pixels."""

    stack: Annotated[int, between(1, 1_000)] = 4
    """Frames per observation: the newest one and those before it."""

    noop_max: Annotated[int, UNITS_OR_0] = 0
    """A new game begins with 1 to this many no-op frames, drawn uniformly; 0: none."""

    full_action_set: bool = False
    """Use all 18 joystick actions instead of the game's minimal set."""

    opening_count: Annotated[int, between(1, 1_000)] = 2
    """Copies of the first frame f in the stack, after episode 1: 2 is [0, 0, f, f] (authors), 1 is [0, 0, 0, f].
    With a stack of 1 it is f either way."""

    resize: Resize = "area"
    """Interpolation from the screen's 210x160 pixels to the frame."""

    def __post_init__(self) -> None:
        _check_common(self.truncation, self.stack, self.cap_steps)
        _require(0.0 <= self.sticky <= 1.0, "sticky", self.sticky, "a probability from 0 to 1")
        cap = self.cap_frames
        _require(cap is None or cap >= 1, "cap_frames", cap, "frames, at least 1, or None")
        _require(self.action_repeat >= 1, "action_repeat", self.action_repeat, "frames, at least 1")
        _require(8 <= self.frame_size <= 160, "frame_size", self.frame_size, "8 to 160 pixels")
        _require(self.noop_max >= 0, "noop_max", self.noop_max, "frames, 0 for none")
        accepted = f"1 to stack = {self.stack}"
        _require(1 <= self.opening_count <= max(self.stack, 2), "opening_count", self.opening_count, accepted)
        _require(self.resize in RESIZES, "resize", self.resize, f"one of {', '.join(RESIZES)}")


PROTOCOLS: dict[str, AtariRules] = {
    # the authors' rules: the last step of a capped game is not stored
    "c2d-paper": AtariRules(),
    # Castro et al. 2018, whose curves are the paper's baselines: whole games, a capped game is stored as terminal
    "dopamine": AtariRules(life_loss_ends_episode=False, truncation="terminal", opening_count=1),
    # Dopamine on Gymnasium: the emulator's own limit of 100,000 frames replaces the cap in steps
    "dopamine-2024": AtariRules(
        life_loss_ends_episode=False,
        cap_steps=None,
        cap_frames=100_000,
        truncation="terminal",
        opening_count=1,
    ),
}


def protocol_name(rules: AtariRules) -> str:
    """The name of the protocol with these rules, or "custom"."""
    return next((name for name, known in PROTOCOLS.items() if known == rules), "custom")


@dataclass(frozen=True)
class MinAtarRules:
    """How a MinAtar game is played. The defaults are MinAtar's own, plus a cap for agents that never lose."""

    sticky: Annotated[float, FRACTION] = 0.1
    """Probability, per step, that the last executed action is repeated instead of the chosen one."""

    ramping: bool = True
    """Whether a game becomes harder as it continues (in games that support it)."""

    minimal_actions: bool = True
    """Use only the actions that have an effect in this game instead of all six."""

    cap_steps: Annotated[int | None, COUNT] = 5_000
    """Longest game, in agent steps; None: no cap. Freeway ends after 2,500."""

    truncation: Truncation = "bootstrap"
    """How the learner treats a step cut by the cap: drop it, bootstrap from its last frame, or treat it as terminal."""

    stack: Annotated[int, between(1, 1_000)] = 1
    """Frames per observation. MinAtar's channels already show motion, so one is enough."""

    def __post_init__(self) -> None:
        _check_common(self.truncation, self.stack, self.cap_steps)
        _require(0.0 <= self.sticky <= 1.0, "sticky", self.sticky, "a probability from 0 to 1")


@dataclass(frozen=True)
class GymRules:
    """How a Gymnasium or toy environment is cut into episodes."""

    cap_steps: Annotated[int | None, COUNT] = None
    """Longest episode, in agent steps, in addition to the environment's own limit; None: only that limit."""

    truncation: Truncation = "bootstrap"
    """How the learner treats a truncated step: drop it, bootstrap from its last frame, or treat it as terminal."""

    stack: Annotated[int, between(1, 1_000)] = 1
    """Observations the agent sees at once: the newest one and those before it."""

    env_kwargs: Annotated[tuple[str, ...], tyro.conf.Fixed, tyro.conf.Suppress] = ()
    """Arguments of the environment, in order and as text: ("goal=left", "size=7"). `--env-kwargs.size 7` gives one."""

    action_masks: Literal["use", "ignore"] = "use"
    """Masks that the environment gives, in info["action_mask"] or by a method action_masks(): use them, so that illegal
    actions are neither taken nor bootstrapped from; or ignore them."""

    wrappers: Annotated[tuple[str, ...], tyro.conf.Fixed, tyro.conf.Suppress] = ()
    """Wrappers around it, the innermost first: ("my_module:wrap",). `--wrapper my_module:wrap` gives one."""

    def __post_init__(self) -> None:
        _check_common(self.truncation, self.stack, self.cap_steps)
        accepted = "use or ignore"
        _require(self.action_masks in ("use", "ignore"), "action_masks", self.action_masks, accepted)
        for text in self.env_kwargs:
            name, equals, _ = text.partition("=")
            if not equals or not name.isidentifier():
                raise UserError(f'"{text}" is not an argument of an environment; accepted: such as --env-kwargs.size 7')
        for wrapper in self.wrappers:
            if ":" not in wrapper:
                raise UserError(f'--wrapper is "{wrapper}"; accepted: my_package.my_module:wrap')

    def facts(self) -> dict[str, Any]:
        """For the passport: those that are newer than its hash are in it only if they are given."""
        given = {"env_kwargs": self.env_kwargs, "wrappers": self.wrappers}
        facts = {name: value for name, value in asdict(self).items() if name not in {*given, "action_masks"}}
        return {**facts, **{name: value for name, value in given.items() if value}}

    @property
    def arguments(self) -> dict[str, Any]:
        """What the environment is called with."""
        return {name: argument_value(text) for name, _, text in (pair.partition("=") for pair in self.env_kwargs)}


def as_begun(rules: AnyRules, masked: bool) -> AnyRules:
    """The rules of a run that used masks, or did not: one begun without them goes on so, whatever there is now."""
    return replace(rules, action_masks="ignore") if isinstance(rules, GymRules) and not masked else rules


def as_arguments(arguments: Mapping[str, Any]) -> tuple[str, ...]:
    """Arguments as `GymRules.env_kwargs` has them; their order does not matter."""
    return tuple(f"{name}={argument_text(name, value)}" for name, value in sorted(arguments.items()))


_CONSTANTS = {"True": True, "False": False, "None": None}


def argument_value(text: str) -> Any:
    """What the text of an argument stands for: 7, 0.5, True, None, [1, 2], or the text itself."""
    if text in _CONSTANTS:
        return _CONSTANTS[text]
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def argument_text(name: str, value: Any) -> str:
    """The inverse; raises UserError for values that a file cannot hold."""
    if isinstance(value, bool | None):
        return str(value)
    try:
        text = value if isinstance(value, str) else json.dumps(value)
        text = text if argument_value(text) == value else json.dumps(value)
        if argument_value(text) == value:
            return text
    except (TypeError, ValueError):
        pass
    raise UserError(
        f"the environment's argument {name} is {value!r:.80}; accepted: numbers, text, True, False, None, lists"
    )


Rules = AtariRules | MinAtarRules | GymRules
