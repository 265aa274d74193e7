"""A plain process with one run, for comparison with Ray: the config as JSON on stdin, the steps on stdout."""

from __future__ import annotations

import json
import sys
import threading
import time

from c2d.config import from_json
from c2d.training.observers import Observer, RunView
from c2d.training.run import run


class Steps(Observer):
    """Prints the number of steps once a second, as often as a sweep polls its runs."""

    def begin(self, run: RunView) -> None:
        def report() -> None:
            while True:
                print(run.steps_made, flush=True)
                time.sleep(1.0)

        threading.Thread(target=report, daemon=True).start()


if __name__ == "__main__":
    run(from_json(json.loads(sys.stdin.readline())), [Steps()])
