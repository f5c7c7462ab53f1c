"""Items by text and category, most liked first; quick for a million of them."""

import re
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from slatewise.catalog import Catalog
from slatewise.service.models import ItemList, ItemsQuery, ItemView

Integers = NDArray[np.int64]


class ItemSearch:
    """The items of one catalogue; what the search needs is made when it is first asked for."""

    def __init__(self, catalog: Catalog) -> None:
        self.catalog = catalog

    @cached_property
    def _order(self) -> Integers:
        """All items, most liked first."""
        return np.argsort(-self.catalog.log_odds, kind="stable")

    @cached_property
    def _text(self) -> tuple[str, Integers]:
        """Ids and titles as one text, an item per line, and where each line starts."""
        pairs = zip(self.catalog.item_ids, self.catalog.titles, strict=True)
        lines = [_plain(f"{identifier}\t{title}") for identifier, title in pairs]
        lengths = np.fromiter((len(line) + 1 for line in lines), dtype=np.int64, count=len(lines))
        return "\n".join(lines), np.concatenate([[0], np.cumsum(lengths)[:-1]])

    def find(self, wanted: ItemsQuery) -> ItemList:
        """Return one page of what matches."""
        chosen = np.ones(self.catalog.n_items, dtype=np.bool_)
        if wanted.query:
            chosen = self._holding(_plain(wanted.query))
        if wanted.category is not None:
            chosen = chosen & self._of_category(wanted.category)
        found = self._order[chosen[self._order]]
        page = found[wanted.offset : wanted.offset + wanted.limit]
        return ItemList(len(found), [self._view(number) for number in page.tolist()])

    def _holding(self, text: str) -> NDArray[np.bool_]:
        whole, starts = self._text
        places = np.fromiter((match.start() for match in re.finditer(re.escape(text), whole)), dtype=np.int64)
        chosen = np.zeros(len(starts), dtype=np.bool_)
        chosen[np.searchsorted(starts, places, side="right") - 1] = True
        return chosen

    def _of_category(self, name: str) -> NDArray[np.bool_]:
        if name not in self.catalog.category_names:
            return np.zeros(self.catalog.n_items, dtype=np.bool_)
        return self.catalog.categories[:, self.catalog.category_names.index(name)]

    def _view(self, number: int) -> ItemView:
        identifier = self.catalog.item_ids[number]
        shown = identifier if isinstance(identifier, int) else str(identifier)
        return ItemView(shown, self.catalog.titles[number], self.catalog.categories_of(number))


def _plain(text: str) -> str:
    """Fold case, and keep one item on one line."""
    return text.casefold().replace("\n", " ")
