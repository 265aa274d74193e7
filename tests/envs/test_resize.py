"""Frames are OpenCV's, whether screen.c makes them or not."""

import itertools
import os
import subprocess
import sys

import cv2
import numpy as np
import pytest

from c2d.envs import resize
from c2d.envs.resize import Resizer

pytestmark = pytest.mark.usefixtures("screens")


@pytest.mark.parametrize("pooled", [False, True])
def test_only_what_changed_is_resized_but_nothing_is_missed(pooled):
    """Screens on which bands light up, change and go black again."""
    resizer, rng = Resizer(210, 160, 84, "area"), np.random.default_rng(0)
    screens = np.zeros((2, 210, 160), dtype=np.uint8)
    for _ in range(60):
        screen = screens[rng.integers(2)]
        rows = rng.integers(0, 210, size=3)
        screen[rows[0]] = rng.integers(0, 256, size=160)
        screen[rows[1] : rows[1] + 30] = 0
        screen[rows[2], rng.integers(160)] ^= 255
        resizer.screen[:], resizer.earlier[:] = screens
        wanted = cv2.resize(screens.max(0) if pooled else screens[0], (84, 84), interpolation=cv2.INTER_AREA)
        np.testing.assert_array_equal(resizer(pooled)[0], wanted)


@pytest.mark.parametrize("kernel", ["area", "linear", "nearest"])
def test_every_size_is_opencvs(kernel):
    """Fractions, whole factors, and pictures that grow; noise, and few colors, whose means lie at halves."""
    sizes = (32, 42, 50, 64, 80, 84, 96, 100, 105, 160, 168)
    for (height, width), size in itertools.product([(210, 160), (250, 160), (96, 200)], sizes):
        resizer, rng = Resizer(height, width, size, kernel), np.random.default_rng(size)
        for colors in (256, 256, 2):
            resizer.screen[:] = rng.integers(0, colors, size=(height, width)) * (255 // (colors - 1))
            wanted = cv2.resize(resizer.screen, (size, size), interpolation=resize._KERNELS[kernel])
            np.testing.assert_array_equal(resizer()[0], wanted, err_msg=f"{height}x{width} to {size}")


def test_frames_are_new_arrays():
    resizer = Resizer(210, 160, 84, "area")
    first = resizer()
    resizer.screen[:] = 255
    assert resizer().min() == 255 and first.max() == 0


def test_the_way_is_the_fast_one_unless_told_otherwise(screens):
    made = type(Resizer(210, 160, 84, "area")._shrink).__name__
    assert made == {"C": "_Native", "Python": "_Bands"}[screens]
    if screens == "Python":
        return
    code = "from c2d.envs import resize; from c2d.nets import native; print(resize.NATIVE, native.AVAILABLE)"
    environment = {**os.environ, "C2D_KERNELS": "off"}
    told = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert told.stdout.split() == ["False", "False"]
