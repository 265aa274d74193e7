"""Resuming a run: which of its settings may change, whether it will be exact, and from which checkpoint."""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from c2d.config import FREE, Config, flat, from_json, to_json
from c2d.envs.make import spec_of
from c2d.envs.protocols import as_begun
from c2d.errors import UserError
from c2d.files import flush_directory, kind_of, make_directory, names_inside, write_atomically, write_json
from c2d.runs.checkpoints import Checkpoint, Checkpoints
from c2d.runs.journal import Damaged
from c2d.runs.layout import RunDir
from c2d.runs.lock import InUse, locked
from c2d.runs.records import MEASURED, RunHeader
from c2d.training.session import Session


def differences(before: Config, after: Config) -> list[str]:
    """Settings that would make it another run, as "name: old → new"."""
    free = {name: getattr(before, name) for name in FREE}
    old, new = flat(to_json(before)), flat(to_json(dataclasses.replace(after, **free)))
    return [f"{k}: {old.get(k)} → {new.get(k)}" for k in {**old, **new} if old.get(k) != new.get(k)]


def reject_differences(run_dir: RunDir, before: Config, after: Config) -> None:
    if changed := differences(before, after):
        raise UserError(
            f"{run_dir.path} is a run with other settings ({'; '.join(changed)}): resume it without them, train into "
            f"another --run-dir, or continue from its last checkpoint as a run of its own with "
            f"{run_dir.command('resume', after)} --fork NEW_RUN"
        )


def why_inexact(before: dict[str, Any], header: RunHeader) -> list[str]:
    """What differs from where the run started (by the first line of its records) and may change rounding."""
    then, now = dict(before["versions"]), dict[str, Any](header.versions)
    config, measured = (part if isinstance(part, dict) else {} for part in (before.get("config"), before.get(MEASURED)))
    measured = {"device": config.get("device"), "compile": "off", **measured}  # before they were recorded
    for name in ("cpu", "threads", "device", "compile"):
        then[name], now[name] = measured.get(name), header.measured.get(name)
    return [f"{name} {then.get(name)} → {now.get(name)}" for name in {**then, **now} if then.get(name) != now.get(name)]


def with_its_masks(run_dir: RunDir, config: Config) -> Config:
    """What a run continues with: one begun without masks goes on without those that its environment gives."""
    with suppress(UserError):
        rules = as_begun(config.rules, run_dir.read_spec().masked)
        if rules != config.rules and spec_of(config.env, config.rules).masked:
            return dataclasses.replace(config, rules=rules)
    return config


def threads_before(checkpoints: Checkpoints) -> int | None:
    """How many CPU threads a run started with, by its newest whole checkpoint."""
    for path in checkpoints.newest_first():
        with suppress(Damaged, LookupError, TypeError):
            threads = checkpoints.read_header(path)[MEASURED]["threads"]
            return threads if type(threads) is int else None
    return None


def config_of(run_dir: RunDir, warn: Callable[[str], None]) -> Config:
    """The config of a run; that of its newest whole checkpoint if the run's own file is damaged or was changed."""
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
            config = from_json(checkpoints.read_config(path))
            if isinstance(config, Config):
                yield path, config


def continue_from(
    checkpoints: Checkpoints, make_session: Callable[[], Session], warn: Callable[[str], None]
) -> tuple[Session, Checkpoint | None]:
    """A session restored from the newest checkpoint that is whole; a fresh one if there is none."""
    session = make_session()
    for path in checkpoints.newest_first():
        try:
            checkpoint = checkpoints.read(path, session)
            checkpoints.restore(checkpoint, session)
        except Damaged as error:
            warn(f"checkpoint {path.name} cannot be used: {error}; trying the one before it")
            session.close()
            session = make_session()
            continue
        if session.mismatch:
            warn(f"not exact: {session.mismatch}; a new game begins")
        checkpoints.adopt(path)
        return session, checkpoint
    return session, None


def fork(source: RunDir, target: RunDir, config: Config, warn: Callable[[str], None]) -> None:
    """Make `target` a run with `config` whose last checkpoint is that of `source`.

    It is built under another name next to it and renamed, so a kill leaves nothing that looks like a run. The next
    attempt removes what an earlier one left.
    """
    checkpoint, checkpoints = _newest_whole(source, config, warn)
    try:
        target.path.parent.mkdir(parents=True, exist_ok=True)
        half = RunDir(target.path.with_name(f".{target.path.name}.{os.getpid()}.fork"))
        _remove_unfinished_forks(target.path)
        make_directory(half.path)
        try:
            with locked(half.lock):
                for directory in (half.checkpoints, half.checkpoints / checkpoint.path.name, half.replay):
                    make_directory(directory)
                for name, data in checkpoints.files(checkpoint, to_json(config)):
                    write_atomically(half.path / name, data)
                write_json(half.config, to_json(config))
                half.path.rename(target.path)
        except BaseException:
            _remove_unfinished_forks(target.path)
            raise
        flush_directory(target.path.parent)
    except OSError as error:
        raise UserError(f"--fork {target.path} cannot be created: {error.strerror or error}") from None
    except Damaged as error:
        raise UserError(f"nothing can be forked: {error}") from None


def _newest_whole(source: RunDir, config: Config, warn: Callable[[str], None]) -> tuple[Checkpoint, Checkpoints]:
    """The checkpoint to fork from, after checking that the new settings fit it."""
    checkpoints = Checkpoints(source.path)
    session = Session(config)
    try:
        for path in checkpoints.newest_first():
            try:
                checkpoint = checkpoints.read(path, session)
            except Damaged as error:
                warn(f"checkpoint {path.name} cannot be used: {error}; trying the one before it")
                continue
            try:
                checkpoints.restore(checkpoint, session)
            except Damaged as error:
                raise UserError(f"these settings do not fit the checkpoint: {error}") from None
            return checkpoint, checkpoints
    finally:
        session.close()
    raise UserError(f"{source.path} has no whole checkpoint: nothing to fork from")


def _remove_unfinished_forks(target: Path) -> None:
    """Remove what killed processes, or this one, left of a fork to `target`: files with the names of a fork's."""
    pattern = re.compile(rf"\.{re.escape(target.name)}\.[0-9]+\.fork")
    for name in names_inside(target.parent, directories=True):
        half = RunDir(target.with_name(name))
        if not pattern.fullmatch(name) or kind_of(half.lock) == "link":
            continue
        with suppress(OSError, InUse), locked(half.lock):  # else another process is at work on it
            Checkpoints(half.path).remove_all(unfinished=True)
            half.remove_half_written()
            half.config.unlink(missing_ok=True)
            half.lock.unlink(missing_ok=True)
            half.path.rmdir()
