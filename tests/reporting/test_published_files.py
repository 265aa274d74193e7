"""The public formats of published curves, whole and damaged."""

import numpy as np
import pytest

from c2d.errors import UserError
from c2d.reporting.published import read_published
from c2d.reporting.scores import RunKey
from tests.reporting.made_up import authors_csv, dopamine_json, gzipped


def by_key(runs):
    return {run.key: run for run in runs}


def test_json_of_dopamine_and_of_the_authors(tmp_path):
    dopamine_json(tmp_path / "pong.json", {"DQN": [[1, 2, 3], [4, 5]], "Quantile (JAX)": [[7, 8, 9]]})
    dopamine_json(tmp_path / "c2d_bowling.json", {"C2D": [[30.5, 31.5]]})
    runs, notes = read_published(tmp_path)
    found = by_key(runs)
    assert set(found) == {
        RunKey("DQN", "pong", 1),
        RunKey("DQN", "pong", 2),
        RunKey("QR-DQN", "pong", 1),
        RunKey("C2D", "bowling", 1),
    }
    second = found[RunKey("DQN", "pong", 2)]
    np.testing.assert_array_equal(second.ends, [1, 2])
    np.testing.assert_array_equal(second.values, [4, 5])
    assert "DQN pong seed 2 stops after 2M frames" in notes


def test_csv_of_the_authors_has_atoms(tmp_path):
    authors_csv(tmp_path / "supplementary/bowling_T3.csv", "bowling", "T3", [(26.2, -19.0, 19.5), (22.4, -9.0, 8.3)])
    (run,), _ = read_published(tmp_path)
    assert run.key == RunKey("C2D", "bowling", 3)
    np.testing.assert_array_equal(run.values, [26.2, 22.4])
    np.testing.assert_array_equal(run.low, [-19.0, -9.0])
    np.testing.assert_array_equal(run.high, [19.5, 8.3])


def test_tables_of_curves_and_supports_join(tmp_path):
    curves = ["agent,game,seed,iteration,value", "C2D,pong,1,0,-20.5", "C2D,pong,1,1,", "Quantile,pong,2,0,3"]
    gzipped(tmp_path / "learning_curves.csv.gz", curves)
    gzipped(tmp_path / "supports.csv.gz", ["game,seed,iteration,supp_min,supp_max", "pong,1,10,-3.5,4.5"])
    (tmp_path / "scores.csv").write_text(
        "agent,game,seed,frames_millions,score\nC2D,pong,1,200,18\nC2D,pong,1,10,-19\n"
    )
    found = by_key(read_published(tmp_path)[0])
    run = found[RunKey("C2D", "pong", 1)]
    np.testing.assert_array_equal(run.values, [-20.5, np.nan])  # a missing value is not zero
    np.testing.assert_array_equal(run.atom_ends, [11])
    assert run.points == {(5.0, 199.0): 18.0, (5.0, 10.0): -19.0}
    assert RunKey("QR-DQN", "pong", 2) in found


def test_unknown_games_are_named_and_skipped(tmp_path):
    dopamine_json(tmp_path / "pongo.json", {"DQN": [[1.0]]})
    lines = ["agent,game,seed,iteration,value", "DQN,pong,1,0,1", "DQN,brekout,1,0,1", "DQN,brekout,1,1,1"]
    (tmp_path / "learning_curves.csv").write_text("\n".join(lines))
    runs, notes = read_published(tmp_path)
    assert [run.key.game for run in runs] == ["pong"]
    assert sum('"brekout" is not a known Atari game' in note and "'breakout'" in note for note in notes) == 1
    assert sum('"pongo" is not a known Atari game' in note and "'pong'" in note for note in notes) == 1


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("pong.json", b"[{", "not valid JSON"),
        ("pong.json", b'[{"Iteration": "x", "Value": 1, "Agent": "DQN"}]', "Iteration, Value, Agent"),
        ("pong.json", b'[{"Iteration": -1, "Value": 1, "Agent": "DQN"}]', "out of range"),
        ("pong.json", b'[{"Iteration": 0, "Value": "much", "Agent": "DQN"}]', '"much" is not a number'),
        ("pong.json", b"\xff\xfe\xfa", "cannot be read"),
        ("curves.csv.gz", b"\x1f\x8b\x08broken", "cannot be read"),
    ],
)
def test_damaged_files_are_named_and_skipped(tmp_path, name, content, reason):
    dopamine_json(tmp_path / "good/boxing.json", {"DQN": [[1.0]]})
    (tmp_path / name).write_bytes(content)
    runs, notes = read_published(tmp_path)
    assert [run.key.game for run in runs] == ["boxing"]
    (note,) = [note for note in notes if str(tmp_path / name) in note]
    assert "skipped" in note and reason in note


def test_bad_lines_are_skipped_with_a_note(tmp_path):
    lines = ["agent,game,seed,iteration,value", "DQN,pong,1", "DQN,pong,1,0,7", "DQN,pong,1,x,7", "DQN,pong,1,1,8"]
    (tmp_path / "learning_curves.csv").write_text("\n".join(lines))
    (run,), notes = read_published(tmp_path)
    assert run.values.tolist() == [7.0, 8.0]
    assert any("skipped line 2: 3 cells instead of 5 and 1 more" in note for note in notes)


def test_files_of_other_formats_are_named_once(tmp_path):
    dopamine_json(tmp_path / "good/boxing.json", {"DQN": [[1.0]]})
    (tmp_path / "pong.json").write_text('{"a": 1}')
    (tmp_path / "other.csv").write_text("a,b\n1,2\n")
    _, notes = read_published(tmp_path)
    assert "not used, no curves in a known format: other.csv, pong.json" in notes


def test_two_sources_that_disagree(tmp_path):
    dopamine_json(tmp_path / "a/pong.json", {"DQN": [[1.0, 2.0]]})
    dopamine_json(tmp_path / "b/pong.json", {"DQN": [[1.0, 2.5, 3.0]]})
    (run,), notes = read_published(tmp_path)
    assert run.length == 3
    assert any("b/pong.json: DQN pong seed 1 differs from" in note for note in notes)


def test_nothing_to_read(tmp_path):
    with pytest.raises(UserError, match="has no curves in a known format"):
        read_published(tmp_path)
    with pytest.raises(UserError, match="does not exist"):
        read_published(tmp_path / "none")
