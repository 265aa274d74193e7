"""The lens in Chromium when something is wrong: said, undone, and gone with the next success."""

import shutil

import numpy as np
import pytest
import safetensors.numpy

from tests.web.browsing import open_lens, until
from tests.web.conftest import Server

pytestmark = pytest.mark.browser

MESSAGE = "document.querySelector('#message').textContent"
NAMES = "[...document.querySelectorAll('#by option')].map((o) => o.value).join()"


def enter(page, field, text):
    page.fill(field, text)
    page.press(field, "Enter")


@pytest.fixture
def bad_runs(server):
    """One whose weights are damaged, one whose weights are not finite."""
    for name in ("broken", "diverged"):
        shutil.copytree(server.root / "breakout-c2d", server.root / name)
    file = server.root / "diverged" / "weights.safetensors"
    weights = {key: np.full_like(value, np.nan) for key, value in safetensors.numpy.load_file(file).items()}
    safetensors.numpy.save_file(weights, file)
    (server.root / "broken" / "weights.safetensors").write_bytes(b"nothing")
    yield
    for name in ("broken", "diverged"):
        shutil.rmtree(server.root / name)


def test_what_is_wrong_is_said_undone_and_gone_with_the_next_success(server, page, bad_runs):
    """On one page: each lens is a process that must start."""
    page.goto(f"{server.url}/lens?run=nosuch&seed=-3")
    until(page, f"{MESSAGE}.includes('There is no run \"nosuch\"')")
    page.select_option("#run-0", "breakout-c2d")
    until(page, f"lens.stage?.shown && {MESSAGE} === ''")
    assert page.input_value("#seed") == "0" and "seed=0" in page.url
    check_numbers(page)
    check_criteria(page)
    check_agents(page)


def check_numbers(page):
    enter(page, "#seed", "1.5")
    until(page, "lens.stage.shown.seed === 2")
    assert page.input_value("#seed") == "2" and "seed=2" in page.url
    enter(page, "#epsilon", "2")
    until(page, f"{MESSAGE}.startsWith('epsilon is')")
    assert page.input_value("#epsilon") == "0.001"
    enter(page, "#epsilon", "0.5")
    until(page, f"lens.stage.shown.epsilon === 0.5 && {MESSAGE} === ''")
    enter(page, "#epsilon", "")
    until(page, f"{MESSAGE}.startsWith('ε is not a number')")
    assert page.input_value("#epsilon") == "0.5"


def check_criteria(page):
    enter(page, "#criterion", "foo:3")
    until(page, f"{MESSAGE}.includes('unknown criterion')")
    page.select_option("#by", "cvar:0.1")  # goes through, since the wrong one is not kept
    until(page, f"lens.stage.shown.by === 1 && {MESSAGE} === ''")
    for name in ("above:1", "above:2", "mean-std:1e39"):
        enter(page, "#criterion", name)
    until(page, "lens.stage.shown.criteria.at(-1) === 'mean-std:1e+39'")
    assert page.evaluate(NAMES).endswith("above:1,above:2,mean-std:1e39")
    assert page.inner_text(".criteria tbody tr:last-child td:last-child") == "–"
    assert page.evaluate("lens.playing")


def check_agents(page):
    page.select_option("#run-0", "broken")  # leaves nothing behind that is not what was asked for
    until(page, f"{MESSAGE} !== '' && lens.stage === null && !lens.playing")
    assert page.is_disabled("#play") and page.inner_text("#play") == "Play"
    assert page.get_attribute("#stage", "aria-busy") is None
    page.select_option("#run-0", "diverged")  # plays, and the console stays empty
    until(page, "lens.stage?.moments.length > 5 && lens.playing")
    page.click("#form-cdf")
    page.select_option("#run-1", "cartpole")  # another environment: each its own game, by itself
    until(page, "lens.stage?.shown?.games.length === 2 && lens.stage.moments.length > 3")
    assert page.input_value("#drive") == "each"
    titles = page.locator(".seat-title").all_inner_texts()
    assert "diverged" in titles[0] and "cartpole" in titles[1] and all("φ" in title for title in titles)


def test_pages_come_back_with_the_server(trained, page):
    first = Server(trained)
    runs = page.context.new_page()
    try:
        runs.goto(first.url)
        until(runs, "document.querySelector('#link').textContent === 'live'")
        open_lens(first, page, run="breakout-c2d")
    finally:
        first.close()
    until(page, f"{MESSAGE}.includes('Connection lost') && !lens.playing")
    second = Server(trained, port=first.port)
    try:
        until(page, f"lens.playing && lens.received > 3 && {MESSAGE} === ''")
        until(runs, "document.querySelector('#link').textContent === 'live'", seconds=5)
    finally:
        for one in (page, runs):
            one.goto("about:blank")
        second.close()
    page.errors[:] = [error for error in page.errors if "WebSocket" not in error]  # told for each attempt in vain


DRAW_MASKED = """async () => {
    const { LawsView } = await import("/static/js/lens/laws.js");
    const { readMoment } = await import("/static/js/lens/wire.js");
    const values = { values: new Float32Array([1, 50, 2]), shape: [3, 1] };
    const probs = { values: new Float32Array([1, 1, 1]), shape: [3, 1] };
    const header = { seats: [{ legal: [true, false, true], mean: [1, 50, 2], mean_atoms: [1, 50, 2] }], games: [] };
    const moment = readMoment({ header, parts: { "0.returns": values, "0.atoms": values, "0.probs": probs } });
    const canvas = document.body.appendChild(document.createElement("canvas"));
    canvas.style.cssText = "width: 400px; height: 300px";
    const ctx = canvas.getContext("2d");
    const texts = [], faint = [];
    ctx.fillText = (text) => texts.push(text);
    const stroke = ctx.stroke.bind(ctx);
    ctx.stroke = () => { faint.push(ctx.globalAlpha < 1); stroke(); };
    const colors = { font: "11px sans-serif", bold: "11px sans-serif" };
    new LawsView(canvas).draw({ seat: moment.seats[0], names: ["a", "b", "c"], taken: 0, random: false, range: [0, 3],
        space: "returns", form: "stems", target: false, colors, marked: null, best: 0 });
    return { texts, faint: faint.filter(Boolean).length, extent: moment.extent[0].returns };
}"""


def test_illegal_actions_are_shown_as_such(server, page):
    """Named, drawn faintly, without a mean; they do not stretch the axis."""
    page.goto(server.url)
    drawn = page.evaluate(DRAW_MASKED)
    assert drawn["texts"].count("illegal") == 1 and "50" not in drawn["texts"] and {"1", "2"} <= set(drawn["texts"])
    assert drawn["faint"] == 1 and drawn["extent"] == [1, 2]
