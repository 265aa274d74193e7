"""Run the core tests on the oldest versions that pyproject.toml allows and on the newest: make test-versions.

Each gets an environment of its own, .venv-versions-oldest and .venv-versions-newest (several GB each, because PyTorch
from the registry includes CUDA), and pytest runs there on the checkout, with the kernels that `make setup` compiled.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import time
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TESTS = ["tests/returns", "tests/nets", "tests/agents", "tests/replay", "tests/training/test_resume.py"]
TESTS += ["tests/cli/test_cli_train.py", "tests/cli/test_cli_train_help.py", "tests/envs/test_gymnasium_env.py"]
TOOLS = ["pytest", "hypothesis", "scipy", "mpmath", "ale-py", "opencv-python-headless", "minatar", "tensorboard"]
SHOWN = "import torch, numpy, gymnasium; print(*(m.__version__ for m in (torch, numpy, gymnasium)))"


def promised() -> dict[str, str]:
    """Package -> oldest version, for the dependencies without extras."""
    wanted = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    found = [re.fullmatch(r"([A-Za-z0-9_-]+)>=([0-9.]+).*", line) for line in wanted]
    assert all(found), f"a dependency without an oldest version: {wanted}"
    return {match[1]: match[2] for match in found if match}


def constraints(which: str, path: Path) -> Path:
    """Oldest: exactly these versions. Newest: no constraint. Other packages have the versions of `constraints.txt`."""
    oldest = promised()
    others = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if line.split("==")[0] not in oldest]
    exact = [f"{name}=={version}" for name, version in oldest.items()] if which == "oldest" else []
    path.write_text("\n".join([*others, *exact]) + "\n")
    return path


def run(which: str, python: str, keep: bool) -> bool:
    place = ROOT / f".venv-versions-{which}"
    began = time.perf_counter()
    if not (place / "bin" / "python").exists():
        subprocess.run([python, "-m", "venv", str(place)], check=True)
    own = str(place / "bin" / "python")
    chosen = constraints(which, place / "constraints.txt")
    words = ["install", "--quiet", "--disable-pip-version-check", "--upgrade", "--constraint", str(chosen)]
    subprocess.run([own, "-m", "pip", *words, *promised(), *TOOLS], check=True)
    print(f"{which}: versions of PyTorch, NumPy, Gymnasium", flush=True)
    subprocess.run([own, "-c", SHOWN], check=True)
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    done = subprocess.run([own, "-m", "pytest", "-p", "no:cacheprovider", *TESTS], cwd=ROOT, env=environment)
    if not keep:
        shutil.rmtree(place)
    print(
        f"{which}: {'passed' if not done.returncode else 'FAILED'} after {time.perf_counter() - began:.0f} s",
        flush=True,
    )
    return not done.returncode


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=["oldest", "newest"], help="default: both")
    parser.add_argument("--python", default=sys.executable, help="which Python; 3.11 is the oldest supported")
    parser.add_argument("--keep", action="store_true", help="keep the environments for later")
    chosen = parser.parse_args()
    both = [chosen.only] if chosen.only else ["oldest", "newest"]
    return 0 if all([run(which, chosen.python, chosen.keep) for which in both]) else 1


if __name__ == "__main__":
    sys.exit(main())
