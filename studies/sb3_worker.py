"""DQN or QRDQN of Stable-Baselines3, trained on request: ALGORITHM [ENVS]. It does not import c2d.

It runs with the peers' Python. The protocol is JSON lines. After its warm-up it describes itself. For each input line
with a number of seconds it trains that long and reports how many agent steps it made. It ends at the end of its input.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from importlib import metadata
from typing import Any

import ale_py
import gymnasium
import torch
from sb3_contrib import QRDQN
from stable_baselines3 import DQN
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_atari_env
from stable_baselines3.common.vec_env import VecFrameStack

HISTORY = 2_000  # agent steps before the first update
WARM_UP = 200  # agent steps with updates before the first window


class Until(BaseCallback):
    """Ends `learn` when its time is over."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.end = time.perf_counter() + seconds

    def _on_step(self) -> bool:
        return time.perf_counter() < self.end


def build(algorithm: str, envs: int) -> DQN | QRDQN:
    gymnasium.register_envs(ale_py)
    # Of AtariWrapper's settings only the stickiness differs from its default.
    env = make_atari_env(
        "BreakoutNoFrameskip-v4", n_envs=envs, seed=1, wrapper_kwargs={"action_repeat_probability": 0.25}
    )
    return {"DQN": DQN, "QRDQN": QRDQN}[algorithm](
        "CnnPolicy",
        VecFrameStack(env, n_stack=4),
        batch_size=32,
        buffer_size=100_000,
        learning_starts=HISTORY,
        train_freq=max(4 // envs, 1),  # steps of every environment
        gradient_steps=max(envs // 4, 1),
        target_update_interval=8_000,
        exploration_initial_eps=0.01,
        exploration_final_eps=0.01,
        seed=1,
    )


def say(**facts: Any) -> None:
    facts["peak_memory_mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps(facts), flush=True)


def main() -> None:
    model = build(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 1)
    model.learn(HISTORY + WARM_UP)
    packages = ("stable-baselines3", "sb3-contrib", "torch", "gymnasium", "ale-py", "numpy", "opencv-python-headless")
    say(
        versions={package: metadata.version(package) for package in packages},
        threads=torch.get_num_threads(),
        updates=model._n_updates,
    )
    for line in sys.stdin:
        steps, updates, began = model.num_timesteps, model._n_updates, time.perf_counter()
        model.learn(10**9, callback=Until(float(line)), reset_num_timesteps=False)
        seconds = time.perf_counter() - began
        say(steps=model.num_timesteps - steps, updates=model._n_updates - updates, seconds=seconds)


if __name__ == "__main__":
    main()
