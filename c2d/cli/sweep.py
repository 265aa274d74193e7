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
    from c2d.sweep.plan import Plan
    from c2d.sweep.terms import Terms


@dataclass(frozen=True)
class Conditions:
    """Where and how the runs go on."""

    workers: int | None = None
    """Runs at the same time. Default: as many as fit into cores, GPUs and memory."""
    threads: int = 1
    """CPU threads of each run. Two runs of one thread give more than one run of two."""
    gpus_per_run: float = 0.0
    """Share of a GPU for each run: 0.25 puts four on each GPU."""
    device: str | None = None
    """Where networks live. Default: cuda if --gpus-per-run is given, else cpu."""
    address: str | None = None
    """HOST:PORT of a Ray cluster to run on. Default: the variable RAY_ADDRESS, else an embedded Ray on this machine."""
    retries: int = 3
    """How often a run is started again from its last checkpoint after its process or its node died."""
    budget: str | None = None
    """Stop after this time, such as 6h or 30min, with everything saved; the same command goes on."""
    rate: float | None = None
    """Agent steps per second of one run, for the forecast. Default: as measured in the directory, else a table."""
    keep_replay: bool = True
    """Keep the checkpoint of a finished run, replay and all, so that it can be trained further. False saves disk."""
    ship: bool = False
    """Copy results through Ray even to nodes that see the same disk; other nodes always do."""
    dry_run: bool = False
    """Show the plan with its time, memory and disk, and run nothing."""
    trust: tyro.conf.UseAppendAction[tuple[str, ...]] = ()
    """A part of your own that the runs use, my_package.my_module:MyHead; can be given several times."""


@dataclass(frozen=True)
class Sweep(Conditions):
    """What to run."""

    plan: tyro.conf.Positional[str] = ""
    """A plan: paper, minatar, minatar-c2d, paper-claims, ablate-rainbow-c2d, smoke, or a file (.toml, .yaml).
    Instead of one, --recipes and --envs are enough."""
    recipes: str = ""
    """Recipes, separated by commas: c2d,c51."""
    envs: Annotated[str, tyro.conf.arg(aliases=["--env"])] = ""
    """Environments, separated by commas; patterns as in minatar/* or atari/* (the paper's 55 games)."""
    seeds: str = ""
    """How many seeds (3 means 1, 2 and 3), or which: 4,5. Default: the plan's, else 3."""
    iterations: int | None = None
    """Iterations of each run. Default: the plan's, else what `c2d train` does."""
    steps: int | None = None
    """Agent steps of each run, rounded up to whole iterations; instead of --iterations."""
    protocol: str | None = None
    """Atari rules by name: c2d-paper, dopamine or dopamine-2024."""
    set: tuple[str, ...] = ()
    """Settings of every run by their names in `c2d train`: optim.learning-rate=1e-4, one or more after each --set.
    Several values, separated by commas, make as many runs."""
    out: str | None = None
    """Directory for the runs. Default: runs/PLAN."""
    cost: bool = False
    """Show what the plan would take on 1, 8 and 64 GPUs at assumed rates, or at --rate, and run nothing."""


@dataclass(frozen=True)
class Ablate(Sweep):
    """What to take apart."""

    plan: tyro.conf.Positional[str] = "rainbow-c2d"
    """The recipe whose ingredients are removed one by one."""


@dataclass(frozen=True)
class Retry(Conditions):
    """What to try again."""

    directory: tyro.conf.Positional[str] = ""
    """Directory of a sweep."""
    failed: bool = False
    """Only the runs that failed. Without it: all that are not finished."""
    envs: str = ""
    """Environment classes of your own that the runs use: code is never imported because a file names it."""
    phi: str | None = None
    """A φ of your own that the runs use, for the same reason."""


def main(arguments: Sequence[str]) -> None:
    words = list(arguments)
    if words[:1] == ["status"]:
        _status(words[1:])
    elif words[:1] == ["retry"]:
        _retry(words[1:])
    else:
        text = (
            "Run recipes × environments × seeds on what is there: this machine's cores and GPUs, or a Ray cluster. "
            "The same command again goes on where it was. `c2d sweep status DIR` shows how a sweep stands, "
            "`c2d sweep retry DIR --failed` tries failed runs again."
        )
        chosen = options(Sweep, _gathered(words), "c2d sweep", text)
        _go(_plan(chosen), chosen)


def ablate(arguments: Sequence[str]) -> None:
    text = "Run a recipe, and the recipe without each of its ingredients. All options of `c2d sweep` apply."
    chosen = options(Ablate, _gathered(arguments), "c2d ablate", text)
    from c2d.sweep.shipped import ablation_plan

    _trust(chosen)
    _go(_changed(ablation_plan(chosen.plan), chosen), chosen)


def _gathered(words: Sequence[str]) -> list[str]:
    """Several `--set` are one."""
    others: list[str] = []
    given: list[str] = []
    setting = False
    for place, word in enumerate(words):
        follows = setting and ("=" in word or words[place - 1] == "--set") and not word.startswith("--")
        setting = word == "--set" or follows
        if word.startswith("--set="):
            given.append(word.removeprefix("--set="))
        elif follows:
            given.append(word)
        elif not setting:
            others.append(word)
    return [*others, "--set", *given] if given else others


# ------------------------------------------------------------------------------------------------------- the plan


def _plan(chosen: Sweep) -> Plan:
    from c2d.sweep.plan import Plan
    from c2d.sweep.planfile import SUFFIXES, read_plan, split
    from c2d.sweep.shipped import PLANS, shipped_plan

    _trust(chosen)
    if chosen.plan.endswith(SUFFIXES):
        plan = read_plan(Path(chosen.plan), tuple(split(chosen.envs)))
        return _changed(plan, replace(chosen, envs="") if _only_names_code(chosen.envs) else chosen)
    if chosen.plan:
        return _changed(shipped_plan(chosen.plan), chosen)
    if not chosen.recipes or not chosen.envs:
        raise UserError(
            f"what is to be run? c2d sweep PLAN, with a plan of {', '.join(PLANS)} or a file, "
            "or c2d sweep --recipes c2d,c51 --envs minatar/*"
        )
    return _changed(Plan("sweep", (), ()), chosen)


def _trust(chosen: Sweep) -> None:
    """Code that the command line names may be imported."""
    from c2d.recipes.user_code import trust

    for name in (*chosen.trust, *(str(value) for values in _settings(chosen).values() for value in values)):
        trust(name)


def _only_names_code(envs: str) -> bool:
    from c2d.sweep.planfile import split

    return all(":" in env for env in split(envs))


def _changed(plan: Plan, chosen: Sweep) -> Plan:
    """A plan with what the command line says."""
    from c2d.sweep.planfile import split
    from c2d.sweep.variants import Variant

    changes: dict[str, Any] = {}
    if chosen.recipes:
        changes["variants"] = tuple(Variant(name, name) for name in split(chosen.recipes))
    if chosen.envs:
        changes["envs"] = tuple(split(chosen.envs))
    if chosen.seeds:
        changes["seeds"] = _seeds(chosen.seeds)
    if chosen.iterations is not None or chosen.steps is not None:
        changes |= {"iterations": chosen.iterations, "steps": chosen.steps}
    if chosen.protocol is not None:
        changes["protocol"] = chosen.protocol
    given = _settings(chosen)
    one = {name: values[0] for name, values in given.items() if len(values) == 1}
    several = {name: values for name, values in given.items() if len(values) > 1}
    return replace(plan, settings={**plan.settings, **one}, grid={**plan.grid, **several}, **changes)


def _settings(chosen: Sweep) -> dict[str, tuple[Any, ...]]:
    """optim.learning-rate=1e-4,5e-5 → {"optim.learning-rate": (0.0001, 5e-05)}"""
    from c2d.sweep.planfile import split
    from c2d.sweep.settings import plain

    found = {}
    for text in chosen.set:
        name, equals, values = text.partition("=")
        if not equals or not values:
            raise UserError(f'--set "{text}" cannot be read; accepted: setting=value, or setting=value,value')
        found[name.strip().removeprefix("--")] = tuple(plain(value) for value in split(values))
    return found


def _seeds(text: str) -> tuple[int, ...]:
    try:
        numbers = [int(word) for word in text.split(",")]
    except ValueError:
        numbers = [0]
    if len(numbers) == 1 and "," not in text:
        if numbers[0] < 1:
            raise UserError(f"--seeds is {text}; accepted: how many, at least 1, or a list such as 4,5")
        return tuple(range(1, numbers[0] + 1))
    return tuple(numbers)


# ---------------------------------------------------------------------------------------------------------- doing


def _go(plan: Plan, chosen: Sweep) -> None:
    from c2d.sweep.forecast import Rates
    from c2d.sweep.plan import multiply
    from c2d.sweep.sweep import Order, sweep

    terms, where = _terms(chosen), Path(chosen.out or f"runs/{plan.name}")
    listing = multiply(plan, where, chosen.threads, _device(chosen))
    if chosen.cost:
        from c2d.sweep.cost import cost_lines
        from c2d.sweep.forecast import need

        _print(f"c2d sweep | cost of plan {plan.name}")
        print("\n".join(cost_lines(listing.runs, [need(run, Rates(chosen.rate)) for run in listing.runs], chosen.rate)))
        return
    sweep(Order(plan.name, listing, where, terms, Rates(chosen.rate), dry_run=chosen.dry_run), _print)


def _terms(chosen: Conditions) -> Terms:
    from c2d.sweep.terms import Terms, seconds

    terms = Terms(
        address=chosen.address or os.environ.get("RAY_ADDRESS") or None,
        workers=chosen.workers,
        threads=chosen.threads,
        gpus=chosen.gpus_per_run,
        retries=chosen.retries,
        ship=chosen.ship,
        keep_replay=chosen.keep_replay,
        budget=None if chosen.budget is None else seconds(chosen.budget),
    )
    terms.check()
    if chosen.rate is not None and not 0.0 < chosen.rate < float("inf"):
        raise UserError(f"--rate is {chosen.rate:g}; accepted: greater than 0")
    return terms


def _device(chosen: Conditions) -> str:
    return chosen.device or ("cuda" if chosen.gpus_per_run else "cpu")


def _status(words: list[str]) -> None:
    from c2d.sweep.directory import SweepDir
    from c2d.sweep.status import lines

    words = take_trust(words)
    if len(words) != 1 or words[0].startswith("-"):
        raise UserError("which sweep? c2d sweep status DIR, a directory that `c2d sweep` made")
    print(printable("\n".join(lines(SweepDir(words[0])))))


def _retry(words: list[str]) -> None:
    chosen = options(Retry, words, "c2d sweep retry", "Run again what failed, or all that is not finished.")
    if not chosen.directory:
        raise UserError("which sweep? c2d sweep retry DIR --failed, a directory that `c2d sweep` made")
    from c2d.recipes.user_code import trust
    from c2d.sweep.again import listing_of
    from c2d.sweep.forecast import Rates
    from c2d.sweep.planfile import split
    from c2d.sweep.sweep import Order, sweep

    for name in (*chosen.trust, chosen.phi or ""):
        trust(name)
    where = Path(chosen.directory)
    listing = listing_of(where, chosen.failed, tuple(split(chosen.envs)), chosen.threads, _device(chosen))
    sweep(Order("retry", listing, where, _terms(chosen), Rates(chosen.rate), True, chosen.dry_run), _print)


def _print(line: str) -> None:
    print(printable(line), flush=True)
