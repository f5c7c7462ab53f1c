"""From a person and a request to a slate: what may be shown, what is chosen, and why."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self, TypedDict

import numpy as np
from numpy.typing import NDArray

from slatewise.frozen import made
from slatewise.policies import Available, Policy
from slatewise.randomness import Streams, user_keys
from slatewise.recommender.people import NOTHING, Person
from slatewise.recommender.spaces import Spaces
from slatewise.recommender.views import REASONS, RequestError, SlateItem
from slatewise.slates import jaccard
from slatewise.store.protocol import ItemId

Integers = NDArray[np.int64]
Floats = NDArray[np.float64]

MOST_ITEMS = 500
LONGEST_ID = 256


class Wishes(TypedDict, total=False):
    """What can be asked of a slate besides its length; see `Recommender.recommend`."""

    diversity: float | None
    candidates: Iterable[ItemId] | None
    exclude: Iterable[ItemId] | None
    categories: Iterable[str] | None
    policy: str | None
    replaces: str | None


@dataclass(frozen=True)
class Request:
    """A slate that is asked for, checked."""

    user: str
    k: int = 10
    diversity: float | None = None
    candidates: tuple[ItemId, ...] | None = None
    exclude: tuple[ItemId, ...] | None = None
    categories: tuple[str, ...] | None = None
    policy: str | None = None
    replaces: str | None = None

    @property
    def is_special(self) -> bool:
        """Whether it wants more than a length, a diversity and a policy."""
        return not (
            self.candidates is None and self.exclude is None and self.categories is None and self.replaces is None
        )

    @classmethod
    def of(cls, user: str, k: int, wishes: Wishes) -> Self:
        """Take what iterables hold."""
        kept = {name: wishes.get(name) for name in ("diversity", "policy", "replaces")}
        lists = {name: wishes.get(name) for name in ("candidates", "exclude", "categories")}
        return cls(user, k, **kept, **{name: None if given is None else tuple(given) for name, given in lists.items()})  # type: ignore[arg-type]

    def __post_init__(self) -> None:
        check_id("user", self.user)
        if isinstance(self.k, bool) or not isinstance(self.k, int) or not 1 <= self.k <= MOST_ITEMS:
            raise RequestError(f"k must be a whole number from 1 to {MOST_ITEMS}")
        if self.diversity is not None and not 0.0 <= self.diversity <= 1.0:
            raise RequestError("diversity must lie between 0 (most relevant) and 1 (most varied)")


def check_id(name: str, value: str) -> None:
    """Refuse an id that is empty, too long, or holds what some store cannot keep."""
    if not isinstance(value, str) or not 1 <= len(value) <= LONGEST_ID:
        raise RequestError(f"{name} must be text of 1 to {LONGEST_ID} characters")
    if "\0" in value or (not value.isascii() and any("\ud800" <= one <= "\udfff" for one in value)):
        raise RequestError(f"{name} holds a character that cannot be stored (NUL or half of a surrogate pair)")


@dataclass(frozen=True, eq=False)
class Chosen:
    """A slate by item numbers, and why.

    probability, deviation and gains are what the policy says of each item; reasons are places in REASONS, near the
    liked items that they are close to, or −1.
    """

    numbers: Integers
    probability: Floats
    deviation: Floats
    gains: Floats
    reasons: Integers
    near: Integers
    variety: float


def choose(spaces: Spaces, person: Person, request: Request, seed: int) -> Chosen:
    """Choose a slate for one person."""
    policy = tuned(person.space.policy, request.diversity)
    random = Streams(seed, user_keys([request.user]), person.n_slates)
    slates = policy.select(person.state, available(spaces, person.shown, request), request.k, random)
    numbers = slates.items[0][slates.items[0] >= 0]
    count = len(numbers)
    if not count:
        raise RequestError("nothing is left to show: no item passes the candidates, categories and exclusions given")
    figures = (slates.probability[0, :count], slates.deviation[0, :count], slates.diversity_gain[0, :count])
    reasons, near = spaces.reasons.of(numbers, person.liked)
    return Chosen(numbers, *figures, reasons, near, variety(spaces.catalog.categories[numbers]))


def tuned(policy: Policy, diversity: float | None) -> Policy:
    """Turn the diversity knob of a policy that has one."""
    turn = getattr(policy, "with_diversity", None)
    return policy if diversity is None or turn is None else turn(diversity)


def available(spaces: Spaces, shown: Integers, request: Request) -> Available:
    """Return what may be shown: what was asked for, less what was shown; the oldest return when too little is left."""
    n_items = spaces.catalog.n_items
    wanted = _wanted(spaces, request)
    refused, seen = NOTHING, shown
    if request.exclude:
        refused = np.unique(spaces.numbers(request.exclude))
        refused = refused[refused >= 0]
        seen = shown[~np.isin(shown, refused)]
    if wanted is not None:
        refused = refused[_isin(refused, wanted)]
        seen = seen[_isin(seen, wanted)]
    n_wanted = (n_items if wanted is None else len(wanted)) - len(refused)
    missing = min(request.k, n_wanted) - (n_wanted - len(seen))
    return Available(n_items, np.concatenate([refused, seen[max(missing, 0) :]]), wanted)


def _wanted(spaces: Spaces, request: Request) -> Integers | None:
    """Return the candidates that also have one of the categories, ascending; None means everything."""
    wanted = None if request.candidates is None else np.unique(spaces.known_numbers(request.candidates, "candidates"))
    if request.categories is None:
        return wanted
    members = _union([spaces.members(name) for name in dict.fromkeys(request.categories)])
    return members if wanted is None else wanted[_isin(wanted, members)]


def _union(groups: list[Integers]) -> Integers:
    if not groups:
        return np.empty(0, dtype=np.int64)
    return groups[0] if len(groups) == 1 else np.unique(np.concatenate(groups))


def _isin(numbers: Integers, ascending: Integers) -> NDArray[np.bool_]:
    """Whether each number is in an ascending array, by bisection."""
    if not len(ascending):
        return np.zeros(len(numbers), dtype=np.bool_)
    places = np.minimum(np.searchsorted(ascending, numbers), len(ascending) - 1)
    return np.asarray(ascending[places] == numbers)


def present(spaces: Spaces, chosen: Chosen) -> tuple[SlateItem, ...]:
    """Describe chosen items."""
    columns = zip(
        chosen.numbers.tolist(),
        _finite(chosen.probability),
        _finite(chosen.deviation),
        chosen.gains.tolist(),
        chosen.reasons.tolist(),
        chosen.near.tolist(),
        strict=True,
    )
    return tuple(_described(spaces, *column) for column in columns)


def _described(
    spaces: Spaces,
    number: int,
    probability: float | None,
    deviation: float | None,
    gain: float,
    reason: int,
    near: int,
) -> SlateItem:
    item, title, categories = spaces.label(number)
    because, because_title = (None, None) if near < 0 else spaces.label(near)[:2]
    return made(
        SlateItem,
        id=item,
        title=title,
        categories=categories,
        probability=probability,
        deviation=deviation,
        diversity_gain=gain,
        reason=REASONS[reason],
        because=because,
        because_title=because_title,
    )


def variety(categories: NDArray[np.bool_]) -> float:
    """Return the mean of 1 − Jaccard similarity over pairs of category sets (n_items, n_categories), 0 without any."""
    n_items = len(categories)
    if n_items < 2:
        return 0.0
    similar = jaccard(categories)
    return float(1.0 - (similar.sum() - np.trace(similar)) / (n_items * (n_items - 1)))


def _finite(values: NDArray[np.float64]) -> Iterable[float | None]:
    return (value if math.isfinite(value) else None for value in values.tolist())
