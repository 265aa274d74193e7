"""The page as a user sees it: a server in a process of its own, and Chromium."""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from playwright.sync_api import Browser, sync_playwright


class Served(NamedTuple):
    """A running server."""

    url: str
    pid: int


@contextmanager
def served(root: Path) -> Iterator[Served]:
    """`c2d serve` on a directory of runs, at a free port."""
    command = [sys.executable, "-m", "c2d.cli.main", "serve", str(root), "--port", "0"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        found = re.search(r"open (\S+)", server.stdout.readline() if server.stdout else "")
        if found is None:
            raise SystemExit("the server did not start")
        yield Served(found[1], server.pid)
    finally:
        server.send_signal(signal.SIGINT)
        server.wait(30)


@contextmanager
def chromium() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        path = shutil.which("chromium") or shutil.which("chromium-browser")
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()
