"""Hyperparameters chosen on validation users, in the same way for every policy.

`tune` sees only a catalog and validation users; both come from the training users of a split, so test users have no
influence.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any

import polars as pl

from slatewise.catalog import Catalog
from slatewise.catalog.embeddings import BprSettings
from slatewise.data.dataset import Dataset
from slatewise.lab.metrics import per_split, per_user
from slatewise.lab.simulate import Session, simulate
from slatewise.policies import POLICIES, make_policy

GRIDS: dict[str, dict[str, tuple[Any, ...]]] = {
    "logrank": {},
    "mmr": {"trade_off": (0.3, 0.5, 0.7, 0.8, 0.9, 0.95, 0.99)},
    "epsilon-greedy": {"epsilon": (0.0, 0.02, 0.05, 0.1, 0.2)},
    "dpp-map": {"trade_off": (0.1, 0.3, 0.5, 0.6, 0.7, 0.9)},
    "c2ucb": {"entropy_weight": (0.01, 0.1), "exploration": (0.1, 0.3, 1.0), "ridge": (30.0, 100.0)},
    "ec-bandit": {"vector_length": (0.1, 0.3, 1.25), "soft_negatives": (False, True)},
    "dc2b": {
        "exposure_push": (None, 0.5),
        "temperature": (0.0, 1.0),
        "vector_length": (0.2, 1.0, 2.0),
    },
    "dc2b-calibrated": {"diversity": (0.2, 0.35, 0.5, 0.65, 0.8)},
    "ease": {"regularisation": (30.0, 100.0, 300.0, 1000.0, 3000.0)},
    "gaussian": {"shrinkage": (0.1, 0.2, 0.3, 0.4, 0.6)},
    "ials": {"regularisation": (0.003, 0.01, 0.03), "unobserved": (0.1, 0.3)},
    "item-knn": {"neighbors": (50, 200), "shrinkage": (0.0, 10.0, 50.0)},
    "slim": {"ridge": (10.0, 100.0, 300.0), "lasso": (1.0, 5.0)},
    "rp3beta": {"beta": (0.2, 0.4, 0.6), "neighbors": (50, 200)},
    "logistic": {"exploration": (0.0, 0.3), "prior_variance": (0.1, 0.3, 1.0)},
    "lsb": {"ridge": (0.3, 1.0, 3.0, 10.0), "exploration": (0.0, 0.1)},
    "cascade-lsb": {"ridge": (0.3, 1.0, 3.0, 10.0), "exploration": (0.0, 0.1)},
    "popular": {},
    "random": {},
}


VALIDATION_SHARE = 0.2


def train_catalog(
    training: Dataset, settings: BprSettings, policies: Iterable[str], on_epoch: Callable[[], None] | None = None
) -> Catalog:
    """Train a catalog with everything that these policies need."""
    catalog = Catalog.train(training, settings, on_epoch)
    needed = {part for policy in policies for part in getattr(POLICIES[policy], "needs", ())}
    if "co_likes" in needed:
        catalog = catalog.with_co_likes(training)
    return catalog.with_likes(training) if "likes" in needed else catalog


@dataclass(frozen=True)
class Candidate:
    """A combination of options and its metrics on the validation users."""

    options: dict[str, Any]
    precision: float
    diversity: float
    f: float


def grid_of(policy: str) -> dict[str, tuple[Any, ...]]:
    """Return the values to try for each option: ours, or a plug-in's own `tuning_grid` (nothing to tune if absent)."""
    return GRIDS[policy] if policy in GRIDS else dict(getattr(POLICIES[policy], "tuning_grid", {}))


def candidates(policy: str) -> Iterator[dict[str, Any]]:
    """Yield every combination of options in a policy's grid."""
    grid = grid_of(policy)
    for values in product(*grid.values()):
        yield dict(zip(grid, values, strict=True))


def evaluate(
    policy: str, catalog: Catalog, validation: Dataset, session: Session, on_candidate: Callable[[], None] | None = None
) -> list[Candidate]:
    """Evaluate every combination of options on the validation users, best F first."""
    results, n_shown = [], min(session.rounds * session.k, catalog.n_items)
    for options in candidates(policy):
        records = simulate(make_policy(policy, catalog, **options), validation, session)
        run = records.with_columns(dataset=pl.lit(validation.name), split=pl.lit(0), policy=pl.lit(policy))
        row = per_split(per_user(run, validation.categories, (n_shown,), catalog.vectors)).row(0, named=True)
        results.append(Candidate(options, row[f"p@{n_shown}"], row["diversity"], row["f"]))
        if on_candidate:
            on_candidate()
    return sorted(results, key=lambda candidate: -candidate.f)


def tune(policy: str, catalog: Catalog, validation: Dataset, session: Session) -> Candidate:
    """Return the combination of options with the best F on the validation users."""
    return evaluate(policy, catalog, validation, session)[0]
