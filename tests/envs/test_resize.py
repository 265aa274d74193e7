"""Frames are OpenCV's, and the passport says so."""

import cv2
import numpy as np
import pytest

from c2d.envs.atari import AtariEnv, Resizer
from c2d.envs.protocols import AtariRules

KERNELS = {"area": cv2.INTER_AREA, "linear": cv2.INTER_LINEAR, "nearest": cv2.INTER_NEAREST}


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("size", [42, 84, 105, 168])
def test_every_kernel_is_opencvs(kernel, size):
    screen = np.random.default_rng(size).integers(0, 256, size=(210, 160), dtype=np.uint8)
    frame = Resizer(size, kernel)(screen)
    assert frame.shape == (1, size, size)
    np.testing.assert_array_equal(frame[0], cv2.resize(screen, (size, size), interpolation=KERNELS[kernel]))


def test_area_is_the_mean_of_what_a_pixel_covers():
    """From 210×160 to 84×84 a pixel covers 2.5 × 1.905 pixels: a slow mean, up to rounding."""
    screen = np.random.default_rng(0).integers(0, 256, size=(210, 160), dtype=np.uint8)

    def shares(source, size):
        edges = np.arange(size + 1) * source / size
        begin, end = edges[:-1, None], edges[1:, None]
        return np.clip(np.minimum(np.arange(source) + 1, end) - np.maximum(np.arange(source), begin), 0, None)

    rows, columns = shares(210, 84), shares(160, 84)
    wanted = rows @ screen @ columns.T / (210 / 84 * 160 / 84)
    assert np.abs(Resizer(84, "area")(screen)[0] - wanted).max() <= 0.51


@pytest.mark.parametrize("size", [84, 210])
def test_frames_are_new_arrays(size):
    resizer, screen = Resizer(size, "area"), np.zeros((210, 210), dtype=np.uint8)
    first = resizer(screen)
    screen[:] = 255
    assert resizer(screen).min() == 255 and first.max() == 0


@pytest.mark.parametrize("kernel", KERNELS)
def test_the_passport_says_which_code_resized(kernel, monkeypatch):
    asked = []
    resize = cv2.resize
    monkeypatch.setattr(cv2, "resize", lambda *a, **k: (asked.append(k["interpolation"]), resize(*a, **k))[1])
    game = AtariEnv("pong", AtariRules(resize=kernel), seed=0)
    game.reset()
    assert game.passport()["resize_kernel"] == f"{kernel}, OpenCV {cv2.__version__}"
    assert asked == [KERNELS[kernel]]


def test_a_frame_is_right_after_the_game_jumps():
    """A saved state restored: nothing of the screen before it is left."""
    game = AtariEnv("seaquest", AtariRules(), seed=0)
    states = []
    for step in range(300):
        game.step(step % 18)
        if step % 60 == 0:
            states.append(game.state_dict())
    for state in states:
        game.load_state_dict(state)
        for action in (1, 5):
            game.step(action)
            np.testing.assert_array_equal(game._screen, game._ale.getScreenGrayscale())
