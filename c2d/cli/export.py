"""c2d export RUN [--onnx FILE] [--torch-export FILE] [--hub DIR]"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import tyro

from c2d.cli.settings import options
from c2d.errors import UserError

DESCRIPTION = (
    "Take a trained agent elsewhere: as an ONNX model, as a program of torch.export, or as a directory with a model "
    "card that c2d.load and c2d evaluate read. Models have the outputs expected_returns [batch, actions], returns and "
    "probabilities [batch, actions, atoms], all in real returns, and are compared with PyTorch before they are put in "
    "place."
)


@dataclass(frozen=True)
class ExportOptions:
    """The options of `c2d export`."""

    run: tyro.conf.Positional[str] = ""
    """Run directory written by `c2d train`."""
    onnx: str | None = None
    """Write an ONNX model, FILE.onnx; checked with ONNX Runtime. Needs c2d[onnx]."""
    opset: int | None = None
    """Version of the ONNX operators; None: the usual one of the exporter."""
    torch_export: str | None = None
    """Write a program of torch.export, FILE.pt2. (TorchScript is deprecated in PyTorch, so it is not written.)"""
    hub: str | None = None
    """Write a directory with weights, settings and a model card (README.md), to be put on a hub."""
    overwrite: bool = False
    """Replace the files of an earlier export in the directory of --hub."""
    weights: str = "newest"
    """Which weights: newest; best, as c2d train --keep-best keeps them; or the training steps behind one that the run
    has kept (--checkpoint.keep-weights)."""
    phi: str | None = None
    """Your own φ, my_package.my_module:my_phi, must be named here if the run uses it."""
    trust: tyro.conf.UseAppendAction[tuple[str, ...]] = ()
    """Your own part, my_package.my_module:MyHead, must be named here if the run uses it; can be given several times."""


def main(arguments: Sequence[str]) -> None:
    chosen = options(ExportOptions, list(arguments), "c2d export", DESCRIPTION)
    if not chosen.run:
        raise UserError("no run given; accepted: c2d export RUN, a directory written by `c2d train`")
    if not (chosen.onnx or chosen.torch_export or chosen.hub):
        raise UserError(
            "nothing to write; accepted: --onnx policy.onnx, --torch-export policy.pt2, --hub DIR, or several"
        )
    for given, needed in (("opset", "onnx"), ("overwrite", "hub")):
        if getattr(chosen, given) and not getattr(chosen, needed):
            raise UserError(f"--{given} is given without --{needed}, which it is for; accepted: both")
    from c2d.evaluation.model_card import export
    from c2d.user_code import trust

    for name in (*chosen.trust, chosen.phi or ""):
        trust(name)
    outputs = (chosen.onnx, chosen.torch_export, chosen.hub)
    for made in export(chosen.run, *outputs, chosen.opset, chosen.overwrite, chosen.weights):
        print(f"written: {made.path}")
        if made.comparison is not None:
            print(f"  {made.comparison.line()}")
        else:
            print(f"  c2d evaluate {made.path} --games 100 plays it; README.md is its model card")
