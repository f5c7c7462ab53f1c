"""Items by text and category, most liked first; quick for a million of them."""

import re
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from slatewise.catalog.identifiers import people_title
from slatewise.recommender.items import ItemSnapshot
from slatewise.service.schemas import ItemList, ItemsQuery, ItemView

Booleans = NDArray[np.bool_]
Integers = NDArray[np.int64]


class ItemSearch:
    """Searches the items of one version; its index is built when it is first needed."""

    def __init__(self, items: ItemSnapshot) -> None:
        self.items = items
        self.catalog = items.catalog

    def with_items(self, items: ItemSnapshot) -> "ItemSearch":
        """Return the search over other items; the index stays if their texts do."""
        search = ItemSearch(items)
        if items.catalog is self.catalog:
            vars(search).update({name: value for name, value in vars(self).items() if name in ("_order", "_text")})
        return search

    @cached_property
    def _order(self) -> Integers:
        """All items, most liked first."""
        return np.argsort(-self.catalog.log_odds, kind="stable")

    @cached_property
    def _text(self) -> tuple[str, Integers]:
        """Ids and titles as one text with an item per line, and where each line starts."""
        pairs = zip(self.catalog.item_ids, self.catalog.titles, strict=True)
        lines = [_folded(f"{identifier}\t{people_title(title)}") for identifier, title in pairs]
        lengths = np.fromiter((len(line) + 1 for line in lines), dtype=np.int64, count=len(lines))
        return "\n".join(lines), np.concatenate([[0], np.cumsum(lengths)[:-1]])

    def find(self, query: ItemsQuery) -> ItemList:
        """Return one page of the items that match."""
        matches = np.ones(self.catalog.n_items, dtype=np.bool_)
        if query.query:
            matches = self._containing(_folded(query.query))
        if query.category is not None:
            matches = matches & self._in_category(query.category)
        if query.available is not None:
            matches = matches & (self.items.available == query.available)
        items = self._order[matches[self._order]]
        page = items[query.offset : query.offset + query.limit]
        return ItemList(len(items), [self._view(item) for item in page.tolist()])

    def _containing(self, text: str) -> Booleans:
        lines, starts = self._text
        positions = np.fromiter((match.start() for match in re.finditer(re.escape(text), lines)), dtype=np.int64)
        matches = np.zeros(len(starts), dtype=np.bool_)
        matches[np.searchsorted(starts, positions, side="right") - 1] = True
        return matches

    def _in_category(self, name: str) -> Booleans:
        if name not in self.catalog.category_names:
            return np.zeros(self.catalog.n_items, dtype=np.bool_)
        return self.catalog.categories[:, self.catalog.category_names.index(name)]

    def _view(self, item: int) -> ItemView:
        identifier = self.catalog.item_ids[item]
        shown = identifier if isinstance(identifier, int) else str(identifier)
        is_available = bool(self.items.available[item])
        return ItemView(shown, people_title(self.catalog.titles[item]), self.catalog.categories_of(item), is_available)


def _folded(text: str) -> str:
    """Fold case, and keep one item on one line."""
    return text.casefold().replace("\n", " ")
