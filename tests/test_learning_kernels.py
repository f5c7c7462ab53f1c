"""What a slate adds to what is known about a user, recomputed one number at a time: shown items, counts, citations."""

from collections import defaultdict
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slatewise import belief
from slatewise.evidence import Evidence
from slatewise.policies.calibrated import Calibrated
from slatewise.recommender.learning import (
    NO_ITEMS,
    NO_LIKES,
    NO_TIMES,
    RECENT_SLATES,
    Learned,
    LoggedSlate,
    Shown,
    Tally,
    counts_of,
    with_likes,
)
from slatewise.recommender.reasons import cited
from slatewise.recommender.types import LEARNED, POPULAR
from slatewise.store.records import CLOSED, SlateRecord
from tests.support.recommending import make_catalog

seeds = st.integers(0, 2**32 - 1)


@given(seed=seeds)
def test_of_an_item_shown_twice_the_later_times_count(seed: int) -> None:
    draw = np.random.default_rng(seed)
    shown, known = Shown(NO_ITEMS, NO_TIMES, NO_TIMES), dict[int, tuple[float, float]]()
    for _ in range(4):
        numbers = draw.integers(0, 12, draw.integers(0, 6))
        at = draw.integers(0, 9, len(numbers)).astype(float)
        until = at + draw.integers(1, 9, len(numbers)).astype(float)
        shown = shown.with_items(numbers, at, until)
        for number, *times in zip(numbers.tolist(), at.tolist(), until.tolist(), strict=True):
            before = known.get(number, (-1.0, -1.0))
            known[number] = max(before[0], times[0]), max(before[1], times[1])
    assert shown.numbers.tolist() == sorted(known)
    assert [*zip(shown.at.tolist(), shown.until.tolist(), strict=True)] == [known[number] for number in sorted(known)]


@given(seed=seeds)
def test_items_are_counted_by_category(seed: int) -> None:
    """Items that the catalog no longer has count only among the likes."""
    draw = np.random.default_rng(seed)
    categories = draw.random((9, 3)) < 0.4
    policy: Any = SimpleNamespace(categories=categories)
    slates, expected = [], np.zeros((2, 4), dtype=np.int64)
    for number in range(3):
        items = draw.choice(9, 4, replace=False)
        numbers = np.where(draw.random(4) < 0.2, -1, items)
        liked = [int(item) for item in items if draw.random() < 0.5]
        record = SlateRecord(
            f"s{number}", "ann", number, 0.0, "digest", "policy", (*items.tolist(),), None, status=CLOSED
        )
        slates.append(
            LoggedSlate(record, numbers, Tally(dict.fromkeys(liked, 1), mentioned=frozenset(liked), n_events=1))
        )
        expected[:, 3] += 1, len(liked)
        for item, at in zip(items.tolist(), numbers.tolist(), strict=True):
            for category in range(3):
                expected[0, category] += at >= 0 and bool(categories[at, category])
                expected[1, category] += at >= 0 and item in liked and bool(categories[at, category])
    assert counts_of(policy, slates).tolist() == expected.tolist()


@given(seed=seeds)
def test_likes_are_kept_in_the_order_of_the_log(seed: int) -> None:
    """Whatever the order in which they are learned: a late event belongs before slates that are learned already."""
    draw = np.random.default_rng(seed)
    rows = [(*draw.integers(0, 400, 1).tolist(), *draw.random(5).tolist()) for _ in range(12)]
    nothing = Shown(NO_ITEMS, NO_TIMES, NO_TIMES)
    learned = Learned(150, {}, np.zeros((2, 1), dtype=np.int64), 0.0, nothing, NO_ITEMS, NO_LIKES, NO_ITEMS)
    for start in range(0, 12, 4):
        learned = with_likes(learned, rows[start : start + 4])
    expected = [row for row in sorted(rows) if row[0] >= 2 * (150 - RECENT_SLATES)]
    assert [*map(tuple, learned.likes.tolist())] == expected


def cited_by_loops(shares: Any, liked: list[int], numbers: list[int], decided: list[str]) -> list[int | None]:
    """Where shares are largest, items choose first; a like is cited twice at most, and never for itself."""
    totals = [defaultdict[int, float](float) for _ in numbers]
    for total, row, number in zip(totals, shares.tolist(), numbers, strict=True):
        for like, share in zip(liked, row, strict=True):
            total[like] += share if like != number else 0.0
    largest = [max(total.values()) for total in totals]
    found: list[int | None] = [None] * len(numbers)
    for place in sorted(range(len(numbers)), key=lambda place: -largest[place]):
        if decided[place] == LEARNED and largest[place] > 0.0:
            left = {like: total for like, total in totals[place].items() if found.count(like) < 2}
            best = max(left, key=lambda like: left[like], default=None)
            if best is not None and left[best] >= 0.5 * largest[place]:
                found[place] = best
    return found


@given(seed=seeds)
def test_citations_are_those_of_plain_loops(seed: int) -> None:
    draw = np.random.default_rng(seed)
    k, n = int(draw.integers(1, 8)), int(draw.integers(1, 9))
    liked, numbers = draw.integers(0, 6, n), draw.choice(12, k, replace=False)
    shares = draw.normal(0.1, 1.0, (k, n))
    decided = [LEARNED if draw.random() < 0.8 else POPULAR for _ in range(k)]
    found = cited(shares, liked, numbers, decided)
    assert found == cited_by_loops(shares, liked.tolist(), numbers.tolist(), decided)


@given(seed=seeds)
def test_shifts_of_observations_add_up_to_what_learning_adds(seed: int) -> None:
    policy, draw = Calibrated(make_catalog(40)), np.random.default_rng(seed)
    shape = (1, 6)
    evidence = Evidence(
        draw.choice(40, shape, replace=False),
        draw.random(shape),
        draw.uniform(0.1, 2.0, shape),
        draw.uniform(0.1, 1.0, shape),
    )
    start = policy.start(1)
    added = policy.update(start, evidence)["shift"][0] - start["shift"][0]
    np.testing.assert_allclose(policy.shifts(evidence).sum(axis=0), added, rtol=1e-9, atol=1e-9)


def test_a_like_of_an_item_that_is_not_there_is_refused() -> None:
    policy = Calibrated(make_catalog(40))
    for item in (-1, 40):
        ones = np.ones((1, 1))
        with pytest.raises(IndexError, match="40 items"):
            belief.observation_shifts(Evidence(np.array([[item]]), ones, ones, ones), policy.model)
