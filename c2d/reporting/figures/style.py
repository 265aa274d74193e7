"""How agents look in figures: one color each, everywhere.

The published agents have colors that can be told apart with any color vision. Own agents take others and are drawn
broken, so that no two lines differ by color alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from c2d.drawing import BLUE, GREEN, ORANGE, PINK, SKY, VERMILION, image
from c2d.reporting.naming import SUFFIX

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_PUBLISHED = {
    "DQN": "#7f7f7f",
    "C51": ORANGE,
    "QR-DQN": PINK,
    "IQN": BLUE,
    "Rainbow": GREEN,
    "C2D": VERMILION,
}
_OWN = ("#000000", SKY, "#882255", "#332288", "#999933", "#aa4499", "#117733", "#661100")
_OWN_FIRST = (
    "c2d",
    "rainbow-c2d",
    "iqn",
    "rainbow",
    "c51",
    "qr-dqn",
    "dqn-adam",
    "dqn",
)  # recipe -> color of its place
_DASHES: tuple[Any, ...] = ((0, (5, 1.5)), (0, (2, 1)), (0, (6, 1.5, 1.5, 1.5)), (0, (1, 1)))
_MARKERS = {"DQN": "v", "C51": "s", "QR-DQN": "P", "IQN": "D", "Rainbow": "^", "C2D": "o"}


class Look(NamedTuple):
    """How an agent is drawn, in every figure of a report."""

    color: str
    dash: Any
    width: float
    marker: str


def looks(agents: Sequence[str]) -> dict[str, Look]:
    """One look per agent; it does not depend on who else is there, unless own agents outnumber the colors."""
    found: dict[str, Look] = {}
    for agent in agents:
        if agent in _PUBLISHED:
            found[agent] = Look(_PUBLISHED[agent], "-", 1.9 if agent == "C2D" else 1.4, _MARKERS[agent])
    others = [agent for agent in agents if agent not in found]
    taken: set[int] = set()
    for agent in sorted(others, key=lambda name: (name.removesuffix(SUFFIX) not in _OWN_FIRST, name)):
        place = _place(agent, taken)
        taken.add(place)
        dash = _DASHES[place // len(_OWN) % len(_DASHES)]
        found[agent] = Look(_OWN[place % len(_OWN)], dash, 2.0, "X")
    return {agent: found[agent] for agent in agents}


def _place(agent: str, taken: set[int]) -> int:
    name = agent.removesuffix(SUFFIX)
    wanted = _OWN_FIRST.index(name) if name in _OWN_FIRST else 1
    return next(place for place in range(wanted, wanted + len(taken) + 1) if place not in taken)


def files(figure: Figure) -> dict[str, bytes]:
    """The figure as it goes into a report."""
    return {kind: image(figure, kind) for kind in ("svg", "png")}


def legend_columns(names: Sequence[str], inches: float) -> int:
    """As many columns as fit across a figure; a letter takes a tenth of an inch at most, a line as much as six."""
    widths = sorted((len(name) + 6 for name in names), reverse=True)
    fitting = (count for count in range(len(names), 1, -1) if sum(widths[:count]) <= 10 * inches)
    return next(fitting, 1)


def short_number(value: float, _: Any = None) -> str:
    """950, 12k, 1.5M: fits a small panel."""
    size = abs(value)
    for unit, letter in ((1e6, "M"), (1e3, "k")):
        if size >= unit:
            return f"{value / unit:.3g}{letter}".replace("-", "−")
    return f"{value:.3g}".replace("-", "−")
