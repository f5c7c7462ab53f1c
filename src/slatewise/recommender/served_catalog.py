"""The catalog that is served now: its items by id, and the policies that choose from it."""

import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache, partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from slatewise.belief.rates import Rates
from slatewise.catalog import Catalog
from slatewise.catalog.identifiers import people_title
from slatewise.evidence import Attention, Evidence
from slatewise.policies import POLICIES, Available, Policy, State
from slatewise.randomness import Streams, user_keys
from slatewise.recommender.assignment import SALT, Experiment, at_position, position
from slatewise.recommender.items import ItemSnapshot, UntrainedItems
from slatewise.recommender.rules import LearningRules
from slatewise.recommender.served_policies import (
    can_make,
    catalog_digest,
    learned_categories,
    make,
    policy_key,
    policy_name,
    with_skip_weight,
)
from slatewise.recommender.types import PolicyShare, Rate, RatedItem, RequestError
from slatewise.recommender.wishes import Directions
from slatewise.slates.kernels import read_only
from slatewise.store.records import ItemId

if TYPE_CHECKING:
    from slatewise.recommender.item_attributes import ItemAttributes

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

LABELS_CACHED = 20_000
SHADOW = "(shadow)"
"""Where the shadow is kept among the policies, so that it follows the rates of items."""
POPULAR_SHARE = 0.1
PROBABILITY_DIGITS, EXPLAINED_DIGITS = 7, 4
NOBODY = user_keys([""])
"""Seeds the random numbers of slates that are not for anybody."""


@dataclass(frozen=True, eq=False)
class ServedPolicy:
    """A policy on the served catalog, under the name that slates are logged with, and how it learns from the log.

    key identifies the policy, its options, the catalog and the rules: beliefs with another key are rebuilt. So are
    those of users who met one of the untrained items before its content was what it is now. Rates of items are
    published under a version; they change what is chosen, and nothing that is learned about a user.
    """

    name: str
    policy: Policy
    key: str
    rules: LearningRules
    untrained: UntrainedItems
    version: int = 0

    def with_rates(self, rates: Rates | None, version: int) -> "ServedPolicy":
        """Return the policy choosing by published rates; the same if it knows none, or chooses by these already.

        A slate is chosen at once, so that nobody who is served has to wait for what is prepared by the first one.
        """
        adjust = getattr(self.policy, "with_rates", None)
        if rates is None or adjust is None or version == self.version:
            return self
        adjusted: Policy = adjust(rates)
        adjusted.select(self.start, Available.of(len(rates.mean)), 1, Streams(0, NOBODY, 0))
        return self._with_policy(adjusted, version)

    def _with_policy(self, policy: Policy, version: int) -> "ServedPolicy":
        """Return what is served with another policy that learns the same; what depends on the training only is kept."""
        other = replace(self, policy=policy, version=version)
        vars(other).update({name: vars(self)[name] for name in ("start", "directions") if name in vars(self)})
        return other

    def with_items(self, items: ItemSnapshot) -> "ServedPolicy | None":
        """Return the policy on a catalog in which some items changed; None if it has to be prepared again.

        If rates were published, it waits for those of the items that changed.
        """
        adjust = getattr(self.policy, "with_items", None)
        if adjust is None:
            return None
        other = self._with_policy(adjust(items.catalog, items.changed), -1 if self.version else 0)
        vars(other)["untrained"] = items.untrained
        return other

    @cached_property
    def choosing_options(self) -> dict[str, float]:
        """The options that no belief depends on, as each slate is logged with; without slates that explore, one."""
        names = getattr(self.policy, "choosing_options", ("explore",))
        options = {name: getattr(self.policy, name, 0.0) for name in names}
        return {name: value for name, value in options.items() if value or name == "explore"}

    def exploring(self, logged: Mapping[str, Any]) -> "ServedPolicy":
        """Return the policy with the options that a slate was logged with, before any rates; the same if it has them.

        An option that a log does not have was 0.
        """
        names = getattr(self.policy, "choosing_options", ())
        options = {name: logged.get(name, 0.0) for name in names}
        if all(getattr(self.policy, name) == value for name, value in options.items()):
            return self
        other: Any = self.policy
        return replace(self, policy=replace(other, **options), version=-1)

    @cached_property
    def exact(self) -> "ServedPolicy | None":
        """The policy that chooses exactly, if this one does not."""
        policy: Any = self.policy
        if not getattr(policy, "is_approximate", False):
            return None
        return self._with_policy(policy.with_approximate(0.0), self.version)

    @property
    def rates(self) -> Rates | None:
        """The rates that the policy chooses by; None if it knows none."""
        rates = getattr(self.policy, "current", None)
        return rates if isinstance(rates, Rates) else None

    def explained(self, numbers: Integers, probabilities: Floats) -> list[float] | None:
        """Return what taste adds to the rates of chosen items, by the policy's own probabilities of likes (k,).

        None if the policy knows no rates.
        """
        if self.rates is None:
            return None
        known = np.where(np.isfinite(probabilities), probabilities, 0.0).round(PROBABILITY_DIGITS)
        explained: list[float] = (known - self.rates.mean[numbers]).round(EXPLAINED_DIGITS).tolist()
        return explained

    @cached_property
    def described_rules(self) -> dict[str, Any]:
        """The rules as each slate is logged with."""
        return self.rules.described()

    @cached_property
    def start(self) -> State:
        """The state of a user never seen before; nobody may change it."""
        return self.policy.start(1)

    @cached_property
    def categories(self) -> NDArray[np.bool_]:
        """The categories of each item (n_items, n_categories), as kernels take them."""
        return read_only(self.policy.catalog.categories, np.bool_)

    @cached_property
    def directions(self) -> Directions | None:
        """Where taste for each category lies, for those who ask for more or less of one."""
        return Directions.of(self.policy)

    def with_diversity(self, diversity: float | None) -> Policy:
        """Return the policy at another diversity; the same if None is given or it has no such option."""
        adjust = getattr(self.policy, "with_diversity", None)
        return self.policy if diversity is None or adjust is None else adjust(diversity)


class ServedCatalog:
    """A catalog with everything that choosing slates from it needs; policies are prepared when first used."""

    def __init__(
        self, items: ItemSnapshot, shares: Mapping[str, PolicyShare], rules: LearningRules, digest: str | None = None
    ) -> None:
        self.items = items
        self.catalog = items.catalog
        self.rules = rules
        self.digest = digest or catalog_digest(items.catalog.trained)
        self.label = lru_cache(LABELS_CACHED)(partial(label_of, items.catalog))
        self.n_items = items.catalog.n_items
        self.shares = shares
        """The policies that were given shares of users, by name."""
        self._share_sizes = {name: entry.share for name, entry in shares.items()}
        self.experiment: Experiment | None = None
        self.shadow_entry: PolicyShare | None = None
        self._policies: dict[str, ServedPolicy] = {}
        self._members: dict[str, Integers] = {}
        self._others: dict[Attention, ServedCatalog] = {}
        self._rates: tuple[Rates | None, int] = (None, 0)

    def policy(self, name: str) -> ServedPolicy:
        """Return a policy by name, prepared for serving by two slates and what they teach if it is used first."""
        if name not in self._policies:
            self._policies.setdefault(name, self.prepare(name, self.shares.get(name, PolicyShare(name))))
        return self._policies[name]

    def prepare(self, name: str, entry: PolicyShare) -> ServedPolicy:
        """Return a policy that is prepared for serving under a name."""
        policy = with_skip_weight(make(entry, self.catalog), self.rules.attention.skip_weight)
        self.rules.check(name, policy)
        everything, state = Available.of(self.n_items), policy.start(1)
        for step in range(2):
            slates = policy.select(state, everything, 1, Streams(0, NOBODY, step))
            state = policy.update(state, Evidence.of_clicks(slates.items, np.zeros((1, 1), dtype=np.bool_)))
        key = policy_key(entry, policy, self.digest + learned_categories(policy), self.rules)
        served = ServedPolicy(name, policy, key, self.rules, self.items.untrained)
        return served.with_rates(*self._rates)

    @property
    def shadow(self) -> ServedPolicy | None:
        """The policy that is computed and logged but never shown."""
        if self.shadow_entry is None:
            return None
        if SHADOW not in self._policies:
            entry = self.shadow_entry
            name = entry.policy if isinstance(entry.policy, str) else policy_name(entry.policy)
            self._policies.setdefault(SHADOW, self.prepare(name, entry))
        return self._policies[SHADOW]

    def with_options(self, name: str, options: Mapping[str, Any]) -> ServedPolicy:
        """Return a policy with other options than it is served with; those that are not given stay."""
        known = self.shares.get(name, PolicyShare(name))
        return self.prepare(name, replace(known, options={**known.options, **options}))

    @property
    def rates(self) -> Rates:
        """The rates that slates are chosen by."""
        return self._rates[0] or Rates.of(self.catalog)

    def rate(self, item: ItemId) -> Rate | None:
        """Return what is believed about how many people click an item; None if it is not in the catalog."""
        number = int(self.numbers([item])[0])
        return None if number < 0 else self.rate_of(number, self.rates)

    @staticmethod
    def rate_of(number: int, rates: Rates) -> Rate:
        """Return one of these rates, with its interval."""
        share, observations = rates.clicks(number)
        return Rate(share, *rates.interval(number), observations)

    def use_rates(self, rates: Rates | None, version: int) -> None:
        """Choose by published rates from now on; slates that are being chosen keep theirs."""
        self._rates = (rates, version)
        for name, policy in [*self._policies.items()]:
            self._policies[name] = policy.with_rates(rates, version)

    def assigned_policy(self, user: str) -> str:
        """Return the policy of a user by a stable hash: the same on every machine and after every restart."""
        if self.experiment is not None:
            return self.experiment.policy_of(user, self._share_sizes)
        if len(self.shares) == 1:
            return next(iter(self.shares))
        return at_position(self._share_sizes, position(SALT, user))

    @cached_property
    def policy_names(self) -> tuple[str, ...]:
        """The policies that can be asked for by name: those with a share, then all others that this catalog allows."""
        names = dict.fromkeys([*self.shares, *POLICIES])
        return tuple(
            name for name in names if can_make(self.shares.get(name, PolicyShare(name)), self.catalog, self.rules)
        )

    @cached_property
    def popular_log_odds(self) -> float:
        """The log-odds from which on an item is among the most liked tenth, and more liked than half of all items."""
        median, highest = np.quantile(self.catalog.log_odds, [0.5, 1.0 - POPULAR_SHARE])
        return float(max(highest, np.nextafter(median, np.inf)))

    @cached_property
    def attributes(self) -> "ItemAttributes":
        """What conditions on items can be about."""
        from slatewise.recommender.item_attributes import ItemAttributes

        return ItemAttributes(self.catalog, self.items.frame)

    def with_attention(self, attention: Attention) -> "ServedCatalog":
        """Return the same catalog, served with another attention; the same object for the present one."""
        if attention == self.rules.attention:
            return self
        if attention not in self._others:
            rules = replace(self.rules, attention=attention)
            self._others[attention] = ServedCatalog(self.items, self.shares, rules, self.digest)
        return self._others[attention]

    def with_items(self, items: ItemSnapshot) -> "ServedCatalog":
        """Return the same trained catalog with another version of the item table.

        Policies stay the same, unless something changed that they choose or learn by.
        """
        served = ServedCatalog(items, self.shares, self.rules, self.digest)
        served.experiment, served.shadow_entry = self.experiment, self.shadow_entry
        arrays = ("vectors", "log_odds", "taste_vectors", "categories", "category_names")
        if all(getattr(items.catalog, name) is getattr(self.catalog, name) for name in arrays):
            served._policies, served._members, served._rates = self._policies, self._members, self._rates
            if "popular_log_odds" in vars(self):
                vars(served)["popular_log_odds"] = self.popular_log_odds
        elif items.changed_since == self.items.version:
            changes = ((name, policy.with_items(items)) for name, policy in self._policies.items())
            served._policies = {name: policy for name, policy in changes if policy is not None}
        return served

    def prepared(self) -> Mapping[str, ServedPolicy]:
        """Return the policies that were used so far, by name."""
        return self._policies

    def policy_of(self, key: str) -> ServedPolicy | None:
        """Return the policy that a belief with this key belongs to, if there is one."""
        return next((policy for policy in map(self.policy, self.policy_names) if policy.key == key), None)

    def numbers(self, ids: Iterable[ItemId]) -> Integers:
        """Return the numbers of items by id, −1 for those that this catalog does not have."""
        wanted, known = list(ids), self.catalog.item_ids.values
        if isinstance(known, np.ndarray) and all(type(item) is int and abs(item) < 2**63 for item in wanted):
            return self.catalog.item_ids.find_integers(np.array(wanted, dtype=np.int64))
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

    def _as_stored(self, item: ItemId) -> object:
        if self.catalog.item_ids.kind != "uuid" or not isinstance(item, str):
            return item
        try:
            return uuid.UUID(item)
        except ValueError:
            return item


def uncertain_items(served: ServedCatalog, limit: int, now: float) -> list[RatedItem]:
    """Return offered items that the least is known about: up to half new ones, then those of the least sure rate."""
    rates, n_trained = served.rates, served.items.untrained.n_trained
    offered = np.delete(np.arange(served.n_items), served.items.hidden(now))
    newest = offered[offered >= n_trained][::-1][: (limit + 1) // 2]
    others = np.setdiff1d(offered, newest, assume_unique=True)
    n_others = min(limit - len(newest), len(others))
    least_sure = np.argpartition(-rates.deviation[others], n_others - 1)[:n_others] if n_others else others[:0]
    ordered = sorted(others[least_sure].tolist(), key=lambda number: (-rates.deviation[number], number))
    return [
        RatedItem(*served.label(number)[:2], served.rate_of(number, rates), number >= n_trained)
        for number in (*newest.tolist(), *ordered)
    ]


def label_of(catalog: Catalog, number: int) -> tuple[ItemId, str, tuple[str, ...]]:
    """Return id, title and categories of an item; callers know ids as integers or text."""
    known = catalog.item_ids.values
    item = int(known[number]) if isinstance(known, np.ndarray) else catalog.item_ids[number]
    plain = str(item) if isinstance(item, uuid.UUID) else item
    categories = tuple(catalog.category_names[index] for index in np.flatnonzero(catalog.categories[number]).tolist())
    return plain, people_title(catalog.titles[number]), categories
