"""Any Gymnasium environment with discrete actions: registered, or a class named as my_package.my_module:MyEnv.

From top to bottom: the environment itself, then how it is found and constructed. Everything that it returns is checked
and copied. What its spaces become is decided in `spaces.py`.
"""

from __future__ import annotations

import importlib
import inspect
import os
import re
import sys
import traceback
from dataclasses import replace
from typing import Any

import numpy as np

from c2d.envs.names import GIVEN
from c2d.envs.protocols import GymRules, as_arguments
from c2d.envs.spaces import mask_method, read_actions, read_mask, read_observations
from c2d.envs.spec import ActionLog, EnvSpec, ReplayMismatch
from c2d.envs.toy import MASKED
from c2d.errors import UserError, did_you_mean
from c2d.types import GameEnd, ResetFrame, Step
from c2d.user_code import imported, require_trusted

_MAX_REWARD = float(np.finfo(np.float32).max)


class BadEnvironment(UserError):
    """The environment returned a value that cannot be learned from."""


class GymnasiumEnv:
    """An `Environment` that wraps a Gymnasium environment. Episode k is seeded by the run's seed and k."""

    def __init__(self, key: str, rules: GymRules, seed: int) -> None:
        self.rules = rules
        self._name = f"gym/{key}"
        self._seed = seed
        self._env = wrapped(build(key, rules.arguments), rules.wrappers)
        self._actions = read_actions(self._env.action_space, self._name)
        self._observations = read_observations(self._env.observation_space, self._name)
        self._first = self._first_reset() if rules.action_masks == "use" else None
        self._masks = self._where_masks_are()
        shape, dtype = self._observations.shape, self._observations.dtype
        self.spec = EnvSpec(
            name=self._name,
            family="gym",
            frame_shape=shape,
            frame_dtype="uint8" if dtype == np.uint8 else "float32",
            stack=rules.stack,
            actions=self._actions.number,
            frames_per_step=1,
            action_names=self._actions.names,
            masked=self._masks is not None,
            action_parts=self._actions.parts,
            action_start=self._actions.start,
        )
        self.outside: str | None = None  # the first observation that left its declared range, in words
        self._moves = ActionLog()
        self._episode = 0
        self._steps = 0
        self._score = 0.0

    def reset(self) -> ResetFrame:
        self._moves.begin(self._episode)
        self._episode += 1
        self._steps = 0
        self._score = 0.0
        first, self._first = self._first, None
        result = self._reset() if first is None else first
        if not isinstance(result, tuple) or len(result) != 2:
            raise BadEnvironment(f"{self._name}: reset returned {_short(result)}; accepted: (observation, info)")
        self._newest = self._frame(result[0])
        return ResetFrame(self._newest, 1, self._legal(result[1]))

    def _reset(self) -> Any:
        """Begin the game with the number `_moves.game`."""
        stream = np.random.SeedSequence([self._seed, self._moves.game])
        return self._env.reset(seed=int(stream.generate_state(1)[0] >> 1))

    def step(self, action: int) -> Step:
        result = self._env.step(self._own(int(action)))
        self._steps += 1
        if not isinstance(result, tuple) or len(result) != 5:
            accepted = "(observation, reward, terminated, truncated, info)"
            raise BadEnvironment(f"{self._where()}: step returned {_short(result)}; accepted: {accepted}")
        observation, reward, terminated, truncated, info = result
        try:
            if getattr(reward, "ndim", 0):  # float() of an array with one element works in older NumPy
                raise TypeError
            reward = float(reward)
        except (TypeError, ValueError):
            raise BadEnvironment(f"{self._where()}: the reward is {reward!r}; accepted: a number") from None
        if not abs(reward) <= _MAX_REWARD:  # NaN fails too
            raise BadEnvironment(f"{self._where()}: the reward is {reward}; accepted: a finite float32 number")
        frame = self._newest = self._frame(observation)
        self._moves.actions.append(int(action))  # failed steps are not logged
        self._score += reward
        truncated = bool(truncated) or self._steps == self.rules.cap_steps
        followed = not terminated and (not truncated or self.rules.truncation == "bootstrap")
        legal = self._legal(info) if followed else None
        if not terminated and not truncated:
            return Step(frame, reward, False, False, None, None, legal)
        game = GameEnd(self._score, self._steps)
        terminal = bool(terminated)
        return Step(frame, reward, terminal, not terminal, self.reset(), game, legal)

    def _own(self, action: int) -> Any:
        """An action in the environment's own form."""
        own = self.spec.own_action(action)
        return own.astype(self._env.action_space.dtype) if isinstance(own, np.ndarray) else own

    def _frame(self, observation: Any) -> np.ndarray:
        try:
            frame = self._observations.convert(observation)
        except (ValueError, TypeError, IndexError) as error:
            raise BadEnvironment(f"{self._where()}: the observation is outside its space: {error}") from None
        shape = self.spec.frame_shape
        if frame.shape != shape:
            raise BadEnvironment(f"{self._where()}: the observation has shape {frame.shape}; accepted: {shape}")
        if frame.dtype != np.uint8 and not np.isfinite(frame).all():
            value = frame[~np.isfinite(frame)][0]
            raise BadEnvironment(f"{self._where()}: the observation contains {value}; accepted: finite numbers")
        limits = self._observations.limits
        if limits is not None and self.outside is None:
            self._check_limits(self._observations.limited(observation), *limits)
        return frame

    # ------------------------------------------------------------ masks

    def _first_reset(self) -> Any:
        """What the first reset returns, which may hold a mask; None if it fails, as `reset` then will."""
        self._moves = ActionLog()
        try:
            return self._reset()
        except Exception:
            return None

    def _where_masks_are(self) -> str | None:
        """In `info`, in the method action_masks(), or nowhere."""
        if self.rules.action_masks == "ignore":
            return None
        info = self._first[1] if isinstance(self._first, tuple) and len(self._first) == 2 else None
        if _mask_in(info):
            return "info"
        return None if mask_method(self._env) is None else "method"

    def _legal(self, info: Any) -> np.ndarray | None:
        """The legal actions [A]; None if the environment has no masks."""
        if self.rules.action_masks == "ignore":
            return None
        if self._masks != "method" and _mask_in(info) != (self._masks == "info"):
            raise BadEnvironment(self._unlike_before())
        if self._masks is None:
            return None
        method = mask_method(self._env) if self._masks == "method" else None
        given = info["action_mask"] if method is None else method()
        try:
            legal = read_mask(given, self._actions)
        except ValueError as error:
            raise BadEnvironment(f"{self._where()}: the action mask {error}") from None
        if not legal.any():
            raise BadEnvironment(
                f"{self._where()}: the action mask forbids every action; accepted: at least one legal action, except "
                "where the episode terminates"
            )
        return legal

    def _unlike_before(self) -> str:
        if self._masks is None:
            return (
                f"{self._where()}: info has an action mask, which that of the first reset had not; accepted: one from "
                "every reset and step, or --rules.action-masks ignore"
            )
        return (
            f"{self._where()}: info has no action mask, which that of the first reset had; accepted: "
            'info["action_mask"] from every reset and step, except where the episode terminates'
        )

    def _check_limits(self, observation: np.ndarray, low: np.ndarray, high: np.ndarray) -> None:
        if (observation >= low).all() and (observation <= high).all():
            return
        observation, low, high = (values.astype(np.float64) for values in (observation, low, high))
        slack = 1e-5 * np.maximum(1.0, np.abs(observation))  # rounding
        wrong = np.argwhere((observation < low - slack) | (observation > high + slack))
        if len(wrong):
            place = tuple(wrong[0].tolist())
            at = ", ".join(map(str, place))
            self.outside = (
                f"{self._where()}: the observation leaves its declared Box: {observation[place]:g} at [{at}], where it "
                f"is {low[place]:g} to {high[place]:g}; observations are used all the same, and this is said once"
            )

    def _where(self) -> str:
        return f"{self._name}, episode {self._episode}, step {self._steps}"

    @property
    def so_far(self) -> GameEnd:
        return GameEnd(self._score, self._steps)

    def state_dict(self) -> dict[str, Any]:
        return self._moves.state_dict(self._newest)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._episode, self._first = state["game"], None
        try:
            self._moves.play_again(self, state)
        except BadEnvironment as error:
            raise ReplayMismatch(str(error)) from None

    def passport(self) -> dict[str, Any]:
        import gymnasium

        return {
            "env": self._name,
            **self.rules.facts(),
            "actions": list(self.spec.action_names),
            "observation_space": str(self._env.observation_space),
            **({"observations": layout} if (layout := self._observations.layout) else {}),
            **({"action_masks": "used"} if self.spec.masked else {}),
            "own_limit_steps": getattr(self._env.spec, "max_episode_steps", None),
            "gymnasium": gymnasium.__version__,
            "score": "raw, whole episodes",
        }

    @property
    def render_fps(self) -> float | None:
        """Frames per second at which the environment asks to be shown, if it states a rate."""
        rate = (getattr(self._env, "metadata", None) or {}).get("render_fps")
        return float(rate) if isinstance(rate, int | float) and rate > 0 else None

    def render(self) -> np.ndarray:
        """The environment's own image. [H, W, 3] u8"""
        if getattr(self._env, "render_mode", None) != "rgb_array":
            raise UserError(f'{self._name} cannot be shown: it has no render mode "rgb_array"')
        from gymnasium.error import DependencyNotInstalled

        try:
            return np.array(self._env.render(), dtype=np.uint8)
        except (ImportError, DependencyNotInstalled) as error:
            raise UserError(
                f"{self._name} cannot be shown without another package: {' '.join(str(error).split())}"
            ) from None

    def close(self) -> None:
        self._env.close()


class MaskedCartPole(GymnasiumEnv):
    """CartPole of which only position and angle are seen: an agent that balances must remember them."""

    def __init__(self, rules: GymRules, seed: int) -> None:
        super().__init__("CartPole-v1", rules, seed)
        self._name = f"toy/{MASKED}"
        whole = self._observations.convert
        self._observations = self._observations._replace(convert=lambda observation: whole(observation)[[0, 2]])
        self.spec = replace(self.spec, name=self._name, frame_shape=(2,))


def build(key: str, arguments: dict[str, Any] | None = None) -> Any:
    """The environment with this id or class name. It renders to arrays where it can, without a window."""
    try:
        import gymnasium
        from gymnasium.envs.registration import load_env_creator
    except ImportError:
        raise UserError("this environment needs Gymnasium: pip install gymnasium") from None
    arguments = arguments or {}
    module, colon, name = key.partition(":")
    if key in GIVEN:
        return _construct(GIVEN[key], key, arguments)
    if colon:
        loaded = _import(module)
        if not re.search(r"-v[0-9]+$", name):
            return _construct(_attribute(loaded, name, key), key, arguments)
        key = name  # importing the module registered the id
    try:
        entry = gymnasium.spec(key).entry_point
        creator = load_env_creator(entry) if isinstance(entry, str) else entry
        _check_arguments(creator, f"gym/{key}", arguments, also=("max_episode_steps",))
        return gymnasium.make(key, disable_env_checker=True, **(_render_mode(creator) | arguments))
    except gymnasium.error.DependencyNotInstalled as error:
        raise UserError(f"gym/{key} needs a package that is not installed: {_one_line(error)}") from None
    except (gymnasium.error.Error, ImportError) as error:
        raise UserError(f'Gymnasium cannot make "{key}": {_one_line(error)}') from None
    except Exception as error:
        if not arguments or isinstance(error, UserError):
            raise
        raise UserError(f"gym/{key} failed when called {_call(arguments)}: {_describe(error)}") from None


def wrapped(env: Any, wrappers: tuple[str, ...]) -> Any:
    """The environment in the user's wrappers, which the user must have named."""
    for name in wrappers:
        require_trusted(name, "a wrapper", python="default_config(..., wrappers=[...])")
        wrapper = GIVEN[name] if name in GIVEN else imported(name, "wrapper")
        try:
            env = wrapper(env)
        except Exception as error:
            raise UserError(f'wrapper "{name}" failed when called with the environment: {_describe(error)}') from None
        _require_interface(env, f'what wrapper "{name}" returns')
    return env


def _import(module: str) -> Any:
    here = os.getcwd()
    if here not in sys.path:  # console scripts do not have the working directory on their path
        sys.path.append(here)
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise UserError(f'cannot import "{module}" from {here} or the Python path: {error}') from None
    except Exception as error:
        raise UserError(f'importing "{module}" failed: {_describe(error)}') from None


def _attribute(module: Any, name: str, key: str) -> Any:
    if name in vars(module):
        return getattr(module, name)
    if module.__name__ == "__main__" or "<locals>" in name:
        raise UserError(
            f'"{key}" was passed from Python, by a script, notebook or function, and exists only there; '
            "put it into a module to use it elsewhere"
        )
    classes = [item for item, value in vars(module).items() if inspect.isclass(value)]
    raise UserError(f'"{module.__name__}" has no "{name}".{did_you_mean(name, classes)}')


def _construct(creator: Any, key: str, arguments: dict[str, Any]) -> Any:
    if not callable(creator):
        raise UserError(f'"{key}" is not a class or a function that returns an environment')
    _check_arguments(creator, f'"{key}"', arguments)
    try:
        env = creator(**(_render_mode(creator) | arguments))
    except Exception as error:
        missing = "; give arguments as --env-kwargs.NAME VALUE" if _needs_arguments(creator) and not arguments else ""
        raise UserError(f'"{key}" failed when called {_call(arguments)}: {_describe(error)}{missing}') from None
    _require_interface(env, f'"{key}"')
    return env


def _require_interface(env: Any, what: str) -> None:
    required = ("action_space", "observation_space", "reset", "step")
    missing = [name for name in required if not hasattr(env, name)]
    if missing:
        raise UserError(f"{what} is not a Gymnasium environment: it lacks {', '.join(missing)}")
    if not _accepts(env.reset, "seed"):
        raise UserError(f"{what} has a reset without `seed`; accepted: reset(*, seed=None, options=None)")


def _check_arguments(creator: Any, what: str, arguments: dict[str, Any], also: tuple[str, ...] = ()) -> None:
    """Reject an argument that the environment does not have."""
    names = [p.name for p in _parameters(creator) if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    for name in arguments:
        if not _accepts(creator, name) and name not in also:
            accepted = ", ".join(names) or "none"
            hint = did_you_mean(name, names)
            raise UserError(f'{what} has no argument "{name}"; accepted: {accepted}{"." * bool(hint)}{hint}')


def _needs_arguments(creator: Any) -> bool:
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return any(p.default is p.empty and p.kind in kinds for p in _parameters(creator))


def _call(arguments: dict[str, Any]) -> str:
    return f"with {', '.join(as_arguments(arguments))}" if arguments else "without arguments"


def _parameters(function: Any) -> list[inspect.Parameter]:
    try:
        return list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):  # of some compiled functions
        return [inspect.Parameter("arguments", inspect.Parameter.VAR_KEYWORD)]


def _accepts(function: Any, name: str) -> bool:
    return any(p.name == name or p.kind is inspect.Parameter.VAR_KEYWORD for p in _parameters(function))


def _render_mode(creator: Any) -> dict[str, Any]:
    """The argument that makes `render` return arrays, where the environment has it."""
    if "rgb_array" not in (getattr(creator, "metadata", None) or {}).get("render_modes", ()):
        return {}
    return {"render_mode": "rgb_array"} if "render_mode" in inspect.signature(creator).parameters else {}


def _describe(error: Exception) -> str:
    """An error in the user's code, and where it was raised."""
    text = f"{type(error).__name__}: {_one_line(error)}"
    if isinstance(error, SyntaxError):  # its text contains the place
        return text
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"{text} ({last.filename}, line {last.lineno})"


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())


def _mask_in(info: Any) -> bool:
    return isinstance(info, dict) and info.get("action_mask") is not None


def _short(result: Any) -> str:
    return f"a tuple of {len(result)}" if isinstance(result, tuple) else type(result).__name__
