"""Comparison with published agents: verdicts, seeds needed, different rules, and the command."""

import numpy as np
import pytest
from scipy import stats

from c2d.cli.main import main
from c2d.plotting import drawing
from c2d.reporting import report_figures
from c2d.reporting.analysis import IntervalEstimate, gather
from c2d.reporting.local_runs import passport_differences, passport_spread, published_passport, read_local_runs
from c2d.reporting.report import scoring_options, verdict
from c2d.reporting.run_statistics import (
    beyond_chance,
    games_needed,
    ranks,
    seeds_needed,
    seeds_of_both,
    spearman,
    spearman_interval,
)
from c2d.reporting.scores import frame_count
from c2d.reporting.sections import other_sections
from tests.reporting.made_up import write_run


def power_of(n, m, shift, rng, trials=600):
    """How often the Mann-Whitney test distinguishes two normal distributions."""
    ours, theirs = rng.normal(shift, 1, (trials, n)), rng.normal(0, 1, (trials, m))
    return np.mean(stats.mannwhitneyu(ours, theirs, method="asymptotic", axis=1).pvalue < 0.05)


def test_seeds_needed_have_the_power_they_promise():
    rng = np.random.default_rng(0)
    shift = 1.0
    probability = stats.norm.cdf(shift / np.sqrt(2))
    n = seeds_needed(probability, theirs=15, games=1)
    assert 0.72 < power_of(n, 15, shift, rng) < 0.9
    both = seeds_of_both(probability, games=1)
    assert 0.72 < power_of(both, both, shift, rng) < 0.9
    assert seeds_needed(1 - probability, 15, 1) == n


def test_more_games_need_fewer_seeds():
    assert seeds_needed(0.7, 5, 55) < seeds_needed(0.7, 5, 10)
    assert seeds_needed(0.55, 3, 1) is None  # three published runs of one game never settle so small an effect
    assert games_needed(0.55, 3, 3) == 204
    assert games_needed(0.5, 3, 3) is None and seeds_of_both(0.5, 4) is None


def test_beyond_chance_is_the_normal_test():
    for n, m, p in ((3, 5, 1.0), (2, 3, 1.0), (10, 10, 0.7), (10, 10, 0.8)):
        z = (p - 0.5) / np.sqrt((n + m + 1) / (12 * n * m))
        assert beyond_chance(p, n, m, 1) == (2 * stats.norm.sf(abs(z)) < 0.05)


def test_verdicts():
    assert verdict(IntervalEstimate(0.8, (0.6, 0.9)), 5, 5, 20) == "settled: better"
    assert verdict(IntervalEstimate(0.2, (0.1, 0.4)), 5, 5, 20) == "settled: worse"
    assert "more seeds per game" in verdict(IntervalEstimate(0.6, (0.45, 0.7)), 2, 5, 20)
    assert "one run per game has no spread" in verdict(IntervalEstimate(1.0, None), 1, 5, 1)
    assert verdict(IntervalEstimate(1.0, (1.0, 1.0)), 2, 3, 1).startswith("open")  # two that beat three may be chance
    assert "no effect is observed" in verdict(IntervalEstimate(0.5, (0.4, 0.6)), 3, 3, 5)
    assert "80 % power is out of reach at this effect" in verdict(IntervalEstimate(0.55, (0.3, 0.7)), 3, 3, 1)
    assert "of both" in verdict(IntervalEstimate(0.6, (0.3, 0.7)), 3, 3, 1, both=True)


def test_relevant_differences_of_rules_are_listed():
    ours, theirs = published_passport("C2D"), published_passport("IQN")
    assert passport_differences(ours, ours) == []
    assert passport_differences(ours, theirs) == [
        "life loss ends the learner's episode: yes | no",
        "rewards clipped to ±: none | 1.0",
        "learner treats a truncated episode as: drop | terminal",
    ]
    changed = {**ours, "sticky": 0.0, "cap_steps": 4500, "recorded_score": "mean of evaluation games"}
    assert passport_differences(changed, ours) == [
        "sticky actions: 0.0 | 0.25",
        "scores: mean of evaluation games | of training",
        "longest episode: 18,000 frames | 108,000 frames",
    ]
    assert passport_spread([("a", ours), ("b", theirs), ("c", ours)])[0] == (
        "life loss ends the learner's episode: yes (a, c) | no (b)"
    )


def test_rank_correlation_against_scipy():
    rng = np.random.default_rng(0)
    one, other = rng.integers(0, 6, 30).astype(float), rng.normal(size=30)
    np.testing.assert_allclose(ranks(one), stats.rankdata(one))
    assert spearman(one, other) == pytest.approx(stats.spearmanr(one, other).statistic)
    assert spearman(np.ones(5), np.arange(5.0)) == 0
    low, high = spearman_interval(other, other + 0.1 * rng.normal(size=30), 400)
    assert 0.9 < low < high <= 1


def test_command(tmp_path, capsys):
    scores = np.linspace(-21, 15, 12)
    for seed in (1, 2):
        write_run(tmp_path / f"pong{seed}", seed=seed, scores=scores + seed, protocol="dopamine")
        write_run(
            tmp_path / f"box{seed}", env="atari/boxing", seed=seed, scores=scores, protocol="dopamine", state=None
        )
    assert main(["compare", str(tmp_path), "--replications", "200"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("c2d compare | 4 runs of c2d (own)")
    assert "at 10M frames on Boxing, Pong" in out
    for agent in ("DQN", "C51", "QR-DQN", "IQN", "Rainbow", "C2D"):
        assert f"c2d (own) > {agent}" in out
    assert "Pong" in out and "settled: better" in out
    assert "box1 is in progress" in out
    assert "C2D *" in out and "* scored under other rules" in out
    assert "other rules than C2D: life loss ends the learner's episode: no | yes" in out


def test_command_on_other_environments(tmp_path, capsys):
    for place, recipe in enumerate(("c2d", "c51")):
        scores = (1, 2, 3 + place)
        write_run(tmp_path / recipe, env="minatar/breakout", recipe=recipe, scores=scores, steps=2_500)
    assert main(["compare", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert (
        "minatar/breakout at 30,000 frames (scores averaged over the last 10,000); there are no published agents" in out
    )
    assert "c2d (own) > c51 (own)" in out and "of both at this effect" in out
    assert "rewards clipped to ±: none (c2d (own)) | 1.0 (c51 (own))" in out


def test_a_run_that_was_stopped_does_not_hold_the_others_back(tmp_path, capsys):
    for seed in (1, 2):
        write_run(tmp_path / f"c2d-{seed}", env="minatar/breakout", seed=seed, scores=range(10), steps=2_500)
    short = write_run(
        tmp_path / "short", env="minatar/breakout", recipe="c51", scores=range(4), steps=2_500, state="interrupted"
    )
    assert main(["compare", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert "minatar/breakout at 100,000 frames" in out
    assert f"note: {short} stops at 40,000 frames and is not used on minatar/breakout at 100,000" in out


def test_short_runs_and_uneven_games_are_left_out_with_notes(tmp_path, capsys):
    write_run(tmp_path / "pong", env="atari/pong", scores=(1.0, 2.0))
    write_run(tmp_path / "boxing", env="atari/boxing", recipe="c51", scores=(1.0, 2.0))
    write_run(tmp_path / "young", env="atari/pong", recipe="iqn", scores=(None,), state=None)
    write_run(tmp_path / "small", env="minatar/breakout", steps=2_500)
    assert main(["compare", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert "at 2M frames on Pong" in out or "at 2M frames on Boxing" in out
    assert "iqn (own) is left out: it has no score at 2M frames (none of its episodes has ended yet)" in out
    assert "is left out: it shares no game with" in out and "minatar/breakout at 20,000 frames" in out
    assert main(["compare", str(tmp_path / "young"), str(tmp_path / "small")]) == 0
    assert "note: none of your Atari runs has a score" in capsys.readouterr().out
    assert main(["compare", str(tmp_path / "young")]) == 2
    assert "none of its episodes has ended yet" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ([], "no runs given"),
        (["nowhere"], "nowhere is not a run directory"),
        (["RUN", "--at", "500"], "--at is 500; accepted"),
        (["RUN", "--convention", "tables"], 'unknown convention "tables"'),
        (["RUN", "--references", "mine"], "unknown table"),
        (["RUN", "--published", "nowhere"], "--published nowhere does not exist"),
        (["RUN", "--agents", "Rainbw"], 'unknown published agent "Rainbw"'),
        (["RUN", "--at", "50"], "at 50M frames"),
    ],
)
def test_mistakes_get_one_line(tmp_path, capsys, words, reason):
    run = str(write_run(tmp_path / "run"))
    assert main(["compare", *(run if word == "RUN" else word for word in words)]) == 2
    error = capsys.readouterr().err
    assert error.startswith("c2d: ") and error.count("\n") == 1 and reason in error, error


def test_short_atari_runs_of_unlike_iterations_are_counted_in_frames(tmp_path, capsys):
    for place, steps in enumerate((20, 15)):
        write_run(tmp_path / str(place), recipe=("c2d", "iqn")[place], scores=(1, 2, 3), steps=steps)
    assert main(["compare", str(tmp_path)]) in (0, 2)
    told = "".join(capsys.readouterr())
    assert "at 180 frames" in told and "e-" not in told


def test_frame_counts():
    assert [frame_count(value) for value in (200.0, 2.5, 0.1, 0.08, 8e-5)] == ["200M", "2.5M", "0.1M", "80,000", "80"]


def test_the_report_has_no_banner_for_what_is_no_run(tmp_path, capsys):
    assert main(["report", str(tmp_path / "missing"), "--out", str(tmp_path / "out")]) == 2
    out, err = capsys.readouterr()
    assert out == "" and "missing is not a run directory" in err


def test_unlike_windows_are_said_and_panels_end_with_their_runs(tmp_path):
    write_run(tmp_path / "one", env="gym/CartPole-v1", scores=range(40), steps=250)
    write_run(tmp_path / "other", env="gym/Acrobot-v1", scores=range(40), steps=1_000)
    own, notes = read_local_runs([tmp_path])
    dataset = gather(own, notes, None, ())
    sections = other_sections(dataset, scoring_options("table", None, 100, 0), {}, notes)
    tables = {section.title: section.tables[0].caption for section in sections if section.tables}
    assert "each panel ends with its longest run" in sections[0].caption
    for window in ("2,000 frames (gym/CartPole-v1)", "8,000 frames (gym/Acrobot-v1)"):  # a twentieth of its runs
        assert window in sections[0].caption
    short = tables["Scores on gym/CartPole-v1 at 40,000 frames"]
    assert "averaged over the last 8,000, which the curves average over 2,000: mean" in short
    long = tables["Scores on gym/Acrobot-v1 at 160,000 frames"]
    assert "averaged over the last 32,000, which the curves average over 8,000: mean" in long
    with drawing():
        games = dataset.other_games
        figure = report_figures.learning_curves(dataset, dataset.own, games, 0.16, 0.008, {}, own_ends=True)
    ends = {axis.get_title(): axis.get_xlim()[1] for axis in figure.axes[:2]}
    assert ends == {"gym/CartPole-v1": 40.0, "gym/Acrobot-v1": 160.0}
