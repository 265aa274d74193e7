"""c2d quickstart: train on a small game and check that the agent learns."""

from __future__ import annotations

import shlex
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from c2d.cli.serve import PORT
from c2d.cli.settings import options
from c2d.errors import UserError

if TYPE_CHECKING:
    from c2d.config import Config
    from c2d.envs.spec import Environment
    from c2d.reporting.quickstart import QuickstartResult

ENV = "minatar/breakout"
ITERATIONS = 5  # of 10,000 steps
RANDOM_GAMES = 200  # of the random policy
GAMES = 30  # of the trained agent
EPSILON = 0.001
GOAL = 4.0  # times the random mean: the agent has learned
DESCRIPTION = f"Train C2D on {ENV} for a few minutes, play {GAMES} games with it, and compare with random play."


@dataclass(frozen=True)
class QuickstartOptions:
    """The options of `c2d quickstart`."""

    seed: int = 1
    """Seed of the run."""
    seeds: tuple[int, ...] = ()
    """Several seeds instead, one after the other, without progress output."""
    out: str | None = None
    """Markdown file for a table of the results."""


def main(arguments: Sequence[str]) -> None:
    chosen = options(QuickstartOptions, list(arguments), "c2d quickstart", DESCRIPTION)
    seeds = chosen.seeds or (chosen.seed,)
    for seed in seeds:
        if seed < 0:
            raise UserError(f"a seed is {seed}; accepted: 0 or greater")
    if chosen.out is not None and Path(chosen.out).is_dir():
        raise UserError(f'--out is "{chosen.out}", a directory; accepted: a file name')
    results = [attempt(seed, quiet=bool(chosen.seeds)) for seed in seeds]
    if chosen.out is not None:
        _write(Path(chosen.out), results, ["c2d", "quickstart", *arguments])
    if not chosen.seeds:
        print("\n".join(next_steps(results[0])))
    if not all(result.learned for result in results):
        raise SystemExit(1)


def attempt(seed: int, quiet: bool) -> QuickstartResult:
    """Random play, training and evaluation of one seed; prints the result."""
    from c2d.api import load, train
    from c2d.envs.make import make
    from c2d.evaluation.play import evaluate, random_scores
    from c2d.evaluation.statistics import summarize
    from c2d.reporting.quickstart import QuickstartResult
    from c2d.runs.records import MEASURED
    from c2d.training.process import keep_memory

    began = time.perf_counter()
    config = quickstart_config(seed)

    def make_env(game_seed: int) -> Environment:
        return make(config.env, config.rules, game_seed)

    random_play = summarize([end.score for end in random_scores(make_env, RANDOM_GAMES, seed)])
    if not quiet:
        print(f"random play on {config.env}: mean {random_play.mean:.2f} over {random_play.games} games")
    keep_memory()
    run = train(config, progress=not quiet)
    if run.state != "finished":
        print(f"training was interrupted, so there is nothing to evaluate yet; see {run.run_dir.path}")
        raise SystemExit(130)
    agent = load(run.run_dir.path)
    trained = summarize([end.score for end in evaluate(agent, make_env, GAMES, EPSILON, parallel=8, seed=seed)])
    result = QuickstartResult(
        seed=seed,
        run=str(run.run_dir.path),
        random=random_play,
        trained=trained,
        goal=GOAL,
        steps=config.steps,
        training_seconds=sum(record[MEASURED]["seconds"] for record in run.records),
        seconds=time.perf_counter() - began,
    )
    print(result.one_line() if quiet else "\n".join(result.report()), flush=True)
    return result


def quickstart_config(seed: int) -> Config:
    """The defaults of the game, shortened to a few minutes, on one thread (the network is too small for more)."""
    from c2d.config import default_config

    return default_config(
        ENV,
        iterations=ITERATIONS,
        seed=seed,
        threads=1,
        run_dir=str(_free(Path("runs") / f"quickstart-s{seed}")),
    )


def next_steps(result: QuickstartResult) -> list[str]:
    run, path = shlex.quote(result.run), Path(result.run)
    commands = {
        f"c2d evaluate {run} --games 100": "play more games with this agent",
        f"tensorboard --logdir {run}": "show its curves",
        "c2d train minatar/asterix": "train on another small game",
        "c2d train gym/CartPole-v1": "train on any Gymnasium environment with discrete actions",
        "c2d train breakout": "the paper's agent and protocol on Atari: 200M frames, which take days",
    }
    width = max(map(len, commands))
    rows = [f"  {command:<{width}}  {purpose}" for command, purpose in commands.items()]
    return [
        "",
        "next steps (after `make setup`, the commands are in .venv/bin):",
        *rows,
        "",
        f"watch this agent play, with the returns it predicts: c2d serve {shlex.quote(str(path.parent))}",
        f"then open http://127.0.0.1:{PORT}/lens?run={quote(path.name)} in a browser",
    ]


def _write(out: Path, results: list[QuickstartResult], command: list[str]) -> None:
    from c2d.files import write_atomically
    from c2d.reporting.quickstart import page
    from c2d.training.passport import machine, versions

    text = page(results, ENV, RANDOM_GAMES, GAMES, EPSILON, shlex.join(command), versions(), machine(threads=1))
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(out, text.encode())
    except OSError as error:
        raise UserError(f"--out {out} cannot be written: {error.strerror}") from None
    print(f"written to {out}")


def _free(path: Path) -> Path:
    from c2d.runs.layout import free_name

    return free_name(path) if path.exists() else path
