"""The environments of a run, each a stream of the replay; the ε of actors; samples per insertion."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from c2d.agents.learner import epsilon, epsilons
from c2d.agents.rollout import Stream
from c2d.config import Config
from c2d.envs.make import make
from c2d.envs.spec import EnvSpec, ReplayMismatch
from c2d.errors import UserError
from c2d.recipes.recipe import epsilon_ladder
from c2d.replay.buffer import RateLimiter
from c2d.seeding import integer, numpy_generator
from c2d.types import ResetFrame


def epsilons_of(config: Config, step: int) -> list[float]:
    """ε of each environment of a run, those of all actors included; the environments of one actor explore alike.

    Actor i of N has ε^(1 + k·i/(N-1)), at all steps (Horgan et al. 2018, Ape-X: ε 0.4, k 7). With `actor.epsilon` None,
    and where a recipe explores by noise, the schedule's ε takes the place of 0.4.
    """
    if not config.actors:
        return epsilons(config.recipe.schedule, step, config.recipe.envs)
    base, ladder = config.actor.epsilon, config.actor.epsilon_ladder
    if base is None or config.recipe.noisy:
        base = epsilon(config.recipe.schedule, step)
    return [each for each in epsilon_ladder(base, ladder, config.actors) for _ in range(config.recipe.envs)]


def env_threads(config: Config) -> int:
    """How many threads step the environments of a run; overlapping needs one."""
    return max(config.env_threads, 1) if config.recipe.overlap else config.env_threads


def named(purpose: str, number: int, life: int = 0) -> str:
    """The name of a generator of one environment; that of the first is the same however many there are.

    `life`: how often the environment has started over, because its state was lost.
    """
    name = f"{purpose} {number}" if number else purpose
    return f"{name} life {life}" if life else name


def make_stream(config: Config, number: int, life: int = 0) -> Stream:
    """One environment of a run. All that is random in it comes from the run's seed and its number."""
    env = make(config.env, config.rules, integer(config.seed, named("environment", number, life)))
    return Stream(env, numpy_generator(config.seed, named("actions", number, life)))


def games_of(streams: Sequence[Stream]) -> list[dict[str, Any]]:
    """The games in progress, generators apart."""
    return [stream.state_dict() for stream in streams]


def continue_games(streams: Sequence[Stream], saved: Sequence[dict[str, Any]]) -> list[tuple[int, str, ResetFrame]]:
    """Continue saved games. Those that cannot be restored start over: stream, reason and first frame of each."""
    restarted = []
    for number, (stream, state) in enumerate(zip(streams, saved, strict=True)):
        try:
            stream.load_state_dict(state)
        except ReplayMismatch as error:
            several = f"environment {number}: " if len(streams) > 1 else ""
            restarted.append((number, several + str(error), stream.reset()))
    return restarted


def outside(streams: Sequence[Stream]) -> str | None:
    """What an environment says of observations that leave the range that it declares."""
    return next((text for stream in streams if (text := getattr(stream.env, "outside", None))), None)


def check_alike(first: EnvSpec, specs: Sequence[EnvSpec], numbers: Sequence[int], of: int) -> None:
    """Reject environments that one network cannot play."""
    for number, spec in zip(numbers, specs, strict=True):
        if (given := _looks(spec)) != (accepted := _looks(first)):
            raise UserError(
                f"environment {number} of {of} has {given}; accepted: {accepted}, as environment 0 of {first.name}"
            )


def _looks(spec: EnvSpec) -> str:
    masks = " with masks" if spec.masked else ""
    return f"frames {spec.frame_shape} of {spec.frame_dtype} and {spec.actions} actions{masks}"


def rate_limiter(config: Config) -> RateLimiter:
    """The recipe's own ratio, by its update period, unless the run names another."""
    schedule, batch = config.recipe.schedule, config.recipe.schedule.batch_size
    wanted: float | Fraction | None = config.actor.samples_per_insert if config.actors else None
    if wanted is not None:
        return RateLimiter(wanted, batch)
    together = schedule.updates_per_period
    return RateLimiter(Fraction(batch * together, schedule.update_period), batch, together)
