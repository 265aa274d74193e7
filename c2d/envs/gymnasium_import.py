"""Finding and constructing a Gymnasium environment: a registered id, or my_package.my_module:MyEnv."""

from __future__ import annotations

import importlib
import inspect
import os
import re
import sys
import traceback
from typing import Any

from c2d.errors import UserError, did_you_mean


def build(key: str) -> Any:
    """The environment, ready to draw pictures without a window if it can."""
    try:
        import gymnasium
        from gymnasium.envs.registration import load_env_creator
    except ImportError:
        raise UserError("This environment needs Gymnasium: pip install gymnasium.") from None
    module, colon, name = key.partition(":")
    if colon:
        found = _import(module)
        if not re.search(r"-v[0-9]+$", name):
            return _construct(found, name, key)
        key = name  # importing the module has registered the id
    try:
        entry = gymnasium.spec(key).entry_point
        options = _picture_mode(load_env_creator(entry) if isinstance(entry, str) else entry)
        return gymnasium.make(key, disable_env_checker=True, **options)
    except gymnasium.error.DependencyNotInstalled as error:
        raise UserError(f"gym/{key} needs a package that is not installed: {_one_line(error)}") from None
    except (gymnasium.error.Error, ImportError) as error:
        raise UserError(f"Gymnasium cannot make {key!r}: {_one_line(error)}") from None


def _import(module: str) -> Any:
    here = os.getcwd()
    if here not in sys.path:  # a console command does not look in the working directory by itself
        sys.path.append(here)
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise UserError(f"Cannot import {module!r} from {here} or the Python path: {error}.") from None
    except Exception as error:
        raise UserError(f"Importing {module!r} failed: {_told(error)}") from None


def _construct(module: Any, name: str, key: str) -> Any:
    classes = [item for item, value in vars(module).items() if inspect.isclass(value)]
    if name not in vars(module):
        raise UserError(f"{module.__name__!r} has no {name!r}.{did_you_mean(name, classes)}")
    creator = getattr(module, name)
    if not callable(creator):
        raise UserError(f"{key!r} is not a class or function that makes an environment.")
    try:
        env = creator(**_picture_mode(creator))
    except Exception as error:
        raise UserError(f"{key!r}, called without arguments, made no environment: {_told(error)}") from None
    needed = ("action_space", "observation_space", "reset", "step")
    missing = [part for part in needed if not hasattr(env, part)]
    if missing:
        raise UserError(f"{key!r} makes no Gymnasium environment: it lacks {', '.join(missing)}.")
    if not _takes(env.reset, "seed"):
        raise UserError(f"{key!r} has a reset without `seed`: Gymnasium's is reset(*, seed=None, options=None).")
    return env


def _takes(function: Any, name: str) -> bool:
    parameters = inspect.signature(function).parameters.values()
    return any(p.name == name or p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters)


def _picture_mode(creator: Any) -> dict[str, Any]:
    """The argument that makes `render` return pictures, where the environment takes it."""
    if "rgb_array" not in (getattr(creator, "metadata", None) or {}).get("render_modes", ()):
        return {}
    return {"render_mode": "rgb_array"} if "render_mode" in inspect.signature(creator).parameters else {}


def _told(error: Exception) -> str:
    """What went wrong in someone's code, and where."""
    told = f"{type(error).__name__}: {_one_line(error)}"
    if isinstance(error, SyntaxError):  # says where itself
        return told
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"{told} ({last.filename}, line {last.lineno})"


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())
