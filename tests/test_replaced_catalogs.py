"""A catalog that was replaced is gone at once, without waiting for the garbage collector."""

import gc
import weakref
from collections.abc import Callable, Iterator
from functools import lru_cache, partial

import pytest

from slatewise.recommender import Item, Recommender
from slatewise.recommender.served_catalog import ServedCatalog
from slatewise.recommender.slate_rules import AtMost, Boost, SlateRules
from tests.support.recommending import ids, make_catalog, served_catalog

RULES = SlateRules(filter="price < 9", boost=(Boost("price > 1", 2.0),), at_most=(AtMost(2, "price"),))


@pytest.fixture(autouse=True)
def _without_collections() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def use_everything(recommender: Recommender) -> None:
    """Look up titles, conditions, factors and values."""
    recommender.put_items([Item(7, "A", attributes={"price": 3.0})])
    for user in ("ann", "ben"):
        slate = recommender.recommend(user, 4)
        recommender.feedback(slate.slate_id, ids(slate)[:1])
        recommender.recommend(user, 1, rules=RULES)


def replace_catalog(recommender: Recommender) -> None:
    recommender.use_catalog(make_catalog(60, seed=8))


def change_item(recommender: Recommender) -> None:
    recommender.put_items([Item(7, "A", attributes={"price": 4.0})])


@pytest.mark.parametrize("change", [replace_catalog, change_item])
def test_what_was_served_before_is_freed(change: Callable[[Recommender], None]) -> None:
    with Recommender(make_catalog(60)) as recommender:
        use_everything(recommender)
        before = weakref.ref(served_catalog(recommender))
        change(recommender)
        recommender.recommend("ann", 2)
        assert before() is None


def test_a_cycle_would_be_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Negative control: a cache around a method of the object that holds it."""
    original = ServedCatalog.__init__

    def with_cycle(self: ServedCatalog, *arguments: object) -> None:
        original(self, *arguments)  # type: ignore[arg-type]
        self.label = lru_cache(8)(partial(lambda served, number: served.catalog.titles[number], self))

    monkeypatch.setattr(ServedCatalog, "__init__", with_cycle)
    with Recommender(make_catalog(60)) as recommender:
        before = weakref.ref(served_catalog(recommender))
        replace_catalog(recommender)
        assert before() is not None
