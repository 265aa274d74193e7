"""Series of any length in bounded memory: of very many rows every second is left out, and so on, and never the last."""

from __future__ import annotations

from collections.abc import Iterable, Mapping


class Columns:
    """Rows as one list per column."""

    def __init__(self, names: Iterable[str], most: int) -> None:
        self.values: dict[str, list[float | None]] = {name: [] for name in names}
        self._most = most  # rows kept, even in number
        self.count = 0  # rows added
        self.stride = 1  # every so many rows one is kept, and always the last
        self._first = next(iter(self.values.values()))

    def add(self, row: Mapping[str, float | None]) -> None:
        between = self.count > 0 and (self.count - 1) % self.stride != 0  # the last one gives way
        if not between and len(self._first) >= self._most:
            self.stride *= 2
            for column in self.values.values():
                del column[1::2]
        for name, value in row.items():
            self.values[name][len(self.values[name]) - between :] = [value]
        self.count += 1

    def last(self, name: str) -> float | None:
        return self.values[name][-1] if self.values[name] else None

    def clear(self) -> None:
        for column in self.values.values():
            column.clear()
        self.count, self.stride = 0, 1
