"""One Atari game under given rules, on the emulator of ale-py.

Stickiness is applied here, frame by frame, and the emulator runs without its own, because its saved state
omits the last executed action. So a saved game continues exactly, in any process.
"""

from __future__ import annotations

import hashlib
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from c2d.envs.games import atari_spec
from c2d.envs.games import game as game_row
from c2d.envs.protocols import AtariRules, protocol_name
from c2d.envs.spec import EnvSpec
from c2d.errors import UserError
from c2d.types import GameEnd, Opening, Step

NOOP = 0


class AtariGame:
    """An `Environment` that resets itself. Frames are [1, size, size] u8, each a new array."""

    def __init__(self, key: str, rules: AtariRules, seed: int) -> None:
        row = game_row(key)
        self.rules = rules
        streams = np.random.SeedSequence(seed).spawn(2)
        self._rng = np.random.Generator(np.random.PCG64(streams[0]))  # stickiness and idle starts
        self._rom = _rom_path(row.rom)
        self._ale = _load(self._rom, seed=int(streams[1].generate_state(1)[0] >> 1))
        self.spec = atari_spec(key, rules)
        self._actions = _actions(self._ale, self.spec, rules.full_action_set)
        self._resize, grays = _pictures(self._ale, rules)
        self._take = grays.into(self._resize.screen)
        self._take_earlier = grays.into(self._resize.earlier)  # of the frame before the last one of a step
        self._last = NOOP  # the action executed in the last emulated frame
        self._lives = 0
        self._steps = self._frames = 0  # of the whole game
        self._score = 0.0
        # bound once: these are called for every emulated frame
        self._act = self._ale.act
        self._lives_now = self._ale.lives
        self._over = self._ale.game_over
        self._reset_game()

    # ----------------------------------------------------------------- playing

    def start(self) -> Opening:
        self._reset_game()
        return Opening(self._frame(), 1)

    def step(self, action: int) -> Step:
        """Repeat the action; a lost life (if it counts) or the end of the game cuts the repeats."""
        rules = self.rules
        repeats = rules.action_repeat
        if rules.cap_frames is not None:
            repeats = min(repeats, rules.cap_frames - self._frames)
        reward, ended = self._emulate(self._actions[action], repeats)
        self._score += reward
        self._steps += 1
        if not ended and repeats > 1:
            self._take()
            frame = self._resize(pooled=True)
        else:
            frame = self._frame()
        capped = self._steps == rules.cap_steps or self._frames == rules.cap_frames
        if not ended and not capped:
            return Step(frame, reward, False, False, None, None)
        return self._end(frame, reward, ended, capped)

    def _emulate(self, chosen: int, repeats: int) -> tuple[float, bool]:
        """Emulate one agent step. Returns the raw reward and whether the learner's episode ended."""
        act, lives_now, over = self._act, self._lives_now, self._over
        sticky, last, lives = self.rules.sticky, self._last, self._lives
        life_loss_counts = self.rules.life_loss_ends_episode
        reward, ended, done = 0, False, 0
        for draw in self._rng.random(self.rules.action_repeat).tolist()[:repeats]:
            if draw >= sticky:
                last = chosen
            reward += act(last)
            done += 1
            now = lives_now()
            if over() or (life_loss_counts and now < lives):
                ended = True
                break
            lives = now
            if done == repeats - 1:
                self._take_earlier()
        self._last, self._lives = last, now
        self._frames += done
        return float(reward), ended

    def _end(self, frame: np.ndarray, reward: float, ended: bool, capped: bool) -> Step:
        """Close the learner's episode, and the game if it is over or capped; a terminal outweighs the cap."""
        if capped or self._over():
            game = GameEnd(self._score, self._steps)
            self._reset_game()
        else:
            game = None
        opening = Opening(self._frame(), self.rules.opening_count)
        return Step(frame, reward, ended, not ended, opening, game)

    def _reset_game(self) -> None:
        """A new game, past its idle frames, which belong to no step and score nothing."""
        self._ale.reset_game()
        if self.rules.noop_max > 0:
            for _ in range(int(self._rng.integers(1, self.rules.noop_max + 1))):
                self._act(NOOP)
                if self._over():
                    self._ale.reset_game()
        self._last = NOOP
        self._lives = self._lives_now()
        self._steps = self._frames = 0
        self._score = 0.0

    def _frame(self) -> np.ndarray:
        """The present screen alone, resized. [1, size, size]"""
        self._take()
        frame: np.ndarray = self._resize()
        return frame

    # ------------------------------------------------------ saving and restoring

    def save(self) -> dict[str, Any]:
        """All that the rest of the game depends on, as plain values; the frame stack is the caller's."""
        return {
            "ale": self._ale.cloneState(include_rng=True).serialize(),
            "rng": self._rng.bit_generator.state,
            "last": self._last,
            "lives": self._lives,
            "steps": self._steps,
            "frames": self._frames,
            "score": self._score,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Continue exactly where `save` was called. `render` shows the screen again after the next step."""
        from ale_py import ALEState

        self._ale.restoreState(ALEState(state["ale"]))
        self._rng.bit_generator.state = state["rng"]
        self._last = state["last"]
        self._lives = state["lives"]
        self._steps = state["steps"]
        self._frames = state["frames"]
        self._score = state["score"]

    # ------------------------------------------------------------------ describing

    def passport(self) -> dict[str, Any]:
        import ale_py

        return {
            "env": self.spec.name,
            "protocol": protocol_name(self.rules),
            **asdict(self.rules),
            "resize_kernel": self._resize.name,
            "actions": list(self.spec.action_names),
            "rom_md5": hashlib.md5(self._rom.read_bytes()).hexdigest(),
            "ale_py": ale_py.__version__,
            "pooling": "maximum of the last two frames of a step, grayscale",
            "score": "raw, whole games",
        }

    def render(self) -> np.ndarray:
        screen: np.ndarray = self._ale.getScreenRGB()
        return screen

    def close(self) -> None:
        """The emulator is freed with this object."""


def _rom_path(rom: str) -> Path:
    try:
        import ale_py
    except ImportError:
        raise UserError("Atari games need the emulator: pip install 'c2d[atari]'.") from None
    path = Path(ale_py.__file__).parent / "roms" / f"{rom}.bin"
    if not path.is_file():
        raise UserError(f"No ROM {rom!r} in {path.parent}: install the ale-py of 'c2d[atari]', which has it.")
    return path


def _actions(ale: Any, spec: EnvSpec, full: bool) -> list[int]:
    """The emulator's numbers of the actions in `spec`, which must be those the emulator offers."""
    offered = ale.getLegalActionSet() if full else ale.getMinimalActionSet()
    names = tuple(action.name for action in offered)
    if names != spec.action_names:
        raise UserError(
            f"this version of ale-py offers {', '.join(names)} in {spec.name}, not {', '.join(spec.action_names)} "
            "as in the table of games: install another version of it, as in pip install 'c2d[atari]'."
        )
    return [action.value for action in offered]


def _pictures(ale: Any, rules: AtariRules) -> tuple[Any, Any]:
    """What shrinks the screens, and what takes them."""
    try:
        from c2d.envs.grays import Grays
        from c2d.envs.resize import Resizer
    except ImportError:
        raise UserError("Atari frames are resized with OpenCV: pip install 'c2d[atari]'.") from None
    height, width = ale.getScreenDims()
    return Resizer(height, width, rules.frame_size, rules.resize), Grays(ale)


def _load(rom: Path, seed: int) -> Any:
    """A silent emulator with the cartridge in, without stickiness or limits of its own."""
    from ale_py import ALEInterface, LoggerMode

    ALEInterface.setLoggerMode(LoggerMode.Error)
    ale = ALEInterface()
    ale.setInt("random_seed", seed)
    ale.setFloat("repeat_action_probability", 0.0)
    ale.setInt("max_num_frames_per_episode", 0)  # caps are ours, so `game_over` means just that
    ale.loadROM(str(rom))
    return ale
