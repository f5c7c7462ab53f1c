"""Slates for people, inside one transaction: read the person, close what is open, choose, record."""

import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from slatewise.frozen import changed
from slatewise.recommender import people, traffic
from slatewise.recommender.beside import Chooser, Ticket
from slatewise.recommender.choosing import Request, choose, present
from slatewise.recommender.people import PeopleAtHand, Person, Showing
from slatewise.recommender.spaces import Space, Spaces
from slatewise.recommender.views import Slate
from slatewise.store.protocol import OPEN, WITHDRAWN, Counts, SlateRow, Transaction, UserRow


@dataclass(frozen=True)
class Desk:
    """What serving needs at hand; another one takes over when the catalogue changes."""

    spaces: Spaces
    shares: Mapping[str, float]
    at_hand: PeopleAtHand
    seed: int
    clock: Callable[[], float]
    chooser: Chooser | None = None
    newcomers: dict[str, Person] = field(default_factory=dict)

    def person(self, transaction: Transaction, row: UserRow, space: Space) -> Person:
        """Return a locked user as known in a space."""
        person = self.at_hand.get(row)
        return person if person is not None and person.space is space else self._load(transaction, row, space)

    def _load(self, transaction: Transaction, row: UserRow, space: Space) -> Person:
        if row == UserRow(row.user):
            return self.newcomer(space)
        person = people.load(transaction, row, self.spaces, space)
        self.at_hand.rebuilt += person.saved == 0 and person.covers > people.SAVED_EVERY
        return person

    def ahead(self, request: Request) -> Ticket | None:
        """Have a slate chosen in the process beside this one, if there is one, for a user at hand or new."""
        if self.chooser is None:
            return None
        space = self.space_for(request)
        person = self.at_hand.latest(request.user) or self.newcomer(space)
        return self.chooser.ask(self.spaces.likeness, person, request) if person.space is space else None

    def newcomer(self, space: Space) -> Person:
        """Return somebody never seen, always the same."""
        return self.newcomers.get(space.name) or self.newcomers.setdefault(space.name, people.newcomer(space))

    def space_for(self, request: Request) -> Space:
        """Return the space that a request is served from."""
        return self.spaces.space(request.policy or traffic.assigned(request.user, self.shares))

    def known(self, transaction: Transaction, row: UserRow) -> Person:
        """Return a locked user as known at hand, else in the space of the policy assigned to them."""
        person = self.at_hand.get(row)
        if person is not None and self.spaces.has(person.space):
            return person
        return self._load(transaction, row, self.spaces.space(traffic.assigned(row.user, self.shares)))

    def keep(self, transaction: Transaction, user: str, person: Person, *, save: bool = False) -> None:
        """Write what is known of a user under a new stamp; the belief only if it is due, or must be."""
        stamp, saved = secrets.token_hex(8), person.saved
        if save or person.covers - saved >= people.SAVED_EVERY:
            transaction.save_belief(person.belief(user))
            saved = person.covers
        transaction.save_user(UserRow(user, stamp, person.n_slates))
        self.at_hand.put(user, changed(person, stamp=stamp, saved=saved))

    def count(self, transaction: Transaction, slate: SlateRow, more: Counts) -> None:
        """Add to what happened under a policy; only where it was assigned, so that policies can be compared."""
        if slate.policy == traffic.assigned(slate.user, self.shares):
            transaction.count(slate.user, slate.policy, more)

    def refold(self, transaction: Transaction, space: Space, user: str) -> None:
        """Learn a user's belief anew from the log."""
        row = transaction.lock(user)
        self.keep(transaction, user, people.load(transaction, row, self.spaces, space, refold=True), save=True)


def serve(
    desk: Desk, transaction: Transaction, request: Request, *, record: bool, ahead: Ticket | None = None
) -> Slate:
    """Choose a slate and record it, or only say what would be chosen; a slate chosen ahead may still be good."""
    person = desk.person(transaction, transaction.lock(request.user), desk.space_for(request))
    replaced = None if request.replaces is None else person.showing(request.replaces)
    if replaced is not None and replaced.slate.status == OPEN and not replaced.clicked:
        person = _withdraw(desk, transaction, person, replaced, record=record)
    closed = tuple(one.closed(desk.clock()) for one in person.open)
    answer = ahead.chooser.answer(ahead) if ahead is not None and ahead.person is person else None
    if answer is None:
        settled = people.caught_up(person.with_showings(closed))
        chosen = choose(desk.spaces, settled, request, desk.seed)
    else:
        chosen, state = answer
        settled = changed(person, state=state, since=())
    items = present(desk.spaces, chosen)
    slate = SlateRow(
        slate_id=_new_id(desk.clock()),
        user=request.user,
        number=person.n_slates,
        created_at=desk.clock(),
        catalog=desk.spaces.digest,
        policy=person.space.name,
        items=tuple(item.id for item in items),
        variety=chosen.variety,
    )
    if record:
        for showing in closed:
            close(desk, transaction, showing)
        transaction.add_slate(slate)
        desk.keep(transaction, slate.user, _shown(settled, Showing(slate, chosen.numbers)))
    return Slate(slate.slate_id if record else None, slate.user, slate.number, slate.policy, slate.variety, items)


def _new_id(now: float) -> str:
    """Return an id that nobody can guess, but that begins with the time: new ones stand at the end of an index."""
    return f"{int(1000.0 * now) % 2**48:012x}{secrets.token_urlsafe(12)}"


def _shown(person: Person, showing: Showing) -> Person:
    """Return a person who was shown one more slate."""
    return changed(
        person,
        n_slates=showing.slate.number + 1,
        shown=people.with_latest(person.shown, showing.numbers),
        since=(*person.since, showing),
    )


def _withdraw(desk: Desk, transaction: Transaction, person: Person, showing: Showing, *, record: bool) -> Person:
    """Treat a slate as never shown: in the store too, or only in what is known of the person (a preview)."""
    slate = changed(showing.slate, status=WITHDRAWN, closed_at=desk.clock())
    shown = person.shown[~np.isin(person.shown, showing.numbers)]
    if record:
        transaction.change_slate(slate)
        shown = people.load(transaction, transaction.lock(slate.user), desk.spaces, person.space).shown
    return changed(person, shown=shown, since=tuple(one for one in person.since if one is not showing))


def close(desk: Desk, transaction: Transaction, showing: Showing) -> None:
    """Count a slate that was closed: what was not clicked counts as not engaged."""
    slate = showing.slate
    transaction.change_slate(slate)
    desk.count(transaction, slate, Counts(1, len(slate.items), len(showing.clicked), slate.variety))


def close_open(desk: Desk, transaction: Transaction, user: str, before: float) -> int:
    """Close the slates of a user that were shown before a time; return how many."""
    person = desk.known(transaction, transaction.lock(user))
    expired = [one.closed(desk.clock()) for one in person.open if one.slate.created_at < before]
    for showing in expired:
        close(desk, transaction, showing)
    if expired:
        desk.keep(transaction, user, person.with_showings(expired))
    return len(expired)
