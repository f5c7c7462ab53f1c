"""What policies share that score items by what a user liked so far: state, update, choice.

Such a policy has a method `scores(state)`, the options `diversity` and `rerank`, and these functions as its methods.
"""

from dataclasses import replace
from importlib.util import find_spec
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from slatewise.catalog import Catalog, CatalogError
from slatewise.compiled import compiled
from slatewise.evidence import Evidence
from slatewise.policies.protocol import Booleans, Floats, Integers, Slates, State, check_choice, check_share, sigmoid
from slatewise.policies.reranking import RERANKERS, Reranker
from slatewise.randomness import Streams
from slatewise.slates import Available

LEAST = 1e-9
"""Weights below this are what rounding leaves of evidence that was taken back."""

STRIP = 512
"""Columns that are added up at a time."""

TRAINING_DATA = {"co_likes": "co-likes", "likes": "the likes of its training users"}
"""What a catalog can hold beyond what every catalog holds."""


class ScoringPolicy(Protocol):
    """A policy whose slates are scores, re-ranked for variety."""

    @property
    def catalog(self) -> Catalog:
        """The items to choose from."""

    @property
    def reranker(self) -> Reranker:
        """What makes slates varied."""

    def scores(self, state: State) -> Floats:
        """Return how relevant each item is to each user (n_users, n_items)."""


def training_data(catalog: Catalog, part: str, policy: str) -> NDArray[Any]:
    """Return a part of the training data, or say what adds it to a catalog."""
    data: NDArray[Any] | None = getattr(catalog, part)
    if data is None:
        raise CatalogError(
            f"{policy} needs {TRAINING_DATA[part]}, which this catalog does not hold; "
            f"train it with `slatewise train --policy {policy}`, or use catalog.with_{part}(dataset)"
        )
    return data


def require_scipy(policy: str) -> None:
    """Refuse a policy whose preparation needs scipy where it is not installed; numba's matrix product needs it, too."""
    if find_spec("scipy") is None:
        raise ModuleNotFoundError(f"{policy} needs scipy: pip install '.[train]' in the checkout")


def check_reranking(diversity: float, rerank: str) -> None:
    """Refuse a diversity outside 0 to 1 and a rule that does not exist."""
    check_share("diversity", diversity)
    check_choice("rerank", rerank, RERANKERS)


def make_reranker(policy: Any) -> Reranker:
    """Return the re-ranking that a policy's options ask for."""
    are_probabilities = getattr(policy, "scores_are_probabilities", False)
    return Reranker(policy.catalog, policy.diversity, policy.rerank, are_probabilities)


def with_diversity(policy: Any, diversity: float, rerank: str | None = None) -> Any:
    """Return the same policy with another diversity, or rule for it; what it names as `prepared` is shared."""
    other = replace(policy, diversity=diversity, rerank=rerank or policy.rerank)
    vars(other)[policy.prepared] = getattr(policy, policy.prepared)
    return other


def start_history(policy: ScoringPolicy, n_users: int) -> State:
    """Nothing has been liked."""
    return {"liked": np.zeros((n_users, policy.catalog.n_items)), "rounds": np.zeros(n_users, dtype=np.int64)}


def add_likes(_policy: object, state: State, evidence: Evidence) -> State:
    """Count every liked item; what was not liked is not told apart from what was not shown."""
    liked = added(state["liked"], evidence, evidence.weight * evidence.liked)
    return {"liked": liked, "rounds": evidence.count_rounds(state["rounds"])}


def added(sums: Floats, evidence: Evidence, amounts: Floats) -> Floats:
    """Return sums (n_users, n_items) with an amount (n_users, n) added for each item of the evidence."""
    result = sums.copy()
    users, columns = np.nonzero((evidence.items >= 0) & (amounts != 0.0))
    np.add.at(result, (users, evidence.items[users, columns]), amounts[users, columns])
    return result


def select_scored(
    policy: ScoringPolicy, state: State, available: Booleans | Available, k: int, random: Streams
) -> Slates:
    """Choose by the policy's scores, re-ranked for variety."""
    del random
    choice = policy.reranker.choose(policy.scores(state), state, available, k)
    unknown = np.full(choice.items.shape, np.nan)
    return Slates(choice.items, unknown, unknown, choice.variety)


def scores_from_weights(catalog: Catalog, liked: Floats, weights: Floats) -> Floats:
    """Return liked @ weights (n_users, n_items); popularity for those who liked nothing yet."""
    is_liked = liked > LEAST
    scores: Floats = np.where(is_liked.any(axis=1, keepdims=True), 0.0, sigmoid(catalog.log_odds))
    add_weighted_rows(np.where(is_liked, liked, 0.0), weights, scores)
    return scores


def add_weighted_rows(amounts: Floats, rows: Floats, sums: Floats) -> None:
    """Add amounts @ rows to sums, where most amounts (n_users, n_items) are 0."""
    users, items = np.nonzero(amounts)
    add_rows(users, items, amounts[users, items], rows, sums)


@compiled
def add_rows(users: Integers, items: Integers, amounts: Floats, rows: Floats, sums: Floats) -> None:
    """Add amounts[n] times the row items[n] to the sum of users[n], for all n; in strips that fit into the cache."""
    for start in range(0, rows.shape[1], STRIP):
        end = min(start + STRIP, rows.shape[1])
        for n in range(users.size):
            total, row = sums[users[n], start:end], rows[items[n], start:end]
            for column in range(end - start):
                total[column] += amounts[n] * row[column]


def keep_largest(weights: Floats, number: int) -> Floats:
    """Keep the largest entries of each column (n_items, n_items), so many; the others become 0.

    >>> keep_largest(np.array([[1.0, 5.0], [2.0, 4.0], [3.0, 6.0]]), 2).tolist()
    [[0.0, 5.0], [2.0, 0.0], [3.0, 6.0]]
    """
    n_dropped = len(weights) - number
    if n_dropped <= 0:
        return weights
    kept = np.zeros_like(weights)
    largest = np.argpartition(weights, n_dropped - 1, axis=0)[n_dropped:]
    np.put_along_axis(kept, largest, np.take_along_axis(weights, largest, axis=0), axis=0)
    return kept
