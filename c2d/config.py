"""Config: everything that defines a run, frozen; its checks, and its JSON form."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import tyro

from c2d.envs.make import default_rules, spec_of, with_arguments
from c2d.envs.names import EnvName, name_of, resolve
from c2d.envs.protocols import PROTOCOLS, AtariRules, GymRules, MinAtarRules, Rules
from c2d.errors import UserError, did_you_mean, similar_setting, unknown_name
from c2d.files import SMALL, read_json
from c2d.recipes.part import PARTS, SLOTS, Part, Recurrent, find_json_class, json_name, part_name
from c2d.recipes.parts import PhiSpec
from c2d.recipes.recipe import ActorSettings, Recipe, Schedule, check_actors, check_recipe, exchange
from c2d.recipes.rows import RECIPES, adapt, find
from c2d.user_code import trust
from c2d.validation import COUNT, COUNT_OR_0, FINITE, NOT_NEGATIVE, UNITS, Limit, between, check_values, option, require

# Settings that decide where, how fast and how long, but not what: they are not part of a run's identity.
FREE = (
    "run_dir",
    "iterations",
    "checkpoint",
    "tensorboard",
    "compress_replay",
    "threads",
    "env_threads",
    "device",
    "compile",
    "log",
    "eval_every",
    "eval_games",
    "keep_best",
    "stop_at_score",
    "stop_after",
    "address",
)


@dataclass(frozen=True)
class Logging:
    """Where the numbers of a run are sent. `--log tensorboard,csv` is short for `--log.to tensorboard,csv`."""

    to: str = ""
    """Loggers, separated by commas: tensorboard, csv, wandb, mlflow. Default: TensorBoard, as --tensorboard says."""
    project: str | None = None
    """Project of Weights & Biases, experiment of MLflow. None: c2d."""
    name: str | None = None
    """What the run is called there. None: the name of its directory."""
    group: str | None = None
    """Group of runs in Weights & Biases. None: no group."""
    uri: str | None = None
    """Address of MLflow's server or store. None: MLFLOW_TRACKING_URI, else mlflow.db in the working directory."""


@dataclass(frozen=True)
class Checkpointing:
    """When everything is saved, so that the run can be resumed exactly. Saving does not change results."""

    every_steps: Annotated[int, COUNT_OR_0] = 50_000
    """Agent steps between checkpoints; 0: not by steps."""
    every_minutes: Annotated[float, NOT_NEGATIVE] = 10.0
    """Minutes between checkpoints; 0: not by time. One is also taken at the end, on Ctrl-C and on SIGTERM."""
    keep: Annotated[int, COUNT_OR_0] = 2
    """Checkpoints kept; 0: none are taken, and the run cannot be resumed."""
    keep_weights: Annotated[int, COUNT_OR_0] = 0
    """Also keep the weights at the end of each of the last so many iterations, for `c2d evaluate --nets`; 0: only the
    newest."""


@dataclass(frozen=True)
class Config:
    """One run: an environment and its rules, a recipe, a seed, and where results go."""

    env: tyro.conf.Positional[str]
    """Environment: breakout, minatar/breakout, gym/CartPole-v1, toy/bimodal, or your own as my_module:MyEnv."""
    recipe_name: Annotated[str, tyro.conf.arg(name="recipe")] = "c2d"
    """The row that defines the algorithm: c2d, iqn, rainbow, ...; `c2d recipes` lists them."""
    protocol: str = "c2d-paper"
    """Atari rules by name: c2d-paper, dopamine or dopamine-2024. Other environments: default."""
    iterations: Annotated[int, COUNT] = 200
    """Iterations to train; --schedule.steps-per-iteration is their length."""
    seed: Annotated[int, Limit(lambda v: 0 <= v < 2**63, "0 or greater, below 2^63")] = 1
    """Seed of every random generator of the run."""
    run_dir: str | None = None
    """Directory for the results; a run that is already in it is resumed. None: runs/ENVIRONMENT-RECIPE-sSEED, with
    the changed settings before the seed."""
    actors: Annotated[int, between(0, 4_096)] = 0
    """Ray actors that play, each with the recipe's environments and an ε of its own; 0: this process plays."""
    address: str | None = None
    """HOST:PORT of the Ray cluster on which actors play, or auto; None: this machine, by a Ray of the run's own."""
    device: str = "cpu"
    """Where networks live: cpu, cuda, cuda:1, ..."""
    compile: Annotated[
        Literal["off", "default", "reduce-overhead"],
        Limit(lambda v: v in ("off", "default", "reduce-overhead"), "off, default, reduce-overhead"),
    ] = "off"
    """Mode of torch.compile for updates; reduce-overhead: CUDA graphs. Results may differ in the last digits, so exact
    resume is only promised with the same mode."""
    threads: Annotated[int | None, Limit(lambda v: 1 <= v <= 1_024, "from 1 to 1024")] = None
    """CPU threads for the networks. None: all cores, or 1 for a network of fewer than 500,000 weights, which
    is faster so; a resumed run has those of its start. Use 1 when several runs share the machine."""
    env_threads: Annotated[int, Limit(lambda v: 0 <= v <= 1_024, "from 0 to 1024")] = 0
    """Threads that step the environments, for those that leave the interpreter free meanwhile; 0: the one that trains,
    with --overlap one of their own. Results are the same."""
    compress_replay: bool | None = None
    """Keep replay frames LZ4-compressed in memory, a little slower. None: if they need more than 1 GiB otherwise."""
    tensorboard: bool | None = None
    """Write TensorBoard scalars into the run directory. None: if TensorBoard is installed."""
    log: Logging = field(default_factory=Logging)
    eval_every: Annotated[int, COUNT_OR_0] = 0
    """Agent steps between evaluations while training; 0: none. They have their own environments, and training is the
    same."""
    eval_games: Annotated[int, UNITS] = 10
    """Whole games of each evaluation."""
    keep_best: bool = False
    """Also keep the weights that scored best in an evaluation, for `c2d evaluate RUN --weights best`."""
    stop_at_score: Annotated[float | None, FINITE] = None
    """Stop when an evaluation's mean score reaches this; without --eval-every, the last 100 games. None: never."""
    stop_after: str | None = None
    """Stop after this time, such as 90min or 2h, with everything saved; a resumed run has it again. None: never."""
    checkpoint: Checkpointing = field(default_factory=Checkpointing)
    actor: ActorSettings = field(default_factory=ActorSettings)
    rules: Rules = field(default_factory=AtariRules)
    recipe: Annotated[Recipe, tyro.conf.arg(name="")] = field(default_factory=Recipe)

    @property
    def steps(self) -> int:
        """Agent steps of the whole run."""
        return self.iterations * self.recipe.schedule.steps_per_iteration

    @property
    def streams(self) -> int:
        """Environments that play, those of all actors together."""
        return self.recipe.envs * max(self.actors, 1)

    @property
    def directory(self) -> Path:
        return Path(self.run_dir).expanduser() if self.run_dir else Path("runs") / default_run_name(self)


# Iterations when the user names none, by family. Atari's is the paper's 200M frames.
_ITERATIONS = {"atari": 200, "minatar": 100, "gym": 8}


def configure(
    env: str | Callable[..., Any],
    recipe: str = "c2d",
    protocol: str | None = None,
    env_kwargs: Mapping[str, Any] | None = None,
    wrappers: Sequence[str | Callable[..., Any]] = (),
    **settings: Any,
) -> Config:
    """The config of a run. It does not need Atari or MinAtar to be installed.

    `env` is a name, a class of your own, or a function that returns an environment; `env_kwargs` are its arguments,
    `wrappers` are put around it. Settings have the names of the command line with `__` for a dot and `_` for a dash:
    `c2d.configure("breakout", recipe="iqn", seed=2, head__atoms=32, n_step=3)`. Parts are named, `head="quantile"`, or
    given, `head=Quantile(atoms=50)`.
    """
    name = resolve(name_of(env))
    names = [name_of(wrapper, "wrapper") for wrapper in wrappers]
    for wrapper in names:
        trust(wrapper)
    rules = with_arguments(name, default_rules(name), env_kwargs or {}, names)
    return with_settings(_usual_config(name, rules, recipe, protocol), settings)


def _usual_config(name: EnvName, rules: Rules, recipe: str, protocol: str | None) -> Config:
    row = find(recipe)
    if name.family == "atari":
        protocol = protocol or "c2d-paper"
        if protocol not in PROTOCOLS:
            raise unknown_name("protocol", protocol, PROTOCOLS)
        rules = PROTOCOLS[protocol]
    elif protocol not in (None, "default"):
        raise UserError(f'protocol "{protocol}" is for Atari games; {name.canonical} takes settings under --rules only')
    return Config(
        env=name.canonical,
        recipe_name=recipe,
        protocol=protocol or "default",
        iterations=_ITERATIONS[name.family],
        rules=rules,
        recipe=adapt(row, spec_of(name, rules)),
    )


default_config = configure  # its name in version 0.1.0


def with_settings(config: Config, settings: Mapping[str, Any]) -> Config:
    """The config with other settings, named as for `configure`. UserError for what there is not, with a suggestion."""
    own = [each.name for each in dataclasses.fields(Config)]
    parts = {name: value for name, value in settings.items() if name in SLOTS}
    if parts:
        recipe = exchange(config.recipe, {slot: _chosen_part(slot, part) for slot, part in parts.items()})
        given: dict[str, Any] = {slot: part for slot, part in parts.items() if isinstance(part, Part)}
        config = dataclasses.replace(config, recipe=dataclasses.replace(recipe, **given))
    for name, value in settings.items():
        path = name.removeprefix("recipe__").split("__")
        if name in parts:
            continue
        if name == "log" and isinstance(value, str):
            path = ["log", "to"]
        if path[0] not in own:
            path = ["recipe", *path]
        config = _with(config, path, value, name)
    return config


def _chosen_part(slot: str, part: Any) -> str:
    cls = type(part) if isinstance(part, Part) else part
    name = part if isinstance(part, str) else next((n for n, known in PARTS[slot].items() if known is cls), None)
    if name is None:
        accepted = f"the name or the declaration of a part: {', '.join(PARTS[slot])}"
        raise UserError(f"{slot} is {_short(part)}; accepted: {accepted}")
    return name


def _with(settings: Any, path: list[str], value: Any, called: str, config: Config | None = None) -> Any:
    """The same dataclass with another value at the end of a path of fields."""
    name, *rest = path
    config = settings if config is None else config
    if not dataclasses.is_dataclass(settings) or name not in [each.name for each in dataclasses.fields(settings)]:
        raise _unknown(called, config)
    if rest:
        value = _with(getattr(settings, name), rest, value, called, config)
    hint = get_type_hints(type(settings))[name]
    value = tuple(value) if isinstance(value, list) else os.fspath(value) if isinstance(value, os.PathLike) else value
    if not _fits(value, hint):
        raise UserError(f"{called} is {_short(value)}; accepted: {_words(hint)}")
    return dataclasses.replace(settings, **{name: value})  # type: ignore[type-var]


def _unknown(name: str, config: Config) -> UserError:
    """As on the command line, with names as in Python."""
    text = str(unknown_setting(name.removeprefix("recipe__").replace("__", ".").replace("_", "-"), config))
    return UserError(re.sub(r"--(?!help)([a-z][a-z0-9.-]*)", lambda m: m[1].replace(".", "__").replace("-", "_"), text))


def with_usual_habits(config: Config) -> Config:
    """The config as the records of a run have it, without what does not affect its results: where they lie, how often
    they are saved, and who watches."""
    names = ("run_dir", "checkpoint", "log", "eval_every", "eval_games", "keep_best", "stop_at_score", "stop_after")
    usual = Config(env=config.env)
    return dataclasses.replace(config, **{name: getattr(usual, name) for name in names})


def validate(config: Config) -> None:
    """Reject settings out of range, and parts of a recipe that do not fit together."""
    check_values(config)
    check_recipe(config.recipe)
    core = config.recipe.core
    accepted = f"off with --core {part_name(core)}, whose batches differ in their number of steps"
    require(config.compile == "off" or not isinstance(core, Recurrent), "compile", config.compile, accepted)
    check_actors(config.recipe, config.actors, config.actor, config.address)


# ------------------------------------------------------------------------------------------------ names of settings


def unknown_setting(name: str, config: Config) -> UserError:
    """The error for a setting that this run does not have: which part has it, or a similar name."""
    name, now = name.removeprefix("--"), flat(to_json(config))
    slot, _, setting = name.partition(".")
    if name == "env":
        return UserError("the environment stands without an option: c2d train ENV, such as c2d train breakout")
    siblings = ", ".join(f"--{other}" for other in now if other.startswith(f"{slot}."))
    owners = [part for part, cls in PARTS.get(slot, {}).items() if _has(cls, setting)]
    if owners:
        return UserError(
            f"--{name} is a setting of --{slot} {', '.join(owners)}, but this run has --{slot} {now[slot]}; "
            f"accepted: {siblings or f'no setting of this {slot}'}"
        )
    families = [family for family, cls in _FAMILIES.items() if slot == "rules" and _has(cls, setting)]
    if families:
        env = f"{config.env} is not one of these"
        return UserError(f"--{name} is a rule of {' and '.join(families)} environments, {env}; accepted: {siblings}")
    hint = similar_setting(name, now, dashes="--")
    return UserError(f'unknown setting "--{name}"; accepted: those in c2d train ENV --help-all{"." * bool(hint)}{hint}')


def _has(cls: Any, setting: str) -> bool:
    return setting in [option(field.name) for field in dataclasses.fields(cls)]


_FAMILIES = {"Atari": AtariRules, "MinAtar": MinAtarRules, "Gymnasium": GymRules}


# ---------------------------------------------------------------------------------------------- names of directories

_LONGEST = 60  # characters of the changed settings in a name


def default_run_name(config: Config) -> str:
    """Environment, recipe, seed, and what was changed: minatar-breakout-c2d-head=quantile,head.atoms=50-s1."""
    changes = ",".join(f"{name}={_short_value(value)}" for name, value in changed_settings(config).items())
    if len(changes) > _LONGEST:
        changes = f"{changes[: _LONGEST - 7]}-{hashlib.sha256(changes.encode()).hexdigest()[:6]}"
    words = [config.env, config.recipe_name, *([changes] if changes else []), f"s{config.seed}"]
    return re.sub(r"[^\w.=,+-]", "-", "-".join(words))


def changed_settings(config: Config) -> dict[str, Any]:
    """Settings that differ from the defaults of this environment and recipe, by their names on the command line.

    A part that was exchanged is compared with its own defaults. Nothing is known of a recipe that is not a row.
    """
    if config.recipe_name not in RECIPES:
        return {}
    name, own = resolve(config.env), config.rules
    rules = default_rules(name)
    if isinstance(rules, GymRules) and isinstance(own, GymRules):  # the environment may need its arguments
        rules = dataclasses.replace(rules, env_kwargs=own.env_kwargs, wrappers=own.wrappers)
    same = {name: getattr(config, name) for name in (*FREE, "seed")}
    usual = dataclasses.replace(_usual_config(name, rules, config.recipe_name, None), **same)
    protocol = {} if config.protocol == usual.protocol else {"protocol": config.protocol}
    usual = dataclasses.replace(usual, protocol=config.protocol, rules=PROTOCOLS.get(config.protocol, usual.rules))
    before, now = flat(to_json(usual)), flat(to_json(config))
    parts = {slot: now[slot] for slot in PARTS if now[slot] != before[slot]}
    before = flat(to_json(dataclasses.replace(usual, recipe=exchange(usual.recipe, parts))))
    before = {name: value for name, value in before.items() if name.partition(".")[0] not in _AROUND.values()}
    return protocol | parts | {name: now[name] for name in now if now[name] != before.get(name, ...)}


def user_code(config: Config) -> list[str]:
    """Parts, φ and wrappers that are the user's own, as my_module:MyHead; the environment is not among them."""
    settings = flat(to_json(config))
    names = [*(settings[slot] for slot in (*PARTS, "phi.kind")), *settings.get("wrapper", ())]
    return [name for name in names if ":" in name]


def options_of(settings: dict[str, Any]) -> str:
    """Settings as they are typed: --head quantile --head.atoms 50."""
    words: list[str] = []
    for name, value in settings.items():
        values = value if isinstance(value, list) else [value]
        separate = name == _AROUND["wrappers"]
        words += (
            [word for item in values for word in (f"--{name}", item)] if separate else [f"--{name}", *map(str, values)]
        )
    return shlex.join(words)


def _short_value(value: Any) -> str:
    if isinstance(value, list):
        return "+".join(map(_short_value, value))
    return f"{value:g}" if isinstance(value, float) else str(value)


# ------------------------------------------------------------------------------------------------------------- JSON

# Besides the parts, whose declarations are the list. No class is imported because a file names it.
_DATA = (Config, Checkpointing, Logging, ActorSettings, Recipe, Schedule, PhiSpec, AtariRules, MinAtarRules, GymRules)
_CLASSES: dict[str, type] = {cls.__name__: cls for cls in _DATA}


def to_json(value: Any) -> Any:
    """Nested dataclasses as dictionaries with a "class", which no field can be called."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {f.name: to_json(getattr(value, f.name)) for f in dataclasses.fields(value)}
        return {"class": json_name(type(value)), **fields}
    return list(value) if isinstance(value, tuple) else value


_AROUND = {"env_kwargs": "env-kwargs", "wrappers": "wrapper"}  # rules that are options of their own, if they are given


def _around(name: str, given: Any) -> dict[str, Any]:
    """["size=7"] as {"env-kwargs.size": "7"}, wrappers as a list; nothing if there are none."""
    texts = [text for text in given if isinstance(text, str)] if isinstance(given, list) else []
    if name == _AROUND["wrappers"]:
        return {name: texts} if texts else {}
    return {f"{name}.{key}": value for key, _, value in (text.partition("=") for text in texts)}


OPTION_NAMES = {"recipe_name": "recipe"}  # settings whose option has another name


def upgraded(value: Any) -> Any:
    """The JSON form of a config of version 0.1.0 in today's form; anything else as it is."""
    if not isinstance(value, dict) or not isinstance(agent := value.get("agent"), dict):
        return value
    optim = agent.get("optim")
    if isinstance(optim, dict) and optim.get("class") == "Optim":
        agent = {**agent, "optim": {**optim, "class": "Adam"}}
    rest = {name: item for name, item in value.items() if name not in ("agent", "recipe")}
    return {**rest, "recipe_name": value.get("recipe"), "recipe": agent}


def flat(value: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """The JSON form as {"phi.beta": 1.99, "head": "conjugated", ...}: every setting by its name on the command line."""
    settings: dict[str, Any] = {}
    for name, item in upgraded(value).items():
        slot = prefix.removesuffix(".")
        if isinstance(item, dict):
            settings |= flat(item, prefix if name == "recipe" else f"{prefix}{option(name)}.")
        elif name in _AROUND:
            settings |= _around(_AROUND[name], item)
        elif name != "class":
            settings[prefix + OPTION_NAMES.get(name, option(name))] = item
        elif slot in PARTS:
            settings[slot] = next((choice for choice, cls in PARTS[slot].items() if json_name(cls) == item), item)
    return settings


def from_json(value: Any) -> Any:
    """The inverse of `to_json`; raises UserError for anything that is not a config."""
    if isinstance(value, list):
        return tuple(from_json(item) for item in value)
    if not isinstance(value, dict):
        return value
    value = upgraded(value)
    kind = value.get("class")
    cls: Any = (_CLASSES.get(kind) or find_json_class(kind)) if isinstance(kind, str) else None
    if cls is None:
        accepted = ", ".join([*_CLASSES, *(json_name(part) for parts in PARTS.values() for part in parts.values())])
        raise UserError(f'config holds an object of unknown class "{str(kind)[:80]}"; accepted: {accepted}')
    known = {f.name for f in dataclasses.fields(cls)}
    given = {key: item for key, item in value.items() if key != "class"}
    for key in given:
        if key not in known:
            raise UserError(f'config has unknown setting "{key[:80]}" in {kind}.{did_you_mean(key, known)}')
    values = {key: from_json(item) for key, item in given.items()}
    hints = get_type_hints(cls)
    for key, item in values.items():
        if not _fits(item, hints[key]):
            raise UserError(f"config has {_short(given[key])} for {key} in {kind}; accepted: {_words(hints[key])}")
        if hints[key] is float and isinstance(item, int) and abs(item) > 2**53:
            values[key] = float(item)  # others stay as they are in the file: files are compared
    try:
        return cls(**values)
    except TypeError as error:
        raise UserError(f"config is incomplete: {error}") from None


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:79]}…"


def _fits(value: Any, hint: Any) -> bool:
    """Whether a value read from a file is of the annotated type."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Literal:
        return value in arguments
    if origin in (Union, UnionType):
        return any(_fits(value, choice) for choice in arguments)
    if origin is tuple:
        return isinstance(value, tuple) and all(_fits(item, arguments[0]) for item in value)
    if hint in (int, float):
        return isinstance(value, int | hint) and not isinstance(value, bool)
    return isinstance(value, hint)


def _words(hint: Any) -> str:
    if get_origin(hint) is Literal:
        return ", ".join(get_args(hint))
    if get_origin(hint) in (Union, UnionType):
        return ", ".join(_words(choice) for choice in get_args(hint))
    if isinstance(hint, type) and issubclass(hint, Part):
        return ", ".join(json_name(cls) for parts in PARTS.values() for cls in parts.values() if issubclass(cls, hint))
    return hint.__name__ if isinstance(hint, type) and get_origin(hint) is None else str(hint)


def read_config(path: Path, within: Path | None = None) -> Config:
    """Read a config file as `c2d train` writes it. `within`: the directory that it must not lead out of."""
    try:
        loaded = from_json(read_json(path, SMALL, within))
    except FileNotFoundError:
        raise UserError(f"config file {path} does not exist") from None
    except OSError as error:
        raise UserError(f"config file {path} cannot be read: {error.strerror}") from None
    except (ValueError, TypeError) as error:
        raise UserError(f"config file {path} cannot be read: {error}") from None
    except UserError as error:
        raise UserError(f"config file {path}: {error}") from None
    if not isinstance(loaded, Config):
        raise UserError(f'config file {path} does not hold a config: its outermost "class" must be Config')
    return loaded
