"""Reading and training ML-1M, against what polars and cornac alone need for the same work."""

import os
import shutil
import zipfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from slatewise.bench.measure import MissingError, Work, peak_megabytes, seconds
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
    work: dict[str, Work] = {
        "csv": partial(pl.read_csv, content, separator=":", has_header=False),
        "parse_archive": partial(_without_cache, sources.fetch),
        "parse_cache": partial(sources.fetch, "ml-1m", report=_silently),
        "load_archive": partial(_without_cache, sources.load),
        "load_cache": _load,
    }
    times = seconds(work, repeats=15)
    _forget()
    memory = peak_megabytes(LOAD)
    ratios = {f"{name}_over_csv": times[name] / times["csv"] for name in work if name != "csv"}
    return {"ml_1m_csv_ms": times["csv"] * 1e3, **ratios, "load_peak_mb": memory, **_training(_load())}


def archive_of(name: str) -> Path:
    """Find the archive of a data set in the directory SLATEWISE_DATA; nothing is downloaded to be measured."""
    archive = Path(os.environ.get("SLATEWISE_DATA", "")) / f"{name}.zip"
    if "SLATEWISE_DATA" not in os.environ or not archive.is_file():
        raise MissingError(f"{name}.zip is not there; set SLATEWISE_DATA to the directory that holds it")
    return archive


def _silently(_line: str) -> None:
    """Say nothing."""


def _load() -> Dataset:
    return sources.load("ml-1m", report=_silently)


def _forget() -> None:
    shutil.rmtree(sources.cache_directory() / "ml-1m", ignore_errors=True)


def _without_cache(get: Callable[..., object]) -> None:
    _forget()
    get("ml-1m", report=_silently)


def _training(dataset: Dataset) -> dict[str, float]:
    work = {"ours": partial(train_bpr, dataset, BprSettings()), "cornac": partial(_cornac_alone, dataset)}
    train_bpr(dataset, BprSettings(epochs=1))
    times = seconds(work, repeats=3, warm_ups=0)
    return {"cornac_s": times["cornac"], "training_over_cornac": times["ours"] / times["cornac"]}


def _cornac_alone(dataset: Dataset) -> Any:
    """The same model as cornac's own documentation builds it, from (user, item, rating) triples."""
    from cornac.data import Dataset as CornacDataset
    from cornac.models import BPR

    ratings = np.ones(len(dataset.users), dtype=np.float32)
    users, items = ({number: number for number in range(n)} for n in (dataset.n_users, dataset.n_items))
    triples = (dataset.users, dataset.items, ratings)
    train_set = CornacDataset(dataset.n_users, dataset.n_items, users, items, triples)
    model = BPR(k=10, max_iter=50, learning_rate=0.01, lambda_reg=0.01, use_bias=False, seed=0)
    return model.fit(train_set)
