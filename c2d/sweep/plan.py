"""A plan: recipes × environments × seeds (× settings) → a list of configs, deduplicated, named and hashed.

Pure: nothing is written and nothing is started here.
"""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, NamedTuple

from c2d.config import FREE, Checkpointing, Config, default_config, to_json, validate
from c2d.envs.games import BENCHMARK
from c2d.envs.make import spec_of
from c2d.envs.names import MINATAR_GAMES, resolve
from c2d.envs.spec import EnvSpec
from c2d.errors import UserError
from c2d.recipes.rows import RECIPES, adapt, find
from c2d.sweep.settings import Settings, Value, with_settings
from c2d.sweep.variants import Variant


@dataclass(frozen=True)
class Plan:
    """What to run, before it is multiplied out."""

    name: str
    variants: tuple[Variant, ...]
    envs: tuple[str, ...]  # names, or patterns such as minatar/*
    seeds: tuple[int, ...] = (1, 2, 3)
    iterations: int | None = None  # None: what `c2d train` would do
    steps: int | None = None  # of each run, rounded up to whole iterations; instead of iterations
    protocol: str | None = None
    settings: Settings = field(default_factory=dict)  # of every run
    grid: dict[str, tuple[Value, ...]] = field(default_factory=dict)  # every combination of these


class PlannedRun(NamedTuple):
    """One run of a plan."""

    variant: str
    config: Config
    spec: EnvSpec

    @property
    def name(self) -> str:
        """Of its directory."""
        return self.config.directory.name

    @property
    def hash(self) -> str:
        return fingerprint(self.config)


class Listing(NamedTuple):
    """A plan multiplied out."""

    runs: list[PlannedRun]  # in the order in which they start
    same: dict[str, str]  # variants left out on some environment, and the equal one that stands for them


def fingerprint(config: Config) -> str:
    """A hash of all that enters the results of a run, but for its length."""
    facts = {name: value for name, value in to_json(config).items() if name not in FREE}
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:12]


def multiply(plan: Plan, where: Path, threads: int = 1, device: str = "cpu") -> Listing:
    """Every variant on every environment with every seed; all mistakes are told at once.

    Seeds are outermost: when the first is done everywhere there is a comparison, which the others make sharper.
    """
    mistakes = _Mistakes()
    envs = _environments(plan.envs, mistakes)
    combinations = [dict(zip(plan.grid, values, strict=True)) for values in itertools.product(*plan.grid.values())]
    rows = [(variant, chosen) for variant in plan.variants for chosen in combinations]
    for variant in plan.variants:
        mistakes.watch(find, variant.recipe)
    _check_numbers(plan, mistakes)
    bases: list[PlannedRun] = []
    for base in _bases(plan, envs, mistakes):
        for variant, chosen in rows:
            made = mistakes.watch(_config, plan, base, variant, chosen)
            bases += [] if made is None else [PlannedRun(variant_name(variant.name, chosen), made, base.spec)]
    mistakes.tell(plan.name)
    return _named(plan, bases, lambda name: {"threads": threads, "device": device, "run_dir": str(where / name)})


def _named(plan: Plan, bases: Sequence[PlannedRun], placed: Callable[[str], dict[str, Any]]) -> Listing:
    """Each of `bases` with every seed, under its name; what is equal to an earlier one is left out."""
    listing = Listing([], {})
    seen: dict[str, str] = {}
    names: dict[str, str] = {}
    for seed in dict.fromkeys(plan.seeds):
        for run in bases:
            name = f"{run.config.env.replace('/', '-').replace(':', '-')}-{run.variant}-s{seed}"
            check_run_name(name)
            config = replace(run.config, seed=seed, **placed(name))
            key = fingerprint(config)
            if key in seen:
                if seen[key] != run.variant:
                    listing.same[run.variant] = seen[key]
                continue
            if names.setdefault(name, key) != key:
                raise UserError(f'plan {plan.name}: two different runs would be called "{name}"; name a variant anew')
            seen[key] = run.variant
            listing.runs.append(run._replace(config=config))
    return listing


def check_run_name(name: object) -> None:
    """Refuse a name that is not one of a directory beside the others: it may come from a file."""
    plain = isinstance(name, str) and name.isprintable() and 0 < len(name.encode(errors="replace")) <= 200
    if not plain or "/" in str(name) or str(name).startswith("."):
        raise UserError(
            f"a run cannot be called {str(name)[:80]!r}; accepted: up to 200 letters and other signs, without / and "
            "without a dot in front"
        )


def variant_name(name: str, chosen: Settings) -> str:
    """The row's name with the settings that tell its runs apart."""
    return "-".join([name, *(f"{setting}-{value}" for setting, value in chosen.items())])


class _Base(NamedTuple):
    config: Config
    spec: EnvSpec


def _bases(plan: Plan, envs: Sequence[str], mistakes: _Mistakes) -> list[_Base]:
    """The environments' own part of the config, found once for all recipes."""
    recipe = next((v.recipe for v in plan.variants if v.recipe in RECIPES), "c2d")
    bases: list[_Base] = []
    for env in envs:
        config = mistakes.watch(default_config, env, recipe, plan.protocol)
        if config is not None:
            bases.append(_Base(config, spec_of(config.env, config.rules)))
    return bases


def _config(plan: Plan, base: _Base, variant: Variant, chosen: Settings) -> Config | None:
    if variant.recipe not in RECIPES:
        return None  # told already
    config = replace(
        base.config,
        recipe_name=variant.recipe,
        tensorboard=False,
        checkpoint=Checkpointing(keep=1),
        recipe=variant.change(adapt(find(variant.recipe), base.spec)),
    )
    try:
        config = with_settings(config, {**plan.settings, **variant.settings, **chosen})
        if plan.iterations is not None:
            config = replace(config, iterations=plan.iterations)
        elif plan.steps is not None:
            config = replace(config, iterations=-(-plan.steps // config.recipe.schedule.steps_per_iteration))
        validate(config)
    except UserError as error:
        raise UserError(f"{variant_name(variant.name, chosen)}: {error}") from None
    return config


# ---------------------------------------------------------------------------------------------------- environments


def known_environments() -> list[str]:
    """What a pattern is compared with: the paper's 55 Atari games, MinAtar, toys, and what Gymnasium has."""
    import gymnasium

    from c2d.envs.toy import TOYS

    return [
        *(f"atari/{key}" for key in BENCHMARK),
        *(f"minatar/{game}" for game in MINATAR_GAMES),
        *(f"toy/{name}" for name in TOYS),
        *(f"gym/{name}" for name in gymnasium.registry if not name.startswith("ALE/")),
    ]


def _environments(texts: Sequence[str], mistakes: _Mistakes) -> list[str]:
    found: dict[str, None] = {}
    for text in texts:
        names = mistakes.watch(_expand, text)
        found.update(dict.fromkeys(names or ()))
    return list(found)


def _expand(text: str) -> list[str]:
    if not set("*?[") & set(text):
        return [resolve(text).canonical]
    names = [name for name in known_environments() if fnmatchcase(name, text)]
    if not names:
        raise UserError(f'no environment is like "{text}"; patterns that find some: atari/*, minatar/*, toy/*')
    return names


# -------------------------------------------------------------------------------------------------------- mistakes


class _Mistakes:
    """Collected, so that all are told at once."""

    def __init__(self) -> None:
        self.found: dict[str, None] = {}

    def watch(self, make: Callable[..., Any], *arguments: Any) -> Any:
        """The result, or None and one more mistake."""
        try:
            return make(*arguments)
        except UserError as error:
            self.found[str(error)] = None
            return None

    def tell(self, plan: str) -> None:
        lines = list(self.found)
        if len(lines) == 1:
            raise UserError(lines[0])
        if lines:
            raise UserError(f"plan {plan} has {len(lines)} mistakes, nothing was started:\n  " + "\n  ".join(lines))


def _check_numbers(plan: Plan, mistakes: _Mistakes) -> None:
    def require(ok: bool, text: str) -> None:
        if not ok:
            mistakes.found[text] = None

    require(bool(plan.variants), "the plan names no recipe; `c2d recipes` lists them")
    require(bool(plan.envs), "the plan names no environment, such as minatar/*")
    require(bool(plan.seeds), "the plan names no seed; --seeds 3 means 1, 2 and 3")
    require(all(_natural(seed) for seed in plan.seeds), f"seeds are {_words(plan.seeds)}; accepted: 0 or greater")
    for name in ("iterations", "steps"):
        value = getattr(plan, name)
        require(value is None or value >= 1, f"{name} is {value}; accepted: at least 1")
    require(plan.iterations is None or plan.steps is None, "a plan has either iterations or steps, not both")


def _natural(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _words(values: Iterable[object]) -> str:
    return ", ".join(map(str, values))
