"""A scripted stand-in for ale_py's ALEInterface: it records actions and shows the frame's number."""

import numpy as np

from c2d.envs.atari import AtariEnv
from c2d.envs.protocols import AtariRules


class FakeEmulator:
    """Loses a life after the frames in `deaths`; the game ends when no life is left. One point per frame."""

    def __init__(self, deaths: tuple[int, ...] = (), lives: int = 3) -> None:
        self.deaths, self.all_lives = deaths, lives
        self.executed: list[int] = []  # every action of every game
        self.resets = 0
        self.frame = 0

    def cloneState(self, include_rng: bool) -> "FakeEmulator":
        return self

    def serialize(self) -> bytes:
        return f"{self.resets} {self.frame}".encode()

    def reset_game(self) -> None:
        self.resets += 1
        self.frame = 0

    def act(self, action: int) -> int:
        assert not self.game_over(), "emulated beyond the end of a game"
        self.frame += 1
        self.executed.append(action)
        return 1

    def lives(self) -> int:
        return self.all_lives - sum(death <= self.frame for death in self.deaths)

    def game_over(self, with_truncation: bool = True) -> bool:
        return self.lives() == 0

    def getScreenGrayscale(self, screen: np.ndarray) -> None:
        screen[:] = self.level()

    def level(self) -> int:
        """Brighter at odd frames than at the even one after them, so that pooling shows."""
        return (40 * self.resets + self.frame + (20 if self.frame % 2 else 0)) % 256


def scripted(rules: AtariRules, emulator: FakeEmulator, seed: int = 0) -> AtariEnv:
    """Breakout with the cartridge replaced by a script."""
    game = AtariEnv("breakout", rules, seed)
    game._connect(emulator)
    return game
