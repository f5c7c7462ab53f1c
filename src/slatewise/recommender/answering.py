"""Feedback, inside one transaction: find the slate, refuse or recognise repeats, record, learn."""

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from slatewise.recommender import people
from slatewise.recommender.choosing import check_id
from slatewise.recommender.people import Person, Showing
from slatewise.recommender.serving import Desk, Ledger
from slatewise.recommender.views import ConflictError, Receipt, RequestError, UnknownSlateError
from slatewise.store.protocol import OPEN, WITHDRAWN, AnswerRow, Counts, ItemId, SlateRow, Transaction


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
    slate = _slate(transaction, event)
    row = transaction.lock(slate.user)
    slate = _slate(transaction, event)
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
    learnt = _late(desk, transaction, person, slate, fresh) if late else _in_time(desk, transaction, person, fresh)
    desk.keep(transaction, slate.user, learnt)
    return Receipt(slate.slate_id, event.event_id, duplicate=False, closed=late or event.final, late=late)


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


def _in_time(desk: Desk, transaction: Transaction, person: Person, fresh: AnswerRow) -> Person:
    """Note an answer to an open slate, and close the slate if the answer is final."""
    transaction.add_answer(fresh)
    showing = next(one for one in person.open if one.slate.slate_id == fresh.slate_id).answered(fresh)
    others = tuple(showing if one.slate.slate_id == fresh.slate_id else one for one in person.open)
    person = replace(_with_likes(person, showing), open=others)
    return Ledger(desk, transaction, record=True).close(person, showing) if fresh.final else person


def _late(desk: Desk, transaction: Transaction, person: Person, slate: SlateRow, fresh: AnswerRow) -> Person:
    """Learn from an answer to a slate that was counted already, or withdrawn: then it was seen after all."""
    before = people.showings(desk.spaces, [slate], transaction.answers_to(slate.slate_id))[0]
    after = before.answered(fresh)
    transaction.add_answer(fresh)
    more = len(after.clicked) - len(before.clicked)
    if slate.status == WITHDRAWN:
        if not after.clicked:
            return person
        transaction.change_slate(slate.closed(desk.clock()))
        desk.count(transaction, slate, Counts(1, len(slate.items), len(after.clicked), slate.variety))
        return people.load(transaction, transaction.lock(slate.user), desk.spaces, person.space, refold=True)
    desk.count(transaction, slate, Counts(clicks=more))
    if after.clicked == before.clicked:
        return person
    if not person.space.policy.additive:
        return people.load(transaction, transaction.lock(slate.user), desk.spaces, person.space, refold=True)
    state = people.revise(person.space, person.state, before, after)
    return replace(_with_likes(person, after), state=state)


def _with_likes(person: Person, showing: Showing) -> Person:
    """Remember what was liked on a slate, and forget what was taken back."""
    numbers, clicked = showing.numbers.tolist(), showing.clicked
    taken_back = {number for number, item in zip(numbers, showing.slate.items, strict=True) if item not in clicked}
    kept = [number for number in person.liked if number not in taken_back]
    new = [number for number in numbers if number >= 0 and number not in taken_back and number not in kept]
    return replace(person, liked=tuple([*kept, *new][-people.LIKED_KEPT :]))
