"""Plans that come with the project, by name."""

from __future__ import annotations

from collections.abc import Callable

from c2d.envs.games import BENCHMARK
from c2d.errors import UserError, did_you_mean
from c2d.recipes.rows import find
from c2d.sweep.plan import Plan
from c2d.sweep.variants import MINATAR, MINATAR_C2D, PAPER, PAPER_CLAIMS, Variant, ablations

_TWO_GAMES = ("minatar/breakout", "minatar/space_invaders")
_QUICK = {"schedule.steps-per-iteration": 1_000, "schedule.random-history": 200}


def _paper() -> Plan:
    return Plan("paper", PAPER, tuple(f"atari/{game}" for game in BENCHMARK), (1, 2, 3))


def _minatar() -> Plan:
    return Plan("minatar", MINATAR, _TWO_GAMES, (1, 2), steps=100_000)


def _minatar_c2d() -> Plan:
    return Plan("minatar-c2d", MINATAR_C2D, ("minatar/breakout",), (1, 2), steps=100_000)


def _claims() -> Plan:
    return Plan("paper-claims", PAPER_CLAIMS, _TWO_GAMES, (1, 2), steps=100_000)


def _smoke() -> Plan:
    variants = (Variant("c2d", "c2d"), Variant("c51", "c51"))
    return Plan("smoke", variants, ("toy/sure", "minatar/breakout"), (1,), iterations=2, settings=_QUICK)


def ablation_plan(recipe: str) -> Plan:
    """A recipe and the recipe without each of its ingredients."""
    variants = tuple(ablations(recipe, find(recipe)))
    return Plan(f"ablate-{recipe}", variants, ("minatar/breakout",), (1, 2, 3), steps=100_000)


PLANS: dict[str, tuple[Callable[[], Plan], str]] = {
    "paper": (_paper, "the paper's study: 55 Atari games, 3 seeds, C2D, C51, IQN, Rainbow and DQN, 200M frames each"),
    "minatar": (_minatar, "the field on two MinAtar games, 100,000 steps"),
    "minatar-c2d": (_minatar_c2d, "C2D on MinAtar Breakout with one setting changed at a time"),
    "paper-claims": (_claims, "the paper's design claims on two MinAtar games"),
    "ablate-rainbow-c2d": (lambda: ablation_plan("rainbow-c2d"), "rainbow-c2d without each of its ingredients"),
    "smoke": (_smoke, "four runs of some seconds, to see that everything works"),
}


def shipped_plan(name: str) -> Plan:
    if name not in PLANS:
        hint = did_you_mean(name, PLANS)
        raise UserError(
            f'unknown plan "{name}".{hint} Plans: {", ".join(PLANS)}; or a file that ends in .toml, .yaml or .yml'
        )
    return PLANS[name][0]()
