"""What `train` costs as likes grow: time of one core and peak memory, in new processes, from Parquet files.

The worlds have 20,000 items and 18 likes per person, so that people grow with likes. `train --without-bpr` reads the
files in parts; with BPR, which `dc2b` and the paper's methods need, everything is held in memory. Seconds are CPU time
of the whole process, which other work on the machine lengthens less than wall-clock time. The exponent is the slope of
a straight line through the logarithms of all sizes. The time of starting Python and of loading compiled code is that of
training a tiny world, and is subtracted for the exponent; otherwise small sizes would make it look smaller.

`python -m benchmarks.training` prints the figures as JSON; `--quick` leaves out the largest size and BPR.
"""

import json
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.growth import exponent
from benchmarks.measure import MEGABYTE, python
from slatewise.data.sparse_world import SparseWorld
from slatewise.data.synthetic import WorldSize

LIKES = (1_000_000, 10_000_000, 50_000_000)
BPR_LIKES = (1_000_000, 10_000_000)
LIKES_PER_PERSON = 17.9
TINY = 10_000
TRAIN = """
import json, sys, time
from benchmarks.measure import peak_bytes
from slatewise.cli import app
app(sys.argv[1:], standalone_mode=False)
print(json.dumps([time.process_time(), peak_bytes()]))
"""
DEFAULT: tuple[str, ...] = ()
TASTES = ("--without-bpr", "--workers", "1")

Row = dict[str, float]


@dataclass(frozen=True)
class World:
    """Files of likes, and how many there are."""

    place: Path
    n_likes: int


def run(likes: tuple[int, ...] = LIKES, bpr_likes: tuple[int, ...] = BPR_LIKES) -> dict[str, Any]:
    """Measure both ways of training at every size; seconds are those of a core."""
    figures: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        worlds = {size: _world(size, Path(folder)) for size in sorted({TINY, *likes, *bpr_likes})}
        for name, options, sizes in (("", TASTES, likes), ("_bpr", DEFAULT, bpr_likes)):
            if sizes:
                fixed, rows = _costs(worlds[TINY], [worlds[size] for size in sizes], options)
                figures |= {f"training{name}": rows, **growth_of(f"train{name}", fixed, rows)}
    return figures


def _costs(tiny: World, worlds: list[World], options: tuple[str, ...]) -> tuple[float, list[Row]]:
    """Return the seconds of training a tiny world, and what each of the others costs."""
    _train(tiny, options)  # compiles, if need be
    return _train(tiny, options)["cpu_s"], [_train(world, options) for world in worlds]


def growth_of(name: str, fixed: float, rows: list[Row]) -> dict[str, float]:
    """Return the powers of the number of likes with which time and memory grow."""
    times = {int(row["likes"]): max(row["cpu_s"] - fixed, 1e-3) for row in rows}
    peaks = {int(row["likes"]): row["peak_mb"] for row in rows}
    return {f"{name}_exponent": exponent(times), f"{name}_memory_exponent": exponent(peaks)}


def _world(n_likes: int, folder: Path) -> World:
    """Write a world of about so many likes."""
    size = WorldSize(round(n_likes / LIKES_PER_PERSON), 20_000, 18, top_log_odds=0.3, taste_spread=1.5)
    place = folder / str(n_likes)
    total = sum(SparseWorld.draw(size).write(place))
    print(f"drew {total:,} likes", file=sys.stderr, flush=True)
    return World(place, total)


def _train(world: World, options: tuple[str, ...]) -> Row:
    """Return the likes, CPU seconds and peak memory in MB of one `slatewise train`."""
    out = str(world.place.parent / "catalog")
    command = ["train", "--interactions", str(world.place), "--out", out, *options]
    seconds, peak = json.loads(python(["-c", TRAIN, *command]))
    row = {"likes": world.n_likes, "cpu_s": seconds, "peak_mb": peak / MEGABYTE}
    print(f"train {' '.join(options)}: {json.dumps(row)}", file=sys.stderr, flush=True)
    return row


if __name__ == "__main__":
    print(json.dumps(run(LIKES[:2], ()) if "--quick" in sys.argv else run(), indent=2))
