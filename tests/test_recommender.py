"""The online recommender on the plain store: what is shown, why, and what counts once."""

import gc
import weakref
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from slatewise.catalog import Catalog
from slatewise.policies import POLICIES
from slatewise.recommender import ConflictError, Preview, Recommender, RequestError, Slate, UnknownSlateError
from slatewise.recommender.types import LEARNED, REASONS
from slatewise.slates.quantized import VARIABLE
from tests.support.recommending import Clock, ids, make_catalog


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    return make_catalog()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def recommender(catalog: Catalog, clock: Clock) -> Iterator[Recommender]:
    with Recommender(catalog, clock=clock) as opened:
        yield opened


def test_a_slate_says_what_and_why(recommender: Recommender) -> None:
    slate = recommender.recommend("ann", 5)
    assert isinstance(slate, Slate)
    assert len(set(ids(slate))) == 5
    assert slate.number == 0
    assert slate.policy == "dc2b-calibrated"
    assert slate.variety is not None
    assert 0.0 <= slate.variety <= 1.0
    for item in slate.items:
        assert item.title == str(item.id)
        assert item.categories
        assert item.probability is not None
        assert 0.0 <= item.probability <= 1.0
        assert item.deviation is not None
        assert item.reason in set(REASONS) - {LEARNED}


def test_what_was_clicked_gives_the_reason(recommender: Recommender) -> None:
    first = recommender.recommend("ann", 10)
    recommender.feedback(first.slate_id, ids(first)[:3])
    later = [item for _ in range(4) for item in recommender.recommend("ann", 10).items]
    cited = [item for item in later if item.because is not None]
    assert cited
    assert all(item.reason == LEARNED and item.because in ids(first)[:3] and item.because_title for item in cited)


def test_a_click_that_was_retracted_gives_no_reason(recommender: Recommender) -> None:
    """Whatever arrives first, the click or its retraction."""
    slate = recommender.recommend("ann", 10)
    recommender.feedback(slate.slate_id, [], retracted=ids(slate)[:3], event_id="undo", final=False)
    recommender.feedback(slate.slate_id, ids(slate)[:3], event_id="click")
    later = [item for _ in range(4) for item in recommender.recommend("ann", 10).items]
    assert not [item for item in later if item.because is not None]


def test_clicks_change_the_next_slate(catalog: Catalog) -> None:
    with Recommender(catalog) as first, Recommender(catalog) as second:
        for recommender, clicked in ((first, slice(0, 3)), (second, slice(7, 10))):
            slate = recommender.recommend("ann", 10)
            recommender.feedback(slate.slate_id, ids(slate)[clicked])
        assert ids(first.recommend("ann")) != ids(second.recommend("ann"))


@pytest.mark.parametrize("name", [name for name in POLICIES if not hasattr(POLICIES[name], "needs")])
def test_nothing_is_shown_twice_until_the_catalog_runs_out_and_then_the_oldest_return(name: str) -> None:
    with Recommender(make_catalog(23), name) as recommender:
        slates = [ids(recommender.recommend("ann", 10)) for _ in range(4)]
    assert len({*slates[0], *slates[1]}) == 20
    assert {*slates[0], *slates[1], *slates[2]} == set(range(100, 123))
    assert set(slates[2]) & {*slates[0], *slates[1]} <= set(slates[0])
    assert len(set(slates[3])) == 10
    assert not set(slates[3]) & (set(slates[2]) - set(slates[0]))


@pytest.mark.parametrize("quantized_from", ["1", "never"])
def test_what_is_excluded_and_what_was_shown_stay_out_together(
    quantized_from: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the int8 copy of a large catalog as well, which looks up by bisection what must not be shown."""
    monkeypatch.setenv(VARIABLE, quantized_from)
    shown, random = list[Any](), np.random.default_rng(0)
    with Recommender(make_catalog(300)) as recommender:
        for visit in range(20):
            liked = ids(recommender.recommend(f"somebody {visit}", 100))
            exclude = [liked[place] for place in random.choice(100, 15, replace=False)]
            slate = ids(recommender.recommend("ann", 10, exclude=exclude))
            assert not set(slate) & {*exclude, *shown}
            shown += slate


def test_filters(recommender: Recommender) -> None:
    only = [100, 105, 110, 115]
    assert set(ids(recommender.recommend("ann", 10, candidates=only))) == set(only)
    assert 100 not in ids(recommender.recommend("ben", 60, exclude=[100]))
    varied = recommender.recommend("cat", 60, categories=["A", "B"])
    assert all(set(item.categories) & {"A", "B"} for item in varied.items)
    assert len(varied.items) == 30
    both = recommender.recommend("dan", 10, candidates=only, categories=["A", "B"], exclude=[100])
    assert ids(both) == [105]


@pytest.mark.parametrize(
    "options",
    [
        {"k": 0},
        {"k": 501},
        {"k": True},
        {"user": ""},
        {"user": "x" * 257},
        {"user": "nul\0"},
        {"user": "\ud800"},
        {"diversity": 1.5},
        {"diversity": float("nan")},
        {"diversity": "high"},
        {"candidates": 100},
        {"exclude": "100"},
        {"categories": "A"},
        {"candidates": [1]},
        {"candidates": []},
        {"categories": ["no such"]},
        {"policy": "no such"},
        {"policy": "ease"},
    ],
)
def test_what_cannot_be_served_is_refused_and_changes_nothing(
    recommender: Recommender, options: dict[str, Any]
) -> None:
    for serve in (recommender.recommend, recommender.preview):
        with pytest.raises(RequestError):
            serve(**{"user": "ann", **options})
    assert list(recommender.store.users()) == []


def test_more_diversity_makes_slates_more_varied(catalog: Catalog) -> None:
    varieties = []
    for diversity in (0.0, 1.0):
        with Recommender(catalog) as recommender:
            first = recommender.recommend("ann", diversity=diversity)
            recommender.feedback(first.slate_id, ids(first)[:2])
            varieties.append(recommender.recommend("ann", diversity=diversity).variety or 0.0)
    assert varieties[0] < varieties[1]


def test_a_preview_records_nothing_and_is_what_comes_next(recommender: Recommender) -> None:
    preview = recommender.preview("ann")
    assert isinstance(preview, Preview)
    assert not hasattr(preview, "slate_id")
    assert list(recommender.store.users()) == []
    assert recommender.recommend("ann").items == preview.items
    requests: list[dict[str, Any]] = [{}, {"policy": "dc2b"}, {"diversity": 1.0, "k": 3}, {"categories": ["A"]}]
    for options in requests:
        preview, slate = recommender.preview("ann", **options), recommender.recommend("ann", **options)
        assert (slate.items, slate.number, slate.policy) == (preview.items, preview.number, preview.policy)


def test_a_preview_that_replaces_a_slate_leaves_it_open(recommender: Recommender) -> None:
    first = recommender.recommend("ann")
    preview = recommender.preview("ann", replaces=first.slate_id)
    assert set(ids(preview)) & set(ids(first))
    assert [slate["status"] for slate in recommender.export("ann")["slates"]] == ["open"]
    assert recommender.recommend("ann", replaces=first.slate_id).items == preview.items


def test_a_replaced_slate_was_never_shown(recommender: Recommender) -> None:
    first = recommender.recommend("ann", diversity=0.0)
    second = recommender.recommend("ann", diversity=1.0, replaces=first.slate_id)
    recommender.feedback(second.slate_id, [])
    assert recommender.explain("ann").slates == 1
    third = recommender.recommend("ann", 60 - 10)
    assert not set(ids(third)) & set(ids(second))
    assert set(ids(third)) >= set(ids(first)) - set(ids(second))


def test_a_slate_with_clicks_is_closed_not_replaced(recommender: Recommender) -> None:
    first = recommender.recommend("ann")
    recommender.feedback(first.slate_id, ids(first)[:1], final=False)
    recommender.recommend("ann", replaces=first.slate_id)
    assert recommender.explain("ann").slates == 1


def test_only_an_open_slate_of_the_same_user_is_replaced(recommender: Recommender) -> None:
    closed, other = recommender.recommend("ann"), recommender.recommend("ben")
    recommender.feedback(closed.slate_id, [])
    for slate_id in (closed.slate_id, other.slate_id, "no such slate"):
        recommender.recommend("ann", 5, replaces=slate_id)
    statuses = [slate["status"] for user in ("ann", "ben") for slate in recommender.export(user)["slates"]]
    assert statuses == ["closed", "closed", "closed", "open", "open"]


def test_a_slate_closes_on_final_feedback_with_the_next_slate_or_after_a_while(
    recommender: Recommender, clock: Clock
) -> None:
    first = recommender.recommend("ann")
    assert not recommender.feedback(first.slate_id, ids(first)[:1], final=False).closed
    assert recommender.explain("ann").slates == 0
    assert recommender.feedback(first.slate_id, []).closed
    assert recommender.explain("ann").slates == 1
    recommender.recommend("ann")
    recommender.recommend("ann")
    assert recommender.explain("ann").slates == 2
    clock.now += 1799
    assert recommender.close_expired() == 0
    clock.now += 2
    assert recommender.close_expired() == 1
    assert recommender.explain("ann").slates == 3
    assert recommender.close_expired() == 0


def test_events_count_once(recommender: Recommender) -> None:
    slate = recommender.recommend("ann")
    clicked = ids(slate)[:2]
    receipts = [recommender.feedback(slate.slate_id, clicked, event_id="e1") for _ in range(3)]
    assert [receipt.duplicate for receipt in receipts] == [False, True, True]
    assert recommender.feedback(slate.slate_id, clicked[::-1], event_id="e1").duplicate is True
    assert recommender.feedback(slate.slate_id, clicked[:1]).duplicate is False
    assert recommender.feedback(slate.slate_id, clicked[:1]).duplicate is True
    assert recommender.explain("ann").clicks == 2
    for changes in ({"clicked": ids(slate)[2:3]}, {"clicked": clicked, "final": False}, {"retracted": clicked}):
        with pytest.raises(ConflictError):
            recommender.feedback(slate.slate_id, event_id="e1", **changes)
    assert recommender.explain("ann").clicks == 2


def test_without_an_event_id_the_order_of_clicks_does_not_matter(recommender: Recommender) -> None:
    slate = recommender.recommend("ann")
    receipts = [recommender.feedback(slate.slate_id, clicked) for clicked in (ids(slate)[:3], ids(slate)[2::-1])]
    assert [receipt.duplicate for receipt in receipts] == [False, True]


def test_a_repeat_of_an_event_in_time_is_not_late(recommender: Recommender) -> None:
    slate = recommender.recommend("ann")
    receipts = [recommender.feedback(slate.slate_id, ids(slate)[:1], event_id="e") for _ in range(2)]
    assert [receipt.late for receipt in receipts] == [False, False]


def test_feedback_that_makes_no_sense_is_refused(recommender: Recommender) -> None:
    slate = recommender.recommend("ann")
    with pytest.raises(UnknownSlateError):
        recommender.feedback("no such slate", [])
    for wrong in ([1], [str(ids(slate)[0])], [True]):
        with pytest.raises(RequestError):
            recommender.feedback(slate.slate_id, wrong)
    with pytest.raises(RequestError):
        recommender.feedback(slate.slate_id, ids(slate)[:1], retracted=ids(slate)[:1])
    first = ids(slate)[0]
    not_lists: dict[str, Any] = {"clicked": first, "retracted": first, "disliked": str(first), "seen": 1.5}
    for name, value in not_lists.items():
        with pytest.raises(RequestError, match=f"{name} must be a list"):
            recommender.feedback(slate.slate_id, **{name: value})
    not_graded: list[Any] = [1, [first], {first: "high"}, {first: None}]
    for values in not_graded:
        with pytest.raises(RequestError, match="values must be a number for each item"):
            recommender.feedback(slate.slate_id, values=values)
    assert recommender.export("ann")["feedback"] == []


def test_a_recommender_needs_a_catalog() -> None:
    directory: Any = "shop"
    with pytest.raises(ValueError, match=r"catalog is 'shop'; give a Catalog, such as Catalog\.load"):
        Recommender(directory)


def test_numpy_ids_are_ids(recommender: Recommender) -> None:
    slate = recommender.recommend("ann")
    assert not recommender.feedback(slate.slate_id, np.array(ids(slate)[:2])).duplicate


def test_a_catalog_that_is_no_longer_served_is_released(recommender: Recommender) -> None:
    first = make_catalog(40, seed=7)
    recommender.use_catalog(first)
    slate = recommender.recommend("ann")
    recommender.feedback(slate.slate_id, ids(slate)[:1])
    released = weakref.ref(first)
    recommender.use_catalog(make_catalog(40, seed=8))
    recommender.recommend("ann")
    del first
    gc.collect()
    assert released() is None


def test_forget_leaves_nothing(recommender: Recommender) -> None:
    slate = recommender.recommend("ann")
    recommender.recommend("ben")
    recommender.feedback(slate.slate_id, ids(slate)[:1])
    assert recommender.export("ann")["feedback"]
    assert recommender.forget("ann")
    assert not recommender.forget("ann")
    assert list(recommender.store.users()) == ["ben"]
    with pytest.raises(RequestError):
        recommender.export("ann")
    with pytest.raises(UnknownSlateError):
        recommender.feedback(slate.slate_id, ids(slate)[:1])
    recommender.rebuild("ann")
    assert list(recommender.store.users()) == ["ben"]
    assert ids(recommender.recommend("ann")) == ids(slate)


def test_explain_shows_taste_by_category(catalog: Catalog) -> None:
    with Recommender(catalog) as recommender:
        for _ in range(3):
            slate = recommender.recommend("ann", 12)
            recommender.feedback(slate.slate_id, [item.id for item in slate.items if "A" in item.categories])
        view = recommender.explain("ann")
    assert view.slates == 3
    assert len(view.rounds) == 3
    assert sum(round_.clicks for round_ in view.rounds) == view.clicks
    taste = {category.name: category for category in view.categories}
    assert taste["A"].clicked == view.clicks
    assert taste["A"].lift is not None
    assert all(taste["A"].lift > (taste[other].lift or 0.0) for other in "BCD")
    assert all(round_.x is not None for round_ in view.rounds)
    assert {name for name, _, _ in view.landmarks} == set(catalog.category_names)


@pytest.mark.parametrize("name", ["popular", "dc2b", "c2ucb", "ec-bandit"])
def test_explain_works_for_every_kind_of_policy(catalog: Catalog, name: str) -> None:
    with Recommender(catalog, name) as recommender:
        slate = recommender.recommend("ann")
        recommender.feedback(slate.slate_id, ids(slate)[:2])
        assert recommender.explain("ann").clicks == 2
        assert recommender.explain("nobody").slates == 0
