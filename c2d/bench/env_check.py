"""Is an environment fit for training, and what would C2D do with it? `c2d check-env`, and `c2d.check_env` from Python.

The environment is played in a process of its own (examination.py), which is ended if a call does not return. What
follows from its findings for a recipe is computed here: reach of φ, network, memory, speed.
"""

from __future__ import annotations

import faulthandler
import json
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Any

from c2d.config import Config, from_json
from c2d.envs.names import name_of, resolve
from c2d.envs.spec import EnvSpec
from c2d.errors import UserError
from c2d.evaluation.examination import CLOCK, EPISODE, PHASE, PHASES, STEP, Examination, Remark
from c2d.formatting import duration, printable, size
from c2d.recipes import parts
from c2d.recipes.rows import find
from c2d.runs.layout import spec_from_json
from c2d.sweep.forecast import Rates, estimate
from c2d.sweep.plan import PlannedRun
from c2d.user_code import trust

_TICK = 0.1  # seconds between looks at the clock
_NEAR = 0.5  # of the reach: returns beyond it are worth a note
_TINY = 0.05  # largest return that is small beside the spacing of the atoms
_WIDE = 160  # pixels
_UPDATES = 5  # measured


@dataclass
class EnvReport:
    """What was found, in the order in which it was found."""

    env: str
    seed: int
    findings: list[Remark] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)  # of random play; empty if there was none

    @property
    def verdict(self) -> str:
        """The worst of all: ok, note or problem."""
        return max((finding.verdict for finding in self.findings), key=("ok", "note", "problem").index, default="ok")

    def to_json(self) -> dict[str, Any]:
        findings = [finding._asdict() for finding in self.findings]
        return {"env": self.env, "seed": self.seed, "verdict": self.verdict, "findings": findings, "play": self.facts}


def check_env(
    env: str | Callable[..., Any],
    recipe: str = "c2d",
    env_kwargs: Mapping[str, Any] | None = None,
    wrappers: Sequence[str | Callable[..., Any]] = (),
    steps: int = 5_000,
    seed: int = 0,
    seconds: float = 60.0,
    timeout: float = 20.0,
) -> EnvReport:
    """Play an environment at random and say what is wrong with it, and what C2D will do with it.

    `seconds` bounds the random play, `timeout` is how long one call of the environment may take.
    """
    for name, value, least in (("steps", steps, 1), ("seed", seed, 0)):
        if value < least:
            raise UserError(f"--{name} is {value}; accepted: {least} or greater")
    for name, limit in (("seconds", seconds), ("timeout", timeout)):
        if not 0 < limit < float("inf"):
            raise UserError(f"--{name} is {limit:g}; accepted: above 0")
    find(recipe)
    names = [name_of(wrapper, "wrapper") for wrapper in wrappers]
    for wrapper in names:
        trust(wrapper)
    text = name_of(env)
    canonical = resolve(text).canonical
    request = {"env": text, "recipe": recipe, "env_kwargs": dict(env_kwargs or {}), "wrappers": names,
               "steps": steps, "seed": seed, "seconds": seconds}  # fmt: skip
    report = EnvReport(canonical, seed)
    told = _examined(request, report, timeout)
    if report.facts:
        config = from_json(told["config"])
        _judge(report, config, spec_from_json(told["spec"], canonical))
    report.findings = [
        found._replace(found=printable(found.found, one_line=True), advice=printable(found.advice, one_line=True))
        for found in report.findings
    ]
    return report


# ------------------------------------------------------------------------------------------------ the other process


def _examined(request: dict[str, Any], report: EnvReport, timeout: float) -> dict[str, Any]:
    """Let a forked process examine the environment; adds what it tells to the report."""
    context = multiprocessing.get_context("fork")  # classes of a notebook exist only in this process
    receiver, sender = context.Pipe(duplex=False)
    watched = context.RawArray("d", 4)
    watched[CLOCK] = time.monotonic()
    process = context.Process(target=_examine, args=(request, sender, watched))
    process.start()
    sender.close()
    told: dict[str, Any] = {}
    try:
        while "done" not in told:
            if receiver.poll(_TICK):
                try:
                    _take(json.loads(receiver.recv_bytes()), told, report)
                except EOFError:
                    process.join(timeout)
                    report.findings.append(_death(process.exitcode, watched))
                    break
            elif time.monotonic() - watched[CLOCK] > timeout:
                report.findings.append(_hang(watched, timeout))
                break
    finally:
        process.kill()
        process.join()
        receiver.close()
    if "bad_input" in told:
        raise UserError(told["bad_input"])
    return told


def _examine(request: dict[str, Any], sender: Connection, watched: Any) -> None:
    """In the process of its own: what the environment prints goes nowhere, and nothing is left to clean up."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the other process decides
    faulthandler.disable()
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (1, 2):
        os.dup2(nowhere, stream)
    sys.stdout = sys.stderr = open(nowhere, "w")  # in a notebook they are not these two
    try:
        Examination(request, lambda message: sender.send_bytes(json.dumps(message).encode()), watched).run()
    finally:
        sender.close()
        os._exit(0)


def _take(message: dict[str, Any], told: dict[str, Any], report: EnvReport) -> None:
    if "finding" in message:
        report.findings.append(Remark(**message["finding"]))
    elif "facts" in message:
        report.facts = message["facts"]
    else:
        told |= message


def _moment(watched: Any) -> str:
    place = f", episode {int(watched[EPISODE])}, after step {int(watched[STEP])}" if watched[EPISODE] else ""
    return f"{PHASES[int(watched[PHASE])]}{place}"


def _hang(watched: Any, timeout: float) -> Remark:
    found = f"a call did not return within {timeout:g} s ({_moment(watched)})"
    return Remark("errors", "problem", found, "find what waits; if it is only slow, allow more: --timeout")


def _death(code: int | None, watched: Any) -> Remark:
    how = f"signal {signal.Signals(-code).name}" if code is not None and code < 0 else f"exit code {code}"
    return Remark("errors", "problem", f"the process ended ({how}; {_moment(watched)})", "fix what ends it")


# ------------------------------------------------------------------------------------------- what C2D would do with it


def _judge(report: EnvReport, config: Config, spec: EnvSpec) -> None:
    report.findings += [
        _actions(spec),
        _returns(report.facts, config),
        _network(config, spec),
        _memory(config, spec),
        _speed(report.facts, config, spec),
    ]


def _actions(spec: EnvSpec) -> Remark:
    masked = ", with a mask of the legal ones" if spec.masked else ""
    text = f"{spec.actions} discrete actions{masked}" if spec.actions > 1 else "one action: there is nothing to decide"
    if spec.actions == 1:
        return Remark("actions", "problem", text, "offer at least two")
    if spec.actions > 100:
        return Remark("actions", "note", text, "each must be tried often: leave out what is never useful")
    return Remark("actions", "ok", text)


def _reach(config: Config) -> tuple[float, str] | None:
    """The largest return that the head's atoms can stand for, and the setting that changes it; None: no bound."""
    import torch

    head, phi = config.recipe.head, config.recipe.phi.build()
    if isinstance(head, parts.Conjugated) and head.unit == "one":
        return float(phi.back(torch.tensor(head.alpha))), "--head.unit auto, which finds the scale of rewards"
    if isinstance(head, parts.Categorical):
        bound = min(abs(head.v_min), abs(head.v_max))
        return float(phi.back(torch.tensor(bound))), "--head.v-min and --head.v-max"
    return None


def _returns(facts: dict[str, Any], config: Config) -> Remark:
    low, high = facts["returns"]
    gamma, clip = config.recipe.schedule.gamma, config.recipe.clip_reward
    clipped = "" if clip is None else f" of rewards clipped to ±{clip:g} ({100 * facts['clipped']:.3g} % of steps)"
    text = f"discounted by {gamma:g}{clipped}: {low:.4g} to {high:.4g} in play"
    reach = _reach(config)
    if reach is None:
        return Remark("returns", "ok", f"{text}; this recipe has no bound")
    bound, setting = reach
    largest = max(abs(low), abs(high))
    text += f"; atoms reach ±{bound:.4g}"
    if largest > bound:
        return Remark("returns", "problem", text, f"{setting}, or smaller rewards")
    if largest > _NEAR * bound:
        return Remark("returns", "note", f"{text}, and a trained agent may earn more", setting)
    most = _most(facts, gamma)
    if most > bound:
        text += f", and rewards of the largest size at every step would add up to {most:.4g}"
        return Remark("returns", "note", text, f"if a good agent can come near that: {setting}")
    if 0 < largest < _TINY:
        return Remark("returns", "note", f"{text}: they are tiny beside it", setting)
    return Remark("returns", "ok", text)


def _most(facts: dict[str, Any], gamma: float) -> float:
    """The return of the largest reward at every step of the longest episode; of all steps if none ended."""
    steps = facts["longest"]
    if gamma == 1.0:
        return float(facts["largest_reward"] * (steps or facts["steps"]))
    share = 1.0 if steps is None else 1.0 - gamma**steps
    return float(facts["largest_reward"] * share / (1.0 - gamma))


def _network(config: Config, spec: EnvSpec) -> Remark:
    from c2d.agents.build import network_bytes
    from c2d.recipes.part import part_name

    stacked = f", {spec.stack} frames stacked" if spec.stack > 1 else ""
    text = (
        f"{config.recipe_name} sees {list(spec.obs_shape)}{stacked}; encoder {part_name(config.recipe.encoder)}, "
        f"{network_bytes(config.recipe, spec) // 4:,} weights"
    )
    if max(spec.frame_shape[1:], default=0) > _WIDE:
        return Remark("network", "note", text, "resize images to about 84 × 84 in a wrapper: it is much faster")
    return Remark("network", "ok", text)


def _memory(config: Config, spec: EnvSpec) -> Remark:
    from c2d.agents.build import available_memory

    need = estimate(PlannedRun(config.recipe_name, config, spec), Rates())
    capacity = config.recipe.schedule.replay_capacity
    text = f"about {size(need.memory)} (a replay of {capacity:,} transitions included), {size(need.disk)} of disk"
    if need.memory > available_memory():
        return Remark("memory", "problem", f"{text}, more than is free here", "--schedule.replay-capacity, lower")
    return Remark("memory", "ok", text)


def _speed(facts: dict[str, Any], config: Config, spec: EnvSpec) -> Remark:
    """Of the environment as measured; of training, with updates and choices of actions measured on made-up batches."""
    own = facts["seconds_per_step"]
    text = f"the environment makes {1 / max(own, 1e-9):,.0f} steps/s"
    learning = _seconds_of_learning(config, spec)
    if learning is None:
        return Remark("speed", "ok", text)
    rate = 1.0 / (own + learning)
    text += f", training about {rate:,.0f}; {config.steps:,} steps (--iterations {config.iterations}) take about "
    text += duration(config.steps / rate)
    if own > 2 * learning:
        share = 100 * own / (own + learning)
        advice = "step several at once: --envs 8, with --env-threads if it leaves Python's lock"
        return Remark("speed", "note", f"{text}; the environment takes {share:.0f} % of it", advice)
    return Remark("speed", "ok", text)


def _seconds_of_learning(config: Config, spec: EnvSpec) -> float | None:
    """Per agent step: the choice of an action, and the share of updates. None if that is not measured."""
    import numpy as np
    import torch

    from c2d.agents.agent import Agent
    from c2d.agents.build import build_learner, default_threads, threads_restored
    from c2d.types import Batch

    recipe = config.recipe
    with threads_restored():
        torch.set_num_threads(default_threads(recipe, spec))
        learner = build_learner(recipe, spec, torch.Generator().manual_seed(0), torch.Generator().manual_seed(0))
        if getattr(learner.online, "memory", 0):
            return None  # its batches are sequences
        agent, count = Agent(learner.online, recipe, spec), recipe.schedule.batch_size
        obs = np.zeros((count, *spec.obs_shape), spec.frame_dtype)
        rows = torch.from_numpy(obs)
        zeros, discount = torch.zeros(count), torch.full((count,), recipe.schedule.gamma)
        batch = Batch(rows, zeros.to(torch.int64), zeros, discount, rows, zeros + 1, torch.arange(count))
        acting, updating = _fastest(lambda: agent.act(obs[0])), _fastest(lambda: learner.update(batch))
    schedule = recipe.schedule
    return acting / recipe.envs + updating * schedule.updates_per_period / schedule.update_period


def _fastest(work: Callable[[], object]) -> float:
    seconds = []
    for _ in range(_UPDATES):
        start = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - start)
    return min(seconds)
