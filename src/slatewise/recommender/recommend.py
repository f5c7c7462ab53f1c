"""One slate: a draft is chosen from what is known about the user, then recorded in one transaction.

Drafting reads and computes and may take its time in any thread. Recording is short. It finds out whether anything was
written about the user in the meantime; then nothing is recorded, and the slate is drafted again.
"""

import math
import secrets
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from slatewise.policies import Available, Slates
from slatewise.randomness import Streams
from slatewise.recommender.profile import (
    SAVE_EVERY,
    ProfileCache,
    UserProfile,
    clicked_items,
    close_open,
    learn_closed,
    load_profile,
)
from slatewise.recommender.served_catalog import Integers, ServedCatalog, ServedPolicy
from slatewise.recommender.types import EXPLORING, POPULAR, SIMILAR, RequestError, Slate, SlateItem
from slatewise.store.protocol import (
    OPEN,
    WITHDRAWN,
    ItemId,
    PolicyCounts,
    SlateRecord,
    Store,
    Transaction,
    UserRecord,
)

MAX_ITEMS = 500
MAX_ID_LENGTH = 256
SIMILAR_COSINE = 0.5
CLOCK_STEP = 1e-6
"""Seconds between two writes about a user, at least."""


@dataclass(frozen=True)
class SlateRequest:
    """A request for a slate; see `Recommender.recommend` for the fields. It is checked when it is created."""

    user: str
    k: int = 10
    diversity: float | None = None
    candidates: tuple[ItemId, ...] | None = None
    exclude: tuple[ItemId, ...] | None = None
    categories: tuple[str, ...] | None = None
    policy: str | None = None
    replaces: str | None = None

    def __post_init__(self) -> None:
        check_id("user", self.user)
        if isinstance(self.k, bool) or not isinstance(self.k, int) or not 1 <= self.k <= MAX_ITEMS:
            raise RequestError(f"k must be a whole number from 1 to {MAX_ITEMS}")
        if self.diversity is not None and not 0.0 <= self.diversity <= 1.0:
            raise RequestError("diversity must be between 0 (most relevant) and 1 (most varied)")


def check_id(name: str, value: str) -> None:
    """Refuse an id that is empty, too long, or contains what some store cannot keep."""
    if not isinstance(value, str) or not 1 <= len(value) <= MAX_ID_LENGTH:
        raise RequestError(f"{name} must be text of 1 to {MAX_ID_LENGTH} characters")
    if "\0" in value or (not value.isascii() and any("\ud800" <= letter <= "\udfff" for letter in value)):
        raise RequestError(f"{name} must not contain NUL or half of a surrogate pair")


@dataclass(frozen=True)
class Serving:
    """What recommending needs; replaced as a whole when the catalog changes."""

    served: ServedCatalog
    store: Store
    profiles: ProfileCache
    seed: int
    clock: Callable[[], float]

    def policy_for(self, request: SlateRequest) -> ServedPolicy:
        """Return the policy that a request is served by."""
        return self.served.policy(request.policy or self.served.assigned_policy(request.user))

    def next_time(self, user: UserRecord) -> float:
        """Return the time of a write: now, but later than everything else that was written about the user."""
        return max(self.clock(), user.updated_at + CLOCK_STEP)

    def save(self, transaction: Transaction, user: str, profile: UserProfile, now: float) -> None:
        """Write a user under a new version, with the belief if that is due, and cache the profile."""
        version, saved = secrets.token_hex(8), profile.saved
        if profile.covers - saved >= SAVE_EVERY:
            transaction.save_belief(profile.to_record(user))
            saved = profile.covers
        transaction.save_user(UserRecord(user, version, profile.n_slates, now))
        self.profiles.put(user, replace(profile, version=version, saved=saved))

    def count(self, transaction: Transaction, slate: SlateRecord, more: PolicyCounts) -> None:
        """Add to the counts of a policy; only where it was assigned, so that policies can be compared."""
        if slate.policy == self.served.assigned_policy(slate.user):
            transaction.count(slate.user, slate.policy, more)

    def close(self, transaction: Transaction, slate: SlateRecord, n_clicks: int) -> None:
        """Record that a slate was closed, and count it: what was not clicked counts as not engaged with."""
        transaction.update_slate(slate)
        self.count(transaction, slate, PolicyCounts(1, len(slate.items), n_clicks, slate.variety))


@dataclass(frozen=True, eq=False)
class Draft:
    """A slate that was chosen but not recorded yet, and what else recording it changes.

    closed: the user's slates that it closes, with the number of clicks on each; withdrawn: the slate that it replaces.
    The version of the profile is the oldest that any of this was read from.
    """

    request: SlateRequest
    served: ServedCatalog
    profile: UserProfile
    closed: tuple[tuple[SlateRecord, int], ...]
    withdrawn: SlateRecord | None
    numbers: Integers
    repeats: bool
    items: tuple[SlateItem, ...]
    variety: float


def draft_slate(serving: Serving, request: SlateRequest, transaction: Transaction | None = None) -> Draft:
    """Choose a slate for a user as known now, read within a transaction if one is given."""
    served, policy = serving.served, serving.policy_for(request)
    load = partial(_load, serving, transaction, request.user, policy)
    known = serving.profiles.get(request.user)
    if known is None or known.policy is not policy:
        known = load()
        serving.profiles.put(request.user, known)
    withdrawn = _withdrawn(serving, known, request)
    if withdrawn is not None:
        known = replace(load(without=withdrawn.slate_id), version=known.version)
    closing, closed = close_open(known, serving.clock())
    profile = learn_closed(closing, served)
    available, repeats = available_items(served, profile.shown, request)
    random = Streams(serving.seed, profile.random_key, profile.n_slates)
    chosen = policy.with_diversity(request.diversity).select(profile.state, available, request.k, random)
    numbers = chosen.items[0][chosen.items[0] >= 0]
    if not len(numbers):
        raise RequestError("nothing is left to show: no item passes the given candidates, categories and exclusions")
    items = describe(served, chosen, profile.liked)
    variety = mean_distance(served.catalog.categories[numbers])
    counted = tuple((slate, len(clicked_items(known.clicks.get(slate.slate_id, {})))) for slate in closed)
    return Draft(request, served, profile, counted, withdrawn, numbers, repeats, items, variety)


def record_slate(serving: Serving, transaction: Transaction, draft: Draft) -> Slate | None:
    """Record a draft, unless the catalog or anything about the user changed since it was chosen: then return None."""
    user = draft.request.user
    record = transaction.lock(user)
    if draft.served is not serving.served or record.version != draft.profile.version:
        serving.profiles.keep_only(user, record.version)
        return None
    return _write(serving, transaction, draft, serving.next_time(record))


def _write(serving: Serving, transaction: Transaction, draft: Draft, now: float) -> Slate:
    """Write a draft, and what it withdraws and closes, for a user who is locked and as the draft knows them."""
    user, profile = draft.request.user, draft.profile
    if draft.withdrawn is not None:
        transaction.update_slate(replace(draft.withdrawn, closed_at=now))
    for closed, n_clicks in draft.closed:
        serving.close(transaction, replace(closed, closed_at=now), n_clicks)
    slate = SlateRecord(
        slate_id=_new_id(now),
        user=user,
        number=profile.n_slates,
        created_at=now,
        catalog=draft.served.digest,
        policy=profile.policy.name,
        items=tuple(item.id for item in draft.items),
        variety=draft.variety,
    )
    transaction.add_slate(slate)
    serving.save(transaction, user, profile.with_slate(slate, draft.numbers, repeats=draft.repeats), now)
    return Slate(slate.slate_id, slate.user, slate.number, slate.policy, slate.variety, draft.items)


def draft_and_record(serving: Serving, transaction: Transaction, request: SlateRequest) -> Slate:
    """Choose a slate and record it while no other writer can change the user."""
    record = transaction.lock(request.user)
    serving.profiles.keep_only(request.user, record.version)
    return _write(serving, transaction, draft_slate(serving, request, transaction), serving.next_time(record))


def _load(
    serving: Serving, transaction: Transaction | None, user: str, policy: ServedPolicy, without: str | None = None
) -> UserProfile:
    def job(transaction: Transaction) -> UserProfile:
        record = transaction.lock(user)
        if record == UserRecord(user):
            return UserProfile.of_new_user(user, policy)
        return load_profile(transaction, record, serving.served, policy, without=without)

    profile = serving.store.read(job) if transaction is None else job(transaction)
    if profile.saved == 0 and profile.covers > SAVE_EVERY:
        serving.profiles.count_rebuilt()
    return profile


def _withdrawn(serving: Serving, profile: UserProfile, request: SlateRequest) -> SlateRecord | None:
    """Return the slate to replace, withdrawn, if it is still open and nobody clicked in it."""
    slate = None if request.replaces is None else profile.pending_slate(request.replaces)
    if slate is None or slate.status != OPEN or clicked_items(profile.clicks.get(slate.slate_id, {})):
        return None
    return slate.with_status(WITHDRAWN, serving.clock())


def _new_id(now: float) -> str:
    """Return an id that cannot be guessed but begins with the time, so that new ones are at the end of an index."""
    return f"{int(1000.0 * now) % 2**48:012x}{secrets.token_urlsafe(12)}"


def available_items(served: ServedCatalog, shown: Integers, request: SlateRequest) -> tuple[Available, bool]:
    """Return what may be shown: what was asked for, less what was shown before; and whether anything shown returns.

    When too little is left, the items shown longest ago return.
    """
    candidates = _candidates(served, request)
    excluded, seen = shown[:0], shown
    if request.exclude:
        excluded = np.unique(served.numbers(request.exclude))
        excluded = excluded[excluded >= 0]
        seen = shown[~np.isin(shown, excluded)]
    if candidates is not None:
        excluded = excluded[_is_in(excluded, candidates)]
        seen = seen[_is_in(seen, candidates)]
    n_candidates = (served.n_items if candidates is None else len(candidates)) - len(excluded)
    returning = max(0, min(request.k, n_candidates) - (n_candidates - len(seen)))
    hidden = np.concatenate([excluded, seen[returning:]])
    return Available(served.n_items, hidden, candidates), returning > 0


def _candidates(served: ServedCatalog, request: SlateRequest) -> Integers | None:
    """Return the candidates that also have one of the categories, ascending; None means everything."""
    wanted = None if request.candidates is None else np.unique(served.require_numbers(request.candidates, "candidates"))
    if request.categories is None:
        return wanted
    groups = [served.members(name) for name in dict.fromkeys(request.categories)]
    members = groups[0] if len(groups) == 1 else np.unique(np.concatenate([*groups, np.empty(0, dtype=np.int64)]))
    return members if wanted is None else wanted[_is_in(wanted, members)]


def _is_in(numbers: Integers, ascending: Integers) -> NDArray[np.bool_]:
    """Return whether each number is in an ascending array, by bisection."""
    if not len(ascending):
        return np.zeros(len(numbers), dtype=np.bool_)
    positions = np.minimum(np.searchsorted(ascending, numbers), len(ascending) - 1)
    return np.asarray(ascending[positions] == numbers)


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
