"""c2d resume RUN [--fork NEW_RUN] [settings], and c2d verify-resume [ENV] [options]"""

from __future__ import annotations

import dataclasses
import shutil
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import tyro

from c2d.cli.settings import options, parse, peek, take_trust
from c2d.cli.train import with_environment_options
from c2d.config import Config, validate
from c2d.envs.names import require_trusted_env
from c2d.errors import UserError
from c2d.files import kind_of
from c2d.formatting import printable, text_table
from c2d.user_code import trust

USAGE = """usage: c2d resume RUN [--iterations N] [--env NAME] [--trust NAME] [--fork NEW_RUN] [settings]

Resume a run from its last checkpoint, as if it had never stopped. RUN is a directory written by `c2d train`.

  --iterations N        Train up to N iterations in total; may be more than before
  --threads N           CPU threads; with others than before, results may differ by rounding (default: as at the start)
  --device DEVICE       Where networks live: cpu, cuda, cuda:1, ... (default: as at the start)
  --compile MODE        Mode of torch.compile (default: as at the start)
  --env MODULE:CLASS    Required again for your own class: code is never imported because a file names it
  --trust MODULE:CLASS  Likewise for your own part, such as a head; can be given several times
  --fork NEW_RUN        Leave RUN unchanged and continue in a new directory; then every other setting may change too,
                        such as --optim.learning-rate (c2d train --help-all lists them)"""


def main(arguments: Sequence[str]) -> None:
    words = list(arguments)
    if not words or {"-h", "--help"} & set(words):
        print(USAGE)
        if not words:
            raise UserError("no run given; accepted: c2d resume RUN, a directory written by `c2d train`")
        return
    config, source = read(words)
    from c2d.api import train
    from c2d.runs.layout import RunDir
    from c2d.training.process import keep_memory
    from c2d.training.resume import fork, reject_differences

    old, new = RunDir(source), RunDir(config.directory)
    if old.path != new.path:
        if kind_of(new.path) is not None:
            raise UserError(f"--fork {new.path} exists; accepted: a new directory")
        fork(old, new, config, _warn)
    else:
        reject_differences(old, read_old(old.path), config)
    keep_memory()
    result = train(config)
    if result.state == "finished" or result.reason:
        print(f"next: {result.run_dir.command('evaluate', config)}")


def read_old(path: Path) -> Config:
    from c2d.runs.layout import RunDir
    from c2d.training.resume import config_of

    return config_of(RunDir(path), _warn)


def _warn(text: str) -> None:
    print(f"warning: {printable(text)}", file=sys.stderr)


def read(words: list[str]) -> tuple[Config, Path]:
    """The config to continue with, and the run to continue from."""
    env, words = peek(take_trust(words), "--env", remove=True)
    target, words = peek(words, "--fork", remove=True)
    if words[0].startswith("-"):
        raise UserError(f'"{words[0]}" is not a run; accepted: the run first, c2d resume RUN [settings]')
    source, words = Path(words[0]), words[1:]
    if not source.is_dir():
        raise UserError(f"{source} is not a directory; accepted: a run directory written by `c2d train`")
    before = read_old(source)
    require_trusted_env(before.env, env, rules=before.rules)
    before, words = with_environment_options(before, words)
    trust(peek(words, "--phi.kind")[0] or "")
    config = parse(dataclasses.replace(before, run_dir=str(target or source)), words, prog="c2d resume RUN")
    validate(config)
    return config, source


# ---------------------------------------------------------------------------------------------------- verify-resume


_VERIFY = (
    "Verify on this machine that a run killed with kill -9 and resumed equals an uninterrupted run bit for bit: "
    "records, episodes, weights, optimizer, replay, random generators, the game. Exit code 1 if it does not."
)
POINTS, STEPS, AFTER = 10, 2_500, 100  # Atari games that are saved and restored in addition to the killed run


@dataclass(frozen=True)
class VerifyResumeOptions:
    """The options of `c2d verify-resume`."""

    env: tyro.conf.Positional[str] = "breakout"
    """Environment, as for c2d train."""
    recipe: str = "c2d"
    """Recipe of the run."""
    steps: int = 400
    """Agent steps of the whole run."""
    kills: int = 2
    """Number of times the run is killed, at evenly spaced steps."""
    envs: int = 1
    """Environments of the run."""
    overlap: bool = False
    """Environments step while the learner updates."""
    actors: int = 0
    """Actors that play, on a Ray of their own; 0: the process of the run plays."""
    seed: int = 1
    """Seed of the run."""
    threads: int = 1
    """CPU threads for the networks."""
    keep: bool = False
    """Keep the two run directories and print where they are."""


def verify(arguments: Sequence[str]) -> None:
    chosen = options(VerifyResumeOptions, list(arguments), "c2d verify-resume", _VERIFY)
    for name, value, least in (("steps", chosen.steps, 40), ("kills", chosen.kills, 1), ("threads", chosen.threads, 1)):
        if value < least:
            raise UserError(f"--{name} is {value}; accepted: at least {least}")
    if chosen.kills > chosen.steps // 20:
        raise UserError(f"--kills is {chosen.kills}; accepted: at most one per 20 steps")
    where = Path(tempfile.mkdtemp(prefix="c2d-verify-"))
    try:
        if not _verify(chosen, where):
            sys.exit(1)
    finally:
        if chosen.keep:
            print(f"the runs are in {where}")
        else:
            shutil.rmtree(where, ignore_errors=True)


def _verify(chosen: VerifyResumeOptions, where: Path) -> bool:
    from c2d.config import Checkpointing, default_config
    from c2d.envs.trial import NOT_EXACT
    from c2d.training import verification

    config = default_config(chosen.env, chosen.recipe, seed=chosen.seed, threads=chosen.threads)
    length = chosen.steps // 2
    schedule = dataclasses.replace(
        config.recipe.schedule,
        steps_per_iteration=length,
        random_history=100,
        replay_capacity=max(chosen.steps // 2, 100),  # so that the ring wraps around
        target_period=max(chosen.steps // 5, 1),
        epsilon_decay_steps=chosen.steps,
    )
    config = dataclasses.replace(
        config,
        iterations=2,
        tensorboard=False,
        actors=chosen.actors,
        actor=dataclasses.replace(config.actor, weights_period=7 if chosen.actors else config.actor.weights_period),
        checkpoint=Checkpointing(every_steps=max(chosen.steps // 9, 7), every_minutes=0.0),
        recipe=dataclasses.replace(config.recipe, schedule=schedule, envs=chosen.envs, overlap=chosen.overlap),
    )
    validate(config)
    kills = [round(2 * length * (k + 1) / (chosen.kills + 1)) for k in range(chosen.kills)]
    several = f", {chosen.envs} environments" if chosen.envs > 1 else ""
    several += f", {chosen.actors} actors" if chosen.actors else ""
    overlap = ", overlapping" if chosen.overlap else ""
    print(
        f"verifying exact resume: {config.env}{several}{overlap}, recipe {chosen.recipe}, seed {chosen.seed}, "
        f"{2 * length} steps"
    )
    comparisons = verification.verify(config, kills, where, print)
    rows = [(c.part, c.straight, c.resumed, "equal" if c.equal else "DIFFERENT") for c in comparisons]
    print("\n" + "\n".join(text_table([("part", "uninterrupted", "killed and resumed", ""), *rows], left=4)))
    wrong = [c.part for c in comparisons if not c.equal]
    times = "once" if chosen.kills == 1 else f"{chosen.kills} times"
    print(f"\nkilled {times}, resumed: " + (f"DIFFERENT in {', '.join(wrong)}" if wrong else "equal, bit for bit"))
    continues = _continues(config)
    if not continues or "environment" in wrong:
        print(NOT_EXACT)
    return continues and not wrong


def _continues(config: Config) -> bool:
    """Save an Atari game at more points than a few kills reach, restore it in new emulators, and compare."""
    from c2d.envs.make import make
    from c2d.envs.trial import unequal

    if not config.env.startswith("atari/"):
        return True
    wrong = unequal(lambda: make(config.env, config.rules, config.seed), POINTS, STEPS, AFTER)
    at = f", DIFFERENT after steps {', '.join(map(str, wrong))}" if wrong else ""
    print(
        f"{config.env}, {STEPS:,} random steps, saved {POINTS} times and restored in new emulators, "
        f"{AFTER} steps compared: {POINTS - len(wrong)} of {POINTS} equal{at}"
    )
    return not wrong
