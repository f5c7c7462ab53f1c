"""Hyperparameters chosen on validation users, in the same way for every policy.

`tune` sees only a catalog and validation users; both come from the training users of a split, so test users have no
influence.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from typing import Any

import polars as pl

from slatewise.catalog import Catalog, CatalogError
from slatewise.catalog.embeddings import BprSettings
from slatewise.data.dataset import Dataset
from slatewise.lab.metrics import per_split, per_user
from slatewise.lab.simulate import Session, simulate
from slatewise.plugins import PluginError
from slatewise.policies import POLICIES, Policy, make_policy

KNOB = "diversity"
VARIETY = (KNOB, "rerank")
"""Options that change nothing of what a policy prepares for a catalog."""
DIVERSITIES = (0.2, 0.35, 0.5, 0.65, 0.8)
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
    "dc2b-calibrated": {"diversity": DIVERSITIES},
    "ease": {"regularisation": (30.0, 100.0, 300.0, 1000.0, 3000.0), "diversity": DIVERSITIES},
    "gaussian": {"shrinkage": (0.1, 0.2, 0.3, 0.4, 0.5), "diversity": DIVERSITIES},
    "ials": {"regularisation": (0.003, 0.01), "unobserved": (0.3, 1.0, 3.0), "diversity": DIVERSITIES},
    "item-knn": {"neighbors": (20, 50, 100), "shrinkage": (0.0, 50.0), "diversity": DIVERSITIES},
    "slim": {"ridge": (100.0, 300.0, 1000.0), "lasso": (0.5, 5.0), "diversity": DIVERSITIES},
    "rp3beta": {"beta": (0.2, 0.4, 0.6), "neighbors": (50, 200), "diversity": DIVERSITIES},
    "logistic": {"exploration": (0.0, 0.2), "prior_variance": (0.3, 0.6, 1.0), "diversity": DIVERSITIES},
    "lsb": {"ridge": (0.1, 0.3, 1.0, 3.0), "exploration": (0.0, 0.05)},
    "cascade-lsb": {"ridge": (0.1, 0.3, 1.0, 3.0), "exploration": (0.0, 0.05)},
    "popular": {},
    "random": {},
}


VALIDATION_SHARE = 0.2


def train_catalog(
    training: Dataset, settings: BprSettings, policies: Iterable[str], on_epoch: Callable[[], None] | None = None
) -> Catalog:
    """Train a catalog with everything that these policies need."""
    return with_needed(Catalog.train(training, settings, on_epoch), training, needed_by(policies))


def needed_by(policies: Iterable[str]) -> set[str]:
    """Return the parts of the training data that policies need in a catalog, such as `co_likes` for ease."""
    return {part for policy in policies for part in getattr(POLICIES[policy], "needs", ())}


def with_needed(catalog: Catalog, training: Dataset, needed: set[str]) -> Catalog:
    """Return a catalog with parts of the data that it was trained on."""
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


def candidates(policy: str, fixed: Mapping[str, Any] | None = None) -> Iterator[dict[str, Any]]:
    """Yield every combination of options in a policy's grid; options that are fixed keep their value."""
    fixed = fixed or {}
    grid = {name: values for name, values in grid_of(policy).items() if name not in fixed}
    for values in product(*grid.values()):
        yield {**fixed, **dict(zip(grid, values, strict=True))}


def evaluate(
    policy: str, tried: Iterable[dict[str, Any]], catalog: Catalog, validation: Dataset, session: Session
) -> list[Candidate]:
    """Evaluate combinations of options on the validation users, best F first."""
    results, n_shown = [], min(session.rounds * session.k, catalog.n_items)
    for options in tried:
        records = simulate(policy_with(policy, catalog, options), validation, session)
        run = records.with_columns(dataset=pl.lit(validation.name), split=pl.lit(0), policy=pl.lit(policy))
        row = per_split(per_user(run, validation.categories, (n_shown,), catalog.similarity_vectors)).row(0, named=True)
        results.append(Candidate(options, row[f"p@{n_shown}"], row["diversity"], row["f"]))
    return sorted(results, key=lambda candidate: -candidate.f)


def tune(
    policy: str, catalog: Catalog, validation: Dataset, session: Session, fixed: Mapping[str, Any] | None = None
) -> Candidate:
    """Return the options with the best F on the validation users; some may be fixed.

    A knob for variety is tuned after the other options: they are compared at the middle of its grid first.
    """
    fixed, knob = dict(fixed or {}), grid_of(policy).get(KNOB, ())
    if KNOB in fixed or len(grid_of(policy)) < 2 or not knob:
        return evaluate(policy, candidates(policy, fixed), catalog, validation, session)[0]
    middle = {KNOB: knob[len(knob) // 2]}
    best = evaluate(policy, candidates(policy, fixed | middle), catalog, validation, session)[0]
    others = ({**best.options, KNOB: value} for value in knob if value != middle[KNOB])
    return max([best, *evaluate(policy, others, catalog, validation, session)], key=lambda candidate: candidate.f)


class OptionError(ValueError):
    """An option that a policy of an experiment cannot have."""


def policy_with(name: str, catalog: Catalog, options: Mapping[str, Any]) -> Policy:
    """Create a policy; those that differ in `diversity` and `rerank` only share what is prepared for the catalog."""
    try:
        return _policy_with(name, catalog, options)
    except (CatalogError, PluginError):
        raise
    except ValueError as error:
        raise OptionError(f"{name}: {error}") from error


def _policy_with(name: str, catalog: Catalog, options: Mapping[str, Any]) -> Policy:
    others = json.dumps({option: value for option, value in options.items() if option not in VARIETY}, sort_keys=True)
    if KNOB in options and hasattr(POLICIES[name], "with_diversity"):
        variety = [options[option] for option in VARIETY if option in options]
        adjusted: Policy = prepared_policy(name, catalog, others).with_diversity(*variety)
        return adjusted
    return make_policy(name, catalog, **options)


@lru_cache(maxsize=6)
def prepared_policy(name: str, catalog: Catalog, options: str) -> Any:
    """Create a policy once for many simulations, because some policies prepare a lot: a whole grid of `ease`."""
    return make_policy(name, catalog, **json.loads(options))
