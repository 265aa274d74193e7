"""The results of the quickstart: one seed as text, several as a Markdown table."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from c2d.evaluation.statistics import Summary


@dataclass(frozen=True)
class QuickstartResult:
    """The result of one seed: random play, then the trained agent."""

    seed: int
    run: str  # its directory
    random: Summary
    trained: Summary
    goal: float  # times the random mean
    steps: int  # of training
    training_seconds: float  # of the iterations, without the initial random steps
    seconds: float  # total

    @property
    def learned(self) -> bool:
        return self.trained.mean >= self.goal * self.random.mean and self.trained.mean > self.random.mean

    @property
    def ratio(self) -> str:
        return f"{self.trained.mean / self.random.mean:.1f}" if self.random.mean > 0 else "–"

    @property
    def interval(self) -> str:
        return "–" if self.trained.interval is None else "{:.2f} to {:.2f}".format(*self.trained.interval)

    def report(self) -> list[str]:
        """Text for the terminal."""
        lines = [
            "",
            f"random play    mean {self.random.mean:.2f} over {self.random.games} games",
            f"trained agent  mean {self.trained.mean:.2f} over {self.trained.games} games "
            f"(95 % interval {self.interval})",
            f"ratio          {self.ratio} times random play",
            f"learned        {'yes' if self.learned else 'no'} (yes: at least {self.goal:g} times random play)",
            f"time taken     {timedelta(seconds=round(self.seconds))}",
        ]
        if not self.learned:
            lines.append(
                f"The agent did not reach {self.goal:g} times the score of random play in {self.steps:,} steps: "
                "try another --seed."
            )
        return lines

    def one_line(self) -> str:
        return (
            f"seed {self.seed}: random {self.random.mean:.2f}, trained {self.trained.mean:.2f} "
            f"({self.interval}), ratio {self.ratio}, learned: {'yes' if self.learned else 'no'}, "
            f"{self.seconds:.0f} s"
        )


def page(
    results: list[QuickstartResult],
    env: str,
    random_games: int,
    games: int,
    epsilon: float,
    command: str,
    versions: dict[str, str],
    machine: dict[str, Any],
) -> str:
    """The results of several seeds as a Markdown page."""
    rows = [
        f"| {one.seed} | {one.random.mean:.2f} | {one.trained.mean:.2f} | {one.interval} | {one.ratio} | "
        f"{'yes' if one.learned else 'no'} | {one.seconds:.0f} | {one.steps / one.training_seconds:.0f} |"
        for one in results
    ]
    reached = sum(one.learned for one in results)
    return "\n".join(
        [
            "# Quickstart: does it learn?",
            "",
            f"C2D on {env}, {results[0].steps:,} steps of training per seed. Random mean: uniformly random play, "
            f"{random_games} games.",
            f"Trained mean: {games} complete games at ε = {epsilon:g} after training, with a 95 % bootstrap interval.",
            f"Goal: at least {results[0].goal:g} times the random mean. {reached} of {len(results)} seeds reached it.",
            "",
            "| seed | random mean | trained mean | interval | ratio | goal | seconds | steps/s |",
            "|---:|---:|---:|---|---:|---|---:|---:|",
            *rows,
            "",
            f"- Command: `{command}`",
            f"- Versions: {', '.join(f'{name} {version}' for name, version in versions.items())}",
            f"- Machine: {machine['cpu']}, {machine['cores']} cores; one thread",
            "",
        ]
    )
