"""The server and an embedded Ray under load: idle connections, a very long file, a driver killed with SIGKILL.

python studies/server_faults.py --out docs/results/server.md
"""

from __future__ import annotations

import argparse
import json
import os
import re
import resource
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen

from c2d.files import write_atomically
from c2d.training.passport import machine, versions

SOCKETS = 1_100
FILES = 1_024  # most files the server may have open
LINES = 1_000_000
ASKED = 20  # requests among idle connections
PATIENCE = 60.0  # seconds


@contextmanager
def serving(root: Path, log: Path) -> Iterator[tuple[str, int]]:
    """`c2d serve` in a process of its own with a limit on open files: its address and process id."""
    with open(log, "w") as errors:
        server = subprocess.Popen(
            [sys.executable, "-m", "c2d.cli.main", "serve", str(root), "--port", "0"],
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (FILES, FILES)),
        )
        try:
            found = re.search(r"open (\S+)", server.stdout.readline() if server.stdout else "")
            if found is None:
                raise SystemExit("the server did not start")
            yield found[1], server.pid
        finally:
            server.send_signal(signal.SIGINT)
            try:
                server.wait(20)
            except subprocess.TimeoutExpired:
                server.kill()


def asked(url: str, limit: float = 20.0) -> tuple[float, bytes | None]:
    """Seconds until the response, and the response; None if there was none."""
    began = time.monotonic()
    try:
        with urlopen(url, timeout=limit) as answer:
            return time.monotonic() - began, answer.read()
    except (URLError, OSError):
        return time.monotonic() - began, None


def cpu_seconds(pid: int) -> float:
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


# ------------------------------------------------------------------------------------------------------- connections


def idle_connections(place: Path) -> dict[str, Any]:
    root, log = place / "few", place / "idle.log"
    (root / "a").mkdir(parents=True)
    (root / "a" / "config.json").write_text("{}")
    with serving(root, log) as (url, _):
        address = ("127.0.0.1", int(url.rpartition(":")[2]))
        open_ones = [socket.create_connection(address, timeout=10) for _ in range(SOCKETS)]
        answers = [asked(f"{url}/api/runs", limit=5.0) for _ in range(ASKED)]
        began = time.monotonic()
        slow = socket.create_connection(address, timeout=10)
        dropped = None
        with suppress(OSError):
            while dropped is None and time.monotonic() - began < PATIENCE:
                slow.sendall(b"GET / HTTP/1.1\r\nX: " if time.monotonic() - began < 0.1 else b"x")
                time.sleep(0.2)
        if time.monotonic() - began < PATIENCE:
            dropped = time.monotonic() - began
        for one in (*open_ones, slow):
            one.close()
    times = [took for took, answer in answers if answer is not None]
    return {
        "answered": len(times),
        "median": statistics.median(times) if times else None,
        "longest": max(times, default=None),
        "dropped": dropped,
        "log": log.stat().st_size,
    }


# --------------------------------------------------------------------------------------------------------- long files


def long_file(place: Path) -> dict[str, Any]:
    """Request the runs until the file is read, while another client requests the page."""
    root = place / "long"
    (root / "a").mkdir(parents=True)
    (root / "a" / "config.json").write_text("{}")
    with open(root / "a" / "records.jsonl", "w") as file:
        file.writelines(f'{{"kind":"iteration","steps":{k},"mean_score":{k % 97}}}\n' for k in range(LINES))
    size = (root / "a" / "records.jsonl").stat().st_size
    others: list[float] = []
    with serving(root, place / "long.log") as (url, pid):
        asked(url)
        done = threading.Event()

        def look() -> None:
            while not done.is_set():
                others.append(asked(url)[0])
                time.sleep(0.05)

        watcher = threading.Thread(target=look)
        watcher.start()
        began, before, answers, most, known = time.monotonic(), cpu_seconds(pid), [], 0, 0
        while time.monotonic() - began < 5 * PATIENCE:
            took, answer = asked(f"{url}/api/runs", limit=PATIENCE)
            row = json.loads(answer)["rows"][0] if answer else {"reading": True, "records": known}
            answers.append(took)
            most, known = max(most, row["records"] - known), row["records"]
            if not row.get("reading"):
                break
        total, cpu = time.monotonic() - began, cpu_seconds(pid) - before
        done.set()
        watcher.join()
    return {"bytes": size, "records": known, "answers": len(answers), "most": most, "longest": max(answers),
            "total": total, "cpu": cpu, "others": max(others), "others_median": statistics.median(others)}  # fmt: skip


# --------------------------------------------------------------------------------------------------- an embedded Ray


def below(pid: int) -> set[int]:
    parents = {}
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            parents[int(path.name)] = int((path / "stat").read_text().rpartition(")")[2].split()[1])
    found, layer = set(), {pid}
    while layer := {child for child, parent in parents.items() if parent in layer}:
        found |= layer
    return found


def directory_of(processes: set[int]) -> Path:
    """The directory named in their command lines."""
    for pid in processes:
        with suppress(OSError):
            if found := re.search(r"/tmp/c2d-ray-[^/\0]+", Path(f"/proc/{pid}/cmdline").read_text()):
                return Path(found[0])
    raise SystemExit("the directory of the embedded Ray was not found")


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def killed_driver(place: Path) -> dict[str, Any]:
    """Seconds from SIGKILL of `c2d sweep` until its last process is gone, and whether its directory is."""
    where = place / "sweep"
    words = ["sweep", "--recipes", "c51", "--envs", "toy/sure", "--seeds", "2", "--iterations", "1000"]
    driver = subprocess.Popen(
        [sys.executable, "-m", "c2d.cli.main", *words, "--out", str(where)], stdout=subprocess.DEVNULL
    )
    end = time.monotonic() + 3 * PATIENCE
    while not list(where.glob("*/records.jsonl")):
        if driver.poll() is not None or time.monotonic() > end:
            raise SystemExit("the sweep did not start")
        time.sleep(0.1)
    time.sleep(1.0)
    processes = below(driver.pid)
    directory = directory_of(processes)
    mode = directory.stat().st_mode & 0o777
    driver.kill()
    driver.wait()
    began = time.monotonic()
    while any(map(alive, processes)) and time.monotonic() - began < 2 * PATIENCE:
        time.sleep(0.02)
    took = time.monotonic() - began
    while directory.exists() and time.monotonic() - began < took + 5.0:
        time.sleep(0.02)
    left = [pid for pid in processes if alive(pid)]
    for pid in left:
        with suppress(OSError):
            os.kill(pid, signal.SIGKILL)
    return {"mode": mode, "processes": len(processes), "seconds": took, "left": len(left),
            "directory": directory.exists()}  # fmt: skip


# ------------------------------------------------------------------------------------------------------- the document


def document(idle: dict[str, Any], long: dict[str, Any], killed: list[dict[str, Any]], load: float) -> str:
    facts = machine(threads=1)
    named = versions()
    dropped = "not at all" if idle["dropped"] is None else f"after {idle['dropped']:.1f} s"
    took = ", ".join(f"{one['seconds']:.1f}" for one in killed)
    some = "were not answered" if idle["median"] is None else (
        f"took {1_000 * idle['median']:.0f} ms (median), {1_000 * idle['longest']:.0f} ms (longest)"
    )  # fmt: skip
    return f"""# The server and an embedded Ray under load

## {SOCKETS:,} idle connections

`c2d serve` with at most {FILES:,} open files; {SOCKETS:,} connections that send nothing, opened before any request.

| | |
|---|---|
| requests answered meanwhile | {idle["answered"]} of {ASKED} |
| these requests | {some} |
| a request that arrives byte by byte is dropped | {dropped} |
| written to the log, bytes | {idle["log"]:,} |

## A records file of {LINES:,} lines

{long["bytes"]:,} bytes, requested until it was read, while another client requested the page.

| | |
|---|---|
| records found | {long["records"]:,} |
| responses until then | {long["answers"]:,} |
| most lines read for one response | {long["most"]:,} |
| longest of these responses | {long["longest"]:.2f} s |
| time to read all of it | {long["total"]:.1f} s, {long["cpu"]:.1f} s of CPU time |
| the page meanwhile | {1_000 * long["others_median"]:.0f} ms (median), {1_000 * long["others"]:.0f} ms (longest) |

## `c2d sweep` killed with SIGKILL

| | |
|---|---|
| mode of its directory in /tmp | {killed[0]["mode"]:04o} |
| processes of its Ray | {", ".join(str(one["processes"]) for one in killed)} |
| seconds until the last was gone | {took} |
| processes left | {", ".join(str(one["left"]) for one in killed)} |
| directories left | {sum(one["directory"] for one in killed)} of {len(killed)} |

- Command: `python studies/server_faults.py --out docs/results/server.md`
- Machine: {facts["cpu"]}, {facts["cores"]} cores; load average at the start {load:.1f}
- Versions: {", ".join(f"{name} {named[name]}" for name in ("python", "c2d"))}
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--kills", type=int, default=3)
    chosen = parser.parse_args()
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        idle, long = idle_connections(place), long_file(place)
        killed = []
        for k in range(chosen.kills):
            (place / str(k)).mkdir()
            killed.append(killed_driver(place / str(k)))
    text = document(idle, long, killed, load)
    write_atomically(chosen.out, text.encode())
    print(text)


if __name__ == "__main__":
    main()
