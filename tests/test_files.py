"""Reading files that anyone may have written, and writing and deleting only what is ours."""

import os

import pytest

from c2d.files import (
    Refused,
    append_line,
    load_json,
    make_directory,
    open_own,
    read_end,
    read_file,
    read_json,
    remove_leftovers,
    write_atomically,
    write_flushed,
)
from c2d.formatting import printable


@pytest.fixture
def run(tmp_path):
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "file.json").write_text('{"a": 1}')
    inside = tmp_path / "run"
    (inside / "deep").mkdir(parents=True)
    (inside / "deep" / "file.json").write_text('{"b": 2}')
    return inside


def test_a_regular_file_is_read(run):
    assert read_json(run / "deep" / "file.json", within=run) == {"b": 2}
    assert read_end(run / "deep" / "file.json", 3, within=run) == b" 2}"


def test_a_link_is_followed_only_if_the_user_named_it(run, tmp_path):
    (run / "link.json").symlink_to(tmp_path / "outside" / "file.json")
    with pytest.raises(Refused, match="it is a symbolic link, and links inside a run directory are not followed"):
        read_file(run / "link.json", 100, within=run)
    assert read_file(run / "link.json", 100) == b'{"a": 1}'  # as of `c2d train --config LINK`
    (run / "away").symlink_to(tmp_path / "outside")
    with pytest.raises(Refused, match="away is a symbolic link"):
        read_file(run / "away" / "file.json", 100, within=run)
    (tmp_path / "by-link").symlink_to(run)
    assert read_json(tmp_path / "by-link" / "deep" / "file.json", within=tmp_path / "by-link") == {"b": 2}


@pytest.mark.parametrize("within", [True, False])
def test_pipes_and_devices_are_not_opened(within, run):
    os.mkfifo(run / "pipe")
    with pytest.raises(Refused, match="not a regular file"):
        read_file(run / "pipe", 100, within=run if within else None)
    with pytest.raises(Refused, match="not a regular file"):
        read_file("/dev/zero", 100)


def test_no_more_is_read_than_was_said(run):
    with open(run / "sparse", "wb") as file:
        file.truncate(12 << 30)
    with pytest.raises(Refused, match="it has 12,884,901,888 bytes; at most 1,000 are read"):
        read_file(run / "sparse", 1_000, within=run)


@pytest.mark.parametrize("name", ["../outside/file.json", "/etc/passwd", "deep/../../outside/file.json"])
def test_names_that_lead_out_are_rejected(name, run):
    with pytest.raises(OSError, match="outside the directory"):
        read_file(run / name, 100, within=run)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[" * 100_000, "nested too deeply"),
        ('{"a":' * 90 + "1" + "}" * 90, "nested too deeply"),
        ("9" * 5_000, "5,000 digits"),
        ("9" * 41, "41 digits"),
        ('"\\ud800"', "not Unicode"),
        ("nonsense", "Expecting value"),
        (b"\xff", "can't decode"),
    ],
)
def test_json_that_only_an_enemy_writes(text, why):
    with pytest.raises(ValueError, match=why):
        load_json(text)


def test_json_as_this_program_writes_it():
    assert (
        load_json('{"state": 340282366920938463463374607431768211455, "text": "\\ud83d\\ude00", "x": NaN}')["state"]
        == 2**128 - 1
    )
    assert load_json(b'[{"base64": "AA=="}]', lambda value: b"0") == [b"0"]
    assert load_json("[" * 40 + "]" * 40)


def test_writing_does_not_follow_links(run, tmp_path):
    target = tmp_path / "outside" / "file.json"
    for name, write in {
        "a": lambda path: write_atomically(path, b"new"),
        "b": lambda path: write_flushed(path, b"new"),
    }.items():
        (run / name).symlink_to(target)
        write(run / name)
        assert not (run / name).is_symlink() and (run / name).read_bytes() == b"new"
    (run / f".c.{os.getpid()}.tmp").symlink_to(target)
    write_atomically(run / "c", b"new")
    (run / "d").symlink_to(target)
    for write in (lambda: append_line(run / "d", "x\n"), lambda: os.close(open_own(run / "d", os.O_RDWR))):
        with pytest.raises(Refused, match="nothing is written there"):
            write()
    (run / "e").symlink_to(tmp_path / "outside")
    with pytest.raises(Refused, match="e is a link or a file"):
        make_directory(run / "e")
    assert target.read_text() == '{"a": 1}' and [path.name for path in target.parent.iterdir()] == ["file.json"]


def test_an_append_does_not_wait_for_a_reader(run):
    os.mkfifo(run / "events.jsonl")
    with pytest.raises(OSError):
        append_line(run / "events.jsonl", "x\n")


def test_only_leftovers_of_the_exact_name_are_removed(run):
    for name in (
        ".config.json.77.tmp",
        ".config.json.tmp",
        "config.json.77.tmp",
        ".notes.77.tmp",
        ".config.json.x.tmp",
    ):
        (run / name).write_text("x")
    (run / ".config.json.78.tmp").mkdir()
    (run / ".config.json.79.tmp").symlink_to(run / "deep")
    remove_leftovers(run, r"config\.json|env\.json")
    assert sorted(path.name for path in run.iterdir()) == sorted(
        ["deep", ".config.json.tmp", "config.json.77.tmp", ".notes.77.tmp", ".config.json.x.tmp", ".config.json.78.tmp",
         ".config.json.79.tmp"]
    )  # fmt: skip


def test_control_characters_do_not_reach_the_terminal():
    assert printable("a\x1b[31mb\x07\x9b\u202e\ud800\nc ü→") == "a\\x1b[31mb\\x07\\x9b\\u202e\\ud800\nc ü→"
    assert printable(ValueError("x\r")) == r"x\r"
