"""Screens looked up in C are the emulator's own."""

import numpy as np
import pytest

from c2d.envs.atari import AtariGame
from c2d.envs.grays import Grays
from c2d.envs.protocols import AtariRules

pytestmark = pytest.mark.usefixtures("screens")


@pytest.mark.parametrize("screens", ["C"], indirect=True)  # without C the emulator itself writes it
@pytest.mark.parametrize("game", ["breakout", "demonattack", "beamrider", "seaquest"])
def test_every_picture_is_the_emulators(game):
    """Two pictures that take turns at random, whole games: colors that appear late are learned then."""
    ale, rng = AtariGame(game, AtariRules(), seed=0)._ale, np.random.default_rng(0)
    grays = Grays(ale)
    pictures = [np.full(ale.getScreenDims(), 7, dtype=np.uint8) for _ in range(2)]
    takes = [grays.into(picture) for picture in pictures]
    colors: set[int] = set()
    for frame in range(1_500):
        if ale.game_over():
            ale.reset_game()
        ale.act(rng.choice(ale.getMinimalActionSet()))
        if frame % 50 == 0:
            colors |= set(np.unique(ale.getScreen()).tolist())
        k = rng.integers(2)
        takes[k]()
        np.testing.assert_array_equal(pictures[k], ale.getScreenGrayscale())
    assert len(colors) >= 8


def test_a_picture_is_right_after_the_game_jumps():
    """A saved state restored: nothing of the screen before it is left."""
    game = AtariGame("seaquest", AtariRules(), seed=0)
    states = []
    for step in range(300):
        game.step(step % 18)
        if step % 60 == 0:
            states.append(game.state_dict())
    for state in states:
        game.load_state_dict(state)
        for action in (1, 5):
            game.step(action)
            np.testing.assert_array_equal(game._resize.screen, game._ale.getScreenGrayscale())


def test_the_emulator_is_asked_only_for_colors_it_has_not_shown(screens):
    """By the number of calls: all of them without C, one for each new color at most with it."""

    class Emulator:
        asked = 0
        screen = np.zeros((4, 8), dtype=np.uint8)

        def getScreen(self, into):
            into[:] = self.screen

        def getScreenGrayscale(self, into):
            self.asked += 1
            into[:] = 255 - self.screen

    emulator, picture = Emulator(), np.zeros((4, 8), dtype=np.uint8)
    take = Grays(emulator).into(picture)
    emulator.asked = 0
    for frame in range(40):
        emulator.screen[frame % 4, frame % 8] = 2 * (frame % 5) + 100  # five colors
        take()
        np.testing.assert_array_equal(picture, 255 - emulator.screen)
    assert emulator.asked == {"C": 5, "Python": 40}[screens]
