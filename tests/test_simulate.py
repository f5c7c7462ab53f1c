import tracemalloc

import numpy as np
import polars as pl
import pytest

from slatewise.catalog import Catalog
from slatewise.catalog.embeddings import BprSettings
from slatewise.data.dataset import Dataset
from slatewise.data.synthetic import WorldSize, make_world
from slatewise.evidence import Attention, Evidence
from slatewise.lab.click_models import CLICK_MODELS
from slatewise.lab.simulate import CHUNK_CELLS, Audience, Session, simulate, users_at_once
from slatewise.policies import POLICIES, make_policy
from slatewise.randomness import Streams, user_keys

WORLD = make_world(WorldSize(n_users=50, n_items=40, n_categories=5, dim=4), seed=2)


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    return Catalog.train(WORLD.dataset, BprSettings(dim=3, epochs=5))


@pytest.mark.parametrize("name", ["dc2b", "ec-bandit", "random"])
def test_records_by_a_loop_over_people(name: str, catalog: Catalog) -> None:
    """One person at a time, by hand: choose, look up whether it is liked, learn, take away."""
    policy, session = make_policy(name, catalog), Session(rounds=3, k=4, seed=9)
    rows = []
    for user in range(WORLD.dataset.n_users):
        liked = set(WORLD.dataset.items[WORLD.dataset.users == user].tolist())
        state, available = policy.start(1), np.ones((1, 40), dtype=bool)
        for number in range(3):
            for position in range(4 if policy.one_at_a_time else 1):
                step = Streams(9, user_keys([user]), number * 4 + position)
                slates = policy.select(state, available, 1 if policy.one_at_a_time else 4, step)
                clicks = np.array([[item in liked for item in slates.items[0].tolist()]])
                state = policy.update(state, Evidence.of_clicks(slates.items, clicks))
                for place, item in enumerate(slates.items[0].tolist()):
                    available[0, item] = False
                    rows.append((user, number, position + place, item, item in liked))
    records = simulate(policy, WORLD.dataset, session)
    assert records.select("user", "round", "position", "item", "clicked").rows() == rows


def test_people_who_look_at_everything_leave_the_records_of_the_paper(catalog: Catalog) -> None:
    policy = make_policy("dc2b-calibrated", catalog)
    plain = simulate(policy, WORLD.dataset, Session(rounds=3, k=4))
    records = simulate(policy, WORLD.dataset, Session(rounds=3, k=4, audience=Audience()))
    assert records["seen"].all()
    assert records["liked"].equals(records["clicked"].rename("liked"))
    assert records.drop("liked", "seen").equals(plain)


@pytest.mark.parametrize("tells_seen", [True, False])
def test_an_audience_by_a_loop_over_people(tells_seen: bool, catalog: Catalog) -> None:
    """One person at a time: the click model draws by (seed, user, step), and only what counts as seen is learned."""
    policy, attention = make_policy("dc2b-calibrated", catalog), Attention("until-last-click", 0.4)
    rows = []
    for user in range(20):
        liked = set(WORLD.dataset.items[WORLD.dataset.users == user].tolist())
        state, available = policy.start(1), np.ones((1, 40), dtype=bool)
        for step in (0, 5, 10):
            [items] = policy.select(state, available, 5, Streams(2, user_keys([user]), step)).items
            draws = Streams(2, user_keys([f"clicks of {user}"]), step).uniform(5)[0]
            seen = [draw < 1 / place for place, draw in enumerate(draws, start=1)]
            clicks = [is_seen and item in liked for is_seen, item in zip(seen, items.tolist(), strict=True)]
            last = max((place for place in range(5) if clicks[place]), default=-1)
            known = seen if tells_seen else [place <= last for place in range(5)]
            value, weight = np.array([clicks], dtype=np.float64), np.where([clicks], 1.0, 0.4)
            learned = Evidence(np.where([known], items, -1), value, weight, np.ones((1, 5)))
            state = policy.update(state, learned)
            available[0, items] = False
            rows += [(user, items[place], items[place] in liked, seen[place], clicks[place]) for place in range(5)]
    audience = Audience(CLICK_MODELS["1/r"], attention, tells_seen)
    records = simulate(policy, WORLD.dataset.take(range(20)), Session(rounds=3, k=5, seed=2, audience=audience))
    assert records.select("user", "item", "liked", "seen", "clicked").rows() == rows


def test_nothing_is_shown_twice_and_the_catalogue_may_run_out(catalog: Catalog) -> None:
    records = simulate(make_policy("dc2b", catalog), WORLD.dataset, Session(rounds=6, k=9))
    per_user = records.group_by("user").agg(shown=pl.len(), distinct=pl.col("item").n_unique())
    assert (per_user["shown"] == 40).all()
    assert (per_user["distinct"] == 40).all()
    clicks = records.filter("clicked").group_by("user").len().sort("user")["len"].to_list()
    assert clicks == np.bincount(WORLD.dataset.users).tolist()


@pytest.fixture(scope="module")
def full_catalog(catalog: Catalog) -> Catalog:
    """With what every policy needs."""
    return catalog.with_co_likes(WORLD.dataset).with_likes(WORLD.dataset)


@pytest.mark.parametrize("name", POLICIES)
def test_chunks_change_nothing(name: str, full_catalog: Catalog) -> None:
    policy, session = make_policy(name, full_catalog), Session(rounds=3, k=3)
    whole = simulate(policy, WORLD.dataset, session)
    for chunk in (1, 7, 50):
        assert whole.equals(simulate(policy, WORLD.dataset, session, chunk)), chunk


def test_chunks_are_bounded_by_memory_and_hold_thousands_of_users_where_they_can() -> None:
    for n_items in (1, 1_000, 50_000, 3_000_000):
        assert 1 <= users_at_once(n_items) <= max(1, CHUNK_CELLS // n_items)
    assert users_at_once(1_000) == 2_000


def test_a_large_chunk_takes_memory_that_users_at_once_allows() -> None:
    """Ten times the people must not take ten times the memory, as they would in one chunk.

    The catalog has so many items that the tables of a chunk outweigh the records, which do grow with the people.
    """
    world = make_world(WorldSize(n_users=2_000, n_items=1_000, n_categories=5, dim=4))
    many, few = world.dataset, world.dataset.take(range(200))
    policy = make_policy("dc2b-calibrated", Catalog.from_vectors(many.item_ids, world.vectors, interactions=many))

    def most_memory(people: Dataset, chunk: int) -> int:
        tracemalloc.start()
        simulate(policy, people, Session(rounds=1, k=4), chunk)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return peak

    simulate(policy, few)  # what is compiled or prepared once does not count
    assert most_memory(many, 100) < 3 * most_memory(few, 100)
    assert most_memory(many, 2_000) > 5 * most_memory(few, 200)


def test_other_seed_other_records(catalog: Catalog) -> None:
    policy = make_policy("dc2b", catalog)
    first, second = (simulate(policy, WORLD.dataset, Session(seed=seed))["item"] for seed in (0, 1))
    assert not first.equals(second)


def test_policies_without_a_belief_leave_the_probability_empty(catalog: Catalog) -> None:
    assert simulate(make_policy("random", catalog), WORLD.dataset)["log_probability"].null_count() == 50 * 40
    assert simulate(make_policy("dc2b", catalog), WORLD.dataset)["log_probability"].null_count() == 0
