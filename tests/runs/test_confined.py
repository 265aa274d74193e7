"""Only regular files inside the runs directory are ever read."""

import os
import threading

import pytest

from c2d.runs.confined import Refused, Root


@pytest.fixture
def root(tmp_path):
    (tmp_path / "secret.json").write_text('{"secret": 1}')
    inside = tmp_path / "runs"
    (inside / "one").mkdir(parents=True)
    (inside / "one" / "config.json").write_text('{"a": 1}')
    return Root(inside)


def test_reads_what_is_inside(root):
    assert root.read("one", "config.json") == b'{"a": 1}'
    assert root.read("one", "config.json", offset=6) == b"1}"
    assert root.read_end("one", "config.json", count=2) == b"1}"
    assert root.read_json("one", "config.json") == {"a": 1}
    assert root.directories() == ["one"] and root.files("one") == ["config.json"]


@pytest.mark.parametrize("parts", [("..", "secret.json"), ("one", "../../secret.json"), ("one/../..", "secret.json"),
                                   ("one", "\0"), ("one", "..")])  # fmt: skip
def test_names_that_lead_out_are_refused(root, parts):
    with pytest.raises(Refused):
        root.read(*parts)
    with pytest.raises(Refused):
        root.open(*parts)


def test_an_absolute_name_is_refused(root, tmp_path):
    with pytest.raises(Refused, match="outside"):
        root.read(str(tmp_path / "secret.json"))


def test_links_are_not_followed(root, tmp_path):
    """Neither a file that is a link, nor a file under a directory that is one."""
    (root.path / "one" / "linked.json").symlink_to(tmp_path / "secret.json")
    (root.path / "away").symlink_to(tmp_path, target_is_directory=True)
    with pytest.raises(OSError):
        root.read("one", "linked.json")
    with pytest.raises(Refused, match="away is a symbolic link"):
        root.read("away", "secret.json")
    assert root.stat("one", "linked.json") is None
    assert root.directories() == ["one"] and root.files("one") == ["config.json"]
    assert root.files("away") == [] and root.directories("away") == []  # not even names


def test_a_link_inside_to_another_run_is_no_file_either(root):
    (root.path / "one" / "again.json").symlink_to(root.path / "one" / "config.json")
    with pytest.raises(OSError):
        root.read("one", "again.json")


def test_a_root_that_is_a_link_is_what_the_user_named(root, tmp_path):
    (tmp_path / "by-link").symlink_to(root.path)
    assert Root(tmp_path / "by-link").read("one", "config.json") == b'{"a": 1}'


def test_pipes_and_directories_do_not_block(root):
    os.mkfifo(root.path / "one" / "records.jsonl")
    done = threading.Event()

    def attempt():
        for name in ("records.jsonl", "."):
            with pytest.raises(OSError):
                root.read("one", name)
        done.set()

    threading.Thread(target=attempt, daemon=True).start()
    assert done.wait(5), "reading a pipe waits for a writer"


def test_large_files_are_refused(root):
    (root.path / "one" / "large.json").write_bytes(b" " * 2_000)
    with pytest.raises(Refused, match="2,000 bytes"):
        root.read("one", "large.json", limit=1_999)
    assert len(root.read("one", "large.json", limit=2_000)) == 2_000


@pytest.mark.parametrize("text", ["[1]", "nonsense", "[" * 100_000, '"text"'])
def test_json_that_is_no_object_is_an_error_of_the_file(root, text):
    (root.path / "one" / "bad.json").write_text(text)
    with pytest.raises(ValueError):
        root.read_json("one", "bad.json")


def test_numbers_no_browser_can_hold_become_none(root):
    (root.path / "one" / "odd.json").write_text(
        '{"a": NaN, "b": Infinity, "c": 1e999, "d": 123456789012345678901, "e": 1.5}'
    )
    assert root.read_json("one", "odd.json") == {"a": None, "b": None, "c": None, "d": None, "e": 1.5}
