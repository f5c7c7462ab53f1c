"""The catalog that is served now: its items by id, and the policies that choose from it."""

import hashlib
import json
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from slatewise.catalog import Catalog, CatalogError
from slatewise.evidence import Evidence
from slatewise.plugins import PluginError
from slatewise.policies import POLICIES, Available, Policy, State, make_policy
from slatewise.randomness import Streams, user_keys
from slatewise.recommender.types import PolicyShare, RequestError
from slatewise.store.protocol import ItemId

Integers = NDArray[np.int64]

LABELS_CACHED = 20_000
POPULAR_SHARE = 0.1
SALT = "policy of "


@dataclass(frozen=True, eq=False)
class ServedPolicy:
    """A policy on the served catalog, under the name that slates are logged with.

    key identifies the policy, its options and the catalog: beliefs with another key are rebuilt from the log.
    """

    name: str
    policy: Policy
    key: str

    @cached_property
    def start(self) -> State:
        """The state of a user never seen before; nobody may change it."""
        return self.policy.start(1)

    def learn(self, state: State, items: Integers, clicks: NDArray[np.bool_]) -> State:
        """Return the state after a slate of these item numbers, −1 where the catalog no longer has the item."""
        return self.policy.update(state, Evidence.of_clicks(items[None], clicks[None]))

    def with_diversity(self, diversity: float | None) -> Policy:
        """Return the policy at another diversity; the same if None is given or it has no such option."""
        adjust = getattr(self.policy, "with_diversity", None)
        return self.policy if diversity is None or adjust is None else adjust(diversity)


class ServedCatalog:
    """A catalog with everything that choosing slates from it needs; policies are prepared when first used."""

    def __init__(self, catalog: Catalog, shares: Mapping[str, PolicyShare]) -> None:
        self.catalog = catalog
        self.digest = catalog_digest(catalog)
        self.label = lru_cache(LABELS_CACHED)(self._label)
        self.n_items = catalog.n_items
        self._shares = shares
        self._policies: dict[str, ServedPolicy] = {}
        self._members: dict[str, Integers] = {}

    def policy(self, name: str) -> ServedPolicy:
        """Return a policy by name, prepared for serving by two slates and what they teach if it is used first."""
        if name not in self._policies:
            policy = self._make(name)
            everything, state = Available.of(self.n_items), policy.start(1)
            for step in range(2):
                slates = policy.select(state, everything, 1, Streams(0, user_keys([""]), step))
                state = policy.update(state, Evidence.of_clicks(slates.items, np.zeros((1, 1), dtype=np.bool_)))
            self._policies.setdefault(name, ServedPolicy(name, policy, self._key(name, policy)))
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
        return tuple(name for name in dict.fromkeys([*self._shares, *POLICIES]) if self._can_make(name))

    @cached_property
    def popular_log_odds(self) -> float:
        """The log-odds from which on an item is among the most liked tenth."""
        return float(np.quantile(self.catalog.log_odds, 1.0 - POPULAR_SHARE))

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

    def _label(self, number: int) -> tuple[ItemId, str, tuple[str, ...]]:
        """Return id, title and categories of an item; callers know ids as integers or text."""
        item = self.catalog.item_ids[number]
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

    def _make(self, name: str) -> Policy:
        entry = self._shares.get(name, PolicyShare(name))
        if not isinstance(entry.policy, str):
            return on_catalog(entry.policy, self.catalog)
        if entry.policy not in POLICIES:
            raise RequestError(f"there is no policy of that name; choose one of {', '.join(POLICIES)}")
        try:
            return make_policy(entry.policy, self.catalog, **entry.options)
        except CatalogError as error:
            raise RequestError(
                f"{name} needs co-likes, which this catalog does not have; train it with catalog.with_co_likes(dataset)"
            ) from error

    def _can_make(self, name: str) -> bool:
        try:
            self._make(name)
        except (RequestError, PluginError):
            return False
        return True

    def _key(self, name: str, policy: Policy) -> str:
        entry = self._shares.get(name, PolicyShare(name))
        kind = entry.policy if isinstance(entry.policy, str) else policy_name(policy)
        described = json.dumps([kind, _options(policy), self.digest], sort_keys=True, default=str)
        return hashlib.sha256(described.encode()).hexdigest()[:32]


def policy_shares(policy: str | Policy | Mapping[str, float | PolicyShare]) -> dict[str, PolicyShare]:
    """Return the policies to serve by name; shares must be positive and sum to 1."""
    if isinstance(policy, str):
        return {policy: PolicyShare(policy)}
    if not isinstance(policy, Mapping):
        return {policy_name(policy): PolicyShare(policy)}
    shares = {name: _share(name, given) for name, given in policy.items()}
    if not shares or not all(0.0 < entry.share <= 1.0 for entry in shares.values()):
        raise ValueError(f"policies are {dict(policy)}; give each a share above 0 and up to 1")
    total = sum(entry.share for entry in shares.values())
    if abs(total - 1.0) > 1e-6:
        raise ValueError(f"the shares of the policies sum to {total:g}; make them sum to 1")
    return shares


def _share(name: str, given: float | PolicyShare) -> PolicyShare:
    return given if isinstance(given, PolicyShare) else PolicyShare(name, given)


def policy_name(policy: Policy) -> str:
    """Return the name of a policy object: the one it is registered under, else that of its class."""
    kind = type(policy)
    return next((name for name in POLICIES.built_in if POLICIES[name] is kind), kind.__name__)


def on_catalog(policy: Policy, catalog: Catalog) -> Policy:
    """Return a policy object with the same options on another catalog."""
    if policy.catalog is catalog:
        return policy
    if not is_dataclass(policy) or isinstance(policy, type):
        raise RequestError(f"{policy_name(policy)} is no dataclass, so it cannot be moved to another catalog")
    return replace(policy, catalog=catalog)


def _options(policy: Policy) -> dict[str, Any]:
    """Return the options of a policy object by name; all attributes if it is no dataclass."""
    names = [field.name for field in fields(policy)] if is_dataclass(policy) else [*vars(policy)]
    return {name: getattr(policy, name) for name in names if name != "catalog"}


def catalog_digest(catalog: Catalog) -> str:
    """Return a short hash of everything in a catalog that beliefs depend on."""
    digest = hashlib.sha256()
    ids = catalog.item_ids.values
    parts = [ids.buffer, ids.ends] if not isinstance(ids, np.ndarray) else [ids]
    for array in (*parts, catalog.vectors, catalog.taste_vectors, catalog.log_odds, catalog.population_mean):
        digest.update(str((array.shape, array.dtype)).encode())
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()[:32]
