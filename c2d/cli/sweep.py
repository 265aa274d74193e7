"""c2d sweep [PLAN], c2d sweep status DIR, c2d sweep retry DIR, c2d ablate RECIPE"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from c2d.cli.settings import options, take_trust
from c2d.errors import UserError
from c2d.formatting import printable

if TYPE_CHECKING:
    from c2d.sweep.options import SweepOptions
    from c2d.sweep.plan import Plan


@dataclass(frozen=True)
class _Execution:
    """How and where to run."""

    workers: int | None = None
    """Runs at the same time. None: as many as fit into cores, GPUs and memory."""
    threads: int = 1
    """CPU threads per run. Two runs with one thread each are faster than one run with two."""
    gpus_per_run: float = 0.0
    """Share of a GPU per run: 0.25 puts four runs on each GPU."""
    device: str | None = None
    """Device of the networks. None: cuda if --gpus-per-run is given, else cpu."""
    address: str | None = None
    """HOST:PORT of a Ray cluster. None: the environment variable RAY_ADDRESS, else embedded Ray on this machine."""
    retries: int = 3
    """How often a run restarts from its last checkpoint after its process or node died."""
    budget: str | None = None
    """Stop after this time, such as 6h or 30min, with everything saved; rerun the command to resume."""
    rate: float | None = None
    """Agent steps per second of one run, for the forecast. None: measured in the directory, else reference rates."""
    keep_replay: bool = True
    """Keep the checkpoint of a finished run with its replay, so that it can be trained further. False saves disk."""
    ship: bool = False
    """Copy results through Ray even from nodes that share the disk; others always do."""
    dry_run: bool = False
    """Show the plan with its time, memory and disk; run nothing."""
    trust: tyro.conf.UseAppendAction[tuple[str, ...]] = ()
    """Your own part that the runs use, my_package.my_module:MyHead; can be given several times."""


@dataclass(frozen=True)
class _Sweep(_Execution):
    """What to run."""

    plan: tyro.conf.Positional[str] = ""
    """A plan: paper, btr, minatar, minatar-c2d, paper-claims, ablate-rainbow-c2d, smoke, or a file (.toml, .yaml).
    Without one, --recipes and --envs are required."""
    recipes: str = ""
    """Recipes, separated by commas: c2d,c51."""
    envs: Annotated[str, tyro.conf.arg(aliases=["--env"])] = ""
    """Environments, separated by commas; patterns such as minatar/* or atari/* (the paper's 55 games)."""
    seeds: str = ""
    """How many seeds (3 means 1, 2 and 3), or which: 4,5. Empty: the plan's, else 3."""
    iterations: int | None = None
    """Iterations of each run. None: the plan's, else that of `c2d train`."""
    steps: int | None = None
    """Agent steps of each run, rounded up to whole iterations; instead of --iterations."""
    protocol: str | None = None
    """Atari protocol: c2d-paper, dopamine or dopamine-2024."""
    set: tuple[str, ...] = ()
    """Settings of every run, names as in `c2d train`: optim.learning-rate=1e-4, one or more after each --set.
    Several values, separated by commas, give one run each."""
    out: str | None = None
    """Directory for the runs. None: runs/PLAN."""
    cost: bool = False
    """Show the cost of the plan on 1, 8 and 64 GPUs at assumed rates, or at --rate; run nothing."""


@dataclass(frozen=True)
class _Ablate(_Sweep):
    """Which recipe to ablate."""

    plan: tyro.conf.Positional[str] = "rainbow-c2d"
    """The recipe whose ingredients are removed one at a time."""


@dataclass(frozen=True)
class _Retry(_Execution):
    """What to retry."""

    directory: tyro.conf.Positional[str] = ""
    """The directory of a sweep."""
    failed: bool = False
    """Only runs that failed, not all unfinished ones."""
    envs: str = ""
    """Your own environment classes that the runs use: code is never imported because a file names it."""
    phi: str | None = None
    """Your own φ that the runs use, for the same reason."""


def main(arguments: Sequence[str]) -> None:
    words = list(arguments)
    if words[:1] == ["status"]:
        _status(words[1:])
    elif words[:1] == ["retry"]:
        _retry(words[1:])
    else:
        text = (
            "Run recipes × environments × seeds on this machine's cores and GPUs, or on a Ray cluster. Rerun the same "
            "command to resume. `c2d sweep status DIR` shows the state of a sweep, `c2d sweep retry DIR --failed` "
            "retries failed runs."
        )
        chosen = options(_Sweep, _merge_set(words), "c2d sweep", text)
        _run(_plan(chosen), chosen)


def ablate(arguments: Sequence[str]) -> None:
    text = "Run a recipe, and the recipe without each of its ingredients. All options of `c2d sweep` apply."
    chosen = options(_Ablate, _merge_set(arguments), "c2d ablate", text)
    from c2d.sweep.plan import ablation_plan

    _trust(chosen)
    _run(_with_options(ablation_plan(chosen.plan), chosen), chosen)


def _merge_set(words: Sequence[str]) -> list[str]:
    """Merge several `--set` into one."""
    others: list[str] = []
    settings: list[str] = []
    in_set = False
    for place, word in enumerate(words):
        follows = in_set and ("=" in word or words[place - 1] == "--set") and not word.startswith("--")
        in_set = word == "--set" or follows
        if word.startswith("--set="):
            settings.append(word.removeprefix("--set="))
        elif follows:
            settings.append(word)
        elif not in_set:
            others.append(word)
    return [*others, "--set", *settings] if settings else others


# ------------------------------------------------------------------------------------------------------- the plan


def _plan(chosen: _Sweep) -> Plan:
    from c2d.sweep.plan import PLANS, Plan, builtin_plan, split_names
    from c2d.sweep.planfile import SUFFIXES, read_plan

    _trust(chosen)
    if chosen.plan.endswith(SUFFIXES):
        plan = read_plan(Path(chosen.plan), tuple(split_names(chosen.envs)))
        return _with_options(plan, replace(chosen, envs="") if _only_names_code(chosen.envs) else chosen)
    if chosen.plan:
        return _with_options(builtin_plan(chosen.plan), chosen)
    if not chosen.recipes or not chosen.envs:
        raise UserError(
            f"no plan given; accepted: c2d sweep PLAN, a file or one of {', '.join(PLANS)}, "
            "or c2d sweep --recipes c2d,c51 --envs minatar/*"
        )
    return _with_options(Plan("sweep", (), ()), chosen)


def _trust(chosen: _Sweep) -> None:
    """Code that the command line names may be imported."""
    from c2d.user_code import trust

    for name in (*chosen.trust, *(str(value) for values in _settings(chosen).values() for value in values)):
        trust(name)


def _only_names_code(envs: str) -> bool:
    from c2d.sweep.plan import split_names

    return all(":" in env for env in split_names(envs))


def _with_options(plan: Plan, chosen: _Sweep) -> Plan:
    """The plan with the changes of the command line."""
    from c2d.sweep.plan import changed, split_names

    recipes, envs = split_names(chosen.recipes), split_names(chosen.envs)
    seeds = _seeds(chosen.seeds) if chosen.seeds else ()
    length = chosen.iterations, chosen.steps
    return changed(plan, recipes, envs, seeds, *length, chosen.protocol, _settings(chosen))


def _settings(chosen: _Sweep) -> dict[str, tuple[Any, ...]]:
    """optim.learning-rate=1e-4,5e-5 → {"optim.learning-rate": (0.0001, 5e-05)}"""
    from c2d.sweep.plan import parse_value, split_names

    settings = {}
    for text in chosen.set:
        name, equals, values = text.partition("=")
        if not equals or not values:
            raise UserError(f'--set is "{text}"; accepted: setting=value, or setting=value,value')
        settings[name.strip().removeprefix("--")] = tuple(parse_value(value) for value in split_names(values))
    return settings


def _seeds(text: str) -> tuple[int, ...]:
    try:
        numbers = [int(word) for word in text.split(",")]
    except ValueError:
        numbers = [0]
    if len(numbers) == 1 and "," not in text:
        if numbers[0] < 1:
            raise UserError(f"--seeds is {text}; accepted: a number of seeds, at least 1, or a list such as 4,5")
        return tuple(range(1, numbers[0] + 1))
    return tuple(numbers)


# -------------------------------------------------------------------------------------------------------- running


def _run(plan: Plan, chosen: _Sweep) -> None:
    from c2d.sweep.forecast import Rates, cost_lines, estimate
    from c2d.sweep.plan import multiply
    from c2d.sweep.run_sweep import SweepRequest, run_sweep

    sweep_options, path = _sweep_options(chosen), Path(chosen.out or f"runs/{plan.name}")
    expanded = multiply(plan, path, chosen.threads, _device(chosen))
    if chosen.cost:
        _print(f"c2d sweep | cost of plan {plan.name}")
        estimates = [estimate(run, Rates(chosen.rate)) for run in expanded.runs]
        print("\n".join(cost_lines(expanded.runs, estimates, chosen.rate)))
        return
    rates = Rates(chosen.rate)
    run_sweep(SweepRequest(plan.name, expanded, path, sweep_options, rates, dry_run=chosen.dry_run), _print)


def _sweep_options(chosen: _Execution) -> SweepOptions:
    from c2d.sweep.options import SweepOptions, parse_budget

    sweep_options = SweepOptions(
        address=chosen.address or os.environ.get("RAY_ADDRESS") or None,
        workers=chosen.workers,
        threads=chosen.threads,
        gpus=chosen.gpus_per_run,
        retries=chosen.retries,
        ship=chosen.ship,
        keep_replay=chosen.keep_replay,
        budget=None if chosen.budget is None else parse_budget(chosen.budget),
    )
    sweep_options.check()
    if chosen.rate is not None and not 0.0 < chosen.rate < float("inf"):
        raise UserError(f"--rate is {chosen.rate:g}; accepted: greater than 0")
    return sweep_options


def _device(chosen: _Execution) -> str:
    return chosen.device or ("cuda" if chosen.gpus_per_run else "cpu")


def _status(words: list[str]) -> None:
    from c2d.sweep.directory import SweepDir, status_lines

    if {"-h", "--help"} & set(words):
        print("usage: c2d sweep status DIR [--trust NAME]\n\nShow what of a sweep runs, failed and is left.")
        return
    words = take_trust(words)
    if len(words) != 1 or words[0].startswith("-"):
        raise UserError("no sweep given; accepted: c2d sweep status DIR, the directory of a sweep")
    print(printable("\n".join(status_lines(SweepDir(words[0])))))


def _retry(words: list[str]) -> None:
    chosen = options(_Retry, words, "c2d sweep retry", "Retry the failed runs, or all unfinished ones.")
    if not chosen.directory:
        raise UserError("no sweep given; accepted: c2d sweep retry DIR --failed, the directory of a sweep")
    from c2d.sweep.directory import runs_to_retry
    from c2d.sweep.forecast import Rates
    from c2d.sweep.plan import split_names
    from c2d.sweep.run_sweep import SweepRequest, run_sweep
    from c2d.user_code import trust

    for name in (*chosen.trust, chosen.phi or ""):
        trust(name)
    path = Path(chosen.directory)
    expanded = runs_to_retry(path, chosen.failed, tuple(split_names(chosen.envs)), chosen.threads, _device(chosen))
    request = SweepRequest("retry", expanded, path, _sweep_options(chosen), Rates(chosen.rate), True, chosen.dry_run)
    run_sweep(request, _print)


def _print(line: str) -> None:
    print(printable(line), flush=True)
