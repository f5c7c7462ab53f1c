"""One change of an item costs what the change is, not what the catalog is: everything else is shared, not copied."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slatewise.belief.rates import Rates
from slatewise.catalog import Catalog, blocked_text
from slatewise.catalog.blocked_text import BlockedText
from slatewise.policies.calibrated import Calibrated
from slatewise.randomness import Streams, user_keys
from slatewise.recommender import Item, Recommender, SlateRules, item_frame
from slatewise.slates import Available, quantized
from tests.support.recommending import make_catalog, restarted, served_catalog

N_ITEMS = 100
PART = 8
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=4)


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    return make_catalog(N_ITEMS)


@pytest.fixture
def shop(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> Recommender:
    """A service whose items have prices that somebody has asked about, in parts of eight items."""
    monkeypatch.setattr(item_frame, "PART", PART)
    monkeypatch.setattr(blocked_text, "PER_BLOCK", PART)
    recommender = Recommender(catalog)
    recommender.put_items(Item(item, attributes={"price": item}) for item in range(100, 100 + N_ITEMS))
    recommender.preview("ann", rules=SlateRules(filter="price > 0"))
    return recommender


def addresses(frame: pl.DataFrame) -> dict[int, int]:
    """How many rows of the prices are kept where."""
    chunks = [chunk.to_numpy(allow_copy=False) for chunk in frame["price"].get_chunks()]
    return {chunk.ctypes.data: len(chunk) for chunk in chunks}


def copied_rows(before: pl.DataFrame, after: pl.DataFrame) -> int:
    """How many rows of the prices are not where some rows of the frame before were."""
    kept = [range(start, start + 8 * n_rows) for start, n_rows in addresses(before).items()]
    return sum(n_rows for start, n_rows in addresses(after).items() if not any(start in memory for memory in kept))


def rebuilt_frame(frame: pl.DataFrame, items: Any, changed: list[int]) -> pl.DataFrame:
    """The negative control: every row is gathered."""
    del frame, changed
    whole = item_frame.item_frame(items)
    return whole[[*range(len(whole))]]


def changes(shop: Recommender) -> dict[str, Callable[[], int]]:
    return {
        "a price": lambda: shop.patch_item(150, {"attributes": {"price": 1.5}}),
        "availability": lambda: shop.withdraw_items([151]),
        "a new item": lambda: shop.put_items([Item(7, attributes={"price": 2})]),
    }


@pytest.mark.parametrize("name", ["a price", "availability", "a new item"])
def test_a_change_copies_only_the_part_it_is_in(shop: Recommender, name: str) -> None:
    before = shop.snapshot
    changes(shop)[name]()
    after = shop.snapshot
    assert 1 <= copied_rows(before.frame, after.frame) <= PART
    blocks = zip(before.attributes.blocks, after.attributes.blocks, strict=False)
    assert sum(one is not other for one, other in blocks) <= 1
    assert after.frame.equals(item_frame.item_frame(after).select(after.frame.columns))


def test_a_frame_that_is_made_again_would_be_noticed(shop: Recommender, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(item_frame, "changed_frame", rebuilt_frame)
    before = shop.snapshot
    changes(shop)["a price"]()
    assert copied_rows(before.frame, shop.snapshot.frame) >= N_ITEMS


def test_what_nothing_is_said_about_stays_the_same_object(shop: Recommender) -> None:
    served, before = served_catalog(shop), shop.snapshot
    changes(shop)["a price"]()
    after = shop.snapshot
    assert after.catalog is before.catalog
    assert after.available is before.available
    assert after.published_at is before.published_at
    assert served_catalog(shop).prepared() is served.prepared()


def counted_rows(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many items were prepared for choosing slates, each time that any were."""
    counts, prepare = list[int](), Calibrated.vectors_of

    def counting(policy: Calibrated, items: Any) -> Any:
        counts.append(len(items))
        return prepare(policy, items)

    monkeypatch.setattr(Calibrated, "vectors_of", counting)
    return counts


CONTENT: dict[str, Callable[[Recommender], int]] = {
    "a new item": lambda shop: shop.put_items([Item(7, "New", ["A", "Other"], vector=[1, 0, 0, 1, 0, 2])]),
    "categories": lambda shop: shop.patch_item(150, {"categories": ["B", "Other"]}),
    "two at once": lambda shop: shop.put_items([Item(8, "Newer", ["A"]), Item(150, None, ["New"])]),
}


@pytest.mark.parametrize("name", CONTENT)
@pytest.mark.parametrize("is_published", [False, True])
def test_policies_prepare_only_what_changed(
    shop: Recommender, name: str, is_published: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if is_published:
        for user in range(20):
            slate = shop.recommend(f"user {user}")
            shop.feedback(slate.slate_id, [slate.items[0].id])
        assert shop.learn_rates() > 0
    counts = counted_rows(monkeypatch)
    CONTENT[name](shop)
    assert 0 < sum(counts) <= 2
    afresh, served = served_catalog(restarted(shop)), served_catalog(shop)
    assert sum(counts) > N_ITEMS, "the negative control: a restart prepares everything"
    one, other = served.policy("dc2b-calibrated"), afresh.policy("dc2b-calibrated")
    for name_of_table in ("vectors", "rates", "noise", "features", "similarity_vectors"):
        table, expected = getattr(one.policy, name_of_table), getattr(other.policy, name_of_table)
        np.testing.assert_array_equal(table, expected, err_msg=name_of_table)
    assert (one.version, one.key) == (other.version, other.key)
    for visitor in ("ann", "user 3"):
        assert shop.preview(visitor).items == restarted(shop).preview(visitor).items


def test_rates_that_are_published_change_only_their_items(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    """Up to a share of the items; then the int8 copy is made again. What is chosen is the same."""
    monkeypatch.setenv(quantized.VARIABLE, "1")
    policy, mean = Calibrated(catalog), np.full(N_ITEMS, 0.2)
    policies = [policy.with_rates(Rates(mean, np.full(N_ITEMS, 9.0)))]
    assert len(policies[0].items.features) == N_ITEMS
    for item in range(10):
        mean = np.where(np.arange(N_ITEMS) == item, 0.3 + 0.01 * item, mean)
        policies.append(policies[-1].with_rates(Rates(mean, np.full(N_ITEMS, 9.0))))
        afresh = replace(policy).with_rates(Rates(mean, np.full(N_ITEMS, 9.0)))
        arguments = (policy.start(1), Available.of(N_ITEMS), 10, Streams(0, user_keys(["ann"]), 0))
        assert np.array_equal(policies[-1].select(*arguments).items, afresh.select(*arguments).items)
        assert np.array_equal(policies[-1].features, afresh.features)
    copied = [one for one in policies if one.n_changed == 0]
    assert 1 < len(copied) < 6


def test_an_attribute_may_change_its_kind_again_and_again(catalog: Catalog) -> None:
    recommender = Recommender(catalog)
    for value in (1.0, "cheap", 2.0, "dear"):
        recommender.put_items([Item(100, attributes={"price": value})])
        assert recommender.snapshot.frame["price"].drop_nulls().to_list() == [value]


@given(st.integers(0, 20), st.lists(st.lists(st.tuples(st.integers(0, 40), TEXT), max_size=3), max_size=4))
def test_blocked_text_is_a_list(n_texts: int, batches: list[list[tuple[int, str]]]) -> None:
    expected = [""] * n_texts
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocked_text, "PER_BLOCK", 3)
        texts = BlockedText.of_nothing(n_texts)
        for batch in batches:
            changed = {at: text for at, text in batch if at < len(expected)}
            changed |= {len(expected) + at: text for at, (_, text) in enumerate(batch)}
            expected += [""] * len(batch)
            for at, text in changed.items():
                expected[at] = text
            texts = texts.with_changes(changed)
        assert (len(texts), [*texts], texts[1:5], texts[::2]) == (
            len(expected),
            expected,
            expected[1:5],
            expected[::2],
        )
        assert [texts[at] for at in range(-len(expected), len(expected))] == expected * 2
