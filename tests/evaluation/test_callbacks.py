"""Evaluations while training, the best weights, and bounds at which a run stops."""

import json
import time
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

import c2d
from c2d.cli.main import main
from c2d.errors import UserError
from c2d.evaluation import callbacks
from c2d.evaluation.callbacks import KeepBest, PeriodicEvaluation, StopAfter, StopAtScore
from c2d.evaluation.loaded_run import open_run
from c2d.runs.reader import canonical_records, read_evaluations
from c2d.training.observers import Observer
from c2d.training.remote_rollout import RemoteRollout
from c2d.training.run import run
from c2d.types import GameEnd
from tests.training.actors_in_process import InProcess, actors_config, train_with
from tests.training.actors_in_process import Witness as ActorsWitness
from tests.training.short_runs import short_config
from tests.training.test_resume import Crash, Witness, go, results, saving


def config(path, env="toy/skewed", **changes):
    return saving(short_config(env, path, **{"iterations": 2, "steps": 60, **changes}))


def scripted(monkeypatch, scores):
    """Evaluations have these scores, one after the other."""
    left = iter(scores)
    monkeypatch.setattr(callbacks, "evaluate", lambda *_, **__: [GameEnd(next(left), 3)])


def without_clock(path):
    return [{key: value for key, value in record.items() if key != "measured"} for record in read_evaluations(path)]


@pytest.mark.parametrize(
    ("recipe", "env"), [("c2d", "gym/CartPole-v1"), ("rainbow-full", "toy/skewed"), ("btr", "toy/skewed")]
)
def test_training_is_the_same_bit_for_bit(recipe, env, tmp_path):
    alone = go(config(tmp_path / "alone", env, recipe=recipe))
    watched, both = Witness(), tmp_path / "watched"
    asked = replace(
        config(both, env, recipe=recipe),
        eval_every=28,
        eval_games=2,
        keep_best=True,
        log=c2d.configure("toy/sure", log="csv").log,
    )
    c2d.train(asked, progress=False, callbacks=[watched])
    assert watched.digests == alone.digests and results(both) == results(tmp_path / "alone")
    assert canonical_records(both / "records.jsonl") == canonical_records(tmp_path / "alone" / "records.jsonl")
    assert (both / "points.jsonl").stat().st_size and (both / "weights-best.safetensors").exists()
    assert [record["steps"] for record in read_evaluations(both)] == [28, 56, 84, 112]


def test_an_evaluation_is_of_the_agent_of_that_step(tmp_path):
    """The same games by hand: agent, seed and ε are those it says."""
    from c2d.evaluation.play import evaluate
    from c2d.seeding import integer

    found = []

    class ByHand(Observer):
        def evaluation(self, run, record):
            seed = integer(run.config.seed, f"evaluation after {run.step} steps")
            ends = evaluate(run.agent, run.make_env, 3, 0.3, seed=seed)
            found.append(([end.score for end in ends], record["scores"]))

    result = run(config(tmp_path / "run", "gym/CartPole-v1"), [PeriodicEvaluation(50, games=3, epsilon=0.3), ByHand()])
    (first, said), (second, also_said) = found
    assert first == said and second == also_said and first != second
    for record in read_evaluations(result.run_dir.path):
        assert record["mean_score"] == pytest.approx(np.mean(record["scores"]))
        assert record["games"] == 3 and record["epsilon"] == 0.3 and record["frames"] == record["steps"]


@pytest.mark.parametrize("crash", [45, 61])
def test_a_resumed_run_has_the_same_evaluations(crash, tmp_path):
    """Checkpoints are of steps 25, 50 and so on; an evaluation after the last one is made again, and stands once."""
    made = dict(every_steps=25)
    straight, path = tmp_path / "straight", tmp_path / "run"
    asked = [PeriodicEvaluation(20, games=1), KeepBest()]
    run(saving(config(straight), **made), asked)
    with pytest.raises(Crash):
        run(saving(config(path), **made), [*asked, Witness(crash=crash)])
    run(saving(config(path), **made), asked)
    assert without_clock(path) == without_clock(straight) and len(read_evaluations(path)) == 6
    assert (path / "weights-best.safetensors").read_bytes() == (straight / "weights-best.safetensors").read_bytes()


def test_an_evaluation_that_a_stop_cut_short_is_made_when_the_run_goes_on(tmp_path):
    class Impatient(Observer):
        def step(self, run, games):
            if run.step == 40:
                run.stop("now")  # before the evaluation that is due at this step

    path = tmp_path / "run"
    run(config(path), [Impatient(), PeriodicEvaluation(20, games=2)])
    assert [record["steps"] for record in read_evaluations(path)] == [20]
    run(config(path), [PeriodicEvaluation(20, games=2), KeepBest()])
    run(config(tmp_path / "straight"), [PeriodicEvaluation(20, games=2)])
    assert without_clock(path) == without_clock(tmp_path / "straight")


def test_the_best_weights_are_kept(tmp_path, monkeypatch):
    scripted(monkeypatch, [1.0, 5.0, 5.0, 3.0])
    seen = {}

    class Look(Observer):
        def evaluation(self, run, record):
            seen[record["steps"]] = run.agent.to_bytes()

    path = tmp_path / "run"
    run(config(path), [PeriodicEvaluation(30, games=1), KeepBest(), Look()])
    best = c2d.load(path, weights="best")
    assert best.to_bytes() == seen[60] != seen[90]
    assert open_run(path, weights="best").steps == 60 and open_run(path).steps == 120
    scripted(monkeypatch, [4.0, 6.0])
    run(replace(config(path), iterations=3), [PeriodicEvaluation(30, games=1), KeepBest(), Look()])
    assert c2d.load(path, weights="best").to_bytes() == seen[180]
    with pytest.raises(UserError, match='--weights is "7"; accepted: newest, best'):
        c2d.load(path, weights=7)


def test_there_may_be_no_best_weights(tmp_path):
    told = Witness()
    run(config(tmp_path / "run"), [KeepBest(), told])
    assert any("no best weights are kept" in text for text in told.notices)
    with pytest.raises(UserError, match="holds no best weights: c2d train --eval-every N --keep-best"):
        c2d.load(tmp_path / "run", weights="best")


def test_a_run_stops_at_a_score(tmp_path, monkeypatch):
    scripted(monkeypatch, [1.0, 17.0, 18.5, 1.0])
    result = run(config(tmp_path / "a"), [PeriodicEvaluation(20, games=1), StopAtScore(18, by="evaluation")])
    assert result.reason == "score 18.5 in an evaluation reached 18"
    assert json.loads(result.run_dir.summary.read_text())["steps"] == 60
    straight = run(config(tmp_path / "b", "toy/sure"))
    rows = [row.split(",") for row in straight.run_dir.episodes.read_text().splitlines()[1:]]
    step, score = int(rows[3][1]), sum(float(row[2]) for row in rows[:4]) / 4
    result = run(config(tmp_path / "c", "toy/sure"), [StopAtScore(score, games=4)])
    assert result.reason == f"score {score:.4g} over the last 4 games reached {score:g}"
    assert json.loads(result.run_dir.summary.read_text())["steps"] == step


def test_a_run_stops_after_a_time(tmp_path, monkeypatch):
    clock = iter(range(0, 10_000))
    monkeypatch.setattr(callbacks, "time", SimpleNamespace(monotonic=lambda: float(next(clock))))
    result = run(config(tmp_path / "run"), [StopAfter("30s")])
    assert result.reason == "30 s are over" and json.loads(result.run_dir.summary.read_text())["steps"] == 30


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: PeriodicEvaluation(0), "every of PeriodicEvaluation is 0; accepted: a whole number, at least 1"),
        (lambda: PeriodicEvaluation(5, epsilon=2), "epsilon of PeriodicEvaluation is 2; accepted: from 0 to 1"),
        (lambda: StopAtScore(1, by="luck"), 'by of StopAtScore is "luck"; accepted: training, evaluation'),
        (lambda: StopAtScore(1, games=1_000), "games of StopAtScore is 1000; accepted: from 1 to 100"),
        (lambda: StopAfter("soon"), '"soon"; accepted: a time such as 90s'),
        (lambda: StopAfter(0), "time of StopAfter is 0; accepted: above 0 seconds"),
        (lambda: callbacks.callbacks_of(c2d.configure("toy/sure", keep_best=True)), "--keep-best is given without"),
    ],
)
def test_bad_arguments(make, message):
    with pytest.raises(UserError, match=message):
        make()


def test_the_command_line_asks_for_them_and_a_resume_goes_on(tmp_path, capsys):
    path, small = str(tmp_path / "run"), ["--schedule.steps-per-iteration", "50", "--schedule.random-history", "50"]
    words = ["--eval-every", "20", "--eval-games", "1", "--keep-best", "--tensorboard", "False", "--threads", "1"]
    assert (
        main(["train", "toy/sure", "--run-dir", path, "--iterations", "2", *small, *words, "--stop-at-score", "-9"])
        == 0
    )
    out = capsys.readouterr().out
    assert "evaluation at 20 steps: score" in out and "stopped after 20 steps" in out and "reached -9" in out
    assert "next: c2d evaluate" in out
    assert main(["resume", path, "--stop-at-score", "none"]) == 0
    found = {record["mean_score"]: record["steps"] for record in reversed(read_evaluations(tmp_path / "run"))}
    assert "evaluation at 100 steps" in capsys.readouterr().out
    assert main(["evaluate", path, "--weights", "best", "--games", "1"]) == 0
    assert f"trained for {found[max(found)]} steps" in capsys.readouterr().out
    assert main(["train", "toy/sure", "--run-dir", str(tmp_path / "no"), "--keep-best"]) == 2
    assert main(["train", "toy/sure", "--run-dir", str(tmp_path / "no"), "--stop-after", "soon"]) == 2
    assert not (tmp_path / "no").exists()


def test_the_time_of_evaluations_is_not_that_of_the_iteration(tmp_path, monkeypatch):
    def slow(*_, **__):
        time.sleep(0.05)
        return [GameEnd(1.0, 1)]

    monkeypatch.setattr(callbacks, "evaluate", slow)
    result = run(config(tmp_path / "run"), [PeriodicEvaluation(5, games=1)])
    assert sum(record["measured"]["seconds"] for record in read_evaluations(result.run_dir.path)) > 1.2
    began = time.perf_counter()
    run(config(tmp_path / "alone"))
    alone = time.perf_counter() - began
    assert sum(record["measured"]["seconds"] for record in result.records) < max(2 * alone, 0.6)


def test_with_actors_on_other_machines_too(tmp_path, monkeypatch):
    """The learner evaluates; its actors and their environments know nothing of it."""
    alone, _ = train_with(InProcess(), actors_config("toy/skewed", tmp_path / "alone", envs=2), monkeypatch)
    watched, updates = ActorsWitness(), []

    class Listen(Observer):
        def update(self, run, diagnostics):
            updates.append(diagnostics["loss"])

    asked = [PeriodicEvaluation(100, games=2), KeepBest(), Listen(), watched]
    transport = InProcess()
    monkeypatch.setattr(
        RemoteRollout, "connect", lambda rollout: vars(rollout).update(_transport=transport, _connected=True)
    )
    result = run(actors_config("toy/skewed", tmp_path / "run", envs=2), asked)
    assert watched.found == alone.found
    names = ("records.jsonl", "episodes.csv", "weights.safetensors")
    read = [[canonical_records(path / n) if n.endswith("jsonl") else (path / n).read_bytes() for n in names]
            for path in (tmp_path / "alone", tmp_path / "run")]  # fmt: skip
    assert read[0] == read[1] and [record["steps"] for record in read_evaluations(tmp_path / "run")] == [100, 200]
    assert len(updates) == sum(record["updates"] for record in result.records) > 0
