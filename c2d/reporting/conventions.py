"""Which iterations of a run make its score: two conventions, both of the paper.

An iteration is 1M frames; the published baselines have 199 of them, the published C2D runs 200.

* `table`: the mean of the 5 iterations up to a point: 5-9 (10M), 45-49 (50M), 95-99 (100M), 194-198 (200M), counted
  from 0. With n - 1 in the standard deviation it gives every cell of the paper's score table.
* `figures`: one raw iteration, as the paper's figures were drawn: the last of each agent (199 for C2D, 198 for the
  others) for the aggregates, 198 for profiles and the end of curves, and the human score of Tennis -9.3.
"""

from __future__ import annotations

from dataclasses import dataclass

from c2d.errors import UserError, did_you_mean
from c2d.reporting.curves import Run

NOMINAL = 200.0  # what the literature calls the end of training
COMMON = 199.0  # millions of frames that every published run has
CHECKPOINTS = (10.0, 50.0, 100.0, 200.0)  # of the paper's score table


@dataclass(frozen=True)
class Convention:
    """How scores are taken from curves."""

    name: str
    window: float  # millions of frames averaged
    own_last: bool  # at 200M each run's last iteration, instead of the last that all have
    references: str  # table of random and human scores that belongs to it
    words: str

    def score(self, run: Run, frames: float) -> float:
        """The score at a nominal number of frames; NaN if the run does not tell."""
        if frames < NOMINAL:
            return run.score(frames, self.window)
        if self.own_last:
            last = run.score(NOMINAL, self.window)
            return run.score(COMMON, self.window) if last != last else last
        return run.score(COMMON, self.window)


CONVENTIONS = {
    "table": Convention("table", 5.0, False, "dqn-zoo", "mean of the last 5M frames (5 iterations)"),
    "figures": Convention("figures", 1.0, True, "paper-figures", "one raw iteration of 1M frames"),
}


def convention(name: str) -> Convention:
    if name not in CONVENTIONS:
        hint = did_you_mean(name, CONVENTIONS)
        raise UserError(f'unknown convention "{name}".{hint} Conventions: {", ".join(CONVENTIONS)}')
    return CONVENTIONS[name]
