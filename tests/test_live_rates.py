"""Rates that learn from everyone: sums agree with the log, workers with each other, and slates repeat."""

import itertools
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from slatewise.catalog import Catalog
from slatewise.catalog.embeddings import Factors
from slatewise.data.synthetic import World, WorldSize, make_world
from slatewise.evidence import Attention
from slatewise.policies.calibrated import Calibrated
from slatewise.recommender import Item, PolicyShare, Recommender, live_rates
from slatewise.store import Store, StoreUnavailableError
from tests.support.recommending import Job, WrappedStore

WORLD = make_world(WorldSize(n_users=300, n_items=60, n_categories=5, dim=3), seed=5)
CLOCK = itertools.count(1_000.0)
POLICY = "dc2b-calibrated"


def trained(world: World) -> Catalog:
    return Catalog.from_factors(world.dataset, Factors(world.tastes, world.vectors), {})


def exploring(catalog: Catalog, store: str, explore: float = 1.0) -> Recommender:
    policies = {POLICY: PolicyShare(POLICY, options={"explore": explore})}
    return Recommender(catalog, policies, store, clock=lambda: float(next(CLOCK)))


def another(recommender: Recommender, store: Store | None = None) -> Recommender:
    """Another worker on the same store, which explores as much."""
    policies = {POLICY: PolicyShare(POLICY, options={"explore": 1.0})}
    return Recommender(recommender.catalog, policies, store or recommender.store)


@pytest.fixture
def store(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/slates.db"


def sums(recommender: Recommender) -> dict[object, tuple[float, ...]]:
    kept = recommender.store.read(lambda transaction: transaction.rates())
    return {item: tuple(round(value, 9) for value in vars(rate).values()) for item, rate in kept.items()}


def test_late_and_retracted_reactions_leave_what_the_log_says(store: str) -> None:
    with exploring(trained(WORLD), store) as recommender:
        slates = [recommender.recommend(f"user {number}", 5) for number in range(3)]
        first, second, third = ([item.id for item in slate.items] for slate in slates)
        recommender.feedback(slates[0].slate_id, [first[1]], final=False)
        recommender.feedback(slates[1].slate_id, [second[2]], seen=3)
        recommender.learn_rates()
        recommender.recommend("user 0", 5)
        recommender.feedback(slates[0].slate_id, [first[3]], retracted=[first[1]], event_id="late")
        recommender.feedback(slates[0].slate_id, [first[3]], retracted=[first[1]], event_id="late")
        recommender.feedback(slates[2].slate_id, values={third[0]: 0.5}, disliked=[third[1]])
        recommender.learn_rates()
        learned = sums(recommender)
        assert second[3] not in {item for item, (seen, *_) in learned.items() if seen} - {*first, *third}
        recommender.rebuild_rates()
        assert sums(recommender) == learned
        recommender.store.write(lambda t: t.add_rates("broken", {first[0]: replace(t.rates()[first[0]])})).result()
        assert sums(recommender) != learned


def test_feedback_on_a_slate_from_another_catalog_counts_for_that_one(store: str) -> None:
    """It is in use again after a rollback; and nothing is taken from it that it was never given."""
    catalog = trained(WORLD)
    with exploring(catalog, store) as recommender:
        slates = [recommender.recommend(f"user {number}", 5) for number in range(4)]
        for slate in slates[:2]:
            recommender.feedback(slate.slate_id, [slate.items[0].id], seen=5, final=False)
        recommender.use_catalog(replace(catalog, log_odds=catalog.log_odds + 0.1))
        for slate in slates[1:]:
            recommender.feedback(slate.slate_id, [slate.items[1].id], seen=5)
        recommender.learn_rates()
        recommender.use_catalog(catalog)
        recommender.feedback(slates[0].slate_id, retracted=[slates[0].items[0].id])
        recommender.learn_rates()
        learned = sums(recommender)
        recommender.rebuild_rates()
        assert sums(recommender) == learned != {}


def test_learning_all_again_keeps_what_was_said_about_another_catalog(store: str) -> None:
    """It was noted, but not learned yet; the log is only read for the catalog that is served."""
    catalog = trained(WORLD)
    with exploring(catalog, store) as recommender:
        slates = [recommender.recommend(f"user {number}", 5) for number in range(3)]
        recommender.use_catalog(replace(catalog, log_odds=catalog.log_odds + 0.1))
        for slate in slates:
            recommender.feedback(slate.slate_id, [slate.items[1].id], seen=5)
        recommender.rebuild_rates()
        recommender.use_catalog(catalog)
        learned = sums(recommender)
        recommender.rebuild_rates()
        assert sums(recommender) == learned != {}


def test_a_slate_that_was_seen_and_then_withdrawn_says_nothing(store: str) -> None:
    """Whether it is drafted first or chosen within the transaction, and whoever withdraws it."""
    with exploring(trained(WORLD), store) as recommender:
        other = another(recommender)
        for number, one in enumerate((recommender, other, recommender, other)):
            slate = recommender.recommend(f"user {number}", 5)
            recommender.feedback(slate.slate_id, seen=5, final=False)
            recommender.learn_rates()
            assert sums(recommender) != {}
            request = one.request(f"user {number}", 5, replaces=slate.slate_id)
            if number < 2:
                one.record(one.draft(request)).result()
            else:
                one.draft_and_record(request).result()
            one.learn_rates()
            recommender.learn_rates()
            assert not any(any(row) for row in sums(recommender).values())


@pytest.mark.parametrize("size", [3, 5])
def test_what_taste_explains_of_a_slate_is_found_after_it_was_merged(store: str, size: int) -> None:
    """Another slate has its user and number by then. Whoever did not show the slate looks for it in the log."""
    with exploring(trained(WORLD), store) as recommender:
        other = another(recommender)
        for _ in range(3):
            liked = recommender.recommend("session", 5)
            recommender.feedback(liked.slate_id, [item.id for item in liked.items if int(item.id) % 2])
        recommender.learn_rates()
        slate = recommender.recommend("session", size)
        other.feedback(slate.slate_id, [slate.items[0].id], seen=size)
        other.merge("ann", "session")
        for _ in range(4):
            other.recommend("session", 5)
        other.learn_rates()
        learned = sums(recommender)
        recommender.rebuild_rates()
        assert sums(recommender) == learned


class StoreThatGoesAway(WrappedStore):
    """Refuses everything after so many more reads and writes, while `calls_left` is a number."""

    calls_left: int | None = None

    def _count(self) -> None:
        if self.calls_left == 0:
            raise StoreUnavailableError("away")
        self.calls_left = None if self.calls_left is None else self.calls_left - 1

    def write(self, job: Job) -> Future[Any]:
        self._count()
        return super().write(job)

    def read(self, job: Job) -> Any:
        self._count()
        return super().read(job)


@pytest.mark.parametrize("calls", range(9))
def test_no_rate_is_lost_while_the_store_is_away(calls: int, store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It goes away at any read or write, also between the parts of what is learned, and comes back."""
    monkeypatch.setattr(live_rates, "PER_WRITE", 4)
    with exploring(trained(WORLD), store) as recommender:
        away = StoreThatGoesAway(recommender.store)
        other = another(recommender, cast(Store, away))
        for number in range(6):
            slate = recommender.recommend(f"user {number}", 3)
            other.feedback(slate.slate_id, [slate.items[0].id], seen=3)
        away.calls_left = calls
        with pytest.raises(StoreUnavailableError):
            other.learn_rates()
        away.calls_left = None
        other.learn_rates()
        learned = sums(recommender)
        recommender.rebuild_rates()
        assert sums(recommender) == learned != {}


def test_what_a_killed_process_had_not_learned_yet_is_learned_from_the_log(store: str) -> None:
    with exploring(trained(WORLD), store) as killed:
        slate = killed.recommend("ann", 5)
        killed.feedback(slate.slate_id, [slate.items[1].id], seen=4)
    with exploring(trained(WORLD), store) as again:
        again.learn_rates()
        assert sums(again) == {}
        again.rebuild_rates()
        assert {item: row[:2] for item, row in sums(again).items()} == {
            item.id: (1.0, float(place == 1)) for place, item in enumerate(slate.items[:4])
        }


def test_a_new_item_that_everyone_likes_is_found_and_one_that_nobody_likes_is_not(store: str) -> None:
    catalog = trained(WORLD).with_items([100, 101], categories=[WORLD.dataset.category_names[0]] * 2)
    with exploring(catalog, store) as recommender:
        before = {item: recommender.rate(item) for item in (100, 101)}
        assert before[100] == before[101]
        assert before[100].high - before[100].low > 2.0 * (recommender.rate(0).high - recommender.rate(0).low)
        for number in range(80):
            slate = recommender.recommend(f"user {number}", 10, candidates=[100, 101, *range(20)])
            shown = {item.id for item in slate.items}
            recommender.feedback(slate.slate_id, [100] if 100 in shown else [], seen=10)
            recommender.learn_rates()
        good, poor = recommender.rate(100), recommender.rate(101)
        assert good.low > before[100].value > poor.value
        assert good.high - good.low < before[100].high - before[100].low
        assert all(replayed.is_same for replayed in recommender.replay())
        assert recommender.learn_rates() > 5
    with exploring(catalog, store) as again:
        assert again.rate(100) == good
        assert again.recommend("new", 3).items[0].id == 100


def test_two_workers_come_to_the_same_rates(store: str) -> None:
    catalog = trained(WORLD)
    recommender = exploring(catalog, store)
    other = another(recommender)
    for number in range(30):
        one = (recommender, other)[number % 2]
        slate = one.recommend(f"user {number}", 5)
        one.feedback(slate.slate_id, [slate.items[0].id], seen=5)
        recommender.learn_rates()
        other.learn_rates()
    recommender.learn_rates()
    items = range(catalog.n_items)
    assert [recommender.rate(item) for item in items] == [other.rate(item) for item in items]
    assert [recommender.rate(item) for item in items] != [exploring(catalog, "memory://").rate(item) for item in items]
    recommender.close()


def test_what_is_learned_about_a_user_does_not_depend_on_rates(store: str) -> None:
    with exploring(trained(WORLD), store) as recommender:
        for number in range(40):
            slate = recommender.recommend(f"user {number % 4}", 5)
            recommender.feedback(slate.slate_id, [slate.items[0].id], seen=4)
            recommender.learn_rates()
        assert [problem for _, problem in recommender.verify()] == [None] * 4
        assert all(replayed.is_same for replayed in recommender.replay())


def test_slates_are_chosen_again_by_whoever_explores_less_or_more(store: str) -> None:
    """Beliefs do not depend on `explore`, and slates are logged with it."""
    with exploring(trained(WORLD), store, explore=1.0) as recommender:
        for number in range(12):
            slate = recommender.recommend(f"user {number % 2}", 5)
            recommender.feedback(slate.slate_id, [slate.items[0].id], seen=4)
            recommender.learn_rates()
    with exploring(trained(WORLD), store, explore=0.0) as recommender:
        assert [replayed.is_same for replayed in recommender.replay()] == [True] * 12
        assert [problem for _, problem in recommender.verify()] == [None] * 2


def click_rate(world: World, catalog: Catalog, *, learns: bool, n_slates: int = 2_000) -> float:
    """Serve people of a world, five slates each, who look at everything; return the click rate of the last fifth."""
    policy = Calibrated(catalog, diversity=0.0, explore=0.5 if learns else 0.0)
    recommender = Recommender(catalog, policy, attention=Attention())
    liked = np.zeros((world.dataset.n_users, world.dataset.n_items), dtype=bool)
    liked[world.dataset.users, world.dataset.items] = True
    clicks = []
    for number in range(n_slates):
        person = number // 5 % world.dataset.n_users
        slate = recommender.recommend(f"person {number // 5}", 10)
        clicked = [item.id for item in slate.items if liked[person, int(item.id)]]
        recommender.feedback(slate.slate_id, clicked, seen=10)
        clicks.append(len(clicked) / 10)
        if learns and number % 10 == 9:
            recommender.learn_rates()
    return float(np.mean(clicks[-n_slates // 5 :]))


@pytest.mark.slow
def test_given_vectors_without_likes_learn_the_favorites_of_the_crowd() -> None:
    """After 2,000 slates the click rate is within 10 % of a trained catalog's; without rates it is not."""
    world = make_world(WorldSize(n_users=400, n_items=150, n_categories=6, dim=4), seed=9)
    bare = Catalog.from_vectors(range(150), world.vectors)
    best = click_rate(world, trained(world), learns=False)
    assert click_rate(world, bare, learns=True) > 0.9 * best
    assert click_rate(world, bare, learns=False) < 0.9 * best


def test_what_is_kept_in_memory_is_what_the_store_has(store: str) -> None:
    """Also after items were added between two steps, and after another recommender has learned much."""
    catalog = trained(WORLD).with_items([100], categories=[WORLD.dataset.category_names[0]])
    with exploring(catalog, store) as recommender:
        other = another(recommender)
        start = recommender.rate(100)
        for number, one in enumerate([recommender] * 4 + [other] * 20 + [recommender] * 4):
            slate = one.recommend(f"user {number}", 3, candidates=[100, 1, 2])
            one.feedback(slate.slate_id, [100] if one is recommender else [], seen=3)
            if number == 2:
                recommender.put_items([Item(1_000, categories=(WORLD.dataset.category_names[0],))])
            one.learn_rates()
        known = recommender.rate(100)
        assert known.seen > start.seen + 10.0
        recommender.rebuild_rates()
        assert recommender.rate(100) == known
