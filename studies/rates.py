"""Rates for the forecasts of `c2d sweep`, from the measurements of `c2d bench --recipe all --json FILE`.

c2d bench --recipe all --threads 1 --seconds 3 --json /tmp/atari.json
c2d bench --recipe all --threads 1 --seconds 3 --env minatar/breakout --json /tmp/minatar.json
python studies/rates.py /tmp/atari.json /tmp/minatar.json
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import os
import statistics
from pathlib import Path

from c2d.files import write_atomically
from c2d.recipes.rows import RECIPES

TABLE = Path("c2d/sweep/data/rates.csv")
COLUMNS = ("family", "recipe", "threads", "steps_per_second", "load")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--load", type=float, default=os.getloadavg()[2], help="load average during the measurement")
    chosen = parser.parse_args()
    with open(TABLE, encoding="utf-8") as file:
        rows = {(row["family"], row["recipe"], row["threads"]): row for row in csv.DictReader(file)}
    for path in chosen.files:
        result = json.loads(path.read_text(encoding="utf-8"))
        family = result["env"].partition("/")[0] if "/" in result["env"] else "atari"
        for row in result["rows"]:
            key = (family, row["recipe"], str(result["threads"]))
            rate = f"{statistics.median(row['steps_per_second']):.4g}"
            rows[key] = dict(zip(COLUMNS, (*key, rate, f"{chosen.load:.1f}"), strict=True))
    order = sorted(rows.values(), key=lambda row: (row["family"], list(RECIPES).index(row["recipe"]), row["threads"]))
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(order)
    write_atomically(TABLE, text.getvalue().encode())
    print(f"{TABLE}: {len(rows)} rates")


if __name__ == "__main__":
    main()
