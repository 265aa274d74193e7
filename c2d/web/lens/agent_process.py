"""The process in which the agents of the lens play: `python -m c2d.web.lens.agent_process`.

Commands arrive as JSON lines on standard input; messages leave on standard output, each preceded by its length as u32
little-endian. The process ends when its input ends, and so with the server in any case.

    opened   the agents, each with the state of the environments in its checkpoint
    begun    games have begun: "start" is the environment of the checkpoint that they continue, or null for new ones;
             "notice" says why they are new although a start was requested, else null
    moment   one step of the games (player.py)
    done     a command was executed, after everything that it sent
    error    a command was not executed, or the game stopped
"""

from __future__ import annotations

import json
import os
import select
import struct
import sys
import time
from typing import Any

from c2d.errors import UserError
from c2d.runs.confined import Root
from c2d.web.lens.messages import pack

FASTEST = 0.0  # a speed: no limit
_MAX_DELAY = 0.5  # seconds after which missed steps are not made up for


class Pipe:
    """Receives commands and sends messages."""

    def __init__(self) -> None:
        self._in, self._out = os.dup(0), os.dup(1)
        os.dup2(2, 1)  # output of an environment must not mix with the messages
        self._rest = b""
        self.open = True

    def send(self, message: bytes) -> None:
        data = memoryview(struct.pack("<I", len(message)) + message)
        while data:
            data = data[os.write(self._out, data) :]

    def commands(self, timeout: float | None) -> list[dict[str, Any]]:
        """The commands that arrive within `timeout` seconds; None: wait for one."""
        if not select.select([self._in], [], [], timeout)[0]:
            return []
        data = os.read(self._in, 1 << 16)
        self.open = bool(data)
        *lines, self._rest = (self._rest + data).split(b"\n")
        return [json.loads(line) for line in lines]


class LensProcess:
    """Plays at a given speed and executes commands."""

    def __init__(self, pipe: Pipe) -> None:
        self.pipe = pipe
        self.player: Any = None
        self.playing = False
        self.speed = 15.0  # steps per second
        self._due = 0.0

    def run(self) -> None:
        while self.pipe.open:
            for command in self.pipe.commands(self._wait()):
                self._execute(command.pop("do"), command)
            if self.playing and self._wait() == 0.0:
                self._step()
                now = time.monotonic()
                pace = 1 / self.speed if self.speed != FASTEST else 0.0
                self._due = now if now - self._due - pace > _MAX_DELAY else self._due + pace

    def _execute(self, name: str, values: dict[str, Any]) -> None:
        """Every command is answered: done, or an error."""
        try:
            getattr(self, f"do_{name}")(**values)
        except (UserError, ValueError, ArithmeticError) as error:
            self._report_error(error, name)
        else:
            self.pipe.send(pack({"kind": "done", "about": name}))

    def _report_error(self, error: Exception, about: str) -> None:
        self.pipe.send(pack({"kind": "error", "text": str(error), "about": about, "playing": self.playing}))

    def _wait(self) -> float | None:
        return max(0.0, self._due - time.monotonic()) if self.playing else None

    def _step(self) -> None:
        try:
            self.pipe.send(self.player.advance())
        except (UserError, ValueError, ArithmeticError) as error:  # an invalid return value of an environment
            self.playing = False
            self._report_error(error, "step")

    # ------------------------------------------------------------------- commands

    def do_open(
        self,
        root: str,
        agents: list[list[str]],
        drive: str,
        seed: int,
        epsilon: float,
        start: int | None,
        trusted: list[str],
    ) -> None:
        import torch

        from c2d.user_code import trust
        from c2d.web.lens.load import open_agent
        from c2d.web.lens.player import Player

        torch.set_num_threads(1)
        self.playing = False
        self._close_player()
        for name in trusted:
            trust(name)
        names = tuple(trusted)
        try:
            loaded = [open_agent(Root(root), run, checkpoint, names) for run, checkpoint in agents]
            self.player = Player(loaded, drive, seed, epsilon, names, start)  # type: ignore[arg-type]  # checked before
        except (RuntimeError, MemoryError) as error:  # sizes beyond any machine
            raise UserError(f"{agents[0][0]} cannot be opened: {str(error).splitlines()[0]}") from None
        self.pipe.send(pack({"kind": "opened", "agents": [_describe(agent) for agent in loaded], "drive": drive}))
        self._report_start()

    def _report_start(self) -> None:
        self.pipe.send(pack({"kind": "begun", "start": self.player.start, "notice": self.player.notice}))

    def _close_player(self) -> None:
        if self.player is not None:
            self.player.close()
            self.player = None

    def _require_player(self) -> None:
        if self.player is None:
            raise UserError("no agent is open: open one first")

    def do_play(self) -> None:
        self._require_player()
        self.playing, self._due = True, time.monotonic()

    def do_pause(self) -> None:
        self.playing = False

    def do_step(self) -> None:
        self._require_player()
        self.playing = False
        self._step()

    def do_speed(self, value: float) -> None:
        self.speed, self._due = value, time.monotonic()

    def do_epsilon(self, value: float) -> None:
        self._require_player()
        self.player.epsilon = value

    def do_new(self, seed: int, start: int | None) -> None:
        self._require_player()
        self.player.begin(seed, start)
        self._report_start()
        self._step()

    def do_criteria(self, names: list[str], by: int) -> None:
        from c2d.evaluation.risk import criterion

        criteria = [criterion(name) for name in names]
        if by >= len(criteria):
            raise UserError(f"by is {by}; accepted: the index of one of {len(criteria)} criteria")
        self._require_player()
        self.player.criteria, self.player.chosen = criteria, by


def _describe(loaded: Any) -> dict[str, Any]:
    spec, recipe = loaded.agent.spec, loaded.config.recipe
    names = list(spec.action_names) or [str(action) for action in range(spec.actions)]
    return {
        "run": loaded.run,
        "checkpoint": loaded.checkpoint,
        "env": loaded.env,
        "recipe": loaded.config.recipe_name,
        "train_seed": loaded.config.seed,
        "actions": names,
        "gamma": recipe.schedule.gamma,
        "n_step": recipe.n_step,
        "clip_reward": recipe.clip_reward,
        "phi": recipe.phi.kind,
        "own_target": loaded.own_target,
        "alpha": loaded.agent.network.diagnostics().get("alpha"),
        "environments": [
            {"steps": game.steps, "score": game.score, "epsilon": game.epsilon} for game in loaded.saved.games
        ],
        "trouble": loaded.saved.trouble,
    }


def main() -> None:
    pipe = Pipe()
    try:
        LensProcess(pipe).run()
    except BrokenPipeError:  # the server has ended
        sys.exit(0)


if __name__ == "__main__":
    main()
