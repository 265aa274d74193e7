"""A plain process with one run, for comparison with Ray: config as JSON on its input, steps made on its output."""

from __future__ import annotations

import json
import sys
import threading
import time
from typing import Any

from c2d.config import from_json
from c2d.training.observer import Observer
from c2d.training.run import run


class Steps(Observer):
    """Prints the steps made, once a second, as a sweep asks for news."""

    def begin(self, session: Any, run_dir: Any, header: dict[str, Any]) -> None:
        def tell() -> None:
            while True:
                print(session.steps_made, flush=True)
                time.sleep(1.0)

        threading.Thread(target=tell, daemon=True).start()


if __name__ == "__main__":
    run(from_json(json.loads(sys.stdin.readline())), [Steps()])
