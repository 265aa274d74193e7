"""c2d fingerprint, as a user types it."""

import pytest

from c2d.cli.main import main
from tests.reporting.test_fingerprint import write_run


def test_prints_and_writes_and_keeps_notes(tmp_path, capsys):
    run, other, out = (
        write_run(tmp_path / "one"),
        write_run(tmp_path / "two", env="atari/pong"),
        tmp_path / "docs" / "page.md",
    )
    assert main(["fingerprint", str(run), str(other), "--out", str(out)]) == 0
    printed = capsys.readouterr().out
    assert "## breakout: one" in printed and "## pong: two" in printed and f"written to {out}" in printed
    page = out.read_text()
    assert page.index("# Fingerprint") < page.index("## breakout: one") < page.index("## pong: two")
    assert f"c2d fingerprint RUN [RUN ...] --out {out}" in page and f"c2d fingerprint {run} --out {out}" in page
    out.write_text(page.replace("<!-- notes -->\n", "<!-- notes -->\nWhy so.\n", 1))
    assert main(["fingerprint", str(run), "--out", str(out)]) == 0
    assert out.read_text() == page.replace("<!-- notes -->\n", "<!-- notes -->\nWhy so.\n", 1)


def test_runs_with_different_seeds_get_a_joint_section(tmp_path, capsys):
    runs = [write_run(tmp_path / f"run{seed}", seed=seed, mean_loss=seed) for seed in (1, 2)]
    again, pong = write_run(tmp_path / "again", seed=2, mean_loss=9), write_run(tmp_path / "pong", env="atari/pong")
    out = tmp_path / "page.md"
    assert main(["fingerprint", *map(str, (*runs, again, pong)), "--out", str(out)]) == 0
    printed = capsys.readouterr().out
    assert printed.count(" together\n") == 1 and "## breakout: run1, run2 together" in printed
    assert "| 0 | mean loss | 1, 2 |" in printed
    assert "<!-- section breakout, c2d (own), together -->" in out.read_text()
    other = write_run(tmp_path / "young", seed=3, iterations=0, summary=None)
    assert main(["fingerprint", str(runs[0]), str(other)]) == 0
    assert "together" not in capsys.readouterr().out


def test_without_out_nothing_is_written(tmp_path, capsys):
    run = write_run(tmp_path / "one")
    before = sorted(tmp_path.rglob("*"))
    assert main(["fingerprint", str(run)]) == 0
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "no run given"),
        (["{tmp}/missing"], "missing is not a run directory"),
        (["{tmp}"], "is not a run directory: it has no records.jsonl"),
        (["{tmp}/one", "--nonsense", "1"], "--nonsense"),
        (["{tmp}/one", "{tmp}/deep/one"], "have the same name"),
        (["{tmp}/one", "--out", "{tmp}/mine.md"], "mine.md is not updated"),
        (["{tmp}/one", "--out", "{tmp}/one/records.jsonl/x.md"], "cannot be written"),
    ],
)
def test_bad_input(tmp_path, capsys, words, message):
    (tmp_path / "deep").mkdir()
    write_run(tmp_path / "one")
    write_run(tmp_path / "deep" / "one")
    (tmp_path / "mine.md").write_text("my own page\n")
    assert main(["fingerprint", *(word.format(tmp=tmp_path) for word in words)]) == 2
    errors = capsys.readouterr().err
    assert message in errors and errors.count("\n") == 1
    assert (tmp_path / "mine.md").read_text() == "my own page\n"
