"""What the paper says of its results in prose: the statistic, its interval, and whether the claim holds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from c2d.envs.games import BENCHMARK
from c2d.reporting.aggregate import Matrix, game_means, iqm, mean, median, optimality_gap, profile
from c2d.reporting.bootstrap import paired_interval
from c2d.reporting.conventions import CONVENTIONS
from c2d.reporting.correlation import spearman, spearman_interval
from c2d.reporting.field import Field
from c2d.reporting.ledger.entry import FAILS, HOLDS, LEDGER, PARTLY, PATH, REPORT, UNDECIDED, Entry, without_curves
from c2d.reporting.published import reward_statistics
from c2d.reporting.study import Choice, Estimate, Study

_PART = "Claims about the results"
_BOTH = ("IQN", "Rainbow")
_INTERVAL = "95 % interval"
Statistic = Callable[[Matrix], Matrix]


def study(field: Field, convention: str, replications: int, frames: float = 200.0) -> Study:
    how = CONVENTIONS[convention]
    return Study(field, field.agents, BENCHMARK, frames, Choice(how, how.references, replications))


class Claims:
    """Judges the claims on the published scores, as the paper's figures take them; `table` is the other convention."""

    def __init__(self, field: Field, replications: int) -> None:
        self.field, self.replications = field, replications
        self.figures = study(field, "figures", replications)
        self.table = study(field, "table", replications)

    def entries(self) -> list[Entry]:
        return [
            self._behind(),
            *self._crossings(),
            self._long_term(),
            self._at_human(),
            self._far_above(),
            self._above("Mean", "C2D outperforms IQN and Rainbow in the mean", mean, _BOTH),
            self._par("Median", "In the median C2D is on par with IQN", median),
            self._par("IQM", "In the IQM C2D is comparable to IQN", iqm),
            self._gap(),
            self._above("IQM", "A significant improvement over C51", iqm, ("C51",)),
            self._not_worse(),
            self._early(),
            *self._rewards(),
        ]

    # ------------------------------------------------------------------------------------------ differences

    def _difference(self, of: Study, rival: str, statistic: Statistic) -> Estimate:
        ours, theirs = of.scores("C2D"), of.scores(rival)
        spread = paired_interval(ours, theirs, lambda a, b: statistic(a) - statistic(b), self.replications)
        return Estimate(float(statistic(ours) - statistic(theirs)), spread)

    def _above(self, name: str, words: str, statistic: Statistic, rivals: tuple[str, ...]) -> Entry:
        found = {rival: self._difference(self.figures, rival, statistic) for rival in rivals}
        other = {rival: self._difference(self.table, rival, statistic) for rival in rivals}
        status = _together([_judge(one) for one in found.values()])
        note = f"5M moving averages: {_said(other)}"
        if name == "Mean":
            zero = Study(
                self.field, self.field.agents, BENCHMARK, 200.0, replace(self.table.choice, references="rliable")
            )
            note += (
                f"; with Video Pinball's random score 0: {_said({r: self._difference(zero, r, mean) for r in rivals})}"
            )
        return Entry(
            _PART, f"{words} at 200M", LEDGER, "difference > 0", f"{name}: {_said(found)}", _INTERVAL, status, note
        )

    def _par(self, name: str, words: str, statistic: Statistic) -> Entry:
        found = self._difference(self.figures, "IQN", statistic)
        other = self._difference(self.table, "IQN", statistic)
        status = HOLDS if _holds_zero(found) else FAILS
        ours, note = f"{name}: {_said({'IQN': found})}", f"5M moving averages: {_said({'IQN': other})}"
        return Entry(_PART, f"{words} at 200M", LEDGER, "interval holds 0", ours, _INTERVAL, status, note)

    def _not_worse(self) -> Entry:
        found = self._difference(self.figures, "Rainbow", iqm)
        other = self._difference(self.table, "Rainbow", iqm)
        return Entry(
            _PART,
            "State of the art, comparable to Rainbow: not worse in the IQM at 200M",
            LEDGER,
            "interval not below 0",
            f"IQM: {_said({'Rainbow': found})}",
            _INTERVAL,
            FAILS if _judge(found) == FAILS else HOLDS,
            f"5M moving averages: {_said({'Rainbow': other})}",
        )

    def _gap(self) -> Entry:
        found = self._difference(self.figures, "C51", optimality_gap)
        other = self._difference(self.table, "C51", optimality_gap)
        return Entry(
            _PART,
            "The optimality gap is worse than C51's: weaker where C2D is weak",
            LEDGER,
            "difference > 0 (less is better)",
            f"Optimality gap: {_said({'C51': found})}",
            _INTERVAL,
            _judge(found),
            f"5M moving averages: {_said({'C51': other})}",
        )

    # ------------------------------------------------------------------------------------------ the profile

    def _at_human(self) -> Entry:
        def share(scores: Matrix) -> Matrix:
            return profile(scores, np.array([1.0]))[..., 0]

        found = {rival: self._difference(self.figures, rival, share) for rival in _BOTH}
        status = _together([_judge(Estimate(-one.point, _flipped(one))) for one in found.values()])
        ours = f"share of runs above 1: {float(share(self.figures.scores('C2D'))):.3f}; {_said(found)}"
        words = "At τ = 1 C2D is worse than IQN and Rainbow: fewer games with human-like performance"
        return Entry(_PART, words, LEDGER, "difference < 0", ours, _INTERVAL, status)

    def _far_above(self) -> Entry:
        taus = np.round(np.arange(5.1, 8.01, 0.1), 6)

        def shares(scores: Matrix) -> Matrix:
            return profile(scores, taus)

        ours = shares(self.figures.scores("C2D"))
        ahead = {rival: ours - shares(self.figures.scores(rival)) for rival in _BOTH}
        average = {rival: self._difference(self.figures, rival, lambda m: shares(m).mean(-1)) for rival in _BOTH}
        everywhere = all((gap > 0).all() for gap in ahead.values())
        status = _together([_judge(one) for one in average.values()]) if everywhere else PARTLY
        least = ", ".join(f"{rival} {gap.min():+.3f}" for rival, gap in ahead.items())
        return Entry(
            _PART,
            "C2D keeps super-human performance in a significant portion of games: ahead at τ > 5",
            LEDGER,
            "ahead at every τ from 5.1 to 8",
            f"share of runs above τ, mean difference: {_said(average)}; least lead: {least}",
            _INTERVAL,
            status,
        )

    # ------------------------------------------------------------------------------------------ over training

    def _behind(self) -> Entry:
        """At 150M, from the project's own table."""
        at = study(self.field, "table", self.replications, 150.0)
        found = {rival: self._difference(at, rival, iqm) for rival in _BOTH}
        verdicts = [HOLDS if _judge(Estimate(-f.point, _flipped(f))) == HOLDS else FAILS for f in found.values()]
        status = HOLDS if set(verdicts) == {HOLDS} else FAILS if set(verdicts) == {FAILS} else PARTLY
        words = "Slow at first: more than 150M frames until comparable to IQN and Rainbow in the IQM"
        ours = f"IQM at 150M: {_said(found)}"
        return Entry(_PART, words, LEDGER, "difference < 0 at 150M", ours, _INTERVAL, status, "5M moving averages")

    def _crossings(self) -> list[Entry]:
        words = "The same over all of training: where C2D's IQM passes theirs for good"
        if not self.field.has_curves:
            return [without_curves(_PART, words, "after 150M")]
        ends = np.arange(5.0, 200.0)
        curves = {}
        for agent in ("C2D", *_BOTH):
            at = study(self.field, "table", self.replications)
            course = self.field.course(agent, BENCHMARK, ends, 5.0)
            curves[agent] = np.array([float(iqm(_normal(at, rows))) for rows in course])
        passed = {rival: _crossing(ends, curves["C2D"] - curves[rival]) for rival in _BOTH}
        said = ", ".join(f"{rival} at {'–' if at is None else f'{at:.0f}M'}" for rival, at in passed.items())
        late = [at is None or at > 150 for at in passed.values()]
        status = HOLDS if all(late) else PARTLY if any(late) else FAILS
        return [Entry(_PART, words, f"{REPORT}{PATH}", "after 150M", said, "–", status, "5M moving averages")]

    def _long_term(self) -> Entry:
        early = study(self.field, "table", self.replications, 150.0)
        found = {}
        for rival in _BOTH:
            now, then = self._difference(self.table, rival, iqm), self._difference(early, rival, iqm)
            found[rival] = now.point - then.point
        said = ", ".join(f"{rival} {gain:+.3f}" for rival, gain in found.items())
        return Entry(
            _PART,
            "The IQM indicates better long-term performance than the baselines",
            LEDGER,
            "gains on both from 150M to 200M",
            f"change of the difference in IQM: {said}",
            "sign",
            HOLDS if all(gain > 0 for gain in found.values()) else PARTLY,
            "an indication only: no run is longer than 200M",
        )

    def _early(self) -> Entry:
        at = study(self.field, "table", self.replications, 50.0)
        gaps = at.differences("C2D", "IQN")
        worse = sum(gap.interval is not None and gap.interval[1] < 0 for gap in gaps.values())
        better = sum(gap.interval is not None and gap.interval[0] > 0 for gap in gaps.values())
        return Entry(
            _PART,
            "C2D often has significantly worse learning progression than IQN",
            LEDGER,
            "behind on more games than ahead at 50M",
            f"interval below 0 on {worse} games, above on {better}, of {len(gaps)}",
            _INTERVAL,
            HOLDS if worse > better else FAILS,
            "human-normalized score, 5M moving averages",
        )

    # ------------------------------------------------------------------------------------------ rewards

    def _rewards(self) -> list[Entry]:
        gap = game_means(self.table.scores("C2D")) - game_means(self.table.scores("IQN"))
        rewards = np.array([reward_statistics()[game] for game in BENCHMARK])
        density, size = rewards[:, 0], np.nan_to_num(rewards[:, 1])
        measures = {
            "frequent rewards (share of steps with one)": density,
            "large rewards (mean size of one)": size,
            "both (mean absolute reward per step)": density * size,
        }
        found = []
        for words, values in measures.items():
            point, (low, high) = float(spearman(gap, values)), spearman_interval(gap, values)
            estimate = Estimate(point, (low, high))
            found.append(
                Entry(
                    _PART,
                    f"C2D excels where rewards are frequent and large, lags where sparse and small: {words}",
                    "python bench/reward_statistics.py --out rewards.csv; c2d ledger",
                    "rank correlation > 0",
                    f"with C2D − IQN over 55 games: {point:+.2f} ({low:+.2f}, {high:+.2f})",
                    _INTERVAL,
                    _judge(estimate),
                    "rewards as they come under random play, 20,000 steps per game; a game without any counts as size "
                    "0",
                )
            )
        return found


def _normal(of: Study, rows: Matrix) -> Matrix:
    from c2d.reporting.references import normalize

    return normalize(rows, of.games, of.choice.references)


def _crossing(ends: np.ndarray, lead: np.ndarray) -> float | None:
    """Where the lead becomes positive for good; None if it is not so at the end."""
    behind = np.flatnonzero(lead <= 0)
    if not len(behind):
        return float(ends[0])
    return None if behind[-1] == len(lead) - 1 else float(ends[behind[-1] + 1])


def _judge(estimate: Estimate) -> str:
    """Above 0, below 0, or neither beyond chance."""
    low, high = estimate.interval or (-np.inf, np.inf)
    return HOLDS if low > 0 else FAILS if high < 0 else UNDECIDED


def _together(verdicts: list[str]) -> str:
    """Of one claim about several rivals."""
    return verdicts[0] if len(set(verdicts)) == 1 else PARTLY


def _flipped(estimate: Estimate) -> tuple[float, float] | None:
    return None if estimate.interval is None else (-estimate.interval[1], -estimate.interval[0])


def _holds_zero(estimate: Estimate) -> bool:
    return estimate.interval is not None and estimate.interval[0] <= 0 <= estimate.interval[1]


def _said(found: dict[str, Estimate]) -> str:
    words = []
    for rival, one in found.items():
        spread = "" if one.interval is None else f" ({one.interval[0]:+.3f}, {one.interval[1]:+.3f})"
        words.append(f"C2D − {rival} {one.point:+.3f}{spread}")
    return "; ".join(words)
