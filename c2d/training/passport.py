"""What ran: the protocol passport (the rules under which scores arise, with a hash), versions and machine."""

from __future__ import annotations

import hashlib
import json
import os
import platform
from importlib import metadata
from typing import Any

from c2d import __version__, native
from c2d.config import Config
from c2d.envs.spec import Environment

_PACKAGES = ("torch", "numpy", "gymnasium", "ale-py", "minatar", "opencv-python-headless", "lz4")


def passport(config: Config, env: Environment) -> dict[str, Any]:
    """The environment's rules plus what the learner does to rewards and time, and a hash of it all."""
    recipe = config.recipe
    phi = recipe.phi
    parameters = {"scaled_h": {"beta": phi.beta, "eps": phi.eps}, "h": {"eps": phi.eps}}.get(phi.kind, {})
    facts: dict[str, Any] = {
        "env": config.env,
        "protocol": config.protocol,
        **env.passport(),
        "clip_reward": recipe.clip_reward,
        "phi": {"kind": phi.kind, **parameters},
        "gamma": recipe.schedule.gamma,
        "n_step": recipe.n_step,
        "recorded_score": "mean raw score of the whole training games that ended in an iteration",
    }
    if config.actors:
        actor = config.actor
        facts["actors"] = {"count": config.actors, "mode": actor.mode, "envs": recipe.envs}
        facts["actors"] |= {"epsilon": actor.epsilon, "epsilon_ladder": actor.epsilon_ladder}
    if reason := not_reproducible(config):
        facts["not_reproducible"] = reason
    return {**facts, "hash": digest(facts)}


def not_reproducible(config: Config) -> str | None:
    """Why another run with the same seed, or a resumed one, is not the same; None if it is."""
    if config.actor.mode == "synchronous":
        return None
    return (
        "asynchronous actors: when their steps arrive depends on the machines, so that results differ from run to run; "
        "a resumed run continues with its weights and replay, and its actors begin new games"
    )


def digest(facts: dict[str, Any]) -> str:
    """A short hash that differs between passports that differ."""
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:12]


def versions() -> dict[str, str]:
    """Versions of everything that results can depend on to the last bit."""
    # Not the metadata of c2d: if it is installed from its sources, they may be those of an earlier version.
    installed = {"python": platform.python_version(), "c2d": __version__}
    for package in _PACKAGES:
        try:
            installed[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return {**installed, "kernels": "C" if native.AVAILABLE else "PyTorch"}


def machine(threads: int) -> dict[str, Any]:
    """Where it ran; recorded under `measured`."""
    return {"cpu": _cpu_model(), "cores": os.cpu_count(), "threads": threads, "system": platform.platform()}


def _cpu_model() -> str:
    try:
        with open("/proc/cpuinfo") as file:
            for line in file:
                if line.startswith("model name"):
                    return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor()
