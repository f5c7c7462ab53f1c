"""Slates for people, inside one transaction: read the person, close what is open, choose, record."""

import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from slatewise.recommender import people, traffic
from slatewise.recommender.choosing import Request, choose, present, variety
from slatewise.recommender.people import PeopleAtHand, Person, Showing
from slatewise.recommender.spaces import Space, Spaces
from slatewise.recommender.views import RequestError, Slate
from slatewise.store.protocol import WITHDRAWN, Counts, SlateRow, Transaction, UserRow


@dataclass(frozen=True)
class Desk:
    """What serving needs at hand; another one takes over when the catalogue changes."""

    spaces: Spaces
    shares: Mapping[str, float]
    at_hand: PeopleAtHand
    seed: int
    clock: Callable[[], float]

    def person(self, transaction: Transaction, row: UserRow, space: Space) -> Person:
        """Return a locked user as known in a space."""
        person = self.at_hand.get(row, space)
        if person is None:
            self.at_hand.rebuilt += bool(row.stamp or row.damaged) and (row.belief is None or row.space != space.key)
            person = people.load(transaction, row, self.spaces, space)
        return person

    def space_for(self, request: Request) -> Space:
        """Return the space that a request is served from."""
        return self.spaces.space(request.policy or traffic.assigned(request.user, self.shares))

    def known(self, transaction: Transaction, row: UserRow) -> Person:
        """Return a locked user as known in the space of their cached belief, else of the policy assigned to them."""
        return self.person(transaction, row, self.spaces.space_of(row.space, traffic.assigned(row.user, self.shares)))

    def keep(self, transaction: Transaction, user: str, person: Person, **changes: Any) -> None:
        """Write what is known of a user, with some changes, under a new stamp."""
        stamped = replace(person, stamp=secrets.token_hex(8), **changes)
        transaction.save_user(stamped.row(user))
        self.at_hand.put(user, stamped)

    def count(self, transaction: Transaction, slate: SlateRow, more: Counts) -> None:
        """Add to what happened under a policy; only where it was assigned, so that policies can be compared."""
        if slate.policy == traffic.assigned(slate.user, self.shares):
            transaction.count(slate.user, slate.policy, more)

    def refold(self, transaction: Transaction, user: str) -> None:
        """Fold a user's belief anew from the log, in the space that they are assigned to."""
        row, space = transaction.lock(user), self.spaces.space(traffic.assigned(user, self.shares))
        self.keep(transaction, user, people.load(transaction, row, self.spaces, space, refold=True))


def serve(desk: Desk, transaction: Transaction, request: Request, *, record: bool) -> Slate:
    """Choose a slate and record it, or only say what would be chosen."""
    spaces = desk.spaces
    space = desk.space_for(request)
    person = desk.person(transaction, transaction.lock(request.user), space)
    person = Ledger(desk, transaction, record).settle(person, request)
    slates = choose(spaces, person, request, desk.seed)
    numbers = slates.items[0][slates.items[0] >= 0]
    if not len(numbers):
        raise RequestError("nothing is left to show: no item passes the candidates, categories and exclusions given")
    items = present(spaces, person, slates)
    slate = SlateRow(
        slate_id=secrets.token_urlsafe(16),
        user=request.user,
        number=person.n_slates,
        created_at=desk.clock(),
        catalog=spaces.digest,
        policy=space.name,
        items=tuple(item.id for item in items),
        variety=variety(spaces.catalog.categories[numbers]),
    )
    if record:
        transaction.add_slate(slate)
        waiting = (*person.open, Showing(slate, numbers))
        shown = people.with_latest(person.shown, numbers)
        desk.keep(transaction, request.user, person, n_slates=slate.number + 1, shown=shown, open=waiting)
    return Slate(slate.slate_id if record else None, slate.user, slate.number, slate.policy, slate.variety, items)


@dataclass(frozen=True)
class Ledger:
    """Closes and withdraws slates: in the store, or only in what is known of the person (a preview)."""

    desk: Desk
    transaction: Transaction
    record: bool

    def settle(self, person: Person, request: Request) -> Person:
        """Withdraw the slate to be replaced and close all others."""
        for showing in person.open:
            if showing.slate.slate_id == request.replaces and not showing.clicked:
                person = self.withdraw(person, showing)
            else:
                person = self.close(person, showing)
        return person

    def close(self, person: Person, showing: Showing) -> Person:
        """Count a slate: what was not clicked counts as not engaged."""
        slate = showing.slate
        if self.record:
            self.transaction.change_slate(slate.closed(self.desk.clock()))
            counts = Counts(1, len(slate.items), len(showing.clicked), slate.variety)
            self.desk.count(self.transaction, slate, counts)
        state = people.learn(person.space, person.state, showing)
        return replace(person, state=state, open=_without(person.open, slate))

    def withdraw(self, person: Person, showing: Showing) -> Person:
        """Treat a slate as never shown."""
        slate = replace(showing.slate, status=WITHDRAWN, closed_at=self.desk.clock())
        shown = person.shown[~np.isin(person.shown, showing.numbers)]
        if self.record:
            self.transaction.change_slate(slate)
            row = self.transaction.lock(slate.user)
            shown = people.load(self.transaction, row, self.desk.spaces, person.space).shown
        return replace(person, shown=shown, open=_without(person.open, slate))


def close_open(desk: Desk, transaction: Transaction, user: str, before: float) -> int:
    """Close the slates of a user that were shown before a time; return how many."""
    person = desk.known(transaction, transaction.lock(user))
    ledger = Ledger(desk, transaction, record=True)
    expired = [one for one in person.open if one.slate.created_at < before]
    for showing in expired:
        person = ledger.close(person, showing)
    if expired:
        desk.keep(transaction, user, person)
    return len(expired)


def _without(waiting: tuple[Showing, ...], slate: SlateRow) -> tuple[Showing, ...]:
    return tuple(one for one in waiting if one.slate.slate_id != slate.slate_id)
