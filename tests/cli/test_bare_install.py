"""What works without any of the extras. `make test-install` does the same with a wheel and real environments."""

import json
import subprocess
import sys

import pytest

# Every package that only an extra brings, hidden before anything of c2d is imported. Then one part after the other,
# in this one process, in a directory of its own, with what it prints.
BARE = """
import contextlib, io, json, os, sys
for name in ("ale_py", "cv2", "minatar", "tensorboard", "matplotlib", "imageio_ffmpeg", "pygame", "starlette",
             "uvicorn", "websockets", "onnx", "onnxruntime", "onnxscript", "ray", "yaml", "rliable", "scipy", "pandas"):
    sys.modules[name] = None
from c2d.cli.main import main

def run(*words):
    try:
        code = main(words)
    except SystemExit as exit:
        code = exit.code or 0
    print(f"[{code}] {' '.join(words)}")

told = {}
for part, code in json.load(sys.stdin).items():
    os.mkdir(part)
    os.chdir(part)
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as err:
        exec(code)
    told[part] = (out.getvalue(), err.getvalue())
    os.chdir("..")
json.dump(told, sys.stdout)
"""
PARTS = {
    "help": """
run("train", "--help")
run("train", "alien", "--recipe", "iqn", "--help")
run("train", "minatar/seaquest", "--help")
run("recipes")
run("recipes", "c51", "iqn", "--env", "minatar/freeway")
run("sweep", "--recipes", "c2d", "--envs", "atari/a*", "--seeds", "1", "--keep-replay", "False", "--dry-run")
""",
    "games": """run("train", "breakout"); run("train", "minatar/breakout")""",
    "cartpole": """
import c2d
from dataclasses import replace
config = c2d.default_config("gym/CartPole-v1", iterations=1, threads=1, run_dir="run")
schedule = replace(config.recipe.schedule, steps_per_iteration=40, random_history=20)
print(c2d.train(replace(config, recipe=replace(config.recipe, schedule=schedule)), progress=False).state)
run("export", "run", "--hub", "hub", "--onnx", "policy.onnx")
run("export", "run", "--torch-export", "policy.pt2")
""",
}


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    """What each part printed, on both streams, and the directory in which it ran."""
    where = tmp_path_factory.mktemp("bare")
    command = [sys.executable, "-c", BARE]
    done = subprocess.run(command, input=json.dumps(PARTS), capture_output=True, text=True, cwd=where)
    assert done.returncode == 0 and done.stderr == "", done.stderr
    return {part: (*streams, where / part) for part, streams in json.loads(done.stdout).items()}


def test_help_and_lists_need_no_emulator(told):
    out, err, _ = told["help"]
    assert err == "" and out.count("[0] ") == 6, err
    assert "1,947,113 weights on breakout" in out


def test_games_that_are_not_installed_are_named_in_one_line_and_leave_nothing(told):
    out, err, where = told["games"]
    first, second = err.splitlines()
    assert first == "c2d: Atari games need the emulator: pip install 'c2d[atari]'"
    assert second == "c2d: MinAtar games need the minatar package: pip install 'c2d[minatar]'"
    assert out == "[2] train breakout\n[2] train minatar/breakout\n"
    assert not any(path.is_file() for path in where.rglob("*"))


def test_cartpole_trains_from_python(told):
    out, err, where = told["cartpole"]
    printed = out.splitlines()
    assert printed[0] == "finished" and (where / "run").is_dir()
    assert not (where / "run" / "tensorboard").exists()
    assert printed[1] == "[2] export run --hub hub --onnx policy.onnx" and not (where / "hub").exists()
    assert err.startswith(
        "c2d: ONNX needs packages that are not installed (onnx, onnxruntime, onnxscript): pip install"
    )
    assert err.count("\n") == 1 and printed[-1] == "[0] export run --torch-export policy.pt2"
