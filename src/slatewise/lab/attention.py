"""Worlds in which people do not look at everything, or click on little: what each kind of evidence is worth there.

Precision counts what users like among the shown items, clicked or not. Whatever is fitted or tuned is fitted on
validation users, who are some of the training users, in the same world; test users are never looked at for a choice.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import polars as pl

from slatewise.attention_fit import AttentionFit, SlateLog, fit_attention
from slatewise.catalog import Catalog
from slatewise.catalog.embeddings import BprSettings
from slatewise.data.dataset import DataError, Dataset
from slatewise.evidence import SERVICE_DEFAULT, Attention, Reactions
from slatewise.lab.broadcast import MemoryBroadcast
from slatewise.lab.click_models import CLICK_MODELS
from slatewise.lab.experiment import TEST_SHARE, make_workers
from slatewise.lab.metrics import per_split, per_user
from slatewise.lab.simulate import Audience, Session, simulate
from slatewise.lab.tuning import GRIDS, VALIDATION_SHARE, train_catalog
from slatewise.policies.baselines import Popular
from slatewise.policies.calibrated import Calibrated
from slatewise.policies.ease import Ease
from slatewise.policies.protocol import Policy
from slatewise.report import Section
from slatewise.report.attention_figure import attention_figure, fits_table, precision_table

ROUNDS, K = 5, 10
METRIC = f"p@{ROUNDS * K}"
OURS = "dc2b-calibrated"
EVIDENCE = ("told", "all", "until-last-click", "curve", "service default")
"""What a policy learns from: what was seen is told; every skip counts, as in the paper; two rules with fitted numbers;
and what a service assumes before it has fitted anything."""

FITTED: dict[str, Attention] = {
    "told": Attention(),
    "until-last-click": Attention("until-last-click"),
    "curve": Attention("curve", curve=(1.0,)),
}
"""The rules whose numbers are fitted on the log of validation users."""


@dataclass(frozen=True, eq=False)
class Results:
    """One row per split, world, policy and evidence, and one per split, world and fitted rule."""

    rows: pl.DataFrame
    fits: tuple[dict[str, Any], ...]


def run(dataset: Dataset, splits: range, workers: int = 1, on_split: Callable[[], None] | None = None) -> Results:
    """Run every world, policy and kind of evidence on random splits of the users, given by their seeds."""
    if dataset.n_items < ROUNDS * K:
        raise DataError(f"{dataset.name} has {dataset.n_items} items, but attention shows {ROUNDS * K} to each user")
    with make_workers(workers, None, on_split or (lambda: None)) as pool:
        data = pool.share(MemoryBroadcast.of(dataset))
        parts = pool.map([(run_split, data, seed) for seed in splits])
    rows, fits = ([row for part in kind for row in part] for kind in zip(*parts, strict=True))
    return Results(pl.DataFrame(rows), tuple(fits))


def run_split(dataset: Dataset, seed: int) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Run one split; return its rows and fits."""
    training, test = dataset.split(TEST_SHARE, seed)
    others, validation = training.split(VALIDATION_SHARE, seed)
    tuning, catalog = _train(others, seed), _train(training, seed)
    rows, fits = [], []
    chosen = tune_ease(tuning, validation, seed)
    for regularisation in sorted(set(chosen.values())):
        ease = Ease(catalog, regularisation)
        worlds = [world for world in CLICK_MODELS if chosen[world] == regularisation]
        rows += [row for world in worlds for row in _unaware(ease, "ease", test, (world, seed))]
    rows += [row for world in CLICK_MODELS for row in _unaware(Popular(catalog), "popular", test, (world, seed))]
    for world in CLICK_MODELS:
        fitted = fit_rules(Calibrated(tuning), validation, world, seed)
        rows += list(_aware(Calibrated(catalog), test, audiences(world, fitted), (world, seed)))
        fits += [{"world": world, "split": seed, "evidence": name, "fit": fit} for name, fit in fitted.items()]
    return rows, fits


def _train(training: Dataset, seed: int) -> Catalog:
    """Train a catalog; none of the policies compared here uses its BPR vectors, so they get one epoch."""
    return train_catalog(training, BprSettings(epochs=1, seed=seed), {"ease"})


def tune_ease(catalog: Catalog, validation: Dataset, seed: int) -> dict[str, float]:
    """Return by world the regularisation with the best precision on validation users, who click as in that world."""
    best: dict[str, tuple[float, float]] = {}
    for regularisation in GRIDS["ease"]["regularisation"]:
        policy = Ease(catalog, regularisation)
        for world, model in CLICK_MODELS.items():
            records = simulate(policy, validation, Session(ROUNDS, K, seed, Audience(model)))
            precision = float(records["liked"].sum())
            best[world] = max(best.get(world, (-1.0, 0.0)), (precision, regularisation))
    return {world: regularisation for world, (_, regularisation) in best.items()}


def fit_rules(policy: Calibrated, validation: Dataset, world: str, seed: int) -> dict[str, AttentionFit]:
    """Fit every rule to the log that validation users of a world leave in a service that has fitted nothing yet."""
    audience = Audience(CLICK_MODELS[world], SERVICE_DEFAULT)
    records = simulate(policy, validation, Session(ROUNDS, K, seed, audience))
    return {
        name: fit_attention(slate_log(records, name == "told"), policy.model, rule) for name, rule in FITTED.items()
    }


def slate_log(records: pl.DataFrame, tells_seen: bool) -> SlateLog:
    """Return the slates in records, one row per slate of K places."""
    slates, numbers = np.unique(
        records["user"].to_numpy().astype(np.int64) * ROUNDS + records["round"].to_numpy(), return_inverse=True
    )
    positions = records["position"].to_numpy()
    items, value = np.full((len(slates), K), -1, dtype=np.int64), np.full((len(slates), K), np.nan)
    seen = np.zeros((len(slates), K), dtype=np.bool_)
    items[numbers, positions] = records["item"].to_numpy()
    value[numbers, positions] = np.where(records["clicked"].to_numpy(), 1.0, np.nan)
    seen[numbers, positions] = records["seen"].to_numpy()
    return SlateLog(Reactions(items, value, seen, np.full(len(slates), tells_seen)), slates // ROUNDS)


def audiences(world: str, fitted: Mapping[str, AttentionFit]) -> dict[str, Audience]:
    """Return the same people as each kind of evidence shows them."""
    model = CLICK_MODELS[world]
    known = {name: Audience(model, fit.attention, name == "told") for name, fit in fitted.items()}
    every = {**known, "all": Audience(model), "service default": Audience(model, SERVICE_DEFAULT)}
    return {name: every[name] for name in EVIDENCE}


def _aware(
    policy: Calibrated, test: Dataset, evidence: Mapping[str, Audience], run: tuple[str, int]
) -> Iterator[dict[str, Any]]:
    """Yield the rows of our policy at diversity 0 and at its default."""
    for variant, label in ((policy.with_diversity(0.0), f"{OURS}, diversity 0"), (policy, OURS)):
        for name, audience in evidence.items():
            yield {**_row(variant, test, audience, run), "policy": label, "evidence": name}


def _unaware(policy: Policy, label: str, test: Dataset, run: tuple[str, int]) -> list[dict[str, Any]]:
    """Return the rows of a policy that learns from clicks only, or from nothing: the same for all evidence."""
    row = _row(policy, test, Audience(CLICK_MODELS[run[0]]), run)
    return [{**row, "policy": label, "evidence": name} for name in EVIDENCE]


def _row(policy: Policy, test: Dataset, audience: Audience, run: tuple[str, int]) -> dict[str, Any]:
    world, seed = run
    records = simulate(policy, test, Session(ROUNDS, K, seed, audience))
    labels = {"dataset": pl.lit(test.name), "split": pl.lit(seed), "policy": pl.lit("")}
    liked = records.with_columns(clicked=pl.col("liked"), **labels)
    metrics = per_split(per_user(liked, test.categories, (ROUNDS * K,), policy.catalog.similarity_vectors)).row(
        0, named=True
    )
    return {"split": seed, "world": world, **{name: metrics[name] for name in (METRIC, "diversity")}}


def summary(results: Results) -> list[dict[str, Any]]:
    """Return `world, policy, evidence, p@50, diversity, sd` over splits; sd is the deviation of P@50."""
    keys = ["world", "policy", "evidence"]
    frame = results.rows.group_by(keys, maintain_order=True).agg(
        pl.col(METRIC, "diversity").mean(), sd=pl.col(METRIC).std(ddof=1)
    )
    order = {world: number for number, world in enumerate(CLICK_MODELS)}
    return sorted(frame.to_dicts(), key=lambda row: (order[row["world"]], row["policy"] in ("ease", "popular")))


def as_json(results: Results, dataset: Dataset) -> dict[str, Any]:
    """Return rows and fits as a JSON document."""
    fits = [{**fit, "fit": asdict(fit["fit"])} for fit in results.fits]
    n_splits = results.rows["split"].n_unique()
    return {"dataset": dataset.name, "splits": n_splits, "rows": summary(results), "fits": fits}


def sections(results: Results, dataset: Dataset) -> tuple[Section, ...]:
    """Return the report."""
    rows = summary(results)
    prose = (
        "Precision counts what users like among the items shown to them, clicked or not. ease and popular learn the "
        "same from every kind of evidence. The numbers of told, until-last-click and curve are fitted, and ease is "
        "tuned, on validation users of the same world; all is the paper, and service default has fixed numbers.",
    )
    tables = (precision_table(rows, dataset.name, EVIDENCE), fits_table(results.fits, K))
    return (Section("What people look at", prose, tables, (attention_figure(rows, dataset.name),)),)
