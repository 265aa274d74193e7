"""Numbers, names and tables as text."""

from c2d.formatting import alphanumeric, plural, text_table


def test_plural():
    assert [plural(count, "run") for count in (0, 1, 2, 2_000)] == ["0 runs", "1 run", "2 runs", "2,000 runs"]


def test_names_that_differ_in_case_and_separators_are_the_same():
    assert {alphanumeric(name) for name in ("Ms. Pac-Man", "ms_pacman", "MsPacman", "mspacman é")} == {"mspacman"}


def test_columns_are_aligned_without_trailing_space():
    rows = [("agent", "mean", ""), ("c2d", "10.5", "x"), ("rainbow", "7", "")]
    assert text_table(rows) == ["agent    mean", "c2d      10.5  x", "rainbow     7"]
    assert text_table(rows, left=3) == ["agent    mean", "c2d      10.5  x", "rainbow  7"]
