"""What the paper claims in prose, and whether it holds.

Claims about the results are judged on the published scores: a statistic with its interval. Propositions are checked on
the functions that train agents. Claims that need training are listed with their cost.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from c2d.envs.games import BENCHMARK
from c2d.reporting import paper_numbers
from c2d.reporting.analysis import Analysis, IntervalEstimate, ScoringOptions
from c2d.reporting.ledger import (
    FAILS,
    HOLDS,
    LEDGER,
    NEEDS_TORCH,
    PARTLY,
    PATH,
    REPORT,
    UNDECIDED,
    LedgerEntry,
    needs_training,
    without_curves,
)
from c2d.reporting.published import reward_statistics
from c2d.reporting.run_statistics import (
    Matrix,
    game_means,
    iqm,
    mean,
    median,
    optimality_gap,
    paired_interval,
    profile,
    spearman,
    spearman_interval,
)
from c2d.reporting.scores import CONVENTIONS, Dataset, mean_atoms, normalize

_RESULTS, _OTHER, _UNTESTED = "Claims about the results", "Other claims", "Claims that need training"
_MATHEMATICS = "Mathematics"
_BOTH = ("IQN", "Rainbow")
_INTERVAL = "95 % interval"
Statistic = Callable[[Matrix], Matrix]


def analysis(dataset: Dataset, convention: str, replications: int, frames: float = 200.0) -> Analysis:
    chosen = CONVENTIONS[convention]
    return Analysis(dataset, dataset.agents, BENCHMARK, frames, ScoringOptions(chosen, chosen.references, replications))


class ResultClaims:
    """Judges the claims on the published scores, read as in the paper's figures; notes give the other convention."""

    def __init__(self, dataset: Dataset, replications: int) -> None:
        self.dataset, self.replications = dataset, replications
        self.figures = analysis(dataset, "figures", replications)
        self.table = analysis(dataset, "table", replications)

    def entries(self) -> list[LedgerEntry]:
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

    def _difference(self, of: Analysis, rival: str, statistic: Statistic) -> IntervalEstimate:
        ours, theirs = of.scores("C2D"), of.scores(rival)
        spread = paired_interval(ours, theirs, lambda a, b: statistic(a) - statistic(b), self.replications)
        return IntervalEstimate(float(statistic(ours) - statistic(theirs)), spread)

    def _above(self, name: str, words: str, statistic: Statistic, rivals: tuple[str, ...]) -> LedgerEntry:
        differences = {rival: self._difference(self.figures, rival, statistic) for rival in rivals}
        other = {rival: self._difference(self.table, rival, statistic) for rival in rivals}
        status = _together([_judge(one) for one in differences.values()])
        note = f"5M moving averages: {_describe(other)}"
        if name == "Mean":
            zero = Analysis(
                self.dataset, self.dataset.agents, BENCHMARK, 200.0, replace(self.table.scoring, references="rliable")
            )
            found_zero = {rival: self._difference(zero, rival, mean) for rival in rivals}
            note += f"; with Video Pinball's random score 0: {_describe(found_zero)}"
        return LedgerEntry(
            _RESULTS,
            f"{words} at 200M",
            LEDGER,
            "difference > 0",
            f"{name}: {_describe(differences)}",
            _INTERVAL,
            status,
            note,
        )

    def _par(self, name: str, words: str, statistic: Statistic) -> LedgerEntry:
        difference = self._difference(self.figures, "IQN", statistic)
        other = self._difference(self.table, "IQN", statistic)
        status = HOLDS if _holds_zero(difference) else FAILS
        ours, note = f"{name}: {_describe({'IQN': difference})}", f"5M moving averages: {_describe({'IQN': other})}"
        return LedgerEntry(_RESULTS, f"{words} at 200M", LEDGER, "interval holds 0", ours, _INTERVAL, status, note)

    def _not_worse(self) -> LedgerEntry:
        difference = self._difference(self.figures, "Rainbow", iqm)
        other = self._difference(self.table, "Rainbow", iqm)
        return LedgerEntry(
            _RESULTS,
            "State of the art, comparable to Rainbow: not worse in the IQM at 200M",
            LEDGER,
            "interval not below 0",
            f"IQM: {_describe({'Rainbow': difference})}",
            _INTERVAL,
            FAILS if _judge(difference) == FAILS else HOLDS,
            f"5M moving averages: {_describe({'Rainbow': other})}",
        )

    def _gap(self) -> LedgerEntry:
        difference = self._difference(self.figures, "C51", optimality_gap)
        other = self._difference(self.table, "C51", optimality_gap)
        return LedgerEntry(
            _RESULTS,
            "The optimality gap is worse than C51's: weaker where C2D is weak",
            LEDGER,
            "difference > 0 (less is better)",
            f"Optimality gap: {_describe({'C51': difference})}",
            _INTERVAL,
            _judge(difference),
            f"5M moving averages: {_describe({'C51': other})}",
        )

    # ------------------------------------------------------------------------------------------ the profile

    def _at_human(self) -> LedgerEntry:
        def share(scores: Matrix) -> Matrix:
            return profile(scores, np.array([1.0]))[..., 0]

        differences = {rival: self._difference(self.figures, rival, share) for rival in _BOTH}
        status = _together([_judge(IntervalEstimate(-one.point, _flipped(one))) for one in differences.values()])
        ours = f"share of runs above 1: {float(share(self.figures.scores('C2D'))):.3f}; {_describe(differences)}"
        words = "At τ = 1 C2D is worse than IQN and Rainbow: fewer games with human-like performance"
        return LedgerEntry(_RESULTS, words, LEDGER, "difference < 0", ours, _INTERVAL, status)

    def _far_above(self) -> LedgerEntry:
        taus = np.round(np.arange(5.1, 8.01, 0.1), 6)

        def shares(scores: Matrix) -> Matrix:
            return profile(scores, taus)

        ours = shares(self.figures.scores("C2D"))
        ahead = {rival: ours - shares(self.figures.scores(rival)) for rival in _BOTH}
        average = {rival: self._difference(self.figures, rival, lambda m: shares(m).mean(-1)) for rival in _BOTH}
        everywhere = all((gap > 0).all() for gap in ahead.values())
        status = _together([_judge(one) for one in average.values()]) if everywhere else PARTLY
        least = ", ".join(f"{rival} {gap.min():+.3f}" for rival, gap in ahead.items())
        return LedgerEntry(
            _RESULTS,
            "C2D keeps super-human performance in a significant portion of games: ahead at τ > 5",
            LEDGER,
            "ahead at every τ from 5.1 to 8",
            f"share of runs above τ, mean difference: {_describe(average)}; least lead: {least}",
            _INTERVAL,
            status,
        )

    # ------------------------------------------------------------------------------------------ over training

    def _behind(self) -> LedgerEntry:
        """At 150M, from the bundled table."""
        at = analysis(self.dataset, "table", self.replications, 150.0)
        differences = {rival: self._difference(at, rival, iqm) for rival in _BOTH}
        verdicts = [
            HOLDS if _judge(IntervalEstimate(-f.point, _flipped(f))) == HOLDS else FAILS for f in differences.values()
        ]
        status = HOLDS if set(verdicts) == {HOLDS} else FAILS if set(verdicts) == {FAILS} else PARTLY
        words = "Slow at first: more than 150M frames until comparable to IQN and Rainbow in the IQM"
        ours = f"IQM at 150M: {_describe(differences)}"
        return LedgerEntry(
            _RESULTS, words, LEDGER, "difference < 0 at 150M", ours, _INTERVAL, status, "5M moving averages"
        )

    def _crossings(self) -> list[LedgerEntry]:
        words = "The same over all of training: where C2D's IQM passes theirs for good"
        if not self.dataset.has_curves:
            return [without_curves(_RESULTS, words, "after 150M")]
        ends = np.arange(5.0, 200.0)
        curves = {}
        for agent in ("C2D", *_BOTH):
            at = analysis(self.dataset, "table", self.replications)
            smoothed = self.dataset.smoothed(agent, BENCHMARK, ends, 5.0)
            curves[agent] = np.array([float(iqm(_normal(at, rows))) for rows in smoothed])
        passed = {rival: _crossing(ends, curves["C2D"] - curves[rival]) for rival in _BOTH}
        text = ", ".join(f"{rival} at {'–' if at is None else f'{at:.0f}M'}" for rival, at in passed.items())
        late = [at is None or at > 150 for at in passed.values()]
        status = HOLDS if all(late) else PARTLY if any(late) else FAILS
        return [LedgerEntry(_RESULTS, words, f"{REPORT}{PATH}", "after 150M", text, "–", status, "5M moving averages")]

    def _long_term(self) -> LedgerEntry:
        early = analysis(self.dataset, "table", self.replications, 150.0)
        gains = {}
        for rival in _BOTH:
            now, then = self._difference(self.table, rival, iqm), self._difference(early, rival, iqm)
            gains[rival] = now.point - then.point
        text = ", ".join(f"{rival} {gain:+.3f}" for rival, gain in gains.items())
        return LedgerEntry(
            _RESULTS,
            "The IQM indicates better long-term performance than the baselines",
            LEDGER,
            "gains on both from 150M to 200M",
            f"change of the difference in IQM: {text}",
            "sign",
            HOLDS if all(gain > 0 for gain in gains.values()) else PARTLY,
            "only an indication: no run is longer than 200M",
        )

    def _early(self) -> LedgerEntry:
        at = analysis(self.dataset, "table", self.replications, 50.0)
        gaps = at.differences("C2D", "IQN")
        worse = sum(gap.interval is not None and gap.interval[1] < 0 for gap in gaps.values())
        better = sum(gap.interval is not None and gap.interval[0] > 0 for gap in gaps.values())
        return LedgerEntry(
            _RESULTS,
            "C2D often has significantly worse learning progression than IQN",
            LEDGER,
            "behind on more games than ahead at 50M",
            f"interval below 0 on {worse} games, above on {better}, of {len(gaps)}",
            _INTERVAL,
            HOLDS if worse > better else FAILS,
            "human-normalized score, 5M moving averages",
        )

    # ------------------------------------------------------------------------------------------ rewards

    def _rewards(self) -> list[LedgerEntry]:
        gap = game_means(self.table.scores("C2D")) - game_means(self.table.scores("IQN"))
        rewards = np.array([reward_statistics()[game] for game in BENCHMARK])
        density, size = rewards[:, 0], np.nan_to_num(rewards[:, 1])
        measures = {
            "frequent rewards (share of steps with one)": density,
            "large rewards (mean size of one)": size,
            "both (mean absolute reward per step)": density * size,
        }
        entries = []
        for words, values in measures.items():
            point, (low, high) = float(spearman(gap, values)), spearman_interval(gap, values)
            estimate = IntervalEstimate(point, (low, high))
            entries.append(
                LedgerEntry(
                    _RESULTS,
                    f"C2D excels where rewards are frequent and large, lags where sparse and small: {words}",
                    "python studies/reward_statistics.py --out rewards.csv; c2d ledger",
                    "rank correlation > 0",
                    f"with C2D − IQN over 55 games: {point:+.2f} ({low:+.2f}, {high:+.2f})",
                    _INTERVAL,
                    _judge(estimate),
                    "rewards under random play, 20,000 steps per game; the size is 0 for a game without rewards",
                )
            )
        return entries


def _normal(of: Analysis, rows: Matrix) -> Matrix:
    return normalize(rows, of.games, of.scoring.references)


def _crossing(ends: np.ndarray, lead: np.ndarray) -> float | None:
    """Where the lead becomes positive for good; None if it is not positive at the end."""
    behind = np.flatnonzero(lead <= 0)
    if not len(behind):
        return float(ends[0])
    return None if behind[-1] == len(lead) - 1 else float(ends[behind[-1] + 1])


def _judge(estimate: IntervalEstimate) -> str:
    """Significantly above 0, significantly below 0, or neither."""
    low, high = estimate.interval or (-np.inf, np.inf)
    return HOLDS if low > 0 else FAILS if high < 0 else UNDECIDED


def _together(verdicts: list[str]) -> str:
    """The status of one claim about several agents."""
    return verdicts[0] if len(set(verdicts)) == 1 else PARTLY


def _flipped(estimate: IntervalEstimate) -> tuple[float, float] | None:
    return None if estimate.interval is None else (-estimate.interval[1], -estimate.interval[0])


def _holds_zero(estimate: IntervalEstimate) -> bool:
    return estimate.interval is not None and estimate.interval[0] <= 0 <= estimate.interval[1]


def _describe(differences: dict[str, IntervalEstimate]) -> str:
    parts = []
    for rival, one in differences.items():
        spread = "" if one.interval is None else f" ({one.interval[0]:+.3f}, {one.interval[1]:+.3f})"
        parts.append(f"C2D − {rival} {one.point:+.3f}{spread}")
    return "; ".join(parts)


# ------------------------------------------------------------------------------------------------ other claims


def other_claims(dataset: Dataset) -> list[LedgerEntry]:
    """Claims about network sizes and supports, which scores do not decide."""
    return [_weights(), _support(dataset)]


def _weights() -> LedgerEntry:
    """Features after three convolutions (8/4, 4/2, 3/1) of an 84 x 84 frame, and the weights of the dense layer."""
    valid = same = 84
    for kernel, stride in ((8, 4), (4, 2), (3, 1)):
        valid, same = (valid - kernel) // stride + 1, -(-same // stride)
    ours, theirs = (64 * side**2 * 512 for side in (valid, same))
    return LedgerEntry(
        _OTHER,
        "C2D's padding implies substantially fewer network weights than Dopamine's",
        LEDGER,
        "fewer",
        f"dense layer: {ours:,} weights from {64 * valid**2:,} features, Dopamine's: {theirs:,} from {64 * same**2:,}",
        "exact",
        HOLDS if ours < theirs else FAILS,
    )


def _support(dataset: Dataset) -> LedgerEntry:
    words = "The initial maximal support (−50, 50) either shrinks or grows, depending on the environment"
    last = {}
    for game in BENCHMARK:
        ends, low, high = mean_atoms(dataset.runs_of("C2D", game))
        if ends.size and ends[-1] >= 199:
            last[game] = max(high[-1], -low[-1])
    if len(last) < len(BENCHMARK):
        return without_curves(_OTHER, words, "some above 50, some below")
    above, below = sum(value > 50 for value in last.values()), sum(value < 25 for value in last.values())
    return LedgerEntry(
        _OTHER,
        words,
        "c2d report --published-only --published PATH",
        "some above 50, some below",
        f"largest |atom| of the last iteration: above 50 on {above} games, below 25 on {below}, of {len(last)}",
        "–",
        HOLDS if above and below else FAILS,
        "atoms lie within ±α, so α grew where one is above 50; the data cannot show that it shrank elsewhere",
    )


# ------------------------------------------------------------------------------------------------- mathematics
#
# The paper's propositions, checked on the functions that train agents. PyTorch is imported only when `propositions` is
# called, through `c2d.theory`. If that fails, the entries say so.


_COUNTEREXAMPLE = "Proposition: the fixed point of T_h need not give an optimal policy (stochastic MDP)"
_BELLMAN = "Proposition: iterates of the conjugated operator have Bellman's means (random MDP, 6 iterations)"
_TRANSLATION = "The Cramér distance is translation invariant (Algorithm 1, 32 atoms)"
_SCALE = "The Cramér distance is scale sensitive, ℓ₂ ∝ √γ (Algorithm 1, 32 atoms)"


def propositions() -> list[LedgerEntry]:
    try:
        from c2d.theory import statements
        from c2d.theory.examples import counterexample
        from c2d.theory.homeomorphism import named
    except ImportError as error:
        return [_unavailable(what, str(error)) for what in (_COUNTEREXAMPLE, _BELLMAN, _TRANSLATION, _SCALE)]
    example = counterexample(named("h"), prize=100.0)
    best, chosen = example.choice["T*"], example.choice["T_h"]
    errors = statements.cramer_errors()
    return [
        LedgerEntry(
            _MATHEMATICS,
            _COUNTEREXAMPLE,
            LEDGER,
            "optimal a, chosen b",
            f"R = 100, r = {example.sure:.2f}: optimal {best} ({example.high:.2f} > {example.sure:.2f}), T_h chooses "
            f"{chosen} ({example.low:.2f} < {example.sure:.2f})",
            "exact",
            HOLDS if (best, chosen) == ("a", "b") else FAILS,
        ),
        _small(_BELLMAN, statements.bellman_error(), 1e-9, "largest difference "),
        _small(_TRANSLATION, errors["translation"], 1e-12),
        _small(_SCALE, errors["scale"], 1e-12),
    ]


def _small(what: str, error: float, tolerance: float, prefix: str = "") -> LedgerEntry:
    """A difference that must be 0 up to rounding."""
    status = HOLDS if error < tolerance else FAILS
    limit = f"1e{round(math.log10(tolerance))}"
    return LedgerEntry(_MATHEMATICS, what, LEDGER, "difference 0", f"{prefix}{error:.1e}", limit, status)


def _unavailable(what: str, reason: str) -> LedgerEntry:
    return LedgerEntry(_MATHEMATICS, what, LEDGER, "–", "–", "–", NEEDS_TORCH, f"not checked here: {reason}")


# ------------------------------------------------------------------------------------- claims that need training


def untested_claims() -> list[LedgerEntry]:
    suite = "33,000M frames (55 games × 3 seeds × 200M)"
    return [
        needs_training(
            _UNTESTED,
            "C2D with Rainbow's other ingredients should easily be superior",
            "c2d train GAME --recipe rainbow-c2d",
            suite,
        ),
        needs_training(
            _UNTESTED,
            "The complete score table, by training",
            "c2d train GAME --seed 1 (2, 3)",
            suite,
            "`c2d fingerprint` compares the first 1M frames of a game, which takes about an hour",
        ),
        needs_training(
            _UNTESTED,
            "β = 1.99, α = 50, c = 5 by a preliminary search over six environments",
            "c2d sweep paper-claims",
            "60M frames per setting tried (6 games × 10M)",
            "the paper does not name the six games or the settings tried",
        ),
        needs_training(
            _UNTESTED,
            "Batch normalization makes specialized initialization redundant",
            "c2d train GAME --encoder.norm none",
            "66,000M frames (the suite with and without)",
        ),
        needs_training(
            _UNTESTED,
            "C2D gets stuck in suboptimal regions for lack of exploration beyond ε-greedy",
            "c2d train GAME --noisy True",
            suite,
        ),
        needs_training(
            _UNTESTED,
            "The Cramér distance and free atoms, not the other settings, explain the difference from C51",
            "c2d ablate c2d",
            suite,
            "published runs differ in clipping, life loss, normalization and padding at the same time",
        ),
    ]


# ---------------------------------------------------------------------------------------------------- the ledger


def ledger_entries(dataset: Dataset, replications: int) -> list[LedgerEntry]:
    """Every number, table, figure and claim of the paper with our value and a verdict."""
    return [
        *paper_numbers.tables_and_figures(dataset, replications),
        *ResultClaims(dataset, replications).entries(),
        *other_claims(dataset),
        *propositions(),
        *untested_claims(),
        *paper_numbers.settings(),
    ]
