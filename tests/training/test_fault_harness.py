"""The harness that kills runs, in short; `make study-faults` is the long form."""

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_killed_runs_end_as_if_they_were_not():
    command = [sys.executable, str(ROOT / "studies" / "faults.py"), "--kills", "3", "--only-kills", "--seed", "3"]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert done.returncode == 0, done.stderr[-500:]
    assert re.search(r"\*\*3 of 3\*\*", done.stdout), done.stdout
