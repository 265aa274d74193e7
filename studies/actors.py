"""Kill actors, nodes and learners of short runs on a real Ray, measure 1, 2 and 4 actors, and compute 256 of them.

    python studies/actors.py --out docs/results/actors.md

Sizes and rates for 256 actors are measured here on one actor and one replay; the sums are arithmetic.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from c2d.cluster.address import LOOPBACK

os.environ |= {LOOPBACK: "0", "OMP_NUM_THREADS": "1", "RAY_USAGE_STATS_ENABLED": "0"}

from c2d.config import Checkpointing, Config, default_config, to_json
from c2d.files import write_atomically
from c2d.formatting import size
from c2d.runs.reader import read_run

ENV = "minatar/breakout"
PAPER_ACTORS, PAPER_RATE, PAPER_SAMPLES = 256, 260.0, 5.0 * 64 * 80  # R2D2: actors, steps/s of each, samples/s drawn
PAPER_RATIO, PAPER_SLOTS = 0.8, 4_000_000


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--out", type=Path, default=Path("docs/results/actors.md"))
    options.add_argument("--steps", type=int, default=300)
    chosen = options.parse_args()
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="c2d-actors-") as where:
        faults = list(fault_rows(Path(where), chosen.steps))
        scaling = list(scaling_rows(Path(where), chosen.steps))
    paper = list(paper_rows())
    spent = time.monotonic() - started
    text = PAGE.format(
        steps=chosen.steps,
        faults="\n".join(faults),
        scaling="\n".join(scaling),
        paper="\n".join(paper),
        out=chosen.out,
        date=time.strftime("%-d %B %Y", time.gmtime()),
        seconds=f"{spent:.0f}",
        cores=os.cpu_count(),
        load=f"{os.getloadavg()[2]:.0f}",
    )
    write_atomically(chosen.out, text.encode())
    print(text)


PAGE = """# Actors: faults, scaling, and 256 of them on paper

Command: `python studies/actors.py --out {out}`, {date}, {seconds} s. The machine has {cores} cores and was busy with
other work (load {load} over 15 minutes): read rates as ratios. [How actors work](../many-machines.md).

## Faults

Runs of 2 actors on MinAtar Breakout with {steps} training steps on a real Ray. "Equal" is a comparison of all parts of
the state at the end with those of a run in which nothing failed: networks, optimizer,
replay, random generators, games, counters.

| mode | fault | at the end |
|---|---|---|
{faults}

## Scaling

The same game and recipe (`c2d`), one iteration each. Staleness is the mean over steps of the updates made since the
weights that chose the action.

| actors | mode | steps/s, to those without actors | learner's share of its time | staleness | samples per insertion |
|---|---|---|---|---|---|
{scaling}

On few cores that are shared with other work, actors compete with the learner for them. What actors on machines of their
own would gain was not measured.

## 256 actors and one learner, on paper

Settings of R2D2 (Kapturowski et al. 2019): 256 actors of 260 steps/s, weights every 400 steps, about 5 updates/s of 64
sequences of 80 steps, 0.8 samples per insertion, 4 million observations. Sizes and times per step were measured here on
Breakout at random with the recipe `c2d`; the rates of the actors and of the learner's GPU are R2D2's.

| what | value |
|---|---|
{paper}
"""


# ------------------------------------------------------------------------------------------------------------- faults


def config_of(path: Path, steps: int, actors: int = 2, mode: str = "synchronous", period: int = 20) -> Config:
    config = default_config(ENV, seed=1, iterations=1, run_dir=str(path), threads=1, tensorboard=False)
    schedule = replace(
        config.recipe.schedule, steps_per_iteration=steps, random_history=200, replay_capacity=500, target_period=100
    )
    actor = replace(config.actor, mode=mode, weights_period=period) if actors else config.actor
    return replace(
        config,
        actors=actors,
        actor=actor,
        recipe=replace(config.recipe, schedule=schedule),
        checkpoint=Checkpointing(every_steps=100, every_minutes=0.0),
    )


def start(config: Config, kill_after: int | None = None) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-m", "c2d.training.verification"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    process.stdin.write(json.dumps({"config": to_json(config), "kill_after": kill_after, "trusted": []}))
    process.stdin.close()
    process.stdin = None
    return process


def ended(process: subprocess.Popen[str]) -> dict[str, str]:
    out, error = process.communicate(timeout=900)
    if process.returncode or not out:
        raise SystemExit(f"a run ended with {process.returncode}: {error[-600:]}")
    found: dict[str, str] = json.loads(out.strip().splitlines()[-1])  # Ray reports deaths on standard output
    return found


def fault_rows(where: Path, steps: int) -> Iterator[str]:
    """Three runs at a time: most of the time they wait for Ray to start."""
    cases: list[Callable[[Path, int], tuple[str, str, dict[str, str]]]] = [
        actor_killed,
        learner_killed,
        learner_stopped,
        actor_killed_asynchronously,
    ]
    with ThreadPoolExecutor(3) as threads:
        straight = threads.submit(lambda: ended(start(config_of(where / "straight", steps))))
        others = [threads.submit(case, where, steps) for case in cases]
        found = [node_killed(where, steps)]  # Ray's cluster for tests wants the main thread
        found += [case.result() for case in others]
        wanted = straight.result()
        for mode, fault, digests in found:
            equal = "equal" if digests == wanted else "DIFFERENT"
            yield f"| {mode} | {fault} | {equal if mode == 'synchronous' else 'finished'} |"


def actor_killed(where: Path, steps: int) -> tuple[str, str, dict[str, str]]:
    return "synchronous", "SIGKILL of an actor", when_under_way(config_of(where / "actor", steps), kill_actor)


def node_killed(where: Path, steps: int) -> tuple[str, str, dict[str, str]]:
    return "synchronous", "SIGKILL of a node with an actor on it", with_nodes(where / "node", steps)


def learner_killed(where: Path, steps: int) -> tuple[str, str, dict[str, str]]:
    config = config_of(where / "learner", steps)
    killed = start(config, steps // 2)
    below = watched(killed)
    killed.communicate(timeout=900)
    left = alive_after(below, 30.0)
    return "synchronous", f"SIGKILL of the learner ({left} processes left), resumed", ended(start(config))


def learner_stopped(where: Path, steps: int) -> tuple[str, str, dict[str, str]]:
    config = config_of(where / "stopped", steps)
    stopped = start(config)
    wait_for_points(config, stopped)
    below = descendants(stopped.pid)
    stopped.send_signal(signal.SIGTERM)
    ended(stopped)
    left = alive_after(below, 30.0)
    return "synchronous", f"SIGTERM to the learner ({left} processes left), resumed", ended(start(config))


def actor_killed_asynchronously(where: Path, steps: int) -> tuple[str, str, dict[str, str]]:
    config = config_of(where / "asynchronous", steps, mode="asynchronous")
    return "asynchronous", "SIGKILL of an actor", when_under_way(config, kill_actor)


def wait_for_points(config: Config, process: subprocess.Popen[str]) -> None:
    points = config.directory / "points.jsonl"
    while process.poll() is None and not (points.exists() and points.read_text().count("\n") >= 5):
        time.sleep(0.02)


def when_under_way(config: Config, act: Callable[[int], None]) -> dict[str, str]:
    process = start(config)
    wait_for_points(config, process)
    act(process.pid)
    return ended(process)


def kill_actor(learner: int) -> None:
    actors = [pid for pid in descendants(learner) if b"ray::_Actor" in command_of(pid)]
    os.kill(actors[0], signal.SIGKILL)


def with_nodes(path: Path, steps: int) -> dict[str, str]:
    """On a cluster of a head without room and three nodes with one CPU; the node of an actor is killed."""
    from ray.cluster_utils import Cluster

    small = {"object_store_memory": 80 << 20, "include_dashboard": False, "include_log_monitor": False}
    quick = {
        "health_check_initial_delay_ms": 1000,
        "health_check_period_ms": 500,
        "health_check_failure_threshold": 3,
    }
    head = {"num_cpus": 0, "node_ip_address": "127.0.0.1", "_system_config": quick, **small}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    try:
        nodes = [cluster.add_node(num_cpus=1, node_ip_address=f"127.0.0.{k}", **small) for k in (2, 3, 4)]
        raylets = [node.all_processes["raylet"][0].process.pid for node in nodes]
        config = replace(config_of(path, steps), address=cluster.address)

        def kill_node(_: int) -> None:
            busy = [pid for pid in raylets if any(b"ray::_Actor" in command_of(child) for child in descendants(pid))]
            os.kill(busy[0], signal.SIGKILL)

        return when_under_way(config, kill_node)
    finally:
        cluster.shutdown()


def watched(process: subprocess.Popen[str]) -> list[int]:
    """All processes that a run had below it while it was alive."""
    seen: set[int] = set()
    while process.poll() is None:
        seen |= set(descendants(process.pid))
        time.sleep(0.1)
    return sorted(seen)


def descendants(pid: int) -> list[int]:
    parents = {}
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            parents[int(path.name)] = int((path / "stat").read_text().rpartition(")")[2].split()[1])
    found: list[int] = []
    layer = {pid}
    while layer := {child for child, parent in parents.items() if parent in layer}:
        found += sorted(layer)
    return found


def command_of(pid: int) -> bytes:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    return b""


def alive_after(pids: list[int], seconds: float) -> int:
    """How many of them are alive at the end."""
    deadline = time.monotonic() + seconds
    while (left := sum(bool(command_of(pid)) for pid in pids)) and time.monotonic() < deadline:
        time.sleep(0.2)
    return left


# ------------------------------------------------------------------------------------------------------------ scaling


def scaling_rows(where: Path, steps: int) -> Iterator[str]:
    base = 0.0
    for actors, mode in ((0, ""), (1, "synchronous"), (2, "synchronous"), (4, "synchronous"), (2, "asynchronous")):
        path = where / f"scaling-{actors}-{mode}"
        ended(start(config_of(path, steps, actors, mode, 50)))
        (record,) = read_run(path).iterations
        measured: dict[str, Any] = record["measured"]
        base = base or measured["steps_per_second"]
        ratio = measured["steps_per_second"] / base
        rest = "– | – | –"
        if actors:
            rest = f"{measured['learner_share']:.2f} | {record['staleness']:.0f} | {record['samples_per_insert']:.2f}"
        yield f"| {actors} | {mode or '–'} | {ratio:.2f} | {rest} |"


# ----------------------------------------------------------------------------------------------------------- on paper


def paper_rows() -> Iterator[str]:
    import pickle

    from c2d.replay.ring import CompressedFrames
    from c2d.training.remote_actor import ActorRequest, Order, RemoteActor, unpacked
    from c2d.training.session import Session

    config = default_config("breakout", seed=1, actors=1, threads=1)
    schedule = replace(config.recipe.schedule, random_history=2_000, replay_capacity=20_000)
    config = replace(config, recipe=replace(config.recipe, schedule=schedule), compress_replay=True)
    session = Session(config)
    actor = RemoteActor(ActorRequest(to_json(config), 0, 0, session.env.spec))
    actor.play(Order(400, 1.0, fresh=True))
    block = actor.play(Order(400, 1.0))
    sent = len(pickle.dumps(block, protocol=5))
    weights = sum(tensor.nbytes for tensor in session.learner.acting.state_dict().values())
    state = len(pickle.dumps(block.state, protocol=5))
    started = time.process_time()
    rounds = unpacked(block.packed, session.env.spec)
    session.replay.begin(session.env.reset(), 0)
    for (transition,) in rounds:
        session.replay.add(transition.action, transition.step, 0)
    taken = (time.process_time() - started) / 400
    frames = session.replay.slots.frames
    assert isinstance(frames, CompressedFrames)
    slot = frames.bytes_used(400) / 400
    session.close()
    actor.close()
    rate, per_step = PAPER_ACTORS * PAPER_RATE, sent / 400
    what = "sent per step: compressed frames, the rest of the step, a share of the actor's state"
    yield f"| {what} | {per_step:.0f} bytes |"
    yield f"| the actor's state, once per 400 steps | {size(state)} |"
    yield f"| weights, to each node once per 400 steps of an actor | {size(weights)} |"
    yield f"| 256 actors at full rate | {rate:,.0f} steps/s |"
    bits = 8 * rate * per_step / 1e9
    yield f"| from actors to the learner at that rate | {size(rate * per_step)}/s, {bits:.2f} Gbit/s |"
    yield f"| weights to each node, when they change every 400 steps | {size(weights * PAPER_RATE / 400)}/s |"
    yield f"| 4 million observations, frames compressed as in this replay | {size(PAPER_SLOTS * slot)} |"
    yield f"| the same uncompressed | {size(PAPER_SLOTS * session.env.spec.frame_bytes)} |"
    yield f"| time of one core here to take in a step | {1e6 * taken:.0f} µs: {1 / taken:,.0f} steps/s |"
    drawn = PAPER_SAMPLES / PAPER_RATIO
    yield f"| insertions for which 25,600 samples/s suffice at 0.8 samples per insertion | {drawn:,.0f} steps/s |"
    limits = {"the learner's samples": drawn, "taking in steps": 1 / taken, "a network of 10 Gbit/s": 1.25e9 / per_step}
    for name, most in sorted(limits.items(), key=lambda item: item[1]):
        yield f"| actors of 260 steps/s that {name} can serve | {most / PAPER_RATE:,.0f} |"
    first = min(limits, key=lambda name: limits[name])
    yield f"| what saturates first | {first}: the rate limiter then holds the other actors back |"


if __name__ == "__main__":
    main()
