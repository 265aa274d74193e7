"""The report: its files, that the page is self-contained, what is missing, and hostile names."""

import csv
import json
import re
from xml.etree import ElementTree

import numpy as np
import pytest

from c2d.cli.main import main
from c2d.plotting import drawing
from c2d.reporting.analysis import IntervalEstimate
from c2d.reporting.page import Section, Table, latex, page, to_csv, to_html, to_latex
from c2d.reporting.published import bundled_runs, mean_curves, paper_score_table
from c2d.reporting.report_figures import files, improvement, line_styles, short_number
from tests.reporting.made_up import dopamine_json, write_run

EVIL = "<script>alert(1)</script>"
INPUT = r"\input{secret}$x_1$%"
QUICK = ["--replications", "200"]


@pytest.fixture(scope="module")
def published(tmp_path_factory):
    out = tmp_path_factory.mktemp("published")
    assert main(["report", "--published-only", "--out", str(out), *QUICK]) == 0
    return out


@pytest.fixture(scope="module")
def own(tmp_path_factory):
    """Two agents with hostile names on two games, one of them also on an environment with a hostile name."""
    base = tmp_path_factory.mktemp("own")
    scores = np.linspace(-21, 15, 12)
    for recipe, place in ((EVIL, "a"), (INPUT, "b")):
        for seed in (1, 2):
            for game in ("pong", "boxing"):
                run = base / "runs" / f"{place}-{game}-{seed}"
                write_run(run, env=f"atari/{game}", recipe=recipe, seed=seed, scores=scores + seed)
    write_run(base / "runs" / "gym", env=f"gym/{EVIL}", recipe=EVIL, scores=(1, 2, 3), steps=500)
    curves = {"IQN": [list(scores + 3), list(scores + 2)]}
    for game in ("pong", "boxing"):
        dopamine_json(base / "curves" / f"{game}.json", curves)
    words = ["report", str(base / "runs"), "--out", str(base / "out"), "--published", str(base / "curves")]
    assert main([*words, "--against", "IQN", *QUICK]) == 0
    return base / "out"


def texts(out, pattern):
    return {path.name: path.read_text() for path in out.rglob(pattern)}


def test_everything_is_written(published):
    names = {str(path.relative_to(published)) for path in published.rglob("*.*")}
    for figure in (
        "aggregates",
        "profile",
        "efficiency",
        "improvement",
        "difference-1",
        "difference-2",
        "difference-3",
    ):
        assert {f"figures/{figure}.svg", f"figures/{figure}.png"} <= names
    for table in ("aggregates", "agents", "scores", "ranks", "improvement", "difference-1"):
        assert {f"tables/{table}.csv", f"tables/{table}.tex"} <= names
    assert {"report.html", "numbers.json"} <= names


def test_the_page_is_self_contained(published):
    text = (published / "report.html").read_text()
    assert "<script" not in text and "http://" not in text.replace("http://www.w3.org", "")
    assert not re.search(r'(src|href)="(?!data:|#)', text)
    assert text.count("data:image/svg+xml;base64,") == 9


def test_what_is_missing_is_named_with_its_source(published):
    text = (published / "report.html").read_text()
    for anchor in ("close-up", "curves", "supports"):
        section = text.partition(f'<h2 id="{anchor}"')[2].partition("<h2")[0]
        assert "git clone --depth 1 https://github.com/bjliaa/c2d" in section and "--published c2d/data" in section
        assert ("Not drawn" in section) == (anchor == "supports") == ("means over five seeds" not in section)
    assert (published / "figures/curves.svg").exists() and not (published / "figures/supports.svg").exists()


def test_bundled_means_are_those_of_the_bundled_scores():
    """Two tables from one source: the mean of iterations 194 to 198 is the mean of the seeds' scores at 200M."""
    curves, scores = mean_curves(), {}
    for run in bundled_runs():
        for at in (10.0, 50.0, 100.0, 150.0, 199.0):
            scores.setdefault((run.key.agent, run.key.game, at), []).append(run.points[5.0, at])
    assert len(curves) == 5 * 55 and {agent for agent, _ in curves} == {"DQN", "C51", "QR-DQN", "IQN", "Rainbow"}
    for (agent, game), curve in curves.items():
        for at in (10.0, 50.0, 100.0, 150.0, 199.0):
            wanted = np.mean(scores[agent, game, at])
            assert curve.score(at, 5.0) == pytest.approx(wanted, rel=5e-4, abs=0.01), (agent, game, at)


def test_the_score_table_is_the_papers(published):
    rows = csv.DictReader((published / "tables/scores.csv").open())
    cells = {(row["game"], float(row["frames_millions"])): row for row in rows}
    assert len(cells) == 220
    for game, columns in paper_score_table().items():
        for at, printed in columns.items():
            row = cells[game, at]
            assert (f"{float(row['mean']):.1f}", f"{float(row['std']):.1f}") == printed
            assert row["seeds"] == "3"
    assert "boxing" not in (published / "tables/scores.tex").read_text()
    assert (
        "Boxing & -25.7 (0.8) & 52.4 (1.3) & 91.6 (6.2) & 96.0 (1.6)" in (published / "tables/scores.tex").read_text()
    )


def test_numbers_agree_with_tables(published):
    numbers = json.loads((published / "numbers.json").read_text())
    for row in csv.DictReader((published / "tables/aggregates.csv").open()):
        found = numbers["aggregates"][row["agent"]][row["aggregate"]]
        assert found["point"] == pytest.approx(float(row["point"]), rel=1e-6)
        assert found["ci95"] == pytest.approx([float(row["low"]), float(row["high"])], rel=1e-6)
    assert numbers["aggregates"]["C2D"]["iqm"]["point"] == pytest.approx(1.759656, abs=1e-6)
    ranks = list(csv.DictReader((published / "tables/ranks.csv").open()))
    assert sum(int(row["rank_1"]) for row in ranks) >= 55


def test_own_runs_are_compared_with_published_agents(own):
    numbers = json.loads((own / "numbers.json").read_text())
    assert numbers["games"] == ["boxing", "pong"] and numbers["frames_millions"] == 12
    assert set(numbers["aggregates"]) == {"IQN", f"{EVIL} (own)", f"{INPUT} (own)"}
    assert any("left out at 12M frames" in note and "Rainbow" in note for note in numbers["notes"])
    rules = {row["agent"]: row["rules"] for row in csv.DictReader((own / "tables/agents.csv").open())}
    assert rules["IQN"] == "differ: see the notes"
    chances = {(one["first"], one["second"]): one["point"] for one in numbers["probability_of_improvement"]}
    assert chances[f"{EVIL} (own)", "IQN"] < 0.5  # IQN was made 1 or 2 points better
    assert numbers["elsewhere"][f"gym/{EVIL}"]["frames"] == 6000
    recorded = [row for row in csv.DictReader((own / "tables/recorded.csv").open()) if row["metric"] == "mean score"]
    alone = [row for row in recorded if row["environment"] == f"gym/{EVIL}"]
    assert [(row["first"], row["last"]) for row in alone] == [("1", "3")]  # without the scores of other games
    assert len(recorded) == 5  # two agents on two games, and one of them there
    assert (own / "figures/curves.svg").exists() and (own / "figures/supports.svg").exists()


def test_names_are_never_code(own):
    html = (own / "report.html").read_text()
    assert "<script" not in html and "&lt;script&gt;" in html
    for name, text in texts(own, "*.svg").items():
        tags = {element.tag.rpartition("}")[2] for element in ElementTree.fromstring(text).iter()}
        assert "script" not in tags, name
        assert "<script" not in text, name
    tables = texts(own, "*.tex")
    assert any("textbackslash" in text for text in tables.values())
    for name, text in tables.items():
        assert r"\input" not in text, name
        assert not re.search(r"(?<!\\)[$%_#]", text), name


def test_same_data_same_bytes():
    rows = [("C2D", "IQN", IntervalEstimate(0.6, (0.5, 0.7))), ("C2D", "DQN", IntervalEstimate(0.8, None))]
    with drawing():
        one, other = (files(improvement(rows, ("C2D", "IQN", "DQN"))) for _ in range(2))
    assert one == other and one["png"].startswith(b"\x89PNG") and b"<svg" in one["svg"]


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ([], "no runs given"),
        (["--published-only"], "no output directory given"),
        (["--published-only", "--out", "FILE"], "is a file"),
        (["RUN", "--published-only", "--out", "OUT"], "takes no runs"),
        (["--published-only", "--out", "OUT", "--replications", "5"], "at least 100"),
        (["--published-only", "--out", "OUT", "--games", "brekout"], 'unknown game "brekout"'),
        (["--published-only", "--out", "OUT", "--against", "IQM"], 'unknown agent of --against "IQM"'),
        (["RUN", "--out", "OUT", "--at", "0"], "--at is 0"),
    ],
)
def test_mistakes_get_one_line(tmp_path, capsys, words, reason):
    (tmp_path / "file").write_text("")
    known = {"RUN": write_run(tmp_path / "run"), "OUT": tmp_path / "out", "FILE": tmp_path / "file"}
    assert main(["report", *(str(known.get(word, word)) for word in words)]) == 2
    error = capsys.readouterr().err
    assert error.startswith("c2d: ") and error.count("\n") == 1 and reason in error, error


def test_forms_of_a_table():
    table = Table(
        "t", "50 % & more_", ("a<b", "x"), ((EVIL, "1"), (INPUT, "−2")), ("a", "x"), (("=1+1", 1.5), (None, 2))
    )
    assert to_csv(table) == "a,x\n'=1+1,1.5\n,2\n"
    assert "<script" not in to_html(table) and "a&lt;b" in to_html(table)
    assert r"\caption{50 \% \& more\_}" in to_latex(table)
    assert latex(r"\input{a}") == r"\textbackslash{}input\{a\}"


def test_the_page_escapes_everything():
    section = Section(EVIL, EVIL, EVIL + " `" + EVIL + "`", missing=EVIL)
    assert "<script" not in page(EVIL, [EVIL], [EVIL], [section])


def test_an_agent_looks_the_same_everywhere():
    alone, among = line_styles(["C2D", "c2d (own)"]), line_styles(["DQN", "iqn (own)", "c2d (own)", "x (own)", "C2D"])
    assert alone["C2D"] == among["C2D"] and alone["c2d (own)"] == among["c2d (own)"]
    assert len({style.color for style in among.values()}) == 5
    many = line_styles([f"agent {number} (own)" for number in range(20)])
    assert len({(style.color, str(style.dash)) for style in many.values()}) == 20


def test_short_numbers():
    assert [short_number(value) for value in (0, 950, 12_000, -1_500_000, 0.25)] == ["0", "950", "12k", "−1.5M", "0.25"]
