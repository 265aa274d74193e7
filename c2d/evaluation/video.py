"""A game as an MP4 file that browsers play (H.264), at the speed at which people would play it.

One picture per agent step: 15 a second for Atari (60 frames of which each action lasts 4), 10 for MinAtar, which has
no speed of its own, and what a Gymnasium environment names, or 30. Small pictures are enlarged without blurring.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
from pathlib import Path
from typing import Any

import numpy as np

from c2d.envs.spec import Environment
from c2d.errors import UserError
from c2d.evaluation.play import MakeEnv
from c2d.files import check_destination
from c2d.types import ResetFrame, Step

SIDE = 480  # pixels which the longer side of a small picture is brought near to
# 4:2:0 and the index at the front: what browsers want
_SETTINGS = ("-c:v", "libx264", "-pix_fmt", "yuv420p", "-crf", "18", "-preset", "veryfast", "-movflags", "+faststart")


def check_video(path: Path) -> None:
    """Before anything is played."""
    check_destination(path, "--video", (".mp4",))
    if importlib.util.find_spec("imageio_ffmpeg") is None:
        raise UserError("--video needs an encoder: pip install 'c2d[video]'")


def pictures_per_second(env: Environment) -> float:
    if env.spec.family == "atari":
        return 60 / env.spec.frames_per_step
    if env.spec.family == "minatar":
        return 10.0
    return float(getattr(env, "pictures_per_second", None) or 30.0)


def enlarge(picture: np.ndarray) -> np.ndarray:
    """Whole-number enlargement of small pictures; even sides, which the encoder asks for. [H, W, 3] u8"""
    times = max(1, SIDE // max(picture.shape[:2]))
    large = picture.repeat(times, axis=0).repeat(times, axis=1)
    return np.pad(large, ((0, large.shape[0] % 2), (0, large.shape[1] % 2), (0, 0)), mode="edge")


class Film:
    """The file. Nothing stands at `path` before the film is whole."""

    def __init__(self, path: Path, seconds: float | None = None) -> None:
        self.path, self.seconds = path, seconds
        self.pictures = 0
        self.rate = 0.0  # pictures per second; known with the first environment
        self.score: float | None = None  # of the game, if it was filmed to its end
        self._temporary = path.with_name(f".{path.stem}.{os.getpid()}.tmp.mp4")
        self._encoder: subprocess.Popen[bytes] | None = None

    def of_first(self, make_env: MakeEnv) -> MakeEnv:
        """The same environments, the first of which is filmed."""
        made = 0

        def make(seed: int) -> Environment:
            nonlocal made
            env = make_env(seed)
            made += 1
            return env if made > 1 else Filmed(env, self)

        return make

    def add(self, picture: np.ndarray) -> None:
        if self.seconds is not None and self.pictures >= self.seconds * self.rate:
            return
        picture = enlarge(picture)
        if self._encoder is None:
            self._encoder = self._open(picture)
        assert self._encoder.stdin is not None
        try:
            self._encoder.stdin.write(np.ascontiguousarray(picture).data)
        except OSError:  # it ended before its time, and says why
            raise self._failed() from None
        self.pictures += 1

    def _open(self, picture: np.ndarray) -> subprocess.Popen[bytes]:
        from imageio_ffmpeg import get_ffmpeg_exe

        height, width = picture.shape[:2]
        source = ("-f", "rawvideo", "-pix_fmt", "rgb24", "-s", f"{width}x{height}", "-r", f"{self.rate:g}", "-i", "-")
        return subprocess.Popen(
            [get_ffmpeg_exe(), "-y", "-v", "error", *source, *_SETTINGS, str(self._temporary)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C is for us
        )

    def finish(self) -> None:
        """Close the file and give it its name."""
        if self._encoder is None:
            return
        _, complaints = self._encoder.communicate()
        if self._encoder.returncode != 0:
            raise self._failed(complaints)
        self._encoder = None
        try:
            os.replace(self._temporary, self.path)
        except OSError as error:
            self._temporary.unlink(missing_ok=True)
            raise UserError(f"--video {self.path} could not be written: {error.strerror}") from None

    def abandon(self) -> None:
        """No film after all. After `finish` this does nothing."""
        if self._encoder is not None:
            self._encoder.kill()
            self._encoder.communicate()
            self._encoder = None
        self._temporary.unlink(missing_ok=True)

    def _failed(self, complaints: bytes | None = None) -> UserError:
        if complaints is None and self._encoder is not None:
            complaints = self._encoder.communicate()[1]
        self.abandon()
        words = " ".join((complaints or b"").decode(errors="replace").split())
        return UserError(f"--video {self.path} could not be written: {words or 'the encoder stopped'}")


class Filmed:
    """An environment whose first game is filmed."""

    def __init__(self, env: Environment, film: Film) -> None:
        self._env, self._film = env, film
        self.spec = env.spec
        film.rate = pictures_per_second(env)

    def reset(self) -> ResetFrame:
        opening = self._env.reset()
        self._film.add(self._env.render())
        return opening

    def step(self, action: int) -> Step:
        step = self._env.step(action)
        if step.game is None:
            self._film.add(self._env.render())
        else:  # the environment shows the next game already
            self._film.score = step.game.score
            self._film.finish()
        return step

    def __getattr__(self, name: str) -> Any:  # all else as it is
        return getattr(self._env, name)
