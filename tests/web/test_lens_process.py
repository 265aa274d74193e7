"""The process in which agents play: opened, led, damaged, ended."""

import asyncio
import os
import shutil
import signal

import numpy as np
import safetensors.numpy

from c2d.runs.confined import Root
from c2d.web.lens.connection import LensConnection
from c2d.web.lens.messages import unpack

OPEN = '{"do": "open", "agents": [["%s", "weights"]], "drive": "first", "seed": 4, "epsilon": 0.0, "start": null}'


async def heard(session: LensConnection, kind: str):
    """The next message of a kind; others are passed over."""
    while True:
        header, parts = unpack(await asyncio.wait_for(session.next_message(), 60))
        if header["kind"] == "moment":
            await session.command('{"do": "ack"}')
        if header["kind"] == kind:
            return header, parts


def no_agent(about: str) -> dict:
    return {"kind": "error", "text": "no agent is open: open one first", "about": about, "playing": False}


def test_a_lens_from_opening_to_its_end(trained):
    async def use():
        session = LensConnection(Root(trained))
        await session.start()
        listening = asyncio.ensure_future(session.listen())
        try:
            for early in ("step", "play"):
                await session.command(f'{{"do": "{early}"}}')
                assert await heard(session, "error") == (no_agent(early), {})
            await session.command("")
            assert "not JSON" in (await heard(session, "error"))[0]["text"]
            await session.command(OPEN % "missing")
            assert "cannot be opened" in (await heard(session, "error"))[0]["text"]
            await session.command(OPEN % "breakout-c2d")
            agent = (await heard(session, "opened"))[0]["agents"][0]
            assert agent["actions"] == ["NOOP", "LEFT", "RIGHT"] and agent["recipe"] == "c2d"
            await session.command('{"do": "step"}')
            first = await heard(session, "moment")
            await session.command('{"do": "criteria", "names": ["mean", "cvar:2"], "by": 1}')
            assert "accepted" in (await heard(session, "error"))[0]["text"]  # and the process lives on
            await session.command('{"do": "criteria", "names": ["mean"], "by": 3}')
            assert "by is 3" in (await heard(session, "error"))[0]["text"]
            await session.command('{"do": "epsilon", "value": 2}')
            assert "epsilon is '2'" in (await heard(session, "error"))[0]["text"]
            await session.command('{"do": "new", "seed": 4, "start": null}')
            again = await heard(session, "moment")
            assert again[0]["games"] == first[0]["games"] and again[1]["0.picture"] == first[1]["0.picture"]
            await session.command('{"do": "speed", "value": 0}')
            await session.command('{"do": "play"}')
            await heard(session, "moment")
            await heard(session, "moment")
            os.kill(session._process.pid, signal.SIGKILL)
            assert "reload the page" in (await heard(session, "ended"))[0]["text"]
        finally:
            await session.close()
            await listening
        assert session._process.returncode == -signal.SIGKILL

    asyncio.run(use())


def test_an_agent_that_has_diverged_is_shown(trained, tmp_path):
    """NaN is no JSON: null stands for it, and the process lives on. So for a criterion beyond what float32 holds."""
    shutil.copytree(trained / "breakout-c2d", tmp_path / "nan")
    shutil.copytree(trained / "breakout-c51", tmp_path / "well")
    file = tmp_path / "nan" / "weights.safetensors"
    weights = safetensors.numpy.load_file(file)
    safetensors.numpy.save_file({name: np.full_like(value, np.nan) for name, value in weights.items()}, file)

    async def use():
        session = LensConnection(Root(tmp_path))
        await session.start()
        listening = asyncio.ensure_future(session.listen())
        try:
            await session.command(OPEN % "nan")
            await session.command('{"do": "step"}')
            header, parts = await heard(session, "moment")
            assert header["seats"][0]["mean"] == [None] * 3 and np.isnan(parts["0.probs"]).all()
            await session.command(OPEN % "well")
            await session.command('{"do": "criteria", "names": ["mean", "mean-std:1e39"], "by": 1}')
            await session.command('{"do": "step"}')
            header, _ = await heard(session, "moment")
            assert header["seats"][0]["values"][1] == [None] * 3 and None not in header["seats"][0]["values"][0]
        finally:
            await session.close()
            await listening

    asyncio.run(use())


def test_a_process_that_nobody_listens_to_is_ended_at_once(trained):
    """Its pipe is full: asyncio sees the end of a process only when it is empty."""

    async def use():
        session = LensConnection(Root(trained))
        await session.start()
        for text in (OPEN % "breakout-c2d", '{"do": "speed", "value": 0}', '{"do": "play"}'):
            await session.command(text)
        while len(session._process.stdout._buffer) <= 2 * 65_536:  # where asyncio stops to read
            await asyncio.sleep(0.02)
        await asyncio.wait_for(session.close(), 10)
        assert session._process.returncode == -signal.SIGTERM

    asyncio.run(use())


def test_the_process_ends_with_its_input(trained):
    async def use():
        session = LensConnection(Root(trained))
        await session.start()
        session._process.stdin.close()
        assert await asyncio.wait_for(session._process.wait(), 60) == 0
        await session.close()  # of one that has ended

    asyncio.run(use())
