"""The ledger: computed, not told. Changed data must change its verdicts."""

import numpy as np
import pytest

from c2d.cli.main import main
from c2d.reporting.field import gather
from c2d.reporting.ledger import claims, elsewhere, figures, settings
from c2d.reporting.ledger.entry import (
    CURVES,
    DIFFERS,
    FAILS,
    HOLDS,
    PARTLY,
    REPRODUCED,
    UNDECIDED,
    Entry,
    counts,
    to_markdown,
)
from c2d.reporting.study import Estimate


@pytest.fixture(scope="module")
def field():
    return gather()


@pytest.fixture(scope="module")
def judged(field):
    return {entry.what: entry for entry in claims.Claims(field, 500).entries()}


def find(entries, words):
    (found,) = [entry for what, entry in entries.items() if words in what]
    return found


def test_score_table_and_aggregates_are_reproduced(field):
    found = figures.entries(field, 20_000)
    table = [entry for entry in found if "Score table" in entry.what]
    assert [entry.status for entry in table] == [REPRODUCED] * 4 and table[0].ours == "55 cells alike"
    aggregates = [entry for entry in found if entry.what.startswith("Aggregates")]
    assert len(aggregates) == 20 and {entry.status for entry in aggregates} == {REPRODUCED}
    assert {entry.status for entry in found if "over training" in entry.what} == {CURVES}


def test_another_number_differs(field, monkeypatch):
    printed = {game: dict(cells) for game, cells in figures.paper_score_table().items()}
    printed["pong"][200.0] = ("18.3", "1.3")
    monkeypatch.setattr(figures, "paper_score_table", lambda: printed)
    entry = figures._score_table(field)[3]
    assert entry.status == DIFFERS and entry.ours == "54 cells alike" and entry.note == "unlike: pong"


def test_settings_are_compared_with_the_recipe(monkeypatch):
    found = settings.entries()
    assert {entry.status for entry in found if "version" not in entry.what} == {REPRODUCED}
    assert sum(entry.status == DIFFERS for entry in found) == 2  # ALE and TensorFlow
    monkeypatch.setitem(settings._C2D, "number of atoms N", ("head.atoms", 1, 51))
    (entry,) = [entry for entry in settings.entries() if "number of atoms" in entry.what]
    assert (entry.status, entry.expected, entry.ours) == (DIFFERS, "51", "32")


def test_claims_have_verdicts_with_intervals(judged):
    assert find(judged, "on par with IQN").status == HOLDS
    assert find(judged, "At τ = 1").status == HOLDS
    assert find(judged, "improvement over C51").status == HOLDS
    assert find(judged, "more than 150M frames").status == PARTLY  # behind IQN, no longer behind Rainbow
    assert find(judged, "outperforms IQN and Rainbow in the mean").status == UNDECIDED  # the intervals hold 0
    assert find(judged, "passes theirs for good").status == CURVES
    assert len([what for what in judged if "frequent and large" in what]) == 3
    for entry in judged.values():
        assert entry.tolerance != "95 % interval" or "(" in entry.ours or "games" in entry.ours


def test_verdicts_follow_the_data(field, monkeypatch):
    """Were C2D's scores those of DQN, the claims of strength would fall."""
    swapped = {
        key._replace(agent={"C2D": "DQN", "DQN": "C2D"}.get(key.agent, key.agent)): run
        for key, run in field.runs.items()
    }
    weak = {entry.what: entry for entry in claims.Claims(type(field)(swapped, field.agents), 200).entries()}
    assert find(weak, "outperforms IQN and Rainbow").status == FAILS
    assert find(weak, "improvement over C51").status == FAILS
    assert find(weak, "on par with IQN").status == FAILS
    assert find(weak, "ahead at τ > 5").status != HOLDS


def test_judging():
    assert claims._judge(Estimate(1.0, None)) == UNDECIDED
    assert claims._together([HOLDS, UNDECIDED]) == PARTLY and claims._together([FAILS, FAILS]) == FAILS
    assert claims._judge(Estimate(1.0, (0.2, 1.8))) == HOLDS
    assert claims._judge(Estimate(1.0, (-0.2, 1.8))) == UNDECIDED
    assert claims._judge(Estimate(-1.0, (-1.2, -0.8))) == FAILS
    ends = np.arange(5.0)
    assert claims._crossing(ends, np.array([-1, 1, -1, 1, 1])) == 3
    assert claims._crossing(ends, np.array([1, 1, 1, 1, -1])) is None
    assert claims._crossing(ends, np.ones(5)) == 0


def test_mathematics_and_sizes(field):
    found = {entry.what: entry for entry in elsewhere.entries(field)}
    assert {entry.status for entry in found.values() if entry.part == "Mathematics"} == {HOLDS}
    assert "1,605,632 weights from 3,136" in find(found, "less network weights").ours
    assert all(entry.status.startswith("needs training: ") for entry in found.values() if "training" in entry.part)


def test_h_and_its_inverse():
    x = np.array([-100.0, -1.0, 0.0, 0.5, 1e4])
    np.testing.assert_allclose(elsewhere._h_inverse(elsewhere._h(x)), x, atol=1e-8)


def test_command(tmp_path, capsys):
    out = tmp_path / "deep" / "ledger.md"
    assert main(["ledger", "--out", str(out), "--replications", "200"]) == 0
    text = out.read_text()
    assert text.startswith("# Ledger") and "| Score table, column 10M" in text and "**needs training: 33,000M" in text
    assert "written to" in capsys.readouterr().out
    assert main(["ledger", "--replications", "5"]) == 2
    assert "at least 100" in capsys.readouterr().err


def test_forms():
    entry = Entry("Part", "a | b", "c2d x", "1", "2", "exact", DIFFERS, "note")
    assert counts([entry, entry]) == "2 differs"
    assert "| a \\| b<br>*note* | 1 | 2 | exact | **differs** | `c2d x` |" in to_markdown([entry], "# T")
