"""How many files of the package run between an observation and the gradient: what a reader must open to follow it.

Counted by a tracer over steps, resets, acting, storing, sampling and updates on Atari. Constructors are not counted.
"""

import sys
from pathlib import Path

import pytest

import c2d
from c2d.training.session import Session
from tests.training.short_runs import short_config

ROOT = Path(c2d.__file__).parent
MOST_FILES = 12


def files_that_run(work):
    """Files of the package of which a function runs during `work`, in alphabetical order."""
    codes = set()

    def note(frame, event, _):
        if event == "call":
            codes.add(frame.f_code)

    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
    paths = {Path(code.co_filename) for code in codes if code.co_name != "__init__"}
    return sorted(str(path.relative_to(ROOT)) for path in paths if path.is_relative_to(ROOT))


@pytest.mark.parametrize("recipe", ["c51", "c2d"])
def test_from_observation_to_gradient_in_few_files(recipe):
    config = short_config("breakout", "unused", recipe=recipe, random_history=20, update_period=2, target_period=6)
    session = Session(config)
    session.fill_history()
    session.step = 10**6  # ε is at its least: the network acts
    step, steps = session.env.step, []
    session.env.step = lambda action: (steps.append(step(action)), steps[-1])[1]

    def work():
        """Steps with updates and copies, up to the end of an episode."""
        while session.learner.updates < 8 or not any(one.reset for one in steps):
            session.advance()

    files = files_that_run(work)
    session.close()
    lines = sum(len((ROOT / file).read_text().splitlines()) for file in files)
    print(f"{recipe}: {len(files)} files, {lines:,} lines: {', '.join(files)}")
    for needed in ("envs/atari.py", "agents/rollout.py", "replay/ring.py", "replay/buffer.py", "agents/learner.py",
                   "training/session.py", "returns/losses.py"):  # fmt: skip
        assert needed in files  # else the tracer sees nothing
    assert len(files) <= MOST_FILES, files
