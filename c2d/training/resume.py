"""Going on with a run: which of its settings may change, whether it will be exact, and where it goes on from."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from c2d.config import FREE, Config, flat, from_json, to_json
from c2d.errors import UserError
from c2d.files import write_json
from c2d.replay.journal import Damaged
from c2d.training.checkpoint import Checkpoint, Checkpoints
from c2d.training.record import MEASURED
from c2d.training.rundir import RunDir
from c2d.training.session import Session


def differences(before: Config, after: Config) -> list[str]:
    """Settings that would make the run another one, as "name: old → new"."""
    free = {name: getattr(before, name) for name in FREE}
    old, new = flat(to_json(before)), flat(to_json(dataclasses.replace(after, **free)))
    return [f"{k}: {old.get(k)} → {new.get(k)}" for k in {**old, **new} if old.get(k) != new.get(k)]


def refuse_differences(run_dir: RunDir, before: Config, after: Config) -> None:
    found = differences(before, after)
    if found:
        raise UserError(
            f"{run_dir.path} is a run with other settings ({'; '.join(found)}): resume it without them, train into "
            f"another --run-dir, or go on from its last checkpoint as a run of its own with "
            f"{run_dir.command('resume', after.env)} --fork NEW_RUN"
        )


def why_inexact(header: dict[str, Any], versions: dict[str, str], machine: dict[str, Any]) -> list[str]:
    """What differs from where the run began, of that which may change rounding."""
    then: dict[str, Any] = dict(header.get("versions", {}))
    now: dict[str, Any] = dict(versions)
    for name in ("cpu", "threads"):
        then[name], now[name] = header.get(MEASURED, {}).get(name), machine.get(name)
    return [f"{name} {then.get(name)} → {now.get(name)}" for name in {**then, **now} if then.get(name) != now.get(name)]


def config_of(run_dir: RunDir, warn: Callable[[str], None]) -> Config:
    """The config of a run; that of its newest whole checkpoint if the run's own file was damaged or changed since."""
    own, trouble = None, ""
    try:
        own = run_dir.read_config()
    except UserError as error:
        trouble = str(error)
    for path, saved in _saved_configs(Checkpoints(run_dir.path)):
        if own is not None:
            changed = differences(saved, own)
            if not changed:
                return own
            trouble = f"{run_dir.config} was changed after the checkpoint ({'; '.join(changed)})"
        warn(f"{trouble}; taken from {path} instead")
        return saved
    return own or run_dir.read_config()


def _saved_configs(checkpoints: Checkpoints) -> Iterator[tuple[Path, Config]]:
    for path in checkpoints.newest_first():
        with suppress(Damaged, UserError, KeyError):
            config = from_json(checkpoints.read(path).state["config"])
            if isinstance(config, Config):
                yield path, config


def continue_from(
    checkpoints: Checkpoints, make_session: Callable[[], Session], warn: Callable[[str], None]
) -> tuple[Session, Checkpoint | None]:
    """A session restored from the newest checkpoint that is whole; a fresh one if there is none."""
    session = make_session()
    for path in checkpoints.newest_first():
        try:
            checkpoint = checkpoints.read(path)
            astray = checkpoints.restore(checkpoint, session)
        except Damaged as error:
            warn(f"checkpoint {path.name} cannot be used: {error}; the one before it is tried")
            session.close()
            session = make_session()
            continue
        if astray:
            warn(f"not exact: {astray}; a new game begins")
        checkpoints.adopt(path)
        return session, checkpoint
    return session, None


def fork(source: RunDir, target: RunDir, config: Config, warn: Callable[[str], None]) -> None:
    """Make `target` a run with `config` whose last checkpoint is that of `source`."""
    checkpoints = Checkpoints(source.path)
    for path in checkpoints.newest_first():
        try:
            checkpoint = checkpoints.read(path)
        except Damaged as error:
            warn(f"checkpoint {path.name} cannot be used: {error}; the one before it is tried")
            continue
        _trial(checkpoints, checkpoint, config)
        copy = target.path / "checkpoints" / path.name
        shutil.copytree(path, copy)
        Checkpoints(target.path).restate(copy, config=to_json(config))
        (target.path / "replay").mkdir()
        for segment in checkpoint.segments:
            shutil.copyfile(checkpoints.journal.path / segment.name, target.path / "replay" / segment.name)
        write_json(target.config, to_json(config))
        return
    raise UserError(f"{source.path} has no checkpoint that is whole: nothing to fork from")


def _trial(checkpoints: Checkpoints, checkpoint: Checkpoint, config: Config) -> None:
    """Whether the checkpoint fits the new settings, before anything is written."""
    session = Session(config)
    try:
        checkpoints.restore(checkpoint, session)
    except Damaged as error:
        raise UserError(f"these settings do not fit the checkpoint: {error}") from None
    finally:
        session.close()
