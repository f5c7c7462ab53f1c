"""What is known about a user while they are served: learned from the log, and cached for the next request."""

import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Any

import numpy as np
from numpy.typing import NDArray

from slatewise.randomness import user_keys
from slatewise.recommender import state_codec
from slatewise.recommender.learning import (
    LIKE_COLUMNS,
    RECENT_SLATES,
    Learned,
    LoggedEvent,
    LoggedSlate,
    Shown,
    SlateChange,
    adapted,
    learn,
    learn_again,
)
from slatewise.recommender.served_catalog import Integers, ServedCatalog, ServedPolicy
from slatewise.store.records import CLOSED, OPEN, BeliefRecord, SlateRecord

MAX_LIKED = 50
SAVE_EVERY = 8
"""Slates after which the belief is written again; more for a long history, of which it is the larger part."""
MAX_CORRECTIONS = 64
"""Late feedback on more learned slates than so many is learned with the whole log."""
LEARNED = "learned "
"""How the names of arrays begin that are kept with the state of a policy."""


@dataclass(frozen=True, eq=False)
class UserProfile:
    """A user under a policy: what was learned, and the part of the log that was not.

    pending: slates from number `learned.covers` on that are open or not learned yet, without withdrawn ones; events:
    those with positions from there on; late: what feedback changed about slates that were learned already. The belief
    in the store covers the slates before number `saved`, and is out of date if `is_corrected`. `random_key` seeds the
    user's random numbers.
    """

    version: str
    random_key: NDArray[np.uint64]
    policy: ServedPolicy
    n_slates: int
    learned: Learned
    pending: tuple[LoggedSlate, ...] = ()
    events: tuple[LoggedEvent, ...] = ()
    late: tuple[SlateChange, ...] = ()
    saved: int = 0
    is_corrected: bool = False

    @classmethod
    def of_new_user(cls, user: str, served: ServedCatalog, policy: ServedPolicy) -> "UserProfile":
        """Return the profile of a user never seen."""
        return cls("", user_keys([user]), policy, 0, Learned.nothing(served, policy))

    @property
    def covers(self) -> int:
        """The number of the first slate that was not learned."""
        return self.learned.covers

    @property
    def is_save_due(self) -> bool:
        """Whether the belief in the store should be replaced, so that loading the profile stays cheap."""
        return self.is_corrected or self.covers - self.saved >= max(SAVE_EVERY, self.n_slates // RECENT_SLATES)

    def shown(self) -> Shown:
        """Return everything that is not offered again for now, pending slates included."""
        return self.learned.shown.with_slates(self.pending, self.policy.rules.repeat_after)

    def liked(self) -> tuple[int, ...]:
        """Return the numbers of the items liked most recently."""
        rows = [(when, int(number)) for when, number, *_ in self.learned.likes.tolist()]
        rows += [(2 * slate.record.number + 1, number) for slate in self.pending for number in slate.liked()]
        recent = [number for when, number in rows if when >= 2 * (self.n_slates - RECENT_SLATES)]
        return tuple(dict.fromkeys(reversed(recent)))[:MAX_LIKED][::-1]

    def pending_slate(self, slate_id: str) -> LoggedSlate | None:
        """Return one of the pending slates."""
        return next((slate for slate in self.pending if slate.record.slate_id == slate_id), None)

    def without(self, slate: SlateRecord) -> "UserProfile":
        """Return the profile without a pending slate, as if it had never been shown."""
        return replace(self, pending=tuple(other for other in self.pending if other.record.slate_id != slate.slate_id))

    def with_pending(self, slate: LoggedSlate, version: str) -> "UserProfile":
        """Return the profile under a new version, with a pending slate as it is after feedback, or closed."""
        slate_id = slate.record.slate_id
        pending = tuple(slate if other.record.slate_id == slate_id else other for other in self.pending)
        return replace(self, version=version, pending=pending)

    def with_slate(
        self, slate: SlateRecord, numbers: Integers, explained: Sequence[float] | None = None
    ) -> "UserProfile":
        """Return the profile after one more slate; explained is what taste adds to the rates of its items."""
        logged = LoggedSlate(slate, numbers, explained=explained)
        return replace(self, n_slates=slate.number + 1, pending=(*self.pending, logged))

    def moved_to(self, policy: ServedPolicy) -> "UserProfile | None":
        """Return the profile under the same policy with other items; None if it has to be loaded again."""
        logged = [slate.numbers.min(initial=0) for slate in self.pending] + [event.number for event in self.events]
        if min(logged, default=0) < 0 or self.late or policy.key != self.policy.key:
            return None
        learned = adapted(self.learned, policy, self.policy.untrained.version)
        return None if learned is None else replace(self, policy=policy, learned=learned)

    def to_record(self, user: str, saved_at: float) -> BeliefRecord:
        """Return what was learned as the store keeps it; everything up to a time has been looked at.

        What is pending arrived at the time `since` or later, so that this part of the log is enough to go on.
        """
        arrived = [slate.record.created_at for slate in self.pending]
        since = min([saved_at, *arrived, *(event.record.received_at for event in self.events)])
        learned, shown = self.learned, self.learned.shown
        kept: dict[str, NDArray[Any]] = {
            "times": np.array([learned.at, saved_at, since]),
            "counts": learned.counts,
            "shown": shown.numbers,
            "shown at": shown.at,
            "shown until": shown.until,
            "never": learned.never,
            "likes": learned.likes,
            "untrained": learned.untrained,
            "wishes": learned.wishes,
            "items": np.array([self.policy.untrained.version]),
        }
        named = {LEARNED + name: array for name, array in kept.items()}
        return BeliefRecord(user, self.policy.key, self.covers, state_codec.to_bytes({**learned.state, **named}))


@dataclass(frozen=True, eq=False)
class SavedBelief:
    """What the store keeps about a user: see `UserProfile.to_record`."""

    learned: Learned
    saved_at: float
    since: float
    items: int

    @classmethod
    def of(cls, belief: BeliefRecord, policy: ServedPolicy) -> "SavedBelief | None":
        """Read a belief; None if it is not of this policy, cannot be read, or was learned from items that changed."""
        saved = cls.read(belief, policy)
        learned = None if saved is None else adapted(saved.learned, policy, saved.items)
        return None if saved is None or learned is None else replace(saved, learned=learned)

    @classmethod
    def read(cls, belief: BeliefRecord, policy: ServedPolicy) -> "SavedBelief | None":
        """Read a belief as it was saved; None if it is not of this policy or cannot be read."""
        if belief.content is None or belief.key != policy.key:
            return None
        try:
            arrays = state_codec.from_bytes(belief.content)
            state = {name: arrays[name] for name in policy.start}
            kept = {name.removeprefix(LEARNED): arrays[name] for name in arrays if name.startswith(LEARNED)}
            at, saved_at, since = kept["times"].tolist()
            shown = Shown(kept["shown"], kept["shown at"], kept["shown until"])
            known = (at, shown, kept["never"], kept["likes"], kept["untrained"], kept["wishes"])
            items = int(kept["items"][0])
            if kept["likes"].shape[1:] != (LIKE_COLUMNS,):  # an earlier version kept less
                return None
        except (ValueError, KeyError):
            return None
        return cls(Learned(belief.covers, state, kept["counts"], *known), saved_at, since, items)


def learn_late(profile: UserProfile) -> UserProfile | None:
    """Learn feedback on slates that were learned already; None if the profile has to be loaded again."""
    learned = profile.learned
    for change in profile.late:
        corrected = learn_again(learned, profile.policy, change.before, change.after)
        if corrected is None:
            return None
        learned = corrected
    if not profile.late:
        return profile
    is_corrected = profile.is_corrected or min(change.after.record.number for change in profile.late) < profile.saved
    return replace(profile, learned=learned, late=(), is_corrected=is_corrected)


def learn_closed(profile: UserProfile) -> UserProfile:
    """Learn the closed slates at the head of the pending ones, and the events before them."""
    closed = list(takewhile(lambda slate: slate.record.status == CLOSED, profile.pending))
    pending = profile.pending[len(closed) :]
    covers = pending[0].record.number if pending else profile.n_slates
    if covers == profile.covers:
        return profile
    before, after = _split(profile.events, covers)
    learned = learn(profile.learned, profile.policy, closed, before, covers)
    return replace(profile, learned=learned, pending=pending, events=tuple(after))


def learn_everything(profile: UserProfile) -> Learned:
    """Learn also the events since the last slate, for a profile without open slates; they may get company later."""
    return (
        learn(profile.learned, profile.policy, [], profile.events, profile.covers)
        if profile.events
        else profile.learned
    )


def close_open(profile: UserProfile, at: float) -> tuple[UserProfile, tuple[LoggedSlate, ...]]:
    """Close the open slates of a profile; return it and the slates that were closed."""
    pending = tuple(slate.closed(at) if slate.record.status == OPEN else slate for slate in profile.pending)
    closed = tuple(after for before, after in zip(profile.pending, pending, strict=True) if after is not before)
    return replace(profile, pending=pending) if closed else profile, closed


def _split(events: Sequence[LoggedEvent], covers: int) -> tuple[list[LoggedEvent], list[LoggedEvent]]:
    """Return the events before a position, and the others."""
    before = [event for event in events if event.record.position < covers]
    return before, [event for event in events if event.record.position >= covers]


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
            return self._profiles.get(user)

    def put(self, user: str, profile: UserProfile) -> None:
        """Keep the profile of a user who is being served.

        If the transaction it was made in fails, its version matches nothing and it is dropped.
        """
        with self._lock:
            self._profiles[user] = profile
            self._profiles.move_to_end(user)
            if len(self._profiles) > self.max_users:
                self._profiles.popitem(last=False)

    def replace(self, user: str, profile: UserProfile) -> None:
        """Keep a profile in the place of the one that is cached; the user does not count as served again."""
        with self._lock:
            if user in self._profiles:
                self._profiles[user] = profile

    def moved_to(self, policies: Mapping[str, ServedPolicy]) -> "ProfileCache":
        """Return a cache of the profiles that are still of use with other items."""
        moved = ProfileCache(self.max_users, self.rebuilt)
        with self._lock:
            profiles = list(self._profiles.items())
        for user, profile in profiles:
            policy = policies.get(profile.policy.name)
            kept = None if policy is None else profile.moved_to(policy)
            if kept is not None:
                moved.put(user, kept)
        return moved

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
