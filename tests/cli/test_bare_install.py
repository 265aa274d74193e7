"""What works without any of the extras. `make test-install` does the same with a wheel and real environments."""

import subprocess
import sys

# Every package that only an extra brings, hidden before anything of c2d is imported.
BARE = """
import sys
for name in ("ale_py", "cv2", "minatar", "tensorboard", "matplotlib", "imageio_ffmpeg", "pygame", "starlette",
             "uvicorn", "websockets", "ray", "yaml", "rliable", "scipy", "pandas"):
    sys.modules[name] = None
from c2d.cli.main import main

def run(*words):
    try:
        code = main(words)
    except SystemExit as exit:
        code = exit.code or 0
    print(f"[{code}] {' '.join(words)}")
"""


def told(code, where):
    done = subprocess.run([sys.executable, "-c", BARE + code], capture_output=True, text=True, cwd=where)
    assert done.returncode == 0 and "Traceback" not in done.stderr, done.stderr
    return done.stdout, done.stderr


def test_help_and_lists_need_no_emulator(tmp_path):
    code = """
run("train", "--help")
run("train", "alien", "--recipe", "iqn", "--help")
run("train", "minatar/seaquest", "--help")
run("recipes")
run("recipes", "c51", "iqn", "--env", "minatar/freeway")
run("sweep", "--recipes", "c2d", "--envs", "atari/a*", "--seeds", "1", "--keep-replay", "False", "--dry-run")
"""
    out, err = told(code, tmp_path)
    assert err == "" and out.count("[0] ") == 6, err
    assert "1,947,113 weights on breakout" in out


def test_games_that_are_not_installed_are_named_in_one_line_and_leave_nothing(tmp_path):
    out, err = told("""run("train", "breakout"); run("train", "minatar/breakout")""", tmp_path)
    first, second = err.splitlines()
    assert first == "c2d: Atari games need the emulator: pip install 'c2d[atari]'"
    assert second == "c2d: MinAtar games need the minatar package: pip install 'c2d[minatar]'"
    assert out == "[2] train breakout\n[2] train minatar/breakout\n"
    assert not any(path.is_file() for path in tmp_path.rglob("*"))


def test_cartpole_trains_from_python(tmp_path):
    code = """
import c2d
from dataclasses import replace
config = c2d.default_config("gym/CartPole-v1", iterations=1, threads=1, run_dir="run")
schedule = replace(config.recipe.schedule, steps_per_iteration=40, random_history=20)
print(c2d.train(replace(config, recipe=replace(config.recipe, schedule=schedule)), progress=False).state)
"""
    out, err = told(code, tmp_path)
    assert out == "finished\n" and err == "" and not (tmp_path / "run" / "tensorboard").exists()
