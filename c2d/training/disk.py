"""Whether the disk can hold what a run will save."""

from __future__ import annotations

import shutil
from pathlib import Path

from c2d.errors import UserError
from c2d.formatting import size
from c2d.replay.ring import WORTH_COMPRESSING
from c2d.training.session import Session

_COMPRESSED = 0.3  # bytes on disk per byte of a frame: Ms. Pac-Man, one of the busier games, takes 0.27
_FIELDS = 16  # bytes per slot beside the frame


def predicted_bytes(session: Session) -> int:
    """What checkpoints and replay will take at most, about."""
    config = session.config
    schedule = config.recipe.schedule
    slots = min(schedule.replay_capacity, schedule.random_history + config.steps)
    tensors = sum(tensor.nbytes for tensor in session.tensors().values())
    return replay_bytes(slots, session.replay.frame_bytes) + (config.checkpoint.keep + 1) * tensors


def replay_bytes(slots: int, frame: int) -> int:
    """What so many slots with frames of so many bytes take."""
    return int(slots * ((_COMPRESSED * frame if frame >= WORTH_COMPRESSING else frame) + _FIELDS))


def check_space(session: Session, path: Path) -> None:
    """Refuse a run that the disk cannot hold, before it begins."""
    if not session.config.checkpoint.keep:
        return
    needed, free = predicted_bytes(session), shutil.disk_usage(path).free
    if free < needed:
        raise UserError(
            f"checkpoints with the replay may take {size(needed)} and {path} has {size(free)} left: "
            "make room, choose another --run-dir, lower --schedule.replay-capacity, or take none with "
            "--checkpoint.keep 0"
        )
