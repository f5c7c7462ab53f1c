"""Items that come after training: what content and a few impressions say about them, and what exploring costs.

A share of the items is hidden from training and added by its content. Precision among them is measured on people
whose taste is known from five slates of other items. Everything fitted comes from training users and trained items.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from slatewise.belief.rates import RateEvidence, Rates
from slatewise.catalog import Catalog
from slatewise.catalog.embeddings import Factors
from slatewise.data.dataset import DataError, Dataset
from slatewise.evidence import Evidence
from slatewise.lab.broadcast import MemoryBroadcast
from slatewise.lab.experiment import TEST_SHARE, make_workers
from slatewise.policies.calibrated import Calibrated
from slatewise.policies.protocol import Slates, State
from slatewise.randomness import Streams, user_keys
from slatewise.report import Section
from slatewise.report.newcomers_figure import exploring_table, known_figure, known_table

Booleans = NDArray[np.bool_]
Integers = NDArray[np.int64]

HIDDEN_SHARE, ROUNDS, K = 0.2, 5, 10
KNOWN = ("nothing", "content", "20 impressions", "100 impressions", "trained")
IMPRESSIONS = (20, 100)
NEW_SHARE, LONG = 0.02, 20
"""When exploring is measured, so much of the catalog is new in each of the first rounds, of so many."""
EXPLORE = (0.0, 0.25, 0.5, 1.0)
GOOD = 0.9
"""A new item is good if more training users like it than this share of the other items; training does not know."""
MAX_VISITORS = 1_000
Results = pl.DataFrame
"""One row per split and kind of knowledge or amount of exploring."""


@dataclass(frozen=True, eq=False)
class Visitors:
    """People with what they like of a catalog's items (n_users, n_items), and keys for their random numbers."""

    liked: Booleans
    keys: NDArray[np.uint64]

    @classmethod
    def of(cls, people: Dataset, order: Integers) -> "Visitors":
        """Return the people of a data set; column n of what they like is item order[n]."""
        liked = np.zeros((people.n_users, people.n_items), dtype=bool)
        liked[people.users, people.items] = True
        return cls(liked[:, order], user_keys(people.user_ids.tolist()))

    def react(self, slates: Slates) -> Evidence:
        """Return what everybody teaches who looks at everything and clicks what they like."""
        clicks = np.take_along_axis(self.liked, np.maximum(slates.items, 0), axis=1) & (slates.items >= 0)
        return Evidence.of_clicks(slates.items, clicks)


def run(dataset: Dataset, splits: range, workers: int = 1, on_split: Callable[[], None] | None = None) -> Results:
    """Run everything on random splits of users and items, given by their seeds."""
    if round(dataset.n_items * HIDDEN_SHARE) < ROUNDS * K:
        raise DataError(f"{dataset.name} has {dataset.n_items} items; newcomers needs {ROUNDS * K / HIDDEN_SHARE:g}")
    with make_workers(workers, None, on_split or (lambda: None)) as pool:
        data = pool.share(MemoryBroadcast.of(dataset))
        parts = pool.map([(run_split, data, seed) for seed in splits])
    return pl.DataFrame([row for part in parts for row in part], infer_schema_length=None)


def run_split(dataset: Dataset, seed: int) -> list[dict[str, Any]]:
    """Run one split; return its rows."""
    training, test = dataset.split(TEST_SHARE, seed)
    known = [{"split": seed, "known": name, "p@10": value} for name, value in knowing(training, test, seed).items()]
    return [*known, *({"split": seed, **row} for row in exploring(training, test, seed))]


def knowing(training: Dataset, test: Dataset, seed: int) -> dict[str, float]:
    """Return P@10 among hidden items by what is known of them."""
    order, n_warm = hide(training.n_items, HIDDEN_SHARE, seed)
    policy = Calibrated(with_newcomers(training, order, n_warm), diversity=0.0)
    people = Visitors.of(test, order)
    is_warm = np.arange(len(order)) < n_warm
    state = warm(policy, people, is_warm, seed)
    precisions = {
        "nothing": float(people.liked[:, ~is_warm].mean()),
        "content": precision(policy, state, people, ~is_warm),
    }
    visitors = Visitors.of(_some(training), order)
    tastes = warm(policy, visitors, is_warm, seed)
    for count in IMPRESSIONS:
        shown = policy.with_rates(policy.current.after(impressions(policy, tastes, visitors, (n_warm, count, seed))))
        precisions[f"{count} impressions"] = precision(shown, state, people, ~is_warm)
    trained = Calibrated(train(take_items(training, order)), diversity=0.0)
    precisions["trained"] = precision(trained, warm(trained, people, is_warm, seed), people, ~is_warm)
    return precisions


def exploring(training: Dataset, test: Dataset, seed: int) -> list[dict[str, Any]]:
    """Return for each amount of exploring P@50 in a catalog that grows, and the share of good new items found."""
    order, n_warm = hide(training.n_items, NEW_SHARE * ROUNDS, seed)
    catalog, people = with_newcomers(training, order, n_warm), Visitors.of(test, order)
    likes = np.bincount(training.items, minlength=training.n_items)[order] / training.n_users
    threshold = float(np.quantile(likes[:n_warm], GOOD))
    is_good = likes[n_warm:] >= threshold
    rows = []
    for explore in EXPLORE:
        clicks, rates = live(Calibrated(catalog, diversity=0.0, explore=explore), people, n_warm, seed)
        is_found = rates.mean[n_warm:][is_good] >= threshold
        rows.append({"explore": explore, "p@50": float(clicks[:ROUNDS].mean()), "found": float(is_found.mean())})
    return rows


def live(policy: Calibrated, people: Visitors, n_warm: int, seed: int) -> tuple[NDArray[np.float64], Rates]:
    """Let everybody react to slates while items arrive and rates are learned; return the click rate by round."""
    n_users, n_items = people.liked.shape
    arrival = np.concatenate([np.zeros(n_warm), np.arange(n_items - n_warm) * ROUNDS // (n_items - n_warm)])
    state, evidence = policy.start(n_users), RateEvidence.nothing(n_items)
    is_shown, clicks, current = np.zeros(people.liked.shape, dtype=bool), np.zeros(LONG), policy
    for number in range(LONG):
        available = ~is_shown & (arrival <= number)
        slates = current.select(state, available, K, Streams(seed, people.keys, number))
        taught = people.react(slates)
        clicks[number] = taught.value.mean()
        evidence = add_slates(evidence, current.current, slates, taught)
        state = policy.update(state, taught)
        np.put_along_axis(is_shown, slates.items, True, axis=1)
        current = policy.with_rates(policy.current.after(evidence))
    return clicks, current.current


def add_slates(evidence: RateEvidence, rates: Rates, slates: Slates, taught: Evidence) -> RateEvidence:
    """Add what slates teach about rates: taste explains what was expected of a person beyond the rate."""
    explained = slates.probability - rates.mean[np.maximum(slates.items, 0)]
    return evidence.added(taught.items, taught.examined, taught.value, explained)


def hide(n_items: int, share: float, seed: int) -> tuple[Integers, int]:
    """Return an order of items in which those that stay come first, and their number."""
    shuffled = np.random.default_rng([seed, n_items]).permutation(n_items)
    n_hidden = round(n_items * share)
    return np.concatenate([np.sort(shuffled[n_hidden:]), np.sort(shuffled[:n_hidden])]), n_items - n_hidden


def with_newcomers(training: Dataset, order: Integers, n_warm: int) -> Catalog:
    """Train on the first items of an order, and add the others by their content."""
    hidden = order[n_warm:]
    names = np.array(training.category_names)
    return train(take_items(training, order[:n_warm])).with_items(
        training.item_ids[hidden].tolist(),
        titles=[training.titles[item] for item in hidden.tolist()],
        categories=[names[training.categories[item]].tolist() for item in hidden.tolist()],
    )


def train(training: Dataset) -> Catalog:
    """Train what the policy needs: rates and tastes; it uses no other vectors."""
    factors = Factors(np.ones((training.n_users, 1)), np.ones((training.n_items, 1)))
    return Catalog.from_factors(training, factors, {"method": "none"})


def take_items(dataset: Dataset, items: Integers) -> Dataset:
    """Keep only some items, in a given order; all users stay, also those who like none of them."""
    numbers = np.full(dataset.n_items, -1, dtype=np.int32)
    numbers[items] = np.arange(len(items), dtype=np.int32)
    liked = numbers[dataset.items]
    kept = np.lexsort((liked, dataset.users))
    kept = kept[liked[kept] >= 0]
    return replace(
        dataset,
        item_ids=dataset.item_ids[items],
        titles=tuple(dataset.titles[item] for item in items.tolist()),
        categories=dataset.categories[items],
        users=dataset.users[kept],
        items=liked[kept],
    )


def warm(policy: Calibrated, people: Visitors, is_warm: Booleans, seed: int) -> State:
    """Return what is known about people after five slates of the items that were there before."""
    available = np.tile(is_warm, (len(people.liked), 1))
    state = policy.start(len(people.liked))
    for number in range(ROUNDS):
        slates = policy.select(state, available, K, Streams(seed, people.keys, number))
        state = policy.update(state, people.react(slates))
        np.put_along_axis(available, slates.items, False, axis=1)
    return state


def impressions(policy: Calibrated, state: State, visitors: Visitors, numbers: tuple[int, int, int]) -> RateEvidence:
    """Show every new item to so many people, drawn at random."""
    n_warm, count, seed = numbers
    random, n_users = np.random.default_rng([seed, count]), len(visitors.liked)
    new = np.arange(n_warm, visitors.liked.shape[1])
    seen_by = np.argpartition(random.random((len(new), n_users)), min(count, n_users - 1), axis=1)[:, :count]
    items = np.repeat(new[:, None], seen_by.shape[1], axis=1)
    mean = np.linalg.solve(state["precision"], state["shift"][..., None])[..., 0]
    explained = np.einsum("icd,id->ic", mean[seen_by], policy.tastes_now[new].astype(np.float64))
    clicked = visitors.liked[seen_by, items].astype(np.float64)
    nothing = RateEvidence.nothing(visitors.liked.shape[1])
    return nothing.added(items, np.ones(items.shape), clicked, explained)


def precision(policy: Calibrated, state: State, people: Visitors, is_offered: Booleans) -> float:
    """Return P@10 of the next slate if only some items are offered."""
    available = np.tile(is_offered, (len(people.liked), 1))
    return float(people.react(policy.select(state, available, K, Streams(0, people.keys, ROUNDS))).value.mean())


def _some(training: Dataset) -> Dataset:
    if training.n_users <= MAX_VISITORS:
        return training
    return training.take(np.linspace(0, training.n_users - 1, MAX_VISITORS).astype(np.int64))


def summary(results: Results) -> list[dict[str, Any]]:
    """Return `known, p@10, sd` and `explore, p@50, sd, found` over splits."""
    known = results.filter(pl.col("known").is_not_null()).group_by("known", maintain_order=True)
    explored = results.filter(pl.col("explore").is_not_null()).group_by("explore", maintain_order=True)
    return [
        *known.agg(pl.col("p@10").mean(), sd=pl.col("p@10").std(ddof=1)).to_dicts(),
        *explored.agg(pl.col("p@50").mean(), sd=pl.col("p@50").std(ddof=1), found=pl.col("found").mean()).to_dicts(),
    ]


def as_json(results: Results, dataset: Dataset) -> dict[str, Any]:
    """Return the rows as a JSON document."""
    return {"dataset": dataset.name, "splits": results["split"].n_unique(), "rows": summary(results)}


def sections(results: Results, dataset: Dataset) -> tuple[Section, ...]:
    """Return the report."""
    rows = summary(results)
    prose = (
        f"{HIDDEN_SHARE:.0%} of the items are hidden from training and added by categories and words of their titles. "
        f"P@{K} is that of a slate of hidden items only, for test users whose taste is known from five slates of the "
        "others. Impressions are those of random training users, net of their tastes.",
        f"Exploring: {NEW_SHARE:.0%} of the catalog is new in each of the first five rounds, test users learn together "
        f"what is liked, P@{ROUNDS * K} counts these rounds; found is the share of good new items (as liked as the "
        f"best tenth) whose believed rate says so after {LONG} slates each.",
    )
    tables = (known_table(rows, dataset.name), exploring_table(rows, dataset.name))
    return (Section("Items that come after training", prose, tables, (known_figure(rows, dataset.name),)),)
