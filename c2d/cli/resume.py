"""c2d resume RUN [--fork NEW_RUN] [settings]"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Sequence
from pathlib import Path

from c2d.cli.settings import parse, peek, take_trust
from c2d.config import Config, validate
from c2d.envs.names import require_trusted_env
from c2d.errors import UserError
from c2d.files import kind_of
from c2d.formatting import printable
from c2d.recipes.user_code import trust

USAGE = """usage: c2d resume RUN [--iterations N] [--env NAME] [--trust NAME] [--fork NEW_RUN] [settings]

Go on with a run from its last checkpoint, as if it had never stopped. RUN is the directory that `c2d train` made.

  --iterations N     train up to N iterations altogether; may be more than before
  --threads N        CPU threads; another number than before is allowed, but the results may differ by rounding
  --device D         likewise
  --env MODULE:CLASS needed again for an environment of your own: code is never imported because a file names it
  --trust MODULE:CLASS
                     likewise for a part of your own, such as a head; can be given several times
  --fork NEW_RUN     leave RUN alone and go on in a new directory; then every other setting may change too,
                     such as --optim.learning-rate (c2d train --help lists them)"""


def main(arguments: Sequence[str]) -> None:
    words = list(arguments)
    if not words or {"-h", "--help"} & set(words):
        print(USAGE)
        if not words:
            raise UserError("which run? c2d resume RUN, a directory that `c2d train` made")
        return
    config, source = read(words)
    from c2d.api import train
    from c2d.training.memory import keep_memory
    from c2d.training.resume import fork, refuse_differences
    from c2d.training.rundir import RunDir

    old, new = RunDir(source), RunDir(config.directory)
    if old.path != new.path:
        if kind_of(new.path) is not None:
            raise UserError(f"--fork {new.path} exists already; name a new directory")
        fork(old, new, config, _warn)
    else:
        refuse_differences(old, read_old(old.path), config)
    keep_memory()
    result = train(config)
    if result.state == "finished":
        print(f"next: {result.run_dir.command('evaluate', config.env)}")


def read_old(path: Path) -> Config:
    from c2d.training.resume import config_of
    from c2d.training.rundir import RunDir

    return config_of(RunDir(path), _warn)


def _warn(text: str) -> None:
    print(f"warning: {printable(text)}", file=sys.stderr)


def read(words: list[str]) -> tuple[Config, Path]:
    """The config to go on with, and the run to go on from."""
    env, words = peek(take_trust(words), "--env", remove=True)
    target, words = peek(words, "--fork", remove=True)
    if words[0].startswith("-"):
        raise UserError("the run comes first: c2d resume RUN [settings]")
    source, words = Path(words[0]), words[1:]
    if not source.is_dir():
        raise UserError(f"{source} is not a run directory: it does not exist or is a file")
    before = read_old(source)
    require_trusted_env(before.env, env)
    trust(peek(words, "--phi.kind")[0] or "")
    config = parse(dataclasses.replace(before, run_dir=str(target or source)), words, prog="c2d resume RUN")
    validate(config)
    return config, source
