"""Kill and damage short runs, fill their disk, resume them, and count how many end as if nothing had happened.

    python studies/faults.py --kills 150 --out docs/results/faults.md

Kills are SIGKILL: half of them at a random moment, half at a random operation on the disk, which is inside a
checkpoint or a write of another file. The full disk is a small tmpfs; mounting it needs root.
"""

from __future__ import annotations

import argparse
import errno
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from fault_processes import Ended, Processes

from c2d.config import Checkpointing, Config, default_config
from c2d.files import write_atomically
from c2d.recipes.part import with_known
from c2d.recipes.rows import RECIPES

ENVS = ("breakout", "minatar/breakout", "gym/CartPole-v1")
SEVERAL = 4  # environments of the runs that have more than one
FILES = {
    "manifest.json": "checkpoints/{newest}/manifest.json",
    "state.json": "checkpoints/{newest}/state.json",
    "tensors.safetensors": "checkpoints/{newest}/tensors.safetensors",
    "records.jsonl in the checkpoint": "checkpoints/{newest}/records.jsonl",
    "episodes.csv in the checkpoint": "checkpoints/{newest}/episodes.csv",
    "newest replay segment": "replay/{segment}",
    "records.jsonl": "records.jsonl",
    "episodes.csv": "episodes.csv",
    "config.json": "config.json",
}
STOP = 170  # of 240 training steps: where runs are stopped that are damaged afterwards
MEGABYTE = 1 << 20


@dataclass
class Row:
    """One kind of fault."""

    fault: str
    tried: int = 0
    equal: int = 0
    seen: str = ""  # what the user saw, once


class Subject(NamedTuple):
    """What is killed."""

    env: str
    recipe: str = "c2d"
    envs: int = 1
    overlap: bool = False

    def __str__(self) -> str:
        recipe = "" if self.recipe == "c2d" else f", {self.recipe}"
        several = "" if self.envs == 1 else f", {self.envs} environments"
        return f"{self.env}{recipe}{several}{', overlap' if self.overlap else ''}"


ALONE = Subject(ENVS[0])  # what is damaged


def subjects() -> list[Subject]:
    """Every kind of environment alone, together and overlapping; then every recipe."""
    ways = [Subject(env, "c2d", *way) for way in ((1, False), (SEVERAL, False), (SEVERAL, True)) for env in ENVS]
    rows = [Subject(ENVS[1 + number % 2], name, SEVERAL, number % 3 == 0) for number, name in enumerate(RECIPES)]
    return ways + [row for row in rows if row.recipe != "c2d"]


def short(subject: Subject, path: Path, every_steps: int = 40) -> Config:
    """A run of 240 steps with a small network and a replay that wraps around; it saves every 40 steps."""
    config = default_config(
        subject.env, subject.recipe, seed=1, iterations=2, run_dir=str(path), tensorboard=False, threads=1
    )
    schedule = replace(
        config.recipe.schedule, steps_per_iteration=120, random_history=60, replay_capacity=150, batch_size=8,
        update_period=4, target_period=50, epsilon_decay_steps=100,
    )  # fmt: skip
    head = with_known(config.recipe.head, hidden=16, embedding=16)
    core = with_known(config.recipe.core, hidden=8, sequence=4, burn_in=3, overlap=2)
    recipe = replace(config.recipe, schedule=schedule, head=head, core=core, envs=subject.envs, overlap=subject.overlap)
    return replace(config, checkpoint=Checkpointing(every_steps=every_steps, every_minutes=0.0), recipe=recipe)


# --------------------------------------------------------------------------------------------------- the faults


def kills(processes: Processes, count: int, rng: random.Random, where: Path) -> list[Row]:
    """SIGKILL at random moments and at random operations on the disk, of each subject in turn."""
    rows: list[Row] = []
    killed = subjects()
    for number, subject in enumerate(killed):
        most = count * (number + 1) // len(killed) - count * number // len(killed)
        if not most:
            continue
        rows += kill(processes, subject, most, rng, where)
        equal, tried = (sum(getattr(row, name) for row in rows) for name in ("equal", "tried"))
        print(f"{subject}: {equal} of {tried} equal so far", flush=True)
    return rows


def kill(processes: Processes, subject: Subject, count: int, rng: random.Random, where: Path) -> list[Row]:
    began = time.perf_counter()
    wanted = processes.run(short(subject, where / "straight"))
    lifetime = time.perf_counter() - began
    shutil.rmtree(where / "straight")
    by_time, by_operation = Row(f"SIGKILL at a random moment, {subject}"), Row(f"SIGKILL inside a write, {subject}")
    while by_time.tried + by_operation.tried < count:
        row = by_time if by_time.tried <= by_operation.tried else by_operation
        config = short(subject, where / "run")
        if row is by_time:
            killed = processes.run(config, kill_after=rng.uniform(0.2, 1.0) * lifetime)
        else:
            killed = processes.run(config, "kill at operation", rng.randrange(1, 220))
        if killed.code == -signal.SIGKILL:  # otherwise it ended before the kill
            resumed = processes.run(config)
            row.tried += 1
            row.equal += resumed.digests == wanted.digests
            row.seen = row.seen or next((text for text in resumed.notices if "resumed" in text), "")
        shutil.rmtree(where / "run", ignore_errors=True)
    return [row for row in (by_time, by_operation) if row.tried]


def damage(processes: Processes, where: Path) -> list[Row]:
    """A flipped byte and a truncation in each kind of file of a stopped run."""
    wanted = processes.run(short(ALONE, where / "straight"))
    processes.run(short(ALONE, where / "killed"), kill_at=STOP)
    rows = []
    for kind, pattern in FILES.items():
        for harm in ("flipped byte", "truncated"):
            row = Row(f"{harm}: {kind}")
            run = where / "run"
            shutil.copytree(where / "killed", run)
            newest = max(path.name for path in (run / "checkpoints").iterdir())
            segment = max(path.name for path in (run / "replay").iterdir())
            path = run / pattern.format(newest=newest, segment=segment)
            data = bytearray(path.read_bytes())
            data[len(data) // 2] ^= 16
            path.write_bytes(data if harm == "flipped byte" else data[: len(data) // 2])
            rows.append(finish(row, processes, run, wanted))
    shutil.rmtree(where / "straight")
    shutil.rmtree(where / "killed")
    return rows


def others(processes: Processes, where: Path) -> list[Row]:
    wanted = processes.run(short(ALONE, where / "straight"))
    rows = []
    processes.run(short(ALONE, where / "run"), "stop", STOP)
    rows.append(finish(Row("SIGTERM"), processes, where / "run", wanted))

    config = short(ALONE, where / "run")
    holder = subprocess.Popen(
        [sys.executable, "-c", _HOLD, str(where / "run")], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout is not None
    holder.stdout.readline()
    second = processes.run(config)
    holder.kill()
    holder.wait()
    row = finish(Row("two processes at once, the first killed later"), processes, where / "run", wanted)
    row.seen = "; ".join(second.notices)
    rows.append(row)

    processes.run(config, "clock", 0)
    rows.append(finish(Row("clock going backwards"), processes, where / "run", wanted))
    shutil.rmtree(where / "straight")
    return rows


_HOLD = """
import sys
from pathlib import Path
from c2d.runs.lock import locked
run = Path(sys.argv[1])
run.mkdir()
with locked(run / "lock"):
    print("held", flush=True)
    sys.stdin.read()
"""


def full_disk(processes: Processes, where: Path) -> list[Row]:
    """A disk that fills up while the run saves, and one that is read-only for a while."""
    wanted = processes.run(short(ALONE, where / "straight"))
    rows = []
    try:
        with tmpfs(where / "disk", 64 * MEGABYTE) as disk:
            first = processes.run(short(ALONE, disk / "run"), "fill the disk", 90)
            row = Row("disk full from step 90 to 190 (tmpfs)")
            row.tried, row.equal = 1, int(first.digests == wanted.digests)
            row.seen = "; ".join(text for text in first.notices if text.startswith("warning"))
            rows.append(row)
            rows.append(finish(Row("the same run, resumed"), processes, disk / "run", wanted))
        with tmpfs(where / "disk", 64 * MEGABYTE) as disk:
            processes.run(short(ALONE, disk / "run"), "fill the disk", 90, kill_at=150)
            (disk / "ballast").unlink()
            rows.append(finish(Row("killed while the disk was full"), processes, disk / "run", wanted))
        with tmpfs(where / "disk", 64 * MEGABYTE) as disk:
            processes.run(short(ALONE, disk / "run"), kill_at=STOP)
            subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
            refused = processes.run(short(ALONE, disk / "run"))
            subprocess.run(["mount", "-o", "remount,rw", str(disk)], check=True)
            row = finish(Row("read-only disk at resume, writable later"), processes, disk / "run", wanted)
            row.seen = refused.notices[-1] if refused.notices else f"exit code {refused.code}"
            rows.append(row)
    except (OSError, subprocess.CalledProcessError) as error:
        if getattr(error, "errno", errno.EPERM) != errno.EPERM:
            raise
        print(f"disk faults skipped: {error}", file=sys.stderr)
    shutil.rmtree(where / "straight")
    return rows


@contextmanager
def tmpfs(path: Path, size: int) -> Iterator[Path]:
    path.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "none", str(path)], check=True)
    try:
        yield path
    finally:
        subprocess.run(["umount", str(path)], check=False)
        path.rmdir()


def finish(row: Row, processes: Processes, run: Path, wanted: Ended) -> Row:
    """Resume the damaged run to its end and compare."""
    resumed = processes.run(short(ALONE, run))
    row.tried += 1
    row.equal += resumed.digests == wanted.digests
    row.seen = next((text for text in resumed.notices if text.startswith("warning")), "; ".join(resumed.notices[:1]))
    row.seen = row.seen.replace(str(run), "RUN")
    shutil.rmtree(run)
    return row


def page(rows: list[Row], seconds: float, command: str) -> str:
    killed = [row for row in rows if row.fault.startswith("SIGKILL")]
    lines = [
        "# Faults",
        "",
        f"Short runs (60 random and 240 training steps, a checkpoint every 40, 2 kept) were killed "
        f"{sum(row.tried for row in killed)} times with SIGKILL and resumed: "
        f"**{sum(row.equal for row in killed)} of {sum(row.tried for row in killed)}** ended bit for bit like a run "
        "that was never stopped: networks, optimizer, replay, random generators, the game, counters.",
        "",
        f"Command: `{command}`, {time.strftime('%d %B %Y', time.gmtime())}, {seconds:.0f} s.",
        "",
        "| fault | tried | equal at the end | what the user sees (first such case) |",
        "|---|---|---|---|",
        *(f"| {row.fault} | {row.tried} | {row.equal} | {row.seen.replace('|', '/')} |" for row in rows),
        "",
        "Equal at the end means that nothing was lost: the steps after the last intact checkpoint were recomputed.",
        "Further studies: [actors, nodes and learners on Ray](actors.md), [hostile run directories](hostile.md), "
        "[the server and an embedded Ray under load](server.md), [saved and restored games](emulator.md).",
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=120, help="number of SIGKILLs")
    parser.add_argument("--only-kills", action="store_true", help="skip damage, signals, locks and disks")
    parser.add_argument("--seed", type=int, default=1, help="seed of the random moments")
    parser.add_argument("--out", type=Path, help="Markdown file to write")
    chosen = parser.parse_args()
    began, processes, where = time.perf_counter(), Processes(), Path(tempfile.mkdtemp(prefix="c2d-faults-"))
    try:
        rows = kills(processes, chosen.kills, random.Random(chosen.seed), where)
        if not chosen.only_kills:
            rows += damage(processes, where) + others(processes, where) + full_disk(processes, where)
    finally:
        shutil.rmtree(where, ignore_errors=True)
    text = page(rows, time.perf_counter() - began, " ".join(["python", *sys.argv])).replace(str(where), "DIR")
    print(text)
    if chosen.out is not None:
        write_atomically(chosen.out, text.encode())
    if any(row.equal != row.tried for row in rows):
        sys.exit(1)


if __name__ == "__main__":
    main()
