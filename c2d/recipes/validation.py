"""What values settings may have, and which parts of a recipe make no sense together."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator
from typing import Any

from c2d.errors import UserError
from c2d.recipes import parts as spec
from c2d.recipes.recipe import Recipe

Limit = tuple[Callable[[Any], bool], str]

_LARGE = 10**6  # of what is allocated at once: units, atoms, a batch
_LONG = 10**15  # of what is counted: steps, updates

_COUNT: Limit = (lambda v: 1 <= v <= _LONG, "at least 1, at most 10^15")
_UNITS: Limit = (lambda v: 1 <= v <= _LARGE, f"at least 1, at most {_LARGE:,}")
_FRACTION: Limit = (lambda v: 0.0 <= v <= 1.0, "from 0 to 1")
_POSITIVE: Limit = (lambda v: 0.0 < v < math.inf, "greater than 0")
_NOT_NEGATIVE_COUNT: Limit = (lambda v: 0 <= v <= _LONG, "0 or greater, at most 10^15")
_NOT_NEGATIVE: Limit = (lambda v: 0 <= v < math.inf, "0 or greater")
_BELOW_ONE: Limit = (lambda v: 0.0 <= v < 1.0, "from 0 to below 1")
_NOT_POSITIVE: Limit = (lambda v: -math.inf < v <= 0.0, "0 or less")
_FINITE: Limit = (lambda v: math.isfinite(v), "a finite number")

# By the name of a setting, wherever it stands. None is accepted where the type allows it.
LIMITS: dict[str, Limit] = {
    **dict.fromkeys(
        ("atoms", "target_atoms", "policy_atoms", "cosines", "hidden", "channels", "scale", "batch_size"), _UNITS
    ),
    **dict.fromkeys(("iterations", "steps_per_iteration", "update_period", "target_period"), _COUNT),
    "n_step": (lambda v: 1 <= v <= 10_000, "at least 1, at most 10,000"),
    "replay_capacity": (lambda v: 1 <= v <= 10**10, "at least 1, at most 10^10"),
    "stack": (lambda v: 1 <= v <= 1_000, "at least 1, at most 1,000"),
    **dict.fromkeys(("action_repeat", "cap_steps", "cap_frames"), _COUNT),
    "noop_max": (lambda v: 0 <= v <= _LARGE, f"0 or greater, at most {_LARGE:,}"),
    "embedding": (lambda v: 0 <= v <= _LARGE, f"0 or greater, at most {_LARGE:,}"),
    "seed": (lambda v: 0 <= v < 2**63, "0 or greater, below 2^63"),
    "threads": (lambda v: 1 <= v <= 1_024, "from 1 to 1024"),
    **dict.fromkeys(("gamma", "epsilon_initial", "epsilon_min", "epsilon_eval", "polyak"), _FRACTION),
    **dict.fromkeys(
        ("alpha", "c", "beta", "learning_rate", "clip_norm", "clip_reward", "temperature", "noise"), _POSITIVE
    ),
    **dict.fromkeys(
        ("eps", "learning_rate_final", "kappa", "exponent", "weight_exponent", "entropy", "every_minutes"),
        _NOT_NEGATIVE,
    ),
    **dict.fromkeys(("decay_updates", "epsilon_decay_steps", "every_steps", "keep"), _NOT_NEGATIVE_COUNT),
    **dict.fromkeys(("beta1", "beta2", "decay"), _BELOW_ONE),
    **dict.fromkeys(("v_min", "v_max"), _FINITE),
    "floor": _NOT_POSITIVE,
    "widths": (
        lambda v: len(v) <= 100 and all(1 <= width <= _LARGE for width in v),
        f"up to 100 widths, each at least 1, at most {_LARGE:,}",
    ),
}  # fmt: skip


def check_values(settings: Any) -> None:
    """Refuse values out of range, naming the setting, its value and what is accepted."""
    for name, key, value in _leaves("", settings):
        if key in LIMITS and value is not None:
            fits, accepted = LIMITS[key]
            require(fits(value), name, value, accepted)


def check_recipe(recipe: Recipe) -> None:
    """Refuse parts that make no sense together, with the reason."""
    head, loss, schedule = recipe.head, recipe.loss, recipe.schedule
    if isinstance(head, spec.Categorical):
        require(head.v_min < head.v_max, "head.v-min", head.v_min, f"below v-max = {head.v_max}")
        require(head.atoms >= 2, "head.atoms", head.atoms, "at least 2 on a grid")
    reasons: dict[type, tuple[bool, str]] = {
        spec.CrossEntropy: (
            isinstance(head, spec.Categorical)
            or (isinstance(head, spec.Conjugated) and not head.train_atoms and not head.train_alpha),
            "compares probabilities on one fixed grid, which free or learned atoms do not have",
        ),
        spec.QuantileHuber: (
            isinstance(head, spec.Quantile | spec.Implicit | spec.Fraction),
            "regresses quantiles at known fractions, which this head does not have",
        ),
        spec.Squared: (isinstance(head, spec.Scalar), "compares single numbers, not laws of several atoms"),
        spec.Huber: (isinstance(head, spec.Scalar), "compares single numbers, not laws of several atoms"),
    }
    fits, reason = reasons.get(type(loss), (True, ""))
    if not fits:
        raise UserError(f"--loss {_words(loss)} does not go with --head {_words(head)}: it {reason}")
    _check_numbers(recipe)
    history, capacity, needed = schedule.random_history, schedule.replay_capacity, recipe.n_step + 1
    accepted = f"from n-step + 1 = {needed} to the replay capacity {capacity}"
    require(needed <= history <= capacity, "schedule.random-history", history, accepted)


def _check_numbers(recipe: Recipe) -> None:
    """Numbers whose range hangs on the part they belong to."""
    head, loss, bootstrap, sampler = recipe.head, recipe.loss, recipe.bootstrap, recipe.sampler
    if isinstance(loss, spec.Huber):
        require(loss.kappa > 0, "loss.kappa", loss.kappa, "greater than 0; --loss squared has no bound")
    reason = "greater than 0: weights without a gradient need it"
    require(recipe.optim.eps > 0, "optim.eps", recipe.optim.eps, reason)
    if isinstance(head, spec.Fraction):
        require(head.eps > 0, "head.eps", head.eps, reason)
    if isinstance(sampler, spec.Prioritized):
        reason = "greater than 0: a transition without a loss would never be drawn again"
        require(sampler.eps > 0, "sampler.eps", sampler.eps, reason)
    if isinstance(bootstrap, spec.Munchausen) and bootstrap.multi_step == "reject":
        reason = (
            "1 with --bootstrap munchausen, whose terms for the steps between are missing; "
            "--bootstrap.multi-step first adds those of the first step only"
        )
        require(recipe.n_step == 1, "n-step", recipe.n_step, reason)


def require(ok: bool, name: str, value: object, accepted: str) -> None:
    if not ok:
        raise UserError(f"--{name} is {str(value)[:80]}; accepted: {accepted}")


def _leaves(path: str, settings: Any) -> Iterator[tuple[str, str, Any]]:
    """(name on the command line, name of the field, value) of every setting."""
    for field in dataclasses.fields(settings):
        value = getattr(settings, field.name)
        name = f"{path}{field.name.replace('_', '-')}"
        if dataclasses.is_dataclass(value):
            yield from _leaves("" if field.name == "recipe" else f"{name}.", value)
        else:
            yield name, field.name, value


def _words(part: Any) -> str:
    return "".join(f"-{c.lower()}" if c.isupper() else c for c in type(part).__name__).lstrip("-")
