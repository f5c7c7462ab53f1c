"""The catalog that is served now: its items by id, and the policies that choose from it."""

import math
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from slatewise.catalog import Catalog
from slatewise.evidence import Attention, Evidence
from slatewise.policies import POLICIES, Available, Policy, Slates, State
from slatewise.randomness import Streams, user_keys
from slatewise.recommender.rules import LearningRules
from slatewise.recommender.served_policies import can_make, catalog_digest, make, policy_key
from slatewise.recommender.types import EXPLORING, POPULAR, SIMILAR, PolicyShare, RequestError, SlateItem
from slatewise.store.records import ItemId

Integers = NDArray[np.int64]

LABELS_CACHED = 20_000
POPULAR_SHARE = 0.1
SIMILAR_COSINE = 0.5
SALT = "policy of "


@dataclass(frozen=True, eq=False)
class ServedPolicy:
    """A policy on the served catalog, under the name that slates are logged with, and how it learns from the log.

    key identifies the policy, its options, the catalog and the rules: beliefs with another key are rebuilt.
    """

    name: str
    policy: Policy
    key: str
    rules: LearningRules

    @cached_property
    def described_rules(self) -> dict[str, Any]:
        """The rules as each slate is logged with."""
        return self.rules.described()

    @cached_property
    def start(self) -> State:
        """The state of a user never seen before; nobody may change it."""
        return self.policy.start(1)

    def with_diversity(self, diversity: float | None) -> Policy:
        """Return the policy at another diversity; the same if None is given or it has no such option."""
        adjust = getattr(self.policy, "with_diversity", None)
        return self.policy if diversity is None or adjust is None else adjust(diversity)


class ServedCatalog:
    """A catalog with everything that choosing slates from it needs; policies are prepared when first used."""

    def __init__(self, catalog: Catalog, shares: Mapping[str, PolicyShare], rules: LearningRules) -> None:
        self.catalog = catalog
        self.rules = rules
        self.digest = catalog_digest(catalog)
        self.label = lru_cache(LABELS_CACHED)(self._label)
        self.n_items = catalog.n_items
        self._shares = shares
        self._policies: dict[str, ServedPolicy] = {}
        self._members: dict[str, Integers] = {}
        self._others: dict[Attention, ServedCatalog] = {}

    def policy(self, name: str) -> ServedPolicy:
        """Return a policy by name, prepared for serving by two slates and what they teach if it is used first."""
        if name not in self._policies:
            entry = self._shares.get(name, PolicyShare(name))
            policy = make(entry, self.catalog)
            self.rules.check(name, policy)
            everything, state = Available.of(self.n_items), policy.start(1)
            for step in range(2):
                slates = policy.select(state, everything, 1, Streams(0, user_keys([""]), step))
                state = policy.update(state, Evidence.of_clicks(slates.items, np.zeros((1, 1), dtype=np.bool_)))
            key = policy_key(entry, policy, self.digest, self.rules)
            self._policies.setdefault(name, ServedPolicy(name, policy, key, self.rules))
        return self._policies[name]

    def assigned_policy(self, user: str) -> str:
        """Return the policy of a user by a stable hash: the same on every machine and after every restart."""
        if len(self._shares) == 1:
            return next(iter(self._shares))
        position = int(user_keys([SALT + user])[0]) / 2**64
        below = 0.0
        for name, entry in self._shares.items():
            below += entry.share
            if position < below:
                return name
        return list(self._shares)[-1]

    @cached_property
    def policy_names(self) -> tuple[str, ...]:
        """The policies that can be asked for by name: those with a share, then all others that this catalog allows."""
        names = dict.fromkeys([*self._shares, *POLICIES])
        return tuple(
            name for name in names if can_make(self._shares.get(name, PolicyShare(name)), self.catalog, self.rules)
        )

    @cached_property
    def popular_log_odds(self) -> float:
        """The log-odds from which on an item is among the most liked tenth."""
        return float(np.quantile(self.catalog.log_odds, 1.0 - POPULAR_SHARE))

    def with_attention(self, attention: Attention) -> "ServedCatalog":
        """Return the same catalog, served with another attention; the same object for the present one."""
        if attention == self.rules.attention:
            return self
        if attention not in self._others:
            self._others[attention] = ServedCatalog(
                self.catalog, self._shares, replace(self.rules, attention=attention)
            )
        return self._others[attention]

    def policy_of(self, key: str) -> ServedPolicy | None:
        """Return the policy that a belief with this key belongs to, if there is one."""
        return next((policy for policy in map(self.policy, self.policy_names) if policy.key == key), None)

    def numbers(self, ids: Iterable[ItemId]) -> Integers:
        """Return the numbers of items by id, −1 for those that this catalog does not have."""
        wanted, known = list(ids), self.catalog.item_ids.values
        if isinstance(known, np.ndarray) and all(type(item) is int and abs(item) < 2**63 for item in wanted):
            numbers = np.array(wanted, dtype=np.int64)
            positions = np.minimum(np.searchsorted(known, numbers), len(known) - 1)
            return np.where(known[positions] == numbers, positions, -1)
        positions_or_none = (self.catalog.item_ids.find(self._as_stored(item)) for item in wanted)
        return np.array([-1 if position is None else position for position in positions_or_none], dtype=np.int64)

    def require_numbers(self, ids: Iterable[ItemId], what: str) -> Integers:
        """Return the numbers of items by id; an id that is not in the catalog is an error."""
        numbers = self.numbers(ids)
        if (numbers < 0).any():
            position = int(np.flatnonzero(numbers < 0)[0])
            raise RequestError(f"the item at position {position} of {what} is not in the catalog")
        return numbers

    def members(self, category: str) -> Integers:
        """Return the numbers of the items of a category, ascending."""
        if category not in self.catalog.category_names:
            raise RequestError("a requested category is not in the catalog; GET /v1/catalog lists them")
        if category not in self._members:
            column = self.catalog.categories[:, self.catalog.category_names.index(category)]
            self._members[category] = np.flatnonzero(column)
        return self._members[category]

    def title_and_categories(self, item: ItemId) -> tuple[str, tuple[str, ...]]:
        """Return title and categories of an item; of one that this catalog does not have, the id and none."""
        number = int(self.numbers([item])[0])
        return (str(item), ()) if number < 0 else self.label(number)[1:]

    def _label(self, number: int) -> tuple[ItemId, str, tuple[str, ...]]:
        """Return id, title and categories of an item; callers know ids as integers or text."""
        known = self.catalog.item_ids.values
        item = int(known[number]) if isinstance(known, np.ndarray) else self.catalog.item_ids[number]
        plain = str(item) if isinstance(item, uuid.UUID) else item
        names = self.catalog.category_names
        categories = tuple(names[index] for index in np.flatnonzero(self.catalog.categories[number]).tolist())
        return plain, self.catalog.titles[number], categories

    def _as_stored(self, item: ItemId) -> object:
        if self.catalog.item_ids.kind != "uuid" or not isinstance(item, str):
            return item
        try:
            return uuid.UUID(item)
        except ValueError:
            return item


def describe(served: ServedCatalog, chosen: Slates, liked: tuple[int, ...]) -> tuple[SlateItem, ...]:
    """Return the items of a chosen slate with titles, categories, probabilities and reasons."""
    numbers = chosen.items[0][chosen.items[0] >= 0]
    columns = zip(
        numbers.tolist(),
        _finite(chosen.probability[0]),
        _finite(chosen.deviation[0]),
        chosen.diversity_gain[0].tolist(),
        reasons(served, numbers, liked),
        strict=False,
    )
    items = []
    for number, probability, deviation, gain, (reason, source) in columns:
        item, title, categories = served.label(number)
        because = (None, None) if source is None else served.label(source)[:2]
        items.append(SlateItem(item, title, categories, probability, deviation, gain, reason, *because))
    return tuple(items)


def reasons(served: ServedCatalog, numbers: Integers, liked: tuple[int, ...]) -> list[tuple[str, int | None]]:
    """Return the reason for each item, and the number of the liked item that it is similar to, if that is the reason.

    Similar means a cosine of taste vectors of at least SIMILAR_COSINE; popular is the most liked tenth of the catalog.
    """
    catalog = served.catalog
    result: list[tuple[str, int | None]] = [
        (POPULAR if odds >= served.popular_log_odds else EXPLORING, None) for odds in catalog.log_odds[numbers].tolist()
    ]
    if not liked:
        return result
    known = np.array(liked)
    cosines = _units(catalog.taste_vectors[numbers]) @ _units(catalog.taste_vectors[known]).T
    closest = cosines.argmax(axis=1)
    for position in np.flatnonzero(cosines[np.arange(len(numbers)), closest] >= SIMILAR_COSINE).tolist():
        result[position] = (SIMILAR, int(known[closest[position]]))
    return result


def _units(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    lengths = np.sqrt(np.einsum("ij,ij->i", vectors, vectors))
    return np.asarray(vectors / np.where(lengths > 0.0, lengths, 1.0)[:, None])


def mean_distance(categories: NDArray[np.bool_]) -> float:
    """Return the mean of 1 − Jaccard similarity over pairs of category sets (n_items, n_categories); 0 for one item.

    Items without categories share nothing.
    """
    n_items = len(categories)
    if n_items < 2:
        return 0.0
    sets = categories.astype(np.float64)
    shared, sizes = sets @ sets.T, sets.sum(axis=1)
    similarity = shared / np.maximum(sizes[:, None] + sizes[None, :] - shared, 1.0)
    return float(1.0 - (similarity.sum() - np.trace(similarity)) / (n_items * (n_items - 1)))


def _finite(values: NDArray[np.float64]) -> Iterable[float | None]:
    return (value if math.isfinite(value) else None for value in values.tolist())
