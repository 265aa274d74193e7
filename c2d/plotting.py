"""Settings, colors and files of every figure. The same data give the same bytes.

Matplotlib is imported only here, and only when a figure is drawn.
"""

from __future__ import annotations

import gc
import importlib.util
import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from c2d.errors import UserError
from c2d.files import check_destination, write_atomically

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# The palette of Okabe and Ito (2008), distinguishable with any color vision.
BLUE, ORANGE, GREEN, PINK, SKY, VERMILION = "#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00"
ENDINGS = (".svg", ".png", ".pdf")
_MISSING = "figures need matplotlib: pip install 'c2d[report]'"
_UNDATED: dict[str, dict[str, Any]] = {
    "svg": {"Date": None, "Creator": None},
    "png": {"Software": None},
    "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
}
_SETTINGS: dict[str, Any] = {
    "font.family": "DejaVu Sans",  # ships with matplotlib: the same figure everywhere
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


def can_draw() -> bool:
    return importlib.util.find_spec("matplotlib") is not None


def check_figure_path(path: Path, option: str) -> None:
    """Reject a path that a figure cannot be written to, before any work is done."""
    check_destination(path, option, ENDINGS)
    if not can_draw():
        raise UserError(f"{option}: {_MISSING}")


@contextmanager
def drawing() -> Iterator[None]:
    """Matplotlib with the project's settings; the user's own settings are neither used nor changed."""
    if not can_draw():
        raise UserError(_MISSING)
    import matplotlib

    collecting = gc.isenabled()
    gc.disable()  # matplotlib makes many small objects: garbage collection took a sixth of the time
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
    """A figure of `width` x `height` inches and its axes, row by row. Needs no window system."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout=layout)
    FigureCanvasAgg(figure)
    axes = figure.subplots(rows, columns, squeeze=False, **options)
    return figure, list(axes.flat)


def image(figure: Figure, kind: str, dpi: int = 250) -> bytes:
    """The figure as svg, png or pdf, without dates."""
    if figure.get_layout_engine() is not None:
        figure.draw_without_rendering()  # runs the layout once for all kinds
        figure.set_layout_engine("none")
    stream = io.BytesIO()
    figure.savefig(stream, format=kind, dpi=dpi, metadata=_UNDATED[kind])
    return stream.getvalue()


def write_figure(figure: Figure, path: Path, dpi: int = 200) -> None:
    """Write a figure atomically, in the format of the file name."""
    try:
        write_atomically(path, image(figure, path.suffix.lower().removeprefix("."), dpi))
    except OSError as error:
        raise UserError(f"{path} cannot be written: {error.strerror}") from None
