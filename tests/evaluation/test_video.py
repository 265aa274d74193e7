"""Videos: the images that were shown, at the right speed, or no file at all."""

import imageio_ffmpeg
import numpy as np
import pytest

from c2d.envs.make import make
from c2d.errors import UserError
from c2d.evaluation.video import RecordedEnv, Video, check_video, enlarge, frame_rate


def read(path):
    """(properties, images [T, H, W, 3]) from the decoder."""
    reader = imageio_ffmpeg.read_frames(str(path))
    facts = next(reader)
    width, height = facts["size"]
    return facts, np.stack([np.frombuffer(data, np.uint8).reshape(height, width, 3) for data in reader])


def play(env, steps):
    """Random play to the end of the game or for some steps; returns what was shown."""
    rng = np.random.default_rng(0)
    env.reset()
    shown = [env.render()]
    for _ in range(steps):
        if env.step(int(rng.integers(env.spec.actions))).game is not None:
            return shown
        shown.append(env.render())
    return shown


def test_a_whole_game_frame_by_frame(tmp_path):
    video = Video(tmp_path / "game.mp4")
    make_env = video.record_first(lambda seed: make("minatar/breakout", None, seed))
    env, second = make_env(3), make_env(4)
    assert isinstance(env, RecordedEnv) and not isinstance(second, RecordedEnv)
    shown = play(env, 1000)
    facts, images = read(video.path)
    assert facts["codec"] == "h264" and facts["pix_fmt"].startswith("yuv420p") and facts["fps"] == 10.0
    assert images.shape == (len(shown), 480, 480, 3) and video.frames == len(shown) > 3
    assert video.score is not None and [file.name for file in tmp_path.iterdir()] == ["game.mp4"]
    for image, wanted in zip(images, shown, strict=True):
        error = np.abs(image.astype(int) - enlarge(wanted).astype(int))
        assert error.mean() < 4  # 4:2:0 and crf 18; another image of the game is off by more
    assert np.abs(images[0].astype(int) - enlarge(shown[-1]).astype(int)).mean() > 4
    assert video.path.read_bytes().find(b"moov") < video.path.read_bytes().find(b"mdat")  # plays while it loads


def test_first_seconds_only(tmp_path):
    video = Video(tmp_path / "part.mp4", seconds=0.5)
    env = video.record_first(lambda seed: make("minatar/freeway", None, seed))(0)
    play(env, 20)
    video.finish()
    assert len(read(video.path)[1]) == video.frames == 5


def test_nothing_is_left_of_an_abandoned_video(tmp_path):
    (tmp_path / "old.mp4").write_bytes(b"an older video")
    video = Video(tmp_path / "old.mp4")
    env = video.record_first(lambda seed: make("minatar/freeway", None, seed))(0)
    play(env, 3)
    video.abandon()
    assert [file.name for file in tmp_path.iterdir()] == ["old.mp4"]
    assert (tmp_path / "old.mp4").read_bytes() == b"an older video"


def test_an_encoder_that_fails_says_why(tmp_path, monkeypatch):
    monkeypatch.setattr("c2d.evaluation.video._SETTINGS", ("-c:v", "nonsense"))
    video = Video(tmp_path / "game.mp4")
    env = video.record_first(lambda seed: make("minatar/freeway", None, seed))(0)
    with pytest.raises(UserError, match=r"game.mp4 could not be written: .*nonsense"):
        play(env, 2000)
        video.finish()
    assert not list(tmp_path.iterdir())


def test_speed_and_size_of_each_family():
    rates = {name: frame_rate(make(name, None, 0)) for name in
             ("minatar/breakout", "gym/CartPole-v1", "toy/sure", "atari/pong")}  # fmt: skip
    assert rates == {"minatar/breakout": 10.0, "gym/CartPole-v1": 50.0, "toy/sure": 30.0, "atari/pong": 15.0}
    sizes = {shape: enlarge(np.zeros((*shape, 3), np.uint8)).shape[:2] for shape in
             ((210, 160), (160, 160), (400, 600), (33, 21))}  # fmt: skip
    assert sizes == {(210, 160): (420, 320), (160, 160): (480, 480), (400, 600): (400, 600), (33, 21): (462, 294)}
    assert enlarge(np.zeros((481, 7, 3), np.uint8)).shape == (482, 8, 3)


def test_bad_paths_are_rejected_before_any_game_is_played(tmp_path, monkeypatch):
    for name, message in (("game.avi", "must end in .mp4"), ("missing/game.mp4", "in a directory that exists")):
        with pytest.raises(UserError, match=message):
            check_video(tmp_path / name)
    (tmp_path / "folder.mp4").mkdir()
    with pytest.raises(UserError, match="cannot be written"):
        check_video(tmp_path / "folder.mp4")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"pip install 'c2d\[video\]'"):
        check_video(tmp_path / "game.mp4")
