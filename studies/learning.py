"""Does it learn with default settings? Trains and evaluates, and writes docs/results/learning.md.

    .venv/bin/python studies/learning.py --env gym/CartPole-v1 --seeds 1 2 3 --out docs/results/learning.md
    .venv/bin/python studies/learning.py --env minatar/breakout --iterations 20 --seeds 1 --out docs/results/learning.md

The page has one section per environment; only the section of the chosen environment is rewritten.
"""

from __future__ import annotations

import argparse
import re
import shlex
import sys
import tempfile
import time
from pathlib import Path

import c2d
from c2d.evaluation.play import evaluate
from c2d.evaluation.statistics import summarize
from c2d.files import write_atomically
from c2d.training.passport import machine, versions

GAMES = 20
TITLE = """# Learning with default settings

Each run was trained from scratch with `c2d train ENV` and the defaults for its environment, on one thread; then the
agent played whole games at ε 0.001. Each section is written by the command it names.
"""


def attempt(env: str, seed: int, iterations: int | None, folder: str) -> str:
    """One row of the table."""
    began = time.perf_counter()
    overrides = {} if iterations is None else {"iterations": iterations}
    run_dir = str(Path(folder) / f"s{seed}")
    config = c2d.default_config(env, seed=seed, threads=1, tensorboard=False, run_dir=run_dir, **overrides)
    result = c2d.train(config, progress=False)
    trained = time.perf_counter() - began
    agent = c2d.load(result.run_dir.path)
    games = evaluate(
        agent, lambda s: c2d.make(config.env, seed=s, rules=config.rules), GAMES, config.recipe.schedule.epsilon_eval
    )
    skill = summarize([game.score for game in games])
    low, high = skill.interval or (skill.mean, skill.mean)
    last = result.records[-1]["mean_score"]
    row = (
        f"| {seed} | {config.steps:,} | {last:.2f} | {skill.mean:.2f} | {low:.2f} to {high:.2f} | "
        f"{trained:.0f} | {config.steps / trained:.0f} |"
    )
    print(row, flush=True)
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--env", required=True)
    parser.add_argument("--iterations", type=int)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        rows = [attempt(options.env, seed, options.iterations, folder) for seed in options.seeds]
    here = machine(threads=1)
    section = "\n".join(
        [
            f"## {options.env}",
            "",
            f"| seed | steps | training score, last iteration | mean of {GAMES} games | 95 % interval | seconds "
            "| steps/s |",
            "|---:|---:|---:|---:|---|---:|---:|",
            *rows,
            "",
            f"- Command: `{shlex.join(['python', *sys.argv])}`",
            f"- Versions: {', '.join(f'{name} {version}' for name, version in versions().items())}",
            f"- Machine: {here['cpu']}, {here['cores']} cores; one thread used",
            "",
        ]
    )
    text = options.out.read_text() if options.out.exists() else TITLE
    kept = re.split(r"(?m)^(?=## )", text)
    others = [part.rstrip() + "\n" for part in kept[1:] if not part.startswith(f"## {options.env}\n")]
    write_atomically(options.out, "\n".join([kept[0].rstrip() + "\n", *others, section]).encode())


if __name__ == "__main__":
    main()
