"""The command `c2d`: runs a subcommand, and turns user errors into one line and exit code 2."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence

from c2d import __version__
from c2d.errors import UserError, unknown_name
from c2d.formatting import printable, text_table

# name -> (module with a function `main(arguments)`, or module:function; one line of help). Imported only when called.
COMMANDS: dict[str, tuple[str, str]] = {
    "quickstart": ("c2d.cli.quickstart", "train on a small game for a few minutes and check that it learns"),
    "train": ("c2d.cli.train", "train an agent on a game"),
    "resume": ("c2d.cli.resume", "resume a run from its last checkpoint"),
    "trust": ("c2d.cli.train:trust_modules", "let commands in this directory import a module of your own"),
    "recipes": ("c2d.cli.recipes", "list the algorithms, or compare two of them"),
    "sweep": ("c2d.cli.sweep", "run recipes × environments × seeds, here or on a cluster"),
    "ablate": ("c2d.cli.sweep:ablate", "run a recipe without each of its ingredients"),
    "check-env": ("c2d.cli.check_env", "play your environment at random and say whether it is fit for training"),
    "evaluate": ("c2d.cli.evaluate", "play whole games with a trained agent and report the score"),
    "export": ("c2d.cli.export", "write a trained agent as ONNX, torch.export, or a directory with a model card"),
    "serve": ("c2d.cli.serve", "follow runs and watch agents play in a browser"),
    "theory": ("c2d.cli.theory", "the paper's theory on finite MDPs: counterexample, statements, your own φ"),
    "bench": ("c2d.cli.bench", "measure speed and memory on this machine"),
    "verify-resume": ("c2d.cli.resume:verify", "verify on this machine that a killed and resumed run loses nothing"),
    "fingerprint": ("c2d.cli.reports:fingerprint", "compare a run's first iterations with the published ones"),
    "report": ("c2d.cli.reports:report", "write figures, tables and a page that compare runs with published agents"),
    "compare": (
        "c2d.cli.reports:compare",
        "compare runs with published agents in the terminal, with confidence intervals",
    ),
    "ledger": ("c2d.cli.reports:ledger", "list every number and claim of the paper, and ours"),
}
SPINS = "1000"  # about 20 µs of waiting (docs/results/threads.md)
EXAMPLES = """examples:
  c2d train minatar/breakout --iterations 10     a small game, minutes on a laptop
  c2d train gym/CartPole-v1                      any Gymnasium environment with discrete actions
  c2d train breakout                             the paper's agent and protocol: 200M frames
  c2d evaluate runs/minatar-breakout-c2d-s1      play whole games and report the score"""


def usage() -> str:
    rows = "\n".join(f"  {row}" for row in text_table([(name, line) for name, (_, line) in COMMANDS.items()], left=2))
    return (
        f"c2d {__version__}: distributional reinforcement learning with conjugated discrete distributions\n\n"
        f"usage: c2d COMMAND [options]\n\ncommands:\n{rows}\n\n{EXAMPLES}\n\n"
        "c2d COMMAND --help explains every option."
    )


def main(arguments: Sequence[str] | None = None) -> int:
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        code = _run(words)
        sys.stdout.flush()
        return code
    except UserError as error:
        print(f"c2d: {printable(error)}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("c2d: stopped", file=sys.stderr)
        return 130
    except BrokenPipeError:  # the reader of the output is gone
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1


def _run(words: list[str]) -> int:
    if not words or words[0] in ("-h", "--help", "help"):
        print(usage())
        return 0 if words else 2
    if words[0] in ("-V", "--version"):
        print(f"c2d {__version__}")
        return 0
    if words[0] not in COMMANDS:
        raise unknown_name("command", words[0], COMMANDS)
    module, _, function = COMMANDS[words[0]][0].partition(":")
    getattr(importlib.import_module(module), function or "main")(words[1:])
    return 0


def wait_briefly() -> None:
    """Let threads that wait for each other sleep soon, unless the environment says how they wait.

    By default those of libgomp, which PyTorch loads, try 300,000 times first, for milliseconds, and meanwhile hold the
    cores that the threads they wait for need: training with all cores almost stops while another program uses one
    (docs/results/threads.md). The library reads this when it is loaded, so it must come before `import torch`.
    """
    if not {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT"} & os.environ.keys():
        os.environ["GOMP_SPINCOUNT"] = SPINS


def entry() -> None:
    """The installed command."""
    wait_briefly()
    sys.exit(main())


if __name__ == "__main__":
    entry()
