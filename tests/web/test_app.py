"""The data behind the pages, asked for without a network."""

import asyncio
import json
from importlib import resources

import pytest

from c2d.errors import UserError
from c2d.reporting.published import early_iterations
from c2d.runs.confined import Root
from c2d.web.app import _while_connected, make_app
from c2d.web.security import Access
from tests.web.asgi import request
from tests.web.made_runs import make_run


@pytest.fixture
def root(tmp_path):
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "config.json").write_text("{}")
    make_run(tmp_path / "runs" / "a", 3)
    make_run(tmp_path / "runs" / "<b>&'\"", 1)
    return tmp_path / "runs"


@pytest.fixture
def app(root):
    return make_app(Root(root), Access(8265))


@pytest.mark.parametrize("path", ["/", "/run", "/lens"])
def test_pages_load_nothing_from_elsewhere_and_have_no_inline_script(app, path):
    answer = request(app, path)
    page = answer.body.decode()
    assert answer.status == 200 and answer.headers["content-type"] == "text/html; charset=utf-8"
    assert "http:" not in page and "https:" not in page and 'src="//' not in page
    assert "style=" not in page and " onclick" not in page and "<script>" not in page


def test_runs_and_curves(app, root):
    listed = request(app, "/api/runs").json
    assert listed["root"] == str(root) and [row["id"] for row in listed["rows"]] == ["<b>&'\"", "a"]
    curves = request(app, "/api/curves", run=["a", "<b>&'\"", "missing"]).json
    assert sorted(curves) == ["<b>&'\"", "a"] and curves["a"]["columns"]["mean_score"] == [0.0, 1.0, 2.0]
    assert request(app, "/api/episodes", run="a").json["count"] == 5
    assert {"title", "unit", "color", "curves"} <= set(listed["charts"][0])
    asked = request(app, "/api/curves", run="a", column=["steps", "bias"], fine="1").json["a"]["columns"]
    assert asked == {"steps": [100, 200, 300], "bias": [None] * 3}


def test_one_run(app):
    detail = request(app, "/api/run", run="a").json
    assert detail["settings"]["phi.beta"] == 1.99 and detail["summary"]["state"] == "interrupted"


@pytest.mark.parametrize(
    "name", ["", "..", "../secret", "a/../../secret", "/etc", "a\0", "%2e%2e/secret", "a/checkpoints"]
)
@pytest.mark.parametrize("path", ["/api/run", "/api/episodes", "/api/report"])
def test_names_that_are_no_runs(app, path, name):
    answer = request(app, path, run=name)
    assert answer.status == 404 and answer.json == {"error": "there is no such run in the runs directory"}


def test_too_many_curves_are_refused(app):
    answer = request(app, "/api/curves", run=["a"] * 51)
    assert answer.status == 400 and "accepted: 1 to 50" in answer.json["error"]
    assert request(app, "/api/curves").status == 400


@pytest.mark.parametrize(
    "path", ["/static/../app.py", "/static/js/../../app.py", "/static//etc/passwd", "/static/%2e%2e/app.py"]
)
def test_static_files_are_those_of_the_package(app, path):
    assert request(app, path).status == 404
    assert request(app, "/static/js/dom.js").status == 200


def test_a_linked_run_is_not_shown(app, root):
    (root / "linked").symlink_to(root.parent / "secret", target_is_directory=True)
    assert "linked" not in [row["id"] for row in request(app, "/api/runs").json["rows"]]
    assert request(app, "/api/run", run="linked").status == 404


def test_a_report_is_shown_in_a_sandbox(app, root):
    assert request(app, "/api/report", run="a").json["error"].startswith("this run has no report yet")
    (root / "a" / "report.html").write_text("<script>alert(1)</script>")
    answer = request(app, "/api/report", run="a")
    assert answer.body == b"<script>alert(1)</script>"
    policy = answer.headers["content-security-policy"]
    assert (
        policy.startswith("sandbox allow-scripts;")
        and "allow-same-origin" not in policy
        and "connect-src" not in policy
    )
    assert request(app, "/api/run", run="a").json["report"] is True
    (root / "a" / "report.html").unlink()
    (root / "a" / "report.html").symlink_to(root.parent / "secret" / "config.json")
    assert request(app, "/api/report", run="a").status == 404


def test_published_curves(app):
    found = {curve["agent"]: curve for curve in request(app, "/api/published", env="atari/boxing").json}
    assert set(found) == {"C2D", "DQN", "C51", "IQN", "Rainbow", "QR-DQN"}
    assert found["DQN"]["frames"] == [10e6, 50e6, 100e6, 150e6, 200e6] and found["DQN"]["seeds"] == 5
    assert found["C2D"]["frames"][:10] == [k * 1e6 for k in range(1, 11)] and found["C2D"]["seeds"] == 3
    file = resources.files("c2d.reporting").joinpath("data/published_scores.csv").read_text()
    lines = [line.split(",") for line in file.splitlines() if not line.startswith("#")]
    place = lines[0].index("at_200")
    at_end = [float(line[place]) for line in lines if line[:2] == ["DQN", "boxing"]]
    assert len(at_end) == 5 and found["DQN"]["mean"][-1] == pytest.approx(sum(at_end) / 5)
    assert (found["DQN"]["low"][-1], found["DQN"]["high"][-1]) == (min(at_end), max(at_end))
    first = early_iterations()["boxing"][0]["mean_score"]
    assert found["C2D"]["mean"][0] == pytest.approx(sum(first) / 3) and found["C2D"]["high"][0] == max(first)
    for env in ("minatar/breakout", "", "atari/nothing", "atari/../x"):
        assert request(app, "/api/published", env=env).json == []


def test_exports_need_an_open_lens(app):
    assert request(app, "/api/export", session="x", format="html").status == 404


def test_answers_are_json_a_browser_can_read(app, root):
    with open(root / "a" / "records.jsonl", "a") as file:
        file.write('{"kind": "iteration", "steps": 400, "mean_score": NaN, "mean_loss": Infinity}\n')
    for path in ("/api/run", "/api/curves"):
        json.loads(request(app, path, run="a").body, parse_constant=lambda name: pytest.fail(f"{name} in JSON"))


def test_work_is_canceled_when_the_client_disconnects():
    ended = []

    class Gone:
        async def is_disconnected(self):
            return True

    async def work():
        try:
            await asyncio.sleep(3_600)
        finally:
            ended.append(True)

    with pytest.raises(UserError, match="the client has disconnected"):
        asyncio.run(_while_connected(Gone(), work()))
    assert ended == [True]
