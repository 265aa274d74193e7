"""c2d check-env ENV [options]"""

from __future__ import annotations

import json
import shutil
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

import tyro

from c2d.bench.env_check import EnvReport, check_env
from c2d.cli.settings import options
from c2d.cli.train import take_environment_options
from c2d.errors import UserError
from c2d.formatting import finite_for_json, plural

DESCRIPTION = (
    "Play an environment at random and say, line by line, whether it is fit for training and what C2D will do with "
    "it: ok, note (worth knowing, perhaps worth changing), or problem. Exit code: 0 without problems, 1 with problems, "
    "2 if the environment cannot be found or built. --env-kwargs.NAME and --wrapper are as for c2d train."
)


@dataclass(frozen=True)
class CheckOptions:
    """The options of `c2d check-env`."""

    env: tyro.conf.Positional[str] = ""
    """Environment: my_package.my_module:MyEnv, gym/CartPole-v1, minatar/breakout, breakout."""
    recipe: str = "c2d"
    """The algorithm that is to be trained."""
    steps: int = 5_000
    """Steps of random play."""
    seed: int = 0
    """Seed of the environment and of the random actions."""
    seconds: float = 60.0
    """Longest random play; with fewer steps, the report says so."""
    timeout: float = 20.0
    """Seconds that a single call of the environment may take."""
    json: bool = False
    """Print the findings as JSON."""


def main(arguments: Sequence[str]) -> None:
    env_kwargs, wrappers, rest = take_environment_options(list(arguments))
    chosen = options(CheckOptions, rest, "c2d check-env", DESCRIPTION)
    if not chosen.env:
        raise UserError("no environment given; accepted: c2d check-env ENV, such as my_module:MyEnv")
    report = check_env(
        chosen.env, chosen.recipe, env_kwargs, wrappers, chosen.steps, chosen.seed, chosen.seconds, chosen.timeout
    )
    print(json.dumps(finite_for_json(report.to_json()), indent=2, ensure_ascii=False) if chosen.json else table(report))
    if report.verdict == "problem":
        raise SystemExit(1)


def table(report: EnvReport) -> str:
    """The findings for people: verdict, what was checked, what was found, and below it what to change."""
    width = max(min(shutil.get_terminal_size().columns, 120), 60)
    played = f"{plural(report.facts['steps'], 'random step')}, " if report.facts else ""
    lines = [f"{report.env}: {played}seed {report.seed}", ""]
    left = max([len(finding.check) for finding in report.findings], default=0) + 2
    for finding in report.findings:
        first = f"{finding.verdict:<9}{finding.check:<{left}}"
        blank = " " * len(first)
        lines += textwrap.wrap(finding.found, width, initial_indent=first, subsequent_indent=blank)
        if finding.advice:
            lines += textwrap.wrap(f"→ {finding.advice}", width, initial_indent=blank, subsequent_indent=f"{blank}  ")
    if report.facts:
        lines += ["", *histogram(report.facts)]
    counts = {kind: sum(finding.verdict == kind for finding in report.findings) for kind in ("note", "problem")}
    told = [plural(number, kind) for kind, number in counts.items() if number]
    return "\n".join([*lines, "", f"{' and '.join(told) or 'nothing to change'}"])


def histogram(facts: dict[str, object]) -> list[str]:
    """Rewards of random play, with bars."""
    rows: list[tuple[str, int]] = facts["histogram"]  # type: ignore[assignment]
    left, most = max(len(name) for name, _ in rows), max(count for _, count in rows)
    total = sum(count for _, count in rows)
    return ["rewards of random play"] + [
        f"  {name:>{left}}  {100 * count / total:5.1f} %  {'█' * (-(-30 * count // most))}" for name, count in rows
    ]
