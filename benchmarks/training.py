"""What `train` costs as likes grow: time of one core and peak memory, in new processes, from Parquet files.

The worlds have 20,000 items and 18 likes per person, so that people grow with likes. `train --without-bpr` reads the
files in parts; with BPR, which `dc2b` and the paper's methods need, everything is held in memory. The exponent is the
slope of a straight line through the logarithms of all sizes. The time of starting Python and of loading compiled code
is that of training a tiny world, and is subtracted; otherwise small sizes would make the exponent look smaller.

`python -m benchmarks.training` prints the figures as JSON; `--quick` leaves out the largest size and BPR.
"""

import json
import sys
import tempfile
from pathlib import Path

from benchmarks.growth import exponent
from benchmarks.measure import MEGABYTE, python
from slatewise.data.sparse_world import SparseWorld
from slatewise.data.synthetic import WorldSize

LIKES = (1_000_000, 10_000_000, 50_000_000)
BPR_LIKES = (1_000_000, 10_000_000)
BPR_EPOCHS = 2
LIKES_PER_PERSON = 17.9
TINY = 10_000
TRAIN = """
import json, sys, time
from benchmarks.measure import peak_bytes
from slatewise.cli import app
app(sys.argv[1:], standalone_mode=False)
print(json.dumps([time.process_time(), peak_bytes()]))
"""
BPR = ("--epochs", str(BPR_EPOCHS))
TASTES = ("--without-bpr", "--workers", "1")


def run(likes: tuple[int, ...] = LIKES, bpr_likes: tuple[int, ...] = BPR_LIKES) -> dict[str, float]:
    """Measure both ways of training at every size; seconds are those of a core."""
    figures: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        worlds = {size: _world(size, Path(folder)) for size in sorted({TINY, *likes, *bpr_likes})}
        for name, options, sizes in (("train", TASTES, likes), ("train_bpr", BPR, bpr_likes)):
            if not sizes:
                continue
            _train(worlds[TINY], options)  # compiles, if need be
            fixed, _ = _train(worlds[TINY], options)
            measured = {size: _train(worlds[size], options) for size in sizes}
            for size, (seconds, megabytes) in measured.items():
                figures |= {f"{name}.{size}.cpu_s": seconds, f"{name}.{size}.peak_mb": megabytes}
            times = {size: max(seconds - fixed, 1e-3) for size, (seconds, _) in measured.items()}
            figures[f"{name}_exponent"] = exponent(times)
            figures[f"{name}_memory_exponent"] = exponent({size: peak for size, (_, peak) in measured.items()})
    return figures


def exponents(likes: tuple[int, ...] = LIKES) -> dict[str, float]:
    """Return the powers of the number of likes with which time and memory of `train --without-bpr` grow."""
    figures = run(likes, ())
    return {name: figures[name] for name in ("train_exponent", "train_memory_exponent")}


def _world(n_likes: int, folder: Path) -> Path:
    """Write a world of about so many likes."""
    size = WorldSize(round(n_likes / LIKES_PER_PERSON), 20_000, 18, top_log_odds=0.3, taste_spread=1.5)
    place = folder / str(n_likes)
    total = sum(SparseWorld.draw(size).write(place))
    print(f"drew {total:,} likes", file=sys.stderr, flush=True)
    return place


def _train(world: Path, options: tuple[str, ...]) -> tuple[float, float]:
    """Return CPU seconds and peak memory in MB of one `slatewise train`."""
    out = str(world.parent / "catalog")
    command = ["train", "--interactions", str(world), "--out", out, *options]
    seconds, peak = json.loads(python(["-c", TRAIN, *command]))
    print(f"{' '.join(options)}, {world.name} likes: {seconds:.1f} s", file=sys.stderr, flush=True)
    return seconds, peak / MEGABYTE


if __name__ == "__main__":
    print(json.dumps(run(LIKES[:2], ()) if "--quick" in sys.argv else run(), indent=2))
