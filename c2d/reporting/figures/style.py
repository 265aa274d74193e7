"""How figures look: one color per agent everywhere, and files that are the same bytes for the same data.

Colors of the published agents are those of Okabe and Ito (2008), made to be told apart with any color vision. Own
agents take others and are drawn broken, so that no two lines differ by color alone.
"""

from __future__ import annotations

import gc
import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from c2d.errors import UserError
from c2d.reporting.own import SUFFIX

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_PUBLISHED = {
    "DQN": "#7f7f7f",
    "C51": "#e69f00",
    "QR-DQN": "#cc79a7",
    "IQN": "#0072b2",
    "Rainbow": "#009e73",
    "C2D": "#d55e00",
}
_OWN = ("#000000", "#56b4e9", "#882255", "#332288", "#999933", "#aa4499", "#117733", "#661100")
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


_SETTINGS: dict[str, Any] = {
    "font.family": "DejaVu Sans",  # comes with matplotlib: the same picture everywhere
    "font.size": 8,
    "axes.titlesize": 8,
    "axes.labelsize": 8,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "legend.fontsize": 8,
    "legend.frameon": False,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.6,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "xtick.major.size": 2.5,
    "ytick.major.size": 2.5,
    "grid.color": "#dddddd",
    "grid.linewidth": 0.5,
    "axes.axisbelow": True,
    "text.parse_math": False,  # a $ in a name is a $
    "svg.fonttype": "path",
    "svg.hashsalt": "c2d",
    "path.simplify_threshold": 0.2,
}


@contextmanager
def drawing() -> Iterator[None]:
    """Matplotlib with the project's settings; nothing of the user's own is used or changed."""
    try:
        import matplotlib
    except ImportError:
        raise UserError("figures need matplotlib: pip install 'c2d[report]'") from None
    collecting = gc.isenabled()
    gc.disable()  # matplotlib makes very many small objects: looking for garbage took a sixth of the time
    try:
        with matplotlib.rc_context():
            matplotlib.rcdefaults()
            matplotlib.rcParams.update(_SETTINGS)  # type: ignore[arg-type]
            yield
    finally:
        if collecting:
            gc.enable()


def canvas(
    rows: int, columns: int, width: float, height: float, layout: Any = "constrained", **options: Any
) -> tuple[Figure, list[Axes]]:
    """A figure of `width` x `height` inches and its axes, row by row. No window system is touched."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout=layout)
    FigureCanvasAgg(figure)
    axes = figure.subplots(rows, columns, squeeze=False, **options)
    return figure, list(axes.flat)


def files(figure: Figure, dpi: int = 250) -> dict[str, bytes]:
    """The figure as SVG and as PNG, without dates."""
    found = {}
    if figure.get_layout_engine() is not None:
        figure.draw_without_rendering()  # lays it out, once for both
        figure.set_layout_engine("none")
    for kind, metadata in (("svg", {"Date": None, "Creator": None}), ("png", {"Software": None})):
        stream = io.BytesIO()
        figure.savefig(stream, format=kind, dpi=dpi, metadata=metadata)
        found[kind] = stream.getvalue()
    return found


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
