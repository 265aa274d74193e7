"""The ledger: its verdicts are computed. Changed data must change them."""

import importlib
import subprocess
import sys

import numpy as np
import pytest

from c2d.cli.main import main
from c2d.reporting import paper_claims, paper_numbers
from c2d.reporting.analysis import IntervalEstimate, gather
from c2d.reporting.ledger import (
    DIFFERS,
    FAILS,
    HOLDS,
    NEEDS_CURVES,
    NEEDS_TORCH,
    PARTLY,
    REPRODUCED,
    UNDECIDED,
    LedgerEntry,
    counts,
    to_markdown,
)


@pytest.fixture(scope="module")
def dataset():
    return gather()


@pytest.fixture(scope="module")
def judged(dataset):
    return {entry.what: entry for entry in paper_claims.ResultClaims(dataset, 500).entries()}


def find(entries, words):
    (found,) = [entry for what, entry in entries.items() if words in what]
    return found


def test_score_table_and_aggregates_are_reproduced(dataset):
    found = paper_numbers.tables_and_figures(dataset, 20_000)
    table = [entry for entry in found if "Score table" in entry.what]
    assert [entry.status for entry in table] == [REPRODUCED] * 4 and table[0].ours == "55 cells equal"
    aggregates = [entry for entry in found if entry.what.startswith("Aggregates")]
    assert len(aggregates) == 20 and {entry.status for entry in aggregates} == {REPRODUCED}
    assert {entry.status for entry in found if "over training" in entry.what} == {NEEDS_CURVES}


def test_another_number_differs(dataset, monkeypatch):
    printed = {game: dict(cells) for game, cells in paper_numbers.paper_score_table().items()}
    printed["pong"][200.0] = ("18.3", "1.3")
    monkeypatch.setattr(paper_numbers, "paper_score_table", lambda: printed)
    entry = paper_numbers._score_table(dataset)[3]
    assert entry.status == DIFFERS and entry.ours == "54 cells equal" and entry.note == "different: pong"


def test_settings_are_compared_with_the_recipe(monkeypatch):
    found = paper_numbers.settings()
    assert {entry.status for entry in found if "version" not in entry.what} == {REPRODUCED}
    assert sum(entry.status == DIFFERS for entry in found) == 2  # ALE and TensorFlow
    monkeypatch.setitem(paper_numbers._C2D, "number of atoms N", ("head.atoms", 1, 51))
    (entry,) = [entry for entry in paper_numbers.settings() if "number of atoms" in entry.what]
    assert (entry.status, entry.expected, entry.ours) == (DIFFERS, "51", "32")


def test_claims_have_verdicts_with_intervals(judged):
    assert find(judged, "on par with IQN").status == HOLDS
    assert find(judged, "At τ = 1").status == HOLDS
    assert find(judged, "improvement over C51").status == HOLDS
    assert find(judged, "more than 150M frames").status == PARTLY  # behind IQN, no longer behind Rainbow
    assert find(judged, "outperforms IQN and Rainbow in the mean").status == UNDECIDED  # the intervals hold 0
    assert find(judged, "passes theirs for good").status == NEEDS_CURVES
    assert len([what for what in judged if "frequent and large" in what]) == 3
    for entry in judged.values():
        assert entry.tolerance != "95 % interval" or "(" in entry.ours or "games" in entry.ours


def test_verdicts_follow_the_data(dataset, monkeypatch):
    """If C2D had the scores of DQN, its claims would fail."""
    swapped = {
        key._replace(agent={"C2D": "DQN", "DQN": "C2D"}.get(key.agent, key.agent)): run
        for key, run in dataset.runs.items()
    }
    weak = {
        entry.what: entry for entry in paper_claims.ResultClaims(type(dataset)(swapped, dataset.agents), 200).entries()
    }
    assert find(weak, "outperforms IQN and Rainbow").status == FAILS
    assert find(weak, "improvement over C51").status == FAILS
    assert find(weak, "on par with IQN").status == FAILS
    assert find(weak, "ahead at τ > 5").status != HOLDS


def test_judgment():
    assert paper_claims._judge(IntervalEstimate(1.0, None)) == UNDECIDED
    assert paper_claims._together([HOLDS, UNDECIDED]) == PARTLY and paper_claims._together([FAILS, FAILS]) == FAILS
    assert paper_claims._judge(IntervalEstimate(1.0, (0.2, 1.8))) == HOLDS
    assert paper_claims._judge(IntervalEstimate(1.0, (-0.2, 1.8))) == UNDECIDED
    assert paper_claims._judge(IntervalEstimate(-1.0, (-1.2, -0.8))) == FAILS
    ends = np.arange(5.0)
    assert paper_claims._crossing(ends, np.array([-1, 1, -1, 1, 1])) == 3
    assert paper_claims._crossing(ends, np.array([1, 1, 1, 1, -1])) is None
    assert paper_claims._crossing(ends, np.ones(5)) == 0


def test_mathematics_and_sizes(dataset):
    assert [entry.status for entry in paper_claims.propositions()] == [HOLDS] * 4
    found = {entry.what: entry for entry in paper_claims.other_claims(dataset)}
    assert "1,605,632 weights from 3,136" in find(found, "fewer network weights").ours
    assert all(entry.status.startswith("needs training: ") for entry in paper_claims.untested_claims())


@pytest.mark.parametrize(
    ("module", "name", "wrong", "what"),
    [
        ("phi", "scaled_h", lambda right: lambda *_: right(1.0)._replace(back=lambda y: y), "need not give an optimal"),
        ("bellman", "backup", lambda right: lambda r, d, law, phi: right(r, d * 0.99, law, phi), "Bellman's means"),
        ("bellman", "q_values", lambda right: lambda law, phi: right(law, phi) * 1.001, "Bellman's means"),
        ("losses", "cramer", lambda right: lambda p, t: right(p, t) + 0.01 * p.atoms.mean(-1), "translation invariant"),
        ("losses", "cramer", lambda right: lambda p, t: right(p, t).square(), "scale sensitive"),
    ],
)
def test_mathematics_checks_the_functions_that_train(monkeypatch, module, name, wrong, what):
    """A mistake in one of them shows in the ledger."""
    home = importlib.import_module(f"c2d.returns.{module}")
    broken = wrong(getattr(home, name))
    monkeypatch.setattr(home, name, broken)
    found = {entry.what: entry for entry in paper_claims.propositions()}
    assert find(found, what).status == FAILS


def test_mathematics_without_pytorch():
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "from c2d.reporting import paper_claims\n"
        "print([(entry.status, 'torch' in entry.note) for entry in paper_claims.propositions()])"
    )
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert printed == f"{[(NEEDS_TORCH, True)] * 4}\n"


def test_command(tmp_path, capsys):
    out = tmp_path / "deep" / "ledger.md"
    assert main(["ledger", "--out", str(out), "--replications", "200"]) == 0
    text = out.read_text()
    assert text.startswith("# Ledger") and "| Score table, column 10M" in text and "**needs training: 33,000M" in text
    assert "written to" in capsys.readouterr().out
    assert main(["ledger", "--replications", "5"]) == 2
    assert "at least 100" in capsys.readouterr().err


def test_forms():
    entry = LedgerEntry("Part", "a | b", "c2d x", "1", "2", "exact", DIFFERS, "note")
    assert counts([entry, entry]) == "2 differs"
    assert "| a \\| b<br>*note* | 1 | 2 | exact | **differs** | `c2d x` |" in to_markdown([entry], "c2d ledger", 100)
