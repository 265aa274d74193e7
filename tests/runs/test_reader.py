"""Growing files are followed piece by piece, without reading them twice."""

import os
from pathlib import Path

import pytest

from c2d.errors import UserError
from c2d.runs import reader as module
from c2d.runs.confined import Root
from c2d.runs.reader import Budget, LineReader, RecordReader, has_records, parse, read_iterations, read_run
from tests.web.made_runs import append, make_run, record


@pytest.fixture
def file(tmp_path):
    return tmp_path / "lines"


@pytest.fixture
def tail(tmp_path):
    return LineReader(Root(tmp_path), "lines")


def test_lines_come_once_and_whole(file, tail):
    assert tail.advance() == []
    file.write_bytes(b"one\ntw")
    assert tail.advance() == [b"one"]
    assert tail.advance() == []
    with open(file, "ab") as growing:
        growing.write(b"o\nthree\n")
    assert tail.advance() == [b"two", b"three"]
    assert tail.restarts == 0


def test_only_new_bytes_are_read(file, tail, monkeypatch):
    file.write_bytes(b"x" * 99 + b"\n")
    tail.advance()
    read = []
    real = os.pread

    def counting(descriptor, count, offset):
        data = real(descriptor, count, offset)
        read.append((offset, len(data)))
        return data

    monkeypatch.setattr(module.os, "pread", counting)
    with open(file, "ab") as growing:
        growing.write(b"new\n")
    assert tail.advance() == [b"new"]
    assert read == [(100 - module._OVERLAP, module._OVERLAP + 4)]  # and the bytes by which the file is known
    read.clear()
    assert tail.advance() == [] and read == []


def test_a_replaced_file_is_read_again(file, tail, tmp_path):
    file.write_bytes(b"old 1\nold 2\n")
    tail.advance()
    (tmp_path / "other").write_bytes(b"new 1\nnew 2\nnew 3\n")
    os.replace(tmp_path / "other", file)
    assert tail.advance() == [b"new 1", b"new 2", b"new 3"] and tail.restarts == 1
    file.unlink()
    assert tail.advance() == [] and tail.restarts == 2


def test_a_file_that_shrank_is_read_again(file, tail):
    file.write_bytes(b"one\ntwo\n")
    tail.advance()
    file.write_bytes(b"1\n")
    assert tail.advance() == [b"1"] and tail.restarts == 1


def test_a_file_with_other_lines_in_the_old_ones_place_is_read_again(file, tail):
    """Of the same size or longer, in the same file."""
    file.write_bytes(b"one\ntwo\n")
    tail.advance()
    file.write_bytes(b"one\nTWO\n3\n")
    assert tail.advance() == [b"one", b"TWO", b"3"] and tail.restarts == 1


def test_many_lines_come_within_budgets(file, tail):
    lines = [b"%05d" % k for k in range(10_000)]
    file.write_bytes(b"\n".join(lines) + b"\nhalf")
    found = []
    while len(found) < len(lines):
        part = tail.advance(Budget(lines=3_000))
        assert 0 < len(part) <= 3_000 and tail.behind == (len(found) + len(part) < len(lines))
        found += part
    assert found == lines and tail.advance() == [] and tail.restarts == 0


def test_a_spent_budget_reads_nothing_and_forgets_nothing(file, tail, monkeypatch):
    file.write_bytes(b"one\n")
    monkeypatch.setattr(module.os, "pread", lambda *_: pytest.fail("it was read"))
    assert tail.advance(Budget(lines=0)) == [] and tail.behind
    assert tail.advance(Budget(size=0)) == [] and tail.behind
    monkeypatch.undo()
    assert tail.advance() == [b"one"] and not tail.behind


def test_a_file_replaced_while_it_is_read_begins_again(file, tail, tmp_path):
    file.write_bytes(b"old\n" * 100)
    assert len(tail.advance(Budget(lines=10))) == 10 and tail.behind
    (tmp_path / "other").write_bytes(b"new\n" * 200)
    os.replace(tmp_path / "other", file)
    assert tail.advance(Budget(lines=150)) == [b"new"] * 150 and tail.restarts == 1 and tail.behind
    file.write_bytes(b"cut\n")
    assert tail.advance() == [b"cut"] and tail.restarts == 2 and not tail.behind


def test_an_endless_line_is_told_and_not_kept(file, tail, monkeypatch):
    monkeypatch.setattr(module, "_LINE", 1_000)
    monkeypatch.setattr(module, "_CHUNK", 4_000)
    file.write_bytes(b"x" * 10_000)
    assert tail.advance() == [] and "longer" in tail.trouble


def test_more_than_a_chunk(file, tail, monkeypatch):
    monkeypatch.setattr(module, "_CHUNK", 10)
    lines = [b"%03d" % k for k in range(50)]
    file.write_bytes(b"\n".join(lines) + b"\n")
    found = tail.advance()
    while tail.behind:
        found += tail.advance()
    assert found == lines


@pytest.mark.parametrize("line", [b"", b"[]", b"{", b"\xff", b"1", b"[" * 50_000])
def test_what_is_not_a_record_is_an_error(line):
    with pytest.raises(ValueError):
        parse(line)


# ---------------------------------------------------------------------------------------------------------- records


@pytest.fixture
def run(tmp_path):
    return make_run(tmp_path / "run", 3)


def reader(run, **options):
    return RecordReader(Root(run.parent), run.name, **options)


def test_records_are_followed_and_restarts_counted(run):
    records = reader(run)
    assert [one["iteration"] for one in records.advance()] == [0, 1, 2] and records.header["kind"] == "run"
    assert records.advance() == []
    append(run, record(3))
    assert [one["iteration"] for one in records.advance()] == [3] and records.restarts == 0
    header, first, *_ = (run / "records.jsonl").read_text().splitlines()
    (run / "new").write_text(f"{header}\n{first}\n{{")
    os.replace(run / "new", run / "records.jsonl")
    assert [one["iteration"] for one in records.advance()] == [0] and records.restarts == 1 and not records.damaged


def test_damaged_lines_are_counted_and_named_by_number(run, monkeypatch):
    monkeypatch.setattr(module, "_NAMED", 3)
    with open(run / "records.jsonl", "ab") as file:
        file.write(b'nonsense\n\n{"kind": "iteration"}\n[]\n{"kind": 5}\n\xff\n' + b'{"half')
    append(run, record(3))  # in the place of the half line: damaged as well
    for records in (reader(run), reader(run, strict=True)):
        assert len(records.read_all()) == 3 and records.damaged == 6
        assert [line for line, _ in records.damage] == [5, 7, 8] and "missing" in records.damage[1].reason
    assert len(read_iterations(run)) == 3
    with pytest.raises(UserError, match="damaged in line 5"):
        read_run(run)


@pytest.mark.parametrize("change", [{"steps": "many"}, {"steps": None}, {"mean_score": float("inf")},
                                    {"atom_min": float("nan")}, {"frames": 1e300}, {"iteration": True}])  # fmt: skip
def test_implausible_numbers_are_damage(run, change):
    append(run, {**record(3), **change})
    records = reader(run)
    assert len(records.read_all()) == 3 and records.damage[0].line == 5 and "plausible" in records.damage[0].reason


def test_a_strict_reader_misses_what_every_version_wrote(run):
    line = record(3)
    del line["gradient_norm_max"]
    append(run, line)
    assert len(reader(run).read_all()) == 4
    strict = reader(run, strict=True)
    assert len(strict.read_all()) == 3 and '"gradient_norm_max" is missing' in strict.damage[0].reason


def test_configs_of_earlier_versions_are_upgraded():
    old = Path(__file__).parent.parent / "fixtures" / "run-format-1-toy" / "run"
    config = read_run(old).config
    assert config["recipe_name"] == "c2d" and config["recipe"]["optim"]["class"] == "Adam" and "agent" not in config


def test_huge_files_are_not_read(run, monkeypatch):
    monkeypatch.setattr(module, "_LARGEST", 1_000)
    records = reader(run)
    assert records.advance() == [] and "at most 1,000" in records.trouble
    assert read_iterations(run) == [] and has_records(run)
    with pytest.raises(UserError, match="at most 1,000"):
        read_run(run)


def test_whether_a_run_has_recorded_anything(run, tmp_path):
    file = run / "records.jsonl"
    assert has_records(run)
    file.write_bytes(b"\xff\n\xff\n")  # whatever it is, it is not overwritten
    assert has_records(run)
    file.write_text(file.name + "\n")
    assert not has_records(run)
    file.unlink()
    assert not has_records(run) and not has_records(tmp_path / "nothing")
