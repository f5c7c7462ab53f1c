"""The online recommender: slates for people, answers back, and nothing acknowledged is ever lost."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, wait
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self, Unpack

from slatewise.catalog import Catalog
from slatewise.recommender import people, states, traffic
from slatewise.recommender.answering import answer, event_of
from slatewise.recommender.beside import Chooser
from slatewise.recommender.choosing import Request, Wishes, check_id
from slatewise.recommender.people import PeopleAtHand
from slatewise.recommender.portrait import portray
from slatewise.recommender.serving import Desk, close_open, serve
from slatewise.recommender.spaces import Spaces
from slatewise.recommender.views import (
    ConflictError,
    PersonView,
    PolicyResult,
    Receipt,
    RequestError,
    Slate,
    SlateItem,
    UnknownSlateError,
)
from slatewise.store import Store, StoreDamagedError, open_store
from slatewise.store.export import exported
from slatewise.store.protocol import CLOSED, ItemId, Transaction

__all__ = ["ConflictError", "Recommender", "RequestError", "Slate", "SlateItem", "UnknownSlateError"]

LARGEST_DIFFERENCE = 1e-9
PEOPLE_AT_HAND = 2_000


class Recommender:
    """Recommends slates and learns from answers; safe to use from several threads.

    policy: a name from POLICIES, or shares of users by name, such as {"dc2b-calibrated": 0.9, "popular": 0.1};
    store: a URL or an open store; reward_wait: seconds after which an unanswered slate counts as not engaged, at the
    next `close_expired` (the service calls it every minute).
    """

    def __init__(
        self,
        catalog: Catalog,
        policy: str | Mapping[str, float] = "dc2b-calibrated",
        store: str | Store = "memory://",
        *,
        seed: int = 0,
        reward_wait: float = 1800.0,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.shares = traffic.shares_of(policy)
        self.reward_wait = reward_wait
        self.beside: Path | None = None
        self.desk = Desk(self._prepared(catalog), self.shares, PeopleAtHand(PEOPLE_AT_HAND), seed, clock)
        self.store = open_store(store) if isinstance(store, str) else store

    @property
    def catalog(self) -> Catalog:
        """The catalogue that slates are chosen from."""
        return self.desk.spaces.catalog

    @property
    def policy_names(self) -> tuple[str, ...]:
        """The policies that can be asked for by name."""
        return self.desk.spaces.usable

    @property
    def rebuilt(self) -> int:
        """How many beliefs were folded anew from the log since the start."""
        return self.desk.at_hand.rebuilt

    @property
    def chooses_beside(self) -> bool:
        """Whether another process should choose slates."""
        return self.beside is not None

    @property
    def chosen_beside(self) -> int:
        """How many slates the present chooser chose."""
        return 0 if self.desk.chooser is None else self.desk.chooser.used

    @property
    def has_lost_chooser(self) -> bool:
        """Whether the process that should choose slates is gone; they are chosen here then."""
        return self.chooses_beside and (self.desk.chooser is None or self.desk.chooser.is_lost)

    def recommend(
        self,
        user: str,
        k: int = 10,
        *,
        diversity: float | None = None,
        candidates: Iterable[ItemId] | None = None,
        exclude: Iterable[ItemId] | None = None,
        categories: Iterable[str] | None = None,
        policy: str | None = None,
        replaces: str | None = None,
        preview: bool = False,
    ) -> Slate:
        """Choose k items that this user has not been shown, and record the slate.

        diversity: 0 (most relevant) to 1 (most varied), for policies that have the knob; candidates: only these item
        ids; exclude: not these; categories: only items with one of these; policy: another one than the user's own;
        replaces: a slate to withdraw if it is still open and nobody clicked in it, its items then count as never
        shown. The user's other open slates are closed. Shown items come back, oldest first, when nothing else is left.
        A preview is what would be chosen now; nothing is recorded.
        """
        wishes = Wishes(
            diversity=diversity,
            candidates=candidates,
            exclude=exclude,
            categories=categories,
            policy=policy,
            replaces=replaces,
        )
        return self.preview(user, k, **wishes) if preview else self.recommend_later(user, k, **wishes).result()

    def recommend_later(self, user: str, k: int = 10, **wishes: Unpack[Wishes]) -> Future[Slate]:
        """Start to recommend; the future is set once the slate is durable."""
        desk, request = self.desk, Request.of(user, k, wishes)
        desk.space_for(request)
        ahead = desk.ahead(request)
        ready = None if ahead is None else ahead.is_ready
        return self.store.submit(lambda transaction: serve(desk, transaction, request, record=True, ahead=ahead), ready)

    def preview(self, user: str, k: int = 10, **wishes: Unpack[Wishes]) -> Slate:
        """Return what `recommend` would choose now, and record nothing."""
        desk, request = self.desk, Request.of(user, k, wishes)
        return self.store.read(lambda transaction: serve(desk, transaction, request, record=False))

    def feedback(
        self,
        slate_id: str,
        clicked: Iterable[ItemId] = (),
        *,
        retracted: Iterable[ItemId] = (),
        event_id: str | None = None,
        final: bool = True,
    ) -> Receipt:
        """Record what was clicked on a slate, all at once or click by click; it counts once however often it is sent.

        final closes the slate: what was not clicked counts as not engaged. Later clicks still count. The same event_id
        with the same content is a duplicate, with other content an error; without one it is made from the content.
        """
        return self.feedback_later(slate_id, clicked, retracted=retracted, event_id=event_id, final=final).result()

    def feedback_later(
        self,
        slate_id: str,
        clicked: Iterable[ItemId] = (),
        *,
        retracted: Iterable[ItemId] = (),
        event_id: str | None = None,
        final: bool = True,
    ) -> Future[Receipt]:
        """Start to record feedback; the future is set once it is durable."""
        event = event_of(slate_id, clicked, retracted, event_id, final)
        desk = self.desk
        return self.store.submit(lambda transaction: answer(desk, transaction, event))

    def explain(self, user: str) -> PersonView:
        """Return what is thought of a user; someone never seen is thought of as the crowd."""
        check_id("user", user)
        spaces = self.desk.spaces
        space = spaces.space(traffic.assigned(user, self.shares))
        history = self.store.read(lambda transaction: _history(spaces, transaction, user))
        return portray(user, spaces, space, history)

    def export(self, user: str) -> dict[str, Any]:
        """Return everything that is kept about a user, ready for JSON."""
        check_id("user", user)
        kept = exported(self.store, user)
        if kept is None:
            raise RequestError("nothing is kept about this user")
        return kept

    def forget(self, user: str) -> bool:
        """Remove everything about a user; say whether there was anything."""
        check_id("user", user)
        found = self.store.submit(lambda transaction: _forget(transaction, user)).result()
        self.desk.at_hand.drop(user)
        return found

    def experiments(self) -> list[PolicyResult]:
        """Compare the policies by what users did with their slates."""
        return traffic.results(self.store.read(lambda transaction: transaction.totals()), self.shares)

    def close_expired(self, limit: int = 1_000) -> int:
        """Close slates that waited for an answer longer than `reward_wait`; return how many.

        A user whose log is damaged holds up nobody else.
        """
        desk = self.desk
        before = desk.clock() - self.reward_wait
        expired = self.store.read(lambda transaction: transaction.expired(before, limit))
        users = dict.fromkeys(row.user for row in expired)
        waiting = [self.store.submit(partial(_close, desk, user, before)) for user in users]
        wait(waiting)
        return sum(future.result() for future in waiting)

    def use_catalog(self, catalog: Catalog) -> None:
        """Serve from another catalogue from now on; each belief is rebuilt from the log when its user comes back."""
        self.desk = replace(self.desk, spaces=self._prepared(catalog), newcomers={})
        self.desk.at_hand.clear()

    def choose_beside(self, directory: Path) -> None:
        """Choose slates in a process of its own, which loads the same catalogue from its directory, from now on."""
        self.beside = directory
        before, chooser = self.desk.chooser, None
        with suppress(OSError):  # no room for another process: it is lost before it began
            chooser = Chooser(directory, self.desk.seed, self.shares)
        self.desk = replace(self.desk, chooser=chooser)
        if before is not None:
            before.close()

    def verify(self) -> Iterator[tuple[str, str | None]]:
        """Yield every user and what is wrong with what is cached about them, if anything."""
        for user in self.store.users():
            yield user, self._problem(user)

    def rebuild(self, user: str) -> None:
        """Fold the belief of a user anew from the log."""
        desk = self.desk
        space = desk.spaces.space(traffic.assigned(user, self.shares))
        self.store.submit(lambda transaction: desk.refold(transaction, space, user)).result()

    def close(self) -> None:
        """Finish what was started and close the store."""
        self.store.close()
        if self.desk.chooser is not None:
            self.desk.chooser.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _prepared(self, catalog: Catalog) -> Spaces:
        spaces = Spaces(catalog)
        for name in self.shares:
            spaces.space(name)
        return spaces

    def _problem(self, user: str) -> str | None:
        spaces = self.desk.spaces
        try:
            row, belief, history = self.store.read(lambda t: (t.lock(user), t.belief(user), _history(spaces, t, user)))
        except StoreDamagedError as error:
            return str(error)
        if row.damaged or belief.damaged:
            what = "row of the user" if row.damaged else "cached belief"
            return f"the {what} does not match its checksum; it will be rebuilt"
        space = next((one for one in map(spaces.space, spaces.usable) if one.key == belief.space), None)
        if space is None or belief.content is None:
            return None
        counted = [one for one in history if one.slate.status == CLOSED and one.slate.number < belief.covers]
        try:
            distance = states.difference(states.from_bytes(belief.content), people.fold(space, counted))
        except ValueError as error:
            return f"{error}; it will be rebuilt"
        return None if distance <= LARGEST_DIFFERENCE else f"the cached belief is {distance:.2g} away from the log"


def _history(spaces: Spaces, transaction: Transaction, user: str) -> list[people.Showing]:
    return people.showings(spaces, transaction.slates_of(user), transaction.answers_of(user))


def _close(desk: Desk, user: str, before: float, transaction: Transaction) -> int:
    return close_open(desk, transaction, user, before)


def _forget(transaction: Transaction, user: str) -> bool:
    transaction.lock(user)
    return transaction.forget(user)
