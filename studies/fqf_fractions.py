"""How far FQF's fraction network moves in training, and how much of that float32 loses.

    .venv/bin/python studies/fqf_fractions.py --updates 1000 --out docs/results/fqf-fractions.md

Trains the recipe `fqf` from scratch. In parallel to the network's own weights, the same steps are taken in float64 from
the same gradients (exact sums), and in float32 from gradients averaged over the batch instead of summed.
"""

from __future__ import annotations

import argparse
import shlex
import sys
import time
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from c2d.config import default_config
from c2d.files import write_atomically
from c2d.recipes.parts import Fraction
from c2d.training.passport import machine, versions
from c2d.training.session import Session

HEADER = (
    "| environment | updates | weights bit-equal to the first | never had a gradient | bit-equal, had gradients "
    "been averaged | moved, rms | in exact sums, rms | weights, rms | shares of the fractions at first | largest "
    "change of a share |\n" + "|---" * 10 + "|"
)


class Shadow:
    """Centered RMSProp on a copy of the weights, written out."""

    def __init__(self, weight: Tensor, head: Fraction, kind: torch.dtype) -> None:
        self.rate, self.decay, self.eps = head.learning_rate, head.decay, head.eps
        self.first = weight.detach().to(kind, copy=True)
        self.weight = self.first.clone()
        self.mean, self.square = torch.zeros_like(self.first), torch.ones_like(self.first)

    def step(self, gradient: Tensor) -> None:
        g = gradient.to(self.first.dtype)
        self.mean = self.decay * self.mean + (1 - self.decay) * g
        self.square = self.decay * self.square + (1 - self.decay) * g * g
        self.weight -= self.rate * g / (self.square - self.mean**2 + self.eps).sqrt()

    def still(self) -> float:
        """Percentage of weights that have not moved."""
        return 100 * (self.weight == self.first).double().mean().item()


def measure(env: str, updates: int, marks: int) -> list[str]:
    config = default_config(env, "fqf", seed=1, threads=1)
    history = min(config.recipe.schedule.random_history, 5_000)
    config = replace(
        config, recipe=replace(config.recipe, schedule=replace(config.recipe.schedule, random_history=history))
    )
    session = Session(config)
    session.fill_history()
    head = session.learner.online.head
    settings = config.recipe.head
    assert isinstance(settings, Fraction)
    layer, weight = head.fractions, head.fractions.weight
    exact, averaged = Shadow(weight, settings, torch.float64), Shadow(weight, settings, torch.float32)
    obs = session.replay.sample(32, session.sampling).obs

    @torch.no_grad()
    def shares() -> Tensor:
        """For 32 stored observations: the current fraction layer on the features of the untrained encoder."""
        found: Tensor = layer(features).softmax(-1)
        return found

    with torch.no_grad():
        features = session.learner.online.features(obs, "act").clone()
    before, rows = shares(), []
    while session.learner.updates < updates:
        made = session.learner.updates
        session.advance()
        if session.learner.updates == made:
            continue
        assert weight.grad is not None
        exact.step(weight.grad)
        averaged.step(weight.grad / config.recipe.schedule.batch_size)
        if session.learner.updates % max(updates // marks, 1) == 0:
            now = weight.detach().double()
            same = 100 * (now == exact.first).double().mean().item()
            moved, should, size = (x.square().mean().sqrt().item() for x in
                                   (now - exact.first, exact.weight - exact.first, exact.first))  # fmt: skip
            change = (shares() - before).abs().max().item()
            rows.append(
                f"| {env} | {session.learner.updates:,} | {same:.1f} % | {exact.still():.1f} % | "
                f"{averaged.still():.1f} % | {moved:.1e} | {should:.1e} | {size:.1e} | "
                f"{before.min().item():.3f} to {before.max().item():.3f} | {change:.1e} |"
            )
            print(rows[-1], flush=True)
    session.env.close()
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--env", nargs="+", default=["breakout", "minatar/breakout"])
    parser.add_argument("--updates", type=int, default=1_000)
    parser.add_argument("--marks", type=int, default=4, help="rows per environment")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    print(HEADER, flush=True)
    rows = [row for env in options.env for row in measure(env, options.updates, options.marks)]
    if options.out is None:
        return
    facts = machine(1)
    page = [
        "# FQF's fraction network in float32",
        "",
        "The recipe `fqf` trained from scratch, seed 1. The fraction network's learning rate is the paper's, 2.5e-9: "
        "how far do its weights move, and how much of this is lost because float32 cannot represent the sum of a "
        'weight and a much smaller step? "Exact sums" takes the same steps from the same gradients in float64. Shares '
        "are those of 32 stored observations, with the initial encoder, so that only the fraction network changes "
        "them; 32 equal shares would be 0.031 each. The authors sum the gradient over the batch, and so does the "
        "recipe; one column shows the effect of the mean instead.",
        "",
        HEADER,
        *rows,
        "",
        f"Command: `python {shlex.join(sys.argv)}`, {time.strftime('%d %B %Y', time.gmtime())}. "
        f"{facts['cpu']}, {facts['system']}; {', '.join(f'{k} {v}' for k, v in versions().items())}.",
        "",
        "<!-- notes -->",
    ]
    kept = options.out.read_text().partition("<!-- notes -->")[2] if options.out.is_file() else ""
    write_atomically(options.out, ("\n".join(page) + (kept or "\n")).encode())


if __name__ == "__main__":
    main()
