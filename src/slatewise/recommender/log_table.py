"""The log of a store as one table, a row for each item that was shown: for other programs to learn and judge by."""

from collections.abc import Iterator
from typing import Any, NamedTuple

from slatewise.recommender.learning import Tally
from slatewise.store.protocol import Store, Transaction
from slatewise.store.records import CLOSED, Choice, ItemId


class ShownItem(NamedTuple):
    """An item at a place, counted from 1, of a closed slate; propensity: given the items before it, None if unknown."""

    user: str
    slate_id: str
    number: int
    created_at: float
    policy: str
    place: int
    item: ItemId
    clicked: bool
    propensity: float | None


def shown_items(store: Store) -> Iterator[ShownItem]:
    """Iterate over what was shown, user by user, in short reads."""
    for user in store.users():
        yield from store.read(lambda transaction, user=user: [*_of_user(transaction, user)])  # type: ignore[misc]


def _of_user(transaction: Transaction, user: str) -> Iterator[ShownItem]:
    choices, events = transaction.choices_of(user), dict[str, list[Any]]()
    for event in transaction.feedback_of(user):
        events.setdefault(event.slate_id, []).append(event)
    for slate in transaction.slates_of(user):
        if slate.status != CLOSED:
            continue
        liked = Tally.of(events.get(slate.slate_id, ())).liked(slate.items)
        propensities = _propensities(choices.get(slate.number), len(slate.items))
        described = (user, slate.slate_id, slate.number, slate.created_at, slate.policy)
        for place, (item, propensity) in enumerate(zip(slate.items, propensities, strict=True), 1):
            yield ShownItem(*described, place, item, item in liked, propensity)


def _propensities(choice: Choice | None, size: int) -> list[float | None]:
    known: list[float | None] | None = None if choice is None else choice.get("propensities")
    return [None] * size if known is None else known
