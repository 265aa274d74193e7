"""The last moments of a lens as one file: an HTML page that plays without a network, or an MP4 video."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import html
import posixpath
import re
import struct
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from c2d.errors import UserError
from c2d.web.lens.connection import History
from c2d.web.lens.messages import unpack

Report = Callable[[int, int], None]  # moments done, and their total
STATIC = Path(__file__).parent / "static"
RATE = 15  # moments per second of the export
_MAX_SECONDS = 600
_VIDEO_TIMEOUT = 600.0  # seconds to create a video
# in order of dependency
MODULES = ("js/dom.js", "js/format.js", "js/lens/wire.js", "js/lens/laws.js", "js/lens/trace.js", "js/lens/stage.js",
           "js/lens/offline.js")  # fmt: skip
_POLICY = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src blob:"


async def export(
    history: History, kind: str, seconds: str, report: Report = lambda done, of: None
) -> tuple[bytes, str, str]:
    """The file, its media type and its name."""
    if kind not in ("html", "mp4"):
        raise UserError(f'"{kind[:20]}" is not an export format; accepted: html, mp4')
    if not seconds.isdecimal() or not 1 <= int(seconds[:9]) <= _MAX_SECONDS:
        raise UserError(f'seconds are "{seconds[:20]}"; accepted: 1 to {_MAX_SECONDS}')
    if history.opened is None or not history.moments:
        raise UserError("nothing has been played yet")
    chosen = [history.opened, *list(history.moments)[-int(seconds) * RATE :]]
    data = b"".join(struct.pack("<I", len(message)) + message for message in chosen)
    agents = unpack(history.opened)[0]["agents"]
    title = " and ".join(f"{agent['recipe']} on {agent['env']}" for agent in agents)
    name = re.sub(r"[^A-Za-z0-9-]+", "-", f"lens-{agents[0]['env']}-{'-'.join(agent['recipe'] for agent in agents)}")
    if kind == "html":
        return await asyncio.to_thread(page, title, data), "text/html; charset=utf-8", f"{name}.html"
    return await _video(data, len(chosen) - 1, report), "video/mp4", f"{name}.mp4"


def page(title: str, data: bytes) -> bytes:
    """One self-contained file. Its policy forbids it to load anything."""
    sheets = "\n".join((STATIC / name).read_text(encoding="utf-8") for name in ("css/page.css", "css/lens.css"))
    body = (STATIC / "offline.html").read_text(encoding="utf-8")
    document = (
        f'<!doctype html>\n<html lang="en" data-theme="light">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{html.escape(title)} · C2D</title>\n<style>\n{sheets}\n</style>\n</head>\n"
        f"{body.replace('TITLE', html.escape(title))}"
        f'<script type="application/octet-stream" id="moments">{base64.b64encode(data).decode()}</script>\n'
        f'<script type="module">\n{bundle()}\n</script>\n</html>\n'
    )
    return document.encode()


def bundle() -> str:
    """The page's own modules as one script: each becomes a function that returns its exports."""
    parts = ["const modules = {};"]
    for name in MODULES:
        text = (STATIC / name).read_text(encoding="utf-8")
        exported = ", ".join(re.findall(r"^export (?:async )?(?:function|class|const) (\w+)", text, flags=re.MULTILINE))
        here = posixpath.dirname(name)
        body = re.sub(
            r'^import (\{[^}]*\}) from "([^"]+)";',
            lambda match: f'const {match[1]} = modules["{posixpath.normpath(posixpath.join(here, match[2]))}"];',  # noqa: B023
            text,
            flags=re.MULTILINE,
        )
        body = re.sub(r"^export ", "", body, flags=re.MULTILINE)
        parts.append(f'modules["{name}"] = (() => {{\n{body}\nreturn {{ {exported} }};\n}})();')
    joined = "\n".join(parts)
    if "</script" in joined.lower():
        raise ValueError("a module contains </script")
    return joined


async def _video(data: bytes, moments: int, report: Report) -> bytes:
    """Created in a process of its own, which is killed if the request is canceled."""
    with tempfile.TemporaryDirectory(prefix="c2d-video-") as where:
        file = Path(where) / "lens.mp4"
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "c2d.web.lens.mp4", str(file),
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
        )  # fmt: skip
        assert process.stdin is not None and process.stdout is not None and process.stderr is not None
        try:
            async with asyncio.timeout(_VIDEO_TIMEOUT):
                output = asyncio.gather(
                    _feed(process.stdin, data), _follow(process.stdout, moments, report), process.stderr.read()
                )
                _, _, errors = await output
                await process.wait()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        if process.returncode != 0 or not file.is_file():
            last = (errors.decode(errors="replace").strip() or "no message").splitlines()[-1]
            raise UserError(f"the video could not be created: {last}")
        return file.read_bytes()


async def _feed(stream: asyncio.StreamWriter, data: bytes) -> None:
    with contextlib.suppress(ConnectionError):  # it has ended: its error output says why
        stream.write(data)
        await stream.drain()
        stream.close()
        await stream.wait_closed()


async def _follow(stream: asyncio.StreamReader, moments: int, report: Report) -> None:
    """The process prints how many frames are drawn."""
    while line := await stream.readline():
        if line.strip().isdigit():
            report(int(line), moments)
