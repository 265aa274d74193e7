"""Growing files are followed piece by piece, without reading them twice."""

import os

import pytest

from c2d.runs.confined import Root
from c2d.runs.reader import Budget, Tail, parsed
from c2d.web import tail as module


@pytest.fixture
def file(tmp_path):
    return tmp_path / "lines"


@pytest.fixture
def tail(tmp_path):
    return Tail(Root(tmp_path), "lines")


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
    assert read == [(100 - module._BEFORE, module._BEFORE + 4)]  # and the bytes by which the file is known
    read.clear()
    assert tail.advance() == [] and read == []


def test_a_replaced_file_is_read_anew(file, tail, tmp_path):
    file.write_bytes(b"old 1\nold 2\n")
    tail.advance()
    (tmp_path / "other").write_bytes(b"new 1\nnew 2\nnew 3\n")
    os.replace(tmp_path / "other", file)
    assert tail.advance() == [b"new 1", b"new 2", b"new 3"] and tail.restarts == 1
    file.unlink()
    assert tail.advance() == [] and tail.restarts == 2


def test_a_file_that_shrank_is_read_anew(file, tail):
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
def test_what_is_no_record_is_none(line):
    assert parsed(line) is None
