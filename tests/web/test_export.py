"""Exports: a self-contained page, and a video."""

import asyncio
import re
import subprocess

import numpy as np
import pytest

from c2d.errors import UserError
from c2d.runs.confined import Root
from c2d.web.export import MODULES, STATIC, bundle, export
from c2d.web.lens.agent_process import _describe
from c2d.web.lens.connection import History
from c2d.web.lens.load import open_agent
from c2d.web.lens.messages import pack, unpack
from c2d.web.lens.mp4 import MomentRenderer
from c2d.web.lens.player import Player


@pytest.fixture(scope="module")
def history(trained):
    loaded = [open_agent(Root(trained), run, "weights") for run in ("breakout-c51", "breakout-c2d")]
    playing = Player(loaded, "first", 0, 0.1, ())
    history = History()
    history.restart(pack({"kind": "opened", "agents": [_describe(one) for one in loaded], "drive": "first"}))
    for _ in range(20):
        history.add(playing.advance())
    return history


def made(history, kind, seconds="60"):
    return asyncio.run(export(history, kind, seconds))


def test_the_page_holds_everything_and_asks_for_nothing(history):
    data, kind, name = made(history, "html")
    page = data.decode()
    assert kind == "text/html; charset=utf-8" and name == "lens-minatar-breakout-c51-c2d.html"
    assert not re.search(r"(src|href)=", page) and "import " not in re.sub(r"(//|/?\*).*", "", bundle())
    assert (
        "default-src 'none'" in page
        and "<title>c51 on minatar/breakout and c2d on minatar/breakout · C2D</title>" in page
    )
    assert page.count("<script") == 2 and len(data) < 400_000


def test_names_cannot_break_out_of_the_page(history):
    evil = History()
    opened = unpack(history.opened)[0]
    opened["agents"][0]["recipe"] = "</title><script>alert(1)</script>"
    evil.restart(pack(opened))
    evil.add(history.moments[0])
    page = made(evil, "html")[0].decode()
    assert "<script>alert" not in page and page.count("<script") == 2
    assert re.fullmatch(r"[A-Za-z0-9.-]+", made(evil, "html")[2])


def test_every_module_the_export_needs_comes_before_the_one_that_needs_it():
    seen = set()
    for name in MODULES:
        needed = re.findall(r'^import .* from "([^"]+)";', (STATIC / name).read_text(), flags=re.MULTILINE)
        for path in needed:
            assert ((STATIC / name).parent / path).resolve().relative_to(STATIC).as_posix() in seen
        seen.add(name)


def test_only_as_much_as_was_asked_for(history):
    assert len(made(history, "html", "1")[0]) < len(made(history, "html", "2")[0])


@pytest.mark.parametrize(
    ("kind", "seconds"),
    [("", "1"), ("gif", "1"), ("html", "0"), ("html", "-1"), ("html", "x"), ("html", "9" * 30), ("html", "601")],
)
def test_bad_requests(history, kind, seconds):
    with pytest.raises(UserError, match="accepted"):
        made(history, kind, seconds)


def test_nothing_played_yet():
    with pytest.raises(UserError, match="nothing has been played"):
        made(History(), "html")


def test_the_video_has_a_frame_for_every_moment(history, tmp_path):
    from imageio_ffmpeg import get_ffmpeg_exe

    told = []
    data, kind, name = asyncio.run(export(history, "mp4", "1", lambda done, of: told.append((done, of))))
    assert told == [(5, 15), (10, 15), (15, 15)]
    assert kind == "video/mp4" and name.endswith(".mp4")
    file = tmp_path / "film.mp4"
    file.write_bytes(data)
    told = subprocess.run(
        [get_ffmpeg_exe(), "-i", file, "-map", "0:v", "-f", "null", "-"], capture_output=True, text=True
    ).stderr
    assert "h264" in told and "yuv420p" in told and "1280x720" in told and "15 fps" in told
    assert re.findall(r"frame=\s*(\d+)", told)[-1] == "15"


def test_moments_without_numbers_are_drawn(history):
    """An agent that has diverged has no axis, and the video continues."""
    opened = unpack(history.opened)[0]
    header, parts = unpack(history.moments[-1])
    for seat in header["seats"]:
        seat["mean"] = [float("nan")] * 3
    laws = {name: np.full_like(part, np.nan) for name, part in parts.items() if not isinstance(part, bytes)}
    drawing = MomentRenderer(opened["agents"])
    empty = drawing.draw(*unpack(pack(header, {**parts, **laws})))
    assert empty.shape == (720, 1280, 3) and (empty != drawing.draw(*unpack(history.moments[0]))).any()
