"""The pages in Chromium, as a user sees them. Any error in the browser's console fails a test."""

import json
import shutil

import pytest

from c2d.agents.rollout import FrameStack
from c2d.api import load
from c2d.envs.make import make
from c2d.runs.layout import RunDir
from tests.web.browsing import open_lens, until
from tests.web.conftest import Server
from tests.web.made_runs import append, make_run, point, record

pytestmark = pytest.mark.browser


def row(name):
    return f"document.querySelector('tr[data-id=\"{name}\"]')"


def test_the_table_is_live_and_escapes_names(server, page):
    name = "<img src=x onerror=alert(1)>"
    run = make_run(server.root / name, 1, "interrupted", recipe="<b>bold</b>")
    page.goto(server.url)
    until(
        page,
        f"document.querySelectorAll('tbody tr').length >= 4 && document.body.innerText.includes({json.dumps(name)})",
    )
    assert (
        page.evaluate("document.images.length") == 0 and page.evaluate("document.querySelectorAll('td b').length") == 0
    )
    append(run, record(1, 123.25))
    until(page, "document.body.innerText.includes('123.25')")  # without a reload
    make_run(server.root / "came-later", 2)
    until(page, row("came-later"))
    shutil.rmtree(run)
    shutil.rmtree(server.root / "came-later")
    until(page, f"!{row('came-later')}")


def test_sorting_filtering_selecting_by_keyboard(server, page):
    page.goto(server.url)
    until(page, "document.querySelectorAll('tbody tr').length >= 3")
    page.keyboard.press("/")
    page.keyboard.type("cartpole")
    until(page, "document.querySelectorAll('tbody tr').length === 1")
    page.fill("#filter", "")
    page.click("th[data-key=recipe] button")
    assert page.get_attribute("th[data-key=recipe]", "aria-sort") == "ascending"
    first = page.inner_text("tbody tr:first-child td[data-key=recipe]")
    page.click("th[data-key=recipe] button")
    assert page.inner_text("tbody tr:first-child td[data-key=recipe]") >= first
    page.click("#clear")
    page.focus("tbody tr:first-child input")
    page.keyboard.press("Space")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Space")
    until(
        page,
        "document.querySelectorAll('tr[aria-selected=true]').length === 2 && document.querySelector('#chart canvas')",
    )
    page.select_option("#axis", "hours")
    page.check("#log-y")
    with page.expect_download() as download:
        page.click("#save-csv")
    table = download.value.path().read_text().splitlines()
    assert table[0] in ('"curve","hours","value"', '"environment","curve","hours","value"')
    page.fill("#smoothing", "0.9")
    with page.expect_download() as download:
        page.click("#save-csv")
    smoothed = download.value.path().read_text().splitlines()
    assert smoothed[0].endswith('"value","smoothed (running mean, weight 0.9)"')
    assert [line.rpartition(",")[0] for line in smoothed[1:]] == table[1:]  # values as recorded stand there too
    assert page.locator(".legend .entry").count() == len(
        {line.rpartition(",")[0].rpartition(",")[0] for line in table[1:]}
    )
    with page.expect_download() as download:
        page.click("#save-png")
    assert download.value.path().read_bytes().startswith(b"\x89PNG")


def test_seeds_are_one_curve_and_environments_have_charts_of_their_own(server, page):
    names = [f"seed{seed}" for seed in (1, 2)]
    for seed, name in enumerate(names, 1):
        run = make_run(server.root / name, 1, seed=seed)
        append(run, point(0, 50, 10.0 * seed), point(0, 100, 20.0 * seed), file="points.jsonl")
        append(run, point(1, 120, 60.0 if seed == 2 else None), file="points.jsonl")  # one is in the middle of a game
    page.goto(f"{server.url}/?run=seed1&run=seed2&run=breakout-c2d")
    until(page, "document.querySelectorAll('#chart canvas').length === 2")
    until(page, "document.querySelector('#chart').innerText.includes('(2 seeds), mean')")
    with page.expect_download() as download:
        page.click("#save-csv")
    table = [line.split(",") for line in download.value.path().read_text().splitlines() if "CartPole" in line]
    values = {kind: [float(line[-1]) for line in table if f", {kind}" in ",".join(line)] for kind in ("mean", "lowest")}
    assert values == {"mean": [15.0, 30.0, 40.0], "lowest": [10.0, 20.0, 20.0]}
    page.uncheck("#grouping")
    until(page, "document.querySelector('#chart').innerText.includes('seed2')")
    page.select_option("#metric", "mean_loss")
    page.select_option("#points", "records")
    until(page, "document.querySelector('#what').textContent.includes('one point per iteration')")
    for name in names:
        shutil.rmtree(server.root / name)


def test_nothing_is_cut_off_on_narrow_screens(server, page):
    over = "document.documentElement.scrollWidth - innerWidth"
    long = make_run(server.root / "-".join(["long"] * 20), 1)
    for width in (1024, 400):
        page.set_viewport_size({"width": width, "height": 700})
        page.goto(server.url)
        until(page, f"document.querySelectorAll('#chart canvas').length && {row(long.name)}")
        assert page.evaluate(over) <= 0
        if width == 1024:
            assert page.evaluate("(({scrollWidth, clientWidth}) => scrollWidth - clientWidth)(table.parentNode)") <= 0
        page.goto(f"{server.url}/run?run=breakout-c2d")
        until(page, "document.querySelectorAll('.charts canvas').length >= 8 && document.querySelector('#settings tr')")
        until(page, "document.querySelectorAll('#other option').length >= 4")
        assert page.evaluate(over) <= 0, width
    open_lens(server, page, run="breakout-c51", run2="breakout-c2d")
    selects = "[...document.querySelectorAll('.picker select, .controls select')]"
    assert page.evaluate(over) <= 0
    assert page.evaluate(f"Math.max(...{selects}.map((one) => one.getBoundingClientRect().right)) <= 384")
    shutil.rmtree(long)


def test_a_young_run_says_that_no_game_has_ended(server, page):
    """Asked for by the address before the server, which has just looked for runs, has found it."""
    page.goto(server.url)
    until(page, "document.querySelectorAll('#chart canvas').length")
    young = make_run(server.root / "young", 0)
    append(young, record(0, None, episodes=0))
    page.goto(f"{server.url}/?run=young")
    until(page, "document.querySelector('#chart').innerText.includes('has ended yet')")
    assert page.locator("#chart canvas").count() == 0
    shutil.rmtree(young)


def test_the_page_of_a_run(server, page):
    page.goto(f"{server.url}/run?run=breakout-c2d")
    until(page, "document.querySelectorAll('.charts canvas').length >= 8")
    assert page.is_checked("#points") and page.evaluate("document.querySelectorAll('.tile').length") >= 8
    text = page.inner_text("main")
    for words in ("breakout-c2d", "finished", "Protocol passport", "head.atoms", "c2d evaluate", "α"):
        assert words in text
    page.select_option("#other", "breakout-c51")
    until(
        page,
        "[...document.querySelectorAll('#settings tr.differs td:first-child')].some((c) => c.textContent === 'head')",
    )
    differing = page.evaluate(
        "[...document.querySelectorAll('#settings tr')].slice(1).every((line) => line.classList.contains('differs'))"
    )
    assert differing
    missing = page.context.new_page()  # a page of its own: the browser tells of the 404 that is asked for
    missing.goto(f"{server.url}/run?run=../missing")
    until(missing, "document.querySelector('#trouble').textContent.includes('no such run')")


STEPPED = """async (count) => {
  const sleep = (time) => new Promise((done) => setTimeout(done, time));
  const wait = async (ready, what) => {
    for (let k = 0; k < 3000; k += 1) { if (ready()) return; await sleep(10); }
    throw new Error(`in vain: ${what}`);
  };
  const still = async () => {
    let before = -1;
    while (before !== lens.received) { before = lens.received; await sleep(500); }
  };
  if (lens.playing) document.querySelector('#play').click();
  await still();  // pictures that were under way
  document.querySelector('#new').click();
  await wait(() => lens.stage.moments.at(-1).games[0].step === 0 && lens.stage.moments.at(-1).seed === 3, 'a new game');
  await still();
  const start = lens.stage.moments.length - 1;
  for (let k = 1; k < count; k += 1) {
    document.querySelector('#step').click();
    const { stage } = lens;
    await wait(() => stage.moments.length > start + k && stage.shown === stage.moments.at(-1), `step ${k}`);
  }
  return lens.stage.moments.slice(start).map((m) => ({ action: m.games[0].action, mean: m.seats[0].mean,
    returns: [...m.seats[0].laws.returns], atoms: [...m.seats[0].laws.atoms], probs: [...m.seats[0].laws.probs] }));
}"""


def check_laws(server, run, shown):
    """Play the game again by other means, and ask the agent as users load it."""
    agent, config = load(server.root / run), RunDir(server.root / run).read_config()
    env = make(config.env, config.rules, 3)
    stack = FrameStack(env.spec)
    stack.reset(env.reset())
    for moment in shown:
        law = agent.distribution(stack.obs)
        assert moment["mean"] == law.mean.tolist()
        for name in ("returns", "atoms", "probs"):
            assert moment[name] == getattr(law, name).ravel().tolist()
        stack.update(env.step(moment["action"]))
    env.close()


def test_the_lens_shows_agent_distribution_exactly(server, page):
    open_lens(server, page, run="breakout-c2d", seed=3)
    check_laws(server, "breakout-c2d", page.evaluate(STEPPED, 12))
    assert page.evaluate("document.querySelector('.screen').width") == 160
    page.select_option("#run-0", "cartpole")
    until(page, "lens.stage.agents[0].run === 'cartpole' && lens.stage.shown")
    check_laws(server, "cartpole", page.evaluate(STEPPED, 8))
    assert page.evaluate("document.querySelector('.screen').width") == 600


def test_the_lens_plays_scrubs_and_exports(server, page, chromium, tmp_path):
    open_lens(server, page, run="breakout-c51", run2="breakout-c2d")
    until(page, "lens.times.length > 20")
    assert page.evaluate("document.querySelectorAll('canvas.law').length") == 2
    page.click("#space-atoms")
    page.click("#form-cdf")
    page.uncheck("#target")
    page.fill("#criterion", "above:1")
    page.press("#criterion", "Enter")
    until(page, "document.querySelector('.criteria').innerText.includes('above:1')")
    page.select_option("#by", "cvar:0.1")
    until(page, "lens.stage.shown.by === 1")
    page.fill("#criterion", "nonsense:1")
    page.press("#criterion", "Enter")
    until(page, "document.querySelector('#message').textContent.includes('unknown criterion')")
    page.evaluate("document.querySelector('.past input').focus()")
    page.keyboard.press("Home")  # scrub to the oldest: the game waits
    until(page, "!lens.playing && lens.stage.at === 0 && document.querySelector('#play').textContent === 'Play'")
    until(page, "document.querySelector('.where').textContent.includes('steps back')")
    page.focus("canvas.law")
    page.keyboard.press("ArrowRight")
    until(page, "document.querySelector('.reading').textContent.includes('probability')")
    with page.expect_download() as download:
        page.click("#save-html")
    download.value.save_as(tmp_path / "lens.html")
    context = chromium.new_context(offline=True)
    alone = context.new_page()
    alone.on("console", lambda message: page.errors.append(message.text))
    alone.on("pageerror", lambda error: page.errors.append(str(error)))
    alone.goto((tmp_path / "lens.html").as_uri())
    alone.click("#play")
    until(alone, "lens.stage.painted > 5 && lens.stage.at > 3")
    assert alone.evaluate("lens.stage.moments.length") > 20
    context.close()
    send_bad_messages(page)


def send_bad_messages(page):
    """Each is answered, one too large ends its own connection, and the lens that is open is not disturbed."""
    heard, code = page.evaluate("""async () => {
      const socket = new WebSocket(`ws://${location.host}/ws/lens`);
      socket.binaryType = 'arraybuffer';
      const heard = [];
      const closed = new Promise((done) => { socket.onclose = (event) => done(event.code); });
      socket.onmessage = (event) => heard.push(new TextDecoder().decode(event.data));
      await new Promise((done, fail) => { socket.onopen = done; setTimeout(fail, 20000); });
      for (const text of ['', 'nonsense', '{"do": "fly"}', 'x'.repeat(100000), '{"do": "step"}',
        '{"do": "open", "agents": [["../..", "weights"]], "drive": "first", "seed": 0, "epsilon": 0, "start": null}']) {
        socket.send(text);
      }
      socket.send(new Uint8Array([1, 2, 3]));
      for (let k = 0; k < 400 && heard.length < 8; k += 1) await new Promise((done) => setTimeout(done, 50));
      socket.send('x'.repeat(2000000));
      const late = new Promise((done) => setTimeout(() => done('never closed'), 20000));
      return [heard.join(), await Promise.race([closed, late])];
    }""")
    for words in (
        "a message is not JSON",
        "must be an object whose",
        "more than 8,192 bytes",
        "no agent is open",
        "cannot be opened",
        "not binary",
    ):
        assert words in heard
    assert code in (1006, 1009)
    before = page.evaluate("lens.received")
    page.click("#live")
    page.click("#step")
    until(page, f"lens.received > {before}")


def test_a_token_lets_a_browser_in(trained, page):
    server = Server(trained, host="0.0.0.0", token="a-token-of-some-length")
    try:
        refused = (
            page.context.new_page()
        )  # a page of its own: the browser tells of each 401, some time after the answer
        assert refused.goto(server.url).status == 401
        assert "token is missing" in refused.inner_text("body")
        refused.close()
        page.goto(f"{server.url}/?token=a-token-of-some-length&run=cartpole")
        assert page.url == f"{server.url}/?run=cartpole"
        until(page, "document.querySelectorAll('tbody tr').length === 3")  # the WebSocket was let in by the cookie
        assert page.evaluate("document.cookie") == ""
    finally:
        page.goto("about:blank")
        server.close()


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_text_can_be_read_in_both_themes(server, page, theme):
    page.emulate_media(color_scheme=theme)
    page.goto(server.url)
    colors = page.evaluate("""() => {
      const sheet = getComputedStyle(document.documentElement);
      const light = (name) => {
        const digits = sheet.getPropertyValue(`--${name}`).trim().slice(1).match(/../g);
        const linear = (c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
        const [r, g, b] = digits.map((x) => linear(parseInt(x, 16) / 255));
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
      };
      const names = ['ink', 'soft', 'accent', 'good', 'warn', 'bad', 'stem', 'stem-chosen', 'target'];
      return Object.fromEntries(names.map((name) => {
        const [a, b] = [light(name), light('panel')].sort((x, y) => y - x);
        return [name, (a + 0.05) / (b + 0.05)];
      }));
    }""")
    assert page.evaluate("document.documentElement.dataset.theme") == theme
    assert min(colors.values()) >= 4.5, colors
    page.click("#theme")
    assert page.evaluate("document.documentElement.dataset.theme") != theme
