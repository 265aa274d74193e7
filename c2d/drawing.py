"""How every figure is drawn: settings, colors, and files that are the same bytes for the same data.

Matplotlib is loaded only here, and only when a figure is asked for.
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

# The colors of Okabe and Ito (2008), made to be told apart with any color vision.
BLUE, ORANGE, GREEN, PINK, SKY, VERMILION = "#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00"
ENDINGS = (".svg", ".png", ".pdf")
_MISSING = "figures need matplotlib: pip install 'c2d[report]'"
_UNDATED: dict[str, dict[str, Any]] = {
    "svg": {"Date": None, "Creator": None},
    "png": {"Software": None},
    "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
}
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


def can_draw() -> bool:
    return importlib.util.find_spec("matplotlib") is not None


def check_picture(path: Path, option: str) -> None:
    """Where a figure goes: refused before any work if it cannot."""
    check_destination(path, option, ENDINGS)
    if not can_draw():
        raise UserError(f"{option}: {_MISSING}")


@contextmanager
def drawing() -> Iterator[None]:
    """Matplotlib with the project's settings; nothing of the user's own is used or changed."""
    if not can_draw():
        raise UserError(_MISSING)
    import matplotlib

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


def image(figure: Figure, kind: str, dpi: int = 250) -> bytes:
    """The figure as svg, png or pdf, without dates."""
    if figure.get_layout_engine() is not None:
        figure.draw_without_rendering()  # lays it out, once for all kinds
        figure.set_layout_engine("none")
    stream = io.BytesIO()
    figure.savefig(stream, format=kind, dpi=dpi, metadata=_UNDATED[kind])
    return stream.getvalue()


def write_picture(figure: Figure, path: Path, dpi: int = 200) -> None:
    """In the kind that the name ends in; whole or not at all."""
    try:
        write_atomically(path, image(figure, path.suffix.lower().removeprefix("."), dpi))
    except OSError as error:
        raise UserError(f"{path} cannot be written: {error.strerror}") from None
