"""One's own run directories: unfinished, damaged, doubled, mixed."""

import json

import numpy as np
import pytest

from c2d.errors import UserError
from c2d.formatting import printable_name
from c2d.reporting.local_runs import passport_differences, published_passport, read_local_runs
from tests.reporting.made_up import write_run


def names(runs):
    return {one.records.path.name: one.run.key.agent for one in runs}


def test_a_run_becomes_a_curve(tmp_path):
    (one,), notes = read_local_runs([write_run(tmp_path / "a", scores=(1.0, None, 3.0))])
    assert one.run.key == ("c2d (own)", "pong", 1) and notes == []
    np.testing.assert_array_equal(one.run.ends, [1, 2, 3])
    np.testing.assert_array_equal(one.run.values, [1, np.nan, 3])
    np.testing.assert_array_equal(one.run.high, [2, 3, 4])
    assert one.passport["sticky"] == 0.25


def test_a_directory_of_runs_counts_each_once(tmp_path):
    write_run(tmp_path / "runs/a", seed=1)
    write_run(tmp_path / "runs/b", seed=2)
    runs, _ = read_local_runs([tmp_path / "runs", tmp_path / "runs/a"])
    assert sorted(names(runs)) == ["a", "b"]


def test_damaged_lines_are_skipped_counted_and_named(tmp_path):
    file = write_run(tmp_path / "a", scores=(1.0, 2.0, 3.0, 4.0)) / "records.jsonl"
    lines = file.read_text().splitlines()
    lines[2] = lines[2][:30]
    lines[4] = lines[4].replace('"mean_score": 4.0', '"mean_score": "four"')
    file.write_text("\n".join(lines) + "\n" + lines[1][:20])  # and a last line that is being written
    (one,), notes = read_local_runs([tmp_path / "a"])
    np.testing.assert_array_equal(one.run.ends, [1, 3])
    assert len(notes) == 2 and "line 3" in notes[0] and "line 5" in notes[1] and "skipped" in notes[0]
    file.write_text("\n".join([lines[0], *["{"] * 9, lines[1]]) + "\n")
    (_,), notes = read_local_runs([tmp_path / "a"])
    assert "9 damaged lines skipped in total" in notes[-1]


def test_a_damaged_header_is_replaced_by_the_config_files(tmp_path):
    path = write_run(tmp_path / "a")
    file = path / "records.jsonl"
    file.write_text("x" + file.read_text())
    (one,), notes = read_local_runs([path])
    assert one.run.key.game == "pong" and any("using config.json and passport.json instead" in n for n in notes)
    (path / "passport.json").unlink()
    with pytest.raises(UserError, match=r"passport\.json is missing"):
        read_local_runs([path])


def test_states_of_runs(tmp_path):
    going = write_run(tmp_path / "going", state=None)
    empty = write_run(tmp_path / "empty", seed=2, scores=())
    runs, notes = read_local_runs([going, empty])
    assert len(runs) == 1
    assert any("going is in progress" in note and "2 iterations" in note for note in notes)
    assert any("empty has no complete iteration yet; run skipped" in note for note in notes)
    with pytest.raises(UserError, match=r"nothing to report.*no complete iteration"):
        read_local_runs([empty])
    with pytest.raises(UserError, match="not a run directory"):
        read_local_runs([tmp_path / "nothing"])


def test_a_seed_counts_once(tmp_path):
    short = write_run(tmp_path / "short", scores=(1.0,))
    long = write_run(tmp_path / "long", scores=(1.0, 2.0))
    (one,), notes = read_local_runs([short, long])
    assert one.records.path == long
    assert len(notes) == 1 and "both seed 1" in notes[0] and str(short) in notes[0] and "left out" in notes[0]


def test_mixed_settings_under_one_name_are_kept_apart(tmp_path):
    first, second = write_run(tmp_path / "a", seed=1), write_run(tmp_path / "b", seed=2, env="atari/boxing")
    text = (second / "records.jsonl").read_text()
    (second / "records.jsonl").write_text(text.replace('"atoms": 32', '"atoms": 64'))
    runs, notes = read_local_runs([first, second])
    assert names(runs) == {"a": "c2d [head.atoms=32] (own)", "b": "c2d [head.atoms=64] (own)"}
    assert len(notes) == 1 and 'of recipe "c2d" differ and are kept apart: c2d [head.atoms=32] (own): 1 run' in notes[0]


def rewritten(path, *changes):
    """A run whose header says otherwise."""
    file = path / "records.jsonl"
    header, rest = file.read_text().split("\n", 1)
    for old, new in changes:
        assert old in header
        header = header.replace(old, new)
    file.write_text(f"{header}\n{rest}")
    return path


def test_many_differences_get_letters_and_none_is_pooled(tmp_path):
    """Differences beyond the first few, and those that a cut name would hide, tell agents apart too."""
    many = (('"atoms": 32', '"atoms": 64'), ('"n_step": 1', '"n_step": 3'), ('"noisy": false', '"noisy": true'))
    eps = ('"eps": 0.0003125', '"eps": 0.5')
    runs, notes = read_local_runs(
        [
            write_run(tmp_path / "a", seed=1),
            rewritten(write_run(tmp_path / "b", seed=2), *many),
            rewritten(write_run(tmp_path / "c", seed=3), *many, eps),
            rewritten(write_run(tmp_path / "d", seed=4), *many, eps),
            write_run(tmp_path / "e", seed=5, recipe="c51"),
        ]
    )
    assert names(runs) == {
        "a": "c2d A (own)",
        "b": "c2d B (own)",
        "c": "c2d C (own)",
        "d": "c2d C (own)",
        "e": "c51 (own)",
    }
    (note,) = notes
    assert "c2d C (own): 2 runs, " in note and "optim.eps=0.5" in note and "n-step=3" in note


def test_rules_that_no_setting_tells_of_keep_runs_apart(tmp_path):
    runs, _ = read_local_runs([write_run(tmp_path / "a", seed=1), write_run(tmp_path / "b", seed=2, sticky=0.0)])
    assert len(set(names(runs).values())) == 2


def test_long_names_are_cut_but_not_confused(tmp_path):
    runs, _ = read_local_runs([write_run(tmp_path / end, recipe="x" * 50 + end) for end in "ab"])
    assert len(set(names(runs).values())) == 2 and all(len(name) < 50 for name in names(runs).values())


def test_one_damaged_run_does_not_stop_the_others(tmp_path):
    write_run(tmp_path / "deep" / "er" / "good")
    (write_run(tmp_path / "bad", seed=2) / "summary.json").write_text("{")
    (one,), notes = read_local_runs([tmp_path])
    assert one.records.name == "good"
    assert any("bad/summary.json cannot be read" in note and "run skipped" in note for note in notes)


def test_settings_that_an_older_run_does_not_name_tell_nothing(tmp_path):
    first, second = write_run(tmp_path / "a", seed=1), write_run(tmp_path / "b", seed=2)
    text = (second / "records.jsonl").read_text()
    assert '"noisy": false, ' in text
    (second / "records.jsonl").write_text(text.replace('"noisy": false, ', ""))
    runs, notes = read_local_runs([first, second])
    assert set(names(runs).values()) == {"c2d (own)"} and notes == []


def test_damaged_config(tmp_path):
    path = write_run(tmp_path / "a")
    file = path / "records.jsonl"
    header, *rest = file.read_text().splitlines()
    value = json.loads(header)
    value["config"]["seed"] = "one"
    file.write_text("\n".join([json.dumps(value), *rest]) + "\n")
    with pytest.raises(UserError, match="\"seed\" is 'one'"):
        read_local_runs([path])


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"mean_score": 2.0', '"mean_score": Infinity'),
        ('"mean_score": 2.0', '"mean_score": true'),
        ('"steps": 500000', '"steps": 10'),
        ('"steps": 500000', '"steps": 1e300'),
    ],
)
def test_figures_that_cannot_be(tmp_path, old, new):
    file = write_run(tmp_path / "a", scores=(1.0, 2.0)) / "records.jsonl"
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new))
    (one,), notes = read_local_runs([tmp_path / "a"])
    np.testing.assert_array_equal(one.run.values, [1.0])
    assert len(notes) == 1 and "skipped" in notes[0]


def test_hostile_headers_are_met_with_words(tmp_path):
    path = write_run(tmp_path / "a", cap_steps="many", sticky=["\x1b[31m"], life_loss_ends_episode={"a": 1})
    file = path / "records.jsonl"
    header, *rest = file.read_text().splitlines()
    value = json.loads(header)
    value["config"]["rules"] = [1, 2]
    file.write_text("\n".join([json.dumps(value), *rest]) + "\n")
    (one,), _ = read_local_runs([path])
    assert one.run.ends.tolist() == [0.25, 0.5]  # no action repeat is told
    told = passport_differences(one.passport, published_passport("C2D"))
    assert len(told) == 3 and not any("\x1b" in words for words in told)
    value["config"]["recipe"] = json.loads("[" * 900 + "]" * 900)
    value["config"]["recipe"] = {"x": value["config"]["recipe"]}
    file.write_text("[" * 100_000 + "\n" + "\n".join([json.dumps(value), *rest]) + "\n")
    (_,), notes = read_local_runs([path])
    assert any("line 1" in note for note in notes)


def test_names_are_fit_to_print():
    assert printable_name("a\x00b\nc\x1b[31m") == r"a\x00b\nc\x1b[31m"
    assert len(printable_name("x" * 500)) == 40


def test_a_run_with_exchanged_parts_is_not_taken_for_its_recipe(tmp_path):
    path = write_run(tmp_path / "a")
    file = path / "records.jsonl"
    header, *rest = file.read_text().splitlines()
    changed = json.loads(header)
    changed["config"]["recipe"] |= {"head": {"class": "Quantile", "atoms": 50, "hidden": 512}, "n_step": 3}
    file.write_text("\n".join([json.dumps(changed), *rest]) + "\n")
    _, notes = read_local_runs([path])
    assert notes == [
        "c2d (own) is not the recipe as it stands: head is quantile instead of conjugated, n-step is 3 instead of 1"
    ]
