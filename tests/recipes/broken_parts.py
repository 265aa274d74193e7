"""Declarations with mistakes."""

from __future__ import annotations

from dataclasses import dataclass

from c2d.recipes.part import HeadSpec


class NoDataclass(HeadSpec):
    """The decorator is missing."""

    size: int = 3


@dataclass(frozen=True)
class NoDefault(HeadSpec):
    """A setting without a default."""

    size: int
