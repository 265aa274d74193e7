"""Install the built wheel alone, then with each extra alone, and test each installation: make test-install.

A base environment has the wheel without extras. Each extra gets an environment of its own on top of it, which sees the
base and the packages of that extra, and nothing of the other extras. All of them are removed at the end.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

Result = TypeVar("Result")
ROOT = Path(__file__).resolve().parents[1]
TINY = [
    "--iterations", "1", "--threads", "1", "--schedule.steps-per-iteration", "40", "--schedule.random-history", "40",
    "--schedule.replay-capacity", "200",
]  # fmt: skip
# The main modules of each extra: none of them may be in the base.
MODULES = {
    "atari": "ale_py", "minatar": "minatar", "tensorboard": "tensorboard", "report": "matplotlib",
    "video": "imageio_ffmpeg", "web": "starlette", "onnx": "onnxruntime", "cluster": "ray",
    "wandb": "wandb", "mlflow": "mlflow",
}  # fmt: skip
FROM_PYTHON = """
import c2d
from dataclasses import replace
config = c2d.default_config("gym/CartPole-v1", iterations=1, threads=1, run_dir="from-python")
schedule = replace(config.recipe.schedule, steps_per_iteration=40, random_history=40)
result = c2d.train(replace(config, recipe=replace(config.recipe, schedule=schedule)), progress=False)
assert result.state == "finished" and c2d.load("from-python").act([0.0] * 4) in (0, 1)
from c2d import native
print("compiled code:", native.AVAILABLE)
"""


class Failed(Exception):
    """A command did not do what it should."""


class Environment:
    """A virtual environment, and an empty directory to run commands in."""

    def __init__(self, path: Path, base: Environment | None = None) -> None:
        self.bin, self.work = path / "bin", path / "work"
        pip = [] if base is None else ["--without-pip"]  # uses that of the base
        subprocess.run([sys.executable, "-m", "venv", *pip, str(path)], check=True)
        self.work.mkdir()
        (self.packages,) = path.glob("lib/python*/site-packages")
        if base is not None:
            (self.packages / "base.pth").write_text(f"{base.packages}\n")

    def pip(self, *words: str) -> None:
        quiet = ["install", "--quiet", "--disable-pip-version-check", "--constraint", str(ROOT / "constraints.txt")]
        subprocess.run([str(self.bin / "python"), "-m", "pip", *quiet, *words], check=True)

    def python(self, *words: str) -> str:
        return self.run([str(self.bin / "python"), *words])

    def c2d(self, *words: str, code: int = 0, more: dict[str, str] | None = None) -> str:
        """The output of a command, with the code of the base, the packages of this environment, and more variables."""
        return self.run([str(self.bin / "python"), "-m", "c2d.cli.main", *words], code, more)

    def run(self, words: list[str], code: int = 0, more: dict[str, str] | None = None) -> str:
        variables = {**surroundings(), **(more or {})}
        done = subprocess.run(words, cwd=self.work, capture_output=True, text=True, env=variables)
        if done.returncode != code or "Traceback" in done.stderr:
            said = (done.stdout + done.stderr)[-2_000:]
            raise Failed(f"{' '.join(words[1:])[:200]}: exit code {done.returncode}, not {code}\n{said}")
        return done.stdout + done.stderr


def surroundings() -> dict[str, str]:
    """Environment variables without those of the environment this script runs in."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    return {**kept, "OMP_NUM_THREADS": "1", "RAY_USAGE_STATS_ENABLED": "0"}


def require(ok: object, what: str) -> None:
    if not ok:
        raise Failed(what)


# ------------------------------------------------------------------------------------- what each should do


def bare(env: Environment) -> None:
    names = ", ".join(MODULES.values())
    found = env.python(
        "-c", f"from importlib.util import find_spec\nprint([n for n in {names.split(', ')!r} if find_spec(n)])"
    )
    require(found == "[]\n", f"the base environment is not bare: it has {found}")
    script = env.run([str(env.bin / "c2d"), "--help"])
    require("usage: c2d COMMAND" in script, script)
    require("--head.atoms" in env.c2d("train", "--help-all"), "c2d train --help-all lists no settings")
    require("weights on breakout" in env.c2d("recipes"), "c2d recipes lists none")
    require("Proposition 3.1" in env.c2d("theory"), "c2d theory tells nothing")
    require("compiled code: True" in env.python("-c", FROM_PYTHON), "the wheel has no compiled code: that takes GCC")
    said = env.c2d("train", "breakout", code=2)
    require(said.count("\n") == 1 and "pip install 'c2d[atari]'" in said, f"c2d train breakout says: {said}")


def atari(env: Environment) -> None:
    env.c2d("train", "breakout", *TINY)


def minatar(env: Environment) -> None:
    env.c2d("train", "minatar/breakout", *TINY)


def tensorboard(env: Environment) -> None:
    env.c2d("train", "gym/CartPole-v1", "--run-dir", "run", *TINY)
    require(list((env.work / "run" / "tensorboard").glob("events*")), "no TensorBoard scalars were written")


def report(env: Environment) -> None:
    env.c2d("report", "--published-only", "--out", "page")
    require(list((env.work / "page").rglob("*.svg")), "the report has no figure")


def video(env: Environment) -> None:
    env.c2d("train", "gym/CartPole-v1", "--run-dir", "run", *TINY)
    env.c2d("evaluate", "run", "--games", "1", "--video", "game.mp4")
    require((env.work / "game.mp4").stat().st_size > 1_000, "the film is empty")


def web(env: Environment) -> None:
    (env.work / "runs").mkdir()
    words = [str(env.bin / "python"), "-m", "c2d.cli.main", "serve", "runs", "--port", "0"]
    with open(env.work / "log", "w+") as log:
        server = subprocess.Popen(words, cwd=env.work, stdout=log, stderr=log, env=surroundings())
        try:
            address = _wait_for(lambda: re.search(r"http://127\.0\.0\.1:\d+", (env.work / "log").read_text()), server)
            with urllib.request.urlopen(address[0], timeout=30) as answer:
                require(answer.status == 200 and b"<html" in answer.read().lower(), "the page is not served")
        finally:
            server.terminate()
            server.wait(30)


def _wait_for(look: Callable[[], re.Match[str] | None], server: subprocess.Popen[bytes]) -> re.Match[str]:
    for _ in range(600):
        if (found := look()) is not None:
            return found
        require(server.poll() is None, "c2d serve ended at once")
        time.sleep(0.1)
    raise Failed("c2d serve names no address")


def onnx(env: Environment) -> None:
    env.c2d("train", "gym/CartPole-v1", "--run-dir", "run", *TINY)
    said = env.c2d("export", "run", "--onnx", "policy.onnx", "--hub", "hub")
    require("largest difference from PyTorch" in said, f"c2d export says: {said}")
    require((env.work / "policy.onnx").stat().st_size > 1_000, "the model is empty")


def cluster(env: Environment) -> None:
    (env.work / "plan.yaml").write_text("recipes: [c2d]\nenvs: [toy/sure]\nseeds: 1\niterations: 1\n")
    env.c2d("sweep", "plan.yaml", "--out", "sweep", "--workers", "1")
    require(list((env.work / "sweep").rglob("records.jsonl")), "the sweep left no run")


def wandb(env: Environment) -> None:
    said = env.c2d("train", "gym/CartPole-v1", "--log", "wandb", *TINY, more={"WANDB_MODE": "offline"})
    require(list(env.work.glob("wandb/offline-run-*/*.wandb")), f"Weights & Biases has no run: {said}")
    require("no longer logs" not in said, said)


def mlflow(env: Environment) -> None:
    said = env.c2d("train", "gym/CartPole-v1", "--log", "mlflow", *TINY)
    require((env.work / "mlflow.db").exists() and "no longer logs" not in said, f"MLflow has no run: {said}")


CHECKS = (atari, minatar, tensorboard, report, video, web, onnx, cluster, wandb, mlflow)
EXTRAS = {check.__name__: check for check in CHECKS}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("extras", nargs="*", help=f"which extras; default: {', '.join(EXTRAS)}")
    chosen = parser.parse_args().extras or list(EXTRAS)
    known = set(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"])
    tools = {"all", "dev", "docs"}  # the tools of docs are no part of c2d: make docs
    if {*tools, *EXTRAS} != known:
        print(f"extras without a check here: {', '.join(sorted(known - {*tools, *EXTRAS}))}")
        return 1
    began = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="c2d-install-") as place:
        try:
            _run(Path(place), chosen)
        except (Failed, subprocess.CalledProcessError) as error:
            print(f"FAILED: {error}")
            return 1
    print(f"the wheel works alone and with each of {', '.join(chosen)}: {time.perf_counter() - began:.0f} s")
    return 0


def _run(place: Path, chosen: list[str]) -> None:
    base = _timed("base environment", lambda: Environment(place / "base"))
    _timed("wheel", lambda: _build(base, place))
    _timed("install of torch", lambda: base.pip("torch"))
    _timed("install of the wheel alone", lambda: base.pip(*map(str, place.glob("*.whl"))))
    _timed("commands without extras", lambda: bare(base))
    for extra in chosen:
        env = Environment(place / extra, base)
        _timed(f"install of c2d[{extra}]", lambda env=env, extra=extra: env.pip(f"c2d[{extra}]"))
        _timed(f"command of c2d[{extra}]", lambda env=env, extra=extra: EXTRAS[extra](env))
        shutil.rmtree(env.bin.parent)


def _build(base: Environment, place: Path) -> None:
    """Build from a copy of the sources, so that nothing is left in the checkout."""
    source = place / "source"
    shutil.copytree(ROOT / "c2d", source / "c2d", ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    words = [str(base.bin / "python"), "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check", "--no-deps"]
    subprocess.run([*words, "--wheel-dir", str(place), str(source)], check=True, cwd=place)


def _timed(what: str, work: Callable[[], Result]) -> Result:
    began = time.perf_counter()
    result = work()
    print(f"{time.perf_counter() - began:6.1f} s  {what}", flush=True)
    return result


if __name__ == "__main__":
    sys.exit(main())
