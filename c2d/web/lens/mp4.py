"""The last moments of a lens as an MP4 video: `python -m c2d.web.lens.mp4 FILE.mp4`, messages on standard input.

Drawn with pygame in a process of its own, so that the server stays responsive. No window is opened.
"""

from __future__ import annotations

import io
import os
import struct
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from c2d.evaluation.video import Video
from c2d.web.lens.messages import Parts, unpack

os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")

RATE = 15.0  # moments per second
SIZE = (1280, 720)
_LEFT = 400  # pixels for frames and numbers
_TRACE = 110
_REPORT = 5  # moments between progress reports
_AXIS_MOMENTS = 150  # whose range the axis covers
_GROUND, _INK, _SOFT, _LINE = (255, 255, 255), (29, 32, 36), (90, 96, 105), (220, 220, 214)
_STEM, _CHOSEN, _TARGET, _CHOSEN_GROUND = (51, 97, 143), (194, 65, 12), (122, 62, 157), (253, 241, 234)
_AGENTS = ((0, 112, 127), (179, 24, 107))  # where there are two


class MomentRenderer:
    """Draws moments one after the other onto one surface."""

    def __init__(self, agents: list[dict[str, Any]]) -> None:
        import pygame

        pygame.font.init()
        self.pygame, self.agents = pygame, agents
        self.surface = pygame.Surface(SIZE)
        self.small, self.large = pygame.font.Font(None, 19), pygame.font.Font(None, 26)
        self.extents: list[list[tuple[float, float]]] = [[] for _ in agents]
        self.values: list[list[float]] = [[] for _ in agents]
        self.tops = [0.0 for _ in agents]  # probability at full height

    def draw(self, header: dict[str, Any], parts: Parts) -> np.ndarray:
        """[H, W, 3] u8"""
        self.surface.fill(_GROUND)
        self._frames(header, parts)
        wide = (SIZE[0] - _LEFT) // len(self.agents)
        for seat in range(len(self.agents)):
            self._distributions(seat, header, parts, _LEFT + seat * wide, wide)
        self._trace(shared=len(header["games"]) == 1)
        image: np.ndarray = self.pygame.surfarray.array3d(self.surface).swapaxes(0, 1)
        return image

    def _write(self, text: str, x: float, y: float, color: tuple[int, ...] = _INK, large: bool = False) -> None:
        font = self.large if large else self.small
        self.surface.blit(font.render(text, True, color), (round(x), round(y)))

    def _frames(self, header: dict[str, Any], parts: Parts) -> None:
        games = header["games"]
        room = (SIZE[1] - 20) // len(games) - 62
        for place, game in enumerate(games):
            top = 14 + place * (room + 62)
            data, below = parts[f"{place}.picture"], top
            if isinstance(data, bytes) and data:
                frame = self.pygame.image.load(io.BytesIO(data), "frame.png")
                width, height = frame.get_size()
                scale = min((_LEFT - 32) / width, room / height)
                size = (round(width * scale), round(height * scale))
                self.surface.blit(self.pygame.transform.scale(frame, size), (16, top))
                below = top + size[1]
            action = self._name(game["driver"], game["action"])
            label = f"{action}{' (random)' if game['random'] else ''}"
            self._write(label + (f"   reward {game['reward']:g}" if game["reward"] else ""), 16, below + 8, large=True)
            where = "" if game["env"] is None else f"   environment {game['env']}"
            facts = f"score {game['score']:g}   step {game['step']}{where}   seed {header['seed']}"
            self._write(facts, 16, below + 34, _SOFT)

    def _inks(self, alone: tuple[tuple[int, ...]]) -> tuple[tuple[int, ...], ...]:
        """The color of each agent."""
        return _AGENTS if len(self.agents) > 1 else alone

    def _name(self, seat: int, action: int) -> str:
        names = self.agents[seat]["actions"]
        return str(names[action]) if action < len(names) else str(action)

    def _distributions(self, seat: int, header: dict[str, Any], parts: Parts, left: int, wide: int) -> None:
        values, agent = header["seats"][seat], self.agents[seat]
        game = header["games"][min(seat, len(header["games"]) - 1)]
        returns, probs = np.asarray(parts[f"{seat}.returns"]), np.asarray(parts[f"{seat}.probs"])
        top_p = self.tops[seat] = max(float(np.nan_to_num(probs).max()), 0.97 * self.tops[seat], 0.02)
        self._note_extent(seat, returns[(probs >= 0.002) & np.isfinite(returns)])
        self.values[seat] = [*self.values[seat][-900:], _float(values["mean"][game["action"]])]
        shared = len(header["games"]) == 1  # one game: the same returns for both
        low, high = _range([e for k, extents in enumerate(self.extents) if shared or k == seat for e in extents])
        ink = self._inks((_INK,))[seat]
        self._write(f"{agent['recipe']}: return distribution of each action", left + 8, 12, ink, large=True)
        top, bottom = 44, SIZE[1] - _TRACE - 44
        tall = (bottom - top) / len(returns)
        begin, end = left + 112, left + wide - 18
        scale = (end - begin) / (high - low)
        for action in range(len(returns)):
            chosen = action == game["action"]
            above = top + tall * action
            base = above + 0.62 * tall
            if chosen:
                self.pygame.draw.rect(self.surface, _CHOSEN_GROUND, (left, above, wide, tall - 1))
            self.pygame.draw.line(self.surface, _LINE, (begin, base), (end, base))
            color = _CHOSEN if chosen else _STEM
            self._write(self._name(seat, action), left + 8, above + tall / 2 - 14, color if chosen else _INK)
            mean = _float(values["mean"][action])
            self._write(_number(mean), left + 8, above + tall / 2 + 2, _SOFT)
            self._stems(returns[action], probs[action], begin, low, scale, base, -0.56 * tall / top_p, color)
            if chosen and f"{seat}.target_returns" in parts:
                law = np.asarray(parts[f"{seat}.target_returns"]), np.asarray(parts[f"{seat}.target_probs"])
                self._stems(*law, begin, low, scale, base, 0.3 * tall / top_p, _TARGET)
            if np.isfinite(mean):
                at = begin + scale * (mean - low)
                self.pygame.draw.polygon(self.surface, color, [(at, base + 1), (at - 5, base + 9), (at + 5, base + 9)])
        for value in _ticks(low, high):
            x = begin + scale * (value - low)
            self.pygame.draw.line(self.surface, _LINE, (x, bottom), (x, bottom + 5))
            self._write(f"{value:g}", x - 8, bottom + 8, _SOFT)

    def _stems(self, values: np.ndarray, probs: np.ndarray, begin: float, low: float, scale: float, base: float,
               tall: float, color: tuple[int, ...]) -> None:  # fmt: skip
        width = 1 if len(values) > 80 else 2
        for value, p in zip(values.tolist(), probs.tolist(), strict=True):
            x = begin + scale * (value - low)
            if x >= begin - 2 and np.isfinite(x + p):
                tip = base + max(min(tall * p, 0.36 * SIZE[1]), -0.6 * SIZE[1])
                self.pygame.draw.line(self.surface, color, (x, base), (x, tip), width)

    def _note_extent(self, seat: int, kept: np.ndarray) -> None:
        """Remember the smallest and largest return with notable probability, if any."""
        extent = [(float(kept.min()), float(kept.max()))] if kept.size else []
        self.extents[seat] = [*self.extents[seat][-_AXIS_MOMENTS:], *extent]

    def _trace(self, shared: bool) -> None:
        """Values over time. Agents in separate games have separate axes, the second one's on the right."""
        top, bottom = SIZE[1] - _TRACE, SIZE[1] - 14
        self._write("value of the executed action", _LEFT + 8, top - 12, _SOFT)
        begin, end = _LEFT + 112, SIZE[0] - (18 if shared or len(self.values) == 1 else 70)
        for seat, color in zip(range(len(self.values)), self._inks((_CHOSEN,)), strict=True):
            values = self.values[seat]
            together = [v for others in self.values for v in others] if shared else values
            finite = [value for value in together if np.isfinite(value)]
            low, high = (min(finite), max(finite)) if finite else (0.0, 0.0)
            x, ink = (_LEFT + 60, _SOFT if shared else color) if shared or seat == 0 else (end + 8, color)
            self._write(_number(high), x, top + 4, ink)
            self._write(_number(low), x, bottom - 12, ink)
            stride, tall = (end - begin) / max(1, len(values) - 1), (bottom - top - 8) / (high - low or 1.0)
            points = [(begin + stride * k, bottom - tall * (v - low)) for k, v in enumerate(values) if np.isfinite(v)]
            if len(points) > 1:
                self.pygame.draw.aalines(self.surface, color, False, points)


def _float(value: float | None) -> float:
    """A number of a header, in which null stands for NaN and infinity."""
    return float("nan") if value is None else value


def _number(value: float) -> str:
    return f"{value:.4g}" if np.isfinite(value) else "–"


def _range(extents: list[tuple[float, float]]) -> tuple[float, float]:
    """The common range, with a margin at both ends."""
    low, high = min((e[0] for e in extents), default=0.0), max((e[1] for e in extents), default=1.0)
    margin = 0.05 * (high - low or abs(high) or 1.0)
    return low - margin, high + margin


def _ticks(low: float, high: float) -> list[float]:
    raw = (high - low) / 6
    power = 10.0 ** np.floor(np.log10(raw))
    step = next(k * power for k in (1, 2, 5, 10) if k * power >= raw)
    return [round(k * step, 10) for k in range(int(np.ceil(low / step)), int(np.floor(high / step)) + 1)]


def messages(stream: BinaryIO) -> Iterator[bytes]:
    while head := stream.read(4):
        yield stream.read(struct.unpack("<I", head)[0])


def main(path: Path, stream: BinaryIO) -> None:
    """The first message describes the agents, the others are moments."""
    source = messages(stream)
    opened, _ = unpack(next(source))
    renderer, film = MomentRenderer(opened["agents"]), Video(path)
    film.rate = RATE
    try:
        for count, message in enumerate(source, start=1):
            film.add(renderer.draw(*unpack(message)))
            if count % _REPORT == 0:
                print(count, flush=True)
        film.finish()
    finally:
        film.abandon()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.stdin.buffer)
