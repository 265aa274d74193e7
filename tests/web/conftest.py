"""One small runs directory, one server and one browser for all tests of the page in a process."""

import shutil
import socket
import threading
import time
from pathlib import Path

import pytest

from tests.cli.tiny_runs import tiny_run
from tests.training.short_runs import short_config, short_run
from tests.training.test_many_environments import several
from tests.training.test_resume import go, saving

CHROMIUM = next(
    (found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))), None
)
MISSING = "NO CHROMIUM FOUND: the tests of the page in a browser were LEFT OUT; install it with `make browser`"


def pytest_collection_modifyitems(items):
    if CHROMIUM is None:
        for item in items:
            if "browser" in item.keywords:
                item.add_marker(pytest.mark.skip(reason=MISSING))


def pytest_terminal_summary(terminalreporter):
    if any(MISSING in str(report.longrepr) for report in terminalreporter.stats.get("skipped", [])):
        terminalreporter.write_line(MISSING, red=True, bold=True)


@pytest.fixture(scope="session")
def trained(tmp_path_factory) -> Path:
    """Two agents on MinAtar and one on CartPole, trained for some steps. Not to be changed."""
    root = tmp_path_factory.mktemp("trained")
    tiny_run("minatar/breakout", root / "breakout-c2d")
    short_run("minatar/breakout", root / "breakout-c51", recipe="c51", iterations=1)
    tiny_run("gym/CartPole-v1", root / "cartpole")
    return root


@pytest.fixture(scope="session")
def crowd(tmp_path_factory):
    """A run of three environments, stopped in the middle of their games, and its session as it stood then.

    Neither is to be changed.
    """
    root = tmp_path_factory.mktemp("crowd")
    config = short_config("minatar/breakout", root / "three", steps=300, epsilon_ladder=7.0, epsilon_min=0.1)
    return root, go(saving(several(config)), stop=171).session


class Server:
    """`c2d serve` in a thread."""

    def __init__(self, root: Path, port: int = 0, **options) -> None:
        import uvicorn

        from c2d.cli.serve import ServeOptions, access_of, listen, server_config

        chosen = ServeOptions(runs=str(root), **options)
        listener: socket.socket = listen(chosen.host, port)
        self.root, self.port = root, listener.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self._server = uvicorn.Server(server_config(chosen, access_of(chosen, self.port)))
        self._thread = threading.Thread(target=self._server.run, kwargs={"sockets": [listener]}, daemon=True)
        self._thread.start()
        while not self._server.started:
            time.sleep(0.01)

    def close(self) -> None:
        self._server.should_exit = True
        self._thread.join(60)
        assert not self._thread.is_alive()


@pytest.fixture(scope="session")
def server(trained, tmp_path_factory):
    """On a directory that tests may add runs to."""
    root = tmp_path_factory.mktemp("shown") / "runs"
    shutil.copytree(trained, root)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("c2d.web.run_index._SCAN", 0.5)  # new runs are found sooner
        patch.setattr("c2d.web.run_index.PERIOD", 0.2)
        server = Server(root)
        yield server
        server.close()


@pytest.fixture(scope="module")
def chromium():
    """Of one module: while Playwright is open, no other loop can run in this thread."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        # without Chromium's own sandbox: inside containers it cannot be set up, and the pages are ours
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


def _failed(request, errors: list[str]) -> None:
    if request.failure != "net::ERR_ABORTED":  # the page was left while it asked
        errors.append(f"{request.url}: {request.failure}")


@pytest.fixture
def page(chromium):
    """A page on which an error of any kind fails the test."""
    context = chromium.new_context(viewport={"width": 1366, "height": 768}, accept_downloads=True)
    page = context.new_page()
    page.set_default_timeout(120_000)  # milliseconds, on a busy machine
    errors: list[str] = []
    page.on("console", lambda message: errors.append(message.text) if message.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("requestfailed", lambda request: _failed(request, errors))
    page.errors = errors
    yield page
    context.close()
    assert errors == []
