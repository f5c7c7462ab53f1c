"""What is known about a user while they are served: learned from the log, and cached for the next request.

The belief is the fold of the policy's update over the user's closed slates in the order in which they were shown, each
with what counts as clicked in it by now. So it does not depend on when or in which order feedback arrived.
"""

import threading
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import takewhile

import numpy as np
from numpy.typing import NDArray

from slatewise.policies import State
from slatewise.randomness import user_keys
from slatewise.recommender import state_codec
from slatewise.recommender.served_catalog import ServedCatalog, ServedPolicy
from slatewise.store.protocol import (
    CLOSED,
    OPEN,
    WITHDRAWN,
    BeliefRecord,
    FeedbackRecord,
    ItemId,
    SlateRecord,
    Transaction,
    UserRecord,
)

Integers = NDArray[np.int64]
Clicks = Mapping[ItemId, int]
"""How often each item of a slate was clicked, less how often that was retracted."""

MAX_LIKED = 50
SAVE_EVERY = 8
"""Slates after which the belief is written again; at most so many are learned again when a profile is loaded."""
NO_ITEMS: Integers = np.empty(0, dtype=np.int64)


@dataclass(frozen=True, eq=False)
class UserProfile:
    """A user under a policy: everything shown (item numbers, oldest first), recent likes, and what was learned.

    The state has learned the closed slates before the `pending` ones, which are open or not learned yet and whose
    clicks are kept by slate id. The belief in the store covers the slates before number `saved`. `random_key` seeds
    the user's random numbers.
    """

    version: str
    random_key: NDArray[np.uint64]
    policy: ServedPolicy
    state: State
    n_slates: int
    shown: Integers
    liked: tuple[int, ...]
    pending: tuple[SlateRecord, ...]
    clicks: Mapping[str, Clicks]
    saved: int = 0

    @classmethod
    def of_new_user(cls, user: str, policy: ServedPolicy) -> "UserProfile":
        """Return the profile of a user never seen."""
        return cls("", user_keys([user]), policy, policy.start, 0, NO_ITEMS, (), (), {})

    @property
    def covers(self) -> int:
        """The number of the first slate that the state has not learned."""
        return self.pending[0].number if self.pending else self.n_slates

    def pending_slate(self, slate_id: str) -> SlateRecord | None:
        """Return one of the pending slates."""
        return next((slate for slate in self.pending if slate.slate_id == slate_id), None)

    def with_pending(self, changed: Iterable[SlateRecord]) -> "UserProfile":
        """Return the profile with a new status of some pending slates."""
        by_id = {slate.slate_id: slate for slate in changed}
        return replace(self, pending=tuple(by_id.get(slate.slate_id, slate) for slate in self.pending))

    def with_clicks(self, event: FeedbackRecord, clicked: Integers) -> "UserProfile":
        """Return the profile after clicks on a pending slate; `clicked` are the numbers of the clicked items."""
        clicks = {**self.clicks, event.slate_id: tally(self.clicks.get(event.slate_id, {}), event)}
        new = clicked[clicked >= 0].tolist()
        liked = [*(number for number in self.liked if number not in new), *new]
        return replace(self, clicks=clicks, liked=tuple(liked[-MAX_LIKED:]))

    def with_slate(self, slate: SlateRecord, numbers: Integers, *, repeats: bool) -> "UserProfile":
        """Return the profile after one more slate; `repeats` says whether an item on it was shown before."""
        shown = np.concatenate([self.shown, numbers])
        pending = (*self.pending, slate)
        return replace(self, n_slates=slate.number + 1, shown=latest_last(shown) if repeats else shown, pending=pending)

    def to_record(self, user: str) -> BeliefRecord:
        """Return the belief as the store keeps it."""
        return BeliefRecord(user, self.policy.key, self.covers, state_codec.to_bytes(self.state))


def load_profile(
    transaction: Transaction,
    user: UserRecord,
    served: ServedCatalog,
    policy: ServedPolicy,
    *,
    use_saved: bool = True,
    without: str | None = None,
) -> UserProfile:
    """Read a user's profile from the log; a saved belief is used if it belongs to this policy.

    use_saved = False learns everything again; `without` names a slate to treat as never shown.
    """
    slates = transaction.slates_of(user.user)
    history = [slate for slate in slates if slate.slate_id != without]
    clicks = tally_by_slate(transaction.feedback_of(user.user))
    shown = [slate for slate in history if slate.status != WITHDRAWN]
    numbers = {slate.slate_id: served.numbers(slate.items) for slate in history}
    covers, state = _saved_state(transaction.belief(user.user), policy) if use_saved else (0, policy.start)
    pending = tuple(slate for slate in shown if slate.number >= covers)
    profile = UserProfile(
        version=user.version,
        random_key=user_keys([user.user]),
        policy=policy,
        state=state,
        n_slates=max((slate.number + 1 for slate in slates), default=0),
        shown=latest_last(np.concatenate([NO_ITEMS, *(numbers[slate.slate_id] for slate in shown)])),
        liked=recent_likes(served, history, clicks),
        pending=pending,
        clicks={slate.slate_id: clicks.get(slate.slate_id, {}) for slate in pending},
        saved=covers,
    )
    return learn_closed(profile, served)


def _saved_state(belief: BeliefRecord, policy: ServedPolicy) -> tuple[int, State]:
    """Return the number of the first slate that a saved belief has not learned, and its state, if it is usable."""
    if belief.content is not None and belief.key == policy.key:
        try:
            state = state_codec.from_bytes(belief.content)
            return belief.covers, {name: state[name] for name in policy.start}
        except (ValueError, KeyError):
            pass
    return 0, policy.start


def learn_closed(profile: UserProfile, served: ServedCatalog) -> UserProfile:
    """Learn the closed slates at the head of the pending ones."""
    closed = list(takewhile(lambda slate: slate.status == CLOSED, profile.pending))
    if not closed:
        return profile
    pending = profile.pending[len(closed) :]
    state = fold(profile.policy, served, closed, profile.clicks, profile.state)
    clicks = {slate.slate_id: profile.clicks.get(slate.slate_id, {}) for slate in pending}
    return replace(profile, state=state, pending=pending, clicks=clicks)


def close_open(profile: UserProfile, at: float) -> tuple[UserProfile, tuple[SlateRecord, ...]]:
    """Close the open slates of a profile; return it and the slates that were closed."""
    closed = tuple(slate.with_status(CLOSED, at) for slate in profile.pending if slate.status == OPEN)
    return profile.with_pending(closed) if closed else profile, closed


def fold(
    policy: ServedPolicy,
    served: ServedCatalog,
    slates: Iterable[SlateRecord],
    clicks: Mapping[str, Clicks],
    state: State | None = None,
) -> State:
    """Learn from slates in the order in which they were shown, starting from a state or from nothing."""
    state = policy.start if state is None else state
    for slate in slates:
        liked = clicked_items(clicks.get(slate.slate_id, {}))
        is_clicked = np.array([item in liked for item in slate.items], dtype=np.bool_)
        state = policy.learn(state, served.numbers(slate.items), is_clicked)
    return state


def tally(clicks: Clicks, event: FeedbackRecord) -> Clicks:
    """Return the clicks on a slate after one more event."""
    total = dict(clicks)
    for items, step in ((event.clicked, 1), (event.retracted, -1)):
        for item in items:
            total[item] = total.get(item, 0) + step
    return total


def tally_by_slate(events: Iterable[FeedbackRecord]) -> dict[str, Clicks]:
    """Return the clicks on each slate, by slate id."""
    clicks: dict[str, Clicks] = {}
    for event in events:
        clicks[event.slate_id] = tally(clicks.get(event.slate_id, {}), event)
    return clicks


def clicked_items(clicks: Clicks) -> frozenset[ItemId]:
    """Return the items that count as clicked."""
    return frozenset(item for item, times in clicks.items() if times > 0)


def recent_likes(
    served: ServedCatalog, history: Iterable[SlateRecord], clicks: Mapping[str, Clicks]
) -> tuple[int, ...]:
    """Return the numbers of the items clicked most recently, by slate."""
    liked: list[ItemId] = []
    for slate in history:
        wanted = clicked_items(clicks.get(slate.slate_id, {}))
        liked += [item for item in slate.items if item in wanted]
    return tuple(latest_last(served.numbers(liked))[-MAX_LIKED:].tolist())


def latest_last(numbers: Integers) -> Integers:
    """Keep each item once, at its latest position; items that the catalog no longer has are left out."""
    kept = numbers[numbers >= 0]
    _, positions = np.unique(kept[::-1], return_index=True)
    return kept[::-1][np.sort(positions)][::-1]


class ProfileCache:
    """The profiles of the users served most recently; a profile whose version is not the store's is out of date."""

    def __init__(self, max_users: int, rebuilt: int = 0) -> None:
        self.max_users = max_users
        self.rebuilt = rebuilt
        """How many beliefs were learned again from the log."""
        self._profiles: OrderedDict[str, UserProfile] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, user: str) -> UserProfile | None:
        """Return the profile of a user as last known."""
        with self._lock:
            profile = self._profiles.get(user)
            if profile is not None:
                self._profiles.move_to_end(user)
            return profile

    def put(self, user: str, profile: UserProfile) -> None:
        """Keep a profile; if the transaction it was made in fails, its version matches nothing and it is dropped."""
        with self._lock:
            self._profiles[user] = profile
            self._profiles.move_to_end(user)
            if len(self._profiles) > self.max_users:
                self._profiles.popitem(last=False)

    def drop(self, user: str) -> None:
        """Drop the profile of a user."""
        with self._lock:
            self._profiles.pop(user, None)

    def keep_only(self, user: str, version: str) -> None:
        """Drop the profile of a user unless it is of this version."""
        with self._lock:
            profile = self._profiles.get(user)
            if profile is not None and profile.version != version:
                del self._profiles[user]

    def count_rebuilt(self) -> None:
        """Count a belief that was learned again from the log."""
        with self._lock:
            self.rebuilt += 1
