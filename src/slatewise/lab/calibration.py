"""Calibration: whether people click as often as they were expected to, for policies that learn as a service does.

Test users look at everything and see five slates. What was said about each item after the first slate is compared with
what was clicked, with and without making up for skips that weigh less than likes (`slatewise.policies.calibrated`).
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from slatewise.catalog import Catalog
from slatewise.catalog.embeddings import BprSettings
from slatewise.data.dataset import DataError, Dataset
from slatewise.evidence import SERVICE_DEFAULT
from slatewise.lab.broadcast import MemoryBroadcast
from slatewise.lab.experiment import TEST_SHARE, make_workers
from slatewise.lab.simulate import Audience, Session, simulate
from slatewise.policies.calibrated import Calibrated
from slatewise.report import Section
from slatewise.report.calibration_figure import calibration_figure, calibration_table, losses_table

Floats = NDArray[np.float64]
Results = pl.DataFrame
"""One row per split, way to say it and shown item: `said` and `clicked`."""

BINS = 10
SHOWN, BELIEVED = "as shown", "as believed"
EVIDENCE = {"seen is told": True, "untold": False}
LEAST = 1e-3
"""Log-losses are worked out with probabilities that are at least so far from 0 and 1."""


@dataclass(frozen=True)
class Bin:
    """Items that were said to be about as probable: their number, mean probability and the share that was clicked."""

    said: float
    clicked: float
    n: int


def calibration_curve(probabilities: Floats, clicked: Floats, bins: int = BINS) -> list[Bin]:
    """Compare probabilities with clicks in bins of equal width; bins without items are left out.

    Parameters
    ----------
    probabilities : array (n,)
        Probabilities from 0 to 1.
    clicked : array (n,)
        What happened: 1 for a click, 0 for none.
    bins : int
        Number of bins.

    Returns
    -------
    list of Bin
        From the lowest probabilities to the highest.

    Examples
    --------
    >>> import numpy as np
    >>> calibration_curve(np.array([0.12, 0.18, 0.9]), np.array([0.0, 1.0, 1.0]))
    [Bin(said=0.15, clicked=0.5, n=2), Bin(said=0.9, clicked=1.0, n=1)]
    """
    bin_of = np.minimum((probabilities * bins).astype(np.int64), bins - 1)
    n, total, clicks = (
        np.bincount(bin_of, values, bins) for values in (np.ones(len(probabilities)), probabilities, clicked)
    )
    return [Bin(float(total[at] / n[at]), float(clicks[at] / n[at]), int(n[at])) for at in np.flatnonzero(n).tolist()]


def mean_error(curve: list[Bin]) -> float:
    """Return how far probabilities are from the share that was clicked, on average over items."""
    return sum(entry.n * abs(entry.said - entry.clicked) for entry in curve) / sum(entry.n for entry in curve)


def run(dataset: Dataset, splits: range, workers: int = 1, on_split: Callable[[], None] | None = None) -> Results:
    """Run random splits of the users, given by their seeds."""
    shown = Session().rounds * Session().k
    if dataset.n_items < shown:
        raise DataError(f"{dataset.name} has {dataset.n_items} items, but calibration shows {shown} to each user")
    with make_workers(workers, None, on_split or (lambda: None)) as pool:
        data = pool.share(MemoryBroadcast.of(dataset))
        parts: list[pl.DataFrame] = pool.map([(run_split, data, seed) for seed in splits])
    return pl.concat(parts)


def run_split(dataset: Dataset, seed: int) -> pl.DataFrame:
    """Serve the test users of one split, in every way to tell what was seen and to say probabilities."""
    training, test = dataset.split(TEST_SHARE, seed)
    believed = Calibrated(Catalog.train(training, BprSettings(epochs=1, seed=seed)))
    ways = {BELIEVED: believed, SHOWN: replace(believed, skip_weight=SERVICE_DEFAULT.skip_weight)}
    parts = []
    for evidence, is_told in EVIDENCE.items():
        session = Session(seed=seed, audience=Audience(attention=SERVICE_DEFAULT, tells_seen=is_told))
        for way, policy in ways.items():
            later = simulate(policy, test, session).filter(pl.col("round") > 0)
            probability = pl.col("log_probability").cast(pl.Float64).exp().clip(0.0, 1.0).alias("said")
            labels = {"split": pl.lit(seed), "evidence": pl.lit(evidence), "way": pl.lit(way)}
            parts.append(later.select(probability, pl.col("clicked").cast(pl.Float64)).with_columns(**labels))
    return pl.concat(parts)


def summary(results: Results) -> list[dict[str, Any]]:
    """Return `evidence, way, said, clicked, error, log_loss` and the `curve`, over all splits together."""
    rows = []
    for (evidence, way), part in results.group_by("evidence", "way", maintain_order=True):
        probability, clicked = part["said"].to_numpy(), part["clicked"].to_numpy()
        clipped, curve = np.clip(probability, LEAST, 1.0 - LEAST), calibration_curve(probability, clicked)
        loss = -(clicked * np.log(clipped) + (1.0 - clicked) * np.log1p(-clipped)).mean()
        measures = {"said": float(probability.mean()), "clicked": float(clicked.mean()), "error": mean_error(curve)}
        bins = [vars(entry) for entry in curve]
        rows.append({"evidence": evidence, "way": way, **measures, "log_loss": float(loss), "curve": bins})
    return rows


def as_json(results: Results, dataset: Dataset) -> dict[str, Any]:
    """Return the rows as a JSON document."""
    return {"dataset": dataset.name, "splits": results["split"].n_unique(), "rows": summary(results)}


def sections(results: Results, dataset: Dataset) -> tuple[Section, ...]:
    """Return the report."""
    rows = summary(results)
    prose = (
        "Test users look at everything and see five slates, which are learned from as a service does by default. "
        "Said is the probability of each item after the first slate, as the belief has it and as it is shown.",
    )
    tables = (losses_table(rows, dataset.name), calibration_table(rows, dataset.name))
    return (Section("Calibration", prose, tables, (calibration_figure(rows, dataset.name),)),)
