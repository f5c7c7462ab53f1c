"""Feedback, inside one transaction: find the slate, refuse or recognise repeats, record, learn."""

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from slatewise.frozen import changed
from slatewise.recommender import people
from slatewise.recommender.choosing import check_id
from slatewise.recommender.people import Person, Showing
from slatewise.recommender.serving import Desk, close
from slatewise.recommender.views import ConflictError, Receipt, RequestError, UnknownSlateError
from slatewise.store.protocol import OPEN, WITHDRAWN, AnswerRow, Counts, ItemId, SlateRow, Transaction, UserRow


@dataclass(frozen=True)
class Event:
    """What someone says about a slate."""

    event_id: str
    slate_id: str
    clicked: tuple[ItemId, ...]
    retracted: tuple[ItemId, ...]
    final: bool


def event_of(
    slate_id: str, clicked: Iterable[ItemId], retracted: Iterable[ItemId], event_id: str | None, final: bool
) -> Event:
    """Check feedback and give it an id if it has none, made from its content: sent again, it is the same event."""
    check_id("slate_id", slate_id)
    yes, no = (tuple(dict.fromkeys(map(_plain, items))) for items in (clicked, retracted))
    if set(yes) & set(no):
        raise RequestError("an item is both clicked and retracted; send one of the two")
    if event_id is None:
        content = json.dumps([slate_id, sorted(yes, key=repr), sorted(no, key=repr), final])
        event_id = "content-" + hashlib.blake2b(content.encode(), digest_size=16).hexdigest()
    check_id("event_id", event_id)
    return Event(event_id, slate_id, yes, no, final)


def _plain(item: object) -> ItemId:
    """Return an id as slates hold it: numbers of numpy as integers, everything else but integers as text."""
    if isinstance(item, np.integer):
        return int(item)
    return item if isinstance(item, int | str) else str(item)


def answer(desk: Desk, transaction: Transaction, event: Event) -> Receipt:
    """Record feedback once, and learn from it."""
    slate, row = _found(desk, transaction, event)
    fresh = AnswerRow(
        event.event_id, event.slate_id, slate.user, event.clicked, event.retracted, event.final, desk.clock()
    )
    known = transaction.answer(event.event_id)
    late = slate.status != OPEN
    if known is not None:
        if not known.says_the_same_as(fresh):
            raise ConflictError("this event_id came before with other content; an event is sent again unchanged")
        was_late = slate.closed_at is not None and known.received_at > slate.closed_at
        return Receipt(slate.slate_id, event.event_id, duplicate=True, closed=late, late=was_late)
    _refuse_strangers(event, slate)
    person = desk.known(transaction, row)
    if late:
        _late(desk, transaction, person, slate, fresh)
    else:
        _in_time(desk, transaction, person, fresh)
    return Receipt(slate.slate_id, event.event_id, duplicate=False, closed=late or event.final, late=late)


def _found(desk: Desk, transaction: Transaction, event: Event) -> tuple[SlateRow, UserRow]:
    """Return the slate of an event and its user, locked."""
    owner = desk.at_hand.owner(event.slate_id)
    if owner is not None:
        row = transaction.lock(owner)
        person = desk.at_hand.get(row)
        showing = None if person is None else person.showing(event.slate_id)
        if showing is not None:
            return showing.slate, row
    row = transaction.lock(_slate(transaction, event).user)
    return _slate(transaction, event), row


def _slate(transaction: Transaction, event: Event) -> SlateRow:
    slate = transaction.slate(event.slate_id)
    if slate is None:
        raise UnknownSlateError("there is no such slate; feedback names the slate_id that came with the slate")
    return slate


def _refuse_strangers(event: Event, slate: SlateRow) -> None:
    """Refuse items that were not on the slate; 1 and True, or 1 and "1", are not the same item."""
    items = {(type(item), item) for item in slate.items}
    if any((type(item), item) not in items for item in (*event.clicked, *event.retracted)):
        raise RequestError("an item of the feedback was not on this slate")


def _in_time(desk: Desk, transaction: Transaction, person: Person, fresh: AnswerRow) -> None:
    """Note an answer to an open slate, and close the slate if the answer is final."""
    transaction.add_answer(fresh)
    showing = next(one for one in person.open if one.slate.slate_id == fresh.slate_id).answered(fresh)
    if fresh.final:
        showing = showing.closed(desk.clock())
        close(desk, transaction, showing)
    liked = _liked(desk, transaction, person, showing, fresh)
    desk.keep(transaction, fresh.user, changed(person.with_showings([showing]), liked=liked))


def _late(desk: Desk, transaction: Transaction, person: Person, slate: SlateRow, fresh: AnswerRow) -> None:
    """Learn from an answer to a slate that was counted already, or withdrawn: then it was seen after all."""
    before = people.showings(desk.spaces, [slate], transaction.answers_to(slate.slate_id))[0]
    after = before.answered(fresh)
    transaction.add_answer(fresh)
    if slate.status == WITHDRAWN and after.clicked:
        close(desk, transaction, after.closed(desk.clock()))
        desk.refold(transaction, person.space, fresh.user)
        return
    if slate.status != WITHDRAWN:
        desk.count(transaction, slate, Counts(clicks=len(after.clicked) - len(before.clicked)))
    if slate.status == WITHDRAWN or after.clicked == before.clicked:
        desk.keep(transaction, fresh.user, person)
        return
    liked = _liked(desk, transaction, person, after, fresh)
    if person.showing(slate.slate_id) is not None:
        desk.keep(transaction, fresh.user, changed(person.with_showings([after]), liked=liked))
    elif person.space.policy.additive:
        state = people.revise(person.space, person.state, before, after)
        desk.keep(transaction, fresh.user, changed(person, liked=liked, state=state), save=True)
    else:
        desk.refold(transaction, person.space, fresh.user)


def _liked(desk: Desk, transaction: Transaction, person: Person, showing: Showing, fresh: AnswerRow) -> tuple[int, ...]:
    """Return the latest likes after an answer; what was taken back may still be liked for another slate's sake."""
    if fresh.retracted:
        return people.load(transaction, transaction.lock(fresh.user), desk.spaces, person.space).liked
    clicked = showing.clicked
    pairs = zip(showing.numbers.tolist(), showing.slate.items, strict=True)
    new = [number for number, item in pairs if number >= 0 and item in clicked]
    return tuple([*(number for number in person.liked if number not in new), *new][-people.LIKED_KEPT :])
