"""Run directories and published files with made-up numbers, in the formats of real ones."""

import gzip
import json
from pathlib import Path

from c2d.config import Config, to_json
from c2d.envs.protocols import PROTOCOLS
from c2d.recipes.rows import RECIPES
from c2d.training.passport import digest


def write_run(
    path: Path,
    env="atari/pong",
    recipe="c2d",
    seed=1,
    scores=(1.0, 2.0),
    state="finished",
    protocol="c2d-paper",
    steps=250_000,
    **passport,
) -> Path:
    """A run directory as training leaves it."""
    path.mkdir(parents=True)
    agent = RECIPES.get(recipe, RECIPES["c2d"])
    config = to_json(Config(env=env, recipe_name=recipe, seed=seed, rules=PROTOCOLS[protocol], recipe=agent))
    config["protocol"] = protocol
    facts = {**config["rules"], "env": env, "protocol": protocol, "clip_reward": agent.clip_reward, **passport}
    del facts["class"]
    facts.setdefault("recorded_score", "mean raw score of the whole training games that ended in an iteration")
    facts["hash"] = digest(facts)
    lines = [{"kind": "run", "config": config, "passport": facts, "versions": {}, "measured": {}}]
    for iteration, score in enumerate(scores):
        lines.append(
            {
                "kind": "iteration",
                "iteration": iteration,
                "steps": steps * (iteration + 1),
                "frames": 4 * steps * (iteration + 1),
                "episodes": 10,
                "mean_score": score,
                "atom_min": -1.0 - iteration,
                "atom_max": 2.0 + iteration,
                "measured": {"seconds": 1.0},
            }
        )
    (path / "records.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (path / "config.json").write_text(json.dumps(config))
    (path / "passport.json").write_text(json.dumps(facts))
    if state is not None:
        (path / "summary.json").write_text(json.dumps({"state": state}))
    return path


def dopamine_json(path: Path, curves: dict[str, list[list[float]]]) -> Path:
    """agent -> seeds -> values, in Dopamine's (and the C2D authors') form."""
    entries = [
        {"Iteration": iteration, "Value": value, "Agent": agent}
        for agent, seeds in curves.items()
        for values in seeds
        for iteration, value in enumerate(values)
    ]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(entries))
    return path


def authors_csv(path: Path, game: str, tag: str, rows: list[tuple[float, float, float]]) -> Path:
    """(avg_return, supp_min, supp_max) per iteration, among other columns of the authors' files."""
    lines = [",iteration,total_steps,phase,episodes,avg_return,supp_min,supp_max,Agent,tag,game"]
    for i, (score, low, high) in enumerate(rows):
        lines.append(f"{i},{i},{250_000 * (i + 1)},train,7,{score},{low},{high},ACN,{tag},{game}")
        lines.append(f"{i},{i},{250_000 * (i + 1)},eval,7,-99,-99,-99,ACN,{tag},{game}")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n")
    return path


def gzipped(path: Path, lines: list[str]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(("\n".join(lines) + "\n").encode()))
    return path
