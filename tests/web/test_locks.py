"""Locks are read from the system's table, and told apart by file system."""

import fcntl
import os

from c2d.web import locks


def test_a_locked_file_is_found_and_only_while_it_is_locked(tmp_path):
    path = tmp_path / "lock"
    with open(path, "w") as file:
        info = os.fstat(file.fileno())
        assert not locks.is_held(str(path), info, locks.held())
        fcntl.flock(file, fcntl.LOCK_EX)
        found = locks.held()
        assert locks.is_held(str(path), info, found)
        elsewhere = frozenset(locks.Place("ff:7f", place.inode) for place in found)
        assert not locks.is_held(str(path), info, elsewhere)  # the same number on another device
    assert not locks.is_held(str(path), info, locks.held())


def test_only_locks_of_whole_files_count():
    table = """1: FLOCK  ADVISORY  WRITE 7891 fe:00:2146942 0 EOF
2: POSIX  ADVISORY  WRITE 1 00:19:77 0 EOF
3: -> FLOCK  ADVISORY  WRITE 7 08:01:5 0 EOF
nonsense
"""
    assert locks.read(table) == {("fe:00", 2_146_942), ("08:01", 5)}
