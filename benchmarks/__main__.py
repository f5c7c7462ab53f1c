"""`python -m benchmarks [--json]`: every figure beside its bound, measured in one run."""

import argparse
import json
import os
import sys
import tempfile

os.environ["OPENBLAS_NUM_THREADS"] = os.environ["OMP_NUM_THREADS"] = "1"

from benchmarks import data, laboratory
from benchmarks.measure import machine

BOUNDS = {
    "parse_archive_over_csv": 3.0,
    "parse_cache_over_csv": 0.2,
    "load_archive_over_csv": 3.0,
    "load_cache_over_csv": 0.2,
    "training_over_cornac": 1.2,
    "load_peak_mb": 600.0,
    "table2_ml-100k_s": 20.0,
    "table2_ml-100k_peak_mb": 2048.0,
    "table2_ml-1m_s": 180.0,
    "table2_ml-1m_peak_mb": 2048.0,
    "calibrated_over_dc2b": 1.5,
}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    options = parser.parse_args()
    if "SLATEWISE_DATA" not in os.environ:
        sys.exit("error: set SLATEWISE_DATA to the directory that holds ml-100k.zip and ml-1m.zip")
    print(f"measuring on {machine()}; about four minutes", file=sys.stderr)
    with tempfile.TemporaryDirectory() as cache:
        os.environ["SLATEWISE_CACHE"] = cache
        figures = {**data.run(), **laboratory.run()}
    if options.json:
        print(json.dumps({"machine": machine(), **{name: round(value, 3) for name, value in figures.items()}}))
        return
    print(f"{'figure':<24}{'measured':>10}{'bound':>10}")
    for name, value in figures.items():
        print(f"{name:<24}{value:>10.2f}{BOUNDS.get(name, ''):>10}")


main()
