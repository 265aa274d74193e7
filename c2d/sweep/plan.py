"""A plan: recipes × environments × seeds (× settings), expanded to a list of configs, deduplicated, named and hashed.

Pure: this module writes nothing and starts nothing. From top to bottom: what a plan is, its expansion, its environments
and settings, ablations, and the built-in plans.
"""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from c2d import validation
from c2d.config import FREE, Checkpointing, Config, default_config, flat, from_json, to_json, validate
from c2d.envs.games import BENCHMARK
from c2d.envs.make import spec_of, with_arguments
from c2d.envs.names import MINATAR_GAMES, resolve
from c2d.envs.protocols import GymRules, argument_value
from c2d.envs.spec import EnvSpec
from c2d.errors import UserError, similar_setting, unknown_name
from c2d.recipes import parts
from c2d.recipes.part import PARTS
from c2d.recipes.recipe import Recipe, exchange, ingredients, with_head
from c2d.recipes.rows import RECIPES, adapt, find

Value = int | float | bool | str | None | list[Any]
Settings = Mapping[str, Value]  # by their names on the command line


class Variant(NamedTuple):
    """A recipe, or a modified one, with a name for tables and directories."""

    name: str
    recipe: str
    change: Callable[[Recipe], Recipe] = lambda recipe: recipe
    settings: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True)
class Plan:
    """What to run, before expansion."""

    name: str
    variants: tuple[Variant, ...]
    envs: tuple[str, ...]  # names, or patterns such as minatar/*
    seeds: tuple[int, ...] = (1, 2, 3)
    iterations: int | None = None  # None: the default of `c2d train`
    steps: int | None = None  # per run, rounded up to whole iterations; instead of iterations
    protocol: str | None = None
    settings: Settings = field(default_factory=dict)  # for every run
    grid: dict[str, tuple[Value, ...]] = field(default_factory=dict)  # one run per combination


def changed(
    plan: Plan,
    recipes: Sequence[str] = (),
    envs: Sequence[str] = (),
    seeds: Sequence[int] = (),
    iterations: int | None = None,
    steps: int | None = None,
    protocol: str | None = None,
    settings: Mapping[str, tuple[Value, ...]] = MappingProxyType({}),
) -> Plan:
    """The plan with what is given in place of its own; a setting of several values gives one run each."""
    changes: dict[str, Any] = {}
    if recipes:
        changes["variants"] = tuple(Variant(name, name) for name in recipes)
    if envs:
        changes["envs"] = tuple(envs)
    if seeds:
        changes["seeds"] = tuple(seeds)
    if iterations is not None or steps is not None:
        changes |= {"iterations": iterations, "steps": steps}
    if protocol is not None:
        changes["protocol"] = protocol
    alone = {name: values[0] for name, values in settings.items() if len(values) == 1}
    grid = {name: values for name, values in settings.items() if len(values) > 1}
    return replace(plan, settings={**plan.settings, **alone}, grid={**plan.grid, **grid}, **changes)


class PlannedRun(NamedTuple):
    """One run of a plan."""

    variant: str
    config: Config
    spec: EnvSpec

    @property
    def name(self) -> str:
        """The name of its directory."""
        return self.config.directory.name

    @property
    def hash(self) -> str:
        return config_hash(self.config)


class ExpandedPlan(NamedTuple):
    """All runs of a plan."""

    runs: list[PlannedRun]  # in the order in which they start
    duplicates: dict[str, str]  # variant omitted on some environment -> the identical variant that runs instead


def config_hash(config: Config) -> str:
    """A hash of everything that affects the results of a run, except its length."""
    facts = {name: value for name, value in to_json(config).items() if name not in FREE}
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:12]


# ------------------------------------------------------------------------------------------------------- expansion


def multiply(plan: Plan, directory: Path, threads: int = 1, device: str = "cpu") -> ExpandedPlan:
    """Every variant on every environment with every seed. All errors of the plan are reported together.

    Seeds are the outermost loop: as soon as the first is done everywhere there is a comparison, and each further seed
    sharpens it.
    """
    errors = _ErrorCollector()
    envs = _environments(plan.envs, errors)
    combinations = [dict(zip(plan.grid, values, strict=True)) for values in itertools.product(*plan.grid.values())]
    cases = [(variant, chosen) for variant in plan.variants for chosen in combinations]
    for variant in plan.variants:
        errors.attempt(find, variant.recipe)
    _check_numbers(plan, errors)
    unseeded: list[PlannedRun] = []
    for base in _env_configs(plan, envs, errors):
        for variant, chosen in cases:
            config = errors.attempt(_config, plan, base, variant, chosen)
            if config is not None:
                unseeded.append(PlannedRun(variant_name(variant.name, chosen), config, _spec(base, config)))
    errors.raise_if_any(plan.name)
    return _with_seeds(plan, unseeded, {"threads": threads, "device": device}, directory)


def _with_seeds(plan: Plan, unseeded: Sequence[PlannedRun], changes: dict[str, Any], directory: Path) -> ExpandedPlan:
    """Each run with every seed, under its name. A run identical to an earlier one is omitted."""
    expanded = ExpandedPlan([], {})
    variants: dict[str, str] = {}  # by hash
    hashes: dict[str, str] = {}  # by name
    for seed in dict.fromkeys(plan.seeds):
        for run in unseeded:
            name = f"{run.config.env.replace('/', '-').replace(':', '-')}-{run.variant}-s{seed}"
            check_run_name(name)
            config = replace(run.config, seed=seed, run_dir=str(directory / name), **changes)
            key = config_hash(config)
            if key in variants:
                if variants[key] != run.variant:
                    expanded.duplicates[run.variant] = variants[key]
                continue
            if hashes.setdefault(name, key) != key:
                raise UserError(f'plan {plan.name}: two different runs have the name "{name}"; rename one variant')
            variants[key] = run.variant
            expanded.runs.append(run._replace(config=config))
    return expanded


def check_run_name(name: object) -> None:
    """Reject a name, possibly from a file, that is not that of a directory inside the sweep."""
    plain = isinstance(name, str) and name.isprintable() and 0 < len(name.encode(errors="replace")) <= 200
    if not plain or "/" in str(name) or str(name).startswith("."):
        raise UserError(
            f"run name {str(name)[:80]!r} is not usable; accepted: up to 200 printable characters, no slash, no dot "
            "in front"
        )


def variant_name(name: str, chosen: Settings) -> str:
    """The variant's name with the grid settings that distinguish its runs."""
    return "-".join([name, *(f"{setting}-{value}" for setting, value in chosen.items())])


class _EnvConfig(NamedTuple):
    config: Config
    spec: EnvSpec


def _env_configs(plan: Plan, envs: Sequence[str], errors: _ErrorCollector) -> list[_EnvConfig]:
    """The part of the config that depends on the environment alone, computed once for all recipes."""
    recipe = next((v.recipe for v in plan.variants if v.recipe in RECIPES), "c2d")
    bases: list[_EnvConfig] = []
    for env in envs:
        config = errors.attempt(default_config, env, recipe, plan.protocol)
        if config is not None:
            bases.append(_EnvConfig(config, spec_of(config.env, config.rules)))
    return bases


def _config(plan: Plan, base: _EnvConfig, variant: Variant, chosen: Settings) -> Config | None:
    if variant.recipe not in RECIPES:
        return None  # already reported
    try:
        base, settings = _environment(base, {**plan.settings, **variant.settings, **chosen})
        config = replace(
            base.config,
            recipe_name=variant.recipe,
            tensorboard=False,
            checkpoint=Checkpointing(keep=1),
            recipe=variant.change(adapt(find(variant.recipe), base.spec)),
        )
        config = with_settings(config, settings)
        if plan.iterations is not None:
            config = replace(config, iterations=plan.iterations)
        elif plan.steps is not None:
            config = replace(config, iterations=-(-plan.steps // config.recipe.schedule.steps_per_iteration))
        validate(config)
        validation.require(not config.actors, "actors", config.actors, "0 in a sweep, which places whole runs")
    except UserError as error:
        raise UserError(f"{variant_name(variant.name, chosen)}: {error}") from None
    return config


class _ErrorCollector:
    """Collects errors so that all can be reported together."""

    def __init__(self) -> None:
        self.messages: dict[str, None] = {}

    def attempt(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """The result, or None and one more error."""
        try:
            return function(*arguments)
        except UserError as error:
            self.messages[str(error)] = None
            return None

    def raise_if_any(self, plan: str) -> None:
        lines = list(self.messages)
        if len(lines) == 1:
            raise UserError(lines[0])
        if lines:
            raise UserError(f"plan {plan} has {len(lines)} errors, nothing was started:\n  " + "\n  ".join(lines))


def _check_numbers(plan: Plan, errors: _ErrorCollector) -> None:
    def require(ok: bool, text: str) -> None:
        if not ok:
            errors.messages[text] = None

    require(bool(plan.variants), "the plan has no recipe; `c2d recipes` lists them")
    require(bool(plan.envs), "the plan has no environment; accepted: names and patterns such as minatar/*")
    require(bool(plan.seeds), "the plan has no seed; --seeds 3 means 1, 2 and 3")
    seeds = ", ".join(map(str, plan.seeds))
    require(all(_is_natural(seed) for seed in plan.seeds), f"seeds are {seeds}; accepted: 0 or greater")
    for name in ("iterations", "steps"):
        value = getattr(plan, name)
        require(value is None or value >= 1, f"{name} is {value}; accepted: at least 1")
    require(plan.iterations is None or plan.steps is None, "a plan has either iterations or steps, not both")


def _is_natural(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


# ---------------------------------------------------------------------------------------------------- environments


def known_environments() -> list[str]:
    """The names that patterns match: the paper's 55 Atari games, MinAtar, toys, and Gymnasium's registry."""
    import gymnasium

    from c2d.envs.toy import NAMES

    return [
        *(f"atari/{key}" for key in BENCHMARK),
        *(f"minatar/{game}" for game in MINATAR_GAMES),
        *(f"toy/{name}" for name in NAMES),
        *(f"gym/{name}" for name in gymnasium.registry if not name.startswith("ALE/")),
    ]


def _environments(texts: Sequence[str], errors: _ErrorCollector) -> list[str]:
    names: dict[str, None] = {}
    for text in texts:
        names.update(dict.fromkeys(errors.attempt(_expand_pattern, text) or ()))
    return list(names)


def _expand_pattern(text: str) -> list[str]:
    if not set("*?[") & set(text):
        return [resolve(text).canonical]
    names = [name for name in known_environments() if fnmatchcase(name, text)]
    if not names:
        raise UserError(f'no environment matches "{text}"; accepted: patterns such as atari/*, minatar/*, toy/*')
    return names


# -------------------------------------------------------------------------------------------------------- settings

# Settings that a plan has in another place: where.
_ELSEWHERE = {"env": "envs", "recipe": "recipes", "seed": "seeds", "run-dir": "--out", "iterations": "iterations"}
_ELSEWHERE |= {"protocol": "protocol", "threads": "--threads", "device": "--device"}
_CONSTANTS = {"true": True, "false": False, "none": None, "null": None}


def with_settings(config: Config, settings: Settings) -> Config:
    """The config with {"head": "quantile", "optim.learning-rate": 1e-4}, names as on the command line.

    Parts come first, since they determine which other settings exist.
    """
    exchanged = {name: str(value) for name, value in settings.items() if name in PARTS}
    config = dataclasses.replace(config, recipe=exchange(config.recipe, exchanged))
    tree = to_json(config)
    for name, value in settings.items():
        if name not in exchanged:
            _put(tree, name, value)
    changed: Config = from_json(tree)
    return changed


def _spec(base: _EnvConfig, config: Config) -> EnvSpec:
    """That of the environment; with arguments and wrappers its own."""
    plain = not isinstance(config.rules, GymRules) or not (config.rules.env_kwargs or config.rules.wrappers)
    return base.spec if plain else spec_of(config.env, config.rules)


def _environment(base: _EnvConfig, settings: Settings) -> tuple[_EnvConfig, Settings]:
    """With `env-kwargs.NAME` and `wrapper` among the settings, that environment; and the other settings."""
    around = {name: value for name, value in settings.items() if name.partition(".")[0] in ("env-kwargs", "wrapper")}
    if not around:
        return base, settings
    kwargs = {name.partition(".")[2].replace("-", "_"): value for name, value in around.items() if name != "wrapper"}
    values = {name: argument_value(value) if isinstance(value, str) else value for name, value in kwargs.items()}
    wrappers = split_names(str(around.get("wrapper", "")))
    rules = with_arguments(resolve(base.config.env), base.config.rules, values, wrappers)
    spec = spec_of(base.config.env, rules)
    rest = {name: value for name, value in settings.items() if name not in around}
    return _EnvConfig(replace(base.config, rules=rules), spec), rest


def _put(tree: dict[str, Any], name: str, value: Value) -> None:
    if name in _ELSEWHERE:
        raise UserError(f'"{name}" is not a setting of a plan; use {_ELSEWHERE[name]}')
    name = "log.to" if name == "log" else name
    known = set(flat(tree)) - set(_ELSEWHERE) - set(PARTS)
    if name not in known:
        raise UserError(
            f'unknown setting "{name}".{similar_setting(name, known)} `c2d train ENV --help-all` lists them'
        )
    *path, last = name.replace("-", "_").split(".")
    node = tree if (path or [last])[0] in tree else tree["recipe"]
    for part in path:
        node = node[part]
    node[last] = parse_value(value) if isinstance(value, str) else value


def parse_value(text: str) -> Value:
    """The value that a text stands for: 3, 1e-4, True, None, or the text itself."""
    if text.lower() in _CONSTANTS:
        return _CONSTANTS[text.lower()]
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def split_names(text: str) -> list[str]:
    """ "c2d,c51" -> ["c2d", "c51"]"""
    return [word.strip() for word in text.split(",") if word.strip()]


# ------------------------------------------------------------------------------------------------------- ablations


def ablations(recipe_name: str, recipe: Recipe) -> list[Variant]:
    """The recipe, and the recipe without each of its ingredients."""
    without = [Variant(f"{recipe_name}-no-{name}", recipe_name, change) for name, change in ingredients(recipe).items()]
    return [Variant(recipe_name, recipe_name), *without]


def ablation_plan(recipe: str) -> Plan:
    """A recipe and the recipe without each of its ingredients, on MinAtar Breakout."""
    variants = tuple(ablations(recipe, find(recipe)))
    return Plan(f"ablate-{recipe}", variants, ("minatar/breakout",), (1, 2, 3), steps=100_000)


# -------------------------------------------------------------------------------------------------- built-in plans


def _phi(kind: str, clip: float | None = None) -> Callable[[Recipe], Recipe]:
    return lambda recipe: replace(recipe, phi=parts.PhiSpec(kind), clip_reward=clip)


def _beta(value: float) -> Callable[[Recipe], Recipe]:
    return lambda recipe: replace(recipe, phi=replace(recipe.phi, beta=value))


# The design claims of the paper (C2D, Sec. "Evaluation" and appendix), at the scale of MinAtar.
_PAPER_CLAIMS: tuple[Variant, ...] = (
    Variant("c2d", "c2d"),
    Variant("c2d-no-embedding", "c2d", with_head(embedding=0)),
    Variant("c2d-alpha-fixed", "c2d", with_head(train_alpha=False)),
    Variant("c2d-support-fixed", "c2d", with_head(train_atoms=False, train_alpha=False)),
    Variant("c51-cramer", "c51", lambda recipe: replace(recipe, loss=parts.Cramer())),
    Variant("c2d-identity-clipped", "c2d", _phi("identity", clip=1.0)),
    Variant("c2d-identity-raw", "c2d", _phi("identity")),
    Variant("c2d-h", "c2d", _phi("h")),
    Variant("c2d-norm-column", "c2d", lambda recipe: replace(recipe, encoder=parts.MinAtar(norm="column"))),
    Variant("c2d-norm-channel", "c2d", lambda recipe: replace(recipe, encoder=parts.MinAtar(norm="channel"))),
    Variant("c2d-orthogonal", "c2d", lambda recipe: replace(recipe, initializer="orthogonal")),
    # the search for β, α and c by early progress
    *(Variant(f"c2d-beta-{beta:g}", "c2d", _beta(beta)) for beta in (1.0, 1.5, 3.0)),
    *(Variant(f"c2d-alpha-{alpha:g}", "c2d", with_head(alpha=alpha)) for alpha in (10.0, 25.0, 100.0)),
    *(Variant(f"c2d-c-{c:g}", "c2d", with_head(c=c)) for c in (1.0, 2.5, 10.0)),
)
_MINATAR: tuple[Variant, ...] = tuple(
    Variant(name, name) for name in ("dqn-adam", "c51", "qr-dqn", "iqn", "rainbow", "c2d", "rainbow-c2d")
)
# What holds C2D back on MinAtar, if anything does: one setting changed at a time.
_MINATAR_C2D: tuple[Variant, ...] = (
    Variant("c2d", "c2d"),
    Variant("c2d-3-steps", "c2d", settings={"n-step": 3}),
    *(Variant(f"c2d-rate-{rate:g}", "c2d", settings={"optim.learning-rate": rate}) for rate in (2.5e-4, 4e-3)),
    Variant("c2d-eps-1e-8", "c2d", settings={"optim.eps": 1e-8}),
    Variant("c2d-alpha-10", "c2d", settings={"head.alpha": 10.0}),
    *(Variant(f"c2d-beta-{beta:g}", "c2d", settings={"phi.beta": beta}) for beta in (1.0, 4.0)),
)
# The paper's comparison (C2D, Sec. "Scores and Baselines").
_PAPER: tuple[Variant, ...] = tuple(Variant(name, name) for name in ("c2d", "c51", "iqn", "rainbow", "dqn"))
_BTR: tuple[Variant, ...] = tuple(Variant(name, name) for name in ("btr", "btr-c2d"))
_SMOKE: tuple[Variant, ...] = (Variant("c2d", "c2d"), Variant("c51", "c51"))

_TWO_GAMES = ("minatar/breakout", "minatar/space_invaders")
_QUICK = {"schedule.steps-per-iteration": 1_000, "schedule.random-history": 200}

# name -> (plan, one line of description)
PLANS: dict[str, tuple[Callable[[], Plan], str]] = {
    "paper": (
        lambda: Plan("paper", _PAPER, tuple(f"atari/{game}" for game in BENCHMARK), (1, 2, 3)),
        "the paper's study: 55 Atari games, 3 seeds, C2D, C51, IQN, Rainbow and DQN, 200M frames each",
    ),
    "btr": (
        lambda: Plan("btr", _BTR, tuple(f"atari/{game}" for game in BENCHMARK), (1, 2, 3), protocol="dopamine"),
        "Beyond the Rainbow with and without C2D's laws: 55 Atari games, 3 seeds, 200M frames each",
    ),
    "minatar": (
        lambda: Plan("minatar", _MINATAR, _TWO_GAMES, (1, 2), steps=100_000),
        "the main algorithms on two MinAtar games, 100,000 steps",
    ),
    "minatar-c2d": (
        lambda: Plan("minatar-c2d", _MINATAR_C2D, ("minatar/breakout",), (1, 2), steps=100_000),
        "C2D on MinAtar Breakout with one setting changed at a time",
    ),
    "paper-claims": (
        lambda: Plan("paper-claims", _PAPER_CLAIMS, _TWO_GAMES, (1, 2), steps=100_000),
        "the paper's design claims on two MinAtar games",
    ),
    "ablate-rainbow-c2d": (lambda: ablation_plan("rainbow-c2d"), "rainbow-c2d without each of its ingredients"),
    "smoke": (
        lambda: Plan("smoke", _SMOKE, ("toy/sure", "minatar/breakout"), (1,), iterations=2, settings=_QUICK),
        "four runs of a few seconds, to check that everything works",
    ),
}


def builtin_plan(name: str) -> Plan:
    if name not in PLANS:
        raise unknown_name("plan", name, PLANS, f"{', '.join(PLANS)}, or a file that ends in .toml, .yaml or .yml")
    return PLANS[name][0]()
