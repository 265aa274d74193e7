"""The paper's three tables of settings, as printed there, beside the settings of the recipe `c2d`."""

from __future__ import annotations

from importlib import metadata
from typing import Any

from c2d.agents.recipes import RECIPES
from c2d.config import Config, flat, to_json
from c2d.envs.games import BENCHMARK
from c2d.envs.protocols import PROTOCOLS
from c2d.reporting.ledger.entry import DIFFERS, Entry, compared

_COMMAND = "c2d train breakout --help"
_GAMES = "c2d report --published-only"
_PART = "Tables of settings"

_Rows = dict[str, tuple[str, int | None, Any]]

# what the paper prints -> (setting, factor from our unit to its, value in the paper)
_PROTOCOL: _Rows = {
    "min. training ε": ("schedule.epsilon-min", 1, 0.01),
    "ε-decay schedule, frames": ("schedule.epsilon-decay-steps", 4, 1_000_000),
    "min. history to start learning, frames": ("schedule.random-history", 4, 80_000),
    "target network update frequency, frames": ("schedule.target-period", 4, 32_000),
    "sticky actions": ("rules.sticky", 1, 0.25),
}
_ATARI: _Rows = {
    "frame dimensions, pixels": ("rules.frame-size", 1, 84),
    "max episode length, steps": ("rules.cap-steps", 1, 27_000),
    "max episode length, frames": ("rules.cap-steps", 4, 108_000),
    "action repetition": ("rules.action-repeat", 1, 4),
    "state observation stacking": ("rules.stack", 1, 4),
    "terminal on life loss": ("rules.life-loss-ends-episode", None, True),
    "sticky actions": ("rules.sticky", 1, 0.25),
    "discount γ": ("schedule.gamma", 1, 0.99),
}
_C2D: _Rows = {
    "number of atoms N": ("head.atoms", 1, 32),
    "learning rate": ("optim.learning-rate", 1, 0.5e-4),
    "Adam ε": ("optim.eps", 1, 3.125e-4),
    "Adam global clip norm": ("optim.clip-norm", 1, 10.0),
    "replay buffer, transitions": ("schedule.replay-capacity", 1, 1_000_000),
    "random history, steps": ("schedule.random-history", 1, 20_000),
    "initial training ε": ("schedule.epsilon-initial", 1, 1.0),
    "minimum training ε": ("schedule.epsilon-min", 1, 0.01),
    "ε-decay schedule, steps": ("schedule.epsilon-decay-steps", 1, 250_000),
    "target network update frequency, steps": ("schedule.target-period", 1, 8_000),
    "training frequency, steps": ("schedule.update-period", 1, 4),
    "batch size": ("schedule.batch-size", 1, 32),
    "sampling of the replay": ("sampler", None, "uniform"),
    "loss": ("loss", None, "cramer"),
    "ϵ of h": ("phi.eps", 1, 0.001),
    "transformation scaling β": ("phi.beta", 1, 1.99),
    "homeomorphism φ = βh": ("phi.kind", None, "scaled_h"),
    "support scale initialization α": ("head.alpha", 1, 50.0),
    "support scale is trainable": ("head.train-alpha", None, True),
    "internal output scaling c": ("head.c", 1, 5.0),
}
_TABLES = {
    'Table "Dopamine protocol"': _PROTOCOL,
    'Table "Atari specific settings"': _ATARI,
    'Table "C2D settings"': _C2D,
}


def entries() -> list[Entry]:
    ours = flat(to_json(Config(env="atari/breakout", rules=PROTOCOLS["c2d-paper"], agent=RECIPES["c2d"])))
    found = []
    for table, rows in _TABLES.items():
        for what, (setting, factor, expected) in rows.items():
            value = ours[setting] if factor in (None, 1) else ours[setting] * factor
            found.append(compared(_PART, f"{table}: {what} (`--{setting}`)", _COMMAND, expected, value))
    frames = ours["iterations"] * ours["schedule.steps-per-iteration"] * ours["rules.action-repeat"]
    found += [
        compared(_PART, 'Table "C2D settings": training volume, frames', _COMMAND, 200_000_000, frames),
        compared(_PART, "Evaluation: number of games", _GAMES, 55, len(BENCHMARK)),
        _version('Table "Atari specific settings": ALE version', "6.2", "ale-py"),
        _version('Table "C2D settings": TensorFlow version', "2.5", "torch"),
    ]
    return found


def _version(what: str, expected: str, package: str) -> Entry:
    try:
        version = f"{package} {metadata.version(package)}"
    except metadata.PackageNotFoundError:
        version = f"{package}, not installed here"
    return Entry(_PART, what, "c2d --version", expected, version, "–", DIFFERS, "another program, by design")
