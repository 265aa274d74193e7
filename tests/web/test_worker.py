"""The process in which agents play: opened, led, damaged, ended."""

import asyncio
import os
import signal

from c2d.web.inside import Root
from c2d.web.lens.session import Session
from c2d.web.lens.wire import unpack

OPEN = '{"do": "open", "agents": [["%s", "weights"]], "drive": "first", "seed": 4, "epsilon": 0.0}'


async def heard(session: Session, kind: str):
    """The next message of a kind; others are passed over."""
    while True:
        header, parts = unpack(await asyncio.wait_for(session.next_message(), 60))
        if header["kind"] == "moment":
            await session.command('{"do": "ack"}')
        if header["kind"] == kind:
            return header, parts


def test_a_lens_from_opening_to_its_end(trained):
    async def use():
        session = Session(Root(trained))
        await session.start()
        listening = asyncio.ensure_future(session.listen())
        try:
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
            await session.command('{"do": "new", "seed": 4}')
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


def test_the_process_ends_with_its_input(trained):
    async def use():
        session = Session(Root(trained))
        await session.start()
        session._process.stdin.close()
        assert await asyncio.wait_for(session._process.wait(), 60) == 0
        await session.close()  # of one that has ended

    asyncio.run(use())
