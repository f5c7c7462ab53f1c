"""What a shop does with its items: put, change, withdraw, look at; each in one transaction."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

import numpy as np

from slatewise.catalog.identifiers import people_title
from slatewise.recommender.attributes import check_text, checked_attributes, kind_of, seconds
from slatewise.recommender.items import ItemSnapshot, catalog_id
from slatewise.recommender.recommend import MAX_ID_LENGTH, check_id, plain_id
from slatewise.recommender.types import ItemDetails, RequestError, RuleError, UnknownItemError
from slatewise.store.protocol import WRITER_OF_ITEMS, Transaction
from slatewise.store.records import ItemId, ItemRecord

MAX_TITLE = 1_000
MAX_CATEGORIES = 100
MAX_VECTOR = 4_096
LARGEST_NUMBER = 1e30


@dataclass(frozen=True)
class Item:
    """An item as a shop describes it; it is checked when it is created.

    title, categories: those that the catalog was trained with, if they are not given. attributes: text, numbers,
    booleans, lists of text and times, by name. vector: as long as the catalog's own, to be expected to be liked by
    those who like items with similar ones. published_at: a time before which the item is not offered.

    Examples
    --------
    >>> Item("tea", "Green tea", ["Hot"], {"price": 3.5, "organic": True}).attributes
    {'organic': True, 'price': 3.5}
    """

    id: ItemId
    title: str | None = None
    categories: Collection[str] | None = None
    attributes: Mapping[str, Any] = field(default_factory=dict)
    vector: Sequence[float] | None = None
    available: bool = True
    published_at: float | str | datetime | None = None

    def __post_init__(self) -> None:
        checked = {
            "id": _checked_id(self.id),
            "title": None if self.title is None else check_text("title", self.title, MAX_TITLE),
            "categories": None if self.categories is None else _checked_categories(self.categories),
            "attributes": checked_attributes(self.attributes),
            "vector": None if self.vector is None else _checked_vector(self.vector),
            "published_at": None if self.published_at is None else seconds("published_at", self.published_at),
        }
        for name, value in checked.items():
            object.__setattr__(self, name, value)
        if not isinstance(self.available, bool):
            raise RequestError("available must be true or false")

    def record(self, at: float) -> ItemRecord:
        """Return the item as the store keeps it, changed at a time."""
        return ItemRecord(updated_at=at, item=self.id, **{name: getattr(self, name) for name in FIELDS})


FIELDS = ("title", "categories", "attributes", "vector", "available", "published_at")
"""What can be said about an item."""


def as_items(given: Iterable[Item | Mapping[str, Any]]) -> list[Item]:
    """Return items, which may be given as plain data, as in JSON; say which one is none."""
    return [item if isinstance(item, Item) else _as_item(position, item) for position, item in enumerate(given)]


def _as_item(position: int, given: Mapping[str, Any]) -> Item:
    if not isinstance(given, Mapping) or "id" not in given or not given.keys() <= {"id", *FIELDS}:
        names = ", ".join(FIELDS)
        raise RuleError(
            f"items/{position}", f"an item is an Item, or a dict of id and perhaps {names}, and nothing else"
        )
    try:
        return Item(**given)
    except RequestError as error:
        raise RuleError(f"items/{position}", str(error)) from error


def check_items(snapshot: ItemSnapshot, items: Sequence[Item]) -> None:
    """Refuse items that are given twice, or do not fit the catalog or the attributes of others, and say which."""
    first = dict[ItemId, int]()
    for position, item in enumerate(items):
        if first.setdefault(item.id, position) != position:
            raise RuleError(
                f"items/{position}/id", f"the item at position {first[item.id]} is the same; send each item once"
            )
        try:
            check_id_type(snapshot, item.id)
            _check_vector(snapshot, item.vector)
        except RequestError as error:
            raise RuleError(f"items/{position}", str(error)) from error
    _check_kinds(snapshot, items)


def check_item(snapshot: ItemSnapshot, item: Item) -> None:
    """Refuse one item that does not fit; errors point into the item itself."""
    try:
        check_items(snapshot, [item])
    except RuleError as error:
        raise error.within("items/0") from error


def _check_kinds(snapshot: ItemSnapshot, items: Sequence[Item]) -> None:
    """Refuse an attribute whose kind is not that of the items before it, or of the items that stay as they are."""
    ids = [item.id for item in items]
    kinds = dict[str, str]()
    for position, item in enumerate(items):
        for name, value in item.attributes.items():
            kind, known = kind_of(value), snapshot.kinds.get(name)
            if name not in kinds and known not in (None, kind) and snapshot.uses(name, known, ids):
                kinds[name] = known
            wanted = kinds.setdefault(name, kind)
            if kind != wanted:
                raise RuleError(
                    f"items/{position}/attributes/{name}",
                    f"attribute {name} of other items is a {wanted}, not a {kind}; send a {wanted}",
                )


def check_id_type(snapshot: ItemSnapshot, item: ItemId) -> None:
    """Refuse an id of another type than the catalog's."""
    if catalog_id(snapshot.catalog, item) is None:
        wanted = {"int": "whole numbers", "str": "text", "uuid": "UUIDs"}[snapshot.catalog.item_ids.kind]
        raise RequestError(f"the ids of this catalog are {wanted}; send such an id")


def _check_vector(snapshot: ItemSnapshot, vector: Sequence[float] | None) -> None:
    """Refuse a vector that the catalog has no use for."""
    if vector is not None and not snapshot.catalog.takes_vectors:
        raise RequestError("this catalog learned its vectors from likes and takes no given ones; leave vector out")
    if vector is not None and len(vector) != snapshot.catalog.dim:
        raise RequestError(
            f"a vector has {len(vector)} numbers; the vectors of this catalog have {snapshot.catalog.dim}"
        )


def patch_item(
    snapshot: ItemSnapshot, transaction: Transaction, item: ItemId, changes: Mapping[str, Any], at: float
) -> int:
    """Change what is given about an item; attributes by name, and those that are None are removed.

    What is not changed is not checked: an item from an older catalog or import may have what would not fit now.
    """
    transaction.lock(WRITER_OF_ITEMS)
    known = _known(snapshot, transaction, item)
    described = {name: getattr(known, name) for name in FIELDS}
    sent = changes.get("attributes", {})
    patched = Item(item, **{**described, **changes, "attributes": {**known.attributes, **sent}})
    new = {name: value for name, value in patched.attributes.items() if name in sent}
    check_item(snapshot, replace(patched, attributes=new, vector=changes.get("vector")))
    return transaction.put_items([patched.record(at)])


def withdraw_items(snapshot: ItemSnapshot, transaction: Transaction, items: Sequence[ItemId], at: float) -> int:
    """Make items unavailable; all of them or, if one is unknown, none."""
    transaction.lock(WRITER_OF_ITEMS)
    known = [_known(snapshot, transaction, item) for item in items]
    return transaction.put_items([record._replace(available=False, updated_at=at) for record in known])


def item_details(snapshot: ItemSnapshot, transaction: Transaction, items: Iterable[ItemId]) -> list[ItemDetails]:
    """Return what is known about items, those of the catalog and those of the item table."""
    return [_details(snapshot, item, _known(snapshot, transaction, item)) for item in items]


def _known(snapshot: ItemSnapshot, transaction: Transaction, item: ItemId) -> ItemRecord:
    """Return an item as the table has it, or as one of the catalog that the table says nothing about."""
    record = transaction.item(item)
    if record is not None:
        return record
    wanted = catalog_id(snapshot.catalog, item)
    number = None if wanted is None else snapshot.catalog.trained.item_ids.find(wanted)
    if number is None:
        raise UnknownItemError("neither the catalog nor the item table has this item")
    trained = snapshot.catalog.trained.available
    return ItemRecord(item, available=trained is None or bool(trained[number]))


def _details(snapshot: ItemSnapshot, item: ItemId, record: ItemRecord) -> ItemDetails:
    wanted = catalog_id(snapshot.catalog, item)
    trained = snapshot.catalog.trained
    number = None if wanted is None else trained.item_ids.find(wanted)
    title = (
        record.title
        if record.title is not None
        else str(item)
        if number is None
        else people_title(trained.titles[number])
    )
    categories = record.categories
    if categories is None:
        categories = () if number is None else trained.categories_of(number)
    return ItemDetails(
        item,
        title if record.title is None else record.title,
        tuple(categories),
        dict(record.attributes),
        record.available,
        record.published_at,
        number is not None,
        record.vector,
        record.updated_at or None,
    )


def _checked_id(item: object) -> ItemId:
    plain = plain_id(item)
    if isinstance(plain, str):
        check_id("id", plain)
    if isinstance(plain, bool) or (isinstance(plain, int) and not abs(plain) < 2**63):
        raise RequestError("id must be a whole number of 64 bits or text")
    return plain


def _checked_categories(categories: Collection[str]) -> tuple[str, ...]:
    if isinstance(categories, str) or len(categories) > MAX_CATEGORIES:
        raise RequestError(f"categories must be a list of at most {MAX_CATEGORIES} names")
    for name in categories:
        check_text("a category", name, MAX_ID_LENGTH)
        if not name or "|" in name:
            raise RequestError("the name of a category must not be empty or contain |")
    return tuple(dict.fromkeys(categories))


def _checked_vector(vector: Sequence[float]) -> tuple[float, ...]:
    """Return a vector of float32 numbers."""
    if not 1 <= len(vector) <= MAX_VECTOR:
        raise RequestError(f"a vector must have 1 to {MAX_VECTOR} numbers")
    try:
        numbers = np.array(vector, dtype=np.float64)
    except (TypeError, ValueError):
        raise RequestError("a vector must be a list of numbers") from None
    if numbers.ndim != 1 or not (np.abs(numbers) <= LARGEST_NUMBER).all():
        raise RequestError("a vector must be a list of finite numbers")
    return tuple(numbers.astype(np.float32).astype(np.float64).tolist())
