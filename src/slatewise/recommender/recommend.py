"""One slate: a draft is chosen from what is known about the user, then recorded in one transaction.

Drafting reads and computes and may take its time in any thread. Recording is short. It finds out whether anything was
written about the user in the meantime; then nothing is recorded, and the slate is drafted again.
"""

import secrets
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from slatewise.policies import Available
from slatewise.randomness import Streams
from slatewise.recommender.learning import LoggedSlate, Shown, state_at
from slatewise.recommender.loading import load_profile
from slatewise.recommender.profile import (
    SAVE_EVERY,
    ProfileCache,
    UserProfile,
    close_open,
    learn_closed,
    learn_everything,
)
from slatewise.recommender.served_catalog import Integers, ServedCatalog, ServedPolicy, describe, mean_distance
from slatewise.recommender.types import ConflictError, RequestError, Slate, SlateItem
from slatewise.store.protocol import Store, Transaction
from slatewise.store.records import OPEN, WITHDRAWN, Choice, ItemId, PolicyCounts, SlateRecord, UserRecord

MAX_ITEMS = 500
MAX_ID_LENGTH = 256
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
    request_id: str | None = None

    def __post_init__(self) -> None:
        check_id("user", self.user)
        if self.request_id is not None:
            check_id("request_id", self.request_id)
        if isinstance(self.k, bool) or not isinstance(self.k, int) or not 1 <= self.k <= MAX_ITEMS:
            raise RequestError(f"k must be a whole number from 1 to {MAX_ITEMS}")
        if self.diversity is not None and not 0.0 <= self.diversity <= 1.0:
            raise RequestError("diversity must be between 0 (most relevant) and 1 (most varied)")

    def described(self) -> dict[str, Any]:
        """Return what was requested, ready for JSON; what was left to the recommender is left out."""
        lists = {name: getattr(self, name) for name in ("candidates", "exclude", "categories")}
        given = {name: [*map(plain_id, items)] for name, items in lists.items() if items is not None}
        others = {name: getattr(self, name) for name in ("diversity", "policy", "replaces")}
        return {"k": self.k, **given, **{name: value for name, value in others.items() if value is not None}}


def plain_id(item: object) -> ItemId:
    """Return an item id as slates hold it: integers of numpy as integers, everything else but integers as text."""
    if isinstance(item, np.integer):
        return int(item)
    return item if isinstance(item, int | str) else str(item)


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
        version = secrets.token_hex(8)
        if profile.is_save_due:
            transaction.save_belief(profile.to_record(user, now))
            profile = replace(profile, saved=profile.covers, is_corrected=False)
        transaction.save_user(UserRecord(user, version, profile.n_slates, now))
        self.profiles.put(user, replace(profile, version=version))

    def count(self, transaction: Transaction, slate: SlateRecord, more: PolicyCounts) -> None:
        """Add to the counts of a policy; only where it was assigned, so that policies can be compared."""
        if slate.policy == self.served.assigned_policy(slate.user):
            transaction.count(slate.user, slate.policy, more)

    def close(self, transaction: Transaction, slate: SlateRecord, n_liked: int) -> None:
        """Record that a slate was closed, and count it."""
        transaction.update_slate(slate)
        self.count(transaction, slate, PolicyCounts(1, len(slate.items), n_liked, slate.variety))


@dataclass(frozen=True, eq=False)
class Draft:
    """A slate that was chosen at a time but not recorded yet, and what else recording it changes.

    closed: the user's slates that it closes, with what was said about them; withdrawn: the slate that it replaces. The
    version of the profile is the oldest that any of this was read from.
    """

    request: SlateRequest
    served: ServedCatalog
    profile: UserProfile
    closed: tuple[LoggedSlate, ...]
    withdrawn: SlateRecord | None
    numbers: Integers
    items: tuple[SlateItem, ...]
    at: float

    @property
    def variety(self) -> float:
        """The mean of 1 − Jaccard similarity over the pairs of items."""
        return mean_distance(self.served.catalog.categories[self.numbers])

    def choice(self, seed: int) -> Choice:
        """Return how the slate was chosen: what is needed to choose it again, and to return it again."""
        profile = self.profile
        return {
            "request": self.request.described(),
            "key": profile.policy.key,
            "seed": seed,
            "random_key": int(profile.random_key[0]),
            "step": profile.n_slates,
            "at": self.at,
            "rules": profile.policy.described_rules,
            "item_table": None,
            "exploration": None,
            "items": [[i.probability, i.deviation, i.diversity_gain, i.reason, i.because] for i in self.items],
        }


def draft_slate(serving: Serving, request: SlateRequest, transaction: Transaction | None = None) -> Draft:
    """Choose a slate for a user as known now, read within a transaction if one is given."""
    served, policy, now = serving.served, serving.policy_for(request), serving.clock()
    known = serving.profiles.get(request.user)
    if known is None or known.policy is not policy:
        known = _load(serving, transaction, request.user, policy)
        serving.profiles.put(request.user, known)
    withdrawn = _withdrawn(known, request, now)
    closing, closed = close_open(known if withdrawn is None else known.without(withdrawn), now)
    profile = learn_closed(closing)
    numbers, items = choose_items(
        served, profile, request, Streams(serving.seed, profile.random_key, profile.n_slates), now
    )
    return Draft(request, served, profile, closed, withdrawn, numbers, items, now)


def choose_items(
    served: ServedCatalog, profile: UserProfile, request: SlateRequest, random: Streams, now: float
) -> tuple[Integers, tuple[SlateItem, ...]]:
    """Choose the items of a slate for a user without open slates; return their numbers too."""
    policy, learned = profile.policy, learn_everything(profile)
    available = available_items(served, learned.shown, learned.never, request, now)
    state = state_at(policy, learned, now)
    chosen = policy.with_diversity(request.diversity).select(state, available, request.k, random)
    numbers = chosen.items[0][chosen.items[0] >= 0]
    if not len(numbers):
        raise RequestError("nothing is left to show: no item passes the given candidates, categories and exclusions")
    return numbers, describe(served, chosen, profile.liked())


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
    for closed in draft.closed:
        n_liked = len(closed.tally.liked(closed.record.items))
        serving.close(transaction, replace(closed.record, closed_at=now), n_liked)
    slate = SlateRecord(
        slate_id=_new_id(now),
        user=user,
        number=profile.n_slates,
        created_at=now,
        catalog=draft.served.digest,
        policy=profile.policy.name,
        items=tuple(item.id for item in draft.items),
        variety=draft.variety,
        request_id=draft.request.request_id,
    )
    transaction.add_slate(slate, draft.choice(serving.seed))
    serving.save(transaction, user, profile.with_slate(slate, draft.numbers), now)
    return Slate(slate.slate_id, slate.user, slate.number, slate.policy, slate.variety, draft.items)


def draft_and_record(serving: Serving, transaction: Transaction, request: SlateRequest) -> Slate:
    """Choose a slate and record it while no other writer can change the user."""
    record = transaction.lock(request.user)
    earlier = recorded_slate(serving.served, transaction, request)
    if earlier is not None:
        return earlier
    serving.profiles.keep_only(request.user, record.version)
    return _write(serving, transaction, draft_slate(serving, request, transaction), serving.next_time(record))


def recorded_slate(served: ServedCatalog, transaction: Transaction, request: SlateRequest) -> Slate | None:
    """Return the slate that was recorded for the same request before; another request with its id is an error."""
    if request.request_id is None:
        return None
    slate = transaction.slate_of_request(request.user, request.request_id)
    if slate is None:
        return None
    choice = transaction.choices_of(slate.user, slate.number, 1)[slate.number]
    if choice["request"] != request.described():
        raise ConflictError("this request_id was used before for another request; send a new one")
    items = zip(slate.items, choice["items"], strict=True)
    described = tuple(_item(served, item, *chosen) for item, chosen in items)
    return Slate(slate.slate_id, slate.user, slate.number, slate.policy, slate.variety, described)


def _item(served: ServedCatalog, item: ItemId, *chosen: Any) -> SlateItem:
    """Return an item as it was on a slate; titles and categories are those of the catalog that is served now."""
    probability, deviation, gain, reason, because = chosen
    title, categories = served.title_and_categories(item)
    source = None if because is None else served.title_and_categories(because)[0]
    return SlateItem(item, title, categories, probability, deviation, gain, reason, because, source)


def _load(serving: Serving, transaction: Transaction | None, user: str, policy: ServedPolicy) -> UserProfile:
    def job(transaction: Transaction) -> UserProfile:
        record = transaction.lock(user)
        if record == UserRecord(user):
            return UserProfile.of_new_user(user, serving.served, policy)
        return load_profile(transaction, record, serving.served, policy)

    profile = serving.store.read(job) if transaction is None else job(transaction)
    if profile.saved == 0 and profile.covers > SAVE_EVERY:
        serving.profiles.count_rebuilt()
    return profile


def _withdrawn(profile: UserProfile, request: SlateRequest, now: float) -> SlateRecord | None:
    """Return the slate to replace, withdrawn, if it is still open and nobody reacted to it."""
    slate = None if request.replaces is None else profile.pending_slate(request.replaces)
    if slate is None or slate.record.status != OPEN or slate.has_reactions():
        return None
    return slate.record.with_status(WITHDRAWN, now)


def _new_id(now: float) -> str:
    """Return an id that cannot be guessed but begins with the time, so that new ones are at the end of an index."""
    return f"{int(1000.0 * now) % 2**48:012x}{secrets.token_urlsafe(12)}"


def available_items(
    served: ServedCatalog, shown: Shown, never: Integers, request: SlateRequest, now: float
) -> Available:
    """Return what may be shown: what was asked for, less what was shown before and what must not be shown any more.

    When too little is left, the items shown longest ago return.
    """
    candidates = _candidates(served, request)
    excluded = never
    if request.exclude:
        excluded = np.union1d(excluded, served.numbers(request.exclude))
        excluded = excluded[excluded >= 0]
    is_hidden = shown.until > now
    seen, at = shown.numbers[is_hidden], shown.at[is_hidden]
    for others in (excluded, candidates):
        if others is not None and len(seen):
            is_kept = _is_in(seen, others) == (others is candidates)
            seen, at = seen[is_kept], at[is_kept]
    if candidates is not None:
        excluded = excluded[_is_in(excluded, candidates)]
    n_candidates = (served.n_items if candidates is None else len(candidates)) - len(excluded)
    returning = max(0, min(request.k, n_candidates) - (n_candidates - len(seen)))
    hidden = seen[np.lexsort((seen, at))][returning:] if returning else seen
    return Available(served.n_items, np.concatenate([excluded, hidden]), candidates)


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
