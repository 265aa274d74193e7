"""Save every Atari game at random moments, restore it in another process, and compare what follows.

    python studies/emulator.py --out docs/results/emulator.md

Frames, rewards and ends of all steps are compared. Each restore uses a new environment. Two things are saved: the game
as a checkpoint saves it, and the emulator's own state alone, which shows whether that would be enough.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import ale_py
import numpy as np

from c2d.envs.atari import AtariEnv, from_start_only
from c2d.envs.games import BENCHMARK, GAMES
from c2d.envs.protocols import PROTOCOLS, AtariRules
from c2d.envs.trial import first_difference, play
from c2d.files import write_atomically

PAPER = PROTOCOLS["c2d-paper"]
SINGLE = replace(PAPER, action_repeat=1)
LONGEST = 27_000  # steps of a game under the paper's rules


class Timed(AtariEnv):
    """Saved as c2d saves it."""

    longest = 0.0  # seconds of processor time

    def load_state_dict(self, state: dict[str, Any]) -> None:
        began = time.process_time()
        super().load_state_dict(state)
        Timed.longest = max(Timed.longest, time.process_time() - began)


class Alone(AtariEnv):
    """Saved as the emulator's own state, without replayed steps."""

    def state_dict(self) -> dict[str, Any]:
        return self._point()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._put_back(state)


@dataclass(frozen=True)
class Kind:
    """One way to save, and what is compared."""

    column: str
    game: type[AtariEnv]
    rules: AtariRules
    points: int
    after: int  # steps compared


def kinds(points: int, after: int) -> list[Kind]:
    return [
        Kind("as c2d saves it", Timed, PAPER, points, after),
        Kind("the same, a frame per step", Timed, SINGLE, points, after),
        Kind("the emulator's state alone", Alone, PAPER, points, after),
        Kind("the same, each of the next 4 screens", Alone, SINGLE, 5 * points, 4),
    ]


@dataclass
class Row:
    game: str
    differences: list[list[int | None]]  # of each kind: steps until the first difference, per point
    longest: float  # seconds of processor time a restore took, as c2d saves it

    @property
    def exact(self) -> bool:
        return not any(found is not None for column in self.differences[:2] for found in column)


def study(key: str, steps: int, points: int, after: int, seed: int) -> Row:
    """Save in this process, restore in another."""
    tasks = []
    for number, kind in enumerate(kinds(points, after)):
        rng = np.random.default_rng([seed, number, *key.encode()])
        moments = sorted(rng.choice(steps, size=kind.points, replace=False).tolist())
        trial = play(kind.game(key, kind.rules, seed), steps + kind.after, moments, seed)
        spans = {at: slice(at, at + kind.after) for at in moments}
        tasks.append(
            [
                {"state": trial.states[at], "actions": trial.actions[span], "trace": trial.trace[span]}
                for at, span in spans.items()
            ]
        )
    request = json.dumps({"game": key, "points": points, "after": after, "tasks": tasks}, default=_hex)
    command = [sys.executable, __file__, "--restore"]
    done = subprocess.run(command, input=request, capture_output=True, text=True, check=True)
    return Row(key, **json.loads(done.stdout))


def restore() -> None:
    """The other process."""
    request = json.loads(sys.stdin.read(), object_hook=lambda v: bytes.fromhex(v["hex"]) if "hex" in v else v)
    differences = [
        [
            first_difference(kind.game(request["game"], kind.rules, seed=999), *point.values())
            for point in task  # state, actions, trace
        ]
        for kind, task in zip(kinds(request["points"], request["after"]), request["tasks"], strict=True)
    ]
    print(json.dumps({"differences": differences, "longest": Timed.longest}))


def _hex(data: bytes) -> dict[str, str]:
    return {"hex": data.hex()}


def longest_game(key: str) -> float:
    """Seconds of processor time for as many steps as the longest game has."""
    env = AtariEnv(key, PAPER, 0)
    env.reset()
    actions = np.random.default_rng(0).integers(env.spec.actions, size=LONGEST).tolist()
    began = time.process_time()
    for action in actions:
        env.step(action)
    return time.process_time() - began


def page(rows: list[Row], chosen: argparse.Namespace, longest: float, seconds: float) -> str:
    exact = sum(row.exact for row in rows)
    asked = kinds(chosen.points, chosen.after)
    tried = len(rows) * sum(kind.points for kind in asked[:2])
    equal = sum(found is None for row in rows for column in row.differences[:2] for found in column)
    stale = [GAMES[row.game].gym for row in rows if any(found is not None for found in row.differences[3])]
    broken = [GAMES[row.game].gym for row in rows if any(found is not None for found in row.differences[2])]
    lines = [
        "# Saved emulators",
        "",
        f"{len(rows)} Atari games were played for {chosen.steps:,} random steps, saved at {chosen.points} random "
        "moments and restored in another process, each time into a new environment. Frames, rewards and ends of the "
        f"{chosen.after} steps that followed were compared. With ale-py {ale_py.__version__}, "
        f"**{equal:,} of {tried:,}** continued like a game that was never stopped; "
        f"in **{exact} of {len(rows)}** games all of them did.",
        "",
        f"Command: `{' '.join(['python', *sys.argv])}`, {time.strftime('%d %B %Y', time.gmtime())}, {seconds:.0f} s.",
        "",
        "The emulator's own state at the moment of saving is not enough: restored alone, "
        f"{_names(broken)} did not continue as saved, and the first screens after restoring were sometimes wrong in "
        f"{_names(stale)}. So a game is replayed from an earlier restart point, and must reach the emulator's "
        "state that was saved ([resume](../resume.md)).",
        "",
        f"If only the start of the game works, this takes as long as the game: {LONGEST:,} steps of Q*bert, the "
        f"longest game under the paper's rules, took {longest:.1f} s of processor time.",
        "",
        f"| game | {' | '.join(kind.column for kind in asked)} | restored from | longest restore, s |",
        "|---|" + "---|" * (len(asked) + 2),
        *(_line(row) for row in rows),
        "",
        "Entries: how many continued as saved; in parentheses, the smallest and the largest number of steps to the "
        f"first difference, where there was one. For the screens, {asked[3].points} moments were "
        "saved, and a step is one frame.",
    ]
    return "\n".join(lines) + "\n"


def _line(row: Row) -> str:
    way = "its start" if from_start_only(row.game, ale_py.__version__) else "restart points"
    cells = " | ".join(_cell(column) for column in row.differences)
    return f"| {row.game} | {cells} | {way} | {row.longest:.2f} |"


def _names(games: list[str]) -> str:
    return ", ".join(games) or "none of the games"


def _cell(column: list[int | None]) -> str:
    wrong = [found for found in column if found is not None]
    cell = f"{len(column) - len(wrong)}/{len(column)}"
    return f"**{cell}** ({min(wrong)} to {max(wrong)})" if wrong else cell


def games(names: list[str]) -> Iterator[str]:
    for name in names or BENCHMARK:
        yield name if name in GAMES else sys.exit(f'unknown game "{name}"; accepted: {", ".join(GAMES)}')


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--games", nargs="+", default=[], metavar="GAME", help="games to study; default: the paper's 55"
    )
    parser.add_argument("--steps", type=int, default=5_000, help="length of the game from which the moments are drawn")
    parser.add_argument("--points", type=int, default=20, help="moments per game")
    parser.add_argument("--after", type=int, default=300, help="steps compared after each")
    parser.add_argument("--seed", type=int, default=1, help="seed of the games and the moments")
    parser.add_argument("--out", type=Path, help="Markdown file to write")
    parser.add_argument("--restore", action="store_true", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.restore:
        restore()
        return
    began, rows = time.perf_counter(), []
    for key in games(chosen.games):
        rows.append(study(key, chosen.steps, chosen.points, chosen.after, chosen.seed))
        print(_line(rows[-1]), flush=True)
    longest = longest_game("qbert")
    text = page(rows, chosen, longest, time.perf_counter() - began)
    if chosen.out is None:
        print(text)
    else:
        write_atomically(chosen.out, text.encode())
    if not all(row.exact for row in rows):
        sys.exit(1)


if __name__ == "__main__":
    main()
