"""Reading and training ML-1M, against what polars and cornac by themselves need for the same task."""

import os
import shutil
import zipfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from benchmarks.measure import MissingError, Task, peak_megabytes, seconds
from slatewise.catalog.embeddings import BprSettings, train_bpr
from slatewise.data import sources
from slatewise.data.dataset import Dataset

LOAD = "from slatewise.data.sources import load; load('ml-1m', report=lambda line: None)"


def run() -> dict[str, float]:
    """Measure everything about ML-1M; needs its archive in SLATEWISE_DATA.

    Parsing ends with verified tables, loading with a `Dataset` of the positives.
    """
    archive = archive_of("ml-1m")
    with zipfile.ZipFile(archive) as opened:
        content = opened.read("ml-1m/ratings.dat")
    tasks: dict[str, Task] = {
        "csv": partial(pl.read_csv, content, separator=":", has_header=False),
        "parse_archive": partial(_without_cache, sources.fetch),
        "parse_cache": partial(sources.fetch, "ml-1m", report=_ignore),
        "load_archive": partial(_without_cache, sources.load),
        "load_cache": _load,
    }
    times = seconds(tasks, repeats=15)
    _empty_cache()
    memory = peak_megabytes(LOAD)
    ratios = {f"{name}_over_csv": times[name] / times["csv"] for name in tasks if name != "csv"}
    return {"ml_1m_csv_ms": times["csv"] * 1e3, **ratios, "load_peak_mb": memory, **_training(_load())}


def archive_of(name: str) -> Path:
    """Return the archive of a data set in the directory SLATEWISE_DATA; nothing is downloaded to be measured."""
    archive = Path(os.environ.get("SLATEWISE_DATA", "")) / f"{name}.zip"
    if "SLATEWISE_DATA" not in os.environ or not archive.is_file():
        raise MissingError(f"{name}.zip was not found; set SLATEWISE_DATA to the directory that holds it")
    return archive


def _ignore(_line: str) -> None:
    """Take no notice of progress."""


def _load() -> Dataset:
    return sources.load("ml-1m", report=_ignore)


def _empty_cache() -> None:
    shutil.rmtree(sources.cache_directory() / "ml-1m", ignore_errors=True)


def _without_cache(get: Callable[..., object]) -> None:
    _empty_cache()
    get("ml-1m", report=_ignore)


def _training(dataset: Dataset) -> dict[str, float]:
    tasks = {"ours": partial(train_bpr, dataset, BprSettings()), "cornac": partial(_cornac_itself, dataset)}
    train_bpr(dataset, BprSettings(epochs=1))
    times = seconds(tasks, repeats=3, warm_ups=0)
    return {"cornac_s": times["cornac"], "training_over_cornac": times["ours"] / times["cornac"]}


def _cornac_itself(dataset: Dataset) -> Any:
    """Train the same model as cornac's own documentation does, from (user, item, rating) triples."""
    from cornac.data import Dataset as CornacDataset
    from cornac.models import BPR

    ratings = np.ones(len(dataset.users), dtype=np.float32)
    users, items = ({number: number for number in range(n)} for n in (dataset.n_users, dataset.n_items))
    triples = (dataset.users, dataset.items, ratings)
    train_set = CornacDataset(dataset.n_users, dataset.n_items, users, items, triples)
    model = BPR(k=10, max_iter=50, learning_rate=0.01, lambda_reg=0.01, use_bias=False, seed=0)
    return model.fit(train_set)
