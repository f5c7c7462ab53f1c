"""One catalogue with the policies that choose from it: what must be rebuilt when either changes."""

import hashlib
import json
import uuid
from collections.abc import Iterable
from dataclasses import dataclass, fields
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

from slatewise.catalog import Catalog, CatalogError
from slatewise.policies import POLICIES, Available, Policy, Slates, State, make_policy
from slatewise.randomness import Streams, user_keys
from slatewise.recommender.reasons import Reasons
from slatewise.recommender.views import RequestError
from slatewise.store.protocol import ItemId

Integers = NDArray[np.int64]

LABELS_AT_HAND = 20_000


@dataclass(frozen=True, eq=False)
class Space:
    """A policy on a catalogue: beliefs of different spaces cannot be compared, only rebuilt from the log."""

    name: str
    policy: Policy
    key: str

    @cached_property
    def start(self) -> State:
        """The state of someone never seen before; nobody may change it."""
        return self.policy.start(1)

    def learn(self, state: State, items: Integers, clicks: NDArray[np.bool_]) -> State:
        """Return the state after a slate of these item numbers, −1 where the catalogue no longer has the item."""
        nothing = np.zeros((1, len(items)))
        return self.policy.update(state, Slates(items[None], nothing, nothing, nothing), clicks[None])


class Spaces:
    """All policies on one catalogue, made when first asked for."""

    def __init__(self, catalog: Catalog) -> None:
        self.catalog = catalog
        self.digest = catalog_digest(catalog)
        self._made: dict[str, Space] = {}
        self._members: dict[str, Integers] = {}
        self.reasons = Reasons(catalog)
        self.label = lru_cache(LABELS_AT_HAND)(self._label)

    def space(self, name: str) -> Space:
        """Return the space of a policy; the first time it is prepared for serving by two slates and what they teach."""
        if name not in self._made:
            policy = self._policy(name)
            options = {one.name: getattr(policy, one.name) for one in fields(policy) if one.name != "catalog"}  # type: ignore[arg-type]
            described = json.dumps([name, options, self.digest], sort_keys=True, default=str)
            everything, state = Available.of(self.catalog.n_items), policy.start(1)
            for step in range(2):
                trial = policy.select(state, everything, 1, Streams(0, user_keys([""]), step))
                state = policy.update(state, trial, np.zeros((1, 1), dtype=np.bool_))
            key = hashlib.sha256(described.encode()).hexdigest()[:32]
            self._made.setdefault(name, Space(name, policy, key))
        return self._made[name]

    @cached_property
    def likeness(self) -> str:
        """A short name for everything in the catalogue that slates are chosen by; beliefs depend on less."""
        categories = np.packbits(self.catalog.categories).tobytes()
        return hashlib.sha256(self.digest.encode() + categories).hexdigest()[:32]

    def has(self, space: Space) -> bool:
        """Whether a space is one of these, and not of another catalogue."""
        return self._made.get(space.name) is space

    def _policy(self, name: str) -> Policy:
        if name not in POLICIES:
            raise RequestError(f"there is no policy of that name; choose one of {', '.join(POLICIES)}")
        try:
            return make_policy(name, self.catalog)
        except CatalogError as error:
            raise RequestError(
                f"{name} needs what this catalogue does not carry: train it anew with catalog.with_co_likes(dataset)"
            ) from error

    @cached_property
    def usable(self) -> tuple[str, ...]:
        """Name the policies that can be made on this catalogue."""
        return tuple(name for name in POLICIES if self._can_make(name))

    def _can_make(self, name: str) -> bool:
        try:
            self._policy(name)
        except RequestError:
            return False
        return True

    def numbers(self, ids: Iterable[ItemId]) -> Integers:
        """Return the numbers of items by id, −1 for those that this catalogue does not have."""
        wanted, known = list(ids), self.catalog.item_ids.values
        if isinstance(known, np.ndarray) and all(type(one) is int and abs(one) < 2**63 for one in wanted):
            numbers = np.array(wanted, dtype=np.int64)
            places = np.minimum(np.searchsorted(known, numbers), len(known) - 1)
            return np.where(known[places] == numbers, places, -1)
        found = (self.catalog.item_ids.find(self._as_kept(one)) for one in wanted)
        return np.array([-1 if place is None else place for place in found], dtype=np.int64)

    def known_numbers(self, ids: Iterable[ItemId], what: str) -> Integers:
        """Return the numbers of items by id; one that is not in the catalogue is an error."""
        numbers = self.numbers(ids)
        if (numbers < 0).any():
            place = int(np.flatnonzero(numbers < 0)[0])
            raise RequestError(f"the item at place {place} of {what} is not in the catalogue")
        return numbers

    def _label(self, number: int) -> tuple[ItemId, str, tuple[str, ...]]:
        """Return id, title and categories of an item; the outside knows ids as integers or text."""
        found = self.catalog.item_ids[number]
        plain = str(found) if isinstance(found, uuid.UUID) else found
        return plain, self.catalog.titles[number], self.catalog.categories_of(number)

    def members(self, category: str) -> Integers:
        """Return the numbers of the items of a category, ascending."""
        if category not in self.catalog.category_names:
            raise RequestError("a category that was asked for is not in the catalogue; GET /v1/catalog lists them")
        if category not in self._members:
            column = self.catalog.categories[:, self.catalog.category_names.index(category)]
            self._members[category] = np.flatnonzero(column)
        return self._members[category]

    def _as_kept(self, one: ItemId) -> object:
        if self.catalog.item_ids.kind != "uuid" or not isinstance(one, str):
            return one
        try:
            return uuid.UUID(one)
        except ValueError:
            return one


def catalog_digest(catalog: Catalog) -> str:
    """Return a short name for everything in a catalogue that beliefs and slates depend on."""
    digest = hashlib.sha256()
    ids = catalog.item_ids.values
    parts = [ids.buffer, ids.ends] if not isinstance(ids, np.ndarray) else [ids]
    for array in (*parts, catalog.vectors, catalog.taste_vectors, catalog.log_odds, catalog.population_mean):
        digest.update(str((array.shape, array.dtype)).encode())
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()[:32]
