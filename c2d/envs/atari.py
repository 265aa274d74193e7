"""One Atari game under given rules, on the emulator of ale-py.

Stickiness is applied here, frame by frame, and the emulator runs without its own, because its saved state
omits the last executed action.

The emulator's state omits more: whether a frame was cut in the middle, and the images of the last two frames (pull
requests 732 and 739 of the Arcade-Learning-Environment). Q*bert, which cuts frames all the time, does not continue as
saved; in other games one or two screens after restoring can be wrong. So a game is not restored from its state at that
moment: it is played again from a restart point with the actions taken since, and must arrive in the state it was saved
in. The restart point is at least RESTART_EVERY steps earlier, or else the start of the game, where the emulator is
reset, which clears what its state omits.

`data/emulator.csv` has one row per version of ale-py on which studies/emulator.py was run over all games:
    from_start   games that are restored only from their start
    inexact      games that do not continue as saved even so
"""

from __future__ import annotations

import csv
import hashlib
import json
from dataclasses import asdict
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from c2d.envs.games import atari_spec
from c2d.envs.games import game as game_row
from c2d.envs.protocols import AtariRules, Resize, protocol_name
from c2d.envs.spec import EnvSpec, ReplayMismatch, check_actions
from c2d.errors import UserError
from c2d.types import GameEnd, ResetFrame, Step

NOOP = 0
RESTART_EVERY = 1_000  # agent steps between restart points; the emulator makes some thousands a second


class AtariEnv:
    """An `Environment` that resets itself. Frames are [1, size, size] u8, each a new array."""

    def __init__(self, key: str, rules: AtariRules, seed: int) -> None:
        row = game_row(key)
        self.rules = rules
        streams = np.random.SeedSequence(seed).spawn(2)
        self._rng = np.random.Generator(np.random.PCG64(streams[0]))  # stickiness and idle starts
        self._rom = _rom_path(row.rom)
        self._from_start_only = from_start_only(key, _version())
        ale = _load(self._rom, seed=int(streams[1].generate_state(1)[0] >> 1))
        self.spec = atari_spec(key, rules)
        self._actions = _actions(ale, self.spec, rules.full_action_set)
        self._resize = Resizer(rules.frame_size, rules.resize)
        self._screen = np.zeros(ale.getScreenDims(), dtype=np.uint8)  # of the last frame of a step
        self._earlier = np.zeros_like(self._screen)  # of the frame before it
        self._last = NOOP  # the action executed in the last emulated frame
        self._lives = 0
        self._steps = self._frames = 0  # of the whole game
        self._score = 0.0
        self._start: dict[str, Any] = {}  # the emulator before the game, and the generator
        self._points: list[dict[str, Any]] = []  # at most two, of the middle of the game
        self._taken = bytearray()  # actions since the game's start
        self._connect(ale)
        self._reset_game()

    def _connect(self, ale: Any) -> None:
        """Bind what is called for every emulated frame once."""
        self._ale = ale
        self._act, self._lives_now, self._over = ale.act, ale.lives, ale.game_over
        self._take_screen = ale.getScreenGrayscale  # writes into the array it is given

    # ----------------------------------------------------------------- playing

    def reset(self) -> ResetFrame:
        self._reset_game()
        return ResetFrame(self._frame(), 1)

    def step(self, action: int) -> Step:
        """Repeat the action; a lost life (if it counts) or the end of the game cuts the repeats."""
        rules = self.rules
        repeats = rules.action_repeat
        if rules.cap_frames is not None:
            repeats = min(repeats, rules.cap_frames - self._frames)
        reward, ended = self._emulate(self._actions[action], repeats)
        self._score += reward
        self._steps += 1
        self._taken.append(action)
        if not ended and repeats > 1:
            self._take_screen(self._screen)
            frame = self._resize(np.maximum(self._screen, self._earlier))
        else:
            frame = self._frame()
        capped = self._steps == rules.cap_steps or self._frames == rules.cap_frames
        if not ended and not capped:
            if self._steps % RESTART_EVERY == 0 and not self._from_start_only:
                self._points = [*self._points[-1:], self._point()]
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
                self._take_screen(self._earlier)
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
        opening = ResetFrame(self._frame(), self.rules.opening_count)
        return Step(frame, reward, ended, not ended, opening, game)

    def _reset_game(self) -> None:
        """A new game, past its idle frames, which belong to no step and score nothing."""
        self._start = {**seal(state_of(self._ale)), "rng": self._rng.bit_generator.state}
        self._points = []
        self._taken = bytearray()
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
        self._take_screen(self._screen)
        return self._resize(self._screen)

    # ------------------------------------------------------ saving and restoring

    @property
    def so_far(self) -> GameEnd:
        return GameEnd(self._score, self._steps)

    def state_dict(self) -> dict[str, Any]:
        """All that the rest of the game depends on, as plain values; the frame stack is the caller's."""
        return {
            "start": self._start,
            "restart": self._points[0] if len(self._points) == 2 else None,
            "actions": bytes(self._taken),
            "check": self._digest(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue exactly where `state_dict` was called. `render` shows the screen again after the next step."""
        if "start" not in state:
            self._restore_older(state)
            return
        actions, start, restart = state["actions"], state["start"], state["restart"]
        if not isinstance(actions, bytes):
            raise ValueError(f"the actions are {type(actions).__name__}, not bytes")
        check_actions(list(actions), self.spec.actions)
        for point in (restart, start):  # from the start again if the emulator's state proves useless
            if point is not None and self._play_again(start, point, actions) and self._digest() == state["check"]:
                return
        raise ReplayMismatch(
            f"{self.spec.name}: the game, played again with its {len(actions)} actions, is not the one saved"
        )

    def _play_again(self, start: dict[str, Any], point: dict[str, Any], actions: bytes) -> bool:
        """Take the actions after `point` again. Returns whether the game lasted."""
        self._put_back(point)
        self._start, done = start, self._steps - start.get("steps", 0)
        if not 0 <= done <= len(actions):
            raise ValueError(f"a restart point is of step {self._steps} of a game of {len(actions)} steps")
        self._points = [] if point is start else [point]
        self._taken = bytearray(actions[:done])
        return all(self.step(action).game is None for action in actions[done:])

    def _put_back(self, point: dict[str, Any]) -> None:
        """The state of one moment. The game's start is the one before the emulator is reset."""
        put_into(self._ale, opened(point))
        self._rng.bit_generator.state = point["rng"]
        if "steps" not in point:
            self._reset_game()
            return
        counts = {name: point[name] for name in ("lives", "steps", "frames")}
        if any(type(count) is not int or count < 0 for count in counts.values()):
            raise ValueError(f"the game's counters are {counts}")
        if point["last"] not in (NOOP, *self._actions):
            raise ValueError(f"the action executed last is {point['last']}; accepted: one of {self._actions}")
        self._last, self._score = point["last"], float(point["score"])
        self._lives, self._steps, self._frames = counts.values()

    def _restore_older(self, state: dict[str, Any]) -> None:
        """A state as it was written when only the emulator's own was saved, which becomes the game's start."""
        if not isinstance(state["ale"], bytes):
            raise ValueError(f"the emulator's state is {type(state['ale']).__name__}, not bytes")
        start = {**state, **seal(state["ale"])}
        self._play_again(start, start, b"")
        if state_of(self._ale) != state["ale"]:  # it had no hash
            raise ValueError("the emulator's state is not one of this game and this version of ale-py")
        if self._from_start_only:
            raise ReplayMismatch(
                f"{self.spec.name}: the game was saved in a way that does not bring it back with this ale-py"
            )

    def _point(self) -> dict[str, Any]:
        return {**seal(state_of(self._ale)), "rng": self._rng.bit_generator.state, **self._counters()}

    def _counters(self) -> dict[str, Any]:
        return {
            "last": self._last,
            "lives": self._lives,
            "steps": self._steps,
            "frames": self._frames,
            "score": self._score,
        }

    def _digest(self) -> str:
        """A hash of this moment: equal for equal futures."""
        facts = json.dumps([self._counters(), self._rng.bit_generator.state], sort_keys=True)
        return hashlib.sha256(state_of(self._ale) + facts.encode()).hexdigest()

    # ------------------------------------------------------------------ describing

    def passport(self) -> dict[str, Any]:
        return {
            "env": self.spec.name,
            "protocol": protocol_name(self.rules),
            **asdict(self.rules),
            "resize_kernel": self._resize.name,
            "actions": list(self.spec.action_names),
            "rom_md5": hashlib.md5(self._rom.read_bytes()).hexdigest(),
            "ale_py": _version(),
            "pooling": "maximum of the last two frames of a step, grayscale",
            "score": "raw, whole games",
        }

    def render(self) -> np.ndarray:
        screen: np.ndarray = self._ale.getScreenRGB()
        return screen

    def close(self) -> None:
        """The emulator is freed with this object."""


def _version() -> str:
    import ale_py

    version: str = ale_py.__version__
    return version


def _rom_path(rom: str) -> Path:
    try:
        import ale_py
    except ImportError:
        raise UserError("Atari games need the emulator: pip install 'c2d[atari]'") from None
    path = Path(ale_py.__file__).parent / "roms" / f"{rom}.bin"
    if not path.is_file():
        raise UserError(
            f"{path.parent} has no {path.name}; accepted: an ale-py with this game: pip install 'c2d[atari]'"
        )
    return path


def _actions(ale: Any, spec: EnvSpec, full: bool) -> list[int]:
    """The emulator's numbers of the actions in `spec`, which must be those the emulator offers."""
    offered = ale.getLegalActionSet() if full else ale.getMinimalActionSet()
    names = tuple(action.name for action in offered)
    if names != spec.action_names:
        raise UserError(
            f"this version of ale-py offers {', '.join(names)} in {spec.name}, not {', '.join(spec.action_names)} "
            "as in the table of games; accepted: a version that offers them: pip install 'c2d[atari]'"
        )
    return [action.value for action in offered]


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


class Resizer:
    """Screens -> frames, by OpenCV. [H, W] u8 -> a new [1, size, size] u8"""

    def __init__(self, size: int, kernel: Resize) -> None:
        try:
            import cv2
        except ImportError:
            raise UserError("Atari frames are resized with OpenCV: pip install 'c2d[atari]'") from None
        kernels = {"area": cv2.INTER_AREA, "linear": cv2.INTER_LINEAR, "nearest": cv2.INTER_NEAREST}
        self.name = f"{kernel}, OpenCV {cv2.__version__}"  # which code resized, for the passport
        self._resize, self._shape, self._kernel = cv2.resize, (size, size), kernels[kernel]

    def __call__(self, screen: np.ndarray) -> np.ndarray:
        return self._resize(screen, self._shape, interpolation=self._kernel)[None]


# ------------------------------------------------------------------------------------- the emulator's saved states


class Known(NamedTuple):
    """What the study found for one version of ale-py: sets of games."""

    from_start: frozenset[str]
    inexact: frozenset[str]


@cache
def studied() -> dict[str, Known]:
    """By version of ale-py."""
    text = resources.files("c2d.envs").joinpath("data/emulator.csv").read_text(encoding="utf-8")
    return {
        row["ale_py"]: Known(frozenset(row["from_start"].split()), frozenset(row["inexact"].split()))
        for row in csv.DictReader(text.splitlines())
    }


def from_start_only(key: str, version: str) -> bool:
    """Whether a game's state in the middle of it is known to be of no use."""
    return version in studied() and key in studied()[version].from_start


def seal(data: bytes) -> dict[str, Any]:
    """The emulator's bytes with what `opened` checks."""
    return {"ale": data, "bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}


def opened(point: dict[str, Any]) -> bytes:
    """The emulator's bytes, as they were sealed; ValueError if they are not."""
    data = point["ale"]
    if not isinstance(data, bytes):
        raise ValueError(f"the emulator's state is {type(data).__name__}, not bytes")
    if len(data) != point["bytes"]:
        raise ValueError(f"the emulator's state has {len(data):,} bytes instead of {point['bytes']}")
    if hashlib.sha256(data).hexdigest() != point["sha256"]:
        raise ValueError("the emulator's state is not what was saved: its SHA-256 differs")
    return data


def put_into(ale: Any, data: bytes) -> None:
    """Give the emulator a state; ValueError if it does not take it."""
    from ale_py import ALEState

    try:
        ale.restoreState(ALEState(data))
    except (SystemError, RuntimeError, ValueError, MemoryError):
        raise ValueError("the emulator's state is not one of this game and this version of ale-py") from None


def state_of(ale: Any) -> bytes:
    """The emulator's state, its random generator included."""
    try:
        data: bytes = ale.cloneState(include_rng=True).serialize()
    except UnicodeDecodeError:  # versions before 0.12 return these bytes as text
        raise UserError("Atari games need ale-py 0.12 or newer: pip install --upgrade 'c2d[atari]'") from None
    return data
