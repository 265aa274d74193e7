"""A trained network as a file for other programs: ONNX, or an exported program of PyTorch.

What is exported is the pass that acts: running statistics, the means of noisy weights, the midpoints of fractions. The
outputs are real returns, after φ⁻¹. A file is compared with the network before it is put in place.
"""

from __future__ import annotations

import io
import json
import logging
import math
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from c2d import __version__
from c2d.errors import UserError
from c2d.files import check_destination, write_atomically

if TYPE_CHECKING:
    from c2d.agents.agent import Agent

INPUTS = ("observation",)  # [B, *obs] u8 or f32, as `FrameStack` has them
OUTPUTS = ("expected_returns", "returns", "probabilities")  # [B, A], and atoms with their probabilities: [B, A, N]
# Of a network with a core also what was done before [B] i64 (-1: the episode begins), what it earned [B] f32, and what
# is remembered [B, K] f32 (zeros when the episode begins); and what is remembered then.
MORE_INPUTS, MORE_OUTPUTS = ("last_action", "last_reward", "memory"), ("next_memory",)
OLDEST_OPSET = 13
_BATCHES = (1, 5)  # that are compared; the network is exported with another
_TOLERANCE = 1e-3  # of 1 plus the largest return, and of probabilities

Run = Callable[[Sequence[np.ndarray]], list[np.ndarray]]


class Agreement(NamedTuple):
    """How far the outputs of a file are from those of the network."""

    returns: float  # largest absolute difference, expected returns included
    scale: float  # largest absolute return
    probabilities: float  # largest absolute difference
    memory: float = 0.0  # largest absolute difference of what is remembered

    def line(self) -> str:
        return (
            f"largest difference from PyTorch: {self.returns:.2g} in returns of up to {self.scale:.4g}, "
            f"{self.probabilities:.2g} in probabilities" + (f", {self.memory:.2g} in memory" if self.memory else "")
        )


class Acting(nn.Module):
    """Inputs -> expected real returns [B, A], atoms as real returns and probabilities [B, A, N]; then memory [B, K]."""

    def __init__(self, agent: Agent) -> None:
        super().__init__()
        self.network, self.phi = agent.network, agent.phi

    def forward(self, observation: Tensor, *remembered: Tensor) -> tuple[Tensor, ...]:
        after: tuple[Tensor, ...] = ()
        if remembered:
            action, reward, memory = remembered
            law, memory = self.network.step(observation, action, reward, memory)
            after = (memory.detach(),)
        else:
            law = self.network(observation, "act")
        returns, probabilities = self.phi.back(law.atoms).detach(), law.log_probs.exp().detach()
        return (probabilities * returns).sum(-1), returns, probabilities, *after


def export_onnx(agent: Agent, path: Path, opset: int | None = None) -> Agreement:
    """Write an ONNX model; `opset` None: the one that the exporter writes."""
    check_onnx(path, opset)
    agent = _on_cpu(agent)
    with _quiet():
        data = _onnx_bytes(agent, opset)
        compared = compare(agent, _onnx_session(data, opset, *names_of(agent)), f"{path}, an ONNX model,")
    _write(path, data)
    return compared


def check_onnx(path: Path, opset: int | None) -> None:
    """Reject what cannot be written, before the work."""
    missing = [name for name in ("onnx", "onnxruntime", "onnxscript") if find_spec(name) is None]
    if missing:
        raise UserError(f"ONNX needs packages that are not installed ({', '.join(missing)}): pip install 'c2d[onnx]'")
    import onnx

    newest = onnx.defs.onnx_opset_version()
    if opset is not None and not OLDEST_OPSET <= opset <= newest:
        raise UserError(f"--opset is {opset}; accepted: from {OLDEST_OPSET} to {newest}, with this version of ONNX")
    check_destination(path, "--onnx", (".onnx",))


def export_torch(agent: Agent, path: Path) -> Agreement:
    """Write a program of torch.export, which `torch.export.load` reads, and AOTInductor compiles for C++."""
    check_torch(path)
    agent = _on_cpu(agent)
    with _quiet():
        buffer = io.BytesIO()
        try:
            torch.export.save(exported_program(agent), buffer, extra_files={"c2d.json": json.dumps(facts(agent))})
            data = buffer.getvalue()
            program: Any = torch.export.load(io.BytesIO(data)).module()
        except UserError:
            raise
        except Exception as error:  # of PyTorch's exporter, which has no class of errors
            raise UserError(f"torch.export cannot save this network: {_first_line(error)}") from None

        def run(given: Sequence[np.ndarray]) -> list[np.ndarray]:
            with torch.inference_mode():
                return [part.numpy() for part in program(*map(torch.from_numpy, given))]

        compared = compare(agent, run, f"{path}, an exported program,")
    _write(path, data)
    return compared


def check_torch(path: Path) -> None:
    """Likewise."""
    check_destination(path, "--torch-export", (".pt2",))


def _on_cpu(agent: Agent) -> Agent:
    """The same agent, or a copy of one on another device."""
    if agent.actor.device.type == "cpu":
        return agent
    return type(agent).from_bytes(agent.to_bytes(), agent.recipe, agent.spec)


def facts(agent: Agent) -> dict[str, Any]:
    """What a program that uses the file has to know, beside the weights."""
    spec, recipe = agent.spec, agent.recipe
    return {
        "c2d": __version__,
        "environment": spec.name,
        "actions": list(spec.action_names),
        "observation": {"type": spec.frame_dtype, "shape": ["batch", *spec.obs_shape], "frames": spec.stack},
        **({"memory": agent.actor.memory} if agent.remembers else {}),
        **({"masked": True} if spec.masked else {}),
        "gamma": recipe.schedule.gamma,
        "n_step": recipe.n_step,
        "clip_reward": recipe.clip_reward,
        "phi": recipe.phi.kind,
    }


def exported_program(agent: Agent) -> Any:
    """The acting pass as a graph of plain operations, for batches of any size."""
    if not agent.finite():
        raise UserError("the network has weights that are not finite (training diverged): it is not exported")
    example = tuple(map(torch.from_numpy, made_up(agent, 3)))
    batch = {0: torch.export.Dim("batch", min=1)}
    shapes = {"observation": batch, **({"remembered": (batch,) * len(MORE_INPUTS)} if agent.remembers else {})}
    try:
        with torch.no_grad():
            return torch.export.export(Acting(agent), example, dynamic_shapes=shapes)
    except Exception as error:
        own = "a part of your own must be made of operations of PyTorch that do not depend on values"
        raise UserError(f"torch.export cannot read this network: {_first_line(error)}; accepted: {own}") from None


def compare(agent: Agent, run: Run, what: str) -> Agreement:
    """Largest differences on random observations, in batches of several sizes. UserError if they are not small."""
    acting, worst = Acting(agent), Agreement(0.0, 0.0, 0.0)
    for size in _BATCHES:
        given = made_up(agent, size)
        with torch.inference_mode():
            wanted = [part.numpy() for part in acting(*map(torch.from_numpy, given))]
        found = run(given)
        apart = [float(np.abs(a - b).max()) if a.shape == b.shape else np.inf for a, b in zip(found, wanted)]  # noqa: B905
        scale = max(float(np.abs(part).max()) for part in wanted[:2])
        pairs = zip(worst, (max(apart[:2]), scale, *apart[2:], 0.0), strict=False)
        worst = Agreement(*(float(np.maximum(a, b)) for a, b in pairs))  # NaN stays
    close = max(worst.probabilities, worst.memory) <= _TOLERANCE  # NaN is not
    if not (worst.returns <= _TOLERANCE * (1 + worst.scale) and close and not math.isnan(worst.memory)):
        raise UserError(f"{what} does not agree with the network and is not written; {worst.line()}")
    return worst


def made_up(agent: Agent, count: int) -> list[np.ndarray]:
    """Inputs by chance: bytes (zeros and ones in MinAtar), or numbers of a standard normal distribution."""
    rng, spec = np.random.default_rng(count), agent.spec
    shape = (count, *spec.obs_shape)
    if spec.frame_dtype == "uint8":
        obs: np.ndarray = rng.integers(2 if spec.family == "minatar" else 256, size=shape, dtype=np.uint8)
    else:
        obs = rng.standard_normal(shape, dtype=np.float32)
    if not agent.remembers:
        return [obs]
    normal = (rng.standard_normal(size, dtype=np.float32) for size in ((count,), (count, agent.actor.memory)))
    return [obs, rng.integers(-1, spec.actions, size=count), *normal]


def names_of(agent: Agent) -> tuple[list[str], list[str]]:
    """Of the inputs and outputs."""
    more = agent.remembers
    return [*INPUTS, *(MORE_INPUTS if more else ())], [*OUTPUTS, *(MORE_OUTPUTS if more else ())]


# ------------------------------------------------------------------------------------------------------------- ONNX


def _onnx_bytes(agent: Agent, opset: int | None) -> bytes:
    program, (inputs, outputs) = exported_program(agent), names_of(agent)
    try:
        made: Any = torch.onnx.export(
            program,
            input_names=inputs,
            output_names=outputs,
            opset_version=opset,
            dynamo=True,
            external_data=False,
            verbose=False,
        )
        model = made.model_proto
        data = bytes(_with_facts(model, agent).SerializeToString())
    except Exception as error:  # what an exporter raises has many classes
        raise UserError(_onnx_trouble(error)) from None
    written = next(entry.version for entry in model.opset_import if entry.domain == "")
    if opset is not None and written != opset:
        raise UserError(
            f"--opset is {opset}, which lacks an operator of this network; "
            f"accepted: {written}, or none for the usual one"
        )
    return data


def _with_facts(model: Any, agent: Agent) -> Any:
    model.doc_string = "expected_returns: [batch, actions]; returns and probabilities: [batch, actions, atoms]"
    for name, value in facts(agent).items():
        entry = model.metadata_props.add()
        entry.key, entry.value = name, value if isinstance(value, str) else json.dumps(value)
    return model


def _onnx_trouble(error: BaseException) -> str:
    """The innermost reason, in a line."""
    cause: BaseException | None = error
    while cause is not None:
        if found := re.search(r"No ONNX function found for <OpOverload\(op='([^']+)'", str(cause)):
            return f"ONNX has no operator for {found[1]}, which this network uses; accepted: --torch-export"
        error, cause = cause, cause.__cause__
    return f"ONNX cannot express this network: {_first_line(error)}"


def _onnx_session(data: bytes, opset: int | None, inputs: list[str], outputs: list[str]) -> Run:
    import onnxruntime

    onnxruntime.set_default_logger_severity(4)
    try:
        session = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])
    except Exception as error:  # its classes are not public
        if opset is not None:
            version = onnxruntime.__version__
            raise UserError(
                f"--opset is {opset}, which ONNX Runtime {version} does not run; accepted: a lower one"
            ) from None
        raise UserError(f"ONNX Runtime does not run this model: {_first_line(error)}") from None
    return lambda given: list(session.run(outputs, dict(zip(inputs, given, strict=True))))


# ---------------------------------------------------------------------------------------------------------- the rest


@contextmanager
def _quiet() -> Iterator[None]:
    """Without what exporters say to those who write them."""
    logger = logging.getLogger()
    before = logger.manager.disable
    logging.disable(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


def _first_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0][:300] if lines else 'no reason given'}"


def _write(path: Path, data: bytes) -> None:
    try:
        write_atomically(path, data)
    except OSError as error:
        raise UserError(f"{path} cannot be written: {error.strerror}") from None
