"""A game as an MP4 file that browsers play (H.264), at the speed at which people would play it.

One video frame per agent step: 15 per second for Atari (60 emulator frames, 4 per action), 10 for MinAtar, which has no
speed of its own, and for Gymnasium the rate that the environment names, or 30. Small images are enlarged without blur.
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

SIDE = 480  # approximate pixels of the longer side of an enlarged image
# 4:2:0 and the index at the front, as browsers need them
_SETTINGS = ("-c:v", "libx264", "-pix_fmt", "yuv420p", "-crf", "18", "-preset", "veryfast", "-movflags", "+faststart")


def check_video(path: Path) -> None:
    """Reject a path that no video can be written to, before any game is played."""
    check_destination(path, "--video", (".mp4",))
    if importlib.util.find_spec("imageio_ffmpeg") is None:
        raise UserError("--video needs an encoder; install it with: pip install 'c2d[video]'")


def frame_rate(env: Environment) -> float:
    """Video frames per second."""
    if env.spec.family == "atari":
        return 60 / env.spec.frames_per_step
    if env.spec.family == "minatar":
        return 10.0
    return float(getattr(env, "render_fps", None) or 30.0)


def enlarge(image: np.ndarray) -> np.ndarray:
    """Scale small images by a whole number; sides are made even, as the encoder requires. [H, W, 3] u8"""
    times = max(1, SIDE // max(image.shape[:2]))
    large = image.repeat(times, axis=0).repeat(times, axis=1)
    return np.pad(large, ((0, large.shape[0] % 2), (0, large.shape[1] % 2), (0, 0)), mode="edge")


class Video:
    """The file. `path` does not exist before the video is complete."""

    def __init__(self, path: Path, seconds: float | None = None) -> None:
        self.path, self.seconds = path, seconds
        self.frames = 0
        self.rate = 0.0  # frames per second; known with the first environment
        self.score: float | None = None  # of the game, if it was recorded to its end
        self._temporary = path.with_name(f".{path.stem}.{os.getpid()}.tmp.mp4")
        self._encoder: subprocess.Popen[bytes] | None = None

    def record_first(self, make_env: MakeEnv) -> MakeEnv:
        """The same environments, the first of which is recorded."""
        count = 0

        def make(seed: int) -> Environment:
            nonlocal count
            env = make_env(seed)
            count += 1
            return env if count > 1 else RecordedEnv(env, self)

        return make

    def add(self, image: np.ndarray) -> None:
        """Append a frame, unless the video has its full length."""
        if self.seconds is not None and self.frames >= self.seconds * self.rate:
            return
        image = enlarge(image)
        if self._encoder is None:
            self._encoder = self._open(image)
        assert self._encoder.stdin is not None
        try:
            self._encoder.stdin.write(np.ascontiguousarray(image).data)
        except OSError:  # the encoder ended early, and says why
            raise self._failed() from None
        self.frames += 1

    def _open(self, image: np.ndarray) -> subprocess.Popen[bytes]:
        from imageio_ffmpeg import get_ffmpeg_exe

        height, width = image.shape[:2]
        source = ("-f", "rawvideo", "-pix_fmt", "rgb24", "-s", f"{width}x{height}", "-r", f"{self.rate:g}", "-i", "-")
        return subprocess.Popen(
            [get_ffmpeg_exe(), "-y", "-v", "error", *source, *_SETTINGS, str(self._temporary)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C is for this process, not for the encoder
        )

    def finish(self) -> None:
        """Close the file and move it to its path."""
        if self._encoder is None:
            return
        _, errors = self._encoder.communicate()
        if self._encoder.returncode != 0:
            raise self._failed(errors)
        self._encoder = None
        try:
            os.replace(self._temporary, self.path)
        except OSError as error:
            self._temporary.unlink(missing_ok=True)
            raise UserError(f"--video {self.path} could not be written: {error.strerror}") from None

    def abandon(self) -> None:
        """Stop and delete the unfinished file. After `finish` this does nothing."""
        if self._encoder is not None:
            self._encoder.kill()
            self._encoder.communicate()
            self._encoder = None
        self._temporary.unlink(missing_ok=True)

    def _failed(self, errors: bytes | None = None) -> UserError:
        if errors is None and self._encoder is not None:
            errors = self._encoder.communicate()[1]
        self.abandon()
        reason = " ".join((errors or b"").decode(errors="replace").split())
        return UserError(f"--video {self.path} could not be written: {reason or 'the encoder stopped'}")


class RecordedEnv:
    """An environment whose first game is recorded."""

    def __init__(self, env: Environment, video: Video) -> None:
        self._env, self._video = env, video
        self.spec = env.spec
        video.rate = frame_rate(env)

    def reset(self) -> ResetFrame:
        first = self._env.reset()
        self._video.add(self._env.render())
        return first

    def step(self, action: int) -> Step:
        step = self._env.step(action)
        if step.game is None:
            self._video.add(self._env.render())
        else:  # the environment already shows the next game
            self._video.score = step.game.score
            self._video.finish()
        return step

    def __getattr__(self, name: str) -> Any:  # everything else is unchanged
        return getattr(self._env, name)
