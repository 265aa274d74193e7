"""c2d resume RUN [--fork NEW_RUN] [settings]"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Sequence
from pathlib import Path

from c2d.cli.settings import parse, peek
from c2d.config import Config, validate
from c2d.envs.names import require_trusted_env
from c2d.errors import UserError
from c2d.files import kind_of
from c2d.formatting import printable
from c2d.recipes.user_code import trust

USAGE = """usage: c2d resume RUN [--iterations N] [--env MODULE:CLASS] [--fork NEW_RUN] [settings]

Go on with a run from its last checkpoint, as if it had never stopped. RUN is the directory that `c2d train` made.

  --iterations N     train up to N iterations altogether; may be more than before
  --threads N        CPU threads; another number than before is allowed, but the results may differ by rounding
  --device D         likewise
  --env MODULE:CLASS needed again for a class of your own: code is never imported because a file names it
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
    from c2d.runs.layout import RunDir
    from c2d.training.process import keep_memory
    from c2d.training.resume import fork, reject_differences

    old, new = RunDir(source), RunDir(config.directory)
    if old.path != new.path:
        if kind_of(new.path) is not None:
            raise UserError(f"--fork {new.path} exists already; name a new directory")
        fork(old, new, config, _warn)
    else:
        reject_differences(old, read_old(old.path), config)
    keep_memory()
    result = train(config)
    if result.state == "finished":
        print(f"next: {result.run_dir.command('evaluate', config.env)}")


def read_old(path: Path) -> Config:
    from c2d.runs.layout import RunDir
    from c2d.training.resume import config_of

    return config_of(RunDir(path), _warn)


def _warn(text: str) -> None:
    print(f"warning: {printable(text)}", file=sys.stderr)


def read(words: list[str]) -> tuple[Config, Path]:
    """The config to go on with, and the run to go on from."""
    env, words = peek(words, "--env", remove=True)
    target, words = peek(words, "--fork", remove=True)
    if words[0].startswith("-"):
        raise UserError("the run comes first: c2d resume RUN [settings]")
    source, words = Path(words[0]), words[1:]
    if not source.is_dir():
        raise UserError(f"{source} is not a run directory: it does not exist or is a file")
    before = read_old(source)
    require_trusted_env(before.env, env)
    config = parse(dataclasses.replace(before, run_dir=str(target or source)), words, prog="c2d resume RUN")
    if peek(words, "--phi.kind")[0] is not None:
        trust(config.recipe.phi.kind)
    validate(config)
    return config, source
