"""Trained agents for others: files for other programs, and a directory with a model card.

The directory is the part of a run directory that `c2d.load` and `c2d evaluate` read, with the same names, and a
README.md that says what the agent is. It has no paths of this machine, no checkpoints, and nothing that is unpickled.
"""

from __future__ import annotations

import json
import os
import shlex
import tempfile
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, NamedTuple

from c2d import __version__
from c2d.agents.exported import Agreement, check_onnx, check_torch
from c2d.config import changed_settings, options_of, to_json
from c2d.envs.games import human_normalized
from c2d.envs.names import must_be_named
from c2d.errors import UserError
from c2d.evaluation.loaded_run import LoadedRun, open_for_reading
from c2d.evaluation.statistics import bootstrap_interval
from c2d.files import LINES, kind_of, names_inside, read_text, write_atomically, write_json
from c2d.formatting import plural, printable
from c2d.runs.layout import RunDir
from c2d.training.run import Result

CARD = "README.md"
_GAMES = 100  # the last ones of training that are summarized
_SHOWN = 20  # evaluations in the card, the newest ones


class Exported(NamedTuple):
    """One thing that was written."""

    path: Path
    comparison: Agreement | None  # with PyTorch; None of a directory


def export(
    run: str | os.PathLike[str] | Result,
    onnx: str | os.PathLike[str] | None = None,
    torch_export: str | os.PathLike[str] | None = None,
    hub: str | os.PathLike[str] | None = None,
    opset: int | None = None,
    overwrite: bool = False,
    weights: str | int = "newest",
) -> list[Exported]:
    """Write a trained agent as an ONNX model, as a program of torch.export, or as a directory with a model card.

    Returns what was written, and how far each model is from PyTorch on random observations. `weights` are those of
    `c2d.load`: "newest", "best", or the training steps behind one that the run kept.
    """
    subject = open_for_reading(run.run_dir.path if isinstance(run, Result) else run, weights)
    if not subject.agent.finite():
        raise UserError(
            f"{subject.run_dir.path} has weights that are not finite (training diverged): nothing to export"
        )
    if hub is not None:
        _check_directory(Path(hub), overwrite)
    if onnx is not None:
        check_onnx(Path(onnx), opset)
    if torch_export is not None:
        check_torch(Path(torch_export))
    written = []
    if hub is not None:
        written.append(Exported(write_hub(subject, Path(hub)), None))
    if onnx is not None:
        written.append(Exported(Path(onnx), subject.agent.export_onnx(onnx, opset)))
    if torch_export is not None:
        written.append(Exported(Path(torch_export), subject.agent.export_torch(torch_export)))
    return written


# --------------------------------------------------------------------------------------------------------- directory


def write_hub(subject: LoadedRun, directory: Path) -> Path:
    """The agent as a directory. A new one appears as a whole; files of an existing one are replaced one by one."""
    try:
        if directory.is_dir():
            _fill(subject, directory)
            return directory
        with tempfile.TemporaryDirectory(dir=directory.parent, prefix=f".{directory.name}.") as place:
            made = Path(place) / "made"
            made.mkdir()
            _fill(subject, made)
            made.rename(directory)
    except OSError as error:
        raise UserError(f"--hub {directory} cannot be written: {error.strerror}") from None
    return directory


def _check_directory(directory: Path, overwrite: bool) -> None:
    if not directory.exists():
        if not directory.parent.is_dir():
            raise UserError(f"--hub {directory} cannot be written; accepted: a directory within one that exists")
        return
    if not directory.is_dir():
        raise UserError(f"--hub {directory} is a file; accepted: a new directory")
    target = RunDir(directory)
    if kind_of(target.records) or kind_of(target.checkpoints) or kind_of(target.lock):
        raise UserError(f"--hub {directory} holds a run, which is never overwritten; accepted: another directory")
    names = (target.config, target.env, target.passport, target.weights, target.summary, directory / CARD)
    taken = [path.name for path in names if kind_of(path) is not None]
    if taken and not overwrite:
        raise UserError(
            f"--hub {directory} has {', '.join(taken)} already; accepted: a directory without them, or --overwrite True"
        )


def _fill(subject: LoadedRun, directory: Path) -> None:
    target, config = RunDir(directory), replace(subject.config, run_dir=None)
    card = model_card(subject)  # before anything is written
    target.write_weights(subject.agent.to_bytes())
    write_json(target.config, to_json(config))
    spec = subject.agent.spec
    write_json(target.env, {field.name: getattr(spec, field.name) for field in fields(spec)})
    if (rules := _passport(subject)) is not None:
        write_json(target.passport, rules)
    if subject.steps is not None:
        write_json(target.summary, {"state": "exported", "steps": subject.steps, "iterations": subject.iterations})
    write_atomically(directory / CARD, card.encode())


def _passport(subject: LoadedRun) -> dict[str, Any] | None:
    run = subject.run_dir
    return None if kind_of(run.passport) is None else run.read_json(run.passport)


# -------------------------------------------------------------------------------------------------------- model card


def model_card(subject: LoadedRun) -> str:
    """README.md: a header for hubs, scores with intervals, calibration, rules, and how the agent is used."""
    played = evaluations(subject.run_dir)
    parts = [
        _header(subject, played),
        f"# {_title(subject)}",
        _introduction(subject),
        "## Scores",
        *_scores(subject, played),
        *_calibration(_of_this_agent(subject, played)),
        "## Use",
        *_use(subject),
        "## Rules",
        *_rules(subject),
        "## Training",
        *_training(subject),
    ]
    return "\n\n".join(parts) + "\n"


def evaluations(run: RunDir) -> list[dict[str, Any]]:
    """What `c2d evaluate` has written into the run, the oldest first; files that do not hold that are left out."""
    found = []
    for name in names_inside(run.path, run.evaluations.name):
        try:
            record = run.read_json(run.evaluations / name)
            summary = record["summary"]
            numbers = (summary["games"], summary["mean"], summary["median"], record["epsilon"], record["seed"])
            if all(type(number) in (int, float) for number in numbers) and isinstance(record["env"], str):
                found.append(record)
        except (UserError, KeyError, TypeError):
            continue
    return found


def _of_this_agent(subject: LoadedRun, played: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Evaluations of these weights on the environment of training."""
    env, steps = subject.config.env, subject.steps
    return [record for record in played if record["env"] == env and record.get("steps") == steps]


def _title(subject: LoadedRun) -> str:
    return _text(f"{subject.config.recipe_name} on {subject.config.env}")


def _header(subject: LoadedRun, played: list[dict[str, Any]]) -> str:
    """YAML, of which JSON is a part: every text is quoted as JSON."""
    env, title = subject.config.env, f"{subject.config.recipe_name} on {subject.config.env}"
    lines = ["---", "library_name: c2d", "pipeline_tag: reinforcement-learning", "tags:"]
    tags = ["reinforcement-learning", "distributional-reinforcement-learning", "c2d", subject.config.recipe_name, env]
    lines += [f"- {_quoted(tag)}" for tag in dict.fromkeys(tags)]
    own = _of_this_agent(subject, played)
    if own:
        newest = own[-1]["summary"]
        interval = newest.get("interval")
        spread = f" (95 % interval {interval[0]:.2f} to {interval[1]:.2f})" if _is_interval(interval) else ""
        value = f"{newest['mean']:.2f}{spread}"
        lines += [
            "model-index:",
            f"- name: {_quoted(title)}",
            "  results:",
            "  - task:",
            "      type: reinforcement-learning",
            "    dataset:",
            f"      name: {_quoted(env)}",
            f"      type: {_quoted(env)}",
            "    metrics:",
            "    - type: mean_reward",
            f"      name: mean score of {plural(int(newest['games']), 'game')}",
            f"      value: {_quoted(value)}",
        ]
    return "\n".join([*lines, "---"])


def _introduction(subject: LoadedRun) -> str:
    steps = "" if subject.steps is None else f" It was trained for {subject.steps:,} agent steps."
    return (
        f"An agent for {_code(subject.config.env)}, trained by the recipe {_code(subject.config.recipe_name)} of C2D "
        f"{__version__}.{steps} For every action it predicts the distribution of the return: "
        f"{subject.prediction}."
    )


def _scores(subject: LoadedRun, played: list[dict[str, Any]]) -> list[str]:
    parts = ["A score is the sum of raw rewards of a whole game. Intervals: 95 %, bootstrap over games."]
    if played:
        rows = ["| environment | steps trained | games | mean | 95 % interval | median | ε | seed |", "|---" * 8 + "|"]
        rows += [_row(record) for record in played[-_SHOWN:]]
        parts.append("\n".join(rows))
        family, _, key = subject.config.env.partition("/")
        own = _of_this_agent(subject, played)
        if family == "atari" and own and (score := human_normalized(key, own[-1]["summary"]["mean"])) is not None:
            parts.append(f"Human-normalized score of the newest evaluation: {score:.3f} (0: random play, 1: a human).")
    else:
        parts.append("No games were evaluated before the export: `c2d evaluate` plays some.")
    last = training_scores(subject.run_dir)
    if last:
        mean, spread = sum(last) / len(last), ""
        if len(last) > 1:
            spread = " (95 % interval {:.2f} to {:.2f})".format(*bootstrap_interval(last))
        parts.append(
            f"Mean of the last {plural(len(last), 'game')} of training, with its exploration: {mean:.2f}{spread}."
        )
    return parts


def _row(record: dict[str, Any]) -> str:
    summary, interval = record["summary"], record["summary"].get("interval")
    spread = f"{interval[0]:.2f} to {interval[1]:.2f}" if _is_interval(interval) else "–"
    steps = record.get("steps")
    cells = [
        _code(record["env"]),
        f"{steps:,}" if type(steps) is int else "–",
        f"{summary['games']:,}",
        f"{summary['mean']:.2f}",
        spread,
        f"{summary['median']:.2f}",
        f"{record['epsilon']:g}",
        f"{record['seed']}",
    ]
    return f"| {' | '.join(cells)} |"


def training_scores(run: RunDir) -> list[float]:
    """Scores of the last whole games of training; none if the run has no readable record of them."""
    try:
        lines = read_text(run.episodes, LINES, within=run.path).splitlines()
        return [float(line.split(",")[2]) for line in lines[1:][-_GAMES:]]
    except (OSError, ValueError, IndexError):
        return []


def _calibration(played: list[dict[str, Any]]) -> list[str]:
    """Of the newest evaluation that has one."""
    for record in reversed(played):
        found = record.get("calibration")
        try:
            assert isinstance(found, dict)
            rows = [f"| {name} | {_estimate(found[key])} |" for name, key in _CALIBRATED if found.get(key) is not None]
            rows += [f"| returns within the {100 * float(level):g} % interval | {_estimate(value, 100)} % |"
                     for level, value in found["coverage"].items()]  # fmt: skip
            games, steps = int(found["games"]), int(found["steps"])
        except (AssertionError, KeyError, TypeError, ValueError, AttributeError):
            continue
        about = (
            f"Predicted distributions of {steps:,} executed actions of {plural(games, 'game')}, compared with the "
            "discounted returns that followed. In parentheses: 95 %, bootstrap over games."
        )
        return ["## Calibration", about, "\n".join(["| | |", "|---|---|", *rows])]
    return []


_CALIBRATED = [
    ("mean, predicted", "predicted"),
    ("mean, realized", "realized"),
    ("bias: predicted less realized", "bias"),
    ("CRPS, smaller is better", "crps"),
    ("CRPS of one law for all states", "climatology"),
    ("skill: 1 is perfect, 0 no better than that", "skill"),
]


def _estimate(value: dict[str, Any], scale: float = 1.0) -> str:
    digits = 1 if scale != 1.0 else 3
    text = f"{scale * float(value['value']):.{digits}f}"
    interval: Any = value.get("interval")
    if not _is_interval(interval):
        return text
    return f"{text} ({scale * interval[0]:.{digits}f} to {scale * interval[1]:.{digits}f})"


def _use(subject: LoadedRun) -> list[str]:
    config, spec = subject.config, subject.agent.spec
    own = config.env.removeprefix("gym/")
    named = (
        f" --env {shlex.quote(printable(own, one_line=True)).replace('`', '')}"
        if must_be_named(own, config.rules)
        else ""
    )
    extra = {"atari": "[atari]", "minatar": "[minatar]"}.get(spec.family, "")
    observation = f"`{spec.frame_dtype}` {list(spec.obs_shape)}"
    stacked = f", the last {spec.stack} frames joined along the first axis" if spec.stack > 1 else ""
    names = ", ".join(f"{number} {name}" for number, name in enumerate(spec.action_names))
    actions = f"{spec.actions} actions" + (f" ({_text(names)})" if spec.action_names else "")
    masked = ", mask=legal" if spec.masked else ""
    return [
        "Weights are safetensors, everything else is JSON: reading them runs no code. `DIR` is this directory.",
        f'```python\nimport c2d\n\nagent = c2d.load("DIR")\naction = agent.act(obs{masked})\n'
        "law = agent.distribution(obs)  # law.returns and law.probs: one row per action\n```",
        f"```\nc2d evaluate DIR{named} --games 100\n```",
        f"Observations are {observation}{stacked}. {actions[0].upper()}{actions[1:]}. It needs `c2d{extra}`.",
    ]  # fmt: skip


def _rules(subject: LoadedRun) -> list[str]:
    """The passport."""
    facts = _passport(subject)
    if facts is None:
        return ["The run has no passport."]
    rows = [f"| {_text(name)} | {_code(_plain(value))} |" for name, value in facts.items() if name != "hash"]
    hash_line = f"Scores of runs with the same hash arose by the same rules: {_code(_plain(facts.get('hash')))}."
    return [hash_line, "\n".join(["| rule | |", "|---|---|", *rows])]


def _training(subject: LoadedRun) -> list[str]:
    config = subject.config
    known = not must_be_named(config.env, config.rules) and not getattr(config.rules, "wrappers", ())
    changed = None
    if known:  # else the environment would have to be imported
        try:
            changed = changed_settings(replace(config, run_dir=None))
        except UserError:  # it is not installed
            changed = None
    lines = [f"Seed {config.seed}. Every setting is in `config.json`."]
    if changed:
        lines.append(f"Settings other than those of the recipe: {_code(options_of(changed))}.")
    elif changed is not None:
        lines.append("All settings are those of the recipe for this environment.")
    return lines


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _is_interval(value: Any) -> bool:
    return isinstance(value, list | tuple) and len(value) == 2 and all(type(end) in (int, float) for end in value)


def _quoted(text: str) -> str:
    return json.dumps(printable(text, one_line=True), ensure_ascii=True)


def _text(text: str) -> str:
    """For Markdown outside of code: nothing in it has a meaning."""
    plain = printable(text, one_line=True)[:300]
    return "".join(f"\\{letter}" if letter in "\\`*_[]<>|#" else letter for letter in plain)


def _code(text: str) -> str:
    """For Markdown as code, also in a table."""
    plain = printable(text, one_line=True)[:300].replace("`", "'").replace("|", "\\|")
    return f"`{plain}`"
