"""Runs of several environments in Chromium: the table of environments, their games, and where a lens begins."""

import json
import shutil

import pytest

from c2d.runs.confined import Root
from c2d.web.lens.load import open_agent
from tests.web.browsing import open_lens, until
from tests.web.conftest import Server
from tests.web.made_runs import config, make_run

pytestmark = pytest.mark.browser

MESSAGE = "document.querySelector('#message').textContent"
FACTS = "document.querySelector('.facts').textContent"
SHOWN = "lens.stage?.shown?.games[0]"


@pytest.fixture
def many(server):
    """Three environments in lock-step: three games end in each of three rounds."""
    recipe = config()["recipe"]
    schedule = {**recipe["schedule"], "epsilon_ladder": 7.0, "epsilon_decay_steps": 0, "epsilon_min": 0.5}
    run = make_run(server.root / "many", 2, recipe={**recipe, "envs": 3, "schedule": schedule})
    lines = [f"0,{step},{step + env}.0,1{env},{env}\n" for step in (30, 60, 90) for env in range(3)]
    (run / "episodes.csv").write_text("iteration,step,score,length,env\n" + "".join(lines))
    yield
    shutil.rmtree(run)


def test_the_page_of_a_run_of_several_environments(server, page, many):
    page.goto(f"{server.url}/run?run=many")
    until(page, "document.querySelectorAll('#environments tbody tr').length === 3")
    cells = [line.split("\t") for line in page.inner_text("#environments-table tbody").splitlines()]
    assert cells == [["0", "3", "60.00", "90.00", "0.5"], ["1", "3", "61.00", "91.00", "0.0442"],
                     ["2", "3", "62.00", "92.00", "0.00391"]]  # fmt: skip
    assert "3 environments" in page.inner_text("#facts") and "of all environments" in page.inner_text("#tiles")
    assert "9 whole games" in page.inner_text("#games-note")
    check_games(page)
    page.goto(server.url)
    until(page, "document.querySelector('tr[data-id=many] td[data-key=env]')?.title === '3 environments in lock-step'")
    assert page.get_attribute("tr[data-id=many] td[data-key=speed]", "title") == "of all 3 environments together"
    assert page.get_attribute("tr[data-id=cartpole] td[data-key=speed]", "title") == ""


def check_games(page):
    """A chart has one point per step: games of one round stand side by side, and each says who played it."""
    seen, box = set(), page.locator("#games .u-over").bounding_box()
    for x in range(0, int(box["width"]), 5):
        page.mouse.move(box["x"] + x, box["y"] + 30)
        seen.add(tuple(page.inner_text("#games .tip").splitlines()[:2]))
    wanted = {(step - 2 + env, env) for step in (30, 60, 90) for env in range(3)}
    assert seen == {(f"{step} steps", f"game of environment {env}, 1{env} steps") for step, env in wanted}


def test_a_run_of_one_environment_has_no_table(server, page):
    page.goto(f"{server.url}/run?run=breakout-c2d")
    until(page, "document.querySelectorAll('.charts canvas').length >= 8")
    assert page.is_hidden("#environments") and "environments" not in page.inner_text("#facts")


@pytest.fixture
def copied(crowd, tmp_path):
    """The run of three environments, to be served and damaged."""
    shutil.copytree(crowd[0] / "three", tmp_path / "three")
    return tmp_path


def checkpoint_of(root):
    return max((root / "three" / "checkpoints").iterdir())


def begin(server, page, root, **query):
    open_lens(server, page, run="three", checkpoint=checkpoint_of(root).name, **query)


def pause(page):
    """From here on every moment is shown; a page that is slower than the game drops some."""
    until(page, "lens.playing")
    page.click("#play")


def check_start(page, session, number):
    """Paused, the first moment is that of the run's environment. Returns its law, and what the environment shows."""
    stream = session.rollout.streams[number]
    until(page, f"{SHOWN}?.env === {number}")
    first = page.evaluate(f"""(() => {{
      const moment = lens.stage.moments.find((one) => one.games[0].env === {number});
      return {{ step: moment.games[0].step, score: moment.games[0].score, returns: [...moment.seats[0].laws.returns] }};
    }})()""")
    assert (first["score"], first["step"]) == stream.env.so_far
    return first["returns"], stream.stack.obs


def test_where_the_lens_begins(crowd, page, copied):
    session, name = crowd[1], checkpoint_of(copied).name
    agent = open_agent(Root(copied), "three", name).agent
    server = Server(copied)
    try:
        begin(server, page, copied)
        until(page, "document.querySelectorAll('#start option').length === 4")
        assert page.input_value("#start") == "" and page.evaluate(f"{SHOWN}.env") is None
        words = page.evaluate("document.querySelector('#start').options[2].textContent")
        score, steps = session.rollout.streams[1].env.so_far
        facts, epsilon = words.split(", ε ")
        assert facts == f"environment 1: step {steps}, score {score:g}"
        assert float(epsilon) == pytest.approx(session.epsilons[1], rel=0.02)
        pause(page)
        page.select_option("#start", "1")
        returns, obs = check_start(page, session, 1)
        assert returns == agent.distribution(obs).returns.ravel().tolist()
        until(page, f"{FACTS}.includes('environment 1')")
        assert page.inner_text("#new") == "Start again" and "start=1" in page.url
        page.click("#play")
        until(page, f"{SHOWN}.game > 0")
        pause(page)
        page.click("#new")
        until(page, f"{SHOWN}.game === 0")
        page.select_option("#start", "")
        until(page, f"{SHOWN}.env === null && document.querySelector('#new').textContent === 'New game'")
        assert "start=" not in page.url
        page.select_option("#start", "2")
        check_start(page, session, 2)
        page.select_option("#checkpoint-0", "weights")  # which hold no games
        until(page, f"lens.stage?.agents[0].checkpoint === 'weights' && {SHOWN}?.env === null")
        assert page.is_hidden("#start") and "start=" not in page.url
    finally:
        page.goto("about:blank")
        server.close()


def test_the_start_is_kept_over_a_lost_connection(crowd, page, copied):
    first = Server(copied)
    try:
        begin(first, page, copied, start=2)
        until(page, f"{SHOWN}?.env === 2")
        pause(page)
    finally:
        first.close()
    until(page, f"{MESSAGE}.includes('Connection lost')")
    second = Server(copied, port=first.port)
    try:
        until(page, f"lens.received > 0 && lens.stage.moments.length === 1 && {MESSAGE} === ''")  # paused, as before
        check_start(page, crowd[1], 2)
        assert page.input_value("#start") == "2" and "start=2" in page.url
    finally:
        page.goto("about:blank")
        second.close()
    page.errors[:] = [error for error in page.errors if "WebSocket" not in error]  # told for each attempt in vain


def test_a_game_that_cannot_be_brought_back_is_reported(crowd, page, copied):
    file = checkpoint_of(copied) / "state.json"
    state = json.loads(file.read_text())
    state["session"]["streams"][1]["environment"]["actions"].pop()
    file.write_text(json.dumps(state))
    server = Server(copied)
    try:
        begin(server, page, copied, start=1)
        until(
            page, f"{MESSAGE}.startsWith('the game of environment 1 cannot') && {MESSAGE}.endsWith('a new game begins')"
        )
        assert page.input_value("#start") == "" and page.evaluate(f"{SHOWN}.env") is None
        pause(page)
        page.select_option("#start", "0")  # and gone with the next success
        check_start(page, crowd[1], 0)
        assert page.inner_text("#message") == ""
        file.unlink()
        page.reload()
        until(page, f"{MESSAGE}.startsWith('the games of checkpoint') && lens.playing")
        assert page.evaluate("document.querySelectorAll('#start option').length") == 1
    finally:
        page.goto("about:blank")
        server.close()
