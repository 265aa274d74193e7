"""Options of a sweep, and budgets."""

import pytest

from c2d.errors import UserError
from c2d.sweep.options import SweepOptions, parse_budget


def test_budgets():
    assert [parse_budget(t) for t in ("90s", "30min", "6h", "2d", "1h30min")] == [90, 1_800, 21_600, 172_800, 5_400]


@pytest.mark.parametrize("text", ["6", "h", "-1h", "soon", "0s", "1.2.3h", ""])
def test_invalid_budgets(text):
    with pytest.raises(UserError, match="accepted: a time such as"):
        parse_budget(text)


@pytest.mark.parametrize(
    "invalid",
    [{"workers": 0}, {"threads": 0}, {"gpus": -1.0}, {"gpus": 1.5}, {"retries": -1}, {"address": "host:"}],
)
def test_options_out_of_range(invalid):
    with pytest.raises(UserError, match="accepted:"):
        SweepOptions(**invalid).check()
