"""What the commands do, as functions."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from c2d.agents.agent import Agent
from c2d.config import Config, configure, from_json, to_json, with_settings
from c2d.envs.make import default_rules, with_arguments
from c2d.envs.make import make as make_environment
from c2d.envs.names import name_of, require_trusted_env, resolve
from c2d.envs.protocols import Rules
from c2d.envs.spec import Environment
from c2d.errors import UserError
from c2d.evaluation import loaded_run
from c2d.evaluation.callbacks import callbacks_of
from c2d.evaluation.play import PlaySettings, play
from c2d.evaluation.record import Evaluation, evaluation_of
from c2d.files import kind_of
from c2d.recipes.part import SLOTS, part_name
from c2d.runs.layout import RunDir
from c2d.training.loggers import loggers_of
from c2d.training.observers import Observer
from c2d.training.progress import ProgressDisplay
from c2d.training.resume import config_of, fork, reject_differences
from c2d.training.run import Result, run
from c2d.user_code import trust

if TYPE_CHECKING:
    from c2d.reporting.report import ReportRequest, RunComparison


def train(
    config: Config | str | Callable[..., Any],
    progress: bool = True,
    callbacks: Sequence[Observer] = (),
    **settings: Any,
) -> Result:
    """Train as `c2d train` does. An environment, "minatar/breakout" or a class, stands for its usual config.

    `callbacks` are observers of the run (`c2d.Observer`); `progress=False` prints nothing. `settings` are those of
    `c2d.configure`, such as `seed=2` or `head__atoms=32`. Parts of your own in the recipe may be classes of any module:
    passing them is naming them. A run directory that holds the run already is resumed.
    """
    given = with_settings(config, settings) if isinstance(config, Config) else configure(config, **settings)
    checked = _checked(given)
    observers: list[Observer] = [ProgressDisplay()] if progress else []
    return run(checked, [*observers, *callbacks_of(checked), *loggers_of(checked), *callbacks])


def resume(
    run: str | os.PathLike[str],
    progress: bool = True,
    callbacks: Sequence[Observer] = (),
    env: str | Callable[..., Any] | None = None,
    fork_to: str | os.PathLike[str] | None = None,
    **settings: Any,
) -> Result:
    """Resume a run from its last checkpoint as `c2d resume` does, for instance with `iterations=20`.

    `env`: your own environment again, as code is never imported because a file names it. `fork_to`: leave the run as it
    is, and continue in this new directory; then every setting may change.
    """
    source = RunDir(run)
    before = config_of(source, _warn)
    require_trusted_env(before.env, None if env is None else name_of(env), rules=before.rules)
    config = _checked(with_settings(before, {**settings, "run_dir": str(fork_to or source.path)}))
    if fork_to is None:
        reject_differences(source, before, config)
    elif kind_of(Path(fork_to)) is not None:
        raise UserError(f"fork_to {fork_to} exists; accepted: a new directory")
    else:
        fork(source, RunDir(fork_to), config, _warn)
    return train(config, progress, callbacks)


def _warn(text: str) -> None:
    warnings.warn(text, stacklevel=4)


def load(run: str | os.PathLike[str], device: str = "cpu", weights: str | int = "newest") -> Agent:
    """The trained agent of a run directory. Weights are safetensors: reading them runs no code.

    `weights`: "newest"; "best", those that `--keep-best` kept; or the training steps behind one that the run kept.
    """
    return loaded_run.load(run, device, weights)


def evaluate(
    run: str | os.PathLike[str],
    games: int = 20,
    *,
    epsilon: float | None = None,
    parallel: int = 8,
    seed: int = 0,
    weights: str | int = "newest",
    env: str | Callable[..., Any] | None = None,
    cap_steps: int | None = None,
    device: str = "cpu",
    save: bool = True,
) -> Evaluation:
    """Play whole games with a trained agent as `c2d evaluate` does: the scores, and statistics of them.

    `epsilon`: None for the run's own; `parallel`: games at once; `env`: another environment, or your own again.
    `save`: also write the scores into the run directory.
    """
    subject = loaded_run.open_run(run, None if env is None else name_of(env), device, cap_steps, weights)
    own = subject.config.recipe.schedule.epsilon_eval
    setup = PlaySettings(games, own if epsilon is None else epsilon, parallel, seed)
    return evaluation_of(subject, setup, play(subject.agent, subject.make_env, setup), save)


def make(
    env: str | Callable[..., Any],
    *old: Any,
    seed: int | None = None,
    rules: Rules | None = None,
    env_kwargs: Mapping[str, Any] | None = None,
    wrappers: Sequence[str | Callable[..., Any]] = (),
) -> Environment:
    """One environment in the form in which agents see it: `c2d.make("minatar/breakout", seed=1)`.

    `env` is a name, a class of your own, or a function that returns an environment; `env_kwargs` are its arguments,
    `wrappers` are put around it. `rules`: None for the usual ones, the paper's for Atari.
    """
    if old:
        warnings.warn(
            "c2d.make(env, rules, seed) is deprecated: c2d.make(env, seed=1)", DeprecationWarning, stacklevel=2
        )
        if len(old) > 2 or (len(old) == 2 and seed is not None):
            raise TypeError("make() takes an environment; everything else is named: c2d.make(env, seed=1)")
        rules, seed = old[0], old[1] if len(old) == 2 else seed
    name = resolve(name_of(env))
    names = [name_of(wrapper, "wrapper") for wrapper in wrappers]
    for wrapper in names:
        trust(wrapper)
    rules = with_arguments(name, default_rules(name) if rules is None else rules, env_kwargs or {}, names)
    return make_environment(name, rules, 0 if seed is None else seed)


def compare(
    *runs: str | os.PathLike[str],
    published: str | os.PathLike[str] | None = None,
    agents: Sequence[str] = (),
    at: float | None = None,
    convention: str = "table",
    references: str | None = None,
    replications: int = 10_000,
    seed: int = 0,
) -> RunComparison:
    """Compare runs with the published agents and with each other as `c2d compare` does; `print` shows the result.

    `runs` may be directories of runs. `at`: millions of frames; `agents`: published ones; `seed`: of the bootstrap.
    """
    from c2d.reporting.report import compare_runs

    if not runs:
        raise UserError("no runs given; accepted: c2d.compare(run, ...)")
    return compare_runs(_request(runs, published, agents, at, convention, references, replications, seed))


def report(
    *runs: str | os.PathLike[str],
    out: str | os.PathLike[str],
    published: str | os.PathLike[str] | None = None,
    agents: Sequence[str] = (),
    games: Sequence[str] = (),
    against: Sequence[str] = (),
    at: float | None = None,
    convention: str = "table",
    references: str | None = None,
    replications: int = 10_000,
    seed: int = 0,
) -> Path:
    """Write a report as `c2d report` does, and return its page. Without runs: the published agents alone."""
    from c2d.reporting.page import write
    from c2d.reporting.report import build_report

    request = _request(runs, published, agents, at, convention, references, replications, seed)
    document = build_report(replace(request, games=tuple(games), against=tuple(against), command="c2d.report"))
    write(document, Path(out))
    return Path(out) / "report.html"


def _request(
    runs: Sequence[str | os.PathLike[str]], published: Any, agents: Sequence[str], *others: Any
) -> ReportRequest:
    from c2d.reporting.report import ReportRequest

    if others[3] < 100:
        raise UserError(f"--replications is {others[3]}; accepted: at least 100")
    data = None if published is None else Path(published)
    names = dict(zip(("at", "convention", "references", "replications", "seed"), others, strict=True))
    return ReportRequest(runs=tuple(map(Path, runs)), published=data, agents=tuple(agents), **names)


class SweptRun(NamedTuple):
    """A run of a sweep."""

    name: str
    path: Path  # its directory
    state: str  # done, failed, stopped or waiting
    error: str | None


def run_sweep(
    plan: str | os.PathLike[str] = "",
    *,
    recipes: Sequence[str] = (),
    envs: Sequence[str] = (),
    seeds: int | Sequence[int] = (),
    iterations: int | None = None,
    steps: int | None = None,
    protocol: str | None = None,
    settings: Mapping[str, Any] | None = None,
    out: str | os.PathLike[str] | None = None,
    workers: int | None = None,
    threads: int = 1,
    gpus_per_run: float = 0.0,
    address: str | None = None,
    dry_run: bool = False,
    progress: bool = True,
) -> list[SweptRun]:
    """Train recipes × environments × seeds as `c2d sweep` does; call it again to continue.

    `plan`: a plan by name or a file; without one, `recipes` and `envs` are needed. `settings` of every run, such as
    `{"head__atoms": 50}`; a list of values gives one run each. The runs are processes of their own: code of yours must
    be in a module, and a script must call this under `if __name__ == "__main__":`.
    """
    from c2d.sweep import run_sweep as sweep
    from c2d.sweep.forecast import Rates
    from c2d.sweep.options import SweepOptions
    from c2d.sweep.plan import PLANS, Plan, builtin_plan, changed, multiply
    from c2d.sweep.planfile import SUFFIXES, read_plan

    name, named = os.fspath(plan), tuple(env for env in envs if ":" in env)
    if not name and not (recipes and envs):
        raise UserError(f"no plan given; accepted: one of {', '.join(PLANS)}, a file, or recipes and envs")
    given = {
        key.replace("__", ".").replace("_", "-"): tuple(value) if isinstance(value, list | tuple) else (value,)
        for key, value in (settings or {}).items()
    }
    for value in (value for values in given.values() for value in values):
        trust(str(value))
    base = read_plan(Path(name), named) if name.endswith(SUFFIXES) else builtin_plan(name) if name else None
    numbers = tuple(range(1, seeds + 1)) if isinstance(seeds, int) else tuple(seeds)
    asked = changed(base or Plan("sweep", (), ()), recipes, envs, numbers, iterations, steps, protocol, given)
    options = SweepOptions(address, workers, threads, gpus_per_run)
    options.check()
    directory = Path(out or f"runs/{asked.name}")
    expanded = multiply(asked, directory, threads, "cuda" if gpus_per_run else "cpu")
    request = sweep.SweepRequest(asked.name, expanded, directory, options, Rates(None), dry_run=dry_run)
    entries = sweep.run_sweep(request, print if progress else lambda line: None).entries
    return [SweptRun(each.run.name, each.run.config.directory, each.state, each.error) for each in entries]


def _checked(config: Config) -> Config:
    """The same config; rejects values of the wrong type, as for a file or the command line."""
    if isinstance(config.run_dir, os.PathLike):
        config = replace(config, run_dir=os.fspath(config.run_dir))
    same: Config = from_json(to_json(config))
    for slot in SLOTS:
        trust(part_name(getattr(same.recipe, slot)))
    if same.recipe.phi.kind.partition(":")[0] in sys.modules:  # imported by the user
        trust(same.recipe.phi.kind)
    return same
